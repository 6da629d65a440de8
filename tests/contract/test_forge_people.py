"""Reviewers and assignees: asked once each on every forge, by the configuration and by CODEOWNERS."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import Pull
from tests.support.forges.world import ORGANISATION, ForgeWorld, forge_world

pytestmark = pytest.mark.one_forge

PEOPLE = f"""\
  pullRequests:
    codeOwners: true
    reviews:
    - {{reviewers: [alice, {ORGANISATION}/platform], assignees: [bob]}}
    - {{repositories: [edge-9], reviewers: [nobody]}}
    - {{sets: ["*"], reviewers: [nobody]}}
    - {{selector: {{matchLabels: {{tier: core}}}}, reviewers: [nobody]}}
"""
TEAM = {"gitlab": [], "bitbucket": []}
"""Where not the one who is configured."""
ASSIGNED = {"azure": [], "bitbucket": []}
"""Where not the one who is configured: nobody is assigned on forges without assignees."""
OWNER = {"github": ["carol"], "gitlab": ["carol"]}
"""Where the file is read: other forges ask owners themselves, or have none."""


@pytest.fixture(params=list(DIALECTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeWorld]:
    root = tmp_path / "world"
    with forge_world(kind, root, monkeypatch, edges=("edge-1",), packages=("web",), more=PEOPLE) as made:
        made.repo(f"{ORGANISATION}/edge-1").commit({"docs/CODEOWNERS": "* docs@example.com\n/web/ @carol\n"})
        yield made


def the_pull(world: ForgeWorld) -> Pull:
    (pull,) = world.pulls("edge-1")
    return pull


def test_everybody_is_asked_once_and_whom_a_person_takes_away_stays_away(
    world: ForgeWorld, kind: str
) -> None:
    assert world.run().code is Exit.DONE
    assert the_pull(world).reviewers == sorted(
        ["alice", *OWNER.get(kind, ()), *TEAM.get(kind, ["team/platform"])]
    )
    assert the_pull(world).assignees == ASSIGNED.get(kind, ["bob"])
    assert world.plan().plan.is_empty

    the_pull(world).reviewers.remove("alice")
    the_pull(world).assignees[:] = ["carol"]
    assert world.plan().plan.is_empty
    world.upgrade("web")
    assert world.run().code is Exit.DONE

    assert "alice" not in the_pull(world).reviewers
    assert the_pull(world).assignees == ["carol"]


def test_person_whom_the_forge_refuses_is_named_and_asked_again_by_the_next_run(
    world: ForgeWorld, kind: str
) -> None:
    world.simulator.users = ("bob", "carol")

    ran = world.run()

    assert ran.code is Exit.REFUSED
    (failed,) = [effect for effect in ran.outcome.effects if effect.error]
    assert re.match(
        r"Pull request 1: the forge does not ask all of acme/platform, alice, bob.*: ", failed.error
    )
    assert "CODEOWNERS" in failed.hint
    world.upgrade("web")
    assert world.run().code is Exit.REFUSED
    assert "web/v2" in the_pull(world).title
    world.simulator.users = ("alice", "bob", "carol")
    assert world.run().code is Exit.DONE
    assert "alice" in the_pull(world).reviewers
    assert the_pull(world).assignees == ASSIGNED.get(kind, ["bob"])
    assert world.plan().plan.is_empty


def test_run_that_ends_before_people_are_asked_is_completed_by_the_next(world: ForgeWorld) -> None:
    asks = r"requested_reviewers$|/merge_requests/\d+$|/reviewers/|/pullrequests/\d+$"
    world.simulator.plan("500", "", asks, times=50)
    world.run()
    assert the_pull(world).reviewers == []
    world.simulator.faults.clear()

    world.run()

    assert "alice" in the_pull(world).reviewers
    assert world.plan().plan.is_empty
