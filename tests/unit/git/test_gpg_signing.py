"""GPG signatures of commits: git verifies them, and the same commit is signed alike."""

import gc
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git import gpg_signing
from reconciler.git.commit_signing import CommitSigning
from reconciler.git.gpg_signing import GpgSigner
from reconciler.names.objects import Signature, object_id, tree_id
from tests.support.signing import GpgKey, make_gpg_key, verify

EARLY, LATE = 1_500_000_000, 1_760_000_000
CREATED = 1_700_000_000
TREE = tree_id({})


def who(time: int) -> Signature:
    return Signature("Bot", "bot@example.com", time)


@pytest.fixture(scope="module", params=["ed25519", "rsa2048", "nistp256"])
def key(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GpgKey:
    return make_gpg_key(tmp_path_factory.mktemp("keys") / "home", request.param, created=CREATED)


def signing(key: GpgKey) -> CommitSigning:
    return CommitSigning(read_key=key.private.encode, is_gpg=True)


@pytest.mark.parametrize("time", [EARLY, LATE], ids=["before the key was made", "after it was made"])
def test_git_verifies_signed_commit(key: GpgKey, tmp_path: Path, time: int) -> None:
    data = signing(key).commit(TREE, (), who(time), who(time), "Title\n\nText\n")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r")], check=True)
    command = ["git", "-C", str(tmp_path / "r"), "hash-object", "-t", "commit", "-w", "--stdin"]
    oid = subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip()

    assert oid == object_id("commit", data)
    assert verify(tmp_path / "r", oid, key)
    assert subprocess.run(["git", "-C", str(tmp_path / "r"), "fsck", "--strict"], check=False).returncode == 0


def test_signing_is_deterministic(key: GpgKey) -> None:
    one, other = signing(key), signing(key)
    first = one.commit(TREE, (), who(EARLY), who(EARLY), "a\n")

    assert first == other.commit(TREE, (), who(EARLY), who(EARLY), "a\n")
    assert first != one.commit(TREE, (), who(EARLY), who(EARLY), "b\n")


@pytest.mark.parametrize(("now", "waits"), [(-6, False), (-5, True), (0, True), (0.9, True), (1, False)])
def test_signature_waits_until_gpg_would_not_find_its_clock_right(
    key: GpgKey, monkeypatch: pytest.MonkeyPatch, now: float, waits: bool
) -> None:
    clock = [LATE + now]
    slept = SimpleNamespace(time=lambda: clock[0], sleep=lambda seconds: clock.append(clock.pop() + seconds))
    monkeypatch.setattr(gpg_signing, "time", slept)
    signer = GpgSigner(key.private.encode())

    signer(b"text", LATE)

    assert clock[0] == pytest.approx(LATE + 1 if waits else LATE + now, abs=0.1)


def test_keyring_goes_with_the_signer(key: GpgKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    signer = GpgSigner(key.private.encode())
    assert list(tmp_path.iterdir())

    del signer
    gc.collect()

    assert list(tmp_path.iterdir()) == []


def test_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    locked = make_gpg_key(tmp_path / "home", passphrase="precious")

    with pytest.raises(UnavailableError) as caught:
        signing(locked).check_key()

    assert "without a passphrase" in caught.value.hint


def test_export_of_two_keys_is_refused(tmp_path: Path) -> None:
    two = "".join(make_gpg_key(tmp_path / name).private for name in ("one", "two"))

    with pytest.raises(UnavailableError, match="cannot be used"):
        GpgSigner(two.encode())


def test_public_or_malformed_key_is_refused(key: GpgKey) -> None:
    for data in (key.public.encode(), b"", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"):
        with pytest.raises(UnavailableError) as caught:
            GpgSigner(data)

        assert "cannot be used" in str(caught.value)


def test_missing_program_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))

    with pytest.raises(UnavailableError, match="there is no gpg") as caught:
        GpgSigner(b"key")

    assert "commits.sign: ssh" in caught.value.hint
