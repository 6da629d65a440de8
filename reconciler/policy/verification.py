"""Settings of the keys that upstream revisions must be signed with."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from reconciler.policy.settings import Internal, SettingsGroup

_SSH_KEY = r"^(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( [^\r\n]*)?$"
_ARMOUR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+: [^\n]*\n)*\n"
    r"([A-Za-z0-9+/=\n]+?)\n(?:=[A-Za-z0-9+/]{4}\n)?-----END PGP PUBLIC KEY BLOCK-----"
)


def parse_gpg_keys(text: str) -> bytes:
    """Return the packets of armoured public keys, as `gpg --export` without `--armor` writes them.

    Raises:
        ValueError: The text is no armoured public key.
    """
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    blocks = _ARMOUR.findall(lines)
    if not blocks or _ARMOUR.sub("", lines).strip():
        raise ValueError("this is no public key as `gpg --armor --export` writes it")
    try:
        return b"".join(base64.b64decode(block.replace("\n", ""), validate=True) for block in blocks)
    except binascii.Error as error:
        raise ValueError(f"this public key is damaged: {error}") from error


def _gpg_key(text: str) -> str:
    parse_gpg_keys(text)
    return text


@dataclass(frozen=True, slots=True)
class VerifyRule(SettingsGroup):
    """Keys that the tags of upstream revisions must be signed with, in the repositories below one URL."""

    prefix: Annotated[str, Field(min_length=1)]
    """Prefix of the repository URLs, by any scheme and spelling; the longest match wins."""
    signed: Literal["tag"] = "tag"
    """Object that must be signed: the tag, because a signed commit has no name of a revision."""
    ssh_keys: tuple[Annotated[str, Field(pattern=_SSH_KEY)], ...] = ()
    """Public keys of OpenSSH, one line each."""
    gpg_keys: tuple[Annotated[str, AfterValidator(_gpg_key)], ...] = ()
    """Public keys of GnuPG, armoured."""
    line: Internal[int] = 0
    """Line of the rule in the configuration."""

    @model_validator(mode="after")
    def _any_key(self) -> Self:
        if not self.ssh_keys and not self.gpg_keys:
            raise ValueError("set sshKeys, gpgKeys or both; without a key nothing can be verified")
        return self
