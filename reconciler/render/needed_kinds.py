"""List the kinds of cluster objects that a fleet needs in its snapshot."""

from collections.abc import Iterable, Iterator, Mapping

from reconciler.api.porch import REPOSITORY, InjectionSelector
from reconciler.dependencies.catalog.cluster_inputs import is_in_index
from reconciler.dependencies.dialects import PORTER_GROUP
from reconciler.dependencies.dialects.carvel import GROUPS as CARVEL_GROUPS
from reconciler.dependencies.dialects.crossplane import GROUPS as CROSSPLANE_GROUPS
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import GroupKind, Oid, group_of
from reconciler.names.objects import Files
from reconciler.render.injection import find_points
from reconciler.resolve.resolution import ResolvedVariant

_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")


def needed_kinds(
    inventory: Inventory,
    injected: Iterable[ResolvedVariant],
    contents: Mapping[Oid, Files],
    ecosystems: Iterable[Ecosystem] = (),
) -> tuple[GroupKind, ...]:
    """Return the kinds that sets select, that are injected or installed, or that gates read. Sorted.

    Args:
        inventory: The manifests.
        injected: The variants with injectors.
        contents: The upstream packages of these variants that could be read.
        ecosystems: Those of the packages that variants need.
    """
    kinds = {*_selected(inventory), *_installed(inventory, ecosystems), *_gated(inventory)}
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


def _installed(inventory: Inventory, ecosystems: Iterable[Ecosystem]) -> Iterator[GroupKind]:
    """Yield the kinds that the resolution of dependencies reads, of the tools that manifests are for.

    A manifest that could not be read is for its tool, too.
    """
    asking = [d.value for d in inventory.documents if not is_in_index(d.source.location)]
    groups = {group_of(str(document.get("apiVersion") or "")) for document in asking}
    porter = [Ecosystem.BUNDLE for document in asking if document.get("schemaType")]
    tools = {*ecosystems, *porter}
    for ecosystem, (api_version, kinds) in _READ.items():
        if ecosystem in tools or not groups.isdisjoint(api_version):
            yield from kinds


_READ = {
    Ecosystem.CARVEL: (
        CARVEL_GROUPS,
        (
            _CRD,
            GroupKind("packaging.carvel.dev", "PackageInstall"),
            GroupKind("data.packaging.carvel.dev", "Package"),
        ),
    ),
    Ecosystem.XPKG: (
        CROSSPLANE_GROUPS,
        (
            _CRD,
            GroupKind("pkg.crossplane.io", "Lock"),
            *(
                GroupKind("pkg.crossplane.io", f"{kind}{suffix}")
                for kind in ("Provider", "Configuration", "Function")
                for suffix in ("", "Revision")
            ),
        ),
    ),
    Ecosystem.BUNDLE: (frozenset[str](), (GroupKind(PORTER_GROUP, "Installation"),)),
    Ecosystem.KPT: (frozenset[str](), (_CRD,)),
}
"""The API groups of a tool's manifests, and its kinds that snapshots have; CRDs show the served APIs."""
