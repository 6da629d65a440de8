"""Working copies of a user, and what is no repository."""

from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.working_copy import (
    WorkingCopy,
    clone,
    create_bare,
    find_person,
    find_working_copy,
    is_repository,
)
from tests.support.git import Repo, make_repository, run


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "a.git", {"p/Kptfile": "k", "old": "o"})


@pytest.fixture
def work(tmp_path: Path, repo: Repo) -> Path:
    clone(repo.path, tmp_path / "work")
    return tmp_path / "work"


def find(path: Path) -> WorkingCopy:
    copy = find_working_copy(path)
    assert copy is not None
    return copy


def test_detached_head_has_a_commit_and_no_branch(repo: Repo, work: Path) -> None:
    run("checkout", "-q", "--detach", cwd=work)

    assert (find(work).commit, find(work).branch) == (repo.oid("main"), "")


def test_branch_without_commits_has_a_name_and_no_commit(tmp_path: Path) -> None:
    run("init", "-q", "-b", "feature/x", "new", cwd=tmp_path)

    assert find(tmp_path / "new") == (tmp_path / "new", None, "feature/x", "")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("../a.git", "{root}/a.git"),
        ("./sub/a.git", "{root}/work/sub/a.git"),
        ("/srv/b/../a.git", "/srv/a.git"),
        ("https://git.example/acme/a.git", "https://git.example/acme/a.git"),
        ("file:///srv/b/../a.git", "file:///srv/b/../a.git"),
        ("git@git.example:acme/a.git", "git@git.example:acme/a.git"),
    ],
)
def test_local_origin_is_relative_to_the_working_copy(tmp_path: Path, work: Path, url, origin) -> None:
    run("remote", "set-url", "origin", url, cwd=work)

    assert find(work).origin == origin.format(root=tmp_path)


def test_uncommitted_paths_are_sorted_and_without_ignored_ones(work: Path) -> None:
    assert find(work).uncommitted() == ()
    (work / ".gitignore").write_text("*.log\n")
    (work / "z.log").touch()
    (work / "new").mkdir()
    (work / "new/b").touch()
    (work / "new/a").touch()
    (work / "old").unlink()
    (work / "p/Kptfile").write_text("changed")
    run("add", "p/Kptfile", cwd=work)

    assert find(work).uncommitted() == (".gitignore", "new/a", "new/b", "old", "p/Kptfile")


@pytest.mark.parametrize("named", [".config/git/ignore", ".gitconfig", "xdg/git/ignore"])
def test_files_that_rules_of_the_user_leave_out_are_ignored(
    named: str, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if named.startswith("xdg"):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    else:
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    rules = tmp_path / ("rules" if named == ".gitconfig" else named)
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("*.tgz\nold\n")
    if named == ".gitconfig":
        (tmp_path / named).write_text(f"[core]\n  excludesFile = {rules}\n")
    paths = [work / name for name in ("a.tgz", "old", "b")]
    for path in paths:
        path.touch()

    copy = find(work)

    # What is committed already stays, whatever the rules are.
    assert copy.ignored(paths) == (work / "a.tgz",)
    rules.unlink()
    assert copy.ignored(paths) == ()


def test_tags_of_a_package_are_sorted_and_no_branches(work: Path) -> None:
    for name in ("p/v2", "p/v1", "q/v1"):
        run("tag", name, cwd=work)
    run("branch", "p/v3", cwd=work)

    assert find(work).tags("p/") == ("p/v1", "p/v2")


def test_removed_working_copy_has_no_uncommitted_paths(tmp_path: Path) -> None:
    assert WorkingCopy(tmp_path / "gone", None, "", "").uncommitted() == ()


def test_repository_is_recognised_by_its_directory_with_or_without_the_suffix(
    tmp_path: Path, repo: Repo, work: Path
) -> None:
    (work / "p/deep").mkdir()

    paths = [repo.path, tmp_path / "a", work, work / ".git", work / "p", tmp_path, tmp_path / "gone"]

    assert [is_repository(path) for path in paths] == [True, True, True, True, False, False, False]


def test_error_of_git_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnavailableError, match=r"git failed: .*does not exist"):
        clone(tmp_path / "gone", tmp_path / "target")
    with pytest.raises(UnavailableError, match="git failed: "):
        create_bare(tmp_path / "file/x.git", [])


@pytest.mark.parametrize(
    ("email", "variables", "person"),
    [
        ("ada@x.org", {}, "Ada <ada@x.org>"),
        ("ada@x.org", {"GIT_COMMITTER_NAME": "Kim"}, "Kim <ada@x.org>"),
        ("", {}, None),
    ],
)
def test_person_is_the_one_who_commits(
    work: Path, monkeypatch: pytest.MonkeyPatch, email: str, variables: dict[str, str], person: str | None
) -> None:
    for key in ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(key, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    run("config", "user.name", "Ada", cwd=work)
    run("config", "user.email", email, cwd=work)

    committer = find_person(work, 5)

    assert (committer and f"{committer.name} <{committer.email}>") == person
