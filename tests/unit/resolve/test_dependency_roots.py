"""Dependency roots: which packages count, as what, in which cluster, and what changes for them."""

from typing import Any

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.instances import Resolved
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Need,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.versions import parse_strict
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.inventory.inventory import RepositoryView, Source
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.dependency_roots import (
    RequirementChange,
    Root,
    RootKey,
    Roots,
    find_roots,
    requirement_changes,
)
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.support.plan_values import a_desired_variant, a_pin, a_resolved, oid
from tests.support.sets import registered, world
from tests.support.values import replace

SOURCE = "host/blueprints"
BLUEPRINTS = registered("blueprints", directory="bp")
EDGE = registered("edge", cluster="prod")
WEST = registered("west", cluster="prod", directory="clusters/west")
FAR = registered("far", cluster="dev")
VIEWS = (BLUEPRINTS, EDGE, WEST, FAR)


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


def test_root_is_the_revision_that_a_variant_is_pinned_to() -> None:
    own = resolved(WEST, "clusters/west/web", pinned=2)

    assert roots(own) == Roots(
        {
            "prod": {
                RootKey("default", "web"): Root(
                    own.variant.key, WEST, "web", revision(2), own.variant.source, own.variant
                )
            }
        }
    )


def test_roots_of_one_name_in_a_cluster_are_named_by_their_repositories() -> None:
    both = (resolved(EDGE), resolved(WEST, "clusters/west/web", name="other"), resolved(FAR, name="far"))

    named = roots(*both).by_cluster

    assert {
        cluster: {key.name: root.key.name for key, root in own.items()} for cluster, own in named.items()
    } == {
        "prod": {"edge/web": "web", "west/web": "other"},
        "dev": {"web": "far"},
    }


@pytest.mark.parametrize(
    ("tree", "path", "incomplete"),
    [("c9", "bp/web", {"prod"}), ("c9", "bp/plain", set())],
    ids=["of a package that declares some", "of a package that declares none"],
)
def test_requirements_of_a_revision_that_nobody_has_read_are_unknown(
    tree: str, path: str, incomplete: set[str]
) -> None:
    own = replace(resolved(), pin=a_pin(package=PackageKey(SOURCE, path), tree=oid(tree)))

    assert roots(own) == Roots({}, frozenset(incomplete))


# Changes of requirements


def need(name: str, text: str = "") -> PackageNeed:
    return PackageNeed(package_id(SOURCE, name), version_range(Dialect.KPT, text))


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


def test_variant_of_a_cluster_without_a_lock_has_changes() -> None:
    rows = changes(revision(1), revision(2, need("base", ">=1.0.0")), view=FAR)

    assert rows == (RequirementChange(f"{SOURCE}//base", "", ">=1.0.0", ""),)
