"""The package index of the control repository: what cannot be read is a problem, not absent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.reasons import Reason
from reconciler.policy import Limits
from reconciler.read.dependencies import IndexFolders, read_index_folders
from tests.support.control import UNREAD, World, add_unread

BUNDLE = "schemaType: Bundle\nname: web\nversion: 1.0.0\n"
PATH = "index/r.io/web/1.0.0/bundle.yaml"


def read(world: World, limits: Limits | None = None) -> IndexFolders:
    return read_index_folders(world.mirror, world.commit, limits or Limits())


@pytest.mark.parametrize("case", UNREAD)
def test_path_that_is_not_read_is_a_problem_beside_the_others(
    world: Callable[..., World], tmp_path: Path, case: str
) -> None:
    world({PATH: BUNDLE})

    folders = read(add_unread(tmp_path, "index", case))

    (problem,) = folders.problems
    assert (problem.reason, problem.location.path[:6]) == (Reason.MANIFEST_UNREADABLE, "index/")
    assert UNREAD[case][2] in problem.message
    assert [document.source.location.path for document in folders.documents] == [PATH]


def test_file_that_is_left_out_is_a_problem_and_the_next_ones_are_read(world: Callable[..., World]) -> None:
    control, first = world({PATH: BUNDLE, "index/a.yaml": BUNDLE}), "index/a.yaml"

    folders = read_index_folders(control.mirror, control.commit, Limits(), {first})

    assert [problem.location.path for problem in folders.problems] == [first]
    assert [document.source.location.path for document in folders.documents] == [PATH]


def test_file_over_the_limit_is_a_problem(world: Callable[..., World]) -> None:
    folders = read(world({PATH: BUNDLE}), Limits(manifest_bytes=len(BUNDLE) - 1))

    assert [problem.location.path for problem in folders.problems] == [PATH]
    assert folders.documents == ()
