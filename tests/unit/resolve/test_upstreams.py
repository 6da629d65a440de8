"""Selecting an upstream: which words find which commit, and what a user is told where none is found."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.expand.generated import find_in_place
from reconciler.inventory.inventory import Source
from reconciler.names.ids import ObjectName, normalise_url
from reconciler.names.problems import Problem
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
    refs["refs/tags/both"] = refs["refs/tags/web/v1"]
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


def test_a_repository_that_is_down_is_unavailable_and_not_missing(world: ModelWorld) -> None:
    world.repositories["blueprints"].down = True

    inventory = world.inventory()
    problem = find(world, revision=1)

    world.repositories["blueprints"].down = False
    view = inventory.repositories[ObjectName(NAMESPACE, "blueprints")]
    assert view.problem
    assert problem == Problem(
        Location("pv.yaml", line_of("spec", "upstream", "repo"), 1),
        Reason.REPOSITORY_UNAVAILABLE,
        view.unread_message,
        view.problem.hint,
        "PackageVariant default/pv",
    )


@pytest.mark.parametrize(
    ("namespace", "hint"),
    [("default", "Known: blueprints."), ("elsewhere", "There is none.")],
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
