"""Where the generated manifests of a cluster go: said by annotation, else the one repository there is."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from reconciler.api.porch import PackageVariantSpec, Repository
from reconciler.errors import Location, Problem
from reconciler.expand import DesiredVariant
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import Draft, RepositoryView, Source
from reconciler.resolve.deliveries import (
    TARGET_ANNOTATION,
    DeliveryTarget,
    delivery_trees,
    find_delivery_target,
)
from reconciler.resolve.resolution import ResolvedVariant
from tests.support.plan_values import PACKAGE, WEB, a_draft, a_pin, oid


class Case(NamedTuple):
    reason: str
    views: Mapping[str, tuple[str, bool, str | None]]
    want: str
    path: str = "dependencies"


CASES = [
    Case("the only repository of the cluster", {"a": ("dev", True, None)}, "a/dependencies"),
    Case("one that is not deployed from will do", {"a": ("dev", False, None)}, "a/dependencies"),
    Case(
        "of two the one that is deployed from",
        {"a": ("dev", False, None), "b": ("dev", True, None)},
        "b/dependencies",
    ),
    Case("an annotation chooses", {"a": ("dev", True, None), "b": ("dev", False, "x/y")}, "b/x/y"),
    Case("another cluster's does not count", {"a": ("prod", True, "x")}, "note: no Repository belongs to it"),
    Case("two that are deployed from", {"a": ("dev", True, None), "b": ("dev", True, None)}, "note: a, b"),
    Case("nothing is to be delivered", {"a": ("dev", True, None)}, "note: ", path=""),
    Case("nothing, but here", {"a": ("dev", True, "x")}, "a/x", path=""),
    Case("two say so", {"a": ("dev", True, "x"), "b": ("dev", True, "x")}, "problem: DuplicateDownstream"),
    Case("outside", {"a": ("dev", True, "../x")}, "problem: InvalidName"),
    Case("absolute", {"a": ("dev", True, "/x")}, "problem: InvalidName"),
    Case("nowhere", {"a": ("dev", True, "")}, "problem: InvalidName"),
]


def view(name: str, cluster: str, *, deployment: bool, place: str | None) -> RepositoryView:
    notes = {} if place is None else {TARGET_ANNOTATION: place}
    manifest = Repository.model_validate(
        {
            "apiVersion": "config.porch.kpt.dev/v1alpha1",
            "kind": "Repository",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"type": "git", "deployment": deployment, "git": {"repo": f"https://x/{name}"}},
        }
    )
    source = Source(Location(f"{name}.yaml", 1))
    return RepositoryView(ObjectName("ns", name), name, name, "main", "", manifest, source, cluster)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_places(case: Case) -> None:
    views = [view(name, c, deployment=d, place=p) for name, (c, d, p) in case.views.items()]

    found = find_delivery_target("dev", [one for one in views if one.cluster == "dev"], case.path, "fleet")

    match found:
        case DeliveryTarget():
            assert f"{found.view.key.name}/{found.path}" == case.want
        case Problem():
            assert f"problem: {found.reason}" == case.want
        case _:
            assert case.want.startswith("note: ")
            assert case.want.removeprefix("note: ") in found


@pytest.mark.parametrize("settled", [None, oid("c1")])
@pytest.mark.parametrize("local", [None, oid("b1")])
@pytest.mark.parametrize(
    ("draft", "is_read"),
    [(None, False), (a_draft(), False), (a_draft(has_foreign_commits=True), True)],
    ids=["no draft", "our draft", "a person's draft"],
)
def test_delivery_reads_main_and_a_persons_draft_unless_it_is_up_to_date(
    settled: Oid | None, local: Oid | None, draft: Draft | None, *, is_read: bool
) -> None:
    variant = DesiredVariant(WEB, "", PackageVariantSpec(), Source(Location("edge.yaml")))
    resolved = ResolvedVariant(variant, WEB, PACKAGE, a_pin(), local=local, draft=draft, settled=settled)

    expected = [tree for tree in (local, oid("d1") if is_read else None) if tree]
    assert list(delivery_trees(resolved)) == ([] if settled else expected)
