"""Sign-off lines and signatures of the commits that a run makes; made here with an SSH key."""

import base64
import hashlib
from collections.abc import Callable, Iterable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import field

from reconciler.base.errors import ReconcilerError, UnavailableError
from reconciler.base.redact import learn_credential, refuse_credentials
from reconciler.base.values import PartlyCompared
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature, commit_bytes

# `cryptography` is imported by the functions that use it: it is slow to import, and most runs sign nothing.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
