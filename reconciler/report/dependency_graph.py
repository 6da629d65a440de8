"""The dependencies of clusters as trees of text: installs, packages, what they own, what is shared."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.text import terminal
from reconciler.dependencies.lock.format import LockUpdate, ownership_entries
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved
from reconciler.dependencies.model.packages import VARIANT_KIND, PackageId


class GraphNode(Struct, frozen=True):
    """One node. `label` is its text, `owns` and `notes` make further lines of it.

    Paths start at a root. A `shared` node has several parents, an `unused` one has none though it needs one.
    """

    key: str
    label: str
    is_root: bool = False
    notes: tuple[str, ...] = ()
    shared: bool = False
    unused: bool = False
    owns: tuple[str, ...] = ()
    package: PackageId | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its key, and its package with and without the ecosystem and by its last segment."""
        name = self.package.name if self.package else ""
        return (self.key, str(self.package), name, name.rpartition("/")[2]) if name else (self.key,)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below its label."""
        return (*(f"owns {name}" for name in self.owns), *self.notes)


class Edge(NamedTuple):
    """A directed edge between two nodes of one group."""

    source: str
    target: str
    label: str = ""


class Group(Struct, frozen=True):
    """Nodes and edges that are drawn together below a title, in the order of the picture.

    `path` are the keys of the highlighted nodes, from a root down.
    """

    title: str
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    path: tuple[str, ...] = ()


def find_path(group: Group, target: str) -> tuple[str, ...]:
    """Return the shortest path from a root to a node, the first in order; empty if no root leads there."""
    children = _children(group)
    roots = [node.key for node in group.nodes if node.is_root]
    paths: deque[tuple[str, ...]] = deque((root,) for root in roots)
    seen = set(roots)
    while paths:
        path = paths.popleft()
        if path[-1] == target:
            return path
        for edge in children.get(path[-1], ()):
            if edge.target not in seen:
                seen.add(edge.target)
                paths.append((*path, edge.target))
    return ()


def _children(group: Group) -> Mapping[str, list[Edge]]:
    children: dict[str, list[Edge]] = {}
    for edge in group.edges:
        children.setdefault(edge.source, []).append(edge)
    return children


def text_tree(groups: Iterable[Group]) -> list[str]:
    """Return groups as lines, with an empty one between two; of one with a highlighted path that path alone.

    Each node is there once below its first parent, with its notes; its other parents refer to it.
    """
    lines: list[str] = []
    for group in groups:
        rows = _path(group) if group.path else _tree(group)
        lines += [group.title, *(rows if group.nodes else ["  no package is locked"]), ""]
    return list(map(terminal, lines[:-1]))


def _tree(group: Group) -> Iterator[str]:
    nodes, children = {node.key: node for node in group.nodes}, _children(group)
    seen: set[str] = set()
    # For each level of a row, from the root: whether it is the last one below its parent.
    rows: list[tuple[str, Edge | None, tuple[bool, ...]]]
    rows = [(key, None, ()) for key in reversed(_roots(group, children))]
    while rows:
        key, edge, last = rows.pop()
        above = "".join("   " if is_last else "│  " for is_last in last)
        branch = f"{above[:-3]}{'└─ ' if last[-1] else '├─ '}" if last else ""
        yield f"  {branch}{_described(nodes[key], edge)}{' (see above)' if key in seen else ''}"
        if key not in seen:
            seen.add(key)
            yield from (f"  {above}  {note}" for note in nodes[key].lines)
            below = children.get(key, ())
            steps = [(e.target, e, (*last, place == len(below) - 1)) for place, e in enumerate(below)]
            rows += reversed(steps)


def _roots(group: Group, children: Mapping[str, Sequence[Edge]]) -> list[str]:
    """Return the nodes without parents, and one node of each part that only has circles."""
    targets = {edge.target for edge in group.edges}
    roots: list[str] = []
    reached: set[str] = set()
    for node in (*(node for node in group.nodes if node.key not in targets), *group.nodes):
        if node.key in reached:
            continue
        roots.append(node.key)
        queue = [node.key]
        for key in queue:
            if key not in reached:
                reached.add(key)
                queue += (edge.target for edge in children.get(key, ()))
    return roots


def _path(group: Group) -> Iterator[str]:
    nodes = {node.key: node for node in group.nodes}
    for depth, key in enumerate(group.path):
        edge = next((e for e in group.edges if depth and e[:2] == (group.path[depth - 1], key)), None)
        yield f"  {'   ' * (depth - 1)}{'└─ ' if depth else ''}{_described(nodes[key], edge)}"


def _described(node: GraphNode, edge: Edge | None) -> str:
    """Return a node in one line: its label, the requirement that it meets, and whether it is shared."""
    words = [f"[{edge.label}]"] if edge is not None and edge.label else []
    words += ["shared"] if node.shared else []
    words += ["unused"] if node.unused else []
    return " ".join([node.label, *words])


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
