"""Policies of a package with their sources, and conflicts in its record."""

import pytest

from reconciler.names.objects import File
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.conflicts import (
    answer_record,
    conflict_record,
    masked,
    masked_answer,
    recorded_answers,
    recorded_by_name,
)
from reconciler.render.update import Conflict
from tests.support.plan_values import a_record
from tests.support.values import replace

# Records

MARKED = "app.yaml Secret/app data.key aaaaaa-bbbbbb"
CONFLICT = Conflict(
    "app.yaml", "ConfigMap app", "data.key", "old", "new", "mine", "BothChanged", "name aaaaaa-bbbbbb"
)


def test_answer_is_recorded_with_its_policy_and_read_again() -> None:
    answer = Answer(CONFLICT, AnsweredBy.POLICY, "mine", "on-conflict: local", "web.yaml")

    record = answer_record(answer)

    assert record == replace(
        conflict_record(CONFLICT), chosen="mine", by="policy", policy="on-conflict: local", source="web.yaml"
    )
    assert recorded_answers(a_record(answers=(record,))) == (
        replace(answer, conflict=replace(CONFLICT, base=None)),
    )


@pytest.mark.parametrize(
    "secret",
    [replace(CONFLICT, resource="Secret app", name=MARKED), replace(CONFLICT, hidden=True, name=MARKED)],
    ids=["a Secret", "in a file with one"],
)
def test_values_of_a_secret_are_shown_and_recorded_as_masks_and_without_marks(secret: Conflict) -> None:
    shown = masked(secret)
    assert (shown.base, shown.upstream, shown.local) == ("***",) * 3
    assert shown.name == "app.yaml Secret/app data.key"
    absent = masked(replace(secret, base=None, upstream=None, local=None))
    assert (absent.base, absent.upstream, absent.local) == (None, None, None)
    assert masked_answer(Answer(secret, AnsweredBy.EDIT, "key")).chosen == "***"
    assert masked_answer(Answer(secret, AnsweredBy.EDIT, None)).chosen is None


def test_values_are_masked_where_a_function_wrote_a_secret_into_the_file() -> None:
    files = {"app.yaml": File.of(b"kind: Secret\ndata: {key: bWluZQ==}\n")}
    answer = Answer(CONFLICT, AnsweredBy.KEEP, "mine")

    assert masked(CONFLICT, files).local == masked_answer(answer, files).chosen == "***"
    assert (masked(CONFLICT), masked_answer(answer)) == (CONFLICT, answer)


def test_conflicts_and_answers_of_a_record_are_found_by_their_names() -> None:
    other = replace(CONFLICT, name="other")
    record = a_record(
        conflicts=(conflict_record(CONFLICT), conflict_record(replace(CONFLICT, name=""))),
        answers=(answer_record(Answer(other, AnsweredBy.KEEP, "mine")),),
    )

    assert recorded_by_name(record) == {
        CONFLICT.name: replace(CONFLICT, base=None),
        "other": replace(other, base=None),
    }
    assert recorded_by_name(None) == {}
