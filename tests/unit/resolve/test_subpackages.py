"""Revisions that a variant sets for its sub-packages: which are found, and what is told of all others."""

from collections.abc import Mapping

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Inventory, Source
from reconciler.names.problems import Problem
from reconciler.resolve.resolution import SubpackagePin
from reconciler.resolve.upstreams import index_sources
from reconciler.resolve.variants import SUBPACKAGE_REVISIONS, pin_subpackages
from tests.support.model import ModelWorld, blueprint
from tests.support.plan_values import WEB, a_desired_variant, oid
from tests.support.values import replace

UPSTREAM = oid("c1")
FIELD = ("metadata", "annotations", SUBPACKAGE_REVISIONS)


class Marks:
    """Marks that tell which character of the annotation is meant."""

    def mark(self, _: tuple[str | int, ...]) -> tuple[int, int]:
        return 1, 1

    def mark_inside(self, path: tuple[str | int, ...], offset: int) -> tuple[int, int]:
        assert path == FIELD
        return 7, offset


@pytest.fixture(scope="module")
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("catalog")
    world.add_repository("down")
    for number in (1, 2, 3):
        world.publish("catalog", "db", blueprint("db", a_yaml=f"a: {number}\n"), number)
    refs = world.repositories["catalog"].refs
    refs["refs/tags/db/stable"] = refs["refs/tags/db/v2"]
    world.repositories["down"].down = True
    return world


def of(repository: str, commit: str = "") -> KptfileHeader:
    """Return the header of a sub-package that was made from `db` of a repository."""
    upstream = GitUpstream(f"https://git.example/{repository}.git", "/db", "v1")
    return KptfileHeader(upstream=upstream, upstream_lock=replace(upstream, commit=commit))


def pins(
    world: ModelWorld, text: str, *trees: Mapping[str, KptfileHeader], inventory: Inventory | None = None
) -> tuple[SubpackagePin, ...] | Problem:
    """Return what the text of the annotation means for a package with these sub-packages, tree by tree."""
    source = Source(Location("web.yaml"), 0, Marks())
    variant = a_desired_variant(key=WEB, source=source, annotations={SUBPACKAGE_REVISIONS: text})
    oids = [oid(f"e{number}") for number in range(len(trees))]
    inventory = replace(inventory or world.inventory(), subpackages=dict(zip(oids, trees, strict=True)))
    return pin_subpackages(variant, [None, *oids, oid("f")], inventory, index_sources(inventory))


def test_subpackages_above_others_are_first_and_their_upstream_is_that_of_the_first_tree(
    world: ModelWorld,
) -> None:
    trees = ({"a": of("catalog")}, {"a": of("gone"), "a/b": of("catalog")})

    found = pins(world, "a/b: v1; a : v2\n", *trees)

    assert not isinstance(found, Problem)
    assert [(each.directory, each.pin.ref, each.bases) for each in found] == [
        ("a", "db/v2", ()),
        ("a/b", "db/v1", ()),
    ]
    assert pins(world, "") == ()


OWN = {"store": of("catalog"), "plain": KptfileHeader()}
NO_TAG = "store: could not find upstream package revision: package db in repository catalog has no tag stabel"
LISTED = "Sub-packages with an upstream: store."


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("store: v1; store: v2", 11, "store has more than one revision", "Leave one of them."),
        ("stroe: v1", 0, "The package has no stroe", "Did you mean store?"),
        ("other: v1", 0, "The package has no other", LISTED),
        ("store: v1; plain: v1", 11, "The package has no upstream of its own in plain", LISTED),
        ("store: stabel", 0, NO_TAG, "Did you mean stable?"),
    ],
)
def test_revision_that_cannot_be_set_is_a_problem_of_its_entry(
    world: ModelWorld, text: str, offset: int, message: str, hint: str
) -> None:
    reason = Reason.UPSTREAM_NOT_FOUND if message == NO_TAG else Reason.INVALID_ANNOTATION
    told, subject = f"{SUBPACKAGE_REVISIONS}: {message}", f"PackageVariant {WEB}"

    assert pins(world, text, OWN) == Problem(Location("web.yaml", 7, offset), reason, told, hint, subject)


@pytest.mark.parametrize("reason", [Reason.REPOSITORY_UNAVAILABLE, Reason.REPOSITORY_REFUSED])
def test_upstream_of_a_subpackage_must_be_read(world: ModelWorld, reason: Reason) -> None:
    inventory = world.inventory()
    view = next(each for each in inventory.repositories.values() if each.key.name == "down")
    assert view.problem
    view = replace(view, problem=replace(view.problem, reason=reason))
    inventory = replace(inventory, repositories={**inventory.repositories, view.key: view})

    problem = pins(world, "db: v1", {"db": of("down")}, inventory=inventory)

    assert isinstance(problem, Problem)
    assert view.problem
    assert (problem.reason, problem.hint) == (reason, view.problem.hint)
    assert problem.message == f"{SUBPACKAGE_REVISIONS}: db: {view.unread_message}"
    assert problem.repository == view.key


def test_upstream_of_a_subpackage_must_be_registered(world: ModelWorld) -> None:
    gone, empty = (pins(world, "db: v1", sub) for sub in ({"db": of("gone")}, {}))

    assert isinstance(gone, Problem)
    assert isinstance(empty, Problem)
    assert gone.reason is Reason.REPOSITORY_NOT_FOUND
    assert gone.message.endswith("db is from https://git.example/gone.git, which is no registered repository")
    assert gone.hint == "Register it as a Repository object in namespace default."
    assert empty.hint == "It has none with an upstream."
