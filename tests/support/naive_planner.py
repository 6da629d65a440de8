"""A short and slow planner, written from docs/design.md alone: operation and reason of each package.

It reads a world in memory as a person would, and knows nothing of how the planner works. Packages merge
file by file. It answers nothing where a merge has a conflict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from reconciler.api.porch import PackageVariantSpec
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import ObjectName, Oid
from reconciler.records.state import PackageVariantRecord
from tests.support.model import MAIN, NAMESPACE, ModelCommit, ModelRepository, ModelWorld, merge_base

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


Answer = tuple[str, str]
"""Operation and reason."""


class NaivePlanner:
    """Decides about every package of a world."""

    def __init__(self, world: ModelWorld) -> None:
        self.world = world

    def plan(self) -> dict[tuple[str, str], Answer | None]:
        """Return the answer for every package in scope (law 3); None where a merge has a conflict."""
        answers: dict[tuple[str, str], Answer | None] = {}
        for name, repository in self.world.repositories.items():
            if repository.down:
                continue
            downstreams = {
                s.downstream.package: v for v, s in self.world.variants.items() if s.downstream.repo == name
            }
            for path in sorted({*self.paths(repository), *downstreams}):
                package = Package(repository, path)
                exists = package.main is not None or any(package.drafts())
                headers = [repository.at(ref).header(path) for ref in self.places(repository, path)]
                marked = any(header.owner.startswith("fleet/") for header in headers)
                has_deletion = f"{DELETE}{path}" in repository.refs
                if path in downstreams or (exists and (downstreams or marked)) or has_deletion:
                    answers[name, path] = self.answer(package, downstreams.get(path), exists=exists)
        return answers

    @staticmethod
    def paths(repository: ModelRepository) -> Iterator[str]:
        yield from repository.at(MAIN).packages
        for ref in repository.refs:
            if ref.startswith(DRAFTS):
                yield ref.removeprefix(DRAFTS).rpartition("/")[0]
            elif ref.startswith(DELETE):
                yield ref.removeprefix(DELETE)

    @staticmethod
    def places(repository: ModelRepository, path: str) -> Iterator[str]:
        for ref in repository.refs:
            is_draft = ref.startswith(f"{DRAFTS}{path}/")
            if (ref == MAIN or is_draft) and path in repository.at(ref).packages:
                yield ref

    def answer(self, package: Package, variant: str | None, *, exists: bool) -> Answer | None:
        try:
            if variant is None:
                return self.unwanted(package, exists=exists)
            return self.tidied(package, self.wanted(package, variant, exists=exists))
        except ConflictError:
            return None

    def record(self, name: str) -> PackageVariantRecord | None:
        return self.world.records.get(ObjectName(NAMESPACE, name))

    def is_uncertain(self, owner: str) -> bool:
        """Tell whether a manifest that was not read may declare the owner (law 4)."""
        record = self.record(owner)
        return (
            owner not in self.world.variants and record is not None and record.manifest in self.world.broken
        )

    # Packages that a variant wants

    def pin(self, spec: PackageVariantSpec) -> tuple[Lock, Files]:
        """Return the upstream of a variant: a tagged revision, the latest one by default (D9)."""
        repository, upstream = self.world.repositories["blueprints"], spec.upstream
        assert upstream is not None
        name = upstream.package or ""
        numbers = [int(r.rpartition("/v")[2]) for r in repository.refs if r.startswith(f"refs/tags/{name}/v")]
        ref = f"{name}/v{upstream.revision or max(numbers)}"
        commit = repository.at(f"refs/tags/{ref}")
        return (name, ref, commit.oid), self.content(commit, name)

    def content(self, commit: ModelCommit, path: str) -> Files:
        return {name: file.data for name, file in commit.packages[path].items() if name not in MANAGED}

    def source(self, lock: Lock | None) -> Files | None:
        if lock is None:
            return None
        return self.content(self.world.repositories["blueprints"].commits[Oid(lock[2])], lock[0])

    def updated(self, state: State | None, variant: str, spec: PackageVariantSpec) -> State:
        """Return a package with its variant's upstream brought in; what people made of it stays (D10)."""
        lock, upstream = self.pin(spec)
        base = self.source(state.lock) if state else None
        local = dict(state.files) if state else {}
        files = {**upstream, **local} if base is None else merge(base, upstream, local)
        return State(tuple(sorted(files.items())), lock, variant)

    def wanted(self, package: Package, variant: str, *, exists: bool) -> Answer:
        if self.world.repositories["blueprints"].down:
            return ("keep", "OwnerStalled") if exists else ("block", "RepositoryUnavailable")
        spec, owner = self.world.variants[variant], package.owner
        if refused := self.refused(package, owner, variant, exists=exists):
            return "keep", refused
        fresh, draft = self.updated(package.main, variant, spec), package.draft
        if fresh == package.main:
            return self.obsolete(draft)
        is_claimed = owner not in (None, variant)
        if draft is not None:
            return self.drafted(package, draft, fresh, is_claimed=is_claimed)
        answer = ("transfer", "OwnerChanged") if is_claimed else self.first(package.main, fresh)
        return ("keep", "Rejected") if self.is_rejected(package, variant, fresh) else answer

    def refused(self, package: Package, owner: str | None, variant: str, *, exists: bool) -> str:
        """Return why a variant may not have a package, "" if it may (D5)."""
        if owner is not None:
            if owner != variant and self.is_uncertain(owner):
                return "OwnerStalled"
            releases = (draft for draft in package.drafts() if draft.written and draft.state.owner is None)
            is_released = owner not in self.world.variants and any(map(package.is_proposed, releases))
            return "PackageExists" if is_released else ""
        is_there = package.main is not None or (exists and package.draft is None)
        if is_there and self.world.variants[variant].adoption_policy != "adoptExisting":
            return "PackageExists"
        theirs = (draft for draft in package.drafts() if draft.state.owner is None)
        return "" if all(map(package.is_merged, theirs)) else "ForeignDraft"

    def first(self, before: State | None, fresh: State) -> Answer:
        """Return the answer for the first draft of a package, or of its next content."""
        if before is None:
            return "create", "New"
        return ("adopt", "Adopted") if before.owner is None else self.changed(before, fresh)

    @staticmethod
    def obsolete(draft: Branch | None) -> Answer:
        """Main is what it should be: an untouched draft is closed, a person's stays (D21)."""
        if draft is None:
            return "keep", "UpToDate"
        return ("keep", "DraftEdited") if draft.is_edited else ("close", "DraftSuperseded")

    @staticmethod
    def changed(before: State, after: State) -> Answer:
        return ("edit", "ContentChanged") if before.lock == after.lock else ("update", "UpstreamChanged")

    def drafted(self, package: Package, draft: Branch, fresh: State, *, is_claimed: bool) -> Answer:
        """One draft for each variant: brought up to date in place, merged under where people edited it."""
        is_closed = package.is_closed(draft.ref, draft.tip.oid)
        result = fresh
        if draft.is_edited and fresh not in (draft.written, draft.state):
            spec = self.world.variants[fresh.owner or ""]
            result = self.updated(draft.state, fresh.owner or "", spec)
            left = package.at(draft.base)
            if left and package.main and left != package.main:
                files = merge(dict(left.files), dict(package.main.files), dict(result.files))
                result = State(tuple(sorted(files.items())), result.lock, result.owner)
        if result == draft.state or (draft.is_edited and fresh in (draft.written, draft.state)):
            if package.at(draft.base) != package.main and not is_closed:
                return "edit", "ContentChanged"
            if is_closed:
                return "keep", "Rejected"
            pull = package.pull(draft.ref)
            if pull is None or pull.state is not PullState.OPEN:
                return "update", "PullRequestMissing"
            return "keep", "DraftEdited" if draft.state != draft.written else "UpToDate"
        return ("transfer", "OwnerChanged") if is_claimed else self.changed(draft.state, fresh)

    def is_rejected(self, package: Package, variant: str, fresh: State) -> bool:
        """Tell whether people refused exactly this content: by closing, or by going back on main (D14)."""
        record = self.record(variant)
        if (
            record is None
            or not record.output_tree
            or (record.path, record.repository)
            != (
                package.path,
                package.repository.name,
            )
        ):
            return False
        if package.was_undone(fresh):
            return True
        heads = [p for p in package.repository.pulls if p.head.startswith(f"drafts/{package.path}/")]
        last = max(heads, key=lambda pull: (pull.state is PullState.OPEN, pull.number), default=None)
        tip = package.repository.commits.get(Oid(last.head_oid)) if last else None
        is_closed = last is not None and last.state is PullState.CLOSED
        return is_closed and tip is not None and package.written(tip) == fresh

    def tidied(self, package: Package, answer: Answer) -> Answer:
        """Publish what main has, clear merged drafts away, withdraw a deletion: where nothing else is due."""
        op, reason = answer
        owner = package.main.owner if package.main else None
        if op != "keep" or reason in {"PackageExists", "ForeignDraft"}:
            return answer
        if owner and package.has_untagged() and not self.is_uncertain(owner):
            return "publish", "PublishedByMerge" if reason == "UpToDate" else reason
        if reason == "OwnerStalled":
            return answer
        if package.is_deletion_proposed or any(map(package.is_merged, package.ours)):
            instead = "DeletionWithdrawn" if package.is_deletion_proposed else "DraftSuperseded"
            return "close", instead if reason == "UpToDate" else reason
        return answer

    # Packages that no variant wants

    def unwanted(self, package: Package, *, exists: bool) -> Answer:
        owner = package.owner or next((draft.state.owner for draft in package.ours), None)
        if owner is None:
            is_over = package.is_deletion_standing and not exists
            return ("close", "AlreadyAbsent") if is_over else ("keep", "NotOurs")
        if kept := self.kept(owner):
            return "keep", kept
        record, spec = self.record(owner), self.world.variants.get(owner)
        policy = spec.deletion_policy if spec else record.deletion_policy if record else ""
        if policy == "orphan" and package.main is not None and package.main.owner is not None:
            return self.orphaned(package)
        if policy == "orphan" and package.main is None and any(map(package.is_proposed, package.ours)):
            return "keep", "Orphaned"
        return self.deleted(package, record)

    def kept(self, owner: str) -> str:
        """Return why nothing proves that the owner let go of its package, "" if something does (D3)."""
        record, place = self.record(owner), self.downstreams().get(owner)
        needed = ("blueprints", place[0]) if place else ()
        if self.is_uncertain(owner) or any(self.world.repositories[name].down for name in needed):
            return "OwnerStalled"
        if place is not None:
            return ""
        if record is None:
            return "OwnerUnknown"
        if self.place(record) in self.downstreams().values():
            return "OwnerChanged"
        return "ManifestUnreadable" if self.is_contested(record) else ""

    def is_contested(self, record: PackageVariantRecord) -> bool:
        """Tell whether a manifest that was not read had the same downstream (law 4)."""
        rivals = (r for r in self.world.records.values() if self.place(r) == self.place(record))
        return any(self.is_uncertain(rival.name) for rival in rivals)

    @staticmethod
    def place(record: PackageVariantRecord) -> tuple[str, str]:
        return record.repository, record.path

    def downstreams(self) -> dict[str, tuple[str, str]]:
        """Return repository and package of every variant."""
        named = ((name, spec.downstream) for name, spec in self.world.variants.items())
        return {name: (where.repo or "", where.package or "") for name, where in named if where}

    @staticmethod
    def orphaned(package: Package) -> Answer:
        """Release a package with its content: by a draft without our annotations."""
        content = package.main or (package.draft.state if package.draft else None)
        released = any(
            d.state.owner is None and content and d.state.files == content.files for d in package.drafts()
        )
        return ("keep" if released and not package.is_deletion_proposed else "orphan"), "Orphaned"

    @staticmethod
    def deleted(package: Package, record: PackageVariantRecord | None) -> Answer:
        """Propose a deletion; what never got to main goes with its draft, unless people edited that."""
        touched = [draft for draft in package.ours if draft.is_edited and not package.is_merged(draft)]
        untouched = [draft for draft in package.ours if draft not in touched]
        if package.main is None or package.main.owner is None:
            return ("keep", "DraftEdited") if touched else ("delete", "NotDesired")
        ref = f"{DELETE}{package.path}"
        is_standing = package.is_deletion_standing
        was_proposed = is_standing or (record is not None and record.deletion_proposed)
        if package.is_closed(ref) and was_proposed:
            return ("close" if untouched or package.is_deletion_proposed else "keep"), "Rejected"
        if is_standing:
            pull = package.pull(ref)
            is_open = pull is not None and pull.state is PullState.OPEN
            return ("keep" if is_open and not untouched else "delete"), "DeletionProposed"
        return "delete", "NotDesired"
