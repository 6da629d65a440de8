"""Merge bases: which revision an upstreamLock names, and which ones come into question without it."""

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.inventory.inventory import (
    Commit,
    Inventory,
    PackageRevision,
    RepositoryView,
    TreeAt,
    UnpublishedRevision,
)
from reconciler.names.ids import Lifecycle, PackageKey
from reconciler.policy import Limits, Policy
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_base, find_candidates, find_commit, index_sources
from tests.support.plan_values import a_draft, a_record, oid
from tests.support.sets import a_package, registered, repository, world
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


def test_package_that_main_does_not_have_is_not_looked_up_there() -> None:
    package = a_package()
    views = [replace(VIEW, packages={"web": package}), replace(VIEW, packages={})]

    assert [find_commit(view, "web", oid("f1"), "", inventory_of(view)) for view in views] == [None, None]


PINNED = pin("web/v2", 2, "a2", 0xA2, "c2")


def base_of(lock: GitUpstream | None, *views: RepositoryView, **record: str) -> tuple[Pin | None, str]:
    inventory = inventory_of(*(views or (VIEW,)))
    recorded = a_record(**record) if record else None
    return find_base(KptfileHeader(upstream_lock=lock), PINNED, recorded, inventory, index_sources(inventory))


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
def test_commit_that_nobody_has_is_lost(address, directory, commit, record) -> None:
    lock = GitUpstream(address, directory, "web/v1", oid(commit))
    lost = f"commit {oid(commit)} of {address}, which upstreamLock names, cannot be found"

    assert base_of(lock, **record) == (None, lost)


@pytest.mark.parametrize("address", ["https://host/blueprints", "git@mirror:blueprints", "https://now/named"])
def test_base_is_in_the_repository_that_has_any_of_these_addresses(address: str) -> None:
    view = registered("blueprints", git="https://now/named", packages={"web": PACKAGE})
    view = replace(view, remote="ssh://git@mirror/blueprints")

    base, why = base_of(GitUpstream(address, "web", "web/v1", oid("a1")), view)

    assert (base and (base.commit.oid, base.ref), why) == ((oid("a1"), "web/v1"), "")


def test_commit_that_nobody_has_any_more_is_what_the_record_has_of_it() -> None:
    lock = GitUpstream("https://host/blueprints", "web", "web/v1", oid("b9"))

    base = base_of(lock, upstream_commit=oid("b9"), upstream_tree=oid("c6"))

    assert base == (pin("web/v1", -1, "b9", 0, "c6"), "")


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
def test_candidates_are_the_newest_revisions_and_the_pin_each_content_once(limit, pinned, expected) -> None:
    assert find_candidates(pinned, inventory_of(VIEW, limit=limit)) == expected


def test_pin_is_the_only_candidate_of_a_package_that_nobody_lists() -> None:
    other = repository("blueprints", packages={"db": a_package("db")})

    assert find_candidates(V2, inventory_of(other)) == (V2,)
