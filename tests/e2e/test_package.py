"""`reconciler package` on directories: what it writes, what it says, how it exits."""

from pathlib import Path

import pytest

from reconciler.base.errors import ConfigurationError, RefusedError
from reconciler.cli.main import invoke
from reconciler.names.objects import File, Mode
from reconciler.read.files import read_directory
from reconciler.workdir.directory import write_directory
from tests.support.identifiers import without_identifiers

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n"
CM = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: {}\n"


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
