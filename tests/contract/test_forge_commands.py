"""`approve` on every forge: the local one's words, and what the next run makes of it; `pr` names the page."""

import re
from collections.abc import Callable

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.support.forges.bench import DIALECTS, WITH_LABELS
from tests.support.forges.world import ForgeWorld, Serve

pytestmark = pytest.mark.one_forge

Command = Callable[..., str]
SET = "apiVersion: config.porch.kpt.dev/v1alpha2\nkind: PackageVariantSet"
NUMBERS = ["edge-1#1", "edge-1#2", "edge-2#1", "edge-2#2"]


@pytest.fixture(params=list(DIALECTS))
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    made = serve(request.param, more="  pullRequests:\n    labels: [fleet]\n")
    made.run()
    return made


@pytest.fixture
def command(world: ForgeWorld, capfd: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, code: Exit = Exit.DONE) -> str:
        where = ["--control", world.control, "--cache-dir", str(world.root / world.cache)]
        exit_code = invoke([*arguments, *where])
        printed = capfd.readouterr()
        assert exit_code == code, printed.err
        return printed.out + printed.err

    return run


TOOLS = {
    "github": ("/pulls", ", or with `gh pr`"),
    "gitlab": ("/-/merge_requests", ", or with `glab mr`"),
    "gitea": ("/pulls", ", or with `tea pulls`"),
    "azure": ("/pullrequests", ", or with `az repos pr`"),
    "bitbucket": ("/pull-requests", ""),
}


def open_pulls(world: ForgeWorld) -> list[str]:
    return [
        f"{edge}#{pull.number}"
        for edge in ("edge-1", "edge-2")
        for pull in world.pulls(edge)
        if pull.state == "open"
    ]


@pytest.fixture
def tools(world: ForgeWorld, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The page of all pull requests below that of a repository, and the command line, as a hint has it."""
    del world
    return TOOLS[request.node.callspec.params["world"]]


@pytest.fixture
def url(world: ForgeWorld) -> str:
    """The page of the first repository."""
    return world.simulator.url("acme/edge-1").removesuffix(".git")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "edge-1/web"),
        ("merge", "edge-1/web"),
        ("close", "edge-1#2", "--comment", "No."),
        ("reopen", "edge-1#2"),
    ],
)
def test_pull_requests_of_a_forge_are_left_to_its_page(
    world: ForgeWorld, command: Command, url: str, tools: tuple[str, str], arguments: tuple[str, ...]
) -> None:
    _, tool = tools
    before = world.pulls("edge-1")

    text = command("pr", *arguments, code=Exit.USAGE)

    assert re.search(
        rf"error: {arguments[0].title()} pull request edge-1#2 on {re.escape(url)}/\S*2{re.escape(tool)}\n",
        text,
    )
    assert world.pulls("edge-1") == before


def test_list_is_left_to_the_page_of_the_forge(command: Command, url: str, tools: tuple[str, str]) -> None:
    page, tool = tools

    text = command("pr", "list", code=Exit.USAGE)

    assert (
        f"error: The pull requests of edge-1 are on {url}{page}{tool}; those of 1 other repository are"
        in text
    )


@pytest.mark.parametrize("world", WITH_LABELS, indirect=True)
def test_approvals_can_be_filtered_by_label_and_set(world: ForgeWorld, command: Command) -> None:
    world.simulator.repositories["acme/edge-1"].pulls[1].labels.append("urgent")

    text = command("approve", "--label", "urgent", "--label", "fleet", "--dry-run")

    assert text == "would be approved: edge-1/db in edge-1#1\n"
    files = {"manifests/sets/web.yaml": f"{SET}\nmetadata: {{name: web}}\nspec: {{}}\n"}
    world.repo("control").commit(files, message="Declare a set\n")
    assert command("approve", "--set", "web") == "Nothing that matches is open.\n"


@pytest.mark.parametrize("arguments", [("pr", "list"), ("approve", "--dry-run")])
def test_a_set_that_does_not_exist_is_an_error(command: Command, arguments: tuple[str, ...]) -> None:
    text = command(*arguments, "--set", "web", code=Exit.USAGE)

    assert "There is no PackageVariantSet web" in text


def test_a_dry_run_names_what_would_be_approved_and_approves_nothing(
    world: ForgeWorld, command: Command
) -> None:
    text = command("approve", "edge-*/web", "--dry-run")

    assert text == "".join(f"would be approved: edge-{n}/web in edge-{n}#2\n" for n in (1, 2))
    assert open_pulls(world) == NUMBERS


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
    world.simulator.close("acme/edge-2", 2)
    assert world.run().code is Exit.WAITING
    refused = command("approve", "edge-2#2", code=Exit.REFUSED)
    assert "Pull request edge-2#2 was closed" in refused
    assert f"Open it again on {world.simulator.url('acme/edge-2').removesuffix('.git')}/" in refused

    world.simulator.reopen("acme/edge-2", 2)

    assert world.run().code is Exit.DONE
    assert open_pulls(world) == NUMBERS


@pytest.mark.parametrize("world", ["bitbucket"], indirect=True)
def test_what_was_declined_is_asked_for_anew(world: ForgeWorld, command: Command) -> None:
    world.simulator.close("acme/edge-2", 2)

    assert "reconciler.dev/retry" in command("approve", "edge-2#2", code=Exit.REFUSED)


def test_a_pattern_proposes_what_it_matches(world: ForgeWorld, command: Command) -> None:
    assert command("approve", "--propose-only", "edge-?/db") == "proposed edge-1/db\nproposed edge-2/db\n"

    assert [(p.number, p.draft) for edge in ("edge-1", "edge-2") for p in world.pulls(edge)] == [
        (1, False),
        (2, True),
        (1, False),
        (2, True),
    ]
