"""The forge that a check's comment is sent to: the configured one, else that of the runner's own host."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply import dashboard
from reconciler.apply.dashboard import KEY, write_check_comment
from reconciler.git.urls import Credential
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, Policy
from reconciler.read.forges import CONTROL_TOKEN
from tests.unit.apply.world import Edge

REMOTE = "https://forge.example/acme/control.git"
RUNNER = {"GITHUB_SERVER_URL": "https://forge.example", "GITHUB_API_URL": "https://forge.example/api/v1"}
OTHER = ForgeRule("https://other.example", ForgeKind.GITLAB, "https://other.example/api")


class Recording:
    """Forges that take a comment and remember how they were configured."""

    app_credential = None
    policy: Policy
    find: Callable[[str], Credential | None]

    def configure(self, policy: Policy, find: Any, _: object) -> None:
        type(self).policy, type(self).find = policy, staticmethod(find)

    def of(self, _: object) -> Any:
        return SimpleNamespace(comment=lambda *_, **__: None)


@pytest.fixture
def forges(monkeypatch: pytest.MonkeyPatch) -> type[Recording]:
    monkeypatch.setattr(dashboard, "Forges", Recording)
    return Recording


def commented(policy: Policy, environment: dict[str, str], *, is_local: bool = False) -> None:
    control = cast("Any", SimpleNamespace(remote=REMOTE, is_local=is_local))
    assert write_check_comment(control, policy, environment, 1, "One") == ""


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        (RUNNER, ForgeKind.GITHUB),
        ({**RUNNER, "GITEA_ACTIONS": "true"}, ForgeKind.GITEA),
        ({**RUNNER, "FORGEJO_ACTIONS": "true"}, ForgeKind.GITEA),
        ({**RUNNER, "GITEA_ACTIONS": "false"}, ForgeKind.GITHUB),
        ({**RUNNER, "GITHUB_SERVER_URL": ""}, None),
        ({"GITHUB_SERVER_URL": RUNNER["GITHUB_SERVER_URL"]}, None),
        ({"GITHUB_API_URL": RUNNER["GITHUB_API_URL"]}, None),
        ({**RUNNER, "GITHUB_SERVER_URL": "https://elsewhere.example"}, None),
        ({}, None),
    ],
)
def test_runner_adds_the_forge_of_its_own_host(
    forges: type[Recording], environment: dict[str, str], kind: ForgeKind | None
) -> None:
    commented(Policy(forges=(OTHER,)), environment)

    expected = (ForgeRule("https://forge.example", kind, RUNNER["GITHUB_API_URL"]),) if kind else ()
    assert forges.policy.forges == (OTHER, *expected)


@pytest.mark.parametrize(("is_local", "is_configured"), [(True, False), (False, True), (True, True)])
def test_local_repositories_and_configured_forges_are_left_as_they_are(
    forges: type[Recording], is_local: bool, is_configured: bool
) -> None:
    rule = ForgeRule("https://forge.example/acme", ForgeKind.GITEA, "https://api.example")
    policy = Policy(forges=(OTHER, rule) if is_configured else (OTHER,))

    commented(policy, RUNNER, is_local=is_local)

    assert forges.policy == policy


@pytest.mark.parametrize(
    ("environment", "tokens"),
    [
        ({"NAMED": "named", CONTROL_TOKEN: "own"}, ("named", "own")),
        ({"NAMED": "named"}, ("named", None)),
        ({CONTROL_TOKEN: "own"}, ("own", "own")),  # a check of pull requests has no secret
    ],
)
def test_configured_credential_comes_before_that_of_the_control_repository(
    forges: type[Recording], environment: dict[str, str], tokens: tuple[str | None, ...]
) -> None:
    rule = CredentialRule("https://forge.example", token_env="NAMED")
    found = []
    for policy in (Policy(credentials=(rule,)), Policy()):
        commented(policy, environment)
        found.append(forges.find(REMOTE))

    assert found == [token and Credential("", token) for token in tokens]


def test_comment_is_written_to_the_pull_request_or_the_reason_is_returned(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    edge.apply(edge.created())
    pull = "refs/reconciler/pulls/1"

    assert write_check_comment(edge.mirror(), Policy(), {}, 1, "One") == ""
    first = edge.repo.read(pull, "pull.json")
    assert write_check_comment(edge.mirror(), Policy(), {}, 1, "Two") == ""

    assert json.loads(first)["comments"] == {KEY: "One"}
    assert json.loads(edge.repo.read(pull, "pull.json"))["comments"] == {KEY: "Two"}
    reason = write_check_comment(edge.mirror(), Policy(), {}, 9, "Three")
    assert reason == f"There is no pull request 9 in {edge.repo.path}"


def test_missing_credential_is_the_reason_and_nothing_is_sent() -> None:
    control = cast("Any", SimpleNamespace(remote=REMOTE, url="forge.example/acme/control", is_local=False))
    named = Policy(credentials=(CredentialRule("https://forge.example", token_env="NAMED"),))

    reason = write_check_comment(control, named, RUNNER, 1, "One")

    expected = "The credential for https://forge.example is missing: environment variable NAMED is not set"
    assert reason == expected
