"""Summary of a plan in one line: counts of operations and states; exit codes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import join_texts
from reconciler.base.wording import age_text, plural, some
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.impact import Risk
from reconciler.plan.losses import Loss
from reconciler.plan.status import PackageStatus, current_states
from reconciler.policy.risks import CONFLICT, DELETION, LOSS

if TYPE_CHECKING:
    from reconciler.dependencies.lock.changes import VersionChange

_PLACES = {op: place for place, op in enumerate(Op)}
_NO_DANGER = 1_000_000


class Names(Struct, frozen=True):
    """Display names of packages: the directory of each Repository is left out of the path.

    `instance` is the name of the instance, `report_url` the address where its HTML report is published,
    `shard` the part of the fleet as `--shard` takes it, empty for the whole.
    """

    instance: str = ""
    directories: Mapping[ObjectName, str] | None = None
    report_url: str = ""
    shard: str = ""

    def of(self, change: Change) -> str:
        """Return `REPOSITORY/PACKAGE`, what `approve` and `explain` take."""
        path = change.package.path
        directory = (self.directories or {}).get(change.repository, "")
        if directory and path.startswith(f"{directory}/"):
            path = path[len(directory) + 1 :]
        return f"{change.repository.name}/{path}"


def count_ops(plan: Plan) -> dict[Op, int]:
    """Return how many packages see each operation, in the order of Op, none with zero."""
    counts = Counter(change.op for change in plan.changes)
    return {op: counts[op] for op in Op if counts[op]}


def sorted_changes(plan: Plan) -> list[Change]:
    """Return the changes by their worst risk, then by operation, `keep` last, then by repository and path."""
    return sorted(plan.changes, key=change_order)


def change_order(change: Change) -> tuple[object, ...]:
    """Return the place of a change in reports: dangerous ones are first."""
    weight = min((risk.weight for risk in change_risks(change)), default=_NO_DANGER)
    return weight, _PLACES[change.op], change.repository, change.package


def change_risks(change: Change) -> tuple[Risk, ...]:
    """Return the risks of a change, the worst first: losses, its deletion, conflicts to be answered."""
    is_deletion = change.op is Op.DELETE or change.reason is Reason.DELETED_BY_PERSON
    deletion = (Risk(DELETION, "deletes", f"package {change.package.path}"),) if is_deletion else ()
    conflicts = dict.fromkeys(Risk(CONFLICT, "answer", note.path, 1) for note in change.conflicts)
    lost = (
        Risk(LOSS, "takes", f"{loss.objects} (with {loss.cause})", -1)
        for loss in change.losses
        if loss.needs_consent
    )
    return (*dict.fromkeys(lost), *deletion, *conflicts, *(change.impact.risks if change.impact else ()))


def risk_counts(changes: Iterable[Change]) -> dict[str, int]:
    """Return how many packages each class of risk is about, the worst class first."""
    counts = Counter(
        (weight, category)
        for change in changes
        for category, weight in {(risk.category, risk.weight) for risk in change_risks(change)}
    )
    return {category: counts[weight, category] for weight, category in sorted(counts)}


def risk_summary(changes: Iterable[Change]) -> str:
    """Return how many packages each class of risk is about; "" for none.

    The classes have names of the configuration, so they have no plural: `deletion in 2 packages, rbac in 12`.
    """
    numbers = list(risk_counts(changes).items())
    first = [f"{category} in {plural(number, 'package')}" for category, number in numbers[:1]]
    return ", ".join([*first, *(f"{category} in {number}" for category, number in numbers[1:])])


def summary_line(plan: Plan, statuses: Mapping[PackageKey, PackageStatus] | None = None) -> str:
    """Return the counts and the checksum in one line, e.g. `3 to create, 9 kept (checksum …)`."""
    dangers = Counter(move.op for move in plan.version_changes if move.op.is_dangerous)
    counts = [f"{plural(count, op.subject)} to {op}" for op, count in dangers.items()]
    ops = count_ops(plan)
    counts += [f"{count} to {op}" for op, count in ops.items() if op not in (Op.BLOCK, Op.KEEP)]
    counts += [f"{ops[Op.BLOCK]} blocked"] if Op.BLOCK in ops else []
    counts += _kept(plan, current_states(plan) if statuses is None else statuses)
    later = sum(change.waits and change.op not in (Op.KEEP, Op.BLOCK) for change in plan.changes)
    if later:
        counts.append(f"{later} will wait for people")
    unready = sum(bool(change.unready) for change in plan.changes)
    if unready:
        counts.append(f"{unready} not ready")
    if plan.problems:
        counts.append(plural(len(plan.problems), "problem"))
    if plan.refusals:
        counts.append(plural(len(plan.refusals), "refusal"))
    counts += _moves(plan)
    what = ", ".join(counts) if counts else "no packages"
    # "Nothing to do" would be false beside a refusal, a problem or a waiting person.
    waits = any(change.waits for change in plan.changes)
    idle = plan.is_empty and not (plan.problems or plan.refusals or waits)
    head = "Nothing to do: " if idle else ""
    return f"{head}{what} (checksum {plan.short_checksum})" if plan.checksum else f"{head}{what}"


def _moves(plan: Plan) -> Iterator[str]:
    """Yield how many changes of locks there are beside the dangerous ones, where no package changes."""
    if any(change.pending for change in plan.changes):
        return
    rest = [move for move in plan.version_changes if not move.op.is_dangerous]
    pins = sum(move.op.subject == "pin" for move in rest)
    if pins:
        yield f"{plural(pins, 'pin')} to change in the lock"
    if len(rest) > pins:
        yield f"{plural(len(rest) - pins, 'other change')} of the lock"


def _kept(plan: Plan, statuses: Mapping[PackageKey, PackageStatus]) -> list[str]:
    """Return the number of kept packages with their states: `2 kept (1 in review, 1 not ours)`."""
    unchanged = [change.package for change in plan.changes if change.op is Op.KEEP]
    phases = Counter(statuses[package].phase for package in unchanged if package in statuses)
    counts = [f"{phases[phase]} {phase}" for phase in Phase if phases[phase]]
    if (statuses or plan.context) and len(unchanged) > phases.total():
        counts.append(f"{len(unchanged) - phases.total()} not ours")
    where = ", ".join(counts)
    return [f"{len(unchanged)} kept{f' ({where})' if where else ''}"] if unchanged else []


def since_text(status: PackageStatus, now: float = 0) -> str:
    """Return the date of a state, or with a clock its age, and the pull request: `since 2026-01-31, #3`."""
    since = f"since {datetime.fromtimestamp(status.since, UTC).date()}" if status.since else ""
    since = f"for {age_text(status.since, now)}" if since and now else since
    return ", ".join(filter(None, (since, f"#{status.pull}" if status.pull else "")))


def detail(change: Change, status: PackageStatus | None = None, now: float = 0) -> str:
    """Return the details of a row: upstream revisions, state, cause, unmet conditions, required action."""
    unready = f"not ready: {join_texts('; ', change.unready)}" if change.unready else ""
    is_open = status is not None and status.phase is not Phase.PUBLISHED and change.op is Op.KEEP
    stands = f"{status.phase} {since_text(status, now)}".strip() if status and is_open else ""
    is_told = status is not None and status.phase is Phase.CONFLICT
    waits = "waits for a person" if change.waits and not is_told else ""
    parts = (upstream_text(change), stands, change.detail, unready, waits)
    return "; ".join(part for part in parts if part)


_MOST_LOSSES = 20
"""Losses that a text lists; more of them are counted."""


def loss_texts(losses: Sequence[Loss]) -> list[str]:
    """Return what goes with removed objects, a line for each kind."""
    texts = [loss.text for loss in losses[:_MOST_LOSSES]]
    more = len(losses) - len(texts)
    return [*texts, *([f"and {more} more"] if more else [])]


_AS_BEFORE = frozenset({Reason.UP_TO_DATE, Reason.NOT_OURS})


def listed_changes(plan: Plan, statuses: Mapping[PackageKey, PackageStatus]) -> list[Change]:
    """Return the sorted changes without packages that stay as they are, and those that a wave counts."""
    waves = {key for rollout in plan.rollouts for key in rollout.waves_of}
    changed = [c for c in sorted_changes(plan) if not is_unchanged(c, statuses.get(c.package))]
    return [c for c in changed if c.pending or c.reason is not Reason.AWAITING_WAVE or c.variant not in waves]


def is_unchanged(change: Change, status: PackageStatus | None = None) -> bool:
    """Return whether a package stays as it is with nothing to report: no open draft, condition or problem."""
    published = status is None or status.phase is Phase.PUBLISHED
    reported = (change.detail, change.unready, change.warnings, change.conflicts, change.answers, change.pins)
    return (
        change.op is Op.KEEP
        and change.reason in _AS_BEFORE
        and published
        and not (change.pending or change.waits or any(reported))
    )


def row_reason(change: Change, status: PackageStatus | None = None) -> Reason:
    """Return the reason of a row: a package with nothing to do for us may wait for a review."""
    is_waiting = status is not None and status.phase is Phase.IN_REVIEW
    return Reason.IN_REVIEW if is_waiting and change.reason is Reason.UP_TO_DATE else change.reason


def upstream_text(change: Change) -> str:
    """Return the upstream revision, or both where it changes."""
    return arrow(change.upstream_from, change.upstream_to)


def arrow(old: str, new: str) -> str:
    """Return `old -> new`, or the one that there is."""
    return f"{old} -> {new}" if old and new and old != new else new or old


_CLUSTERS = 5
"""Clusters of one pin that are named; more of them are counted."""


def move_text(move: "VersionChange") -> str:
    """Return one change of locks in a line: of what, what, why, and in which clusters."""
    where = f" ({clusters_text(move)})" if move.clusters else ""
    return f"{move.op.subject}: {move.op} {move}{where}"


def clusters_text(move: "VersionChange") -> str:
    """Return the clusters where a pin moves; many of them are counted."""
    return some(move.clusters, _CLUSTERS)
