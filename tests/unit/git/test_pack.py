import errno
import os
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.pack import Pack, index_bytes, pack_record, write_pack
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import RawEntry
from reconciler.names.ids import Oid
from reconciler.names.objects import (
    File,
    Files,
    Mode,
    NamesError,
    Signature,
    commit_bytes,
    object_id,
    tree_id,
)
from reconciler.policy import Limits
from tests.support.git import Repo, make_repository, run

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
NEW: Files = {"Kptfile": File.of(b"new"), "d/run.sh": File.of(b"#!", Mode.EXECUTABLE)}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(
        tmp_path / "a.git", {"p/Kptfile": "k", "p/x": "1", "README.md": "r", "deep/er/q/Kptfile": ""}
    )


@pytest.fixture
def mirror(tmp_path: Path, repo: Repo) -> Mirror:
    return Mirrors(tmp_path / "cache").open(str(repo.path))


def saved(repo: Repo, mirror: Mirror, pack: Pack, tree: Oid) -> dict[str, bytes]:
    """Save, and read the tree back through another opening of the mirror."""
    pack.save()
    again = Mirrors(mirror.location.directory.parent).open(str(repo.path))
    return {path: file.data for path, file in again.files(tree, Limits()).items()}


def add(pack: Pack, data: bytes) -> Oid:
    """Add a tree with one blob; return the blob's id."""
    pack.files({"f": File.of(data)})
    return object_id("blob", data)


def test_removing_directory_removes_empty_parents(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)
    root = pack.patch_tree(repo.tree("main"), "deep/er/q", None)

    assert sorted(saved(repo, mirror, pack, root)) == ["README.md", "p/Kptfile", "p/x"]


def test_directories_replaced_at_once_equal_those_replaced_in_turn(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)
    root, new = repo.tree("main"), pack.files(NEW)
    below = {"deep/er/q": None, "p": new, "deep/new/r": new, "deep/er/s": new, "no/thing": None}

    tree = pack.graft(root, below)

    in_turn = root
    for path, package in below.items():
        in_turn = pack.graft(in_turn, {path: package})
    assert tree == in_turn
    assert sorted(saved(repo, mirror, pack, tree)) == [
        "README.md",
        *(f"{path}/{name}" for path in ("deep/er/s", "deep/new/r", "p") for name in ("Kptfile", "d/run.sh")),
    ]


def test_unsafe_siblings_are_kept(repo: Repo, mirror: Mirror) -> None:
    blob = repo.blob(b"x")
    odd = (b"100664", b"\xff\xfe", blob), (b"160000", b"sub", "1" * 40), (b"040000", b"t", repo.tree("main"))
    before = repo.raw_tree(*odd)
    pack = Pack(mirror)

    after = pack.patch_tree(before, "z", NEW)
    pack.save()
    mirror.fetch()

    assert [e[:2] for e in mirror.raw_entries(after)] == [
        (b"160000", b"sub"), (b"040000", b"t"), (b"40000", b"z"), (b"100664", b"\xff\xfe"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("README.md", "README.md: a file stands where the package would be"),
        ("README.md/p", "README.md: a file stands where the package would be"),
        ("deep/er/q/Kptfile/x", "deep/er/q/Kptfile: a file stands where the package would be"),
        ("P", "p: on some file systems it is the same as P"),
        ("readme.MD/p", "readme.MD: on some file systems it is the same as README.md"),
        ("deep/ER/new", "deep/er: on some file systems it is the same as deep/ER"),
        ("deep/.GIT", "deep/.GIT: some file systems take its name for Git's own"),
    ],
)
def test_new_directory_clashes_with_nothing_beside_it(repo: Repo, mirror: Mirror, path, why) -> None:
    with pytest.raises(NamesError) as caught:
        Pack(mirror).patch_tree(repo.tree("main"), path, NEW)

    assert str(caught.value) == why
    assert Pack(mirror).patch_tree(repo.tree("main"), path, None) == repo.tree("main")


def test_directory_may_take_the_place_of_one_that_goes(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)

    root = pack.graft(repo.tree("main"), {"p": None, "P": pack.files(NEW)})

    assert "P/Kptfile" in saved(repo, mirror, pack, root)
    for order in (1, -1):
        twins = dict([("q", pack.files(NEW)), ("Q", pack.files(NEW))][::order])
        with pytest.raises(NamesError, match="q: on some file systems it is the same as Q"):
            pack.graft(repo.tree("main"), twins)


def test_existing_objects_are_not_written(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)

    pack.files(mirror.files(repo.tree("main", "p"), Limits()))
    assert len(pack) == 0
    add(pack, b"new")
    add(pack, b"new")
    assert len(pack) == 2


def test_saving_twice_keeps_objects(mirror: Mirror) -> None:
    pack = Pack(mirror)
    pack.save()
    add(pack, b"new")
    pack.save()
    pack.save()

    assert len(pack) == 0
    assert mirror.blob(add(pack, b"new"), 10) == b"new"


def test_pack_is_not_written_into_the_repository(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)
    oid = add(pack, b"only in the mirror")
    pack.save()

    assert oid not in repo.git
    assert mirror.has(oid)


def test_git_indexes_the_pack_identically(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)
    for size in (0, 1, 15, 16, 2047, 2048, 300_000):
        add(pack, b"x" * size)
    pack.commit(pack.patch_tree(repo.tree("main"), "q", NEW), [repo.oid("main")], BOT, BOT, "Title\n")
    pack.save()

    (written,) = (mirror.location.directory / "objects" / "pack").glob("*.pack")
    index = written.with_suffix(".idx")
    run("verify-pack", str(index), cwd=mirror.location.directory)
    again = written.with_name("again.idx")
    run("index-pack", "-o", str(again), str(written), cwd=mirror.location.directory)
    assert again.read_bytes() == index.read_bytes()


def test_failed_save_leaves_no_files(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    pack = Pack(mirror)
    oid = add(pack, b"new")
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        with pytest.raises(UnavailableError, match="No space"):
            pack.save()

    assert list((mirror.location.directory / "objects" / "pack").iterdir()) == []
    pack.save()
    assert mirror.blob(oid, 10) == b"new"


def test_parent_may_be_named_by_the_id_that_it_would_have_unsigned(repo: Repo, mirror: Mirror) -> None:
    tree, parent = repo.tree("main"), repo.oid("main")
    unsigned = object_id("commit", commit_bytes(tree, (parent,), BOT, BOT, "First\n"))
    mirror.signing = cast("Any", Seal())
    pack = Pack(mirror)

    first = pack.commit(tree, (parent,), BOT, BOT, "First\n")
    second = pack.commit(tree, (unsigned,), BOT, BOT, "Second\n")

    assert first != unsigned
    assert second == object_id("commit", commit_bytes(tree, (first,), BOT, BOT, "Second\n") + b"signed")
    assert pack.tree_of(unsigned) == pack.tree_of(first) == tree


class Seal:
    """Signs a commit with a word."""

    def read_key(self) -> bytes:
        return b"word"

    def commit(self, *values: Any) -> bytes:
        return commit_bytes(*values) + b"signed"

    def message(self, message: str, _: Signature) -> str:
        return message


def test_mode_of_a_replaced_directory_is_kept_as_it_is_stored(repo: Repo, mirror: Mirror) -> None:
    old = repo.raw_tree((b"040000", b"p", repo.tree("main", "p")), (b"100644", b"a", repo.blob(b"x")))
    pack = Pack(mirror)

    root = pack.patch_tree(old, "p", NEW)
    pack.save()

    assert mirror.raw_entries(root) == [
        RawEntry(b"100644", b"a", bytes.fromhex(repo.blob(b"x"))),
        RawEntry(b"040000", b"p", bytes.fromhex(tree_id(NEW))),
    ]


def test_file_of_a_tree_is_replaced_and_all_else_stays_as_it_is_stored(repo: Repo, mirror: Mirror) -> None:
    old = repo.raw_tree((b"040000", b"p", repo.tree("main", "p")), (b"100600", b"a", repo.blob(b"x")))
    pack = Pack(mirror)

    root = pack.replace_file(old, "p/x", File.of(b"new", Mode.EXECUTABLE))
    root = pack.replace_file(root, "a", File.of(b"other"))
    pack.save()

    below = {entry.name: entry for entry in mirror.raw_entries(repo.tree("main", "p"))}
    changed = below[b"x"]._replace(oid=bytes.fromhex(object_id("blob", b"new")))
    (_, _, oid), last = mirror.raw_entries(root)
    assert last == RawEntry(b"100600", b"a", bytes.fromhex(object_id("blob", b"other")))
    assert mirror.raw_entries(Oid(oid.hex())) == list({**below, b"x": changed}.values())


def test_existing_tree_is_grafted_into_an_empty_repository(repo: Repo, mirror: Mirror) -> None:
    pack = Pack(mirror)
    package = repo.tree("main", "p")

    root = pack.graft(None, {"a/b": package})
    pack.save()

    assert mirror.subtree(root, "a/b") == package
    assert pack.graft(None, {"a": None}) == tree_id({})


def test_pack_is_for_readers_only_and_has_the_name_of_its_objects(mirror: Mirror) -> None:
    records = {object_id("blob", data): pack_record("blob", data) for data in (b"1", b"2")}
    names = []
    for order in (1, -1):
        write_pack(mirror.attach_store() / "objects", dict([*records.items()][::order]))
        names.append({path.name for path in (mirror.location.directory / "objects/pack").iterdir()})
    write_pack(mirror.location.directory / "objects", dict([*records.items()][:1]))
    names.append({path.name for path in (mirror.location.directory / "objects/pack").iterdir()})

    assert names[0] == names[1] < names[2]
    assert len(names[2]) == 4
    modes = {path.stat().st_mode & 0o777 for path in (mirror.location.directory / "objects/pack").iterdir()}
    assert modes == {0o444}


@pytest.mark.parametrize("is_collected", [False, True], ids=["there", "collected by git"])
def test_disk_that_is_full_leaves_nothing_behind(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, is_collected: bool
) -> None:
    pack, folder = Pack(mirror), mirror.attach_store() / "objects/pack"
    add(pack, b"new")

    def fail(_: int) -> None:
        for path in folder.iterdir() if is_collected else ():
            path.unlink()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UnavailableError, match="No space left on device"):
        pack.save()

    assert list(folder.iterdir()) == []


def test_pack_that_cannot_be_written_is_named_with_what_to_check(mirror: Mirror) -> None:
    pack = Pack(mirror)
    add(pack, b"new")
    (mirror.attach_store() / "objects/pack").rmdir()

    with pytest.raises(UnavailableError) as caught:
        pack.save()

    assert str(caught.value) == f"Cannot write to {mirror.location.directory}: No such file or directory"
    assert caught.value.hint == "Check the disk and the permissions of the cache directory."


@pytest.mark.parametrize("large", [1 << 31, (1 << 31) - 1, 5 << 30])
def test_offsets_beyond_two_gibibytes_have_a_table_of_their_own(large: int) -> None:
    class Record(bytes):
        def __len__(self) -> int:
            return large - 12

    first, second, third = (Oid(digit * 40) for digit in "123")
    index = index_bytes({first: Record(b"x"), third: b"", second: b""}, b"c" * 20)

    offsets = index[8 + 1024 + 3 * 24 :]
    is_large = large >= 1 << 31
    short = [12, 1 << 31, (1 << 31) + 1] if is_large else [12, large, large]
    assert struct.unpack(">3I", offsets[:12]) == tuple(short)
    assert offsets[12:-40] == (struct.pack(">2Q", large, large) if is_large else b"")
    assert offsets[-40:-20] == b"c" * 20
