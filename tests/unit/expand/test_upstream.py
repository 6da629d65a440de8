"""Find the upstream of a set, and the metadata that expressions see of it."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Upstream
from reconciler.expand.owners import assume_upstreams, describe_missing, find_upstream
from reconciler.inventory.inventory import Commit, Draft, PackageRevision, RepositoryView, TreeAt
from reconciler.names.ids import Lifecycle, Oid
from tests.support.sets import COMMIT, TREE, a_package, blueprints, package_set, repository, variant, world
from tests.support.values import replace

WIP = Draft(
    path="app",
    workspace="wip",
    lifecycle=Lifecycle.DRAFT,
    ref="refs/heads/drafts/app/wip",
    tip=COMMIT,
    tree=TREE,
    header=KptfileHeader(),
    base=COMMIT.oid,
    base_tree=None,
)


def view() -> RepositoryView:
    blueprint_view = blueprints("app", "deep/app", "very/deep/app")
    app = replace(blueprint_view.packages["app"], drafts=(WIP,))
    packages = {**blueprint_view.packages, "app": app, "bare": a_package("bare")}
    branches = {"main": COMMIT, "next": COMMIT}
    return replace(blueprint_view, packages=packages, tags={"stable": COMMIT}, branches=branches)


class Case(NamedTuple):
    reason: str
    selectors: dict[str, Any]
    name: str | None


CASES = [
    Case("a revision", {"revision": 1}, "blueprints.app.v1"),
    Case("a revision that is not there", {"revision": 9}, None),
    Case("a workspace", {"workspaceName": "v2"}, "blueprints.app.v2"),
    Case("the workspace of a draft", {"workspaceName": "wip"}, "blueprints.app.wip"),
    Case(
        "revision and workspace of one revision", {"revision": 2, "workspaceName": "v2"}, "blueprints.app.v2"
    ),
    Case("both, of two revisions", {"revision": 1, "workspaceName": "v2"}, None),
    Case("the placeholder of the main branch", {"workspaceName": "main"}, "blueprints.app.main"),
    Case("a tag of the package", {"tag": "v1"}, "blueprints.app.v1"),
    Case("a tag of the whole repository", {"tag": "stable"}, "blueprints.app.stable"),
    Case("a tag that is not there", {"tag": "v9"}, None),
    Case("a branch", {"branch": "next"}, "blueprints.app.next"),
    Case("a branch that is not there", {"branch": "gone"}, None),
    Case("nothing at all", {}, None),
    Case("another package", {"package": "nope", "revision": 1}, None),
    Case("slashes become dots", {"package": "deep/app", "revision": 1}, "blueprints.deep.app.v1"),
    Case("every slash", {"package": "very/deep/app", "revision": 1}, "blueprints.very.deep.app.v1"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_find_upstream(case: Case) -> None:
    upstream = Upstream.model_validate({"repo": "blueprints", "package": "app", **case.selectors})

    metadata = find_upstream(upstream, view())

    latest = {"kpt.dev/latest-revision": "true"} if str(case.name).endswith(".v2") else {}
    named = {"name": case.name, "namespace": "default", "labels": latest, "annotations": {}}
    assert metadata == (named if case.name else None)


@pytest.mark.parametrize(("package", "name"), [("new", "blueprints.new.next"), ("typo", None)])
def test_package_may_be_on_its_branch_alone(package: str, name: str | None) -> None:
    upstream = Upstream(repo="blueprints", package=package, branch="next")
    trees = {TreeAt(view().url, COMMIT.oid, view().full_path("new"))}

    metadata = find_upstream(upstream, view(), trees)

    assert (metadata["name"] if metadata else None) == name


def test_version_range_has_no_name() -> None:
    upstream = Upstream(repo="blueprints", package="app", version="^1")

    metadata = find_upstream(upstream, view())

    assert metadata == {"namespace": "default", "labels": {}, "annotations": {}}
    assert find_upstream(upstream.model_copy(update={"package": "bare"}), view()) is None


@pytest.mark.parametrize(
    ("selectors", "shown"),
    [
        ({"revision": 3}, "app/3"), ({"tag": "stable"}, "app/stable"), ({"version": "^1"}, "app/^1"),
        ({"branch": "next"}, "app/next"), ({"workspaceName": "wip"}, "app/0"), ({}, "app/0"),
        ({"package": None}, "/0"),
        ({"tag": "stable", "branch": "x"}, "app/stable"),
    ],
)  # fmt: skip
def test_upstream_without_a_repository_is_missing(selectors: dict[str, Any], shown: str) -> None:
    upstream = Upstream.model_validate({"repo": "gone", "package": "app", **selectors})

    assert find_upstream(upstream, None) is None
    assert describe_missing(upstream) == f"could not find upstream package revision '{shown}' in repo 'gone'"
    assert describe_missing(Upstream()) == "could not find upstream package revision '/0' in repo ''"


# Assumed upstreams

NULL = Commit(Oid("0" * 40), 0)


@pytest.mark.parametrize(
    ("selectors", "workspace", "number", "refs"),
    [
        ({"revision": 3}, "v3", 3, []),
        ({"revision": 3, "workspaceName": "mine"}, "mine", 3, []),
        ({"workspaceName": "mine"}, "mine", 0, []),
        ({"tag": "stable"}, "stable", 0, ["stable"]),
        ({"branch": "next"}, "v0", 0, ["next"]),
        ({}, "v0", 0, []),
    ],
)
def test_upstream_that_is_assumed_can_be_found(
    selectors: dict[str, Any], workspace: str, number: int, refs: list[str]
) -> None:
    upstream = {"repo": "deep", "package": "new", **selectors}
    bare = repository("deep", directory="team")
    inventory = world(variant(upstream=upstream), views=(bare,))

    (view,) = assume_upstreams(inventory).repositories.values()

    ref = f"refs/tags/team/new/{workspace}"
    revision = PackageRevision("team/new", workspace, number, Lifecycle.PUBLISHED, ref, NULL, NULL.oid)
    assert view.packages == {"team/new": a_package("team/new", published=(revision,))}
    assert (dict(view.tags), dict(view.branches)) == (dict.fromkeys(refs, NULL), dict.fromkeys(refs, NULL))
    if selectors:
        assert find_upstream(Upstream.model_validate(upstream), view)


def test_assumed_upstream_joins_what_is_known_and_needs_a_repository_and_a_package() -> None:
    known = blueprints("app")
    inventory = world(
        variant(upstream={"repo": "blueprints", "package": "app", "revision": 9}),
        variant("gone", upstream={"repo": "gone", "package": "app"}),
        package_set(spec={"upstream": {"repo": "blueprints"}, "targets": []}),
        views=(known,),
    )

    (view,) = assume_upstreams(inventory).repositories.values()

    assert [r.workspace for r in view.packages["app"].published] == ["v1", "v2", "v9"]
    assert view.packages.keys() == {"app"}
