"""The parts of a report, computed from a plan and its outcome: summary, needs, causes, rollouts. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from types import MappingProxyType
from typing import Literal, TypeVar

from msgspec.structs import replace

from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.api.kptfile import KptfileHeader
from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason, WaitsFor, find_facts
from reconciler.base.text import Text, date_text, join_texts, plural, some, words
from reconciler.dependencies.lock.changes import VersionChange
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import TAGS, lock_ref, short_branch, short_tag
from reconciler.plan.changes import (
    Approvable,
    Change,
    MoveRef,
    Op,
    Outcome,
    Plan,
    Refusal,
    exit_of,
    exits_of,
)
from reconciler.plan.compare import Comparison
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.decide import adoption_obstacle
from reconciler.plan.deletions import kept_drafts
from reconciler.plan.impact import Impact, Loss, Risk
from reconciler.plan.requests import find_people
from reconciler.plan.status import PackageStatus, current_statuses
from reconciler.policy import CONFLICT, DELETION, LOSS
from reconciler.report.report import (
    Action,
    ApprovableRow,
    ChangeCause,
    Diff,
    DraftOverview,
    JudgementRow,
    Names,
    Need,
    NeedPlace,
    PackageRow,
    ProblemGroup,
    Report,
)
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import find_view
from reconciler.resolve.rollout_model import MemberPhase, Rollout, RolloutPhase, WavePhase

_PLACES = {op: place for place, op in enumerate(Op)}
_NO_DANGER = 1_000_000


def build_report(
    plan: Plan,
    names: Names,
    outcome: Outcome | None = None,
    *,
    unfolded: bool = False,
    detailed: bool = False,
    now: float = 0,
) -> Report:
    """Return the report of a plan, or of what became of it. Pure: equal plans have equal reports.

    If `unfolded`, every package is listed, also one that stays as it is, and each by itself. If `detailed`,
    pending changes are a class of exit. Ages count from `now`; without it there are dates.
    """
    current, changes = current_statuses(plan), sorted_changes(plan)
    statuses = {status.package: status for status in current if status.package}
    listed = changes if unfolded else listed_changes(plan, statuses)
    return Report(
        names=names,
        checksum=plan.checksum,
        empty=plan.is_empty,
        sentence=summary_line(plan, statuses),
        ops=count_ops(plan),
        losses=plan.losses,
        judgements=judgement_rows(changes, names, plan.unjudged),
        risks=risk_counts(changes),
        needs=tuple(find_needs(plan, current) if outcome is None else needs_after(plan, outcome)),
        fold=partial(fold_changes, listed, names, statuses, unfolded=unfolded, now=now),
        packages=tuple(package_row(change, names, statuses.get(change.package)) for change in changes),
        approvable=tuple(_approvable(plan)),
        problems=plan.problems,
        refusals=plan.refusals,
        notes=plan.notes,
        lock=plan.lock,
        rollouts=plan.rollouts,
        moves=plan.version_changes,
        outcome=outcome,
        exits=exits_of(plan, outcome=outcome, detailed=detailed),
        exit_code=exit_of(plan, outcome=outcome, detailed=detailed),
    )


def package_row(change: Change, names: Names, status: PackageStatus | None = None) -> PackageRow:
    """Return the row of a package with a state before the change."""
    return PackageRow(names.of(change), change, row_reason(change, status), status, change_risks(change))


def _approvable(plan: Plan) -> Iterator[ApprovableRow]:
    pulls = plan.context.inventory.pulls if plan.context is not None else {}
    for url, pull in ((url, pull) for url, pulls_there in sorted(pulls.items()) for pull in pulls_there):
        if pull.state is PullState.OPEN:
            approvable = plan.approvable.get((url, pull.head), Approvable())
            places = ((url, name) for name in (pull.head, pull.number))
            objections = [plan.objections[place] for place in places if place in plan.objections]
            yield ApprovableRow(
                url,
                pull.number,
                pull.head,
                approvable.conflicts,
                (*approvable.unmet, *approvable.unfinished),
                approvable.lenient,
                min(objections).what if objections else "",
            )


def count_ops(plan: Plan) -> dict[str, int]:
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


def risk_summary(counts: Mapping[str, int]) -> str:
    """Return how many packages each class of risk is about; "" for none.

    The classes have names of the configuration, so they have no plural: `deletion in 2 packages, rbac in 12`.
    """
    numbers = list(counts.items())
    first = [f"{category} in {plural(number, 'package')}" for category, number in numbers[:1]]
    return ", ".join([*first, *(f"{category} in {number}" for category, number in numbers[1:])])


def summary_line(plan: Plan, statuses: Mapping[PackageKey, PackageStatus]) -> str:
    """Return the counts in one line, e.g. `3 to create, 9 kept`."""
    dangers = Counter(move.op for move in plan.version_changes if move.op.is_dangerous)
    counts = [f"{plural(count, op.subject)} to {op}" for op, count in dangers.items()]
    ops = count_ops(plan)
    counts += [f"{count} to {op}" for op, count in ops.items() if op not in (Op.BLOCK, Op.KEEP)]
    counts += [f"{ops[Op.BLOCK]} blocked"] if Op.BLOCK in ops else []
    counts += _kept(plan, statuses)
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
    return f"Nothing to do: {what}" if idle else what


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
    since = f"{'for' if now else 'since'} {date_text(status.since, now)}" if status.since else ""
    return ", ".join(filter(None, (since, f"#{status.pull}" if status.pull else "")))


def detail(change: Change, status: PackageStatus | None = None, now: float = 0) -> str:
    """Return the details of a row: upstream revisions, state, cause, unmet conditions, required action."""
    is_open = status is not None and status.phase is not Phase.PUBLISHED and change.op is Op.KEEP
    unready = join_texts("; ", change.unready)
    # The state of a package that is kept has the words already.
    is_named = is_open and status is not None and status.phase is Phase.NOT_READY
    unready = f"not ready: {unready}" if unready and not is_named else unready
    stands = f"{status.phase} {since_text(status, now)}".strip() if status and is_open else ""
    is_told = status is not None and status.phase is Phase.CONFLICT
    waits = "waits for a person" if change.waits and not is_told else ""
    parts = (upstream_text(change), published_text(change), stands, change.detail, unready, waits)
    return "; ".join(part for part in parts if part)


def published_text(change: Change) -> str:
    """Return the tags that a change publishes, where its reason tells of another thing."""
    if change.op is not Op.PUBLISH or change.reason is Reason.PUBLISHED_BY_MERGE:
        return ""
    tags = [short_tag(w.ref) for w in change.writes if isinstance(w, MoveRef) and w.ref.startswith(TAGS)]
    return f"publishes {', '.join(tags)}" if tags else ""


_MOST_LOSSES = 20
"""Losses that a text lists; more of them are counted."""


def loss_texts(losses: Sequence[Loss]) -> list[str]:
    """Return what goes with removed objects, a line for each kind; equal losses of clusters share it."""
    alike: dict[Loss, list[str]] = {}
    for loss in losses:
        alike.setdefault(replace(loss, cluster=""), []).append(loss.cluster)
    groups = [*alike.items()]
    texts = [replace(loss, cluster=some(names, MOST_NAMES)).text for loss, names in groups[:_MOST_LOSSES]]
    more = sum(len(names) for _, names in groups[_MOST_LOSSES:])
    return [*texts, *([f"and {more} more"] if more else [])]


def judgement_rows(
    changes: Iterable[Change], names: Names, unjudged: Iterable[AdmissionJudgement] = ()
) -> tuple[JudgementRow, ...]:
    """Return what clusters would answer, one row for each reason with its packages, the worst first."""
    rows: dict[AdmissionJudgement, list[str]] = {}
    for change in changes:
        # Objects and clusters differ, the reason does not.
        kinds = {(j.object.partition(" ")[0], replace(j, object="", cluster="")) for j in change.verdicts}
        for kind, judgement in kinds:
            message = f"{kind} {judgement.message}"
            rows.setdefault(replace(judgement, message=message), []).append(names.of(change))
    ordered = sorted(rows, key=lambda j: (j.is_old, j.verdict.rank, -len(rows[j]), j))
    listed = [JudgementRow(j.verdict, j.rule, j.message, tuple(sorted(rows[j])), j.is_old) for j in ordered]
    clusters: dict[tuple[str, str], list[str]] = {}
    for judgement in unjudged:
        clusters.setdefault((judgement.rule, str(judgement.message)), []).append(judgement.cluster)
    silent = (
        JudgementRow(AdmissionVerdict.NOT_JUDGED, rule, why, tuple(named), noun="cluster")
        for (rule, why), named in clusters.items()
    )
    return (*listed, *silent)


def judgement_texts(rows: Sequence[JudgementRow]) -> list[str]:
    """Return judgements as lines, losses apart; what is not judged is never left out."""
    decided = [
        row for row in rows if row.verdict not in (AdmissionVerdict.DESTROYS, AdmissionVerdict.NOT_JUDGED)
    ]
    more = [f"and {len(decided) - _MOST_LOSSES} more"] if len(decided) > _MOST_LOSSES else []
    rest = [row for row in rows if row.verdict is AdmissionVerdict.NOT_JUDGED]
    return [*(str(row.text) for row in decided[:_MOST_LOSSES]), *more, *(str(row.text) for row in rest)]


_AS_BEFORE = frozenset({Reason.UP_TO_DATE, Reason.NOT_OURS})


def listed_changes(plan: Plan, statuses: Mapping[PackageKey, PackageStatus]) -> list[Change]:
    """Return the sorted changes without packages that stay as they are, and those that a wave counts."""
    waves = {key for rollout in plan.rollouts for key in rollout.waves_of}
    changed = [c for c in sorted_changes(plan) if not is_unchanged(c, statuses.get(c.package))]
    return [c for c in changed if c.pending or c.reason is not Reason.AWAITING_WAVE or c.variant not in waves]


def is_unchanged(change: Change, status: PackageStatus | None = None) -> bool:
    """Return whether a package stays as it is with nothing to report: no open draft, condition or problem."""
    published = status is None or status.phase is Phase.PUBLISHED
    reported = (change.detail, change.unready, change.conflicts, change.answers, change.pins)
    return (
        change.op is Op.KEEP
        and change.reason in _AS_BEFORE
        and published
        and not (change.pending or change.waits or any(reported))
    )


def row_reason(change: Change, status: PackageStatus | None = None) -> Reason:
    """Return the reason of a row: a package with nothing to do for us may wait for a review, or a repair."""
    if status is None or change.reason not in {Reason.UP_TO_DATE, Reason.DRAFT_EDITED}:
        return change.reason
    if status.phase is Phase.NOT_READY:
        return Reason(status.reason or change.reason)
    is_in_review = change.reason is Reason.UP_TO_DATE and status.phase is Phase.IN_REVIEW
    return Reason.IN_REVIEW if is_in_review else change.reason


def upstream_text(change: Change) -> str:
    """Return the upstream revision, or both where it changes."""
    return arrow(change.upstream_from, change.upstream_to)


def arrow(old: str, new: str) -> str:
    """Return `old -> new`, or the one that there is."""
    return f"{old} -> {new}" if old and new and old != new else new or old


_CLUSTERS = 5
"""Clusters of one pin that are named; more of them are counted."""


def move_text(move: VersionChange) -> str:
    """Return one change of locks in a line: of what, what, why, and in which clusters."""
    where = f" ({clusters_text(move)})" if move.clusters else ""
    return f"{move.line}{where}"


def clusters_text(move: VersionChange) -> str:
    """Return the clusters where a pin moves; many of them are counted."""
    return some(move.clusters, _CLUSTERS)


ANSWER, MENDING = "an answer to its conflicts", "a fix of its manifest or repository"
_WAITING = {
    Phase.PUBLISHED: "",
    Phase.NOT_READY: "its functions and readiness gates",
    Phase.CONFLICT: ANSWER,
    Phase.REJECTED: "another change, or reconciler.dev/retry",
    Phase.HELD_BACK: "a person",
    Phase.PAUSED: "the end of the pause",
    Phase.PENDING: "the next apply",
    Phase.STALLED: MENDING,
}
_REVISION_DIGITS = 8


def package_overviews(
    plan: Plan, statuses: Iterable[PackageStatus] | None = None
) -> dict[tuple[ObjectName, PackageKey | None], DraftOverview]:
    """Return the overview of each package of each variant; one that moved has a package where it leaves too.

    Without `statuses` the states are those before any effect of the plan.
    """
    if plan.context is None:
        return {}
    changes = {change.package: change for change in plan.changes}
    overviews = {}
    for status in current_statuses(plan) if statuses is None else statuses:
        target = plan.context.targets.get(status.package) if status.package else None
        change = changes.get(status.package) if status.package else None
        if status.variant is not None:
            overviews[status.variant, status.package] = _overview(status, target, change, plan.context)
    return overviews


def variant_set(variant: ObjectName, context: PlanContext) -> str:
    """Return the PackageVariantSet of a variant as `NAMESPACE/NAME`, "" for none."""
    desired = context.variants.get(variant)
    if desired is not None:
        return str(desired.set_key or "")
    record = context.inventory.records.get(variant)
    return f"{record.namespace}/{record.set_name}" if record is not None and record.set_name else ""


def version_label(header: KptfileHeader | None) -> str:
    """Return the upstream revision of a package as people call it: `web/v2`, or a ref at a short commit."""
    lock = header.upstream_lock if header else None
    if lock is None or not lock.ref:
        return ""
    number = lock.ref.rpartition("/")[2]
    is_revision = number[:1] == "v" and number[1:].isdecimal()
    return lock.ref if is_revision or not lock.commit else f"{lock.ref}@{lock.commit[:_REVISION_DIGITS]}"


def _overview(
    status: PackageStatus, target: PlanTarget | None, change: Change | None, context: PlanContext
) -> DraftOverview:
    set_name = variant_set(status.variant, context) if status.variant else ""
    if target is None or change is None:
        cluster, main = _recorded_place(status.variant, context) if status.variant else ("", "")
        return DraftOverview(set_name, cluster, main, waiting_for=_waiting(status, (), is_wanted=True))
    people = find_people([change], context).reviewers if status.phase is Phase.IN_REVIEW else ()
    waiting = _waiting(status, people, is_wanted=target.key in context.downstreams)
    if status.variant is not None and status.reason == Reason.PACKAGE_EXISTS:
        waiting = adoption_obstacle(target, status.variant, context).waits_for
    draft = target.draft.header if target.draft else None
    return DraftOverview(
        set_name,
        target.view.cluster,
        version_label(target.package.main_header) if target.package.main_tree else "",
        version_label(draft),
        waiting,
        people,
        replaces=_replaced(target),
    )


def _replaced(target: PlanTarget) -> Literal["", "ours", "others"]:
    header = target.package.main_header
    if target.package.main_tree is None or version_label(header):
        return ""
    return "ours" if header is not None and header.owner else "others"


def _recorded_place(variant: ObjectName, context: PlanContext) -> tuple[str, str]:
    """Return the cluster of a package that was not read, and its recorded revision on main.

    A mark follows the revision of an unreachable repository, or is alone: unreachable is not absent.
    """
    desired, inventory = context.variants.get(variant), context.inventory
    record = inventory.records.get(variant)
    named = ObjectName(variant.namespace, record.repository if record is not None else "")
    view = inventory.repositories.get(named) if desired is None else find_view(desired, inventory)
    cluster = view.cluster if view is not None else ""
    if view is None or view.is_available:
        return cluster, ""
    upstream = (record.spec.get("upstream") or {}) if record is not None else {}
    is_known = record is not None and record.local_tree != "" and record.local_tree == record.output_tree
    if record is None or not is_known or not upstream.get("package"):
        return cluster, _UNKNOWN
    # The manifest may ask for another revision than a rollout let through.
    source = inventory.repositories.get(ObjectName(variant.namespace, upstream.get("repo", "")))
    package = source.packages.get(source.full_path(upstream["package"])) if source is not None else None
    published = package.published if package is not None else ()
    revision = next((r.revision for r in published if r.commit.oid == record.upstream_commit), 0)
    name = f"/v{revision}" if revision > 0 else f"@{record.upstream_commit[:_REVISION_DIGITS]}"
    return cluster, f"{upstream['package']}{name}{_UNKNOWN}"


_UNKNOWN = "?"
"""The mark of a revision that may have changed since it was read."""


def _waiting(status: PackageStatus, people: Iterable[str], *, is_wanted: bool) -> str:
    if status.phase is Phase.IN_REVIEW:
        if status.waits_for is WaitsFor.CHECKS:
            return "its checks"
        if status.waits_for is WaitsFor.WAVE:
            return Reason.AWAITING_WAVE.facts.waits_for
        what = "review of its deletion" if status.reason == Reason.DELETION_PROPOSED else "review"
        names = ", ".join(people)
        return f"{what} by {names}" if names else what
    if status.phase is Phase.REJECTED and not is_wanted:
        return "nothing"
    return find_facts(status.reason).waits_for or _WAITING[status.phase]


MOST_ROWS = 5
"""Changes of one cause that are listed each; more of them fold."""
MOST_NAMES = 3
MOST_SUBJECTS = 4
MOST_DIFFS = 10
_ELLIPSIS = "…"
_OF_ROLLOUT = frozenset({Reason.AWAITING_WAVE, Reason.ROLLED_BACK})
"""Reasons that name a rollout and no package: one row for all of a wave is enough."""


def fold_changes(
    changes: Sequence[Change],
    names: Names,
    statuses: Mapping[PackageKey, PackageStatus],
    *,
    unfolded: bool = False,
    labels: Mapping[PackageKey, str] | None = None,
    now: float = 0,
) -> list[ChangeCause]:
    """Return the causes of changes that are in their order; the changes of a small group are its own causes.

    If `unfolded`, every change is a cause of its own. `labels` are what happens to each package, where that
    is not its operation. Ages count from `now`; without it there are dates.
    """
    details = {change.package: detail(change, statuses.get(change.package), now) for change in changes}
    places: dict[tuple[object, ...], int] = {}
    keyed: list[tuple[int, str, Reason, str, Change]] = []
    for index, change in enumerate(changes):
        reason = row_reason(change, statuses.get(change.package))
        text = details[change.package]
        if reason not in _OF_ROLLOUT:
            text = general_text(text, change, names)
        label = (labels or {}).get(change.package, str(change.op))
        key = (label, change.op, reason, text, frozenset(risk.category for risk in change_risks(change)))
        keyed.append((places.setdefault(key, index), label, reason, text, change))
    causes = []
    for _, keyed_alike in groupby(sorted(keyed, key=lambda item: item[0]), key=lambda item: item[0]):
        group = list(keyed_alike)
        _, label, reason, text, _ = group[0]
        alike = tuple(change for *_, change in group)
        is_alone = len(alike) == 1 or unfolded or (len(alike) <= MOST_ROWS and reason not in _OF_ROLLOUT)
        for members in ((change,) for change in alike) if is_alone else (alike,):
            risks = (risk for change in members for risk in change_risks(change) if change.impact)
            texts, status = [details[change.package] for change in members], statuses.get(members[0].package)
            causes.append(
                ChangeCause(
                    reason,
                    members,
                    common_text(texts, text),
                    _diffs(members, names),
                    label,
                    names_text(members, names),
                    tuple(sorted(set(risks), key=lambda risk: (risk.weight, risk))),
                    any(map(change_risks, members)),
                    str(status.phase) if status and members[0].op is Op.KEEP else "",
                )
            )
    return causes


def common_text(texts: Iterable[str], otherwise: str) -> str:
    """Return the text that all changes share; `otherwise` where they differ."""
    distinct = set(texts)
    return distinct.pop() if len(distinct) == 1 else otherwise


def _diffs(changes: Iterable[Change], names: Names) -> tuple[Diff, ...]:
    by_digest: dict[str, list[Change]] = {}
    for change in changes:
        by_digest.setdefault(change.impact.digest if change.impact else "", []).append(change)
    alike = map(tuple, by_digest.values())
    diffs = [Diff(members, members[0].impact, names_text(members, names)) for members in alike]
    return tuple(sorted(diffs, key=lambda diff: -len(diff.changes)))


def equal_differences(
    changes: Iterable[Change], impacts: Mapping[PackageKey, Impact] = MappingProxyType({})
) -> list[list[Change]]:
    """Return the changes with equal differences together; changes without a difference are alone.

    `impacts` are the differences of those that this run does not write.
    """
    groups: dict[object, list[Change]] = {}
    for change in changes:
        impact = change.impact or impacts.get(change.package)
        groups.setdefault((change.op, impact.digest) if impact else change.package, []).append(change)
    return list(groups.values())


def general_text(text: str, change: Change, names: Names) -> str:
    """Return a text about one package without its own names and the number of its pull request."""
    aliases = {names.of(change), change.package.path, change.repository.name}
    aliases |= {change.package.path.rpartition("/")[2], change.package.url}
    aliases |= {str(change.variant), change.variant.name} if change.variant else set()
    moved_from, upstream = change.upstream_from, change.upstream_to
    # The upstream is the cause itself, and often has the name of the package.
    head, joint, rest = text.partition("; ") if moved_from or upstream else ("", "", text)
    # Making a pattern is slow, and most texts have no name in them.
    there = sorted((name for name in aliases if name and name in rest), key=lambda name: (-len(name), name))
    pattern = "|".join((*map(re.escape, there), r"#\d+"))
    return head + joint + re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", _ELLIPSIS, rest)


def names_text(changes: Sequence[Change], names: Names) -> str:
    """Return the first names of packages, and how many more there are."""
    return some([names.of(change) for change in changes], MOST_NAMES)


def cause_name(cause: ChangeCause) -> str:
    """Return the packages of a cause in a cell: `312 packages: edge-1/web, edge-2/web and 310 more`."""
    return f"{cause.name}: {cause.names}" if cause.is_folded else cause.names


def impact_text(impact: Impact) -> str:
    """Return the size of a difference: `+4 -2 in 2 files`."""
    return f"+{impact.added} -{impact.removed} in {plural(impact.files, 'file')}"


def risk_texts(risks: Iterable[Risk]) -> list[str]:
    """Return a line for each class of risk: `rbac: adds ClusterRole web`; rows have conflicts already."""
    lines = []
    unlisted = (risk for risk in risks if risk.category != CONFLICT)
    for category, members in groupby(unlisted, key=lambda risk: risk.category):
        texts = [f"{risk.action} {risk.subject}" for risk in members]
        lines.append(f"{category}: {some(texts, MOST_SUBJECTS)}")
    return lines


MOST_PLACES = 10
"""Places of one cause that are listed; more of them are counted."""
Item = TypeVar("Item")


def group_by_cause(items: Iterable[Item], key: Callable[[Item], tuple[str, Text, Text]]) -> list[list[Item]]:
    """Group items by kind, cause and hint, at the place of the first; one without a cause is alone."""
    groups: dict[tuple[object, ...], list[Item]] = {}
    for number, item in enumerate(items):
        kind, cause, hint = key(item)
        groups.setdefault((kind, cause, hint) if cause else (number,), []).append(item)
    return list(groups.values())


def group_problems(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Return problems by reason, cause and hint, each group at the place of its first one."""
    groups = group_by_cause(problems, lambda problem: (problem.reason, problem.cause, problem.hint))
    return [_group(tuple(group)) for group in groups]


def _group(problems: tuple[Problem, ...]) -> ProblemGroup:
    first, more = problems[0], len(problems) - MOST_PLACES
    if len(problems) == 1:
        where = str(first.location)
        return ProblemGroup(problems, first.reason, first.message, first.hint, where, first.subject)
    parts = ((str(p.location), f"{p.subject}{p.consequence}") for p in problems[:MOST_PLACES])
    places = [": ".join(filter(None, pair)) for pair in parts]
    places += [f"and {more} more"] if more > 0 else []
    message = f"{len(problems)}, all for one cause: {first.cause}"
    return ProblemGroup(problems, first.reason, message, first.hint, places=tuple(places))


_RETRY = "retry it, or leave it"
_DECISIONS = {
    Reason.DRAFT_EDITED.facts.waits_for: "merge or close its draft, which people edited",
    _WAITING[Phase.HELD_BACK]: "do what its row asks",
}
"""Orders for what a package waits for, where those words are none."""
_ACTIONS = {
    WaitsFor.REVIEW: Action.REVIEW,
    WaitsFor.ANSWER: Action.ANSWER,
    WaitsFor.CORRECTION: Action.REPAIR,
    WaitsFor.DECISION: Action.DECIDE,
}
"""Actions of people; all else waits for a machine, another package or the repair of a listed problem."""


def needs_after(plan: Plan, outcome: Outcome) -> list[Need]:
    """Return what waits for people after the effects of a plan."""
    return find_needs(plan, current_statuses(plan, outcome), outcome)


def find_needs(plan: Plan, statuses: Sequence[PackageStatus], outcome: Outcome | None = None) -> list[Need]:
    """Return what waits for people, the most urgent first, by the states of packages. Deterministic."""
    needs = [
        Need(
            Action.DECIDE,
            refusal.message,
            tuple(sorted({_place(s, plan) for s in statuses if _is_about(refusal, s)})),
        )
        for refusal in plan.refusals
    ]
    needs += [*_repairs(plan), *_of_packages(plan, statuses)]
    for rollout in plan.rollouts:
        needs += _of_rollout(rollout)
    pull = _lock_pull(plan, outcome)
    if plan.lock is not None and (pull is not None or plan.lock.change.waits):
        place = NeedPlace(f"control#{pull.number}", pull.url) if pull else NeedPlace("control")
        action = Action.DECIDE if plan.lock.change.waits else Action.REVIEW
        needs.append(Need(action, "the lock", (place,)))
    order = list(Action)
    return sorted(needs, key=lambda need: (order.index(need.action), not need.holds, need.text, need.places))


def _is_about(refusal: Refusal, status: PackageStatus) -> bool:
    is_kept = (status.reason, str(status.message)) == (refusal.reason, refusal.message)
    return status.package in refusal.packages or is_kept


def _lock_pull(plan: Plan, outcome: Outcome | None) -> PullRequest | None:
    """Return the open pull request of the lock, with what a run did; None without any."""
    if plan.lock is None or plan.context is None or plan.lock.change.op is Op.CLOSE:
        return None
    inventory, url = plan.context.inventory, plan.lock.change.package.url
    head = short_branch(lock_ref(inventory.policy.instance))
    opened = outcome.opened.get((url, head)) if outcome is not None else None
    there = (
        pull for pull in inventory.pulls.get(url, ()) if pull.head == head and pull.state is PullState.OPEN
    )
    return opened or next(there, None)


def _repairs(plan: Plan) -> Iterator[Need]:
    """Yield the problems by reason: their messages and hints are below, once each."""
    places: dict[str, dict[NeedPlace, None]] = {}
    for group in group_problems(plan.problems):
        of_reason = places.setdefault(group.reason, {})
        of_reason |= dict.fromkeys(NeedPlace(_problem_place(problem)) for problem in group.problems)
    for reason, of_reason in places.items():
        yield Need(Action.REPAIR, words(reason), tuple(of_reason))


def _problem_place(problem: Problem) -> str:
    """Return what is wrong and where: `Repository default/edge-1 (repositories.yaml:7)`."""
    where = str(problem.location)
    return f"{problem.subject} ({where})" if problem.subject and where else problem.subject or where


def _of_packages(plan: Plan, statuses: Sequence[PackageStatus]) -> Iterator[Need]:
    """Yield what packages wait for, those that wait for the same together."""
    overviews = package_overviews(plan, statuses)
    changes = {change.package: change for change in plan.changes}
    problems = {(p.owner, str(p.reason)) for p in plan.problems}
    holds = dict(_held_waves(plan.rollouts))
    groups: dict[tuple[Action, str], tuple[dict[str, NeedPlace], set[str]]] = {}
    for status in statuses:
        if status.variant is None:
            continue
        overview = overviews.get((status.variant, status.package), DraftOverview())
        change = changes.get(status.package) if status.package else None
        # What a refusal or the repair of a problem asks is asked once.
        is_listed = (variant_key(status.variant), str(status.reason)) in problems or any(
            r.reason in {status.reason, Reason.LOSS_NEEDS_CONSENT} and _is_about(r, status)
            for r in plan.refusals
        )
        for action, place in () if is_listed else _asks(status, plan):
            text = _text(action, status, overview, change)
            places, waves = groups.setdefault((action, text), ({}, set()))
            # A pull request of several packages is about none of them alone.
            places[place.name] = place._replace(package="") if place.name in places else place
            waves |= {holds[status.variant]} if status.variant in holds else set()
    for (action, text), (places, waves) in groups.items():
        yield Need(action, text, tuple(sorted(places.values())), tuple(sorted(waves)))


def _asks(status: PackageStatus, plan: Plan) -> Iterator[tuple[Action, NeedPlace]]:
    """Yield what a package asks of people, and where; a draft that people left is apart from its deletion."""
    action = _ACTIONS.get(status.waits_for)
    target = plan.context.targets.get(status.package) if plan.context and status.package else None
    is_deletion = action is Action.DECIDE and status.reason == Reason.DELETION_PROPOSED
    drafts = kept_drafts(target) if target is not None and is_deletion else ()
    for draft in drafts:
        pull = newest_pull(target.pulls, draft.ref) if target is not None else None
        number, url = (pull.number, pull.url) if pull is not None else (0, "")
        yield Action.DECIDE, _place(replace(status, pull=number, url=url), plan)
    action = Action.REVIEW if drafts else action
    if action is not None:
        yield action, _place(status, plan)


def _text(action: Action, status: PackageStatus, overview: DraftOverview, change: Change | None) -> str:
    if action is Action.ANSWER:
        return f"conflicts of {status.name}"
    if action is not Action.REVIEW:
        # Of a rejected package that no variant wants only a draft of people is left.
        rejected = _RETRY if change and change.upstream_to else Reason.DRAFT_EDITED.facts.waits_for
        is_left = status.reason == Reason.DELETION_PROPOSED  # a draft of people, beside the deletion
        rejected = Reason.DRAFT_EDITED.facts.waits_for if is_left else rejected
        text = rejected if is_left or status.phase is Phase.REJECTED else overview.waiting_for
        text = _DECISIONS.get(text, text)
        return f"{status.name}: {text}" if status.pull and text else text  # its place is the package
    by = f", by {', '.join(overview.reviewers)}" if overview.reviewers else ""
    first = f"new {overview.review}, which no manifest asks for"
    ends = {
        str(Reason.DELETION_PROPOSED): f"deletion of {status.name}",
        str(Reason.ORPHANED): f"release of {overview.main}" if overview.main else first,
    }
    if status.reason in ends:
        return f"{ends[status.reason]}{by}"
    review = overview.review_after(change) if change else overview.review
    if change is not None and status.variant is not None and cluster_of(status.variant):
        review = change.upstream_to  # generated manifests do not have the lock they are made from
    if review in ("", overview.main):
        return f"change of {overview.main}{by}" if overview.main else f"change{by}"
    is_back = change is not None and change.request is not None and change.request.is_back
    kind = "adoption as" if overview.replaces == "others" else "new"
    kind = "update to" if overview.main or overview.replaces == "ours" else kind
    return f"{'rollback to' if is_back else kind} {review}{by}"


def _place(status: PackageStatus, plan: Plan) -> NeedPlace:
    if status.repository is None:
        return NeedPlace(str(status.variant))
    key = status.repository
    repository = plan.context.inventory.label(key) if plan.context else key.name
    package = f"{repository}/{status.name}"
    name = f"{repository}#{status.pull}" if status.pull else package
    return NeedPlace(name, status.url, package)


def _held_waves(rollouts: Iterable[Rollout]) -> Iterator[tuple[ObjectName, str]]:
    """Yield the variants that a wave waits for, with the wave."""
    for rollout in rollouts:
        for wave in rollout.waves[:-1] if rollout.phase is RolloutPhase.PROGRESSING else ():
            if wave.phase is WavePhase.PROGRESSING:
                name = f"wave {wave.name} of {rollout.revision}"
                yield from ((m.key, name) for m in wave.members if m.phase is not MemberPhase.PUBLISHED)


def _of_rollout(rollout: Rollout) -> Iterator[Need]:
    """Yield the waves that failed, and those that a person has to release."""
    place = (NeedPlace(str(rollout.key)),)
    for wave in rollout.waves:
        if wave.phase is WavePhase.FAILED:
            yield Need(Action.DECIDE, f"wave {wave.name} of {rollout.revision} failed", place)
        if wave.asks and rollout.phase is RolloutPhase.PROGRESSING:
            yield Need(Action.RELEASE, f"wave {wave.name} of {rollout.revision}", place)


def moving_rollouts(rollouts: Iterable[Rollout]) -> tuple[Rollout, ...]:
    """Return the rollouts that are on their way."""
    return tuple(rollout for rollout in rollouts if rollout.phase is not RolloutPhase.COMPLETE)


T = TypeVar("T")
Row = TypeVar("Row", bound=Hashable)


def tell_rows(
    rows: Iterable[Row],
    show: Callable[[Collection[Row], Sequence[Problem]], T],
    subject: Callable[[Row], str] = str,
) -> T:
    """Return what `show` makes of rows without those that it breaks with, and with a problem of each."""
    result, broken = isolate(
        lambda: rows, lambda left_out: show(left_out, ()), lambda row: f"row of {subject(row)}"
    )
    if broken:
        named = [(subject(row), error) for row, error in broken.items()]
        problems = [defect_problem(error, Location(name), subject=name) for name, error in named]
        with suppress(DefectError), guard("problems of what cannot be shown"):
            result = show(broken, problems)
    return result


def tell(plan: Plan, show: Callable[[Plan], T]) -> T:
    """Return what `show` makes of a plan, where packages and problems that it breaks with are problems."""

    def show_without(left_out: Collection[Hashable], more: Sequence[Problem]) -> T:
        if not left_out:
            return show(plan)
        part = plan.without([row for row in left_out if isinstance(row, PackageKey)])
        return show(replace(part, problems=(*_rest(part.problems, left_out), *more)))

    return tell_rows((*(change.package for change in plan.changes), *plan.problems), show_without, _subject)


def tell_comparison(comparison: Comparison, show: Callable[[Comparison], T]) -> T:
    """Return what `show` makes of a comparison, where the rows that it breaks with are new problems."""
    lists = {kind: getattr(comparison, kind) for kind in ("new", "old", "fixed", "unread")}

    def show_without(left_out: Collection[Hashable], more: Sequence[Problem]) -> T:
        if not left_out:
            return show(comparison)
        problems = {kind: _rest(of_kind, left_out) for kind, of_kind in lists.items()}
        packages = tuple(p for p in comparison.packages if p.change.package not in left_out)
        variants = tuple(variant for variant in comparison.variants if variant.key not in left_out)
        part = replace(comparison, packages=packages, variants=variants, **problems)
        return show(replace(part, new=(*part.new, *more)))

    packages = (difference.change.package for difference in comparison.packages)
    variants = (variant.key for variant in comparison.variants)
    return tell_rows((*packages, *variants, *chain(*lists.values())), show_without, _subject)


def _rest(problems: Iterable[Problem], left_out: Collection[Hashable]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem not in left_out)


def _subject(row: Hashable) -> str:
    match row:
        case PackageKey():
            return f"package {row.path}"
        case ObjectName():
            return f"PackageVariant {row}"
    return str(row)


def tell_outcome(outcome: Outcome | None, show: Callable[[Outcome | None], T]) -> T:
    """Return what `show` makes of an outcome, without the effects that it breaks with."""
    if outcome is None:
        return show(None)
    return tell_rows(
        outcome.effects,
        lambda left_out, _: show(
            replace(outcome, effects=tuple(effect for effect in outcome.effects if effect not in left_out))
        ),
        lambda effect: f"effect on {effect.repository}",
    )
