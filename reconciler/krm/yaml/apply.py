"""Editing a document: splice where that can be done, else ruamel.yaml; checked by parsing either way."""

from collections.abc import Iterable
from typing import Any, Final

from reconciler.krm.yaml.edits import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    EditResult,
    InsertItem,
    SetValue,
)
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.in_place import edit_in_place
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlLimits
from reconciler.krm.yaml.lines import ODD_BREAK
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.model import canonical, edited
from reconciler.krm.yaml.replacement import CannotSpliceError, Replacement, splice
from reconciler.krm.yaml.roundtrip import edit_round_trip
from reconciler.krm.yaml.splice import plan_splice
from reconciler.krm.yaml.tree import Tree

_BOM: Final = "\ufeff"


def apply_edits(text: str, edits: Iterable[Edit], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Return the text of one document with the edits made, in order, and every other byte as it was.

    Deterministic and checked: the result parses to the edited data, or there is none.

    Raises:
        YamlError: The text is not YAML, an edit names a place that there is not, or the edited data
            cannot be written.
    """
    todo = tuple(edits)
    bom = _BOM if text.startswith(_BOM) else ""
    tree = Tree.parse(text, limits)
    tree.check()
    result = edit_tree(tree, todo, limits) if todo else EditResult(tree.text)
    return EditResult(bom + result.text, result.fallbacks) if bom else result


def edit_tree(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Make edits of a document that was read before, without a byte order mark; else as `apply_edits`.

    Raises:
        YamlError: As `apply_edits`.
    """
    simple = edit_in_place(tree, edits)
    return EditResult(simple) if simple is not None else _edit_checked(tree, tree.value, edits, limits)


def _edit_checked(tree: Tree, intended: Any, todo: tuple[Edit, ...], limits: YamlLimits) -> EditResult:
    for edit in todo:
        intended = edited(intended, edit)
    wanted = canonical(intended)
    try:
        result = _splice_all(tree, todo, limits)
        for end in ("", "\n"):  # a block scalar at the end of the text may need its line break
            if _reads_as(result + end, wanted, limits):
                return EditResult(result + end)
    except CannotSpliceError:
        pass
    result = edit_round_trip(tree, todo)
    if not _reads_as(result, wanted, limits):
        raise YamlError("The edits cannot be written without changing something else")
    return EditResult(result, fallbacks=1)


def _reads_as(text: str, wanted: bytes, limits: YamlLimits) -> bool:
    try:
        return canonical(Tree.parse(text, limits).value) == wanted
    except YamlError:
        return False


def _splice_all(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    """Make all edits; those that cannot disturb each other share one pass over the text."""
    if ODD_BREAK.search(tree.text):
        raise CannotSpliceError
    pending: list[Replacement] = []
    touched: list[Path] = []
    for edit in edits:
        place = _reach(edit, tree)
        if any(place[: len(path)] == path or path[: len(place)] == place for path in touched):
            tree = _parse_again(tree, pending, limits)
            pending, touched = [], []
            place = _reach(edit, tree)
        pending.append(plan_splice(tree, edit))
        touched.append(place)
    return splice(tree.text, pending)


def _parse_again(tree: Tree, pending: list[Replacement], limits: YamlLimits) -> Tree:
    try:
        return Tree.parse(splice(tree.text, pending), limits)
    except YamlError as error:
        raise CannotSpliceError from error


def _reach(edit: Edit, tree: Tree) -> Path:
    """Return the part of a document that an edit may change: a field, or a whole collection."""
    match edit:
        case SetValue(path) | AddKey(path) | InsertItem(path):
            while path and tree.find(path) is None:
                path = path[:-1]
            return path
        case DeleteKey(path) | DeleteItem(path):
            return path[:-1]
        case _:
            return edit.path
