"""Merge a package with a new upstream: clone, update or adopt; no change of ours counts as local."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import PackageVariantSpec
from reconciler.api.validation import field_text
from reconciler.base.reasons import Reason
from reconciler.base.text import some
from reconciler.functions.catalog import parse_image
from reconciler.functions.pipeline import RunPipelines, declared_steps
from reconciler.functions.secrets import hides_field
from reconciler.functions.step import InvalidPipelineError, Stage, Step
from reconciler.krm.documents import ResourceDocument, documents_of, edit_document
from reconciler.krm.merge import Identity, Node, child, root_of
from reconciler.krm.values import differences, is_same, mapping_at
from reconciler.krm.yaml import DeleteItem, DeleteKey, Edit, SetValue, YamlError
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.policy import Policy, Strategy
from reconciler.render.answers import FoundConflict
from reconciler.render.injection import INJECTED, INJECTED_NAME, INJECTION_POINT, injected_field
from reconciler.render.kptfile import (
    FunctionOwners,
    add_functions,
    kptfile_value,
    strip_ownership,
    upstream_functions,
)
from reconciler.render.rendered import Blocked
from reconciler.render.update import Conflict, ConflictPolicy, UpdateRefused, UpstreamRef, update_package
from reconciler.render.update.conflicts import describe_decision
from reconciler.render.update.identifiers import add_identifiers, with_identifiers
from reconciler.render.update.sides import FileSides, Sides, is_equal, needs_merge
from reconciler.resolve.resolution import Pin, ResolvedVariant

_MOST_FIELDS = 5


class _ChangedField(NamedTuple):
    path: str
    resource: str
    field: str

    def __str__(self) -> str:
        return f"{self.field} of {self.resource} in {self.path}"


def unsettled_steps(rendered: Sequence[Files], run: RunPipelines) -> list[str]:
    """Return for each rendered package the function and the field that it changes in its own output, or "".

    One more run of each pipeline; where it changes something, each of its functions runs alone.
    """
    again = run(rendered)
    reasons = []
    for files, second in zip(rendered, again, strict=True):
        changed = set(_changed_fields(files, second.files)) if second.ok else set()
        reasons.append(_describe(files, changed, run) if changed else "")
    return reasons


def _describe(files: Files, changed: set[_ChangedField], run: RunPipelines) -> str:
    steps = declared_steps(files)
    try:
        alone = run([_with_one_step(files, steps, step) for step in steps])
    except YamlError:
        alone = ()
    for step, result in zip(steps, alone, strict=False):
        if step_fields := changed.intersection(_changed_fields(files, result.files)):
            return f"{step} changes its own output: {min(step_fields)}"
    return f"The pipeline changes its own output: {min(changed)}"


def _with_one_step(files: Files, steps: Sequence[Step], only: Step) -> Files:
    """Return a package with one function; the later ones of a list go first, so that numbers stay."""
    result = dict(files)
    for step in sorted(steps, key=lambda applied: applied.index, reverse=True):
        if step != only:
            path = f"{step.package}/{KPTFILE}" if step.package else KPTFILE
            result[path] = edit_document(
                result[path], [DeleteItem(("pipeline", str(step.stage), step.index))]
            )
    return result


def _changed_fields(before: Files, after: Files) -> Iterator[_ChangedField]:
    for path in sorted(before):
        file = after.get(path)
        if before[path] == file:
            continue
        old, new = documents_of(before[path]), documents_of(file) if file is not None else ()
        for old_document, right in zip(old, new, strict=False):
            for edit in differences(old_document.data, right.data):
                yield _ChangedField(path, str(old_document.identity), ".".join(map(str, edit.path)))


class EditedPackage(NamedTuple):
    """A package that people edited: as it was made, as they left it, after the merge, after its functions.

    `written` is a draft as a run wrote it. A value that it still has is no edit if one of `origins` has it:
    while a conflict is open no function runs, and the draft has what those of main made, or upstream's.
    `former` is what the package was, newest first: where people changed only what a function reads, a value
    is still as the function made it of the `base`.
    """

    made: Files
    local: Files
    merged: Files
    done: Files
    base: Files = MappingProxyType({})
    former: tuple[Files, ...] = ()
    made_before: tuple[Files, ...] = ()
    written: Files | None = None
    origins: tuple[Files, ...] = ()


def overwritten_edits(edited: EditedPackage, run: RunPipelines) -> list[str]:
    """Return in sentences the edits of people that the merge kept and a function writes over. Mostly none.

    Kptfiles and the package context are left out: the variant writes them.
    """
    lost = sorted({*_lost_fields(edited, edited.done)})
    if lost and edited.former:
        sides = [_with_configuration(edited.base, _own_configuration(files)) for files in edited.former]
        edited = edited._replace(made_before=tuple(result.files for result in run(sides)))
        lost = sorted({*_lost_fields(edited, edited.done)})
    if not lost:
        return []
    steps = declared_steps(edited.merged)
    try:
        alone = run([_with_one_step(edited.merged, steps, step) for step in steps])
    except YamlError:
        alone = ()
    writers = [(str(step), {*_lost_fields(edited, r.files)}) for step, r in zip(steps, alone, strict=False)]
    named: dict[tuple[str, str, str], list[str]] = {}
    for changed in lost:
        writer = next((step for step, fields in writers if changed in fields), "the pipeline")
        named.setdefault((changed.path, changed.resource, writer), []).append(changed.field)
    return [
        f"{path}: {writer} {_written(fields, resource)}. The edit of people there does not survive"
        for (path, resource, writer), fields in named.items()
    ]


def overwritten_injections(written: Files, local: Files, injected: Files) -> Iterator[str]:
    """Yield in sentences the edits of people that an injected object writes over. Mostly none.

    `written` is the package as a run made it, `injected` as injection makes it now.
    """
    for path, file in sorted(local.items()):
        if INJECTED.encode() not in file.data or file in (written.get(path), injected.get(path)):
            continue
        for document in documents_of(file):
            old, new = (_same_document(side.get(path), file, document) for side in (written, injected))
            annotations = mapping_at(document.data, *_ANNOTATIONS)
            is_injected = old is not None and INJECTED in mapping_at(new or {}, *_ANNOTATIONS)
            if not is_injected or INJECTED not in annotations:
                continue
            before, now, after = (dict(_leaves(value)) for value in (old, document.data, new))
            (field, *_) = injected_paths(document)
            fields = [
                field_text(name)
                for name in _lost_leaves(before, now, now, after)
                if name[: len(field)] == field
            ]
            if fields:
                source = annotations.get(INJECTED_NAME)
                writes = _written(fields, str(document.identity))
                yield f"{path}: object {source} {writes}. The edit of people there does not survive"


def former_values(
    resolved: ResolvedVariant, contents: "Contents", sides: "RenderedSides", done: Files, run: RunPipelines
) -> Iterator[str]:
    """Yield in sentences what functions wrote that the pipeline lost or changed, and edited files still have.

    Other files lose it: they are made anew. What functions write into Kptfiles and the package context is
    left out, and so is a value that the new pipeline would write as well. `done` is the package after its
    functions, `sides` are the upstreams of its update with the pipeline of main.
    """
    if resolved.base is None or resolved.local is None:
        return
    update = UpdateTrees(resolved.base.tree, resolved.pin.tree, resolved.local)
    rendered = sides.get(update)
    if rendered is None or rendered.postponed:
        return
    local = contents[update.local]
    edited = [
        path
        for path in sorted(local.keys() & done.keys() & rendered.original.keys())
        if path.rpartition("/")[2] not in (KPTFILE, PACKAGE_CONTEXT_FILE)
        and path not in rendered.made_before
        and not is_equal(local[path], rendered.original[path])
    ]
    removed, changed = _former_steps(local, done) if edited else ([], [])
    inputs = _inputs(update, contents) if removed or changed else None
    if inputs is None:
        return
    upstream, steps = inputs.runs[:2][-1], declared_steps(local)
    now = {**upstream, **{path: done[path] for path in _configuration(done)}}
    new, *alone = run([now, *(_with_one_step(upstream, steps, step) for step in (*removed, *changed))])
    remaining: dict[str, list[str]] = {}
    for number, (step, result) in enumerate(zip((*removed, *changed), alone, strict=True)):
        are = "are no longer in the pipeline" if number < len(removed) else "have another configuration now"
        for path in edited:
            have = (rendered.original, done, result.files), (upstream, new.files)
            fields = _fields_as_made(path, local[path], *have)
            of_path = (f"{field} ({step.function.rpartition('/')[2]})" for field in fields)
            remaining.setdefault(are, []).extend(of_path)
    for are, values in remaining.items():
        if values:
            yield (
                f"Functions that {are} wrote what edited files still have:"
                f" {some([*dict.fromkeys(values)], _MOST_FIELDS)}. Files without edits lose it."
                " Remove it in the draft too, or leave it there on purpose"
            )


def _former_steps(before: Files, after: Files) -> tuple[list[Step], list[Step]]:
    """Return the mutators that a package had and has no more, and those with another configuration now."""
    try:
        old, new = ([s for s in declared_steps(f) if s.stage is Stage.MUTATORS] for f in (before, after))
    except InvalidPipelineError:
        return [], []
    changed: list[Step] = []
    for key, same in ((_with_configuration_of, []), (_function_of, changed)):
        for step in [*old]:
            twin = next((other for other in new if key(other) == key(step)), None)
            if twin is not None:
                old.remove(step)
                new.remove(twin)
                same.append(step)
    return old, changed


def _function_of(step: Step) -> tuple[object, ...]:
    image = parse_image(step.image, step.tag)
    return step.package, step.exec, image and (image.short or image.name)


def _with_configuration_of(step: Step) -> tuple[object, ...]:
    return *_function_of(step), step.config_path, step.config_map


def _fields_as_made(
    path: str, local: File, having: Sequence[Files], lacking: Sequence[Files]
) -> Iterator[_ChangedField]:
    """Yield the values of a file that some versions of it have too, and that others have not."""
    for document in documents_of(local):
        same, other = (
            [dict(_leaves(_same_document(files.get(path), local, document))) for files in versions]
            for versions in (having, lacking)
        )
        for name, value in _leaves(document.data):
            if all(is_same(value, leaves.get(name, _NONE)) for leaves in same) and not any(
                is_same(value, leaves.get(name, _NONE)) for leaves in other
            ):
                yield _ChangedField(path, str(document.identity), field_text(name))


_WHOLE = "all"
"""Stands for the fields of a resource that a function removes."""


def _written(fields: Sequence[str], resource: str) -> str:
    is_removed = [*fields] == [_WHOLE]
    return f"removes {resource}" if is_removed else f"writes {some(fields, _MOST_FIELDS)} of {resource} anew"


def _lost_fields(edited: EditedPackage, done: Files) -> Iterator[_ChangedField]:
    """Yield the fields that people changed, that the merge left so, and that are something else in `done`."""
    left: set[Identity] | None = None
    for path, local in edited.local.items():
        made, merged = edited.made.get(path), edited.merged.get(path)
        is_own = path.rpartition("/")[2] == KPTFILE or path == PACKAGE_CONTEXT_FILE
        if is_own or merged is None or is_equal(local, made) or merged == done.get(path):
            continue
        for document in documents_of(local):
            old, new, after = (_same_document(f, local, document) for f in (made, merged, done.get(path)))
            if new is None or (old is not None and is_same(old, document.data)):
                continue
            if after is not None:
                sides = (dict(_leaves(value)) for value in (old, document.data, new, after))
                lost = [*_lost_leaves(*sides)] if old is not None else []
                for name in _of_people(lost, edited, path, document):
                    yield _ChangedField(path, str(document.identity), field_text(name))
                continue
            if left is None:
                left = {candidate.identity for file in done.values() for candidate in documents_of(file)}
            leaves = (name for name, _ in _leaves(document.data))
            if document.identity not in left and any(_of_people(leaves, edited, path, document)):
                yield _ChangedField(path, str(document.identity), _WHOLE)


def _of_people(
    names: Iterable[tuple[str | int, ...]], edited: EditedPackage, path: str, document: ResourceDocument
) -> Iterator[tuple[str | int, ...]]:
    """Yield the values of a document that are not as a run wrote them, or are of none of their origins."""
    history = [
        [dict(_leaves(_same_document(side.get(path), edited.local[path], document))) for side in sides]
        for sides in zip(edited.former, edited.made_before, strict=False)
    ]
    versions = [_same_document(side.get(path), edited.local[path], document) for side in edited.origins]
    written = _same_document((edited.written or {}).get(path), edited.local[path], document)
    ours, local = dict(_leaves(written)), dict(_leaves(document.data))
    origins = [dict(_leaves(value)) for value in versions if value is not None and written is not None]
    for name in names:
        value = local.get(name)
        is_made = any(is_same(value, origin.get(name)) for origin in origins)
        if not (is_made and is_same(value, ours.get(name))) and not _is_from_before(name, value, history):
            yield name


def _is_from_before(name: tuple[str | int, ...], value: Any, history: Iterable[Sequence["_Leaves"]]) -> bool:
    """Tell whether a value is still as a function made it."""
    for former, made in history:
        if not is_same(value, former.get(name)):
            return False
        if is_same(value, made.get(name)):
            return True
    return False


def _same_document(file: File | None, other: File, document: ResourceDocument) -> Any:
    """Return the value of a document in another version of its file, None if it is not there.

    A function may rename resources: where the file has as many documents as before, its place counts.
    """
    documents = documents_of(file) if file is not None else ()
    for candidate in documents:
        if (candidate.identity, candidate.ordinal) == (document.identity, document.ordinal):
            return candidate.data
    is_alike = len(documents) == len(documents_of(other))
    return documents[document.index].data if is_alike and document.index < len(documents) else None


_Leaves = Mapping[tuple[str | int, ...], Any]


def _lost_leaves(
    old: _Leaves, local: _Leaves, merged: _Leaves, done: _Leaves
) -> Iterator[tuple[str | int, ...]]:
    for path in sorted(old.keys() | local.keys(), key=str):
        value = local.get(path)
        if is_same(value, merged.get(path)) and not any(is_same(value, e.get(path)) for e in (old, done)):
            yield path


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the values below a value by their paths; items of lists by their names, if they have any."""
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list):
        names = [
            str(item["name"]) if isinstance(item, Mapping) and "name" in item else i
            for i, item in enumerate(value)
        ]
        parts = zip(names, value, strict=True)
    else:
        yield path, value
    for name, part in parts:
        yield from _leaves(part, (*path, name))


Contents = Mapping[Oid, Files]
"""The fetched package trees by their ids."""


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
    `made_before` are files that are still as the functions made them with a configuration that main had
    before: people changed only what a function reads.
    """

    original: Files
    upstream: Files
    configuration: frozenset[str] = frozenset()
    postponed: str = ""
    unsettled: str = ""
    made_before: frozenset[str] = frozenset()


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
    variants = tuple(variants)
    inputs: dict[UpdateTrees, _Inputs] = {}
    for update in sorted({update for resolved in variants for update in updates_of(resolved)}):
        if all(tree in contents for tree in update) and (needed := _inputs(update, contents)) is not None:
            inputs[update] = needed
    if not inputs:
        return {}
    results = iter(run([files for needed in inputs.values() for files in needed.runs]))
    rendered: dict[UpdateTrees, RenderedUpstreams] = {}
    upstreams: dict[UpdateTrees, Files] = {}
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
            upstreams[update] = done[1].files
        if needed.configuration and all(run.ok for run in done):
            rendered[update] = _with_own_configuration(needed, [run.files for run in done])
    for update, paths in _made_before(variants, contents, inputs, rendered, run):
        rendered[update] = rendered[update]._replace(made_before=paths)
    edited = [update for update, sides in rendered.items() if _is_edited(inputs[update], sides)]
    # With local's configuration, as they were made: another one makes other values.
    reasons = unsettled_steps([upstreams[update] for update in edited], run)
    named = {
        update: rendered[update]._replace(unsettled=why) for update, why in zip(edited, reasons, strict=True)
    }
    return {**rendered, **named}


def _made_before(
    variants: Iterable[ResolvedVariant],
    contents: Contents,
    inputs: Mapping[UpdateTrees, "_Inputs"],
    rendered: RenderedSides,
    run: RunPipelines,
) -> Iterator[tuple[UpdateTrees, frozenset[str]]]:
    """Yield updates of main with the files that functions made with a configuration of before."""
    cases: list[tuple[UpdateTrees, Files, set[str]]] = []
    for resolved in variants:
        trees = [contents[tree] for tree in resolved.former if tree in contents]
        for update in updates_of(resolved) if trees else ():
            sides = rendered.get(update)
            if sides is None or sides.postponed or update.local != resolved.local:
                continue
            local = inputs[update].local
            # Who drops a function leaves on purpose what it wrote.
            before = [files for files in trees if not _former_steps(files, local)[0]]
            paths = {
                path
                for path in (local.keys() & sides.original.keys()) - _configuration(local)
                if not is_equal(local[path], sides.original[path])
            }
            for files in before:
                paths = {path for path in paths if is_equal(local[path], files.get(path))}
                if paths:
                    cases.append((update, files, paths))
    sides_before = [
        _with_configuration(inputs[update].runs[0], _own_configuration(files)) for update, files, _ in cases
    ]
    results = run(sides_before) if cases else ()
    made: dict[UpdateTrees, frozenset[str]] = {}
    for (update, _, paths), result in zip(cases, results, strict=True):
        same = (p for p in paths if is_equal(inputs[update].local[p], result.files.get(p)))
        made[update] = made.get(update, frozenset()).union(same if result.ok else ())
    yield from made.items()


def _is_edited(inputs: "_Inputs", sides: RenderedUpstreams) -> bool:
    """Return whether people edited a file that the pipeline makes: its merge is rendered twice."""
    return not sides.postponed and any(
        path in sides.original
        and path not in sides.made_before
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
        # Of the same upstream, too: what functions made there is made anew.
        if resolved.draft_base is not None:
            yield UpdateTrees(resolved.draft_base.tree, pin.tree, draft.tree)
        if resolved.asked_from not in (None, pin.tree):
            yield UpdateTrees(resolved.asked_from, pin.tree, draft.tree)


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
    same = {path for path, file in raw.local.items() if is_equal(file, rendered.original.get(path))}
    made = (same | rendered.made_before) - added
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
    configuration, changed = _configuration(local), _changed_configuration(marked)
    compared = local.keys() - configuration | changed
    three = {path: FileSides(*(side.get(path) for side in marked)) for path in compared}
    # What the pipeline made of an unedited file is made anew, also where upstream did not change the file.
    if all(is_equal(sides.base, sides.local) for sides in three.values()):
        return None
    filled = with_own_fields(marked)
    local_configuration = _own_configuration(local)
    both = (filled.original, filled.upstream)
    runs = tuple(_with_configuration(side, local_configuration) for side in both)
    if update.original == update.upstream:
        return _Inputs(runs[:1], filled.local)
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


def _own_configuration(files: Files) -> Files:
    return {path: _without_validators(path, files[path]) for path in _configuration(files)}


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


@runtime_checkable
class Refusals(Protocol):
    """Package trees with the reasons why some needed ones are missing, by the id of the tree."""

    refused: Mapping[Oid, str]


class VariantInputs(Struct, frozen=True):
    """The inputs of one variant's package; `policy` has the default conflict policy."""

    resolved: ResolvedVariant
    contents: Contents
    sides: RenderedSides
    policy: Policy


class PackageInProgress(Struct, frozen=True):
    """A package after the merge, with all conflicts of it, and notes and warnings for the reviewer."""

    files: Files
    conflicts: tuple[FoundConflict, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def clone_upstream(resolved: ResolvedVariant, contents: Contents) -> PackageInProgress | Blocked:
    """Return the upstream package as the start of a new downstream package."""
    files = strip_ownership(contents[resolved.pin.tree])
    return files if isinstance(files, Blocked) else PackageInProgress(add_identifiers(files))


def update_local(
    inputs: VariantInputs, local: Files, tree: Oid | None, base: Pin | None, policy: ConflictPolicy
) -> PackageInProgress | Blocked:
    """Return `local` with upstream's changes since `base`; `tree` is the package that `local` is based on."""
    resolved, contents = inputs.resolved, inputs.contents
    pin = resolved.pin
    if base is None:
        lost = resolved.lost_base
        return base_not_found(lost) if lost else _adopt(inputs, local, policy)
    rendered = inputs.sides.get(UpdateTrees(base.tree, pin.tree, tree)) if tree is not None else None
    # Another commit with the same tree needs a new upstreamLock, and what functions made is made anew.
    if base.tree == pin.tree and rendered is None:
        return PackageInProgress(local)
    original, upstream = strip_ownership(contents[base.tree]), strip_ownership(contents[pin.tree])
    if isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return original if isinstance(original, Blocked) else upstream  # type: ignore[return-value]
    # Where upstream brings a function of a name that one of the variant has, that one gets another name.
    of_base = upstream_functions([contents[base.tree]])
    if upstream_functions([contents[pin.tree]]) - of_base:
        without = add_functions(local, PackageVariantSpec(), FunctionOwners(resolved.variant.key, of_base))
        local = local if isinstance(without, Blocked) else without
    context = resolved.variant.spec.package_context
    keys = {*(context.data or {}), *(context.remove_keys or ())} if context else set()
    sides = prepare_sides(original, upstream, local, rendered, keys)
    if base.tree == pin.tree:
        old, new, _ = sides
        return PackageInProgress({**local, **{p: f for p, f in new.items() if old.get(p) == local.get(p)}})
    merged = merge_three_way(sides, policy, new_upstream=_upstream_ref(pin))
    if isinstance(merged, PackageInProgress) and rendered is not None and rendered.unsettled:
        warning = f"{rendered.unsettled}. Compare it: this package has local edits"
        return replace(merged, warnings=(warning,))
    return merged


def _adopt(inputs: VariantInputs, local: Files, policy: ConflictPolicy) -> PackageInProgress | Blocked:
    """Merge upstream into a package without upstreamLock: local's content stays, new files are added.

    The lock that is written next declares that the package is based on the pinned revision, so everything
    that this revision adds must be in it.
    """
    resolved, contents = inputs.resolved, inputs.contents
    nearest = find_nearest_base(resolved.candidates, contents, local)
    upstream = strip_ownership(contents[resolved.pin.tree])
    original = nearest.files if nearest else {}
    if KPTFILE in original:
        stripped = strip_ownership(original)
        if isinstance(stripped, Blocked):
            return stripped
        original = stripped
    if isinstance(upstream, Blocked):
        return upstream
    merged = merge_three_way(
        prepare_sides(original, upstream, local, None),
        policy,
        new_upstream=_upstream_ref(resolved.pin),
        strategy=Strategy.RESOURCE_MERGE,
    )
    if isinstance(merged, Blocked):
        return merged
    compared = (
        f"compared with {nearest.pin.ref}, the nearest published revision"
        if nearest
        else "nothing to compare"
    )
    return replace(merged, notes=(f"There was no upstreamLock: {compared}", *merged.notes))


def replaced_values(local: Files, result: Files, base: Files) -> list[str]:
    """Return the values of an adopted package that are others in the result, by field and file.

    What is only added is none of them, nor is a value of the `base` that local was made from; Kptfiles are
    left out. A resource that a function renamed is known where its file has one of the kind.
    """
    names: list[str] = []
    for path in sorted(local.keys() & result.keys()):
        if path.rpartition("/")[2] == KPTFILE or is_equal(local[path], result[path]):
            continue
        before, after = documents_of(local[path]), documents_of(result[path])
        for document in before:
            twin = _twin(document, before, after)
            edits = differences(document.data, twin.data) if twin is not None else ()
            there = find_resource(base, path, document.identity)
            former = there[1].data if there is not None else None
            replaced = (
                e
                for e in edits
                if isinstance(e, SetValue | DeleteKey)
                and (mine := _part(document.data, e.path)) is not _NONE
                and not is_same(mine, _part(former, e.path))
            )
            names += [f"{field_text(edit.path)} in {path}" for edit in replaced]
    return names


def _twin(
    document: ResourceDocument, before: Sequence[ResourceDocument], after: Sequence[ResourceDocument]
) -> ResourceDocument | None:
    """Return a resource of a file as functions left it: by its identity, or as the only one of its kind."""
    kind = document.identity[:2]
    twins = [d for d in after if d.identity == document.identity]
    if not twins and sum(d.identity[:2] == kind for d in before) == 1:
        twins = [d for d in after if d.identity[:2] == kind]
    return twins[0] if len(twins) == 1 else None


_NONE = object()


def _part(value: Any, path: Iterable[str | int]) -> Any:
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return _NONE
    return value


def _upstream_ref(pin: Pin) -> UpstreamRef:
    return UpstreamRef(pin.address, pin.package.path, pin.ref, pin.commit.oid)


def base_not_found(why: str) -> Blocked:
    """Return the problem of a package without its merge base, with the next step."""
    hint = (
        "Register the repository that has the commit again, or push the commit to it. If it is gone for good,"
        " write the commit of the upstream that the content comes from into upstreamLock of the Kptfile."
    )
    return Blocked(Reason.BASE_NOT_FOUND, f"There is no base to merge from: {why}", hint)


def merge_three_way(
    sides: Sides,
    policy: ConflictPolicy,
    *,
    new_upstream: UpstreamRef | None = None,
    strategy: Strategy | None = None,
) -> PackageInProgress | Blocked:
    """Return the local side with the changes from the original to upstream."""
    try:
        updated = update_package(*sides, strategy=strategy, on_conflict=policy, new_upstream=new_upstream)
    except UpdateRefused as refused:
        hidden = tuple(_hide_secret(conflict, sides) for conflict in refused.conflicts)
        return Blocked(Reason.MERGE_CONFLICT, refused.message, conflicts=hidden)
    conflicts: list[FoundConflict] = [(_hide_secret(conflict, sides), None) for conflict in updated.conflicts]
    for conflict, winner, rule in updated.decided:
        decision = describe_decision(policy, winner, rule, conflict.path)
        conflicts.append((_hide_secret(conflict, sides), decision))
    return PackageInProgress(updated.files, tuple(conflicts))


def _hide_secret(conflict: Conflict, sides: Sides) -> Conflict:
    """Return a conflict, hidden if it is about a Secret, or a value of one, on any side."""
    values = (conflict.base, conflict.upstream, conflict.local)
    return replace(conflict, hidden=hides_field(sides, conflict.path, conflict.field, *values))


class NearestBase(NamedTuple):
    """The revision that an adopted package was most likely made from, and its files that local has too."""

    pin: Pin
    files: Files


def find_nearest_base(
    candidates: Iterable[Pin], contents: Mapping[Oid, Files], local: Files
) -> NearestBase | None:
    """Return the candidate that differs least from `local`, None if none shares a file with it.

    Files that local does not have are left out of the base: they may not have been deleted on purpose, so the
    merge adds them. Of equal candidates the newest wins. Deterministic.
    """
    best: tuple[tuple[int, int, str], NearestBase] | None = None
    for pin in candidates:
        files = {path: file for path, file in contents[pin.tree].items() if path in local}
        if not files:
            continue
        distance = sum(_distance(file.data, local[path].data) for path, file in files.items())
        # Lines of files that the candidate does not have count as added.
        missing = sum(file.data.count(b"\n") for path, file in local.items() if path not in files)
        rank = (distance + missing, -pin.revision, pin.ref)
        if best is None or rank < best[0]:
            best = rank, NearestBase(pin, files)
    return best[1] if best else None


def _distance(before: bytes, after: bytes) -> int:
    """Return the number of lines that only one of two files has."""
    if before == after:
        return 0
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return (old - new).total() + (new - old).total()
