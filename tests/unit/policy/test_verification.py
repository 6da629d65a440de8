"""Public keys as people paste them: one or several armoured blocks, in any indentation."""

import base64

import pytest

from reconciler.policy import parse_gpg_keys


def armoured(packets: bytes, indent: str = "") -> str:
    lines = ["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", base64.b64encode(packets).decode(), "=AAAA"]
    return "".join(f"{indent}{line}\n" for line in [*lines, "-----END PGP PUBLIC KEY BLOCK-----"])


def test_several_keys_are_one_after_the_other() -> None:
    assert parse_gpg_keys(f"{armoured(b'first')}\n{armoured(b'second', indent='  ')}") == b"firstsecond"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh-ed25519 AAAA", "this is no public key"),
        (f"{armoured(b'first')}and more", "this is no public key"),
        (armoured(b"first").replace("Zml", "Z"), "this public key is damaged"),
    ],
)
def test_other_text_is_no_key(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_gpg_keys(text)
