"""What is read of a working copy: its commit, and what is not is said."""

from pathlib import Path

import pytest

from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    write_world(tmp_path / "w")
    git(tmp_path, "clone", "-q", str(tmp_path / "w/control.git"), str(tmp_path / "w/copy"))
    return tmp_path / "w/copy"


class Copy(World):
    """Commands are run against the working copy."""

    @property
    def control(self) -> Path:
        """The working copy."""
        return self.root / "copy"


@pytest.mark.parametrize("command", ["plan", "check"])
def test_uncommitted_manifests_are_named(copy: Path, command: str) -> None:
    (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=2))
    (copy / "manifests/new.yaml").write_text("{}")
    (copy / "notes.txt").write_text("not a manifest")
    git(copy, "commit", "-q", "--allow-empty", "-m", "Proposed")
    git(copy, "push", "-q", "origin", "main:feature")
    git(copy, "add", "manifests/new.yaml")
    head = git(copy, "rev-parse", "HEAD")[:12]

    said = Copy(copy.parent).run(command)

    expected = (
        f"note: Commit {head} is read; 2 uncommitted files are not: "
        "manifests/edge-1-web.yaml, manifests/new.yaml\n"
    )
    assert expected in said.out + said.err


@pytest.mark.parametrize("command", ["plan", "check"])
def test_commit_that_is_not_pushed_is_named(copy: Path, command: str) -> None:
    (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=2))
    git(copy, "commit", "-qam", "Update web")
    head = git(copy, "rev-parse", "HEAD")[:12]

    said = Copy(copy.parent).run(command)

    assert f"note: Commit {head} is read, which is not pushed\n" in said.out + said.err


@pytest.mark.parametrize("command", ["plan", "check"])
@pytest.mark.parametrize(
    "ref", ["refs/pull/1/merge", "refs/merge-requests/1/head", "refs/tags/draft", "refs/heads/other"]
)
def test_commit_that_the_remote_has_under_any_ref_is_pushed(copy: Path, command: str, ref: str) -> None:
    git(copy, "commit", "-q", "--allow-empty", "-m", "Proposed")
    git(copy, "push", "-q", "origin", f"HEAD:{ref}")
    git(copy, "checkout", "-q", "--detach")

    said = Copy(copy.parent).run(command)

    assert "not pushed" not in said.out + said.err


@pytest.mark.parametrize(
    "variable", ["GITHUB_SHA", "CI_COMMIT_SHA", "BITBUCKET_COMMIT", "BUILD_SOURCEVERSION"]
)
def test_commit_that_a_pipeline_runs_for_is_pushed(
    copy: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(copy, "commit", "-q", "--allow-empty", "-m", "Made by the forge")
    monkeypatch.setenv(variable, git(copy, "rev-parse", "HEAD").strip())

    said = Copy(copy.parent).run("check")

    assert "not pushed" not in said.out + said.err
