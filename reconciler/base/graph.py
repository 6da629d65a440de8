"""A directed graph to be drawn: groups of nodes with notes and labelled edges, and paths through it."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class NodeRole(StrEnum):
    """Role of a node, which decides how it is drawn."""

    ROOT = "root"
    REVISION = "revision"
    PACKAGE = "package"
    OUTSIDE = "outside"


class GraphNode(Struct, frozen=True):
    """One node. `label` is its text, `owns` and `notes` make further lines of it.

    A `shared` node has several parents, an `unused` one has none though it needs one. `packages` are the
    names of the packages that it is drawn for, `states` counts them by state.
    """

    key: str
    label: str
    role: NodeRole = NodeRole.PACKAGE
    notes: tuple[str, ...] = ()
    shared: bool = False
    unused: bool = False
    version: str = ""
    owns: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    states: tuple[tuple[str, int], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below its label."""
        return (*(f"owns {name}" for name in self.owns), *self.notes)


class Edge(NamedTuple):
    """A directed edge between two nodes of one group; of versions how many packages have it where."""

    source: str
    target: str
    label: str = ""
    main: int = 0
    review: int = 0


class Group(Struct, frozen=True):
    """Nodes and edges that are drawn together below a title, in the order of the picture.

    `path` are the keys of the highlighted nodes, from a root down, `members` what the group is drawn for.
    """

    title: str
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    path: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    def on_path(self, edge: Edge) -> bool:
        """Tell whether an edge is a step of the highlighted path."""
        return (edge.source, edge.target) in zip(self.path, self.path[1:], strict=False)


class Subject(StrEnum):
    """Subject of a graph, which decides its words and its JSON."""

    DEPENDENCIES = "dependencies"
    PACKAGES = "packages"


class Graph(Struct, frozen=True):
    """Groups with a title for the whole picture and a description of it."""

    title: str
    groups: tuple[Group, ...] = ()
    description: str = ""
    subject: Subject = Subject.DEPENDENCIES


class TreeRow(NamedTuple):
    """One row of a graph as a tree: a node below its parent, or a reference to its first row."""

    node: GraphNode
    depth: int
    edge: Edge | None
    repeated: bool
    last: tuple[bool, ...] = ()
    """For each level from the root: whether its row is the last one below its parent."""


def tree_rows(group: Group) -> Iterator[TreeRow]:
    """Yield a group as a tree: roots first, each node with its children below it once, then references."""
    nodes = {node.key: node for node in group.nodes}
    children = _children(group)
    seen: set[str] = set()
    rows: list[tuple[str, Edge | None, tuple[bool, ...]]]
    rows = [(key, None, ()) for key in reversed(find_roots(group))]
    while rows:
        key, edge, last = rows.pop()
        repeated = key in seen
        yield TreeRow(nodes[key], len(last), edge, repeated, last)
        if repeated:
            continue
        seen.add(key)
        below = children.get(key, [])
        steps = [
            (child.target, child, (*last, number == len(below) - 1)) for number, child in enumerate(below)
        ]
        rows.extend(reversed(steps))


def find_roots(group: Group) -> list[str]:
    """Return the nodes without parents, and one node of each part that only has circles."""
    targets = {edge.target for edge in group.edges}
    roots = [node.key for node in group.nodes if node.key not in targets]
    children = _children(group)
    reached = _reached(children, roots)
    for node in group.nodes:
        if node.key not in reached:
            roots.append(node.key)
            reached |= _reached(children, [node.key])
    return roots


def find_path(group: Group, target: str) -> tuple[str, ...]:
    """Return the shortest path from a root to a node, the first in order; empty if no root leads there."""
    children = _children(group)
    roots = [node.key for node in group.nodes if node.role is NodeRole.ROOT]
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


def _reached(children: Mapping[str, Sequence[Edge]], start: Sequence[str]) -> set[str]:
    queue, reached = list(start), set(start)
    for key in queue:
        for edge in children.get(key, ()):
            if edge.target not in reached:
                reached.add(edge.target)
                queue.append(edge.target)
    return reached
