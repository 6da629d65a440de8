"""Groups: branches of ours with the drafts of several packages, told by what our commits say and hold."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.history import merge_base
from reconciler.git.repository import Mirror
from reconciler.ids import Lifecycle, Oid
from reconciler.inventory import Commit, GroupBranch
from reconciler.layout import RevisionRef, group_refs
from reconciler.policy import Policy
from reconciler.read.discovery import FoundRef, find_package
from reconciler.read.drafts import is_ours

_BACK = 50
"""How many commits below the tip of a merged group are looked at for the one that we wrote."""


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group's branch, and the drafts that stand on it."""

    branch: GroupBranch
    drafts: tuple[FoundRef, ...]


def find_groups(mirror: Mirror, mains: Iterable[Oid], policy: Policy) -> Iterator[FoundGroup]:
    """Yield the groups of this instance in one repository; nothing but Git tells of them (D21).

    The `kpt:` lines of our own commits name the packages. A name is believed only as far as the
    branch holds a package there that differs from main where the branch left it.

    Args:
        mirror: The repository.
        mains: The heads of the branches that groups are merged into.
        policy: The instance, and how its commits are recognised.
    """
    hidden = frozenset[Oid]().union(*(mirror.ancestry(main) for main in mains))
    for ref, oid in sorted(mirror.refs().items()):
        tip = mirror.find_commit(oid) if ref.startswith(group_refs(policy.instance)) else None
        if tip is not None:
            yield _read_group(mirror, ref, tip, hidden, policy)


def _read_group(
    mirror: Mirror, ref: str, tip: CommitData, hidden: frozenset[Oid], policy: Policy
) -> FoundGroup:
    own = [mirror.commit(oid) for oid in mirror.walk(tip.oid, hidden)]
    at = Commit(tip.oid, tip.committer.time)
    if not own:
        below = islice(mirror.first_parents(tip.oid), _BACK)
        last = next((commit for commit in below if is_ours(commit, policy.commits)), None)
        return FoundGroup(GroupBranch(ref, at, tuple(_named([last] if last else [])), merged=True), ())
    foreign = [commit for commit in own if not is_ours(commit, policy.commits)]
    named = _named(commit for commit in own if is_ours(commit, policy.commits))
    base = merge_base(mirror, hidden, tip.oid)
    drafts: list[FoundRef] = []
    dropped: set[str] = set()
    for path, workspace in named.items():
        proposed, before = mirror.subtree(tip.oid, path), mirror.subtree(base, path) if base else None
        found = find_package(mirror, tip.tree, path)
        if found is not None and proposed != before:
            drafts.append(FoundRef(ref, RevisionRef(path, workspace, 0, Lifecycle.DRAFT), tip, found))
        elif _last_written(mirror, own, path, policy) != before:
            dropped.add(path)
    branch = GroupBranch(
        ref,
        at,
        tuple(named),
        dropped=frozenset(dropped),
        foreign=bool(foreign),
        foreign_time=max((commit.committer.time for commit in foreign), default=0),
    )
    return FoundGroup(branch, tuple(drafts))


def _named(commits: Iterable[CommitData]) -> Mapping[str, str]:
    """Return the packages that commits name, each with the workspace that the newest gives it; sorted."""
    found: dict[str, str] = {}
    for commit in commits:
        for note in parse_annotations(commit.message):
            found.setdefault(note.package, note.workspace)
    return {path: found[path] for path in sorted(found) if path}


def _last_written(mirror: Mirror, own: Iterable[CommitData], path: str, policy: Policy) -> Oid | None:
    """Return the package as our newest commit that names it left it."""
    mine = (commit for commit in own if is_ours(commit, policy.commits))
    newest = next((commit for commit in mine if path in _named([commit])), None)
    return mirror.subtree(newest.oid, path) if newest else None
