"""Signatures of tags, verified with given public keys by `ssh-keygen` and `gpgv`.

The programs decide, not a second implementation of their formats: git itself asks the same ones.
"""

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from reconciler.policy import VerifyRule, parse_gpg_keys

_SIGNATURE = re.compile(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SSH SIGNATURE|SIGNED MESSAGE)-----", re.MULTILINE
)
_SSH = b"-----BEGIN SSH SIGNATURE-----"
_SIGNER = "signer"
_TIMEOUT_S = 30
_PATH = "/usr/local/bin:/usr/bin:/bin"

NOT_SIGNED = "is not signed"


class _Signed(NamedTuple):
    """The bytes that were signed, and the signature; empty if there is none."""

    payload: bytes
    signature: bytes


def tag_fault(data: bytes, name: str, rule: VerifyRule) -> str:
    """Return why a tag object is not verified under its name, "" if it is: a clause about the tag.

    A signed tag vouches for its own name only: under another one it would make an old revision a new one.
    The same keys sign commits and certificates of pushes, so what was signed must be a tag of a commit.

    Source: git gpg-interface.c, parse_signed_buffer; fsck.c, fsck_tag_standalone.
    """
    start = max((match.start() for match in _SIGNATURE.finditer(data)), default=len(data))
    signed = _Signed(data[:start], data[start:])
    if fault := _fault(signed, rule):
        return fault
    lines = signed.payload.partition(b"\n\n")[0].split(b"\n")
    if not lines[0].startswith(b"object ") or lines[1:2] != [b"type commit"]:
        return "names no commit"
    if lines[2:3] != [f"tag {name}".encode()]:
        return "was signed under another name"
    return "has two names" if any(line.startswith(b"tag ") for line in lines[3:]) else ""


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
