"""A graph as a tree of text: each node once below its first parent, with notes; or a path."""

from collections.abc import Iterator

from reconciler.base.escape import terminal
from reconciler.base.graph import Edge, Graph, GraphNode, Group, TreeRow, tree_rows


def text_tree(graph: Graph) -> str:
    """Return a graph as lines; of a group with a highlighted path that path alone."""
    lines: list[str] = []
    for group in graph.groups:
        rows = _path(group) if group.path else _tree(group)
        lines += [group.title, *(rows if group.nodes else ["  no package is locked"]), ""]
    return "\n".join(map(terminal, lines[:-1])) + "\n"


def _tree(group: Group) -> Iterator[str]:
    for row in tree_rows(group):
        if not row.depth and not row.node.lines and group.title.startswith(f"{row.node.label}: "):
            continue  # the title names it
        yield f"  {_branches(row)}{describe(row.node, row.edge)}{' (see above)' if row.repeated else ''}"
        if not row.repeated:
            yield from (f"  {_indent(row)}  {note}" for note in row.node.lines)


def _path(group: Group) -> Iterator[str]:
    nodes = {node.key: node for node in group.nodes}
    for depth, key in enumerate(group.path):
        edge = next((e for e in group.edges if depth and e[:2] == (group.path[depth - 1], key)), None)
        yield f"  {'   ' * (depth - 1)}{'└─ ' if depth else ''}{describe(nodes[key], edge)}"


def describe(node: GraphNode, edge: Edge | None) -> str:
    """Return a node in one line: its label, the requirement that it meets, and whether it is shared."""
    words = [f"[{edge.label}]"] if edge is not None and edge.label else []
    words += ["shared"] if node.shared else []
    words += ["unused"] if node.unused else []
    return " ".join([node.label, *words])


def _branches(row: TreeRow) -> str:
    above = "".join("   " if last else "│  " for last in row.last[:-1])
    return above + ("" if not row.last else "└─ " if row.last[-1] else "├─ ")


def _indent(row: TreeRow) -> str:
    return "".join("   " if last else "│  " for last in row.last)
