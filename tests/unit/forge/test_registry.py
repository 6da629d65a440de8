"""The forges of a run: which repositories share a connection, a budget and a token."""

from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from reconciler.base.errors import UnavailableError
from reconciler.forge.api import github
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.github import App
from reconciler.forge.registry import Forges, default_api
from reconciler.git.repository import Mirrors
from reconciler.git.urls import Credential, normalise_url
from reconciler.http.client import Clock
from reconciler.inventory.shard import Shard
from reconciler.policy import (
    ApprovalPolicy,
    ApprovalRule,
    CredentialRule,
    ForgeKind,
    ForgeRule,
    Policy,
    PullRequestPolicy,
)
from tests.support.forges.scripted import ScriptedApi
from tests.support.values import replace

SITE = "http://forge.example"
TOKENS = {f"{SITE}/red/": "token-of-red", f"{SITE}/blue/": "token-of-blue", f"{SITE}/": "token-of-all"}


def forges(api: ScriptedApi, *prefixes: str) -> Forges:
    rules = tuple(CredentialRule(prefix, token_env="UNUSED") for prefix in prefixes)
    policy = Policy(forges=(ForgeRule(f"{SITE}/", ForgeKind.GITEA, api.api),), credentials=rules)

    def find_credential(url: str) -> Credential:
        best = max((p for p in prefixes if url.startswith(p)), key=len, default="")
        return Credential("", TOKENS.get(best, ""))

    made = Forges()
    made.configure(policy, find_credential, {})
    return made


def forge_of(made: Forges, root: Path, name: str) -> ApiForge:
    forge = made.of(Mirrors(root).open(f"{SITE}/{name}.git"))
    assert isinstance(forge, ApiForge)
    return forge


def test_each_credential_of_an_api_sends_its_own_token(api: ScriptedApi, tmp_path: Path) -> None:
    made = forges(api, *TOKENS)

    for name in ("red/a", "blue/a", "green/a", "red/b"):
        forge_of(made, tmp_path, name).transport.get(f"/repos/{name}")

    sent = {entry.path.removeprefix("/api/repos/"): entry.authorization for entry in api.journal}
    assert sent == {
        "red/a": "Bearer token-of-red",
        "red/b": "Bearer token-of-red",
        "blue/a": "Bearer token-of-blue",
        "green/a": "Bearer token-of-all",
    }


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("red/a", "red/b", True),
        ("green/a", "grey/a", True),
        ("red/a", "blue/a", False),
        ("red/a", "x/a", False),
    ],
)
def test_repositories_of_a_credential_share_a_budget(
    api: ScriptedApi, tmp_path: Path, first: str, second: str, is_shared: bool
) -> None:
    made = forges(api, *TOKENS)

    one, other = (forge_of(made, tmp_path, name).transport for name in (first, second))

    assert (one is other) is is_shared
    assert (one.budget is other.budget) is is_shared


REMOTE = "https://forge.example/acme/edge.git"
RULE = ForgeRule("https://forge.example/acme", ForgeKind.GITHUB)


def configured(
    *rules: ForgeRule, credential: Credential | None = None, policy: Policy | None = None, **options: Any
) -> Forges:
    made = Forges(**options)
    made.configure(replace(policy or Policy(), forges=rules), lambda _: credential, {})
    return made


@pytest.mark.parametrize(
    ("kind", "api"), [(ForgeKind.GITHUB, "api/v3"), (ForgeKind.GITLAB, "api/v4"), (ForgeKind.GITEA, "api/v1")]
)
def test_api_of_a_forge_on_this_machine_is_reached_as_its_repositories_are(
    tmp_path: Path, kind: ForgeKind, api: str
) -> None:
    remote = "http://localhost:3000/acme/edge.git"
    forge = configured(ForgeRule("http://localhost:3000/acme", kind)).of(Mirrors(tmp_path).open(remote))

    assert isinstance(forge, ApiForge)
    assert forge.transport.base == f"http://localhost:3000/{api}"


def test_api_beyond_this_machine_is_reached_in_the_clear_by_no_rule() -> None:
    assert default_api(ForgeKind.GITEA, "forge.example", "http://forge.example/acme").startswith("https://")


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each client of HTTP that is made."""
    made, client = list[dict[str, Any]](), httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **options: made.append(options) or client(**options))
    return made


@pytest.mark.parametrize(
    ("kind", "is_told"), [(ForgeKind.GITHUB, True), (ForgeKind.GITLAB, False), (ForgeKind.GITEA, False)]
)
def test_github_is_told_the_version_of_its_api(
    clients: list[dict[str, Any]], tmp_path: Path, kind: ForgeKind, is_told: bool
) -> None:
    forge = configured(ForgeRule("https://forge.example", kind)).of(Mirrors(tmp_path).open(REMOTE))

    assert isinstance(forge, ApiForge)
    assert ("X-GitHub-Api-Version" in clients[0]["headers"]) is is_told


LIMITS = PullRequestPolicy(writes_per_minute=9, writes_per_hour=90)


def test_shard_has_its_part_of_the_budget_and_every_forge_the_clock_of_the_run(
    clients: list[dict[str, Any]], tmp_path: Path
) -> None:
    clock = Clock(lambda: 5.0, lambda _: None)
    made = configured(
        RULE, policy=Policy(pull_requests=LIMITS), clock=clock, shard=Shard(1, 3), timeout_s=7.0
    )

    forge = made.of(Mirrors(tmp_path).open(REMOTE))

    assert isinstance(forge, ApiForge)
    transport = forge.transport
    assert (transport.budget.limits.per_minute, transport.budget.limits.per_hour) == (3, 30)
    assert transport.clock is transport.budget.clock is clock
    assert clients[0]["timeout"] == 7.0


def test_repository_that_cannot_be_read_for_want_of_a_credential_is_no_error() -> None:
    def missing(_: str) -> Credential:
        raise UnavailableError("missing")

    made = Forges()
    made.configure(Policy(forges=(RULE,)), missing, {})

    made.mark_unread(REMOTE, normalise_url(REMOTE))


class Issued(NamedTuple):
    """A source of tokens as it was made."""

    api: str
    app: App
    clock: Clock
    permissions: dict[str, str]

    def token(self) -> str:
        return "first"


@pytest.fixture
def issued(monkeypatch: pytest.MonkeyPatch) -> list[Issued]:
    made: list[Issued] = []
    monkeypatch.setattr(github, "AppToken", lambda *given: made.append(Issued(*given)) or made[-1])
    return made


APP = CredentialRule("https://forge.example/", app_id="12", installation_id="34", app_key_env="KEY")
AUTO = ApprovalPolicy((ApprovalRule(), ApprovalRule(checks=("ci",))))
BASE = {"contents": "write", "pull_requests": "write", "metadata": "read"}
READS = dict.fromkeys(BASE, "read")
DASHBOARD = Policy(pull_requests=PullRequestPolicy(dashboard=True))
STATUS = Policy(pull_requests=PullRequestPolicy(status=True))


@pytest.mark.parametrize(
    ("writes", "policy", "permissions"),
    [
        (True, Policy(), BASE),
        (False, Policy(), READS),
        (True, Policy(approval=AUTO), BASE | {"checks": "read", "statuses": "read"}),
        (True, DASHBOARD, BASE | {"issues": "write"}),
        (False, DASHBOARD, READS | {"issues": "read"}),
        (True, STATUS, BASE | {"statuses": "write"}),
        (False, STATUS, READS),
    ],
)
def test_app_asks_for_the_permissions_that_the_run_needs(
    issued: list[Issued], writes: bool, policy: Policy, permissions: dict[str, str]
) -> None:
    made = Forges(writes=writes)
    made.configure(policy, lambda _: None, {"KEY": "pem"})

    assert made.app_credential(APP) == made.app_credential(APP) == Credential("x-access-token", "first")
    assert issued == [Issued("https://forge.example/api/v3", App("12", "34", "pem"), made.clock, permissions)]


PROXY = "https://proxy.example"


@pytest.mark.parametrize(
    ("rules", "api"),
    [
        ((), "https://api.github.com"),
        ((ForgeRule("https://github.com", ForgeKind.GITHUB, PROXY),), PROXY),
        ((ForgeRule("https://github.com/acme", ForgeKind.GITHUB),), "https://api.github.com"),
        ((ForgeRule("https://github.com/other", ForgeKind.GITHUB, PROXY),), "https://api.github.com"),
    ],
)
def test_token_of_an_app_comes_from_the_api_of_its_forge(
    issued: list[Issued], rules: tuple[ForgeRule, ...], api: str
) -> None:
    made = Forges()
    made.configure(Policy(forges=rules), lambda _: None, {"KEY": "pem"})

    made.app_credential(replace(APP, prefix="https://github.com/acme"))

    assert issued[0].api == api


def test_app_is_the_authorization_of_its_repositories(issued: list[Issued], tmp_path: Path) -> None:
    made = Forges()
    made.configure(Policy(forges=(RULE,), credentials=(APP,)), lambda _: None, {"KEY": "pem"})

    forge = made.of(Mirrors(tmp_path).open(REMOTE))

    assert isinstance(forge, ApiForge)
    assert [forge.transport.auth] == issued


BY_FILE = replace(APP, app_key_env="", app_key_file="{file}")


@pytest.mark.parametrize(
    ("rule", "key", "content", "error"),
    [
        (BY_FILE, "", b"pem", ""),
        (BY_FILE, "", b"\xff", "{file} cannot be read: it is no text"),
        (BY_FILE, "", None, "{file} cannot be read: No such file or directory"),
        (APP, "pem", None, ""),
        (APP, "", None, "KEY is not set"),
    ],
)
def test_key_of_an_app_is_read_from_its_file_or_variable(
    issued: list[Issued], tmp_path: Path, *, rule: CredentialRule, key: str, content: bytes | None, error: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    made = Forges()
    made.configure(Policy(), lambda _: None, {"KEY": key})

    if not error:
        made.app_credential(replace(rule, app_key_file=rule.app_key_file.format(file=file)))
        assert issued[0].app == App("12", "34", "pem")
        return
    with pytest.raises(UnavailableError) as caught:
        made.app_credential(replace(rule, app_key_file=rule.app_key_file.format(file=file)))
    assert str(caught.value) == f"The key of App 12 is missing: {error.format(file=file)}"
    hint = (
        "Set KEY to the private key of the App." if rule is APP else "Check appKeyFile of the credentials, "
    )
    assert caught.value.hint.startswith(hint)
