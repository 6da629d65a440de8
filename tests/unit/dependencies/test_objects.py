"""How the objects of packages in a cluster are called, and how values are written for digests."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.dependencies.lock.format import ClusterObject, lock_solution
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue, bundle_name
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
)
from reconciler.dependencies.solve.alternatives import any_version
from reconciler.dependencies.solve.problem import Solution
from reconciler.dependencies.versions.version import parse_loose

AWS = PackageId(Ecosystem.XPKG, "x.io/acme/provider-aws")
SAME = PackageId(Ecosystem.XPKG, "y.io/acme/provider-aws")
DB = PackageId(Ecosystem.CARVEL, "db.io")
MYSQL = PackageId(Ecosystem.BUNDLE, "x.io/mysql")
WEB = PackageId(Ecosystem.KPT, "git.example/blue//web")
CLUSTER = Slot(SlotKind.CLUSTER)
HERE = Slot(SlotKind.NAMESPACE, "shop")


def locked(*, by_user: bool = False) -> Any:
    return {"by_user": by_user, "api_version": "v", "kind": "K", "name": "before"}


def objects_of(
    every: Mapping[Instance, str], kept: Mapping[Instance, Any], installs: tuple[Install, ...]
) -> dict[Instance, ClusterObject]:
    """Return the objects in the lock of packages, given with the kinds of their candidates."""
    version = parse_loose("1.0.0")
    solution = Solution(
        {i: Resolved(instance=i, dialect="d", version="1.0.0") for i in every},
        {i: Candidate(i.package, version, kind=kind) for i, kind in every.items()},
    )
    previous = (Resolved(instance=i, dialect="d", version="1.0.0", **fields) for i, fields in kept.items())
    inputs = ClusterInputs(installs, build_catalogue([]))
    lock = lock_solution(inputs, solution, Resolution(packages=tuple(previous)))
    return {p.instance: (p.api_version, p.kind, p.name) for p in lock.packages}


def generated(
    package: PackageId, slot: Slot = CLUSTER, previous: Any = None, users: ClusterObject | None = None
) -> ClusterObject:
    """Return the object of a package that may have been locked, where a user's manifest may have another."""
    installs = []
    every = {Instance(*package, slot): "Provider"}
    if users is not None:
        need = PackageNeed(USERS, any_version(USERS))
        kind = {"kind": users[1], "api_version": users[0]}
        installs = [Install("", users[2], Dialect.CROSSPLANE, need, **kind)]
        every[Instance(*USERS, CLUSTER)] = "Provider"
    kept = {Instance(*package, slot): previous} if previous else {}
    return objects_of(every, kept, tuple(installs))[Instance(*package, slot)]


USERS = PackageId(Ecosystem.XPKG, "x.io/users")
OLD = ("v", "K", "before")
NEW = ("pkg.crossplane.io/v1", "Provider", "acme-provider-aws")


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
    previous: Any, taken: ClusterObject | None, made: ClusterObject
) -> None:
    assert generated(AWS, CLUSTER, previous, taken) == made


@pytest.mark.parametrize(
    ("package", "slot", "made"),
    [
        (AWS, CLUSTER, NEW),
        (DB, HERE, ("packaging.carvel.dev/v1alpha1", "PackageInstall", "db.io")),
        (MYSQL, HERE, ("1.0.2", "Installation", bundle_name(MYSQL.name, HERE))),
        (WEB, CLUSTER, ("", "", "")),
    ],
)
def test_generated_object_has_kind_and_name_of_its_ecosystem(
    package: PackageId, slot: Slot, made: ClusterObject
) -> None:
    assert generated(package, slot) == made


def test_name_that_is_taken_gets_a_mark_of_its_source() -> None:
    long = PackageId(Ecosystem.XPKG, f"x.io/{'a' * 80}")
    label = generated(long)

    marked = generated(AWS, users=NEW)
    cut = generated(long, users=label)

    assert marked == (*NEW[:2], "acme-provider-aws-2f905270")
    assert (len(label[2]), len(cut[2]), cut[2][:54]) == (63, 63, label[2][:54])
    assert generated(AWS, users=(NEW[0], "Function", NEW[2])) == NEW


def test_objects_of_users_come_first_and_two_packages_of_one_path_get_two_names() -> None:
    need = PackageNeed(AWS, any_version(AWS))
    install = Install("", "mine", Dialect.CROSSPLANE, need, kind="Provider", api_version="v1")
    third = PackageId(Ecosystem.XPKG, "z.io/acme/provider-aws")
    every = [Instance(*package, CLUSTER) for package in (third, SAME, AWS)]

    objects = objects_of(
        dict.fromkeys((*every, Instance(*DB, HERE)), "Provider"), {Instance(*DB, HERE): locked()}, (install,)
    )

    assert objects[Instance(*AWS, CLUSTER)] == ("v1", "Provider", "mine")
    assert objects[Instance(*SAME, CLUSTER)] == NEW
    assert objects[Instance(*third, CLUSTER)][2].startswith("acme-provider-aws-")
    assert objects[Instance(*DB, HERE)] == OLD
