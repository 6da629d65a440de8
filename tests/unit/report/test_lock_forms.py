"""Locks of drawn worlds in every form, as reviewed files of tests/goldens/locks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.report import locks
from tests.support.dependency_worlds import crowded_world, shared_world, small_world
from tests.support.values import replace

GOLDENS = Path(__file__).resolve().parents[2] / "goldens/locks"
WORLDS: dict[str, Callable[[int], ClusterInputs]] = {
    "small": lambda seed: small_world(seed)[0],
    "shared": shared_world,
    "crowded": crowded_world,
}


def forms(update: LockUpdate) -> str:
    lines = [*locks.lock_lines(update), *locks.text_tree(locks.dependency_graph(update))]
    files = (f"{path} {json.dumps(json.loads(data))}" for path, data in sorted(update.files.items()))
    values = (json.dumps(value, sort_keys=True) for value in locks.lock_values(update))
    return "\n".join([*lines, *values, *files])


@pytest.mark.parametrize("kind", WORLDS)
def test_locks_are_shown_as_reviewed(kind: str, *, update_golden: bool) -> None:
    shown = ""
    for seed in range(8):
        world = replace(WORLDS[kind](seed), cluster="dev", pins=(), locked=())
        first = update_locks(FleetInputs((world,)), FleetLocks())
        fewer = replace(world, installs=world.installs[1:])
        second = update_locks(FleetInputs((fewer,)), read_locks(first.files))
        shown += f"# {kind} {seed}\n{forms(first)}\n# without the first install\n{forms(second)}\n"
    file = GOLDENS / f"{kind}.txt"

    if update_golden:
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
