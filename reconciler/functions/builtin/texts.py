"""How to write text into a field."""

from functools import lru_cache
from typing import Any

from reconciler.krm.yaml import Field, Raw, Scalar, Sequence, SetValue, Style, Tree, YamlError, emit


def put_text(field: Field, text: str) -> SetValue:
    """Return the edit that puts text into a scalar: quotes stay, a plain one takes the type of the text."""
    node = field.node
    if isinstance(node, Scalar) and node.style is not Style.PLAIN:
        return SetValue(field.path, text)
    return SetValue(field.path, plain(text))


@lru_cache(maxsize=1024)
def plain(text: str) -> Any:
    """Return what to write for text that stands without quotes; with quotes only where it must have them."""
    if text and "\n" not in text:
        try:
            root = Tree.parse(f"- {text}").root
        except YamlError:
            return text
        item = root.items[0] if isinstance(root, Sequence) and len(root.items) == 1 else None
        node = item.value if item is not None else None
        if isinstance(node, Scalar) and node.style is Style.PLAIN and node.content == text:
            value = node.value
            return value if emit(value) == text else Raw(text)
    return text
