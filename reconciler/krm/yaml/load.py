"""Reading: bytes in, plain Python values typed as Kubernetes types them out."""

from collections.abc import Iterator
from typing import Any

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import UNTAGGED, AliasNode, RawNode, compose, decode, error_at
from reconciler.krm.yaml.document import Document
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.json import load_json
from reconciler.krm.yaml.limits import MANIFEST_LIMITS, YamlLimits
from reconciler.krm.yaml.marks import part_source, typed_key, whole_source
from reconciler.krm.yaml.scalars import (
    NUMBER_STARTS,
    WORDS,
    Scalar,
    ScalarError,
    type_plain,
    type_tagged,
)


def load_documents(data: bytes, limits: YamlLimits = MANIFEST_LIMITS) -> tuple[Document, ...]:
    """Return the documents of a YAML or JSON file; empty and comment-only ones are left out.

    Total: hostile or malformed data is a `YamlError`, never another exception.

    Raises:
        YamlError: The data is not text, not YAML, has a duplicate key, a value that Kubernetes
            refuses, or goes over a limit.
    """
    if data[:1] == b"{" and data.rstrip()[-1:] == b"}":
        try:
            return (load_json(data, limits),)
        except YamlError:  # flow style, or JSON that YAML reads and Go's JSON does not
            pass
    text, _, _ = decode(data, limits)
    return tuple(iterate_documents(text, limits))


def iterate_documents(text: str, limits: YamlLimits = MANIFEST_LIMITS) -> Iterator[Document]:
    """Yield the documents of a YAML text one by one, so that a large file needs little memory.

    Raises:
        YamlError: As `load_documents`, when the iteration reaches the place.
    """
    try:
        tied = text[:1] == "%" or "\n%" in text
        for index, root in enumerate(compose(text, limits)):
            value = construct(root, limits.max_depth)
            source = whole_source(text, index) if tied else part_source(text, root)
            yield Document(value, root.start_mark.line + 1, source)
    except RecursionError as error:
        raise YamlError("The document is nested too deeply", hint="Lower the depth limit.") from error


def construct(root: RawNode | AliasNode, max_depth: int) -> Any:
    """Return the value of a composed node.

    Raises:
        YamlError: A duplicate or impossible key, an impossible value, or too much depth.
    """
    if isinstance(root, AliasNode):
        return construct(root.value, max_depth)
    if isinstance(root, MappingNode):
        return _mapping(root, max_depth)
    return _sequence(root, max_depth) if isinstance(root, SequenceNode) else _scalar(root)


def _mapping(node: MappingNode, room: int) -> dict[str, Any]:  # noqa: C901, PLR0912 - the hot loop, inlined
    if not room:
        raise error_at(node.start_mark, "Collections are nested too deeply")
    result: dict[str, Any] = {}
    inherited: set[str] = set()
    for key_node, value_node in node.value:
        key = key_node.value
        if key_node.tag:
            if key_node.tag == UNTAGGED and key == "<<":
                inherited |= _merge_into(result, value_node, room)
                continue
            if key_node.tag != UNTAGGED or key in WORDS or key[0] in NUMBER_STARTS:
                key = typed_key(key_node)
        if type(key_node) is not ScalarNode:
            key = typed_key(key_node)
        if key in result:
            if key not in inherited:
                raise error_at(key_node.start_mark, f"Key {key!r} is set twice in one mapping")
            inherited.discard(key)
        text = value_node.value
        kind = type(value_node)
        if kind is ScalarNode:
            tag = value_node.tag
            if tag == UNTAGGED:
                if text in WORDS:
                    result[key] = WORDS[text]
                elif text[0] in NUMBER_STARTS:
                    result[key] = _scalar(value_node)
                else:
                    result[key] = text
            else:
                result[key] = _scalar(value_node) if tag else text
        else:
            result[key] = construct(value_node, room - 1)
    return result


def _sequence(node: SequenceNode, room: int) -> list[Any]:
    if not room:
        raise error_at(node.start_mark, "Collections are nested too deeply")
    room -= 1
    return [_scalar(item) if type(item) is ScalarNode else construct(item, room) for item in node.value]


def _scalar(node: ScalarNode) -> Scalar:
    tag = node.tag
    text: str = node.value
    if not tag:
        return text
    try:
        return type_plain(text) if tag == UNTAGGED else type_tagged(tag, text)
    except ScalarError as error:
        raise error_at(node.start_mark, str(error)) from error


def _merge_into(result: dict[str, Any], node: RawNode | AliasNode, room: int) -> set[str]:
    """Merge a `<<` value into a mapping as Kubernetes does: over what stands before, under what follows.

    Source: sigs.k8s.io/yaml goyaml.v2/decode.go, merge.
    """
    node = node.value if isinstance(node, AliasNode) else node
    sources = reversed(node.value) if isinstance(node, SequenceNode) else (node,)
    inherited: set[str] = set()
    for each in sources:
        source = each.value if isinstance(each, AliasNode) else each
        if type(source) is not MappingNode:
            raise error_at(source.start_mark, "A merge needs a mapping or a sequence of mappings")
        values = _mapping(source, room)
        result.update(values)
        inherited |= values.keys()
    return inherited
