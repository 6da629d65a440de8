"""`pr` and `approve` on every forge: the words of the local one, and what the next run makes of it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.support.forges.bench import DIALECTS, WITH_LABELS
from tests.support.forges.world import ForgeWorld, forge_world

pytestmark = pytest.mark.one_forge

Command = Callable[..., str]
SET = "apiVersion: config.porch.kpt.dev/v1alpha2\nkind: PackageVariantSet"
NUMBERS = ["edge-1#1", "edge-1#2", "edge-2#1", "edge-2#2"]


@pytest.fixture(params=list(DIALECTS))
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    labels = "  pullRequests:\n    labels: [fleet]\n"
    with forge_world(request.param, tmp_path / "world", monkeypatch, more=labels) as made:
        made.run()
        yield made


@pytest.fixture
def command(world: ForgeWorld, capfd: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, code: Exit = Exit.DONE) -> str:
        where = ["--control", world.control, "--cache-dir", str(world.root / world.cache)]
        exit_code = invoke([*arguments, *where])
        printed = capfd.readouterr()
        assert exit_code == code, printed.err
        return printed.out + printed.err

    return run


def listed(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_open_pull_requests_are_listed_and_shown(world: ForgeWorld, command: Command) -> None:
    assert listed(command("pr", "list")) == NUMBERS
    shown = command("pr", "show", "edge-1/web")
    assert "Create web from web/v1 (draft)" in shown
    assert f"  url: {world.simulator.url('acme/edge-1').removesuffix('.git')}/" in shown


@pytest.mark.parametrize("world", WITH_LABELS, indirect=True)
def test_lists_can_be_filtered_by_label_and_set(world: ForgeWorld, command: Command) -> None:
    world.simulator.repositories["acme/edge-1"].pulls[1].labels.append("urgent")

    assert listed(command("pr", "list", "--label", "urgent", "--label", "fleet")) == ["edge-1#1"]
    files = {"manifests/sets/web.yaml": f"{SET}\nmetadata: {{name: web}}\nspec: {{}}\n"}
    world.repo("control").commit(files, message="Declare a set\n")
    assert command("pr", "list", "--set", "web") == "There are no open pull requests that match.\n"
    assert command("approve", "--set", "web") == "Nothing that matches is open.\n"


@pytest.mark.parametrize("arguments", [("pr", "list"), ("approve", "--dry-run")])
def test_a_set_that_does_not_exist_is_an_error(command: Command, arguments: tuple[str, ...]) -> None:
    text = command(*arguments, "--set", "web", code=Exit.USAGE)

    assert "There is no PackageVariantSet web" in text


def test_a_dry_run_names_what_would_be_approved_and_approves_nothing(command: Command) -> None:
    text = command("approve", "edge-*/web", "--dry-run")

    assert text == "".join(f"would be approved: edge-{n}/web in edge-{n}#2\n" for n in (1, 2))
    assert listed(command("pr", "list")) == NUMBERS


def test_an_approved_draft_is_published_by_the_next_run(world: ForgeWorld, command: Command) -> None:
    text = command("approve", "edge-1/web")
    again = command("approve", "edge-1/web")
    world.run()

    assert text == "approved edge-1/web: merged; the next `reconciler apply` records it\n"
    assert again == "already merged: edge-1/web in edge-1#2\n"
    assert "refs/tags/web/v1" in world.repo("edge-1").refs()


@pytest.mark.parametrize("world", [kind for kind in DIALECTS if kind != "bitbucket"], indirect=True)
def test_a_closed_pull_request_is_rejected_until_it_is_opened_again(
    world: ForgeWorld, command: Command
) -> None:
    assert (
        command("pr", "close", "edge-2#2", "--comment", "No.") == "closed edge-2#2 Create web from web/v1\n"
    )
    assert world.run().code is Exit.WAITING
    refused = command("approve", "edge-2#2", code=Exit.REFUSED)
    assert "Pull request edge-2#2 was closed" in refused
    assert "reconciler pr reopen edge-2#2" in refused

    assert command("pr", "reopen", "edge-2#2") == "reopened edge-2#2 Create web from web/v1\n"

    assert world.run().code is Exit.DONE
    assert listed(command("pr", "list")) == NUMBERS


@pytest.mark.parametrize("world", ["bitbucket"], indirect=True)
def test_declined_pull_request_is_not_opened_again(world: ForgeWorld, command: Command) -> None:
    command("pr", "close", "edge-2#2", "--comment", "No.")

    assert "reconciler.dev/retry" in command("pr", "reopen", "edge-2#2", code=Exit.REFUSED)

    assert [pull.state for pull in world.pulls("edge-2")] == ["open", "closed"]


def test_a_pattern_merges_what_is_ready(command: Command) -> None:
    assert command("approve", "--propose-only", "edge-?/db") == "proposed edge-1/db\nproposed edge-2/db\n"

    merged = json.loads(command("pr", "merge", "edge-*/db", "-o", "json"))

    assert [item["pullRequest"] for item in merged["items"]] == ["edge-1#1", "edge-2#1"]
    assert listed(command("pr", "list")) == ["edge-1#2", "edge-2#2"]


def test_a_merged_pull_request_is_neither_closed_nor_opened_again(command: Command) -> None:
    command("approve", "edge-1/web")

    assert "was merged and cannot be closed" in command("pr", "close", "edge-1#2", code=Exit.REFUSED)
    assert "was merged and cannot be opened again" in command("pr", "reopen", "edge-1#2", code=Exit.REFUSED)
