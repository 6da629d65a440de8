"""Signatures of commits and tags, verified with given public keys by `ssh-keygen` and `gpgv`.

The programs decide, not a second implementation of their formats: git itself asks the same ones.
"""

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from reconciler.lazy import lazy_pattern
from reconciler.policy import VerifyRule
from reconciler.policy.verification import parse_gpg_keys

_SIGNATURE = lazy_pattern(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SSH SIGNATURE|SIGNED MESSAGE)-----", re.MULTILINE
)
_SSH = b"-----BEGIN SSH SIGNATURE-----"
_HEADER = re.compile(rb"^gpgsig(?:-sha256)? [^\n]*(?:\n [^\n]*)*\n", re.MULTILINE)
_SIGNER = "signer"
_TIMEOUT_S = 30
_PATH = "/usr/local/bin:/usr/bin:/bin"

NOT_SIGNED = "is not signed"


class _Signed(NamedTuple):
    """The bytes that were signed, and the signature; empty if there is none."""

    payload: bytes
    signature: bytes


def commit_fault(data: bytes, rule: VerifyRule) -> str:
    """Return why a commit object is not verified, "" if it is: a clause about the commit.

    Source: git commit.c, parse_signed_commit.
    """
    head, blank, message = data.partition(b"\n\n")
    head += b"\n"
    headers = [match.group() for match in _HEADER.finditer(head)]
    signatures = [header for header in headers if header.startswith(b"gpgsig ")]
    if len(signatures) > 1:
        return "has two signatures"
    payload = _HEADER.sub(b"", head)[:-1] + blank + message
    signature = signatures[0].removeprefix(b"gpgsig ").replace(b"\n ", b"\n") if signatures else b""
    return _fault(_Signed(payload, signature), rule)


def tag_fault(data: bytes, name: str, rule: VerifyRule) -> str:
    """Return why a tag object is not verified under its name, "" if it is: a clause about the tag.

    A signed tag vouches for its own name only: under another one it would make an old revision a new one.

    Source: git gpg-interface.c, parse_signed_buffer.
    """
    start = max((match.start() for match in _SIGNATURE.finditer(data)), default=len(data))
    fault = _fault(_Signed(data[:start], data[start:]), rule)
    header, _, _ = data.partition(b"\n\n")
    if not fault and f"tag {name}".encode() not in header.split(b"\n"):
        return "was signed under another name"
    if not fault and b"type commit" not in header.split(b"\n"):
        return "names no commit"
    return fault


def _fault(signed: _Signed, rule: VerifyRule) -> str:
    if not signed.signature:
        return NOT_SIGNED
    is_ssh = signed.signature.startswith(_SSH)
    if not (rule.ssh_keys if is_ssh else rule.gpg_keys):
        return f"is signed with {'SSH' if is_ssh else 'GPG'}, and no such key is given"
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "signature").write_bytes(signed.signature)
        (folder / "payload").write_bytes(signed.payload)
        is_good = _ssh_verifies if is_ssh else _gpg_verifies
        try:
            return "" if is_good(folder, signed, rule) else "is not signed by a given key"
        except FileNotFoundError:
            return f"cannot be verified: there is no {'ssh-keygen' if is_ssh else 'gpgv'} on this machine"
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cannot be verified: {type(error).__name__}"


def _ssh_verifies(folder: Path, signed: _Signed, rule: VerifyRule) -> bool:
    lines = [f'{_SIGNER} namespaces="git" {key}\n' for key in rule.ssh_keys]
    (folder / "signers").write_text("".join(lines))
    command = ["ssh-keygen", "-Y", "verify", "-f", f"{folder}/signers", "-I", _SIGNER, "-n", "git"]
    return _run([*command, "-s", f"{folder}/signature"], folder, signed.payload).returncode == 0


def _gpg_verifies(folder: Path, _: _Signed, rule: VerifyRule) -> bool:
    (folder / "keys").write_bytes(b"".join(map(parse_gpg_keys, rule.gpg_keys)))
    command = ["gpgv", "--homedir", str(folder), "--keyring", f"{folder}/keys", "--status-fd", "1"]
    ran = _run([*command, f"{folder}/signature", f"{folder}/payload"], folder, b"")
    # A key or signature that has expired, or a key that was revoked, has another word than GOODSIG.
    return ran.returncode == 0 and b"\n[GNUPG:] GOODSIG " in b"\n" + ran.stdout


def _run(command: list[str], folder: Path, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ.get("PATH") or _PATH, "HOME": str(folder), "LC_ALL": "C"}
    return subprocess.run(
        command, input=stdin, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
    )
