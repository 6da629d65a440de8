"""The pull request that proposes new versions of one source for the index (D29), or of a chart (D30)."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from reconciler.base.reasons import Reason
from reconciler.base.text import plural, visible
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.inventory.inventory import Inventory, PullRequest, PullState
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import Commit, Files, tree_id
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Change, ClosePull, MoveRef, Op, PinChange, WriteDraft
from reconciler.plan.context import by_weight
from reconciler.plan.requests import close_duplicates, is_right, lock_pull
from reconciler.resolve.ownership import SUSPENDED


class ProposalPlace(NamedTuple):
    """Where files are proposed: a directory of a repository, and the commit and name of its branch."""

    repository: ObjectName
    url: str
    directory: str
    commit: Commit
    base: str


class IndexBranch(NamedTuple):
    """The branch of a proposal: its tip, the tree of its directory, and whether people committed to it."""

    tip: Oid
    tree: Oid | None
    is_edited: bool


class IndexProposal(Struct, frozen=True):
    """New versions of one source: the whole index or package with them, and their effect on clusters.

    `versions` are rows of a package and its new version, `pins` the changes of locks, `notes` are about
    versions that may be withdrawn or moved.
    """

    source: str
    ref: str
    files: Files
    versions: tuple[PinChange, ...]
    place: ProposalPlace
    pins: tuple[PinChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The title of the pull request."""
        if self.place.directory != INDEX_DIRECTORY:
            (version,) = self.versions
            return visible(f"Update the chart {version.what} to {version.after}")
        if len(self.versions) == 1:
            (version,) = self.versions
            return visible(f"Add {version.what} {version.after} to the index")
        return visible(f"Add {plural(len(self.versions), 'version')} of {self.source} to the index")


def propose_index(
    proposal: IndexProposal,
    branch: IndexBranch | None,
    pulls: Iterable[PullRequest],
    inventory: Inventory,
) -> Change:
    """Return what happens to the branch and the pull request of a proposal. Pure.

    A fixed point: what was proposed is recognised by its branch and pull request. People's commits on the
    branch stay. A proposal that a person closed is not made again until other versions are there.
    """
    head = short_branch(proposal.ref)
    proposals = sorted((pull for pull in pulls if pull.head == head), key=by_weight)
    last = proposals[-1] if proposals else None
    opened = last if last and last.state is PullState.OPEN else None
    tree = tree_id(proposal.files)

    package, view = _package(proposal.ref, proposal.place), proposal.place.repository
    change = partial(Change, package, view, before=branch.tree if branch else None, tree=tree)
    if inventory.policy.suspend:
        return change(Op.KEEP, Reason.PAUSED, SUSPENDED)
    if branch is not None and branch.is_edited:
        step = f"merge or close pull request #{opened.number}" if opened else f"delete branch {head}"
        message = f"People committed to {head}: {step}, and the next run proposes what is new then"
        return change(Op.KEEP, Reason.DRAFT_EDITED, message, waits=True)
    stands = branch is not None and branch.tree == tree
    if last is not None and opened is None and stands and last.state is PullState.CLOSED:
        message = (
            f"Pull request #{last.number} with these versions was closed: open it again, or delete {head}"
        )
        return change(Op.KEEP, Reason.REJECTED, message, waits=True)
    place = proposal.place
    pull = PullRequest(head, place.base, proposal.title, "", draft=False)
    pull = lock_pull(pull, opened, inventory, [*proposal.versions, *proposal.pins], proposal.notes)
    doubles = close_duplicates(opened, proposals) if opened else ()
    if stands and opened and is_right(opened, pull) and not doubles:
        return change(Op.KEEP, Reason.UP_TO_DATE, f"Pull request #{opened.number} waits for a review")
    lines = (f"{version.what} {version.after}" for version in proposal.versions)
    message = "\n".join([proposal.title, "", *map(visible, lines), ""])
    commit, expect = place.commit, branch.tip if branch else None
    write = WriteDraft(
        proposal.ref, expect, commit.oid, place.directory, proposal.files, tree, message, commit.time
    )
    return change(
        Op.UPDATE if opened else Op.CREATE,
        Reason.CONTENT_CHANGED,
        writes=() if stands else (write,),
        pull=pull,
        close=doubles,
    )


def withdraw_index(
    ref: str, branch: IndexBranch, pulls: Iterable[PullRequest], inventory: Inventory, place: ProposalPlace
) -> Change | None:
    """Return the end of a branch with nothing left to propose; None for one that people edited."""
    if branch.is_edited or inventory.policy.suspend:
        return None
    comment = "Nothing is left to propose: main has these versions, or nothing needs them any more."
    head = short_branch(ref)
    opened = [pull for pull in pulls if pull.head == head and pull.state is PullState.OPEN]
    closes = tuple(ClosePull(pull.number, pull.head, comment) for pull in opened)
    move = MoveRef(ref, branch.tip, None)
    closing = partial(Change, _package(ref, place), place.repository, Op.CLOSE, Reason.DRAFT_SUPERSEDED)
    return closing(before=branch.tree, writes=(move,), close=closes)


def _package(ref: str, place: ProposalPlace) -> PackageKey:
    is_index = place.directory == INDEX_DIRECTORY
    name = f"{INDEX_DIRECTORY} of {ref.rpartition('/')[2]}" if is_index else place.directory
    return PackageKey(place.url, name)
