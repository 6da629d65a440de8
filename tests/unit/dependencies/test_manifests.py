"""Manifests of generated packages, one controller at a time, by whole documents."""

from typing import Any

import pytest

from reconciler.base.values import Refused
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.render.delivery import GeneratedPackage, ObjectRef, emit_crossplane, image_of, needed_by

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
def test_packages_that_need_a_generated_one_are_in_its_annotation(document, packages) -> None:
    assert needed_by(document) == packages
