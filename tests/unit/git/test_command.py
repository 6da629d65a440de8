"""The git command: its whole input reaches it, however slow it is, and nothing waits longer than allowed."""

import hashlib
import shlex
import time
from pathlib import Path

import pytest

from reconciler.errors import UnavailableError
from reconciler.git.command import environment, last_line, run_git
from reconciler.git.urls import Credential

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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("remote: busy\nfatal: no room\nhint: free some\n", "fatal: no room"),
        ("error: first\nfatal: second\n", "fatal: second"),
        ("remote: busy\n  try later  \n\n", "try later"),
        ("\n", "no message"),
        ("", "no message"),
    ],
)
def test_last_error_of_git_is_shown_else_its_last_line(text: str, line: str) -> None:
    assert last_line(text) == line


def test_files_of_ssh_are_arguments_of_their_own_whatever_their_names(tmp_path: Path) -> None:
    key, hosts = tmp_path / "it's a key", tmp_path / "it's known"
    credential = Credential("", "", ssh_key=key, known_hosts=hosts)

    command = shlex.split(environment({}, credential)["GIT_SSH_COMMAND"])

    assert command[command.index("-i") + 1] == str(key)
    assert "IdentitiesOnly=yes" in command
    (known,) = [argument for argument in command if argument.startswith("GlobalKnownHostsFile=")]
    assert shlex.split(known.partition("=")[2])[0] == str(hosts)
    assert "-i" not in shlex.split(environment({})["GIT_SSH_COMMAND"])


@pytest.mark.parametrize(
    ("credential", "variables"),
    [
        (Credential("kim", "t0k"), {"GIT_USER": "kim", "GIT_SECRET": "t0k"}),
        (Credential("", "t0k"), {"GIT_USER": "x-access-token", "GIT_SECRET": "t0k"}),
        (Credential("kim", ""), {"GIT_USER": "kim", "GIT_SECRET": ""}),
        (Credential("", ""), {}),
        (None, {}),
    ],
)
def test_credential_is_passed_in_variables(credential: Credential | None, variables: dict[str, str]) -> None:
    passed = environment({"SECRET": "x", "GIT_DIR": "/elsewhere", "PATH": "/bin"}, credential)

    assert {name: passed[name] for name in ("GIT_USER", "GIT_SECRET") if name in passed} == variables
    assert passed["PATH"] == "/bin"
    assert {"SECRET", "GIT_DIR"}.isdisjoint(passed)
