"""What a cluster's packages came to, in the words of Crossplane, Carvel and Porter."""

import json
from typing import Any

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.plan.package_status import status_files
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, world_of
from tests.support.values import replace

PLATFORM = provider("platform", "v1.0.0", "Configuration") + crossplane(
    "platform", "v1.0.0", "[{provider: x.io/acme/net, version: '>=v1.0.0'}]"
)
NET = crossplane("acme/net", "v1.5.0").replace("kind: Configuration", "kind: Provider")
PLANNED = "{gvk: {apiVersion: log.io/v1, kind: Sink}}"
GVK = "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}"


def statuses(text: str, locks: FleetLocks | None = None) -> dict[str, Any]:
    world = replace(world_of(text), cluster="dev")
    (data,) = status_files([world], decision_of(world, locks)).values()
    owners = json.loads(data)["packages"]
    return {"/".join(filter(None, (o["kind"], o["namespace"], o["name"]))): dict(o) for o in owners}


def decision_of(world: ClusterInputs, locks: FleetLocks | None = None) -> LockUpdate:
    return update_locks(FleetInputs((world,)), locks or FleetLocks())


def conditions(one: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in one["conditions"]}


def test_a_revision_that_awaits_activation_is_not_ready_and_says_which_runs() -> None:
    manual = NET.replace("x.io/acme/net", "x.io/net")
    world = replace(
        world_of(
            provider("net", "v1.5.0").replace(":v1.5.0'", ":v1.5.0', revisionActivationPolicy: Manual")
            + manual
        ),
        cluster="dev",
    )
    (document,) = status_files([world], decision_of(world)).values()

    (found,) = json.loads(document)["packages"]
    ready = next(one for one in found["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "AwaitingActivation")
    assert "active is none" in ready["message"]
    assert found["status"]["currentRevision"].startswith("net-")
    assert found["status"]["currentIdentifier"] == "x.io/net:v1.5.0"


def test_every_dependency_is_listed_with_who_made_it_and_what_serves_an_api() -> None:
    found = statuses(
        install("shop", "web.io", "")
        + install("till", "pos.io", "")
        + install("mine", "log.io", "")
        + package("web.io", "1.0.0", needs("db.io", more=", alias: store"), needs("log.io"), GVK, PLANNED)
        + package("pos.io", "1.0.0", needs("db.io"))
        + package("db.io", "1.4.0")
        + package("log.io", "1.0.0", "provides: [{apiVersion: log.io/v1, kind: Sink}]")
        + "---\nkind: Cluster\napis: [certs.io/v1/Issuer]\n"
    )
    db = {"refName": "db.io", "packageInstallRef": "db.io", "version": "1.4.0"}
    log = {"refName": "log.io", "packageInstallRef": "mine", "version": "1.0.0"}

    till = {"created": False, "package": db}
    assert found["PackageInstall/prod/till"]["status"]["dependencies"] == [till]
    assert found["PackageInstall/prod/shop"]["status"]["dependencies"] == [
        {"alias": "store", "created": True, "package": db},
        {"created": False, "package": log},
        {"created": False, "gvk": {"apiVersion": "certs.io/v1", "kind": "Issuer"}},
        {
            "created": False,
            "gvk": {"apiVersion": "log.io/v1", "kind": "Sink", "providedBy": "log.io", "version": "1.0.0"},
        },
    ]


CONTESTED = "".join(
    provider(name, "v1.0.0") + crossplane(name, "v1.0.0", kinds="s3.io/v1/Bucket")
    for name in ("aws", "store")
)


@pytest.mark.parametrize(
    ("text", "package", "reason", "fact"),
    [
        (PLATFORM, "Configuration/platform", "DependencyConflict", "x.io/acme/net"),
        (CONTESTED, "Provider/store", "OwnershipConflict", "Bucket.s3.io"),
    ],
)
def test_a_missing_dependency_and_a_kind_of_another_package_stall_a_package_with_the_facts(
    text: str, package: str, reason: str, fact: str
) -> None:
    found = statuses(text)

    stalled = {name: conditions(status)["Stalled"] for name, status in found.items()}
    assert stalled == {**dict.fromkeys(found, ("False", "Valid")), package: ("True", reason)}
    assert found[package]["status"]["invalidDependencies"] == 1
    assert all(fact in condition["message"] for condition in found[package]["conditions"])
