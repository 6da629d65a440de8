"""Which packages of a resolution stay when those that needed them go, on resolutions alone."""

from typing import Any

from reconciler.dependencies.lock.update import retain_all
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolution, Resolved, Slot, SlotKind


def instance(
    name: str, kind: str = "namespace", namespace: str = "shop", ecosystem: str = "carvel"
) -> Instance:
    return Instance(ecosystem=ecosystem, name=name, slot=Slot(SlotKind(kind), namespace=namespace))


def package(
    name: str,
    *needs: str,
    by: str = "",
    user: bool = False,
    uninstall: bool = True,
    where: Instance | None = None,
    **fields: Any,
) -> Resolved:
    """Return a package that needs others; `by` are those that requested it, the first is its owner."""
    own = where or instance(name, "install" if user else "namespace")
    requested = tuple(named(parent) for parent in by.split())
    edges = tuple(
        MetNeed(
            signature=need,
            need="package",
            id=need,
            via="candidate",
            uninstall=uninstall,
            resolved=None if need == "nothing" else named(need),
        )
        for need in needs
    )
    return Resolved(
        instance=own,
        dialect="d",
        by_user=user,
        requested_by=() if user else requested,
        owner=None if user else next(iter(requested), None),
        dependencies=edges,
        **{"version": "1", **fields},
    )


def named(name: str) -> Instance:
    """Return the instance of a name; those that begin with `my-` are of users."""
    return instance(name, "install" if name.startswith("my-") else "namespace")


def resolution(*packages: Resolved, unused: str = "") -> Resolution:
    return Resolution(packages=packages, unused=tuple(map(named, unused.split())))


def told(result: Resolution) -> tuple[dict[str, str], list[str]]:
    """Return the packages with their owners, and the unused ones."""
    assert [p.instance for p in result.packages] == sorted(p.instance for p in result.packages)
    owners = {
        p.instance.name: "user" if p.by_user else p.owner.name if p.owner else "" for p in result.packages
    }
    return owners, [own.name for own in result.unused]


SHOP = package("my-shop", "db", user=True)
DB = package("db", "disk", "nothing", by="my-shop")
DISK = package("disk", by="db")


# Manifests that may only be unreadable, and runs without dependencies


def test_every_locked_package_stays_where_manifests_may_be_unreadable() -> None:
    before = resolution(SHOP, DB, DISK, unused="disk")
    newer = package("db", by="my-shop", version="2")

    kept = retain_all(resolution(newer), before)

    assert told(kept) == ({"my-shop": "user", "db": "my-shop", "disk": "db"}, ["disk"])
    assert [p.version for p in kept.packages if p.instance.name == "db"] == ["2"]
    assert told(retain_all(resolution(DISK), before))[1] == []
