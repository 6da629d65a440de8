"""GitHub: conformance with its API description, its own replies, and edits of people."""

import os
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from reconciler.base.errors import ConflictError, UnavailableError
from reconciler.forge.api.budget import Budget, Clock
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.github import DOCUMENTS, App, AppToken, GitHub
from reconciler.forge.api.http import StaticToken, Transport
from reconciler.forge.registry import Forges
from reconciler.inventory.inventory import PullRequest
from reconciler.policy import (
    ApprovalPolicy,
    ApprovalRule,
    CredentialRule,
    ForgeKind,
    ForgeRule,
    Policy,
    WriteLimits,
)
from reconciler.run.apply import apply_plan
from reconciler.run.check import check_proposal
from reconciler.run.inputs import RunOptions
from reconciler.run.plan import plan_run
from tests.support.forges.bench import HEADS, NAME, SimulatorBench, simulated
from tests.support.forges.description import VARIABLE, validator
from tests.support.forges.world import forge_world
from tests.support.values import replace


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.split()[1].partition("(")[0])
def test_every_graphql_document_fits_the_public_schema(document: str) -> None:
    check = validator()
    if check is None and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no copy of the public schema (npm: @octokit/graphql-schema)")

    assert check is not None, "the schema is not where the environment says"
    assert check(document) == []
    assert check(document.replace("{", "{ nothing", 1)) != []


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey) -> str:
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none).decode()


def app_forge(bench: SimulatorBench, key: rsa.RSAPrivateKey) -> ApiForge:
    clock = Clock(bench.simulator.clock.now, bench.simulator.clock.sleep)
    token = AppToken(bench.simulator.api, App("12", "34", pem(key)), clock)
    transport = Transport(bench.simulator.api, token, Budget(WriteLimits(max_wait_s=300), clock), clock=clock)
    return ApiForge(GitHub(transport, NAME), transport, "fleet")


def desired(head: str = HEADS["web"], title: str = "Create web") -> PullRequest:
    return PullRequest(head, "main", title, "Why.")


def test_app_token_is_requested_and_renewed(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    with simulated("github", tmp_path) as bench:
        forge = app_forge(bench, key)
        forge.ensure(desired())
        requests = [e for e in bench.simulator.journal if e.path.endswith("/access_tokens")]
        proof = requests[0].authorization.removeprefix("Bearer ")
        options = {"verify_exp": False, "verify_iat": False}
        claims = jwt.decode(proof, key.public_key(), algorithms=["RS256"], options=options)

        assert requests[0].path.endswith("/app/installations/34/access_tokens")
        assert (claims["iss"], claims["exp"] - claims["iat"]) == ("12", 600)
        bench.simulator.clock.sleep(3001)
        forge.list_pulls()
        assert bench.simulator.tokens == 2


@pytest.mark.parametrize("checks", [(), ("build",)])
def test_app_requests_checks_only_for_approval(
    tmp_path: Path, key: rsa.RSAPrivateKey, checks: tuple[str, ...]
) -> None:
    rule = CredentialRule("https://github.com/", app_id="12", installation_id="34", app_key_env="KEY")
    with simulated("github", tmp_path) as bench:
        forge = ForgeRule("https://github.com/", ForgeKind.GITHUB, bench.simulator.api)
        policy = Policy(
            forges=(forge,), credentials=(rule,), approval=ApprovalPolicy((ApprovalRule(checks=checks),))
        )
        forges = Forges(Clock(bench.simulator.clock.now, bench.simulator.clock.sleep))
        forges.configure(policy, lambda _: None, {"KEY": pem(key)})

        forges.app_credential(rule)

        assert ({"checks", "statuses"} <= bench.simulator.permissions.keys()) == bool(checks)


@pytest.mark.parametrize(("dashboard", "issues"), [(False, set()), (True, {"issues"})])
def test_read_only_run_requests_read_permissions(
    tmp_path: Path,
    key: rsa.RSAPrivateKey,
    monkeypatch: pytest.MonkeyPatch,
    dashboard: bool,
    issues: set[str],
) -> None:
    more = f"  pullRequests: {{dashboard: {str(dashboard).lower()}}}\n"
    with forge_world("github", tmp_path / "world", monkeypatch, edges=("edge-1",), more=more) as world:
        path = "reconciler.yaml"
        old = "    username: x-access-token\n    tokenEnv: RECONCILER_TEST_TOKEN\n"
        app = '    appId: "1"\n    installationId: "2"\n    appKeyEnv: RECONCILER_TEST_KEY\n'
        control = world.repo("control")
        control.commit({path: control.read("main", path).decode().replace(old, app)})
        monkeypatch.setenv("RECONCILER_TEST_KEY", pem(key))
        settings = RunOptions(world.control, world.root / "cache")

        plan_run(settings)
        planned = dict(world.simulator.permissions)  # type: ignore[attr-defined]
        check_proposal(settings)
        checked = dict(world.simulator.permissions)  # type: ignore[attr-defined]
        apply_plan(plan_run(settings, to_apply=True))
        applied = dict(world.simulator.permissions)  # type: ignore[attr-defined]

    assert planned == checked
    assert set(planned.values()) == {"read"}
    assert planned.keys() == {"contents", "pull_requests", "metadata"} | issues
    assert applied == {name: "read" if name == "metadata" else "write" for name in planned}


def test_a_token_that_is_revoked_mid_run_is_renewed_once(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    with simulated("github", tmp_path) as bench:
        forge = app_forge(bench, key)
        forge.ensure(desired())
        bench.simulator.plan("401", path="/repos/")
        forge.ensure(desired(HEADS["db"], "Create db"))
        assert bench.simulator.tokens == 2

        bench.simulator.plan("401", path="/repos/", times=50)
        with pytest.raises(UnavailableError):
            forge.list_pulls()
        assert bench.simulator.tokens == 3


@pytest.mark.parametrize(
    "key_text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
)
def test_malformed_app_key_is_refused_and_not_shown(key_text: str) -> None:
    token = AppToken("http://127.0.0.1:1", App("12", "34", key_text))

    with pytest.raises(UnavailableError, match="private key") as caught:
        token.token()

    assert (key_text or "BEGIN") not in str(caught.value)
    assert "BEGIN" not in repr(token.app)


def test_label_marks_draft_without_draft_support(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        bench.simulator.no_drafts = True
        opened = bench.forge.ensure(replace(desired(), labels=("ours",)))
        shown = bench.hosted.pulls[opened.number]

        assert (opened.draft, shown.draft, sorted(shown.labels)) == (True, False, ["draft", "ours"])
        assert bench.again().list_pulls() == (opened,)
        bench.forge.mark_ready(opened.number)

        assert shown.labels == ["ours"]
        assert not bench.again().list_pulls()[0].draft


def test_removing_draft_label_marks_ready(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        bench.simulator.no_drafts = True
        opened = bench.forge.ensure(desired())
        bench.hosted.pulls[opened.number].labels.remove("draft")

        assert not bench.again().list_pulls()[0].draft
        assert not bench.forge.ensure(desired()).draft


def test_a_hundred_and_fifty_pull_requests_are_two_pages(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        for number in range(150):
            bench.simulator.new_pull(
                bench.hosted,
                title=f"{number}",
                body="",
                head=f"drafts/p{number}/w",
                base="main",
                state="closed",
            )

        assert len(bench.forge.list_pulls()) == 150
        assert sum(e.method == "GET" for e in bench.simulator.journal) == 2


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(UnavailableError, match="clear"):
        Transport("http://forge.example/api", StaticToken("t"), Budget(WriteLimits()))


def test_already_merged_head_is_conflict(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        bench.hosted.repo.merge(HEADS["web"])

        with pytest.raises(ConflictError):
            bench.forge.ensure(desired())


def test_our_labels_change_and_those_of_people_stay(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        bench.forge.ensure(replace(desired(), labels=("ours", "old")))
        bench.simulator.pulls(NAME)[0].labels.append("theirs")

        assert bench.again().ensure(replace(desired(), labels=("ours",))).labels == ("ours", "theirs")


def test_comment_of_other_user_with_marker_is_ignored(tmp_path: Path) -> None:
    with simulated("github", tmp_path) as bench:
        number = bench.forge.ensure(desired()).number
        forged = "<!-- reconciler:comment:note -->\nMine."
        bench.simulator.pulls(NAME)[0].comments[7] = (bench.simulator.person, forged)

        bench.forge.comment(number, key="note", body="Ours.")
        bench.again().comment(number, key="note", body="Ours, again.")

        texts = [text for _, text in bench.simulator.pulls(NAME)[0].comments.values()]
        assert texts == [forged, "<!-- reconciler:comment:note -->\nOurs, again."]
