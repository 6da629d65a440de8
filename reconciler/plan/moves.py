"""Version changes of dependencies: all of the fleet, and those in each generated package."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.dependencies.emit import installed_version
from reconciler.dependencies.update.changes import VersionChange, object_version_changes
from reconciler.ids import ObjectName, Oid
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.objects import Files
from reconciler.plan.changes import Change, Plan
from reconciler.resolve.deliveries import Delivery


def with_moves(
    plan: Plan,
    moves: tuple[VersionChange, ...],
    deliveries: Iterable[Delivery],
    contents: Mapping[Oid, Files],
) -> Plan:
    """Return the plan with the pins that it moves, and at each package what merging it moves.

    Args:
        plan: The plan.
        moves: What this run decides.
        deliveries: What is generated for each cluster.
        contents: Packages as they stand, as far as they were read.
    """
    owners = {delivery.resolved.variant.key: delivery for delivery in deliveries}
    changes = tuple(_told(change, owners, contents) for change in plan.changes)
    return replace(plan, moves=moves, changes=changes)


def _told(change: Change, owners: Mapping[ObjectName, Delivery], contents: Mapping[Oid, Files]) -> Change:
    delivery = owners.get(change.variant) if change.variant else None
    written = change.written
    if delivery is None or written is None:
        return change
    local = delivery.resolved.local
    before = _versions(contents.get(local, {})) if local else {}
    after = _versions(written.files)
    packages, cluster = delivery.emission.packages, delivery.cluster
    return replace(change, pins=object_version_changes(before, after, packages, delivery.lock, cluster))


def _versions(files: Files) -> dict[str, str]:
    """Return what each manifest of a package installs; what installs nothing is left out."""
    found = {path: _version(file.data) for path, file in files.items() if path.endswith(".yaml")}
    return {path: version for path, version in found.items() if version}


def _version(data: bytes) -> str:
    try:
        documents = load_documents(data)
    except YamlError:
        return ""
    return (
        installed_version(documents[0].value) if documents and isinstance(documents[0].value, Mapping) else ""
    )
