"""A graph as a picture, a tree of text, Mermaid, DOT or SVG, or as a JSON value. Pure and deterministic."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from reconciler.base.graph import Edge, Graph, GraphNode, Subject
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
        "of": str(graph.subject),
        "title": graph.title,
        "groups": [
            {
                "title": group.title,
                "clusters": list(group.members),
                "nodes": [_NODES[graph.subject](node) for node in group.nodes],
                "edges": [_EDGES[graph.subject](edge) for edge in group.edges],
                "path": list(group.path),
            }
            for group in graph.groups
        ],
    }


def _dependency(edge: Edge) -> dict[str, Any]:
    return {"source": edge.source, "target": edge.target, "requirement": edge.label}


def _version(edge: Edge) -> dict[str, Any]:
    counts = {"main": edge.main, "review": edge.review}
    return {"source": edge.source, "target": edge.target, "label": edge.label, **counts}


def _fleet_node(node: GraphNode) -> dict[str, Any]:
    return {
        "id": node.key,
        "label": node.label,
        "role": str(node.role),
        "version": node.version,
        "notes": list(node.notes),
        "packages": list(node.packages),
        "states": dict(node.states),
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


_NODES = {Subject.DEPENDENCIES: _node_value, Subject.PACKAGES: _fleet_node}
_EDGES = {Subject.DEPENDENCIES: _dependency, Subject.PACKAGES: _version}


def draw(graph: Graph, picture: Picture) -> str:
    """Return a graph in one form, with a final newline."""
    return _WRITERS[picture](graph)
