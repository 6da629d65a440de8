"""What a cluster's packages came to, in the words of Crossplane, Carvel and Porter."""

import json
from itertools import chain
from typing import Any

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.plan.package_status import status_entries, status_files
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    world_of,
)
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
    owners = status_entries(json.loads(data))
    return {"/".join(filter(None, (o["kind"], o["namespace"], o["name"]))): dict(o) for o in owners}


def decision_of(world: ClusterInputs, locks: FleetLocks | None = None) -> LockUpdate:
    return update_locks(FleetInputs((world,)), locks or FleetLocks())


def conditions(one: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in one["conditions"]}


def test_a_package_names_its_revision_and_counts_its_dependencies() -> None:
    found = statuses(PLATFORM + NET)["Configuration/platform"]

    status = found["status"]
    assert status["currentIdentifier"] == "x.io/platform:v1.0.0"
    assert status["currentRevision"].startswith("platform-")
    assert (status["foundDependencies"], status["installedDependencies"], status["invalidDependencies"]) == (
        1,
        1,
        0,
    )
    assert conditions(found) == {"Ready": ("True", "Resolved"), "Stalled": ("False", "Valid")}


def test_what_was_generated_has_a_status_too() -> None:
    found = statuses(PLATFORM + NET)

    assert found["Provider/acme-net"]["status"]["currentIdentifier"] == "x.io/acme/net:v1.5.0"


def test_what_cannot_be_generated_for_want_of_an_input_is_stalled_as_its_parent_is() -> None:
    found = statuses(
        bundle("app", "1.0.0", "{requires: [{name: db, bundle: {reference: r.io/db, version: 1.x}}]}")
        + bundle("db", "1.0.0", more="parameters: [{name: size, type: string}]")
        + installation("app", "app")
    )

    db, app = (conditions(found[f"Installation/prod/{name}"]) for name in ("app-db", "app"))
    assert db == app == {"Ready": ("False", "UnboundInput"), "Stalled": ("True", "UnboundInput")}


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

    (found,) = status_entries(json.loads(document))
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


def test_clusters_that_have_the_same_differ_in_their_name_alone() -> None:
    worlds = [replace(world_of(PLATFORM + NET), cluster=name) for name in ("a", "b")]
    worlds[1] = replace(worlds[0], cluster="b")
    found = status_files(worlds, update_locks(FleetInputs(tuple(worlds)), FleetLocks()))

    one, other = (json.loads(data) for data in found.values())
    assert (one["cluster"], other["cluster"]) == ("a", "b")
    assert one["packages"] == other["packages"]


def test_the_documents_depend_on_nothing_but_the_decision() -> None:
    world = replace(world_of(PLATFORM + NET), cluster="dev")
    decision = decision_of(world)

    shuffled = replace(world, installs=world.installs[::-1])

    assert status_files([shuffled], decision) == status_files([world], decision)
    assert status_files([], decision_of(world)) == {}


@pytest.mark.parametrize(("source", "digest"), [("", ""), ("mirror.io/net", ""), ("", "sha256:ab")])
def test_package_is_identified_by_its_source_version_and_digest(source: str, digest: str) -> None:
    world = replace(world_of(PLATFORM + NET), cluster="dev")
    named = [replace(c, source=source, digest=digest) for c in chain(*world.catalogue.packages.values())]
    world = replace(world, catalogue=build_catalogue(named))

    (document,) = status_files([world], decision_of(world)).values()

    (shown,) = (each["status"] for each in status_entries(json.loads(document)) if each["name"] == "platform")
    image = f"{source or 'x.io/platform'}:v1.0.0"
    assert shown["currentIdentifier"] == image
    assert shown["resolvedPackage"] == (f"{image}@{digest}" if digest else image)


def test_a_manifest_that_keeps_another_package_than_it_names_has_one_status() -> None:
    packages = package("web.io", "1.0.0", needs("db.io")) + package("db.io", "1.0.0")
    before = decision_of(replace(world_of(packages + install("shop", "web.io", "")), cluster="dev"))

    found = statuses(packages + install("shop", "we.io", ""), read_locks(before.files))

    assert list(found) == ["PackageInstall/prod/db.io", "PackageInstall/prod/shop"]
    shop = found["PackageInstall/prod/shop"]
    assert conditions(shop)["Stalled"] == ("True", "DependencyConflict")
    assert shop["status"]["version"] == "1.0.0"
