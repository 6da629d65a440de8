"""Prepare the sides of a merge, so that no change of ours or of the pipeline counts as a local edit (ADR 12).

Both upstream sides get upstream identifiers, are rendered by the pipeline of the local package, and get
local's values of the fields that we write ourselves: injected configuration, and the variant's keys of the
package context. After the merge these fields are written anew.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.functions.pipeline import RunPipelines, declared_steps
from reconciler.functions.step import InvalidPipelineError
from reconciler.krm.documents import ResourceDocument, documents_of, edit_document
from reconciler.krm.merge import Identity, Node, child, root_of
from reconciler.krm.values import mapping_at
from reconciler.krm.yaml import DeleteKey, Edit, SetValue, YamlError
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.render.injection import (
    INJECTED,
    INJECTED_NAME,
    INJECTION_POINT,
    injected_field,
)
from reconciler.render.kptfile import kptfile_value, strip_ownership
from reconciler.render.rendered import Blocked
from reconciler.render.settling import unsettled_steps
from reconciler.render.update.identifiers import with_identifiers
from reconciler.render.update.three_way import FileSides, Sides, is_equal, needs_merge
from reconciler.resolve.resolution import ResolvedVariant


class UpdateTrees(NamedTuple):
    """The trees of one update: the old upstream, the new upstream, and the local package."""

    original: Oid
    upstream: Oid
    local: Oid


class RenderedUpstreams(NamedTuple):
    """The old and the new upstream of an update, rendered.

    `configuration` are configuration files of functions that were rendered with upstream's own values, so
    that they can be compared too. `postponed` is why they could not be rendered yet, "" if they are.
    `unsettled` names a function that changes its own output, where people edited what it writes.
    """

    original: Files
    upstream: Files
    configuration: frozenset[str] = frozenset()
    postponed: str = ""
    unsettled: str = ""


RenderedSides = Mapping[UpdateTrees, RenderedUpstreams]
"""The upstreams of updates, rendered by the pipeline of the local package."""


def render_sides(
    variants: Iterable[ResolvedVariant], contents: Mapping[Oid, Files], run: RunPipelines
) -> RenderedSides:
    """Render both upstream sides of every update with files that need a merge. Total.

    At most two pipeline runs for each update, and two more where both sides changed the configuration of a
    function, all in one batch; none without a pipeline, and one where upstream is the same. An update is
    omitted if a pipeline fails.
    """
    inputs: dict[UpdateTrees, _Inputs] = {}
    for update in sorted({update for resolved in variants for update in updates_of(resolved)}):
        if all(tree in contents for tree in update) and (needed := _inputs(update, contents)) is not None:
            inputs[update] = needed
    if not inputs:
        return {}
    results = iter(run([files for needed in inputs.values() for files in needed.runs]))
    rendered: dict[UpdateTrees, RenderedUpstreams] = {}
    for update, needed in inputs.items():
        done = [next(results) for _ in needed.runs]
        done = done * 2 if len(done) == 1 else done
        if late := next((run.error for run in done if run.is_postponed), ""):
            # Compared unrendered, what the functions would do would count as an edit.
            rendered[update] = RenderedUpstreams({}, {}, postponed=late)
            continue
        # If a pipeline fails on an upstream side, the sides are compared unrendered.
        if done[0].ok and done[1].ok:
            rendered[update] = RenderedUpstreams(done[0].files, done[1].files)
        if needed.configuration and all(run.ok for run in done):
            rendered[update] = _with_own_configuration(needed, [run.files for run in done])
    edited = [update for update, sides in rendered.items() if _is_edited(inputs[update], sides)]
    reasons = unsettled_steps([rendered[update].upstream for update in edited], run)
    named = {
        update: rendered[update]._replace(unsettled=why) for update, why in zip(edited, reasons, strict=True)
    }
    return {**rendered, **named}


def _is_edited(inputs: "_Inputs", sides: RenderedUpstreams) -> bool:
    """Return whether people edited a file that the pipeline makes: its merge is rendered twice."""
    return not sides.postponed and any(
        path in sides.original
        and not is_equal(file, sides.original[path])
        and not is_equal(sides.original[path], inputs.runs[0].get(path))
        for path, file in inputs.local.items()
        if path.rpartition("/")[2] != KPTFILE
    )


class _Inputs(NamedTuple):
    """The packages to render for an update: both sides with local's configuration, then with their own.

    One alone where both sides are the same.
    """

    runs: tuple[Files, ...]
    local: Files
    configuration: frozenset[str] = frozenset()


def _with_own_configuration(inputs: _Inputs, done: Sequence[Files]) -> RenderedUpstreams:
    """Return both sides with their own configuration, rendered; the new upstream may have none."""
    sides = []
    for files, configuration in zip(done[:2], (*done[2:], {})[:2], strict=True):
        others = {path: file for path, file in files.items() if path not in inputs.configuration}
        sides.append(
            {
                **others,
                **{path: configuration[path] for path in inputs.configuration if path in configuration},
            }
        )
    return RenderedUpstreams(sides[0], sides[1], inputs.configuration)


def updates_of(resolved: ResolvedVariant) -> Iterator[UpdateTrees]:
    """Yield the updates that are needed to render a variant's package."""
    if resolved.settled is not None:
        return
    pin, draft = resolved.pin, resolved.draft
    if resolved.local is not None and resolved.base is not None:
        yield UpdateTrees(resolved.base.tree, pin.tree, resolved.local)
    if draft is not None and draft.append_only:
        bases = (resolved.draft_base.tree if resolved.draft_base is not None else None, resolved.asked_from)
        for base in bases:
            if base is not None and base != pin.tree:
                yield UpdateTrees(base, pin.tree, draft.tree)


def prepare_sides(
    original: Files,
    upstream: Files,
    local: Files,
    rendered: RenderedUpstreams | None,
    context: Collection[str] = (),
) -> Sides:
    """Return the three sides of a merge, with identifiers, and with the upstream sides rendered.

    Some files are compared unrendered: those that are equal in local and the old upstream, and Kptfiles and
    the configuration of functions, where local's edits would count as the pipeline's (unless they were
    rendered separately). `context` are the keys of the package context that the variant sets or removes.
    """
    marked = with_identifiers(original, upstream, local, rendered=rendered.original if rendered else {})
    raw = with_own_fields(marked, context)
    if rendered is None:
        return raw
    added = _configuration(local) - rendered.configuration
    unrendered = {path for path, file in raw.local.items() if is_equal(file, marked.original.get(path))}
    unrendered |= added | (upstream.keys() - original.keys())
    # Of a file that is as the pipeline made it the result is upstream's file: it is rendered once, as in a
    # new package, so that a pipeline that changes its own output does no harm.
    made = {path for path, file in raw.local.items() if is_equal(file, rendered.original.get(path))} - added
    old, new = (
        {
            **{path: file for path, file in done.items() if path not in unrendered},
            **{path: file for path, file in side.items() if path in unrendered},
        }
        for done, side in zip(rendered[:2], (raw.original, raw.upstream), strict=True)
    )
    for path in made - unrendered:
        old[path] = raw.local[path]
        new.pop(path, None)
    new |= {path: file for path, file in raw.upstream.items() if path in made}
    return Sides(old, new, raw.local)


def _inputs(update: UpdateTrees, contents: Mapping[Oid, Files]) -> _Inputs | None:
    """Return both upstream sides with local's pipeline, None if they need not be rendered."""
    local = contents[update.local]
    # Without a pipeline or a file to merge there is nothing that rendering could tell apart.
    if not any(b"pipeline" in local[path].data for path in _kptfiles(local)):
        return None
    sides = [strip_ownership(contents[tree]) for tree in (update.original, update.upstream)]
    original, upstream = sides
    if isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return None
    marked = with_identifiers(original, upstream, local)
    three = {path: FileSides(*(side.get(path) for side in marked)) for path in local if path != KPTFILE}
    configuration = _configuration(local)
    # What the pipeline made of an unedited file is made anew, also where upstream did not change the file.
    if all(is_equal(sides.base, sides.local) for sides in three.values()):
        return None
    filled = with_own_fields(marked)
    local_configuration = {path: _without_validators(path, local[path]) for path in configuration}
    both = (filled.original, filled.upstream)
    runs = tuple(_with_configuration(side, local_configuration) for side in both)
    if update.original == update.upstream:
        return _Inputs(runs[:1], filled.local)
    changed = _changed_configuration(marked)
    if not changed:
        return _Inputs(runs, filled.local)
    bare = {path: file for path, file in local_configuration.items() if path not in changed}
    gone = not any(path in filled.upstream for path in changed)
    more = (_with_configuration(side, bare) for side in both[: 1 if gone else 2])
    return _Inputs((*runs, *more), filled.local, changed)


def _changed_configuration(sides: Sides) -> frozenset[str]:
    """Return the configuration files of functions that both sides changed.

    If upstream deleted one, only the deleted ones: a pipeline runs with all of its configuration or none.
    """
    paths = _configuration(sides.local) - _kptfiles(sides.local) - {PACKAGE_CONTEXT_FILE}
    three = {path: FileSides(*(side.get(path) for side in sides)) for path in paths & sides.original.keys()}
    changed = {path for path, sides in three.items() if needs_merge(sides)}
    gone = {path for path in changed if path not in sides.upstream}
    missing = any(path not in sides.upstream for path in paths)
    return frozenset(gone if missing else changed)


def _with_configuration(side: Files, configuration: Files) -> Files:
    """Return a side with local's configuration, without the Kptfiles of other sub-packages."""
    return {**side, **{p: f for p, f in configuration.items() if p in side or not p.endswith(f"/{KPTFILE}")}}


def _configuration(files: Files) -> set[str]:
    """Return the paths of Kptfiles, the package context and the configuration files of functions."""
    paths = _kptfiles(files) | ({PACKAGE_CONTEXT_FILE} & files.keys())
    try:
        steps = declared_steps(files)
    except (InvalidPipelineError, YamlError):
        return paths
    for step in steps:
        path = f"{step.package}/{step.config_path}" if step.package else step.config_path
        paths |= {path} & files.keys()
    return paths


def _kptfiles(files: Files) -> set[str]:
    return {path for path in files if path.rpartition("/")[2] == KPTFILE}


def _without_validators(path: str, file: File) -> File:
    """Return a Kptfile without validators: they change nothing, and may fail on an upstream."""
    if path.rpartition("/")[2] != KPTFILE or b"validators" not in file.data:
        return file
    if "validators" not in mapping_at(kptfile_value(file.data), "pipeline"):
        return file
    try:
        return edit_document(file, [DeleteKey(("pipeline", "validators"))])
    except YamlError:
        return file


_ANNOTATIONS = ("metadata", "annotations")
_Fields = Mapping[tuple[str, ...], Node | None]
"""Values of local by their paths; None where local has no such field."""


def with_own_fields(sides: Sides, context: Collection[str] = ()) -> Sides:
    """Return the sides of an update with local's values of the fields that we write ourselves. Total.

    Args:
        sides: The package, with identifiers.
        context: The keys of the package context that the variant sets or removes.
    """
    original, upstream = dict(sides.original), dict(sides.upstream)
    for path, document in _documents(sides.local, context):
        injected, context_fields = _injected_fields(document), _context_fields(document, context)
        for side, is_upstream in ((original, False), (upstream, True)):
            found_file = find_resource(side, path, document.identity)
            if found_file is None:
                continue
            name, counterpart = found_file
            # Upstream may have taken the point back: its own value is then no placeholder.
            is_point = INJECTION_POINT in mapping_at(counterpart.data, "metadata", "annotations")
            fields = {**injected, **context_fields} if is_point or not is_upstream else context_fields
            side[name] = with_fields(side[name], counterpart, fields)
    return Sides(original, upstream, sides.local)


def _documents(files: Files, context: Collection[str]) -> Iterator[tuple[str, ResourceDocument]]:
    marks = [INJECTED.encode(), *([PACKAGE_CONTEXT_NAME.encode()] if context else [])]
    for path, file in sorted(files.items()):
        if not any(mark in file.data for mark in marks):
            continue
        yield from ((path, document) for document in documents_of(file))


def _injected_fields(document: ResourceDocument) -> _Fields:
    root = root_of(document.tree)
    return {path: field_at(root, path) for path in injected_paths(document)}


def injected_paths(document: ResourceDocument) -> tuple[tuple[str, ...], ...]:
    """Return the fields of a resource that injection wrote: the injected one, and two annotations."""
    data = document.data
    if INJECTED not in mapping_at(data, "metadata", "annotations"):
        return ()
    field = injected_field(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    return ((field,), (*_ANNOTATIONS, INJECTED), (*_ANNOTATIONS, INJECTED_NAME))


def _context_fields(document: ResourceDocument, keys: Collection[str]) -> _Fields:
    if not keys or document.identity.name != PACKAGE_CONTEXT_NAME:
        return {}
    root = root_of(document.tree)
    return {("data", key): field_at(root, ("data", key)) for key in sorted(keys)}


def find_resource(files: Files, path: str, identity: Identity) -> tuple[str, ResourceDocument] | None:
    """Return the path and document of a resource on another side, in the same file first."""
    for name in (path, *(name for name in sorted(files) if name != path)):
        if name not in files or identity.name.encode() not in files[name].data:
            continue
        for document in documents_of(files[name]):
            if document.identity == identity:
                return name, document
    return None


def with_fields(file: File, document: ResourceDocument, fields: _Fields) -> File:
    """Return a file with other values of fields of one document; the same file if they cannot be written."""
    root = root_of(document.tree)
    edits: list[Edit] = []
    for path, value in fields.items():
        existing = field_at(root, path)
        if value is not None and (existing is None or existing.source != value.source):
            edits.append(SetValue(path, value.as_value()))
        elif value is None and existing is not None:
            edits.append(DeleteKey(path))
    try:
        return edit_document(file, edits, index=document.index)
    except YamlError:
        return file


def field_at(node: Node | None, path: tuple[str, ...]) -> Node | None:
    """Return the value at a path of mappings, None where there is none."""
    return reduce(child, path, node)
