"""Memory of rollouts: the record of each set, and what this run sees of its packages (D20, D27)."""

from collections.abc import Container, Iterable, Mapping
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reconciler.api.porch import PackageVariantSet
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory, PullState, Sourced
from reconciler.names.ids import ObjectName, Oid, PackageKey, RolloutKey, ask_key
from reconciler.names.problems import Problem
from reconciler.names.refs import DRAFTS, short_branch
from reconciler.policy import RolloutPolicy
from reconciler.records.state import UNTIMED, PackageVariantRecord, RolloutMember, RolloutPin, RolloutRecord
from reconciler.resolve.deliveries import RETRY
from reconciler.resolve.ownership import find_view
from reconciler.resolve.resolution import Pin, ResolvedVariant, WaitingVariant
from reconciler.resolve.rollout_model import (
    Rollout,
    WavePhase,
    assign_waves,
    revisions_taken_back,
    wave_names,
)
from reconciler.resolve.up_to_date import Values, inputs_digest, recorded_values, values_digest
from reconciler.resolve.upstreams import Sources, find_commit

Outcome = ResolvedVariant | WaitingVariant | tuple[Problem, ...]
"""Outcome of one variant: resolved, waiting for its pin, or stalled with its problems."""

CLUSTER_LABEL = "reconciler.dev/cluster"
"""The label by which a wave may select the cluster of a Repository."""


class RollingSet(Struct, frozen=True):
    """One set with a policy: its variants, their outcomes, the values that they ask for, and its orders.

    `members` are those of the recorded rollout. `upstream` is the package of those variants, where the set
    has several: each of them rolls out for itself.
    """

    declared: Sourced[PackageVariantSet]
    policy: RolloutPolicy
    variants: Mapping[ObjectName, DesiredVariant]
    outcomes: Mapping[ObjectName, Outcome]
    inventory: Inventory
    sources: Sources
    values: Mapping[ObjectName, Values]
    members: Mapping[ObjectName, RolloutMember]
    upstream: str = ""

    @property
    def key(self) -> RolloutKey:
        """The rollout's identity."""
        return RolloutKey(*self.declared.key, self.upstream)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The set's annotations: the orders of people."""
        return self.declared.manifest.metadata.annotations or {}

    @property
    def taken_back(self) -> tuple[str, ...]:
        """The revisions that the set orders to be rolled back."""
        return revisions_taken_back(self.annotations)

    def is_made_by_it(self, record: PackageVariantRecord) -> bool:
        """Tell whether a variant was one of this rollout's, as its record has it."""
        made_of = str((record.spec.get("upstream") or {}).get("package")).strip("/")
        is_its_set = (record.namespace, record.set_name) == self.declared.key
        return is_its_set and self.upstream in ("", made_of)

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

    def target(self, key: ObjectName) -> str:
        """Return what tells the revision and the values that a variant asks for from others, "" for none."""
        pin = identity(self.asks_for(key))
        return f"{pin} {values_digest(self.values[key])}".rstrip() if pin else ""

    def main_values(self, key: ObjectName) -> Values | None:
        """Return the values that main was made with, None if they are unknown.

        Where what was applied last is on main, or nothing was on its way when people changed main, they are
        those of the record. Else a draft of them may be open, closed, or merged with edits.
        """
        return self.values[key] if key in self.inventory.unchanged else self.values_on_record(key)

    def values_on_record(self, key: ObjectName) -> Values | None:
        """Return the values that main was made with, as far as records tell."""
        outcome, record = self.outcomes.get(key), self.inventory.records.get(key)
        if not isinstance(outcome, ResolvedVariant) or not outcome.local:
            return self.values[key]
        if record is None:
            return None if self.values[key] else {}
        last, main, member = recorded_values(record), outcome.local, self.members.get(key)
        if record.output_tree == main:
            return last
        before = member.before if member is not None else None
        if before is not None and before.main == main:
            return self._recorded_before(before)
        is_at_rest = record.local_tree == record.output_tree
        if is_at_rest or member is None or member.published or member.ended:
            return last
        earlier = self._recorded_before(before) if before is not None else None
        is_open = record.local_tree == main or outcome.draft is not None
        return earlier if is_open or earlier == last else None

    def values_before(self, pin: RolloutPin) -> Values | None:
        """Return the values that a package had before its rollout, None if they are unknown."""
        recorded = self._recorded_before(pin)
        if recorded is not None or pin.values is None:
            return recorded
        # A rollout that starts in this run is in no record yet.
        every = (self.values_on_record(key) for key in sorted(self.variants))
        return next((values for values in every if values and values_digest(values) == pin.values), None)

    def _recorded_before(self, pin: RolloutPin) -> Values | None:
        record = self.inventory.rollouts.get(self.key)
        return {} if pin.values == "" else ((record.values if record else None) or {}).get(pin.values or "")

    def is_at_target(self, key: ObjectName) -> bool:
        """Tell whether main has what a variant asks for."""
        target = identity(self.asks_for(key))
        main = self.inventory.unchanged.get(key) or identity(self.base(key))
        return main == target != "" and self.main_values(key) == self.values[key]

    def is_asked_to_move(self, key: ObjectName) -> bool:
        """Tell whether a variant asks for another revision, or other values, even if they change nothing."""
        target, values = self.asks_for(key), self.values_on_record(key)
        is_other = identity(self.base(key)) != identity(target) or values not in (None, self.values[key])
        return target is not None and (is_other or self.differs(key))

    def differs(self, key: ObjectName) -> bool:
        """Tell whether main does not have what a variant asks for."""
        return self.asks_for(key) is not None and not self.is_at_target(key)

    def name(self, key: ObjectName) -> str:
        """Return a variant's package as people call it: its Repository and its name there."""
        downstream = self.variants[key].spec.downstream
        return f"{downstream.repo}/{downstream.package}" if downstream else key.name

    def has_draft(self, key: ObjectName) -> bool:
        """Tell whether a draft proposes what a variant asks for."""
        outcome = self.outcomes.get(key)
        if not isinstance(outcome, ResolvedVariant) or outcome.draft is None:
            return False
        record = self.inventory.records.get(key)
        is_ours = record is None or recorded_values(record) == self.values[key]
        return is_ours and identity(outcome.draft_base) == identity(self.asks_for(key))

    def located(self, annotation: str) -> Location:
        """Return the location of an order."""
        return self.declared.source.at("metadata", "annotations", annotation)


def identity(pin: Pin | None) -> str:
    """Return what tells one upstream revision from another: a branch that moves elsewhere is the same."""
    if pin is None:
        return ""
    return f"{pin.package.path}@{pin.ref if pin.revision > 0 else ''} {pin.tree}"


def is_asked_again(
    variant: DesiredVariant, package: PackageKey, trees: Iterable[Oid | None], inventory: Inventory
) -> bool:
    """Tell whether a person asks for rejected content: by the retry annotation, or on the dashboard."""
    annotated, record = variant.annotations.get(RETRY, ""), inventory.records.get(variant.key)
    # Removing the annotation asks for nothing.
    if annotated and annotated != (record.retry if record else ""):
        return True
    return any(ask_key(package, tree) in inventory.retry_requests for tree in set(trees) if tree)


def current_record(rolling: RollingSet) -> RolloutRecord | None:
    """Return the record of the rollout that is on its way: the recorded one, or that of a new rollout."""
    old = rolling.inventory.rollouts.get(rolling.key)
    old = replace(old, members=tuple(rolling.members.values())) if old is not None else None
    if old is not None and _is_current(rolling, old):
        now = _observation_time(rolling, old)
        members = (member for member in old.members if member.key in rolling.variants)
        return replace(old, members=tuple(_observed(rolling, member, now) for member in members))
    # A package that is back leaves no trace in what its set asks for, but the order is still there.
    is_ordered = not set(rolling.taken_back).isdisjoint(names_asked(rolling))
    if is_ordered or any(map(rolling.is_asked_to_move, rolling.variants)):
        record = RolloutRecord(
            namespace=rolling.key.namespace,
            name=rolling.key.name,
            upstream=rolling.upstream or UNSET,
            revision=_name(rolling, old),
            waves=(),
        )
        record = _with_members(rolling, record, rolling.variants)
        new = [key for key in rolling.variants if key not in rolling.members and _is_new(rolling, key)]
        record = _with_earlier(record, [key for key in new if key not in rolling.inventory.records])
        is_over = old is None and _only_joins(rolling)
        ended = tuple(replace(member, ended=is_over) for member in record.members)
        return replace(record, members=ended, finished=is_over)
    return None


def members_now(
    record: RolloutRecord, variants: Mapping[ObjectName, DesiredVariant], inventory: Inventory
) -> Mapping[ObjectName, RolloutMember]:
    """Return the members of a recorded rollout by their variants.

    Where a Repository was renamed, or a template names its variants otherwise, the one that has the package
    of a member now takes its place: it is no new target.
    """
    records = (inventory.records.get(member.key) for member in record.members if member.key not in variants)
    former = {PackageKey(r.url, r.path): r.key for r in records if r is not None}
    heirs: dict[ObjectName, ObjectName] = {}
    for key, variant in variants.items() if former else ():
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            place = PackageKey(view.url, view.full_path(downstream.package or ""))
            heirs |= {former[place]: key} if place in former else {}
    keyed = ((heirs.get(member.key, member.key), member) for member in record.members)
    return {key: replace(member, namespace=key.namespace, name=key.name) for key, member in keyed}


def _only_joins(rolling: RollingSet) -> bool:
    """Tell whether only new targets are asked to move: their waves brought the others what they have.

    Without the state that is unknown, and new targets wait like all others.
    """
    records, moving = rolling.inventory.records, [*filter(rolling.is_asked_to_move, rolling.variants)]
    is_new = all(_is_new(rolling, key) and key not in records for key in moving)
    return bool(moving) and is_new and any(key in records for key in rolling.variants)


def _is_new(rolling: RollingSet, key: ObjectName) -> bool:
    """Tell whether a target has no package, nor another one of the set that this one takes the place of."""
    outcome, view = rolling.outcomes.get(key), find_view(rolling.variants[key], rolling.inventory)
    if view is None or (isinstance(outcome, ResolvedVariant) and outcome.local is not None):
        return False
    former = (
        rolling.inventory.repositories.get(ObjectName(record.namespace, record.repository))
        for record in rolling.inventory.records.values()
        if record.key not in rolling.variants and rolling.is_made_by_it(record)
    )
    return all(other is None or other.cluster != view.cluster for other in former)


def _name(rolling: RollingSet, old: RolloutRecord | None) -> str:
    """Return the name of a new rollout: an order for what had the same revision does not speak of it."""
    revision, valued = names_asked(rolling)
    differing = [*filter(rolling.is_asked_to_move, rolling.variants)]
    if valued in rolling.taken_back:
        return valued
    if revision in rolling.taken_back and not differing:
        return revision
    pins = [pin for key in sorted(rolling.variants) if (pin := rolling.asks_for(key))]
    is_same = old is not None and bare_name(old.revision) == revision
    targets = [member.target for member in old.members] if is_same and old is not None else []
    if (
        any(targets)
        and pins
        and not any(target.startswith(identity(pin)) for target in targets for pin in pins)
    ):
        return f"{pins[0].ref}@{pins[0].commit.oid[:8]}"  # its tag moved
    moves = any(identity(rolling.base(key)) != identity(rolling.asks_for(key)) for key in differing)
    return revision if moves and not is_same else valued


def _is_current(rolling: RollingSet, record: RolloutRecord) -> bool:
    """Tell whether the set still asks for what the recorded rollout brings."""
    pairs = ((member.target, rolling.target(member.key)) for member in record.members)
    # An older version recorded no values.
    older = record.values is None
    known_pairs = [(before, now) for before, now in pairs if before and now]
    compared = [before == now or (older and now.startswith(before)) for before, now in known_pairs]
    # Where none of its packages is left, or understood, the name of the revision tells.
    label, valued = names_asked(rolling)
    is_named = record.revision in (label, valued) or record.revision.startswith(f"{label}@")
    return all(compared) if compared else not label or is_named


_MARK = regex(r"[@+][0-9a-f]{8}$")


def bare_name(revision: str) -> str:
    """Return the name of a rollout without the commit that its moved tag has, or its values."""
    return _MARK.sub("", revision)


def newcomers(rolling: RollingSet, members: Container[ObjectName]) -> list[ObjectName]:
    """Return the variants beside these members that are to get the revision."""
    return [key for key in sorted(rolling.variants) if key not in members and rolling.differs(key)]


def names_asked(rolling: RollingSet) -> tuple[str, str]:
    """Return how people call the revisions that the set asks for, and how these with their values."""
    targets = map(rolling.asks_for, rolling.variants)
    revision = ", ".join(sorted({target.label for target in targets if target is not None}))
    digests = sorted({values_digest(values) for values in rolling.values.values()})
    return revision, f"{revision}+{inputs_digest(digests)[:8]}"


def with_joined(rolling: RollingSet, rollout: Rollout) -> RolloutRecord | None:
    """Return the record with the new targets that are served at once; None if there are none.

    They get what the last complete wave has: the revision itself, and then they wait for nothing, or what the
    others had before, and then they move with their wave.
    """
    record = rollout.record
    keys = [key for key in newcomers(rolling, rollout.waves_of) if _is_new(rolling, key)]
    complete = (wave for wave in rollout.waves if wave.phase is WavePhase.COMPLETE)
    is_complete = record.finished or any(wave.members for wave in complete)
    if not keys or (not is_complete and find_earlier(record) is None):
        return None
    joined = _with_members(rolling, record, keys)
    joined = joined if is_complete else _with_earlier(joined, keys)
    ended = (replace(m, ended=m.ended or (is_complete and m.key in keys)) for m in joined.members)
    return replace(joined, members=tuple(ended))


def _with_earlier(record: RolloutRecord, keys: Container[ObjectName]) -> RolloutRecord:
    """Return the record in which new targets have what the others had before."""
    before = find_earlier(record)
    members = (replace(m, before=m.before or before) if m.key in keys else m for m in record.members)
    return replace(record, members=tuple(members))


def find_earlier(record: RolloutRecord) -> RolloutPin | None:
    """Return what packages of the last wave had before, None if there were none.

    Values that differ from target to target tell nothing about those of another one.
    """
    waves = {wave: number for number, wave in enumerate(record.waves)}
    members = [member for member in record.members if member.before is not None]
    last = max(members, key=lambda m: (waves.get(m.wave, -1), m.key), default=None)
    if last is None or last.before is None:
        return None
    is_common = len({member.before.values for member in members if member.before}) == 1
    return replace(last.before, main="", values=last.before.values if is_common else None)


def find_recorded(rolling: RollingSet, recorded: RolloutPin) -> Pin | None:
    """Return the revision that a package had before, None if it cannot be found."""
    view = rolling.inventory.repositories.get(ObjectName(rolling.key.namespace, recorded.repository))
    if view is None or not view.is_available:
        return None
    path = view.full_path(recorded.package)
    return find_commit(view, path, Oid(recorded.commit), recorded.ref, rolling.inventory)


def with_newcomers(rolling: RollingSet, record: RolloutRecord) -> RolloutRecord:
    """Return the record of a rollout that ended, with the targets that came later on their way."""
    ended = tuple(replace(member, ended=True) for member in record.members)
    record = replace(record, members=ended, finished=False)
    return _with_members(rolling, record, newcomers(rolling, {member.key for member in ended}))


def _with_members(rolling: RollingSet, record: RolloutRecord, keys: Iterable[ObjectName]) -> RolloutRecord:
    places = assign_waves(rolling.policy.waves, {key: _labels(rolling, key) for key in rolling.variants})
    now = _observation_time(rolling, record)
    new = (RolloutMember(**key._asdict(), wave=places[key]) for key in sorted(keys))
    added = (_observed(rolling, member, now) for member in new)
    members = tuple(sorted((*record.members, *added), key=lambda member: member.key))
    used = {member.wave for member in members}
    names = (*(name for name in wave_names(rolling.policy.waves) if name in used), *record.waves)
    return replace(record, members=members, waves=tuple(dict.fromkeys(names)))


def _labels(rolling: RollingSet, key: ObjectName) -> Mapping[str, str]:
    view = find_view(rolling.variants[key], rolling.inventory)
    if view is None:
        return {}
    return {**(view.manifest.metadata.labels or {}), CLUSTER_LABEL: view.cluster}


def _observation_time(rolling: RollingSet, old: RolloutRecord | None) -> int:
    """Return the time under which this run records what it is the first to see."""
    if not rolling.policy.uses_time:
        return UNTIMED
    # Never earlier than the record: a clock that was set back does not end a soak time early.
    return max([rolling.inventory.now, *(member.published for member in (old.members if old else ()))])


def _observed(rolling: RollingSet, member: RolloutMember, now: int) -> RolloutMember:
    """Return a member with what this run sees of it; what it cannot see stays as it was recorded (D27).

    The dates of commits do not count: they are whatever their authors write, and a fast-forward merge has the
    date of the draft.
    """
    key, variant = member.key, rolling.variants[member.key]
    outcome, base = rolling.outcomes.get(key), rolling.base(key)
    member = replace(member, target=rolling.target(key) or member.target)
    if not isinstance(outcome, ResolvedVariant):
        return member
    before = member.before
    if before is None and base is not None and rolling.is_asked_to_move(key):
        values = rolling.values_on_record(key)
        # Where the revision stays, the tree on main alone tells that people took the values back.
        main = outcome.local if identity(base) == identity(rolling.asks_for(key)) else None
        before = replace(recorded_pin(base, values), main=main or "")
    elif before is not None and before.values is None and not rolling.values[key]:
        before = replace(before, values="")  # an older version recorded none
    if rolling.is_at_target(key):
        published = member.published if member.published > UNTIMED else now
        is_unhealthy = member.failed == "unhealthy"
        return replace(
            member,
            before=before,
            published=published,
            failed=member.failed if is_unhealthy else "",
            why=member.why if is_unhealthy else "",
        )
    published, (failed, why) = min(member.published, UNTIMED), _find_failure(rolling, member, outcome)
    record, draft = rolling.inventory.records.get(key), outcome.draft
    trees = (outcome.local, draft.tree if draft else None, Oid(record.output_tree) if record else None)
    if is_asked_again(variant, outcome.downstream, trees, rolling.inventory):
        published, failed, why = 0, "", ""
    elif not failed and published and not rolling.has_draft(key):
        failed, why = "reverted", f"main has {base.label} again" if base else "main has it no more"
    return replace(member, before=before, published=published, failed=failed, why=why)


def _find_failure(
    rolling: RollingSet, member: RolloutMember, outcome: ResolvedVariant
) -> tuple[Literal["", "closed", "reverted"], str]:
    """Return how what the variant asks for failed by its pull request, with its branch or without.

    Where no pull request can be seen, what was recorded stays.
    """
    failed: Literal["", "closed"] = "closed" if member.failed == "closed" else ""
    recorded = (failed, member.why if failed else "")
    if outcome.held_back and outcome.held_back.target:  # the revision that it keeps has its own pull requests
        return recorded
    pulls, draft = rolling.inventory.pulls_of(outcome.downstream.url), outcome.draft
    record, heads = rolling.inventory.records.get(member.key), f"{DRAFTS}{outcome.downstream.path}/"
    if rolling.has_draft(member.key) and draft is not None:
        mine = list(pulls.at(short_branch(draft.ref)))
    elif record is None or (record.inputs, record.local_tree) != (outcome.inputs, outcome.local or ""):
        return "", ""  # what is proposed now is not what ended
    else:
        mine, draft = [*pulls.below(heads), *pulls.at(record.group)], None
    newest = max(mine, key=lambda pull: (pull.state is PullState.OPEN, pull.number), default=None)
    if newest is None:
        return recorded
    if newest.state is PullState.CLOSED and (draft is None or newest.head_oid in ("", draft.tip.oid)):
        return "closed", f"pull request {newest.number} was closed"
    if newest.state is PullState.MERGED and draft is None and newest.head.startswith(heads):
        return "reverted", f"pull request {newest.number} was merged, and main has it no more"
    return "", ""


def with_absent(rolling: RollingSet, record: RolloutRecord) -> RolloutRecord:
    """Return the record with the targets that left while their packages are there: they may come back."""
    recorded = rolling.inventory.rollouts.get(rolling.key)
    if recorded is None or recorded.revision != record.revision:
        return record
    absent = (
        member
        for key, member in rolling.members.items()
        if key not in rolling.variants and key in rolling.inventory.records
    )
    return replace(record, members=tuple(sorted((*record.members, *absent), key=lambda m: m.key)))


def with_values_before(rolling: RollingSet, record: RolloutRecord) -> RolloutRecord:
    """Return the record with the values that its packages had before."""
    recorded = rolling.inventory.rollouts.get(rolling.key)
    values_by_digest = dict((recorded.values if recorded else None) or {})
    used = {member.before.values for member in record.members if member.before and member.before.values}
    for key in rolling.variants if used - values_by_digest.keys() else ():
        if values := rolling.values_on_record(key):
            values_by_digest[values_digest(values)] = values
    digests = sorted(used & values_by_digest.keys())
    return replace(record, values={digest: values_by_digest[digest] for digest in digests})


def recorded_pin(pin: Pin, values: Values | None) -> RolloutPin:
    """Return a pin, and the values that a package has with it, as a record has them."""
    return RolloutPin(
        repository=pin.repository,
        package=pin.name,
        ref=pin.ref,
        commit=pin.commit.oid,
        tree=pin.tree,
        values=None if values is None else values_digest(values),
    )
