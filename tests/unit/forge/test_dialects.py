"""Items of the three APIs: whose they are, and what is left of one that cannot be read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.forge.api.dialect import validated
from reconciler.forge.api.gitea import Gitea
from reconciler.forge.api.github import GitHub
from reconciler.forge.api.gitlab import GitLab
from reconciler.forge.http import Transport
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer


class Api(NamedTuple):
    make: Callable[[Transport], Any]
    path: str
    item: Callable[[int, str, int], dict[str, Any]]


APIS = {
    "github": Api(lambda transport: GitHub(transport, "acme/edge"), "/repos/acme/edge/pulls", lambda number,
        head,
        repository: {"number": number, "head": {"ref": head, "repo": {"id": repository}},
        "base": {"ref": "main", "repo": {"id": 1}}}),
    "gitlab": Api(lambda transport: GitLab(transport, "acme/edge"), "/projects/acme/edge/merge_requests",
        lambda number, head,
        repository: {"iid": number, "source_branch": head, "source_project_id": repository,
        "target_project_id": 1}),
    "gitea": Api(lambda transport: Gitea(transport, "acme/edge"), "/repos/acme/edge/pulls", lambda number,
        head,
        repository: {"number": number, "head": {"label": head, "repo_id": repository},
        "base": {"repo_id": 1}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", APIS)
def test_item_without_most_fields_keeps_number_head_and_reason(api: ScriptedApi, kind: str) -> None:
    make, path, item = APIS[kind]
    api.answers["GET", path] = Answer(200, [item(5, "drafts/web/w", 1), item(6, "drafts/web/w", 2)])

    ((*pulls,),) = make(api.transport()).list_all()

    # The head of a fork is left out: it may have the name of a branch of ours.
    assert [(pull.number, pull.head) for pull in pulls] == [(5, "drafts/web/w"), (6, "")]
    assert pulls[0].unreadable.startswith("the forge's answer is not as its API describes it (no '")

    odd = {**item(5, "drafts/web/w", 1), **COMPLETE[kind], "html_url": 5, "web_url": 5}
    api.answers["GET", path] = Answer(200, [odd])
    ((pull,),) = make(api.transport()).list_all()
    assert (
        pull.unreadable
        == "the forge's answer is not as its API describes it (Expected `str`, got `int` - at `$.url`)"
    )


@pytest.mark.parametrize("kind", APIS)
@pytest.mark.parametrize(("number", "head"), [("5", "drafts/web/w"), (5, None)])
def test_item_without_even_number_or_head_makes_the_list_unusable(
    api: ScriptedApi, kind: str, number: Any, head: Any
) -> None:
    make, path, item = APIS[kind]
    api.answers["GET", path] = Answer(200, [item(number, head, 1)])

    with pytest.raises(UnavailableError, match="the forge's answer is not as its API describes it"):
        list(validated(make(api.transport())).list_all())


TIMES = {"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:02Z"}
COMPLETE: dict[str, dict[str, Any]] = {
    "github": {**TIMES, "title": "Update web", "body": "Why.", "state": "open", "draft": True,
        "head": {"ref": "drafts/web/w", "sha": "c0ffee", "repo": {"id": 1}}, "labels": [{"name": "fleet"}],
        "html_url": "https://forge.example/5", "node_id": ""},
    "gitlab": {**TIMES, "title": "Draft: Update web", "description": "Why.", "state": "opened",
        "sha": "c0ffee", "target_branch": "main", "labels": ["fleet"], "web_url": "https://forge.example/5"},
    "gitea": {**TIMES, "title": "WIP: Update web", "body": "Why.", "state": "open", "draft": True,
        "head": {"label": "drafts/web/w", "sha": "c0ffee", "repo_id": 1},
        "base": {"label": "main", "repo_id": 1}, "labels": [{"name": "fleet", "id": 9}],
        "html_url": "https://forge.example/5"},
}  # fmt: skip
