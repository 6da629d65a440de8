"""Decisions about packages that variants want: everything around the content of the draft."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import spec_data, variant_key
from reconciler.inventory.inventory import Commit, Control, PackageRevision
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.compose import Parts, compose
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.decide import decide
from reconciler.records.state import PackageVariantRecord
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

    assert found.change.message == "Wanted by default/api and default/web"
    others = {p.owner.name: p.message.partition("downstream of ")[2] for p in found.problems if p.owner}
    assert {name: text.partition(" (")[0] for name, text in others.items()} == {
        "api": "default/web",
        "web": "default/api",
    }


# Commits that do not contain what was applied last

SPEC = a_desired().spec
RECORD = plan_values.a_record(spec=spec_data(a_desired()))
ELSEWHERE = (replace(RECORD, url="host/west"), replace(RECORD, path="old"))
LETS_GO, ASKS_ELSE = "lets it go", "asks for something else"


@pytest.mark.parametrize(
    ("position", "before", "record", "newer"),
    [
        (Position.UNMERGED, SPEC, None, LETS_GO),
        (Position.UNMERGED, SPEC, RECORD, ""),
        (Position.UNMERGED, SPEC, replace(RECORD, spec={}), ASKS_ELSE),
        *((Position.UNMERGED, SPEC, record, ASKS_ELSE) for record in ELSEWHERE),
        (Position.UNMERGED, a_desired(labels={"a": "b"}).spec, None, ""),
        (Position.UNMERGED, None, None, ""),
        (Position.BEHIND, None, None, LETS_GO),
        (Position.BEHIND, None, RECORD, ""),
        (Position.BEHIND, None, ELSEWHERE[0], ASKS_ELSE),
        (Position.CURRENT, SPEC, None, ""),
    ],
)
def test_newer_commit_decides_unless_this_one_brings_a_wish_of_its_own(
    position: Position, before: PackageVariantSpec | None, record: PackageVariantRecord | None, newer: str
) -> None:
    contains = position is Position.CURRENT
    standing = Standing(position, 3, oid("e1"), oid("d1"), "main", contains_applied=contains)
    control = Control("u", "u", Commit(oid("c1"), 1), standing=standing)
    control = replace(control, before=None if before is None else {(WEB, PACKAGE): before})
    inventory = {"control": control, "records": {WEB: record} if record else {}}

    change = decision(inventory=inventory).change

    where = (
        "This commit does not contain d1000000, which was applied last"
        if position is Position.UNMERGED
        else "This checkout is 3 commits behind main (e1000000 is the tip)"
    )
    assert change.message == (f"{where}, and a newer commit {newer}" if newer else "")
    assert change.reason is (Reason.CHECKOUT_OUTDATED if newer else Reason.UP_TO_DATE)
    if not newer and position is not Position.CURRENT and record is RECORD:
        gone = decision(inventory=inventory, proposed_deletions=frozenset({PACKAGE})).change
        assert gone.message == f"{where}, and a newer commit {LETS_GO}"


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
def test_package_of_a_variant_that_is_not_resolved(target, fields, want) -> None:
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
