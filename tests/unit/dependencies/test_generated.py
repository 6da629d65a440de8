"""What a generated package takes from those that need it: place, settings, values, parameters and labels."""

from typing import Any

import msgspec

from reconciler.base.errors import Location
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
)
from reconciler.dependencies.solve.alternatives import any_version
from reconciler.render.delivery import GeneratedPackage, ObjectRef, name_collisions
from tests.support.values import replace


def slot(kind: str = "cluster", namespace: str = "", *path: str) -> Slot:
    return Slot(SlotKind(kind), namespace=namespace, path=path)


def locked(package: str, ecosystem: str = "carvel", where: Slot | None = None, **fields: Any) -> Resolved:
    instance = Instance(ecosystem=ecosystem, name=package, slot=where or slot("namespace", "shop"))
    return Resolved(instance=instance, dialect="d", **{"version": "1.0.0", **fields})


def install(name: str, *, line: int = 1, **fields: Any) -> Install:
    id_ = PackageId(Ecosystem.CARVEL, name)
    need = PackageNeed(id_, any_version(id_))
    kind = {"kind": "PackageInstall", "location": Location("f.yaml", line)}
    return Install("shop", f"my-{name}", Dialect.CARVEL, need, **{**kind, **fields})


DB = locked("mysql", "bundle", slot("for", "shop", "my-press", "db"))


def test_name_of_an_installation_that_nobody_bound_is_taken_and_the_hint_binds_it() -> None:
    made = msgspec.structs.replace(
        GeneratedPackage(DB, ObjectRef("Installation", "shop", "press-db"), ()),
        parents=(ObjectRef("Installation", "shop", "press"),),
    )
    mysql = PackageId(Ecosystem.BUNDLE, "mysql")
    mine = replace(install("press-db", line=8), need=PackageNeed(mysql, any_version(mysql)))

    ((_, problem),) = name_collisions((made,), {made.ref: mine})

    assert problem.message == (
        "Installation shop/press-db would have to be made for Installation shop/press,"
        " which is not bound to yours"
    )
    assert problem.hint == (
        "Bind an installation that is there: `reconciler.dev/dependencies: {db: NAMESPACE/NAME}`"
        " below `custom` of Installation shop/press; or rename the manifest that has this name."
    )
