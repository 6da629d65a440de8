"""Fields of a package that we write ourselves: what we made of base there is no edit by a person.

Configuration that was injected, and what the variant puts into the package context, stand in local
alone. Before a merge both upstream sides get local's values there, so that another placeholder
upstream is no conflict that nobody caused; after the merge these fields are written anew.
"""

from collections.abc import Collection, Iterator, Mapping

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.krm.merge import Identity, Node, root_of
from reconciler.krm.yaml import DeleteKey, Edit, SetValue, YamlError
from reconciler.objects import File, Files
from reconciler.render.editing import edit_file
from reconciler.render.injection import INJECTED, INJECTED_NAME, injected_field
from reconciler.render.points import ANNOTATION
from reconciler.render.update.chunks import Document, split_documents
from reconciler.render.update.packages import Sides

_ANNOTATIONS = ("metadata", "annotations")
_Fields = Mapping[tuple[str, ...], Node | None]
"""Values of local by their paths; None where local has none."""


def with_own_fields(sides: Sides, context: Collection[str] = ()) -> Sides:
    """Return the sides of an update with local's values, on all of them, of what we write ourselves.

    Total: a file that is no YAML stays as it is.

    Args:
        sides: The package, with identifiers.
        context: The keys of the package context that the variant sets or removes.
    """
    original, upstream = dict(sides.original), dict(sides.upstream)
    for path, document in _documents(sides.local, context):
        injected, own = _injected(document), _context(document, context)
        for side, is_upstream in ((original, False), (upstream, True)):
            place = _find(side, path, document.identity)
            if place is None:
                continue
            name, there = place
            takes = injected if not is_upstream or _is_point(there) else {}
            side[name] = _edited(side[name], there, {**takes, **own})
    return Sides(original, upstream, sides.local)


def _documents(files: Files, context: Collection[str]) -> Iterator[tuple[str, Document]]:
    marks = [INJECTED.encode(), *([PACKAGE_CONTEXT_NAME.encode()] if context else [])]
    for path, file in sorted(files.items()):
        if not any(mark in file.data for mark in marks):
            continue
        chunked = split_documents(file)
        yield from ((path, document) for document in (chunked.documents if chunked else ()))


def _injected(document: Document) -> _Fields:
    """Return what injection wrote into a resource of local: one field, and two annotations."""
    data, root = document.data, root_of(document.tree)
    if not isinstance(data, dict) or INJECTED not in _annotations(data):
        return {}
    field = injected_field(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    paths = ((field,), (*_ANNOTATIONS, INJECTED), (*_ANNOTATIONS, INJECTED_NAME))
    return {path: _at(root, path) for path in paths}


def _context(document: Document, keys: Collection[str]) -> _Fields:
    if not keys or document.identity.name != PACKAGE_CONTEXT_NAME:
        return {}
    root = root_of(document.tree)
    return {("data", key): _at(root, ("data", key)) for key in sorted(keys)}


def _find(files: Files, path: str, identity: Identity) -> tuple[str, Document] | None:
    """Return where a side has a resource: in the same file first."""
    for name in (path, *(name for name in sorted(files) if name != path)):
        if name not in files or identity.name.encode() not in files[name].data:
            continue
        chunked = split_documents(files[name])
        for document in chunked.documents if chunked else ():
            if document.identity == identity:
                return name, document
    return None


def _is_point(document: Document) -> bool:
    return isinstance(document.data, dict) and ANNOTATION in _annotations(document.data)


def _annotations(data: Mapping[str, object]) -> Mapping[str, object]:
    metadata = data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _edited(file: File, document: Document, fields: _Fields) -> File:
    root = root_of(document.tree)
    edits: list[Edit] = []
    for path, value in fields.items():
        there = _at(root, path)
        if value is not None and (there is None or there.source != value.source):
            edits.append(SetValue(path, value.as_value()))
        elif value is None and there is not None:
            edits.append(DeleteKey(path))
    try:
        return edit_file(file, edits, index=document.index)
    except YamlError:
        return file


def _at(node: Node | None, path: tuple[str, ...]) -> Node | None:
    for step in path:
        field = node.fields.get(step) if node is not None and node.is_mapping else None
        node = field.value if field is not None else None
    return node
