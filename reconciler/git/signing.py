"""Signatures: of the commits that a run makes, and of tags, verified with given public keys."""

import base64
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from msgspec import field

from reconciler.base.errors import ReconcilerError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import learn_credential, refuse_credentials
from reconciler.base.values import PartlyCompared
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature, commit_bytes
from reconciler.policy import VerifyRule, parse_gpg_keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# `cryptography` is imported by the functions that use it: it is slow to import, and most runs sign nothing.

_MAGIC = b"SSHSIG"
_NAMESPACE = b"git"
_HASH = b"sha512"
_ALGORITHM = b"ssh-ed25519"
_LINE_LENGTH = 70
_HINT = "Give an Ed25519 key without a passphrase, as `ssh-keygen -t ed25519 -N ''` makes it."


class CommitSigning(PartlyCompared, frozen=True, dict=True):
    """Formats commit objects with an optional sign-off line and signature; thread-safe.

    Deterministic: the same commit gets the same bytes (law 5). `read_key` returns a private key of OpenSSH,
    and is called when the first commit is signed: a plan makes no commits and needs no key.
    """

    UNCOMPARED = frozenset({"_lock"})

    sign_off: bool = False
    read_key: Callable[[], bytes] | None = None
    _lock: Lock = field(default_factory=Lock)

    def commit(
        self, tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
    ) -> bytes:
        """Return the bytes of a commit object.

        Raises:
            UnavailableError: There is no usable key.
        """
        unsigned = commit_bytes(tree, parents, author, committer, self.message(message, committer))
        if self.read_key is None:
            return unsigned
        with self._lock:
            key = self._key
        # Git verifies the commit without this header, so it may be the last one.
        head, blank, body = unsigned.partition(b"\n\n")
        signature = sign(key, unsigned).replace(b"\n", b"\n ")  # lines continue after a space
        return head + b"\ngpgsig " + signature + blank + body

    def message(self, message: str, committer: Signature) -> str:
        """Return the whole message of a commit.

        Raises:
            RefusedError: It holds a credential: its lines are read again, and its id is planned.
        """
        refuse_credentials(message, "The message of a commit")
        return _signed_off(message, committer) if self.sign_off else message

    def check_key(self) -> None:
        """Check that the key signs.

        Raises:
            UnavailableError: There is no usable key.
        """
        _ = self._key

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        assert self.read_key is not None  # noqa: S101 - `commit` asks for the key only where there is a reader
        try:
            data = self.read_key()
            learn_credential(data.decode(errors="replace"), "the key that signs commits")
            return parse_key(data)
        except ReconcilerError as error:
            error.cause = str(error)  # the same for every commit of the run
            raise


UNSIGNED = CommitSigning()
"""Commits without sign-off and signature."""


def parse_key(data: bytes) -> "Ed25519PrivateKey":
    """Parse an OpenSSH private key. Only Ed25519: its signatures are deterministic, ECDSA's are not.

    Raises:
        UnavailableError: The key is malformed, of another kind, or protected by a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: PLC0415

    try:
        key = load_ssh_private_key(data.strip() + b"\n", password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnavailableError("The key that signs commits cannot be used", hint=_HINT) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UnavailableError("The key that signs commits is no Ed25519 key", hint=_HINT)
    return key


def sign(key: "Ed25519PrivateKey", data: bytes) -> bytes:
    """Return the armoured signature of `data`, byte for byte as `ssh-keygen -Y sign -n git` writes it.

    Source: OpenSSH PROTOCOL.sshsig.
    """
    signature = key.sign(_MAGIC + _fields(_NAMESPACE, b"", _HASH, hashlib.sha512(data).digest()))
    public = _fields(_ALGORITHM, key.public_key().public_bytes_raw())
    blob = _fields(public, _NAMESPACE, b"", _HASH, _fields(_ALGORITHM, signature))
    text = base64.b64encode(_MAGIC + (1).to_bytes(4, "big") + blob)
    lines = [text[at : at + _LINE_LENGTH] for at in range(0, len(text), _LINE_LENGTH)]
    return b"\n".join([b"-----BEGIN SSH SIGNATURE-----", *lines, b"-----END SSH SIGNATURE-----"])


def _fields(*values: bytes) -> bytes:
    """Encode strings of the SSH wire format: each with its length in four bytes before it."""
    return b"".join(len(value).to_bytes(4, "big") + value for value in values)


def _signed_off(message: str, committer: Signature) -> str:
    line = f"Signed-off-by: {committer.name} <{committer.email}>"
    # As `git commit --signoff`: the line is there once, in a paragraph of its own.
    return message if line in message.splitlines() else f"{message.rstrip()}\n\n{line}\n"


_SIGNATURE = regex(
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
