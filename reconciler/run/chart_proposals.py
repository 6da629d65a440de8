"""Newer versions of the charts that packages follow, one pull request for each package (D30)."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.apply.outcome import Result, Target
from reconciler.apply.repository import apply_repository
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.functions.charts import CHART_HOME
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import RepositoryView
from reconciler.names.ids import Oid
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, chart_ref, short_branch
from reconciler.plan.changes import Change, PinChange
from reconciler.plan.index_pull_request import (
    IndexBranch,
    IndexProposal,
    ProposalPlace,
    propose_index,
    withdraw_index,
)
from reconciler.policy import CommitPolicy
from reconciler.read.repositories.drafts import split_by_author
from reconciler.report.markdown import chart_body
from reconciler.run.from_chart import (
    CONFIGURATION,
    ChartReader,
    PinnedChart,
    open_reader,
    package_with,
    pinned_chart,
    read_newer_chart,
)
from reconciler.run.inputs import RunInputs

_MOST_BYTES = 1 << 20


class ProposedCharts(Struct):
    """The changes of packages with charts, what was done about them, problems, and counts.

    `followed` packages follow a chart, `count` of them get another one.
    """

    changes: list[Change] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    requests: int = 0
    followed: int = 0
    count: int = 0


class _Followed(NamedTuple):
    """A package of an upstream repository that follows a chart, with its tree on main."""

    path: str
    tree: Oid
    chart: PinnedChart


def propose_charts(inputs: RunInputs) -> ProposedCharts:
    """Propose newer charts for the packages of `package from-chart`. What one package lacks stops no other.

    Packages with an owner are downstream: what they have of a chart is what was rendered.
    """
    proposed = ProposedCharts()
    control = inputs.mirrors.open(inputs.inventory.control.remote)
    reader = open_reader(inputs.inventory.policy, inputs.mirrors, control)
    done: set[tuple[str, str]] = set()
    for _, view in sorted(inputs.inventory.repositories.items()):
        if not view.is_available or view.head is None:
            continue
        try:
            with guard(view.url):
                mirror = inputs.mirrors.of(view.url)
                followed = [chart for chart in _followed(view, mirror) if (view.url, chart.path) not in done]
                done |= {(view.url, chart.path) for chart in followed}
                if followed:
                    _propose(view, mirror, followed, inputs=inputs, reader=reader, proposed=proposed)
        except ReconcilerError as error:
            proposed.problems.append(view.problem_at(_reason(error), str(error), error.hint))
    proposed.requests, proposed.followed = reader.client.requests, len(done)
    return proposed


def _followed(view: RepositoryView, mirror: Mirror) -> Iterator[_Followed]:
    for path, package in sorted(view.packages.items()):
        header, tree = package.main_header, package.main_tree
        if tree is None or header is None or header.owner or not header.has_charts:
            continue
        blob = mirror.blob_at(tree, CONFIGURATION)
        if blob is not None:
            mirror.ensure([blob])
            chart = pinned_chart(mirror.blob(blob, _MOST_BYTES))
            if chart is not None and mirror.subtree(tree, f"{CHART_HOME}/{chart.name}"):
                yield _Followed(path, tree, chart)


def _propose(
    view: RepositoryView,
    mirror: Mirror,
    followed: list[_Followed],
    *,
    inputs: RunInputs,
    reader: ChartReader,
    proposed: ProposedCharts,
) -> None:
    """Propose the newer charts of one repository."""
    inventory, commit = inputs.inventory, view.head
    if commit is None:
        return
    policy, changes, bodies = inventory.policy, list[Change](), dict[str, str]()
    forge, refs = inputs.forges.of(mirror), mirror.refs()
    pulls = forge.list_pulls()
    for chart in followed:
        ref = chart_ref(policy.instance, chart.path)
        place = ProposalPlace(view.key, view.url, chart.path, commit, view.branch)
        main = refs.get(f"{HEADS}{view.branch}")
        try:
            with guard(f"{view.url} {chart.path}"):
                branch = (
                    open_branch(mirror, refs[ref], main, chart.path, policy.commits) if ref in refs else None
                )
                proposal = _proposal(chart, mirror, ref, place, reader)
        except ReconcilerError as error:
            where = Location(f"{chart.path}/{CONFIGURATION}")
            problem = Problem(where, _reason(error), str(error), error.hint, chart.path)
            proposed.problems.append(problem)
            continue
        if proposal is not None:
            changes.append(propose_index(proposal, branch, pulls, inventory))
            bodies[short_branch(ref)] = chart_body(proposal)
            proposed.count += 1
        elif branch is not None and (ended := withdraw_index(ref, branch, pulls, inventory, place)):
            changes.append(ended)
    target = Target(mirror, forge, policy.commits, inputs.names, texts=bodies)
    proposed.results.append(apply_repository(target, changes))
    proposed.changes += changes


def _proposal(
    followed: _Followed, mirror: Mirror, ref: str, place: ProposalPlace, reader: ChartReader
) -> IndexProposal | None:
    """Return the package with its newer chart; None if it has the newest in its range."""
    pinned, limits = followed.chart, reader.policy.limits
    chart = read_newer_chart(pinned, reader)
    if chart is None:
        return None
    try:
        mirror.ensure(mirror.list_blobs(followed.tree, limits))
        before = mirror.files(followed.tree, limits)
    except PackageRefusedError as error:
        raise RefusedError(str(error)) from error
    files = package_with(chart, before, followed.path.rpartition("/")[2])
    home = f"{CHART_HOME}/{pinned.name}/"
    if all(before.get(path) == files.get(path) for path in {*before, *files} if path.startswith(home)):
        return None  # of Git: another commit, which did not touch the chart
    change = PinChange(chart.name, pinned.version, chart.version, "")
    return IndexProposal(chart.source, ref, files, (change,), place)


def open_branch(
    mirror: Mirror, tip: Oid, main: Oid | None, directory: str, policy: CommitPolicy
) -> IndexBranch:
    """Return the branch of a proposal, with its tree and whether people committed to it."""
    merged = mirror.ancestry(main) if main else frozenset()
    _, foreign = split_by_author(map(mirror.commit, mirror.walk(tip, merged)), policy)
    return IndexBranch(tip, mirror.subtree(tip, directory), bool(foreign))


def _reason(error: ReconcilerError) -> Reason:
    if isinstance(error, DefectError):
        return Reason.DEFECT
    return Reason.REPOSITORY_UNAVAILABLE if isinstance(error, UnavailableError) else Reason.INVALID_PACKAGE
