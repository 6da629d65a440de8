"""Which packages at which commits are found beside package revisions: followed, locked and pinned ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Control, Inventory, PackageState, ReviewedLock
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.read.repositories import with_commits_of_tags
from reconciler.read.repositories.trees import PackageTrees, read_trees
from reconciler.records.state import RolloutMember, RolloutPin, RolloutRecord
from tests.support.git import kptfile, make_repository
from tests.support.plan_values import a_draft
from tests.support.reading import read_registered
from tests.support.sets import a_package, repository
from tests.unit.read.test_repositories import registration

NOTHING = PackageTrees()


class World:
    """The repository `up` with package `web` in directory `catalog`, and `edge` whose Kptfile is locked."""

    def __init__(self, root: Path) -> None:
        self.mirrors = Mirrors(root / "cache")
        self.up = make_repository(root / "up.git", {"catalog/web/Kptfile": kptfile("web")})
        self.first = self.up.oid("main")
        self.second = self.up.commit({"catalog/web/cm.yaml": "a: 1\n"})
        self.edge = make_repository(root / "edge.git", {"app/Kptfile": kptfile("app")})

    def read(
        self, *upstreams: Mapping[str, str], locks: Any = (), reviewed: ReviewedLock | None = None, **git: Any
    ) -> dict[tuple[str, str, str], Oid]:
        """Return the trees by repository, commit and path."""
        found = self.trees(*upstreams, locks=locks, reviewed=reviewed, **git)
        return {(at.url.rpartition("/")[2], at.commit, at.path): tree for at, tree in found.trees.items()}

    def trees(
        self,
        *upstreams: Mapping[str, str],
        locks: Any = (),
        rollouts: Any = (),
        reviewed: ReviewedLock | None = None,
        **git: Any,
    ) -> PackageTrees:
        registered = [
            registration(str(self.up.path), name="up", **{"directory": "catalog", **git}),
            registration(str(self.edge.path), name="edge"),
            registration(str(self.up.path.parent / "gone.git"), name="gone"),
        ]
        views = read_registered(registered, self.mirrors, Policy())
        declared = [
            SimpleNamespace(key=ObjectName("default", "v"), manifest=_manifest(upstream))
            for upstream in upstreams
        ]
        inventory = Inventory(
            Policy(),
            Control("", "", Commit(self.first, 0)),
            variants=cast("Any", declared[:1]),
            sets=cast("Any", declared[1:]),
            repositories=views,
            rollouts=cast("Any", dict(enumerate(rollouts))),
            locks=cast("Any", dict(enumerate(locks))),
            reviewed=reviewed,
        )
        return read_trees(inventory, self.mirrors)

    def web(self, commit: Oid) -> dict[tuple[str, str, str], Oid]:
        return {("up", commit, "catalog/web"): self.up.tree(commit, "catalog/web")}


def _manifest(upstream: Mapping[str, str]) -> SimpleNamespace:
    empty = {"repo": "up", "package": "web", "branch": "", "tag": "", "version": ""}
    spec = SimpleNamespace(upstream=SimpleNamespace(**{**empty, **upstream}))
    return SimpleNamespace(metadata=SimpleNamespace(annotations={}), spec=spec)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_package_is_found_at_the_tip_of_its_branch(world: World) -> None:
    world.up.point("refs/heads/stable", world.first)

    assert world.read({"branch": "stable"}) == world.web(world.first)
    assert world.read({"branch": "stable"}, {"branch": "main"}) == {
        **world.web(world.first),
        **world.web(world.second),
    }
    assert world.read({"branch": "gone"}) == world.read({}) == {}


def test_package_is_found_at_the_tags_of_the_whole_repository(world: World) -> None:
    world.up.tag("v1", world.first)
    world.up.tag("v2", world.second)
    world.up.tag("other/v1", world.second)

    assert world.read({"tag": "v1"}) == world.web(world.first)
    assert world.read({"tag": "other/v1"}) == world.web(world.second)
    assert world.read({"tag": "gone"}) == {}
    assert world.read({"version": ">=1"}) == {**world.web(world.first), **world.web(world.second)}
    world.up.delete("refs/tags/v2")
    assert world.read({"version": ">=1"}) == world.web(world.first)


@pytest.mark.parametrize(
    "upstream", [{"repo": "gone"}, {"repo": "nobodys"}, {"repo": ""}, {"package": ""}, {"package": "db"}]
)
def test_upstream_without_a_package_or_an_available_repository_has_none(world: World, upstream) -> None:
    assert world.read({"branch": "main", **upstream}) == {}
    assert world.read({"branch": "main", "package": "/web/"}) == world.web(world.second)


def lock_file(world: World, directory: str, commit: str | None = None, repo: str = "") -> None:
    fields = {"repo": repo or str(world.up.path), "directory": directory, "ref": "main"}
    git = json.dumps({**fields, "commit": world.first if commit is None else commit})
    world.edge.commit({"app/Kptfile": kptfile("app") + f"upstreamLock:\n  type: git\n  git: {git}\n"})


@pytest.mark.parametrize("directory", ["/web", "web", "web/", "catalog/web", "/catalog/web"])
def test_package_of_an_upstream_lock_is_found_below_the_root_or_the_registered_directory(
    world: World, directory: str
) -> None:
    lock_file(world, directory)

    assert world.read() == world.web(world.first)


def test_repository_of_an_upstream_lock_is_found_by_each_of_its_addresses(world: World) -> None:
    lock_file(world, "web", repo=f"file://{world.up.path}/")

    assert world.read() == world.web(world.first)

    lock_file(world, "web", repo="up.git")
    assert world.read() == {}
    world.mirrors = Mirrors(world.up.path.parent / "relative", base=world.up.path.parent)
    assert world.read(repo="up.git") == world.web(world.first)


@pytest.mark.parametrize(
    ("directory", "commit", "repo"),
    [("web", None, "https://unknown.example/up"), ("web", "1" * 40, ""), ("db", None, ""), ("web", "''", "")],
)
def test_upstream_lock_of_something_unknown_has_no_package(world: World, directory, commit, repo) -> None:
    lock_file(world, directory, commit, repo)

    assert world.read() == {}


def test_upstream_lock_of_a_draft_counts_too(world: World) -> None:
    main = world.edge.oid("main")
    lock_file(world, "web")
    tip = world.edge.oid("main")
    world.edge.point("refs/heads/main", main)
    assert world.read() == {}

    world.edge.point("refs/heads/drafts/app/w", tip)

    assert world.read() == world.web(world.first)


def pin(commit: str, *, held: bool = False, repository: str = "up", package: str = "web") -> Any:
    return SimpleNamespace(
        namespace="default", repository=repository, package=package, commit=commit, held=held
    )


def test_held_locks_alone_decide_where_pins_are_not_reviewed(world: World) -> None:
    times = {world.first: world.up.git[world.first].committer.time}

    assert world.trees(locks=[pin(world.first)]) == NOTHING
    found = world.trees(locks=[pin(world.first, held=True)])
    assert found.times == times
    assert list(found.trees.values()) == list(world.web(world.first).values())


def test_all_locks_and_the_reviewed_pins_decide_where_pins_are_reviewed(world: World) -> None:
    pins = {ObjectName("default", "v"): pin(world.second)}

    assert world.trees(locks=[pin(world.first)], reviewed=ReviewedLock()).times.keys() == {world.first}
    found = world.trees(locks=[pin(world.first)], reviewed=ReviewedLock(pins=cast("Any", pins)))
    assert found.times == {oid: world.up.git[oid].committer.time for oid in (world.first, world.second)}
    assert sorted(found.trees.values()) == sorted(
        [*world.web(world.first).values(), *world.web(world.second).values()]
    )


@pytest.mark.parametrize("repository", ["up", "gone", "nobodys"])
def test_revisions_from_before_a_rollout_are_found(world: World, repository: str) -> None:
    before = RolloutPin(repository=repository, package="web", ref="web/v1", commit=world.first, tree="")
    members = (
        RolloutMember(namespace="default", name="a", wave="canary", before=before),
        RolloutMember(namespace="default", name="b", wave="canary"),
    )
    rollout = RolloutRecord(
        namespace="default", name="fleet", revision="web/v2", waves=("canary",), members=members
    )

    found = world.trees(rollouts=[rollout])

    assert list(found.trees.values()) == (list(world.web(world.first).values()) if repository == "up" else [])
    assert list(found.times) == ([world.first] if repository == "up" else [])


@pytest.mark.parametrize("repository", ["up", "gone"])
def test_lock_of_a_commit_or_repository_that_is_gone_has_no_package(world: World, repository: str) -> None:
    assert world.trees(locks=[pin("1" * 40, held=True, repository=repository)]) == NOTHING
    lost = pin(world.first, held=True, package="db")
    assert world.trees(locks=[lost]).trees == {}
    assert world.trees(locks=[lost]).times.keys() == {world.first}


def test_lock_that_names_the_object_of_a_tag_names_its_commit_wherever_that_tag_is() -> None:
    tag, lost, commit = (Oid(digit * 40) for digit in "abc")

    def package(path: str, at: Oid, draft: Oid | None = None) -> PackageState:
        locked = [
            KptfileHeader(upstream_lock=GitUpstream("up", "web", "v1", oid)) for oid in (at, draft or at)
        ]
        drafts = (a_draft(path=path, header=locked[1]),) if draft else ()
        return a_package(path, main_tree=Oid("d" * 40), main_header=locked[0], drafts=drafts)

    packages = {"a": package("a", tag), "b": package("b", commit, tag), "c": package("c", lost)}
    problem = Problem(Location("gone.yaml"), Reason.REPOSITORY_UNAVAILABLE, "")
    views = [repository("up"), repository("edge", packages=packages), repository("gone", problem=problem)]
    tags = {views[0].remote: {tag: commit}, views[1].remote: {}}
    mirrors = SimpleNamespace(open=lambda remote: SimpleNamespace(tag_commits=lambda: tags[remote]))

    found = with_commits_of_tags({view.key: view for view in views}, cast("Any", mirrors))

    read = found[views[1].key].packages
    locks = {path: p.main_header.upstream_lock.commit for path, p in read.items()}  # type: ignore[union-attr]
    assert locks == {"a": commit, "b": commit, "c": lost}
    assert [draft.header.upstream_lock.commit for draft in read["b"].drafts] == [commit]  # type: ignore[union-attr]
    assert found[views[0].key] is views[0]
