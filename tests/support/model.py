"""Worlds in memory: repositories, people and our own plans applied, without Git.

A repository's tree is its packages; nothing else of Git matters to the core.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.kptfile import KPTFILE, KptfileHeader
from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import (
    PACKAGE_VARIANT,
    REPOSITORY,
    Downstream,
    GitRepository,
    PackageVariant,
    PackageVariantSpec,
    Repository,
    RepositorySpec,
    Upstream,
)
from reconciler.base.errors import Location
from reconciler.base.values import read_record
from reconciler.dependencies.catalog.index import DependencyInputs
from reconciler.expand import Desired, expand
from reconciler.inventory.inventory import (
    ALWAYS_OPEN,
    Commit,
    Control,
    Draft,
    Inventory,
    Opening,
    PackageRevision,
    PackageState,
    PullRequest,
    PullState,
    RepositoryView,
    ReviewedLock,
    Source,
    Sourced,
    TreeAt,
    UnpublishedRevision,
)
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.names.objects import File, Files, object_id, tree_id
from reconciler.names.problems import Problem
from reconciler.names.trailers import read_answers
from reconciler.plan.build import build_plan
from reconciler.plan.changes import MoveRef, Plan, WriteDraft, WriteRemoval
from reconciler.policy import Policy
from reconciler.read.repositories.trees import read_header
from reconciler.records.state import (
    NOTHING_REFUSED,
    REFUSED_DELETIONS,
    UPSTREAMS_DIRECTORY,
    PackageVariantRecord,
    RefusedDeletionsRecord,
    SetRecord,
    UpstreamLock,
)
from reconciler.render import render_packages
from reconciler.resolve.fleet import ResolvedFleet, resolve_fleet
from reconciler.resolve.resolution import Resolution
from tests.support.values import replace

MAIN = "refs/heads/main"
NAMESPACE = "default"
EPOCH = 1_700_000_000


def resolve(inventory: Inventory, desired: Desired) -> Resolution:
    """Resolve variants in a world whose packages need no others."""
    return resolve_fleet(inventory, desired, DependencyInputs()).resolution


@dataclass(frozen=True, slots=True)
class ModelCommit:
    """A commit: its packages, and whether it is ours."""

    oid: Oid
    parents: tuple[Oid, ...]
    packages: Mapping[str, Files]
    time: int
    ours: bool
    message: str

    def tree(self, path: str) -> Oid | None:
        return tree_id(self.packages[path]) if path in self.packages else None

    def header(self, path: str) -> KptfileHeader:
        return read_header(self.packages[path][KPTFILE].data)


@dataclass
class ModelRepository:
    """One repository: commits, refs, pull requests."""

    name: str
    deployment: bool = False
    directory: str = ""
    commits: dict[Oid, ModelCommit] = field(default_factory=dict)
    refs: dict[str, Oid] = field(default_factory=dict)
    pulls: list[PullRequest] = field(default_factory=list)
    down: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def url(self) -> str:
        return f"git.example/{self.address or self.name}"

    def commit(
        self,
        packages: Mapping[str, Files],
        parents: Iterable[Oid],
        *,
        time: int,
        ours: bool = False,
        message: str = "",
    ) -> Oid:
        """Store a commit; its id is a function of what it holds."""
        parents = tuple(parents)
        trees = sorted((path, tree_id(files)) for path, files in packages.items())
        oid = object_id("commit", repr((trees, parents, time, ours, message)).encode())
        self.commits[oid] = ModelCommit(oid, parents, dict(packages), time, ours, message)
        return oid

    def at(self, ref: str) -> ModelCommit:
        return self.commits[self.refs[ref]]

    def ancestors(self, oid: Oid) -> set[Oid]:
        seen: set[Oid] = set()
        pending = [oid]
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                pending += self.commits[one].parents
        return seen

    def first_parents(self, oid: Oid) -> Iterator[ModelCommit]:
        commit: ModelCommit | None = self.commits[oid]
        while commit is not None:
            yield commit
            commit = self.commits[commit.parents[0]] if commit.parents else None


@dataclass
class ModelWorld:
    """Everything a run sees, in memory."""

    policy: Policy = field(default_factory=lambda: Policy(instance="fleet"))
    repositories: dict[str, ModelRepository] = field(default_factory=dict)
    variants: dict[str, PackageVariantSpec] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    records: dict[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: dict[ObjectName, SetRecord] = field(default_factory=dict)
    locks: dict[ObjectName, UpstreamLock] = field(default_factory=dict)
    refused: RefusedDeletionsRecord = NOTHING_REFUSED
    reviewed: ReviewedLock | None = None
    state: dict[str, bytes] = field(default_factory=dict)
    status: dict[str, bytes] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    readable: bool = True
    time: int = EPOCH
    shuffle: int | None = None
    opening: Opening = ALWAYS_OPEN

    def tick(self) -> int:
        self.time += 60
        return self.time

    # what people do

    def add_repository(self, name: str, *, deployment: bool = False, directory: str = "") -> ModelRepository:
        repository = ModelRepository(name, deployment=deployment, directory=directory)
        repository.refs[MAIN] = repository.commit({}, (), time=self.tick())
        self.repositories[name] = repository
        return repository

    def rename_repository(self, old: str, new: str) -> None:
        """People register a repository under another name; it stays where it is."""
        repository = self.repositories.pop(old)
        repository.address, repository.name = repository.address or old, new
        self.repositories[new] = repository

    def push(
        self, name: str, changes: Mapping[str, Files | None], *, ref: str = MAIN, message: str = "person"
    ) -> Oid:
        """A person commits to a branch: packages replaced, or removed where None."""
        repository = self.repositories[name]
        packages = dict(repository.at(ref).packages)
        for path, files in changes.items():
            packages.pop(path, None)
            if files is not None:
                packages[path] = files
        oid = repository.commit(packages, (repository.refs[ref],), time=self.tick(), message=message)
        repository.refs[ref] = oid
        return oid

    def edit(self, name: str, path: str, files: Mapping[str, str], *, ref: str = MAIN) -> Oid:
        """A person changes some files of a package on a branch."""
        now = self.repositories[name].at(ref).packages[path]
        return self.push(name, {path: {**now, **package(files)}}, ref=ref)

    def publish(self, name: str, path: str, files: Files, revision: int) -> Oid:
        """An author pushes a package to main and tags it."""
        oid = self.push(name, {path: files})
        self.repositories[name].refs[f"refs/tags/{path}/v{revision}"] = oid
        return oid

    def drafts(self, name: str) -> list[str]:
        heads = ("refs/heads/drafts/", "refs/heads/proposed/")
        return sorted(ref for ref in self.repositories[name].refs if ref.startswith(heads))

    def merge(
        self, name: str, ref: str, *, how: str = "merge", keep_branch: bool = False, dated: int | None = None
    ) -> Oid:
        """A person merges a branch into main: by merge commit, squash or rebase, with any date on it."""
        repository = self.repositories[name]
        main, tip = repository.at(MAIN), repository.at(ref)
        packages = self._merged(repository, main, tip)
        parents = (main.oid, tip.oid) if how == "merge" else (main.oid,)
        now = self.tick()
        time = now if dated is None else dated
        oid = repository.commit(packages, parents, time=time, message=how)
        repository.refs[MAIN] = oid
        head = ref.removeprefix("refs/heads/")
        self._end_pulls(repository, head, PullState.MERGED)
        if not keep_branch:
            del repository.refs[ref]
        return oid

    def _merged(self, repository: ModelRepository, main: ModelCommit, tip: ModelCommit) -> dict[str, Files]:
        base = merge_base(repository, main.oid, tip.oid)
        before = repository.commits[base].packages if base else {}
        packages = dict(main.packages)
        for path in {*before, *tip.packages}:
            if tip.packages.get(path) != before.get(path):
                packages.pop(path, None)
                if path in tip.packages:
                    packages[path] = tip.packages[path]
        return packages

    def close(self, name: str, head: str) -> None:
        self._end_pulls(self.repositories[name], head, PullState.CLOSED)

    @staticmethod
    def _end_pulls(repository: ModelRepository, head: str, state: PullState) -> None:
        tip = repository.refs.get(f"refs/heads/{head}", "")
        repository.pulls = [
            replace(p, state=state, head_oid=tip) if p.head == head and p.state is PullState.OPEN else p
            for p in repository.pulls
        ]

    # what a run does

    def inventory(self) -> Inventory:
        """Read the world; with `shuffle`, in another order."""
        views = {ObjectName(NAMESPACE, name): self._view(r) for name, r in self.repositories.items()}
        return Inventory(
            policy=self.policy,
            control=Control(
                "git.example/control",
                "control",
                Commit(Oid("c" * 40), EPOCH),
                readable=self.readable,
                broken=self.broken,
            ),
            variants=tuple(self._variant(name) for name in self._order(sorted(self.variants))),
            repositories={key: views[key] for key in self._order(sorted(views))},
            snapshot=Snapshot(),
            records={key: self.records[key] for key in self._order(sorted(self.records))},
            set_records=self.set_records,
            refused=self.refused,
            pulls={r.url: tuple(r.pulls) for r in self.repositories.values()},
            trees=dict(self._trees()),
            times={oid: one.time for r in self.repositories.values() for oid, one in r.commits.items()},
            locks={key: self.locks[key] for key in self._order(sorted(self.locks))},
            reviewed=self.reviewed,
            opening=self.opening,
        )

    def plan(self) -> Plan:
        inventory = self.inventory()
        desired = expand(inventory)
        resolution = resolve(inventory, desired)
        return self.plan_of(inventory, desired, resolution)

    def plan_of(self, inventory: Inventory, desired: Desired, resolution: Resolution) -> Plan:
        rendered = render_packages(resolution, self.contents(resolution), inventory)
        plan = build_plan(inventory, ResolvedFleet(desired, resolution), rendered)
        # The control repository of the model is no Git repository: nobody opens or merges its pull requests.
        return replace(plan, lock=None)

    def contents(self, resolution: Resolution) -> dict[Oid, Files]:
        """Fetch exactly what was asked for, and no more: what is not needed must not be read."""
        wanted = {tree for trees in resolution.needs.trees.values() for tree in trees}
        found = {}
        for repository in self.repositories.values():
            for commit in repository.commits.values():
                for files in commit.packages.values():
                    oid = tree_id(files)
                    if oid in wanted:
                        found[oid] = files
        return found

    def apply(self, plan: Plan) -> int:
        """Do what the plan says, as apply does; return how many effects there were."""
        effects = 0
        by_url = {r.url: r for r in self.repositories.values()}
        for change in plan.changes:
            repository = by_url[change.package.url]
            for write in change.writes:
                effects += self._write(repository, write)
            if change.pull is not None:
                effects += self._ensure(repository, change.pull)
            for closing in change.close:
                self._end_pulls(repository, closing.head, PullState.CLOSED)
                effects += 1
        if plan.records != self.state or plan.status != self.status:
            effects += 1
            self.state, self.status = dict(plan.records), dict(plan.status)
            self._read_state()
        return effects

    def run(self) -> Plan:
        plan = self.plan()
        self.apply(plan)
        return plan

    def lose_state(self) -> None:
        self.state, self.status = {}, {}
        self._read_state()

    def _read_state(self) -> None:
        self.records, self.set_records, self.locks = {}, {}, {}
        refused = self.state.get(REFUSED_DELETIONS, b"{}")
        self.refused = read_record(refused, RefusedDeletionsRecord)
        for path, data in self.state.items():
            if path.startswith("packagevariants/"):
                record = read_record(data, PackageVariantRecord)
                self.records[record.key] = record
            elif path.startswith("packagevariantsets/"):
                one = read_record(data, SetRecord)
                self.set_records[one.key] = one
            elif path.startswith(f"{UPSTREAMS_DIRECTORY}/"):
                lock = read_record(data, UpstreamLock)
                self.locks[lock.key] = lock

    def _write(self, repository: ModelRepository, write: WriteDraft | WriteRemoval | MoveRef) -> int:
        assert repository.refs.get(write.ref) == write.expect, f"lease on {write.ref}"
        if isinstance(write, MoveRef):
            if write.to is None:
                del repository.refs[write.ref]
            else:
                assert write.to in repository.commits
                repository.refs[write.ref] = write.to
            return 1
        merges = write.merges if isinstance(write, WriteDraft) else None
        packages = dict(repository.commits[merges or write.onto].packages)
        packages.pop(write.path, None)
        if isinstance(write, WriteDraft):
            files = write.files or repository.commits[repository.refs[write.ref]].packages[write.path]
            assert tree_id(files) == write.tree
            packages[write.path] = files
        parents = (write.onto, merges) if merges else (write.onto,)
        repository.refs[write.ref] = repository.commit(
            packages, parents, time=write.time, ours=True, message=write.message
        )
        return 1

    @staticmethod
    def _ensure(repository: ModelRepository, wanted: PullRequest) -> int:
        assert f"refs/heads/{wanted.head}" in repository.refs
        for index, pull in enumerate(repository.pulls):
            if pull.head == wanted.head and pull.state is PullState.OPEN:
                text = {"title": wanted.title, "digest": wanted.digest, "labels": wanted.labels}
                repository.pulls[index] = replace(pull, **text, base=wanted.base)
                return int(repository.pulls[index] != pull)
        repository.pulls.append(replace(wanted, number=len(repository.pulls) + 1))
        return 1

    def _order(self, found: list) -> list:
        if self.shuffle is not None:
            random.Random(self.shuffle).shuffle(found)
        return found

    def _variant(self, name: str) -> Sourced[PackageVariant]:
        meta = ObjectMeta(name=name, namespace=NAMESPACE, annotations=self.annotations.get(name))
        manifest = PackageVariant(
            api_version=PACKAGE_VARIANT, kind="PackageVariant", metadata=meta, spec=self.variants[name]
        )
        source = Source(Location(f"variants/{name}.yaml", 1), EPOCH)
        return Sourced(ObjectName(NAMESPACE, name), manifest, source)

    def _view(self, repository: ModelRepository) -> RepositoryView:
        git = GitRepository(repo=f"https://{repository.url}.git", directory=repository.directory)
        manifest = Repository(
            api_version=REPOSITORY,
            kind="Repository",
            metadata=ObjectMeta(
                name=repository.name, namespace=NAMESPACE, annotations=dict(repository.annotations)
            ),
            spec=RepositorySpec(deployment=repository.deployment, git=git),
        )
        view = RepositoryView(
            key=ObjectName(NAMESPACE, repository.name),
            url=repository.url,
            remote=git.repo,
            branch="main",
            directory=repository.directory,
            manifest=manifest,
            source=Source(Location(f"repositories/{repository.name}.yaml", 1)),
        )
        if repository.down:
            problem = Problem(view.source.location, "RepositoryUnavailable", "is down")
            return replace(view, problem=problem)
        head = repository.at(MAIN)
        paths = {*head.packages, *(_path_of(ref) for ref in repository.refs if _path_of(ref))}
        states = {path: _state(repository, path, self.policy) for path in self._order(sorted(paths))}
        return replace(
            view,
            head=Commit(head.oid, head.time),
            packages={path: s for path, s in states.items() if s.exists or s.published},
            branches=dict(_named(repository, "refs/heads/")),
            tags=dict(_named(repository, "refs/tags/")),
        )

    def _trees(self) -> Iterator[tuple[TreeAt, Oid]]:
        for repository in self.repositories.values():
            for commit in repository.commits.values():
                for path in commit.packages:
                    tree = commit.tree(path)
                    if tree:
                        yield TreeAt(repository.url, commit.oid, path), tree


def web_spec(revision: int = 1, *, package: str = "web", **more: object) -> PackageVariantSpec:
    """Return the spec of a package of `edge` that is made from a revision of `web` in `blueprints`."""
    given: dict[str, Any] = {
        "upstream": Upstream(repo="blueprints", package="web", revision=revision),
        "downstream": Downstream(repo="edge", package=package),
        **more,
    }
    return PackageVariantSpec(**given)


def package(files: Mapping[str, str]) -> Files:
    """Return files as a package holds them."""
    return {path: File.of(text.encode()) for path, text in files.items()}


def kptfile(name: str, extra: str = "") -> str:
    return f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name} # named here\n{extra}"


def blueprint(name: str, **files: str) -> Files:
    """Return a package with a Kptfile and these files (`a_yaml` is a.yaml)."""
    named = {key.replace("_", "."): text for key, text in files.items()}
    return package({KPTFILE: kptfile(name), **named})


def merge_base(repository: ModelRepository, one: Oid, other: Oid) -> Oid | None:
    ours = repository.ancestors(one)
    pending = [other]
    while pending:
        oid = pending.pop(0)
        if oid in ours:
            return oid
        pending += repository.commits[oid].parents
    return None


def _path_of(ref: str) -> str:
    for prefix in ("refs/heads/drafts/", "refs/heads/proposed/", "refs/tags/"):
        if ref.startswith(prefix):
            return ref.removeprefix(prefix).rpartition("/")[0]
    return ""


def _named(repository: ModelRepository, prefix: str) -> Iterator[tuple[str, Commit]]:
    for ref, oid in repository.refs.items():
        if ref.startswith(prefix):
            yield ref.removeprefix(prefix), Commit(oid, repository.commits[oid].time)


def _state(repository: ModelRepository, path: str, policy: Policy) -> PackageState:
    head = repository.at(MAIN)
    drafts = [_draft(repository, ref, path) for ref in sorted(repository.refs) if _is_draft(ref, path)]
    published = [
        _published(repository, ref, path)
        for ref in sorted(repository.refs)
        if ref.startswith("refs/tags/") and _path_of(ref) == path
    ]
    published = [revision for revision in published if revision.tree]
    owned = path in head.packages and head.header(path).owner.startswith(f"{policy.instance}/")
    return PackageState(
        path,
        main_tree=head.tree(path),
        main_header=head.header(path) if path in head.packages else None,
        drafts=tuple(d for d in drafts if d),
        published=tuple(sorted(published, key=lambda r: (r.revision, r.ref))),
        unpublished=tuple(_untagged(repository, path)) if owned else (),
    )


def _is_draft(ref: str, path: str) -> bool:
    return ref.startswith(("refs/heads/drafts/", "refs/heads/proposed/")) and _path_of(ref) == path


def _draft(repository: ModelRepository, ref: str, path: str) -> Draft | None:
    tip, main = repository.at(ref), repository.refs[MAIN]
    if path not in tip.packages:
        return None
    reached = repository.ancestors(main)
    own = [c for c in _newest_first(repository, tip.oid) if c.oid not in reached] or [tip]
    base = merge_base(repository, main, tip.oid)
    foreign = [c for c in own if not c.ours] if base != tip.oid else []
    mine = [c for c in own if c.ours]
    written = next((c for c in mine if _touches(repository, c, path)), mine[0] if mine else None)
    base_tree = repository.commits[base].tree(path) if base else None
    proposed = ref.startswith("refs/heads/proposed/")
    return Draft(
        path=path,
        workspace=ref.rpartition("/")[2],
        lifecycle=Lifecycle.PROPOSED if proposed else Lifecycle.DRAFT,
        ref=ref,
        tip=Commit(tip.oid, tip.time),
        tree=tip.tree(path) or Oid(""),
        header=tip.header(path),
        base=base or Oid(""),
        base_tree=base_tree,
        written=written.tree(path) if written else None,
        has_foreign_commits=bool(foreign),
        foreign_commit_time=max((c.time for c in foreign), default=0),
        answers=read_answers((c.message for c in reversed(own)), path, alone=True),
        behind=repository.commits[main].tree(path) != base_tree,
    )


def _touches(repository: ModelRepository, commit: ModelCommit, path: str) -> bool:
    before = repository.commits[commit.parents[0]].tree(path) if commit.parents else None
    return commit.tree(path) != before


def _newest_first(repository: ModelRepository, oid: Oid) -> Iterator[ModelCommit]:
    seen: set[Oid] = set()
    pending = [oid]
    while pending:
        one = pending.pop(0)
        if one not in seen:
            seen.add(one)
            yield repository.commits[one]
            pending += repository.commits[one].parents


def _published(repository: ModelRepository, ref: str, path: str) -> PackageRevision:
    commit = repository.at(ref)
    suffix = ref.rpartition("/")[2]
    digits = suffix.removeprefix("v")
    number = int(digits) if digits.isdigit() else -1
    at = Commit(commit.oid, commit.time)
    tree = commit.tree(path) or Oid("")
    return PackageRevision(path, suffix, number, Lifecycle.PUBLISHED, ref, at, tree)


def _untagged(repository: ModelRepository, path: str) -> Iterator[UnpublishedRevision]:
    tagged = {oid for ref, oid in repository.refs.items() if ref.startswith(f"refs/tags/{path}/")}
    states = []
    for commit in repository.first_parents(repository.refs[MAIN]):
        if commit.oid in tagged:
            break
        before = repository.commits[commit.parents[0]].tree(path) if commit.parents else None
        if path not in commit.packages:
            break
        if commit.tree(path) != before:
            states.append(
                UnpublishedRevision(
                    Commit(commit.oid, commit.time), commit.tree(path) or Oid(""), commit.header(path)
                )
            )
    return reversed(states)
