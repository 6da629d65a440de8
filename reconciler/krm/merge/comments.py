"""Three-way merge of comments and blank lines, apart from the values beside them.

A field has lines above, behind and below it, a collection has lines at its end. Each of these is merged by
itself, and the text between two fields of the merged document is written anew from them. So no comment is
lost, comes twice or changes its owner where keys and items come and go.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import Struct, field

from reconciler.krm.merge.fields import elements_by_key, infer_keys
from reconciler.krm.merge.nodes import Node, root_of
from reconciler.krm.schema import Shape
from reconciler.krm.yaml import Path, SetLineComment, Tree, YamlError, end_line
from reconciler.krm.yaml.apply import ODD_BREAK, CannotSpliceError, Replacement, plan_splice, splice
from reconciler.krm.yaml.tree import CommentPosition, Gap, Line, Lines, Owner

_MAX_PAIRS: Final = 2_000_000
"""difflib looks at every pair of equal lines: its time is quadratic for texts that repeat a line."""
_BLANK: Final = Line(0, 0, "")


class NodeSides(NamedTuple):
    """One value on the three sides, None where a side does not have it."""

    base: Node | None
    upstream: Node | None
    local: Node | None


class MergedComments(NamedTuple):
    """A document with merged comments; `dropped` are comments of upstream that local changed too."""

    text: str
    dropped: tuple[str, ...] = ()


def merge_comments(
    base: Tree | None, upstream: Tree, local: Tree, merged: Tree, shape: Shape | None = None
) -> MergedComments:
    """Return the document `merged`, which has the values of a merge, with the comments of its three sides.

    Total: where the comments cannot be written, the document stays as it is.
    """
    # What follows a block scalar at the end of the text would give it a line break.
    closed = merged.closed()
    if base is not None and upstream.text.endswith("\n") > base.text.endswith("\n"):
        closed = end_line(closed)
    tree = merged if closed == merged.text else Tree.parse(closed)
    root = root_of(tree)
    if root is None or ODD_BREAK.search(closed):
        return MergedComments(merged.text)
    sides = NodeSides(root_of(base) if base is not None else None, root_of(upstream), root_of(local))
    work = _CommentMerge(tree)
    work.visit(root, sides, shape)
    work.drop_doubles(sides)
    with suppress(CannotSpliceError, YamlError):
        text = splice(closed, work.replacements())
        if Tree.parse(text).value == merged.value:
            return MergedComments(text, tuple(work.dropped))
    return MergedComments(merged.text)


class _CommentMerge(Struct):
    """Merges the comments of one document, owner by owner."""

    tree: Tree
    merged: dict[Owner, Lines] = field(default_factory=dict)
    new: dict[Owner, frozenset[str]] = field(default_factory=dict)
    """The comments of an owner that local does not have there."""
    paths: dict[int, Path] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)

    def visit(self, node: Node, sides: NodeSides, shape: Shape | None, path: Path = ()) -> None:
        """Merge the comments of a value, and of all values in it."""
        if not path:
            self._merge(CommentPosition.ABOVE, node, sides)
        if path and (not node.is_block or _is_taken(node, sides)):
            return
        self._merge(CommentPosition.TAIL, node, sides)
        for step, child, below, shape_below in _children(node, sides, shape) if node.is_block else ():
            self.paths[child.slot] = (*path, step)
            for position in (CommentPosition.ABOVE, CommentPosition.BEHIND, CommentPosition.BELOW):
                self._merge(position, child, below)
            self.visit(child, below, shape_below, (*path, step))

    def _merge(self, position: CommentPosition, node: Node, sides: NodeSides) -> None:
        column = _column(node, position)
        base, upstream, local = (
            tuple(
                line._replace(column=max(0, line.column - _column(side, position) + column))
                for line in side.tree.comments.lines.get((side.slot, position), ())
            )
            if side is not None
            else None
            for side in sides
        )
        # A side without the value did not change its comments.
        old = base or ()
        ours = old if local is None else local
        lines, dropped = merge_lines(old, old if upstream is None else upstream, ours, position)
        owner = node.slot, position
        self.merged[owner] = lines
        self.new[owner] = frozenset(line.text for line in lines) - {line.text for line in ours}
        self.dropped += dropped

    def drop_doubles(self, sides: NodeSides) -> None:
        """Keep only local's of two places to which the sides moved one comment."""
        merged = Counter(_line_texts({**self.tree.comments.lines, **self.merged}))
        twice = {text for text, count in merged.items() if count == 2 and _is_worded(text)}  # noqa: PLR2004
        for side in sides if twice else ():
            counts = Counter(_line_texts(side.tree.comments.lines)) if side is not None else Counter[str]()
            twice = {text for text in twice if counts[text] == 1}
        for owner, lines in self.merged.items():
            if not twice.isdisjoint(self.new[owner]):
                self.merged[owner] = tuple(_without(lines, twice, self.new[owner]))

    def replacements(self) -> Iterator[Replacement]:
        """Yield the replacements that write the merged comments."""
        index = self.tree.comments
        changed = {
            owner
            for owner, lines in self.merged.items()
            if [line[1:] for line in lines] != [line[1:] for line in index.lines.get(owner, ())]
        }
        for slot, position in changed:
            if position is CommentPosition.BEHIND:
                text = next((line.text for line in self.merged[slot, position]), None)
                with suppress(CannotSpliceError, YamlError):  # not every value ends a line
                    yield plan_splice(self.tree, SetLineComment(self.paths[slot], text))
        for gap in index.gaps:
            if not changed.isdisjoint(gap.owners):
                yield Replacement(gap.start, gap.end, self._text_of(gap))

    def _text_of(self, gap: Gap) -> str:
        text, index = self.tree.text, self.tree.comments
        *others, above = ([*self.merged.get(owner, index.lines.get(owner, ()))] for owner in gap.owners)
        lines = [line for part in others for line in part]
        # A comment of the field above touches it, with a blank line below; so has that of the document.
        position = (
            gap.owners[-2][1]
            if others and gap.owners[-1][1] is CommentPosition.ABOVE
            else CommentPosition.TAIL
        )
        if (
            position is not CommentPosition.TAIL
            and others[-1]
            and all(line.text for line in (lines[-1], *above[:1]))
        ) or (
            position is CommentPosition.BELOW
            and not others[-1]
            and above
            and above[0].text
            and any(not line.text for line in above)
        ):
            lines.append(_BLANK)
        lines += above
        if gap.start in (0, len(text)) or text[gap.start - 1] == "\n":
            while gap.keeps and lines and not lines[0].text:
                del lines[0]
            new = "".join(
                f"{' ' * min(line.column, gap.limit)}{line.text}\n" if line.text else "\n" for line in lines
            )
            return f"\n{new}" if new.strip() and text[gap.start - 1 : gap.start] not in ("", "\n") else new
        pad = " " * self.tree.column(gap.end)
        return "".join(f"{line.text}\n{pad}" for line in lines if line.text)


def merge_lines(
    base: Lines, upstream: Lines, local: Lines, position: CommentPosition
) -> tuple[Lines, list[str]]:
    """Merge the lines at one place; return also the comments of upstream that local changed too.

    What one side changed is taken. Where both changed a line, local's stays. What both added stays, unless
    it has a comment in common, or there is a place for one only.
    """
    old, theirs, ours = ([line.text for line in side] for side in (base, upstream, local))
    if ours == old:
        return upstream, []
    if theirs in (old, ours):
        return local, []
    by_upstream, by_local = _Changes.between(base, upstream), _Changes.between(base, local)
    result: list[Line] = []
    dropped: list[str] = []
    undone: set[int] = set()
    for gap in range(len(old) + 1):
        new, replaced = by_upstream.added.get(gap, ((), range(0)))
        mine, _ = by_local.added.get(gap, ((), range(0)))
        texts, own_texts = ([line.text for line in lines if line.text] for lines in (new, mine))
        is_changed = any(old[number] and number not in by_local.unchanged for number in replaced)
        is_common = any(_is_worded(text) for text in texts if text in own_texts)
        if texts and (is_changed or is_common or (own_texts and position is CommentPosition.BEHIND)):
            undone.update(replaced)
            dropped += [text for text in texts if text not in own_texts]
            new, texts = (), []
        if not (texts and own_texts):  # blank lines give way to comments
            result += mine if own_texts or not new else new
        else:
            result += (*new, *mine) if position is CommentPosition.ABOVE else (*mine, *new)
        if gap in by_local.unchanged and (gap in by_upstream.unchanged or gap in undone):
            result.append(by_local.unchanged[gap])
    return tuple(result), dropped


class _Changes(NamedTuple):
    """Changes of lines: the kept ones by their number in the base, and the added ones by their place.

    Added lines are those before the line of the base with this number, with the numbers of the lines that
    they replace.
    """

    unchanged: dict[int, Line]
    added: dict[int, tuple[Lines, range]]

    @classmethod
    def between(cls, base: Lines, side: Lines) -> "_Changes":
        """Return the changes from the base to a side."""
        unchanged: dict[int, Line] = {}
        added: dict[int, tuple[Lines, range]] = {}
        for tag, start, end, at, to in _opcodes([line.text for line in base], [line.text for line in side]):
            if tag == "equal":
                unchanged.update(zip(range(start, end), side[at:to], strict=True))
            elif at < to:
                added[start] = side[at:to], range(start, end)
        return cls(unchanged, added)


def _opcodes(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    if len(left) * len(right) > _MAX_PAIRS:
        return [("replace", 0, len(left), 0, len(right))]
    return [*SequenceMatcher(None, left, right, autojunk=False).get_opcodes()]


def _children(
    node: Node, sides: NodeSides, shape: Shape | None
) -> Iterator[tuple[str | int, Node, NodeSides, Shape | None]]:
    if node.is_mapping:
        for name, child in node.children.items():
            same = (side.children.get(name) if side is not None else None for side in sides)
            yield name, child, NodeSides(*same), shape.below(name) if shape is not None else None
        return
    lists = [side if side is not None and side.is_sequence else None for side in (node, *sides)]
    keys = shape.keys if shape is not None else infer_keys(lists)
    by_key = [elements_by_key(node, Shape(keys=keys)) if keys is not None else None for node in lists]
    items = shape.items if shape is not None else None
    if None not in by_key:
        merged, *others = ([*(elements or {}).items()] for elements in by_key)
        for index, (key, item) in enumerate(merged):
            yield index, item, NodeSides(*(dict(other).get(key) for other in others)), items
        return
    # Without keys, items are the same by their value, and changed collections by their place.
    values = [[str(item.value) for item in node.items] if node is not None else [] for node in lists]
    pairs: list[dict[int, Node]] = []
    for side, texts in zip(lists[1:], values[1:], strict=True):
        pair: dict[int, Node] = {}
        for tag, start, end, at, to in _opcodes(values[0], texts):
            if side is not None and end - start == to - at:
                items_there = zip(range(start, end), side.items[at:to], strict=True)
                pair.update(item for item in items_there if tag == "equal" or not item[1].is_scalar)
        pairs.append(pair)
    for index, item in enumerate(node.items):
        yield index, item, NodeSides(*(pair.get(index) for pair in pairs)), items


def _is_taken(node: Node, sides: NodeSides) -> bool:
    """Tell whether a value has the text of the only side that changed it."""
    base, upstream, local = sides
    if base is None or upstream is None or local is None:
        return False
    if base.source == upstream.source:
        return node.source == local.source
    return base.source == local.source and node.source == upstream.source


def _column(node: Node, position: CommentPosition) -> int:
    if position is not CommentPosition.TAIL and node.slot >= 0:
        return node.tree.column(node.slot)
    first = next(node.values(), None) if node.is_block else None
    return node.tree.column(first.slot) if first is not None else 0


def _line_texts(lines: dict[Owner, Lines]) -> Iterator[str]:
    for (_, position), comment in lines.items():
        if position not in (CommentPosition.BEHIND, CommentPosition.INSIDE):
            yield from (line.text for line in comment)


def _without(lines: Lines, doubled: set[str], new: frozenset[str]) -> Iterator[Line]:
    """Yield lines without new ones that are doubled, and without the rulers around those."""
    for is_new, group in groupby(lines, key=lambda line: line.text in new):
        run = [*group]
        worded = {line.text for line in run if _is_worded(line.text)}
        if not is_new or not worded <= doubled:
            yield from (line for line in run if not is_new or line.text not in doubled)


def _is_worded(text: str) -> bool:
    """Tell whether a comment is more than a ruler or an empty `#`."""
    return any(map(str.isalnum, text))
