"""Patches: `git apply` makes of one state of a package the other."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.base.text import terminal
from reconciler.names.objects import File, Files, Mode
from reconciler.report.console import ansi
from reconciler.report.diff import package_patch

SECRET = File.of(b"apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}\n")
LONG = b"".join(b"line %d\n" % n for n in range(60))

NAMES = ("a b.yaml", 'X"b', "X\\b", "gr\u00fcn", "no\u00a0break", "blank\u2800", "bell\x07")


def text(data: bytes) -> Files:
    return {"a.yaml": File.of(data)}


SIDES: dict[str, tuple[Files, Files]] = {
    "changed": (text(b"a: 1\nb: 2\n"), text(b"a: 1\nb: 3\n")),
    "two hunks": (text(LONG), text(LONG.replace(b"line 3\n", b"three\n").replace(b"line 50\n", b""))),
    "new": ({}, text(b"a: 1\n")),
    "new package in a directory": ({}, {"x/y/z.yaml": File.of(b"z: 1\n")}),
    "new and empty": ({}, text(b"")),
    "deleted": (text(b"a: 1\n"), {}),
    "deleted and empty": (text(b""), {}),
    "no newline before": (text(b"a: 1"), text(b"a: 1\n")),
    "no newline after": (text(b"a: 1\n"), text(b"a: 1")),
    "no newline": (text(b"a: 1"), text(b"a: 2")),
    "emptied": (text(b"a: 1\n"), text(b"")),
    "lines like headers": (text(b"-- a/a.yaml\n"), text(b"++ b/a.yaml\n@@ -1 +1 @@\n")),
    "line like a header at the end": (text(b"x\n-- a/p/a.yaml"), text(b"x\n++ b/p/a.yaml")),
    "line like a diff": (text(b"a\n"), text(b"a\ndiff --git a/x b/x\n# comment\n")),
    "carriage returns": (text(b"a: 1\r\nb: 2\r\n"), text(b"a: 1\r\nb: 3\r\n")),
    "control characters": (text(b"a: 1\n"), text(b"a: \x1b[2J\n")),
    "lone carriage return": (text(b"a: 1\n"), text(b"a: 1\rb: 2\n")),
    "form feed": (text(b"a\n\x0cb\nc\n"), text(b"a\n\x0cb\nd\n")),
    "line separator": (text("a\u2028b\n".encode()), text("a\u2028c\n".encode())),
    "command of a runner": (text(b"a\n"), text(b"::set-output name=x::y\na\n")),
    "no text": (text(b"\xff\x00"), text(b"\xff\x01" * 4000)),
    "new binary": ({}, {"logo.png": File.of(bytes(range(256)))}),
    "deleted binary": ({"logo.png": File.of(bytes(range(256)))}, {}),
    "mode": ({"run.sh": File.of(b"x\n")}, {"run.sh": File.of(b"x\n", Mode.EXECUTABLE)}),
    "mode and content": ({"run.sh": File.of(b"x\n", Mode.EXECUTABLE)}, {"run.sh": File.of(b"y\n")}),
    "new executable": ({}, {"run.sh": File.of(b"x\n", Mode.EXECUTABLE)}),
    "link": ({}, {"link": File.of(b"a.yaml", Mode.SYMLINK)}),
    "file becomes a link": ({"a": File.of(b"x\n")}, {"a": File.of(b"b", Mode.SYMLINK)}),
    "names": (dict.fromkeys(NAMES, File.of(b"x\n")), dict.fromkeys(NAMES, File.of(b"y\n"))),
    "several files": ({"a": File.of(b"1\n"), "b": File.of(b"\xff"), "c": File.of(b"3\n")},
        {"a": File.of(b"2\n"), "b": File.of(b"\xfe"), "d": File.of(b"3\n")}),
}  # fmt: skip


def lay(root: Path, files: Files) -> None:
    for path, file in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.mode is Mode.SYMLINK:
            place.symlink_to(file.data.decode())
        else:
            place.write_bytes(file.data)
            place.chmod(file.mode & 0o777)


def state(root: Path) -> Mapping[str, tuple[int, bytes]]:
    """Return mode and content of every file below a directory."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mode & 0o100, str(path.readlink()).encode())
        if path.is_symlink()
        else (path.stat().st_mode & 0o100, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def apply(root: Path, lines: list[str]) -> None:
    patch = "\n".join(["# create edge/web; web/v1", "# in /srv/edge.git", *lines]) + "\n"
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=root,
        input=patch.encode(),
        check=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)},
    )


@pytest.mark.parametrize(("before", "after"), SIDES.values(), ids=SIDES.keys())
def test_patch_makes_the_other_side(before: Files, after: Files, tmp_path: Path) -> None:
    root, expected = tmp_path / "root", tmp_path / "expected"
    lay(root / "p", before)
    lay(expected / "p", after)
    root.mkdir(exist_ok=True)

    lines = list(package_patch("p", before, after))
    apply(root, lines)

    shown = [line.removesuffix("\r") for line in lines]
    assert all(line.isprintable() and terminal(line) == line for line in shown)
    assert state(root) == (state(expected) if expected.exists() else {})


def test_secret_is_a_comment_that_leaves_its_file(tmp_path: Path) -> None:
    other = {"a.yaml": File.of(b"x: 1\n")}
    lay(tmp_path / "p", {"secret.yaml": SECRET})

    lines = list(package_patch("p", {"secret.yaml": SECRET}, other, name="edge/web"))
    apply(tmp_path, lines)

    assert lines[-1] == (
        "# edge/web: removes p/secret.yaml, which may hold a Secret: not shown, "
        "and `git apply` leaves it as it is"
    )
    assert "hunter2" not in "\n".join(lines)
    assert state(tmp_path).keys() == {"p/a.yaml", "p/secret.yaml"}


@pytest.mark.parametrize(("before", "after"), [(SECRET, None), (None, SECRET), (SECRET, File.of(b"x\n"))])
def test_no_side_of_a_secret_is_shown(before: File | None, after: File | None) -> None:
    sides = ({"s": file} if file else {} for file in (before, after))

    (line,) = package_patch("", *sides)

    assert line.startswith("# s: ")


def test_equal_sides_have_no_patch() -> None:
    assert list(package_patch("p", text(b"a"), text(b"a"))) == []


def test_colors_change_no_character() -> None:
    import re

    before, after = SIDES["two hunks"]
    colored = [re.sub(r"\x1b\[\d+m", "", line) for line in package_patch("p", before, after, paint=ansi)]

    assert colored == list(package_patch("p", before, after))
