"""A graph as a picture: a tree of text, Mermaid, DOT or SVG. Pure and deterministic."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from reconciler.graph import Graph
from reconciler.report.graph.dot import dot
from reconciler.report.graph.mermaid import mermaid
from reconciler.report.graph.svg import svg
from reconciler.report.graph.text import text_tree


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


def draw(graph: Graph, picture: Picture) -> str:
    """Return a graph in one form, with a final newline."""
    return _WRITERS[picture](graph)
