"""Which recorded places are former ones, and how they are named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.api.porch import GROUP
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit, Former
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem
from reconciler.read.former import _message, _Place, find_former, with_distinct_places
from tests.support.plan_values import WEB, a_record, oid
from tests.support.sets import a_package, repository, world
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
def test_place_is_former_where_no_repository_is_any_more(repositories, declared, former) -> None:
    fields = {key: declared[key] for key in ("registration", "branch") if key in declared}
    located = [registration(url, name=name, **{"branch": "main", **git}) for name, url, git in repositories]
    stalled = frozenset({STALLS} if "stalled" in declared else ())
    inventory = world(records={WEB: a_record(**{**AT_EDGE, **fields})}, stalled=stalled)
    broken = frozenset(filter(None, [declared.get("broken")]))
    inventory = replace(inventory, control=replace(inventory.control, broken=broken))

    found, _ = find_former(inventory, located, {item.key: item for item in located})

    assert [(f.former.reason, bool(f.former.aside)) for f in found.values()] == [*filter(None, [former])]


FORMER = Former(Reason.MOVED, "It moved", {"web": WEB})
OLD = repository(
    "old",
    head=Commit(oid("a1"), 1),
    packages={path: a_package(path) for path in ("theirs", "web")},
    former=FORMER,
)
NEW = repository("new", head=Commit(oid("b2"), 1), packages={"web": a_package()})
UNREAD = Problem(Location("new.yaml"), Reason.REPOSITORY_UNAVAILABLE, "It does not answer")


@pytest.mark.parametrize(
    ("new", "known", "is_copy"),
    [
        (NEW, {}, False),
        (NEW, {NEW.remote: oid("a1")}, True),
        (NEW, {OLD.remote: oid("b2")}, True),
        (replace(NEW, packages={}), {NEW.remote: oid("a1")}, True),
        (replace(NEW, packages={"api": a_package("api")}), {OLD.remote: oid("b2")}, False),
        (replace(NEW, directory="x"), {NEW.remote: oid("a1")}, False),
        (replace(NEW, problem=UNREAD), {NEW.remote: oid("a1")}, False),
        (replace(NEW, head=None), {OLD.remote: oid("b2")}, False),
        (replace(NEW, url=OLD.url), {NEW.remote: oid("a1")}, False),
        (replace(NEW, former=FORMER), {NEW.remote: oid("a1")}, False),
    ],
)
def test_former_place_whose_history_a_registered_one_has_may_be_that_one(new, known, is_copy) -> None:
    mirrors = SimpleNamespace(
        open=lambda remote: SimpleNamespace(find_commit=lambda oid: oid if known.get(remote) == oid else None)
    )
    views = {view.key: view for view in (new, OLD)}

    distinct = with_distinct_places(views, cast("Any", mirrors))

    assert distinct.keys() == views.keys()
    assert new.former or distinct[new.key] is new  # one of a former place is told to be that
    old = distinct[OLD.key]
    assert (*old.packages, old.problem and old.problem.reason) == ("web", Reason.MOVED if is_copy else None)
    if is_copy:
        assert str(old.problem).count(f"{NEW.remote}, where Repository default/new is, has the same history")


@pytest.mark.parametrize("is_link", [True, False])
def test_former_directory_that_is_a_link_to_the_new_one_is_no_place(tmp_path: Path, *, is_link: bool) -> None:
    (tmp_path / "new.git").mkdir()
    (tmp_path / "old.git").symlink_to(tmp_path / ("new.git" if is_link else "other.git"))
    old, new = (replace(view, remote=str(tmp_path / f"{view.key.name}.git")) for view in (OLD, NEW))

    distinct = with_distinct_places({old.key: old, new.key: new}, cast("Any", None))

    assert [*distinct] == [NEW.key] if is_link else [OLD.key, NEW.key]
