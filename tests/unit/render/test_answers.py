"""Decision tables of conflict policies and of open conflicts, with every combination once (D10)."""

from itertools import product
from typing import Any

import pytest

from reconciler.names.trailers import Answers, ConflictName, conflict_name, read_answers, value_mark
from reconciler.policy import OnConflict
from reconciler.render.answers import (
    Answer,
    AnsweredBy,
    Classified,
    DraftContext,
    asked_conflicts,
    classify_conflicts,
    classify_delivery,
    current_value,
    find_document,
)
from reconciler.render.conflicts import ON_CONFLICT, ON_CONFLICT_FIELDS, conflict_policy
from reconciler.render.update import Conflict, ConflictDecision, update_package
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import kptfile, package
from tests.support.values import replace

SIDES = ("", "upstream", "local")
LEVELS = (
    "a field of the Kptfile",
    "a field of the variant",
    "the resource",
    "the Kptfile",
    "the variant",
    "the configuration",
)
POLICIES = list(product(SIDES, repeat=len(LEVELS)))
"""The policy of each level and the result: the first level with a policy decides."""


def winner(levels: tuple[str, ...]) -> str:
    return next((side for side in levels if side), "ask")


def resource(color: str, note: str = "") -> str:
    annotations = f"  annotations:\n    {ON_CONFLICT}: {note}\n" if note else ""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n{annotations}data:\n  color: {color}\n"


def notes(default: str, fields: str) -> dict[str, str]:
    annotations = {ON_CONFLICT: default, ON_CONFLICT_FIELDS: f"data.color={fields}" if fields else ""}
    return {name: text for name, text in annotations.items() if text}


def test_policy_table_is_complete() -> None:
    assert len(set(POLICIES)) == 3 ** len(LEVELS)


def test_first_level_with_a_policy_wins() -> None:
    for levels in POLICIES:
        own_field, variant_field, annotation, own, variant, fallback = levels
        noted = "".join(f"    {key}: {text}\n" for key, text in notes(own, own_field).items())
        head = kptfile("web", f"  annotations:\n{noted}" if noted else "")
        local = package({"Kptfile": head, "app.yaml": resource("mine", annotation)})
        policy = conflict_policy(local, notes(variant, variant_field), OnConflict(fallback or "ask"))

        updated = update_package(
            package({"Kptfile": head, "app.yaml": resource("old", annotation)}),
            package({"Kptfile": head, "app.yaml": resource("new", annotation)}),
            local,
            on_conflict=policy,
        )

        expected = winner(levels)
        color = "new" if expected == "upstream" else "mine"
        assert f"  color: {color}\n" in updated.files["app.yaml"].data.decode(), levels
        assert bool(updated.conflicts) == (expected == "ask"), levels
        assert [str(choice) for _, choice, _ in updated.decided] == (
            [] if expected == "ask" else [expected]
        ), levels


ANSWERS: DecisionTable[str] = DecisionTable(
    {
        "policy": ("", "upstream", "local"),
        "the draft has": ("local's", "upstream's", "a third"),
        "kept": ("nothing", "these values", "main's values", "other values", "the place"),
        "our newest commit asks about": ("nothing", "what main has", "what the draft has"),
    },
    [
        ({"kept": ("these values", "main's values", "the place")}, "keep", "a person kept the value"),
        ({"policy": "upstream", "the draft has": "upstream's"}, "policy", "upstream's by policy"),
        ({"policy": "local", "the draft has": "local's"}, "policy", "local's by policy"),
        ({"policy": ("upstream", "local")}, "edit", "people wrote another value than the policy's"),
        ({"the draft has": "local's"}, "waits", "nothing changed since we asked"),
        (
            {"the draft has": "a third", "our newest commit asks about": "what the draft has"},
            "waits",
            "our commit asked about that very value",
        ),
        ({}, "edit", "people wrote another value"),
    ],
)
VALUES = {"local's": "mine", "upstream's": "new", "a third": "both"}
CONFLICT = Conflict("app.yaml", "ConfigMap app", "data.color", "old", "new", "mine", "BothChanged")


def name(upstream: str, local: str) -> ConflictName:
    mark = f"{value_mark(upstream)}-{value_mark(local)}"
    return conflict_name("web", CONFLICT.path, CONFLICT.resource, CONFLICT.field, mark)


def answered(case: Case) -> str:
    now = VALUES[case["the draft has"]]
    questions = {
        "nothing": {},
        "what main has": {name("new", "mine"): ""},
        "what the draft has": {name("new", now): ""},
    }[case["our newest commit asks about"]]
    kept = {
        "nothing": [],
        "these values": [name("new", now)],
        "main's values": [name("new", "mine")],
        "other values": [name("older", now)],
        "the place": [name("", "").without_mark],
    }[case["kept"]]
    of_draft = context(
        answers=Answers(questions, questions, frozenset(kept)), files=package({"app.yaml": resource(now)})
    )
    decision = ConflictDecision(OnConflict(case["policy"])) if case["policy"] else None

    conflicts, answers = classify_conflicts([(CONFLICT, decision)], (), of_draft)

    return ", ".join(["waits" for _ in conflicts] + [str(answer.by) for answer in answers])


@pytest.mark.parametrize("row", ANSWERS.rows, ids=str)
def test_conflict_is_open_or_answered_as_in_the_table(row: Row[str]) -> None:
    assert ANSWERS.mistakes(row, answered) == []


def test_conflict_of_the_draft_replaces_the_same_one_of_main() -> None:
    of_draft = context(answers=Answers({}, {}, frozenset()), files=package({"app.yaml": resource("drafted")}))

    ((conflict,), _) = classify_conflicts(
        [(CONFLICT, None)], [(replace(CONFLICT, local="drafted"), None)], of_draft
    )

    assert (conflict.local, conflict.name) == ("drafted", str(name("new", "drafted")))


FULL = "Keep: web/app.yaml ConfigMap/app data.color aaaaaa-bbbbbb"
CONFLICTS = "".join(f"Conflict: {FULL[6:].replace('web/', f'{package}/')}\n" for package in ("web", "web2"))
ASKED = f"Title\n\n{CONFLICTS}\nkpt:{{}}\n"


@pytest.mark.parametrize(
    ("line", "alone", "kept"),
    [
        (FULL, True, True),
        (FULL, False, True),
        ("keep:   web/app.yaml\n  ConfigMap/app\n  data.color aaaaaa-bbbbbb", True, True),
        ("Keep: web/app.yaml\r\n  ConfigMap/app data.color\r\n\r\nMore", True, True),
        ("Keep: app.yaml ConfigMap/app data.color", True, True),
        ("Keep: app.yaml ConfigMap/app data.color", False, False),
        ("Keep: web/app.yaml v1/ConfigMap/app data.color", True, True),
        ("Keep: all", True, True),
        ("Keep: web/app.yaml ConfigMap/app data.color aaaaaa-cccccc", True, False),
        ("Keep: web/app.yaml ConfigMap/app data.size", True, False),
        ("Keep: web/app.yaml Secret/app data.color", True, False),
        ("Keep:", True, False),
        ("We keep: web/app.yaml ConfigMap/app data.color", True, False),
        ("Keep: a b c d e f", True, False),
    ],
)
def test_keep_line_is_parsed(line: str, *, alone: bool, kept: bool) -> None:
    answers = read_answers([ASKED, f"Mine\n\n{line}\n"], "web", alone=alone)

    (name,) = answers.named
    assert answers.is_kept(name) is kept


def test_keep_line_without_mark_answers_no_later_conflict() -> None:
    later = ASKED.replace("aaaaaa", "dddddd")
    answers = read_answers(
        [ASKED, "Keep: all\n\nKeep: app.yaml ConfigMap/app data.color", later], "web", alone=True
    )

    assert [answers.is_kept(name) for name in sorted(answers.named)] == [True, False]


@pytest.mark.parametrize(
    ("package", "is_asked"), [("web", False), ("web2", True), ("", True)], ids=["this", "another", "none"]
)
def test_newest_commit_about_a_package_asks_what_is_open(package: str, *, is_asked: bool) -> None:
    about = f'Title\n\nkpt:{{"package":"{package}","task":{{}}}}\n' if package else "Mine\n"
    answers = read_answers([ASKED, about], "web", alone=True)

    assert (len(answers.named), bool(answers.latest)) == (1, is_asked)


@pytest.mark.parametrize(
    "odd", ["\udcff", "a b.yaml", "$(x).yaml", "a'b\".yaml", "`x`.yaml", "#!.yaml", "é.yaml", "a\nb"]
)
def test_conflict_name_has_no_shell_metacharacter(odd: str) -> None:
    text = str(conflict_name("web", odd, odd, odd, "aaaaaa-bbbbbb"))

    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._,:=+@[]()%- ")
    (kept,) = read_answers([f"Keep: {text}"], "web", alone=True).keeps
    assert str(kept) == text


# Current values

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations:
    a.b/c: dotted
spec:
  replicas: 2
  args: [one, "two]"]
  containers:
  - name: app
    image: app:1
  - name: log]
    image: log:1
  ports:
  - {containerPort: 80, protocol: TCP, name: http}
  - {containerPort: 80, protocol: UDP, name: dns}
  empty: {}
"""
FILES = package(
    {
        "Kptfile": "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\npipeline:\n  mutators:\n"
        "  - image: set-labels:v1\n    name: labels\n",
        "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n---\n" + DEPLOYMENT,
        "b.yaml": DEPLOYMENT.replace("replicas: 2", "replicas: 3"),
        "notes.txt": "first\nsecond\n",
        "sub/Kptfile": "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: sub\n",
    }
)
WEB = "Deployment web"


def at(field: str, path: str = "a.yaml", resource: str = WEB) -> Conflict:
    return Conflict(path, resource, field, None, None, None, "BothChanged")


def text(
    upstream: str | None, local: str | None, reason: str = "BothChanged", path: str = "notes.txt"
) -> Conflict:
    return Conflict(path, "", "", None, upstream, local, reason)


VALUES_NOW: dict[str, tuple[Conflict, str | None]] = {
    "a field": (at("spec.replicas"), "2"),
    "in the file of the conflict": (at("spec.replicas", "b.yaml"), "3"),
    "in another file if that one is gone": (at("spec.replicas", "gone.yaml"), "2"),
    "in another file if that one lost the resource": (at("spec.replicas", "notes.txt"), "2"),
    "a field that is absent": (at("spec.gone"), None),
    "a field below one that is absent": (at("spec.gone.more"), None),
    "a field whose name begins alike": (at("spec.replica"), None),
    "a field with a dot in its name": (at('metadata.annotations."a.b/c"'), "dotted"),
    "an element by its name": (at("spec.containers[name=app].image"), "app:1"),
    "an element with a bracket in its name": (at("spec.containers[name=log]].image"), "log:1"),
    "an element that is absent": (at("spec.containers[name=gone].image"), None),
    "an element by two keys": (at("spec.ports[containerPort=80,protocol=UDP].name"), "dns"),
    "an element by one of two keys": (at("spec.ports[containerPort=80,gone=1].name"), "http"),
    "an element by keys that it has not": (at("spec.ports[gone=1].name"), None),
    "a text in a list": (at("spec.args[=one]"), "one"),
    "a text with a bracket in a list": (at("spec.args[=two]]"), '"two]"'),
    "a text that is absent": (at("spec.args[=three]"), None),
    "a text where items are mappings": (at("spec.containers[=app]"), None),
    "a key where items are texts": (at("spec.args[name=one]"), None),
    "a function by its name": (
        at("pipeline.mutators[function=labels].image", "Kptfile", "Kptfile"),
        "set-labels:v1",
    ),
    "a function by the start of its image": (
        at("pipeline.mutators[function=set-labels:v1@sha256].name", "Kptfile", "Kptfile"),
        "labels",
    ),
    "a function that is absent": (at("pipeline.mutators[function=other].name", "Kptfile", "Kptfile"), None),
    "a field of the Kptfile": (at("metadata.name", "Kptfile", "Kptfile"), "web"),
    "a field of the Kptfile of a sub-package": (at("metadata.name", "sub/Kptfile", "Kptfile"), "sub"),
    "a Kptfile that is absent": (at("metadata.name", "gone/Kptfile", "Kptfile"), None),
    "a resource that is absent": (at("spec", resource="Deployment gone"), None),
    "a resource": (at("", "b.yaml"), DEPLOYMENT.replace("replicas: 2", "replicas: 3")),
    "a sub-package": (at("", "sub", "Package"), "package"),
    "a sub-package that is absent": (at("", "su", "Package"), None),
    "a text file that is absent": (text("a", "b", path="gone.txt"), None),
    "a text file that one side deleted": (text(None, "first", "DeletedUpstream"), "first\nsecond\n"),
    "a text file that was added": (text("x", "first", "BothAdded"), "first\nsecond\n"),
    "lines that local deleted": (text("first", None), "first\nsecond\n"),
    "local's lines": (text("second", "first"), "first"),
    "upstream's lines": (text("second", "third"), "second"),
    "lines of nobody": (text("third", "fourth"), "first\nsecond\n"),
    "no lines of local": (text("third", ""), ""),
    "upstream's lines where local has none": (text("second", ""), "second"),
}


@pytest.mark.parametrize("case", VALUES_NOW)
def test_value_of_a_conflict_is_found_in_the_draft(case: str) -> None:
    conflict, value = VALUES_NOW[case]

    assert current_value(FILES, conflict) == value


def test_resource_of_a_text_file_is_none() -> None:
    assert find_document(FILES, text("a", "b")) is None
    found = find_document(FILES, at("spec.replicas", "gone.yaml"))
    assert found
    assert str(found.identity) == WEB


# Conflicts of this run, and questions of our commits


def context(**fields: Any) -> DraftContext:
    given = {
        "package": "web",
        "commit": "c0ffee",
        "answers": Answers(),
        "files": package({"app.yaml": resource("mine")}),
        "upstream": package({"app.yaml": resource("new")}),
        "choose": lambda _: None,
        **fields,
    }
    return DraftContext(**given)


NAMED = replace(CONFLICT, name=str(name("new", "mine")))
LOCAL = ConflictDecision(OnConflict.LOCAL, "on-conflict: local", "web.yaml")
UPSTREAM = ConflictDecision(OnConflict.UPSTREAM, "on-conflict: upstream", "web.yaml")

ASKED_BEFORE: dict[str, tuple[ConflictName | None, bool]] = {
    "nothing": (None, True),
    "this": (name("new", "mine"), True),
    "another local value": (name("new", "other"), False),
    "another value of upstream": (name("older", "mine"), True),
    "another field": (name("new", "other")._replace(field="data.size"), True),
}


@pytest.mark.parametrize(("asked", "is_open"), ASKED_BEFORE.values(), ids=ASKED_BEFORE)
@pytest.mark.parametrize("where", ["commits", "record"])
def test_conflict_of_this_run_was_answered_if_upstreams_value_was_asked_about_before(
    asked: ConflictName | None, where: str, *, is_open: bool
) -> None:
    named = {asked: ""} if asked else {}
    before = (
        context(answers=Answers(named=named))
        if where == "commits"
        else context(recorded={str(each): CONFLICT for each in named})
    )

    answers = () if is_open else (Answer(NAMED, AnsweredBy.EDIT, "mine"),)
    expected = ((NAMED,) if is_open else (), answers)
    assert classify_conflicts((), [(CONFLICT, None)], before) == expected
    assert classify_delivery([CONFLICT], before) == expected


def asked(
    local: str = "mine", upstream: str = "new", *, draft: str = "mine", side: str = "", **fields: Any
) -> DraftContext:
    """Return a draft in which our newest commit asked about two values, and no merge finds a conflict."""
    questions = {name(upstream, local): side}
    given = {"files": package({"app.yaml": resource(draft)}), **fields}
    kept = given.pop("keeps", frozenset())
    return context(answers=Answers(questions, questions, kept), **given)


def classified(of_draft: DraftContext) -> Classified:
    return classify_conflicts((), (), of_draft)


ASKED_ABOUT = replace(CONFLICT, base=None, name=str(name("new", "mine")))


def test_kept_question_stays_kept_whatever_the_draft_has_now() -> None:
    (answer,) = classified(asked(draft="both", keeps=frozenset({name("new", "mine")})))[1]

    assert (answer.by, answer.chosen) == (AnsweredBy.KEEP, "both")


@pytest.mark.parametrize(
    ("side", "decision", "policy", "source"),
    [
        ("local", LOCAL, LOCAL.policy, LOCAL.source),
        ("upstream", UPSTREAM, UPSTREAM.policy, UPSTREAM.source),
        ("local", UPSTREAM, "", ""),
        ("upstream", None, "", ""),
    ],
)
def test_policy_that_decided_before_is_named_if_it_still_decides_so(side, decision, policy, source) -> None:
    of_policy = asked(side=side, choose=lambda _: decision)

    answer = Answer(ASKED_ABOUT, AnsweredBy.POLICY, "mine", policy, source)
    assert classified(of_policy) == ((), (answer,))
    assert list(asked_conflicts(of_policy)) == []


@pytest.mark.parametrize("path", ["web2/app.yaml", "app.yaml", "other/app.yaml"])
def test_question_about_another_package_is_none_of_this_draft(path: str) -> None:
    other = {name("new", "mine")._replace(path=path): ""}

    assert classified(context(answers=Answers(other, other))) == ((), ())


LINES = conflict_name("web", "notes.txt", "", "", f"{value_mark('n')}-{value_mark('m')}")

OF_LINES: dict[str, tuple[ConflictName | None, str | None, AnsweredBy | None]] = {
    "unknown": (None, None, None),
    "as we wrote it": (None, "now\n", None),
    "edited": (None, "before\n", AnsweredBy.EDIT),
    "added": (None, "", AnsweredBy.EDIT),
    "kept": (LINES, "before\n", AnsweredBy.KEEP),
    "the place is kept": (LINES.without_mark, "now\n", AnsweredBy.KEEP),
    "other values": (LINES._replace(mark="aaaaaa-bbbbbb"), "now\n", None),
    "other file": (LINES._replace(path="web/other.txt"), "now\n", None),
}


@pytest.mark.parametrize(("kept", "written", "by"), OF_LINES.values(), ids=OF_LINES)
def test_question_about_lines_is_answered_by_any_edit_of_their_file(kept, written, by) -> None:
    of_lines = context(
        answers=Answers({LINES: ""}, {LINES: ""}, frozenset({kept} if kept else ())),
        files=package({"notes.txt": "now\n"}),
        upstream=package({"notes.txt": "theirs\n"}),
        written=None if written is None else package({"notes.txt": written} if written else {}),
    )

    conflict = Conflict("notes.txt", "", "", None, "theirs\n", "now\n", "BothChanged", str(LINES))
    answers = (Answer(conflict, by, "now\n"),) if by else ()
    assert classified(of_lines) == (() if by else (conflict,), answers)
