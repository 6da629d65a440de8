"""Branches beside a package's own draft: groups of packages, and proposals of deletions."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import RepositoryView
from reconciler.names.ids import ObjectName
from reconciler.policy import Policy
from tests.support.git import BOT, Repo, kptfile, make_repository
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
    ("changes", "dropped"),
    [
        ({"web/cm.yaml": None}, {"web"}),
        ({"web/cm.yaml": None, "db/Kptfile": None}, {"web", "db"}),
        ({"web/cm.yaml": "a: 3"}, set()),
        ({"README.md": "more"}, set()),
    ],
)
def test_package_is_dropped_if_people_took_its_change_back(repo: Repo, read: Read, changes, dropped) -> None:
    write_group(repo)
    repo.commit(changes, branch=GROUP)

    view = read()

    assert view.groups[0].dropped == dropped
    assert {path for path, package in view.packages.items() if package.drafts} == {"web", "db"} - dropped


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
