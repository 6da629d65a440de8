"""Branches beside a package's own draft: groups of packages, and proposals of deletions."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Commit, DeletionBranch, Draft, GroupBranch, RepositoryView
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.trailers import ConflictName
from reconciler.policy import Policy
from tests.support.git import BOT, Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tests.support.values import replace
from tests.unit.read.test_repositories import registration

GROUP = "reconciler/default/group/default/1"
REF = f"refs/heads/{GROUP}"
DELETION = "reconciler/default/delete/web"
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


def commit_at(repo: Repo, name: str) -> Commit:
    return Commit(repo.oid(name), repo.git[repo.oid(name)].committer.time)


CHANGES = {"web/cm.yaml": "a: 1", "db/Kptfile": kptfile("db")}


def write_group(repo: Repo, branch: str = GROUP) -> None:
    repo.commit(CHANGES, branch=branch, start="main", who=BOT, message=message(web="w2", db="w1"))


def test_group_holds_a_draft_of_each_package_that_our_commits_name(repo: Repo, read: Read) -> None:
    base = repo.oid("main")
    write_group(repo)
    tip = commit_at(repo, GROUP)

    view = read()

    assert view.groups == (GroupBranch(REF, tip, ("db", "web")),)
    drafts = {path: package.drafts for path, package in view.packages.items()}
    web = drafts["web"][0]
    assert (web.ref, web.workspace, web.lifecycle, web.tip) == (REF, "w2", Lifecycle.DRAFT, tip)
    assert (web.tree, web.base, web.base_tree) == (repo.tree(GROUP, "web"), base, repo.tree("main", "web"))
    assert not web.is_edited
    assert [draft.workspace for draft in drafts["db"]] == ["w1"]


def test_groups_of_other_instances_are_none(repo: Repo, read: Read) -> None:
    write_group(repo, "reconciler/other/group/default/1")
    write_group(repo, "reconciler/default/groups/1")

    view = read()

    assert view.groups == ()
    assert view.packages["web"].drafts == ()


def test_newest_commit_names_the_workspace_and_people_name_no_packages(repo: Repo, read: Read) -> None:
    write_group(repo)
    repo.commit({"web/cm.yaml": "a: 2"}, branch=GROUP, who=BOT, message=message(web="w3"))
    repo.commit({"cache/Kptfile": kptfile("cache")}, branch=GROUP, message=message(cache="w1", web="w9"))

    view = read()

    tip = commit_at(repo, GROUP)
    assert view.groups == (
        GroupBranch(REF, tip, ("db", "web"), has_foreign_commits=True, foreign_commit_time=tip.time),
    )
    assert [draft.workspace for draft in view.packages["web"].drafts] == ["w3"]
    assert "cache" not in view.packages


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        ({"web/cm.yaml": None}, {"web"}),
        ({"web/cm.yaml": None, "db/Kptfile": None}, {"web", "db"}),
        ({"web/cm.yaml": "a: 3"}, set()),
        ({"README.md": "more"}, set()),
    ],
)
def test_package_is_dropped_if_people_took_its_change_back(
    repo: Repo, read: Read, changes: dict[str, str | None], dropped: set[str]
) -> None:
    write_group(repo)
    repo.commit(changes, branch=GROUP)

    view = read()

    assert view.groups[0].dropped == dropped
    held = {path for path, package in view.packages.items() if package.drafts}
    assert held == {"web", "db"} - dropped


def test_package_that_is_named_and_was_never_changed_is_not_dropped(repo: Repo, read: Read) -> None:
    repo.commit(
        {"db/Kptfile": kptfile("db")}, branch=GROUP, start="main", who=BOT, message=message(web="w", db="w")
    )

    view = read()

    assert (view.groups[0].paths, view.groups[0].dropped) == (("db", "web"), frozenset())
    assert view.packages["web"].drafts == ()


def test_merged_group_has_the_packages_of_our_last_commit_and_no_drafts(repo: Repo, read: Read) -> None:
    write_group(repo)
    repo.commit({"db/cm.yaml": "a: 2"}, branch=GROUP, who=BOT, message=message(db="w1"))
    repo.commit({"web/cm.yaml": "a: 9"}, branch=GROUP)
    repo.merge(GROUP)

    view = read()

    assert view.groups == (GroupBranch(REF, commit_at(repo, GROUP), ("db",), merged=True),)
    assert view.packages["web"].drafts == ()


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
def test_merged_group_is_searched_for_our_commit_to_a_depth(
    repo: Repo, read: Read, below: int, named: tuple[str, ...]
) -> None:
    write_group(repo)
    for number in range(below):
        repo.commit({"README.md": str(number)}, branch=GROUP)
    repo.point("refs/heads/main", repo.oid(GROUP))

    assert read().groups[0].paths == named


def test_group_without_a_common_commit_proposes_all_that_it_has(repo: Repo, read: Read) -> None:
    repo.commit({"web/Kptfile": kptfile("web")}, branch=GROUP, who=BOT, message=message(web="w", gone="w"))

    view = read()

    assert (view.groups[0].paths, view.groups[0].dropped) == (("gone", "web"), frozenset())
    assert [(draft.base, draft.base_tree) for draft in view.packages["web"].drafts] == [("", None)]


# Drafts


def only_draft(read: Read) -> Draft:
    (draft,) = read().packages["web"].drafts
    return draft


@pytest.mark.parametrize(
    ("changes", "has_more"),
    [
        ({"web/cm.yaml": "b: 2"}, False),
        ({"README.md": "more"}, True),
        ({"web2/x": "1"}, True),
        ({"web/cm.yaml": "b: 2", "a/b": "1"}, True),
    ],
)
def test_draft_has_more_if_people_changed_other_paths(
    repo: Repo, read: Read, changes: dict[str, str], has_more: bool
) -> None:
    repo.commit({"web/cm.yaml": "a: 1"}, branch="drafts/web/w", start="main", who=BOT)
    assert not only_draft(read).has_more

    repo.commit(changes, branch="drafts/web/w")

    assert only_draft(read).has_more is has_more


def test_draft_is_behind_if_main_changed_its_package_since(repo: Repo, read: Read) -> None:
    repo.commit({"web/cm.yaml": "a: 1"}, branch="drafts/web/w", start="main", who=BOT)
    repo.commit({"README.md": "more"})
    assert not only_draft(read).behind

    repo.commit({"web/more.yaml": "a: 1"})

    assert only_draft(read).behind


@pytest.mark.parametrize(
    ("branch", "path", "counts"),
    [
        ("drafts/web/w", "web/cm.yaml", True),
        ("drafts/web/w", "cm.yaml", True),
        (GROUP, "web/cm.yaml", True),
        (GROUP, "cm.yaml", False),
    ],
)
def test_answer_names_the_file_in_its_package_on_a_branch_of_its_own_alone(
    repo: Repo, read: Read, branch: str, path: str, counts: bool
) -> None:
    where = "ConfigMap/x data.a 000000-111111"
    asked = f"{message(web='w')}\nConflict: web/cm.yaml {where}\n"
    repo.commit({"web/cm.yaml": "a: 1"}, branch=branch, start="main", who=BOT, message=asked)
    repo.commit({"web/cm.yaml": "a: 2"}, branch=branch, message=f"Mine\n\nKeep: {path} {where}\n")

    answers = only_draft(read).answers

    conflict = ConflictName("web/cm.yaml", "ConfigMap/x", "data.a", "000000-111111")
    assert answers.named.keys() == {conflict}
    assert (conflict in answers.keeps) is counts


# Deletions


def deletion(read: Read) -> DeletionBranch | None:
    return read().packages["web"].deletion


def test_deletion_is_proposed_by_a_branch_without_the_package(repo: Repo, read: Read) -> None:
    assert deletion(read) is None
    repo.commit({"web/Kptfile": None}, branch=DELETION, start="main", who=BOT)
    ours = DeletionBranch(repo.tree("main", "web"))
    assert deletion(read) == ours

    repo.commit({"web/more": "1"})
    assert deletion(read) == ours

    repo.commit({"README.md": "more"}, branch=DELETION)
    assert deletion(read) == replace(ours, has_foreign_commits=True)


def test_deletion_with_a_history_of_its_own_has_no_base(repo: Repo, read: Read) -> None:
    repo.commit({"README.md": "1"}, branch=DELETION, who=BOT)

    assert deletion(read) == DeletionBranch(None)
