"""Obstacles of a package: everything that keeps it from an upstream revision, with the next step. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.base.reasons import Phase, Reason
from reconciler.base.suggestions import next_step
from reconciler.base.text import Text, join_texts
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Plan
from reconciler.plan.context import PlanContext
from reconciler.plan.status import current_statuses
from reconciler.report.build import package_overviews
from reconciler.report.provenance import find_request
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

    Args:
        plan: The plan of the fleet.
        change: The change of the package.
        name: Name of the package in hints.
        version: The upstream revision (`v2`, `web/v2`), "" for the newest one.
        trace: For variants of sets, the origin of each field.
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
    is_missing = bool(version and revisions) and goal not in (*revisions, requested)
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
    """Return the numbered revisions of the upstream package, the newest last."""
    if resolved is None:
        return ()
    pin = resolved.pin
    published = (
        revision
        for view in context.inventory.views_of(pin.package.url)
        if (state := view.upstream_at(pin.package.path))
        for revision in state.published
        if revision.revision > 0
    )
    prefix = pin.ref.rpartition("/")[0] if pin.revision > 0 else pin.package.path
    return tuple(
        f"{prefix}/v{number}".lstrip("/") for number in sorted({revision.revision for revision in published})
    )


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
    if numbered and goal not in (*numbered, offered):
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
    source, location = find_request(resolved, context.inventory, trace.get(resolved.variant.key, {}))
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
