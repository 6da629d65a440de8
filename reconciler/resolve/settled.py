"""What needs no rendering: a digest of all inputs, compared with what a record says (D15)."""

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson

from reconciler.expand.variants import DesiredVariant
from reconciler.ids import Oid, PackageKey
from reconciler.inventory import Inventory, RepositoryView
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.state import PackageVariantRecord

ENGINE = 1
"""Raised when rendering changes what it makes of the same inputs; then every package is rendered once."""


def inputs_digest(
    variant: DesiredVariant, view: RepositoryView, downstream: PackageKey, pin: Pin, inventory: Inventory
) -> str:
    """Return the digest of everything that rendering this variant reads, but for the package itself.

    Deterministic: the order of maps does not matter, the order of lists does.
    """
    spec = variant.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept = ("packageContext", "pipeline", "mutators", "injectors")
    facts: dict[str, Any] = {
        "engine": ENGINE,
        "instance": inventory.policy.instance,
        "variant": list(variant.key),
        "repository": view.key.name,
        "downstream": list(downstream),
        "deployment": view.deployment,
        "upstream": [*pin.package, pin.repo, pin.ref, pin.revision, pin.commit.oid, pin.tree],
        "spec": {name: spec[name] for name in kept if name in spec},
        "objects": list(_injected(variant, inventory)),
    }
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def find_settled(resolved: ResolvedVariant, record: PackageVariantRecord | None) -> Oid | None:
    """Return the output tree that a record tells, if it still holds and stands where it belongs.

    It holds if the inputs are the recorded ones, and the package on main is the recorded one or
    the output itself. Where the output stands nowhere, it must be rendered to be written.
    """
    if record is None or not record.output_tree or record.inputs != resolved.inputs:
        return None
    output = Oid(record.output_tree)
    if record.local_tree != (resolved.local or "") and output != resolved.local:
        return None
    draft = resolved.draft
    if output == resolved.local or (draft is not None and output in (draft.tree, draft.written)):
        return output
    return None


def _injected(variant: DesiredVariant, inventory: Inventory) -> Iterator[list[str]]:
    """Yield identity and digest of every object that an injector of the variant may name."""
    names = {injector.name for injector in variant.spec.injectors or ()}
    if not names:
        return
    for (api_version, kind), objects in sorted(inventory.snapshot.objects.items()):
        for found in objects:
            if found.namespace == variant.key.namespace and found.name in names:
                body = orjson.dumps(found.body, option=orjson.OPT_SORT_KEYS)
                yield [api_version, kind, found.name, hashlib.sha256(body).hexdigest()]
