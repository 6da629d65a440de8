"""A graph in the DOT language of Graphviz."""

from collections.abc import Iterator

from reconciler.base.escape import is_visible
from reconciler.base.graph import Graph, GraphNode, Group, NodeRole


def dot(graph: Graph) -> str:
    """Return a graph as a digraph with one cluster for each group; every text is quoted."""
    lines = [
        f"digraph {quoted(graph.title)} {{",
        "  rankdir=LR;",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
    ]
    for place, group in enumerate(graph.groups):
        lines += [f"  subgraph cluster_{place} {{", f"    label={quoted(group.title)};"]
        lines += (f"    {line}" for line in _group(place, group))
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _group(place: int, group: Group) -> Iterator[str]:
    numbers = {node.key: f"n{place}_{i}" for i, node in enumerate(group.nodes)}
    for node in group.nodes:
        yield f"{numbers[node.key]} [{', '.join(_node(node, group))}];"
    for edge in group.edges:
        attributes = [f"label={quoted(edge.label)}"] if edge.label else []
        attributes += ['color="#d1242f"', "penwidth=3"] if group.on_path(edge) else []
        tail = f" [{', '.join(attributes)}]" if attributes else ""
        yield f"{numbers[edge.source]} -> {numbers[edge.target]}{tail};"


def _node(node: GraphNode, group: Group) -> Iterator[str]:
    yield f"label={quoted(chr(10).join((node.label, *node.lines)))}"
    if node.role is NodeRole.ROOT:
        yield "shape=oval"
    if node.role is NodeRole.OUTSIDE or node.unused:
        yield 'style="rounded,dashed"'
    if node.key in group.path:
        yield 'color="#d1242f"'
    if node.shared or node.key in group.path:
        yield "penwidth=3"


def quoted(text: str) -> str:
    """Return a text as a quoted string of DOT, on one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(filter(is_visible, escaped)) + '"'
