"""Merge bases: which revision an upstreamLock names, and which ones come into question without it."""

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import (
    Commit,
    Inventory,
    PackageRevision,
    RepositoryView,
    TreeAt,
    UnpublishedRevision,
)
from reconciler.names.ids import Lifecycle, PackageKey
from reconciler.names.problems import Problem
from reconciler.policy import Limits, Policy
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_base, find_candidates, find_commit, index_sources
from tests.support.plan_values import a_draft, a_record, oid
from tests.support.sets import a_package, repository, world
from tests.support.values import replace

URL = "host/blueprints"
GONE = oid("b7")


def revision(name: str, number: int, commit: str, tree: str) -> PackageRevision:
    at = Commit(oid(commit), int(commit, 16))
    return PackageRevision("web", name, number, Lifecycle.PUBLISHED, f"refs/tags/web/{name}", at, oid(tree))


PACKAGE = a_package(
    main_tree=oid("f2"),
    drafts=(a_draft(),),
    published=(
        revision("v1", 1, "a1", "c1"),
        revision("v2", 2, "a2", "c2"),
        revision("stable", -1, "a2", "c2"),
    ),
    unpublished=(UnpublishedRevision(Commit(oid("e1"), 30), oid("e2"), KptfileHeader()),),
)
VIEW = repository("blueprints", head=Commit(oid("f1"), 40), packages={"web": PACKAGE})


def inventory_of(*views: RepositoryView, limit: int = 10) -> Inventory:
    policy = Policy(limits=replace(Limits(), base_candidates=limit))
    given = world(views=views, policy=policy)
    return replace(given, trees={TreeAt(URL, GONE, "web"): oid("b8")}, times={GONE: 7})


def pin(ref: str, number: int, commit: str, time: int, tree: str) -> Pin:
    return Pin(
        package=PackageKey(URL, "web"),
        remote="https://host/blueprints",
        ref=ref,
        revision=number,
        commit=Commit(oid(commit), time),
        tree=oid(tree),
        repo="https://host/blueprints",
        repository="blueprints",
        name="web",
    )


@pytest.mark.parametrize(
    ("commit", "name", "expected"),
    [
        ("a1", "web/v1", pin("web/v1", 1, "a1", 0xA1, "c1")),
        ("a1", "", pin("web/v1", 1, "a1", 0xA1, "c1")),
        ("a1", "web/v2", pin("web/v2", -1, "a1", 0xA1, "c1")),
        ("a2", "web/v2", pin("web/v2", 2, "a2", 0xA2, "c2")),
        ("a2", "web/stable", pin("web/stable", -1, "a2", 0xA2, "c2")),
        ("d2", "", pin("drafts/web/packagevariant-1", 0, "d2", 20, "d1")),
        ("d2", "drafts/web/packagevariant-1", pin("drafts/web/packagevariant-1", 0, "d2", 20, "d1")),
        ("e1", "", pin("main", -1, "e1", 30, "e2")),
        ("f1", "main", pin("main", -1, "f1", 40, "f2")),
        ("b7", "web/v0", pin("web/v0", -1, "b7", 7, "b8")),
        ("b9", "web/v1", None),
    ],
)
def test_commit_goes_by_its_name_and_has_a_number_only_under_its_own(
    commit: str, name: str, expected: Pin | None
) -> None:
    assert find_commit(VIEW, "web", oid(commit), name, inventory_of(VIEW)) == expected


def test_package_that_main_does_not_have_is_not_looked_up_there() -> None:
    package = a_package()
    views = [replace(VIEW, packages={"web": package}), replace(VIEW, packages={})]

    assert [find_commit(view, "web", oid("f1"), "", inventory_of(view)) for view in views] == [None, None]


PINNED = pin("web/v2", 2, "a2", 0xA2, "c2")


def base_of(lock: GitUpstream | None, *views: RepositoryView, **record: str) -> tuple[Pin | None, str]:
    inventory = inventory_of(*(views or (VIEW,)))
    recorded = a_record(**record) if record else None
    return find_base(KptfileHeader(upstream_lock=lock), PINNED, recorded, inventory, index_sources(inventory))


@pytest.mark.parametrize("directory", ["web", "/web", "web/", "/web/"])
@pytest.mark.parametrize(
    ("address", "commit", "expected"),
    [
        ("https://host/blueprints", "a2", PINNED),
        ("https://user@host/blueprints.git", "a2", PINNED),
        ("https://host/blueprints", "a1", pin("web/v2", -1, "a1", 0xA1, "c1")),
    ],
)
def test_base_is_the_commit_of_the_lock_however_its_address_is_written(
    address: str, commit: str, expected: Pin, directory: str
) -> None:
    lock = GitUpstream(address, directory, "web/v2", oid(commit))

    assert base_of(lock) == (expected, "")


def test_commit_of_the_pin_keeps_the_name_of_the_pin() -> None:
    lock = GitUpstream("https://host/blueprints", "web", "web/stable", oid("a2"))

    assert base_of(lock) == (PINNED, "")


@pytest.mark.parametrize("lock", [None, GitUpstream("https://host/blueprints", "web", "web/v1")])
def test_package_without_a_locked_commit_has_no_base_and_nothing_is_wrong(lock: GitUpstream | None) -> None:
    assert base_of(lock) == (None, "")
    assert find_base(None, PINNED, None, inventory_of(VIEW), {}) == (None, "")


@pytest.mark.parametrize(
    ("address", "directory", "commit", "record"),
    [
        ("https://host/other", "web", "a2", {}),
        ("https://host/blueprints", "web", "b9", {}),
        ("https://host/blueprints", "db", "a1", {}),
        ("https://host/blueprints", "web", "b9", {"upstream_commit": oid("b6"), "upstream_tree": oid("c6")}),
        ("https://host/blueprints", "web", "b9", {"upstream_commit": oid("b9"), "upstream_tree": ""}),
    ],
    ids=["another repository", "another commit", "another package", "another record", "a record of no tree"],
)
def test_commit_that_nobody_has_is_lost(
    address: str, directory: str, commit: str, record: dict[str, str]
) -> None:
    lock = GitUpstream(address, directory, "web/v1", oid(commit))
    lost = f"commit {oid(commit)} of {address}, which upstreamLock names, cannot be found"

    assert base_of(lock, **record) == (None, lost)


def test_commit_that_nobody_has_any_more_is_what_the_record_has_of_it() -> None:
    lock = GitUpstream("https://host/blueprints", "web", "web/v1", oid("b9"))

    base = base_of(lock, upstream_commit=oid("b9"), upstream_tree=oid("c6"))

    assert base == (pin("web/v1", -1, "b9", 0, "c6"), "")


def test_directory_of_a_lock_may_be_below_that_of_its_repository() -> None:
    state = replace(PACKAGE, path="team/web")
    below = replace(VIEW, directory="team", packages={"team/web": state})
    lock = GitUpstream("https://host/blueprints", "web", "web/v1", oid("a1"))

    base, why = base_of(lock, below)

    assert not why
    assert base
    assert (base.package.path, base.name, base.commit.oid) == ("team/web", "web", oid("a1"))


def test_sources_are_the_available_views_by_every_address_the_most_specific_first() -> None:
    def view(name: str, directory: str = "") -> RepositoryView:
        return replace(
            repository(name, url=URL, directory=directory), remote=f"https://mirror/{name.strip('0')}"
        )

    broken = replace(
        view("broken"), problem=Problem(Location("r.yaml"), Reason.REPOSITORY_UNAVAILABLE, "It is down")
    )
    views = (view("b"), view("a"), view("deep", "teams/web"), view("near", "teams"), broken)

    sources = index_sources(inventory_of(*views))

    assert {name: [v.key.name for v in found] for name, found in sources.items() if name} == {
        URL: ["deep", "near", "a", "b"],
        "mirror/a": ["a"],
        "mirror/b": ["b"],
        "mirror/deep": ["deep"],
        "mirror/near": ["near"],
    }


V1, V2 = pin("web/v1", 1, "a1", 0xA1, "c1"), pin("web/v2", 2, "a2", 0xA2, "c2")
V3 = pin("web/v3", 3, "a3", 0xA3, "c3")
V3_LIKE_V1 = replace(V3, tree=V1.tree)


@pytest.mark.parametrize(
    ("limit", "pinned", "expected"),
    [
        (10, V2, (V2, V1)),
        (1, V1, (V1, V2)),
        (10, V3, (V3, V2, V1)),
        (10, V3_LIKE_V1, (V2, V3_LIKE_V1)),
        (0, V2, (V2,)),
    ],
    ids=["all published", "as many as the limit", "the pin is newest", "the pin has an old content", "none"],
)
def test_candidates_are_the_newest_revisions_and_the_pin_each_content_once(
    limit: int, pinned: Pin, expected: tuple[Pin, ...]
) -> None:
    assert find_candidates(pinned, inventory_of(VIEW, limit=limit)) == expected


def test_pin_is_the_only_candidate_of_a_package_that_nobody_lists() -> None:
    other = repository("blueprints", packages={"db": a_package("db")})

    assert find_candidates(V2, inventory_of(other)) == (V2,)
