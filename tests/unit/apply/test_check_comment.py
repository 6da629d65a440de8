"""The forge that a check's comment is sent to: the configured one, else that of the runner's own host."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply import dashboard
from reconciler.apply.dashboard import write_check_comment
from reconciler.git.urls import Credential
from reconciler.policy import ForgeKind, ForgeRule, Policy

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
