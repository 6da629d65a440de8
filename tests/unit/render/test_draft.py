"""Drafts that people committed to, updated: what upstream, main, policies and people each decide."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.names.trailers import Answers, parse_name
from reconciler.policy import OnConflict, Policy
from reconciler.render.answers import AnsweredBy, Classified
from reconciler.render.draft import update_draft
from reconciler.render.merging import PackageInProgress, VariantInputs
from reconciler.render.rendered import Blocked
from tests.support.model import kptfile, package
from tests.support.plan_values import a_draft, a_pin, a_resolved, oid
from tests.support.sets import world
from tests.support.values import replace

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


def test_draft_keeps_what_people_wrote_and_the_question_of_main() -> None:
    result = updated()

    assert data_of(result) == GREEN
    (conflict,) = conflicts_of(result)[0]
    assert (conflict.field, conflict.upstream, conflict.local) == ("data.color", "blue", "green")


def test_draft_gets_upstreams_new_values_since_its_base() -> None:
    contents = {
        OLD: side("red"),
        NEW: side("red", size="2"),
        LOCAL: side("red"),
        DRAFT: side("red", note="mine"),
    }

    assert data_of(updated(contents, draft_base=a_pin(1))) == {"color": "red", "size": "2", "note": "mine"}
    assert data_of(updated(contents)) == {"color": "red", "size": "1", "note": "mine"}


@pytest.mark.parametrize(
    ("local", "left", "want"),
    [
        pytest.param(side("green", size="3"), side("green"), {**GREEN, "size": "3"}, id="main changed"),
        pytest.param(side("green"), side("green"), GREEN, id="main is as it was"),
        pytest.param(side("green"), None, GREEN, id="the draft began without the package"),
    ],
)
def test_draft_gets_what_changed_on_main_since_it_left(
    local: Files, left: Files | None, want: dict[str, str]
) -> None:
    contents = {LOCAL: local, **({LEFT: left} if left else {})}
    draft = a_draft(has_foreign_commits=True, base_tree=LEFT if left else None)
    resolved = a_resolved(pin=a_pin(2), base=a_pin(1), local=LOCAL, draft=draft, draft_base=a_pin(2))
    inputs = VariantInputs(resolved, {**SIDES, **contents}, {}, Policy())

    assert data_of(update_draft(draft, inputs, world())) == want


# Policies that change while a draft waits


def test_policy_that_now_chooses_upstream_writes_its_value() -> None:
    result = updated(policy=OnConflict.UPSTREAM, answers=Answers(named={question(): ""}))

    assert data_of(result) == {**GREEN, "color": "blue"}


def test_value_that_people_keep_stays_whatever_a_policy_chooses() -> None:
    name = question()
    result = updated(policy=OnConflict.UPSTREAM, answers=Answers(named={name: ""}, keeps=frozenset({name})))

    assert data_of(result) == GREEN
    assert [answer.by for answer in conflicts_of(result)[1]] == [AnsweredBy.KEEP]


def test_value_that_people_changed_stays_whatever_a_policy_chooses() -> None:
    result = updated(
        {DRAFT: side("purple")}, policy=OnConflict.UPSTREAM, answers=Answers(named={question(): ""})
    )

    assert data_of(result)["color"] == "purple"


def test_policy_that_chooses_upstream_no_more_gives_mains_value_back() -> None:
    result = updated({DRAFT: side("blue", note="mine")}, answers=Answers(named={question(): "upstream"}))

    assert data_of(result) == GREEN


def test_policy_that_chooses_as_before_changes_nothing() -> None:
    chosen = Answers(named={question(): "upstream"})

    for color in ("blue", "purple"):
        result = updated({DRAFT: side(color)}, policy=OnConflict.UPSTREAM, answers=chosen)
        assert data_of(result)["color"] == color


def test_package_that_main_never_had_has_no_policies_to_change() -> None:
    result = updated(
        local=None, base=None, policy=OnConflict.UPSTREAM, answers=Answers(named={question(): ""})
    )

    assert data_of(result) == GREEN


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
def test_side_that_cannot_be_read_blocks_the_package(
    contents: dict[Oid, Files], fields: dict[str, Any]
) -> None:
    result = updated(contents, **fields)

    assert isinstance(result, Blocked)
    assert "Did not find expected node content" in result.message


def test_draft_whose_base_is_lost_is_blocked() -> None:
    result = updated(base=None, lost_base="gone")

    assert isinstance(result, Blocked)
    assert result.reason is Reason.BASE_NOT_FOUND


def test_question_that_was_answered_in_the_draft_is_an_edit() -> None:
    named = Answers(named={question(): ""}, latest={question(): ""})

    result = updated({DRAFT: side("blue")}, answers=named)

    assert conflicts_of(result)[0] == ()
    assert [answer.by for answer in conflicts_of(result)[1]] == [AnsweredBy.EDIT]
    kept = replace(named, keeps=frozenset({question()}))
    assert [a.by for a in conflicts_of(updated(answers=kept))[1]] == [AnsweredBy.KEEP]
