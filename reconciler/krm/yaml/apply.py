"""Edit a document: by splicing where possible, else by a ruamel.yaml round trip; both checked by parsing."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from reconciler.krm.yaml.edits import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    EditResult,
    InsertItem,
    SetHeadComment,
    SetLineComment,
    SetValue,
    canonical,
    edited,
    plain_value,
)
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlError, YamlLimits
from reconciler.krm.yaml.load import Path
from reconciler.krm.yaml.splice import ODD_BREAK, CannotSpliceError, Replacement, plan_splice, splice
from reconciler.krm.yaml.tree import Mapping, Tree

if TYPE_CHECKING:
    from ruamel.yaml import YAML

_BOM: Final = "\ufeff"
_BLANK_LINES: Final = re.compile(r"^[ \t]*\n", re.MULTILINE)


def apply_edits(text: str, edits: Iterable[Edit], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Apply edits to the text of one document, in order; every other byte stays the same.

    Deterministic and checked: the result parses to the edited data.

    Raises:
        YamlError: The text is not YAML, an edit names an absent field, or the edited data cannot be
            written.
    """
    pending = tuple(edits)
    bom = _BOM if text.startswith(_BOM) else ""
    tree = Tree.parse(text, limits)
    tree.check()
    result = edit_tree(tree, pending, limits) if pending else EditResult(tree.text)
    return EditResult(bom + result.text, result.fallbacks) if bom else result


def edit_tree(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Apply edits to a parsed document without a byte order mark; otherwise as `apply_edits`.

    Raises:
        YamlError: As `apply_edits`.
    """
    data = tree.value
    for edit in edits:
        data = edited(data, edit)
    expected = canonical(data)
    for spelling in _spellings(tree, limits):
        with suppress(CannotSpliceError):
            result = _splice_all(spelling, edits, limits)
            for end in ("", "\n"):  # a block scalar at the end of the text may need its line break
                if _parses_to(result + end, expected, limits):
                    return EditResult(result + end)
    result = _edit_round_trip(tree, edits)
    if not _parses_to(result, expected, limits):
        raise YamlError("The edits cannot be written without changing something else")
    return EditResult(result, fallbacks=1)


def _spellings(tree: Tree, limits: YamlLimits) -> Iterator[Tree]:
    """Yield a document, and the same one in other words, in which block scalars go on less easily."""
    yield tree
    # What follows a block scalar at the end of the text would give it a line break.
    closed = tree.closed()
    if closed != tree.text:
        yield Tree.parse(closed, limits)
    # Blank lines become part of a block scalar that keeps its line breaks at the end.
    gaps = (
        (gap.start, gap.end, tree.text[gap.start : gap.end].replace("\r", "")) for gap in tree.comments.gaps
    )
    dense = splice(tree.text, (Replacement(start, end, _BLANK_LINES.sub("", t)) for start, end, t in gaps))
    if dense != tree.text:
        yield Tree.parse(dense, limits)


def _parses_to(text: str, expected: bytes, limits: YamlLimits) -> bool:
    try:
        return canonical(Tree.parse(text, limits).value) == expected
    except YamlError:
        return False


def _splice_all(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    """Splice all edits; the document is parsed again only before an edit of what an earlier one changes."""
    if ODD_BREAK.search(tree.text):
        raise CannotSpliceError
    try:
        return _splice_together(tree, edits, limits)
    except CannotSpliceError:
        # A deletion may take the line break behind which a key is added.
        for edit in edits[:-1]:
            tree = _parse(splice(tree.text, [plan_splice(tree, edit)]), limits)
        return splice(tree.text, [plan_splice(tree, edits[-1])])


def _splice_together(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    pending: list[_Pending] = []
    for edit in edits:
        planned = _plan(tree, edit, pending)
        if planned is None:
            tree, pending = _parse(_splice_pending(tree, pending), limits), []
            planned = _plan(tree, edit, pending)
        if planned is not None:
            pending.append(planned)
    return _splice_pending(tree, pending)


def _parse(text: str, limits: YamlLimits) -> Tree:
    try:
        return Tree.parse(text, limits)
    except YamlError as error:
        raise CannotSpliceError from error


class _Touched(NamedTuple):
    """The part of a document that an edit changes: the value at `path`, or only its comment.

    With `added`, the path of a new value, everything at `path` stays: a block mapping gets one more key.
    """

    path: Path
    added: Path = ()
    is_comment: bool = False

    def is_inside(self, other: "_Touched") -> bool:
        """Tell whether this part is below the path of another one."""
        return len(self.path) > len(other.path) and self.path[: len(other.path)] == other.path

    def is_disjoint(self, other: "_Touched") -> bool:
        """Tell whether neither edit changes what the other one reads."""
        related = self.path == other.path or self.is_inside(other) or other.is_inside(self)
        if not related or (self.is_comment and other.is_comment):
            return self.path != other.path
        if (self.added or self.is_comment) and (other.added or other.is_comment):
            return True
        # A new key, and the comment of a key, are outside of the values below.
        return any(
            (outer.added or outer.is_comment) and inner.is_inside(outer)
            for outer, inner in ((self, other), (other, self))
        )


class _Pending(NamedTuple):
    """A planned edit; a key is added behind the entry `anchor`, by default the last one."""

    touched: _Touched
    replacement: Replacement
    anchor: str | None = None


def _plan(tree: Tree, edit: Edit, pending: list[_Pending]) -> _Pending | None:
    """Return an edit of a tree as planned, None if it depends on pending edits."""
    touched, anchor = _touched(tree, edit), None
    path = edit.path
    for step in pending:
        is_in_new = bool(step.touched.added) and path[: len(step.touched.added)] == step.touched.added
        if (
            is_in_new
            or touched.added == (step.touched.added or None)
            or not touched.is_disjoint(step.touched)
        ):
            return None
    if not isinstance(edit, AddKey) or not touched.added:
        return _Pending(touched, plan_splice(tree, edit))
    added = [step for step in pending if step.touched.added and step.touched.path == touched.path]
    previous = next((step for step in added if step.touched.added[-1] == edit.after), None)
    anchor = edit.after if previous is None else previous.anchor
    planned = _Pending(touched, plan_splice(tree, replace(edit, after=anchor)), anchor)
    # What is added at one place stays in the order of the edits: each new key is behind the one before it.
    last = next(
        (step for step in reversed(added) if step.replacement.start == planned.replacement.start), None
    )
    is_chained = last is previous or (previous is None and tree.slot((*edit.path, edit.after or "")) is None)
    return planned if is_chained else None


def _splice_pending(tree: Tree, pending: list[_Pending]) -> str:
    # At one place, what is deeper in the document comes first.
    ordered = sorted(pending, key=lambda step: -len(step.touched.path))
    return splice(tree.text, [step.replacement for step in ordered])


def _touched(tree: Tree, edit: Edit) -> _Touched:
    """Return the part of a tree that an edit changes."""
    match edit:
        case SetLineComment(path) | SetHeadComment(path):
            return _Touched(path, is_comment=True)
        case DeleteKey(path) | DeleteItem(path):
            return _Touched(path[:-1])
        case AddKey(path, key, before=None):
            new = (*path, key)
        case SetValue(path):
            new = path
        case _:
            new = ()
    path = edit.path
    while path and tree.find(path) is None:
        path = path[:-1]
    node = tree.find(path)
    is_new = len(path) < len(new) and isinstance(node, Mapping) and node.last is not None
    return _Touched(path, new[: len(path) + 1] if is_new else ())


def _edit_round_trip(tree: Tree, edits: tuple[Edit, ...]) -> str:
    """Load, edit and dump the document with ruamel.yaml, which keeps most comments and quotes.

    Raises:
        YamlError: ruamel.yaml cannot read, edit or write the document, or an edit sets a comment.
    """
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - rarely needed, and slow to import

    yaml = _yaml(tree)
    try:
        data = yaml.load(tree.text)
        for edit in edits:
            data = _apply(data, edit)
        out = StringIO()
        yaml.dump(data, out)
    except (YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise YamlError(f"The edit cannot be made: {type(error).__name__}") from error
    return out.getvalue()


def _yaml(tree: Tree) -> "YAML":
    from ruamel.yaml import YAML  # noqa: PLC0415 - rarely needed, and slow to import

    indentation = tree.indentation
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 2**31
    yaml.explicit_start = tree.text.startswith("---")
    offset = 0 if indentation.compact_lists else indentation.width
    yaml.indent(mapping=indentation.width, sequence=offset + 2, offset=offset)
    return yaml


def _apply(data: Any, edit: Edit) -> Any:
    match edit:
        case SetValue(()):
            return plain_value(edit.value)
        case SetValue((*parents, last)):
            _descend(data, parents)[last] = plain_value(edit.value)
        case AddKey(path):
            value = plain_value(edit.value)
            _descend(data, path)[edit.key] = value.get(edit.key, value) if isinstance(value, dict) else value
        case InsertItem(path):
            _descend(data, path).insert(edit.index, plain_value(edit.value))
        case DeleteKey((*parents, last)) | DeleteItem((*parents, last)):
            del _descend(data, parents)[last]
        case _:
            raise YamlError("A comment cannot be set here")
    return data


def _descend(data: Any, path: Any) -> Any:
    for step in path:
        data = data[step]
    return data
