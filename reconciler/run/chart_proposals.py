"""Newer charts of packages of `package from-chart`: a pull request for each, and its way to the fleet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as changed
from os.path import commonpath
from posixpath import dirname
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.outcome import Result, Target
from reconciler.apply.repository import apply_repository, compose
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.functions.charts import CHART_HOME
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import (
    Inventory,
    PackageRevision,
    PullRequest,
    PullState,
    RepositoryView,
    Sourced,
)
from reconciler.names.ids import Lifecycle, ObjectName, Oid, PackageKey
from reconciler.names.objects import Commit, File, Files
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, chart_ref, revision_ref, short_branch, tag_ref
from reconciler.plan.changes import Change, MoveRef, Op, PinChange, WriteDraft
from reconciler.plan.proposals import IndexBranch, IndexProposal, ProposalPlace, propose_index, withdraw_index
from reconciler.policy import CommitPolicy, Limits
from reconciler.read.manifests import parse_manifests
from reconciler.read.repositories.packages import split_by_author
from reconciler.report.build import equal_differences
from reconciler.report.diff import DifferenceReader, FileChange
from reconciler.report.markdown import FleetDifference, NextRevision, chart_body
from reconciler.resolve.ownership import package_name
from reconciler.run.differences import read_sides
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
from reconciler.run.plan import PlannedRun, RunInputs, plan_fleet

if TYPE_CHECKING:
    from reconciler.api.porch import PackageVariant, PackageVariantSet


_MOST_BYTES = 1 << 20
_NUMBER = regex(r"([\"']?)v?\d+\1")


class ChartRevision(NamedTuple):
    """The revision with a chart that came by a pull request, and the manifests to raise.

    `manifests` are the files that name the revision before, as they name this one.
    """

    view: RepositoryView
    path: str
    number: int
    is_tagged: bool
    chart: PinChange
    manifests: Mapping[str, bytes]

    def publication(self, commit: Commit) -> Change:
        """Return the change that tags the revision."""
        package, tag = PackageKey(self.view.url, self.path), tag_ref(self.path, self.number)
        writes = (MoveRef(tag, None, commit.oid),)
        return Change(package, self.view.key, Op.PUBLISH, Reason.PUBLISHED_BY_MERGE, writes=writes)


def chart_title(name: str, version: str) -> str:
    """Return the title of the pull request for a newer chart, which tells later runs what was merged."""
    return f"Update the chart {name} to {version}"


def find_differences(
    proposals: Mapping[str, WriteDraft], view: RepositoryView, inputs: RunInputs
) -> dict[str, FleetDifference]:
    """Return what each proposed package changes in the fleet as its next revision, without waves.

    Its commit is written into the mirror, and pushed nowhere.
    """
    mirror, inventory = inputs.mirrors.of(view.url), inputs.inventory
    pack, made = Pack(mirror), dict[str, PackageRevision]()
    for path, write in proposals.items():
        composed = compose(write, mirror, pack, inventory.policy.commits)
        if composed is not None and composed.update.new is not None:
            number, commit = _next_number(view, path), Commit(composed.update.new, write.time)
            made[path] = PackageRevision(
                path, f"v{number}", number, Lifecycle.PUBLISHED, tag_ref(path, number), commit, write.tree
            )
    if not made:
        return {}
    pack.save()
    proposed = _with_revisions(inputs, view, made)
    planned = plan_fleet(replace(inputs, inventory=proposed, expanded=None))
    return {path: _difference(revision, view, planned) for path, revision in made.items()}


def _next_number(view: RepositoryView, path: str) -> int:
    latest = view.packages[path].latest
    return latest.revision + 1 if latest else 1


def next_revision(
    view: RepositoryView, path: str, inputs: RunInputs, released: ChartRevision | None
) -> NextRevision | None:
    """Return the revision of a package after a merge now, None for one that has no revisions.

    One that is `released` comes before it. In one commit with the package only manifests of its own branch
    can name it: a pull request has one repository.
    """
    if view.packages[path].latest is None:
        return None
    control = inputs.inventory.control
    number = _next_number(view, path) + (released is not None and not released.is_tagged)
    raised = raised_manifests(inputs, view, path, number, {})
    is_here = (view.url, view.head and view.head.oid) == (control.url, control.commit.oid)
    manifests = {name: File.of(data) for name, data in sorted(raised.items())}
    return NextRevision(f"{path}/v{number}", manifests, is_here=is_here)


def _with_revisions(
    inputs: RunInputs, view: RepositoryView, made: Mapping[str, PackageRevision]
) -> Inventory:
    """Return the fleet in which packages have another revision, which is on main, too, and is asked for."""
    inventory, packages, files = inputs.inventory, dict(view.packages), dict[str, bytes]()
    for path, revision in made.items():
        state = packages[path]
        packages[path] = replace(state, main_tree=revision.tree, published=(*state.published, revision))
        files |= raised_manifests(inputs, view, path, revision.revision, files)
    head = next(iter(made.values())).commit
    parsed = parse_manifests(files, inventory.policy)
    variants = {declared.key: declared for declared in parsed.variants}
    sets = {declared.key: declared for declared in parsed.sets}
    return replace(
        inventory,
        policy=changed(inventory.policy, rollouts=()),
        repositories={**inventory.repositories, view.key: replace(view, head=head, packages=packages)},
        variants=tuple(variants.get(declared.key, declared) for declared in inventory.variants),
        sets=tuple(sets.get(declared.key, declared) for declared in inventory.sets),
    )


def raised_manifests(
    inputs: RunInputs, view: RepositoryView, path: str, number: int, files: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the files with manifests that name the revision before `number` of a package, naming that one.

    Args:
        inputs: What was read.
        view: The upstream repository.
        path: The package.
        number: The new revision.
        files: Files that were changed already.
    """
    control = inputs.mirrors.open(inputs.inventory.control.remote)
    raised = dict[str, bytes]()
    for name, line, column in sorted(_places(inputs.inventory, view, path, number - 1), reverse=True):
        blob = control.blob_at(inputs.inventory.control.commit.oid, name)
        if blob is not None and line and column:
            before = raised.get(name) or files.get(name) or control.blob(blob, _MOST_BYTES)
            raised[name] = _with_number(before, line, column, number)
    return raised


def _places(
    inventory: Inventory, view: RepositoryView, path: str, number: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the place of each field of a manifest that names a revision of a package."""
    name = package_name(view, path)
    manifests: tuple[Sourced[PackageVariant] | Sourced[PackageVariantSet], ...]
    manifests = (*inventory.variants, *inventory.sets)
    for declared in manifests:
        spec = declared.manifest.spec
        listed = getattr(spec, "upstreams", None)
        fields = [(("upstreams", index), upstream) for index, upstream in enumerate(listed or ())]
        for parts, upstream in [*fields, (("upstream",), spec.upstream)]:
            repository = ObjectName(declared.key.namespace, (upstream and upstream.repo) or "")
            if (
                upstream
                and repository == view.key
                and (upstream.package, upstream.revision) == (name, number)
            ):
                place = declared.source.at("spec", *parts, "revision")
                yield place.path, place.line, place.column


def _with_number(data: bytes, line: int, column: int, number: int) -> bytes:
    """Return a file with another number at a place, in the quotes that it has."""
    lines = data.decode().splitlines(keepends=True)
    text = lines[line - 1]
    quoted = _NUMBER.match(text, column - 1)
    if quoted:
        quote = quoted[1]
        lines[line - 1] = f"{text[: column - 1]}{quote}{number}{quote}{text[quoted.end() :]}"
    return "".join(lines).encode()


def _difference(revision: PackageRevision, view: RepositoryView, planned: PlannedRun) -> FleetDifference:
    key = PackageKey(view.url, revision.path)
    made = [r for r in planned.resolution.variants if (r.pin.package, r.pin.tree) == (key, revision.tree)]
    owners, packages = {r.variant.owner for r in made}, {r.downstream for r in made}
    changes = [c for c in planned.plan.changes if c.package in packages and c.written is not None]
    reader, files = DifferenceReader(), dict[PackageKey, tuple[FileChange, ...]]()
    firsts = [alike[0] for alike in equal_differences(changes)]
    for sides in read_sides(firsts, planned.plan, planned.inputs):
        change = sides.change
        files[change.package] = reader.changes(sides.before, sides.after, change.own_names, sides.unmade)
    failures = tuple(str(p.message) for p in planned.plan.problems if p.owner in owners)
    return FleetDifference(changes, files, len(packages), failures, planned.names)


def find_released(
    view: RepositoryView, path: str, mirror: Mirror, pulls: Iterable[PullRequest], inputs: RunInputs
) -> ChartRevision | None:
    """Return the revision that has the chart of main, None unless a pull request brought that chart.

    A package without tags has no revisions to name.
    """
    state, head = view.packages[path], short_branch(chart_ref(inputs.inventory.policy.instance, path))
    charts = []
    for tree in (state.main_tree, *(revision.tree for revision in _newest(state.published))):
        blob = mirror.blob_at(tree, CONFIGURATION) if tree else None
        if blob is not None:
            mirror.ensure([blob])
        charts.append(pinned_chart(mirror.blob(blob, _MOST_BYTES)) if blob is not None else None)
    current, *tagged = charts
    if current is None or not tagged:
        return None
    is_tagged = tagged[0] is not None and tagged[0].version == current.version
    before = tagged[1] if is_tagged and len(tagged) > 1 else tagged[0]
    if (is_tagged and len(tagged) == 1) or (before is not None and before.version == current.version):
        return None
    title = chart_title(current.name, current.version)
    if not any(p.head == head and p.title == title and p.state is PullState.MERGED for p in pulls):
        return None
    number = _next_number(view, path) - is_tagged
    chart = PinChange(current.name, before.version if before else "", current.version, "")
    manifests = raised_manifests(inputs, view, path, number, {})
    return ChartRevision(view, path, number, is_tagged, chart, manifests)


def _newest(published: Iterable[PackageRevision]) -> list[PackageRevision]:
    return sorted((r for r in published if r.revision > 0), key=lambda r: -r.revision)[:2]


def raise_proposal(released: ChartRevision, control: Mirror, inventory: Inventory) -> IndexProposal:
    """Return the manifests that name a revision, in the smallest directory that has them all."""
    commit, directory = inventory.control.commit, commonpath([dirname(name) for name in released.manifests])
    there = files_below(control, commit.oid, directory, inventory.policy.limits)
    prefix = f"{directory}/" if directory else ""
    files = {name.removeprefix(prefix): File.of(data) for name, data in released.manifests.items()}
    title = f"Use {released.path} v{released.number}"
    place = ProposalPlace(
        ObjectName("", "control"), inventory.control.url, directory, commit, control.head_branch
    )
    ref = revision_ref(inventory.policy.instance, released.path, directory)
    return IndexProposal(released.path, ref, {**there, **files}, (released.chart,), place, subject=title)


def is_ended(pull: PullRequest, proposal: IndexProposal) -> bool:
    """Whether people merged or closed a proposal before: naming another revision then is their choice."""
    is_same = (pull.head, pull.title) == (short_branch(proposal.ref), proposal.title)
    return is_same and pull.state is not PullState.OPEN


_FILES, _BYTES = 1_000_000, 1 << 30
"""Most files of a directory of the control repository, and their size in bytes."""


def files_below(mirror: Mirror, commit: Oid, directory: str, limits: Limits) -> Files:
    """Return the files of a directory of the control repository; none where there is no such directory."""
    tree = mirror.subtree(commit, directory)
    if tree is None:
        return {}
    whole = changed(limits, package_files=_FILES, package_bytes=_BYTES)
    mirror.ensure(mirror.list_blobs(tree, whole))
    return mirror.files(tree, whole)


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
    policy, changes = inventory.policy, list[Change]()
    proposals: dict[str, tuple[IndexProposal, NextRevision | None]] = {}
    forge = inputs.forges.of(mirror)
    pulls = forge.list_pulls() if run.writes else inventory.pulls.get(view.url, ())
    for chart in followed:
        ref = chart_ref(policy.instance, chart.path)
        place = ProposalPlace(view.key, view.url, chart.path, commit, view.branch)
        try:
            with guard(f"{view.url} {chart.path}"):
                released = find_released(view, chart.path, mirror, pulls, inputs)
                newer = read_newer_chart(chart.chart, run.reader)
                proposed.notes += _notes_beyond(chart, newer.beyond)
                following = next_revision(view, chart.path, inputs, released)
                beside = following.manifests if following is not None and following.is_here else {}
                proposal = _proposal(chart, newer, mirror, place, inventory, beside=beside)
                branch = _branch(mirror, ref, place, policy.commits, proposal)
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
            proposals[chart.path] = (proposal, following)
            proposed.count += 1
        elif branch is not None and (ended := withdraw_index(ref, branch, pulls, inventory, place)):
            changes.append(ended)
        if not run.writes:
            proposed.notes += _next_steps(chart, proposal, released)
    if run.writes:
        drafts = {c.package.path: w for c in changes if c.pull for w in c.writes if isinstance(w, WriteDraft)}
        differences = find_differences(drafts, view, inputs) if drafts else {}
        bodies = {
            short_branch(proposal.ref): chart_body(proposal, following, differences.get(path))
            for path, (proposal, following) in proposals.items()
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
    followed: _Followed,
    newer: NewerChart,
    mirror: Mirror,
    place: ProposalPlace,
    inventory: Inventory,
    *,
    beside: Files,
) -> IndexProposal | None:
    """Return the package with its newer chart; None if it has the newest in its range.

    `beside` are the manifests of its branch that name its revision, raised.
    """
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
    return IndexProposal(
        chart.source, ref, files, (change,), place, notes=notes, subject=title, beside=beside
    )


def _branch(
    mirror: Mirror, ref: str, place: ProposalPlace, policy: CommitPolicy, proposal: IndexProposal | None
) -> IndexBranch | None:
    refs, beside = mirror.refs(), proposal.beside if proposal is not None else ()
    if ref not in refs:
        return None
    main = refs.get(f"{HEADS}{place.base}")
    return open_branch(mirror, refs[ref], main, place.directory, policy, beside=beside)


def open_branch(
    mirror: Mirror,
    tip: Oid,
    main: Oid | None,
    directory: str,
    policy: CommitPolicy,
    *,
    beside: Iterable[str] = (),
) -> IndexBranch:
    """Return the branch of a proposal, with its tree, files beside it, and whether people committed to it."""
    merged = mirror.ancestry(main) if main else frozenset()
    _, foreign = split_by_author(map(mirror.commit, mirror.walk(tip, merged)), policy)
    there = {path: mirror.blob_at(tip, path) for path in beside}
    return IndexBranch(tip, mirror.subtree(tip, directory), bool(foreign), there)


def _reason(error: ReconcilerError) -> Reason:
    if isinstance(error, DefectError):
        return Reason.DEFECT
    return Reason.REPOSITORY_UNAVAILABLE if isinstance(error, UnavailableError) else Reason.INVALID_PACKAGE
