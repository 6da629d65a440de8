"""Selecting an upstream: which words find which commit, and what a user is told where none is found."""

from typing import NamedTuple

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.errors import Location, Problem
from reconciler.expand import DesiredVariant
from reconciler.ids import ObjectName, normalise_url
from reconciler.inventory import Source
from reconciler.reasons import Reason
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_upstream
from tests.support.model import NAMESPACE, ModelWorld, blueprint


class Marks:
    """A manifest in which the field at (spec, upstream, X) stands on the line of X's length."""

    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        return len(str(path[-1])), 1


@pytest.fixture(scope="module")
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    for number in (1, 2, 3):
        world.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    refs = world.repositories["blueprints"].refs
    refs["refs/tags/web/stable"] = refs["refs/tags/web/v2"]
    refs["refs/tags/web/v1.2.0"] = refs["refs/tags/web/v1"]
    refs["refs/tags/web/v1.3.0"] = refs["refs/tags/web/v2"]
    refs["refs/tags/v2.0.0"] = refs["refs/tags/web/v3"]
    refs["refs/tags/both"] = refs["refs/tags/web/v1"]
    refs["refs/tags/web/both"] = refs["refs/tags/web/v3"]
    refs["refs/tags/same"] = refs["refs/tags/web/same"] = refs["refs/tags/web/v1"]
    refs["refs/heads/next"] = refs["refs/tags/web/v3"]
    refs["refs/heads/drafts/web/try"] = world.repositories["blueprints"].commit(
        {"web": blueprint("web", a_yaml="a: try\n")}, (refs["refs/heads/main"],), time=1
    )
    refs["refs/heads/drafts/web/v3"] = refs["refs/heads/drafts/web/try"]
    world.push("blueprints", {"web": blueprint("web", a_yaml="a: main\n"), "db": blueprint("db")})
    return world


def find(world: ModelWorld, **upstream: object) -> Pin | Problem:
    given = {"repo": "blueprints", "package": "web", **upstream}
    spec = PackageVariantSpec(upstream=Upstream(**given), downstream=Downstream(repo="edge", package="web"))
    source = Source(Location("pv.yaml", 1), 0, Marks())
    return find_upstream(DesiredVariant(ObjectName(NAMESPACE, "pv"), "u", spec, source), world.inventory())


class Case(NamedTuple):
    reason: str
    upstream: dict[str, object]
    ref: str
    content: str


CASES = [
    Case("a number is a published revision", {"revision": 2}, "web/v2", "a: 2\n"),
    Case("a number may be text", {"revision": "v2"}, "web/v2", "a: 2\n"),
    Case("a workspace names a revision", {"workspace_name": "v1"}, "web/v1", "a: 1\n"),
    Case("number and workspace of one revision", {"revision": 1, "workspace_name": "v1"}, "web/v1", "a: 1\n"),
    Case("a workspace names a revision before a draft", {"workspace_name": "v3"}, "web/v3", "a: 3\n"),
    Case("a workspace names a draft", {"workspace_name": "try"}, "drafts/web/try", "a: try\n"),
    Case("a tag of the package", {"tag": "stable"}, "web/stable", "a: 2\n"),
    Case("a tag of the whole repository", {"tag": "v2.0.0"}, "v2.0.0", "a: 3\n"),
    Case("two tags of one commit agree", {"tag": "same"}, "web/same", "a: 1\n"),
    Case("a range takes the greatest tag in it", {"version": "^1.2"}, "web/v1.3.0", "a: 2\n"),
    Case("a range sees tags of the repository", {"version": ">=1.0"}, "v2.0.0", "a: 3\n"),
    Case("a branch is followed", {"branch": "next"}, "next", "a: 3\n"),
    Case("the repository's own branch", {"branch": "main"}, "main", "a: main\n"),
    Case("revision -1 is the branch", {"revision": -1}, "main", "a: main\n"),
    Case("nothing said means the latest", {}, "web/v3", "a: 3\n"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_selection(world: ModelWorld, case: Case) -> None:
    pin = find(world, **case.upstream)

    assert isinstance(pin, Pin), pin
    assert pin.ref == case.ref
    commit = world.repositories["blueprints"].commits[pin.commit.oid]
    assert commit.packages["web"]["a.yaml"].data.decode() == case.content
    assert pin.tree == commit.tree("web")


class Wrong(NamedTuple):
    reason: str
    upstream: dict[str, object]
    code: Reason
    field: str
    hint: str


WRONG = [
    Wrong("no such repository", {"repo": "bluprints"}, Reason.REPOSITORY_NOT_FOUND, "repo", "blueprints"),
    Wrong("no such package", {"package": "wbe"}, Reason.UPSTREAM_NOT_FOUND, "package", "web"),
    Wrong(
        "no such revision",
        {"revision": 9},
        Reason.UPSTREAM_NOT_FOUND,
        "revision",
        "v1, v2, v3; the latest is v3",
    ),
    Wrong("no such tag", {"tag": "stabel"}, Reason.UPSTREAM_NOT_FOUND, "tag", "stable"),
    Wrong("two tags disagree", {"tag": "both"}, Reason.UPSTREAM_NOT_FOUND, "tag", "web/both"),
    Wrong("no version in range", {"version": "^7"}, Reason.UPSTREAM_NOT_FOUND, "version", "v1.3.0"),
    Wrong("no range at all", {"version": "<<"}, Reason.VALIDATION_ERROR, "version", "^1.2"),
    Wrong("no such branch", {"branch": "nxet"}, Reason.UPSTREAM_NOT_FOUND, "branch", "next"),
    Wrong("no such workspace", {"workspace_name": "tyr"}, Reason.UPSTREAM_NOT_FOUND, "workspaceName", "try"),
    Wrong("nothing is published", {"package": "db"}, Reason.UPSTREAM_NOT_FOUND, "package", "Publish"),
    Wrong(
        "number and workspace disagree",
        {"revision": 1, "workspace_name": "v2"},
        Reason.UPSTREAM_NOT_FOUND,
        "workspaceName",
        "both of one revision",
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.reason)
def test_what_is_not_found_names_the_field_and_what_exists(world: ModelWorld, case: Wrong) -> None:
    problem = find(world, **case.upstream)

    assert isinstance(problem, Problem)
    assert problem.reason == case.code
    assert problem.location == Location("pv.yaml", len(case.field), 1)
    assert case.hint in problem.hint
    assert problem.subject == "PackageVariant default/pv"


def test_a_repository_that_is_down_is_unavailable_and_not_missing(world: ModelWorld) -> None:
    world.repositories["blueprints"].down = True

    problem = find(world, revision=1)

    world.repositories["blueprints"].down = False
    assert isinstance(problem, Problem)
    assert problem.reason == Reason.REPOSITORY_UNAVAILABLE


URLS = [
    ("https://kim:secret@GitHub.com/Org/repo.git", "github.com/Org/repo"),
    ("git@github.com:Org/repo.git", "github.com/Org/repo"),
    ("ssh://git@github.com:22/Org/repo/", "github.com/Org/repo"),
    ("http://localhost:3000/x.git", "localhost:3000/x"),
    ("file:///srv/git/x.git/", "/srv/git/x"),
    ("../x.git", "../x"),
]


@pytest.mark.parametrize(("url", "identity"), URLS)
def test_a_repository_is_the_same_however_its_url_is_written(url: str, identity: str) -> None:
    assert normalise_url(url) == identity
    assert normalise_url(identity) == identity
