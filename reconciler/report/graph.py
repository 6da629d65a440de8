"""A directed graph as a tree of text. Pure and deterministic."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from reconciler.base.escape import terminal
from reconciler.dependencies.model.packages import PackageId


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
