"""When an open pull request is left as it is."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.inventory import PullRequest
from reconciler.plan.requests import is_right

PLANNED = PullRequest("drafts/web/w", "main", "Update web", "Why.", labels=("fleet", "Edge"), digest="abc")


@pytest.mark.parametrize(
    ("there", "right"),
    [
        ({}, True),
        ({"title": "A person's title"}, True),
        ({"labels": ("FLEET", "edge")}, True),
        ({"labels": ("fleet", "Edge", "a person's")}, True),
        ({"labels": ("fleet",)}, False),
        ({"labels": ()}, False),
        ({"digest": "other"}, False),
        ({"digest": ""}, False),
        ({"base": "release"}, False),
    ],
)
def test_pull_request_is_right_with_its_text_base_and_at_least_our_labels(
    there: dict[str, Any], right: bool
) -> None:
    assert is_right(replace(PLANNED, **there), PLANNED) is right
