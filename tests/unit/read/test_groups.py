"""Branches beside a package's own draft: groups of packages, and proposals of deletions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import RepositoryView
from reconciler.names.ids import ObjectName
from reconciler.policy import Policy
from tests.support.git import BOT, PERSON, Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tests.unit.read.test_repositories import registration

GROUP = "reconciler/default/group/default/1"
Read = Callable[[], RepositoryView]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "edge.git", {"web/Kptfile": kptfile("web"), "README.md": "edge"})


@pytest.fixture
def read(tmp_path: Path, repo: Repo) -> Read:
    def view() -> RepositoryView:
        registrations = [registration(str(repo.path))]
        return read_registered(registrations, Mirrors(tmp_path / "cache"), Policy())[
            ObjectName("default", "edge")
        ]

    return view


def message(**workspaces: str) -> str:
    lines = (
        f"kpt:{json.dumps({'package': path, 'workspaceName': workspace, 'revision': '0'})}\n"
        for path, workspace in workspaces.items()
    )
    return f"Drafts\n\n\n{''.join(lines)}"


CHANGES = {"web/cm.yaml": "a: 1", "db/Kptfile": kptfile("db")}


def write_group(repo: Repo, branch: str = GROUP) -> None:
    repo.commit(CHANGES, branch=branch, start="main", who=BOT, message=message(web="w2", db="w1"))


@pytest.mark.parametrize(
    ("changes", "is_ours", "dropped", "touched"),
    [
        ({"web/cm.yaml": None}, False, {"web"}, set()),
        ({"web/cm.yaml": None, "db/Kptfile": None}, False, {"web", "db"}, set()),
        ({"web/cm.yaml": None}, True, set(), set()),
        ({"web/cm.yaml": "a: 3"}, False, set(), {"web"}),
        ({"web/cm.yaml": "a: 3"}, True, set(), set()),
        ({"README.md": "more"}, False, set(), set()),
    ],
)
def test_package_is_dropped_if_people_took_its_change_back(
    repo: Repo, read: Read, changes: dict[str, str | None], dropped: set[str], *, is_ours: bool, touched: Any
) -> None:
    write_group(repo)
    more: dict[str, Any] = {"who": BOT, "message": message(web="w2", db="w1")} if is_ours else {}
    repo.commit(changes, branch=GROUP, **more)

    view = read()

    drafts = {path: draft for path, package in view.packages.items() for draft in package.drafts}
    assert view.groups[0].dropped == dropped
    assert drafts.keys() == {"web", "db"} - {path.partition("/")[0] for path in changes if not changes[path]}
    assert {path for path, draft in drafts.items() if draft.is_touched} == touched


def test_merge_of_main_into_a_branch_is_no_change_of_packages_that_main_left_alone(
    repo: Repo, read: Read
) -> None:
    write_group(repo)
    repo.commit({"README.md": "new", "api/Kptfile": kptfile("api")})
    repo.merge("main", into=GROUP)

    (draft,) = read().packages["web"].drafts

    assert (draft.is_touched, draft.has_foreign_commits, draft.base) == (False, True, repo.oid("main"))


@pytest.mark.parametrize(
    ("path", "is_ours", "kept", "group"),
    [
        ("api", True, {}, ({"api"}, set())),
        ("api", False, {}, None),
        ("web", True, {}, (set(), {"web"})),
        ("web", False, {}, (set(), {"web"})),
        ("api", True, {"api/Kptfile": kptfile("api")}, None),
    ],
)
def test_draft_from_which_a_person_deleted_its_package_is_emptied(
    repo: Repo, read: Read, path: str, *, is_ours: bool, kept: dict[str, str], group: Any
) -> None:
    branch, who = f"drafts/{path}/w1", BOT if is_ours else PERSON
    made = {f"{path}/Kptfile": kptfile(path), f"{path}/new.yaml": "a: 1"}
    repo.commit(made, branch=branch, start="main", who=who, message=message(**{path: "w1"}))
    repo.commit(dict.fromkeys(made, None) | kept, branch=branch)

    assert [(set(found.dropped), set(found.deleted)) for found in read().groups] == ([group] if group else [])


def test_group_has_no_commit_of_the_main_that_it_left(tmp_path: Path, repo: Repo) -> None:
    for number, main in enumerate(("next", "main")):
        on_main = message(web=f"w{number}")
        repo.commit({"web/cm.yaml": main}, branch=main, start="main", who=BOT, message=on_main)
        group = f"reconciler/default/group/default/{number}"
        repo.commit(
            {"db/Kptfile": kptfile("db")}, branch=group, start=main, who=BOT, message=message(db="w1")
        )
    registrations = [
        registration(str(repo.path)),
        registration(str(repo.path), name="next", branch="next", directory="/db"),
    ]

    views = read_registered(registrations, Mirrors(tmp_path / "cache"), Policy())

    assert [group.paths for group in views[ObjectName("default", "edge")].groups] == [("db",), ("db",)]


@pytest.mark.parametrize(("below", "named"), [(49, ("db", "web")), (50, ())])
def test_merged_group_is_searched_for_our_commit_to_a_depth(repo: Repo, read: Read, below, named) -> None:
    write_group(repo)
    for number in range(below):
        repo.commit({"README.md": str(number)}, branch=GROUP)
    repo.point("refs/heads/main", repo.oid(GROUP))

    assert read().groups[0].paths == named
