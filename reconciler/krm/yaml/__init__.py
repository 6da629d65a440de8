"""The one door to YAML: exact reading, splice editing, and a checked fallback (design D6).

Read data with `load_documents`; look at places, styles and comments with `Tree.parse`; change a
document with `apply_edits`, which leaves every other byte as it is; write new text with `emit`.
"""

from reconciler.krm.yaml.apply import apply_edits, edit_tree
from reconciler.krm.yaml.comments import CommentIndex, Comments, Span
from reconciler.krm.yaml.compose import decode
from reconciler.krm.yaml.document import Document
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
)
from reconciler.krm.yaml.emit import Layout, emit, emit_entry, emit_item
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.fields import Field, fields_of
from reconciler.krm.yaml.json import load_json, load_json_lines
from reconciler.krm.yaml.limits import MANIFEST_LIMITS, PACKAGE_LIMITS, SNAPSHOT_LIMITS, Aliases, YamlLimits
from reconciler.krm.yaml.load import iterate_documents, load_documents
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.model import edited
from reconciler.krm.yaml.quoting import Style
from reconciler.krm.yaml.raw import Raw
from reconciler.krm.yaml.scalars import type_number
from reconciler.krm.yaml.tree import Alias, AnyNode, Entry, Item, Mapping, Scalar, Sequence, Slot, Tree

__all__ = [
    "MANIFEST_LIMITS",
    "PACKAGE_LIMITS",
    "SNAPSHOT_LIMITS",
    "AddKey",
    "Alias",
    "Aliases",
    "AnyNode",
    "CommentIndex",
    "Comments",
    "DeleteItem",
    "DeleteKey",
    "Document",
    "Edit",
    "EditResult",
    "Entry",
    "Field",
    "InsertItem",
    "Item",
    "Layout",
    "Mapping",
    "Path",
    "Raw",
    "Scalar",
    "Sequence",
    "SetHeadComment",
    "SetLineComment",
    "SetValue",
    "Slot",
    "Span",
    "Style",
    "Tree",
    "YamlError",
    "YamlLimits",
    "apply_edits",
    "decode",
    "edit_tree",
    "edited",
    "emit",
    "emit_entry",
    "emit_item",
    "fields_of",
    "iterate_documents",
    "load_documents",
    "load_json",
    "load_json_lines",
    "type_number",
]
