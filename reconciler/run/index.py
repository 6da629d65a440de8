"""Fill the index: in the working copy, or as pull requests; and what it lacks."""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.apply.outcome import Target, merge_results
from reconciler.apply.repository import apply_repository
from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import UsageError
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY, MissingPackage, find_missing, read_index
from reconciler.dependencies.lock.changes import VersionChange, version_changes
from reconciler.dependencies.model.cluster import Catalogue, build_catalogue
from reconciler.expand import expand
from reconciler.git.repository import Mirror
from reconciler.git.urls import local_path
from reconciler.git.working_copy import find_working_copy
from reconciler.http.client import ReplyCache
from reconciler.inventory.inventory import Inventory, Unit
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, index_ref, index_refs, revision_refs, short_branch
from reconciler.plan.changes import Change, Outcome, PinChange
from reconciler.plan.compare import pin_change
from reconciler.plan.proposals import IndexBranch, IndexProposal, ProposalPlace, propose_index, withdraw_index
from reconciler.plan.set_diff import retained_variants
from reconciler.read.configuration import FILE
from reconciler.read.dependencies import INDEX_SUFFIXES, parse_index, read_index_directory
from reconciler.read.forges import find_credentials
from reconciler.read.governance import open_allowed
from reconciler.read.manifests import parse_manifests
from reconciler.records.state import LOCKS_DIRECTORY
from reconciler.report.markdown import index_body, revision_body
from reconciler.resolve.fleet import fleet_inputs, resolve_fleet
from reconciler.run.chart_proposals import files_below, is_ended, open_branch, propose_charts, raise_proposal
from reconciler.run.options import RunOptions
from reconciler.run.plan import RunInputs, read_inputs
from reconciler.sources.credentials import registry_credentials
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import NewVersion, SyncRequest, SyncResult, find_new_versions
from reconciler.workdir.control_files import add_version
from reconciler.workdir.manifest_files import read_manifest_files


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
    charts = propose_charts(inputs, writes=False)
    result.problems += charts.problems
    result.notes += charts.notes
    result.is_idle = result.is_idle and not charts.followed
    return IndexSync(result, tuple(written), requests + charts.requests)


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
    present = files_below(control, inventory.control.commit.oid, INDEX_DIRECTORY, policy.limits)
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
    withdrawn = (withdraw_index(ref, branches[ref], pulls, inventory, place) for ref in sorted(gone))
    changes += filter(None, withdrawn)
    charts = propose_charts(inputs)
    raised = [
        raise_proposal(released, control, inventory) for released in charts.released if released.manifests
    ]
    stale = {
        ref: tip for ref, tip in control.refs().items() if ref.startswith(revision_refs(policy.instance))
    }
    for proposal in raised:
        tip = stale.pop(proposal.ref, None)
        if not any(is_ended(pull, proposal) for pull in pulls):
            branch = _branch(control, tip, proposal.place.directory, inventory) if tip else None
            changes.append(propose_index(proposal, branch, pulls, inventory))
            bodies[short_branch(proposal.ref)] = revision_body(proposal)
    for ref, tip in stale.items():
        where = place._replace(directory=ref.rpartition("/in/")[2])
        ended = withdraw_index(
            ref, _branch(control, tip, where.directory, inventory), pulls, inventory, where
        )
        changes += [ended] if ended else []
    target = Target(control, forge, policy.commits, inputs.names, texts=bodies)
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
    for ref, tip in control.refs().items():
        if ref.startswith(index_refs(inventory.policy.instance)):
            yield ref, _branch(control, tip, INDEX_DIRECTORY, inventory)


def _branch(control: Mirror, tip: Oid, directory: str, inventory: Inventory) -> IndexBranch:
    main = control.refs().get(f"{HEADS}{control.head_branch}")
    return open_branch(control, tip, main, directory, inventory.policy.commits)
