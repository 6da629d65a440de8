"""The runs of `index`: what manifests and the index need, and the pull requests that propose new versions."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace as changed
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.outcome import Result, Target, merge_results
from reconciler.apply.repository import apply_repository
from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.errors import Location, ReconcilerError, RefusedError, UnavailableError, UsageError
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY, MissingPackage, find_missing, read_index
from reconciler.dependencies.lock.changes import VersionChange, version_changes
from reconciler.dependencies.model.cluster import Catalogue, build_catalogue
from reconciler.expand import expand
from reconciler.functions.charts import CHART_HOME
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import local_path
from reconciler.git.working_copy import find_working_copy
from reconciler.http.client import ReplyCache
from reconciler.inventory.inventory import Inventory, RepositoryView, Unit
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Files
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, chart_ref, index_ref, short_branch
from reconciler.plan.changes import Change, Outcome, PinChange
from reconciler.plan.compare import pin_change
from reconciler.plan.proposals import (
    IndexBranch,
    IndexProposal,
    ProposalPlace,
    propose_index,
    withdraw_index,
)
from reconciler.plan.set_diff import retained_variants
from reconciler.policy import CommitPolicy, Limits
from reconciler.read.configuration import FILE
from reconciler.read.credentials import find_credentials
from reconciler.read.dependencies import INDEX_SUFFIXES, parse_index, read_index_directory
from reconciler.read.governance import open_allowed
from reconciler.read.manifests import parse_manifests
from reconciler.read.repositories.packages import split_by_author
from reconciler.records.upstream_lock import LOCKS_DIRECTORY
from reconciler.report.markdown import chart_body, index_body
from reconciler.resolve import resolve_fleet
from reconciler.resolve.fleet import fleet_inputs
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
from reconciler.run.inputs import RunInputs, read_inputs
from reconciler.run.options import RunOptions
from reconciler.sources.credentials import registry_credentials
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import NewVersion, SyncRequest, SyncResult, find_new_versions
from reconciler.workdir.control_files import add_version, read_manifest_files


class SyncOptions(NamedTuple):
    """Whether to take every version, not only those that are needed, and to compare digests with tags."""

    every: bool = False
    checks_tags: bool = False


class IndexSync(Struct, frozen=True):
    """The result of a synchronisation: what was found, the files written, and the requests to registries."""

    result: SyncResult
    written: tuple[str, ...] = ()
    requests: int = 0


class MissingPackages(NamedTuple):
    """The packages that installs lack, the problems that hide further ones, and the number of installs."""

    packages: tuple[MissingPackage, ...]
    problems: tuple[Problem, ...]
    installs: int = 0


def find_missing_packages(options: RunOptions) -> MissingPackages:
    """Return every package that installs lack, with manifests and index as on disk. Writes nothing."""
    inventory = _on_disk(inputs := read_inputs(options), options)
    fleet = _fleet_inputs(replace(inputs, inventory=inventory))
    missing = find_missing((world.installs, world.catalogue) for world in fleet.worlds)
    problems = (*inventory.problems, *read_index(inventory.index).problems, *fleet.problems)
    installs = sum(len(world.installs) for world in fleet.worlds)
    return MissingPackages(missing, tuple(sorted({*problems})), installs)


def _fleet_inputs(inputs: RunInputs) -> FleetInputs:
    """Return what clusters need and can have, without what a bug of ours breaks the work on."""

    def collect(left_out: Mapping[Unit, DefectError]) -> FleetInputs:
        some = inputs.without(left_out)
        return fleet_inputs(some.inventory, expand(some.inventory), some.dependencies)

    return isolate(inputs.inventory.units, collect)[0]


def sync_index(options: RunOptions, chosen: SyncOptions) -> IndexSync:
    """Write the versions that are needed into the index of a working copy.

    Raises:
        UsageError: There is no working copy.
    """
    path = local_path(options.control)
    copy = find_working_copy(path) if path else None
    if copy is None:
        hint = "Run the command inside a working copy, or propose the versions with --pull-request."
        raise UsageError(f"{options.control} is no working copy of the control repository", hint=hint)
    inputs = read_inputs(options)
    inventory = _on_disk(inputs, options)
    files = {
        path.relative_to(copy.root).as_posix(): path.read_bytes()
        for path in sorted((copy.root / INDEX_DIRECTORY).rglob("*"))
        if path.suffix in INDEX_SUFFIXES and path.is_file()
    }
    result, requests = synchronise(replace(inputs, inventory=inventory), chosen, files)
    written = []
    for version in result.versions:
        add_version(copy.root, version.folder, version.files)
        written += [f"{version.folder}/{name}" for name in sorted(version.files)]
    return IndexSync(result, tuple(written), requests)


def synchronise(
    inputs: RunInputs, chosen: SyncOptions, present: Mapping[str, bytes]
) -> tuple[SyncResult, int]:
    """Return the versions that manifests and index need and do not have, and the number of requests.

    The settings and credentials are those of the default branch, whatever the working copy has (D25).
    """
    inventory, mirrors = inputs.inventory, inputs.mirrors
    policy = inventory.policy
    fleet = _fleet_inputs(inputs)
    installs = {install for world in fleet.worlds for install in world.installs}
    catalogue = next((world.catalogue for world in fleet.worlds), None)
    request = SyncRequest(
        tuple(sorted(installs, key=lambda install: (str(install), install.location))),
        catalogue or _catalogue(inventory),
        tuple(
            document for document in inventory.documents if document.value.get("kind") == "PackageRepository"
        ),
        present,
        every=chosen.every,
        checks_tags=chosen.checks_tags,
    )
    find = registry_credentials(os.environ, find_credentials(policy, os.environ))
    replies = ReplyCache(mirrors.cache_dir / "replies")
    client = RegistryClient(policy.registries, find, replies, addresses=policy.addresses)
    control = mirrors.open(inventory.control.remote)

    def open_mirror(remote: str) -> Mirror:
        return open_allowed(remote, policy, mirrors, control)

    return find_new_versions(request, client, open_mirror, policy.registries, policy.limits), client.requests


def _catalogue(inventory: Inventory) -> Catalogue:
    index = read_index(inventory.index)
    return build_catalogue(index.candidates, index.refused)


def _on_disk(inputs: RunInputs, options: RunOptions) -> Inventory:
    """Return the inventory with manifests and index as a working copy has them, committed or not."""
    path = local_path(options.control)
    copy = find_working_copy(path) if path else None
    inventory = inputs.inventory
    if copy is None:
        return inventory
    folders = read_index_directory(copy.root, inventory.policy.limits)
    problems = {p for p in inventory.problems if not p.location.path.startswith(f"{INDEX_DIRECTORY}/")}
    paths = {name or ".": copy.root / name for name in inventory.policy.manifests}
    left_out = (inventory.policy.snapshot.path, INDEX_DIRECTORY, LOCKS_DIRECTORY)
    skipped = frozenset((copy.root / name).resolve() for name in left_out)
    files = read_manifest_files({name: path for name, path in paths.items() if path.exists()}, skipped)
    files.pop(FILE, None)
    return replace(
        inventory,
        documents=parse_manifests(files, inventory.policy).documents,
        index=folders.documents,
        problems=tuple(sorted({*problems, *folders.problems})),
    )


_MOST_BYTES = 1 << 20


class ProposedCharts(Struct):
    """The changes of packages with charts, what was done about them, problems, notes, and counts.

    `notes` are about versions outside of ranges and packages without a source. `followed` packages follow
    a chart, `count` of them get another one.
    """

    changes: list[Change] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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
                charts = [chart for chart in _charts(view, mirror) if (view.url, chart.path) not in done]
                followed = [chart for chart in charts if isinstance(chart, _Followed)]
                proposed.notes += (chart.note for chart in charts if isinstance(chart, _Unfollowed))
                done |= {(view.url, chart.path) for chart in followed}
                if followed:
                    _propose(view, mirror, followed, inputs=inputs, reader=reader, proposed=proposed)
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
                newer = read_newer_chart(chart.chart, reader)
                proposed.notes += _notes_beyond(chart, newer.beyond)
                proposal = _proposal(chart, newer, mirror, place, inventory)
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
    return IndexProposal(chart.source, ref, files, (change,), place, notes=notes)


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


_FILES, _BYTES = 1_000_000, 1 << 30
"""Most files of an index, and their size in bytes."""


class ProposedIndex(Struct, frozen=True):
    """The versions found, the charts proposed, all changes, what was done, and the number of requests.

    With `is_idle` there was nothing to look for: no need of a package, and no package that follows a chart.
    """

    result: SyncResult
    changes: tuple[Change, ...] = ()
    outcome: Outcome = Outcome()
    requests: int = 0
    charts: int = 0
    is_idle: bool = False


def propose_versions(options: RunOptions, chosen: SyncOptions) -> ProposedIndex:
    """Propose the versions that the default branch needs and does not have, one pull request per source.

    Raises:
        RefusedError: The commit is not merged, or not the newest.
        UnavailableError: The pull requests of the control repository cannot be listed.
    """
    inputs = read_inputs(options, writes=True)
    inventory = inputs.inventory
    control, policy = inputs.mirrors.open(inventory.control.remote), inventory.policy
    present = _index_files(control, inventory.control.commit.oid, policy.limits)
    texts = {f"{INDEX_DIRECTORY}/{path}": file.data for path, file in present.items()}
    result, requests = synchronise(inputs, chosen, texts)
    forge = inputs.forges.of(control)
    pulls, branches = forge.list_pulls(), dict(_branches(control, inventory))
    by_ref: dict[str, list[NewVersion]] = {}
    for version in result.versions:
        by_ref.setdefault(index_ref(policy.instance, version.origin), []).append(version)
    changes, bodies = [], dict[str, str]()
    name, commit = ObjectName("", "control"), inventory.control.commit
    place = ProposalPlace(name, inventory.control.url, INDEX_DIRECTORY, commit, control.head_branch)
    before = {str(change): change for change in _decide(inputs, inventory)} if by_ref else {}
    for ref, versions in sorted(by_ref.items()):
        added = {f"{v.folder}/{name}": data for v in versions for name, data in v.files.items()}
        documents = (*inventory.index, *parse_index(added, policy.limits).documents)
        moves = _decide(inputs, replace(inventory, index=documents))
        names = {version.candidate.id.name for version in versions}
        files = {path.removeprefix(f"{INDEX_DIRECTORY}/"): File.of(data) for path, data in added.items()}
        problems = (str(problem.message) for problem in result.problems)
        proposal = IndexProposal(
            versions[0].origin,
            ref,
            {**present, **files},
            tuple(PinChange(str(v.candidate.id), "", str(v.candidate.version), "") for v in versions),
            place,
            notes=tuple(text for text in (*problems, *result.notes) if any(name in text for name in names)),
        )
        pins = tuple(pin_change(move) for move in moves if str(move) not in before)
        proposal = replace(proposal, pins=pins)
        changes.append(propose_index(proposal, branches.get(ref), pulls, inventory))
        bodies[short_branch(ref)] = index_body(proposal)
    # A source that could not be read has not said that it has nothing.
    gone = branches.keys() - by_ref.keys() if not result.problems else ()
    ended = (withdraw_index(ref, branches[ref], pulls, inventory, place) for ref in sorted(gone))
    changes += filter(None, ended)
    target = Target(control, forge, policy.commits, inputs.names, texts=bodies)
    charts = propose_charts(inputs)
    done = merge_results([apply_repository(target, changes), *charts.results])
    result.problems += charts.problems
    result.notes += charts.notes
    outcome = Outcome(done.effects, done.exits)
    return ProposedIndex(
        result,
        (*changes, *charts.changes),
        outcome,
        requests + charts.requests,
        charts.count,
        is_idle=result.is_idle and not charts.followed,
    )


def _decide(inputs: RunInputs, inventory: Inventory) -> tuple[VersionChange, ...]:
    """Return how the locks of clusters would change, one row for each cluster."""
    desired = expand(inventory)
    retained = retained_variants(desired, inventory)
    fleet = resolve_fleet(inventory, desired, inputs.dependencies, retained)
    return tuple(
        move._replace(clusters=(cluster,))
        for move in version_changes(fleet.wanted_locks)
        for cluster in move.clusters
    )


def _branches(control: Mirror, inventory: Inventory) -> Iterator[tuple[str, IndexBranch]]:
    refs = control.refs()
    main = refs.get(f"{HEADS}{control.head_branch}")
    for ref, tip in refs.items():
        if ref.startswith(index_ref(inventory.policy.instance, "x").removesuffix("x")):
            yield ref, open_branch(control, tip, main, INDEX_DIRECTORY, inventory.policy.commits)


def _index_files(control: Mirror, commit: Oid, limits: Limits) -> Files:
    tree = control.subtree(commit, INDEX_DIRECTORY)
    if tree is None:
        return {}
    whole = changed(limits, package_files=_FILES, package_bytes=_BYTES)
    control.ensure(control.list_blobs(tree, whole))
    return control.files(tree, whole)
