"""Decisions about packages that variants want: everything around the content of the draft."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import Commit, PackageRevision
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.compose import Parts, compose
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.decide import decide
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.support import plan_values
from tests.support.plan_values import (
    PACKAGE,
    WEB,
    a_change,
    a_desired,
    a_pin,
    a_target,
    field_at,
    oid,
    stateless,
    web_context,
)
from tests.support.sets import a_package
from tests.support.values import replace

LOCATION = Location("web.yaml", 1)
DOWNSTREAM = field_at("web.yaml", "spec", "downstream", "package")
OURS = a_target(owner=WEB, main_owner=WEB)
UP_TO_DATE = RenderedVariant(WEB, Package(oid("b1")))
KEPT = a_change(variant=WEB, location=LOCATION, before=oid("b1"), tree=oid("b1"))
V2 = PackageRevision("web", "v2", 2, Lifecycle.PUBLISHED, "refs/tags/web/v2", Commit(oid("f2"), 9), oid("b1"))
TAG = MoveRef("refs/tags/web/v2", None, oid("f2"))


def a_resolved(**fields: Any) -> ResolvedVariant:
    """Return the variant `web` at revision 1, which main has."""
    given: dict[str, Any] = {"variant": a_desired(), "pin": a_pin(1), "base": a_pin(1), **fields}
    return plan_values.a_resolved(local=oid("b1"), **given)


def context_of(
    target: PlanTarget = OURS,
    wanted: ResolvedVariant | None = None,
    result: RenderedVariant = UP_TO_DATE,
    **fields: Any,
) -> PlanContext:
    given: dict[str, Any] = {
        "resolved": {WEB: wanted or a_resolved()},
        "rendered": Rendered({WEB: result}),
        **fields,
    }
    return web_context(target, **given)


def decision(target: PlanTarget = OURS, *given: Any, **fields: Any) -> "Decided":
    found = decide(target, context_of(target, *given, **fields))
    return Decided(stateless(compose(Parts(found))), found.problems)


class Decided(NamedTuple):
    """The change of one package, and the problems that its manifests have with it."""

    change: Change
    problems: tuple[Problem, ...] = ()


def test_two_variants_are_enough_to_contest_a_package() -> None:
    rivals = (a_desired("api"), a_desired("web"))

    found = decision(downstreams={PACKAGE: rivals})

    assert (found.change.message, len(found.problems)) == ("Wanted by default/api and default/web", 2)


# Variants without upstream or pin

MISSING = Problem(LOCATION, Reason.UPSTREAM_NOT_FOUND, "It is not there", "").owned_by(variant_key(WEB))
NOWHERE = a_target(package=a_package())


@pytest.mark.parametrize(
    ("target", "fields", "want"),
    [
        pytest.param(OURS, {"waiting": {WEB: "Its pin is not merged"}},
            {"reason": Reason.LOCK_PENDING, "message": "Its pin is not merged"}, id="it waits for its pin"),
        pytest.param(OURS, {"resolution": Resolution(problems=(MISSING,))},
            {"reason": Reason.OWNER_STALLED, "message": "It is not there"},
            id="no upstream: the package stays"),
        pytest.param(NOWHERE, {"resolution": Resolution(
            problems=(MISSING.owned_by(variant_key(ObjectName("default", "another"))), MISSING))},
            {"op": Op.BLOCK, "reason": Reason.UPSTREAM_NOT_FOUND, "message": "It is not there"},
            id="no upstream: a new package is blocked"),
        pytest.param(NOWHERE, {"resolution": Resolution(
            problems=(MISSING.owned_by(variant_key(ObjectName("default", "another"))),))},
            {"reason": Reason.OWNER_STALLED}, id="problems of other variants are no reason"),
        pytest.param(OURS, {}, {"reason": Reason.OWNER_STALLED}, id="nothing is known"),
        pytest.param(OURS, {"resolution": Resolution(problems=(MISSING,), publications={PACKAGE: (V2,)})},
            {"op": Op.PUBLISH, "reason": Reason.OWNER_STALLED, "message": "It is not there",
            "writes": (TAG,)}, id="revisions of main are tagged all the same"),
    ],
)  # fmt: skip
def test_package_of_a_variant_that_is_not_resolved(
    target: PlanTarget, fields: Mapping[str, Any], want: Mapping[str, Any]
) -> None:
    tree = target.package.main_tree

    found = decision(target, **{"resolved": {}, **fields})

    assert found == Decided(replace(KEPT, before=tree, tree=tree, **want))


# Packages that a variant may not have


def test_package_of_others_is_left_alone_with_a_problem() -> None:
    theirs = a_target(package=a_package(main_tree=oid("b1"), main_header=KptfileHeader()))
    message = "Package web in repository edge exists and is not ours"
    hint = "Set spec.adoptionPolicy to adoptExisting, or choose another downstream package."
    problem = Problem(DOWNSTREAM, Reason.PACKAGE_EXISTS, message, hint, f"PackageVariant {WEB}")

    assert decision(theirs) == Decided(
        replace(KEPT, reason=Reason.PACKAGE_EXISTS, message=message), (problem,)
    )
