"""Trees to fetch: what rendering a variant reads, and nothing else (D15)."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.inventory.inventory import Draft, Source
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.trailers import Answers, ConflictName
from reconciler.resolve.resolution import ResolvedVariant, collect_needs, variant_trees
from tests.support.plan_values import WEB, a_desired_variant, a_draft, a_pin, a_resolved, oid
from tests.support.values import replace

PIN, BASE, DRAFT_BASE = a_pin(3), a_pin(1), a_pin(2, package=PackageKey("host/old", "web"))
OF_PIN = ("host/blueprints", PIN.tree)
OF_BASE = ("host/blueprints", BASE.tree)
OF_DRAFT_BASE = ("host/old", DRAFT_BASE.tree)
MAIN = ("host/edge", oid("e1"))
DRAFT = ("host/edge", oid("d1"))
FORK = ("host/edge", oid("b1"))
WRITTEN = ("host/edge", oid("d9"))
ASKED = ("host/blueprints", oid("c9"))


def resolved(**fields: Any) -> ResolvedVariant:
    variant = a_desired_variant(source=Source(Location("edge.yaml")))
    return a_resolved(variant=variant, view=WEB, **{"pin": PIN, **fields})


def persons(**fields: Any) -> Draft:
    return a_draft(has_foreign_commits=True, **fields)


ANSWERED = Answers(named={ConflictName("a.yaml", "-", "-", ""): "upstream"})
CASES: dict[str, tuple[dict[str, Any], set[tuple[str, Oid]]]] = {
    "a new package": ({}, {OF_PIN}),
    "an update": ({"local": oid("e1"), "base": BASE}, {MAIN, OF_BASE, OF_PIN}),
    "an update to the same content": ({"local": oid("e1"), "base": replace(BASE, tree=PIN.tree)},
        {MAIN, OF_PIN}),
    "a package that is up to date": ({"local": oid("e1"), "base": BASE, "settled": oid("e1")}, set()),
    "a package whose base is lost": ({"local": oid("e1"), "lost_base": "It is gone"}, {MAIN}),
    "a package without upstreamLock": ({"local": oid("e1"), "candidates": (PIN, BASE)},
        {MAIN, OF_PIN, OF_BASE}),
    "our draft": ({"draft": a_draft(), "draft_base": DRAFT_BASE}, {OF_PIN}),
    "a person's draft": ({"draft": persons(), "draft_base": DRAFT_BASE}, {OF_PIN, DRAFT, OF_DRAFT_BASE}),
    "a person's draft at the upstream": ({"local": oid("b1"), "base": PIN, "draft": persons(),
        "draft_base": PIN}, {FORK, DRAFT, OF_PIN}),
    "a person's draft behind main": ({"local": oid("e1"), "base": PIN, "draft": persons(), "draft_base": PIN},
        {MAIN, DRAFT, FORK, OF_PIN}),
    "a person's draft of a package that was not there": ({"local": oid("e1"), "base": PIN,
        "draft": persons(base_tree=None), "draft_base": PIN}, {MAIN, DRAFT, OF_PIN}),
    "a person's draft of a package that is gone": ({"draft": persons(), "draft_base": PIN}, {OF_PIN, DRAFT}),
    "answered conflicts": ({"local": oid("b1"), "base": PIN,
        "draft": persons(answers=ANSWERED, written=oid("d9")), "draft_base": PIN},
        {FORK, DRAFT, OF_PIN, WRITTEN}),
    "answered conflicts in a draft without a commit of ours": ({"local": oid("b1"), "base": PIN,
        "draft": persons(answers=ANSWERED, written=None), "draft_base": PIN}, {FORK, DRAFT, OF_PIN}),
    "conflicts that wait": ({"local": oid("b1"), "base": PIN, "draft": persons(), "draft_base": PIN,
        "asked_from": oid("c9")}, {FORK, DRAFT, ASKED, OF_PIN}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rendering_reads_what_it_merges(case: str) -> None:
    fields, trees = CASES[case]

    assert set(variant_trees(resolved(**fields))) == trees


def test_contents_from_before_are_read_unless_the_package_is_settled() -> None:
    before = {"former": (oid("f1"),), "draft_base": PIN}
    edited, without_ours, settled = (
        collect_needs([resolved(**before, **fields)], ()).trees.get("host/edge", frozenset())
        for fields in (
            {"draft": persons(written=oid("d9"))},
            {"draft": persons(written=None)},
            {"local": oid("e1"), "settled": oid("e1")},
        )
    )

    assert edited - without_ours == {oid("d9")}
    assert oid("f1") in without_ours
    assert None not in without_ours
    assert settled == frozenset()
