"""Texts of several lines that a test expects, written where they are read."""

import textwrap


def assert_lines(found: str, expected: str) -> None:
    """Assert that a text has exactly these lines, whatever the indentation of all of them together."""
    assert found.splitlines() == textwrap.dedent(expected).strip().splitlines()
