"""Two instances beside each other: a package of one is handed to the other, and never taken."""

import re
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import manifest, repository, variant, write_world
from tests.support.world import World, git

SECOND = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {name: second}
spec: {manifests: [other]}
"""


def test_package_is_handed_to_another_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {f"other/{name}.yaml": repository(name) for name in ("blueprints", "edge-1")}
    adopting = variant("edge-1", "web") + "  adoptionPolicy: adoptExisting\n"
    write_world(tmp_path / "w", ("edge-1",), more={"second.yaml": SECOND, **others})
    world, path = World(tmp_path / "w"), manifest("edge-1", "web")
    control = Repo(world.control, time=1_767_300_000)
    world.publish()
    control.commit({"other/web.yaml": adopting})

    def second(*line: str) -> str:
        monkeypatch.setenv("RECONCILER_CONFIG", "second.yaml")
        said = world.run(*line)
        monkeypatch.delenv("RECONCILER_CONFIG")
        return said.out + said.err

    refused = second("plan")

    assert "is owned by another instance, fleet" in refused
    assert "give it deletionPolicy: orphan in fleet, remove it there" in refused
    assert "adoption, or another name" not in refused
    assert re.search("edge-1/web .*its release by fleet, or another name", second("status"))

    control.commit({path: variant("edge-1", "web") + "  deletionPolicy: orphan\n"})
    control.commit({path: None})
    for line in (("apply",), ("approve", "edge-1/web"), ("apply",)):
        assert world.run(*line).code == 0
    second("apply")
    second("approve", "edge-1/web")
    second("apply")

    edge = world.root / "edge-1.git"
    assert "reconciler.dev/owner: second/default/web-edge-1" in git(edge, "show", "main:web/Kptfile")
    assert "published" in second("status")
    assert "edge-1/web" not in world.run("plan").out
