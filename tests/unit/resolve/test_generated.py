"""Generated variants: what they are made of, where they go, and who is told if they cannot be made."""

import hashlib
from collections.abc import Mapping

import pytest

from reconciler.api.porch import PACKAGE_VARIANT, Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import Candidate, Ecosystem
from reconciler.dependencies.versions import parse_strict
from reconciler.expand.owners import with_defaults
from reconciler.expand.variants import Desired, DesiredVariant, variant_key
from reconciler.inventory.inventory import RepositoryView, Source
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.resolve.dependency_roots import Generated, Root, Roots, generate
from tests.support.plan_values import a_desired_variant, a_record
from tests.support.sets import registered, world
from tests.support.values import replace

HINT = "Give one of the two another downstream package, or a revision that both can use."


def variant(
    name: str = "web", *, package: str = "", namespace: str = "default", **fields: object
) -> DesiredVariant:
    """Return a variant of blueprints/NAME in the repository `edge`."""
    spec = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package=package or name, revision=1),
        downstream=Downstream(repo="edge", package=package or name),
    )
    source = Source(Location(f"{name}.yaml", 3), 7)
    return a_desired_variant(
        key=ObjectName(namespace, name), spec=with_defaults(spec), source=source, times=(7, 8), **fields
    )


def locked(
    name: str, *askers: Resolved, namespace: str = "", source: str = "v1", repository: str = "host/blueprints"
) -> Resolved:
    """Return a package in the lock that others need, or a variant's own one."""
    slot = (
        Slot(SlotKind.NAMESPACE, namespace=namespace)
        if askers
        else Slot(SlotKind.INSTALL, namespace=namespace or "default", path=tuple(name.split("/")))
    )
    return Resolved(
        instance=Instance(ecosystem=Ecosystem.KPT, name=f"{repository}//{name}", slot=slot),
        dialect="kpt",
        kind="PackageVariant" if not askers else "",
        api_version=PACKAGE_VARIANT,
        name=name,
        source=source,
        version="1.0.0",
        requested_by=tuple(asker.instance for asker in askers),
    )


WEB = locked("web")
BLUEPRINTS = registered("blueprints")
EDGE = registered("edge", cluster="prod")


def root_of(own: DesiredVariant, view: RepositoryView = EDGE, *, is_recorded: bool = False) -> Root:
    candidate = Candidate(package_id("host/blueprints", own.key.name), parse_strict("1.0.0"))
    return Root(own.key, view, own.key.name, candidate, own.source, None if is_recorded else own)


def lock_of(*packages: Resolved) -> ClusterLock:
    lock = PackageLock(scope=LockScope(cluster="prod"), input_digest="", resolution="")
    return ClusterLock(lock, LockedResolution(packages=packages))


def generated(
    *packages: Resolved,
    roots: tuple[Root, ...] = (root_of(variant()),),
    views: tuple[RepositoryView, ...] = (BLUEPRINTS, EDGE),
    taken: Mapping[PackageKey, tuple[DesiredVariant, ...]] | None = None,
    desired: tuple[DesiredVariant, ...] = (),
    **fields: object,
) -> Generated:
    inventory = world(views=views, policy=Policy(instance="fleet"), **fields)
    by_cluster = {"prod": {ObjectName(root.key.namespace, root.name): root for root in roots}}
    locks = LockUpdate((ClusterUpdate("dev", None, None), ClusterUpdate("prod", None, lock_of(*packages))))
    return generate(inventory, Desired(desired), taken or {}, locks, Roots(by_cluster))


def test_every_way_to_a_package_is_shown_up_to_five() -> None:
    app = locked("app", WEB)
    (_, made) = generated(WEB, app, locked("db", app)).variants
    assert made.key.name == "requires-edge-db"
    assert made.requested_by == ("default/web > app",)

    askers = [locked(f"web{number}") for number in range(7)]
    roots = tuple(root_of(variant(f"web{number}")) for number in range(7))
    (made,) = generated(*askers, locked("base", *askers[:5]), roots=roots).variants
    assert made.requested_by == tuple(f"default/web{number}" for number in range(5))
    (made,) = generated(*askers, locked("base", *askers), roots=roots).variants
    assert made.requested_by == (*(f"default/web{number}" for number in range(5)), "2 more")


@pytest.mark.parametrize(
    ("recorded", "dependents", "where"),
    [
        ("none", (), "edge"),
        ("west", ("default/a",), "west"),
        ("west", (), "edge"),
        ("gone", ("default/a",), "edge"),
    ],
)
def test_package_stays_in_the_repository_that_a_run_put_it_into(recorded, dependents, where) -> None:
    key = ObjectName("default", f"requires-{recorded}-base")
    record = a_record(name=key.name, requested_by=dependents)
    west = registered("west", cluster="prod")
    roots = (root_of(variant("a"), west), root_of(variant("b"), EDGE))
    needs = (locked("a"), locked("b"))

    (made,) = generated(
        *needs, locked("base", *needs), roots=roots, views=(BLUEPRINTS, EDGE, west), records={key: record}
    ).variants

    assert made.key.name == f"requires-{where}-base"


def refused(message: str, hint: str, name: str = "web") -> dict[object, tuple[Problem, ...]]:
    location = Location(f"{name}.yaml", 3)
    subject = f"PackageVariant default/{name}"
    problem = Problem(location, Reason.DEPENDENCY_CONFLICT, message, hint, subject)
    return {variant_key(ObjectName("default", name)): (problem,)}


def test_package_without_a_repository_is_refused_to_everybody_who_needs_it() -> None:
    api = locked("api")
    roots = (root_of(variant("web")), root_of(variant("api"), is_recorded=True))
    packages = (WEB, api, locked("base", WEB, api, repository="host/elsewhere"))

    assert generated(*packages, roots=roots) == Generated(
        unmet=refused("No Repository in namespace default has it", "Register its repository.")
    )


def test_package_with_a_name_that_is_not_valid_is_refused() -> None:
    result = generated(WEB, locked("base/.git", WEB))

    (problem,) = result.unmet[variant_key(ObjectName("default", "web"))]
    assert problem.message.startswith('Dependencies cannot be met: package path "base/.git" is not valid: ')
    assert problem.hint == "Write a PackageVariant that makes base/.git under another downstream package."
    assert (result.variants, result.undecided) == ((), frozenset())


@pytest.mark.parametrize("how", ["the same place", "the same name"])
@pytest.mark.parametrize("is_same", [True, False], ids=["the same package", "another package"])
def test_other_variant_in_its_place_serves_only_with_the_same_package(how: str, *, is_same: bool) -> None:
    key = ObjectName("default", "requires-edge-base")
    rival = replace(
        variant("mine", package="base" if is_same else "other"),
        key=key if how == "the same name" else ObjectName("default", "mine"),
    )
    taken = {PackageKey(EDGE.url, "base"): (rival,)} if how == "the same place" else {}
    desired = (rival,) if how == "the same name" else ()

    result = generated(WEB, locked("base", WEB), taken=taken, desired=desired)

    message = (
        "Dependencies cannot be met: host/blueprints//base 1.0.0 belongs in package base of repository edge, "
        f"which PackageVariant {rival.key} (mine.yaml:3) makes from something else"
    )
    if is_same:
        assert result == Generated()
    else:
        assert result == Generated(unmet=refused(message, HINT), undecided=frozenset({key}))


def test_path_of_several_parts_is_told_apart_from_a_name_with_dashes() -> None:
    (made,) = generated(WEB, locked("net/base", WEB)).variants

    assert made.key.name == "requires-edge-net-base-" + hashlib.sha256(b"net/base").hexdigest()[:8]
