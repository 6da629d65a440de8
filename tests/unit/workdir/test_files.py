"""Files that commands write into directories of people: what is replaced, kept, and put back."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from reconciler.base import effects
from reconciler.base.errors import RefusedError, UsageError
from reconciler.dependencies.catalog.index import LayerDefaults
from reconciler.dependencies.model.packages import Ecosystem, PackageId
from reconciler.names.objects import File, Files, Mode
from reconciler.read.files import read_directory
from reconciler.workdir.control_files import (
    add_version,
    append_document,
    pin_in_copy,
    remove_folders,
    write_layer,
)
from reconciler.workdir.directory import check_writable, write_directory
from reconciler.workdir.manifest_files import read_manifest_files
from reconciler.workdir.starter import SEPARATE, _script, write_demo


def test_demo_is_written_into_no_directory_of_somebody(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(UsageError, match=r" is not empty$"):
        write_demo(tmp_path, SEPARATE, clusters=2)

    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_walk_shows_each_step_as_it_is_written_and_runs_it(tmp_path: Path) -> None:
    (tmp_path / "walk.sh").write_text(_script([("It's one", ["echo 'a  b'", "cd deep"]), ("2%d", ["ls ."])]))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/x").touch()

    ran = subprocess.run(["sh", "walk.sh"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ran.stdout == "\n== 1. It's one\n$ echo 'a  b'\na  b\n$ cd deep\n\n== 2. 2%d\n$ ls .\nx\n"


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


def test_failure_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "p"
    write_directory(PACKAGE, root)
    before, replace = tree(root), Path.replace

    def full(path: Path, target: Path) -> Path:
        if target.name == "z" and path.parent.parent.name != "old":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_directory({"Kptfile": B, "a/new": A, "deep/y.yaml": B, "z": A}, root, replaces=root)

    assert tree(root) == before
    assert read_directory(root) == PACKAGE
    assert {p.name for p in tmp_path.iterdir()} == {"p"}


@pytest.mark.parametrize(
    ("path", "file", "message"),
    [
        ("../x", A, r"^\.\./x: its name is empty or stands for another directory$"),
        ("/x", A, "^/x: its name is empty"),
        ("a/.git/config", A, "^a/.git/config: some file systems take its name for Git's own$"),
        ("a/GIT~1/x", A, "^a/GIT~1/x: some file systems take its name for Git's own$"),
        ("x\ny", A, r"^x\\x0ay: its name contains a control character$"),
        ("", A, "^: its name is empty"),
        ("a/link", File.of(b"../../x", Mode.SYMLINK),
            "^The link a/link leads out of the package, to ../../x$"),
        ("link", File.of(b"/etc/passwd", Mode.SYMLINK), "leads out of the package, to /etc/passwd"),
    ],
)  # fmt: skip
def test_path_that_leads_out_is_refused(tmp_path: Path, path: str, file: File, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        write_directory({path: file}, tmp_path / "p")
    write_directory({"a": A}, tmp_path / "p")
    with pytest.raises(RefusedError, match=message):
        write_directory({path: file}, tmp_path / "p", replaces=tmp_path / "p")

    assert tree(tmp_path).keys() == {"p", "p/a"}


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

    write_directory({}, tmp_path / "new")
    check_writable(tmp_path / "new")
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "a: 1\n"), ("", "a: 1\n"), ("b: 2\n", "b: 2\n---\na: 1\n"), ("b: 2", "b: 2\n---\na: 1\n"),
        ("b: 2\n---\n", "b: 2\n---\na: 1\n"),
        ("b: 2\n---", "b: 2\n---\na: 1\n"),
        ("\n\n", "\n\na: 1\n"),
    ],
)  # fmt: skip
def test_document_comes_last_in_its_file(tmp_path: Path, before: str | None, after: str) -> None:
    file = tmp_path / "new/m.yaml"
    if before is not None:
        file.parent.mkdir()
        file.write_text(before)

    append_document(file, {"a": 1})

    assert file.read_text() == after


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


def test_layer_of_defaults_is_sorted_and_an_empty_one_has_no_file(tmp_path: Path) -> None:
    ids = {name: PackageId(Ecosystem.BUNDLE, f"r.io/{name}") for name in ("db", "api")}
    write_layer(tmp_path, "i/defaults.yaml", LayerDefaults("", ids))
    write_layer(tmp_path, "i/prod/defaults.yaml", LayerDefaults("production", {}))

    head = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageIndex\n"
    assert (tmp_path / "i/defaults.yaml").read_text() == (
        f"{head}defaults:\n  api: bundle:r.io/api\n  db: bundle:r.io/db\n"
    )
    assert (tmp_path / "i/prod/defaults.yaml").read_text() == (
        f"{head}environment: production\ndefaults: {{}}\n"
    )
    for _ in range(2):
        write_layer(tmp_path, "i/defaults.yaml", LayerDefaults("", {}))
    assert [str(path) for path in tree(tmp_path)] == ["i", "i/prod", "i/prod/defaults.yaml"]


def test_digests_of_images_join_those_of_the_working_copy(tmp_path: Path) -> None:
    pin_in_copy(tmp_path, {"r.io/b:v1": "sha256:" + "1" * 64})
    pin_in_copy(tmp_path, {"r.io/a:v1": "sha256:" + "2" * 64})
    file = tmp_path / "locks/functions/images.json"

    assert file.read_text().index("r.io/a:v1") < file.read_text().index("r.io/b:v1")
    file.write_text("{")
    with pytest.raises(RefusedError, match="The lock of function images cannot be read: ") as raised:
        pin_in_copy(tmp_path, {})
    assert raised.value.hint == "Correct locks/functions/images.json, or remove it and pin every image again."
