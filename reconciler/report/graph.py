"""A directed graph, and its forms: a tree of text, Mermaid, a JSON value. Pure and deterministic."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins

from reconciler.base.escape import terminal
from reconciler.report.json import API_VERSION


class NodeRole(StrEnum):
    """Role of a node, which decides how it is drawn."""

    ROOT = "root"
    PACKAGE = "package"
    OUTSIDE = "outside"


class GraphNode(Struct, frozen=True):
    """One node. `label` is its text, `owns` and `notes` make further lines of it.

    A `shared` node has several parents, an `unused` one has none though it needs one.
    """

    key: str
    label: str
    role: NodeRole = NodeRole.PACKAGE
    notes: tuple[str, ...] = ()
    shared: bool = False
    unused: bool = False
    version: str = ""
    owns: tuple[str, ...] = ()

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
    clusters: tuple[str, ...] = ()

    def on_path(self, edge: Edge) -> bool:
        """Tell whether an edge is a step of the highlighted path."""
        return (edge.source, edge.target) in zip(self.path, self.path[1:], strict=False)


class Graph(Struct, frozen=True):
    """Groups with a title for the whole picture and a description of it."""

    title: str
    groups: tuple[Group, ...] = ()
    description: str = ""


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


def graph_value(graph: Graph) -> dict[str, Any]:
    """Return a graph as a JSON value."""
    groups = list(map(_group_value, graph.groups))
    return {"apiVersion": API_VERSION, "kind": "Graph", "title": graph.title, "groups": groups}


def _group_value(group: Group) -> dict[str, Any]:
    nodes = [to_builtins(node) for node in group.nodes]
    return {
        "title": group.title,
        "clusters": list(group.clusters),
        "nodes": [{"id": node.pop("key"), **node} for node in nodes],
        "edges": [{"source": e.source, "target": e.target, "requirement": e.label} for e in group.edges],
        "path": list(group.path),
    }


# Text


def text_tree(graph: Graph) -> str:
    """Return a graph as lines; of a group with a highlighted path that path alone.

    Each node is there once below its first parent, with its notes; its other parents refer to it.
    """
    lines: list[str] = []
    for group in graph.groups:
        rows = _path(group) if group.path else _tree(group)
        lines += [group.title, *(rows if group.nodes else ["  no package is locked"]), ""]
    return "\n".join(map(terminal, lines[:-1])) + "\n"


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


# Mermaid, which GitHub, GitLab and Gitea draw in Markdown


_SAFE = frozenset(" ._/:@+-")
_STYLES = (
    "  classDef root stroke-dasharray:4",
    "  classDef outside stroke-dasharray:2,fill:none",
    "  classDef shared stroke-width:3px",
    "  classDef unused opacity:0.6",
    "  classDef path stroke:#d1242f,stroke-width:4px",
)


def mermaid(graph: Graph) -> str:
    """Return a graph as a flowchart; every text is quoted, and every special character is an entity."""
    lines = ["flowchart LR", f"  accTitle: {_plain(graph.title)}", f"  accDescr: {_plain(graph.description)}"]
    highlighted: list[int] = []
    count = 0
    for place, group in enumerate(graph.groups):
        numbers = {node.key: f"n{place}_{i}" for i, node in enumerate(group.nodes)}
        lines += [f'  subgraph g{place}["{_entities(group.title)}"]']
        for node in group.nodes:
            lines += _mermaid_node(numbers[node.key], node, group)
        for edge in group.edges:
            label = f'|"{_entities(edge.label)}"|' if edge.label else ""
            lines.append(f"    {numbers[edge.source]} -->{label} {numbers[edge.target]}")
            highlighted += [count] if group.on_path(edge) else []
            count += 1
        lines.append("  end")
    lines += _STYLES
    if highlighted:
        lines.append(f"  linkStyle {','.join(map(str, highlighted))} stroke:#d1242f,stroke-width:4px")
    return "\n".join(lines) + "\n"


def _mermaid_node(number: str, node: GraphNode, group: Group) -> Iterator[str]:
    text = "<br/>".join(_entities(line) for line in (node.label, *node.lines))
    opening, closing = ("([", "])") if node.role is NodeRole.ROOT else ("[", "]")
    yield f'    {number}{opening}"{text}"{closing}'
    flags = [
        ("root", node.role is NodeRole.ROOT),
        ("outside", node.role is NodeRole.OUTSIDE),
        ("shared", node.shared),
        ("unused", node.unused),
        ("path", node.key in group.path),
    ]
    yield from (f"    class {number} {name}" for name, is_set in flags if is_set)


def _entities(text: str) -> str:
    """Return a text in which Mermaid sees nothing but letters, digits and harmless signs."""
    return "".join(c if c.isalnum() or c in _SAFE else f"#{ord(c)};" for c in terminal(text))


def _plain(text: str) -> str:
    """Return a text for a line of its own, which knows no entities."""
    shown = terminal(text)
    return "".join(c if c.isalnum() or c in _SAFE or c in ",()<>=|" else " " for c in shown).strip()
