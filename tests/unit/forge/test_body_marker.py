"""The generated part of a text: what web forms and people do to it, and what it cannot do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.forge import body_marker
from reconciler.forge.body_marker import MarkedBody, compose, digest, mark_duplicate, parse

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


@pytest.mark.parametrize(
    ("difference", "end"),
    [
        ("", "The rest does not fit here; the files of this pull request show it."),
        (
            "https://forge.example/compare/a...b",
            "The rest does not fit here: [all changes of this pull request](https://forge.example/compare/a...b).",
        ),
    ],
)
def test_text_that_does_not_fit_ends_with_where_the_rest_is(difference: str, end: str) -> None:
    body = "\n".join(f"line {number}" for number in range(200))

    text = body_marker.compose(body, "t", (), body_marker.MarkedBody(""), 800, difference=difference)

    assert len(text) <= 800
    assert body_marker.parse(text).body.endswith(f"\n\n{end}")


def test_comment_that_does_not_fit_says_so_after_whole_lines() -> None:
    text = body_marker.comment_text("k", "```\n" + "a line\n" * 100, 300)

    assert len(text) <= 300
    assert text.endswith("a line\n```\n\nThe rest does not fit here.")
    assert body_marker.is_comment("k", text)
