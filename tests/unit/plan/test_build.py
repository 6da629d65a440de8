"""What a plan adds to its changes: exits, versions of generated packages, and impacts."""

from typing import Any

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.instances import Resolution as LockResolution
from reconciler.expand import Desired
from reconciler.inventory.inventory import Commit, LockBranch, PackageState, ReviewedLock
from reconciler.names.ids import ObjectName, RolloutKey
from reconciler.names.objects import File, Files, tree_id
from reconciler.names.problems import Problem
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Plan
from reconciler.policy import OnUnavailable
from reconciler.records.state import RolloutRecord
from reconciler.render.rendered import (
    Blocked,
    Package,
    Rendered,
    RenderedDeliveries,
    RenderedDelivery,
    RenderedVariant,
)
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.resolution import Resolution
from reconciler.resolve.rollout_model import Rollout, RolloutPhase
from tests.support.plan_values import EDGE, PACKAGE, WEB, a_desired, a_draft, a_pin, a_resolved, oid
from tests.support.sets import a_package, world
from tests.support.values import replace

WRONG = Problem(Location("a.yaml", 1), Reason.INVALID_MANIFEST, "It is wrong")
DOWN = replace(WRONG, reason=Reason.REPOSITORY_UNAVAILABLE)
OWNED = KptfileHeader(owner="default/default/web", location="edge/web")
ON_MAIN = a_package(main_tree=oid("b1"), main_header=OWNED)
CURRENT = Package(oid("b1"))
LOCK: Files = {"notes.md": File.of(b"1")}
BRANCH = LockBranch(Commit(oid("a9"), 30), files={})
EDITED = replace(BRANCH, edited_files=frozenset({"other"}))
FLEET = ObjectName("default", "fleet")


def plan_of(
    fresh: Package | Blocked = CURRENT,
    *,
    package: PackageState = ON_MAIN,
    view: dict[str, Any] | None = None,
    rollout: RolloutPhase | None = None,
    delivery: Files | None = None,
    contents: Any = None,
    **inventory: Any,
) -> Plan:
    """Return the plan of the package `web`, which is what its variant wants unless told otherwise."""
    web = a_desired()
    edge = replace(EDGE, packages={"web": package}, **(view or {}))
    resolved = a_resolved(variant=web, pin=a_pin(1), base=a_pin(1), local=package.main_tree)
    record = RolloutRecord(namespace="default", name="fleet", revision="r", waves=())
    rollouts = (Rollout(RolloutKey(*FLEET), rollout, record),) if rollout else ()
    resolution = Resolution(variants=(resolved,), downstreams={PACKAGE: (web,)}, rollouts=rollouts)
    rendered = RenderedVariant(WEB, fresh)
    delivered = RenderedDelivery("prod", resolved, rendered, LockResolution(), local=delivery or {})
    deliveries = RenderedDeliveries(items={} if delivery is None else {WEB: delivered})
    return build_plan(
        world(views=(edge,), **inventory),
        ResolvedFleet(Desired(variants=(web,)), resolution),
        Rendered({WEB: rendered}, deliveries=deliveries),
        contents=contents,
    )


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, set()),
        ({"problems": (WRONG,)}, {Exit.INVALID_INPUT}),
        ({"problems": (DOWN,)}, set()),
        ({"problems": (DOWN, WRONG)}, {Exit.INVALID_INPUT}),
        ({"view": {"problem": DOWN}}, {Exit.UNAVAILABLE}),
        ({"view": {"problem": DOWN, "unavailable": OnUnavailable.WARN}}, set()),
        ({"reviewed": ReviewedLock(is_open=False)}, {Exit.UNAVAILABLE}),
        ({"reviewed": ReviewedLock()}, set()),
        ({"reviewed": ReviewedLock(files=LOCK, branch=BRANCH)}, {Exit.PENDING}),
        ({"reviewed": ReviewedLock(files=LOCK, branch=EDITED)}, {Exit.WAITING}),
        ({"fresh": Package(oid("e1"))}, {Exit.PENDING}),
        ({"fresh": Blocked(Reason.INVALID_PACKAGE, "")}, {Exit.WAITING}),
        ({"fresh": Blocked(Reason.FUNCTIONS_POSTPONED, "")}, {Exit.PARTIAL}),
        ({"fresh": Blocked(Reason.NOT_IN_THIS_RUN, "")}, {Exit.PARTIAL}),
        ({"rollout": RolloutPhase.FAILED}, {Exit.WAITING}),
        ({"rollout": RolloutPhase.PROGRESSING}, set()),
    ],
)
def test_classes_of_exit(given: dict[str, Any], want: set[Exit]) -> None:
    assert plan_of(**given).exits == want


# Versions of generated packages


def provider(version: str) -> bytes:
    return (
        "apiVersion: pkg.crossplane.io/v1\nkind: Provider\nmetadata:\n  name: net\n"
        f"spec:\n  package: registry.example/net:{version}\n"
    ).encode()


def files(version: str) -> Files:
    return {"net.yaml": File.of(provider(version)), "README.md": File.of(b"text")}


NEW = files("v2.0.0")
OTHER_FILES = {
    "note.yaml": File.of(b"kind: ConfigMap\n"),
    "broken.yaml": File.of(b"a: ["),
    "empty.yaml": File.of(b"# nothing\n"),
    "list.yaml": File.of(b"- 1\n"),
    "provider.txt": File.of(provider("v7.0.0")),
}
DRAFT = a_draft(tree=oid("e1"), written=oid("e1"), header=OWNED)
DRAFTED = replace(ON_MAIN, drafts=(DRAFT,))


@pytest.mark.parametrize(
    ("fresh", "given", "want"),
    [
        pytest.param(Package(oid("e1"), NEW), {}, [("v1.0.0", "v2.0.0")], id="its draft is written"),
        pytest.param(Package(oid("e1"), {**NEW, **OTHER_FILES}), {}, [("v1.0.0", "v2.0.0")],
            id="others install nothing"),
        pytest.param(Package(oid("e1"), NEW), {"package": DRAFTED}, [("v1.0.0", "v2.0.0")],
            id="it has no pull request"),
        pytest.param(Package(oid("e1")), {"package": DRAFTED}, [], id="its draft was not read"),
        pytest.param(Blocked(Reason.INVALID_PACKAGE, ""), {}, [], id="it cannot be rendered"),
        pytest.param(Package(oid("b1"), NEW), {}, [], id="it is kept"),
        pytest.param(Package(oid("e1"), NEW), {"delivery": None}, [], id="it is not generated"),
    ],
)  # fmt: skip
def test_versions_that_merging_a_generated_package_changes(fresh, given, want) -> None:
    (change,) = plan_of(fresh, **{"delivery": files("v1.0.0"), **given}).changes

    assert [(pin.before, pin.after) for pin in change.pins] == want


# Impacts


def config_map(value: str) -> Files:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  a: {value}\n"
    return {"app.yaml": File.of(text.encode())}


def impact_of(value: str, contents: Any, **given: Any) -> Any:
    files = config_map(value)
    (change,) = plan_of(Package(tree_id(files), files), contents=contents, **given).changes
    return change.impact


def test_draft_that_is_written_has_its_difference_from_main() -> None:
    main = {oid("b1"): config_map("1")}
    (kept,) = plan_of(contents=main).changes

    changed, again = impact_of("2", main), impact_of("1", main)
    new = impact_of("2", {}, package=a_package())

    assert (kept.impact, impact_of("2", {})) == (None, None)
    assert (changed.files, changed.added, changed.removed) == (1, 1, 1)
    assert (again.files, again.added, again.removed) == (0, 0, 0)
    assert (new.files, new.added, new.removed) == (1, 6, 0)
