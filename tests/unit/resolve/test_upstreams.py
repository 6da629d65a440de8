"""Selecting an upstream: which words find which commit, and what a user is told where none is found."""

from typing import NamedTuple

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.expand.owners import find_in_place
from reconciler.inventory.inventory import Commit, Source
from reconciler.names.ids import ObjectName, PackageKey, normalise_url
from reconciler.names.problems import Problem
from reconciler.report.build import group_problems
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_repository, find_upstream
from tests.support.model import NAMESPACE, ModelWorld, blueprint
from tests.support.plan_values import a_desired_variant
from tests.support.sets import a_package
from tests.support.values import replace


class Marks:
    """A manifest in which each field has a line of its own."""

    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        return line_of(*path), 1


def line_of(*path: str | int) -> int:
    return sum(map(ord, "/".join(map(str, path))))


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
    # The content is the same, and the commit is not.
    refs["refs/tags/both"] = world.repositories["blueprints"].commit(
        {"web": blueprint("web", a_yaml="a: 3\n")}, (), time=1
    )
    refs["refs/tags/web/both"] = refs["refs/tags/web/v3"]
    refs["refs/tags/same"] = refs["refs/tags/web/same"] = refs["refs/tags/web/v1"]
    refs["refs/heads/next"] = refs["refs/tags/web/v3"]
    refs["refs/heads/drafts/web/try"] = world.repositories["blueprints"].commit(
        {"web": blueprint("web", a_yaml="a: try\n")}, (refs["refs/heads/main"],), time=1
    )
    refs["refs/heads/drafts/web/v3"] = refs["refs/heads/drafts/web/try"]
    world.push("blueprints", {"web": blueprint("web", a_yaml="a: main\n"), "db": blueprint("db")})
    for number in range(1, 8):
        world.publish("blueprints", "old", blueprint("old"), number)
    return world


def variant(**upstream: object) -> DesiredVariant:
    given = {"repo": "blueprints", "package": "web", **upstream}
    of = Upstream.model_validate(given)
    spec = PackageVariantSpec(upstream=of, downstream=Downstream(repo="edge", package="web"))
    source = Source(Location("pv.yaml", 1), 0, Marks())
    return a_desired_variant(key=ObjectName(NAMESPACE, "pv"), uid="u", spec=spec, source=source)


def find(world: ModelWorld, **upstream: object) -> Pin | Problem:
    return find_upstream(variant(**upstream), world.inventory())


class Case(NamedTuple):
    reason: str
    upstream: dict[str, object]
    ref: str
    content: str
    revision: int = -1


CASES = [
    Case("a number is a published revision", {"revision": 2}, "web/v2", "a: 2\n", 2),
    Case("a number may be text", {"revision": "v2"}, "web/v2", "a: 2\n", 2),
    Case("a workspace names a revision", {"workspace_name": "v1"}, "web/v1", "a: 1\n", 1),
    Case(
        "number and workspace of one revision", {"revision": 1, "workspace_name": "v1"}, "web/v1", "a: 1\n", 1
    ),
    Case("a workspace names a revision before a draft", {"workspace_name": "v3"}, "web/v3", "a: 3\n", 3),
    Case("a workspace names a draft", {"workspace_name": "try"}, "drafts/web/try", "a: try\n", 0),
    Case("the branch is a workspace, too", {"workspace_name": "main"}, "main", "a: main\n"),
    Case("a tag of the package", {"tag": "stable"}, "web/stable", "a: 2\n"),
    Case("a tag of the whole repository", {"tag": "v2.0.0"}, "v2.0.0", "a: 3\n"),
    Case("two tags of one commit agree", {"tag": "same"}, "web/same", "a: 1\n"),
    Case("a range takes the greatest tag in it", {"version": "^1.2"}, "web/v1.3.0", "a: 2\n"),
    Case("a range sees tags of the repository", {"version": ">=1.0"}, "v2.0.0", "a: 3\n"),
    Case("a range ignores what is no whole version", {"version": "<2"}, "web/v1.3.0", "a: 2\n"),
    Case("a branch is followed", {"branch": "next"}, "next", "a: 3\n"),
    Case("the repository's own branch", {"branch": "main"}, "main", "a: main\n"),
    Case("revision -1 is the branch", {"revision": -1}, "main", "a: main\n"),
    Case("nothing said means the latest", {}, "web/v3", "a: 3\n", 3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_selection(world: ModelWorld, case: Case) -> None:
    blueprints = world.repositories["blueprints"]
    pin = find(world, **case.upstream)

    assert isinstance(pin, Pin), pin
    commit = blueprints.commits[pin.commit.oid]
    assert commit.packages["web"]["a.yaml"].data.decode() == case.content
    assert pin == Pin(
        package=PackageKey("git.example/blueprints", "web"),
        remote="https://git.example/blueprints.git",
        ref=case.ref,
        revision=case.revision,
        commit=Commit(pin.commit.oid, commit.time),
        tree=commit.tree("web"),
        repo="https://git.example/blueprints.git",
        repository="blueprints",
        name="web",
    )


class Wrong(NamedTuple):
    reason: str
    upstream: dict[str, object]
    field: str
    message: str
    hint: str
    code: Reason = Reason.UPSTREAM_NOT_FOUND


NOT_FOUND = "could not find upstream package revision: package"
WEB = f"{NOT_FOUND} web in repository blueprints has"
WRONG = [
    Wrong("no such repository", {"repo": "bluprints"}, "repo",
        "could not find upstream package revision: repository default/bluprints is not registered",
        "Register it as a Repository object. Did you mean blueprints?", Reason.REPOSITORY_NOT_FOUND),
    Wrong("no name of a repository", {"repo": None}, "repo",
        "could not find upstream package revision: repository default/ is not registered",
        "Register it as a Repository object. Known: blueprints.", Reason.REPOSITORY_NOT_FOUND),
    Wrong("no name of a package", {"package": None}, "package",
        f"{NOT_FOUND}  in repository blueprints has no published revision", "Known: db, old, web."),
    Wrong("revision zero", {"revision": 0}, "revision", "upstream cannot be published with revision number 0",
        "Revisions count from 1."),
    Wrong("no such package", {"package": "wbe", "tag": "stable"}, "package",
        f"{NOT_FOUND} wbe in repository blueprints has no tag stable",
        "Correct the name, or publish it first: there is no package wbe yet. Did you mean web?"),
    Wrong("no such revision", {"revision": 9}, "revision", f"{WEB} no revision 9",
        "Ask for one that is published: v1, v2, v3; the latest is v3."),
    Wrong("no such revision of many", {"package": "old", "revision": 9}, "revision",
        f"{NOT_FOUND} old in repository blueprints has no revision 9",
        "Ask for one that is published: v3, v4, v5, v6, v7; the latest is v7."),
    Wrong("no revision at all", {"package": "db", "revision": 1}, "revision",
        f"{NOT_FOUND} db in repository blueprints has no revision 1", "None is published yet."),
    Wrong("no such tag", {"tag": "stabel"}, "tag", f"{WEB} no tag stabel", "Did you mean stable or same?"),
    Wrong("no tag like it", {"tag": "quite-other"}, "tag", f"{WEB} no tag quite-other",
        "Known: both, same, stable, v1, v1.2.0 and 4 more."),
    Wrong("two tags disagree", {"tag": "both"}, "tag",
        f"{WEB} two tags both: web/both and both name different commits",
        "Write web/both out, or move one of the two."),
    Wrong("no version in range", {"version": "^7"}, "version", f"{WEB} no version ^7",
        "Versions: v1.2.0, v1.3.0, v2.0.0."),
    Wrong("no version at all", {"package": "db", "version": "^7"}, "version",
        f"{NOT_FOUND} db in repository blueprints has no version ^7", "Versions: v2.0.0."),
    Wrong("revisions are no versions", {"package": "old", "version": "^7"}, "version",
        f"{NOT_FOUND} old in repository blueprints has no version ^7",
        "Versions: v2.0.0. v7 is a revision: write `revision`, or follow a `branch`."),
    Wrong("no range at all", {"version": "<<"}, "version", "'<<' is not a version constraint",
        "Write a range such as ^1.2.", Reason.VALIDATION_ERROR),
    Wrong("no such branch", {"branch": "nxet"}, "branch", f"{WEB} nothing on branch nxet",
        "Did you mean next?"),
    Wrong("a branch without the package", {"package": "db", "branch": "next"}, "branch",
        f"{NOT_FOUND} db in repository blueprints has nothing on branch next", "Did you mean next?"),
    Wrong("no such workspace", {"workspace_name": "tyr"}, "workspaceName", f"{WEB} no workspace tyr",
        "Did you mean try?"),
    Wrong("no workspace like it", {"package": "old", "workspace_name": "quite-other"}, "workspaceName",
        f"{NOT_FOUND} old in repository blueprints has no workspace quite-other",
        "Known: v1, v2, v3, v4, v5 and 2 more."),
    Wrong("no workspace at all", {"package": "db", "workspace_name": "try"}, "workspaceName",
        f"{NOT_FOUND} db in repository blueprints has no workspace try", "There is none."),
    Wrong("nothing is published", {"package": "db"}, "package",
        f"{NOT_FOUND} db in repository blueprints has no published revision",
        "Publish a revision, or name a workspaceName, tag or branch."),
    Wrong("number and workspace disagree", {"revision": 1, "workspace_name": "v2"}, "workspaceName",
        f"{WEB} revision 1 under workspace v2: it is v1", "Give one of the two, or both of one revision."),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.reason)
def test_what_is_not_found_names_the_field_and_what_exists(world: ModelWorld, case: Wrong) -> None:
    location = Location("pv.yaml", line_of("spec", "upstream", case.field), 1)
    expected = Problem(location, case.code, case.message, case.hint, "PackageVariant default/pv")

    assert find(world, **case.upstream) == expected


def test_packages_of_a_set_that_lack_the_same_share_a_problem(world: ModelWorld) -> None:
    problem = find(world, version="^7")
    assert isinstance(problem, Problem)

    (group,) = group_problems([replace(problem, subject=f"PackageVariant default/{n}") for n in "ab"])

    assert group.message.startswith("2, all for one cause: could not find upstream package revision")


@pytest.mark.parametrize(
    ("namespace", "hint"), [("default", "Known: blueprints."), ("elsewhere", "There is none.")]
)
def test_repository_of_a_downstream_must_be_registered_in_the_namespace(
    world: ModelWorld, namespace: str, hint: str
) -> None:
    where = replace(variant(), key=ObjectName(namespace, "pv"))

    assert find_repository(where, "edge", world.inventory(), field="downstream") == Problem(
        Location("pv.yaml", line_of("spec", "downstream", "repo"), 1),
        Reason.REPOSITORY_NOT_FOUND,
        f"Repository {namespace}/edge is not registered",
        f"Register it as a Repository object. {hint}",
        f"PackageVariant {namespace}/pv",
    )


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


def spec_of(upstream: str, downstream: str, *, branch: str | None = None) -> PackageVariantSpec:
    up, down = upstream.split("/"), downstream.split("/")
    return PackageVariantSpec(
        upstream=Upstream(repo=up[0], package=up[1], branch=branch),
        downstream=Downstream(repo=down[0], package=down[1]),
        adoption_policy="adoptExisting",
    )


CIRCLES = {
    "its own upstream": (["e/a e/a"], 1),
    "two": (["e/a e/b", "e/b e/a"], 2),
    "three in two repositories": (["e/a f/b", "f/b e/c", "e/c e/a"], 3),
    "a chain has none": (["e/a e/b", "e/b e/c"], 0),
    "what follows a circle is not in it": (["e/a e/b", "e/b e/a", "e/b e/c"], 2),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_packages_that_are_made_from_themselves_are_refused(name: str) -> None:
    links, refused = CIRCLES[name]
    world = ModelWorld()
    for repo in "ef":
        world.add_repository(repo)
    for path in "abc":
        world.publish("e", path, blueprint(path), 1)
        world.publish("f", path, blueprint(path), 1)
    for number, link in enumerate(links):
        world.variants[f"v{number}"] = spec_of(*link.split())

    problems = [p for p in world.plan().problems if p.reason is Reason.UPSTREAM_CIRCLE]

    assert len(problems) == refused
    assert all(problem.hint for problem in problems)


def test_a_package_that_follows_another_branch_of_itself_is_no_circle() -> None:
    world = ModelWorld()
    world.add_repository("e")
    world.publish("e", "a", blueprint("a"), 1)
    world.variants["v"] = spec_of("e/a", "e/a", branch="next")

    assert Reason.UPSTREAM_CIRCLE not in {problem.reason for problem in world.plan().problems}


def test_package_with_tags_alone_that_are_no_numbers_is_asked_for_by_tag_or_version() -> None:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.push("blueprints", {"web": blueprint("web")})
    refs = world.repositories["blueprints"].refs
    for tag in ("0.9.0", "0.10.0", "stable"):
        refs[f"refs/tags/web/{tag}"] = refs["refs/heads/main"]

    problems = [find(world), find(world, revision=1)]

    assert [each.hint for each in problems if isinstance(each, Problem)] == [
        "Name a tag or a version: its newest tags are 0.10.0, 0.9.0."
    ] * 2


@pytest.mark.parametrize("name", ["blueprints", "x/y"])
def test_repository_that_is_one_package_is_named_with_its_kptfile(name: str) -> None:
    world = ModelWorld()
    world.add_repository("blueprints")
    view = replace(world.inventory().repositories[ObjectName(NAMESPACE, "blueprints")], root=a_package(""))

    found = find_in_place(name, view, [view])

    assert found is not None
    assert found[0].startswith("Kptfile makes the whole repository one package")
