"""Every change of content names what it is for: the product of causes and of where the package stands."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, combinations

import pytest

from reconciler.api.porch import (
    Downstream,
    Function,
    InjectionSelector,
    PackageContext,
    PackageVariantSpec,
    Pipeline,
    Upstream,
)
from reconciler.errors import Location
from reconciler.expand import expand
from reconciler.ids import ObjectName
from reconciler.inventory import Inventory
from reconciler.plan.changes import Change, Op, WriteDraft
from reconciler.plan.draft_decision import content_causes
from reconciler.policy import FunctionPolicy
from reconciler.reasons import Reason
from reconciler.snapshot import Snapshot, SnapshotObject
from tests.support.model import NAMESPACE, ModelWorld, blueprint, resolve
from tests.support.points import team_point

POINT = team_point("optional")
SET_LABELS = "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0"
APP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  {}: here\n"


class Cluster(ModelWorld):
    """A world with one object to inject."""

    code = "old"

    def inventory(self) -> Inventory:
        team = SnapshotObject(
            "hr.example.com/v1",
            "Team",
            "default",
            "blue",
            {},
            {},
            {"spec": {"code": self.code}},
            Location("s"),
        )
        objects = {("hr.example.com/v1", "Team"): (team,)}
        return replace(super().inventory(), snapshot=Snapshot(present=True, objects=objects))


def spec(**more: object) -> PackageVariantSpec:
    given: dict[str, object] = {
        "upstream": Upstream(repo="blueprints", package="web", revision=1),
        "downstream": Downstream(repo="edge", package="web"),
        "injectors": [InjectionSelector(name="blue")],
        "package_context": PackageContext(data={"region": "east", "zone": "a"}),
        "pipeline": labelled("old"),
        **more,
    }
    return PackageVariantSpec(**given)


def labelled(value: str) -> Pipeline:
    return Pipeline(mutators=[Function(name="label", image=SET_LABELS, config_map={"team": value})])


def edited(world: Cluster, **more: object) -> None:
    world.variants["web"] = world.variants["web"].model_copy(update=more)


def edit_context(world: Cluster) -> None:
    edited(world, package_context=PackageContext(data={"region": "west", "zone": "a"}))


def edit_pipeline(world: Cluster) -> None:
    edited(world, pipeline=labelled("new"))


def change_object(world: Cluster) -> None:
    world.code = "new"


def hotfix(world: Cluster) -> None:
    world.edit("edge", "web", {"notes.yaml": APP.format("note")})


def release(world: Cluster) -> None:
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT, new_yaml=APP.format("new")), 2)
    edited(world, upstream=Upstream(repo="blueprints", package="web", revision=2))


CAUSES: Mapping[str, tuple[Callable[[Cluster], None], str]] = {
    "context": (edit_context, "spec.packageContext.data.region"),
    "pipeline": (edit_pipeline, "spec.pipeline.mutators[0].configMap.team"),
    "object": (change_object, "object Team blue"),
    "main": (hotfix, "the package on main"),
    "upstream": (release, "web/v1 -> web/v2"),
}


def some(names: Iterable[str]) -> list[tuple[str, ...]]:
    every = list(names)
    return list(chain.from_iterable(combinations(every, size) for size in range(1, len(every) + 1)))


@pytest.fixture(params=["draft", "published", "edited draft"])
def world(request: pytest.FixtureRequest) -> Cluster:
    world = Cluster()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT), 1)
    world.variants["web"] = spec()
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    if request.param != "published":
        edited(world, package_context=PackageContext(data={"region": "east", "zone": "b"}))
        world.run()
        edited(world, package_context=PackageContext(data={"region": "east", "zone": "c"}))
        world.run()
    if request.param == "edited draft":
        world.edit("edge", "web", {"mine.yaml": APP.format("mine")}, ref=world.drafts("edge")[0])
        world.run()
    assert world.plan().is_empty
    return world


def told(change: Change) -> str:
    message = change.message.replace("The package", "the package").replace("Object", "object")
    return f"{change.upstream_from} -> {change.upstream_to}; {message}"


@pytest.mark.parametrize("causes", some(CAUSES), ids="+".join)
def test_every_cause_is_named(world: Cluster, causes: tuple[str, ...]) -> None:
    for cause in causes:
        CAUSES[cause][0](world)

    (change,) = world.run().changes

    writes = [write for write in change.writes if isinstance(write, WriteDraft)]
    if causes == ("main",) and world.drafts("edge") == []:
        assert (change.op, writes) == (Op.PUBLISH, []), "a hotfix on its own is published as it is"
        return
    assert writes
    assert change.reason in {Reason.CONTENT_CHANGED, Reason.UPSTREAM_CHANGED}
    for cause in causes:
        assert CAUSES[cause][1] in told(change)
    for other in CAUSES.keys() - {*causes}:
        assert CAUSES[other][1] not in told(change)
    assert world.plan().is_empty


def compatible_functions(world: Cluster) -> None:
    world.policy = replace(world.policy, functions=FunctionPolicy(compatible=True))


def deployed(world: Cluster) -> None:
    world.repositories["edge"].deployment = True


def decide_conflicts(world: Cluster) -> None:
    world.annotations["web"] = {"reconciler.dev/on-conflict": "local"}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (compatible_functions, "the configuration of functions"),
        (deployed, "spec.deployment of the Repository"),
        (decide_conflicts, "the conflict policies"),
    ],
)
def test_what_is_configured_is_named_beside(
    world: Cluster, act: Callable[[Cluster], None], words: str
) -> None:
    """None of these changes the content here by itself, so something else does: both are told."""
    act(world)
    edit_context(world)

    (change,) = world.run().changes

    assert change.op is Op.EDIT
    assert words in told(change)
    assert "spec.packageContext.data.region" in change.message


def test_causes_read_as_a_sentence(world: Cluster) -> None:
    hotfix(world)
    edit_pipeline(world)
    (first,) = world.plan().changes
    release(world)
    (second,) = world.plan().changes

    causes = "spec.pipeline.mutators[0].configMap.team and the package on main"
    assert first.message == f"{causes} changed"
    assert second.message == f"{causes} also changed"


def test_a_new_version_of_the_tool_is_the_last_resort(world: Cluster) -> None:
    """It makes something else of what nobody changed; here its record is what differs."""
    record = world.records[ObjectName(NAMESPACE, "web")]
    other = record.model_copy(update={"inputs": "", "facts": {**record.facts, "engine": "0"}})
    resolved = resolve(world.inventory(), expand(world.inventory())).variants[0]

    assert "The version of this tool changed" in content_causes(resolved, other)
    assert "version of this tool" not in content_causes(resolved, record)


def test_without_a_record_it_is_said_that_nothing_tells(world: Cluster) -> None:
    world.lose_state()
    edit_context(world)

    (change,) = world.run().changes

    assert change.message.startswith("Nothing was recorded of the last time")


def test_a_draft_whose_branch_is_gone_is_made_again_and_says_so() -> None:
    world = Cluster()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT), 1)
    world.variants["web"] = spec()
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    edit_context(world)
    world.run()
    repository = world.repositories["edge"]
    del repository.refs[world.drafts("edge")[0]]
    repository.pulls.clear()

    (change,) = world.run().changes

    assert change.message == "No input changed, but the draft that was proposed is gone"
