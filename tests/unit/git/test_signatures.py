"""Signatures of commits and tags that git makes with real keys, and what is refused."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.git.signatures import _run, commit_fault, tag_fault
from reconciler.policy import VerifyRule
from tests.support.signing import GpgKey, Key, make_gpg_key, make_key, signing_options
from tests.support.world import IDENTITY

NOT_SIGNED = "is not signed"
OTHER = "is not signed by a given key"


class Signed:
    """A repository with commits and tags signed by an SSH key and by a GPG key."""

    def __init__(self, root: Path) -> None:
        self.root = root / "repository"
        self.keys: dict[str, Key | GpgKey] = {
            "ssh": make_key(root / "ssh"),
            "gpg": make_gpg_key(root / "gpg"),
        }
        self.git("init", "-q", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "plain")
        self.git("tag", "-a", "-m", "plain", "web/v0")
        for kind, key in self.keys.items():
            self.git(
                *signing_options(key), "commit", "-q", "-S", "--allow-empty", "-m", f"by {kind}", key=key
            )
            self.git("branch", kind)
            self.git(*signing_options(key), "tag", "-s", "-m", f"by {kind}", f"web/{kind}", key=key)

    def git(self, *arguments: str, key: Key | GpgKey | None = None, stdin: bytes = b"") -> bytes:
        self.root.mkdir(exist_ok=True)
        environment = {**os.environ, **IDENTITY}
        if isinstance(key, GpgKey):
            environment["GNUPGHOME"] = str(key.home)
        command = ["git", *arguments]
        ran = subprocess.run(
            command, cwd=self.root, env=environment, input=stdin, capture_output=True, check=True
        )
        return ran.stdout

    def commit(self, name: str) -> bytes:
        return self.git("cat-file", "commit", name)

    def tag(self, name: str) -> bytes:
        return self.git("cat-file", "tag", name)

    def rule(self, *kinds: str) -> VerifyRule:
        ssh, gpg = self.keys["ssh"], self.keys["gpg"]
        assert isinstance(ssh, Key)
        assert isinstance(gpg, GpgKey)
        public = ssh.private.with_suffix(".pub").read_text().strip()
        return VerifyRule(
            "https://git.example",
            ssh_keys=(public,) if "ssh" in kinds else (),
            gpg_keys=(gpg.public,) if "gpg" in kinds else (),
        )


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signed]:
    # The socket of gpg's agent must have a short path.
    root = tmp_path_factory.mktemp("s")
    yield Signed(root)
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("kind", ["ssh", "gpg"])
def test_commit_and_tag_that_git_signed_are_verified(signed: Signed, kind: str) -> None:
    rule = signed.rule(kind)

    assert commit_fault(signed.commit(kind), rule) == ""
    assert tag_fault(signed.tag(f"web/{kind}"), f"web/{kind}", rule) == ""


@pytest.mark.parametrize("kind", ["ssh", "gpg"])
def test_every_changed_byte_breaks_the_signature(signed: Signed, kind: str) -> None:
    rule = signed.rule(kind)
    commit, tag = signed.commit(kind), signed.tag(f"web/{kind}")

    assert commit_fault(commit.replace(b"by ", b"By "), rule) == OTHER
    assert commit_fault(commit.replace(b"author Kim", b"author Eve"), rule) == OTHER
    assert tag_fault(tag.replace(b"by ", b"By "), f"web/{kind}", rule) == OTHER
    assert tag_fault(tag.replace(b"object ", b"object 0"), f"web/{kind}", rule) == OTHER


def test_key_that_is_not_given_verifies_nothing(signed: Signed, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger").private.with_suffix(".pub").read_text().strip()
    rule = VerifyRule("https://git.example", ssh_keys=(stranger,))

    assert commit_fault(signed.commit("ssh"), rule) == OTHER
    assert commit_fault(signed.commit("gpg"), rule) == "is signed with GPG, and no such key is given"
    assert tag_fault(signed.tag("web/ssh"), "web/ssh", signed.rule("gpg")).startswith("is signed with SSH")


def test_unsigned_commit_and_tag_are_refused(signed: Signed) -> None:
    rule = signed.rule("ssh", "gpg")

    assert commit_fault(signed.commit("web/v0^{commit}"), rule) == NOT_SIGNED
    assert tag_fault(signed.tag("web/v0"), "web/v0", rule) == NOT_SIGNED


def test_signed_tag_vouches_for_its_own_name_only(signed: Signed) -> None:
    assert tag_fault(signed.tag("web/ssh"), "web/v9", signed.rule("ssh")) == "was signed under another name"


def test_signed_tag_of_a_tree_names_no_commit(signed: Signed) -> None:
    key = signed.keys["ssh"]
    signed.git(*signing_options(key), "tag", "-s", "-f", "-m", "tree", "web/tree", "HEAD^{tree}")

    assert tag_fault(signed.tag("web/tree"), "web/tree", signed.rule("ssh")) == "names no commit"


def test_commit_with_two_signatures_is_refused(signed: Signed) -> None:
    head, blank, message = signed.commit("ssh").partition(b"\n\n")
    _, mark, signature = head.partition(b"\ngpgsig ")

    twice = head + mark + signature + blank + message

    assert commit_fault(twice, signed.rule("ssh")) == "has two signatures"


def test_signature_for_another_purpose_than_git_is_refused(signed: Signed, tmp_path: Path) -> None:
    key = signed.keys["ssh"]
    assert isinstance(key, Key)
    unsigned = signed.commit("web/v0^{commit}")
    (tmp_path / "data").write_bytes(unsigned)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key.private), "-n", "file", str(tmp_path / "data")]
    subprocess.run(command, check=True)
    signature = (tmp_path / "data.sig").read_bytes().strip().replace(b"\n", b"\n ")
    head, blank, message = unsigned.partition(b"\n\n")

    assert commit_fault(head + b"\ngpgsig " + signature + blank + message, signed.rule("ssh")) == OTHER


def test_missing_program_verifies_nothing(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, rule = signed.commit("gpg"), signed.rule("gpg")
    monkeypatch.setenv("PATH", "/nowhere")

    assert commit_fault(commit, rule) == ("cannot be verified: there is no gpgv on this machine")


def test_verifier_has_no_environment_but_its_path_and_an_empty_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNUPGHOME", "/elsewhere")
    path = os.environ["PATH"]

    ran = _run(["env"], tmp_path, b"")

    assert (ran.returncode, sorted(ran.stdout.decode().split())) == (
        0,
        ["HOME=" + str(tmp_path), "LC_ALL=C", f"PATH={path}"],
    )
    assert _run(["cat"], tmp_path, b"in").stdout == b"in"
