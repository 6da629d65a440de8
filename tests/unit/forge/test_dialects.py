"""Items of the three APIs: whose they are, and what is left of one that cannot be read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from reconciler.errors import UnavailableError
from reconciler.forge.dialect import ApiDialect, validated
from reconciler.forge.github import GitHub
from reconciler.forge.http import Transport
from reconciler.forge.rest_dialects import Gitea, GitLab
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer


class Api(NamedTuple):
    make: Callable[[Transport], ApiDialect]
    path: str
    item: Callable[[int, str, int], dict[str, Any]]


APIS = {
    "github": Api(
        lambda transport: GitHub(transport, "acme/edge"),
        "/repos/acme/edge/pulls",
        lambda number, head, repository: {
            "number": number,
            "head": {"ref": head, "repo": {"id": repository}},
            "base": {"ref": "main", "repo": {"id": 1}},
        },
    ),
    "gitlab": Api(
        lambda transport: GitLab(transport, "acme/edge"),
        "/projects/acme/edge/merge_requests",
        lambda number, head, repository: {
            "iid": number,
            "source_branch": head,
            "source_project_id": repository,
            "target_project_id": 1,
        },
    ),
    "gitea": Api(
        lambda transport: Gitea(transport, "acme/edge"),
        "/repos/acme/edge/pulls",
        lambda number, head, repository: {
            "number": number,
            "head": {"label": head, "repo_id": repository},
            "base": {"repo_id": 1},
        },
    ),
}


@pytest.mark.parametrize("kind", APIS)
def test_item_without_most_fields_keeps_number_head_and_reason(api: ScriptedApi, kind: str) -> None:
    make, path, item = APIS[kind]
    api.answers["GET", path] = Answer(200, [item(5, "drafts/web/w", 1), item(6, "drafts/web/w", 2)])

    pulls = list(make(api.transport()).list_all())

    assert [(pull.number, pull.head) for pull in pulls] == [(5, "drafts/web/w")]
    assert pulls[0].unreadable.startswith("the forge's answer is not as its API describes it (")


@pytest.mark.parametrize("kind", APIS)
@pytest.mark.parametrize(("number", "head"), [("5", "drafts/web/w"), (5, None)])
def test_item_without_even_number_or_head_makes_the_list_unusable(
    api: ScriptedApi, kind: str, number: Any, head: Any
) -> None:
    make, path, item = APIS[kind]
    api.answers["GET", path] = Answer(200, [item(number, head, 1)])

    with pytest.raises(UnavailableError, match="the forge's answer is not as its API describes it"):
        list(validated(make(api.transport())).list_all())
