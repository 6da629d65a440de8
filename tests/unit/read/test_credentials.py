"""Credentials come from where the configuration points, for whole path segments of the right scheme only."""

from pathlib import Path

import pytest

from reconciler.errors import UnavailableError
from reconciler.git.urls import Credential
from reconciler.policy import CommitPolicy, CredentialRule, Policy
from reconciler.read.credentials import commit_signing, find_credentials


def find(remote: str, *rules: CredentialRule, **environment: str) -> Credential | None:
    return find_credentials(Policy(credentials=rules), environment)(remote)


BY_VARIABLE = CredentialRule("https://host/acme", "bot", token_env="TOKEN")


def test_token_is_read_from_a_variable() -> None:
    assert find("https://host/acme/a.git", BY_VARIABLE, TOKEN="t0k") == Credential("bot", "t0k")


@pytest.mark.parametrize(
    "remote", ["https://host/acme-evil/a", "http://host/acme/a", "https://other/acme/a", "/acme"]
)
def test_other_addresses_have_no_credential(remote: str) -> None:
    assert find(remote, BY_VARIABLE, TOKEN="t0k") is None


def test_token_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0k\n")
    rule = CredentialRule("https://host", token_file=str(tmp_path / "token"))

    assert find("https://host/a", rule) == Credential("", "t0k")


def test_ssh_key_is_passed_as_path(tmp_path: Path) -> None:
    rule = CredentialRule("ssh://git@host", ssh_key_file=str(tmp_path / "key"))

    assert find("ssh://git@host/a", rule) == Credential("", ssh_key=tmp_path / "key")


@pytest.mark.parametrize(
    "rule",
    [BY_VARIABLE, CredentialRule("https://host", token_file="/nowhere/token")],
    ids=["variable", "file"],
)
def test_missing_credential_is_an_error_without_the_secret(rule: CredentialRule) -> None:
    with pytest.raises(UnavailableError) as caught:
        find("https://host/acme/a", rule, TOKEN="")

    assert (rule.token_env or rule.token_file) in str(caught.value)


def test_signing_key_is_read_on_first_use(tmp_path: Path) -> None:
    file = tmp_path / "key"
    by_file = commit_signing(CommitPolicy(sign="ssh", signing_key_file=str(file)), {})
    by_variable = commit_signing(
        CommitPolicy(sign="ssh", signing_key_env="KEY", sign_off=True), {"KEY": "from here"}
    )
    file.write_bytes(b"from there")

    assert by_file.read_key is not None
    assert by_variable.read_key is not None
    assert (by_file.read_key(), by_file.sign_off) == (b"from there", False)
    assert (by_variable.read_key(), by_variable.sign_off) == (b"from here", True)
    assert commit_signing(CommitPolicy(), {}).read_key is None


@pytest.mark.parametrize(
    "policy",
    [
        CommitPolicy(sign="ssh", signing_key_env="SIGNING_KEY"),
        CommitPolicy(sign="ssh", signing_key_file="/nowhere/key"),
    ],
    ids=["variable", "file"],
)
@pytest.mark.parametrize("environment", [{}, {"SIGNING_KEY": ""}], ids=["unset", "empty"])
def test_missing_signing_key_is_an_error(policy: CommitPolicy, environment: dict[str, str]) -> None:
    read = commit_signing(policy, environment).read_key

    assert read is not None
    with pytest.raises(UnavailableError) as caught:
        read()

    assert (policy.signing_key_env or policy.signing_key_file) in str(caught.value)
