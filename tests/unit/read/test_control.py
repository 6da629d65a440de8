"""Which repository is the control repository, at which commit, and what is relative to it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.base.errors import ConfigurationError, UsageError
from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import create_bare
from reconciler.inventory.inventory import Commit
from reconciler.names.ids import Oid
from reconciler.read.control import (
    ControlHistory,
    OpenControl,
    ProposedChange,
    absolute_remote,
    open_control,
    open_proposed_change,
)
from tests.support.control import create_world
from tests.support.git import Repo, make_repository
from tests.support.world import git


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    return Mirrors(tmp_path / "cache2")


def clone(tmp_path: Path, name: str = "copy") -> Path:
    git(tmp_path, "clone", "-q", "control.git", name)
    return tmp_path / name


@pytest.mark.parametrize("inside", ["", "deep"])
def test_working_copy_is_read_at_head_with_the_state_of_origin(
    tmp_path: Path, mirrors: Mirrors, inside: str
) -> None:
    world = create_world(tmp_path, [{"deep/a": "1"}])
    copy = clone(tmp_path, "control")  # `control` and `control.git` are one identity
    opened = open_control(str(copy / inside), mirrors)

    assert (opened.commit.oid, opened.branch, opened.published) == (world.commit, "main", True)
    assert opened.mirror.remote == str(tmp_path / "control.git")


@pytest.mark.parametrize(
    ("commands", "branch", "published"),
    [
        (["commit -q --allow-empty -m x"], "main", False),
        (["reset -q --hard HEAD~1"], "main", True),
        (["checkout -q -b feature"], "feature", False),
        (["checkout -q --detach"], "", True),
        (["checkout -q --detach", "commit -q --allow-empty -m x"], "", False),
        (["remote remove origin"], "main", True),
    ],
    ids=["unpushed", "behind", "a branch", "detached", "detached and unpushed", "without origin"],
)
def test_head_of_a_working_copy_is_read_and_may_be_published(
    tmp_path: Path, mirrors: Mirrors, commands: list[str], branch: str, *, published: bool
) -> None:
    create_world(tmp_path, [{"a": "1"}, {"a": "2"}])
    copy = clone(tmp_path)
    for command in commands:
        git(copy, *command.split())
    opened = open_control(str(copy), mirrors)

    assert (opened.branch, opened.published) == (branch, published)
    assert opened.objects.blob_at(opened.commit.oid, "a")
    assert (opened.mirror is opened.objects) is ("remove" in commands[0])


def test_repository_without_a_commit_has_a_hint(tmp_path: Path, mirrors: Mirrors) -> None:
    git(tmp_path, "init", "-q", "fresh")
    create_bare(tmp_path / "empty.git", [])

    for name in ("fresh", "empty.git"):
        with pytest.raises(ConfigurationError) as caught:
            open_control(str(tmp_path / name), mirrors)
        assert "reconciler init" in caught.value.hint


@pytest.mark.parametrize("name", ["nowhere", "", "nowhere/below"])
def test_path_without_a_repository_is_bad_usage(tmp_path: Path, mirrors: Mirrors, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_control(str(tmp_path / name), mirrors)

    assert "--control" in caught.value.hint


REMOTES = [
    ("../b.git", "/srv/a.git", "/srv/b.git"),
    ("./b.git", "/srv/a.git", "/srv/a.git/b.git"),
    ("../../x/b", "/srv/deep/a", "/srv/x/b"),
    ("../b.git", "https://host/acme/a.git", "https://host/acme/b.git"),
    ("../../b.git", "https://host:8443/acme/a.git", "https://host:8443/b.git"),
    ("../b.git", "git@host:acme/a.git", "git@host:acme/b.git"),
    ("../b.git", "ssh://git@host/acme/a.git", "ssh://git@host/acme/b.git"),
    ("https://other/b", "/srv/a.git", "https://other/b"),
    ("git@other:b", "https://host/a", "git@other:b"),
    ("/abs/b.git", "https://host/a", "/abs/b.git"),
    ("file:///abs/b.git", "/srv/a", "file:///abs/b.git"),
]


@pytest.mark.parametrize(("remote", "base", "want"), REMOTES)
def test_relative_address_starts_at_the_control_repository(remote: str, base: str, want: str) -> None:
    assert absolute_remote(remote, base) == want


# Changes


def change(
    tmp_path: Path, mirrors: Mirrors, base: str = "", head: str = "", control: str = "control.git"
) -> ProposedChange:
    return open_proposed_change(str(tmp_path / control), mirrors, base=base, head=head)


class Fork:
    """The control repository with branch `feature` beside two commits on main."""

    def __init__(self, tmp_path: Path) -> None:
        create_world(tmp_path, [{"a": "1"}])
        self.repo = Repo(tmp_path / "control.git")
        self.start = self.repo.oid("main")
        self.feature = self.repo.commit({"b": "2"}, branch="feature", start="main")
        self.main = self.repo.commit({"a": "2"})

    def commit(self, oid: Oid) -> Commit:
        return Commit(oid, self.repo.git[oid].committer.time)


@pytest.mark.parametrize(
    ("side", "unknown", "hint"),
    [
        *(
            (side, unknown, "Name a branch that is pushed, or a commit in full.")
            for side in ("base", "head")
            for unknown in ("nowhere", "1" * 40, "refs/heads/nowhere")
        ),
        ("base", "mian", "Did you mean main?"),
        ("base", "origin/main", "Write main: branches are named as that repository names them."),
        ("base", "origin/mian", "Did you mean main?"),
        ("head", "featrue", "Did you mean feature?"),
    ],
)
def test_side_that_is_not_there_is_named(tmp_path: Path, mirrors: Mirrors, side, unknown, hint) -> None:
    Fork(tmp_path)

    with pytest.raises(UsageError) as caught:
        change(tmp_path, mirrors, **{side: unknown})

    assert str(caught.value) == f"{tmp_path / 'control.git'} has no branch or commit {unknown}"
    assert caught.value.hint == hint


def test_change_with_a_history_of_its_own_cannot_be_compared(tmp_path: Path, mirrors: Mirrors) -> None:
    fork = Fork(tmp_path)
    alone = fork.repo.commit({"c": "1"}, branch="alone")

    with pytest.raises(ConfigurationError) as caught:
        change(tmp_path, mirrors, head="alone")

    assert str(caught.value) == f"{alone} has no history in common with main"
    assert "git fetch --unshallow" in caught.value.hint


@pytest.mark.parametrize(
    ("branches", "head", "hint"),
    [
        ([], "", "Then run `reconciler check --base trunk`."),
        (["main", "x"], "", "--base main"),
        (["x", "y"], "", "--base x or y"),
        (["drafts/a"], "", "Then run `reconciler check --base trunk`."),
        (["main", "x"], "main", "Name what is proposed, too: --base main --head trunk or x"),
    ],
)
def test_base_is_asked_for_with_the_branches_there_are(
    tmp_path: Path, mirrors: Mirrors, branches: list[str], head: str, hint: str
) -> None:
    create_world(tmp_path, [{"a": "1"}])
    copy = clone(tmp_path)
    git(copy, "remote", "remove", "origin")
    git(copy, "branch", "-q", "-m", "main", "trunk")
    for branch in branches:
        git(copy, "branch", "-q", branch)

    with pytest.raises(UsageError, match="no default branch") as caught:
        change(tmp_path, mirrors, head=head, control="copy")

    assert caught.value.hint.endswith(hint)


@pytest.mark.parametrize("is_pushed", [True, False])
def test_paths_that_differ_are_found_in_whichever_history_has_the_commits(
    tmp_path: Path, mirrors: Mirrors, *, is_pushed: bool
) -> None:
    shared = make_repository(tmp_path / "shared.git", {"a.yaml": "1", "b.yaml": "1", "c.yaml": "1"})
    git(tmp_path, "clone", "-q", "--bare", "shared.git", "copy.git")
    copy, old = Repo(tmp_path / "copy.git"), shared.oid("main")
    new = (shared if is_pushed else copy).commit({"a.yaml": "2", "b.yaml": None}, branch="main")
    mirror, objects = (mirrors.open(str(repo.path)) for repo in (shared, copy))
    opened = OpenControl(mirror, objects, Commit(new, 1), "main", published=is_pushed)

    trees = [shared.tree(old), (shared if is_pushed else copy).tree(new)]
    changed = ControlHistory(opened).changed_paths(*trees, ["a.yaml", "b.yaml", "c.yaml", "none.yaml"])

    assert changed == {"a.yaml", "b.yaml"}
    assert [bool(ControlHistory(opened).find_commit(oid)) for oid in (old, new, Oid("1" * 40))] == [
        *(True, True, False)
    ]


@pytest.mark.parametrize(("is_local", "fetched"), [(False, ["gone"]), (True, [])])
def test_objects_of_a_remote_history_are_fetched_if_nobody_has_them(is_local, fetched) -> None:
    asked: list[Oid] = []
    opened = SimpleNamespace(
        mirror=SimpleNamespace(is_local=is_local, ensure=asked.extend),
        objects=SimpleNamespace(has=lambda oid: oid == "not pushed"),
    )

    ControlHistory(cast("Any", opened)).ensure([Oid("not pushed"), Oid("gone")])

    assert asked == fetched
