"""Where the generated manifests of a cluster go: said by annotation, else the one repository there is."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.api.porch import Repository
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import Refused
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import (
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    version_range,
)
from reconciler.inventory.inventory import Commit, RepositoryView, Source
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.resolve.deliveries import (
    RETRY,
    TARGET_ANNOTATION,
    Deliveries,
    Delivery,
    DeliveryTarget,
    find_delivery_target,
    pin_delivery,
    resolve_deliveries,
)
from reconciler.resolve.resolution import Pin
from tests.support.plan_values import oid
from tests.support.sets import world
from tests.support.values import replace


class Case(NamedTuple):
    reason: str
    views: Mapping[str, tuple[str, bool, str | None]]
    want: str
    path: str = "dependencies"


CASES = [
    Case("the only repository of the cluster", {"a": ("dev", True, None)}, "a/dependencies"),
    Case("one that is not deployed from will do", {"a": ("dev", False, None)}, "a/dependencies"),
    Case("of two the one that is deployed from", {"a": ("dev", False, None), "b": ("dev", True, None)},
        "b/dependencies"),
    Case("an annotation chooses", {"a": ("dev", True, None), "b": ("dev", False, "x/y")}, "b/x/y"),
    Case("another cluster's does not count", {"a": ("prod", True, "x")}, "note: no Repository belongs to it"),
    Case("two that are deployed from", {"a": ("dev", True, None), "b": ("dev", True, None)}, "note: a, b"),
    Case("nothing is to be delivered", {"a": ("dev", True, None)}, "note: ", path=""),
    Case("nothing, but here", {"a": ("dev", True, "x")}, "a/x", path=""),
    Case("two say so", {"a": ("dev", True, "x"), "b": ("dev", True, "x")}, "problem: DuplicateDownstream"),
    Case("outside", {"a": ("dev", True, "../x")}, "problem: InvalidName"),
    Case("absolute", {"a": ("dev", True, "/x")}, "problem: InvalidName"),
    Case("nowhere", {"a": ("dev", True, "")}, "problem: InvalidName"),
]  # fmt: skip


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
        case Refused():
            assert case.want.startswith("note: ")
            assert case.want.removeprefix("note: ") in found.why
        case None:
            assert case.want == "note: "


# Deliveries of a fleet

LOCK = PackageLock(scope=LockScope(cluster="prod"), input_digest="sha256:1", resolution="sha256:2")


def locked(*, is_generated: bool = True, **fields: Any) -> ClusterLock:
    package = Resolved(
        instance=Instance(ecosystem=Ecosystem.XPKG, name="net", slot=Slot(SlotKind.CLUSTER)),
        dialect="crossplane",
        version="1.0.0",
        by_user=not is_generated,
    )
    return ClusterLock(msgspec.structs.replace(LOCK, **fields), LockedResolution(packages=(package,)))


def a_cluster(name: str = "prod", *paths: str) -> ClusterInputs:
    need = PackageNeed(PackageId(Ecosystem.XPKG, "net"), version_range(Dialect.CROSSPLANE, ""))
    installs = (Install("", path, Dialect.CROSSPLANE, need, location=Location(path)) for path in paths)
    return ClusterInputs(tuple(installs), Catalogue(), cluster=name)


EDGE = replace(view("edge", "prod", deployment=True, place=None), head=Commit(oid("e1"), 5))
INPUTS = FleetInputs((a_cluster(),))


def deliveries(
    *scopes: ClusterUpdate,
    views: Sequence[RepositoryView] = (EDGE,),
    inputs: FleetInputs = INPUTS,
    **fields: Any,
) -> Deliveries:
    fields = {"policy": Policy(instance="fleet"), **fields}
    inventory = replace(world(views=tuple(views)), **fields)
    return resolve_deliveries(
        inventory, inputs, LockUpdate(scopes or (ClusterUpdate("prod", None, locked()),))
    )


def delivered(*scopes: ClusterUpdate, **fields: Any) -> Delivery:
    (delivery,) = deliveries(*scopes, **fields).items
    return delivery


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/x", "package path '/x' is not valid: it begins with a slash"),
        ("../x", 'package path "../x" is not valid: '),
    ],
)
def test_place_that_is_not_valid_is_a_problem_at_the_annotation(path: str, message: str) -> None:
    here = replace(
        view("edge", "prod", deployment=True, place=path), source=Source(Location("e.yaml", 4), 0, Marks())
    )

    (problem,) = deliveries(views=[here]).problems

    assert problem.message.startswith(message)
    assert replace(problem, message="") == Problem(
        Location("e.yaml", 9, 1),
        Reason.INVALID_NAME,
        "",
        "Write the path of a package below the Repository's directory, `dependencies` for example.",
        "Repository ns/edge",
    )


class Marks:
    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        return 9 if path == ("metadata", "annotations", TARGET_ANNOTATION) else 1, 1


def test_nothing_to_generate_is_no_note() -> None:
    nowhere = ClusterUpdate("dev", None, locked(is_generated=False))
    off = Policy(dependencies=replace(Policy().dependencies, path=""))

    assert deliveries(nowhere) == Deliveries()
    assert deliveries(ClusterUpdate("dev", None, locked())).undelivered == {
        "dev": "Nothing is delivered to cluster dev: no Repository belongs to it; "
        "register one, or remove its manifests, clusters/dev"
    }
    assert deliveries(policy=off) == Deliveries()


def test_lock_is_the_upstream_of_what_is_generated() -> None:
    pin = pin_delivery(delivered(), oid("c9"), world(views=(EDGE,))).pin

    assert pin == Pin(
        package=PackageKey("host/control", "locks"),
        remote="https://host/control",
        ref="locks/prod",
        revision=-1,
        commit=Commit(oid("c9"), 0),
        tree=oid("c9"),
        repository="control",
        name="locks",
    )


def test_annotation_to_try_again_is_that_of_the_repository() -> None:
    manifest = EDGE.manifest.model_copy(deep=True)
    metadata = manifest.metadata.model_copy(update={"annotations": {RETRY: "2"}})
    edge = replace(EDGE, manifest=manifest.model_copy(update={"metadata": metadata}))

    assert delivered(views=(edge,)).resolved.variant.annotations == {RETRY: "2"}
    assert delivered().resolved.variant.annotations == {}


def test_edited_lock_is_delivered_although_it_keeps_its_name() -> None:
    before = locked()
    (package,) = before.resolution.packages
    edited = replace(before, resolution=LockedResolution(packages=(replace(package, version="1.1.0"),)))

    digests = [delivered(ClusterUpdate("prod", None, lock)).digest for lock in (before, edited, locked())]

    assert digests[0] == digests[2] != digests[1]
