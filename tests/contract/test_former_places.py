"""Former places on simulated forges: the draft there is closed, and a second run writes nothing."""

from pathlib import Path

import pytest

from reconciler.base.reasons import Reason
from tests.support.forges.world import forge_world

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["github", "gitlab", "gitea"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_draft_at_a_former_place_is_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    options = {"edges": ["edge-1", "edge-2"], "packages": ["web"], "others": ["new-1"]}
    with forge_world(kind, tmp_path / "w", monkeypatch, **options) as world:
        world.run()
        assert [name for name, _ in world.open_heads()] == ["acme/edge-1", "acme/edge-2"]
        control = world.repo("control")
        new = control.read("main", "manifests/repositories/new-1.yaml").decode()
        moved = new.replace("name: new-1", "name: edge-1")
        files = {"manifests/repositories/new-1.yaml": None, "manifests/repositories/edge-1.yaml": moved}
        if is_gone:
            files |= {"manifests/repositories/edge-1.yaml": None, "manifests/edge-1-web.yaml": None}
        control.commit(files)

        ran = world.run()

        reasons = {change.reason for change in ran.plan.changes}
        assert (Reason.PLACE_GONE if is_gone else Reason.MOVED) in reasons
        names = [name for name, _ in world.open_heads()]
        assert names == ["acme/edge-2", *(() if is_gone else ("acme/new-1",))]
        assert not [ref for ref in world.repo("edge-1").git.references if "drafts/" in ref]
        before = len(world.simulator.writes())
        world.run()
        assert len(world.simulator.writes()) == before
