"""Which recorded places are former ones, and how they are named."""

from typing import Any, cast

import pytest

from reconciler.api.porch import GROUP
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.read.former import _message, _Place, find_former
from tests.support.plan_values import WEB, a_record
from tests.support.sets import world
from tests.support.values import replace
from tests.unit.read.test_repositories import registration


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


URL, FILE = "https://host/edge", "edge.yaml"
AT_EDGE = {"url": "host/edge", "remote": URL, "path": "apps/web", "registration": FILE, "branch": "main"}
STALLS = ObjectKey(GROUP, "Repository", "default", "edge")


@pytest.mark.parametrize(
    ("repositories", "declared", "former"),
    [
        ([("edge", URL, {})], {}, None),
        ([("new", URL, {})], {}, None),
        ([("new", URL, {"directory": "apps"})], {}, None),
        ([("new", URL, {"directory": "other"})], {}, (Reason.PLACE_GONE, False)),
        ([], {}, (Reason.PLACE_GONE, False)),
        ([("edge", f"{URL}-2", {})], {}, (Reason.MOVED, False)),
        ([("edge", URL, {"branch": "prod"})], {}, (Reason.MOVED, True)),
        ([("edge", URL, {"branch": "prod"}), ("new", URL, {})], {}, None),
        ([], {"stalled": True}, (Reason.OWNER_STALLED, False)),
        ([("edge", f"{URL}-2", {})], {"stalled": True}, (Reason.MOVED, False)),
        ([], {"broken": FILE}, (Reason.MANIFEST_UNREADABLE, False)),
        ([], {"broken": "other.yaml"}, (Reason.PLACE_GONE, False)),
        ([], {"broken": "other.yaml", "registration": ""}, (Reason.MANIFEST_UNREADABLE, False)),
        ([("edge", URL, {"branch": "prod"})], {"branch": ""}, None),
    ],
)  # fmt: skip
def test_place_is_former_where_no_repository_is_any_more(
    repositories: list[tuple[str, str, dict[str, str]]],
    declared: dict[str, Any],
    former: tuple[Reason, bool] | None,
) -> None:
    fields = {key: declared[key] for key in ("registration", "branch") if key in declared}
    located = [registration(url, name=name, **{"branch": "main", **git}) for name, url, git in repositories]
    stalled = frozenset({STALLS} if "stalled" in declared else ())
    inventory = world(records={WEB: a_record(**{**AT_EDGE, **fields})}, stalled=stalled)
    broken = frozenset(filter(None, [declared.get("broken")]))
    inventory = replace(inventory, control=replace(inventory.control, broken=broken))

    found, _ = find_former(inventory, located, {item.key: item for item in located})

    assert [(f.former.reason, bool(f.former.aside)) for f in found.values()] == [*filter(None, [former])]
