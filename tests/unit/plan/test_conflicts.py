"""Conflicts (D10): the draft keeps the local value and asks, until a person answers or a policy does."""

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Change, Op
from reconciler.render.conflicts import ON_CONFLICT, ON_CONFLICT_FIELDS
from tests.support.identifiers import without_identifiers
from tests.support.model import MAIN, ModelWorld, blueprint
from tests.support.model import web_spec as spec

APP = "apiVersion: v1\nkind: {}\nmetadata:\n  name: app\ndata:\n  color: {}\n  size: {}\n"


def app(color: str, size: str = "s", kind: str = "ConfigMap") -> str:
    return APP.format(kind, color, size)


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    for number, color in enumerate(("red", "green", "blue"), start=1):
        world.publish("blueprints", "web", blueprint("web", app_yaml=app(color)), number)
    world.variants["web"] = spec()
    world.run()
    return world


def the_change(world: ModelWorld) -> Change:
    """Plan, apply, see that the next run writes nothing, and return the change of the package."""
    plan = world.run()
    again = world.plan()
    assert again.is_empty, [c for c in again.changes if c.pending]
    assert (again.records, again.status) == (world.state, world.status)
    (change,) = plan.changes
    return change


def draft(world: ModelWorld) -> str:
    (ref,) = world.drafts("edge")
    return ref


def text(world: ModelWorld, ref: str = "") -> str:
    file = world.repositories["edge"].at(ref or draft(world)).packages["web"]["app.yaml"]
    return without_identifiers(file.data.decode())


def conflicted_on_main(world: ModelWorld) -> None:
    """The published package was edited by a person, then upstream changed the same value."""
    world.merge("edge", draft(world))
    world.run()
    world.edit("edge", "web", {"app.yaml": app("mine")})
    world.run()
    world.variants["web"] = spec(2)


def conflicted_in_draft(world: ModelWorld) -> None:
    """A person edited the draft, then upstream changed the same value."""
    world.edit("edge", "web", {"app.yaml": app("mine")}, ref=draft(world))
    world.variants["web"] = spec(2)


@pytest.mark.parametrize("meet", [conflicted_on_main, conflicted_in_draft])
def test_the_draft_keeps_the_local_value_and_both_sides_are_listed(world: ModelWorld, meet) -> None:
    meet(world)

    change = the_change(world)

    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    assert (change.waits, change.ready) == (True, False)
    assert change.pull is not None
    assert [(n.path, n.field, n.upstream, n.local) for n in change.conflicts] == [
        ("app.yaml", "data.color", "green", "mine")
    ]
    assert text(world) == app("mine")
    assert world.repositories["edge"].at(draft(world)).header("web").upstream_lock.ref == "web/v2"


@pytest.mark.parametrize("meet", [conflicted_on_main, conflicted_in_draft])
def test_the_question_stays_until_a_person_edits_the_draft(world: ModelWorld, meet) -> None:
    meet(world)
    world.run()

    plan = world.plan()
    (waiting,) = plan.changes
    assert (waiting.op, waiting.reason, len(waiting.conflicts)) == (Op.KEEP, Reason.MERGE_CONFLICT, 1)
    assert Exit.WAITING in plan.exits

    world.edit("edge", "web", {"app.yaml": app("both")}, ref=draft(world))
    change = the_change(world)
    assert (change.waits, change.conflicts, change.reason) == (False, (), Reason.PULL_REQUEST_OUTDATED)
    assert (change.op, change.writes) == (Op.UPDATE, ()), "the text of the pull request is repaired, once"
    assert text(world) == app("both")
    assert Exit.WAITING not in world.plan().exits


def test_no_later_merge_buries_a_question(world: ModelWorld) -> None:
    conflicted_in_draft(world)
    world.run()
    world.publish("blueprints", "web", blueprint("web", app_yaml=app("green", "xl")), 4)
    world.variants["web"] = spec(4)

    assert [n.field for n in the_change(world).conflicts] == ["data.color"]
    assert text(world) == app("mine", "xl")


@pytest.mark.parametrize(
    ("notes", "color", "asks"),
    [
        ({ON_CONFLICT: "upstream"}, "green", False),
        ({ON_CONFLICT: "ask"}, "mine", True),
        ({ON_CONFLICT_FIELDS: "data.size=local;data.co*=upstream"}, "green", False),
    ],
)
@pytest.mark.parametrize("meet", [conflicted_on_main, conflicted_in_draft])
def test_a_policy_set_later_answers(world: ModelWorld, meet, notes, color, asks) -> None:
    meet(world)
    world.run()
    world.annotations["web"] = notes

    assert the_change(world).waits is asks
    assert text(world) == app(color)


def test_an_answer_by_policy_takes_nothing_else_from_a_person(world: ModelWorld) -> None:
    """In the draft: other values of theirs, files of theirs, what upstream brought since."""
    world.edit("edge", "web", {"app.yaml": app("mine", "xxl"), "notes.yaml": app("n")}, ref=draft(world))
    world.variants["web"] = spec(2)
    world.run()
    world.publish("blueprints", "web", blueprint("web", app_yaml=app("lime"), new_yaml=app("new")), 4)
    world.variants["web"] = spec(4)
    world.run()
    world.annotations["web"] = {ON_CONFLICT: "upstream"}

    change = the_change(world)

    assert (change.waits, change.conflicts) == (False, ())
    assert text(world) == app("lime", "xxl")
    assert {"notes.yaml", "new.yaml"} <= world.repositories["edge"].at(draft(world)).packages["web"].keys()


def test_of_two_answers_each_takes_its_own_value(world: ModelWorld) -> None:
    world.edit("edge", "web", {"app.yaml": app("mine", "mine")}, ref=draft(world))
    world.publish("blueprints", "web", blueprint("web", app_yaml=app("lime", "xl")), 4)
    world.variants["web"] = spec(4)
    assert len(the_change(world).conflicts) == 2
    world.annotations["web"] = {ON_CONFLICT_FIELDS: "data.color=upstream;data.size=local"}

    assert (the_change(world).waits, text(world)) == (False, app("lime", "mine"))


def test_what_a_person_answered_no_policy_answers_again(world: ModelWorld) -> None:
    conflicted_in_draft(world)
    world.run()
    world.edit("edge", "web", {"app.yaml": app("both")}, ref=draft(world))
    world.run()
    world.annotations["web"] = {ON_CONFLICT: "upstream"}

    the_change(world)

    assert text(world) == app("both")


def test_fail_makes_no_draft(world: ModelWorld) -> None:
    conflicted_on_main(world)
    world.annotations["web"] = {ON_CONFLICT: "fail"}

    change = the_change(world)

    assert (change.op, change.reason, change.waits) == (Op.BLOCK, Reason.MERGE_CONFLICT, True)
    assert [n.upstream for n in change.conflicts] == ["green"]
    assert world.drafts("edge") == []


def test_merging_the_draft_as_it_is_answers_too(world: ModelWorld) -> None:
    conflicted_on_main(world)
    world.run()
    world.merge("edge", draft(world))

    assert (the_change(world).waits, world.drafts("edge")) == (False, [])
    assert text(world, MAIN) == app("mine")


def test_a_lost_state_asks_again_where_main_is_one_of_the_sides(world: ModelWorld) -> None:
    conflicted_on_main(world)
    world.run()
    world.lose_state()

    assert [n.field for n in the_change(world).conflicts] == ["data.color"]
