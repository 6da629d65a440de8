"""A cluster's world from manifests as users write them: one YAML text, several documents."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from reconciler.base.errors import Location
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.dialects.carvel import read_kpt
from reconciler.dependencies.dialects.crossplane import read_meta
from reconciler.dependencies.dialects.porter import read_bundle
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    RefusedVersion,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Gvk, Interface, PackageId, Platform
from reconciler.dependencies.solve.problem import Solution
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import VersionPolicy, parse_loose
from reconciler.inventory.inventory import Source
from reconciler.inventory.snapshot import StoredKind
from tests.support.values import replace

if TYPE_CHECKING:
    from reconciler.dependencies.model.packages import Install

FILE = "config/cluster.yaml"


class Marks:
    """Lines of the fields of one document."""

    def __init__(self, node: yaml.Node) -> None:
        self.node = node

    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        node = self.node
        for step in path:
            found = self._child(node, step)
            if found is None:
                break
            node = found
        return node.start_mark.line + 1, node.start_mark.column + 1

    @staticmethod
    def _child(node: yaml.Node, step: str | int) -> yaml.Node | None:
        if isinstance(node, yaml.MappingNode):
            return next((value for key, value in node.value if key.value == step), None)
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return node.value[step]
        return None


def world_of(text: str, **changes: Any) -> ClusterInputs:
    """Return the world that a text of several documents describes; `kind: Cluster` tells what is there."""
    installs: list[Install] = []
    candidates: list[Candidate] = []
    refused: dict[str, tuple[RefusedVersion, ...]] = {}
    presence, choices = ClusterState(), ResolverSettings()
    plain = textwrap.dedent(text)
    documents = yaml.safe_load_all(plain)
    for node, document in zip(yaml.compose_all(plain, Loader=yaml.SafeLoader), documents, strict=True):
        source = Source(Location(FILE, node.start_mark.line + 1), marks=Marks(node))
        if document.get("kind") == "Cluster":
            presence, choices = _presence(document), _choices(document.get("choices") or {})
            continue
        reading = read(document, source)
        if reading.problems and document.get("kind") == "Package":
            own = (RefusedVersion(str(document["spec"]["version"]), p) for p in reading.problems)
            refused[document["spec"]["refName"]] = tuple(own)
            continue
        assert reading.problems == (), reading.problems
        installs += reading.installs
        candidates += reading.candidates
    fields: dict[str, Any] = {"presence": presence, "choices": choices, **changes}
    return ClusterInputs(tuple(installs), build_catalogue(candidates, refused), **fields)


def read(document: Mapping[str, Any], source: Source) -> ParsedManifest:
    """Read one document: a user's manifest, or a candidate as the index would hand it over."""
    notes = (document.get("metadata") or {}).get("annotations") or {}
    if "kpt" in notes:
        repository, _, path = notes["kpt"].rpartition("//")
        version = str(document["spec"]["version"])
        return read_kpt(document, source, repository=repository, path=path, revision=version)
    if str(document.get("apiVersion")).startswith("meta."):
        provides = tuple(gvk(one) for one in notes.get("kinds", "").split())
        meta = read_meta(document, source, image=notes["image"], version=notes["version"], provides=provides)
        return replace(meta, candidates=tuple(replace(c, defined=provides) for c in meta.candidates))
    if document.get("schemaType") == "Bundle":
        return read_bundle(document, source, repository=document.get("repository", ""))
    reading = read_manifest(document, source)
    assert reading is not None
    return reading


def gvk(text: str) -> Gvk:
    group, version, kind = text.split("/")
    return Gvk(group, version, kind)


def _presence(document: Mapping[str, Any]) -> ClusterState:
    return ClusterState(
        apis=frozenset(gvk(one) for one in document.get("apis") or ()),
        owners=tuple(
            (gvk(one).group_kind, _id(owner)) for one, owner in (document.get("owners") or {}).items()
        ),
        platforms=tuple(
            (Platform(name), parse_loose(version))
            for name, version in (document.get("platforms") or {}).items()
        ),
        installations=tuple(_installed(one) for one in document.get("installations") or ()),
        stored=tuple(
            StoredKind(gvk(one).group_kind, (gvk(one).version,), 1, is_complete=True)
            for one in document.get("stored") or ()
        ),
    )


def _installed(one: Mapping[str, Any]) -> ObservedInstallation:
    interfaces = tuple(
        Interface(name, parse_loose(str(version))) for name, version in (one.get("provides") or {}).items()
    )
    return ObservedInstallation(
        one.get("namespace", ""),
        one["name"],
        _id(one["package"]),
        parse_loose(one["version"]),
        labels=tuple(sorted((one.get("labels") or {}).items())),
        interfaces=interfaces,
    )


def _id(text: str) -> PackageId:
    ecosystem, _, name = text.partition(":")
    return PackageId(Ecosystem(ecosystem), name)


def _choices(said: Mapping[str, Any]) -> ResolverSettings:
    return ResolverSettings(
        allow_downgrade=said.get("allowDowngrade", False),
        discovery=said.get("discovery", False),
        defaults=tuple((name, _id(text)) for name, text in (said.get("defaults") or {}).items()),
        shared_namespace=said.get("sharedNamespace", ""),
        policies=tuple((Ecosystem(e), VersionPolicy(p)) for e, p in (said.get("policies") or {}).items()),
    )


def told(solution: Solution) -> str:
    """Return a solution as lines that a person can review: every pin, and how each need is met."""
    lines = []
    for instance, one in solution.resolved.items():
        asked = "user" if one.by_user else ", ".join(map(str, one.requested_by))
        lines.append(f"{instance} {solution.candidates[instance].version} for {asked}")
        for need in one.dependencies:
            asked_for = solution.requirements[instance, need.signature]
            met = need.resolved or need.detail
            lines.append(f"  {asked_for.alias or asked_for} <- {met} ({need.via})")
    lines += [f"skipped {skipped.requirement} of {skipped.parent}" for skipped in solution.skipped]
    return "\n".join([*lines, *map(str, solution.explanations)])


def resolved(text: str, **changes: Any) -> str:
    """Resolve a text and tell the solution."""
    return told(resolve_cluster(world_of(text, **changes)))


def package(name: str, version: str, *lines: str) -> str:
    """Return a Carvel package as one document; each line is one dependency or `key: value` of its spec."""
    needs = [line for line in lines if line.startswith("{")]
    fields = [line for line in lines if not line.startswith("{")]
    return "\n".join(
        [
            "---",
            "apiVersion: data.packaging.carvel.dev/v1alpha1",
            "kind: Package",
            f"metadata: {{name: {name}.{version}}}",
            "spec:",
            f"  refName: {name}",
            f"  version: {version}",
            *(f"  {field}" for field in fields),
            "  dependencies:",
            *(f"  - {need}" for need in needs),
            "",
        ]
    )


def install(name: str, package_name: str, constraints: str, *lines: str, namespace: str = "prod") -> str:
    """Return a PackageInstall as one document; lines go below spec."""
    return "\n".join(
        [
            "---",
            "apiVersion: packaging.carvel.dev/v1alpha1",
            "kind: PackageInstall",
            f"metadata: {{name: {name}, namespace: {namespace}}}",
            "spec:",
            f"  packageRef: {{refName: {package_name}, versionSelection: {{constraints: '{constraints}'}}}}",
            *(f"  {line}" for line in lines),
            "",
        ]
    )


def needs(name: str, version: str = "", more: str = "") -> str:
    return f"{{package: {{refName: {name}, version: '{version}'}}{more}}}"


def bundle(name: str, version: str, dependencies: str = "{}", more: str = "") -> str:
    return f"""---
schemaType: Bundle
name: {name}
repository: r.io/{name}
version: {version}
dependencies: {dependencies}
{more}
"""


def installation(name: str, bundle_name: str, namespace: str = "prod", more: str = "") -> str:
    return f"""---
schemaType: Installation
schemaVersion: 1.0.2
name: {name}
namespace: {namespace!r}
bundle: {{repository: r.io/{bundle_name}, version: 1.0.0}}
{more}
"""


def crossplane(name: str, version: str, needs_: str = "[]", kinds: str = "") -> str:
    notes = f"{{image: x.io/{name}, version: {version}, kinds: '{kinds}'}}"
    return (
        "---\napiVersion: meta.pkg.crossplane.io/v1\nkind: Configuration\n"
        f"metadata: {{name: {name}, annotations: {notes}}}\nspec: {{dependsOn: {needs_}}}\n"
    )


def provider(name: str, version: str, kind: str = "Provider") -> str:
    return (
        f"---\napiVersion: pkg.crossplane.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        f"spec: {{package: 'x.io/{name}:{version}'}}\n"
    )
