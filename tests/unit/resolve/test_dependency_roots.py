"""Dependency roots: which packages count, as what, in which cluster, and what changes for them."""

from typing import Any

import pytest

from reconciler.api.porch import PACKAGE_VARIANT, Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import VariantInstalls
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InterfaceNeed,
    Need,
    PackageNeed,
    Requirement,
    exact_range,
    version_range,
)
from reconciler.dependencies.versions import parse_strict
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.inventory.inventory import RepositoryView, Source
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.dependency_roots import (
    SERVICE_ACCOUNT,
    RequirementChange,
    Root,
    Roots,
    find_roots,
    requirement_changes,
)
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.support.plan_values import a_desired_variant, a_pin, a_record, a_resolved, oid
from tests.support.sets import registered, world
from tests.support.values import replace

SOURCE = "host/blueprints"
BLUEPRINTS = registered("blueprints", directory="bp")
EDGE = registered("edge", cluster="prod")
WEST = registered("west", cluster="prod", directory="clusters/west")
FAR = registered("far", cluster="dev")
VIEWS = (BLUEPRINTS, EDGE, WEST, FAR)
RANGE = version_range(Dialect.KPT, "")


class Marks:
    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        return 9 if path == ("spec", "upstream", "revision") else 1, 1


def revision(number: int = 1, *needs: Need) -> Candidate:
    requires = tuple(Requirement((need,)) for need in needs)
    return Candidate(package_id(SOURCE, "bp/web"), parse_strict(f"{number}.0.0"), requires=requires)


def published(*revisions: Candidate) -> PublishedPackages:
    """Return revisions of one package; the tree of revision N is `cN`."""
    key = PackageKey(SOURCE, "bp/web")
    return PublishedPackages(
        revisions={PackageTree(key, oid(f"c{n}")): own for n, own in enumerate(revisions, 1)}
    )


PUBLISHED = published(revision(1), revision(2))


def variant(name: str = "web", **fields: Any) -> DesiredVariant:
    spec = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
    )
    source = Source(Location(f"{name}.yaml", 3), 7, Marks())
    return a_desired_variant(key=ObjectName("default", name), spec=spec, source=source, **fields)


def resolved(
    view: RepositoryView = EDGE, path: str = "web", *, name: str = "web", pinned: int = 1, **fields: Any
) -> ResolvedVariant:
    pin = a_pin(pinned, package=PackageKey(SOURCE, "bp/web"))
    return a_resolved(
        variant=variant(name), view=view.key, downstream=PackageKey(view.url, path), pin=pin, **fields
    )


def record(name: str = "web", repository: str = "edge", **fields: Any) -> PackageVariantRecord:
    given: dict[str, Any] = {
        "spec": {"upstream": {"repo": "blueprints", "package": "web"}},
        "upstream_tree": oid("c2"),
        "path": name,
        **fields,
    }
    return a_record(name=name, repository=repository, **given)


def roots(
    *variants: ResolvedVariant,
    records: tuple[PackageVariantRecord, ...] = (),
    desired: tuple[DesiredVariant, ...] = (),
    retained: frozenset[ObjectName] = frozenset(),
    views: tuple[RepositoryView, ...] = VIEWS,
) -> Roots:
    inventory = replace(world(views=views), records={ObjectName(r.namespace, r.name): r for r in records})
    resolution = Resolution(variants=variants)
    return find_roots(inventory, Desired(desired), resolution, PUBLISHED, retained)


@pytest.mark.parametrize(
    ("tree", "path", "incomplete"),
    [("c9", "bp/web", {"prod"}), ("c9", "bp/plain", set())],
    ids=["of a package that declares some", "of a package that declares none"],
)
def test_requirements_of_a_revision_that_nobody_has_read_are_unknown(tree, path, incomplete) -> None:
    own = replace(resolved(), pin=a_pin(package=PackageKey(SOURCE, path), tree=oid(tree)))

    assert roots(own) == Roots({}, frozenset(incomplete))


DOWN = replace(BLUEPRINTS, problem=Problem(Location("r.yaml"), Reason.REPOSITORY_UNAVAILABLE, "It is down"))


@pytest.mark.parametrize(
    ("last", "views", "incomplete"),
    [
        (record(), VIEWS, set()),
        (record(upstream_tree=oid("c9")), VIEWS, {"prod"}),
        (record(repository="gone"), VIEWS, {""}),
        (record(spec={}), VIEWS, {"prod"}),
        (record(), (DOWN, *VIEWS[1:]), {"prod"}),
    ],
    ids=["known", "unknown revision", "unknown repository", "unknown upstream", "unreadable upstream"],
)
def test_applied_variant_of_which_something_is_unknown_makes_its_cluster_incomplete(
    last: PackageVariantRecord, views: tuple[RepositoryView, ...], incomplete: set[str]
) -> None:
    result = roots(
        records=(record("a"), last, record("z")), desired=tuple(map(variant, ("web", "z"))), views=views
    )

    assert result.incomplete == incomplete | ({"prod"} if views is not VIEWS else set())
    if views is VIEWS:
        named = {root.key.name for root in result.by_cluster["prod"].values()}
        assert named == ({"web", "z"} if not incomplete else {"z"})


def test_installs_of_a_cluster_are_its_roots_at_their_versions() -> None:
    source = Source(Location("web.yaml", 3), 7, Marks())
    annotated = replace(variant(), annotations={SERVICE_ACCOUNT: "installer"})
    key = ObjectName("default", "web")
    root = Root(annotated.key, EDGE, "web", revision(2), source, annotated)
    left = replace(root, key=ObjectName("default", "api"), variant=None)
    fleet = Roots({"prod": {key: root, ObjectName("default", "api"): left}}, frozenset({"dev"}))

    def install(name: str, *inherit: tuple[str, str]) -> Install:
        return Install(
            "default",
            name,
            Dialect.KPT,
            PackageNeed(package_id(SOURCE, "bp/web"), exact_range(Dialect.KPT, "2.0.0")),
            kind="PackageVariant",
            api_version=PACKAGE_VARIANT,
            inherit=inherit,
            location=Location("web.yaml", 3),
        )

    assert fleet.asked("prod") == VariantInstalls(
        (install("api"), install("web", ("serviceAccountName", '"installer"'))), (revision(2), revision(2))
    )
    assert fleet.asked("prod").installs[1].need.location == Location("web.yaml", 9, 1)
    assert fleet.asked("dev") == VariantInstalls(is_incomplete=True)


# Changes of requirements


def need(name: str, text: str = "") -> PackageNeed:
    return PackageNeed(package_id(SOURCE, name), version_range(Dialect.KPT, text))


def locked(name: str, version: str, *dependencies: MetNeed) -> Resolved:
    return Resolved(instance=instance(name), dialect="kpt", version=version, dependencies=dependencies)


def instance(name: str) -> Instance:
    return Instance(ecosystem=Ecosystem.KPT, name=f"{SOURCE}//{name}", slot=Slot(SlotKind.CLUSTER))


def dependency(kind: str, id_: str, resolved_to: str = "") -> MetNeed:
    return MetNeed(
        signature=id_, need=kind, id=id_, via="", resolved=instance(resolved_to) if resolved_to else None
    )


def changes(
    before: Candidate,
    after: Candidate,
    *packages: Resolved,
    views: tuple[RepositoryView, ...] = VIEWS,
    **fields: Any,
) -> tuple[RequirementChange, ...] | None:
    base = a_pin(1, package=PackageKey(SOURCE, "bp/web"))
    own = resolved(**{"pinned": 2, "base": base, **fields})
    lock = PackageLock(scope=LockScope(cluster="prod"), input_digest="", resolution="")
    scopes = (
        ClusterUpdate("dev", None, None),
        ClusterUpdate("prod", None, ClusterLock(lock, LockedResolution(packages=packages))),
    )
    of_variants = requirement_changes(
        Resolution(variants=(resolved(name="other"), own)),
        world(views=views),
        published(before, after),
        LockUpdate(scopes),
    )
    assert of_variants.keys() <= {own.variant.key}
    return of_variants.get(own.variant.key)


def test_requirements_of_two_revisions_are_compared_with_what_meets_them() -> None:
    api, interface = ApiNeed(Gvk("db.io", "v1", "Database")), InterfaceNeed("sql", RANGE)
    before = revision(1, need("base", ">=1.0.0"), need("gone", ""), api)
    after = revision(2, need("base", ">=2.0.0"), api, interface)
    lock = (
        locked("base", "2.1.0"),
        locked("db", "3.0.0"),
        locked(
            "bp/web",
            "2.0.0",
            dependency("package", f"kpt:{SOURCE}//base", "base"),
            dependency("api", "the API db.io/v1/Database", "db"),
            dependency("interface", "the interface sql"),
        ),
        locked("other", "1.0.0", dependency("interface", "the interface sql", "db")),
    )

    assert changes(before, after, *lock) == (
        RequirementChange(f"{SOURCE}//base", ">=1.0.0", ">=2.0.0", "2.1.0"),
        RequirementChange(f"{SOURCE}//gone", "any version", "", ""),
        RequirementChange("the API db.io/v1/Database", "any version", "any version", "3.0.0"),
        RequirementChange("the interface sql", "", "any version", ""),
    )


def test_variant_of_a_cluster_without_a_lock_has_changes() -> None:
    rows = changes(revision(1), revision(2, need("base", ">=1.0.0")), view=FAR)

    assert rows == (RequirementChange(f"{SOURCE}//base", "", ">=1.0.0", ""),)


@pytest.mark.parametrize(
    "fields",
    [{"base": None}, {"pinned": 1}, {"views": (BLUEPRINTS, WEST)}],
    ids=["no base", "the same revision", "no repository"],
)
def test_variant_without_another_revision_has_no_changes(fields: dict[str, Any]) -> None:
    assert changes(revision(1), revision(2, need("base")), **fields) is None
