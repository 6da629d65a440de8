"""The HTML report of a run: bring together what its page shows, and read what only the page needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from msgspec.structs import replace

from reconciler import __version__
from reconciler.api.kptfile import KPTFILE
from reconciler.apply.links import find_web, known_bases, local_origins
from reconciler.base.reasons import Phase
from reconciler.base.text import join_texts, plural, time_text
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, values_in_secrets
from reconciler.inventory.inventory import RepositoryRole
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op, Outcome
from reconciler.plan.compare import WITHDRAW, Comparison
from reconciler.plan.impact import Impact, ImpactReader
from reconciler.plan.package_status import status_entries
from reconciler.plan.status import PackageStatus, current_status, current_statuses, status_after
from reconciler.render.update.sides import file_text, is_text
from reconciler.report.build import (
    build_report,
    change_order,
    change_risks,
    equal_differences,
    judgement_rows,
    judgement_texts,
    loss_texts,
    move_text,
    moving_rollouts,
    package_overviews,
    risk_counts,
    risk_texts,
    row_reason,
    sorted_changes,
    tell,
    tell_comparison,
)
from reconciler.report.comparison import (
    compared_text,
    comparison_causes,
    comparison_labels,
    counts,
    problem_sentence,
    sentence,
)
from reconciler.report.conflicts import conflict_texts
from reconciler.report.diff import binary_note, package_patch
from reconciler.report.html import (
    NEW,
    PROBLEMS,
    FileDiff,
    PackageDiff,
    Page,
    PageRow,
    ReportKind,
    ReportSource,
)
from reconciler.report.report import ChangeCause, PackageOverview
from reconciler.report.status import URGENCY, Owner, condition, package_name
from reconciler.report.text import failures, outcome_lines, pin_line, proposal_lines
from reconciler.run.check import CheckResult
from reconciler.run.differences import PackageSides, is_deletion, is_removed, open_draft, read_sides
from reconciler.run.plan import PlannedRun

_MOST_PINS: Final = 200


class Differences(NamedTuple):
    """The distinct differences of a run, and for each package the place of its own."""

    places: Mapping[PackageKey, int]
    diffs: tuple[PackageDiff, ...]


def plan_report(planned: PlannedRun, outcome: Outcome | None = None) -> Page:
    """Return the report of a plan or, with its outcome, of what was applied; states are those after it."""
    return tell(planned.plan, lambda plan: _plan_report(replace(planned, plan=plan), outcome))


def _plan_report(planned: PlannedRun, outcome: Outcome | None) -> Page:
    report = build_report(planned.plan, planned.names, outcome)
    changes = [row.change for row in report.packages]
    differences = find_differences(planned, changes)
    reader = _RowReader(planned, outcome, differences.places, report.causes)
    lines = list(outcome_lines(outcome)) if outcome else []
    page = Page(
        ReportKind.APPLY if outcome else ReportKind.PLAN,
        report.names.instance,
        " ".join([*lines[-1:], report.sentence]),
        report.checksum,
        counts={str(op): count for op, count in report.ops.items() if op is not Op.KEEP},
        losses=tuple(loss_texts(report.losses)),
        judgements=tuple(judgement_texts(report.judgements)),
        needs=report.needs,
        risks=report.risks,
        causes=report.causes,
        packages=reader.rows(changes),
        diffs=differences.diffs,
        places=differences.places,
        problems={PROBLEMS: report.problems},
        refusals=report.refusals,
        rollouts=moving_rollouts(report.rollouts),
        lock=(*map(move_text, report.moves), *proposal_lines(report.lock)),
        notes=report.notes,
        failed=tuple(failures(outcome)) if outcome else (),
        effects=tuple(lines[:-1]),
    )
    return _with_origin(page, planned)


def status_report(planned: PlannedRun) -> Page:
    """Return the report of the fleet as it is now, without the changes that a plan would make."""
    return tell(planned.plan, lambda plan: _status_report(replace(planned, plan=plan)))


def _status_report(planned: PlannedRun) -> Page:
    page = _plan_report(planned, None)
    order = {str(phase): place for place, phase in enumerate(URGENCY)}
    recorded = [
        replace(row, op="", risks=(), categories=(), cause=-1)
        for row in page.packages
        if row.phase or not row.repository
    ]
    phases = Counter(row.phase for row in recorded)
    summary = ", ".join(f"{phases[phase]} {phase}" for phase in order if phases[phase])
    packages = sorted(recorded, key=lambda row: (order.get(row.phase, len(order)), row.full_name))
    whole = replace(page, kind=ReportKind.STATUS, summary=summary or "No package is there.")
    notes = tuple(str(warning) for warning in planned.fleet.locks.warnings)
    unchanged = replace(whole, checksum="", counts={}, risks={}, causes=(), lock=(), notes=notes)
    return replace(unchanged, packages=tuple(packages))


def check_report(checked: CheckResult) -> Page:
    """Return the report of what merging a change does; packages are those of the fleet after merging."""
    planned = checked.proposed

    def show(comparison: Comparison) -> Page:
        part = replace(checked, comparison=comparison)
        if planned is None:
            return _check_report(part)
        return tell(planned.plan, lambda p: _check_report(replace(part, proposed=replace(planned, plan=p))))

    return tell_comparison(checked.comparison, show)


def _check_report(checked: CheckResult) -> Page:
    comparison, names, planned = checked.comparison, checked.names, checked.proposed
    problems = {
        NEW: comparison.new,
        "Not read": comparison.unread,
        "Fixed problems": comparison.fixed,
        "Problems that were there before": comparison.old,
    }
    compared = f"Compared: {compared_text(comparison)}"
    report = Page(
        ReportKind.CHECK,
        names.instance,
        ". ".join(filter(None, (sentence(comparison), problem_sentence(comparison), compared))),
        losses=tuple(loss_texts(comparison.losses)),
        judgements=tuple(
            judgement_texts(judgement_rows(comparison.judged, checked.names, comparison.unjudged))
        ),
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


def _compared_report(report: Page, checked: CheckResult, planned: PlannedRun) -> Page:
    """Return a report with the packages of the fleet, those that merging changes first."""
    comparison, names = checked.comparison, checked.names
    differing = {difference.change.package: difference.change for difference in comparison.packages}
    rest = [change for change in sorted_changes(planned.plan) if change.package not in differing]
    changes = [*sorted(differing.values(), key=change_order), *rest]
    causes = comparison_causes(comparison, names)
    labels = comparison_labels(comparison)
    differences = find_differences(planned, [c for c in changes if labels.get(c.package) != WITHDRAW])
    reader = _RowReader(planned, None, differences.places, causes, labels)
    return replace(
        _with_origin(report, planned),
        risks=risk_counts(differing.values()),
        causes=tuple(causes),
        packages=reader.rows(changes),
        diffs=differences.diffs,
        places=differences.places,
        rollouts=moving_rollouts(planned.plan.rollouts),
    )


def _with_origin(report: Page, planned: PlannedRun) -> Page:
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


class _RowReader:
    """Reads the rows of packages: values of the whole fleet that they need are computed once.

    `differences` and `causes` are where those of packages are. `labels` name what happens to packages where
    that is not the operation.
    """

    def __init__(
        self,
        planned: PlannedRun,
        outcome: Outcome | None,
        differences: Mapping[PackageKey, int],
        causes: Sequence[ChangeCause] = (),
        labels: Mapping[PackageKey, str] | None = None,
    ) -> None:
        plan, statuses = planned.plan, current_statuses(planned.plan, outcome)
        files = status_after(plan, outcome.unfinished, outcome.opened) if outcome else current_status(plan)
        self._context, self._inputs, self._names = plan.context, planned.inputs, planned.names
        self._differences, self._labels = differences, labels
        self._causes = {
            change.package: place for place, cause in enumerate(causes) for change in cause.changes
        }
        self._variants = {status.variant for status in statuses if status.package}
        self._statuses = {status.package: status for status in statuses if status.package}
        self._overviews = package_overviews(plan, statuses)
        self._owners = _owners(files)
        self._conditions = {_owner_key(o): _conditions(o) for o in self._owners if o.get("kind") == _VARIANT}

    def rows(self, changes: Iterable[Change]) -> tuple[PageRow, ...]:
        """Return a row for each change, and for each owner without a package that has a state.

        Changes and conflicts come first, in their order, then what is kept, the most urgent state first.
        """
        return tuple(sorted((*map(self.row, changes), *self.others()), key=_row_order))

    def row(self, change: Change) -> PageRow:
        status = self._statuses.get(change.package)
        key = (change.variant, change.package) if change.variant else None
        overview = self._overviews.get(key, PackageOverview()) if key else PackageOverview()
        repository = self._names.repository(change)
        name = self._names.of(change).removeprefix(f"{repository}/")
        conditions = self._conditions.get(change.variant, ()) if change.variant else ()
        labels = self._labels
        parts = (change.detail, *change.unready, status.message if status and change.op is Op.KEEP else "")
        return PageRow(
            **_overview_fields(overview)
            | {"review": overview.review_after(change) if change.variant else ""}
            | _status_fields(status),
            repository=repository,
            name=name,
            variant=str(change.variant or ""),
            op=str(change.op) if labels is None else labels.get(change.package, "same"),
            reason=str(row_reason(change, status)),
            detail=join_texts("; ", dict.fromkeys(parts)),
            manifest=str(change.location or ""),
            web_url=self._web_url(change),
            risks=tuple(risk_texts(change_risks(change))),
            categories=tuple(dict.fromkeys(risk.category for risk in change_risks(change))),
            warnings=change.warnings,
            conflicts=self._conflicts(change),
            subpackages=tuple(note.text for note in change.subpackages),
            conditions=conditions,
            diff=self._differences.get(change.package, -1),
            cause=self._causes.get(change.package, -1),
        )

    def others(self) -> Iterator[PageRow]:
        """Yield owners without a package in a repository: of clusters, and those that are stalled."""
        for owner in self._owners:
            is_stalled = condition(owner, "Stalled").get("status") == "True"
            is_package = owner.get("cluster") or owner.get("kind") == _VARIANT
            is_listed = owner.get("kind") == _VARIANT and _owner_key(owner) in self._variants
            if is_listed or not (is_package or is_stalled):
                continue
            package = owner.get("package") or {}
            repository, name, cluster = self._downstream(owner)
            decisive = condition(owner, "Stalled" if is_stalled else "Ready")
            phase = package.get("phase") or ("stalled" if is_stalled else "")
            overview = self._overviews.get((_owner_key(owner), None), PackageOverview())
            yield PageRow(
                **_overview_fields(overview) | {"cluster": cluster, "review": ""},
                repository=repository,
                name=name,
                phase=phase,
                since=(package.get("since") or "")[:10],
                reason=package.get("reason") or decisive.get("reason", ""),
                detail=package.get("message") or (decisive.get("message", "") if is_stalled else ""),
                variant=f"{owner.get('kind', '')} {'/'.join(filter(None, _owner_key(owner)))}".strip(),
                conditions=_conditions(owner),
            )

    def _downstream(self, owner: Owner) -> tuple[str, str, str]:
        """Return repository, package and cluster of an owner; of a variant also those that were not read."""
        context, key = self._context, _owner_key(owner)
        variant = (
            context.variants.get(ObjectName(*key)) if context and owner.get("kind") == _VARIANT else None
        )
        downstream = variant.spec.downstream if variant else None
        if variant is None or downstream is None or not downstream.repo:
            return "", package_name(owner), owner.get("cluster", "")
        view = self._inputs.inventory.repositories.get(ObjectName(key[0], downstream.repo))
        cluster = view.cluster if view else ""
        return downstream.repo, downstream.package or package_name(owner), cluster

    def _conflicts(self, change: Change) -> tuple[tuple[str, ...], ...]:
        view = self._inputs.inventory.views[change.repository]
        mirror = self._inputs.mirrors.open(view.remote) if change.conflicts and view.head else None
        origins = local_origins(mirror, view.branch, change) if mirror else {}
        since = {name: f"{c.subject} ({c.author}, {c.commit[:8]})" for name, c in origins.items()}
        return tuple(conflict_texts(known_bases(change, origins), since))

    def _web_url(self, change: Change) -> str:
        """Return the directory of the package on main at its forge, "" where either is not there."""
        view, context = self._inputs.inventory.views[change.repository], self._context
        target = context.targets.get(change.package) if context else None
        if view.head is None or target is None or target.package.main_tree is None:
            return ""
        web = find_web(view.remote, self._inputs.inventory.policy.forges)
        return web.directory(view.head.oid, change.package.path) if web else ""


_VARIANT: Final = "PackageVariant"
_UNCHANGED: Final = frozenset({"", str(Op.KEEP), "same"})


def _row_order(row: PageRow) -> int:
    is_kept = row.op in _UNCHANGED and row.phase != Phase.CONFLICT
    return 1 + (URGENCY.index(Phase(row.phase)) if row.phase else len(URGENCY)) if is_kept else 0


def _owners(files: Mapping[str, bytes]) -> list[Owner]:
    values = (orjson.loads(files[path]) for path in sorted(files) if path.startswith("conditions/"))
    return [owner for value in values for owner in status_entries(value)]


def _owner_key(owner: Owner) -> ObjectName:
    return ObjectName(owner.get("namespace", ""), owner.get("name", ""))


def _conditions(owner: Owner) -> tuple[tuple[str, ...], ...]:
    fields = ("type", "status", "reason", "message")
    return tuple(tuple(str(c.get(name, "")) for name in fields) for c in owner.get("conditions", ()))


def _overview_fields(overview: PackageOverview) -> dict[str, Any]:
    return {name: getattr(overview, name) for name in PackageOverview.__struct_fields__}


def _status_fields(status: PackageStatus | None) -> dict[str, str]:
    if status is None:
        return {}
    number = f"#{status.pull}" if status.pull else ""
    since = str(datetime.fromtimestamp(status.since, UTC).date()) if status.since else ""
    return {"phase": str(status.phase), "since": since, "pull": number, "pull_url": status.url}


MOST_DIFFS: Final = 400
"""Distinct differences that a page holds; of further packages it names the command that prints them."""
MOST_DRAFTS: Final = 1000
"""Open drafts that this run does not write, and that are read to be compared."""
MOST_LINES: Final = 1500
"""Lines of one file."""
MOST_TEXT: Final = 1_000_000
"""Characters of all files together; a file that is equal in several differences counts once."""


def find_differences(planned: PlannedRun, changes: Iterable[Change]) -> Differences:
    """Return the differences of packages.

    Reads what mirrors lack. Of equal differences the first package's is read, as it is in `plan --diff`.
    """
    written, drafts = [], []
    for change in changes:
        if change.written is not None or is_deletion(change):
            written.append(change)
        elif is_removed(change) or open_draft(change, planned.plan) is not None:
            drafts.append(change)
    compared = drafts[:MOST_DRAFTS]
    groups = equal_differences([*written, *compared], dict(_impacts(planned, compared)))[:MOST_DIFFS]
    places = {change.package: place for place, group in enumerate(groups) for change in group}
    writer = _Writer(planned)
    sides = read_sides([group[0] for group in groups], planned.plan, planned.inputs)
    diffs = tuple(writer.diff(side, len(group)) for side, group in zip(sides, groups, strict=True))
    return Differences(places, diffs)


def _impacts(planned: PlannedRun, drafts: Sequence[Change]) -> Iterator[tuple[PackageKey, Impact]]:
    """Yield the differences of drafts from main, by which equal ones are found."""
    reader = ImpactReader(planned.inputs.inventory.policy.risks)
    for side in read_sides(drafts, planned.plan, planned.inputs):
        if not side.unread:
            yield side.change.package, reader.impact(side.before, side.after, side.change.own_names)


class _Writer:
    """Writes differences as long as they fit the page."""

    def __init__(self, planned: PlannedRun) -> None:
        self._names = planned.names
        self._room = MOST_TEXT
        self._seen: set[str] = set()

    def diff(self, sides: PackageSides, count: int) -> PackageDiff:
        name = self._names.of(sides.change)
        if sides.unread:
            return PackageDiff(name, count, (), f"Not read: {sides.unread}")
        return PackageDiff(name, count, tuple(self._files(name, sides)))

    def _files(self, name: str, sides: PackageSides) -> Iterator[FileDiff]:
        before, after = sides.before, sides.after
        values = values_in_secrets(before, after)
        # A Kptfile is last, as in pull requests: it repeats the revision.
        for path in sorted(before.keys() | after.keys(), key=lambda path: (path == KPTFILE, path)):
            if before.get(path) == after.get(path):
                continue
            file = file_diff(path, before, after, values)
            if file.hunks in self._seen or len(file.hunks) <= self._room:
                self._room -= 0 if file.hunks in self._seen else len(file.hunks)
                self._seen.add(file.hunks)
                yield file
            else:
                note = f"Does not fit this page: reconciler plan --diff {name}"
                yield file._replace(hunks="", note=note)


def file_diff(path: str, before: Files, after: Files, values: SecretValues = NO_SECRET_VALUES) -> FileDiff:
    """Return the difference of one file, as `plan --diff` prints it, without these values of Secrets. Pure.

    A Secret and a file that is not text have a note in place of their lines.
    """
    old, new = before.get(path), after.get(path)
    action = "new" if old is None else "removed" if new is None else ""
    sides = ({path: side} if side else {} for side in (old, new))
    lines = list(package_patch("", *sides, values=values))
    if lines[0].startswith("#"):
        lines = [line.removeprefix("# ") for line in lines[1:]]
        if not lines:
            return FileDiff(path, action, 0, 0, note="A file that may hold a Secret is not shown.")
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    hunks = lines[start:]
    added, removed = (sum(line.startswith(sign) for line in hunks) for sign in "+-")
    if not hunks:
        note = "Empty, or only its mode changes."
        if not all(map(is_text, filter(None, (old, new)))):
            binary = binary_note(old, new) if old and new else file_text(new or old) or ""
            note = f"{binary[0].upper()}{binary[1:]}."
        elif "GIT binary patch" in lines:
            note = "Not shown: it has control characters."
        return FileDiff(path, action, 0, 0, note=note)
    more = len(hunks) - MOST_LINES
    note = f"{plural(more, 'further line')} left out." if more > 0 else ""
    return FileDiff(path, action, added, removed, "\n".join(hunks[:MOST_LINES]), note)
