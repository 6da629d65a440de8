"""The git command: its whole input reaches it, however slow it is, and nothing waits longer than allowed."""

import hashlib
import time
from pathlib import Path

import pytest

from reconciler.errors import UnavailableError
from reconciler.git.command import run_git

MIB = 1 << 20


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a command called git first on the path; what it does is written into the returned file."""
    script = tmp_path / "git"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return script


def test_large_input_reaches_slow_process(slow_git: Path) -> None:
    slow_git.write_text("#!/bin/sh\nsleep 1.2\nexec sha256sum\n")
    data = bytes(range(256)) * (8 * MIB // 256)

    ran = run_git(["index-pack"], stdin=data, timeout_s=60)

    assert ran.code == 0
    assert ran.out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_large_output_is_read_while_input_is_written(slow_git: Path) -> None:
    slow_git.write_text("#!/bin/sh\nsleep 0.7\ncat\nsleep 0.7\necho end\n")
    data = b"x" * (4 * MIB)

    assert run_git(["cat-file"], stdin=data, timeout_s=60).out == data + b"end\n"


def test_process_that_reads_nothing_is_killed_in_time(slow_git: Path, tmp_path: Path) -> None:
    slow_git.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 600\n")
    start = time.monotonic()

    with pytest.raises(UnavailableError, match="within 1 s"):
        run_git(["index-pack"], stdin=b"x" * (4 * MIB), timeout_s=1)

    assert time.monotonic() - start < 30
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_process_may_end_without_reading_its_input(slow_git: Path) -> None:
    slow_git.write_text("#!/bin/sh\nsleep 0.7\necho 'fatal: no room' >&2\nexit 128\n")

    ran = run_git(["index-pack"], stdin=b"x" * (4 * MIB))

    assert (ran.code, ran.err) == (128, "fatal: no room\n")


def test_process_without_input_reads_an_empty_one(slow_git: Path) -> None:
    slow_git.write_text("#!/bin/sh\nwc -c\n")

    assert run_git(["fetch"]).out.strip() == b"0"
