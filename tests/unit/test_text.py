"""Texts for people: mypy reads this file, and an ignored error that is gone fails `make lint`."""

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import join_texts
from reconciler.names.problems import Problem

PROBLEM = Problem(Location("a.yaml"), Reason.NOT_FOUND, "No package web", hint="Add it.")


def is_about_web(text: str) -> bool:
    return "web" in text


def test_mypy_refuses_code_that_asks_a_text_for_a_fact() -> None:
    asked = [
        PROBLEM.message.startswith("No"),  # type: ignore[attr-defined]
        PROBLEM.message.partition("package")[1],  # type: ignore[attr-defined]
        PROBLEM.hint.replace("it", "web"),  # type: ignore[attr-defined]
        "web" in PROBLEM.message,  # type: ignore[operator]
        PROBLEM.message[:2],  # type: ignore[index]
        is_about_web(PROBLEM.message),  # type: ignore[arg-type]
    ]

    assert all(asked)  # at run time a text is a str


def test_joined_texts_leave_out_empty_ones() -> None:
    assert join_texts("; ", (PROBLEM.message, "", "b")) == "No package web; b"
