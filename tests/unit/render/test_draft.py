"""Drafts that people committed to, updated: what upstream, main, policies and people each decide."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.names.trailers import Answers, parse_name
from reconciler.policy import OnConflict, Policy
from reconciler.render.answers import Classified
from reconciler.render.draft import update_draft
from reconciler.render.merging import PackageInProgress, VariantInputs
from reconciler.render.rendered import Blocked
from tests.support.model import kptfile, package
from tests.support.plan_values import a_draft, a_pin, a_resolved, oid
from tests.support.sets import world

OLD, NEW, LOCAL, DRAFT, LEFT = oid("c1"), oid("c2"), oid("b1"), oid("d1"), oid("b0")
BROKEN = package({"Kptfile": "a: ["})


def side(color: str, *, size: str = "1", **data: str) -> Files:
    more = "".join(f"  {key}: {value}\n" for key, value in data.items())
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n"
        f"data:\n  color: {color}\n  size: '{size}'\n{more}"
    )
    return package({"Kptfile": kptfile("web"), "app.yaml": text})


SIDES = {OLD: side("red"), NEW: side("blue"), LOCAL: side("green"), DRAFT: side("green", note="mine")}


def updated(
    contents: Mapping[Oid, Files] | None = None,
    *,
    policy: OnConflict = OnConflict.ASK,
    answers: Answers = Answers(),  # noqa: B008 # a frozen value
    **fields: Any,
) -> tuple[PackageInProgress, Classified] | Blocked:
    """Update a draft that left main as it is, with upstream 1 on main and upstream 2 wanted."""
    draft = a_draft(has_foreign_commits=True, base_tree=LOCAL, answers=answers)
    given: dict[str, Any] = {
        "pin": a_pin(2),
        "base": a_pin(1),
        "local": LOCAL,
        "draft": draft,
        "draft_base": a_pin(2),
        **fields,
    }
    resolved = a_resolved(**given)
    inputs = VariantInputs(resolved, {**SIDES, **(contents or {})}, {}, Policy(on_conflict=policy))
    return update_draft(draft, inputs, world())


def data_of(result: tuple[PackageInProgress, Classified] | Blocked) -> dict[str, str]:
    assert not isinstance(result, Blocked)
    text = result[0].files["app.yaml"].data.decode().partition("\ndata:\n")[2]
    pairs = (line.strip().partition(": ") for line in text.splitlines())
    return {name: value.strip("'") for name, _, value in pairs}


def conflicts_of(result: tuple[PackageInProgress, Classified] | Blocked) -> Classified:
    assert not isinstance(result, Blocked)
    return result[1]


def question() -> Any:
    """Return the name of the one conflict of main with upstream."""
    (conflict,) = conflicts_of(updated())[0]
    name = parse_name(conflict.name)
    assert name is not None
    return name


GREEN = {"color": "green", "size": "1", "note": "mine"}


# Policies that change while a draft waits


def test_policy_that_now_chooses_upstream_writes_its_value() -> None:
    result = updated(policy=OnConflict.UPSTREAM, answers=Answers(named={question(): ""}))

    assert data_of(result) == {**GREEN, "color": "blue"}


# What cannot be merged


@pytest.mark.parametrize(
    ("contents", "fields"),
    [
        pytest.param({LOCAL: BROKEN}, {}, id="main"),
        pytest.param({OLD: BROKEN}, {}, id="the old upstream"),
        pytest.param({NEW: BROKEN}, {}, id="the new upstream"),
        pytest.param({DRAFT: BROKEN}, {"draft_base": a_pin(1)}, id="the draft"),
    ],
)
def test_side_that_cannot_be_read_blocks_the_package(contents, fields) -> None:
    result = updated(contents, **fields)

    assert isinstance(result, Blocked)
    assert "Did not find expected node content" in result.message
