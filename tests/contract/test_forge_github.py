"""GitHub: conformance with its API description, its own replies, and edits of people."""

import os
from pathlib import Path

import pytest

from reconciler.forge.api.github import DOCUMENTS
from reconciler.inventory.inventory import PullRequest
from reconciler.run.apply import apply_plan
from reconciler.run.check import check_proposal
from reconciler.run.plan import RunOptions, plan_run
from tests.support.ci import lacking
from tests.support.forges.bench import HEADS, simulated
from tests.support.forges.description import VARIABLE, validator
from tests.support.forges.world import forge_world
from tests.support.signing import app_pem
from tests.support.values import replace


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.split()[1].partition("(")[0])
def test_every_graphql_document_fits_the_public_schema(document: str) -> None:
    check = validator()
    if check is None and not os.environ.get(VARIABLE):
        lacking(f"needs the public schema in {VARIABLE} (npm: @octokit/graphql-schema)")

    assert check is not None, "the schema is not where the environment says"
    assert check(document) == []
    assert check(document.replace("{", "{ nothing", 1)) != []


def desired(head: str = HEADS["web"], title: str = "Create web") -> PullRequest:
    return PullRequest(head, "main", title, "Why.")


@pytest.mark.parametrize(("dashboard", "issues"), [(False, set()), (True, {"issues"})])
def test_read_only_run_requests_read_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dashboard: bool, issues: set[str]
) -> None:
    more = f"  pullRequests: {{dashboard: {str(dashboard).lower()}}}\n"
    with forge_world("github", tmp_path / "world", monkeypatch, edges=("edge-1",), more=more) as world:
        path = "reconciler.yaml"
        old = "    username: x-access-token\n    tokenEnv: RECONCILER_TEST_TOKEN\n"
        app = '    appId: "1"\n    installationId: "2"\n    appKeyEnv: RECONCILER_TEST_KEY\n'
        control = world.repo("control")
        control.commit({path: control.read("main", path).decode().replace(old, app)})
        monkeypatch.setenv("RECONCILER_TEST_KEY", app_pem())
        settings = RunOptions(world.control, world.root / "cache")

        plan_run(settings)
        planned = dict(world.simulator.permissions)  # type: ignore[attr-defined]
        control.commit({"notes.md": "Proposed."}, branch="proposed", start="main")
        check_proposal(settings, head="proposed")
        checked = dict(world.simulator.permissions)  # type: ignore[attr-defined]
        apply_plan(plan_run(settings, to_apply=True))
        applied = dict(world.simulator.permissions)  # type: ignore[attr-defined]

    assert planned == checked
    assert set(planned.values()) == {"read"}
    assert planned.keys() == {"contents", "pull_requests", "metadata"} | issues
    assert applied == {name: "read" if name == "metadata" else "write" for name in planned}


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
