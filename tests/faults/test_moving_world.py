"""What others do between a run reading and writing: the next run ends as if it had been there before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.forges.bench import DIALECTS
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.small_world import blueprint, manifest, variant

pytestmark = [pytest.mark.one_forge, pytest.mark.slow]

Act = Callable[[ForgeWorld], None]


def move_downstream(world: ForgeWorld) -> None:
    for edge in world.edges:
        world.repo(edge).commit({"README.md": "A person's\n"}, message="A person's\n")


def move_control(world: ForgeWorld) -> None:
    world.upgrade("web")


def remove_a_manifest(world: ForgeWorld) -> None:
    world.repo("control").commit({manifest("edge-2", "db"): None})


def add_a_manifest(world: ForgeWorld) -> None:
    text = variant("edge-1", "web").replace("name: web-edge-1", "name: shop")
    head, _, tail = text.rpartition("package: web")
    world.repo("control").commit({manifest("edge-1", "shop"): f"{head}package: shop{tail}"})


def release_upstream(world: ForgeWorld) -> None:
    blueprints = world.repo("blueprints")
    blueprints.commit(blueprint("web", 3))
    blueprints.tag("web/v3")


ACTS: dict[str, Act] = {
    "the base of every draft moves": move_downstream,
    "the manifests move": move_control,
    "a manifest goes": remove_a_manifest,
    "a manifest comes": add_a_manifest,
    "upstream releases a revision": release_upstream,
}


def outcome(world: ForgeWorld) -> object:
    """Return what people see: pull requests, the packages on their branches, and main."""
    pulls = [
        (name, pull.head, pull.title, pull.state, pull.base)
        for name in world.simulator.repositories
        for pull in world.simulator.pulls(name)
        if pull.state == "open"
    ]
    mains = [world.repo(edge).tree("main") for edge in world.edges]
    drafts = [
        (edge, ref, world.repo(edge).tree(ref, ref.split("/")[3]))
        for edge in world.edges
        for ref in sorted(world.repo(edge).refs())
        if ref.startswith("refs/heads/drafts/")
    ]
    return sorted(pulls), mains, drafts


def settle(world: ForgeWorld) -> None:
    world.run()
    world.run()


CASES = [(kind, "the base of every draft moves") for kind in DIALECTS]
CASES += [("github", act) for act in list(ACTS)[1:]]


@pytest.mark.parametrize(("kind", "act"), CASES)
def test_what_moves_while_a_run_writes_is_met_by_the_next_one(
    kind: str, act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forge_world(kind, tmp_path / "before", monkeypatch) as undisturbed:
        ACTS[act](undisturbed)
        settle(undisturbed)
        wanted, last = outcome(undisturbed), undisturbed.runs[-1].code
    with forge_world(kind, tmp_path / "meanwhile", monkeypatch) as world:
        mains = {edge: world.repo(edge).oid("main") for edge in world.edges}
        world.simulator.on_push = lambda: ACTS[act](world)
        faulty = world.run()
        settle(world)

        assert faulty.code in {Exit.DONE, Exit.UNAVAILABLE, Exit.INVALID_INPUT}
        assert world.runs[-1].code is last
        assert outcome(world) == wanted
        assert world.run().plan.is_empty
        for edge in world.edges:
            repo = world.repo(edge)
            assert repo.git.merge_base(repo.oid("main"), mains[edge]) == mains[edge]


@pytest.mark.parametrize("kind", list(DIALECTS))
@pytest.mark.parametrize(
    "what", ["the token is revoked", "pushing is forbidden", "pull requests are forbidden"]
)
def test_a_permission_that_is_lost_while_a_run_writes_costs_nothing_but_time(
    what: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forge_world(kind, tmp_path / "w", monkeypatch) as world:
        simulator, token = world.simulator, world.simulator.token
        hook = world.root / "acme" / "edge-2.git" / "hooks" / "update"

        def lose() -> None:
            if what == "the token is revoked":
                simulator.token = "another"
            elif what == "pushing is forbidden":
                hook.parent.mkdir(exist_ok=True)
                hook.write_text("#!/bin/sh\necho 'You are not allowed to push' >&2\nexit 1\n")
                hook.chmod(0o755)
            else:
                simulator.plan("403", "POST", "edge-2/|edge-2$|edge-2%|/merge_requests|/pull", times=99)

        simulator.on_push = lose
        faulty = world.run()
        errors = [effect for effect in faulty.outcome.effects if effect.error]

        assert faulty.code in {Exit.UNAVAILABLE, Exit.REFUSED}
        assert errors
        simulator.token = token
        simulator.faults.clear()
        hook.unlink(missing_ok=True)
        assert world.run().code is Exit.DONE
        assert len(world.open_heads()) == 4
        assert [len(world.pulls(edge)) for edge in world.edges] == [2, 2]
        assert world.run().plan.is_empty
