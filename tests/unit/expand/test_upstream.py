"""Find the upstream of a set, and the metadata that expressions see of it."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Upstream
from reconciler.expand.owners import assume_upstreams, describe_missing, existing_upstreams, find_upstream
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
    Case("the branch of what is not there", {"package": "nope", "workspaceName": "main"}, None),
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


PLAIN = (
    "Make it one: `kpt pkg init {}` in a clone of that repository, commit and tag;"
    ' or annotate Repository default/{} with reconciler.dev/plain-packages: "true", and name a branch or tag.'
)
IN_NOPE = "branch main has no directory nope, which Repository default/blueprints names"
IN_WEB = "the directory web, which Repository default/blueprints names, is a package itself"
CORRECT = "Correct spec.git.directory there, or "


@pytest.mark.parametrize(
    ("directory", "package", "what", "hint"),
    [
        ("", "plain", "plain is a directory without a Kptfile, and so no package",
            PLAIN.format("plain", "blueprints")),
        ("", "web/sub", "web/sub is inside of package web",
            "Name that package: what is inside of it is a part of it, and has no revisions."),
        ("", "apps/inner/o2ims",
            "apps/inner/o2ims is a package of Repository default/inner, which has the directory apps/inner",
            "Set spec.upstream.repo to inner and spec.upstream.package to o2ims."),
        ("", "apps/inner/plain", "apps/inner/plain is a directory without a Kptfile, and so no package",
            PLAIN.format("apps/inner/plain", "inner")),
        ("", "wep", "",
            "Correct the name, or publish it first: there is no package wep yet. Did you mean web?"),
        ("nope", "web", IN_NOPE, f"{CORRECT}publish the package first."),
        ("web", "web", IN_WEB, f'{CORRECT}set spec.upstream.package to "." for that package.'),
        ("apps", "plain", "plain is a directory without a Kptfile, and so no package",
            PLAIN.format("apps/plain", "blueprints")),
        ("apps", "none", "", "Correct the name, or publish it first: there is no package none yet."),
    ],
)  # fmt: skip
def test_thing_in_the_place_of_a_missing_package_is_called_what_it_is(
    directory: str, package: str, what: str, hint: str
) -> None:
    paths = ["apps", "apps/plain", "apps/inner", "apps/inner/plain", "plain", "web", "web/sub"]
    common = {"url": "host/blueprints", "directories": dict.fromkeys(paths, TREE)}
    web, o2ims = a_package("web"), a_package("apps/inner/o2ims")
    there = {"web": web} if directory in ("", "web") else {}
    outer = repository("blueprints", directory=directory, packages=there, **common)
    inner = repository("inner", directory="apps/inner", packages={o2ims.path: o2ims}, **common)
    upstream = Upstream(repo="blueprints", package=package, revision=1)

    assert existing_upstreams(upstream, outer, [outer, inner]) == (what, hint)


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
