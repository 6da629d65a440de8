"""The run of `index sync --pull-request`: one reviewed pull request for each source and each newer chart."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from reconciler.apply.outcome import Target, merge_results
from reconciler.apply.repository import apply_repository
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.dependencies.lock.changes import VersionChange, version_changes
from reconciler.expand import expand
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File
from reconciler.names.refs import HEADS, index_ref, revision_refs, short_branch
from reconciler.plan.changes import Change, Outcome, PinChange
from reconciler.plan.compare import pin_change
from reconciler.plan.proposals import IndexBranch, IndexProposal, ProposalPlace, propose_index, withdraw_index
from reconciler.plan.set_diff import retained_variants
from reconciler.read.dependencies import parse_index
from reconciler.report.markdown import index_body, revision_body
from reconciler.resolve.fleet import resolve_fleet
from reconciler.run.chart_proposals import open_branch, propose_charts
from reconciler.run.chart_revisions import files_below, is_ended, raise_proposal
from reconciler.run.index import SyncOptions, synchronise
from reconciler.run.inputs import RunInputs, read_inputs
from reconciler.run.options import RunOptions
from reconciler.sources.sync import NewVersion, SyncResult


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
        if ref.startswith(index_ref(inventory.policy.instance, "x").removesuffix("x")):
            yield ref, _branch(control, tip, INDEX_DIRECTORY, inventory)


def _branch(control: Mirror, tip: Oid, directory: str, inventory: Inventory) -> IndexBranch:
    main = control.refs().get(f"{HEADS}{control.head_branch}")
    return open_branch(control, tip, main, directory, inventory.policy.commits)
