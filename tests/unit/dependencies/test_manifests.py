"""Manifests of generated packages, one controller at a time, by whole documents."""

from typing import Any

import pytest

from reconciler.base.values import Refused
from reconciler.dependencies.model.instances import (
    DesiredState,
    Instance,
    LockedRevision,
    Resolved,
    Slot,
    SlotKind,
)
from reconciler.render.delivery import (
    GeneratedPackage,
    ObjectRef,
    active_version,
    emit_carvel,
    emit_crossplane,
    image_of,
    needed_by,
)

DIGEST = f"sha256:{'0' * 64}"
NOTES = {"reconciler.dev/owner": "demo"}


def generated(
    name: str, kind: str, slot: Slot | None = None, package: dict[str, Any] | None = None, **fields: Any
) -> GeneratedPackage:
    instance = Instance(ecosystem="x", name=name, slot=slot or Slot(SlotKind.CLUSTER))
    locked = Resolved(instance=instance, dialect="d", **{"version": "v1.2.0", **(package or {})})
    return GeneratedPackage(locked, ObjectRef(kind, "shop", "object"), **{"parents": (), **fields})


# Crossplane


@pytest.mark.parametrize(
    ("package", "image"),
    [
        ({}, "x.io/aws:v1.2.0"),
        ({"source": "mirror.io/aws"}, "mirror.io/aws:v1.2.0"),
        ({"digest": DIGEST}, f"x.io/aws:v1.2.0@{DIGEST}"),
        ({"digest": "0" * 40}, "x.io/aws:v1.2.0"),
    ],
)
def test_crossplane_package_is_its_image_and_what_it_inherits(package: dict[str, str], image: str) -> None:
    made = generated("x.io/aws", "Provider", package=package, settings={"packagePullPolicy": "Always"})

    assert emit_crossplane(made, NOTES) == {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Provider",
        "metadata": {"name": "object", "annotations": NOTES},
        "spec": {"package": image, "packagePullPolicy": "Always"},
    }


def test_crossplane_package_that_the_api_server_would_refuse_is_explained() -> None:
    assert emit_crossplane(generated("x.io/aws", ""), {}) == Refused(
        "It is not known whether x.io/aws is a Provider, Configuration or Function"
    )
    assert emit_crossplane(generated("acme/aws", "Provider"), {}) == Refused(
        "acme/aws:v1.2.0 names no registry with a domain, which Crossplane asks for"
    )


def test_image_has_a_digest_of_its_registry_alone() -> None:
    assert image_of("x.io/a", "v1", "") == image_of("x.io/a", "v1", "0" * 40) == "x.io/a:v1"
    assert image_of("x.io/a", "v1", DIGEST) == f"x.io/a:v1@{DIGEST}"


# Revisions


def revision(number: int, state: DesiredState, **fields: Any) -> LockedRevision:
    return LockedRevision(
        package="Provider/aws", name=f"aws-{number}", revision=number, desired_state=state, **fields
    )


ACTIVE, WAITING = DesiredState.ACTIVE, DesiredState.INACTIVE
PROVIDER = generated("x.io/aws", "Provider", package={"digest": DIGEST})
OLD = revision(1, ACTIVE, image="x.io/aws:v1.0.0", digest="sha256:old")
NEW = revision(2, WAITING, current=True, image="x.io/aws:v1.2.0")


def versions(*revisions: LockedRevision) -> tuple[str, str] | None:
    made = active_version(PROVIDER, revisions)
    return (made.package.version, made.package.digest) if made else None


def test_version_that_may_run_is_the_wanted_one_unless_it_waits() -> None:
    wanted = ("v1.2.0", DIGEST)

    assert versions() == versions(OLD) == wanted
    assert versions(OLD, revision(2, ACTIVE, current=True)) == wanted
    assert versions(OLD, NEW) == ("v1.0.0", "sha256:old")
    assert versions(NEW) is None


def test_running_revision_without_a_tag_keeps_the_version_and_its_own_digest() -> None:
    untagged = revision(1, ACTIVE, image="x.io/aws", digest="sha256:old")
    pinned = revision(1, ACTIVE, image=f"x.io/aws@{DIGEST}", digest="sha256:old")

    assert versions(untagged, NEW) == ("v1.2.0", "sha256:old")
    assert versions(pinned, NEW) == ("v1.2.0", DIGEST)


# Carvel

ACCOUNT = {"serviceAccountName": "installer"}


def test_carvel_install_without_an_owner_and_of_a_prerelease() -> None:
    package = {"version": "1.2.0-rc.1"}

    document = emit_carvel(generated("db.io", "PackageInstall", package=package, settings=ACCOUNT), {})

    assert isinstance(document, dict)
    assert document["metadata"]["annotations"] == {}
    selection = {"constraints": "1.2.0-rc.1", "prereleases": {}}
    assert document["spec"] == {**ACCOUNT, "packageRef": {"refName": "db.io", "versionSelection": selection}}


# Porter


# Files


@pytest.mark.parametrize(
    ("document", "packages"),
    [
        ({"metadata": {"annotations": {"reconciler.dev/needed-by": "a, b"}}}, {"a", "b"}),
        ({"custom": {"reconciler.dev/needed-by": "a"}}, {"a"}),
        ({"metadata": {"annotations": {"reconciler.dev/needed-by": ""}}}, set()),
        ({}, set()),
    ],
)
def test_packages_that_need_a_generated_one_are_in_its_annotation(
    document: dict[str, Any], packages: set[str]
) -> None:
    assert needed_by(document) == packages
