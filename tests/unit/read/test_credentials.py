"""Credentials come from where the configuration points, for whole path segments of the right scheme only."""

from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.git.urls import Credential
from reconciler.policy import CommitPolicy, CredentialRule, Policy
from reconciler.read.forges import (
    CONTROL_KEY,
    CONTROL_KNOWN_HOSTS,
    CONTROL_TOKEN,
    commit_signing,
    control_credential,
    find_credentials,
)
from tests.support.values import replace


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
    assert [commit_signing(CommitPolicy(sign_off=each), {}).sign_off for each in (True, False)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("environment", "credential"),
    [
        ({}, None),
        ({CONTROL_TOKEN: ""}, None),
        ({CONTROL_TOKEN: "t0k"}, Credential("", "t0k")),
        ({CONTROL_KEY: "/nowhere/key"}, Credential("", "", Path("/nowhere/key"))),
        ({CONTROL_KNOWN_HOSTS: "/hosts"}, Credential("", "", None, Path("/hosts"))),
    ],
)
def test_control_repository_has_its_credential_in_the_environment(environment, credential) -> None:
    find = control_credential(environment)

    assert [find("https://host/a"), find("/srv/b")] == [credential] * 2


SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n"


def test_every_credential_that_is_in_use_is_masked(tmp_path: Path) -> None:
    keys = [tmp_path / name for name in ("control", "rule")]
    for key in keys:
        key.write_text(SECRET.format(f"line-of-the-{key.name}-key"))
    (tmp_path / "token").write_text("token-in-a-file")
    control_credential({CONTROL_TOKEN: "token-of-control", CONTROL_KEY: str(keys[0])})
    find("ssh://git@host/a", CredentialRule("ssh://git@host", ssh_key_file=str(keys[1])))
    find("https://host/acme/a.git", BY_VARIABLE, TOKEN="token-in-a-variable")
    find("https://host/a", CredentialRule("https://host", token_file=str(tmp_path / "token")))

    secrets = (
        "token-of-control line-of-the-control-key line-of-the-rule-key token-in-a-variable token-in-a-file"
    )
    assert mask_credentials(secrets) == "*** *** *** *** ***"


def test_key_has_the_user_and_the_known_hosts_of_its_rule(tmp_path: Path) -> None:
    rule = CredentialRule(
        "ssh://git@host", "kim", ssh_key_file="/k", known_hosts_file=str(tmp_path / "hosts")
    )

    assert find("ssh://git@host/a", rule) == Credential("kim", "", Path("/k"), tmp_path / "hosts")


@pytest.mark.parametrize(
    ("rule", "content", "why"),
    [
        (CredentialRule("https://host", token_env="TOKEN"), None, "environment variable TOKEN is not set"),
        (CredentialRule("https://host", token_file="{file}"), None,
            "file {file} cannot be read: No such file or directory"),
        (CredentialRule("https://host", token_file="{file}"), b"\xff",
            "file {file} cannot be read: it is no text"),
        (CredentialRule("https://host", token_file="{file}"), b" \n", "file {file} is empty"),
    ],
)  # fmt: skip
def test_missing_credential_names_its_rule_and_the_reason(tmp_path: Path, rule, content, why) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    rule = replace(rule, token_file=rule.token_file.format(file=file))

    with pytest.raises(UnavailableError) as caught:
        find("https://host/a", rule)

    assert str(caught.value) == f"The credential for https://host is missing: {why.format(file=file)}"
    assert caught.value.hint == "Set it, or correct spec.credentials of reconciler.yaml."


def test_longest_rule_counts_and_an_app_makes_its_own_credential() -> None:
    app = CredentialRule("https://host/app", app_id=7)
    rules = (CredentialRule("https://host", "bot", token_env="TOKEN"), app)
    lookup = find_credentials(
        Policy(credentials=rules), {"TOKEN": "t0k"}, lambda rule: Credential("app", str(rule.app_id))
    )

    assert lookup("https://host/app/a") == Credential("app", "7")
    assert lookup("https://host/a") == Credential("bot", "t0k")
    assert lookup("https://other/a") is None


HINT = "Set it, or correct spec.commits of reconciler.yaml."


@pytest.mark.parametrize(
    ("policy", "environment", "why"),
    [
        (CommitPolicy(sign="ssh", signing_key_env="KEY"), {}, "environment variable KEY is not set"),
        (CommitPolicy(sign="ssh", signing_key_env="KEY"), {"KEY": ""},
            "environment variable KEY is not set"),
        (CommitPolicy(sign="ssh", signing_key_file="/nowhere/key"), {},
            "file /nowhere/key cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_missing_key_of_signatures_is_named(policy, environment, why) -> None:
    read = commit_signing(policy, environment).read_key
    assert read is not None
    with pytest.raises(UnavailableError) as caught:
        read()

    assert (str(caught.value), caught.value.hint) == (f"Commits cannot be signed: {why}", HINT)
