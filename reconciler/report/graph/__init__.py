"""A graph as a picture, a tree of text, Mermaid, DOT or SVG, or as a JSON value. Pure and deterministic."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from reconciler.graph import Graph, GraphNode
from reconciler.report.graph.dot import dot
from reconciler.report.graph.mermaid import mermaid
from reconciler.report.graph.svg import svg
from reconciler.report.graph.text import text_tree
from reconciler.report.json import API_VERSION


class Picture(StrEnum):
    """The forms of a picture."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


_WRITERS: Mapping[Picture, Callable[[Graph], str]] = {
    Picture.TEXT: text_tree,
    Picture.MERMAID: mermaid,
    Picture.DOT: dot,
    Picture.SVG: svg,
}


def graph_value(graph: Graph) -> dict[str, Any]:
    """Return a graph as a JSON value."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Graph",
        "title": graph.title,
        "groups": [
            {
                "clusters": list(group.members),
                "nodes": [_node_value(node) for node in group.nodes],
                "edges": [
                    {"source": edge.source, "target": edge.target, "requirement": edge.label}
                    for edge in group.edges
                ],
                "path": list(group.path),
            }
            for group in graph.groups
        ],
    }


def _node_value(node: GraphNode) -> dict[str, Any]:
    return {
        "id": node.key,
        "label": node.label,
        "role": str(node.role),
        "version": node.version,
        "owns": list(node.owns),
        "notes": list(node.notes),
        "shared": node.shared,
        "unused": node.unused,
    }


def draw(graph: Graph, picture: Picture) -> str:
    """Return a graph in one form, with a final newline."""
    return _WRITERS[picture](graph)
