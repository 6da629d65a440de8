"""Options and profiles of the whole suite."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from reconciler.base import redact
from tests.support.notes import VARIABLE

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))

settings.register_profile(
    "default",
    deadline=None,  # the machine's speed is nobody's fault
    derandomize=True,  # CI must not fail by luck; `make laws` looks further
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("default"), derandomize=False, max_examples=100 * FUZZ)
settings.load_profile("fuzz" if FUZZ > 1 else "default")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist inherit the controller's file
        descriptor, os.environ[VARIABLE] = tempfile.mkstemp(prefix="test-notes-")
        os.close(descriptor)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    notes = Path(os.environ.pop(VARIABLE))
    if lines := notes.read_text(encoding="utf-8").splitlines():
        terminalreporter.section("what was measured")
        for line in sorted(lines):
            terminalreporter.line(line)
    notes.unlink()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected files of fixtures/worlds"
    )


@pytest.fixture(autouse=True)
def forget_credentials() -> Iterator[None]:
    """Forget what a test made the process mask: a credential "second" would mask words of others."""
    before = redact._IN_USE._values.copy()
    yield
    if redact._IN_USE._values != before:
        redact._IN_USE._values, redact._IN_USE._ordered = before, (-1, ())


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parent.parent
