"""What if a version were published: who could move, who stays, who blocks; equal clusters ask once."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.convert import FleetLocks
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.packages import (
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    exact_range,
)
from reconciler.dependencies.update import cluster
from reconciler.dependencies.update.fleet import update_locks
from reconciler.dependencies.versions.version import VersionError
from reconciler.dependencies.what_if import (
    Hypothesis,
    WhatIfOutcome,
    WhatIfResult,
    bump,
    change_default,
    hypothetical_version,
    publish,
    read_hypothetical,
    what_if,
    withdraw,
)
from reconciler.inventory.inventory import Source
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    world_of,
)
from tests.support.values import replace

DB = package("db.io", "1.0.0")
SHOP = install("shop", "web.io", "") + package("web.io", "1.0.0", needs("db.io", ">=1.0.0")) + DB
CAPPED = SHOP.replace(">=1.0.0", ">=1.0.0 <2.0.0")
PINNED = install("mine", "db.io", "1.0.0") + DB
OTHER = install("log", "log.io", "") + package("log.io", "1.0.0")


def fleet(**clusters: str) -> tuple[list[ClusterInputs], LockUpdate]:
    worlds = [replace(world_of(text), cluster=name) for name, text in clusters.items()]
    return worlds, update_locks(FleetInputs(tuple(worlds)), FleetLocks())


def asked(text: str, **clusters: str) -> dict[WhatIfOutcome, WhatIfResult]:
    worlds, decision = fleet(**clusters)
    known = world_of(DB).catalogue.packages.values()
    candidate = hypothetical_version((one for several in known for one in several), text)
    return {one.verdict: one for one in what_if(worlds, decision, publish(candidate))}


def test_who_has_room_moves_and_says_what_moves_along() -> None:
    (moves,) = asked("2.0.0", dev=SHOP).values()

    assert (moves.verdict, moves.clusters) == (WhatIfOutcome.MOVES, ("dev",))
    assert [(change.instance, change.before, change.after) for change in moves.changes] == [
        ("carvel:db.io@namespace/prod", "1.0.0", "2.0.0")
    ]


@pytest.mark.parametrize(
    ("text", "blocker", "hint"),
    [
        (
            CAPPED,
            "web.io 1.0.0 requires db.io >=1.0.0 <2.0.0",
            (
                'Write `override: [{refName: db.io, versionSelection: {constraints: ">=1.0.0 <=2.0.0"}}]` '
                "below spec.dependencies of PackageInstall prod/shop (config/cluster.yaml:2), "
                "so that it accepts db.io 2.0.0"
            ),
        ),
        (
            PINNED,
            "mine asks for db.io 1.0.0",
            (
                "Write `2.0.0` instead of `1.0.0` at config/cluster.yaml:6:64, "
                "so that PackageInstall prod/mine takes db.io 2.0.0"
            ),
        ),
    ],
    ids=["a package", "a user"],
)
def test_blocked_cluster_names_the_blocker_and_the_smallest_change(
    text: str, blocker: str, hint: str
) -> None:
    (blocked,) = asked("2.0.0", dev=text).values()

    assert blocked.verdict is WhatIfOutcome.BLOCKED
    assert blocker in str(blocked.explanations[0])
    assert "db.io is to be 2.0.0" in blocked.explanations[0].sentences
    assert "no version of db.io fits" not in str(blocked.explanations[0])
    assert hint in blocked.explanations[0].hints


@pytest.mark.parametrize(
    "neighbour",
    [
        "",
        provider("odd", "v1.0.0")
        + crossplane("odd", "v1.0.0", "[{provider: x.io/aws, version: '>=v9.0.0'}]"),
    ],
)
def test_manifest_that_shares_a_package_blocks_and_does_not_give_way(neighbour: str) -> None:
    platform = crossplane("platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}]")
    text = provider("platform", "v1.0.0") + provider("aws", "v1.0.0") + platform + crossplane("aws", "v1.0.0")
    worlds, decision = fleet(dev=text + neighbour)
    aws = worlds[0].catalogue.packages[PackageId(Ecosystem.XPKG, "x.io/aws")]

    (blocked,) = what_if(worlds, decision, publish(hypothetical_version(aws, "v2.0.0")))

    assert blocked.verdict is WhatIfOutcome.BLOCKED
    assert blocked.explanations[0].sentences[0].startswith("Provider aws asks for x.io/aws =v1.0.0")
    assert blocked.explanations[0].sentences[-1] == "x.io/aws is to be v2.0.0"
    assert blocked.explanations[0].hints


def test_cluster_that_two_places_block_names_both_changes() -> None:
    text = install("mine", "db.io", "1.0.0") + CAPPED.replace("constraints: ''", "constraints: '>=1.0.0'")
    (blocked,) = asked("2.0.0", dev=text).values()

    assert blocked.explanations[0].hints[0] == (
        "Write `2.0.0` instead of `1.0.0` at config/cluster.yaml:6:64, "
        "so that PackageInstall prod/mine takes db.io 2.0.0; and "
        'write `override: [{refName: db.io, versionSelection: {constraints: ">=1.0.0 <=2.0.0"}}]` '
        "below spec.dependencies of PackageInstall prod/shop (config/cluster.yaml:8), "
        "so that it accepts db.io 2.0.0"
    )


def test_who_has_something_better_stays() -> None:
    newer = SHOP + package("db.io", "3.0.0")

    assert asked("2.0.0", dev=newer).keys() == {WhatIfOutcome.STAYS}


def test_who_does_not_have_it_is_not_asked_further() -> None:
    assert asked("2.0.0", dev=OTHER, lab=OTHER)[WhatIfOutcome.UNAFFECTED].clusters == ("dev", "lab")


def test_clusters_that_answer_alike_are_told_together_and_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds, decision = fleet(a=SHOP)
    several = [replace(worlds[0], cluster=f"edge-{number}") for number in range(20)]
    scope = decision.scopes[0]
    locks = LockUpdate(tuple(replace(scope, cluster=world.cluster) for world in several))
    calls: list[ClusterInputs] = []
    resolve = cluster.resolve_cluster
    monkeypatch.setattr(cluster, "resolve_cluster", lambda own: calls.append(own) or resolve(own))

    candidate = hypothetical_version(worlds[0].catalogue.packages.popitem()[1], "2.0.0")
    (moves,) = what_if(several, locks, publish(candidate))

    assert len(moves.clusters) == 20
    assert len(calls) <= 3


def test_a_version_of_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(VersionError):
        hypothetical_version(world_of(DB).catalogue.packages.popitem()[1], "latest")


def test_its_own_manifest_decides_what_it_needs() -> None:
    like = hypothetical_version(world_of(DB).catalogue.packages.popitem()[1], "2.0.0")
    manifest: dict[str, Any] = {
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": "db.io.9.9.9"},
        "spec": {
            "refName": "db.io",
            "version": "9.9.9",
            "dependencies": [{"package": {"refName": "gone.io"}}],
        },
    }
    (candidate,) = read_hypothetical([(manifest, Source(Location("next.yaml")))], like).candidates

    worlds, decision = fleet(dev=SHOP)
    (blocked,) = what_if(worlds, decision, publish(candidate))

    assert candidate.version == like.version
    assert "gone.io" in str(blocked.explanations[0])


@pytest.mark.parametrize(
    ("text", "version"),
    [(crossplane("net", "v1.0.0"), "v2.0.0"), (installation("app", "app") + bundle("app", "1.0.0"), "2.0.0")],
)
def test_every_ecosystem_can_be_asked(text: str, version: str) -> None:
    known = build_catalogue(one for several in world_of(text).catalogue.packages.values() for one in several)
    (several,) = known.packages.values()

    assert hypothetical_version(several, version).version.text == version


DB2 = package("db.io", "2.0.0", needs("log.io"))
LOGS = package("log.io", "1.0.0")


def effects(text: str, hypothesis: Hypothesis) -> WhatIfResult:
    worlds, decision = fleet(dev=text)
    (result,) = what_if(worlds, decision, hypothesis)
    return result


def moved(result: WhatIfResult) -> list[str]:
    return [f"{change.op} {change.instance} {change.before}>{change.after}" for change in result.changes]


def test_packages_that_move_along_are_listed() -> None:
    worlds, decision = fleet(dev=SHOP + LOGS)
    (new,) = list(world_of(DB2).catalogue.packages[PackageId(Ecosystem.CARVEL, "db.io")])
    (result,) = what_if(worlds, decision, publish(new))

    assert moved(result) == [
        "change carvel:db.io@namespace/prod 1.0.0>2.0.0",
        "add carvel:log.io@namespace/prod >1.0.0",
    ]
    assert result.changes[1].why == "carvel:db.io@namespace/prod asks for it"


def test_version_that_a_cluster_has_changes_nothing() -> None:
    assert asked("1.0.0", dev=SHOP).keys() == {WhatIfOutcome.CURRENT}


def test_removed_package_is_replaced_where_an_alternative_is_there_and_blocks_elsewhere() -> None:
    either = "{or: [{package: {refName: db.io}}, {package: {refName: log.io}}]}"
    free = install("shop", "web.io", "") + package("web.io", "1.0.0", either) + DB + LOGS
    removed = withdraw(PackageId(Ecosystem.CARVEL, "db.io"))

    assert moved(effects(free, removed)) == [
        "remove carvel:db.io@namespace/prod 1.0.0>",
        "add carvel:log.io@namespace/prod >1.0.0",
    ]
    blocked = effects(SHOP, removed)
    assert blocked.verdict is WhatIfOutcome.BLOCKED
    assert "no version of db.io is published" in str(blocked.explanations[0])
    assert effects(OTHER, removed).verdict is WhatIfOutcome.UNAFFECTED


def test_removed_version_lets_another_one_be_chosen() -> None:
    removed = withdraw(PackageId(Ecosystem.CARVEL, "db.io"), "2.0.0")

    assert moved(effects(SHOP + package("db.io", "2.0.0"), removed)) == [
        "change carvel:db.io@namespace/prod 2.0.0>1.0.0"
    ]


def test_another_default_of_an_interface_changes_the_package_behind_it() -> None:
    text = (
        installation("a", "app")
        + bundle("app", "1.0.0", "{requires: [{name: db, interface: {name: mysql}}]}")
        + bundle("old", "1.0.0", "{provides: [{interface: io.cnab.interface.mysql}]}")
        + bundle("new", "1.0.0", "{provides: [{interface: io.cnab.interface.mysql}]}")
        + "---\n{kind: Cluster, choices: {defaults: {io.cnab.interface.mysql: 'bundle:r.io/old'}}}\n"
    )
    other = change_default("io.cnab.interface.mysql", PackageId(Ecosystem.BUNDLE, "r.io/new"))
    result = effects(text, other)

    assert other.text == "bundle:r.io/new were the default of io.cnab.interface.mysql"
    assert result.verdict is WhatIfOutcome.MOVES
    assert [line.partition("@")[0] for line in moved(result)] == ["add bundle:r.io/new"]
    assert effects(OTHER, change_default("i", PackageId(Ecosystem.BUNDLE, "r.io/new"))).changes == ()


def test_upstream_bump_of_a_variant_moves_its_dependencies_or_names_the_conflict() -> None:
    kpt = (
        "---\napiVersion: data.packaging.carvel.dev/v1alpha1\nkind: Package\n"
        "metadata: {{name: web.{0}, annotations: {{kpt: 'u//web'}}}}\nspec: {{refName: web, version: {0}, "
        "dependencies: [{{package: {{refName: db.io, version: '{1}'}}}}]}}\n"
    )
    text = DB + package("db.io", "2.0.0") + kpt.format("1.0.0", "<2.0.0") + kpt.format("2.0.0", ">=2.0.0")
    world = world_of(text)
    web = world.catalogue.packages[PackageId(Ecosystem.KPT, "u//web")]
    need = PackageNeed(web[0].id, exact_range(Dialect.KPT, "1.0.0"))
    variant = Install("default", "web", Dialect.KPT, need, kind="PackageVariant")
    pinned = world_of(install("mine", "db.io", "1.0.0", namespace="default") + DB)
    worlds = [
        replace(world, cluster="dev", installs=(variant,)),
        replace(world, cluster="prod", installs=(variant, *pinned.installs)),
        replace(world_of(OTHER), cluster="lab"),
    ]
    decision = update_locks(FleetInputs(tuple(worlds)), FleetLocks())
    keys = {cluster: frozenset({("default", "web")}) for cluster in ("dev", "prod")}

    results = {r.clusters: r for r in what_if(worlds, decision, bump("default/web", keys, web[1]))}

    assert {cluster: result.verdict for (cluster,), result in results.items()} == {
        "dev": WhatIfOutcome.MOVES,
        "prod": WhatIfOutcome.BLOCKED,
        "lab": WhatIfOutcome.UNAFFECTED,
    }
    assert "change carvel:db.io@namespace/default 1.0.0>2.0.0" in moved(results["dev",])
