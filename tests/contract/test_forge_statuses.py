"""The commit status of drafts: what tells a forge, and its branch protection, that a draft may be merged."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import Answer
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.small_world import app

pytestmark = pytest.mark.one_forge

STATUS = "  pullRequests: {status: reconciler}\n"
Make = Callable[[str], ForgeWorld]


@pytest.fixture(params=list(DIALECTS))
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    opened = []

    def make_world(more: str) -> ForgeWorld:
        context = forge_world(request.param, tmp_path / "world", monkeypatch, edges=["edge-1"], more=more)
        opened.append(context)
        return context.__enter__()

    yield make_world
    for context in opened:
        context.__exit__(None, None, None)


def statuses(world: ForgeWorld) -> dict[str, tuple[bool | None, str]]:
    """Return the status of the head of each open pull request with its text."""
    hosted = world.simulator.repositories["acme/edge-1"]
    return {
        pull.head.split("/")[1]: (
            hosted.checks[pull.head_oid]["reconciler"],
            hosted.texts[pull.head_oid, "reconciler"],
        )
        for pull in world.pulls("edge-1")
        if pull.state == "open"
    }


READY = True, "Ready to be reviewed"


def test_each_draft_gets_its_status_once(make: Make) -> None:
    world = make(STATUS)

    first = world.run()

    assert first.code is Exit.DONE
    assert statuses(world) == {"db": READY, "web": READY}
    writes = len([entry for entry in world.simulator.journal if entry.writes])
    assert world.run().plan.is_empty
    assert len([entry for entry in world.simulator.journal if entry.writes]) == writes


def test_no_status_is_set_unless_it_is_configured(make: Make) -> None:
    world = make("")
    world.run()

    assert world.simulator.repositories["acme/edge-1"].checks == {}


def test_new_content_and_a_commit_of_a_person_get_a_status_of_their_own(make: Make) -> None:
    world = make(STATUS)
    world.run()
    world.upgrade("web")
    world.run()
    assert statuses(world) == {"db": READY, "web": READY}

    # The second commit leaves the package and its text as they are: only the head is another one.
    for file in ("web/notes.txt", "beside.txt"):
        world.repo("edge-1").commit({file: "Mine\n"}, branch="drafts/web/packagevariant-1")
        world.run()
        assert statuses(world) == {"db": READY, "web": READY}
    assert world.run().plan.is_empty


def test_conflict_fails_the_status(make: Make) -> None:
    world = make(STATUS)
    world.run()
    for pull in world.pulls("edge-1"):
        world.simulator.merge("acme/edge-1", pull.number)
    world.run()
    text = app("web", 1).replace("web:v1", "web:mine")
    world.repo("edge-1").commit({"web/app.yaml": text}, message="Hotfix\n")
    world.upgrade("web")
    world.run()

    assert world.run().code is Exit.WAITING
    assert statuses(world)["web"] == (False, "1 conflict to answer")


def test_refused_status_leaves_the_pull_request_and_is_set_by_a_later_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(STATUS)
    answer = type(world.simulator).answer

    def refuse(self: object, method: str, path: str, *rest: object) -> Answer:
        if method == "POST" and "/statuses" in path:
            return Answer(403, {"message": "Resource not accessible"})
        return answer(self, method, path, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(type(world.simulator), "answer", refuse)
        refused = world.run()
    world.simulator.violations.clear()  # no description has this refusal

    assert refused.code is Exit.REFUSED
    assert len(world.open_heads()) == 2
    assert any("status reconciler" in effect.error for effect in refused.outcome.effects)
    assert world.run().code is Exit.DONE
    assert statuses(world) == {"db": READY, "web": READY}
    assert world.run().plan.is_empty
