"""Signatures of tags that git makes with real keys, and what is refused."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.git.signing import tag_fault
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
def test_tag_that_git_signed_is_verified(signed: Signed, kind: str) -> None:
    assert tag_fault(signed.tag(f"web/{kind}"), f"web/{kind}", signed.rule(kind)) == ""


@pytest.mark.parametrize("kind", ["ssh", "gpg"])
def test_every_changed_byte_breaks_the_signature(signed: Signed, kind: str) -> None:
    rule, tag = signed.rule(kind), signed.tag(f"web/{kind}")

    assert tag_fault(tag.replace(b"by ", b"By "), f"web/{kind}", rule) == OTHER
    assert tag_fault(tag.replace(b"object ", b"object 0"), f"web/{kind}", rule) == OTHER
    renamed = tag.replace(f"tag web/{kind}".encode(), b"tag web/v9")
    assert tag_fault(renamed, "web/v9", rule) == OTHER
    assert tag_fault(tag.replace(b"\ntagger", b"\ntag web/v9\ntagger"), "web/v9", rule) == OTHER


def test_key_that_is_not_given_verifies_nothing(signed: Signed, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger").private.with_suffix(".pub").read_text().strip()
    rule = VerifyRule("https://git.example", ssh_keys=(stranger,))

    assert tag_fault(signed.tag("web/ssh"), "web/ssh", rule) == OTHER
    assert tag_fault(signed.tag("web/gpg"), "web/gpg", rule) == "is signed with GPG, and no such key is given"
    assert tag_fault(signed.tag("web/ssh"), "web/ssh", signed.rule("gpg")).startswith("is signed with SSH")


def test_unsigned_tag_is_refused(signed: Signed) -> None:
    assert tag_fault(signed.tag("web/v0"), "web/v0", signed.rule("ssh", "gpg")) == NOT_SIGNED


@pytest.mark.parametrize("name", ["web/v9", "web/SSH", "web/ssh ", "ssh", "web/ssh\ntagger x", ""])
def test_signed_tag_vouches_for_its_own_name_only(signed: Signed, name: str) -> None:
    assert tag_fault(signed.tag("web/ssh"), name, signed.rule("ssh")) == "was signed under another name"


@pytest.mark.parametrize("target", ["HEAD^{tree}", "web/v0", "HEAD:file"])
def test_signed_tag_of_anything_but_a_commit_is_refused(signed: Signed, target: str) -> None:
    key = signed.keys["ssh"]
    (signed.root / "file").write_text("x")
    signed.git("add", "file")
    signed.git("commit", "-q", "--allow-empty", "-m", "file")
    signed.git(*signing_options(key), "tag", "-s", "-f", "-m", "odd", "web/odd", target)

    assert tag_fault(signed.tag("web/odd"), "web/odd", signed.rule("ssh")) == "names no commit"


def sign_text(signed: Signed, text: bytes, folder: Path, namespace: str = "git") -> bytes:
    """Return a text with the signature that a key makes of it, as if it were a tag."""
    key = signed.keys["ssh"]
    assert isinstance(key, Key)
    (folder / "data").write_bytes(text)
    command = [
        "ssh-keygen",
        "-q",
        "-Y",
        "sign",
        "-f",
        str(key.private),
        "-n",
        namespace,
        str(folder / "data"),
    ]
    subprocess.run(command, check=True)
    return text + (folder / "data.sig").read_bytes()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"object %b\ntype commit\ntag web/v1\ntagger K <k@x> 1 +0000\n\nx\n", ""),
        (b"object %b\ntype commit\ntag web/v1\ntag web/v2\ntagger K <k@x> 1 +0000\n\nx\n", "has two names"),
        (b"object %b\ntype commit\ntagger K <k@x> 1 +0000\ntag web/v1\n\nx\n",
            "was signed under another name"),
        (b"object %b\ntype commit\n\ntag web/v1\n", "was signed under another name"),
        (b"tree %b\nauthor K <k@x> 1 +0000\ntag web/v1\n\ntype commit\n", "names no commit"),
        (b"certificate version 0.1\npusher K\ntag web/v1\ntype commit\n\n", "names no commit"),
        (b"", "names no commit"),
    ],
)  # fmt: skip
def test_signed_text_that_is_no_tag_of_one_name_is_refused(
    signed: Signed, tmp_path: Path, text: bytes, fault: str
) -> None:
    data = text % (b"1" * 40) if b"%b" in text else text

    assert tag_fault(sign_text(signed, data, tmp_path), "web/v1", signed.rule("ssh")) == fault


def test_signature_for_another_purpose_than_git_is_refused(signed: Signed, tmp_path: Path) -> None:
    tag = sign_text(signed, signed.tag("web/v0"), tmp_path, "file")

    assert tag_fault(tag, "web/v0", signed.rule("ssh")) == OTHER


def test_missing_program_verifies_nothing(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    tag, rule = signed.tag("web/gpg"), signed.rule("gpg")
    monkeypatch.setenv("PATH", "/nowhere")

    assert tag_fault(tag, "web/gpg", rule) == "cannot be verified: there is no gpgv on this machine"


def test_verifier_has_no_environment_but_its_path_and_an_empty_home(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh-keygen"
    program.write_text(f"#!/bin/sh\n/usr/bin/env >{tmp_path}/environment\n/bin/cat >{tmp_path}/input\n")
    program.chmod(0o755)
    monkeypatch.setenv("GNUPGHOME", "/elsewhere")
    tag = signed.tag("web/ssh")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert tag_fault(tag, "web/ssh", signed.rule("ssh")) == ""

    seen = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines())
    assert seen.keys() - {"PWD", "_", "SHLVL", "OLDPWD"} == {"HOME", "LC_ALL", "PATH"}
    assert (seen["PATH"], seen["LC_ALL"], Path(seen["HOME"]).exists()) == (str(tmp_path), "C", False)
    assert tag.startswith((tmp_path / "input").read_bytes())


def gpg(home: Path, *arguments: str) -> str:
    command = [
        "gpg",
        "--homedir",
        str(home),
        "--batch",
        "--yes",
        "--passphrase",
        "",
        "--pinentry-mode",
        "loopback",
    ]
    return subprocess.run([*command, *arguments], capture_output=True, check=True, text=True).stdout


def test_key_that_has_expired_or_was_revoked_verifies_nothing(
    signed: Signed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("g")
    key = make_gpg_key(root / "k", created=978_307_200)
    signed.git(*signing_options(key), "tag", "-s", "-f", "-m", "x", "web/key", key=key)
    tag = signed.tag("web/key")

    def fault() -> str:
        rule = VerifyRule("https://git.example", gpg_keys=(gpg(key.home, "--armor", "--export"),))
        return tag_fault(tag, "web/key", rule)

    assert fault() == ""
    gpg(key.home, "--faked-system-time", "20010102T000000!", "--quick-set-expire", key.id, "seconds=86400")
    assert fault() == OTHER
    gpg(key.home, "--quick-set-expire", key.id, "0")
    assert fault() == ""
    revocation = (
        (key.home / f"openpgp-revocs.d/{key.id}.rev").read_text().replace(":-----BEGIN", "-----BEGIN")
    )
    (root / "revocation").write_text(revocation)
    gpg(key.home, "--import", str(root / "revocation"))
    assert fault() == OTHER
    shutil.rmtree(root, ignore_errors=True)
