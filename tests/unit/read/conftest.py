"""Fixtures of the readers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control import Files, World, create_world


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    """Make a control repository with one commit per mapping of files."""

    def make(*commits: Files) -> World:
        return create_world(tmp_path, commits)

    return make
