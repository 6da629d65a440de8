"""What is not ready says so, in the row and in the conditions alike; a good draft outlives a bad pipeline."""

import pytest

from reconciler.api.porch import Function, InjectionSelector, PackageVariantSpec, Pipeline
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectKey
from reconciler.plan.changes import Change, Op, Plan, WriteDraft
from reconciler.report.build import build_report, detail
from reconciler.report.report import Names
from tests.support.model import ModelWorld, blueprint, kptfile, package
from tests.support.model import web_spec as spec
from tests.support.points import team_point
from tests.support.values import replace

POINT = team_point("required")
GATE = "info:\n  readinessGates:\n  - conditionType: security.review\n"
NOBODY = Pipeline(mutators=[Function(name="magic", image="example.com/nobody/has-this:v1")])


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 2\n"), 2)
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT), 3)
    world.publish("blueprints", "web", package({"Kptfile": kptfile("web", GATE)}), 4)
    return world


def conditions(plan: Plan) -> dict[str, tuple[str, str, str]]:
    found = plan.conditions[ObjectKey("config.porch.kpt.dev", "PackageVariant", "default", "web")]
    return {c.type: (c.status, c.reason, c.message) for c in found}


def only(plan: Plan) -> Change:
    (change,) = plan.changes
    return change


def assert_agree(plan: Plan) -> None:
    """The row says that it is not ready if and only if the condition does, and why."""
    status, _, message = conditions(plan)["Ready"]
    change = only(plan)
    says = bool(change.unready or change.conflicts) or change.reason is Reason.PIPELINE_FAILED
    assert (status == "False") is says, (status, change)
    assert all(reason in message for reason in change.unready) or change.message in message
    if change.unready:
        assert f"not ready: {change.unready[0]}" in detail(change)
        assert "1 not ready" in build_report(plan, Names()).summary


@pytest.mark.parametrize(
    ("wanted", "words", "ensured"),
    [
        (spec(), "", ("True", "NoErrors")),
        (spec(3, injectors=[InjectionSelector(name="blue")]), "config.injection.Team.team: ",
            ("False", "ConfigNotInjected")),
        (spec(pipeline=NOBODY), "Functions cannot run: ", ("False", "PipelineFailed")),
        (spec(4), "security.review: the package has no such condition", ("True", "NoErrors")),
    ],
    ids=["ready", "injection", "pipeline", "gate"],
)  # fmt: skip
def test_row_and_conditions_agree(
    world: ModelWorld, wanted: PackageVariantSpec, words: str, ensured: tuple[str, str]
) -> None:
    world.variants["web"] = wanted
    for plan in (world.run(), world.run()):
        assert_agree(plan)
        assert bool(words) == bool(only(plan).unready)
        assert words in "".join(only(plan).unready)
        assert conditions(plan)["DownstreamEnsured"][:2] == ensured
    world.merge("edge", world.drafts("edge")[0])
    for plan in (world.run(), world.run()):
        assert_agree(plan)
        if words.startswith("config.injection"):
            assert not only(plan).unready, "a blueprint may be published with an empty point"
            assert conditions(plan)["ConfigInjected"][0] == "False"
        else:
            assert words in "".join(only(plan).unready), "what is published and not ready says so too"


@pytest.mark.parametrize("edits", [False, True])
def test_a_good_draft_stays_as_it_was_while_the_pipeline_fails(world: ModelWorld, *, edits: bool) -> None:
    world.variants["web"] = spec()
    world.run()
    (draft,) = world.drafts("edge")
    if edits:
        world.edit("edge", "web", {"mine.yaml": "b: 1\n"}, ref=draft)
    before = dict(world.repositories["edge"].refs)
    world.variants["web"] = spec(2, pipeline=NOBODY)

    for plan in (world.run(), world.run()):
        change = only(plan)
        assert (change.op, change.reason, change.unready) == (Op.KEEP, Reason.PIPELINE_FAILED, ())
        assert change.message.startswith("Functions cannot run: ")
        assert change.message.endswith("; the draft stays as it was")
        assert_agree(plan)
        assert conditions(plan)["DownstreamEnsured"][:2] == ("False", "PipelineFailed")
        assert world.repositories["edge"].refs == before

    world.variants["web"] = spec(2)
    assert [type(write) for write in only(world.run()).writes] == [WriteDraft]
    assert world.plan().is_empty


def test_a_lost_record_keeps_the_draft_that_stands(world: ModelWorld) -> None:
    """Whether it went through its functions cannot be told: it is not replaced by one that did not."""
    world.variants["web"] = spec()
    world.run()
    world.lose_state()
    world.variants["web"] = spec(2, pipeline=NOBODY)

    assert only(world.run()).reason is Reason.PIPELINE_FAILED
    assert replace(world.plan(), records={}).is_empty
