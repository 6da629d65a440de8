"""What a runner reads: no text that a manifest brings breaks out of it, and nothing is too large."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.errors import Location
from reconciler.cli.workflow import (
    MOST_LINES,
    SUMMARY_BYTES,
    Annotation,
    Runner,
    annotate_problem,
    annotation_lines,
    fit_summary,
    link_pages,
    output_block,
)
from reconciler.names.problems import Problem
from tests.support.workflow import parse_outputs

hostile = st.one_of(
    st.text(), st.sampled_from(["::set-output name=a::b", "a\n::error::x", "%0A", "a,line=1:b", "\r\n"])
)


def problem(path: str, message: str, line: int = 1) -> Problem:
    return Problem(Location(path, line), "InvalidYAML", message)


@given(hostile, hostile)
def test_an_annotation_is_one_command_whatever_it_says(path: str, message: str) -> None:
    (line,) = annotation_lines([annotate_problem(problem(path, message))])

    head, _, said = line.removeprefix("::error ").partition("::")
    assert "\n" not in line
    assert "\r" not in line
    assert line.startswith("::error ")
    assert {pair.partition("=")[0] for pair in head.split(",")} <= {"title", "file", "line", "col"}
    assert "\n" not in said


def test_ten_of_each_level_are_shown_and_the_last_counts_the_rest() -> None:
    errors = [annotate_problem(problem("a", str(n))) for n in range(25)]
    warnings = [annotate_problem(problem("a", str(n)), "warning") for n in range(MOST_LINES)]

    lines = list(annotation_lines([*errors, *warnings]))

    assert [line.partition(" ")[0] for line in lines] == ["::error"] * MOST_LINES + ["::warning"] * MOST_LINES
    assert lines[MOST_LINES - 1].endswith("::16 more in the job summary")


def test_properties_are_escaped() -> None:
    (line,) = annotation_lines([Annotation("error", "a:b,c", "100% sure", Location("x,y:z.yaml", 3, 7))])

    assert line == "::error col=7,file=x%2Cy%3Az.yaml,line=3,title=a%3Ab%2Cc::100%25 sure"


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
    st.text("0123456789abcdef", min_size=32, max_size=32),
)
def test_an_output_comes_back_as_it_was(value: str, delimiter: str) -> None:
    block = output_block("summary", value, f"end-{delimiter}")

    assert parse_outputs(block) == {"summary": value}


def test_a_value_cannot_hold_its_delimiter() -> None:
    with pytest.raises(ValueError, match="delimiter"):
        output_block("a", "x\nend-1\nb<<c", "end-1")


@given(st.text(max_size=50), st.integers(0, 40_000), st.integers(0, SUMMARY_BYTES + 10))
def test_a_summary_always_fits(line: str, times: int, taken: int) -> None:
    text = f"{line}\n" * times

    fitted = fit_summary(text, taken)

    assert len(fitted.encode("utf-8", "replace")) + taken <= max(SUMMARY_BYTES, taken)
    note, room = "\n\nThe rest did not fit.\n", SUMMARY_BYTES - taken
    if len(text.encode()) <= room:
        assert fitted == text
    elif room <= len(note):
        assert fitted == ""
    else:
        assert fitted.endswith(note)
        assert text.startswith(fitted.removesuffix(note))


@pytest.mark.parametrize(
    ("pages", "line"), [("", "See docs/a.md"), ("https://x/y", "See [docs/a.md](https://x/y/docs/a.md)")]
)
def test_summary_of_a_step_has_links_and_no_secret(tmp_path: Path, pages: str, line: str) -> None:
    variables = {
        "GITHUB_STEP_SUMMARY": str(tmp_path / "s"),
        "ACTION_PAGES": pages,
        "A_TOKEN": "hunter2hunter2",
    }

    Runner(variables).summarise("See docs/a.md of hunter2hunter2\n")
    Runner({}).summarise("nowhere")

    assert (tmp_path / "s").read_text() == f"{line} of ***\n"


def test_pages_of_the_documentation_are_links_in_sentences_and_nowhere_else() -> None:
    text = (
        "See `docs/guides/waves.md`, or docs/check.md.\n"
        "````diff\n```\n+see docs/check.md\n````\n"
        "Not mydocs/check.md, docs/Other.md or `pkg/docs/check.md`; docs/runs.md\n"
    )

    assert link_pages(text, "https://git.example/acme/reconciler/blob/v1") == (
        "See [docs/guides/waves.md](https://git.example/acme/reconciler/blob/v1/docs/guides/waves.md), "
        "or [docs/check.md](https://git.example/acme/reconciler/blob/v1/docs/check.md).\n"
        "````diff\n```\n+see docs/check.md\n````\n"
        "Not mydocs/check.md, docs/Other.md or `pkg/docs/check.md`; "
        "[docs/runs.md](https://git.example/acme/reconciler/blob/v1/docs/runs.md)\n"
    )
