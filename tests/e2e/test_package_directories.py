"""`reconciler package` on every spelling of a directory, on directories that are no packages, and killed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.ecosystem.inputs import ABSENT, ROOT
from tests.support.command_server import run_reconciler

KPTFILE = """\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web
pipeline:
  mutators:
  - image: gcr.io/kpt-fn/set-labels:v0.2.0
    configMap: {tier: edge}
"""
PLAIN = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  size: {}\n"


def write(directory: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose pipeline changes it, with a neighbour and a link to it."""
    write(tmp_path / "web", {"Kptfile": KPTFILE, "cm.yaml": OBJECT.format("small"), "docs/a.md": "a\n"})
    (tmp_path / "link").symlink_to("web")
    return tmp_path / "web"


SPELLINGS = {
    "no argument": ("web", []),
    "from a directory inside": ("web/docs", [".."]),
    "with a slash at the end": (".", ["web/"]),
    "a link and a slash": (".", ["link/"]),
    "inside a link": ("link", ["."]),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_package_is_rendered_in_place_however_its_directory_is_spelled(name: str, package: Path) -> None:
    below, arguments = SPELLINGS[name]
    inode = package.stat().st_ino

    done = run_reconciler(["package", "render", *arguments], cwd=package.parent / below)

    assert (done.returncode, done.stderr) == (Exit.DONE, "")
    assert "tier: edge" in (package / "cm.yaml").read_text()
    assert sorted(path.name for path in package.parent.iterdir()) == ["link", "web"]
    assert sorted(path.name for path in package.iterdir()) == ["Kptfile", "cm.yaml", "docs"]
    assert (package.parent / "link").is_symlink()
    assert package.stat().st_ino == inode, "a shell that stands in the package would stand in no directory"


def test_a_file_keeps_its_permissions(package: Path) -> None:
    (package / "cm.yaml").chmod(0o640)

    assert run_reconciler(["package", "render", str(package)]).returncode == Exit.DONE

    assert (package / "cm.yaml").stat().st_mode & 0o777 == 0o640


OTHER_SIDES = {"original", "upstream"}
KILLED = """\
import os, sys
from pathlib import Path
at, here = int(sys.argv.pop(1)), 0
def counted(function):
    def run(*arguments, **options):
        global here
        here += 1
        if here == at:
            os._exit(9)
        return function(*arguments, **options)
    return run
Path.replace, Path.rename, Path.unlink = map(counted, (Path.replace, Path.rename, Path.unlink))
from reconciler.cli.main import invoke
sys.exit(invoke(sys.argv[1:]))
"""


def test_nothing_is_lost_when_an_update_is_killed_between_two_renames(tmp_path: Path) -> None:
    killed = 0
    for at in range(1, 20):
        world = tmp_path / str(at)
        for side in ("original", "upstream", "local"):
            write(world / side, {"Kptfile": PLAIN, "a.yaml": OBJECT.format("small"), "b.txt": "b\n"})
        write(world / "upstream", {"a.yaml": OBJECT.format("large"), "c.txt": "c\n"})
        (world / "upstream" / "b.txt").unlink()
        write(world / "local", {"mine.txt": "a person's\n"})
        before = {path.name: path.read_bytes() for path in (world / "local").iterdir()}
        sides = ["--original=original", "--upstream=upstream", "--local=local", "--out-dir=local"]

        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(at), "package", "update", *sides],
            cwd=world,
            capture_output=True,
            check=False,
        )

        if done.returncode == Exit.DONE:
            break
        assert done.returncode == 9, done.stderr
        killed += 1
        ours = (path for path in world.rglob("*") if path.relative_to(world).parts[0] not in OTHER_SIDES)
        kept = {path.read_bytes() for path in ours if path.is_file()}
        assert set(before.values()) <= kept, f"killed at {at}"
        assert run_reconciler(["package", "update", *sides], cwd=world).returncode == Exit.DONE
        assert "size: large" in (world / "local" / "a.yaml").read_text()
        assert sorted(path.name for path in (world / "local").iterdir()) == sorted(
            {*before, "c.txt"} - {"b.txt"}
        )
    assert killed >= 3


BROKEN = {
    "no Kptfile": (None, "error: No Kptfile found at {root}"),
    "a Kptfile that is no YAML": ("apiVersion: kpt.dev/v1\nkslsls\n;s;s;s\n",
        "error: {path}:3:1: The Kptfile cannot be read: Could not find expected ':'"),
    "an old version": ("apiVersion: kpt.dev/v1alpha1\nkind: Kptfile\nmetadata:\n  name: a\n",
        "error: {path}:1:1: The Kptfile has an old version (kpt.dev/v1alpha1) of its schema"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["render", "update"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_directory_that_is_no_package_is_an_error(name: str, command: str, tmp_path: Path) -> None:
    text, message = BROKEN[name]
    for side in ("good", "bad"):
        write(tmp_path / side, {"Kptfile": PLAIN, "cm.yaml": OBJECT.format("small")})
    (tmp_path / "bad" / "Kptfile").unlink()
    if text is not None:
        (tmp_path / "bad" / "Kptfile").write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    lines = {
        "render": [["bad"]],
        "update": [
            [f"--original={o}", f"--upstream={u}", f"--local={at}", f"--out-dir={at}"]
            for o, u, at in (("bad", "bad", "bad"), ("bad", "good", "good"), ("good", "good", "bad"))
            if text is not None or at == "bad"  # an upstream needs no Kptfile
        ],
    }

    for arguments in lines[command]:
        done = run_reconciler(["package", command, *arguments], cwd=tmp_path)

        assert (done.returncode, done.stdout) == (Exit.INVALID_INPUT, ""), arguments
        assert done.stderr.startswith(message.format(root=tmp_path / "bad", path="bad/Kptfile")), done.stderr
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


KPT_CASES = (
    "missing-kptfile",
    "invalid-kptfile",
    "subpkg-has-invalid-kptfile",
    "basicpipeline-v1alpha1",
    "basicpipeline-v1alpha2",
    "non-krm-resource-no-pipeline",
)


@pytest.mark.skipif(not ROOT.is_dir(), reason=ABSENT)
@pytest.mark.parametrize("case", KPT_CASES)
def test_what_kpt_refuses_to_read_is_refused(case: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kpt-fn-render" / case, tmp_path / "p")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    ours = run_reconciler(["package", "render", ".", "--compatible"], cwd=tmp_path / "p")
    assert (ours.returncode, ours.stdout) == (Exit.INVALID_INPUT, "")
    assert "error: " in ours.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    if (kpt := shutil.which("kpt")) is not None:
        theirs = subprocess.run([kpt, "fn", "render"], cwd=tmp_path / "p", capture_output=True, check=False)
        assert theirs.returncode == 1, theirs.stderr
