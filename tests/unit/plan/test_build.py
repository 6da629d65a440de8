"""What a plan adds to its changes: exits, versions of generated packages, and impacts."""

from typing import Any

import pytest

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import Resolution as LockResolution
from reconciler.inventory.inventory import ReviewedLock
from reconciler.names.ids import ObjectName
from reconciler.names.objects import File, Files
from reconciler.names.problems import Problem
from reconciler.plan.build import _described, _exits, _installed_versions
from reconciler.plan.changes import Change, LockProposal, Refusal
from reconciler.plan.compose import Changes
from reconciler.policy import OnUnavailable
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
from tests.support.plan_values import (
    KEPT,
    PACKAGE,
    WEB,
    a_decision,
    a_desired,
    a_pin,
    a_pull,
    a_resolved,
    a_target,
    a_write,
    oid,
    web_context,
)
from tests.support.sets import repository
from tests.support.values import replace

PENDING = replace(KEPT, pull=a_pull())
WAITING = replace(KEPT, waits=True)
WRONG = Problem(Location("a.yaml", 1), Reason.INVALID_MANIFEST, "It is wrong")
DOWN = replace(WRONG, reason=Reason.REPOSITORY_UNAVAILABLE)
REFUSAL = Refusal(Reason.DELETION_GUARD, "Too many", "")


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, []),
        ({"changes": (KEPT,)}, []),
        ({"problems": (WRONG,)}, [Exit.INVALID_INPUT]),
        ({"problems": (DOWN,)}, []),
        ({"problems": (DOWN, WRONG)}, [Exit.INVALID_INPUT]),
        ({"view": {"problem": DOWN}}, [Exit.UNAVAILABLE]),
        ({"view": {"problem": DOWN, "unavailable": OnUnavailable.WARN}}, []),
        ({"reviewed": ReviewedLock(is_open=False)}, [Exit.UNAVAILABLE]),
        ({"reviewed": ReviewedLock()}, []),
        ({"refusals": (REFUSAL,)}, [Exit.REFUSED]),
        ({"changes": (KEPT, WAITING)}, [Exit.WAITING]),
        ({"changes": (KEPT, PENDING)}, [Exit.PENDING]),
        ({"proposal": LockProposal(WAITING)}, [Exit.WAITING]),
        ({"proposal": LockProposal(PENDING)}, [Exit.PENDING]),
        ({"proposal": LockProposal(KEPT)}, []),
        (
            {"problems": (WRONG,), "refusals": (REFUSAL,), "changes": (WAITING, PENDING)},
            [Exit.INVALID_INPUT, Exit.REFUSED, Exit.WAITING, Exit.PENDING],
        ),
    ],
)
def test_classes_of_exit(given: dict[str, Any], want: list[Exit]) -> None:
    view = repository("edge", **given.get("view", {}))
    inventory = {"views": (view,), "reviewed": given.get("reviewed")}
    context = web_context(inventory=inventory, resolution=Resolution(rollouts=given.get("rollouts", ())))
    parts = [given.get(name, ()) for name in ("changes", "problems", "refusals")]

    assert list(_exits(*parts, given.get("proposal"), context)) == want


# Versions of generated packages


def provider(version: str) -> bytes:
    return (
        "apiVersion: pkg.crossplane.io/v1\nkind: Provider\nmetadata:\n  name: net\n"
        f"spec:\n  package: registry.example/net:{version}\n"
    ).encode()


def files(version: str) -> Files:
    return {"net.yaml": File.of(provider(version)), "README.md": File.of(b"text")}


def test_versions_are_those_of_manifests_that_install_something() -> None:
    found = _installed_versions(
        {
            **files("v1.0.0"),
            "note.yaml": File.of(b"kind: ConfigMap\n"),
            "broken.yaml": File.of(b"a: ["),
            "empty.yaml": File.of(b"# nothing\n"),
            "list.yaml": File.of(b"- 1\n"),
            "provider.txt": File.of(provider("v2.0.0")),
        }
    )

    assert found == {"net.yaml": "v1.0.0"}


DELIVERY_KEY = ObjectName("default", "dependencies@prod")
WRITTEN = replace(
    KEPT,
    variant=DELIVERY_KEY,
    after=oid("e1"),
    writes=(a_write(ref="refs/heads/x", files=files("v2.0.0"), time=1),),
)


def described(change: Change, contents: Any, **fields: Any) -> Change:
    context = web_context(**fields)
    changes = Changes([a_decision(change, context.targets[PACKAGE])])
    fleet = ResolvedFleet(context.desired, context.resolution)
    (found,) = _described([change], changes, fleet, context, contents)
    assert replace(found, pins=(), impact=None) == change
    return found


def pins(change: Change, fresh: Package | Blocked) -> list[tuple[str, str]]:
    resolved = a_resolved(variant=replace(a_desired(), key=DELIVERY_KEY), pin=a_pin(1))
    delivery = RenderedDelivery(
        "prod", resolved, RenderedVariant(DELIVERY_KEY, fresh), LockResolution(), local=files("v1.0.0")
    )
    rendered = Rendered(deliveries=RenderedDeliveries(items={DELIVERY_KEY: delivery}))
    found = described(change, {}, rendered=rendered)
    return [(pin.before, pin.after) for pin in found.pins]


ASKED = replace(WRITTEN, writes=(), pull=a_pull())


@pytest.mark.parametrize(
    ("change", "fresh", "want"),
    [
        pytest.param(WRITTEN, Package(oid("e1")), [("v1.0.0", "v2.0.0")], id="its draft is written"),
        pytest.param(
            ASKED,
            Package(oid("e1"), files("v3.0.0")),
            [("v1.0.0", "v3.0.0")],
            id="it has no pull request",
        ),
        pytest.param(ASKED, Package(oid("e2"), files("v3.0.0")), [], id="its draft has something else"),
        pytest.param(ASKED, Package(oid("e1")), [], id="its draft was not read"),
        pytest.param(ASKED, Blocked(Reason.INVALID_PACKAGE, ""), [], id="it cannot be rendered"),
        pytest.param(replace(ASKED, pull=None), Package(oid("e1"), files("v3.0.0")), [], id="it is kept"),
        pytest.param(replace(WRITTEN, variant=WEB), Package(oid("e1")), [], id="it is not generated"),
        pytest.param(replace(WRITTEN, variant=None), Package(oid("e1")), [], id="it is of nobody"),
    ],
)
def test_versions_that_merging_a_generated_package_changes(
    change: Change, fresh: Package | Blocked, want: list[tuple[str, str]]
) -> None:
    assert pins(change, fresh) == want


# Impacts


def config_map(value: str) -> Files:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  a: {value}\n"
    return {"app.yaml": File.of(text.encode())}


def impact_of(change: Change, contents: Any, **target: Any) -> Any:
    return described(change, contents, targets={PACKAGE: a_target(**target)}).impact


def test_draft_that_is_written_has_its_difference_from_main() -> None:
    write = a_write(ref="refs/heads/x", files=config_map("2"), time=1)
    writing = replace(KEPT, writes=(write,))
    unborn = replace(a_target().package, main_tree=None)

    assert impact_of(KEPT, {oid("b1"): config_map("1")}) is None
    assert impact_of(writing, {}) is None
    changed = impact_of(writing, {oid("b1"): config_map("1")})
    same = impact_of(writing, {oid("b1"): config_map("2")})
    new = impact_of(writing, {}, package=unborn)
    assert len({repr(each) for each in (changed, same, new)}) == 3
