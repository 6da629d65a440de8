"""What if a version were published: who could move, who stays, who blocks; equal clusters ask once."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.read import FleetLocks
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.update.fleet import LockUpdate, update_locks
from reconciler.dependencies.update.memo import SolutionCache
from reconciler.dependencies.versions import VersionError
from reconciler.dependencies.what_if import (
    WhatIfOutcome,
    WhatIfResult,
    hypothetical_version,
    read_hypothetical,
    what_if,
)
from reconciler.errors import Location
from reconciler.inventory import Source
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    world_of,
)

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
    return {one.verdict: one for one in what_if(worlds, decision, candidate)}


def test_who_has_room_moves_and_says_what_moves_along() -> None:
    (moves,) = asked("2.0.0", dev=SHOP).values()

    assert (moves.verdict, moves.clusters) == (WhatIfOutcome.MOVES, ("dev",))
    assert [(change.instance, change.before, change.after) for change in moves.changes] == [
        ("carvel/db.io/namespace/prod", "1.0.0", "2.0.0")
    ]


@pytest.mark.parametrize(
    ("text", "blocker"),
    [(CAPPED, "web.io 1.0.0 requires db.io >=1.0.0 <2.0.0"), (PINNED, "mine asks for db.io 1.0.0")],
    ids=["a package", "a user"],
)
def test_who_blocks_is_named(text: str, blocker: str) -> None:
    (blocked,) = asked("2.0.0", dev=text).values()

    assert blocked.verdict is WhatIfOutcome.BLOCKED
    assert blocker in str(blocked.explanations[0])
    assert blocked.explanations[0].hints == ()


def test_who_has_something_better_stays() -> None:
    newer = SHOP + package("db.io", "3.0.0")

    assert asked("2.0.0", dev=newer).keys() == {WhatIfOutcome.STAYS}


def test_who_does_not_have_it_is_not_asked_further() -> None:
    assert asked("2.0.0", dev=OTHER, lab=OTHER)[WhatIfOutcome.UNAFFECTED].clusters == ("dev", "lab")


def test_clusters_that_answer_alike_are_told_together_and_asked_once() -> None:
    worlds, decision = fleet(a=SHOP)
    several = [replace(worlds[0], cluster=f"edge-{number}") for number in range(20)]
    scope = decision.scopes[0]
    locks = LockUpdate(tuple(replace(scope, cluster=world.cluster) for world in several))
    memo = SolutionCache()

    (moves,) = what_if(
        several, locks, hypothetical_version(worlds[0].catalogue.packages.popitem()[1], "2.0.0"), memo
    )

    assert len(moves.clusters) == 20
    assert len(memo._solutions) <= 3


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
    (blocked,) = what_if(worlds, decision, candidate)

    assert candidate.version == like.version
    assert "gone.io" in str(blocked.explanations[0])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (crossplane("net", "v1.0.0"), "v2.0.0"),
        (installation("app", "app") + bundle("app", "1.0.0"), "2.0.0"),
    ],
)
def test_every_ecosystem_can_be_asked(text: str, version: str) -> None:
    known = build_catalogue(one for several in world_of(text).catalogue.packages.values() for one in several)
    (several,) = known.packages.values()

    assert hypothetical_version(several, version).version.text == version
