"""Rollouts of sets: what each package has and is to have, and which ones keep their revision (D20)."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import Text, time_text
from reconciler.expand.variants import Desired, DesiredVariant, set_key
from reconciler.inventory.inventory import CheckState, Inventory
from reconciler.inventory.snapshot import Snapshot
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.names.ids import ObjectName, RolloutKey
from reconciler.names.problems import Problem
from reconciler.names.refs import short_tag
from reconciler.policy.rollouts import ObjectGate, Wave, idle_approvals
from reconciler.records.state import RolloutMember, RolloutPin, RolloutRecord
from reconciler.resolve.ownership import find_pause, find_view
from reconciler.resolve.resolution import HeldBack, Pin, ResolvedVariant, WaitingVariant
from reconciler.resolve.rollout_model import (
    CLOCK_SKEW_S,
    GO,
    PAUSE,
    ROLL_BACK,
    SKIP,
    START,
    GateResult,
    Judgement,
    MemberPhase,
    MemberStatus,
    Orders,
    Rollout,
    RolloutPhase,
    Verdict,
    WavePhase,
    WaveStatus,
    judge_waves,
    listed,
    recorded_waves,
    waiting_text,
    wave_names,
)
from reconciler.resolve.rollout_records import (
    Outcome,
    RollingSet,
    bare_name,
    current_record,
    find_earlier,
    find_recorded,
    identity,
    members_now,
    names_asked,
    newcomers,
    recorded_pin,
    with_absent,
    with_joined,
    with_newcomers,
    with_values_before,
)
from reconciler.resolve.up_to_date import Values, variant_values
from reconciler.resolve.upstreams import Sources, check_pin, find_base

_PASSED = GateResult(Verdict.PASSED)


class _Publication(NamedTuple):
    """When a run first saw a package on main, the end of its soak time, and the time of this run."""

    seen: int
    soaked: int
    now: int


def gate_results(
    wave: Wave, variant: DesiredVariant, outcome: ResolvedVariant, published: int, inventory: Inventory
) -> Iterator[GateResult]:
    """Yield the result of every gate of a wave for one published package. Pure.

    An object counts in a snapshot that was taken after a run first saw the package on main and had its soak
    time: an older one tells the health of the previous revision. An object that fails counts as soon as the
    snapshot is younger than that. Only the time in snapshot.yaml counts: the commit of a snapshot may be much
    younger than what it holds.
    """
    view = inventory.repositories[outcome.view]
    publication = _Publication(published, published + wave.soak_s, inventory.now)
    words = {
        "cluster": view.cluster,
        "namespace": variant.key.namespace,
        "package": outcome.downstream.path.rpartition("/")[2],
        "repository": view.key.name,
        "variant": variant.key.name,
    }
    for gate in wave.gates.objects:
        snapshot = inventory.snapshot.of(_filled(gate.cluster, words) or view.cluster)
        yield _object_result(gate, words, snapshot, publication)
    head = (view.url, view.head.oid if view.head else "")
    passed, others = inventory.passed_checks.get(head, frozenset()), inventory.other_checks.get(head, {})
    for check in wave.gates.checks:
        if check in passed:
            yield _PASSED
        elif others.get(check) is CheckState.FAILED:
            yield GateResult(Verdict.FAILED, f"check {check} failed on {view.branch}")
        else:
            yield GateResult(Verdict.WAITING, f"check {check} has not passed on {view.branch}", seen=False)


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _object_result(
    gate: ObjectGate, words: dict[str, str], snapshot: Snapshot, publication: _Publication
) -> GateResult:
    namespace, name = _filled(gate.namespace, words), _filled(gate.name, words)
    place = f"snapshot of cluster {snapshot.cluster}" if snapshot.cluster else "snapshot"
    if not snapshot.present:
        return GateResult(Verdict.WAITING, f"there is no {place}", seen=False)
    if why := _untimely(snapshot.taken, publication):
        return GateResult(Verdict.WAITING, f"the {place} {why}", seen=False)
    objects = [
        item
        for item in snapshot.of_kind(gate.api_version, gate.kind)
        if item.name == name and item.namespace == namespace
    ]
    if not objects:
        where = "/".join(part for part in (namespace, name) if part)
        return GateResult(Verdict.WAITING, f"the {place} has no {gate.kind} {where}", seen=False)
    health = object_health(objects[0].body)
    if health.result is Verdict.PASSED and (snapshot.taken or 0) < publication.soaked:
        due = time_text(publication.soaked)
        return GateResult(Verdict.WAITING, f"the {place} is from before the end of the soak time, {due}")
    return health


def _untimely(taken: int | None, publication: _Publication) -> str:
    """Return why a snapshot does not count for a published package, "" if it does."""
    if taken is None:
        return "does not tell when it was taken: import it with `reconciler snapshot import`"
    if taken > publication.now + CLOCK_SKEW_S:
        return f"claims to be from {time_text(taken)}, which is in the future: import it again"
    if taken <= publication.seen:
        return f"is not newer than the package on main, seen there since {time_text(publication.seen)}"
    return ""


_FAILING = frozenset({"Degraded", "Missing"})


def object_health(body: Mapping[str, Any]) -> GateResult:
    """Return the health of an object. Total: what its status does not tell is waited for.

    Source: Argo CD's `status.health` and `status.sync`; kstatus of sigs.k8s.io/cli-utils for all others.
    """
    status, metadata = mapping_at(body, "status"), mapping_at(body, "metadata")
    parts = (metadata.get("namespace"), metadata.get("name"))
    name = f"{body.get('kind')} {'/'.join(str(part) for part in parts if part)}"
    if not status:
        return GateResult(Verdict.WAITING, f"{name} has no status in the snapshot")
    if body.get("kind") == "Application":
        return _application(name, status)
    # A controller that has not seen the newest generation tells about the former one.
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    if isinstance(generation, int) and isinstance(observed, int) and observed < generation:
        return GateResult(Verdict.WAITING, f"{name} has a change that its controller has not seen")
    if str(body.get("apiVersion")).startswith("apps/"):
        return _workload(name, body, status)
    return _ready(name, _conditions(status))


def _application(name: str, status: Mapping[str, Any]) -> GateResult:
    health, sync = (str(value_at(status, key, "status") or "") for key in ("health", "sync"))
    if health in _FAILING:
        why = str(value_at(status, "health", "message") or "")
        return GateResult(Verdict.FAILED, _because(f"{name} is {health}", why))
    if health != "Healthy":
        return GateResult(Verdict.WAITING, f"{name} is {health or 'of unknown health'}")
    # Healthy alone may be about the former revision: Argo CD judges what runs, not what is in Git.
    return _PASSED if sync == "Synced" else GateResult(Verdict.WAITING, f"{name} is {sync or 'not synced'}")


def _ready(name: str, conditions: Mapping[str, Mapping[str, Any]]) -> GateResult:
    """Return the health by the condition Ready, as Flux's controllers write it."""
    ready = conditions.get("Ready")
    if ready is None:
        return GateResult(Verdict.WAITING, f"{name} has no condition Ready")
    if ready.get("status") == "True":
        return _PASSED
    text = _because(f"{name} is not ready", str(ready.get("message") or ready.get("reason") or ""))
    is_busy = conditions.get("Reconciling", {}).get("status") == "True" or ready.get("status") != "False"
    # kstatus: Reconciling is progress, and Stalled is a failure whatever else is there.
    stalled = conditions.get("Stalled", {}).get("status") == "True"
    return GateResult(Verdict.WAITING if is_busy and not stalled else Verdict.FAILED, text)


def _workload(name: str, body: Mapping[str, Any], status: Mapping[str, Any]) -> GateResult:
    progressing = _conditions(status).get("Progressing", {})
    # After spec.progressDeadlineSeconds the controller goes on trying: this condition alone tells it.
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        text = _because(f"{name} does not progress", str(progressing.get("message") or ""))
        return GateResult(Verdict.FAILED, text)
    # A DaemonSet has no spec.replicas: nodes decide, and its status counts under other names.
    is_daemon = body.get("kind") == "DaemonSet"
    desired = value_at(body, "spec", "replicas", default=1)
    desired = status.get("desiredNumberScheduled", 0) if is_daemon else desired
    updated = status.get("updatedNumberScheduled" if is_daemon else "updatedReplicas", 0)
    ready = status.get("numberReady" if is_daemon else "readyReplicas", 0)
    if all(isinstance(count, int) for count in (desired, updated, ready)) and min(updated, ready) >= desired:
        return _PASSED
    text = f"{name} has {ready} of {desired} replicas ready and {updated} updated"
    return GateResult(Verdict.WAITING, text)


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("type")): item for item in mappings_at(status, "conditions")}


def _because(text: str, why: str) -> str:
    first = why.strip().splitlines()[0].rstrip(".") if why.strip() else ""
    return f"{text}: {first}" if first else text


class KeptPin(NamedTuple):
    """Pin that a variant gets in place of the one that it asks for, None for none yet, and why.

    `values` are those that it gets in place of its own, None if they are unknown. `location` is that of the
    order that decides it, if one does.
    """

    pin: Pin | None
    why: Text
    values: Values | None
    location: Location | None = None


class Rollouts(Struct, frozen=True):
    """The rollouts of a run, what they keep from their variants, and what is wrong with their orders."""

    rollouts: tuple[Rollout, ...] = ()
    kept_pins: Mapping[ObjectName, KeptPin] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def find_rollouts(
    outcomes: Mapping[ObjectName, Outcome], desired: Desired, inventory: Inventory, sources: Sources
) -> Rollouts:
    """Return the rollouts of every set with a policy, and what they hold. Pure and order-free.

    A rollout starts when a package of the set is to get another upstream revision, and its targets are those
    of that moment. Another revision takes its place at once and starts at the first wave. One that ended
    stays so: only targets that it never had move through the waves, for themselves.
    """
    if not inventory.policy.rollouts:
        return Rollouts()
    rollouts: list[Rollout] = []
    kept_pins: dict[ObjectName, KeptPin] = {}
    problems = [*idle_approvals(inventory.policy.rollouts, inventory.policy.config_path)]
    notes: list[str] = []
    every = [(r, current_record(r)) for r in _sets(outcomes, desired, inventory, sources)]
    # How people may call the revisions of all upstreams, for each set that has several.
    named: dict[ObjectName, set[str]] = {}
    for rolling, record in every:
        if rolling.upstream:
            named.setdefault(rolling.declared.key, set()).update(_revisions(rolling, record))
    for rolling, record in every:
        wrong, idle = _check_orders(rolling, record, named.get(rolling.declared.key, ()))
        seen = {(problem.location, problem.message) for problem in problems}
        problems += (problem for problem in wrong if (problem.location, problem.message) not in seen)
        notes += idle
        if record is None:
            continue
        pause = "an order of its set is not understood" if wrong else ""
        judged = _rollout(rolling, record, pause)
        if joined := with_joined(rolling, judged.rollout):
            judged = _rollout(rolling, joined, pause)
        if judged.rollout.record.finished and newcomers(rolling, judged.rollout.waves_of):
            # In the same run, or the next one would have something to do that this one knew.
            judged = _rollout(rolling, with_newcomers(rolling, judged.rollout.record), pause)
        moved = with_values_before(rolling, with_absent(rolling, judged.rollout.record))
        rollouts.append(replace(judged.rollout, record=moved))
        kept_pins |= judged.kept_pins
        problems += judged.problems
    ordered = sorted(rollouts, key=lambda rollout: rollout.key)
    return Rollouts(tuple(ordered), kept_pins, tuple(problems), tuple(sorted(notes)))


def _sets(
    outcomes: Mapping[ObjectName, Outcome], desired: Desired, inventory: Inventory, sources: Sources
) -> Iterator[RollingSet]:
    policies = [
        (compile_selector(LabelSelector.model_validate(policy.selector)), policy)
        for policy in inventory.policy.rollouts
    ]
    variants: dict[ObjectName, dict[ObjectName, DesiredVariant]] = {}
    for variant in desired.variants:
        if variant.set_key is not None:
            variants.setdefault(variant.set_key, {})[variant.key] = variant
    for declared in inventory.sets:
        labels = declared.manifest.metadata.labels or {}
        policy = next((policy for selects, policy in policies if selects(labels)), None)
        if policy is None:
            continue
        by_upstream: dict[str, dict[ObjectName, DesiredVariant]] = {}
        for key, variant in variants.get(declared.key, {}).items():
            upstream = variant.spec.upstream if declared.manifest.spec.upstreams is not None else None
            name = ((upstream and upstream.package) or "").strip("/")
            by_upstream.setdefault(name, {})[key] = variant
        for name, own_variants in by_upstream.items():
            own_outcomes = {key: outcomes[key] for key in own_variants if key in outcomes}
            recorded = inventory.rollouts.get(RolloutKey(*declared.key, name))
            yield RollingSet(
                declared,
                policy,
                own_variants,
                own_outcomes,
                inventory,
                sources,
                values={key: variant_values(variant) for key, variant in own_variants.items()},
                members=members_now(recorded, own_variants, inventory) if recorded else {},
                upstream=name,
            )


def _orders(rolling: RollingSet, record: RolloutRecord, pause: str) -> Orders:
    """Return what the annotations of the set order for the revision that travels."""
    notes, revision = rolling.annotations, record.revision
    waves = {
        name: frozenset(wave for of, wave in _named(notes.get(name, "")) if of == revision)
        for name in (GO, SKIP, START)
    }
    return Orders(
        revision=revision,
        pause=pause or ("paused" if notes.get(PAUSE) == "true" else ""),
        go=waves[GO],
        started=waves[START],
        skipped=waves[SKIP],
    )


def _named(text: str) -> list[tuple[str, str]]:
    parts = (part.strip().rpartition("/") for part in text.split(";"))
    return [(revision, wave) for revision, _, wave in parts if revision]


def _check_orders(
    rolling: RollingSet, record: RolloutRecord | None, named_by_set: Container[str]
) -> tuple[list[Problem], list[str]]:
    """Return the problems of orders with a revision or wave that does not exist, and notes on idle ones.

    An order for an earlier revision is over, and no problem. Nor is one for another upstream of the set.
    """
    current = record.revision if record else names_asked(rolling)[0]
    if not current:
        return [], []
    waves = dict.fromkeys([*(record.waves if record else ()), *wave_names(rolling.policy.waves)])
    revisions = _revisions(rolling, record)
    problems, notes = [], []
    named = [(ROLL_BACK, ordered, "") for ordered in rolling.taken_back]
    for name in (GO, SKIP, START):
        named += ((name, *pair) for pair in _named(rolling.annotations.get(name, "")))
    for name, revision, wave in named:
        written = f"{revision}/{wave}" if wave else revision
        example = f"{current}/{wave if wave in waves else next(iter(waves))}" if wave else current
        # A tag that moved adds its commit to the name of the revision: orders may have either.
        if revisions.isdisjoint({revision, bare_name(revision)}):
            if revision in named_by_set or bare_name(revision) in named_by_set:
                continue
            message = f"{name} names {written}, and no revision of the set is called {revision}"
            hint = f'The rollout of {rolling.key} brings {current}: write "{example}".'
            if wave and "," in revision:
                hint = f"{hint} Separate several with semicolons."
        elif wave and revision == current and wave not in waves:
            message = f"{name} names {written}, and no wave is called {wave}"
            hint = suggest(wave, waves)
        else:
            if not wave and revision != current:
                notes.append(
                    f"{name} of PackageVariantSet {rolling.declared.key} has no effect: it names {revision}, "
                    f"and the rollout brings {current}. Name that to take it back; for an earlier revision "
                    f"set it in the set's upstream"
                )
            continue
        problem = Problem(rolling.located(name), Reason.INVALID_ANNOTATION, message, hint)
        problems.append(problem.owned_by(set_key(rolling.declared.key)))
    return problems, notes


def _revisions(rolling: RollingSet, record: RolloutRecord | None) -> set[str]:
    """Return how people may call the revisions of the set's upstreams, up to the present one."""
    targets = [target for target in map(rolling.asks_for, rolling.variants) if target is not None]
    names = {record.revision, bare_name(record.revision)} if record else set()
    for target in targets:
        names |= {target.label, target.ref}
        for view in rolling.inventory.views_of(target.package.url):
            package = view.packages.get(target.package.path)
            for published in package.published if package else ():
                if target.revision <= 0 or published.revision <= target.revision:
                    names.add(short_tag(published.ref))
            # What is no numbered revision may be any tag or branch of the repository.
            names |= {*view.tags, *view.branches, view.branch} if target.revision <= 0 else set()
    members = record.members if record else ()
    return names | {member.before.ref for member in members if member.before is not None}


def _members(rolling: RollingSet, record: RolloutRecord) -> Iterator[tuple[RolloutMember, MemberStatus]]:
    """Yield the members with their status, each as this run records it."""
    by_name = {wave.name: wave for wave in rolling.policy.waves}
    for recorded in record.members:
        member, is_ended = recorded, recorded.ended or record.finished
        status = _status(rolling, member)._replace(ended=is_ended)
        wave, outcome = by_name.get(member.wave), rolling.outcomes.get(member.key)
        is_published = status.phase is MemberPhase.PUBLISHED and not is_ended
        if is_published and isinstance(outcome, ResolvedVariant):
            variant = rolling.variants[member.key]
            results: tuple[GateResult, ...] = ()
            if wave is not None:
                results = tuple(gate_results(wave, variant, outcome, member.published, rolling.inventory))
            failure = next((gate.message for gate in results if gate.result is Verdict.FAILED), "")
            if not failure and not all(gate.seen for gate in results):
                failure = str(status.failure)  # what nobody sees is no better than it was
            member = replace(member, failed="unhealthy" if failure else "", why=failure)
            status = status._replace(gates=results, failure=failure)
        yield member, status


_FAILED = {"closed": MemberPhase.REFUSED, "reverted": MemberPhase.REVERTED}


def _status(rolling: RollingSet, member: RolloutMember) -> MemberStatus:
    key = member.key
    name, outcome = rolling.name(key), rolling.outcomes.get(key)
    status = MemberStatus(key, name, MemberPhase.WAITING, member.published)
    if member.failed in _FAILED:
        return status._replace(phase=_FAILED[member.failed], failure=member.why)
    view = find_view(rolling.variants[key], rolling.inventory)
    if not (isinstance(outcome, ResolvedVariant) or (isinstance(outcome, WaitingVariant) and outcome.target)):
        why = outcome.why if isinstance(outcome, WaitingVariant) else "its variant is stalled"
        if view is not None and not view.is_available:
            why = "its repository could not be read"
        return status._replace(phase=MemberPhase.UNKNOWN, why=why, failure=member.why)
    if rolling.is_at_target(key):
        return status._replace(phase=MemberPhase.PUBLISHED, failure=member.why)
    why = find_pause(view, rolling.variants[key], rolling.inventory) if view else ""
    why = why or (outcome.moved if isinstance(outcome, ResolvedVariant) else "")
    phase = MemberPhase.IN_REVIEW if rolling.has_draft(key) else MemberPhase.WAITING
    return status._replace(phase=phase, published=0, why=why[:1].lower() + why[1:])


class _Judged(NamedTuple):
    rollout: Rollout
    kept_pins: Mapping[ObjectName, KeptPin]
    problems: Sequence[Problem] = ()


def _rollout(rolling: RollingSet, record: RolloutRecord, pause: str) -> _Judged:
    if record.revision and record.revision in rolling.taken_back:
        return _rolled_back(rolling, record)
    orders = _orders(rolling, record, pause)
    members = list(_members(rolling, record))
    waves = recorded_waves(record.waves, rolling.policy.waves)
    statuses = [(member.wave, status) for member, status in members]
    judged = judge_waves(waves, statuses, orders, rolling.inventory.now)
    # A pause holds what a skipped wave would let go on, until it ends.
    pauses = orders.pause and any(status.phase is not MemberPhase.PUBLISHED for _, status in statuses)
    is_over = record.finished or (judged.current is None and not pauses)
    record = replace(record, members=tuple(member for member, _ in members), finished=is_over)
    phase = RolloutPhase.PAUSED if orders.pause else RolloutPhase.PROGRESSING
    phase = RolloutPhase.COMPLETE if is_over else RolloutPhase.FAILED if judged.failed else phase
    head = f"Rollout {record.revision} of {rolling.key.name}"
    rejected = frozenset(status.key for _, status in statuses if status.phase is MemberPhase.REVERTED)
    why: dict[ObjectName, Text] = {}
    for wave, status in statuses:
        outcome = rolling.outcomes.get(status.key)
        # After its tag moved it waits for consent first.
        has_moved_tag = isinstance(outcome, ResolvedVariant) and bool(outcome.moved)
        if status.key in rejected:
            why[status.key] = f"{head}: {status.failure}"
        elif status.phase is MemberPhase.WAITING and not (status.key in judged.moving or has_moved_tag):
            why[status.key] = _waiting_reason(head, judged, orders, wave)
    waves_of = {member.key: member.wave for member in record.members}
    newer = f"Its target is newer than rollout {record.revision} of {rolling.key.name}, and moves after it"
    why |= dict.fromkeys(newcomers(rolling, waves_of), newer)
    rollout = Rollout(
        key=rolling.key,
        phase=phase,
        record=record,
        waves=judged.waves,
        staying=why,
        rejected=rejected,
        stopped=dict(_stopped(head, judged, orders)) if not is_over else {},
        waves_of=waves_of,
    )
    before = {member.key: member.before for member in record.members}
    pins = {key: _kept_pin(rolling, key, before.get(key), text) for key, text in why.items()}
    return _Judged(rollout, pins)


def _kept_pin(
    rolling: RollingSet,
    key: ObjectName,
    before: RolloutPin | None,
    why: Text,
    location: Location | None = None,
) -> KeptPin:
    """Return what a package has, or, where it joined and there is none yet, what the others had before."""
    base, values = rolling.base(key), rolling.main_values(key)
    if base is not None or before is None:
        return KeptPin(base, why, values, location)
    pin, values = find_recorded(rolling, before), rolling.values_before(before)
    is_good = pin is not None and isinstance(check_pin(pin, rolling.variants[key], rolling.inventory), Pin)
    return KeptPin(pin if is_good else None, why, rolling.values[key] if values is None else values, location)


def _waiting_reason(head: str, judged: Judgement, orders: Orders, wave: str) -> str:
    current = judged.current
    if current is not None and current.name != wave:
        reached = next((status for status in judged.waves if status.name == wave), None)
        if reached is not None and not reached.is_passed:
            return f"{head}: wave {wave} {waiting_text(current)}"
    if judged.failed is not None:
        return f"{head}: stopped: wave {judged.failed.name} failed"
    if orders.pause:
        return f"{head}: {orders.pause}"
    if current is not None and current.asks:
        return f"{head}: wave {wave} {current.message}"
    return f"{head}: wave {wave} has as many packages in review as its maxOpen allows"


def _stopped(head: str, judged: Judgement, orders: Orders) -> Iterator[tuple[ObjectName, str]]:
    """Yield the packages in review that must not be merged by policy, with why."""
    for wave in judged.waves:
        if judged.failed is not None:
            why = f"{head} is stopped: wave {judged.failed.name} failed"
        elif orders.pause:
            why = f"{head} is paused" if orders.pause == "paused" else f"{head}: {orders.pause}"
        elif wave.phase is WavePhase.WAITING:
            why = f"{head}: wave {wave.name} {wave.message}"
        else:
            continue
        yield from ((m.key, why) for m in wave.members if m.phase is MemberPhase.IN_REVIEW)


def _rolled_back(rolling: RollingSet, record: RolloutRecord) -> _Judged:
    """Return a rollout on its way back: every package gets the revision that it had before."""
    kept_pins: dict[ObjectName, KeptPin] = {}
    members: list[RolloutMember] = []
    problems: list[Problem] = []
    by_wave: dict[str, list[MemberStatus]] = {}
    head, at = f"Rollout {record.revision} of {rolling.key.name} is rolled back", rolling.located(ROLL_BACK)
    for recorded in record.members:
        # Going forward again starts anew: what is back now was not reverted by anybody else.
        member = replace(recorded, published=0, failed="", why="", ended=False)
        pin, values, why = _way_back(rolling, record, member)
        status, outcome = _status(rolling, member), rolling.outcomes.get(member.key)
        if isinstance(why, Problem):
            problems.append(why)
            why = why.message
        if isinstance(outcome, ResolvedVariant | WaitingVariant):
            kept_pins[member.key] = KeptPin(pin, f"{head}; {why}" if why else head, values, at)
        by_wave.setdefault(member.wave, []).append(status._replace(why=why or status.why))
        if member.before is None and pin is not None and not why:
            member = replace(member, before=recorded_pin(pin, values))
        members.append(member)
    waves_of = {member.key: member.wave for member in members}
    for key in newcomers(rolling, waves_of):
        kept_pins[key] = _kept_pin(rolling, key, None, head, at)
    waves = (
        WaveStatus(name, WavePhase.ROLLED_BACK, tuple(by_wave[name]), _way_back_text(by_wave[name]))
        for name in record.waves
        if name in by_wave
    )
    rollout = Rollout(
        key=rolling.key,
        phase=RolloutPhase.ROLLED_BACK,
        record=replace(record, members=tuple(members), finished=False),
        waves=tuple(waves),
        staying={key: kept_pin.why for key, kept_pin in kept_pins.items()},
        waves_of=waves_of,
    )
    return _Judged(rollout, kept_pins, problems)


def _way_back(
    rolling: RollingSet, record: RolloutRecord, member: RolloutMember
) -> tuple[Pin | None, Values | None, Text | Problem]:
    """Return the revision and values from before the rollout, or the present ones and why the package stays.

    What no run saw is read from the history of main, which tells no values.
    """
    outcome, name, before = rolling.outcomes.get(member.key), rolling.name(member.key), member.before
    base, values = rolling.base(member.key), rolling.main_values(member.key)
    if not isinstance(outcome, ResolvedVariant) or not rolling.is_at_target(member.key):
        present = _kept_pin(rolling, member.key, before, "")
        return present.pin, present.values, ""
    earlier = rolling.inventory.earlier.get(outcome.downstream)
    if before is None and earlier is None:
        before = find_earlier(record)
    if before is None and earlier is None:
        return base, values, f"{name} was made by it and stays until its target goes"
    pin = find_recorded(rolling, before) if before else None
    if pin is None and earlier is not None:
        pin = find_base(earlier, outcome.pin, None, rolling.inventory, rolling.sources)[0]
    values_before = rolling.values_before(before) if before else None
    is_revision = pin is not None and identity(pin) != identity(rolling.asks_for(member.key))
    if pin is None or not (is_revision or values_before is not None):
        lock = earlier.upstream_lock if earlier else None
        ref = before.ref if before else lock.ref if lock else "the revision"
        what = ref if pin is None else "the values"
        message = f"{what}, which {name} had before {record.revision}, cannot be found, so it stays as it is"
        hint = "Push that revision again, or ask for another one in the set."
        hint = hint if pin is None else "Write the earlier values into the set."
        problem = Problem(rolling.located(ROLL_BACK), Reason.UPSTREAM_NOT_FOUND, message, hint)
        return base, values, problem.owned_by(rolling.variants[member.key].owner)
    checked = check_pin(pin, rolling.variants[member.key], rolling.inventory)
    if isinstance(checked, Problem):
        return base, values, replace(checked, location=rolling.located(ROLL_BACK))
    return pin, values if values_before is None else values_before, ""


def _way_back_text(members: Iterable[MemberStatus]) -> str:
    there = [m for m in members if m.phase in {MemberPhase.PUBLISHED, MemberPhase.UNKNOWN}]
    still_there = sum(not member.why for member in there)
    staying = [f"{member.name}: {member.why}" for member in there if member.why]
    texts = [f"{still_there} still to be rolled back"] if still_there else []
    texts += [f"{len(staying)} cannot go back ({listed(staying)})"] if staying else []
    return ", ".join(texts)


def with_kept_pin(outcome: Outcome, pin: KeptPin, resolved: Outcome) -> Outcome:
    """Return the outcome of a variant that stays: resolved at its kept pin, or waiting for a first one."""
    target = outcome.requested if isinstance(outcome, ResolvedVariant) else None
    if isinstance(outcome, WaitingVariant):
        target = outcome.target
    if pin.pin is not None and isinstance(resolved, ResolvedVariant):
        held = HeldBack(target, pin.why, pin.location, is_guess=pin.values is None)
        return replace(resolved, held_back=held)
    if isinstance(outcome, ResolvedVariant | WaitingVariant):
        return WaitingVariant(outcome.variant, outcome.offers, pin.why, target)
    return outcome
