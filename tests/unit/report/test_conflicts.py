"""How a conflict is shown: short values in the table, long ones as a diff below it, deletions as a word."""

import pytest
from markdown_it import MarkdownIt

from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.conflicts import masked
from reconciler.report.markdown import pull_body
from tests.support.plan_values import a_conflict
from tests.support.values import replace
from tests.unit.report.plans import CREATED, NAMES

LONG = "kind: ConfigMap\ndata:\n  a: {}\n"
NOTES = (
    a_conflict("a.yaml", "", LONG.format(1), LONG.format(2), "ConfigMap a"),
    a_conflict("b.yaml", "spec.replicas", None, "5", "Deployment b"),
    a_conflict("c.yaml", "data.x", "", "x" * 200, "ConfigMap c"),
    a_conflict("notes.txt", "", "", "one line\n"),
    masked(a_conflict("secret.yaml", "data.p", "aHVudGVyMg==", None, "Secret s")),
    a_conflict("d.yaml", "data.x", "X" * 81, "X" * 80 + "\n"),
)
CHANGE = replace(CREATED, conflicts=NOTES)


def test_markdown_has_no_escaped_line_break_and_names_deletions() -> None:
    body = pull_body(CHANGE, NAMES)

    assert "\\x0a" not in body
    table = "\n\n| | |\n| --- | --- |\n"
    assert (
        f"`ConfigMap a`, `a.yaml`{table}| upstream | 3 lines, see below |\n| local | 3 lines, see below |"
        in body
    )
    assert (
        f"`spec.replicas`, `Deployment b`, `b.yaml`{table}| upstream | (deleted) |\n| local | `5` |" in body
    )
    assert f"`data.x`, `ConfigMap c`, `c.yaml`{table}| upstream | (empty) |\n| local | see below |" in body
    assert f"`notes.txt`{table}| upstream | (deleted) |\n| local | `one line` |" in body
    assert f"`data.p`, `Secret s`, `secret.yaml`{table}| upstream | `***` |\n| local | (deleted) |" in body
    assert f"`d.yaml`{table}| upstream | see below |\n| local | `{'X' * 80}` |" in body


def test_markdown_shows_long_values_as_a_diff_from_local_to_upstream() -> None:
    fences = [token for token in MarkdownIt().parse(pull_body(CHANGE, NAMES)) if token.type == "fence"]

    first, second = fences[:2]
    assert first.content == "--- local\n+++ upstream\n kind: ConfigMap\n data:\n-  a: 2\n+  a: 1\n"
    assert second.content.splitlines()[2:] == [f"-{'x' * 200}"]


def test_what_one_side_deleted_is_shown_as_the_change_of_the_other() -> None:
    deleted = a_conflict("a.yaml", "", LONG.format(2), None, "ConfigMap a", base=LONG.format(1))
    kept = replace(deleted, upstream=None, local=LONG.format(3))
    both = replace(deleted, local=LONG.format(3))

    bodies = [pull_body(replace(CREATED, conflicts=(note,)), NAMES) for note in (deleted, kept, both)]

    shown = [next(t for t in MarkdownIt().parse(body) if t.type == "fence").content for body in bodies]
    assert [text.splitlines()[:2] for text in shown] == [
        ["--- before", "+++ upstream"],
        ["--- before", "+++ local"],
        ["--- local", "+++ upstream"],
    ]
    rows = "| before | {} |\n| upstream | 3 lines, see below |\n| local | {} |"
    assert rows.format("3 lines, see below", "(deleted)") in bodies[0]
    assert rows.format("3 lines", "3 lines, see below") in bodies[2]


@pytest.mark.parametrize(("lines", "is_folded"), [(3, False), (40, True)])
def test_a_long_difference_is_folded(lines: int, *, is_folded: bool) -> None:
    sides = ("\n".join(f"{word} {line}" for line in range(lines)) for word in ("new", "mine"))
    body = pull_body(replace(CREATED, conflicts=(a_conflict("a.txt", "", *sides),)), NAMES)

    assert ("<summary>The difference</summary>" in body) is is_folded


def test_conflicts_come_before_the_facts_and_each_has_its_command() -> None:
    note = a_conflict(
        "b.yaml",
        "spec.replicas",
        "4",
        "5",
        "Deployment b",
        "web/b.yaml Deployment/b spec.replicas 000000-111111",
    )
    other = replace(note, field="spec.paused", name=note.name.replace("replicas", "paused"))
    body = pull_body(replace(CREATED, conflicts=(note, note, other)), NAMES)

    assert body.index("### Conflicts") < body.index("| package |")
    command = f"reconciler answer {NAMES.of(CREATED)} web/b.yaml Deployment/b spec."
    assert f"\n{command}replicas --keep\n{command}paused --keep\n" in body


@pytest.mark.parametrize("boxes", [False, True])
def test_only_a_file_that_is_deleted_here_is_added_again(*, boxes: bool) -> None:
    value = a_conflict("b.yaml", "spec.replicas", "4", "5", "Deployment b", "Keep b 11-22")
    deleted = a_conflict("a.yaml", "", LONG.format(2), None, "ConfigMap a", "Keep a 11-22")

    bodies = [
        pull_body(replace(CREATED, conflicts=notes), NAMES, boxes=boxes)
        for notes in ((value,), (value, deleted))
    ]

    assert ["Add a file again that is deleted here." in body for body in bodies] == [False, True]


def test_comments_that_a_package_does_not_have_are_left_out_and_not_deleted() -> None:
    rule, field = "a rule of the merge", "comments-of-upstream"
    note = Answer(a_conflict("a.yaml", field, "# new", None, "ConfigMap app"), AnsweredBy.POLICY, None, rule)

    body = pull_body(replace(CREATED, answers=(note,)), NAMES)

    assert f"| `{field}` | (left out) | `# new` | `{rule}` |" in body
