"""Charts of upstream packages, rendered for each variant: their manifests are merged and delivered (D30).

Each upstream side of a variant becomes a package without the chart: the new one with the values that the
variant has now, the old one with those that its package downstream records in its RenderHelmChart. All that
follows, the merge with people's edits above all, is that of any package (ADR 12).

What a cluster cannot apply stays upstream, or is a file that no agent reads (`INPUT`, ADR 25).
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.functions.catalog import parse_image
from reconciler.functions.charts import RENDER_HELM_CHART, ChartError, chart_paths, read_charts
from reconciler.functions.pipeline import RunPipelines, declared_steps
from reconciler.functions.resources import IGNORE_FILE, INPUT, LOCAL_CONFIG, package_directories, package_of
from reconciler.functions.step import InvalidPipelineError, PipelineResult, Stage, Step
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot
from reconciler.krm.documents import documents_of, edit_document
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import DeleteItem, DeleteKey, Edit, SetValue, YamlError
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.policy import Limits, OnConflict
from reconciler.render.injection import inject_config
from reconciler.render.kptfile import (
    FunctionOwners,
    add_functions,
    edit_kptfile,
    strip_ownership,
    upstream_functions,
)
from reconciler.render.rendered import Blocked
from reconciler.render.update import ConflictPolicy, update_package
from reconciler.render.update.identifiers import (
    DEFAULT_NAMESPACE,
    add_identifiers,
    with_files_of,
    with_identifiers,
    with_identities_of,
)
from reconciler.resolve.resolution import ResolvedVariant

KEEP_VALUES: Final = "reconciler.dev/chart-values"
"""The annotation of a RenderHelmChart that keeps its values files downstream: `keep`."""
_HOOK: Final = "argocd.argoproj.io/hook"
_CHART: Final = "Chart.yaml"
_MANIFESTS: Final = (".yaml", ".yml", ".json")
"""The ends of the names of files that agents read."""
_PLATFORM: Final = "kubernetes"
_SOURCE: Final = b"# Source: "
_IDENTIFIERS: Final = regex(
    rb"[ ]*# kpt-merge: [^\n]*|\n[ ]+internal\.kpt\.dev/upstream-identifier:[^\n]*"
    rb"|\n  annotations:(?:\s*\{\})?(?=\n)"
)
_CAPABILITIES: Final = ("kubeVersion", "apiVersions")

T = TypeVar("T")
WriteFields = Callable[[Files, ResolvedVariant], Files | Blocked]
"""Writes the fields of a package that no merge and no function decides."""


class ChartContents(dict[Oid, Files]):
    """Package trees by their ids, with rendered ones; `refused` has the reasons for missing ones."""

    def __init__(self, contents: Mapping[Oid, Files]) -> None:
        super().__init__(contents)
        self.refused: Mapping[Oid, str] = getattr(contents, "refused", {})


class RenderedCharts(NamedTuple):
    """The variants with upstream trees that are rendered, those trees, and the variants that are blocked."""

    variants: tuple[ResolvedVariant, ...]
    contents: Mapping[Oid, Files]
    blocked: Mapping[ObjectName, Blocked]


class BlockedSideError(Exception):
    """A side of a variant cannot be made."""

    def __init__(self, why: Blocked) -> None:
        super().__init__(why.message)
        self.why = why


def _made(value: T | Blocked) -> T:
    if isinstance(value, Blocked):
        raise BlockedSideError(value)
    return value


class _Role(StrEnum):
    """The use of a side for its variant."""

    NEW = "new"
    BASE = "base"
    DRAFT_BASE = "draft_base"
    ASKED_FROM = "asked_from"


class _Side(NamedTuple):
    """One upstream of a variant: the package to run, the package without its charts, and what it led to.

    `raw` is the upstream itself. `otherwise` makes another package to run, where the first one may not be
    what it was made from. Nothing has to run where what it led to has the manifests still.
    """

    role: _Role
    run: Files | None
    raw: Files
    plain: Files
    local: Files
    otherwise: Callable[[], Files] | None = None


class _Made(NamedTuple):
    """The result of the pipeline of a side, and the package from it; None where it failed.

    `inputs` are the paths of its configurations of charts and of the values files that it keeps.
    """

    side: _Side
    result: PipelineResult
    files: Files | None
    inputs: frozenset[str] = frozenset()


def render_charts(
    variants: Sequence[ResolvedVariant],
    contents: Mapping[Oid, Files],
    inventory: Inventory,
    run: RunPipelines,
    write_fields: WriteFields,
) -> RenderedCharts:
    """Return the variants with the trees that charts of their upstreams render to; the others are kept.

    One batch of pipelines over all variants. Variants with charts that cannot be rendered are blocked.
    """
    sides: dict[ObjectName, list[_Side]] = {}
    prepared: dict[tuple[str, ...], Files] = {}
    blocked: dict[ObjectName, Blocked] = {}
    for resolved in variants:
        # A new revision may drop its chart: what the old one rendered to is what goes.
        pins = (resolved.pin, resolved.base, resolved.draft_base)
        if resolved.settled is None and any(_chart_steps(contents.get(pin.tree, {})) for pin in pins if pin):
            try:
                sides[resolved.variant.key] = list(
                    _sides(resolved, contents, inventory, write_fields, prepared)
                )
            except BlockedSideError as error:
                blocked[resolved.variant.key] = error.why
    if not sides and not blocked:
        return RenderedCharts(tuple(variants), contents, {})
    rendered = ChartContents(contents)
    every = [(key, side) for key, sides_of_call in sides.items() for side in sides_of_call]
    as_made = [(key, _as_made(side)) for key, side in every if side.run is None]
    tried = _make([(key, side) for key, side in every if side.run is not None], run)
    made: dict[ObjectName, list[_Made]] = {}
    for key, rendering in (*tried, *as_made, *_make(_otherwise(tried, blocked), run)):
        made.setdefault(key, []).append(rendering)
    done: list[ResolvedVariant] = []
    for resolved in variants:
        try:
            renderings = made.get(resolved.variant.key, ())
            packages = {role: _rendered([r for r in renderings if r.side.role is role]) for role in _Role}
        except BlockedSideError as error:
            blocked[resolved.variant.key] = error.why
            continue
        inputs = frozenset[str]().union(*(rendering.inputs for rendering in renderings))
        written = _written_inputs(renderings)
        delivered = {
            role: _downstream({**files, **written.get(role, {})}, inputs)
            for role, files in packages.items()
            if files is not None
        }
        trees = {role: tree_id(files) for role, files in delivered.items()}
        rendered |= {trees[role]: files for role, files in delivered.items()}
        if trees:
            places = _moved_places(resolved, rendered, inputs, contents)
            rendered |= {tree_id(files): files for files in places.values()}
            resolved = _with_trees(resolved, trees, {old: tree_id(new) for old, new in places.items()})  # noqa: PLW2901
        done.append(resolved)
    return RenderedCharts(tuple(done), rendered, blocked)


# Inputs of charts in a package downstream


def upstream_names(files: Files) -> Files:
    """Return a package downstream with the names that its upstream has for the inputs of charts."""
    inputs = {path.removesuffix(INPUT): file for path, file in files.items() if path.endswith(INPUT)}
    others = {path: file for path, file in files.items() if not path.endswith(INPUT)}
    return {**others, **inputs} if inputs else files


def input_path(path: str, files: Files) -> str:
    """Return the path of an input of a chart in a package downstream; `path` is that of its upstream."""
    input_of_chart = f"{path}{INPUT}"
    return input_of_chart if input_of_chart in files else path


def _downstream(files: Files, inputs: Collection[str]) -> Files:
    """Return a package with its inputs of charts in files that no agent reads, nor its configurations."""
    marked = {
        path: _skipped(file) if path.endswith(_MANIFESTS) else file
        for path, file in files.items()
        if path not in inputs
    }
    return {**marked, **{f"{path}{INPUT}": files[path] for path in inputs if path in files}}


def _skipped(file: File) -> File:
    """Return a file of which Argo CD applies no local configuration: it has no other word for that."""
    if LOCAL_CONFIG.encode() not in file.data or PACKAGE_CONTEXT_NAME.encode() in file.data:
        return file
    for document in documents_of(file):
        notes = mapping_at(document.data, "metadata", "annotations")
        if notes.get(LOCAL_CONFIG) == "true" and _HOOK not in notes:
            file = _edited(file, [SetValue(("metadata", "annotations", _HOOK), "Skip")], document.index)
    return file


def _moved_places(
    resolved: ResolvedVariant,
    rendered: Mapping[Oid, Files],
    inputs: frozenset[str],
    contents: Mapping[Oid, Files],
) -> dict[Oid, Files]:
    """Return main and the draft as a run of today would have written them, where an older one wrote them."""
    bases = [pin.tree for pin in (resolved.base, resolved.draft_base) if pin is not None]
    upstream_files = {
        (path, contents[tree][path])
        for tree in bases
        if tree in contents
        for path in _upstream_alone(contents[tree])
    }
    moved: dict[Oid, Files] = {}
    draft = resolved.draft
    for tree in (resolved.local, *((draft.tree, draft.base_tree) if draft else ())):
        if tree is None or tree not in rendered:
            continue
        files = rendered[tree]
        landed = {path for path, _ in upstream_files if path in files and path not in inputs}
        stays = {
            path: file for path, file in files.items() if (path, file) not in upstream_files or path in inputs
        }
        there = {path for path in (*inputs, *landed) if path in stays and f"{path}{INPUT}" not in stays}
        if (new := _downstream(stays, there)) != files:
            moved[tree] = new
    return moved


def _make(sides: Sequence[tuple[ObjectName, _Side]], run: RunPipelines) -> list[tuple[ObjectName, _Made]]:
    results = run([side.run or {} for _, side in sides])
    return [
        (key, _Made(side, result, None) if result.error else _package(side, result))
        for (key, side), result in zip(sides, results, strict=True)
    ]


def _as_made(side: _Side) -> _Made:
    """Return a side with the manifests that it led to, as no person changed them."""
    inputs = frozenset(_recorded_configuration(side.raw, side.local))
    manifests = {
        path: file
        for path, file in side.local.items()
        if path not in inputs
        and path.rpartition("/")[2] not in (KPTFILE, PACKAGE_CONTEXT_FILE)
        and (path not in side.plain or file.data.startswith(_SOURCE))
    }
    files = {path: side.raw[path] for path in inputs if path in side.raw}
    return _Made(side, PipelineResult(side.local), {**side.plain, **files, **manifests}, inputs)


def _package(side: _Side, result: PipelineResult) -> _Made:
    # Manifests that charts gave replace those that the upstream may hold of them.
    run = side.run or {}
    generated = {
        path: file
        for path, file in result.files.items()
        if path not in run or (run[path] != file and file.data.startswith(_SOURCE))
    }
    # The package downstream may have other identities for what a chart gives.
    manifests: Files = generated
    for _, _, config in chart_configurations(run):
        for chart in mappings_at(config, "helmCharts"):
            namespace = str(value_at(chart, "templateOptions", "namespace") or DEFAULT_NAMESPACE)
            manifests = with_identities_of(manifests, side.local, namespace)
    inputs = frozenset(_configuration(result.files))
    # The functions of the variant may name the values file that is kept.
    plain = {**side.plain, **{path: side.raw[path] for path in inputs if path in side.raw}}
    return _Made(side, result, with_files_of({**plain, **manifests}, plain, side.local), inputs)


def _written_inputs(renderings: Sequence[_Made]) -> dict[_Role, Files]:
    """Return the inputs of charts as the variant's functions write them, if main has just these.

    What functions wrote counts as no edit then, and no pipeline has to run on both sides to tell.
    """
    if [rendering.side.role for rendering in renderings] != [_Role.NEW, _Role.BASE]:
        return {}
    inputs = renderings[-1].inputs
    written: dict[_Role, Files] = {
        made.side.role: {path: made.result.files[path] for path in inputs & made.inputs}
        for made in renderings
    }
    main = {path: file for path, file in renderings[-1].side.local.items() if path in inputs}
    return written if add_identifiers(written[_Role.BASE]) == main else {}


def _otherwise(
    tried: Sequence[tuple[ObjectName, _Made]], blocked: dict[ObjectName, Blocked]
) -> list[tuple[ObjectName, _Side]]:
    """Return what else to run: for sides that are not just what they led to."""
    sides: list[tuple[ObjectName, _Side]] = []
    for key, (side, _, files, _) in tried:
        try:
            if side.otherwise and (files is None or _distance(files, side)):
                sides.append((key, side._replace(run=side.otherwise())))
        except BlockedSideError as error:
            blocked[key] = error.why
    return sides


def _rendered(renderings: Sequence[_Made]) -> Files | None:
    """Return the package of a side, of several possible ones that which differs least from what it led to."""
    made = [(rendering.files, rendering.side) for rendering in renderings if rendering.files is not None]
    if renderings and not made:
        raise BlockedSideError(_failure(renderings[-1]))
    if len(made) < 2:  # noqa: PLR2004 - nothing to choose
        return made[0][0] if made else None
    # Of two that differ as much it is what is recorded.
    return min(reversed(made), key=lambda rendering: _distance(*rendering))[0]


def _distance(files: Files, side: _Side) -> int:
    """Return the number of lines that a package does not share with what it led to, of what charts gave."""
    changed_paths = {path for path, file in files.items() if side.plain.get(path) != file}
    changed_paths |= {path for path, file in side.local.items() if file.data.startswith(_SOURCE)}
    return sum(_difference(files.get(path), side.local.get(path)) for path in changed_paths)


@lru_cache(maxsize=4096)
def _difference(ours: File | None, theirs: File | None) -> int:
    """Return the number of lines that two files do not share, without the identifiers that an update adds."""
    texts = (b"" if file is None else file.data for file in (ours, theirs))
    lines = [Counter(_IDENTIFIERS.sub(b"", text).splitlines()) for text in texts if ours != theirs]
    return sum((lines[side] - lines[1 - side]).total() for side in range(len(lines)))


def _sides(
    resolved: ResolvedVariant,
    contents: Mapping[Oid, Files],
    inventory: Inventory,
    write_fields: WriteFields,
    prepared: dict[tuple[str, ...], Files],
) -> Iterator[_Side]:
    """Yield the new upstream, then the old ones: what main was made from, a draft, and its open conflicts.

    `prepared` holds what was made of upstreams alone, for the other variants.
    """

    def once(key: tuple[str, ...], make: Callable[[], Files]) -> Files:
        if key not in prepared:
            prepared[key] = make()
        return prepared[key]

    def stripped(tree: Oid) -> Files:
        return once(("stripped", tree), lambda: _made(strip_ownership(contents[tree])))

    draft = resolved.draft if resolved.draft is not None and resolved.draft.append_only else None
    local = upstream_names(contents.get(resolved.local or Oid(""), {}))
    # The run that made main rendered it as it is rendered here: its result is known, where it was kept.
    sources = {_Role.BASE: resolved.base, _Role.DRAFT_BASE: resolved.draft_base}
    bases = [(_Role.BASE, resolved.base.tree if resolved.base else None, local)]
    if draft is not None:
        local = upstream_names(contents.get(draft.tree, {}))
        drafted = resolved.draft_base.tree if resolved.draft_base else None
        bases += [(_Role.DRAFT_BASE, drafted, local), (_Role.ASKED_FROM, resolved.asked_from, local)]
    old = [
        (role, tree, _with_capabilities_of(stripped(tree), led_to), led_to)
        for role, tree, led_to in bases
        if tree is not None and tree in contents
    ]
    cluster, new = inventory.repositories[resolved.view].cluster, resolved.pin.tree
    snapshot = inventory.snapshot.of(cluster)
    spec, key = resolved.variant.spec, resolved.variant.key

    def with_values(files: Files, role: _Role) -> Files:
        """Return a package with the variant's values: those of its functions and injections."""
        owners = FunctionOwners(key, upstream_functions([files]))
        pinned = replace(resolved, pin=sources.get(role) or resolved.pin)
        files = _made(add_functions(_made(write_fields(files, pinned)), spec, owners))
        injectors, context = spec.injectors or (), spec.package_context
        injected = _made(inject_config(files, injectors, snapshot, key.namespace, context))
        return _edit_pipeline(injected.files, _after_charts)

    upstream = once(
        ("new", new, cluster), lambda: _with_capabilities(stripped(new), snapshot, inventory.policy.limits)
    )
    plain = once(("plain", new, cluster), lambda: _without_charts(upstream))
    configuration = _own_configuration(old[-1][2] if old else {}, upstream, local)
    yield _Side(_Role.NEW, with_values({**upstream, **configuration}, _Role.NEW), upstream, plain, local)
    record = inventory.records.get(key)
    # Of such a package main has what its upstream rendered to.
    is_as_made = record is not None and resolved.local in (record.unedited or ())
    for role, tree, files, led_to in old:
        recorded = {path: led_to[path] for path in _recorded_configuration(files, led_to) if path in led_to}
        if files is stripped(tree):
            plain = once(("plain", tree), partial(_without_charts, files))
        else:
            plain = _without_charts(files)
        # The variant's values rendered it last time, unless they changed since: what is recorded tells them.
        otherwise = partial(_edit_pipeline, {**files, **recorded}, _but_charts)
        if is_as_made and role is _Role.BASE:
            yield _Side(role, None, files, plain, led_to)
            continue
        yield _Side(role, with_values(files, role), files, plain, led_to, otherwise)


def _with_trees(
    resolved: ResolvedVariant, trees: Mapping[_Role, Oid], places: Mapping[Oid, Oid]
) -> ResolvedVariant:
    """Return a variant with rendered trees in place of those of its upstreams, main and the draft."""
    base, draft_base, local, draft = resolved.base, resolved.draft_base, resolved.local, resolved.draft
    if base is not None:
        base = replace(base, tree=trees.get(_Role.BASE, base.tree))
    if draft_base is not None:
        draft_base = replace(draft_base, tree=trees.get(_Role.DRAFT_BASE, draft_base.tree))
    if draft is not None:
        begun = places.get(draft.base_tree, draft.base_tree) if draft.base_tree else None
        draft = replace(draft, tree=places.get(draft.tree, draft.tree), base_tree=begun)
    return replace(
        resolved,
        pin=replace(resolved.pin, tree=trees[_Role.NEW]),
        base=base,
        local=places.get(local, local) if local else None,
        draft=draft,
        draft_base=draft_base,
        asked_from=trees.get(_Role.ASKED_FROM, resolved.asked_from),
        candidates=(),
    )


def _failure(rendering: _Made) -> Blocked:
    """Return why a side was not rendered; people know its configurations by their names downstream."""
    side, result = rendering.side, rendering.result
    if result.is_postponed:
        return Blocked(Reason.FUNCTIONS_POSTPONED, result.error)
    message = "; ".join(line.strip() for line in result.error.splitlines() if line.strip())
    hint = "Correct the values or the chart, or use the revision before; the package stays as it is."
    inputs = [f"{path}{INPUT}" for _, path, _ in chart_configurations(side.run or {}) if path in side.local]
    way = f" with {', '.join(sorted(inputs))}" if inputs else ""
    message = f"The chart of the package cannot be rendered{way}: {message}"
    return Blocked(Reason.INVALID_PACKAGE, message, hint)


# Steps and configurations


def _is_chart_step(item: Any) -> bool:
    image = (
        parse_image(str(item.get("image") or ""), str(item.get("tag") or ""))
        if isinstance(item, dict)
        else None
    )
    return image is not None and image.short == RENDER_HELM_CHART


def _chart_steps(files: Files) -> tuple[Step, ...]:
    names = (KPTFILE, IGNORE_FILE)
    declaring = tuple(sorted((p, f) for p, f in files.items() if p.rpartition("/")[2] in names))
    may_have = any(RENDER_HELM_CHART.encode() in file.data for _, file in declaring)
    return _declared_chart_steps(declaring) if may_have else ()


@lru_cache(maxsize=256)
def _declared_chart_steps(declaring: tuple[tuple[str, File], ...]) -> tuple[Step, ...]:
    try:
        steps = declared_steps(dict(declaring))
    except (InvalidPipelineError, YamlError):
        return ()
    return tuple(step for step in steps if _is_chart_step({"image": step.image, "tag": step.tag}))


def chart_configurations(files: Files) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield package, path and value of each configuration of a chart that is a file."""
    for step in _chart_steps(files):
        path = f"{step.package}/{step.config_path}" if step.package else step.config_path
        if step.config_path and path in files:
            documents = documents_of(files[path])
            if len(documents) == 1 and isinstance(documents[0].data, dict):
                yield step.package, path, documents[0].data


def _upstream_alone(files: Files) -> set[str]:
    """Return the files of packages with charts that no package downstream has: charts, and all values.

    Values are what agents would read and no cluster applies: a file of YAML in which nothing has a kind. A
    setter may name any of them, for another environment too.
    """
    packages = {step.package for step in _chart_steps(files)}
    if not packages:
        return set()
    directories = package_directories(files)
    homes = tuple(path.removesuffix(_CHART) for path in files if path.endswith(f"/{_CHART}"))
    files_of_charts = {
        path
        for path, file in files.items()
        if package_of(path, directories) in packages
        and (path.startswith(homes) or path.endswith(".tgz") or _is_values(path, file))
    }
    return (files_of_charts | _own_paths(files).keys()) - {path for _, path, _ in chart_configurations(files)}


@lru_cache(maxsize=256)
def _is_values(path: str, file: File) -> bool:
    name = path.rpartition("/")[2]
    is_read = name.endswith(_MANIFESTS) and not name.startswith("kustomization.")
    documents = documents_of(file) if is_read else ()
    return is_read and not any(value_at(document.data, "kind") for document in documents)


def _own_paths(files: Files) -> dict[str, bool]:
    """Return the files of charts and values, each with whether a package downstream keeps it."""
    paths: dict[str, bool] = {}
    for step in _chart_steps(files):
        start = f"{step.package}/" if step.package else ""
        inside = {path.removeprefix(start): file for path, file in files.items() if path.startswith(start)}
        config = {"kind": "ConfigMap", "data": dict(step.config_map or {})}
        if step.config_path:
            config = next(
                (v for _, p, v in chart_configurations(files) if p == f"{start}{step.config_path}"), config
            )
        keeps = value_at(config, "metadata", "annotations", KEEP_VALUES) == "keep"
        values = set(_named_values_of(config))
        for path in chart_paths(config, inside):
            paths[f"{start}{path}"] = keeps and path in values
    return paths


def _configuration(files: Files) -> set[str]:
    """Return the paths of all that decides about the values of charts: configurations and kept values."""
    files_of_package = {path for path, keeps in _own_paths(files).items() if keeps}
    return {path for _, path, _ in chart_configurations(files)} | files_of_package


def _recorded_configuration(files: Files, local: Files) -> set[str]:
    """Return the paths of what decides about values, of those that the package downstream records as well.

    People may add a values file there, and name it in the configuration.
    """
    records = {path: local[path] for _, path, _ in chart_configurations(files) if path in local}
    recorded = {**files, **records}
    added = {path for path in _named_values(recorded) if path in local and path not in files}
    return _configuration(files) | _configuration(recorded) | added


def _named_values(files: Files) -> Iterator[str]:
    for package, _, config in chart_configurations(files):
        for name in _named_values_of(config):
            yield f"{package}/{name}" if package else name


def _named_values_of(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the values files that a configuration names, in its package."""
    for chart in mappings_at(config, "helmCharts"):
        names = value_at(chart, "templateOptions", "values", "valuesFiles")
        yield from map(posixpath.normpath, map(str, names if isinstance(names, list) else ()))


def _own_configuration(base: Files, upstream: Files, local: Files) -> dict[str, File]:
    """Return the configurations of charts with what people changed of them downstream."""
    paths = _recorded_configuration(upstream, local) & local.keys()
    if not paths:
        return {}
    three = ({path: side[path] for path in paths if path in side} for side in (base, upstream, local))
    sides = with_identifiers(*three)
    merged = update_package(*sides, on_conflict=ConflictPolicy(OnConflict.LOCAL))
    return {path: file for path, file in merged.files.items() if path in paths}


def _without_charts(files: Files) -> Files:
    upstream_files = _upstream_alone(files)
    return _edit_pipeline({path: file for path, file in files.items() if path not in upstream_files}, _charts)


def _charts(items: Sequence[Any]) -> set[int]:
    return {index for index, item in enumerate(items) if _is_chart_step(item)}


def _but_charts(items: Sequence[Any]) -> set[int]:
    return set(range(len(items))) - _charts(items)


def _after_charts(items: Sequence[Any]) -> set[int]:
    return set(range(max(_charts(items), default=-1) + 1, len(items)))


def _edit_pipeline(files: Files, chosen: Callable[[Sequence[Any]], set[int]]) -> Files:
    """Return a package without the mutators that are chosen; one that is to be run has no validators."""

    def edits(kptfile: dict[str, Any]) -> Iterator[Edit]:
        return _pipeline_edits(kptfile, chosen)

    result = dict(files)
    for path in [path for path in files if path.rpartition("/")[2] == KPTFILE]:
        result[path] = _made(edit_kptfile({KPTFILE: files[path]}, edits))[KPTFILE]
    return result


def _pipeline_edits(kptfile: dict[str, Any], chosen: Callable[[Sequence[Any]], set[int]]) -> Iterator[Edit]:
    pipeline = mapping_at(kptfile, "pipeline")
    items = pipeline.get(Stage.MUTATORS.value)
    if not isinstance(items, list):
        return
    gone = chosen(items)
    others = {name for name in pipeline if name != Stage.MUTATORS.value}
    if chosen is not _charts and Stage.VALIDATORS.value in others:
        others.remove(Stage.VALIDATORS.value)
        yield DeleteKey(("pipeline", Stage.VALIDATORS.value))
    if len(gone) < len(items):
        yield from (
            DeleteItem(("pipeline", Stage.MUTATORS.value, index)) for index in sorted(gone, reverse=True)
        )
    elif others:
        yield DeleteKey(("pipeline", Stage.MUTATORS.value))
    else:
        yield DeleteKey(("pipeline",))


# What the cluster has


def _with_capabilities(files: Files, snapshot: Snapshot, limits: Limits) -> Files:
    """Return a package with the version and APIs of the cluster in its configurations, where charts ask."""
    version = snapshot.versions.get(_PLATFORM, "")
    result = dict(files)
    for package, path, config in chart_configurations(files):
        start = f"{package}/" if package else ""
        inside = {name.removeprefix(start): file for name, file in files.items() if name.startswith(start)}
        try:
            calls = read_charts(config, inside, limits)
        except (ChartError, YamlError):
            continue  # the pipeline tells it
        edits: list[Edit] = []
        for call in calls:
            if version and (call.chart.asks_version or call.chart.requires) and not call.kube_version:
                edits.append(SetValue((*call.path, "kubeVersion"), version))
            if snapshot.served is not None and call.chart.asks and call.api_versions is None:
                served = [api for api in call.chart.asks if _is_served(api, snapshot.apis)]
                edits.append(SetValue((*call.path, "apiVersions"), served))
        result[path] = _edited(files[path], edits)
    return result


def _is_served(name: str, served: Collection[tuple[str, str]]) -> bool:
    """Tell whether a cluster serves `v1`, `apps/v1` or `apps/v1/Deployment`."""
    return any(name in (api_version, f"{api_version}/{kind}") for api_version, kind in served)


def _with_capabilities_of(files: Files, recorded: Files) -> Files:
    changed: dict[str, File] = {}
    for _, path, config in chart_configurations(files):
        documents = documents_of(recorded[path]) if path in recorded else ()
        if not documents:
            continue
        edits: list[Edit] = []
        olds = mappings_at(documents[0].data, "helmCharts")
        for index, (chart, old) in enumerate(zip(mappings_at(config, "helmCharts"), olds, strict=False)):
            new_options, options = mapping_at(chart, "templateOptions"), mapping_at(old, "templateOptions")
            edits += [
                SetValue(("helmCharts", index, "templateOptions", name), options[name])
                for name in _CAPABILITIES
                if name in options and name not in new_options
            ]
        if edits:
            changed[path] = _edited(files[path], edits)
    return {**files, **changed} if changed else files


def _edited(file: File, edits: Sequence[Edit], index: int = 0) -> File:
    try:
        return edit_document(file, edits, index=index)
    except YamlError:
        return file
