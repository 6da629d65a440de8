"""Of a repository that cannot be read every command says so; none takes it for empty."""

import json
import re
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.html_reports import read_data
from tests.support.small_world import EDGES, package_set, repository, write_world
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world whose first downstream is away."""
    made = write_world(tmp_path / "w")
    made.run("apply")
    (tmp_path / "w/edge-1.git").rename(tmp_path / "w/edge-1.away")
    return made


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


TARGETS = "{repositories: [{name: edge-1}, {name: edge-2}]}"
WAVES = """\
  rollouts:
  - waves:
    - {name: canary, selector: {matchLabels: {first: "yes"}}}
    - {name: main}
"""


def test_what_is_away_keeps_the_version_that_a_wave_left_also_where_its_set_stalls(tmp_path: Path) -> None:
    world = write_world(
        tmp_path / "w", ("edge-1", "edge-2"), more={"manifests/set.yaml": package_set("web", TARGETS)}
    )
    control = Repo(world.control)
    own: dict[str, str | None] = {f"manifests/{e}-{p}.yaml": None for e in EDGES[:2] for p in ("web", "db")}
    labelled = repository("edge-2").replace("spec:", '  labels: {first: "yes"}\nspec:', 1)
    configuration = control.read("main", "reconciler.yaml").decode() + WAVES
    control.commit({**own, "reconciler.yaml": configuration, "manifests/repositories/edge-2.yaml": labelled})
    for line in ("apply", "approve --all", "apply", "approve --all", "apply"):
        world.run(*line.split())
    control.commit({"manifests/set.yaml": package_set("web", TARGETS, revision=2)})
    world.run("apply")  # edge-1 waits for edge-2
    (tmp_path / "w/edge-1.git").rename(tmp_path / "w/edge-1.away")

    page = tmp_path / "plan.html"
    world.run("plan", "--html", str(page))
    row = read_data(page.read_text())["packages"]["edge-1/web"]
    assert (row["cluster"], row["main"], row["phase"]) == ("edge-1", "web/v1?", "stalled")
    assert re.search(r"^edge-1/web +edge-1 +web/v1\? .*stalled", world.run("status").out, re.MULTILINE)

    control.commit({"manifests/set.yaml": package_set("web", TARGETS, revision=2) + "  typo: 1\n"})

    assert re.search(r"^edge-1/web +edge-1 +web/v1\? .*stalled", world.run("status").out, re.MULTILINE)
    world.run("apply")
    assert "Nothing was written." in world.run("apply").out


def test_dead_repository_is_told_once_whoever_uses_it(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", ("edge-1", "edge-2"))
    (world.root / "edge-2.git").rename(world.root / "gone")

    said = world.run("plan")
    problems = json.loads(world.run("plan", "-o", "json").out)["problems"]

    assert said.code == 5
    assert said.out.count("problem: ") == 1
    assert [p["location"]["path"] for p in problems] == ["manifests/repositories/edge-2.yaml"]
    assert problems[0]["message"].endswith("; 2 variants or sets that need it are kept as they are")
    assert problems[0]["hint"]
