"""What a package's own pipeline makes of both upstream sides of an update (ADR 12): it is no local edit."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.functions.pipeline import RunPipelines, declared_steps
from reconciler.functions.step import InvalidPipelineError
from reconciler.ids import Oid
from reconciler.krm.yaml import PACKAGE_LIMITS, DeleteKey, YamlError, load_documents
from reconciler.objects import File, Files
from reconciler.render.editing import edit_file
from reconciler.render.kptfile import strip_ownership
from reconciler.render.own_fields import with_own_fields
from reconciler.render.rendered import Blocked
from reconciler.render.update.identifiers import with_identifiers
from reconciler.render.update.packages import Sides
from reconciler.render.update.sides import FileSides, is_equal, is_open
from reconciler.resolve.resolution import ResolvedVariant


class Update(NamedTuple):
    """One update by the ids of its trees: the old upstream, the new one, and what people have."""

    original: Oid
    upstream: Oid
    local: Oid


class RenderedPair(NamedTuple):
    """The old and the new upstream of an update, rendered.

    `configuration` are files that functions are configured by and that hold here what the pipeline makes
    of upstream's own: those may be compared too.
    """

    original: Files
    upstream: Files
    configuration: frozenset[str] = frozenset()


RenderedSides = Mapping[Update, RenderedPair]
"""The old and the new upstream of updates, as the pipeline of the local package renders them."""


def render_sides(
    variants: Iterable[ResolvedVariant], contents: Mapping[Oid, Files], run: RunPipelines
) -> RenderedSides:
    """Render both upstream sides of every update whose files differ on all sides. Total.

    At most two pipeline runs for each update, and two more where both sides changed the configuration of a
    function, all in one batch; none where no pipeline is declared or no file needs a merge. An update whose
    sides cannot be rendered is left out.
    """
    inputs: dict[Update, _Inputs] = {}
    for update in sorted({each for resolved in variants for each in updates_of(resolved)}):
        if all(tree in contents for tree in update) and (found := _inputs(update, contents)) is not None:
            inputs[update] = found
    if not inputs:
        return {}
    results = iter(run([files for found in inputs.values() for files in found.runs]))
    rendered: dict[Update, RenderedPair] = {}
    for update, found in inputs.items():
        done = [next(results) for _ in found.runs]
        if done[0].ok and done[1].ok:
            rendered[update] = RenderedPair(done[0].files, done[1].files)
        if found.configuration and all(each.ok for each in done):
            rendered[update] = _with_own_configuration(found, [each.files for each in done])
    return rendered


class _Inputs(NamedTuple):
    """What is rendered for an update: both sides with local's configuration, then with their own."""

    runs: tuple[Files, ...]
    configuration: frozenset[str] = frozenset()


def _with_own_configuration(inputs: _Inputs, done: Sequence[Files]) -> RenderedPair:
    """Return both sides with what the pipeline makes of their own configuration; upstream may have none."""
    sides = []
    for files, own in zip(done[:2], (*done[2:], {})[:2], strict=True):
        others = {path: file for path, file in files.items() if path not in inputs.configuration}
        sides.append({**others, **{path: own[path] for path in inputs.configuration if path in own}})
    return RenderedPair(sides[0], sides[1], inputs.configuration)


def updates_of(resolved: ResolvedVariant) -> Iterator[Update]:
    """Yield the updates that making a variant's package takes."""
    if resolved.settled is not None:
        return
    pin, draft = resolved.pin, resolved.draft
    if resolved.local is not None and resolved.base is not None and resolved.base.tree != pin.tree:
        yield Update(resolved.base.tree, pin.tree, resolved.local)
    if draft is not None and draft.append_only:
        bases = (resolved.draft_base.tree if resolved.draft_base is not None else None, resolved.asked_from)
        for base in bases:
            if base is not None and base != pin.tree:
                yield Update(base, pin.tree, draft.tree)


def merge_sides(
    original: Files,
    upstream: Files,
    local: Files,
    rendered: RenderedPair | None,
    context: Collection[str] = (),
) -> Sides:
    """Return the three sides of a merge, with identifiers, and rendered alike as far as that is known.

    A file that local has as the old upstream has it was not rendered: it is compared as it is. So are
    Kptfiles and the configuration of functions, in which local's edits would be taken for the pipeline's,
    unless it was rendered by itself. What we write ourselves is local's on all sides; `context` are the keys
    of the package context that the variant sets or removes.
    """
    marked = with_identifiers(original, upstream, local, known=rendered.original if rendered else {})
    raw = with_own_fields(marked, context)
    if rendered is None:
        return raw
    own = _configuration(local) - rendered.configuration
    alone = {path for path, file in raw.local.items() if is_equal(file, marked.original.get(path))}
    alone |= own | (upstream.keys() - original.keys())
    old, new = (
        {**{p: f for p, f in done.items() if p not in alone}, **{p: f for p, f in side.items() if p in alone}}
        for done, side in zip(rendered[:2], (raw.original, raw.upstream), strict=True)
    )
    return Sides(old, new, raw.local)


def _inputs(update: Update, contents: Mapping[Oid, Files]) -> _Inputs | None:
    """Return both upstream sides with local's pipeline in them, None if they need not be rendered."""
    local = contents[update.local]
    if not any(b"pipeline" in local[path].data for path in _kptfiles(local)):
        return None
    sides = [strip_ownership(contents[tree]) for tree in (update.original, update.upstream)]
    original, upstream = sides
    if isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return None
    marked = with_identifiers(original, upstream, local)
    if not any(is_open(FileSides(*(side.get(path) for side in marked))) for path in local if path != KPTFILE):
        return None
    filled = with_own_fields(marked)
    own = {path: _without_validators(path, local[path]) for path in _configuration(local)}
    both = (filled.original, filled.upstream)
    runs = tuple(_with_configuration(side, own) for side in both)
    changed = _changed_configuration(marked)
    if not changed:
        return _Inputs(runs)
    bare = {path: file for path, file in own.items() if path not in changed}
    gone = not any(path in filled.upstream for path in changed)
    return _Inputs((*runs, *(_with_configuration(side, bare) for side in both[: 1 if gone else 2])), changed)


def _changed_configuration(sides: Sides) -> frozenset[str]:
    """Return the configuration of functions that both sides changed: all of it goes upstream, or none."""
    found = _configuration(sides.local) - _kptfiles(sides.local) - {PACKAGE_CONTEXT_FILE}
    three = {path: FileSides(*(side.get(path) for side in sides)) for path in found & sides.original.keys()}
    changed = {path for path, each in three.items() if is_open(each)}
    gone = {path for path in changed if path not in sides.upstream}
    missing = any(path not in sides.upstream for path in found)
    return frozenset(gone if missing else changed)


def _with_configuration(side: Files, own: Files) -> Files:
    """Put local's configuration into a side; a sub-package that the side has not stays away."""
    return {**side, **{p: f for p, f in own.items() if p in side or not p.endswith(f"/{KPTFILE}")}}


def _configuration(files: Files) -> set[str]:
    """Return the paths of Kptfiles, the package context and what functions take as their configuration."""
    found = _kptfiles(files) | ({PACKAGE_CONTEXT_FILE} & files.keys())
    try:
        steps = declared_steps(files)
    except (InvalidPipelineError, YamlError):
        return found
    for step in steps:
        path = f"{step.package}/{step.config_path}" if step.package else step.config_path
        found |= {path} & files.keys()
    return found


def _kptfiles(files: Files) -> set[str]:
    return {path for path in files if path.rpartition("/")[2] == KPTFILE}


def _without_validators(path: str, file: File) -> File:
    """Return a Kptfile without validators: they change nothing, and need not pass on an upstream."""
    if path.rpartition("/")[2] != KPTFILE or b"validators" not in file.data:
        return file
    try:
        value = load_documents(file.data, PACKAGE_LIMITS)[0].value
        if "validators" in value["pipeline"]:
            return edit_file(file, [DeleteKey(("pipeline", "validators"))])
    except (YamlError, LookupError, TypeError):
        pass
    return file
