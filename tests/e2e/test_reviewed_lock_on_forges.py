"""A reviewed lock where the control repository stands on a forge: one pull request, in place, once."""

import json
from pathlib import Path

import pytest

from reconciler.base.reasons import Reason
from reconciler.plan.changes import LockProposal, Op
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.small_world import manifest, variant

pytestmark = pytest.mark.slow

HEAD = ("acme/control", "reconciler/fleet/lock")


def move(world: ForgeWorld, revision: int) -> str:
    """The author moves the tag; return the commit it names now."""
    blueprints = world.repo("blueprints")
    blueprints.tag("web/stable", f"web/v{revision}")
    return blueprints.oid("web/stable")


def pinned(world: ForgeWorld, branch: str) -> str:
    text = world.repo("control").read(branch, "locks/upstreams/default/web-edge-1.json")
    return json.loads(text)["commit"]


def lock_of(world: ForgeWorld) -> LockProposal:
    lock = world.run().plan.lock
    assert lock is not None
    return lock


@pytest.mark.parametrize("kind", ["github", "gitlab", "gitea"])
def test_a_lock_is_proposed_updated_merged_and_withdrawn(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  lock: {mode: reviewed}\n"
    edges, packages = ["edge-1"], ["web"]
    with forge_world(
        kind, tmp_path / "w", monkeypatch, edges=edges, packages=packages, more=more, hosted_control=True
    ) as world:
        asked = variant("edge-1", "web").replace("revision: 1", "tag: stable")
        world.repo("control").commit({manifest("edge-1", "web"): asked})
        first = move(world, 1)
        world.run()
        assert HEAD in world.open_heads()
        assert pinned(world, HEAD[1]) == first
        (pull,) = world.pulls("control")
        assert not pull.draft
        assert "PackageVariant default/web-edge-1" in pull.body
        writes = len(world.simulator.writes())
        assert lock_of(world).change.op is Op.KEEP
        assert len(world.simulator.writes()) == writes

        second = move(world, 2)
        world.run()
        (pull,) = world.pulls("control")
        assert pinned(world, HEAD[1]) == second
        world.simulator.merge("acme/control", pull.number)
        assert pinned(world, "main") == second
        world.run()
        assert world.run().plan.lock is None
        assert not world.repo("control").git.references.get(f"refs/heads/{HEAD[1]}")

        move(world, 1)
        world.run()
        (_, pull) = world.pulls("control")
        world.simulator.close("acme/control", pull.number)
        change = lock_of(world).change
        assert (change.op, change.reason, change.pending) == (Op.KEEP, Reason.REJECTED, False)

        move(world, 2)
        assert lock_of(world).change.op is Op.CLOSE
        assert HEAD not in world.open_heads()
        assert world.run().plan.lock is None


def test_a_control_forge_that_cannot_be_read_gets_no_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  lock: {mode: reviewed}\n"
    with forge_world(
        "github", tmp_path / "w", monkeypatch, edges=[], packages=["web"], more=more, hosted_control=True
    ) as world:
        world.simulator.plan("html", times=50)
        plan = world.plan().plan

        assert plan.lock is None
        assert [problem.reason for problem in plan.problems] == [Reason.REPOSITORY_UNAVAILABLE]
