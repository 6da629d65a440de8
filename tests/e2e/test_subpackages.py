"""Sub-packages with an upstream of their own, on the world that tells of one: what is set is merged."""

from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.world import World, build_world, git, restored

WORLD = Path("fixtures/worlds/97-subpackage-revision")
DIRECTORY = "app/infra/db"


@pytest.fixture
def world() -> World:
    """The application is published with the first revision of its database."""
    return restored("subpackages", make_published)


def make_published(root: Path) -> World:
    world = build_world(WORLD, root)
    publish(world)
    return world


def publish(world: World) -> None:
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", "edge/app").code == 0
    assert world.run("apply", "--quiet").code == 0
    assert "Nothing was written" in world.run("apply").out


def ask(world: World, revisions: str, parent: int = 1, more: str = "") -> None:
    """Write the annotation and the revision of the application."""
    with world.edit("control", f"{revisions} of app/v{parent}") as copy:
        path = copy / "manifests/app.yaml"
        head, _, _ = path.read_text().partition("  annotations:")
        head, _, _ = head.partition("spec:")
        annotation = f"  annotations:\n    reconciler.dev/subpackage-revisions: '{revisions}'\n{more}"
        spec = f"spec:\n  upstream: {{repo: blueprints, package: app, revision: {parent}}}\n"
        path.write_text(head + annotation + spec + "  downstream: {repo: edge, package: app}\n")


def main(world: World, path: str) -> str:
    return git(world.root / "edge.git", "show", f"main:{path}")


def files(world: World) -> dict[str, str]:
    names = git(world.root / "edge.git", "ls-tree", "-r", "--name-only", "main", "app").split()
    return {name: main(world, name) for name in names}


def release(world: World, revision: int, text: str, new: str) -> None:
    """Publish the application with another text in the manifest of its database."""
    with world.edit("blueprints", f"app v{revision}") as copy:
        path = copy / DIRECTORY / "deployment.yaml"
        assert text in path.read_text()
        path.write_text(path.read_text().replace(text, new))
    Repo(world.root / "blueprints.git").tag(f"app/v{revision}")


def test_updated_package_equals_one_that_is_new_at_that_revision(world: World, tmp_path: Path) -> None:
    ask(world, "infra/db: v3")
    publish(world)
    other = build_world(WORLD, tmp_path / "other")
    ask(other, "infra/db: v3")
    publish(other)

    assert files(world) == files(other)
    assert "postgres:13" in main(world, f"{DIRECTORY}/deployment.yaml")
    assert "replicas: 3" in main(world, f"{DIRECTORY}/deployment.yaml")
    assert "ref: db/v3" in main(world, f"{DIRECTORY}/Kptfile")


def test_package_moves_and_its_subpackage_keeps_its_revision(world: World) -> None:
    ask(world, "infra/db: v2")
    publish(world)
    release(world, 2, "replicas: 3", "replicas: 4")
    ask(world, "infra/db: v2", parent=2)
    publish(world)

    text = main(world, f"{DIRECTORY}/deployment.yaml")
    assert "replicas: 4" in text
    assert "postgres:12" in text


def test_edit_of_the_blueprint_that_contradicts_blocks_until_a_policy_decides(world: World) -> None:
    release(world, 2, "postgres:11", "postgres:blue")
    ask(world, "infra/db: v3", parent=2)

    refused = world.run("apply")
    assert refused.code == 7
    assert "both changed infra/db/deployment.yaml" in refused.out

    ask(world, "infra/db: v3", 2, "    reconciler.dev/on-conflict: local\n")
    publish(world)
    assert "postgres:blue" in main(world, f"{DIRECTORY}/deployment.yaml")
