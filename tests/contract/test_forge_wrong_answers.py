"""An answer that is not as its API describes: it stalls one package, or its repository, and ends no run."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op
from tests.support.forges.bench import DIALECTS
from tests.support.forges.world import ForgeWorld, forge_world

pytestmark = pytest.mark.one_forge

HEADS: dict[str, Callable[[Any], Any]] = {
    "github": lambda item: item["head"]["ref"],
    "gitlab": lambda item: item["source_branch"],
    "gitea": lambda item: item["head"]["label"],
    "bitbucket": lambda item: item["source"]["branch"]["name"],
    "azure": lambda item: item["sourceRefName"].removeprefix("refs/heads/"),
}
IS_PULLS = re.compile(r"/(pulls|merge_requests|pullrequests)$|/pullrequests/\d+$")
"""Lists, and what is read beside one where it shortens texts."""
WRONG = [
    pytest.param(
        dict.fromkeys(("updated_at", "creationDate", "updated_on"), "now"), id="a time that is none"
    ),
    pytest.param({"state": {}, "labels": [None]}, id="labels without a name"),
    pytest.param({"body": 7, "description": 7}, id="a text that is a number"),
]


@pytest.fixture(params=list(DIALECTS))
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    with forge_world(request.param, tmp_path / "world", monkeypatch) as made:
        made.kind = request.param  # type: ignore[attr-defined]
        assert made.run().code is Exit.DONE
        made.upgrade("web")
        made.upgrade("db")
        yield made


def tamper(world: ForgeWorld, edge: str, head: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Let the forge answer wrongly about the pull requests of a head, in one repository's lists."""
    head_of = HEADS[str(world.kind)]  # type: ignore[attr-defined]

    def answer(path: str, body: Any) -> Any:
        wrapped = next((name for name in ("value", "values") if isinstance(body, dict) and name in body), "")
        items = body[wrapped] if wrapped else body
        if edge not in path.replace("%2F", "/").split("/") or not IS_PULLS.search(path):
            return body
        if isinstance(items, dict):
            return change(items) if head_of(items).startswith(head) else items
        changed = [change(item) if head_of(item).startswith(head) else item for item in items]
        return {**body, wrapped: changed} if wrapped else changed

    world.simulator.tamper = answer


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_field_of_a_pull_request_stalls_its_package_alone(
    world: ForgeWorld, wrong: dict[str, Any]
) -> None:
    tamper(world, "edge-1", "drafts/web/", lambda item: {**item, **wrong})

    ran = world.run()

    by_name = {(c.repository.name, c.package.path): c for c in ran.plan.changes}
    stalled = by_name["edge-1", "web"]
    assert (stalled.op, stalled.reason) == (Op.KEEP, Reason.PULL_REQUEST_UNREADABLE)
    assert {by_name[where].op for where in by_name if where != ("edge-1", "web")} == {Op.UPDATE}
    assert ran.code is Exit.INVALID_INPUT
    (problem,) = ran.plan.problems
    assert "of repository edge-1 cannot be read: the forge's answer is not as its API" in problem.message

    world.simulator.tamper = None
    assert world.run().code is Exit.DONE
    assert world.plan().plan.is_empty


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: None, id="null"),
        pytest.param(lambda item: {k: item.get(k) for k in ("title", "state")}, id="no head"),
    ],
)
def test_malformed_list_makes_repository_unavailable(
    world: ForgeWorld, change: Callable[[dict[str, Any]], Any]
) -> None:
    before = world.repo("edge-1").refs()
    tamper(world, "edge-1", "drafts/web/", change)

    ran = world.run()

    assert ran.code is Exit.UNAVAILABLE
    assert world.repo("edge-1").refs() == before
    assert {c.op for c in ran.plan.changes} == {Op.UPDATE}
    (problem,) = ran.plan.problems
    assert "the forge's answer is not as its API describes it" in problem.message
