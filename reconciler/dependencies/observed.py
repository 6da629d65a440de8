"""Revisions that a cluster shows: its first lock goes on from them, with their names and numbers."""

from collections.abc import Iterable, Iterator

from reconciler.dependencies.dialects.crossplane import PARENT, REVISIONS, parse_image
from reconciler.dependencies.lockfile import DesiredState, Revision
from reconciler.ids import group_of
from reconciler.snapshot import Snapshot, SnapshotObject

_GROUP = "pkg.crossplane.io"


def revisions_of(snapshot: Snapshot) -> tuple[Revision, ...]:
    """Return the package revisions among a snapshot's objects, lowest number first. Total; order-free.

    Names of both of Crossplane's schemes stay what they are. Where a cluster shows what cannot be,
    two active ones or two of one number, the one with the greatest number and name counts.
    """
    objects = (one for several in snapshot.objects.values() for one in several)
    found: dict[tuple[str, int], Revision] = {}
    for one in sorted((r for r in map(_revision, objects) if r is not None), key=_order):
        found[one.package, one.revision] = one
    return tuple(sorted(_one_active(found.values()), key=_order))


def _revision(found: SnapshotObject) -> Revision | None:
    spec, package = found.body.get("spec"), found.labels.get(PARENT)
    number = spec.get("revision") if isinstance(spec, dict) else None
    if group_of(found.api_version) != _GROUP or found.kind not in REVISIONS:
        return None
    if not package or not isinstance(number, int) or not isinstance(spec, dict):
        return None
    name, tag, digest = parse_image(str(spec.get("image") or ""))
    return Revision(
        package=f"{found.kind.removesuffix('Revision')}/{package}",
        name=found.name,
        revision=number,
        desired_state=DesiredState.ACTIVE if spec.get("desiredState") == "Active" else DesiredState.INACTIVE,
        image=f"{name}:{tag}" if tag else name,
        digest=digest,
    )


def _one_active(revisions: Iterable[Revision]) -> Iterator[Revision]:
    several = list(revisions)
    last = {one.package: one.name for one in several if one.is_active}
    for one in several:
        keeps = not one.is_active or last[one.package] == one.name
        yield one if keeps else one.model_copy(update={"desired_state": DesiredState.INACTIVE})


def _order(one: Revision) -> tuple[str, int, str]:
    return (one.package, one.revision, one.name)
