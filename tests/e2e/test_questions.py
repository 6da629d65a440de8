"""`explain` answers from Git alone what happened to a package, and what keeps it from a revision."""

import json
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.git import Repo
from tests.support.schema import violations
from tests.support.small_world import manifest, package_set, variant, write_world
from tests.support.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A fleet: edge-1/web has v1 and a draft of v2, edge-1/db was rejected, edge-2 is pending and stalled."""
    world = write_world(tmp_path_factory.mktemp("w") / "w", ("edge-1",))
    world.run("apply")
    world.run("approve", "edge-1/web")
    world.run("pr", "close", "edge-1/db")
    control = Repo(world.control, time=world.clock + 60)
    control.commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    world.run("apply")
    broken = variant("edge-1", "web", revision=9).replace("name: web-edge-1", "name: broken")
    broken = broken.replace("repo: edge-1\n    package: web", "repo: edge-1\n    package: broken")
    control.commit({manifest("edge-1", "broken"): broken})
    return world


SITE = package_set("site", "{repositories: [{name: edge-1, packageNames: [site]}]}")


def schema_of(kind: str, capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert invoke(["schema", kind]) == 0
    return dict(json.loads(capfd.readouterr().out))


def test_history_has_drafts_and_revisions_with_their_differences(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    schema = schema_of("explanation", capfd)
    value = json.loads(world.run("explain", "edge-1/web", "--history", "-o", "json").out)
    text = world.run("explain", "edge-1/web", "--history").out
    _, _, rows = text.partition("  history:\n")

    assert violations(schema, value) == []
    assert [(item["revision"], item["upstream"]) for item in value["history"]] == [
        ("draft packagevariant-2", "web/v2"),
        ("v1", "web/v1"),
    ]
    draft, first = (item["diff"] for item in value["history"])
    assert (draft["files"], first["files"]) == (2, 3)
    assert first["removed"] == 0 < draft["removed"]
    assert [line.split()[0] for line in rows.splitlines()[:3]] == ["REVISION", "draft", "v1"]


def test_fault_of_a_set_is_an_obstacle_of_its_packages(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", ("edge-1",), more={"manifests/set.yaml": SITE})
    world.run("apply")
    control = Repo(world.control, time=world.clock + 60)
    control.commit({"manifests/set.yaml": SITE.replace("package: web", "package: wbe")})

    said = world.run("explain", "edge-1/site", "--why-not", "newest").out
    _, _, lines = said.partition("  what keeps it:\n")

    assert lines.splitlines()[0].strip() == (
        "1. could not find upstream package revision 'wbe/1' in repo 'blueprints' (manifests/set.yaml:5:13)"
    )
    assert lines.splitlines()[1].strip() == (
        "next: Correct the name, or publish it first: there is no package wbe yet. Did you mean web?"
    )
    assert "Nothing keeps it" not in said
