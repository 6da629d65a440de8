"""The inputs of the action: what counts as given, as yes, as a number and as a path."""

from pathlib import Path

import pytest

from reconciler.base.errors import UsageError
from reconciler.cli.action import Inputs


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        *((text, True) for text in ("true", "True", "TRUE", " true ", "")),
        *((text, False) for text in ("false", "False", "FALSE")),
    ],
)
def test_flag_is_a_boolean_of_yaml_or_its_default(text: str, flag: bool) -> None:
    assert Inputs({"INPUT_COMMENT": text}).flag("comment", default=True) is flag


@pytest.mark.parametrize("text", ["yes", "YES", "1", "no", "0", "on", "2", "truee", "y", "tRUE", "null"])
def test_flag_of_any_other_word_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"Input comment is '{text}', which is no boolean"):
        Inputs({"INPUT_COMMENT": text}).flag("comment", default=True)


@pytest.mark.parametrize(
    ("control", "resolved"),
    [("", "/checkout"), ("fleet", "/checkout/fleet"), ("/srv/fleet", "/srv/fleet"),
     ("https://forge.example/a.git", "https://forge.example/a.git"),
     ("git@forge.example:a.git", "git@forge.example:a.git")],
)  # fmt: skip
def test_relative_control_starts_at_the_workspace(control: str, resolved: str) -> None:
    inputs = Inputs({"INPUT_CONTROL": control, "GITHUB_WORKSPACE": "/checkout"})

    assert inputs.control.removesuffix("/.") == resolved


@pytest.mark.parametrize(
    ("directory", "reports"), [("", "/runner"), ("out", "/checkout/out"), ("/srv/out", "/srv/out")]
)
def test_reports_go_to_the_runner_unless_a_directory_is_given(directory: str, reports: str) -> None:
    environment = {
        "INPUT_REPORT_DIRECTORY": directory,
        "RUNNER_TEMP": "/runner",
        "GITHUB_WORKSPACE": "/checkout",
    }

    assert Inputs(environment).reports == Path(reports)
