"""`reconciler package` on directories: what it writes, what it says, how it exits."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import ConfigurationError, RefusedError
from reconciler.cli.main import invoke
from reconciler.names.objects import File, Mode
from reconciler.read.files import read_directory, stays_inside
from reconciler.workdir.directory import write_directory
from tests.support.identifiers import without_identifiers
from tests.support.schema import output_violations

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n"
CM = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: {}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  a: {}\n"


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    for side, value in (("original", "x"), ("upstream", "up"), ("local", "mine")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "Kptfile").write_text(KPTFILE)
        (tmp_path / side / "r.yaml").write_text(CM.format(value))
    return tmp_path


def update(sides: Path, *options: str, output: str = "out") -> int:
    paths = [f"--{side}={sides / side}" for side in ("original", "upstream", "local")]
    return invoke(["package", "update", *paths, f"--out-dir={sides / output}", *options])


def test_json_names_both_sides(sides: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert update(sides, "--output=json") == 7

    out = capsys.readouterr().out
    said: dict[str, Any] = json.loads(out)
    assert output_violations("PackageUpdate", out) == []
    assert said["updated"] is True
    assert said["conflicts"] == [
        {
            "path": "r.yaml",
            "resource": "ConfigMap c",
            "field": "data.a",
            "base": "x",
            "upstream": "up",
            "local": "mine",
            "reason": "BothChanged",
            "name": "",
            "hidden": False,
        }
    ]


@pytest.mark.parametrize(
    ("options", "value", "code"),
    [
        (["--on-conflict=upstream"], "up", 0),
        (["--on-conflict=local"], "mine", 0),
        (["--mode=compatible"], "up", 0),
        (["--strategy=force-delete-replace"], "up", 0),
    ],
)
def test_options_decide(sides: Path, options: list[str], value: str, code: int) -> None:
    assert update(sides, *options) == code
    assert without_identifiers((sides / "out" / "r.yaml").read_text()) == CM.format(value)


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--on-conflict=fail"], 7), (["--strategy=fast-forward"], 4), (["--mode=other"], 2)],
)
def test_a_refused_update_writes_nothing(sides: Path, options: list[str], code: int) -> None:
    assert update(sides, *options) == code
    assert not (sides / "out").exists()


def test_upstreams_need_no_kptfile(sides: Path) -> None:
    for side in ("original", "upstream"):
        (sides / side / "Kptfile").unlink()

    assert update(sides, "--on-conflict=upstream") == 0
    assert (sides / "out/Kptfile").read_bytes() == (sides / "local/Kptfile").read_bytes()


def test_local_may_be_updated_in_place(sides: Path) -> None:
    assert update(sides, "--on-conflict=upstream", output="local") == 0

    assert without_identifiers((sides / "local" / "r.yaml").read_text()) == CM.format("up")
    assert sorted(path.name for path in sides.iterdir()) == ["local", "original", "upstream"]


def test_modes_and_inner_links_survive_a_round_trip(tmp_path: Path) -> None:
    files = {
        "a/run.sh": File.of(b"#!/bin/sh\n", Mode.EXECUTABLE),
        "a/link": File.of(b"../b.txt", Mode.SYMLINK),
        "b.txt": File.of(b"b\n"),
    }

    write_directory(files, tmp_path / "out")

    assert read_directory(tmp_path / "out") == files
    assert (tmp_path / "out" / "a" / "link").readlink() == Path("../b.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a/l", "../b", True),
        ("a/l", "../../b", False),
        ("l", "/etc/passwd", False),
        ("a/b/l", "../../../x", False),
        ("l", "a/../b", True),
        ("l", "a/../../a", False),
    ],
)
def test_links_lead_nowhere_else(path: str, target: str, *, inside: bool) -> None:
    assert stays_inside(path, target) is inside


def test_a_link_out_of_the_package_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "l").symlink_to("/etc/passwd")

    with pytest.raises(ConfigurationError) as caught:
        read_directory(tmp_path / "p")
    assert caught.value.location is not None
    assert caught.value.location.path == "l"
    with pytest.raises(RefusedError):
        write_directory({"l": File.of(b"../x", Mode.SYMLINK)}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ".git/config"])
def test_a_path_out_of_the_package_is_not_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(RefusedError):
        write_directory({"fine": File.of(b""), path: File.of(b"")}, tmp_path / "out")

    assert list(tmp_path.iterdir()) == []


def test_git_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("")
    (tmp_path / "a").write_text("")

    assert list(read_directory(tmp_path)) == ["a"]
