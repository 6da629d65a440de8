"""The generated part of a text: what web forms and people do to it, and what it cannot do to them."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.forge import body_marker
from reconciler.forge.body_marker import (
    MarkedBody,
    comment_text,
    compose,
    digest,
    is_comment,
    issue_text,
    mark_auto_merge,
    mark_duplicate,
    parse,
    same_text,
)

LIMIT = 10_000
text = st.text(alphabet="ab \n`~#<>-!", max_size=60)


def composed(body: str, around: MarkedBody | None = None, *, limit: int = LIMIT) -> str:
    return compose(body, "Update web", ["edge"], around or MarkedBody(""), limit, content="abc")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lines as they were", "lines of a web form"])
def test_generated_part_is_recognised_after_a_web_form(newline: str) -> None:
    marked = parse(composed("Why.\n\n- app.yaml\n").replace("\n", newline))

    assert marked == MarkedBody(
        body="Why.\n\n- app.yaml\n",
        title=digest("Update web"),
        labels=("edge",),
        has_marker=True,
        content="abc",
        ticks=frozenset(),
    )


def test_edited_part_has_no_digest_of_its_source() -> None:
    assert parse(composed("Why.").replace("Why.", "Why not?")).content == ""


@given(st.text(alphabet="ab \n", max_size=30), text, st.text(alphabet="ab \n", max_size=30), text)
def test_text_of_people_around_the_part_is_kept(before: str, old: str, after: str, new: str) -> None:
    present = parse(f"{before}{composed(old)}{after}")

    following = parse(composed(new, present))

    assert (following.before.strip(), following.after) == (before.strip(), after)
    assert following.body == new


@given(text.filter(lambda line: "```" not in line and "~~~" not in line), st.integers(300, 500))
def test_text_is_within_the_limit_and_closes_its_code_blocks(line: str, limit: int) -> None:
    made = composed(f"```\n{line}\n```\n" * 30, limit=limit)

    fences = [part for part in parse(made).body.split("\n") if part == "```"]
    assert len(made) <= limit
    assert len(fences) % 2 == 0


def test_generated_text_cannot_end_its_own_part() -> None:
    body = "A value: <!-- reconciler:end --> and <!-- reconciler:begin e30= --> more"

    marked = parse(composed(body))

    assert (marked.before, marked.after) == ("", "")
    assert marked.body == body.replace("<!-- reconciler:", "<!-- reconciler :")


@pytest.mark.parametrize("own", [composed("Why."), "People wrote all of it", "People\r\nwrote it"])
def test_duplicate_is_marked_whoever_wrote_the_text(own: str) -> None:
    marked = parse(mark_duplicate(own, 7))

    assert marked.duplicate_of == 7
    assert parse(own).body.strip() in f"{marked.before}{marked.body}"


def test_comment_that_does_not_fit_says_so_after_whole_lines() -> None:
    text = body_marker.comment_text("k", "```\n" + "a line\n" * 100, 300)

    assert len(text) <= 300
    assert text.endswith("a line\n```\n\nThe rest does not fit here.")
    assert body_marker.is_comment("k", text)


# The marker, field by field


def fields_of(made: str) -> dict[str, object]:
    """Return the fields in the marker of a text."""
    encoded = made.partition("reconciler:begin ")[2].partition(" -->")[0]
    return dict(json.loads(base64.urlsafe_b64decode(encoded)))


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {}),
        ({"people": ["reviewer/b", "assignee/a"]}, {"people": ["assignee/a", "reviewer/b"]}),
        ({"people": []}, {}),
        ({"auto_merge": "c0ffee"}, {"autoMerge": "c0ffee"}),
        ({"content": "abc"}, {"content": "abc", "part": digest("Why.")}),
    ],
)
def test_marker_has_what_is_known_and_no_more(given: dict[str, Any], fields: dict[str, object]) -> None:
    made = compose("Why.", "Update web", ["b", "a"], MarkedBody(""), LIMIT, **given)

    assert fields_of(made) == {"labels": ["a", "b"], "title": digest("Update web"), **fields}
    assert made.endswith("-->\nWhy.\n<!-- reconciler:end -->")
    assert parse(made) == MarkedBody(
        "Why.",
        title=digest("Update web"),
        labels=("a", "b"),
        people=tuple(fields.get("people", ())),  # type: ignore[arg-type]
        has_marker=True,
        content=given.get("content", ""),
        auto_merge=given.get("auto_merge", ""),
        ticks=frozenset() if "content" in given else None,
    )


def marker(fields: object) -> str:
    return f"<!-- reconciler:begin {base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()} -->\n"


UNMARKED = MarkedBody("Part", before="Before\n", after="\nAfter", has_marker=True)


@pytest.mark.parametrize(
    ("fields", "marked"),
    [
        ({}, UNMARKED),
        ({"title": 1, "labels": "a", "people": 2, "autoMerge": 3, "duplicateOf": "4"}, UNMARKED),
        (
            {"title": "t", "labels": ["a", 1], "people": ["b"]},
            UNMARKED._replace(title="t", labels=("a",), people=("b",)),
        ),
        ({"duplicateOf": 4, "autoMerge": "x"}, UNMARKED._replace(duplicate_of=4, auto_merge="x")),
        ({"content": "c", "part": digest("Part")}, UNMARKED._replace(content="c", ticks=frozenset())),
        ({"content": "c", "part": digest("part")}, UNMARKED),
        ({"content": "c"}, UNMARKED),
        (["no", "map"], UNMARKED),
    ],
)
def test_marker_that_people_wrote_counts_field_by_field(fields: object, marked: MarkedBody) -> None:
    assert parse(f"Before\n{marker(fields)}Part\n<!-- reconciler:end -->\nAfter") == marked


def test_marker_without_its_end_has_everything_below_it() -> None:
    assert parse(f"{marker({})}Part\nmore\n") == MarkedBody("Part\nmore\n", has_marker=True)
    assert parse("<!-- reconciler:begin e30 -->\nPart") == MarkedBody("Part", has_marker=True)
    assert parse("No marker") == MarkedBody("No marker", before="No marker")


def test_field_is_added_to_the_marker_or_to_an_empty_one_at_the_end() -> None:
    text = f"Before\r\n{marker({'title': 't'})}Part\n<!-- reconciler:end -->After"

    duplicate, auto = mark_duplicate(text, 4), mark_auto_merge(text, "c0ffee")

    assert fields_of(duplicate) == {"title": "t", "duplicateOf": 4}
    assert fields_of(auto) == {"title": "t", "autoMerge": "c0ffee"}
    assert duplicate.partition("-->\n")[2] == "Part\n<!-- reconciler:end -->After"
    assert duplicate.startswith("Before\n<!--")
    assert parse(mark_duplicate("Text", 4)) == MarkedBody(
        "", before="Text\n\n", has_marker=True, duplicate_of=4
    )


@pytest.mark.parametrize(
    ("key", "written"), [("dashboard/demo", "dashboard/demo"), ("a b!c_d.e-f", "a_b_c_d.e-f"), ("é>", "__")]
)
def test_comment_has_its_key_in_safe_characters(key: str, written: str) -> None:
    text = comment_text(key, "Body", 1000)

    assert text == f"<!-- reconciler:comment:{written} -->\nBody"
    assert is_comment(key, text)
    assert not is_comment("other", text)
    assert is_comment(key, f"A person's line.\n{text}")


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [("a\r\nb \n", "a\nb", True), ("a", "a  \n\n", True), ("a", "b", False), (" a", "a", False)],
)
def test_texts_are_the_same_to_a_forge_but_for_newlines_and_trailing_space(
    text: str, other: str, same: bool
) -> None:
    assert same_text(text, other) is same


@pytest.mark.parametrize("difference", ["", "https://forge.example/compare"])
def test_text_that_does_not_fit_says_where_the_rest_is(difference: str) -> None:
    made = compose("line\n" * 200, "Title", [], MarkedBody(""), 400, difference=difference)

    end = (
        "The rest does not fit here: [all changes of this pull request](https://forge.example/compare)."
        if difference
        else "The rest does not fit here; the files of this pull request show it."
    )
    assert parse(made).body.endswith(f"line\n\n{end}")
    assert len(made) <= 400


@pytest.mark.parametrize("around", [MarkedBody(""), MarkedBody("", before="Mine.", after="More.\n")])
def test_text_that_just_fits_is_not_cut(around: MarkedBody) -> None:
    whole = compose("word " * 40, "Update web", [], around, 10_000)

    assert compose("word " * 40, "Update web", [], around, len(whole)) == whole
    shorter = compose("word " * 40, "Update web", [], around, len(whole) - 1)
    assert shorter != whole
    assert len(shorter) < len(whole)


@pytest.mark.parametrize(
    "write",
    [
        lambda limit: comment_text("k", "word " * 40, limit),
        lambda limit: issue_text("k", "word " * 40, f"Mine.\n{comment_text('k', '', 99)}", limit),
    ],
    ids=["comment", "issue"],
)
def test_comment_and_issue_that_just_fit_are_not_cut(write: Callable[[int], str]) -> None:
    whole = write(10_000)

    assert write(len(whole)) == whole
    assert len(write(len(whole) - 1)) < len(whole)


def test_a_tick_is_no_edit_and_a_line_of_a_difference_is_no_box() -> None:
    box = "- [ ] keep `3`, the local value (`app.yaml Deployment/web spec.replicas 1a2b3c-4d5e6f`)"
    ticked = box.replace("[ ]", "[x]")
    whole = composed(f"{box}\n\n````diff\n```\n{ticked}\n````\n")
    name = "app.yaml Deployment/web spec.replicas 1a2b3c-4d5e6f"

    assert (parse(whole).ticks, parse(whole).content) == (frozenset(), "abc")
    by_hand = parse(whole.replace(box, ticked, 1))
    assert (by_hand.ticks, by_hand.content) == ({("keep", name)}, "abc")
    edited = parse(whole.replace(box, ticked, 1).replace("spec.replicas", "spec.paused", 1))
    assert (edited.ticks, edited.content) == (None, "")
