"""How a former place of a package is told."""

from typing import Any, cast

from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName
from reconciler.read.former import _message, _Place
from tests.support.plan_values import a_record


def test_move_is_told_with_all_that_differs() -> None:
    key = ObjectName("default", "edge")
    here, there = _Place("/srv/a", "", "main", "", key), _Place("/srv/b", "x", "prod", "../b.git", key)

    def told(old: _Place, new: _Place) -> str:
        return _message(old, Reason.MOVED, new, a_record(), cast("Any", None))

    first, second = "/srv/a, the root directory, branch main", "../b.git, directory x, branch prod"
    assert told(here, there) == f"Repository default/edge moved from {first} to {second}"
    assert told(there, here) == f"Repository default/edge moved from {second} to {first}"
    one = told(here, here._replace(directory="y"))
    assert one == "Repository default/edge moved from the root directory to directory y"
