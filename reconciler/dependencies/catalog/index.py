"""Read and edit the package index: which packages exist, and the default implementation per interface."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from reconciler.api.meta import ApiModel
from reconciler.dependencies.catalog.published import read_package_version
from reconciler.dependencies.dialects.reading import Diagnostics, canonical_interface
from reconciler.dependencies.model.cluster import Catalogue, RefusedVersion
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.inventory.inventory import SourcedDocument
from reconciler.names.problems import Problem


class InterfaceDefaults(NamedTuple):
    """The default implementation of each interface, in three layers; the nearest one counts."""

    fleet: Mapping[str, PackageId]
    environment: Mapping[str, PackageId]
    cluster: Mapping[str, PackageId]

    def effective(self) -> tuple[tuple[str, PackageId], ...]:
        """Return one default per interface, sorted: cluster before environment before fleet."""
        merged = {**self.fleet, **self.environment, **self.cluster}
        return tuple(sorted(merged.items()))


class IndexLayer(Struct, frozen=True):
    """One layer of the index: its packages and its default implementations."""

    packages: frozenset[PackageId] = frozenset()
    defaults: Mapping[str, PackageId] = field(default_factory=dict)


def add_package(index: IndexLayer, package: PackageId, *, interface: str = "") -> IndexLayer:
    """Register a package; with an interface it becomes the default there, instead of the previous one."""
    chosen = {canonical_interface(interface): package} if interface else {}
    defaults = {**index.defaults, **chosen}
    return replace(index, packages=index.packages | {package}, defaults=defaults)


def remove_package(index: IndexLayer, package: PackageId) -> IndexLayer:
    """Forget a package, also as a default; idempotent."""
    defaults = {interface: id_ for interface, id_ in index.defaults.items() if id_ != package}
    return replace(index, packages=index.packages - {package}, defaults=defaults)


class IndexEntry(NamedTuple):
    """One line of `index list`."""

    package: PackageId
    versions: tuple[str, ...]
    interfaces: tuple[str, ...]
    is_default: bool


def list_packages(
    catalogue: Catalogue,
    defaults: Iterable[tuple[str, PackageId]] = (),
    *,
    name: str = "",
    labels: Iterable[tuple[str, str]] = (),
    interface: str = "",
    keywords: Iterable[str] = (),
) -> tuple[IndexEntry, ...]:
    """Return the packages that pass every given filter, sorted, versions highest first.

    `is_default` is set if the package is the default of the given interface, or of any without one.
    """
    interface, required, words = canonical_interface(interface), frozenset(labels), frozenset(keywords)
    chosen = {id_ for own, id_ in defaults if interface in ("", own)}
    entries = []
    for id_, candidates in sorted(catalogue.packages.items()):
        interfaces = sorted(
            {implemented.id for candidate in candidates for implemented in candidate.interfaces}
        )
        own_labels = {pair for candidate in candidates for pair in candidate.labels}
        own_keywords = {word for candidate in candidates for word in candidate.keywords}
        if name.lower() not in id_.name.lower() or not (required <= own_labels and words <= own_keywords):
            continue
        if interface and interface not in interfaces:
            continue
        versions = tuple(str(candidate.version) for candidate in reversed(candidates))
        entries.append(IndexEntry(id_, versions, tuple(interfaces), id_ in chosen))
    return tuple(entries)


INDEX_DIRECTORY = "index"


INDEX_KIND = "PackageIndex"


INDEX_API_VERSION = "reconciler.dev/v1alpha1"


FLEET = "index/defaults.yaml"


class PackageIndex(ApiModel):
    """Choices of one layer: the default package of each interface, as `ECOSYSTEM:NAME`.

    `environment` is the environment of a cluster; only the layer of a cluster has it.
    """

    api_version: str
    kind: str
    environment: str = ""
    defaults: dict[str, str] = Field(default_factory=dict)


class LayerDefaults(NamedTuple):
    """Contents of one file of defaults."""

    environment: str
    defaults: Mapping[str, PackageId]


NO_DEFAULTS = LayerDefaults("", {})


class IndexContents(Struct, frozen=True):
    """Every version that the index has, and every layer by the path of its file."""

    candidates: tuple[Candidate, ...] = ()
    layers: Mapping[str, LayerDefaults] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    refused: Mapping[str, tuple[RefusedVersion, ...]] = field(default_factory=dict)
    """Versions that are no candidates because of a problem, by the name of their package."""

    def environment_of(self, cluster: str) -> str:
        """Return the environment that a cluster's layer names, "" if it names none."""
        return self.layers.get(layer_path(cluster=cluster), NO_DEFAULTS).environment

    def defaults_of(self, cluster: str, environment: str) -> InterfaceDefaults:
        """Return the three layers that count for a cluster; the nearest one has the last word.

        An empty name has no layer of its own.
        """
        near = self.layers.get(layer_path(cluster=cluster), NO_DEFAULTS) if cluster else NO_DEFAULTS
        middle = (
            self.layers.get(layer_path(environment=environment), NO_DEFAULTS) if environment else NO_DEFAULTS
        )
        return InterfaceDefaults(self.layers.get(FLEET, NO_DEFAULTS).defaults, middle.defaults, near.defaults)


def layer_path(*, environment: str = "", cluster: str = "") -> str:
    """Return the path of the defaults of a cluster, of an environment, or of the fleet."""
    if cluster:
        return f"index/clusters/{cluster}.yaml"
    return f"index/environments/{environment}.yaml" if environment else FLEET


def read_index(documents: Iterable[SourcedDocument]) -> IndexContents:
    """Parse the documents of the index. Total; order-free; one bad file affects no other."""
    candidates: list[Candidate] = []
    layers: dict[str, LayerDefaults] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    refused: dict[str, tuple[RefusedVersion, ...]] = {}
    ordered = sorted(documents, key=lambda index_document: index_document.source.location)
    for document in (
        index_document for index_document in ordered if index_document.value.get("kind") == INDEX_KIND
    ):
        notes = Diagnostics(document.source, f"{INDEX_KIND} {document.source.location.path}")
        layer = _layer(document, notes)
        problems += notes.problems
        if layer is not None:
            layers[document.source.location.path] = layer
    for folder in _folders(
        index_document for index_document in ordered if index_document.value.get("kind") != INDEX_KIND
    ):
        reading = read_package_version(
            (index_document.value, index_document.source) for index_document in folder
        )
        candidates += reading.candidates
        problems += reading.problems
        warnings += reading.warnings
        if reading.problems:
            headers = {(str(d.value.get("source") or ""), str(d.value.get("version") or "")) for d in folder}
            # A Carvel Package has no header, and broken YAML has nothing: their folder is called as they are.
            _, *own_name, own_version = ("", *folder[0].source.location.path.split("/")[:-1])
            called = {header for header in headers if header[0]} or {("/".join(own_name[1:]), own_version)}
            for name, version in sorted(called):
                own = (RefusedVersion(version, problem) for problem in reading.problems)
                refused[name] = (*refused.get(name, ()), *own)
    return IndexContents(tuple(candidates), layers, tuple(sorted(problems)), tuple(sorted(warnings)), refused)


def _folders(documents: Iterable[SourcedDocument]) -> Iterator[list[SourcedDocument]]:
    folders: dict[str, list[SourcedDocument]] = {}
    for document in documents:
        folders.setdefault(document.source.location.path.rpartition("/")[0], []).append(document)
    yield from folders.values()


def _layer(document: SourcedDocument, notes: Diagnostics) -> LayerDefaults | None:
    parsed = notes.parse(PackageIndex, document.value)
    if parsed is None:
        return None
    defaults: dict[str, PackageId] = {}
    for written, text in sorted(parsed.defaults.items()):
        id_, interface = parse_id(text), canonical_interface(written)
        if id_ is None:
            notes.refuse(
                ("defaults", written), f"{text!r} is not ECOSYSTEM:NAME", hint=f"One of {_ecosystems()}."
            )
        elif defaults.setdefault(interface, id_) != id_:
            message = f"{written} is {interface}, which is {defaults[interface]} already"
            notes.refuse(("defaults", written), message, hint="Keep one of the two lines.")
    return None if notes.problems else LayerDefaults(parsed.environment, defaults)


def parse_id(text: str) -> PackageId | None:
    """Return the package that `ECOSYSTEM:NAME` means, None if it means none."""
    ecosystem, colon, name = text.partition(":")
    if not colon or not name or ecosystem not in set(Ecosystem):
        return None
    return PackageId(Ecosystem(ecosystem), name)


def _ecosystems() -> str:
    return ", ".join(f"{ecosystem}:" for ecosystem in Ecosystem)
