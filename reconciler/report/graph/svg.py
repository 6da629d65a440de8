"""A graph as an SVG image: a tree of boxes from top to bottom, narrow enough for a phone."""

from collections.abc import Iterator
from textwrap import wrap
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from reconciler.base.escape import is_visible
from reconciler.base.graph import Edge, Graph, Group, NodeRole, Subject, TreeRow, tree_rows

_WIDTH = 360
_MARGIN = 8
_INDENT = 14
_CHARACTER = 7.3
"""Width of a character of the monospace font at 12 pixels, rounded up."""

_LINE = 16
_PADDING = 6
_GAP = 10
_DEEPEST = 12
"""Levels that are indented; deeper ones stay at that indentation, or their boxes were too narrow."""

_LANE = 7
_STYLE = """
  svg { color-scheme: light dark; background: #ffffff; }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }
  .title { font-weight: bold; }
  .note { fill: #59636e; }
  .box { fill: #f6f8fa; stroke: #818b98; }
  .root { fill: #ddf4ff; stroke: #0969da; }
  .outside { stroke-dasharray: 4 3; }
  .shared { stroke-width: 2.5; }
  .unused { stroke-dasharray: 1 3; }
  .line { fill: none; stroke: #818b98; }
  .again { stroke-dasharray: 3 3; }
  .path { stroke: #cf222e; stroke-width: 3; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #f0f6fc; }
    .note { fill: #9198a1; }
    .box { fill: #151b23; stroke: #656c76; }
    .root { fill: #0c2d6b; stroke: #4493f8; }
    .line { stroke: #656c76; }
    .path { stroke: #f85149; }
  }
"""


class _Box(NamedTuple):
    """One drawn row: its place, its lines of text, and how many of them are the label."""

    row: TreeRow
    x: float
    y: float
    height: float
    label: list[str]
    notes: list[str]


class _Lane(NamedTuple):
    """A line on the right from a parent to a node that is drawn below another parent."""

    edge: Edge
    top: float
    bottom: float
    number: int


def svg(graph: Graph, *, embedded: bool = False) -> str:
    """Return a graph as an image of its own, light or dark as the reader prefers.

    An `embedded` one is an element of a page, which styles it and may have one of each subject.
    """
    parts: list[str] = []
    y = float(_MARGIN)
    lanes = 0
    for group in graph.groups:
        boxes, y = _layout(group, y, _WORDS[graph.subject])
        own = _lanes(group, boxes)
        lanes = max([lanes, *(lane.number + 1 for lane in own)])
        parts += _draw(group, boxes, own)
        y += _GAP
    width = _WIDTH + lanes * _LANE + (_PADDING if lanes else 0)
    place = "" if embedded else 'style="max-width: 100%; height: auto"'
    prefix = f"{graph.subject}-" if embedded else ""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y:g}" width="{width}" '
        f'{place} role="img" aria-labelledby="{prefix}title {prefix}desc">'
    )
    title = f'<title id="{prefix}title">{_text(graph.title)}</title>'
    description = f'<desc id="{prefix}desc">{_text(graph.description)}</desc>'
    style = [] if embedded else [f"<style>{_STYLE}</style>"]
    return "\n".join([head, title, description, *style, *parts, "</svg>"]) + "\n"


class _Words(NamedTuple):
    """Words before the label of the edge that leads to a box, and before each further parent."""

    edge: str
    others: str


_WORDS = {
    Subject.DEPENDENCIES: _Words("required: ", "also required by"),
    Subject.PACKAGES: _Words("", "also from"),
}


def _layout(group: Group, top: float, words_of: _Words) -> tuple[list[_Box], float]:
    """Return the boxes of a group below one another, and where the next group may begin."""
    heading = _wrap(group.title, _WIDTH - 2 * _MARGIN)
    y = top + len(heading) * _LINE + _PADDING
    boxes = []
    rows = list(tree_rows(group))
    others = _other_parents(group, rows)
    for row in rows:
        if row.repeated:
            continue
        x = float(_MARGIN + min(row.depth, _DEEPEST) * _INDENT)
        room = _WIDTH - _MARGIN - x - 2 * _PADDING
        label = _wrap(row.node.label, room)
        words = [f"{words_of.edge}{row.edge.label}"] if row.edge is not None and row.edge.label else []
        words += [f"{words_of.others} {text}" for text in others.get(row.node.key, ())]
        words += ["shared"] if row.node.shared else []
        words += ["unused"] if row.node.unused else []
        notes = [line for text in (*words, *row.node.lines) for line in _wrap(text, room)]
        height = (len(label) + len(notes)) * _LINE + 2 * _PADDING
        boxes.append(_Box(row, x, y, height, label, notes))
        y += height + _GAP
    return boxes, y


def _other_parents(group: Group, rows: list[TreeRow]) -> dict[str, list[str]]:
    """Return the parents of each node below which it is not drawn, with what they require."""
    labels = {node.key: node.label for node in group.nodes}
    others: dict[str, list[str]] = {}
    for row in rows:
        if row.repeated and row.edge is not None:
            text = ": ".join(filter(None, (labels[row.edge.source], row.edge.label)))
            others.setdefault(row.node.key, []).append(text)
    return others


def _lanes(group: Group, boxes: list[_Box]) -> list[_Lane]:
    """Return a lane for each edge that the tree does not draw; lanes that overlap have different numbers."""
    drawn = {box.row.edge for box in boxes}
    places = {box.row.node.key: box for box in boxes}
    lanes: list[_Lane] = []
    for edge in group.edges:
        if edge in drawn:
            continue
        ends = sorted((_middle(places[edge.source]) + 4, _middle(places[edge.target]) - 4))
        taken = {lane.number for lane in lanes if lane.top <= ends[1] and ends[0] <= lane.bottom}
        number = next(n for n in range(len(lanes) + 1) if n not in taken)
        lanes.append(_Lane(edge, ends[0], ends[1], number))
    return lanes


def _middle(box: _Box) -> float:
    return box.y + box.height / 2


def _draw(group: Group, boxes: list[_Box], lanes: list[_Lane]) -> Iterator[str]:
    """Yield the elements of a group: its title, its lines, then its boxes above them."""
    top = boxes[0].y if boxes else 0.0
    heading = _wrap(group.title, _WIDTH - 2 * _MARGIN)
    yield from _lines(heading, _MARGIN, top - len(heading) * _LINE - _PADDING, "title")
    places = {box.row.node.key: box for box in boxes}
    for box in sorted(boxes, key=lambda box: bool(box.row.edge and group.on_path(box.row.edge))):
        if box.row.edge is not None:
            parent = places[box.row.edge.source]
            x = parent.x + _INDENT / 2
            path = f"M{x:g} {parent.y + parent.height:g}V{_middle(box):g}H{box.x:g}"
            yield f'<path class="{_classes("line", path=group.on_path(box.row.edge))}" d="{path}"/>'
    right = _WIDTH - _MARGIN
    for lane in lanes:
        x = _WIDTH + lane.number * _LANE
        classes = _classes("line again", path=group.on_path(lane.edge))
        yield f'<path class="{classes}" d="M{right} {lane.top:g}H{x}V{lane.bottom:g}H{right}"/>'
    for box in boxes:
        yield from _box(group, box)


def _box(group: Group, box: _Box) -> Iterator[str]:
    node = box.row.node
    classes = _classes(
        "box",
        root=node.role is NodeRole.ROOT,
        outside=node.role is NodeRole.OUTSIDE,
        shared=node.shared,
        unused=node.unused,
        path=node.key in group.path,
    )
    yield (
        f'<rect class={quoteattr(classes)} x="{box.x:g}" y="{box.y:g}" rx="5" '
        f'width="{_WIDTH - _MARGIN - box.x:g}" height="{box.height:g}"/>'
    )
    x = box.x + _PADDING
    yield from _lines(box.label, x, box.y + _PADDING, "")
    yield from _lines(box.notes, x, box.y + _PADDING + len(box.label) * _LINE, "note")


def _lines(lines: list[str], x: float, top: float, name: str) -> Iterator[str]:
    attribute = f' class="{name}"' if name else ""
    for number, line in enumerate(lines):
        yield f'<text{attribute} x="{x:g}" y="{top + number * _LINE + 12:g}">{_text(line)}</text>'


def _classes(base: str, **flags: bool) -> str:
    return " ".join([base, *(name for name, is_set in flags.items() if is_set)])


def _wrap(text: str, width: float) -> list[str]:
    """Return a text in lines that fit, between words where it can; nothing is cut off."""
    most = max(8, int(width / _CHARACTER))
    return wrap(text, most, break_on_hyphens=False) or [""]


def _text(text: str) -> str:
    """Return a text as character data; what is invisible, or not allowed in XML, is left out."""
    return escape("".join(filter(is_visible, text)))
