"""Edit a document: by splicing where possible, else by a ruamel.yaml round trip; both checked by parsing."""

from collections.abc import Iterable
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from reconciler.krm.yaml.edits import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    EditResult,
    InsertItem,
    SetValue,
    canonical,
    edited,
    plain_value,
)
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlError, YamlLimits
from reconciler.krm.yaml.load import Path
from reconciler.krm.yaml.splice import ODD_BREAK, CannotSpliceError, Replacement, plan_splice, splice
from reconciler.krm.yaml.tree import Tree

if TYPE_CHECKING:
    from ruamel.yaml import YAML

_BOM: Final = "\ufeff"


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
    # What follows a block scalar at the end of the text would give it a line break.
    closed = tree.closed()
    trees = (tree,) if closed == tree.text else (tree, Tree.parse(closed, limits))
    for each in trees:
        with suppress(CannotSpliceError):
            result = _splice_all(each, edits, limits)
            for end in ("", "\n"):  # a block scalar at the end of the text may need its line break
                if _parses_to(result + end, expected, limits):
                    return EditResult(result + end)
    result = _edit_round_trip(tree, edits)
    if not _parses_to(result, expected, limits):
        raise YamlError("The edits cannot be written without changing something else")
    return EditResult(result, fallbacks=1)


def _parses_to(text: str, expected: bytes, limits: YamlLimits) -> bool:
    try:
        return canonical(Tree.parse(text, limits).value) == expected
    except YamlError:
        return False


def _splice_all(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    """Splice all edits; those with disjoint paths share one pass over the text."""
    if ODD_BREAK.search(tree.text):
        raise CannotSpliceError
    pending: list[Replacement] = []
    touched: list[Path] = []
    for edit in edits:
        affected = _affected_path(edit, tree)
        if any(affected[: len(path)] == path or path[: len(affected)] == affected for path in touched):
            tree = _parse_again(tree, pending, limits)
            pending, touched = [], []
            affected = _affected_path(edit, tree)
        pending.append(plan_splice(tree, edit))
        touched.append(affected)
    return splice(tree.text, pending)


def _parse_again(tree: Tree, pending: list[Replacement], limits: YamlLimits) -> Tree:
    try:
        return Tree.parse(splice(tree.text, pending), limits)
    except YamlError as error:
        raise CannotSpliceError from error


def _affected_path(edit: Edit, tree: Tree) -> Path:
    """Return the path of the field or whole collection that an edit may change."""
    match edit:
        case SetValue(path) | AddKey(path) | InsertItem(path):
            while path and tree.find(path) is None:
                path = path[:-1]
            return path
        case DeleteKey(path) | DeleteItem(path):
            return path[:-1]
        case _:
            return edit.path


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
