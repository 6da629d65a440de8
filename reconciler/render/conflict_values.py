"""Find the current value of a conflict in a package, by file, resource and field. Pure."""

from collections.abc import Iterator

from reconciler.krm.merge import Node, path_text, root_of
from reconciler.objects import File, Files
from reconciler.render.update.documents import ResourceDocument, documents_of
from reconciler.render.update.merge_report import REPLACED, SUBPACKAGE, Conflict

_WHOLE = ("BothAdded", "DeletedUpstream", "DeletedLocally", REPLACED)


def current_value(files: Files, conflict: Conflict) -> str | None:
    """Return the current text of the value of a conflict, None if it is absent. Total.

    A resource is searched in its file first, then in every other. For a text file it is the side of the
    conflict that the file still contains, else all of its text.
    """
    if conflict.resource == SUBPACKAGE and not conflict.field:
        inside = f"{conflict.path}/"
        return "package" if any(path.startswith(inside) for path in files) else None
    if not conflict.resource:
        return _text_value(files.get(conflict.path), conflict)
    document = find_document(files, conflict)
    if document is None:
        return None
    if not conflict.field:
        return document.text
    root = root_of(document.tree)
    node = next(_nodes_at(root, conflict.field), None) if root is not None else None
    return None if node is None else node.as_value().text


def _text_value(file: File | None, conflict: Conflict) -> str | None:
    if file is None:
        return None
    text = file.data.decode(errors="surrogateescape")
    if conflict.reason in _WHOLE or conflict.local is None:
        return text
    for side in (conflict.local, conflict.upstream):
        if side and side in text:
            return side
    return text if conflict.local else conflict.local


def find_document(files: Files, conflict: Conflict) -> ResourceDocument | None:
    """Return the resource of a conflict, None if the package has none of its name."""
    if not conflict.resource:
        return None
    first = [conflict.path] if conflict.path in files else []
    for path in [*first, *(path for path in sorted(files) if path != conflict.path)]:
        if not path.endswith((".yaml", ".yml", ".json", "Kptfile")):
            continue
        for document in documents_of(files[path]):
            if _is_resource_of(document, conflict, path):
                return document
    return None


def _is_resource_of(document: ResourceDocument, conflict: Conflict, path: str) -> bool:
    if conflict.resource == "Kptfile":
        return path == conflict.path
    return str(document.identity) == conflict.resource


def _nodes_at(node: Node, rest: str) -> Iterator[Node]:
    """Yield the nodes at a path, spelled as by `path_text`, below `node`."""
    if not rest:
        yield node
        return
    if rest.startswith("["):
        yield from _elements(node, rest)
        return
    rest = rest.removeprefix(".")
    for name, field in node.fields.items() if node.is_mapping else ():
        step = path_text((name,)) if not name.startswith("[") else name
        if rest.startswith(step) and rest[len(step) : len(step) + 1] in ("", ".", "["):
            yield from _nodes_at(field.value, rest[len(step) :])


def _elements(node: Node, rest: str) -> Iterator[Node]:
    """Yield the nodes below the elements of a list that a step `[name=app]` selects."""
    # A value may hold brackets itself, so every closing one may end the step.
    ends = [place for place, letter in enumerate(rest) if letter == "]"]
    for end in ends:
        keys = rest[1:end]
        for item in node.items:
            if _has_keys(item, keys):
                yield from _nodes_at(item, rest[end + 1 :])


def _has_keys(item: Node, keys: str) -> bool:
    if keys.startswith("="):
        return item.is_scalar and item.text == keys[1:]
    if not item.is_mapping:
        return False
    texts = {name: field.value.text for name, field in item.fields.items() if field.value.is_scalar}
    name, _, value = keys.partition("=")
    if name == "function":
        return any(part and value.startswith(part) for part in texts.values()) or value in texts.values()
    return all(
        texts.get(key) in (text, None) for key, _, text in (pair.partition("=") for pair in keys.split(","))
    ) and bool(texts.keys() & {pair.partition("=")[0] for pair in keys.split(",")})
