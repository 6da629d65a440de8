"""Run the git command, with fixed arguments and a clean environment."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from reconciler.base import effects
from reconciler.base.effects import effect
from reconciler.base.errors import UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.progress import call
from reconciler.base.redact import is_token, learn_credential, mask_tokens
from reconciler.git.urls import LOOPBACK, Credential

CONFIG = Path(__file__).with_name("git.config")
KNOWN_HOSTS = Path(__file__).with_name("known_hosts")
DEFAULT_TIMEOUT_S = 600.0
_SILENT_S = 60
"""The longest silence of an HTTP server: Git servers send a keep-alive every five seconds."""
_CHECK_S = 0.5
"""The interval at which a running process checks for a shutdown."""

_INHERITED = (
    "PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
)  # fmt: skip
_FIXED = {
    "LC_ALL": "C",  # messages of git are parsed
    # The user's configuration may have hooks, aliases, credential helpers and rewritten URLs.
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": str(CONFIG),
    # For a password that it lacks git asks a program or the terminal: a run has to fail instead.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",  # `ext::` would run a command
    # Some protocols are permitted for addresses that a person has typed only, and these come from files.
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # refs/replace/* would show other content than an id names
    # `git status` would write the index of a working copy that is only looked at.
    "GIT_OPTIONAL_LOCKS": "0",
}
# Hooks of a directory would run as this user. After a fetch git repacks in the background, where its locks
# outlast the command. And it follows the redirect of a first request, to any host.
_ALWAYS = ("-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
           "-c", "http.followRedirects=false")  # fmt: skip
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o StrictHostKeyChecking=yes"
# The secret is read from the environment: other users of the machine can list the arguments of processes.
_HELPER = '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$GIT_USER" "$GIT_SECRET"; }; f'


_NO_PASSWORDS = ("", "x", "x-oauth-basic")


LIMITS_HINT = "Raise the limits of the process (`ulimit -n`, `ulimit -u`) or its memory."


class GitTimeoutError(UnavailableError):
    """A git process did not end in time: its remote does not answer."""


class GitResult(Struct, frozen=True):
    """Exit code and output of a git process."""

    code: int
    out: bytes
    err: str


_started: list[str] = []
"""The subcommands of all git processes; appending to a list is atomic."""


def process_count(command: str = "") -> int:
    """Return the number of git processes that this process has started, or of those of one subcommand."""
    return _started.count(command) if command else len(_started)


def environment(base: Mapping[str, str], credential: Credential | None = None) -> dict[str, str]:
    """Return the environment of a git process: an allow-list of `base`, and fixed variables.

    A secret reaches git by its credential protocol, which git binds to a host: it is in no argument and
    no file, and is not sent along a redirect to another host.
    """
    clean = {name: base[name] for name in _INHERITED if name in base} | _FIXED
    if any(name.lower() in {"http_proxy", "all_proxy"} for name in clean):
        # Plain http to this machine, a password with it, must not leave it by a proxy; curl reads both names.
        spared = ",".join(filter(None, (clean.get("no_proxy") or clean.get("NO_PROXY"), *LOOPBACK)))
        clean |= {"no_proxy": spared, "NO_PROXY": spared}
    # The library that git asks may not read the names that everything else of this process reads.
    for ours, git in (("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")):
        if ours in clean:
            clean[git] = clean[ours]
    if credential and (credential.username or credential.password):
        clean["GIT_USER"] = credential.username or "x-access-token"
        clean["GIT_SECRET"] = credential.password
    return clean | {"GIT_SSH_COMMAND": _ssh_command(credential or Credential())}


def run_git(
    arguments: Sequence[str],
    *,
    directory: Path | None = None,
    stdin: bytes = b"",
    remote: str = "",
    credential: Credential | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> GitResult:
    """Run git without a shell, and return its output whatever its exit code.

    Follows a redirect of an HTTP server on the same scheme, host and port.

    Args:
        arguments: The subcommand and its arguments. Values from outside must follow `--`, or be a
            validated ref or object id.
        directory: The git directory.
        stdin: The input.
        remote: The address of `credential`.
        credential: The credential if that host demands one.
        timeout_s: Seconds until the whole process group is killed.

    Raises: UnavailableError if git is not installed or does not end in time; StoppedError if a shutdown
    was requested, except during a push, which is waited for.
    """
    executable = shutil.which("git")
    if executable is None:
        raise UnavailableError("The git command was not found", hint="Install git 2.34 or later.")
    if credential is not None:
        # Forges take a token in place of the user, too, with no password or a fixed word for one.
        has_token = credential.password in _NO_PASSWORDS and is_token(credential.username)
        secret = credential.username if has_token else credential.password
        learn_credential(secret, f"the address {remote}")
    # Before the subcommand there are only options `-c` with a value.
    skip = next((n for n in range(0, len(arguments), 2) if arguments[n] != "-c"), 0)
    name = arguments[skip]
    # The other side of a push works for the repository that is written: its hooks decide.
    always = () if name == "receive-pack" else _ALWAYS
    name = "push" if name == "receive-pack" else name
    command = [executable, *always, *_helper_options(remote, credential)]
    variables = environment(os.environ, credential)

    def run(target: str) -> GitResult:
        instead = ["-c", f"url.{target}.insteadOf={remote}"] if target else []
        where = [f"--git-dir={directory}"] if directory else []
        place = remote or directory
        with (
            effect(f"git {name}", finishes=name == "push"),
            call(f"git {name} {place}" if place else f"git {name}"),
        ):
            _started.append(name)
            process = _start([*command, *instead, *where, *arguments], variables, with_input=bool(stdin))
            return _communicate(process, stdin, timeout_s, finish=name == "push")

    result = run("")
    if not result.code or not is_redirected(result.err):
        return result
    # Git tells that it was redirected, but not to which address: its trace has the header.
    probe = [*command, "ls-remote", "--", remote, "HEAD"]
    trace = _communicate(_start(probe, variables | TRACE, with_input=False), b"", timeout_s, finish=False)
    target = redirect_target(remote, trace.err)
    if not target:
        hint = "Register the address to which it redirects."
        raise UnavailableError(f"{remote} redirects to another address, which is not followed", hint=hint)
    return run(target)


def run_checked(arguments: Sequence[str], *, directory: Path, stdin: bytes = b"") -> bytes:
    """Run a local git command and return its output.

    Raises: UnavailableError with git's message if it fails, for example for a full disk.
    """
    result = run_git(arguments, directory=directory, stdin=stdin)
    if result.code:
        hint = "Check the disk and the permissions of the cache directory."
        raise UnavailableError(
            f"git {arguments[0]} failed in {directory}: {last_line(result.err)}", hint=hint
        )
    return result.out


def slow_options(seconds: float) -> tuple[str, ...]:
    """Return the options with which git aborts if an HTTP server sends nothing for so many seconds."""
    # Git has no limit for the time of a command: curl gives up where less than a byte a second comes for so
    # long.
    return ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={max(1, int(min(seconds, _SILENT_S)))}")


def is_too_slow(text: str) -> bool:
    """Tell whether git aborted because a server sent nothing."""
    return "Operation too slow" in text or "timed out" in text


def is_refused(text: str) -> bool:
    """Tell whether an HTTP server refused the credential."""
    return "Authentication failed" in text or "returned error: 403" in text


def last_line(text: str) -> str:
    """Return the last line with `fatal:` or `error:` of git's messages, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return (errors or lines or ["no message"])[-1]


def _start(command: list[str], env: dict[str, str], *, with_input: bool) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, so that Ctrl-C does not reach it.

    Raises: UnavailableError if this process has reached its limits.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"git cannot be started: {error.strerror}", hint=LIMITS_HINT) from error


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, *, finish: bool
) -> GitResult:
    until = time.monotonic() + timeout_s
    try:
        _feed(process, stdin)
        while True:
            try:
                out, err = process.communicate(timeout=_CHECK_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() > until:
                    raise GitTimeoutError(f"git did not answer within {timeout_s:.0f} s") from None
                if not finish:
                    effects.check_shutdown()
            else:
                return GitResult(process.returncode, out, mask_tokens(err.decode(errors="replace")))
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise


def _feed(process: subprocess.Popen[bytes], stdin: bytes) -> None:
    """Write the input of a process from a thread, which ends with the process.

    Not by `Popen.communicate`: called again after a timeout, it neither writes the rest of an input that
    does not fit into the pipe nor closes the pipe, so that the process waits for ever.
    """
    pipe, process.stdin = process.stdin, None
    if pipe is None:
        return

    def send() -> None:
        with suppress(OSError):  # the process may end before it has read everything
            try:
                pipe.write(stdin)
            finally:
                pipe.close()

    threading.Thread(target=send, name="git input", daemon=True).start()


def _helper_options(remote: str, credential: Credential | None) -> list[str]:
    if credential is None or not (credential.username or credential.password):
        return []
    scheme, _, rest = remote.partition("://")
    scope = f"{scheme}://{rest.partition('/')[0]}"
    # An empty helper clears those before it. One with a URL is asked for that scheme and host only.
    return ["-c", "credential.helper=", "-c", f"credential.{scope}.helper={_HELPER}"]


def _ssh_command(credential: Credential) -> str:
    """Return the ssh command of git: unknown hosts are refused, without a prompt."""
    paths = [KNOWN_HOSTS, Path("/etc/ssh/ssh_known_hosts")]
    if credential.known_hosts:
        paths.insert(0, credential.known_hosts)
    # Blanks separate the files of this option, and git hands the whole command to a shell.
    files = " ".join(f'"{path}"' for path in paths)
    options = [_SSH, "-o", _quoted(f"GlobalKnownHostsFile={files}")]
    if credential.ssh_key:
        # Without IdentitiesOnly the keys of an agent are offered first, and a server ends a connection after
        # a few.
        options += ["-o IdentitiesOnly=yes -i", _quoted(str(credential.ssh_key))]
    return " ".join(options)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_REDIRECTED = regex(r"returned error: 30[12378]\b")
_LOCATION = regex(r"(?im)<= recv header: location:[ \t]*(\S+)")
_PLAIN = regex(r"https?://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9._~/%+-]*")
_SERVICE = regex(r"/info/refs(?:\?.*)?$")

TRACE = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
"""Variables with which git prints the headers that it receives; it redacts those that it sends."""


def is_redirected(err: str) -> bool:
    """Tell whether git stopped at a redirect, which it is forbidden to follow by itself."""
    return _REDIRECTED.search(err) is not None


def redirect_target(remote: str, trace: str) -> str:
    """Return the target of a redirect, "" if it is not on the same scheme, host and port.

    Args:
        remote: The requested address.
        trace: The messages of git with TRACE in its environment.
    """
    locations = _LOCATION.findall(trace)
    if not locations:
        return ""
    # The first request of the smart protocol is for info/refs: the repository is at what is before that.
    target = _SERVICE.sub("", urljoin(f"{remote.rstrip('/')}/info/refs", locations[-1]))
    plain = _PLAIN.fullmatch(target) and ".." not in target
    return target if plain and target != remote and _origin(target) == _origin(remote) else ""


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower()
