"""Files that commands write into directories of people: what is replaced, kept, and put back."""

import os
import signal
from pathlib import Path

import pytest

from reconciler.base import effects
from reconciler.base.errors import RefusedError, UsageError
from reconciler.names.objects import File, Files, Mode
from reconciler.read.files import read_directory
from reconciler.workdir.control_files import (
    add_version,
    read_manifest_files,
    remove_folders,
)
from reconciler.workdir.directory import check_writable, write_directory

A, B = File.of(b"a\n"), File.of(b"b\n")
PACKAGE: Files = {
    "Kptfile": A,
    "deep/er/x.yaml": A,
    "deep/y.yaml": A,
    "run.sh": File.of(b"#!", Mode.EXECUTABLE),
    "link": File.of(b"Kptfile", Mode.SYMLINK),
}


def tree(root: Path) -> dict[str, str]:
    """Return every path below a directory with its kind and permissions."""
    return {str(p.relative_to(root)): oct(p.lstat().st_mode) for p in sorted(root.rglob("*"))}


class Interrupted(dict[str, File]):
    """Files of which each read asks whether a signal would end the writing there."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.ends: set[bool] = set()

    def __getitem__(self, path: str) -> File:
        self.ends.add(effects.is_interruptible(signal.SIGINT))
        return super().__getitem__(path)


def test_signal_waits_until_a_directory_is_written(tmp_path: Path) -> None:
    for content in (PACKAGE, {**PACKAGE, "Kptfile": B}):
        files = Interrupted(content)
        write_directory(files, tmp_path / "pkg", replaces=tmp_path / "pkg")
        assert files.ends == {False}


def test_names_that_a_directory_has_stay_and_new_ones_are_checked_beside_them(tmp_path: Path) -> None:
    for name in (".gitmodules", "x", "X"):
        (tmp_path / name).write_text("theirs")
    before = read_directory(tmp_path)

    write_directory({**before, "a": A}, tmp_path, replaces=tmp_path)
    with pytest.raises(RefusedError, match="on some file systems it is the same as "):
        write_directory({**before, "a": A, "A": B}, tmp_path, replaces=tmp_path)
    with pytest.raises(RefusedError, match=r"^a: it would be both a file and a directory$"):
        write_directory({"a": A, "a/b": B}, tmp_path / "new")

    assert read_directory(tmp_path) == {**before, "a": A}


def test_directory_with_other_content_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()

    check_writable(tmp_path / "none")
    check_writable(tmp_path / "empty")
    check_writable(tmp_path / "full", replaces=tmp_path / "full/../full")
    for replaces in (None, tmp_path / "empty"):
        with pytest.raises(RefusedError, match=r"full is not empty$"):
            check_writable(tmp_path / "full", replaces=replaces)
    with pytest.raises(UsageError, match=r"x is no directory$"):
        check_writable(tmp_path / "full/x", replaces=tmp_path / "full/x")


def test_manifests_are_yaml_and_json_outside_of_packages(tmp_path: Path) -> None:
    for path in ("a.yaml", "b.yml", "c.json", "d.txt", ".e.yaml", ".hidden/f.yaml", "package/Kptfile",
                 "package/g.yaml", "sub/h.yaml", "skipped/i.yaml", "sub/yaml"):  # fmt: skip
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()

    found = read_manifest_files({"m": tmp_path}, frozenset({(tmp_path / "skipped").resolve()}))

    assert list(found) == ["m/a.yaml", "m/b.yml", "m/c.json", "m/sub/h.yaml"]
    assert found["m/sub/h.yaml"] == b"sub/h.yaml"
    named = {"x/.e": tmp_path / ".e.yaml", "p": tmp_path / "package", "d": tmp_path / "d.txt"}
    assert [*read_manifest_files(named)] == ["x/.e", "p/g.yaml", "d"]
    with pytest.raises(UsageError, match=r"^gone does not exist$"):
        read_manifest_files({"gone": tmp_path / "gone"})


def test_version_of_the_index_is_written_once_and_removed_with_its_empty_folders(tmp_path: Path) -> None:
    add_version(tmp_path, "r.io/db/1", {"version.yaml": b"1"})
    for files, message in (
        ({"version.yaml": b"1"}, "already$"),
        ({"v": b""}, "already, with other content$"),
    ):
        with pytest.raises(RefusedError, match=f"^r.io/db/1 exists {message}"):
            add_version(tmp_path, "r.io/db/1", files)
    add_version(tmp_path, "r.io/api/1", {"version.yaml": b"2", "api.yaml": b"3"})
    add_version(tmp_path, "x.io/db/1", {"version.yaml": b"4"})

    remove_folders(tmp_path, ["x.io/db/1", "r.io/api/1"])

    assert [p for p in tree(tmp_path) if (tmp_path / p).is_file()] == ["r.io/db/1/version.yaml"]
    assert tree(tmp_path).keys() == {"r.io", "r.io/db", "r.io/db/1", "r.io/db/1/version.yaml"}
