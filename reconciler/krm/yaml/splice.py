"""From an edit to the one replacement that makes it."""

from dataclasses import replace
from typing import assert_never

from reconciler.krm.yaml.annotate import set_head_comment, set_line_comment
from reconciler.krm.yaml.edits import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    SetHeadComment,
    SetLineComment,
    SetValue,
)
from reconciler.krm.yaml.model import edited
from reconciler.krm.yaml.put import add_key, insert_item, set_value
from reconciler.krm.yaml.remove import delete
from reconciler.krm.yaml.replacement import Replacement
from reconciler.krm.yaml.tree import Alias, Tree


def plan_splice(tree: Tree, edit: Edit) -> Replacement:
    """Return the replacement of text that makes an edit.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: The edit names a place that there is not, or its value cannot be written.
    """
    edit = _without_alias(tree, edit)
    match edit:
        case SetValue():
            return set_value(tree, edit)
        case AddKey():
            return add_key(tree, edit)
        case InsertItem():
            return insert_item(tree, edit)
        case DeleteKey(path) | DeleteItem(path):
            return delete(tree, path)
        case SetLineComment(path, text):
            return set_line_comment(tree, path, text)
        case SetHeadComment(path, text):
            return set_head_comment(tree, path, text)
        case _:
            assert_never(edit)


def _without_alias(tree: Tree, edit: Edit) -> Edit:
    """Turn an edit inside an aliased value into one that writes the value out where the alias stands."""
    inside = edit.path if isinstance(edit, (AddKey, InsertItem)) else edit.path[:-1]
    for length in range(1, len(inside) + 1):
        node = tree.find(inside[:length])
        if node is None:
            break
        if isinstance(node, Alias):
            return SetValue(inside[:length], edited(node.value, replace(edit, path=edit.path[length:])))
    return edit
