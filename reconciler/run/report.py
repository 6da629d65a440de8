"""The HTML report of a run: bring together what its page shows, and read what only the page needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from reconciler import __version__
from reconciler.api.kptfile import KPTFILE
from reconciler.apply.links import find_web, known_bases, local_origins
from reconciler.base.reasons import Phase
from reconciler.base.text import date_text, join_texts, plural, time_text
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues
from reconciler.inventory.inventory import RepositoryRole
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op, Outcome
from reconciler.plan.compare import WITHDRAW, Comparison
from reconciler.plan.impact import Impact, ImpactReader
from reconciler.plan.status import PackageStatus
from reconciler.render.update.sides import file_text, is_text
from reconciler.report.build import (
    build_report,
    change_order,
    change_risks,
    equal_differences,
    risk_texts,
    row_reason,
    sorted_changes,
    tell,
    tell_comparison,
)
from reconciler.report.comparison import (
    comparison_labels,
)
from reconciler.report.conflicts import conflict_texts
from reconciler.report.diff import binary_note, package_patch
from reconciler.report.html import (
    FileDiff,
    PackageDiff,
    Page,
    PageRow,
    ReportKind,
    ReportSource,
)
from reconciler.report.report import PackageOverview, Report, StatusRow
from reconciler.report.status import URGENCY
from reconciler.run.check import CheckResult
from reconciler.run.differences import PackageSides, is_deletion, is_removed, open_draft, read_sides
from reconciler.run.plan import PlannedRun
from reconciler.run.queries import status_rows


def plan_report(planned: PlannedRun, outcome: Outcome | None = None) -> Page:
    """Return the page of a plan or, with its outcome, of what was applied; states are those after it."""
    return tell(planned.plan, lambda plan: _plan_page(replace(planned, plan=plan), outcome))


def _plan_page(planned: PlannedRun, outcome: Outcome | None = None) -> Page:
    report = build_report(planned.plan, planned.names, outcome)
    changes = [row.change for row in report.packages]
    return _page(ReportKind.APPLY if outcome else ReportKind.PLAN, report, planned, changes)


def status_report(planned: PlannedRun) -> Page:
    """Return the page of the fleet as it is now, without the changes that a plan would make."""
    return tell(planned.plan, lambda plan: _status_page(replace(planned, plan=plan)))


def _status_page(planned: PlannedRun) -> Page:
    page = _plan_page(planned)
    order = {str(phase): place for place, phase in enumerate(URGENCY)}
    recorded = [
        replace(row, op="", risks=(), categories=(), cause=-1)
        for row in page.packages
        if row.phase or not row.repository
    ]
    phases = Counter(row.phase for row in recorded)
    summary = ", ".join(f"{phases[phase]} {phase}" for phase in order if phases[phase])
    packages = sorted(recorded, key=lambda row: (order.get(row.phase, len(order)), row.full_name))
    report = replace(
        page.report,
        sentence=summary or "No package is there.",
        checksum="",
        ops={},
        risks={},
        fold=tuple,
        lock=None,
        moves=(),
        notes=tuple(str(warning) for warning in planned.fleet.locks.warnings),
    )
    return replace(page, kind=ReportKind.STATUS, report=report, packages=tuple(packages))


def check_report(checked: CheckResult) -> Page:
    """Return the page of what merging a change does; packages are those of the fleet after merging."""
    planned = checked.proposed

    def show(comparison: Comparison) -> Page:
        part = replace(checked, comparison=comparison)
        if planned is None:
            return Page(ReportKind.CHECK, part.report)
        return tell(planned.plan, lambda p: _check_page(part, replace(planned, plan=p)))

    return tell_comparison(checked.comparison, show)


def _check_page(checked: CheckResult, planned: PlannedRun) -> Page:
    """Return a page with the packages of the fleet, those that merging changes first."""
    differing = {difference.change.package: difference.change for difference in checked.comparison.packages}
    rest = [change for change in sorted_changes(planned.plan) if change.package not in differing]
    changes = [*sorted(differing.values(), key=change_order), *rest]
    report = replace(checked.report, rollouts=planned.plan.rollouts)
    return _page(ReportKind.CHECK, report, planned, changes, comparison_labels(checked.comparison))


def _page(
    kind: ReportKind,
    report: Report,
    planned: PlannedRun,
    changes: Sequence[Change],
    labels: Mapping[PackageKey, str] | None = None,
) -> Page:
    """Return a page that names the commit that was read, and every registered cluster.

    `labels` name what happens to packages where that is not the operation.
    """
    inventory = planned.inputs.inventory
    control = inventory.control
    commit = planned.inputs.mirrors.open(control.remote).find_commit(control.commit.oid)
    source = ReportSource(
        control.commit.oid,
        control.branch,
        commit.author.name if commit else "",
        time_text(control.commit.time),
        commit.message.strip().partition("\n")[0] if commit else "",
        __version__,
    )
    clusters = {
        view.cluster or view.key.name: str(view.problem.message) if view.problem else ""
        for _, view in sorted(inventory.repositories.items())
        if view.deployment and view.role is RepositoryRole.PLANNED
    }
    ended = {package for package, label in (labels or {}).items() if label == WITHDRAW}
    places, diffs = find_differences(planned, [c for c in changes if c.package not in ended])
    reader = _RowReader(planned, report, places, labels)
    return Page(kind, report, reader.rows(changes), diffs, places, source, clusters)


class _RowReader:
    """Reads the rows of packages: values of the whole fleet that they need are computed once.

    `places` are those of the differences of packages.
    """

    def __init__(
        self,
        planned: PlannedRun,
        report: Report,
        places: Mapping[PackageKey, int],
        labels: Mapping[PackageKey, str] | None,
    ) -> None:
        self._context, self._inputs, self._names = planned.plan.context, planned.inputs, planned.names
        self._places, self._labels = places, labels
        self._causes = {
            change.package: place for place, cause in enumerate(report.causes) for change in cause.changes
        }
        self._rows = status_rows(planned, report.outcome)
        self._by_package = {row.package.package: row for row in self._rows if row.package}
        self._conditions = {row.owner.key: _conditions(row) for row in self._rows if row.is_variant}

    def rows(self, changes: Iterable[Change]) -> tuple[PageRow, ...]:
        """Return a row for each change, and for each owner without a package that has a state.

        Changes and conflicts come first, in their order, then what is kept, the most urgent state first.
        """
        return tuple(sorted((*map(self.row, changes), *self.others()), key=_row_order))

    def row(self, change: Change) -> PageRow:
        listed = self._by_package.get(change.package)
        status, overview = (listed.package, listed.summary) if listed else (None, PackageOverview())
        repository = self._names.repository(change)
        labels, risks = self._labels, change_risks(change)
        parts = (change.detail, *change.unready, status.message if status and change.op is Op.KEEP else "")
        return PageRow(
            **_overview_fields(overview)
            | {"review": overview.review_after(change) if change.variant else ""}
            | _status_fields(status),
            repository=repository,
            name=self._names.of(change).removeprefix(f"{repository}/"),
            variant=str(change.variant or ""),
            op=str(change.op) if labels is None else labels.get(change.package, "same"),
            reason=str(row_reason(change, status)),
            detail=join_texts("; ", dict.fromkeys(parts)),
            manifest=str(change.location or ""),
            web_url=self._web_url(change),
            risks=tuple(risk_texts(risks)),
            categories=tuple(dict.fromkeys(risk.category for risk in risks)),
            warnings=change.warnings,
            conflicts=self._conflicts(change),
            subpackages=tuple(note.text for note in change.subpackages),
            conditions=self._conditions.get(change.variant, ()) if change.variant else (),
            diff=self._places.get(change.package, -1),
            cause=self._causes.get(change.package, -1),
        )

    def others(self) -> Iterator[PageRow]:
        """Yield owners without a package in a repository: of clusters, and those that are stalled."""
        with_package = {row.owner.key for row in self._rows if row.package and row.package.package}
        for row in self._rows:
            if row.is_variant and row.owner.key in with_package:
                continue
            if not (row.owner.cluster or row.is_variant or row.is_stalled):
                continue
            repository, name, cluster = self._downstream(row)
            yield PageRow(
                **{"phase": str(row.phase or "")}
                | _overview_fields(row.summary)
                | {"cluster": cluster}
                | _status_fields(row.package),
                repository=repository,
                name=name,
                reason=row.reason,
                detail=str(row.message) if row.package or row.is_stalled else "",
                variant=f"{row.owner.kind} {'/'.join(filter(None, row.owner.key))}",
                conditions=_conditions(row),
            )

    def _downstream(self, row: StatusRow) -> tuple[str, str, str]:
        """Return repository, package and cluster of an owner; of a variant also those that were not read."""
        key = row.owner.key
        variant = self._context.variants.get(key) if self._context and row.is_variant else None
        downstream = variant.spec.downstream if variant else None
        if variant is None or downstream is None or not downstream.repo:
            return "", row.package_name, row.owner.cluster
        view = self._inputs.inventory.repositories.get(ObjectName(key.namespace, downstream.repo))
        return downstream.repo, downstream.package or row.package_name, view.cluster if view else ""

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


_UNCHANGED: Final = frozenset({"", str(Op.KEEP), "same"})


def _row_order(row: PageRow) -> int:
    is_kept = row.op in _UNCHANGED and row.phase != Phase.CONFLICT
    return 1 + (URGENCY.index(Phase(row.phase)) if row.phase else len(URGENCY)) if is_kept else 0


def _conditions(row: StatusRow) -> tuple[tuple[str, ...], ...]:
    return tuple((c.type, c.status, c.reason, c.message) for c in row.owner.conditions)


def _overview_fields(overview: PackageOverview) -> dict[str, Any]:
    return {name: getattr(overview, name) for name in PackageOverview.__struct_fields__}


def _status_fields(status: PackageStatus | None) -> dict[str, str]:
    if status is None:
        return {}
    number = f"#{status.pull}" if status.pull else ""
    since = date_text(status.since)
    return {"phase": str(status.phase), "since": since, "pull": number, "pull_url": status.url}


MOST_DIFFS: Final = 400
"""Distinct differences that a page holds; of further packages it names the command that prints them."""
MOST_DRAFTS: Final = 1000
"""Open drafts that this run does not write, and that are read to be compared."""
MOST_LINES: Final = 1500
"""Lines of one file."""
MOST_TEXT: Final = 1_000_000
"""Characters of all files together; a file that is equal in several differences counts once."""


def find_differences(
    planned: PlannedRun, changes: Iterable[Change]
) -> tuple[Mapping[PackageKey, int], tuple[PackageDiff, ...]]:
    """Return for each package the place of its difference, and the distinct differences.

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
    return places, diffs


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
        values = sides.secrets
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
