"""What every commit of ours bears beyond its content: a Signed-off-by line, a signature."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.ids import Oid
from reconciler.objects import Signature, commit_bytes
from reconciler.report.redact import learn_credential, mask_credentials

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Seal:
    """How the commits of a run are finished. Deterministic: the same commit gets the same bytes (law 5).

    `read_key` yields an OpenSSH private key and is called when the first commit is signed: a plan
    makes no commits and needs no key. For several threads.
    """

    sign_off: bool = False
    read_key: Callable[[], bytes] | None = None

    def commit(
        self, tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
    ) -> bytes:
        """Return a commit object's bytes, signed off and signed as it should be.

        Raises:
            UnavailableError: There is no usable key.
        """
        message = mask_credentials(message)
        text = _signed_off(message, committer) if self.sign_off else message
        plain = commit_bytes(tree, parents, author, committer, text)
        if self.read_key is None:
            return plain
        from reconciler.git.signing import sign  # noqa: PLC0415 - slow to import, and needed by few

        return _with_header(plain, sign(self._key, plain))

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        from reconciler.git.signing import parse_key  # noqa: PLC0415 - see above

        assert self.read_key is not None  # noqa: S101 - asked for by `commit` only where there is one
        key = self.read_key()
        learn_credential(key.decode("utf-8", "replace"))
        return parse_key(key)


UNSEALED = Seal()
"""Commits as they are composed, with nothing added."""


def _with_header(commit: bytes, signature: bytes) -> bytes:
    head, blank, message = commit.partition(b"\n\n")
    return head + b"\ngpgsig " + signature.replace(b"\n", b"\n ") + blank + message


def _signed_off(message: str, who: Signature) -> str:
    line = f"Signed-off-by: {who.name} <{who.email}>"
    return message if line in message.splitlines() else f"{message.rstrip()}\n\n{line}\n"
