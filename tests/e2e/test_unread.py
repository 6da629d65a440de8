"""Of a repository that cannot be read every command says so; none takes it for empty."""

from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import EDGES, write_world
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world whose first downstream is away."""
    write_world(tmp_path / "w")
    made = World(tmp_path / "w")
    made.run("apply")
    (tmp_path / "w/edge-1.git").rename(tmp_path / "w/edge-1.away")
    return made


@pytest.mark.parametrize("line", ["pr list", "lock", "lock --check", "expand", "approve --all"])
def test_listing_says_what_it_could_not_read(world: World, line: str) -> None:
    said = world.run(*line.split())

    assert "not read: manifests/repositories/edge-1.yaml:10:11: RepositoryUnavailable: " in said.err
    assert said.code == 5


@pytest.mark.parametrize(
    "line", ["explain edge-1/web", "approve edge-1/web", "pr show edge-1/web", "pr show edge-1#1"]
)
def test_name_in_an_unread_repository_is_not_called_unknown(world: World, line: str) -> None:
    said = world.run(*line.split())

    assert said.err.startswith("error: Repository default/edge-1 was not read: ")
    assert said.code == 5


def test_repositories_without_their_credential_are_not_taken_for_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    control = Repo(world.root / "control.git")
    credentials = "  credentials:\n  - {prefix: http://localhost:1/acme/, tokenEnv: NO_SUCH_TOKEN}\n"
    changes = {"reconciler.yaml": control.read("main", "reconciler.yaml").decode() + credentials}
    for edge in EDGES:
        path = f"manifests/repositories/{edge}.yaml"
        text = control.read("main", path).decode()
        changes[path] = text.replace("../", "http://localhost:1/acme/")
    control.commit(changes)

    said = world.run("plan")

    assert said.out.count("NO_SUCH_TOKEN is not set") == len(EDGES)
    assert "DuplicateDownstream" not in said.out
