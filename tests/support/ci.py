"""What a test may lack on a person's machine and must not lack in CI."""

import os
import shutil

import pytest

IN_CI = os.environ.get("CI") == "true"


def lacking(reason: str) -> None:
    """Skip the test, saying why; in CI, where everything is installed, fail it."""
    if IN_CI:
        pytest.fail(f"{reason}: in CI a skip is a failure")
    pytest.skip(reason)


def need(*commands: str) -> None:
    """Require commands, by name or path; the marker `needs` does it for a whole test."""
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        lacking(f"needs {' and '.join(missing)}")
