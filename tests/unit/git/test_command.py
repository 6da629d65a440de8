"""The git command: its whole input reaches it, however slow it is, and nothing waits longer than allowed."""

import hashlib
import shlex
import threading
import time
from pathlib import Path

import pytest

from reconciler.base import effects
from reconciler.base.defects import is_local_failure
from reconciler.base.effects import StoppedError
from reconciler.base.errors import UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.git.command import (
    TRACE,
    environment,
    is_redirected,
    is_refused,
    is_too_slow,
    last_line,
    process_count,
    redirect_target,
    run_checked,
    run_git,
    slow_options,
)
from reconciler.git.urls import Credential
from tests.support.values import TOKEN

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


@pytest.mark.parametrize(
    ("text", "slow", "local"),
    [
        ("fatal: Operation too slow. Less than 1 bytes/sec", True, False),
        ("ssh: connect to host h port 22: Connection timed out", True, False),
        *(
            (f"fatal: x: {limit}", False, True)
            for limit in ("No space left on device", "Disk quota exceeded")
        ),
        *((f"fatal: x: {limit}", False, True) for limit in ("File too large", "Too many open files")),
        *(
            (f"fatal: x: {limit}", False, True)
            for limit in ("Read-only file system", "Cannot allocate memory")
        ),
        ("error: pack-objects died of signal 25", False, True),
        ("error: pack-objects died of signal 9", False, False),
        ("fatal: repository not found", False, False),
    ],
)
def test_silence_of_a_server_and_limits_of_this_machine_are_told_from_other_failures(
    text: str, slow: bool, local: bool
) -> None:
    assert (is_too_slow(text), is_local_failure(text)) == (slow, local)


@pytest.mark.parametrize(
    ("text", "is_of_the_credential"),
    [
        ("fatal: Authentication failed for 'https://git.example/x'", True),
        ("fatal: unable to access 'https://git.example/x': The requested URL returned error: 403", True),
        ("fatal: unable to access 'https://git.example/x': The requested URL returned error: 500", False),
    ],
)
def test_refused_credential_is_told_from_other_failures(text: str, *, is_of_the_credential: bool) -> None:
    assert is_refused(text) is is_of_the_credential


@pytest.mark.parametrize(("seconds", "limit"), [(0.2, 1), (1, 1), (5.9, 5), (60, 60), (600, 60)])
def test_server_may_be_silent_for_the_limit_of_a_command_and_at_most_a_minute(seconds, limit) -> None:
    assert slow_options(seconds) == ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={limit}")


@pytest.mark.parametrize(
    ("user", "password", "secret"),
    [
        ("kim", "pw-of-an-address", "pw-of-an-address"),
        ("kim-of-the-team", "", ""),
        ("kim-of-the-team", "x", ""),
        (TOKEN, "", TOKEN),
        (TOKEN, "x-oauth-basic", TOKEN),
        (f"robot-{TOKEN}", "pw-of-an-address", "pw-of-an-address"),
    ],
)
def test_credential_that_git_is_given_is_hidden_and_its_user_only_where_that_is_a_token(
    slow_git: Path, user: str, password: str, secret: str
) -> None:
    slow_git.write_text("#!/bin/sh\n")

    run_git(["ls-remote"], credential=Credential(user, password), timeout_s=60)

    shown = mask_credentials(f"{user} {password}")
    assert shown == (f"{user} {password}".replace(secret, "***") if secret else f"{user} {password}")


def test_each_process_is_counted(slow_git: Path) -> None:
    slow_git.write_text("#!/bin/sh\n")
    before = process_count()

    run_git(["fetch"])
    run_git(["gc"])

    assert process_count() - before == 2


@pytest.mark.parametrize(
    ("arguments", "finishes"),
    [
        (["push", "-q"], True),
        (["-c", "a=b", "push"], True),
        (["-c", "a=b", "-c", "c=push", "fetch"], False),
        (["fetch", "push"], False),
    ],
)
def test_push_alone_is_waited_for_after_a_shutdown_request(
    slow_git: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], finishes: bool
) -> None:
    slow_git.write_text("#!/bin/sh\nsleep 0.8\necho done\n")
    monkeypatch.setattr(effects, "requested", effects.Flag())
    timer = threading.Timer(0.1, effects.request_shutdown)
    timer.start()

    if finishes:
        assert run_git(arguments).out == b"done\n"
    else:
        with pytest.raises(StoppedError):
            run_git(arguments)
    timer.join()


def test_local_command_that_fails_is_named_with_its_directory(slow_git: Path, tmp_path: Path) -> None:
    slow_git.write_text(
        '#!/bin/sh\necho done; echo "fatal: no space" >&2; case "$*" in *gc) ;; *) exit 1; esac\n'
    )

    assert run_checked(["gc"], directory=tmp_path) == b"done\n"
    with pytest.raises(UnavailableError) as caught:
        run_checked(["gc", "1"], directory=tmp_path)
    assert str(caught.value) == f"git gc failed in {tmp_path}: fatal: no space"
    assert "permissions of the cache directory" in caught.value.hint


def test_missing_git_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UnavailableError, match="The git command was not found") as caught:
        run_git(["fetch"])

    assert caught.value.hint == "Install git 2.34 or later."


def test_git_that_cannot_be_started_is_unavailable(slow_git: Path) -> None:
    slow_git.write_text("#!/nowhere/sh\n")

    with pytest.raises(UnavailableError, match="git cannot be started: No such file") as caught:
        run_git(["fetch"])

    assert "ulimit" in caught.value.hint


@pytest.mark.parametrize(
    ("remote", "scope"),
    [
        ("https://git.example/acme/edge", "https://git.example"),
        ("https://git.example:8443/acme/edge", "https://git.example:8443"),
    ],
)
def test_credential_is_for_the_host_of_the_address_alone(slow_git: Path, remote: str, scope: str) -> None:
    slow_git.write_text('#!/bin/sh\nfor a; do echo "$a"; done\n')

    arguments = run_git(["fetch"], remote=remote, credential=Credential("kim", "s3cret-t0ken")).out.decode()

    helpers = [line.partition("=")[0] for line in arguments.splitlines() if line.startswith("credential.")]
    assert helpers == ["credential.helper", f"credential.{scope}.helper"]
    assert "s3cret" not in arguments
    assert "credential" not in run_git(["fetch"], remote=remote, credential=Credential()).out.decode()


REMOTE = "https://git.example/acme/edge"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://git.example/new/edge/info/refs?service=git-upload-pack", "https://git.example/new/edge"),
        ("https://GIT.example/new/edge/info/refs", "https://GIT.example/new/edge"),
        ("/new/edge.git/info/refs?service=x", "https://git.example/new/edge.git"),
        ("refs2", "https://git.example/acme/edge/info/refs2"),
        ("https://git.example/acme/edge/info/refs", ""),
        ("https://evil.example/acme/edge/info/refs", ""),
        ("https://git.example:8443/new/edge", ""),
        ("http://git.example/new/edge", ""),
        ("https://kim@git.example/new/edge", ""),
        ("https://git.example/../../new", ""),
        ("https://git.example/a%2e%2e/b..c", ""),
        ("https://git.example/new;rm", ""),
        ("ext::sh", ""),
    ],
)
def test_redirect_is_followed_on_the_same_server_alone(location: str, target: str) -> None:
    other = "<= recv header: location: https://git.example/first\n"
    trace = f"{other}00:00 http.c:1 <= Recv header: Location:\t{location}\n<= recv header: other: x\n"

    assert redirect_target(REMOTE, trace) == target


def test_final_slash_of_an_address_is_no_step_of_its_target() -> None:
    trace = "<= recv header: location: refs2"

    assert redirect_target(f"{REMOTE}/", trace) == f"{REMOTE}/info/refs2"


def test_trace_without_location_has_no_target() -> None:
    assert redirect_target(REMOTE, "=> Send header: location: https://git.example/new\n") == ""


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308, 300, 304, 3010, 404])
def test_redirects_of_http_are_recognised(code: int) -> None:
    text = f"fatal: unable to access '{REMOTE}/': The requested URL returned error: {code}"

    assert is_redirected(text) is (code in {301, 302, 303, 307, 308})


REDIRECTING = """#!/bin/sh
case "$*" in
*insteadOf={remote}*) echo "$*" ;;
*ls-remote*) echo "<= recv header: Location: {location}" >&2 ;;
*) echo "fatal: The requested URL returned error: 301" >&2; exit 128 ;;
esac
"""


def test_redirected_command_runs_on_the_target(slow_git: Path) -> None:
    slow_git.write_text(REDIRECTING.format(remote=REMOTE, location="https://git.example/new/info/refs"))

    result = run_git(["fetch", "origin"], remote=REMOTE)

    assert result.code == 0
    assert f"-c url.https://git.example/new.insteadOf={REMOTE} fetch origin" in result.out.decode()


def test_redirect_to_another_server_is_not_followed(slow_git: Path) -> None:
    slow_git.write_text(REDIRECTING.format(remote=REMOTE, location="https://evil.example/new/info/refs"))

    with pytest.raises(UnavailableError) as caught:
        run_git(["fetch", "origin"], remote=REMOTE)

    assert str(caught.value) == f"{REMOTE} redirects to another address, which is not followed"
    assert caught.value.hint == "Register the address to which it redirects."


def test_target_of_a_redirect_is_read_from_the_trace_of_git(slow_git: Path) -> None:
    names = " ".join(f'"${name}"' for name in TRACE)
    slow_git.write_text(f"#!/bin/sh\necho {names} >&2\necho returned error: 302 >&2\nexit 1\n")

    with pytest.raises(UnavailableError, match="redirects to another address"):
        run_git(["fetch"], remote=REMOTE)
