"""Where the generated manifests of a cluster go: said by annotation, else the one repository there is."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Downstream, PackageVariantSpec, Repository
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import Refused
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import (
    ClusterLock,
    ClusterUpdate,
    DesiredState,
    LockedRevision,
    LockScope,
    LockUpdate,
    PackageLock,
)
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
from reconciler.expand.owners import with_defaults
from reconciler.expand.variants import stable_uid, variant_key
from reconciler.inventory.inventory import (
    Commit,
    Draft,
    PackageState,
    RepositoryView,
    Source,
    SourcedDocument,
)
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.deliveries import (
    FORMAT_VERSION,
    TARGET_ANNOTATION,
    Deliveries,
    Delivery,
    DeliveryTarget,
    cluster_of,
    delivery_digest,
    delivery_trees,
    find_delivery_target,
    pin_delivery,
    resolve_deliveries,
)
from reconciler.resolve.resolution import Pin, ResolvedVariant
from tests.support.plan_values import WEB, a_desired_variant, a_draft, a_record, a_resolved, oid
from tests.support.sets import a_package, world
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
    variant = a_desired_variant(source=Source(Location("edge.yaml")))
    resolved = a_resolved(variant=variant, view=WEB, local=local, draft=draft, settled=settled)

    expected = [tree for tree in (local, oid("d1") if is_read else None) if tree]
    assert list(delivery_trees(resolved)) == ([] if settled else expected)


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
HINT = f"annotate one of its Repositories with {TARGET_ANNOTATION}: dependencies"
OWNER = ObjectName("ns", "dependencies@prod")


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


def digest_of(*, lock: ClusterLock | None = None, is_complete: bool = True, **fields: str) -> str:
    own = lock or locked()
    return delivery_digest(
        FORMAT_VERSION,
        own.lock.input_digest,
        own.lock.resolution,
        fields.get("owner", "fleet/ns/dependencies@prod"),
        fields.get("shared", Policy().dependencies.shared_namespace),
        "ns/edge",
        "dependencies",
        is_complete,
    )


def test_delivery_is_a_variant_whose_upstream_is_the_lock() -> None:
    delivery = delivered()

    pin = Pin(
        PackageKey("host/control", "locks"),
        "https://host/control",
        "locks/prod",
        -1,
        Commit(Oid(""), 0),
        Oid(""),
        repository="control",
        name="locks",
    )
    assert delivery == Delivery(
        "prod",
        DeliveryTarget(EDGE, "dependencies"),
        a_cluster(),
        locked(),
        is_complete=True,
        digest=digest_of(),
        resolved=a_resolved(
            variant=a_desired_variant(
                key=OWNER,
                uid=stable_uid("fleet", *OWNER),
                spec=with_defaults(
                    PackageVariantSpec(downstream=Downstream(repo="edge", package="dependencies"))
                ),
                source=EDGE.source,
                times=(0,),
            ),
            view=EDGE.key,
            downstream=PackageKey("edge", "dependencies"),
            pin=pin,
            inputs=digest_of(),
        ),
    )
    assert delivery.owner == OWNER
    assert cluster_of(OWNER) == "prod"
    assert cluster_of(ObjectName("ns", "web")) == ""


def test_delivery_of_a_package_on_main_has_the_recorded_tree_as_its_base() -> None:
    header = KptfileHeader(owner="fleet/ns/dependencies@prod", location="edge/dependencies")
    draft = a_draft(path="dependencies", header=header, tree=oid("d1"))
    state = a_package("dependencies", main_tree=oid("b1"), main_header=header, drafts=(draft,))
    record = a_record(
        namespace="ns",
        name=OWNER.name,
        url="edge",
        path="dependencies",
        upstream_commit=oid("c1"),
        upstream_tree=oid("c2"),
        local_tree=oid("b1"),
        output_tree=oid("b1"),
        inputs=digest_of(),
    )

    def resolved(own: PackageVariantRecord, package: PackageState = state) -> ResolvedVariant:
        here = replace(EDGE, packages={"dependencies": package})
        return delivered(views=[here], records={OWNER: own}).resolved

    result = resolved(record)
    assert (result.pin.tree, result.pin.commit) == (oid("c2"), Commit(oid("c2"), 0))
    base = replace(result.pin, commit=Commit(oid("c1"), 0), tree=oid("c1"))
    assert (result.base, result.draft_base) == (base, base)
    assert (result.local, result.draft, result.settled) == (oid("b1"), draft, oid("b1"))

    of_other_inputs = resolved(replace(record, inputs="other"))
    assert of_other_inputs == replace(result, settled=None)
    without_commit = resolved(replace(record, upstream_commit=""))
    assert (without_commit.base, without_commit.draft_base) == (None, None)
    not_merged = resolved(record, replace(state, main_tree=None))
    assert (not_merged.base, not_merged.draft_base, not_merged.local) == (None, base, None)


def test_pinned_delivery_is_of_the_generated_tree_and_of_further_inputs_if_there_are_any() -> None:
    inventory = replace(world(views=(EDGE,)), policy=Policy(instance="fleet"))
    delivery = delivered()

    pinned = pin_delivery(delivery, oid("c9"), inventory)
    assert (pinned.pin.tree, pinned.pin.commit, pinned.inputs) == (
        oid("c9"),
        Commit(oid("c9"), 0),
        delivery.digest,
    )
    assert pin_delivery(delivery, oid("c9"), inventory, "more").inputs == "more"


DOWN = Problem(Location("r.yaml"), Reason.REPOSITORY_UNAVAILABLE, "It is down")


def test_cluster_of_which_something_is_unknown_keeps_its_package() -> None:
    stalled = Deliveries(stalled=frozenset({variant_key(OWNER)}))

    unfinished = ClusterUpdate("prod", None, locked(), finished=False)
    assert deliveries(unfinished, inputs=FleetInputs()) == stalled
    assert deliveries(views=[replace(EDGE, problem=DOWN)]) == stalled


def test_cluster_in_which_nobody_installs_anything_any_more_is_delivered_without_needs() -> None:
    unfinished = ClusterUpdate("prod", None, locked(), finished=False)

    assert delivered(inputs=FleetInputs()).inputs == ClusterInputs((), Catalogue(), cluster="prod")
    assert delivered(unfinished).inputs == a_cluster()


def test_clusters_without_a_lock_or_a_place_do_not_keep_others_from_their_delivery() -> None:
    several = (view("a", "dev", deployment=True, place=None), view("b", "dev", deployment=True, place=None))
    twice = tuple(
        replace(v, cluster="two")
        for v in (view("c", "", deployment=True, place="x"), view("d", "", deployment=True, place="x"))
    )
    scopes = (
        ClusterUpdate("none", None, None),
        ClusterUpdate("dev", None, locked()),
        ClusterUpdate("two", None, locked()),
        ClusterUpdate("prod", None, locked()),
    )

    result = deliveries(*scopes, views=(*several, *twice, EDGE))

    assert [delivery.cluster for delivery in result.items] == ["prod"]
    assert result.notes == (
        f"Nothing is delivered to cluster dev: it has several Repositories, a, b; {HINT}",
    )
    (problem,) = result.problems
    assert problem == Problem(
        twice[0].source.at("metadata", "annotations", TARGET_ANNOTATION),
        Reason.DUPLICATE_DOWNSTREAM,
        "The manifests of cluster two would also go to Repository ns/d (d.yaml:1)",
        f"Keep the annotation {TARGET_ANNOTATION} on one of them.",
        "Repository ns/c",
    )


def test_nothing_to_generate_is_no_note() -> None:
    nowhere = ClusterUpdate("dev", None, locked(is_generated=False))
    off = Policy(dependencies=replace(Policy().dependencies, path=""))

    assert deliveries(nowhere) == Deliveries()
    assert deliveries(ClusterUpdate("dev", None, locked())).notes == (
        f"Nothing is delivered to cluster dev: no Repository belongs to it; {HINT}",
    )
    assert deliveries(policy=off) == Deliveries()


@pytest.mark.parametrize(
    ("fields", "is_complete"),
    [
        ({}, True),
        ({"inputs": FleetInputs((a_cluster(),), frozenset({"prod"}))}, False),
        ({"inputs": FleetInputs((a_cluster(),), frozenset({""}))}, False),
        ({"inputs": FleetInputs((a_cluster(),), frozenset({"dev"}))}, True),
        ({"control": replace(world().control, readable=False)}, False),
        ({"control": replace(world().control, broken=frozenset({"a.yaml"}))}, False),
    ],
)
def test_delivery_is_complete_if_everything_about_its_cluster_is_understood(
    fields: dict[str, Any], *, is_complete: bool
) -> None:
    delivery = delivered(**fields)

    assert delivery.is_complete is is_complete
    assert delivery.digest == digest_of(is_complete=is_complete)


def test_lock_without_a_digest_of_its_inputs_settles_nothing() -> None:
    old = ClusterUpdate("prod", None, locked(input_digest=""))
    record = a_record(namespace="ns", name=OWNER.name, output_tree=oid("b1"), local_tree=oid("b1"))
    here = replace(EDGE, packages={"dependencies": a_package("dependencies", main_tree=oid("b1"))})

    delivery = delivered(old, views=[here], records={OWNER: record})

    assert (delivery.digest, delivery.resolved.settled) == ("", None)


def test_everything_that_a_delivery_is_generated_from_makes_a_digest_of_its_own() -> None:
    revision = LockedRevision(
        package="Provider/net", name="net-1", revision=1, digest="", desired_state=DesiredState.ACTIVE
    )
    moved = replace(EDGE, manifest=view("edge", "prod", deployment=True, place="other").manifest)
    renamed = replace(EDGE, key=ObjectName("ns", "west"))
    shared = Policy(instance="fleet", dependencies=replace(Policy().dependencies, shared_namespace="s"))
    given: list[Delivery] = [
        delivered(),
        delivered(ClusterUpdate("prod", None, locked(input_digest="sha256:3"))),
        delivered(ClusterUpdate("prod", None, locked(resolution="sha256:3"))),
        delivered(ClusterUpdate("prod", None, locked(revisions=(revision,)))),
        delivered(policy=Policy(instance="other")),
        delivered(policy=shared),
        delivered(views=[moved]),
        delivered(views=[renamed]),
    ]

    assert len({delivery.digest for delivery in given}) == len(given)


def test_variant_of_a_delivery_has_the_times_of_its_inputs_and_the_retry_of_its_repository() -> None:
    documents = tuple(
        SourcedDocument({}, Source(Location(path), time))
        for path, time in (("a.yaml", 11), ("b.yaml", 12), ("c.yaml", 13))
    )
    index = tuple(SourcedDocument({}, Source(Location("index.yaml"), time)) for time in (21, 22, 20))
    retry = {"reconciler.dev/retry": "1", "other": "2"}
    meta = EDGE.manifest.metadata.model_copy(update={"annotations": retry})
    here = replace(EDGE, manifest=EDGE.manifest.model_copy(update={"metadata": meta}))

    variant = delivered(
        views=[here],
        inputs=FleetInputs((a_cluster("prod", "a.yaml", "b.yaml", "gone.yaml"),)),
        documents=documents,
        index=index,
    ).resolved.variant

    assert sorted(variant.times) == [11, 12, 22]
    assert variant.annotations == {"reconciler.dev/retry": "1"}
