"""Manifests of generated packages, one controller at a time, by whole documents."""

from typing import Any, cast

import pytest

from reconciler.base.values import Refused
from reconciler.dependencies.lock.format import DesiredState, LockedRevision
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.render.delivery import (
    GeneratedPackage,
    ObjectRef,
    active_version,
    add_checksum_header,
    emit_carvel,
    emit_crossplane,
    emit_porter,
    has_header,
    image_of,
    is_unmodified,
    needed_by,
)
from tests.support.values import replace

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

SHOP = ObjectRef("PackageInstall", "shop", "shop")
ACCOUNT = {"serviceAccountName": "installer"}


def test_carvel_install_without_an_owner_and_of_a_prerelease() -> None:
    package = {"version": "1.2.0-rc.1"}

    document = emit_carvel(generated("db.io", "PackageInstall", package=package, settings=ACCOUNT), {})

    assert isinstance(document, dict)
    assert document["metadata"]["annotations"] == {}
    selection = {"constraints": "1.2.0-rc.1", "prereleases": {}}
    assert document["spec"] == {**ACCOUNT, "packageRef": {"refName": "db.io", "versionSelection": selection}}


def test_carvel_install_needs_an_account_or_a_cluster() -> None:
    made = generated("db.io", "PackageInstall", package={"version": "1.0.0"})
    why = Refused("No package that requires it names a service account that could install it")

    assert emit_carvel(made, {}) == emit_carvel(replace(made, settings={"x": "y"}), {}) == why
    assert isinstance(emit_carvel(replace(made, settings={"cluster": {}}), {}), dict)


# Porter

PRESS = ObjectRef("Installation", "shop", "press")


def test_installation_is_found_by_its_labels_and_has_one_of_version_and_digest() -> None:
    shared = Slot(SlotKind.SHARED, namespace="shop", path=("group", "app=blog"))
    settings = {"parameters": {"size": 3, "name": "x"}, "credentialSets": ["c"]}
    made = generated(
        "x.io/mysql", "Installation", shared, settings=settings, labels={"a": "b"}, parents=(SHOP, PRESS)
    )

    document = emit_porter(made, NOTES)

    assert document == {
        "schemaType": "Installation",
        "schemaVersion": "1.0.2",
        "name": "object",
        "namespace": "shop",
        "labels": {
            "a": "b",
            "app": "blog",
            "sh.porter.SharingGroup": "group",
            "sh.porter.parentInstallation": "shop/press",
        },
        "bundle": {"repository": "x.io/mysql", "version": "1.2.0"},
        "credentialSets": ["c"],
        "parameters": {"size": "3", "name": "x"},
        "custom": NOTES,
    }
    assert list(document["labels"]) == sorted(document["labels"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("3", "3"),
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        (None, "null"),
        ({"b": [1], "a": "x"}, '{"a":"x","b":[1]}'),
    ],
)
def test_parameter_of_an_installation_is_written_as_text(value: Any, text: str) -> None:
    made = generated("x.io/mysql", "Installation", settings={"parameters": {"x": value}})

    assert cast("dict[str, Any]", emit_porter(made, {}))["parameters"] == {"x": text}


def test_installation_by_digest_remembers_its_version() -> None:
    made = generated("x.io/mysql", "Installation", package={"digest": DIGEST, "source": "mirror.io/mysql"})
    made = replace(made, ref=ObjectRef("Installation", "", "object"))

    assert emit_porter(made, NOTES) == {
        "schemaType": "Installation",
        "schemaVersion": "1.0.2",
        "name": "object",
        "bundle": {"repository": "mirror.io/mysql", "digest": DIGEST},
        "custom": {**NOTES, "reconciler.dev/version": "1.2.0"},
    }


# Files


def test_header_tells_the_reason_and_whether_the_file_was_edited() -> None:
    data = add_checksum_header({"a": 1}, reason="edge/web")
    header, _, body = data.partition(b"\n")

    assert header.startswith(b"# Generated for edge/web. Edits stay and are asked about; remove this line")
    assert body == b"a: 1\n"
    assert (has_header(data), is_unmodified(data)) == (True, True)
    edited = data.replace(b"a: 1", b"a: 2")
    assert (has_header(edited), is_unmodified(edited)) == (True, False)
    assert (has_header(body), is_unmodified(body)) == (False, False)
    assert (has_header(b"\n" + data), is_unmodified(b"\n" + data)) == (False, False)


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
