"""Proposals of newer charts for the packages of `package from-chart`: one pull request for each."""

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
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import Oid
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, chart_ref, short_branch
from reconciler.plan.changes import Change, PinChange, WriteDraft
from reconciler.plan.proposals import IndexBranch, IndexProposal, ProposalPlace, propose_index, withdraw_index
from reconciler.policy import CommitPolicy
from reconciler.read.repositories.packages import split_by_author
from reconciler.report.markdown import chart_body
from reconciler.run.chart_revisions import (
    ChartRevision,
    chart_title,
    find_differences,
    find_released,
    next_revision,
)
from reconciler.run.from_chart import (
    CONFIGURATION,
    ChartReader,
    NewerChart,
    PinnedChart,
    has_source,
    open_reader,
    package_with,
    pinned_chart,
    read_newer_chart,
)
from reconciler.run.inputs import RunInputs

_MOST_BYTES = 1 << 20


class ProposedCharts(Struct):
    """The changes of packages with charts, what was done about them, problems, notes, and counts.

    `notes` are about versions outside of ranges and packages without a source. `followed` packages follow
    a chart, `count` of them get another one. The chart of the `released` ones was merged.
    """

    changes: list[Change] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    released: list[ChartRevision] = field(default_factory=list)
    requests: int = 0
    followed: int = 0
    count: int = 0


class _Followed(NamedTuple):
    """A package of an upstream repository that follows a chart, with its tree on main."""

    path: str
    tree: Oid
    chart: PinnedChart


class _Unfollowed(NamedTuple):
    """A package of an upstream repository with a chart of which nothing names where newer ones are."""

    path: str

    @property
    def note(self) -> str:
        """Why no newer chart is looked for, and what changes that."""
        step = f"`reconciler package from-chart ADDRESS {self.path} --version RANGE` names one to follow"
        return f"{self.path}: its chart is from a file or a directory, and no newer one is looked for: {step}"


def propose_charts(inputs: RunInputs, *, writes: bool = True) -> ProposedCharts:
    """Propose newer charts for the packages of `package from-chart`, and tag those that were merged.

    Unless it `writes`, notes name these steps. What one package lacks stops no other. Packages with an
    owner are downstream: what they have of a chart is what was rendered.
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
                charts = [chart for chart in _charts(view, mirror) if (view.url, chart.path) not in done]
                followed = [chart for chart in charts if isinstance(chart, _Followed)]
                proposed.notes += (chart.note for chart in charts if isinstance(chart, _Unfollowed))
                done |= {(view.url, chart.path) for chart in followed}
                if followed:
                    _propose(view, mirror, followed, _Run(inputs, reader, proposed, writes=writes))
        except ReconcilerError as error:
            proposed.problems.append(view.problem_at(_reason(error), str(error), error.hint))
    proposed.requests, proposed.followed = reader.client.requests, len(done)
    return proposed


def _charts(view: RepositoryView, mirror: Mirror) -> Iterator["_Followed | _Unfollowed"]:
    for path, package in sorted(view.packages.items()):
        header, tree = package.main_header, package.main_tree
        if tree is None or header is None or header.owner or not header.has_charts:
            continue
        blob = mirror.blob_at(tree, CONFIGURATION)
        if blob is not None:
            mirror.ensure([blob])
            configuration = mirror.blob(blob, _MOST_BYTES)
            chart = pinned_chart(configuration)
            if not has_source(configuration):
                yield _Unfollowed(path)
            elif chart is not None and mirror.subtree(tree, f"{CHART_HOME}/{chart.name}"):
                yield _Followed(path, tree, chart)


class _Run(NamedTuple):
    """The inputs and the results of proposals; unless it `writes`, results are notes."""

    inputs: RunInputs
    reader: ChartReader
    proposed: ProposedCharts
    writes: bool


def _propose(view: RepositoryView, mirror: Mirror, followed: list[_Followed], run: _Run) -> None:
    """Propose the newer charts of one repository, and tag the revisions of those that were merged."""
    inputs, proposed, commit = run.inputs, run.proposed, view.head
    inventory = inputs.inventory
    if commit is None:
        return
    policy, changes, proposals = inventory.policy, list[Change](), dict[str, IndexProposal]()
    forge, refs = inputs.forges.of(mirror), mirror.refs()
    pulls = forge.list_pulls() if run.writes else inventory.pulls.get(view.url, ())
    for chart in followed:
        ref = chart_ref(policy.instance, chart.path)
        place = ProposalPlace(view.key, view.url, chart.path, commit, view.branch)
        main = refs.get(f"{HEADS}{view.branch}")
        try:
            with guard(f"{view.url} {chart.path}"):
                branch = (
                    open_branch(mirror, refs[ref], main, chart.path, policy.commits) if ref in refs else None
                )
                released = find_released(view, chart.path, mirror, pulls, inputs)
                newer = read_newer_chart(chart.chart, run.reader)
                proposed.notes += _notes_beyond(chart, newer.beyond)
                proposal = _proposal(chart, newer, mirror, place, inventory)
        except ReconcilerError as error:
            where = Location(f"{chart.path}/{CONFIGURATION}")
            problem = Problem(where, _reason(error), str(error), error.hint, chart.path)
            proposed.problems.append(problem)
            continue
        if released is not None:
            proposed.released.append(released)
            if not released.is_tagged and not policy.suspend:
                changes.append(released.publication(commit))
        if proposal is not None:
            changes.append(propose_index(proposal, branch, pulls, inventory))
            proposals[chart.path] = proposal
            proposed.count += 1
        elif branch is not None and (ended := withdraw_index(ref, branch, pulls, inventory, place)):
            changes.append(ended)
        if not run.writes:
            proposed.notes += _next_steps(chart, proposal, released)
    if run.writes:
        drafts = {c.package.path: w for c in changes if c.pull for w in c.writes if isinstance(w, WriteDraft)}
        differences = find_differences(drafts, view, inputs) if drafts else {}
        bodies = {
            short_branch(proposal.ref): chart_body(
                proposal, next_revision(view, path, inputs), differences.get(path)
            )
            for path, proposal in proposals.items()
        }
        target = Target(mirror, forge, policy.commits, inputs.names, texts=bodies)
        proposed.results.append(apply_repository(target, changes))
    proposed.changes += changes


def _next_steps(
    followed: _Followed, proposal: IndexProposal | None, released: ChartRevision | None
) -> Iterator[str]:
    """Yield what `index sync --pull-request` would do about a package."""
    name, _, _, version = followed.chart
    step = "`reconciler index sync --pull-request`"
    if proposal is not None:
        (newer,) = proposal.versions
        yield f"{followed.path}: {name} {newer.after} is newer than {version}: {step} proposes it"
    if released is not None and not released.is_tagged:
        yield f"{followed.path}: {name} {version} has no revision yet: {step} tags v{released.number}"
    if released is not None and released.manifests:
        files = ", ".join(sorted(released.manifests))
        yield f"{followed.path}: {files} may use v{released.number} with {name} {version}: {step} proposes it"


def _notes_beyond(followed: _Followed, beyond: str) -> tuple[str, ...]:
    """Return the note about a version that the range of a package leaves out, if there is one."""
    name, address, versions, _ = followed.chart
    step = f"`reconciler package from-chart {address} {followed.path} --version '^{beyond}'` takes it"
    return (f"{followed.path}: {name} {beyond} is outside of its range {versions}: {step}",) if beyond else ()


def _proposal(
    followed: _Followed, newer: NewerChart, mirror: Mirror, place: ProposalPlace, inventory: Inventory
) -> IndexProposal | None:
    """Return the package with its newer chart; None if it has the newest in its range."""
    pinned, chart, limits = followed.chart, newer.chart, inventory.policy.limits
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
    ref, notes = chart_ref(inventory.policy.instance, followed.path), _notes_beyond(followed, newer.beyond)
    title = chart_title(chart.name, chart.version)
    return IndexProposal(chart.source, ref, files, (change,), place, notes=notes, subject=title)


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
