"""The fallback: a ruamel.yaml round trip of one document, for edits that no splice can express."""

from io import StringIO
from typing import TYPE_CHECKING, Any

from reconciler.krm.yaml.edits import AddKey, DeleteItem, DeleteKey, Edit, InsertItem, SetValue
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.layout import detect_layout
from reconciler.krm.yaml.model import plain_value
from reconciler.krm.yaml.tree import Tree

if TYPE_CHECKING:
    from ruamel.yaml import YAML


def edit_round_trip(tree: Tree, edits: tuple[Edit, ...]) -> str:
    """Return the document's text after loading, editing and dumping it with ruamel.yaml.

    Comments and quotes are kept as well as ruamel.yaml can. Edits of comments are not made here.

    Raises:
        YamlError: ruamel.yaml cannot read, edit or write the document.
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

    layout = detect_layout(tree.raw)
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 2**31
    yaml.explicit_start = tree.text.startswith("---")
    offset = 0 if layout.compact_lists else layout.indent
    yaml.indent(mapping=layout.indent, sequence=offset + 2, offset=offset)
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
