"""List the kinds of cluster objects that a fleet needs in its snapshot."""

from collections.abc import Iterable, Iterator, Mapping

from reconciler.api.porch import REPOSITORY, InjectionSelector
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import GroupKind, Oid, group_of
from reconciler.names.objects import Files
from reconciler.render.injection import find_points
from reconciler.resolve.resolution import ResolvedVariant

_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")


def needed_kinds(
    inventory: Inventory, injected: Iterable[ResolvedVariant], contents: Mapping[Oid, Files]
) -> tuple[GroupKind, ...]:
    """Return the kinds that sets select, that are injected or installed, or that gates read. Sorted.

    Args:
        inventory: The manifests.
        injected: The variants with injectors.
        contents: The upstream packages of these variants that could be read.
    """
    kinds = {*_selected(inventory), *_installed(inventory), *_gated(inventory)}
    for resolved in injected:
        kinds |= set(_named(resolved.variant.spec.injectors or ()))
        for point in find_points(contents.get(resolved.pin.tree, {})):
            api_version, kind = point.gvk
            kinds.add(GroupKind(group_of(api_version), kind))
    return tuple(sorted(kinds))


def _selected(inventory: Inventory) -> Iterator[GroupKind]:
    for pvs in inventory.sets:
        for target in pvs.manifest.spec.targets or ():
            selector = target.object_selector
            if selector is not None and selector.kind and selector.api_version != REPOSITORY:
                yield GroupKind(group_of(selector.api_version or ""), selector.kind)
            if target.template is not None:
                yield from _named(target.template.injectors or ())


def _named(injectors: Iterable[InjectionSelector]) -> Iterator[GroupKind]:
    for injector in injectors:
        if injector.kind and injector.group is not None:
            yield GroupKind(injector.group, injector.kind)


def _gated(inventory: Inventory) -> Iterator[GroupKind]:
    """Yield the kinds of the objects that gates of rollouts read."""
    for rollout in inventory.policy.rollouts:
        for gate in (gate for wave in rollout.waves for gate in wave.gates.objects):
            yield GroupKind(group_of(gate.api_version), gate.kind)


def _installed(inventory: Inventory) -> Iterator[GroupKind]:
    """Yield the kinds of the dependency manifests, and CRDs, which define the APIs that a cluster serves."""
    for document in inventory.documents:
        kind, api_version = document.value.get("kind"), document.value.get("apiVersion")
        if kind and api_version:
            yield GroupKind(group_of(str(api_version)), str(kind))
            yield _CRD
