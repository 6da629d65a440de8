"""Which cluster a manifest is for, and what a run decides for all of them."""

import textwrap
from typing import Any

import pytest
import yaml

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetClusters, FleetInputs, collect_cluster_inputs
from reconciler.dependencies.catalog.index import IndexContents, read_index
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.dependencies.versions import parse_loose
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.inventory.snapshot import Snapshot
from tests.support.dependency_manifests import install, installation, needs, package
from tests.support.values import replace

FLEET = FleetClusters({"dev": "", "prod": "production"}, Snapshot())


def found(files: dict[str, str]) -> tuple[SourcedDocument, ...]:
    return tuple(
        SourcedDocument(document, Source(Location(path, number)))
        for path, text in files.items()
        for number, document in enumerate(yaml.safe_load_all(textwrap.dedent(text)), 1)
        if document
    )


def scopes(
    files: dict[str, str], *candidates: str, fleet: FleetClusters = FLEET, **index: str
) -> FleetInputs:
    shared = {f"shared{n}.yaml": text for n, text in enumerate(candidates)}
    return collect_cluster_inputs(found(files | shared), (), read_index(found(index)), fleet)


def decided(
    files: dict[str, str], *candidates: str, locks: FleetLocks | None = None, **more: Any
) -> LockUpdate:
    return update_locks(scopes(files, *candidates), locks or FleetLocks(), **more)


WEB = package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
DB = package("db.io", "1.0.0")
SHOP = {"clusters/dev/shop.yaml": install("shop", "web.io", "")}


def pins(decision: LockUpdate) -> dict[str, list[str]]:
    return {
        scope.cluster: [
            f"{one.instance.name} {one.version}" for one in scope.after.resolution.packages if scope.after
        ]
        for scope in decision.scopes
        if scope.after
    }


@pytest.mark.parametrize(
    ("path", "text", "cluster"),
    [
        ("clusters/dev/shop.yaml", install("shop", "web.io", ""), "dev"),
        ("manifests/clusters/prod.yaml", install("shop", "web.io", ""), "prod"),
        ("clusters/dev/a/b.yaml", installation("a", "app"), "dev"),
        ("shop.yaml", installation("a", "app", more="custom: {reconciler.dev/cluster: edge}"), "edge"),
        (
            "clusters/dev/shop.yaml",
            install("shop", "web.io", "").replace(
                "namespace: prod}", "namespace: prod, annotations: {reconciler.dev/cluster: edge}}"
            ),
            "edge",
        ),
    ],
)
def test_a_manifest_is_for_the_cluster_that_it_names_or_stands_under(path, text, cluster) -> None:
    assert [world.cluster for world in scopes({path: text}).worlds] == [cluster]


def test_a_manifest_that_names_no_cluster_is_for_the_only_one() -> None:
    one = FleetClusters({"dev": ""}, Snapshot())
    seen = FleetClusters({"dev": "", "prod": ""}, Snapshot(present=True, cluster="prod"))
    text = {"shop.yaml": install("shop", "web.io", "")}

    assert [world.cluster for world in scopes(text, fleet=one).worlds] == ["dev"]
    assert [world.cluster for world in scopes(text, fleet=seen).worlds] == ["prod"]
    assert [p.reason for p in scopes(text).problems] == [Reason.MISSING_FIELD]
    assert scopes(text).incomplete == {""}


SERVING = {"served": frozenset({("certs.io/v1", "Issuer")}), "versions": {"kubernetes": "v1.31.0"}}


@pytest.mark.parametrize(
    ("snapshot", "clusters", "observed"),
    [
        (Snapshot(present=True, **SERVING), ["dev"], ["dev"]),
        (Snapshot(present=True, **SERVING), ["dev", "prod"], []),
        (Snapshot(present=True, cluster="dev", **SERVING), ["dev", "prod"], ["dev"]),
        (Snapshot(present=True, cluster="prod", **SERVING), ["dev"], []),
        (
            Snapshot(
                clusters={name: Snapshot(present=True, cluster=name, **SERVING) for name in ("dev", "prod")}
            ),
            ["dev", "edge", "prod"],
            ["dev", "prod"],
        ),
        (Snapshot(), ["dev", "prod"], []),
    ],
    ids=["no name, one cluster", "no name", "own name", "other name", "one for each", "none"],
)
def test_a_snapshot_counts_for_its_own_cluster(snapshot, clusters, observed) -> None:
    files = {f"clusters/{name}/shop.yaml": install("shop", "web.io", "") for name in clusters}

    inputs = scopes(files, fleet=replace(FLEET, snapshot=snapshot))

    assert [world.cluster for world in inputs.worlds if world.presence.apis] == observed
    assert [world.cluster for world in inputs.worlds if world.presence.platforms] == observed
    counts_for_none = snapshot.present and not snapshot.cluster and len(clusters) > 1
    assert [str(warning.reason) for warning in inputs.warnings] == ["MissingField"] * counts_for_none


def test_two_of_one_name_are_named_both_and_neither_counts() -> None:
    both = scopes(
        {
            "clusters/dev/a.yaml": install("shop", "web.io", ""),
            "clusters/dev/b.yaml": install("shop", "db.io", ""),
            "clusters/prod/a.yaml": install("shop", "web.io", ""),
        }
    )

    assert [(p.location.path, p.reason) for p in both.problems] == [
        ("clusters/dev/a.yaml", Reason.DUPLICATE_OBJECT),
        ("clusters/dev/b.yaml", Reason.DUPLICATE_OBJECT),
    ]
    assert "clusters/dev/b.yaml" in both.problems[0].message
    assert [world.cluster for world in both.worlds] == ["prod"]


def test_the_nearest_layer_of_defaults_counts() -> None:
    head = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageIndex\ndefaults: "
    index = {
        "index/defaults.yaml": head + "{i: 'bundle:fleet', j: 'bundle:fleet'}",
        "index/environments/production.yaml": head + "{i: 'bundle:production'}",
        "index/clusters/prod.yaml": "apiVersion: reconciler.dev/v1alpha1\nkind: PackageIndex\ndefaults: {}",
        "index/broken.yaml": head + "{i: 'no ecosystem'}",
    }
    files = {f"clusters/{c}/a.yaml": installation("a", "app") for c in ("dev", "prod")}
    found_ = scopes(files, **index)

    assert {w.cluster: [str(id_) for _, id_ in w.choices.defaults] for w in found_.worlds} == {
        "dev": ["bundle:fleet", "bundle:fleet"],
        "prod": ["bundle:production", "bundle:fleet"],
    }
    assert [p.location.path for p in found_.problems] == ["index/broken.yaml"]


def test_a_wish_that_is_withdrawn_loses_its_pins_but_one_that_is_not_understood_keeps_them() -> None:
    mine = SHOP | {"clusters/dev/db.yaml": install("db", "db.io", "", namespace="other")}
    locks = read_locks(decided(mine, WEB, DB).files)
    broken = SHOP | {"clusters/dev/db.yaml": install("db", "db.io", "what?", namespace="other")}

    assert pins(decided(SHOP, WEB, DB, locks=locks)) == {"dev": ["db.io 1.0.0", "web.io 1.0.0"]}
    kept = decided(broken, WEB, DB, locks=locks)
    assert pins(kept) == {"dev": ["db.io 1.0.0", "db.io 1.0.0", "web.io 1.0.0"]}
    assert pins(decided(SHOP, WEB, DB, locks=locks, sure=False)) == pins(kept)
    assert decided({}, WEB, locks=locks).files == {}
    assert pins(decided({}, WEB, locks=locks, sure=False)) == pins(kept)


def test_a_lock_that_cannot_be_read_is_a_problem_and_decided_anew() -> None:
    first = decided(SHOP, WEB, DB)
    torn = {path: b"{}" if path == "locks/dev.json" else data for path, data in first.files.items()}
    locks = read_locks(torn)

    assert [(p.location.path, p.reason) for p in locks.problems] == [("locks/dev.json", Reason.INVALID_STATE)]
    assert pins(decided(SHOP, WEB, DB, locks=locks)) == pins(first)


def test_a_cluster_that_uses_an_unreachable_repository_stays_locked() -> None:
    base = Candidate(
        PackageId(Ecosystem.KPT, "https://git.io/b//base"), parse_loose("1.0.0"), names=("base.io",)
    )
    documents = found(SHOP | {"web.yaml": package("web.io", "1.0.0", needs("base.io"))})
    there = collect_cluster_inputs(documents, (base,), IndexContents(), FLEET)
    locks = read_locks(update_locks(there, FleetLocks()).files)
    gone = collect_cluster_inputs(documents, (), IndexContents(), FLEET)

    assert update_locks(gone, locks, unreachable=frozenset({"https://git.io/b"})).problems == ()
    assert [problem.reason for problem in update_locks(gone, locks).problems] == [Reason.DEPENDENCY_CONFLICT]


# Further names of packages


def named(id_: PackageId, *names: str) -> Candidate:
    version = parse_loose("1.0.0")
    return Candidate(id_, version, names=names, location=Location(f"{id_.name}/package.yaml", 1))


KPT = [PackageId(Ecosystem.KPT, f"blueprints//{name}") for name in ("a", "b")]


@pytest.mark.parametrize(
    ("candidates", "notes"),
    [
        ((named(KPT[0], "log.io"), named(KPT[1], "x.io")), []),
        (tuple(named(PackageId(Ecosystem.BUNDLE, f"{host}/db"), "db") for host in ("g.io", "h.io")), []),
        ((named(KPT[0], "db.io"),),
            ["db.io is a further name of blueprints//a, and means the package carvel:db.io"]),
        ((named(KPT[0], "log.io"), named(KPT[1], "log.io")),
            ["log.io is a further name of blueprints//a and blueprints//b, and means none of them"]),
        (
            (
                named(PackageId(Ecosystem.XPKG, "x.io/a"), "old/a"),
                named(PackageId(Ecosystem.XPKG, "x.io/b"), "old/a"),
                named(KPT[0], "old/a"),
            ),
            ["old/a is a further name of x.io/a and x.io/b, and means none of them"],
        ),
    ],
    ids=[
        "each its own",
        "of one bundle in two registries",
        "of another package",
        "of two kpt packages",
        "of two packages of an index",
    ],
)  # fmt: skip
def test_a_name_that_means_another_package_is_told(candidates, notes) -> None:
    index = read_index(found({"index/db.yaml": DB}))

    inputs = collect_cluster_inputs(found(SHOP), candidates, index, FLEET)

    assert [warning.message for warning in inputs.warnings] == notes
