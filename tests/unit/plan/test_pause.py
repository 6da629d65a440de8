"""Pause and suspend (D17): what is paused keeps every ref and pull request as it is."""

from collections.abc import Callable
from functools import cache

import pytest

from reconciler.api.porch import PackageContext
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op, Plan
from reconciler.plan.records import plan_records
from reconciler.policy import Policy
from reconciler.records.state import SetRecord, record_bytes, record_path
from reconciler.resolve.ownership import SUSPENDED
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import ModelWorld, blueprint
from tests.support.model import web_spec as spec
from tests.support.plan_values import a_context
from tests.support.sets import world
from tests.support.values import replace


def draft_of(fleet: ModelWorld) -> str:
    return next(ref for ref in fleet.drafts("edge") if "/web/" in ref)


def nothing(_: ModelWorld) -> None:
    pass


def draft(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec()
    fleet.run()


def published(fleet: ModelWorld, **more: object) -> None:
    fleet.variants["web"] = spec(**more)
    fleet.run()
    fleet.merge("edge", draft_of(fleet))
    fleet.run()


def want(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec()


def update(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec(2)


def edit_and_update(fleet: ModelWorld) -> None:
    fleet.edit("edge", "web", {"mine.yaml": "b: 1\n"}, ref=draft_of(fleet))
    update(fleet)


def merge(fleet: ModelWorld) -> None:
    fleet.merge("edge", draft_of(fleet), keep_branch=True)


def hotfix(fleet: ModelWorld) -> None:
    fleet.edit("edge", "web", {"a.yaml": "a: 9\n"})


def forget_pull(fleet: ModelWorld) -> None:
    fleet.repositories["edge"].pulls = []


def retitle(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec(package_context=PackageContext(data={"a": "b"}))
    pulls = fleet.repositories["edge"].pulls
    fleet.repositories["edge"].pulls = [replace(pull, digest="other") for pull in pulls]


def intrude(fleet: ModelWorld) -> None:
    fleet.push("edge", {"web": blueprint("web", a_yaml="a: 7\n")})
    fleet.variants["web"] = spec(adoption_policy="adoptExisting")


def rename(fleet: ModelWorld) -> None:
    fleet.variants["site"] = fleet.variants.pop("web")


def leave(fleet: ModelWorld) -> None:
    fleet.variants.pop("web")


def published_orphan(fleet: ModelWorld) -> None:
    published(fleet, deletion_policy="orphan")


def deletion_proposed(fleet: ModelWorld) -> None:
    published(fleet)
    leave(fleet)
    fleet.run()


def merge_deletion(fleet: ModelWorld) -> None:
    fleet.merge("edge", "refs/heads/reconciler/fleet/delete/web", keep_branch=True)


STORIES: dict[str, tuple[Callable[[ModelWorld], None], Callable[[ModelWorld], None]]] = {
    "is to be created": (nothing, want),
    "is to be adopted": (nothing, intrude),
    "has a draft to update": (draft, update),
    "has an edited draft to update": (draft, edit_and_update),
    "has a draft without its pull request": (draft, forget_pull),
    "has a pull request with an old text": (draft, retitle),
    "was merged and not tagged": (draft, merge),
    "got a hotfix": (published, hotfix),
    "is to be updated": (published, update),
    "gets another owner": (published, rename),
    "is wanted again": (deletion_proposed, want),
    "has a draft that nobody wants": (draft, leave),
    "is to be deleted": (published, leave),
    "is to be orphaned": (published_orphan, leave),
    "was deleted by a merge": (deletion_proposed, merge_deletion),
}
UNWANTED = tuple(story for story, (_, act) in STORIES.items() if act in (leave, merge_deletion))
TABLE: DecisionTable[str] = DecisionTable(
    {
        "paused by": ("nothing", "the configuration", "its Repository", "its variant", "another text"),
        "package": tuple(STORIES),
    },
    [
        ({"paused by": "the configuration"}, SUSPENDED, "the configuration suspends every change"),
        ({"paused by": ("its Repository", "its variant")}, "Paused by annotation", "an annotation pauses it"),
        ({}, "", "nothing pauses it, and it changes"),
    ],
    {"a variant that is gone has no annotation": {"paused by": "its variant", "package": UNWANTED}},
)


@cache
def told(story: str) -> ModelWorld:
    """Return a world in which one package is about to change, and another variant keeps its repository."""
    fleet = ModelWorld()
    fleet.add_repository("blueprints")
    fleet.add_repository("edge")
    for number in (1, 2):
        fleet.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    before, after = STORIES[story]
    before(fleet)
    after(fleet)
    return fleet


def pause_of(case: Case) -> str:
    """Return why the package is paused, "" if it changes; a paused one has no effect at all."""
    fleet = told(case["package"])
    annotations = {"reconciler.dev/paused": "true" if case["paused by"] != "another text" else "false"}
    is_annotated = case["paused by"] in {"its variant", "another text"}
    fleet.policy = replace(fleet.policy, suspend=case["paused by"] == "the configuration")
    is_stopped = case["paused by"] in {"its Repository", "another text"}
    fleet.repositories["edge"].annotations = annotations if is_stopped else {}
    fleet.annotations = {"web": annotations, "site": annotations} if is_annotated else {}
    (change,) = (change for change in fleet.plan().changes if change.package.path == "web")
    if not change.pending:
        assert (change.op, change.reason) == (Op.KEEP, Reason.PAUSED)
    return "" if change.pending else change.message


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_paused_package_keeps_every_ref_and_pull_request(row: Row[str]) -> None:
    assert TABLE.mistakes(row, pause_of) == []


@pytest.mark.parametrize("story", STORIES)
def test_record_of_a_paused_package_stays_as_it_was(story: str) -> None:
    fleet = told(story)
    fleet.policy = replace(fleet.policy, suspend=True)
    try:
        plan: Plan = fleet.plan()
    finally:
        fleet.policy = replace(fleet.policy, suspend=False)

    assert plan.records == fleet.state
    assert plan.refusals == ()


def test_suspended_configuration_keeps_the_records_of_sets() -> None:
    inventory = replace(world(), policy=Policy(suspend=True))
    old = SetRecord(namespace="default", name="web", uid="1", manifest="web.yaml", targets=3)
    gone = replace(inventory, set_records={old.key: old})
    running = replace(gone, policy=Policy())
    kept, left = (plan_records(a_context(each), ()) for each in (gone, running))

    assert kept == {record_path(old): record_bytes(old)}
    assert left == {}
