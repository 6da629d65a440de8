"""The comment of a check on the control repository's pull request: one, in place, only where permitted."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.cli.main import invoke
from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import Pull
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.git import Repo
from tests.support.small_world import manifest, variant

pytestmark = pytest.mark.one_forge

NAME = "acme/control"


class Proposed(NamedTuple):
    """A control repository on the forge, with a pull request that asks for another revision."""

    world: ForgeWorld
    repo: Repo
    pull: Pull

    @property
    def comments(self) -> list[str]:
        return [body for _, body in self.pull.comments.values()]

    def check(self, *more: str) -> int:
        url = self.world.simulator.url(NAME)
        places = ["--control", url, "--cache-dir", str(self.world.root / "cache")]
        line = ["check", *places, "--head", "feature", "--level", "manifests", *more]
        return int(invoke(line))

    def comment_writes(self) -> int:
        return sum(bool(re.search("comment|note|thread", e.path)) for e in self.world.simulator.writes())


@pytest.fixture(params=DIALECTS)
def proposed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proposed]:
    with forge_world(request.param, tmp_path / "w", monkeypatch, edges=["edge-1"]) as world:
        yield make(world, monkeypatch)


def make(world: ForgeWorld, monkeypatch: pytest.MonkeyPatch) -> Proposed:
    shutil.copytree(world.root / "control.git", world.root / f"{NAME}.git")
    repo = Repo(world.root / f"{NAME}.git")
    hosted = world.simulator.host(NAME, repo)
    repo.commit({manifest("edge-1", "web"): None}, branch="feature", start="main")
    pull = world.simulator.new_pull(hosted, title="Let web go", body="", head="feature", base="main")
    monkeypatch.setenv("RECONCILER_CONTROL_TOKEN", world.simulator.token)
    for name in ("GITHUB_SERVER_URL", "GITHUB_API_URL", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    return Proposed(world, repo, pull)


@pytest.mark.parametrize("missing", ["tokenEnv: FLEET_KEY", "APP"])
def test_without_the_secret_of_the_fleet_the_token_of_the_job_comments(
    proposed: Proposed, missing: str
) -> None:
    app = 'appId: "1"\n    installationId: "2"\n    appKeyEnv: FLEET_KEY'
    rule = f"  - prefix: {proposed.world.simulator.address}\n    {app if missing == 'APP' else missing}\n"
    text = proposed.repo.read("main", "reconciler.yaml").decode()
    kept = re.sub(r"(?m)^  credentials:\n(?:^  [- ] .*\n)*", "", text)
    proposed.repo.commit({"reconciler.yaml": f"{kept}  credentials:\n{rule}"})

    assert proposed.check("--comment-on", "1") == 0
    assert len(proposed.comments) == 1


def test_there_is_one_comment_and_it_follows_the_change(
    proposed: Proposed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert proposed.check("--comment-on", "1") == 0
    assert proposed.check("--comment-on", "1") == 0
    (first,) = proposed.comments
    writes = proposed.comment_writes()
    added = manifest("edge-1", "api")
    proposed.repo.commit({added: variant("edge-1", "web").replace("web-edge-1", "more")}, branch="feature")

    assert proposed.check("--comment-on", "1") == 0
    (second,) = proposed.comments

    assert writes == 1, "what did not change is not written again"
    assert "drops 1 PackageVariant" in first
    assert "creates 1" in second
    assert "no comment" not in capsys.readouterr().err


def test_comment_has_no_invisible_character(proposed: Proposed) -> None:
    hidden = "\u202e\ufe0f\u3164\u034f\U000e0041\u2066"
    wrong = variant("edge-1", "web").replace("web-edge-1", f"web{hidden}")
    proposed.repo.commit({f"manifests/x{hidden}.yaml": wrong}, branch="feature")

    assert proposed.check("--comment-on", "1") == 3

    (comment,) = proposed.comments
    assert not set(comment) & set(hidden)
    assert "x\\u202e\\ufe0f\\u3164" in comment


def test_comment_is_off_by_default(proposed: Proposed) -> None:
    assert proposed.check() == 0

    assert proposed.comments == []
    assert proposed.world.simulator.writes() == []


def test_missing_permission_to_comment_does_not_fail_check(
    proposed: Proposed, capsys: pytest.CaptureFixture[str]
) -> None:
    proposed.world.simulator.plan("403", "POST", times=9)

    assert proposed.check("--comment-on", "1") == 0

    assert proposed.comments == []
    assert "note: no comment on pull request 1: " in capsys.readouterr().err


def test_change_cannot_redirect_its_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forges of head would send the token to whomever the author names."""
    with forge_world("github", tmp_path / "w", monkeypatch, edges=["edge-1"]) as world:
        proposed = make(world, monkeypatch)
        with forge_world("github", tmp_path / "thief", monkeypatch, edges=["edge-1"]) as thief:
            monkeypatch.setenv("RECONCILER_TEST_TOKEN", world.simulator.token)
            stolen = proposed.repo.read("feature", "reconciler.yaml").decode()
            stolen = stolen.replace(f"api: {world.simulator.api}", f"api: {thief.simulator.api}")
            proposed.repo.commit({"reconciler.yaml": stolen}, branch="feature")

            assert proposed.check("--comment-on", "1") == 0

            assert len(proposed.comments) == 1
            assert thief.simulator.journal == []
