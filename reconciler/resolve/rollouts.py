"""Rollouts of sets: what each package has and is to have, and which ones keep their revision (D20)."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.meta import LabelSelector
from reconciler.base.errors import Problem
from reconciler.expand.selectors import compile_selector
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.inventory.inventory import Inventory, PackageState, PullState, RepositoryView
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.refs import short_branch
from reconciler.policy import RolloutPolicy
from reconciler.records.state import UNTIMED, RolloutMember, RolloutPin, RolloutRecord
from reconciler.resolve.gates import gate_results
from reconciler.resolve.merge_bases import find_commit
from reconciler.resolve.ownership import find_view
from reconciler.resolve.resolution import Pin, ResolvedVariant, WaitingVariant
from reconciler.resolve.rollout_model import (
    GO,
    PAUSE,
    ROLL_BACK,
    SKIP,
    MemberPhase,
    MemberStatus,
    Orders,
    Rollout,
    RolloutPhase,
    WavePhase,
    WaveStatus,
)
from reconciler.resolve.waves import (
    Judgement,
    assign_waves,
    judge_waves,
    recorded_waves,
    waiting_text,
    wave_names,
)

Outcome = ResolvedVariant | WaitingVariant | tuple[Problem, ...]
"""Outcome of one variant: resolved, waiting for its pin, or stalled with its problems."""

CLUSTER_LABEL = "reconciler.dev/cluster"
"""The label by which a wave may select the cluster of a Repository."""


class Hold(NamedTuple):
    """Pin that a variant gets in place of the one that it asks for, None for none yet, and why."""

    pin: Pin | None
    why: str


class Rollouts(Struct, frozen=True):
    """The rollouts of a run, and what they keep from their variants."""

    rollouts: tuple[Rollout, ...] = ()
    holds: Mapping[ObjectName, Hold] = field(default_factory=dict)


class _Set(Struct, frozen=True):
    """One set with a policy: its variants, their outcomes, and its orders."""

    key: ObjectName
    policy: RolloutPolicy
    annotations: Mapping[str, str]
    variants: Mapping[ObjectName, DesiredVariant]
    outcomes: Mapping[ObjectName, Outcome]
    inventory: Inventory

    def asks_for(self, key: ObjectName) -> Pin | None:
        """Return the pin that a variant asks for; None if it has none."""
        outcome = self.outcomes.get(key)
        if isinstance(outcome, WaitingVariant):
            return outcome.target
        return outcome.requested if isinstance(outcome, ResolvedVariant) else None

    def base(self, key: ObjectName) -> Pin | None:
        """Return the pin that main has; None if it has none, or another than ours."""
        outcome = self.outcomes.get(key)
        return outcome.base if isinstance(outcome, ResolvedVariant) else None

    def is_at_target(self, key: ObjectName) -> bool:
        """Tell whether main has what a variant asks for."""
        return _identity(self.base(key)) == _identity(self.asks_for(key)) != ""


def find_rollouts(outcomes: Mapping[ObjectName, Outcome], desired: Desired, inventory: Inventory) -> Rollouts:
    """Return the rollouts of every set with a policy, and what they hold. Pure and order-free.

    A rollout starts when a package of the set is to get another upstream revision, and its targets are those
    of that moment. Another revision takes its place at once and starts at the first wave.
    """
    if not inventory.policy.rollouts:
        return Rollouts()
    rollouts: list[Rollout] = []
    holds: dict[ObjectName, Hold] = {}
    for rolling in _sets(outcomes, desired, inventory):
        record = _current_record(rolling)
        if record is None:
            continue
        rollout, own = _rollout(rolling, record)
        if rollout.record.finished and _newcomers(rolling, rollout.waves_of):
            # In the same run, or the next one would have something to do that this one knew.
            rollout, own = _rollout(rolling, _new_record(rolling, rollout.record))
        rollouts.append(rollout)
        holds |= own
    return Rollouts(tuple(sorted(rollouts, key=lambda rollout: rollout.key)), holds)


def _sets(outcomes: Mapping[ObjectName, Outcome], desired: Desired, inventory: Inventory) -> Iterator[_Set]:
    policies = [
        (compile_selector(LabelSelector.model_validate(policy.selector)), policy)
        for policy in inventory.policy.rollouts
    ]
    variants: dict[ObjectName, dict[ObjectName, DesiredVariant]] = {}
    for variant in desired.variants:
        if variant.set_key is not None:
            variants.setdefault(variant.set_key, {})[variant.key] = variant
    for declared in inventory.sets:
        metadata = declared.manifest.metadata
        policy = next((policy for selects, policy in policies if selects(metadata.labels or {})), None)
        own = variants.get(declared.key)
        if policy is not None and own:
            own_outcomes = {key: outcomes[key] for key in own if key in outcomes}
            yield _Set(declared.key, policy, metadata.annotations or {}, own, own_outcomes, inventory)


def _identity(pin: Pin | None) -> str:
    """Return what tells one upstream revision from another: a branch that moves elsewhere is the same."""
    if pin is None:
        return ""
    return f"{pin.package.path}@{pin.ref if pin.revision > 0 else ''} {pin.tree}"


# Records


def _current_record(rolling: _Set) -> RolloutRecord | None:
    """Return the record of the rollout that is on its way: the recorded one, or that of a new rollout."""
    old = rolling.inventory.rollouts.get(rolling.key)
    old = old if old is not None and _is_current(rolling, old) else None
    if old is not None:
        now = _observation_time(rolling, old)
        members = tuple(
            _observed(rolling, member, now) for member in old.members if member.key in rolling.variants
        )
        old = old.model_copy(update={"members": members})
        if not old.finished or _orders(rolling, old).is_rolled_back:
            return old
    if any(_differs(rolling, key) for key in rolling.variants):
        return _new_record(rolling, old)
    return old


def _is_current(rolling: _Set, record: RolloutRecord) -> bool:
    """Tell whether the set still asks for what the recorded rollout brings."""
    pairs = ((member.target, _identity(rolling.asks_for(member.key))) for member in record.members)
    return all(not before or not now or before == now for before, now in pairs)


def _differs(rolling: _Set, key: ObjectName) -> bool:
    return rolling.asks_for(key) is not None and not rolling.is_at_target(key)


def _newcomers(rolling: _Set, listed: Container[ObjectName]) -> list[ObjectName]:
    return [key for key in sorted(rolling.variants) if key not in listed and _differs(rolling, key)]


def _new_record(rolling: _Set, old: RolloutRecord | None) -> RolloutRecord:
    """Return the record of a rollout that starts now.

    Of one that brings the same revision to further targets, what packages had before, and when runs saw them
    published, stays recorded.
    """
    places = assign_waves(rolling.policy.waves, {key: _labels(rolling, key) for key in rolling.variants})
    targets = [target for key in sorted(rolling.variants) if (target := rolling.asks_for(key)) is not None]
    before = {key: _recorded_pin(rolling.base(key)) for key in rolling.variants}
    before |= {member.key: member.before for member in old.members} if old else {}
    published = {m.key: m.published for m in old.members if rolling.is_at_target(m.key)} if old else {}
    members = (
        RolloutMember(
            namespace=key.namespace,
            name=key.name,
            wave=wave,
            before=before[key],
            published=published.get(key, 0),
        )
        for key, wave in places.items()
    )
    now = _observation_time(rolling, old)
    return RolloutRecord(
        namespace=rolling.key.namespace,
        name=rolling.key.name,
        revision=old.revision if old else ", ".join(sorted({target.label for target in targets})),
        waves=tuple(name for name in wave_names(rolling.policy.waves) if name in places.values()),
        members=tuple(_observed(rolling, member, now) for member in members),
    )


def _labels(rolling: _Set, key: ObjectName) -> Mapping[str, str]:
    view = find_view(rolling.variants[key], rolling.inventory)
    if view is None:
        return {}
    return {**(view.manifest.metadata.labels or {}), CLUSTER_LABEL: view.cluster}


def _recorded_pin(pin: Pin | None) -> RolloutPin | None:
    if pin is None:
        return None
    return RolloutPin(
        repository=pin.repository, package=pin.name, ref=pin.ref, commit=pin.commit.oid, tree=pin.tree
    )


def _observation_time(rolling: _Set, old: RolloutRecord | None) -> int:
    """Return the time under which this run records what it is the first to see."""
    if not rolling.policy.uses_time:
        return UNTIMED
    # Never earlier than the record: a clock that was set back does not end a soak time early.
    return max([rolling.inventory.now, *(member.published for member in (old.members if old else ()))])


def _observed(rolling: _Set, member: RolloutMember, now: int) -> RolloutMember:
    """Return a member with its target, and with the time of the run that first saw it on main (D27).

    The dates of commits do not count: they are whatever their authors write, and a fast-forward merge has the
    date of the draft.
    """
    target = member.target or _identity(rolling.asks_for(member.key))
    published = member.published
    if rolling.is_at_target(member.key):
        published = published if published > UNTIMED else now
    elif published and isinstance(rolling.outcomes.get(member.key), ResolvedVariant):
        published = UNTIMED
    return member.model_copy(update={"target": target, "published": published})


def _place(rolling: _Set, outcome: object) -> tuple[RepositoryView, PackageState] | None:
    if not isinstance(outcome, ResolvedVariant):
        return None
    view, path = rolling.inventory.repositories[outcome.view], outcome.downstream.path
    return view, view.packages.get(path, PackageState(path))


# Orders


def _orders(rolling: _Set, record: RolloutRecord) -> Orders:
    """Return what the annotations of the set order for the revision that travels."""
    notes = rolling.annotations
    return Orders(
        revision=record.revision,
        is_paused=notes.get(PAUSE) == "true",
        go=_waves(notes.get(GO, ""), record.revision),
        skipped=_waves(notes.get(SKIP, ""), record.revision),
        is_rolled_back=bool(record.revision) and notes.get(ROLL_BACK, "").strip() == record.revision,
    )


def _waves(text: str, revision: str) -> frozenset[str]:
    """Return the waves that an annotation names for this revision; those of other revisions are over."""
    prefix = f"{revision}/"
    names = (part.strip() for part in text.split(";"))
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))


# Members


def _members(rolling: _Set, record: RolloutRecord) -> Iterator[tuple[str, MemberStatus]]:
    by_name = {wave.name: wave for wave in rolling.policy.waves}
    for recorded in record.members:
        member = _member(rolling, recorded)
        wave = by_name.get(recorded.wave)
        outcome = rolling.outcomes.get(recorded.key)
        is_published = member.phase is MemberPhase.PUBLISHED
        if wave is not None and is_published and isinstance(outcome, ResolvedVariant):
            variant = rolling.variants[recorded.key]
            results = gate_results(wave, variant, outcome, member.published, rolling.inventory)
            member = member._replace(gates=tuple(results))
        yield recorded.wave, member


def _member(rolling: _Set, recorded: RolloutMember) -> MemberStatus:
    key = recorded.key
    outcome = rolling.outcomes.get(key)
    place = _place(rolling, outcome)
    name = _member_name(rolling, key)
    if place is None and not (isinstance(outcome, WaitingVariant) and outcome.target):
        return MemberStatus(key, name, MemberPhase.UNKNOWN, why=_unknown_text(rolling, key))
    if rolling.is_at_target(key):
        return MemberStatus(key, name, MemberPhase.PUBLISHED, recorded.published)
    draft, draft_base = _draft(outcome)
    if draft is not None and _identity(draft_base) == _identity(rolling.asks_for(key)):
        return _in_review(rolling, key, name, short_branch(draft))
    if recorded.published:
        return MemberStatus(key, name, MemberPhase.REVERTED, why="main has another revision again")
    return MemberStatus(key, name, MemberPhase.WAITING)


def _draft(outcome: Outcome | None) -> tuple[str | None, Pin | None]:
    if isinstance(outcome, ResolvedVariant) and outcome.draft is not None:
        return outcome.draft.ref, outcome.draft_base
    return None, None


def _in_review(rolling: _Set, key: ObjectName, name: str, head: str) -> MemberStatus:
    place = _place(rolling, rolling.outcomes.get(key))
    mine = rolling.inventory.pulls_of(place[0].url).at(head) if place else ()
    newest = max(mine, key=lambda pull: (pull.state is PullState.OPEN, pull.number), default=None)
    if newest is not None and newest.state is PullState.CLOSED:
        return MemberStatus(key, name, MemberPhase.REFUSED, why=f"pull request {newest.number} was closed")
    return MemberStatus(key, name, MemberPhase.IN_REVIEW)


def _member_name(rolling: _Set, key: ObjectName) -> str:
    downstream = rolling.variants[key].spec.downstream
    return f"{downstream.repo}/{downstream.package}" if downstream else key.name


def _unknown_text(rolling: _Set, key: ObjectName) -> str:
    outcome, view = rolling.outcomes.get(key), find_view(rolling.variants[key], rolling.inventory)
    if isinstance(outcome, WaitingVariant):
        return outcome.why
    if view is not None and not view.is_available:
        return "its repository could not be read"
    return "its variant is stalled"


# Holds


def _rollout(rolling: _Set, record: RolloutRecord) -> tuple[Rollout, dict[ObjectName, Hold]]:
    orders = _orders(rolling, record)
    members = tuple(_members(rolling, record))
    waves_of = {member.key: member.wave for member in record.members}
    if orders.is_rolled_back:
        return _rolled_back(rolling, record, members, waves_of)
    judged = judge_waves(
        recorded_waves(record.waves, rolling.policy.waves), members, orders, rolling.inventory.now
    )
    is_over = judged.current is None
    record = record.model_copy(update={"finished": is_over or record.finished})
    phase = _rollout_phase(judged, orders) if not record.finished else RolloutPhase.COMPLETE
    why = {
        member.key: _held_text(rolling, record, judged, orders, wave)
        for wave, member in members
        if member.phase is MemberPhase.WAITING and member.key not in judged.moving
    }
    listed = waves_of.keys()
    why |= dict.fromkeys(
        _newcomers(rolling, listed),
        f"Its target is newer than rollout {record.revision} of {rolling.key.name}, and moves after it",
    )
    rollout = Rollout(
        key=rolling.key,
        phase=phase,
        record=record,
        waves=judged.waves,
        held=why,
        stopped=dict(_stopped(rolling, record, judged, orders)),
        waves_of=waves_of,
    )
    return rollout, {key: Hold(rolling.base(key), text) for key, text in why.items()}


def _rollout_phase(judged: Judgement, orders: Orders) -> RolloutPhase:
    if judged.failed is not None:
        return RolloutPhase.FAILED
    return RolloutPhase.PAUSED if orders.is_paused else RolloutPhase.PROGRESSING


def _held_text(rolling: _Set, record: RolloutRecord, judged: Judgement, orders: Orders, wave: str) -> str:
    """Return why a package keeps its revision."""
    head = f"Rollout {record.revision} of {rolling.key.name}"
    current = judged.current
    if current is not None and current.name != wave:
        reached = next((status for status in judged.waves if status.name == wave), None)
        if reached is not None and not reached.is_passed:
            return f"{head}: wave {wave} {waiting_text(current)}"
    if judged.failed is not None:
        return f"{head}: stopped: wave {judged.failed.name} failed"
    if orders.is_paused:
        return f"{head}: paused"
    return f"{head}: wave {wave} has as many packages in review as its maxOpen allows"


def _stopped(
    rolling: _Set, record: RolloutRecord, judged: Judgement, orders: Orders
) -> Iterator[tuple[ObjectName, str]]:
    """Yield the packages in review that must not be merged by policy, with why."""
    head = f"Rollout {record.revision} of {rolling.key.name}"
    for wave in judged.waves:
        if judged.failed is not None:
            why = f"{head} is stopped: wave {judged.failed.name} failed"
        elif orders.is_paused:
            why = f"{head} is paused"
        elif wave.phase is WavePhase.WAITING:
            why = f"{head}: wave {wave.name} {wave.message}"
        else:
            continue
        yield from ((m.key, why) for m in wave.members if m.phase is MemberPhase.IN_REVIEW)


def _rolled_back(
    rolling: _Set,
    record: RolloutRecord,
    members: Iterable[tuple[str, MemberStatus]],
    waves_of: Mapping[ObjectName, str],
) -> tuple[Rollout, dict[ObjectName, Hold]]:
    """Return a rollout on its way back: every package gets the revision that it had before."""
    holds: dict[ObjectName, Hold] = {}
    by_wave: dict[str, list[MemberStatus]] = {}
    recorded = {member.key: member for member in record.members}
    for wave, member in members:
        by_wave.setdefault(wave, []).append(member)
        hold = _way_back(rolling, record, recorded[member.key])
        if hold is not None:
            holds[member.key] = hold
    for key in _newcomers(rolling, waves_of):
        holds[key] = Hold(
            rolling.base(key), f"Rollout {record.revision} of {rolling.key.name} is rolled back"
        )
    waves = tuple(
        WaveStatus(name, WavePhase.ROLLED_BACK, tuple(by_wave[name]), _way_back_text(by_wave[name]))
        for name in record.waves
        if name in by_wave
    )
    # Going forward again starts anew: what is back now was not reverted by anybody else.
    cleared = tuple(member.model_copy(update={"published": 0}) for member in record.members)
    record = record.model_copy(update={"members": cleared, "finished": False})
    rollout = Rollout(
        key=rolling.key,
        phase=RolloutPhase.ROLLED_BACK,
        record=record,
        waves=waves,
        held={key: hold.why for key, hold in holds.items()},
        waves_of=waves_of,
    )
    return rollout, holds


def _way_back(rolling: _Set, record: RolloutRecord, member: RolloutMember) -> Hold | None:
    """Return the revision from before the rollout, None for a package that cannot be looked at."""
    base, outcome = rolling.base(member.key), rolling.outcomes.get(member.key)
    head = f"Rollout {record.revision} of {rolling.key.name} is rolled back"
    if not isinstance(outcome, ResolvedVariant | WaitingVariant):
        return None
    if member.before is None:
        return Hold(base, f"{head}; the package was made by it and stays until its target goes")
    pin = _find_pin(rolling, member.before)
    if pin is None:
        missing = f"{member.before.ref} of {member.before.package} cannot be found"
        return Hold(base, f"{head}; {missing}, so the package stays as it is")
    return Hold(base if _identity(base) == _identity(pin) else pin, head)


def _find_pin(rolling: _Set, recorded: RolloutPin) -> Pin | None:
    view = rolling.inventory.repositories.get(ObjectName(rolling.key.namespace, recorded.repository))
    if view is None or not view.is_available:
        return None
    path = view.full_path(recorded.package)
    return find_commit(view, path, Oid(recorded.commit), recorded.ref, rolling.inventory)


def _way_back_text(members: Iterable[MemberStatus]) -> str:
    left = sum(member.phase is MemberPhase.PUBLISHED for member in members)
    return f"{left} still to be rolled back" if left else ""


def with_hold(outcome: Outcome, hold: Hold, resolved: Outcome) -> Outcome:
    """Return the outcome of a held variant: resolved at the pin that it keeps, or waiting for a first pin."""
    target = outcome.target or outcome.pin if isinstance(outcome, ResolvedVariant) else None
    if isinstance(outcome, WaitingVariant):
        target = outcome.target
    if hold.pin is not None and isinstance(resolved, ResolvedVariant):
        return replace(resolved, target=target, held=hold.why)
    if isinstance(outcome, ResolvedVariant | WaitingVariant):
        offers = outcome.offers
        return WaitingVariant(outcome.variant, offers, hold.why, target)
    return outcome
