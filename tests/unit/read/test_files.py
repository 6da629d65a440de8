"""A directory on disk: what is read of it, and what is refused."""

import os
from pathlib import Path

import pytest

from reconciler.base.errors import ConfigurationError, UsageError
from reconciler.names.objects import Mode
from reconciler.policy import Limits
from reconciler.read.files import is_below, read_directory

LIMITS = Limits(package_files=3, package_file_bytes=4, package_bytes=6, path_depth=1)


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_files_are_read_with_their_modes_without_git(tmp_path: Path) -> None:
    write(tmp_path, {"d/run.sh": "#!", "a": "1", ".git/config": "x", "d/.git/HEAD": "x", ".hidden": "h"})
    (tmp_path / "d/run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("d/run.sh")

    assert {path: (file.data, file.mode) for path, file in read_directory(tmp_path).items()} == {
        ".hidden": (b"h", Mode.REGULAR),
        "a": (b"1", Mode.REGULAR),
        "d/run.sh": (b"#!", Mode.EXECUTABLE),
        "link": (b"d/run.sh", Mode.SYMLINK),
    }


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ({"a": "12", "b": "34", "c": "56"}, ""),
        ({"a": "", "b": "", "c": "", "d": ""}, "d: the package has more than 3 files"),
        ({"a": "1234"}, ""),
        ({"a": "12345"}, "a: it has 5 bytes; the limit is 4"),
        ({"a": "1234", "b": "567"}, "b: the package has more than 6 bytes"),
        ({"d/a": ""}, ""),
        ({"d/d/a": ""}, "d/d/: the package is deeper than 1 directory"),
    ],
)
def test_limits_are_the_largest_that_is_read(tmp_path: Path, files: dict[str, str], refusal: str) -> None:
    write(tmp_path, files)

    if not refusal:
        assert sorted(read_directory(tmp_path, LIMITS)) == sorted(files)
        return
    with pytest.raises(ConfigurationError) as caught:
        read_directory(tmp_path, LIMITS)
    assert str(caught.value) == refusal


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("a", True), ("../a", True), ("./../d/a", True), ("../../a", False), ("../../package/a", False),
        ("x/../../../a", False), ("/a", False),
    ],
)  # fmt: skip
def test_link_stays_in_the_package_at_every_step(tmp_path: Path, target: str, inside: bool) -> None:
    root = write(tmp_path / "package", {"a": "1", "d/a": "2"})
    (root / "d/link").symlink_to(target)

    if inside:
        assert read_directory(root)["d/link"].data.decode() == target
    else:
        with pytest.raises(ConfigurationError, match=f"the link leads out of the package, to {target}"):
            read_directory(root)


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigurationError, match="neither a file nor a directory nor a link"):
        read_directory(tmp_path)
    with pytest.raises(UsageError, match="pipe is not a directory"):
        read_directory(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("path", "directory", "below"),
    [("a/b", "", True), ("a", "a", True), ("a/b", "a", True), ("ab", "a", False), ("a", "a/b", False)],
)
def test_path_is_below_a_directory_on_whole_segments(path: str, directory: str, below: bool) -> None:
    assert is_below(path, directory) is below
