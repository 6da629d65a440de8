"""Why nothing desires a variant any more: the object, manifest or target that left (D17)."""

from reconciler.api.porch import PackageVariantSet
from reconciler.ids import ObjectName
from reconciler.inventory import Inventory, Sourced
from reconciler.state import PackageVariantRecord


def explain_absence(record: PackageVariantRecord, inventory: Inventory) -> str:
    """Return what is gone of what a recorded variant was made from. Total; says only what is known."""
    if record.requested_by:
        return f"Not needed any more by {', '.join(record.requested_by)}"
    if not record.set_name:
        return _removed(f"PackageVariant {record.key}", record, inventory)
    owner = ObjectName(record.namespace, record.set_name)
    pvs = next((one for one in inventory.sets if one.key == owner), None)
    if pvs is None:
        return _removed(f"PackageVariantSet {owner}", record, inventory)
    return _unselected(record, pvs, inventory)


def _removed(what: str, record: PackageVariantRecord, inventory: Inventory) -> str:
    commit = inventory.control.removed.get(record.manifest)
    if commit is None:
        return f"{record.manifest} does not declare {what} any more"
    return f"{record.manifest}, which declared {what}, was removed in commit {commit}"


def _unselected(record: PackageVariantRecord, pvs: Sourced[PackageVariantSet], inventory: Inventory) -> str:
    repository = ObjectName(record.namespace, record.repository)
    if record.target and not _exists(record.target, inventory):
        place = "registered" if record.target.startswith("Repository ") else "in the snapshot"
        return f"{record.target}, which PackageVariantSet {pvs.key} selected, is not {place} any more"
    if record.target:
        return f"PackageVariantSet {pvs.key} does not select {record.target} any more"
    if repository not in inventory.repositories:
        return f"Repository {repository} is not registered any more"
    place = f"{repository.name}/{record.path}"
    return f"PackageVariantSet {pvs.key} has no target for {place} any more"


def _exists(target: str, inventory: Inventory) -> bool:
    kind, _, name = target.partition(" ")
    namespace, _, short = name.rpartition("/")
    if kind == "Repository" and ObjectName(namespace, short) in inventory.repositories:
        return True
    found = (o for (_, k), objects in inventory.snapshot.objects.items() if k == kind for o in objects)
    return any((one.namespace, one.name) == (namespace, short) for one in found)
