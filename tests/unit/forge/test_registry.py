"""The forges of a run: which repositories share a connection, a budget and a token."""

from pathlib import Path

import pytest

from reconciler.forge.api_forge import ApiForge
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirrors
from reconciler.git.urls import Credential
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, Policy
from tests.support.forges.scripted import ScriptedApi

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
