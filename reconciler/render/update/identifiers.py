"""Add kpt's merge comments and upstream identifiers, which name the upstream resource of each resource."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from reconciler.base.lazy import regex
from reconciler.functions.resources import RESOURCE_ENDINGS, ignored_paths
from reconciler.krm.documents import ResourceDocument, documents_of, join_documents, resources_in
from reconciler.krm.merge import (
    ATTRIBUTION,
    UPSTREAM_IDENTIFIER,
    Identity,
    Node,
    child,
    has_merge_comment,
    identity_of,
    root_of,
)
from reconciler.krm.values import value_at
from reconciler.krm.yaml import Edit, Raw, SetHeadComment, SetLineComment, SetValue, YamlError, edit_tree
from reconciler.names.ids import group_of
from reconciler.names.objects import File, Files, TakenNames, without_numbers
from reconciler.render.update.sides import Sides

_ANNOTATION: Final = ("metadata", "annotations", UPSTREAM_IDENTIFIER)
# kpt writes what it did to a resource of Google's Config Connector into the annotation `blueprint`.
_KPT_NAME: Final = regex(r"k(?:pt|rm)(?:-(?:pkg|fn|live))+")
DEFAULT_NAMESPACE: Final = "default"
_CACHED_FILES: Final = 4096
_NAMESPACE: Final = b"\n  namespace:"
_MARKED: Final = regex(
    rb"(?:#[^\r\n]*\n)*apiVersion: (?P<version>[\w./-]+)\nkind: (?P<kind>\w+)\n"
    rb"metadata: # kpt-merge: (?P<namespace>[\w.-]*)/(?P<name>[\w.:-]+)\n"
    rb"(?:  [^\r\n]+\n)*?  annotations:\n(?:    [^\r\n]+\n)*?"
    rb"    internal\.kpt\.dev/upstream-identifier: '(?P<identifier>[^'\r\n]+)'\n"
)
_FLOW_METADATA: Final = regex(rb"\bmetadata[\"']?:\s*\{")
_SECOND: Final = regex(rb"\r|(?m:^---)")
_IN_NONE: Final = b"# kpt-merge: /"


def add_identifiers(files: Files, only: Files | None = None) -> Files:
    """Return a package with kpt's merge comment and upstream identifier on every resource. Idempotent.

    An existing merge comment stays, and the identifier is refreshed from it. `only` restricts this to the
    paths of another package: files that only local has come from no upstream.

    Source: kpt internal/util/addmergecomment/addmergecomment.go.
    Differs: a file that is not YAML is skipped, where kpt then skips the whole package; another comment on
    the line moves above it, where kpt replaces it.
    """
    hidden = ignored_paths(files)
    marked = {
        path: _marked(file)
        for path, file in files.items()
        if path.endswith(RESOURCE_ENDINGS) and path not in hidden and (only is None or path in only)
    }
    return {**files, **marked}


def with_identifiers(original: Files, upstream: Files, local: Files, rendered: Files | None = None) -> Sides:
    """Return the three sides of an update with identifiers, so that none of them counts as an edit.

    `rendered` is the original after its pipeline: local's resources without a merge comment get the one of
    the resource with the same name there, and its identifier where flow style has no line for a comment.
    """
    shared = {**original, **upstream}
    named = (
        {path: _with_comments_of(file, rendered.get(path)) for path, file in local.items()}
        if rendered
        else local
    )
    written = dict(_attributions(original))  # by upstream itself, which may drop them again
    attributions = {of: names for of, names in _attributions(local) if not {*names} <= {*written.get(of, ())}}
    return Sides(
        _with_attributions(add_identifiers(original), attributions),
        _with_attributions(add_identifiers(upstream), attributions),
        {
            path: _with_identifiers_of(file, (rendered or {}).get(path))
            for path, file in add_identifiers(named, shared).items()
        },
    )


def with_identities_of(files: Files, local: Files, namespace: str) -> Files:
    """Return rendered manifests that have the identity which local has of the same resource.

    A resource without a namespace is one of `namespace`, where Helm installs it: a chart that begins or
    ceases to write the namespace of its release neither removes a resource nor adds one.
    """
    changed = {
        path: file
        for path, file in files.items()
        if path not in local or (_NAMESPACE in file.data) is (_IN_NONE in local[path].data)
    }
    if not local or not changed:
        return files

    def is_there(identity: Identity) -> bool:
        name = identity.name.encode()
        return any(identity in _identities(file) for file in local.values() if name in file.data)

    def edits(document: ResourceDocument) -> Iterator[Edit]:
        metadata, identity = child(root_of(document.tree), "metadata"), document.identity
        # Charts may or may not write {{ .Release.Namespace }}: Helm installs both into the same namespace.
        other = identity._replace(namespace="" if identity.namespace else namespace)
        is_home = identity.namespace in ("", namespace) and not is_there(identity) and is_there(other)
        if is_home and metadata is not None and metadata.is_block and not has_merge_comment(document.comment):
            yield from _set_comment(metadata, f"# kpt-merge: {other.namespace}/{other.name}")

    return {**files, **{path: _edit_documents(file, edits) for path, file in changed.items()}}


def with_files_of(files: Files, unrendered: Files, local: Files) -> Files:
    """Return a package with the resources that functions made in the files that local has of them.

    Two names of which a file system makes one file get numbers (`TakenNames`): a resource keeps its file,
    whatever other one comes or goes.

    Args:
        files: The package.
        unrendered: The package before its functions.
        local: The package on main, or in the draft.
    """
    homes: dict[str, list[str]] = {}
    for path in local:
        homes.setdefault(without_numbers(path), []).append(path)
    moving = {
        path: homes[key]
        for path in files.keys() - unrendered.keys()
        if (key := without_numbers(path)) in homes and homes[key] != [path]
    }
    if not moving:
        return files
    owners = {
        document.identity: path
        for path in {home for group in moving.values() for home in group}
        for document in documents_of(local[path])
    }
    homes_of_files: dict[str, str] = {}
    for path in moving:
        places = {owners.get(document.identity, "") for document in documents_of(files[path])}
        if len(places) == 1 and without_numbers(home := places.pop()) == without_numbers(path):
            homes_of_files[path] = home
    result = {path: file for path, file in files.items() if path not in moving}
    taken = TakenNames(result)
    for path in sorted(moving, key=lambda name: (name not in homes_of_files, name)):
        home = homes_of_files.get(path, path)
        new_path = home if taken.choose(home) == home else taken.choose(path)
        result[new_path] = files[path]
        taken.add(new_path)
    return result


def _attributions(files: Files) -> Iterator[tuple[Identity, tuple[str, ...]]]:
    """Yield the names that kpt added to the attribution of each resource that it fetched or rendered."""
    for file in files.values():
        if ATTRIBUTION.encode() in file.data:
            for document in documents_of(file):
                names = tuple(filter(_KPT_NAME.fullmatch, _attribution(document)))
                if names:
                    yield document.identity, names


def _attribution(document: ResourceDocument) -> list[str]:
    text = value_at(document.data, "metadata", "annotations", ATTRIBUTION)
    return text.split(",") if isinstance(text, str) and text else []


def _with_attributions(files: Files, attributions: Mapping[Identity, tuple[str, ...]]) -> Files:
    """Return an upstream side with what kpt added to local, which is no edit."""

    def edits(document: ResourceDocument) -> Iterator[Edit]:
        names = attributions.get(document.identity)
        old = _attribution(document)
        if names and not set(names) <= set(old):
            text = ",".join((*(name for name in old if not _KPT_NAME.fullmatch(name)), *names))
            yield SetValue((*_ANNOTATION[:-1], ATTRIBUTION), text)

    if not attributions:
        return files
    return {
        path: _edit_documents(file, edits) if b"metadata" in file.data else file
        for path, file in files.items()
    }


@lru_cache(maxsize=_CACHED_FILES)
def _identities(file: File) -> frozenset[Identity]:
    return frozenset(document.identity for document in documents_of(file))


@lru_cache(maxsize=_CACHED_FILES)
def _with_comments_of(file: File, rendered: File | None) -> File:
    if rendered is None or file == rendered or b"kpt-merge" not in rendered.data:
        return file
    theirs = documents_of(rendered)
    comments = {_own_identity(d): d.comment for d in theirs if has_merge_comment(d.comment)}

    def edits(document: ResourceDocument) -> Iterator[Edit]:
        comment, metadata = (
            comments.get(_own_identity(document), ""),
            child(root_of(document.tree), "metadata"),
        )
        if comment and metadata is not None and not has_merge_comment(document.comment):
            yield from _set_comment(metadata, comment)

    return _edit_documents(file, edits)


@lru_cache(maxsize=_CACHED_FILES)
def _with_identifiers_of(file: File, rendered: File | None) -> File:
    """Return a file with the identifiers that resources in flow style had before functions renamed them."""
    if rendered is None or file == rendered or not _FLOW_METADATA.search(file.data):
        return file
    identifiers = {_own_identity(d): _identifier(d) for d in documents_of(rendered)}

    def edits(document: ResourceDocument) -> Iterator[Edit]:
        metadata = child(root_of(document.tree), "metadata")
        identifier = identifiers.get(_own_identity(document))
        is_changed = identifier is not None and _identifier(document) not in (None, identifier)
        if is_changed and metadata is not None and metadata.is_flow:
            yield SetValue(_ANNOTATION, identifier)

    return _edit_documents(file, edits)


def _identifier(document: ResourceDocument) -> str | None:
    text = value_at(document.data, *_ANNOTATION)
    return text if isinstance(text, str) else None


def _own_identity(document: ResourceDocument) -> Identity:
    """Return the identity of a document by its own name, without its merge comment."""
    return identity_of(root_of(document.tree))


@lru_cache(maxsize=_CACHED_FILES)
def _marked(file: File) -> File:
    if b"metadata" not in file.data or _is_marked(file.data):
        return file
    return _edit_documents(file, _identifier_edits)


def _is_marked(data: bytes) -> bool:
    """Tell whether the only document of a file has both already, as most on main: to parse it takes long."""
    head = _MARKED.match(data)
    if head is None or _SECOND.search(data, head.end()):
        return False
    names = {name: text.decode(errors="replace") for name, text in head.groupdict().items()}
    identity = Identity(group_of(names["version"]), names["kind"], names["namespace"], names["name"])
    return names["identifier"] == upstream_identifier(identity)


def _edit_documents(file: File, edits_of: Callable[[ResourceDocument], Iterable[Edit]]) -> File:
    """Return a file with its documents edited; a document stays if its edits cannot be expressed."""
    split = resources_in(file)
    if split is None:
        return file
    pieces = []
    for document in split.documents:
        text = document.text
        # Aliases, or annotations that are no mapping: such a resource is matched by its own name.
        with suppress(YamlError):
            text = edit_tree(document.tree, edits).text if (edits := tuple(edits_of(document))) else text
        pieces.append((document.above, text))
    data = join_documents(pieces, split.below, split.format)
    return file if data == file.data else File.of(data, file.mode)


def _identifier_edits(document: ResourceDocument) -> Iterator[Edit]:
    metadata = child(root_of(document.tree), "metadata")
    if metadata is None or not metadata.is_mapping or not _is_named(metadata):
        return
    # A flow mapping has no line of its own for a comment.
    if metadata.is_block and not has_merge_comment(document.comment):
        identity = document.identity
        yield from _set_comment(metadata, f"# kpt-merge: {identity.namespace}/{identity.name}")
    # kpt writes this annotation anew at each update, and matches by the comment alone.
    identifier = upstream_identifier(document.identity)
    existing = child(child(metadata, "annotations"), UPSTREAM_IDENTIFIER)
    if existing is None or existing.text != identifier:
        quoted = identifier.replace("'", "''")
        yield SetValue(_ANNOTATION, identifier if existing is not None else Raw(f"'{quoted}'"))


def _set_comment(metadata: Node, comment: str) -> Iterator[Edit]:
    """Yield the edits that set a merge comment; another comment on the line moves above it."""
    comments = metadata.comments
    if comments.line:
        lines = [line for line in (comments.head, comments.line) if line]
        yield SetHeadComment(("metadata",), "\n".join(lines))
    yield SetLineComment(("metadata",), comment)


def upstream_identifier(identity: Identity) -> str:
    """Return the value of kpt's annotation for a resource: `GROUP|KIND|NAMESPACE|NAME`."""
    # kpt writes `default` where a resource has no namespace, be it namespaced or not.
    return "|".join(identity._replace(namespace=identity.namespace or DEFAULT_NAMESPACE))


def _is_named(metadata: Node) -> bool:
    """Return whether kpt marks a resource: it has a name, a namespace or labels."""
    values = (child(metadata, name) for name in ("name", "namespace", "labels"))
    return any(value is not None and not value.is_null and value.value not in ("", {}) for value in values)
