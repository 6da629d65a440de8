"""GPG signatures of commits, made by the program `gpg` with one key in a keyring of its own."""

import os
import shutil
import subprocess
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from reconciler.base.errors import UnavailableError

_PATH = "/usr/local/bin:/usr/bin:/bin"
_TIMEOUT_S = 60
_TICK_S = 0.05
_START_S = 5
"""So long the program may take to look at the clock."""
_HINT = "Give one key that signs, without a passphrase, as `gpg --armor --export-secret-keys` writes it."


class GpgSigner:
    """Signs the bytes of commits with one private key; thread-safe.

    Deterministic, as the program is for Ed25519 and RSA: the time of a signature is that of its commit, or
    that of the key where the key is newer, and never the clock. The keyring is removed with the signer.
    """

    def __init__(self, key: bytes) -> None:
        # Not below the cache directory: the path of the agent's socket may have about a hundred characters.
        self._home = Path(tempfile.mkdtemp(prefix="gpg-"))
        weakref.finalize(self, _remove, str(self._home))
        self._run(["--import"], key)
        listing = self._run(["--list-secret-keys", "--with-colons"])
        rows = [line.split(":") for line in listing.decode(errors="replace").splitlines()]
        fingerprints = [row[9] for row in rows if row[0] == "fpr"]
        if sum(row[0] == "sec" for row in rows) != 1:
            raise _unusable()
        self._key = fingerprints[0]
        self._created = max(int(row[5] or 0) for row in rows if row[0] in {"sec", "ssb"})

    def __call__(self, data: bytes, time_s: int) -> bytes:
        """Return the armoured signature of the bytes of a commit with this time.

        Raises:
            UnavailableError: The key has a passphrase, has expired or cannot sign.
        """
        seconds = max(time_s, self._created)
        _wait_until_past(seconds)
        # The exclamation mark stops the clock of the program.
        options = ["--faked-system-time", f"{seconds}!", "--digest-algo", "SHA512", "--armor"]
        return self._run([*options, "--local-user", self._key, "--detach-sign"], data).rstrip(b"\n")

    def _run(self, arguments: list[str], stdin: bytes = b"") -> bytes:
        command = ["gpg", "--homedir", str(self._home), "--batch", "--no-tty", "--quiet"]
        environment = {
            "PATH": os.environ.get("PATH") or _PATH,
            "HOME": str(self._home),
            "LC_ALL": "C",
        }
        try:
            ran = subprocess.run(
                [*command, "--pinentry-mode", "error", *arguments],
                input=stdin,
                capture_output=True,
                env=environment,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            hint = "Install GnuPG, or sign with an SSH key (`commits.sign: ssh`), which needs no program."
            raise UnavailableError("Commits cannot be signed: there is no gpg", hint=hint) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"Commits cannot be signed: {type(error).__name__} of gpg") from error
        if ran.returncode:
            raise _unusable()
        return ran.stdout


def _wait_until_past(seconds: int) -> None:
    """Wait if it is about this time: GnuPG does not stop a clock that it finds right.

    Source: GnuPG 2.2 common/gettime.c, gnupg_set_time.
    """
    while seconds - _START_S <= time.time() < seconds + 1:
        time.sleep(_TICK_S)


def _unusable() -> UnavailableError:
    return UnavailableError("The key that signs commits cannot be used", hint=_HINT)


def _remove(home: str) -> None:
    """End the agent that gpg started for a keyring, and remove the keyring."""
    command = ["gpgconf", "--homedir", home, "--kill", "gpg-agent"]
    # Without its keyring the agent ends by itself.
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    shutil.rmtree(home, ignore_errors=True)
