"""Objects of a repository: found by id and path, whatever their content."""

import importlib
import shutil
from pathlib import Path

import pygit2
import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git import database
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError, UnsafeEntry
from reconciler.names.ids import Oid
from reconciler.names.objects import Mode, TreeEntry, tree_bytes
from tests.support.git import Repo, make_repository
from tests.support.hostile_objects import PERSON, write_object

NOWHERE = Oid("0" * 39 + "1")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "a.git", {"p/Kptfile": "k", "README.md": "r", "run": ("x", 0o100755)})


@pytest.fixture
def mirror(tmp_path: Path, repo: Repo) -> Mirror:
    return Mirrors(tmp_path / "cache").open(str(repo.path))


def write_commit(repo: Repo, *lines: bytes, message: bytes = b"text\n") -> Oid:
    return Oid(write_object(repo.path, b"commit", b"\n".join([*lines, b"", message])))


def test_commit_that_libgit2_refuses_is_read_as_git_reads_it(repo: Repo, mirror: Mirror) -> None:
    parent, tree = repo.oid("main"), repo.tree("main")
    oid = write_commit(repo, b"tree " + tree.encode(), b"parent " + parent.encode())

    commit = mirror.commit(oid)

    assert (commit.oid, commit.tree, commit.parents, commit.message) == (oid, tree, (parent,), "text\n")
    assert (commit.author, commit.committer) == (("", "", 0), ("", "", 0))
    assert mirror.find_parents(oid) == (parent,)
    assert mirror.subtree(oid, "p") == repo.tree("main", "p")


def test_commit_that_was_missing_is_found_when_it_is_there(
    tmp_path: Path, repo: Repo, mirror: Mirror
) -> None:
    oid = make_repository(tmp_path / "other.git").commit({"x": "1"})
    assert mirror.find_commit(oid) is None

    shutil.copytree(tmp_path / "other.git/objects", repo.path / "objects", dirs_exist_ok=True)
    mirror.fetch()

    found = mirror.find_commit(oid)
    assert found is not None
    assert mirror.find_commit(oid) is found


def test_object_that_is_no_commit_has_no_parents(repo: Repo, mirror: Mirror) -> None:
    malformed = write_commit(repo, b"author " + PERSON)

    for oid in (repo.tree("main"), repo.blob(b"x"), malformed, NOWHERE, Oid("malformed")):
        assert mirror.find_commit(oid) is None
        assert mirror.find_parents(oid) is None


def test_message_is_decoded_with_the_encoding_of_its_commit(repo: Repo, mirror: Mirror) -> None:
    lines = [b"tree " + repo.tree("main").encode(), b"author " + PERSON, b"committer " + PERSON]
    texts = {b"ISO-8859-1": "\u00fc", b"no-codec": "\ufffd", b"\xff": "\ufffd"}

    for encoding, text in texts.items():
        oid = write_commit(repo, *lines, b"encoding " + encoding, message=b"\xfc\n")
        assert mirror.commit(oid).message == f"{text}\n", encoding


def test_missing_commit_is_named_with_what_to_do(mirror: Mirror) -> None:
    with pytest.raises(UnavailableError) as caught:
        mirror.commit(NOWHERE)

    assert str(caught.value) == f"Commit {NOWHERE} is not in {mirror.remote}"
    assert caught.value.hint == "Fetch its whole history."


def test_damaged_object_is_named_with_its_repository(repo: Repo, mirror: Mirror) -> None:
    oid = Oid(write_object(repo.path, b"blob", b"other", body=b"garbage"))

    with pytest.raises(UnavailableError) as caught:
        mirror.blob(oid, 10)

    assert str(caught.value).startswith(f"Object {oid} of {mirror.remote} cannot be read in {repo.path}/: ")
    assert caught.value.hint == "Run again: damaged files in the cache are replaced."


def test_malformed_tree_refuses_its_package_with_the_reason(repo: Repo, mirror: Mirror) -> None:
    blob = repo.blob(b"100644 f\0short")
    with pytest.raises(PackageRefusedError) as caught:
        mirror.raw_entries(blob)

    assert (str(caught.value), caught.value.path) == (f"tree {blob} is malformed", "")
    assert mirror.checked_entries(blob) == (UnsafeEntry("", f"tree {blob} is malformed"),)
    assert mirror.entries(blob) == ()


@pytest.mark.parametrize("count", [3, 8, 9, 20])
def test_changes_are_the_same_for_few_and_for_many_paths(repo: Repo, mirror: Mirror, count: int) -> None:
    repo.commit({f"n{number}": str(number) for number in range(20)})
    old = repo.tree("main")
    repo.commit({"n1": "changed", "n2": None, "new": "1", "n0": ("0", 0o100755)})
    new = repo.tree("main")
    paths = ["n0", "n1", "n2", "new", *(f"n{number}" for number in range(3, 20))][:count]

    assert mirror.changed_paths(old, new, paths) == {"n0", "n1", "n2", "new"} & {*paths}
    assert mirror.changed_paths(old, None, paths) == {path for path in paths if path != "new"}
    assert mirror.changed_paths(NOWHERE, new, ["n1"]) == {"n1"}


def test_trees_are_read_again_after_many_others(repo: Repo, mirror: Mirror) -> None:
    blob = repo.blob(b"x")
    trees = []
    for number in range(150):
        data = tree_bytes([TreeEntry(f"f{number}", Mode.REGULAR, blob)])
        trees.append(Oid(write_object(repo.path, b"tree", data)))

    for _ in range(2):
        found = [mirror.blob_at(tree, f"f{number}") for number, tree in enumerate(trees)]
        assert found == [blob] * 150


def test_configuration_of_the_user_is_hidden_from_libgit2() -> None:
    levels = [getattr(pygit2.enums.ConfigLevel, name) for name in ("SYSTEM", "XDG", "GLOBAL", "PROGRAMDATA")]
    for level in levels:
        pygit2.settings.search_path[level] = "/etc"
    pygit2.settings.owner_validation = True

    importlib.reload(database)

    assert [pygit2.settings.search_path[level] for level in levels] == [""] * 4
    assert not pygit2.settings.owner_validation


def test_repository_that_is_gone_is_unavailable(repo: Repo, mirror: Mirror) -> None:
    head = repo.oid("main")
    assert mirror.has(head)
    shutil.rmtree(repo.path)

    with pytest.raises(
        UnavailableError, match=f"Cannot read the refs of {repo.path}|is not a Git repository"
    ):
        mirror.fetch()


def test_directory_that_became_a_file_changed_with_everything_below_it(repo: Repo, mirror: Mirror) -> None:
    old = repo.tree("main")
    repo.commit({"p/Kptfile": None})
    repo.commit({"p": "file"})

    assert mirror.changed_paths(old, repo.tree("main"), ["p", "p/Kptfile", "p/none"]) == {"p", "p/Kptfile"}
