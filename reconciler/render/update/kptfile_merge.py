"""Merge the Kptfile of a package: its name, upstream and ownership stay local, the rest is merged."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Final

from msgspec import Struct

from reconciler.api.kptfile import LOCATION, OWNER
from reconciler.base.errors import Exit
from reconciler.base.lazy import regex
from reconciler.krm.merge import (
    CompatibleMerge,
    FieldMerge,
    FromUpstream,
    Merged,
    MergedCollection,
    MergedField,
    MergedLines,
    Node,
    Steps,
    TextFormat,
    Winner,
    child,
    edits_of,
    insert_new,
    is_same,
    merge_comments,
    merge_formats,
    root_of,
)
from reconciler.krm.merge.fields import FUNCTION, KPT_FUNCTION, element_key
from reconciler.krm.schema import Shape
from reconciler.krm.values import mapping_at, mappings_at
from reconciler.krm.yaml import Edit, Raw, SetValue, Tree, YamlError, edit_tree, emit
from reconciler.names.objects import File, Files
from reconciler.policy import Strategy
from reconciler.render.update.conflicts import MergeReport, UpdateRefused, resolver_for
from reconciler.render.update.resources import DocumentSides, record_dropped_comments
from reconciler.render.update.sides import FileSides, MergeSettings, is_equal

# kpt copies these parts of the merged Kptfile, and no others, into local's.
_MERGED: Final = ("info", "pipeline", "inventory", "status")
_LINKS: Final = ("upstream", "upstreamLock")
_METADATA: Final = ("labels", "annotations")
# The usual spelling; anchored at the line, so that `updateStrategy` elsewhere does not match.
_STRATEGY: Final = regex(
    rb"^upstream:[^\S\n]*\n(?:[ ]+.*\n)*?[ ]+updateStrategy:[ ]+([a-z-]+)[ ]*$", re.MULTILINE
)
# Owner and place of a downstream package: an upstream that was itself generated has others.
_OWNERSHIP: Final = (OWNER, LOCATION)
_PLAIN_HEAD: Final = (
    b"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a\n"
    b"  annotations:\n    %s: a\n    %s: a\n" % (LOCATION.encode(), OWNER.encode())
)
_HEAD: Final = regex(
    rb"apiVersion: kpt\.dev/v1\nkind: Kptfile\nmetadata:\n  name: [a-z][a-z0-9-]*\n"
    rb"(?P<annotations>  annotations:\n    %s: [a-z][a-z0-9./-]*\n    %s: [a-z][a-z0-9./-]*\n)?"
    % (re.escape(LOCATION).encode(), re.escape(OWNER).encode())
)
"""The start of a Kptfile as we write it: no other text depends on plain words in a known place."""
_LONGEST_KPTFILE: Final = 8192
"""In bytes. Limits of longer texts may depend on the length of a name."""


class UpstreamRef(Struct, frozen=True):
    """The upstream that a package is updated to, as `upstream` and `upstreamLock` record it.

    `commit` is a full commit id; empty does not change `upstreamLock`.
    """

    repo: str
    directory: str
    ref: str
    commit: str = ""


def merge_kptfile(
    path: str, sides: FileSides, settings: MergeSettings, report: MergeReport, *, root: bool
) -> File | None:
    """Return local's Kptfile with upstream's changes to metadata, info, pipeline, inventory and status.

    Name, namespace, the ownership annotations and, in the root package, `upstream` and `upstreamLock` stay
    local.

    Raises:
        UpdateRefused: The Kptfile of a side is no mapping.

    Source: kpt pkg/kptfile/kptfileutil/util.go, UpdateKptfile.
    Differs: bytes and comments are kept; functions merge one by one, whether named or not.
    """
    base, upstream, local = sides
    if local is None or upstream is None or is_equal(base, upstream) or is_equal(upstream, local):
        return upstream if local is None and base is None else local
    formats, (old, theirs, ours) = zip(*(_read(path, file) for file in sides), strict=True)
    if ours is None or theirs is None:
        return local
    if not settings.like_kpt and is_equal(base, local) and _same_identity(old, theirs):
        return upstream
    resolver = resolver_for(settings.policy, path, "Kptfile", ours.value)
    fields = FieldMerge(lambda steps: Winner.UPSTREAM if _is_rendered(steps) else resolver(steps))
    merge = _merge_like_kpt((ours, old, theirs)) if settings.like_kpt else partial(_merge_part, fields)
    result = _merge_root(merge, (old, theirs, ours), root=root, like_kpt=settings.like_kpt)
    done = edit_tree(ours.tree, tuple(edits_of(ours, result)))
    report.fallbacks += done.fallbacks
    text = done.text
    if not settings.like_kpt:  # kpt loses all comments of a Kptfile
        people = [conflict for conflict in fields.conflicts if not _is_rendered(conflict.path)]
        report.record_fields(path, "Kptfile", people, ours.value)
        trees = old.tree if old is not None else None, theirs.tree, ours.tree
        text, dropped = merge_comments(*trees, Tree.parse(text), _SHAPE)
        record_dropped_comments(path, "Kptfile", DocumentSides(*trees, text), dropped, report)
    merged = File.of(merge_formats(*formats).joined(text).encode(), local.mode)
    return local if is_equal(merged, local) else merged


def set_upstream(file: File, upstream: UpstreamRef) -> tuple[File, int]:
    """Return a Kptfile with another `upstream` and `upstreamLock`, and the number of documents written anew.

    Raises:
        UpdateRefused: The Kptfile is no YAML mapping.
    """
    head = _HEAD.match(file.data)
    if head is not None and len(file.data) <= _LONGEST_KPTFILE:
        rest = _rest_with_upstream(head["annotations"] is not None, file.data[head.end() :], upstream)
        if rest is not None:
            return File.of(head[0] + rest, file.mode), 0
    return edit_upstream(file, upstream)


def edit_upstream(file: File, upstream: UpstreamRef) -> tuple[File, int]:
    """Return what `set_upstream` does, with a look at the whole Kptfile.

    Raises:
        UpdateRefused: As `set_upstream`.
    """
    text_format, node = _read("Kptfile", file)
    edits = tuple(_upstream_edits(node, upstream)) if node is not None else ()
    if node is None or text_format is None or not edits:
        return file, 0
    done = edit_tree(node.tree, edits)
    return File.of(text_format.joined(done.text).encode(), file.mode), done.fallbacks


@lru_cache(maxsize=256)
def _rest_with_upstream(has_annotations: bool, rest: bytes, upstream: UpstreamRef) -> bytes | None:  # noqa: FBT001
    """Return the text behind `_HEAD` with another upstream, None if the Kptfile needs a look at the whole.

    The Kptfiles of a fleet differ in their heads only. The words of a head do not matter to what follows:
    whatever they are, the same mappings are open at its end, with the same keys.
    """
    head = _PLAIN_HEAD if has_annotations else _PLAIN_HEAD[: _PLAIN_HEAD.index(b"  annotations:")]
    try:
        edited, fallbacks = edit_upstream(File.of(head + rest), upstream)
    except (UpdateRefused, YamlError):  # its message may tell a column
        return None
    return edited.data[len(head) :] if edited.data.startswith(head) and not fallbacks else None


def update_strategy(file: File | None) -> Strategy | None:
    """Return the update strategy of a Kptfile, None where it has no valid one."""
    if file is None or b"updateStrategy" not in file.data:
        return None
    # Parsing every Kptfile of a fleet is costly: the usual spelling is found without it.
    matches = _STRATEGY.findall(file.data)
    if len(matches) == 1:
        strategy = matches[0].decode()
    else:
        block = upstream_block(file)
        strategy = block.get("updateStrategy") if isinstance(block, dict) else None
    return Strategy(strategy) if strategy in set(Strategy) else None


def _is_rendered(steps: Steps) -> bool:
    """Return whether a field is one that `kpt fn render` writes, and so no edit."""
    return steps[:2] == ("status", "renderStatus") or steps[:3] == _RENDERED


_MergeField = Callable[[str, Node | None, Node | None, Node | None], Merged | None]
"""Merges the part of a name, given as base, upstream and local."""


def _merge_part(
    fields: FieldMerge, name: str, base: Node | None, upstream: Node | None, local: Node | None
) -> Merged | None:
    path = ("metadata", name) if name in _METADATA else (name,)
    return fields.merge(base, upstream, local, _SHAPE.below(name), path)


def _functions(key: str) -> Shape:
    functions = Shape(keys=(key,))
    return Shape(fields={"mutators": functions, "validators": functions})


_SHAPE: Final = Shape(
    fields={
        # Without a schema kpt merges lists of a Kptfile by `name`; a list with an unnamed function is one
        # value to it.
        "pipeline": _functions(FUNCTION),
        "info": Shape(
            fields={
                "keywords": Shape(keys=()),
                "emails": Shape(keys=()),
                "readinessGates": Shape(keys=("conditionType",)),
            }
        ),
        "status": Shape(fields={"conditions": Shape(keys=("type",))}),
    }
)


def _merge_like_kpt(sides: tuple[Node | None, ...]) -> _MergeField:
    """Return kpt's merge; its key of functions is the image if none has a name and no image is repeated."""
    by_image = Shape(keys=(KPT_FUNCTION,))
    shape = Shape(fields={"pipeline": _functions(KPT_FUNCTION)})
    for side in sides:
        for functions in _function_lists(side):
            # kpt names functions by their images for the merge, but only if none has a name and no image is
            # there twice.
            keys = [element_key(function, by_image) for function in functions]
            if len(set(keys)) < len(keys) or any("name" in function.children for function in functions):
                shape = Shape()
    work = CompatibleMerge(lambda _version, _kind: None, infer=True)
    return lambda name, base, upstream, local: work.merge((local, base, upstream), shape.below(name))


def _function_lists(side: Node | None) -> Iterator[list[Node]]:
    for name in ("mutators", "validators"):
        functions = child(child(side, "pipeline"), name)
        if functions is not None:
            yield functions.items


def _merge_link(
    base: Node | None, upstream: Node | None, local: Node | None, *, like_kpt: bool
) -> Merged | None:
    """Merge a block that goes with the content of its package: where both sides changed it, it is upstream's.

    kpt takes every block that upstream has, and keeps one that upstream gave up.
    """
    if (upstream is None and like_kpt) or (not like_kpt and is_same(base, upstream)):
        return local
    if upstream is None:
        return None if is_same(base, local) else local
    return FromUpstream(upstream)


def _merge_root(
    merge: _MergeField, sides: tuple[Node | None, Node, Node], *, root: bool, like_kpt: bool
) -> MergedCollection:
    base, upstream, local = sides
    result = MergedCollection(local)
    links = () if root else _LINKS
    merged = {*local.children, *_MERGED, *links}
    for name in insert_new(local.children, (name for name in upstream.children if name in merged)):
        mine = child(local, name)
        value: Merged | None = mine
        if name == "metadata" and mine is not None:
            value = _merge_metadata(merge, child(base, name), child(upstream, name), mine)
        elif name in _MERGED:
            value = merge(name, child(base, name), child(upstream, name), mine)
        # In the root package kpt sets both itself; in a sub-package upstream's go with its content.
        elif name in links:
            value = _merge_link(child(base, name), child(upstream, name), mine, like_kpt=like_kpt)
        if value is not None:
            result.fields[name] = MergedField(value)
    return result


def _same_identity(base: Node | None, upstream: Node) -> bool:
    metadata = (child(base, "metadata"), child(upstream, "metadata"))
    pairs = [tuple(child(node, name) for node in metadata) for name in ("name", "namespace")]
    pairs += [(child(base, name), child(upstream, name)) for name in _LINKS]
    return all(is_same(*pair) for pair in pairs)


def _merge_metadata(
    merge: _MergeField, base: Node | None, upstream: Node | None, local: Node
) -> MergedCollection:
    result = MergedCollection(local)
    merged = {*local.children, *_METADATA}
    theirs = upstream.children if upstream is not None else {}
    for name in insert_new(local.children, (name for name in theirs if name in merged)):
        value: Merged | None = child(local, name)
        if name in _METADATA:
            value = merge(name, child(base, name), child(upstream, name), child(local, name))
        if value is not None:
            result.fields[name] = MergedField(value)
    annotations = result.fields.get("annotations")
    if annotations is not None:
        with_owner = _with_ownership(annotations.value, child(local, "annotations"))
        result.fields["annotations"] = MergedField(with_owner)
    return result


def _with_ownership(annotations: Merged, local: Node | None) -> Merged:
    if isinstance(annotations, (Node, MergedLines)):
        return annotations
    if isinstance(annotations, FromUpstream):
        if not any(name in annotations.node.children for name in _OWNERSHIP):
            return annotations
        parts = {name: MergedField(FromUpstream(value)) for name, value in annotations.node.children.items()}
        annotations = MergedCollection(local, parts)
    for name in _OWNERSHIP:
        annotations.fields.pop(name, None)
        mine = child(local, name)
        if mine is not None:
            annotations.fields[name] = MergedField(mine)
    return annotations


def _upstream_edits(root: Node, upstream: UpstreamRef) -> Iterator[Edit]:
    source = {"repo": upstream.repo, "directory": upstream.directory, "ref": upstream.ref}
    blocks = [("upstream", source)]
    if upstream.commit:
        # The lock is the base of the next merge: repository, directory and ref as they were fetched.
        blocks.append(("upstreamLock", {**source, "commit": upstream.commit}))
    for block, git in blocks:
        existing = child(root, block)
        if existing is None:
            yield SetValue((block,), {"type": "git", "git": git})
            continue
        if child(existing, "type") is None:
            yield SetValue((block, "type"), "git")
        for name, value in git.items():
            old = child(child(existing, "git"), name)
            if old is None:
                yield SetValue((block, "git", name), value)
            elif old.typed != value:
                # Quotes of a commit id like a number go with it: a fresh clone has none.
                yield SetValue((block, "git", name), Raw(emit(value, flow=old.in_flow)))


def _read(path: str, file: File | None) -> tuple[TextFormat | None, Node | None]:
    if file is None:
        return None, None
    text_format, text = TextFormat.split(file.data.decode(errors="replace"))
    try:
        root = root_of(Tree.parse(text))
    except YamlError as error:
        message = f"{path} cannot be read: {error}"
        raise UpdateRefused("InvalidKptfile", message, paths=(path,), exit_code=Exit.INVALID_INPUT) from error
    if root is not None and not root.is_mapping:
        message = f"{path} is no mapping"
        raise UpdateRefused("InvalidKptfile", message, paths=(path,), exit_code=Exit.INVALID_INPUT)
    return text_format, root


def is_edited_kptfile(original: File | None, local: File | None) -> bool:
    """Return whether local edited more of the root Kptfile than name, upstream and ownership.

    A default Kptfile is no edit if the original has none.
    """
    ours, old = (_read("Kptfile", file)[1] for file in (local, original))
    if ours is None:
        return old is not None
    # `kpt pkg get` writes a default Kptfile where the package has none.
    mine = _comparable(ours.value)
    return bool(mine != _comparable(old.value if old is not None else _DEFAULT))


def upstream_of(files: Files, *, ref: str, commit: str) -> UpstreamRef | None:
    """Return the upstream of a Kptfile at another ref and commit; None if it has none."""
    block = upstream_block(files.get("Kptfile"))
    git = block.get("git") if isinstance(block, dict) else None
    if not isinstance(git, dict):
        return None
    return UpstreamRef(str(git.get("repo")), str(git.get("directory")), ref or str(git.get("ref")), commit)


def upstream_block(file: File | None) -> Any:
    """Return `upstream` of a Kptfile as data, None where it is absent or unreadable."""
    block = upstream_node(file)
    return block.value if block is not None else None


def upstream_node(file: File | None) -> Node | None:
    """Return `upstream` of a Kptfile, None where it is absent or unreadable."""
    try:
        return child(_read("Kptfile", file)[1], "upstream")
    except UpdateRefused:
        return None


_RENDERED: Final = ("status", "conditions", "[type=Rendered]")
_DEFAULT: Final = {"apiVersion": "kpt.dev/v1", "kind": "Kptfile", "metadata": {}}


def _comparable(kptfile: Any) -> Any:
    """Return a Kptfile without name, upstream, ownership and what `kpt fn render` records."""
    metadata = kptfile.get("metadata") or {}
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in _OWNERSHIP}
    rest = {key: value for key, value in metadata.items() if key not in ("name", "annotations")}
    top = {key: value for key, value in kptfile.items() if key not in (*_LINKS, "metadata", "status")}
    status = mapping_at(kptfile, "status")
    conditions = [c for c in mappings_at(status, "conditions") if c.get("type") != "Rendered"]
    rest_of_status = {k: v for k, v in status.items() if k not in ("renderStatus", "conditions")}
    top["status"] = (conditions, rest_of_status)
    return {**top, "metadata": {**rest, **({"annotations": annotations} if annotations else {})}}
