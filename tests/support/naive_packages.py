"""Packages of a world in memory as commits, refs and pull requests show them, for the naive planner."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from reconciler.inventory.inventory import PullRequest, PullState
from tests.support.model import MAIN, NAMESPACE, ModelCommit, ModelRepository, merge_base

DRAFTS = "refs/heads/drafts/"
DELETE = "refs/heads/reconciler/fleet/delete/"
MANAGED = frozenset({"Kptfile", "package-context.yaml"})
"""Files that follow from the variant and its repository; people leave them alone in these worlds."""
Files = Mapping[str, bytes]
Lock = tuple[str, str, str]
"""Directory, name and commit of an upstream."""


class ConflictError(Exception):
    """Both sides changed one file differently: what a person makes of it is not foreseen here."""


@dataclass(frozen=True)
class State:
    """A package as it is somewhere: its files, where it comes from, and its owner of this instance."""

    files: tuple[tuple[str, bytes], ...]
    lock: Lock | None
    owner: str | None


def read_state(commit: ModelCommit | None, repository: str, path: str) -> State | None:
    """Return the package at a commit; an owner with another location marks a copy (D5)."""
    if commit is None or path not in commit.packages:
        return None
    header, lock = commit.header(path), commit.header(path).upstream_lock
    files = tuple(sorted((n, f.data) for n, f in commit.packages[path].items() if n not in MANAGED))
    instance, _, owner = header.owner.partition("/")
    is_owned = instance == "fleet" and header.location == f"{repository}/{path}"
    made_from = (lock.directory, lock.ref, lock.commit) if lock else None
    return State(files, made_from, owner.removeprefix(f"{NAMESPACE}/") if is_owned else None)


def merge(base: Files, upstream: Files, local: Files) -> Files:
    """Merge file by file (D10): the side that changed a file wins."""
    merged = {}
    for name in {*base, *upstream, *local}:
        old, new, mine = base.get(name), upstream.get(name), local.get(name)
        if new != mine and old not in (new, mine):
            raise ConflictError(name)
        chosen = new if mine == old else mine
        if chosen is not None:
            merged[name] = chosen
    return merged


@dataclass(frozen=True)
class Branch:
    """A draft of ours: its tip, what we wrote last, and whether people committed to it."""

    ref: str
    tip: ModelCommit
    state: State
    written: State | None
    is_edited: bool
    base: ModelCommit | None


class Package:
    """One package of one repository, as commits, refs and pull requests show it."""

    def __init__(self, repository: ModelRepository, path: str) -> None:
        self.repository, self.path = repository, path
        self.main = self.at(repository.at(MAIN))
        self.history = list(repository.first_parents(repository.refs[MAIN]))

    def at(self, commit: ModelCommit | None) -> State | None:
        return read_state(commit, self.repository.name, self.path)

    def drafts(self) -> Iterator[Branch]:
        """Yield every draft, the newest workspace first."""
        heads = {
            ref: oid for ref, oid in self.repository.refs.items() if ref.startswith(f"{DRAFTS}{self.path}/")
        }
        for ref in sorted(heads, key=lambda r: -int(r.rpartition("-")[2])):
            tip = self.repository.commits[heads[ref]]
            reached = self.repository.ancestors(self.repository.refs[MAIN])
            own = [c for c in self.repository.first_parents(tip.oid) if c.oid not in reached]
            ours = self.written(tip)
            state = self.at(tip)
            if state is not None:
                foreign = any(not commit.ours for commit in own)
                base = merge_base(self.repository, self.repository.refs[MAIN], tip.oid)
                there = self.repository.commits[base] if base else None
                yield Branch(ref, tip, state, ours, foreign, there)

    def written(self, tip: ModelCommit) -> State | None:
        """Return the package as our newest commit that changed it left it."""
        for commit, parent in pairwise(self.repository.first_parents(tip.oid)):
            if commit.ours and commit.tree(self.path) != parent.tree(self.path):
                return self.at(commit)
        return None

    def is_merged(self, draft: Branch) -> bool:
        """Tell whether main has a draft: by merge, squash or rebase (D4)."""
        tree = draft.tip.tree(self.path)
        if draft.base is draft.tip or tree == self.repository.at(MAIN).tree(self.path):
            return True
        since = takewhile(lambda commit: draft.base is None or commit.oid != draft.base.oid, self.history)
        before = draft.base.tree(self.path) if draft.base else None
        return any(commit.tree(self.path) == tree for commit in since) and tree != before

    @cached_property
    def ours(self) -> list[Branch]:
        return [draft for draft in self.drafts() if draft.state.owner]

    def is_proposed(self, draft: Branch) -> bool:
        """Tell whether people may merge a draft: neither did they nor did they close it as it is."""
        return not self.is_merged(draft) and not self.is_closed(draft.ref, draft.tip.oid)

    @property
    def draft(self) -> Branch | None:
        """The open draft."""
        return next((draft for draft in self.ours if not self.is_merged(draft)), None)

    @property
    def owner(self) -> str | None:
        draft = self.draft
        return self.main.owner if self.main else draft.state.owner if draft else None

    def pull(self, ref: str) -> PullRequest | None:
        """Return the pull request of a branch that counts: an open one, else the newest."""
        pulls = [pull for pull in self.repository.pulls if f"refs/heads/{pull.head}" == ref]
        return max(pulls, key=lambda pull: (pull.state is PullState.OPEN, pull.number), default=None)

    def is_closed(self, ref: str, tip: str = "") -> bool:
        """Tell whether a person closed the pull request of a branch, at this commit if it is given (D14)."""
        pull = self.pull(ref)
        return pull is not None and pull.state is PullState.CLOSED and tip in ("", pull.head_oid)

    @property
    def is_deletion_standing(self) -> bool:
        return f"{DELETE}{self.path}" in self.repository.refs

    @property
    def is_deletion_proposed(self) -> bool:
        """Tell whether a branch of ours, or the one for Porch beside it, proposes the deletion (D4)."""
        marker = f"refs/heads/deletionProposed/{self.path}/"
        return self.is_deletion_standing or any(ref.startswith(marker) for ref in self.repository.refs)

    def has_untagged(self) -> bool:
        """Tell whether main has a state of ours that no tag names (D4)."""
        tags = {r: o for r, o in self.repository.refs.items() if r.startswith(f"refs/tags/{self.path}/v")}
        newest = max(tags, key=lambda ref: int(ref.rpartition("/v")[2]), default="")
        tagged = self.repository.at(newest).tree(self.path) if newest else None
        untagged = takewhile(lambda commit: commit.oid not in tags.values(), self.history)
        for commit in reversed(list(untagged)):
            state = self.at(commit)
            if state is not None and state.owner and commit.tree(self.path) != tagged:
                return True
        return False

    def was_undone(self, state: State) -> bool:
        """Tell whether main had a state, and people put an older one back, or none (D14)."""
        states = [self.at(commit) for commit in reversed(self.history)]
        if state not in states:
            return False
        last = len(states) - 1 - states[::-1].index(state)
        return self.main is None or self.main in states[:last]
