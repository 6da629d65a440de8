"""Recorded conditions state what the effects of a run left behind, whatever was planned."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World

STATUS = "reconciler/fleet/status"
WEB = "conditions/packagevariants/default/web-edge-1.json"
DECLINES = "#!/bin/sh\necho 'drafts are frozen until Monday' >&2\nexit 1\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "w", ("edge-1",))


def decline_pushes(repository: Path) -> Path:
    hook = repository / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(DECLINES)
    hook.chmod(0o755)
    return hook


def conditions(control: Repo, path: str = WEB) -> dict[str, tuple[str, str, str]]:
    """Return the recorded conditions: status, reason and message by type."""
    recorded = json.loads(control.read(STATUS, path))["conditions"]
    return {c["type"]: (c["status"], c["reason"], c.get("message", "")) for c in recorded}


def test_declined_push_leaves_variant_without_draft_and_not_ready(world: World) -> None:
    hook = decline_pushes(world.root / "edge-1.git")

    ended = world.run("apply")
    found = conditions(Repo(world.control))

    assert ended.code == Exit.REFUSED
    assert "drafts are frozen until Monday" in ended.out
    assert found["DraftExists"][:2] == ("False", "NoDraft")
    assert found["DownstreamEnsured"][:2] == ("False", "Error")
    assert found["Ready"][:2] == ("False", "Error")
    assert "drafts are frozen until Monday" in found["Ready"][2]
    assert found["Stalled"][:2] == ("False", "Valid")

    hook.unlink()
    assert world.run("apply").code == Exit.DONE
    assert {k: v[0] for k, v in conditions(Repo(world.control)).items()} | {"ContextInjected": ""} == {
        "ConfigInjected": "True",
        "ContextInjected": "",
        "DownstreamEnsured": "True",
        "DraftExists": "True",
        "Ready": "True",
        "Stalled": "False",
        "Valid": "True",
    }


def test_declined_update_keeps_the_draft_that_is_there(world: World) -> None:
    world.run("apply")
    decline_pushes(world.root / "edge-1.git")
    Repo(world.control, time=1_767_300_000).commit(
        {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)}
    )

    world.run("apply")

    found = conditions(Repo(world.control))
    assert found["DraftExists"][0] == "True"
    assert found["DownstreamEnsured"][0] == "False"
    assert found["Ready"][0] == "False"
    assert conditions(Repo(world.control), WEB.replace("web", "db"))["Ready"][0] == "True"


@pytest.fixture(params=["github", "gitea"])
def forge(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    with forge_world(request.param, tmp_path / "world", monkeypatch, edges=("edge-1",)) as made:
        yield made


def test_forge_that_refuses_a_pull_request_is_named_with_its_hint(forge: ForgeWorld) -> None:
    forge.simulator.plan("403", "POST", "/pulls")

    ran = forge.run()

    (failed,) = (effect for effect in ran.outcome.effects if effect.error)
    assert (failed.what, failed.is_left) == ("opened", False)
    assert failed.hint
    pair = [conditions(forge.repo("control"), WEB.replace("web", name)) for name in ("db", "web")]
    assert [found["DraftExists"][0] for found in pair] == ["True", "True"]
    assert [found["DownstreamEnsured"][0] for found in pair] == ["True", "True"]
    assert [found["Ready"][0] for found in pair] == ["False", "True"]
    assert "403" in pair[0]["Ready"][2]
    forge.run()
    assert conditions(forge.repo("control"), WEB.replace("web", "db"))["Ready"][0] == "True"
