"""The HTML report of a run: bring together what its page shows, and read what only the page needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from reconciler import __version__
from reconciler.base.text import join_texts
from reconciler.base.wording import time_text
from reconciler.inventory.inventory import RepositoryRole
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Op, Outcome
from reconciler.plan.compare import WITHDRAW, Comparison
from reconciler.plan.impact import Impact
from reconciler.plan.status import current_states, current_status, current_statuses, status_after
from reconciler.report.comparison import (
    compared_text,
    comparison_causes,
    comparison_labels,
    counts,
    problem_sentence,
    sentence,
)
from reconciler.report.folding import FoldedChanges, fold_changes, impact_text, names_text, risk_texts
from reconciler.report.html import (
    NEW,
    PROBLEMS,
    CauseRow,
    DiffRow,
    FileDiff,
    HtmlReport,
    ReportKind,
    ReportSource,
)
from reconciler.report.isolation import tell, tell_comparison
from reconciler.report.needs import needs_after
from reconciler.report.proposal import pin_line, proposal_lines
from reconciler.report.rollouts import rollout_texts
from reconciler.report.status import URGENCY
from reconciler.report.summary import (
    Names,
    change_order,
    change_risks,
    count_ops,
    listed_changes,
    loss_texts,
    move_text,
    risk_counts,
    sorted_changes,
    summary_line,
)
from reconciler.report.text import failures, outcome_lines
from reconciler.run.check import CheckResult
from reconciler.run.html_diffs import Differences, find_differences
from reconciler.run.html_packages import PackageSources, package_rows
from reconciler.run.plan import PlannedRun

_MOST_PINS: Final = 200


def plan_report(planned: PlannedRun, outcome: Outcome | None = None) -> HtmlReport:
    """Return the report of a plan or, with its outcome, of what was applied; states are those after it."""
    return tell(planned.plan, lambda plan: _plan_report(replace(planned, plan=plan), outcome))


def _plan_report(planned: PlannedRun, outcome: Outcome | None) -> HtmlReport:
    plan, names = planned.plan, planned.names
    changes, statuses = sorted_changes(plan), current_states(plan)
    causes = fold_changes(listed_changes(plan, statuses), names, statuses)
    differences = find_differences(planned, changes)
    sources = _sources(planned, outcome, differences, causes)
    lines = list(outcome_lines(outcome)) if outcome else []
    phases = {package: str(status.phase) for package, status in statuses.items()}
    report = HtmlReport(
        ReportKind.APPLY if outcome else ReportKind.PLAN,
        names.instance,
        " ".join([*lines[-1:], summary_line(replace(plan, checksum=""), statuses)]),
        plan.checksum,
        counts={str(op): count for op, count in count_ops(plan).items() if op is not Op.KEEP},
        losses=tuple(loss_texts(plan.losses)),
        needs=tuple(needs_after(plan, outcome)),
        risks=risk_counts(plan.changes),
        causes=tuple(_cause_rows(causes, names, differences, phases=phases)),
        packages=package_rows(changes, sources),
        diffs=differences.diffs,
        problems={PROBLEMS: plan.problems},
        refusals=plan.refusals,
        rollouts=tuple(rollout_texts(plan.rollouts)),
        lock=(*map(move_text, plan.version_changes), *proposal_lines(plan.lock)),
        notes=plan.notes,
        failed=tuple(failures(outcome)) if outcome else (),
        effects=tuple(lines[:-1]),
    )
    return _with_origin(report, planned)


def status_report(planned: PlannedRun) -> HtmlReport:
    """Return the report of the fleet as it is now, without the changes that a plan would make."""
    return tell(planned.plan, lambda plan: _status_report(replace(planned, plan=plan)))


def _status_report(planned: PlannedRun) -> HtmlReport:
    plan = planned.plan
    order = {str(phase): place for place, phase in enumerate(URGENCY)}
    differences = find_differences(planned, sorted_changes(plan))
    rows = package_rows(sorted_changes(plan), _sources(planned, None, differences, ()))
    recorded = [
        replace(row, op="", risks=(), categories=(), cause=-1)
        for row in rows
        if row.phase or not row.repository
    ]
    phases = Counter(row.phase for row in recorded)
    summary = ", ".join(f"{phases[phase]} {phase}" for phase in order if phases[phase])
    report = HtmlReport(
        ReportKind.STATUS,
        planned.names.instance,
        summary or "No package is there.",
        losses=tuple(loss_texts(plan.losses)),
        needs=tuple(needs_after(plan)),
        packages=tuple(sorted(recorded, key=lambda row: (order.get(row.phase, len(order)), row.full_name))),
        diffs=differences.diffs,
        problems={PROBLEMS: plan.problems},
        refusals=plan.refusals,
        rollouts=tuple(rollout_texts(plan.rollouts)),
    )
    return _with_origin(report, planned)


def check_report(checked: CheckResult) -> HtmlReport:
    """Return the report of what merging a change does; packages are those of the fleet after merging."""

    def show(comparison: Comparison, planned: PlannedRun | None) -> HtmlReport:
        return _check_report(replace(checked, comparison=comparison, proposed=planned))

    def show_part(comparison: Comparison) -> HtmlReport:
        planned = checked.proposed
        if planned is None:
            return show(comparison, None)
        return tell(planned.plan, lambda plan: show(comparison, replace(planned, plan=plan)))

    return tell_comparison(checked.comparison, show_part)


def _check_report(checked: CheckResult) -> HtmlReport:
    comparison, names, planned = checked.comparison, checked.names, checked.proposed
    problems = {
        NEW: comparison.new,
        "Not read": comparison.unread,
        "Fixed problems": comparison.fixed,
        "Problems that were there before": comparison.old,
    }
    compared = f"Compared: {compared_text(comparison)}"
    report = HtmlReport(
        ReportKind.CHECK,
        names.instance,
        ". ".join(filter(None, (sentence(comparison), problem_sentence(comparison), compared))),
        losses=tuple(loss_texts(comparison.losses)),
        counts=counts(comparison),
        problems=problems,
        refusals=comparison.refusals,
        lock=tuple(map(pin_line, comparison.pins[:_MOST_PINS])),
        notes=checked.notes,
    )
    if planned is None:
        variants = (join_texts(" ", (v.fate, str(v.key), v.message)) for v in comparison.variants)
        return replace(report, effects=tuple(variants))
    return _compared_report(report, checked, planned)


def _compared_report(report: HtmlReport, checked: CheckResult, planned: PlannedRun) -> HtmlReport:
    """Return a report with the packages of the fleet, those that merging changes first."""
    comparison, names = checked.comparison, checked.names
    differing = {difference.change.package: difference.change for difference in comparison.packages}
    rest = [change for change in sorted_changes(planned.plan) if change.package not in differing]
    changes = [*sorted(differing.values(), key=change_order), *rest]
    causes = comparison_causes(comparison, names)
    labels = comparison_labels(comparison)
    differences = find_differences(planned, [c for c in changes if labels.get(c.package) != WITHDRAW])
    sources = replace(_sources(planned, None, differences, causes), labels=labels, other="same")
    return replace(
        _with_origin(report, planned),
        risks=risk_counts(differing.values()),
        causes=tuple(_cause_rows(causes, names, differences)),
        packages=package_rows(changes, sources),
        diffs=differences.diffs,
        rollouts=tuple(rollout_texts(planned.plan.rollouts)),
    )


def _with_origin(report: HtmlReport, planned: PlannedRun) -> HtmlReport:
    """Return a report that names the commit that was read, and every registered cluster."""
    inventory = planned.inputs.inventory
    control = inventory.control
    commit = planned.inputs.mirrors.open(control.remote).find_commit(control.commit.oid)
    clusters = {
        view.cluster or view.key.name: view.problem.message if view.problem else ""
        for _, view in sorted(inventory.repositories.items())
        if view.deployment and view.role is RepositoryRole.PLANNED
    }
    source = ReportSource(
        control.commit.oid,
        control.branch,
        commit.author.name if commit else "",
        time_text(control.commit.time),
        commit.message.strip().partition("\n")[0] if commit else "",
        __version__,
    )
    return replace(report, source=source, clusters=clusters)


def _sources(
    planned: PlannedRun, outcome: Outcome | None, differences: Differences, causes: Sequence[FoldedChanges]
) -> PackageSources:
    """Return what rows of packages are made of, with the states before the plan or after its outcome."""
    plan = planned.plan
    files = status_after(plan, outcome.unfinished, outcome.opened) if outcome else current_status(plan)
    of_causes = {change.package: place for place, cause in enumerate(causes) for change in cause.changes}
    return PackageSources(planned, current_statuses(plan, outcome), files, differences.places, of_causes)


def _cause_rows(
    causes: Iterable[FoldedChanges],
    names: Names,
    differences: Differences,
    *,
    phases: Mapping[PackageKey, str] | None = None,
) -> Iterator[CauseRow]:
    for cause in causes:
        change = cause.first
        yield CauseRow(
            cause.label,
            names.of(change),
            str(cause.reason),
            cause.text,
            len(cause.changes),
            any(change_risks(member) for member in cause.changes),
            tuple(_diff_rows(cause, names, differences)),
            (phases or {}).get(change.package, "") if change.op is Op.KEEP else "",
        )


def _diff_rows(cause: FoldedChanges, names: Names, differences: Differences) -> Iterator[DiffRow]:
    for diff in cause.diffs:
        first = diff.changes[0]
        place = differences.places.get(first.package, -1)
        files = differences.diffs[place].files if place >= 0 else ()
        size = impact_text(diff.impact) if diff.impact else _size(files) if files else ""
        packages = names_text(diff.changes, names) if cause.is_folded else ""
        count = f"{len(diff.changes)} x " if len(cause.diffs) > 1 else ""
        text = ": ".join(filter(None, (f"{count}{packages}", size)))
        yield DiffRow(text, place, tuple(risk_texts(change_risks(first))))


def _size(files: Sequence[FileDiff]) -> str:
    """Return the size of a difference that the plan did not compute: of a deletion, or of an open draft."""
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return impact_text(Impact("", len(files), added, removed))
