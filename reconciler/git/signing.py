"""SSH signatures as git reads them, made in the process; the same bytes get the same signature."""

import base64
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from reconciler.errors import UnavailableError

_MAGIC = b"SSHSIG"
_NAMESPACE = b"git"
_HASH = b"sha512"
_KIND = b"ssh-ed25519"
_WIDTH = 70
_HINT = "Give an Ed25519 key without a passphrase, as `ssh-keygen -t ed25519 -N ''` makes it."


def parse_key(data: bytes) -> Ed25519PrivateKey:
    """Return an OpenSSH private key. Only Ed25519: its signatures are deterministic, ECDSA's are not.

    Raises:
        UnavailableError: It is none, is of another kind, or needs a passphrase.
    """
    try:
        key = load_ssh_private_key(data.strip() + b"\n", password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnavailableError("The key that signs commits cannot be used", hint=_HINT) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UnavailableError("The key that signs commits is no Ed25519 key", hint=_HINT)
    return key


def sign(key: Ed25519PrivateKey, data: bytes) -> bytes:
    """Return the armoured signature of `data`, byte for byte as `ssh-keygen -Y sign -n git` writes it.

    Source: OpenSSH PROTOCOL.sshsig.
    """
    fields = (_NAMESPACE, b"", _HASH, hashlib.sha512(data).digest())
    signature = key.sign(_MAGIC + b"".join(map(_field, fields)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    parts = (_pair(public), _NAMESPACE, b"", _HASH, _pair(signature))
    text = base64.b64encode(_MAGIC + (1).to_bytes(4, "big") + b"".join(map(_field, parts)))
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return b"\n".join([b"-----BEGIN SSH SIGNATURE-----", *lines, b"-----END SSH SIGNATURE-----"])


def _pair(data: bytes) -> bytes:
    return _field(_KIND) + _field(data)


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
