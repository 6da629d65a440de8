"""The package index as documents: versions in folders, and files that choose defaults for a layer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import Field

from reconciler.api.meta import ApiModel
from reconciler.dependencies.dialects.reading import Notes
from reconciler.dependencies.index import Defaults
from reconciler.dependencies.model import Candidate, Ecosystem, PackageId
from reconciler.dependencies.published import read_published
from reconciler.errors import Problem
from reconciler.inventory import FoundDocument

KIND = "PackageIndex"
API_VERSION = "reconciler.dev/v1alpha1"
FLEET = "index/defaults.yaml"


class PackageIndex(ApiModel):
    """One layer's choices: the default package of each interface, as `ECOSYSTEM:NAME`.

    `environment` says which environment a cluster belongs to; it stands in the cluster's layer.
    """

    api_version: str
    kind: str
    environment: str = ""
    defaults: dict[str, str] = Field(default_factory=dict)


class Layer(NamedTuple):
    """What one file of defaults says."""

    environment: str
    defaults: Mapping[str, PackageId]


NOTHING = Layer("", {})


@dataclass(frozen=True, slots=True)
class PublishedIndex:
    """Every version that the index has, and every layer by the path of its file."""

    candidates: tuple[Candidate, ...] = ()
    layers: Mapping[str, Layer] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def environment_of(self, cluster: str) -> str:
        """Return the environment that a cluster's layer names, "" if it names none."""
        return self.layers.get(layer_path(cluster=cluster), NOTHING).environment

    def defaults_of(self, cluster: str, environment: str) -> Defaults:
        """Return the three layers that count for a cluster; the nearest one has the last word.

        An empty name has no layer of its own.
        """
        near = self.layers.get(layer_path(cluster=cluster), NOTHING) if cluster else NOTHING
        middle = self.layers.get(layer_path(environment=environment), NOTHING) if environment else NOTHING
        return Defaults(self.layers.get(FLEET, NOTHING).defaults, middle.defaults, near.defaults)


def layer_path(*, environment: str = "", cluster: str = "") -> str:
    """Return where the defaults of a cluster, of an environment, or of the fleet stand."""
    if cluster:
        return f"index/clusters/{cluster}.yaml"
    return f"index/environments/{environment}.yaml" if environment else FLEET


def read_index(documents: Iterable[FoundDocument]) -> PublishedIndex:
    """Return what the documents of the index mean. Total; order-free; one bad file touches no other."""
    candidates: list[Candidate] = []
    layers: dict[str, Layer] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    several = sorted(documents, key=lambda one: one.source.location)
    for document in (one for one in several if one.value.get("kind") == KIND):
        notes = Notes(document.source, f"{KIND} {document.source.location.path}")
        layer = _layer(document, notes)
        problems += notes.problems
        if layer is not None:
            layers[document.source.location.path] = layer
    for folder in _folders(one for one in several if one.value.get("kind") != KIND):
        reading = read_published((one.value, one.source) for one in folder)
        candidates += reading.candidates
        problems += reading.problems
        warnings += reading.warnings
    return PublishedIndex(tuple(candidates), layers, tuple(sorted(problems)), tuple(sorted(warnings)))


def _folders(documents: Iterable[FoundDocument]) -> Iterator[list[FoundDocument]]:
    folders: dict[str, list[FoundDocument]] = {}
    for document in documents:
        folders.setdefault(document.source.location.path.rpartition("/")[0], []).append(document)
    yield from folders.values()


def _layer(document: FoundDocument, notes: Notes) -> Layer | None:
    parsed = notes.parse(PackageIndex, document.value)
    if parsed is None:
        return None
    defaults = {}
    for interface, text in sorted(parsed.defaults.items()):
        id_ = parse_id(text)
        if id_ is None:
            notes.refuse(
                ("defaults", interface), f"{text!r} is not ECOSYSTEM:NAME", hint=f"One of {_ecosystems()}."
            )
        else:
            defaults[interface] = id_
    return None if notes.problems else Layer(parsed.environment, defaults)


def parse_id(text: str) -> PackageId | None:
    """Return the package that `ECOSYSTEM:NAME` means, None if it means none."""
    ecosystem, colon, name = text.partition(":")
    if not colon or not name or ecosystem not in set(Ecosystem):
        return None
    return PackageId(Ecosystem(ecosystem), name)


def _ecosystems() -> str:
    return ", ".join(f"{ecosystem}:" for ecosystem in Ecosystem)
