"""The generated part of a text: what web forms and people do to it, and what it cannot do to them."""

import base64
import json
from collections.abc import Callable

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
    mark_duplicate,
    parse,
)

LIMIT = 10_000
text = st.text(alphabet="ab \n`~#<>-!", max_size=60)


def composed(body: str, around: MarkedBody | None = None, *, limit: int = LIMIT) -> str:
    return compose(body, "Update web", ["edge"], around or MarkedBody(""), limit, content="abc")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lines as they were", "lines of a web form"])
def test_generated_part_is_recognised_after_a_web_form(newline: str) -> None:
    assert parse(composed("Why.\n\n- app.yaml\n").replace("\n", newline)) == MarkedBody(
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


def marker(fields: object) -> str:
    return f"<!-- reconciler:begin {base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()} -->\n"


def test_marker_without_its_end_has_everything_below_it() -> None:
    assert parse(f"{marker({})}Part\nmore\n") == MarkedBody("Part\nmore\n", has_marker=True)
    assert parse("<!-- reconciler:begin e30 -->\nPart") == MarkedBody("Part", has_marker=True)
    assert parse("No marker") == MarkedBody("No marker", before="No marker")


@pytest.mark.parametrize(
    ("key", "written"), [("dashboard/demo", "dashboard/demo"), ("a b!c_d.e-f", "a_b_c_d.e-f"), ("é>", "__")]
)
def test_comment_has_its_key_in_safe_characters(key: str, written: str) -> None:
    text = comment_text(key, "Body", 1000)

    assert text == f"<!-- reconciler:comment:{written} -->\nBody"
    assert is_comment(key, text)
    assert not is_comment("other", text)
    assert is_comment(key, f"A person's line.\n{text}")


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
