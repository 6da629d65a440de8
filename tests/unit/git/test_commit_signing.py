"""SSH signatures: what ssh-keygen makes of the same bytes, and what git thinks of a commit that bears one."""

import subprocess
from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.redact import learn_credential
from reconciler.git.signing import CommitSigning, parse_key, sign
from reconciler.names.objects import Signature, commit_bytes, object_id, tree_id
from tests.support.signing import Key, make_key, verify
from tests.support.values import TOKEN

WHO = Signature("Bot", "bot@example.com", 1_767_300_000)
TREE = tree_id({})
SIZES = [0, 1, 70, 4096]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.mark.parametrize("size", SIZES)
def test_signature_equals_that_of_ssh_keygen(key: Key, size: int) -> None:
    data = b"x" * size
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(key.private)]
    theirs = subprocess.run(command, input=data, capture_output=True, check=True).stdout

    assert sign(parse_key(key.private.read_bytes()), data) + b"\n" == theirs


def test_git_verifies_signed_commit(key: Key, tmp_path: Path) -> None:
    data = CommitSigning(sign_off=True, read_key=key.private.read_bytes).commit(TREE, (), WHO, WHO, "Title\n")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "hash-object", "-t", "commit", "-w", "--stdin"]
    oid = subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip()

    assert oid == object_id("commit", data)
    assert verify(tmp_path, oid, key)
    assert not verify(tmp_path, oid, make_key(tmp_path / "other"))


def test_signing_is_deterministic(key: Key) -> None:
    signing, other = (CommitSigning(read_key=key.private.read_bytes) for _ in range(2))

    assert signing.commit(TREE, (), WHO, WHO, "a\n") == other.commit(TREE, (), WHO, WHO, "a\n")
    assert signing.commit(TREE, (), WHO, WHO, "a\n") != signing.commit(TREE, (), WHO, WHO, "b\n")


def test_unsigned_commit_reads_no_key() -> None:
    assert CommitSigning().commit(TREE, (), WHO, WHO, "a\n") == commit_bytes(TREE, (), WHO, WHO, "a\n")


def test_credential_in_a_message_is_in_no_commit() -> None:
    learn_credential(TOKEN, "a test")

    with pytest.raises(RefusedError, match="The message of a commit holds a credential") as caught:
        CommitSigning().commit(TREE, (), WHO, WHO, f"sent {TOKEN}\n")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("sign_off", "message"), [(False, "Title\n"), (True, "Title\n\nSigned-off-by: Bot <bot@example.com>\n")]
)
def test_message_is_signed_off_by_the_committer_where_that_is_asked(sign_off: bool, message: str) -> None:
    assert CommitSigning(sign_off=sign_off).message("Title\n", WHO) == message


@pytest.mark.parametrize("message", ["Title\n", "Title\n\nkpt:{}\n", "Title"])
def test_sign_off_is_added_once_as_a_trailer(message: str) -> None:
    signed = CommitSigning(sign_off=True).commit(TREE, (), WHO, WHO, message).partition(b"\n\n")[2].decode()
    again = CommitSigning(sign_off=True).commit(TREE, (), WHO, WHO, signed).partition(b"\n\n")[2].decode()
    parse = ["git", "interpret-trailers", "--parse"]
    trailers = subprocess.run(parse, input=signed, capture_output=True, text=True, check=True).stdout

    assert trailers == "Signed-off-by: Bot <bot@example.com>\n"
    assert signed.startswith(message.rstrip())
    assert again == signed


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_key_with_random_signatures_is_refused(tmp_path: Path, kind: str) -> None:
    other = make_key(tmp_path, kind)

    with pytest.raises(UnavailableError) as caught:
        parse_key(other.private.read_bytes())

    assert "no Ed25519 key" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"ssh-ed25519 AAAA", b"-----BEGIN OPENSSH PRIVATE KEY-----\n"])
def test_malformed_key_is_refused_and_not_shown(data: bytes) -> None:
    with pytest.raises(UnavailableError) as caught:
        parse_key(data)

    assert "cannot be used" in str(caught.value)


def test_key_with_passphrase_is_refused(tmp_path: Path) -> None:
    locked = make_key(tmp_path, passphrase="precious")

    with pytest.raises(UnavailableError) as caught:
        parse_key(locked.private.read_bytes())

    assert "without a passphrase" in (caught.value.hint or "")
