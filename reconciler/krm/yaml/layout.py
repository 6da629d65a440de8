"""Layout of a document (indentation, list style), which added fields follow."""

from typing import Any

from yaml import MappingNode, SequenceNode

from reconciler.krm.yaml.emit import DEFAULT_LAYOUT, Layout
from reconciler.krm.yaml.exact import ExactNode, is_block


def detect_layout(root: ExactNode | None) -> Layout:
    """Return the layout of the first nested mapping and the first list below a key, else the default."""
    indent = 0
    compact: bool | None = None
    todo: list[ExactNode] = [] if root is None else [root]
    while todo and not (indent and compact is not None):
        node = todo.pop()
        if isinstance(node, SequenceNode):
            todo.extend(reversed(node.value))
            continue
        if not isinstance(node, MappingNode):
            continue
        children: list[Any] = [value for _, value in node.value if is_block(value)]
        for child in children:
            width = child.start_mark.column - node.start_mark.column
            if isinstance(child, SequenceNode):
                compact = width == 0 if compact is None else compact
            elif width > 0:
                indent = indent or width
        todo.extend(reversed(children))
    return Layout(
        indent or DEFAULT_LAYOUT.indent, DEFAULT_LAYOUT.compact_lists if compact is None else compact
    )
