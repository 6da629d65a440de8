"""How the objects of packages in a cluster are called, and how values are written for digests."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.dependencies.lock.format import ClusterObject, cluster_objects
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue, bundle_name
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import Dialect, Ecosystem, Install, PackageId, PackageNeed
from reconciler.dependencies.solve.alternatives import any_version

AWS = PackageId(Ecosystem.XPKG, "x.io/acme/provider-aws")
SAME = PackageId(Ecosystem.XPKG, "y.io/acme/provider-aws")
DB = PackageId(Ecosystem.CARVEL, "db.io")
MYSQL = PackageId(Ecosystem.BUNDLE, "x.io/mysql")
WEB = PackageId(Ecosystem.KPT, "git.example/blue//web")
CLUSTER = Slot(SlotKind.CLUSTER)
HERE = Slot(SlotKind.NAMESPACE, "shop")


def resolved(package: PackageId, slot: Slot = CLUSTER, kind: str = "Provider") -> Any:
    return SimpleNamespace(instance=Instance(*package, slot), candidate=SimpleNamespace(kind=kind))


def locked(*, by_user: bool = False) -> Resolved:
    return cast("Any", SimpleNamespace(by_user=by_user, api_version="v", kind="K", name="before"))


def generated(
    package: Any, previous: Resolved | None = None, users: ClusterObject | None = None
) -> ClusterObject:
    """Return the object of a package that may have been locked, where a user's manifest may have another."""
    installs = []
    if users is not None:
        need = PackageNeed(USERS, any_version(USERS))
        kind = {"kind": users.kind, "api_version": users.api_version}
        installs = [Install("", users.name, Dialect.CROSSPLANE, need, **kind)]
    every = [package, *(resolved(USERS) for _ in installs)]
    solution = cast("Any", SimpleNamespace(resolved={each.instance: each for each in every}))
    kept = {package.instance: previous} if previous else {}
    inputs = ClusterInputs(tuple(installs), build_catalogue([]))
    return cluster_objects(inputs, solution, kept)[package.instance]


USERS = PackageId(Ecosystem.XPKG, "x.io/users")
OLD = ClusterObject("v", "K", "before")
NEW = ClusterObject("pkg.crossplane.io/v1", "Provider", "acme-provider-aws")


@pytest.mark.parametrize(
    ("previous", "taken", "made"),
    [
        (None, None, NEW),
        (locked(), None, OLD),
        (locked(), OLD, NEW),
        (locked(by_user=True), None, NEW),
    ],
)
def test_generated_object_keeps_its_name_unless_it_was_the_users_or_is_taken(
    previous: Resolved | None, taken: ClusterObject | None, made: ClusterObject
) -> None:
    assert generated(resolved(AWS), previous, taken) == made


@pytest.mark.parametrize(
    ("package", "slot", "made"),
    [
        (AWS, CLUSTER, NEW),
        (DB, HERE, ClusterObject("packaging.carvel.dev/v1alpha1", "PackageInstall", "db.io")),
        (MYSQL, HERE, ClusterObject("1.0.2", "Installation", bundle_name(MYSQL.name, HERE))),
        (WEB, CLUSTER, ClusterObject()),
    ],
)
def test_generated_object_has_kind_and_name_of_its_ecosystem(
    package: PackageId, slot: Slot, made: ClusterObject
) -> None:
    assert generated(resolved(package, slot)) == made


def test_name_that_is_taken_gets_a_mark_of_its_source() -> None:
    long = PackageId(Ecosystem.XPKG, f"x.io/{'a' * 80}")
    label = generated(resolved(long))

    marked = generated(resolved(AWS), users=NEW)
    cut = generated(resolved(long), users=label)

    assert marked == NEW._replace(name="acme-provider-aws-2f905270")
    assert (len(label.name), len(cut.name), cut.name[:54]) == (63, 63, label.name[:54])
    assert generated(resolved(AWS), users=NEW._replace(kind="Function")) == NEW


def test_objects_of_users_come_first_and_two_packages_of_one_path_get_two_names() -> None:
    need = PackageNeed(AWS, any_version(AWS))
    install = Install("", "mine", Dialect.CROSSPLANE, need, kind="Provider", api_version="v1")
    inputs = ClusterInputs((install,), build_catalogue([]))
    third = PackageId(Ecosystem.XPKG, "z.io/acme/provider-aws")
    every = [resolved(third), resolved(SAME), resolved(AWS), resolved(DB, HERE)]
    solution = cast("Any", SimpleNamespace(resolved={each.instance: each for each in every}))
    kept = {Instance(*DB, HERE): locked()}

    objects = cluster_objects(inputs, solution, kept)

    assert objects[Instance(*AWS, CLUSTER)] == ClusterObject("v1", "Provider", "mine")
    assert objects[Instance(*SAME, CLUSTER)] == NEW
    assert objects[Instance(*third, CLUSTER)].name.startswith("acme-provider-aws-")
    assert objects[Instance(*DB, HERE)] == OLD
