"""Desired PackageVariants as the manifests that Porch would create."""

from typing import Any

from reconciler.api.porch import PACKAGE_VARIANT, PACKAGE_VARIANT_SET, REQUESTED_BY, SET_LABEL
from reconciler.expand.names import stable_uid
from reconciler.expand.variants import DesiredVariant, spec_data
from reconciler.inventory import Inventory

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
