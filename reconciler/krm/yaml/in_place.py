"""The most frequent edits by far: scalars, new keys and comments on lines of their own, checked as lines.

A line `key: value` of block style means the same wherever it stands. So when every edit replaces
a scalar on its key's line, adds a key below one that has ended, or sets the comment behind a
scalar, it is enough to parse the new lines alone: the whole text need not be parsed a second time.
"""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import may_have_anchor
from reconciler.krm.yaml.edits import AddKey, Edit, SetLineComment, SetValue
from reconciler.krm.yaml.emit import emit_entry
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import PACKAGE_LIMITS
from reconciler.krm.yaml.lines import ODD_BREAK
from reconciler.krm.yaml.load import iterate_documents
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.model import canonical, plain_value
from reconciler.krm.yaml.quoting import Style, write_scalar
from reconciler.krm.yaml.raw import Raw, indent
from reconciler.krm.yaml.replacement import Replacement, splice
from reconciler.krm.yaml.tree import Entry, Mapping, Scalar, Slot, Tree

_NOT_SCALAR: Final = (Raw, dict, list, tuple)
_LEAD: Final = re.compile(r" *(?:- +)*")
"""What may stand before a key on its line: spaces, and the dashes of items that start with it."""
_REST: Final = re.compile(r"[ \t]*(?:(?<=[ \t])(#[^\r\n]*))?(?=\r?\n|\Z)")
"""What may follow a value on its line: spaces and a comment."""
_COMMENT_BELOW: Final = re.compile(r"(?:\r?\n[ \t]*)+#")
_LARGEST: Final = 1 << 20
_DEEPEST: Final = 50


def edit_in_place(tree: Tree, edits: tuple[Edit, ...]) -> str | None:
    """Return the text with all edits made, or None if they are not all as simple as that.

    What it returns is what splicing would give; the checks are just cheaper.

    Raises:
        YamlError: A value cannot be written.
    """
    lines = _Lines(tree)
    if all(map(lines.take, edits)) and lines.read() == canonical(lines.wanted):
        return splice(tree.text, lines.replacements())
    return None


class _Added(NamedTuple):
    """Keys that are put below one line: the text so far, and where the last one went."""

    text: str
    path: Path
    key: str
    column: int


class _Lines:
    """Replacements that keep to their lines, with those lines by themselves and what they should say."""

    def __init__(self, tree: Tree) -> None:
        self.wanted: list[Any] = []
        self._tree = tree
        self._lines: list[str] = []
        self._values: dict[int, Replacement] = {}
        self._comments: dict[int, Replacement] = {}
        self._added: dict[int, _Added] = {}
        self._new: dict[Path, int] = {}

    def take(self, edit: Edit) -> bool:
        """Make one edit, if it is simple and meets none before it: what they add is not in the tree."""
        match edit:
            case SetValue(path, value):
                slot = self._tree.slot(path)
                if slot is not None:
                    return self._replace(slot, path[-1], value)
                return (
                    bool(path) and isinstance(path[-1], str) and self._add(AddKey(path[:-1], path[-1], value))
                )
            case AddKey():
                return edit.before is None and self._add(edit)
            case SetLineComment(path, text):
                return text is not None and self._note(path, text)
            case _:
                return False

    def read(self) -> bytes | None:
        """Return what the new lines say, None if that is no YAML."""
        return _read("".join(self._lines)) if self._lines else canonical([])

    def replacements(self) -> list[Replacement]:
        """Return what to put where."""
        ends = {each.start for each in self._comments.values() if each.start == each.end} & self._added.keys()
        comments = {each.start: each for each in self._comments.values()}
        added = [
            Replacement(at, at, (comments.pop(at).new if at in ends else "") + each.text)
            for at, each in self._added.items()
        ]
        return [*self._values.values(), *comments.values(), *added]

    def _replace(self, slot: Slot, step: str | int, value: Any) -> bool:
        old = slot.value
        if (
            slot.start in self._values
            or not isinstance(old, Scalar)
            or isinstance(value, _NOT_SCALAR)
            or not _is_simple(self._tree, slot, old)
        ):
            return False
        start, end = old.raw.start_mark.index, old.raw.end_mark.index
        new = write_scalar(value, like=old.style)
        if "\n" in new:
            return False
        self._values[slot.start] = Replacement(start, end, new)
        self._lines.append(f"- {self._tree.text[slot.start : start]}{new}\n")
        value = plain_value(value)
        self.wanted.append({step: value} if isinstance(slot, Entry) else [value])
        return True

    def _note(self, path: Path, comment: str) -> bool:
        """Put a comment behind a scalar: from a space and a `#` to the end of the line nothing is said."""
        slot = self._tree.slot(path)
        old = slot.value if slot is not None else None
        if slot is None or not isinstance(old, Scalar) or not _is_simple(self._tree, slot, old):
            return False
        end = old.raw.end_mark.index
        rest = _REST.match(self._tree.text, end)
        comment = comment.strip()
        if rest is None or slot.start in self._comments or not comment or not comment.isprintable():
            return False
        if not (rest[1] or "").isprintable():  # a line break that is no line feed
            return False
        comment = comment if comment.startswith("#") else f"# {comment}"
        if rest[1] is None:
            self._comments[slot.start] = Replacement(end, end, f" {comment}")
        else:
            start = rest.start(1)
            self._comments[slot.start] = Replacement(start, start + len(rest[1].rstrip()), comment)
        return True

    def _add(self, edit: AddKey) -> bool:
        """Put a key below another one of a mapping, or below those that were put there before."""
        path, key, value = edit.path, edit.key, edit.value
        spot = _spot(self._tree, path, edit.after)
        if spot is None or key in spot.names or (*path, key) in self._new or not _is_flat(value):
            return False
        at = self._place(spot, path, edit.after)
        if at is None:
            return False
        new = _entry_text(key, value) if isinstance(value, str) else emit_entry(key, value, self._tree.layout)
        pad = "\n" + " " * spot.column
        before = self._added[at].text if at in self._added else ""
        text = new.replace("\n", pad) if "\n" in new else new
        self._added[at] = _Added(f"{before}{pad}{text}", path, key, spot.column)
        self._new[(*path, key)] = at
        self._lines.append(f"- {indent(new, 2)}\n" if "\n" in new else f"- {new}\n")
        self.wanted.append({key: plain_value(value)})
        return True

    def _place(self, spot: "_Spot", path: Path, after: str | None) -> int | None:
        """Return where a key goes, next to those that were put there before; None if above one of them."""
        follows = self._new.get((*path, after)) if after is not None else None
        at = spot.at if follows is None else follows
        before = self._added.get(at) if at is not None else None
        if before is None:
            return at
        if before.path == path:
            fits = not spot.known and (before.key == after or follows is None)
        else:
            fits = spot.column < before.column
        return at if fits else None


class _Spot(NamedTuple):
    """Where a key can be added to a mapping: below which place, in which column, beside which keys.

    `at` is None where something else may own what follows; `known` tells whether the key that it is
    to follow is there.
    """

    names: frozenset[str]
    at: int | None
    column: int
    known: bool


def _spot(tree: Tree, path: Path, after: str | None) -> _Spot | None:
    """Return where a key goes that follows `after`, else goes last; remembered with the document."""
    asked = (path, after)
    if asked not in tree.memo:
        tree.memo[asked] = _find_spot(tree, path, after)
    found: _Spot | None = tree.memo[asked]
    return found


def _find_spot(tree: Tree, path: Path, after: str | None) -> _Spot | None:
    parent = tree.find(path)
    if not isinstance(parent, Mapping) or not parent.raw.value or parent.style is Style.FLOW:
        return None
    if len(path) > _DEEPEST or not _is_plain(tree):
        return None
    known = parent.find(after) if after is not None else None
    entry = known or parent.entries[-1]
    names = frozenset(each.name for each in parent.entries)
    return _Spot(names, _line_below(tree, entry), tree.column(entry.start), known is not None)


def _is_plain(tree: Tree) -> bool:
    """Tell whether a text has nothing that reaches beyond its line but indentation."""
    text = tree.text
    return not (len(text) > _LARGEST or may_have_anchor(text) or ODD_BREAK.search(text))


def _line_below(tree: Tree, entry: Entry) -> int | None:
    """Return where the last line of an entry ends, None unless only the entry can own what is there."""
    text = tree.text
    lead = _LEAD.match(text, text.rfind("\n", 0, entry.start) + 1)
    leaf = _last_leaf(entry.value.raw)
    start, end = leaf.start_mark.index, leaf.end_mark.index
    if lead is None or lead.end() != entry.start or start == end:
        return None
    if isinstance(leaf, ScalarNode) and leaf.style in ("|", ">"):
        return None
    rest = _REST.match(text, end)
    return None if rest is None or _COMMENT_BELOW.match(text, rest.end()) else rest.end()


@lru_cache(maxsize=1024)
def _entry_text(key: str, value: str) -> str:
    """Return a key with a text; functions write the same ones into many resources."""
    return emit_entry(key, value)


@lru_cache(maxsize=1024)
def _read(lines: str) -> bytes | None:
    """Return the value of some lines; functions write the same ones into many resources."""
    try:
        (found,) = iterate_documents(lines, PACKAGE_LIMITS)
    except (YamlError, ValueError):
        return None
    return canonical(found.value)


def _last_leaf(node: Any) -> Any:
    while isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    return node


def _is_simple(tree: Tree, slot: Slot, old: Scalar) -> bool:
    """Tell whether a slot is one line: a key or dash, and a bare scalar in quotes or without."""
    start, end = old.raw.start_mark, old.raw.end_mark
    return (
        slot.parent.style is Style.BLOCK
        and old.raw.style not in ("|", ">")
        and start.line == end.line
        and start.index != end.index
        and tree.text[start.index] not in "&!"
        and "\n" not in tree.text[slot.start : start.index]
    )


def _is_flat(value: Any) -> bool:
    """Tell whether a value is a scalar of one line, or a mapping of such."""
    if isinstance(value, dict):
        return all(not isinstance(each, _NOT_SCALAR) and _is_flat(each) for each in value.values())
    return not isinstance(value, _NOT_SCALAR) and not (isinstance(value, str) and "\n" in value)
