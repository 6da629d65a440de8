"""Policies of a package with their sources, and conflicts in its record."""

import pytest

from reconciler.names.objects import File
from reconciler.policy import OnConflict
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.conflicts import (
    ON_CONFLICT,
    ON_CONFLICT_FIELDS,
    PolicySources,
    answer_record,
    conflict_policy,
    conflict_record,
    masked,
    masked_answer,
    recorded_answers,
    recorded_by_name,
)
from reconciler.render.update import Conflict, ConflictPolicy
from tests.support.model import kptfile, package
from tests.support.plan_values import a_record
from tests.support.values import replace

ASK, LOCAL, UPSTREAM = OnConflict.ASK, OnConflict.LOCAL, OnConflict.UPSTREAM
SOURCES = PolicySources("PackageVariant default/web (web.yaml)", "fleet.yaml")


def policy_of(kptfile_notes: str, **annotations: str) -> ConflictPolicy:
    noted = f"  annotations:\n{kptfile_notes}" if kptfile_notes else ""
    names = {"default": ON_CONFLICT, "fields": ON_CONFLICT_FIELDS}
    given = {names[name]: text for name, text in annotations.items()}
    return conflict_policy(package({"Kptfile": kptfile("web", noted)}), given, ASK, SOURCES)


def test_policy_of_a_package_has_the_source_of_each_part() -> None:
    policy = policy_of(
        f"    {ON_CONFLICT_FIELDS}: a=local;b=upstream\n", default="local", fields="b=local; c = local"
    )

    assert policy == ConflictPolicy(
        LOCAL,
        {"a": LOCAL, "b": UPSTREAM, "c": LOCAL},
        origins={
            "": (ON_CONFLICT, SOURCES.variant),
            "a": (ON_CONFLICT_FIELDS, "Kptfile"),
            "b": (ON_CONFLICT_FIELDS, "Kptfile"),
            "c": (ON_CONFLICT_FIELDS, SOURCES.variant),
        },
    )
    assert list(policy.fields) == ["a", "b", "c"]


def test_default_policy_is_that_of_the_kptfile_then_of_the_variant_then_configured() -> None:
    own = policy_of(f"    {ON_CONFLICT}: upstream\n", default="local")
    assert own == ConflictPolicy(UPSTREAM, origins={"": (ON_CONFLICT, "Kptfile")})
    assert policy_of("") == ConflictPolicy(ASK, origins={"": ("onConflict", "fleet.yaml")})
    assert conflict_policy({}, {}, LOCAL) == ConflictPolicy(
        LOCAL, origins={"": ("onConflict", "reconciler.yaml")}
    )


@pytest.mark.parametrize("text", ["", "theirs", "Local"])
def test_policy_that_is_none_is_ignored(text: str) -> None:
    nothing = ConflictPolicy(ASK, origins={"": ("onConflict", "fleet.yaml")})

    assert policy_of("", default=text, fields=f"a={text}") == nothing
    assert policy_of(f"    {ON_CONFLICT}: [local]\n") == nothing


# Records

MARKED = "app.yaml Secret/app data.key aaaaaa-bbbbbb"
CONFLICT = Conflict(
    "app.yaml", "ConfigMap app", "data.key", "old", "new", "mine", "BothChanged", "name aaaaaa-bbbbbb"
)


def test_answer_is_recorded_with_its_policy_and_read_again() -> None:
    answer = Answer(CONFLICT, AnsweredBy.POLICY, "mine", "on-conflict: local", "web.yaml")

    record = answer_record(answer)

    assert record == replace(
        conflict_record(CONFLICT),
        chosen="mine",
        by="policy",
        policy="on-conflict: local",
        source="web.yaml",
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
