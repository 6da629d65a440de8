"""The dependencies of clusters as a graph: installs, packages, what they own, what is shared or unused."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from reconciler.dependencies.lock.format import LockUpdate, ownership_entries
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved
from reconciler.dependencies.model.packages import VARIANT_KIND
from reconciler.report.graph import Edge, GraphNode, Group, find_path

Labels = Mapping[tuple[str, str, str], str]
"""How people call what requests a package that a lock has, by cluster, namespace and name of its install."""


def dependency_graph(
    locks: LockUpdate, *, cluster: str = "", labels: Labels = MappingProxyType({})
) -> tuple[Group, ...]:
    """Return the dependencies of a fleet or of one cluster; clusters with equal locks are one group. Pure.

    A lock names packages of variants, not the variants: `labels` have their names.
    """
    clusters: dict[str, list[str]] = {}
    resolutions: dict[str, Resolution] = {}
    unavailable: dict[Instance, str] = {}
    for scope in locks.scopes:
        if scope.after is not None and cluster in ("", scope.cluster):
            clusters.setdefault(scope.after.lock.resolution, []).append(scope.cluster)
            resolutions[scope.after.lock.resolution] = scope.after.resolution
            unavailable.update(scope.unavailable)
    pairs = sorted((tuple(sorted(names)), digest) for digest, names in clusters.items())
    return tuple(_group(names, resolutions[digest], unavailable, labels) for names, digest in pairs)


def highlight(groups: Iterable[Group], package: str) -> tuple[Group, ...]:
    """Return the groups that have a package, each with a path from a manifest to it highlighted.

    The package is named as `lock` prints it, with or without ecosystem and slot, or by its last segment, or
    by a kind that it owns.
    """
    highlighted = []
    for group in groups:
        matches = (node.key for node in group.nodes if package in (*node.names, *node.owns))
        paths = [find_path(group, key) or (key,) for key in matches]
        if paths:
            highlighted.append(replace(group, path=min(paths, key=len)))
    return tuple(highlighted)


def node_names(groups: Iterable[Group]) -> set[str]:
    """Return every name by which `highlight` finds a package."""
    return {name for group in groups for node in group.nodes for name in (*node.names, *node.owns)}


def _group(
    clusters: tuple[str, ...], resolution: Resolution, unavailable: Mapping[Instance, str], labels: Labels
) -> Group:
    owned, uncontrolled = _owned(resolution)
    others: dict[str, GraphNode] = {}
    edges = tuple(sorted(set(_edges(resolution, others, clusters, labels))))
    parents = Counter(edge.target for edge in edges)
    packages = [
        GraphNode(
            str(package.instance),
            f"{package.instance.name} {package.version}",
            notes=tuple(_notes(package, uncontrolled.pop(package.instance, ()), unavailable)),
            shared=parents[str(package.instance)] > 1,
            unused=package.instance in resolution.unused,
            owns=tuple(owned.get(package.instance, ())),
            package=package.instance.package,
        )
        for package in resolution.packages
    ]
    named = [node for _, node in sorted(others.items()) if node.is_root]
    outside = [node for _, node in sorted(others.items()) if not node.is_root]
    removed = [
        GraphNode(str(gone), f"{gone.name}, which is removed", notes=tuple(names), package=gone.package)
        for gone, names in sorted(uncontrolled.items(), key=lambda item: str(item[0]))
    ]
    return Group(", ".join(clusters), (*named, *packages, *outside, *removed), edges)


_THERE = "which is installed already"


def _edges(
    resolution: Resolution, others: dict[str, GraphNode], clusters: tuple[str, ...], labels: Labels
) -> Iterator[Edge]:
    """Yield the edges of a lock, and note the nodes at their ends that no lock pins."""
    for package in resolution.packages:
        key = str(package.instance)
        if package.by_user:
            label = _manifest(package, clusters, labels)
            manifest = GraphNode(f"manifest {label}", label, is_root=True)
            others[manifest.key] = manifest
            yield Edge(manifest.key, key)
        for dependency in package.dependencies:
            of_id = dependency.id if dependency.need != "package" else ""
            label = f"{of_id} {dependency.constraints}".strip()
            if dependency.resolved:
                yield Edge(key, str(dependency.resolved), label)
            elif target := dependency.detail:
                is_api = dependency.need == "api"
                where = "API that the cluster serves" if is_api else f"{dependency.installation}, {_THERE}"
                others[target] = GraphNode(target, where)
                yield Edge(key, target, label)


def _manifest(package: Resolved, clusters: tuple[str, ...], labels: Labels) -> str:
    """Return what requests a package, as people call it; the package where clusters of a group differ."""
    slot = package.instance.slot
    where = (slot.namespace, package.name or "/".join(slot.path))
    called = {labels.get((cluster, *where), "") for cluster in clusters}
    kind = "package" if package.kind == VARIANT_KIND else package.kind or str(package.dialect)
    return (len(called) == 1 and called.pop()) or f"{kind} {'/'.join(filter(None, where))}".rstrip()


def _notes(
    package: Resolved, uncontrolled: Iterable[str], unavailable: Mapping[Instance, str]
) -> Iterator[str]:
    """Yield what is special about a package."""
    yield from uncontrolled
    if package.unavailable:
        yield unavailable.get(package.instance, "is no longer published").removeprefix("is ")


def _owned(resolution: Resolution) -> tuple[dict[Instance, list[str]], dict[Instance, list[str]]]:
    """Return the kinds and compositions that each instance owns, and notes on those without a controller.

    What an object installs no more stays, as the object owns it; with the object it goes.
    """
    objects = {p.object: p.instance for p in resolution.packages if p.object}
    installed = {package.instance for package in resolution.packages}
    owned: dict[Instance, list[str]] = {}
    notes: dict[Instance, list[str]] = {}
    for name, entry in ownership_entries(resolution):
        owner = entry.package if entry.controller else objects.get(entry.object, entry.package)
        if owner is None:
            continue
        if entry.controller:
            owned.setdefault(owner, []).append(name)
        else:
            fate = "stays without a controller" if owner in installed else "goes with it"
            fate = fate if entry.retained else "is not there yet"
            notes.setdefault(owner, []).append(f"{name} {fate}")
    return owned, notes
