"""Find the upstream of a set, and the metadata that expressions see of it."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Upstream
from reconciler.expand.upstream import describe_missing, find_upstream
from reconciler.ids import Lifecycle
from reconciler.inventory import Draft, PackageState, RepositoryView
from tests.support.sets import COMMIT, TREE, blueprints

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
    packages = {**blueprint_view.packages, "app": app, "bare": PackageState("bare")}
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

    assert (metadata and metadata["name"]) == case.name


def test_version_range_has_no_name() -> None:
    upstream = Upstream(repo="blueprints", package="app", version="^1")

    metadata = find_upstream(upstream, view())

    assert metadata is not None
    assert "name" not in metadata
    assert find_upstream(upstream.model_copy(update={"package": "bare"}), view()) is None


def test_latest_revision_has_the_label() -> None:
    labels = [
        metadata["labels"]
        for number in (1, 2)
        if (metadata := find_upstream(Upstream(repo="blueprints", package="app", revision=number), view()))
    ]

    assert labels == [{}, {"kpt.dev/latest-revision": "true"}]


def test_upstream_without_a_repository_is_missing() -> None:
    upstream = Upstream(repo="gone", package="app", revision=3)

    assert find_upstream(upstream, None) is None
    assert describe_missing(upstream) == "could not find upstream package revision 'app/3' in repo 'gone'"
