"""From manifests to PackageVariants: validate, unroll, render, name, find duplicates."""

from collections.abc import Iterator

from reconciler.api.porch import (
    GROUP,
    Downstream,
    PackageVariant,
    PackageVariantSet,
    PackageVariantSpec,
)
from reconciler.expand.names import stable_uid, variant_identifier, variant_name
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import Inventory, Sourced
from reconciler.policy import Policy


def expand(inventory: Inventory) -> Desired:
    """Return every PackageVariant that the manifests ask for, and who stalls.

    Pure and order-free. A set is all or nothing: one bad target stalls the set and nothing of it
    changes; every other owner proceeds.
    """
    authored = [_authored(variant, inventory.policy) for variant in inventory.variants]
    generated = {
        pvs.key: tuple(_generated(pvs, inventory.policy))
        for pvs in inventory.sets
        if ObjectKey(GROUP, "PackageVariantSet", *pvs.key) not in inventory.stalled
    }
    variants = sorted((*authored, *(v for many in generated.values() for v in many)), key=lambda v: v.key)
    return Desired(
        variants=tuple(variants),
        stalled=inventory.stalled,
        targets={key: len(many) for key, many in generated.items()},
    )


def _authored(variant: Sourced[PackageVariant], policy: Policy) -> DesiredVariant:
    uid = variant.manifest.metadata.uid or stable_uid(policy.instance, *variant.key)
    spec = variant.manifest.spec
    spec = spec.model_copy(
        update={
            "adoption_policy": spec.adoption_policy or "adoptNone",
            "deletion_policy": spec.deletion_policy or "delete",
        }
    )
    return DesiredVariant(variant.key, uid, spec, variant.source, times=(variant.source.time,))


def _generated(pvs: Sourced[PackageVariantSet], policy: Policy) -> Iterator[DesiredVariant]:
    upstream = pvs.manifest.spec.upstream
    default = (upstream.package if upstream else None) or ""
    for target in pvs.manifest.spec.targets or ():
        for repository in target.repositories or ():
            for package in repository.package_names or (default,):
                repo = repository.name or ""
                name = variant_name(variant_identifier(pvs.key.name, repo, package))
                spec = PackageVariantSpec(
                    upstream=upstream,
                    downstream=Downstream(repo=repo, package=package),
                    adoption_policy="adoptNone",
                    deletion_policy="delete",
                )
                key = ObjectName(pvs.key.namespace, name)
                uid = stable_uid(policy.instance, *key)
                yield DesiredVariant(key, uid, spec, pvs.source, set_key=pvs.key, times=(pvs.source.time,))
