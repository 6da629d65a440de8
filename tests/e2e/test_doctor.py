"""`doctor` names the cause of a broken set-up, and the next step."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import repository, write_world
from tests.support.world import World, git

CREDENTIALS = "  credentials:\n  - prefix: https://git.example.com\n    {}\n"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("doctor") / "w"
    return write_world(root, ("edge-1",))


def configure(world: World, text: str) -> None:
    old = git(world.control, "show", "main:reconciler.yaml")
    Repo(world.control, time=world.clock + 60).commit({"reconciler.yaml": old + text})


def register_branch(world: World) -> None:
    text = repository("edge-1").replace("branch: main", "branch: release")
    Repo(world.control, time=world.clock + 60).commit({"manifests/repositories/edge-1.yaml": text})


def name_token_file(world: World) -> None:
    configure(world, CREDENTIALS.format("tokenFile: /no/such/token"))


def name_engine(world: World) -> None:
    configure(world, "  functions:\n    runtime: nerdctl\n")


def commit_tomorrow(world: World) -> None:
    Repo(world.root / "edge-1.git", time=4_000_000_000).commit({"README.md": "tomorrow\n"})


def name_a_digest_that_is_none(world: World) -> None:
    header = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: x.io/a\nversion: v1.0.0\n"
    files = {"index/x.io/a/v1.0.0/version.yaml": f"{header}digest: 12\n".replace("12", "'12'")}
    Repo(world.control, time=world.clock + 60).commit(files)


def sign_without_key(world: World) -> None:
    configure(world, "  commits:\n    sign: ssh\n    signingKeyEnv: NO_SUCH_KEY\n")


CASES: list[tuple[Callable[[World], None], str, str, str]] = [
    (register_branch, "reach", "has no branch release", "push the branch"),
    (name_token_file, "credentials", "/no/such/token", "correct spec.credentials"),
    (name_engine, "engines", "nerdctl", "Install nerdctl"),
    (commit_tomorrow, "clock", "^Commit [0-9a-f]{8} of edge-1 is dated 2096-10-02 .*, in the future$",
        "Set "),
    (name_a_digest_that_is_none, "index", "'12' is no digest", "sha256:"),
    (sign_without_key, "signing key", "NO_SUCH_KEY is not set", "Set it"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_broken_set_up_has_a_named_cause_and_a_next_step(
    healthy: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[Callable[[World], None], str, str, str],
) -> None:
    """On a machine that has Git, and none of the engines."""
    damage, check, message, hint = case
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    shutil.copytree(healthy.root, tmp_path / "w")
    world = World(tmp_path / "w")
    damage(world)

    said = world.run("doctor", "-o", "json")

    (error,) = [item for item in json.loads(said.out)["items"] if item["severity"] == "error"]
    assert (said.code, error["check"]) == (3, check)
    assert re.search(message, error["message"])
    assert hint in error["hint"]
    assert "versions read" not in said.out  # of an index none, where one is not understood
