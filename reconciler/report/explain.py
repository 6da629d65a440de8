"""One package explained: what keeps it from a revision, and where each field comes from."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from pydantic.alias_generators import to_camel

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, PACKAGE_CONTEXT_FILE
from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason
from reconciler.base.suggestions import next_step
from reconciler.base.text import Text, join_texts
from reconciler.base.values import whole_number
from reconciler.dependencies.versions import whole_version
from reconciler.expand import DesiredVariant
from reconciler.expand.variants import FROM_TARGET, set_key, variant_key
from reconciler.functions.catalog import parse_image
from reconciler.functions.resources import INPUT
from reconciler.functions.secrets import values_in_secrets
from reconciler.inventory.inventory import FieldPath, Inventory, PackageRevision
from reconciler.krm.yaml.tree import path_text
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.names.refs import short_tag
from reconciler.plan.changes import Change, Plan
from reconciler.plan.chart_values import ChangedValue, ChartDefaults, chart_values
from reconciler.plan.context import PlanContext
from reconciler.plan.status import current_statuses
from reconciler.records.state import lock_path
from reconciler.render.injection import NAME, PACKAGE_PATH, choose_source, find_points, injected_field
from reconciler.render.kptfile import function_name, upstream_functions
from reconciler.render.package import cluster_snapshot
from reconciler.report.build import package_overviews
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import location_text, owner_text, package_name
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.resolve.rollout_model import PAUSE, ROLL_BACK, RolloutPhase, WavePhase

_THERE = "Main has {goal}, by its name; what follows is about another change of the package"
_MOST = 5
"""Revisions of the upstream that a hint names."""
_OVER = frozenset({WavePhase.COMPLETE, WavePhase.SKIPPED})
_NEXT = {
    Phase.PENDING: "Run `reconciler apply`.",
    Phase.IN_REVIEW: "Review it, and merge it: `reconciler approve {name}`.",
    Phase.NOT_READY: "Correct what it names; the next apply renders the package again.",
    Phase.CONFLICT: "Answer each conflict in the draft: its pull request lists them.",
    Phase.REJECTED: 'Change it, or set reconciler.dev/retry: "1" on its manifest.',
    Phase.PAUSED: "Remove reconciler.dev/paused.",
    Phase.HELD_BACK: "Run `reconciler plan`: it has each refusal and problem with its hint.",
    Phase.STALLED: "Correct the manifest or the repository; `reconciler doctor` checks repositories.",
}


class Obstacle(NamedTuple):
    """One thing that keeps a package from moving, and the next step."""

    message: Text
    hint: Text = ""


class Standstill(NamedTuple):
    """The upstream revisions of a package, "" if unknown, and the obstacles on the way to another one."""

    main: str
    review: str
    requested: str
    newest: str
    obstacles: tuple[Obstacle, ...]


def find_obstacles(
    plan: Plan, change: Change, name: str, version: str, trace: Mapping[ObjectName, Mapping[str, str]]
) -> Standstill:
    """Return what keeps a package from an upstream revision, in the order in which it would move.

    `name` is that of the package in hints, `version` the revision (`v2`, `web/v2`), "" for the newest one.
    """
    context = plan.context
    if context is None or change.variant is None:
        hint = "Adopt it with a PackageVariant whose adoptionPolicy is adoptExisting."
        return Standstill("", "", "", "", (Obstacle("No PackageVariant of this instance owns it", hint),))
    overview = package_overviews(plan).get((change.variant, change.package))
    resolved = context.resolved.get(change.variant)
    if resolved is not None and resolved.downstream != change.package:
        resolved = None  # the variant has another package now, and nothing is asked for this one
    revisions = _revisions(resolved, context)
    main, review = (overview.main, overview.review) if overview else ("", "")
    requested = resolved.requested.label if resolved else ""
    newest = revisions[-1] if revisions else ""
    goal = _full(version, resolved) or newest or requested
    offered = resolved.offers.label if resolved and resolved.offers else ""
    # People write a tag or a branch, and labels have its commit, too.
    goal = next((label for label in (offered, requested, main) if label.rpartition("@")[0] == goal), goal)
    is_missing = bool(version and revisions) and goal not in (*_names(resolved, context), requested, offered)
    problems = [
        Obstacle(
            f"{problem.message} ({problem.location})", next_step(problem.hint, f"it at {problem.location}")
        )
        for problem in problems_of(plan.problems, context.inventory, change.variant)
    ]
    state = () if is_missing else tuple(_state(plan, change, name, explained=bool(problems)))
    obstacles = (
        *problems,
        *(_request(resolved, goal, revisions, context, trace) if resolved else ()),
        *((Obstacle(_THERE.format(goal=goal)),) if state and goal and goal == main else ()),
        *state,
    )
    return Standstill(main, review, requested, newest, tuple(dict.fromkeys(obstacles)))


def _full(version: str, resolved: ResolvedVariant | None) -> str:
    """Return a revision with the name of its package, as labels have it."""
    if not version or resolved is None or "/" in version:
        return version
    number = f"v{version}" if version.isdecimal() else version
    return f"{resolved.pin.ref.rpartition('/')[0]}/{number}" if "/" in resolved.pin.ref else number


def _revisions(resolved: ResolvedVariant | None, context: PlanContext) -> tuple[str, ...]:
    """Return the revisions of the upstream package, the newest last.

    They are the numbered ones, or the tags that are versions if the package is asked for by such a tag.
    """
    if resolved is None:
        return ()
    pin = resolved.requested
    if pin.revision <= 0 and whole_version(pin.ref.rpartition("/")[2]):
        versions = ((whole_version(tag.rpartition("/")[2]), tag) for tag in _names(resolved, context))
        released = [(v.height, tag) for v, tag in versions if v is not None and v.is_release]
        return tuple(tag for _, tag in sorted(released))
    numbered = {revision.revision for revision in _published(resolved, context) if revision.revision > 0}
    prefix = pin.ref.rpartition("/")[0] if pin.revision > 0 else pin.package.path
    return tuple(f"{prefix}/v{number}".lstrip("/") for number in sorted(numbered))


def _names(resolved: ResolvedVariant | None, context: PlanContext) -> tuple[str, ...]:
    """Return the tags of the upstream package."""
    published = _published(resolved, context) if resolved else ()
    return tuple(dict.fromkeys(short_tag(revision.ref) for revision in published))


def _published(resolved: ResolvedVariant, context: PlanContext) -> Iterator[PackageRevision]:
    package = resolved.pin.package
    for view in context.inventory.views_of(package.url):
        if (state := view.upstream_at(package.path)) is not None:
            yield from state.published


def problems_of(problems: Iterable[Problem], inventory: Inventory, variant: ObjectName) -> list[Problem]:
    """Return the problems of the manifest that declares a variant, or last declared it.

    A file that cannot be parsed has no owner: the record tells what it declared.
    """
    record = inventory.records.get(variant)
    owners: set[ObjectKey | None] = {variant_key(variant)}
    broken = ""
    if record is not None:
        owners.add(set_key(ObjectName(record.namespace, record.set_name)))
        broken = record.manifest if record.manifest in inventory.control.broken else ""
    return [p for p in problems if p.owner in owners or p.location.path == broken != ""]


def _request(
    resolved: ResolvedVariant,
    goal: str,
    revisions: Iterable[str],
    context: PlanContext,
    trace: Mapping[ObjectName, Mapping[str, str]],
) -> Iterator[Obstacle]:
    """Yield why another revision is requested: the manifest, the lock, or a revision that is not there."""
    numbered = tuple(revisions)
    offered = resolved.offers.label if resolved.offers else ""
    requested = resolved.requested.label
    if goal == requested:
        return
    if numbered and goal not in (*numbered, *_names(resolved, context), offered):
        yield Obstacle(
            f"The upstream has no revision {goal}",
            f"Ask for one that it has: {', '.join(numbered[-_MOST:])}.",
        )
        return
    is_floating = resolved.offers is not None and resolved.requested.commit.oid != resolved.offers.commit.oid
    if goal == offered or is_floating:
        message = f"The lock holds {requested}, while the upstream offers {offered or goal}"
        yield Obstacle(
            message, f"Run `reconciler lock follow {resolved.variant.key}`, or merge its pull request."
        )
        return
    of_variant = trace.get(resolved.variant.key, {})
    source, location = _Provenance(resolved, {}, context.inventory, of_variant).request()
    yield Obstacle(f"The manifest asks for {requested}: {source} ({location})", f"Ask for {goal} there.")


def _state(plan: Plan, change: Change, name: str, *, explained: bool) -> Iterator[Obstacle]:
    """Yield the state of the package, unless it is stalled and its problems explain that."""
    assert plan.context is not None  # noqa: S101 - the caller looked
    if plan.context.inventory.policy.suspend:
        yield Obstacle("spec.suspend is true, so nothing changes", "Set it to false in reconciler.yaml.")
    status = next((s for s in current_statuses(plan) if s.package == change.package), None)
    quiet = (Phase.PUBLISHED, Phase.STALLED) if explained else (Phase.PUBLISHED,)
    if status is not None and status.phase not in quiet:
        step = _NEXT[status.phase].format(name=name)
        rollout = plan.context.rollouts.get(change.variant) if change.variant else None
        if change.postponed is not None:
            step = "Wait, or change the limits and schedules in spec.pullRequests."
        elif change.reason is Reason.AWAITING_WAVE or change.variant in plan.context.stopped:
            rollouts = [rollout for rollout in plan.rollouts if change.variant in rollout.waves_of]
            waves = [wave for rollout in rollouts for wave in rollout.waves if wave.phase not in _OVER]
            step = "Run `reconciler plan`: it has every wave."
            step = f"Wave {waves[0].name} comes first: {waves[0].message}." if waves else step
        if rollout is not None and rollout.phase is RolloutPhase.PAUSED and not explained:
            step = f"To go on, remove {PAUSE} from PackageVariantSet {rollout.key.owner}."
        elif rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK:
            forward = f"To go forward again, remove {ROLL_BACK} from PackageVariantSet {rollout.key.owner}."
            step = f"{step} {forward}" if status.phase is Phase.IN_REVIEW else forward
        why = change.detail if status.phase is Phase.PENDING else ""
        message = join_texts("; ", dict.fromkeys((status.message or change.detail, why)))
        pull = f" as #{status.pull}" if status.pull else ""
        state = "in conflict" if status.phase is Phase.CONFLICT else status.phase
        yield Obstacle(f"It is {state}{pull}{f': {message}' if message else ''}", step)


_SELECTORS = ("revision", "workspace_name", "tag", "version", "branch")


class Origin(Struct, frozen=True):
    """Origin of one field of a package, with its value.

    `source` is a field of the manifest, an expression, an object of the cluster or a commit;
    `location` is the nearest known location.
    """

    file: str
    field: str
    value: str
    source: str
    location: Location | None = None


def find_origins(
    resolved: ResolvedVariant,
    files: Files,
    inventory: Inventory,
    trace: Mapping[str, str],
    upstream: Files = MappingProxyType({}),
    *,
    main: Files = MappingProxyType({}),
    changed: Iterable[ChangedValue] = (),
) -> tuple[Origin, ...]:
    """Return the origin of every field that the variant gives its package, in the order of the steps.

    `files` are the package's, `upstream` those of the upstream that it is made from; `trace` has for a
    generated variant the literal or expression of its set gave each field. What none of these names came
    with the upstream, or is a person's. `changed` are the values of its charts that change, which come last.
    What is in a Secret of the package is masked, also if it is that of `main`.
    """
    fields = _Provenance(resolved, files, inventory, trace)
    if cluster := cluster_of(resolved.variant.key):
        made = f"the lock of cluster {cluster}, where no person says otherwise"
        return (Origin("*", "", "", made), *fields.ownership())
    of_kptfile = (*fields.upstream(), *fields.ownership(), *fields.context(), *fields.pipeline())
    values = tuple(fields.values(upstream))
    origins = (*of_kptfile, *fields.injection(), *fields.labels(), *values, *fields.changes(changed, values))
    secret = values_in_secrets(files, upstream, main)
    return tuple(replace(origin, value=secret.value(origin.value)) for origin in origins)


class _Provenance(Struct, frozen=True):
    resolved: ResolvedVariant
    files: Files
    inventory: Inventory
    trace: Mapping[str, str]

    @property
    def variant(self) -> DesiredVariant:
        return self.resolved.variant

    def upstream(self) -> Iterator[Origin]:
        resolved = self.resolved
        base = resolved.draft_base or resolved.base if resolved.moved else None
        pin = base or resolved.pin
        source, at = self._decision() or self.request()
        commit = f"{pin.ref} at commit {pin.commit.oid}"
        yield Origin(KPTFILE, "upstream", f"{pin.address} {pin.package.path} {pin.ref}", source, at)
        yield Origin(KPTFILE, "upstreamLock", pin.commit.oid, f"upstream {commit}")
        yield Origin("*", "", "", f"upstream {commit}, where nothing below and no person says otherwise")

    def request(self) -> tuple[str, Location]:
        """Return the field that asks for an upstream revision, which may not be the one that decided."""
        spec = self.variant.spec.upstream
        selectors = [name for name in _SELECTORS if spec and getattr(spec, name) is not None]
        return self._origin("upstream", *map(to_camel, selectors[:1]))

    def _decision(self) -> tuple[str, Location | None] | None:
        """Return what keeps the package from the revision that is asked for, None if nothing does."""
        resolved, key = self.resolved, self.variant.key
        if resolved.held_back is not None:
            return f"a rollout: {resolved.held_back.why}", resolved.held_back.location
        if resolved.moved:
            return f"the commit that it has: {resolved.moved}", None
        if resolved.offers is None or resolved.offers.commit.oid == resolved.pin.commit.oid:
            return None
        reviewed = self.inventory.reviewed
        lock = (reviewed.pins if reviewed else self.inventory.locks).get(key)
        source = "the lock, held by a person" if lock and lock.held else "the lock"
        return source, Location(lock_path(lock)) if lock and reviewed else None

    def ownership(self) -> Iterator[Origin]:
        view = self.inventory.repositories[self.resolved.view]
        path = self.resolved.downstream.path
        source, at = self._origin("downstream", "package")
        yield Origin(KPTFILE, "metadata.name", package_name(view, path).rpartition("/")[2], source, at)
        key, annotations = self.variant.key, "metadata.annotations"
        owner = owner_text(self.inventory.policy.instance, key)
        source, at = f"PackageVariant {key}", self.variant.source.location
        yield Origin(KPTFILE, f"{annotations}.{OWNER}", owner, source, at)
        source, at = f"Repository {view.key}", view.source.location
        yield Origin(KPTFILE, f"{annotations}.{LOCATION}", location_text(view, path), source, at)

    def context(self) -> Iterator[Origin]:
        view = self.inventory.repositories[self.resolved.view]
        package = package_name(view, self.resolved.downstream.path)
        requested = self.variant.spec.package_context
        removed = set((requested.remove_keys if requested else None) or ())
        if view.deployment:
            where = f"Repository {view.key} is for deployment"
            for key, value in ((NAME, package.rpartition("/")[2]), (PACKAGE_PATH, package)):
                if key not in removed:
                    yield Origin(PACKAGE_CONTEXT_FILE, f"data.{key}", value, where, view.source.location)
        for key, value in sorted(((requested.data if requested else None) or {}).items()):
            if key not in removed:
                source, at = self._origin("packageContext", "data", key)
                yield Origin(PACKAGE_CONTEXT_FILE, f"data.{key}", value, source, at)
        for key in sorted(removed):
            source, at = self._origin("packageContext", "removeKeys")
            yield Origin(PACKAGE_CONTEXT_FILE, f"data.{key}", "(removed)", source, at)

    def pipeline(self) -> Iterator[Origin]:
        spec = self.variant.spec
        lists = {
            ("pipeline", "mutators"): (spec.pipeline.mutators if spec.pipeline else None) or (),
            ("pipeline", "validators"): (spec.pipeline.validators if spec.pipeline else None) or (),
        }
        present = upstream_functions([self.files])
        for path, functions in lists.items():
            for index, function in enumerate(functions):
                source, at = self._origin(*path, index)
                # Where upstream has a function of that name, it has the namespace, too.
                spellings = (f"{self.variant.key.namespace}.{self.variant.key.name}", self.variant.key.name)
                names = [function_name(text, function.name or "", index) for text in spellings]
                name = next((text for text in names if text in present), names[-1])
                yield Origin(KPTFILE, f"pipeline.{path[-1]}[{name}]", function.image or "", source, at)

    def labels(self) -> Iterator[Origin]:
        """Yield the labels and annotations of the package revision, which are in no file of the package."""
        for field in ("labels", "annotations"):
            for key, value in sorted((getattr(self.variant.spec, field) or {}).items()):
                source, at = self._origin(field, key)
                yield Origin(field, key, value, source, at)

    def injection(self) -> Iterator[Origin]:
        injectors, namespace = self.variant.spec.injectors or (), self.variant.key.namespace
        snapshot = cluster_snapshot(self.resolved, self.inventory)
        for point in find_points(self.files):
            filling = choose_source(point, injectors, snapshot, namespace)
            name = f"{point.resource.get('kind')}/{point.resource['metadata'].get('name')}"
            obj = filling.source
            if obj is None:
                yield Origin(point.file, name, "(not injected)", filling.error)
                continue
            field = injected_field(obj.api_version, obj.kind)
            source = f"object {obj.kind} {obj.namespace}/{obj.name} of the snapshot"
            yield Origin(point.file, f"{name} {field}", obj.name, source, obj.location)

    def values(self, upstream: Files) -> Iterator[Origin]:
        """Yield the values of charts, which are rendered from what `upstream` has."""
        pin = self.resolved.pin
        injected = {origin.field.partition(" ")[0]: origin for origin in self.injection()}
        for value in chart_values(upstream, self.files):
            if isinstance(value, ChartDefaults):
                source = f"defaults of chart {value.name} {value.version}, where nothing above says otherwise"
                yield Origin(value.file, "values", "", source)
                continue
            field = value.field.replace(".templateOptions.values.valuesInline.", ".values.")
            source, at = f"upstream {pin.ref}: {value.file.removesuffix(INPUT)}", None
            kind, name, path = value.copied or ("", "", "")
            if setter := self._setter(value.setter):
                source, at = setter
            elif value.copied:
                of = injected.get(f"{kind}/{name}")
                at = of.location if of else None
                where = f"{kind} {name}" if of is None else of.source
                source = f"{path} of {where}, by apply-replacements"
            elif value.changed and field.endswith((".kubeVersion", ".apiVersions")):
                source = "the snapshot of the cluster, or an edit in the package"
            elif value.changed:
                source = "an edit in the package"
            yield Origin(value.file, field, value.value, source, at)

    def changes(self, changed: Iterable[ChangedValue], values: Sequence[Origin]) -> Iterator[Origin]:
        """Yield the values of charts that change, with the origin of what they are then."""
        by_name = {re.sub(r"^helmCharts\[\d+\]\.(values|templateOptions)\.", "", o.field): o for o in values}
        defaults = [origin for origin in values if origin.field == "values"]
        pin = self.resolved.pin
        for chart_value in changed:
            name = path_text(chart_value.path)
            origin = by_name.get({"KubeVersion": "kubeVersion", "APIVersions": "apiVersions"}.get(name, name))
            source, at = f"upstream {pin.ref}", None
            if origin is not None and chart_value.kind in ("Values", "Capabilities"):
                source, at = origin.source, origin.location
            elif chart_value.kind == "Values":
                named = (d.source.partition(",")[0] for d in defaults if f" {chart_value.chart} " in d.source)
                source = next(named, source)
            yield Origin("", chart_value.name, f"{chart_value.before} -> {chart_value.after}", source, at)

    def _setter(self, comment: str) -> tuple[str, Location] | None:
        """Return the origin of the setter that a comment names, where the variant gives it."""
        pipeline = self.variant.spec.pipeline
        for index, function in enumerate((pipeline.mutators if pipeline else None) or ()):
            image = parse_image(function.image or "")
            for name in function.config_map or {} if image and image.short == "apply-setters" else ():
                if f"${{{name}}}" in comment:
                    return self._origin("pipeline", "mutators", index, "configMap", name)
        return None

    def _origin(self, *path: str | int) -> tuple[str, Location]:
        """Return the origin of a field of the variant's spec, and its location."""
        place, field = self.variant.source.written("spec", *path), path_text(path)
        if self.variant.requested_by:
            return f"required by {self.variant.requested_by[0]}", self.variant.source.location
        if self.variant.set_key is None:
            return path_text(place), self.variant.source.at("spec", *path)
        name, traced = field if place == ("spec", *path) else path_text(place), self.trace.get(field, "")
        origin = f"PackageVariantSet {self.variant.set_key}: {name}"
        where = self.variant.source.at(*self._place_in_set(path, traced))
        return f"{origin} = {traced}" if traced else origin, where

    def _place_in_set(self, path: FieldPath, traced: str) -> FieldPath:
        """Return the field of the set that gave a field; the target where that is a default.

        An expression has the location in its trace, a literal that of the same name in the template.
        """
        if path[0] == "upstream" or not self.variant.target_path:
            return ("spec", *path)
        if traced == FROM_TARGET:
            return self.variant.target_path
        expression, _, text = traced.partition(": ")
        return (*self.variant.target_path, *(_steps(expression) if text else ("template", *path)))


def _steps(field: str) -> FieldPath:
    """Return the steps of a field that was written as `template.items[0].valueExpr`."""
    steps = re.findall(r"[^.\[\]]+", field)
    return tuple(step if (number := whole_number(step)) is None else number for step in steps)
