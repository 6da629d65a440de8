"""Templates: what needs variables, and errors as text."""

import pytest

from reconciler.cel import Environment, Failure
from reconciler.expand.findings import ExpansionError, Finding
from reconciler.expand.template import Expression, TemplateError, TextTemplate
from reconciler.policy import Limits


@pytest.mark.parametrize(
    ("text", "is_fixed"),
    [(None, True), ("'edge'", True), ("target.name", False), ("1 +", False)],
    ids=["a literal", "a constant", "a variable", "an error"],
)
def test_text_without_variables_is_fixed(text: str | None, *, is_fixed: bool) -> None:
    expressions = Environment(Limits())
    expression = Expression(("template",), text, expressions.compile(text)) if text else None

    assert TextTemplate("downstream.repo", "edge", expression).is_fixed is is_fixed


def test_errors_of_templates_have_their_message_as_text() -> None:
    failure = Failure("no such key: a")

    error = TemplateError(("spec",), failure)
    assert (str(error), error.path, error.failure) == ("no such key: a", ("spec",), failure)
    finding = Finding(("spec",), "it is wrong")
    assert (str(ExpansionError(finding)), ExpansionError(finding).finding) == ("it is wrong", finding)
