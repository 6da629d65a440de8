"""A graph in the language of Mermaid, which GitHub, GitLab and Gitea draw in Markdown."""

from collections.abc import Iterator

from reconciler.base.escape import terminal
from reconciler.base.graph import Graph, GraphNode, Group, NodeRole

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
    numbers: dict[tuple[int, str], str] = {}
    highlighted: list[int] = []
    for place, group in enumerate(graph.groups):
        numbers |= {(place, node.key): f"n{place}_{i}" for i, node in enumerate(group.nodes)}
    count = 0
    for place, group in enumerate(graph.groups):
        lines += [f'  subgraph g{place}["{entities(group.title)}"]']
        for node in group.nodes:
            lines += _node(numbers[place, node.key], node, group)
        for edge in group.edges:
            label = f'|"{entities(edge.label)}"|' if edge.label else ""
            lines.append(f"    {numbers[place, edge.source]} -->{label} {numbers[place, edge.target]}")
            highlighted += [count] if group.on_path(edge) else []
            count += 1
        lines.append("  end")
    lines += _STYLES
    if highlighted:
        lines.append(f"  linkStyle {','.join(map(str, highlighted))} stroke:#d1242f,stroke-width:4px")
    return "\n".join(lines) + "\n"


def _node(number: str, node: GraphNode, group: Group) -> Iterator[str]:
    text = "<br/>".join(entities(line) for line in (node.label, *node.lines))
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


def entities(text: str) -> str:
    """Return a text in which Mermaid sees nothing but letters, digits and harmless signs."""
    return "".join(c if c.isalnum() or c in _SAFE else f"#{ord(c)};" for c in terminal(text))


def _plain(text: str) -> str:
    """Return a text for a line of its own, which knows no entities."""
    shown = terminal(text)
    return "".join(c if c.isalnum() or c in _SAFE or c in ",()<>=|" else " " for c in shown).strip()
