"""The only access to YAML: exact loading, byte-preserving edits, and a checked fallback (design D6).

Load data with `load_documents`; read positions, styles and comments with `Tree.parse`; change a
document with `apply_edits`, which leaves every other byte as it is; write new text with `emit`.
"""

from reconciler.krm.yaml.apply import apply_edits, edit_tree
from reconciler.krm.yaml.compose import decode
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
    edited,
)
from reconciler.krm.yaml.emit import Indentation, Raw, Style, emit, is_plain
from reconciler.krm.yaml.limits import (
    KPTFILE_LIMITS,
    MANIFEST_LIMITS,
    PACKAGE_LIMITS,
    Aliases,
    YamlError,
    YamlLimits,
)
from reconciler.krm.yaml.load import Document, DocumentSource, Path, json_value, load_documents, load_json
from reconciler.krm.yaml.tree import (
    Alias,
    Comments,
    Entry,
    Field,
    Item,
    Mapping,
    Scalar,
    Sequence,
    Slot,
    Tree,
    end_line,
    fields_of,
    path_text,
)

__all__ = [
    "KPTFILE_LIMITS",
    "MANIFEST_LIMITS",
    "PACKAGE_LIMITS",
    "AddKey",
    "Alias",
    "Aliases",
    "Comments",
    "DeleteItem",
    "DeleteKey",
    "Document",
    "DocumentSource",
    "Edit",
    "EditResult",
    "Entry",
    "Field",
    "Indentation",
    "InsertItem",
    "Item",
    "Mapping",
    "Path",
    "Raw",
    "Scalar",
    "Sequence",
    "SetHeadComment",
    "SetLineComment",
    "SetValue",
    "Slot",
    "Style",
    "Tree",
    "YamlError",
    "YamlLimits",
    "apply_edits",
    "decode",
    "edit_tree",
    "edited",
    "emit",
    "end_line",
    "fields_of",
    "is_plain",
    "json_value",
    "load_documents",
    "load_json",
    "path_text",
]
