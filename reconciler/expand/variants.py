"""Desired PackageVariants: what the manifests ask for, set by set, with who stalls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Condition
from reconciler.api.porch import (
    GROUP,
    PACKAGE_VARIANT,
    PACKAGE_VARIANT_SET,
    REQUESTED_BY,
    SET_LABEL,
    PackageVariantSpec,
)
from reconciler.errors import Problem
from reconciler.expand.findings import Finding
from reconciler.expand.names import stable_uid
from reconciler.expand.targets import SelectedObject
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.inventory import FieldPath, Inventory, Source


@dataclass(frozen=True, slots=True)
class DesiredVariant:
    """One PackageVariant that should exist, authored or generated.

    `spec` is valid and has its defaults filled in. `source` is the manifest to blame and
    `times` are committer times of its own inputs (manifest, target object), in seconds.
    `target` is the kind and name of the object that its set selected, if any; `place` is the field of
    the set's target.
    `requested_by` are the ways from other variants to one that is there because they need it.
    """

    key: ObjectName
    uid: str
    spec: PackageVariantSpec
    source: Source
    set_key: ObjectName | None = None
    target: str = ""
    paused: bool = False
    times: tuple[int, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)
    place: FieldPath = field(default=(), compare=False)
    requested_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything the manifests ask for.

    `stalled` are the owners we could not understand: nothing of theirs is changed or deleted.
    `conditions` are the Stalled and Ready conditions of every set and authored variant, as Porch
    words them. `targets` is the number of variants each set that could be expanded yields.
    Of the variants that others needed once, `released` are those that certainly nobody needs any more,
    and `held` those that something needs which has not gone yet, with what that is.
    """

    variants: tuple[DesiredVariant, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    conditions: Mapping[ObjectKey, tuple[Condition, ...]] = field(default_factory=dict)
    targets: Mapping[ObjectName, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    released: frozenset[ObjectName] = frozenset()
    held: Mapping[ObjectName, str] = field(default_factory=dict)


def spec_data(variant: DesiredVariant) -> dict[str, Any]:
    """Return the spec as manifests and records spell it: camelCase, absent fields left out."""
    return variant.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


FINALIZER = "config.porch.kpt.dev/packagevariants"


def to_manifest(variant: DesiredVariant, inventory: Inventory) -> dict[str, Any]:
    """Return a variant as a manifest; a generated one carries its set's label and owner reference.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: apiVersion has its version; defaults of the policies are filled in.
    """
    metadata: dict[str, Any] = {"name": variant.key.name, "namespace": variant.key.namespace}
    asked = {REQUESTED_BY: ", ".join(variant.requested_by)} if variant.requested_by else {}
    if annotations := {**variant.annotations, **asked}:
        metadata["annotations"] = dict(sorted(annotations.items()))
    metadata["uid"] = variant.uid
    if variant.set_key is not None:
        uid = _set_uid(variant, inventory)
        metadata["labels"] = {SET_LABEL: uid}
        metadata["finalizers"] = [FINALIZER]
        metadata["ownerReferences"] = [
            {
                "apiVersion": PACKAGE_VARIANT_SET,
                "kind": "PackageVariantSet",
                "name": variant.set_key.name,
                "uid": uid,
                "controller": True,
            }
        ]
    spec = spec_data(variant)
    return {"apiVersion": PACKAGE_VARIANT, "kind": "PackageVariant", "metadata": metadata, "spec": spec}


def _set_uid(variant: DesiredVariant, inventory: Inventory) -> str:
    pvs = next((one for one in inventory.sets if one.key == variant.set_key), None)
    given = pvs.manifest.metadata.uid if pvs else None
    return given or stable_uid(inventory.policy.instance, *(variant.set_key or variant.key))


PAUSED = "reconciler.dev/paused"
CEL_EXTENSIONS = "reconciler.dev/cel-extensions"
ALLOW_DELETES = "reconciler.dev/allow-deletes"


def variant_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariant."""
    return ObjectKey(GROUP, "PackageVariant", *name)


def set_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariantSet."""
    return ObjectKey(GROUP, "PackageVariantSet", *name)


def describe(owner: ObjectKey) -> str:
    """Return an owner as problems name it."""
    return f"{owner.kind} {owner.namespace}/{owner.name}"


@dataclass(frozen=True, slots=True)
class VariantCandidate:
    """A variant that its owner asks for, where it goes, the field and the object to blame."""

    variant: DesiredVariant
    owner: ObjectKey
    source: Source
    path: FieldPath
    package: PackageKey
    selected: SelectedObject | None = None

    @property
    def downstream(self) -> tuple[str, str]:
        """The repository and package by name."""
        downstream = self.variant.spec.downstream
        return (downstream.repo or "", downstream.package or "") if downstream else ("", "")


@dataclass(frozen=True, slots=True)
class OwnerExpansion:
    """What one owner asks for, or why it stalls. `valid` is False where its own manifest is wrong."""

    owner: ObjectKey
    source: Source
    candidates: tuple[VariantCandidate, ...] = ()
    findings: tuple[Finding, ...] = ()
    valid: bool = True
