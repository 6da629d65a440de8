"""What forges refuse: writes where a repository is archived or a permission missing, protected merges."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.plan.changes import Op
from tests.support.forges.bench import DIALECTS, HEADS, SimulatorBench, simulated
from tests.support.forges.world import Make, Serve
from tests.support.values import replace

WEB = HEADS["web"]
TWO = ["edge-1", "edge-2"]
REFUSED = {
    ("github", "archived"): "Repository was archived so is read-only",
    ("github", "permission"): "Resource not accessible by integration",
    ("gitlab", "archived"): "403 Forbidden",
    ("gitlab", "permission"): "insufficient_scope; The request requires higher privileges",
    ("bitbucket", "archived"): "acme/edge is read-only",
    ("bitbucket", "permission"): "lack one or more required privilege scopes",
    ("azure", "archived"): "acme/edge is disabled",
    ("azure", "permission"): "You need the Git 'PullRequestContribute' permission",
    ("gitea", "archived"): "423 acme/edge is archived",
    ("gitea", "permission"): r"required scope\(s\), required=\[write:repository\]",
}
UNMERGED = {
    ("github", "review"): "At least 1 approving review is required",
    ("github", "person"): "You're not authorized to push to this branch",
    ("github", "check"): r"Required status check .*ci/build.* is expected",
    ("gitlab", "review"): r"405 Method Not Allowed \(not_approved\)",
    ("gitlab", "person"): "401 Unauthorized",
    ("gitlab", "check"): r"405 Method Not Allowed \(ci_must_pass\)",
    ("bitbucket", "review"): "Merge checks failed: 1 approval",
    ("bitbucket", "person"): "You do not have permission to merge",
    ("bitbucket", "check"): "Merge checks failed: 1 successful build",
    ("azure", "review"): "Policies are not met: Minimum number of reviewers",
    ("azure", "person"): "Policies are not met: Required reviewers",
    ("azure", "check"): "Policies are not met: Status check",
    ("gitea", "review"): "Does not have enough approvals",
    ("gitea", "person"): "User not allowed to merge PR",
    ("gitea", "check"): "not all required status checks successful",
}


@pytest.fixture(params=list(DIALECTS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimulatorBench]:
    with simulated(request.param, tmp_path) as made:
        yield made


def desired(head: str = WEB) -> PullRequest:
    return PullRequest(head=head, base="main", title=f"Create {head}", body="Why.", draft=True)


def forbid(bench: SimulatorBench, why: str) -> None:
    bench.hosted.archived = why == "archived"
    bench.simulator.may_write = why != "permission"


def protect(bench: SimulatorBench, why: str) -> None:
    bench.hosted.required = ("ci/build",) if why == "check" else ()
    bench.hosted.refuses_merge = why.removeprefix("check")


@pytest.mark.parametrize("why", ["archived", "permission"])
def test_writes_are_refused_in_the_words_of_the_forge(bench: SimulatorBench, why: str) -> None:
    forbid(bench, why)

    with pytest.raises(RefusedError, match=REFUSED[bench.kind, why]) as raised:
        bench.forge.ensure(desired())

    assert raised.value.exit_code is Exit.REFUSED
    assert "permissions" in raised.value.hint
    assert "archived" in raised.value.hint
    forbid(bench, "")
    assert bench.again().ensure(desired()).state is PullState.OPEN


@pytest.mark.parametrize("why", ["review", "person", "check"])
def test_protected_branch_refuses_a_merge_and_the_draft_stays_ready(bench: SimulatorBench, why: str) -> None:
    pull = bench.forge.ensure(desired())
    protect(bench, why)

    with pytest.raises(RefusedError, match=UNMERGED[bench.kind, why]) as raised:
        bench.forge.approve(pull.number, expect=pull.head_oid)

    assert raised.value.exit_code is Exit.REFUSED
    assert raised.value.hint
    assert bench.again().list_pulls() == (replace(pull, draft=False),)
    protect(bench, "")
    bench.again().approve(pull.number, expect=pull.head_oid)
    assert bench.again().list_pulls()[0].state is PullState.MERGED


def test_refused_token_is_no_missing_permission_to_merge(tmp_path: Path) -> None:
    with simulated("gitlab", tmp_path) as bench:
        pull = bench.forge.ensure(desired())
        bench.forge.mark_ready(pull.number)
        bench.simulator.plan("401", "PUT", "/merge$")
        bench.simulator.plan("401", "GET", f"/merge_requests/{pull.number}$", skip=1)

        with pytest.raises(UnavailableError, match="refuses the credential"):
            bench.forge.merge(pull.number, expect=pull.head_oid)


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_branch_with_a_merge_queue_gets_what_is_approved_through_it(tmp_path: Path, kind: str) -> None:
    with simulated(kind, tmp_path) as bench:
        bench.hosted.refuses_merge = "queue"
        pull = bench.forge.ensure(desired())

        assert bench.forge.approve(pull.number, expect=pull.head_oid) == ""
        assert bench.again().merge(pull.number, expect=pull.head_oid) == ""  # it is there already

        (queued,) = bench.again().list_pulls()
        assert (queued.state, queued.draft) == (PullState.OPEN, False)
        assert (queued.auto_merge, queued.is_dropped) == (pull.head_oid, False)
        bench.simulator.run_queue("acme/edge", passed=False)
        assert bench.again().list_pulls()[0].is_dropped
        assert not bench.again().enable_auto_merge(pull.number, expect=pull.head_oid)
        assert not bench.again().list_pulls()[0].is_dropped
        bench.simulator.run_queue("acme/edge")
        assert bench.again().list_pulls()[0].state is PullState.MERGED


def test_a_base_that_is_deleted_closes_its_pull_requests_where_the_forge_does(bench: SimulatorBench) -> None:
    pull = bench.forge.ensure(desired())
    repo, main = bench.hosted.repo, bench.hosted.repo.oid("main")
    repo.git.set_head("refs/heads/elsewhere")
    repo.delete("refs/heads/main")

    states = [listed.state for listed in bench.again().list_pulls()]

    is_closed = bench.simulator.closes_with_base
    assert states == [PullState.CLOSED if is_closed else PullState.OPEN]
    repo.point("refs/heads/main", main)
    if is_closed:
        bench.simulator.reopen("acme/edge", pull.number)
    assert bench.again().list_pulls() == (replace(pull, closed=0),)


@pytest.mark.one_forge
@pytest.mark.parametrize("why", ["archived", "permission"])
def test_run_stops_at_the_repository_that_takes_no_writes(make: Make, why: str) -> None:
    world = make(edges=TWO, packages=["web"])
    world.simulator.repositories["acme/edge-1"].archived = why == "archived"
    world.simulator.may_write = why == "archived"

    ran = world.run()

    assert ran.code is Exit.REFUSED
    assert [edge for edge, _ in world.open_heads()] == (["acme/edge-2"] if why == "archived" else [])
    failures = " ".join(str(failure) for failure in ran.outcome.effects)
    assert "not archived" in failures
    world.simulator.repositories["acme/edge-1"].archived = False
    world.simulator.may_write = True
    assert world.run().code is Exit.DONE
    assert [edge for edge, _ in world.open_heads()] == ["acme/edge-1", "acme/edge-2"]
    assert world.run().plan.is_empty


@pytest.mark.parametrize("make", ["gitlab", "gitea"], indirect=True)  # GitHub's answer is not documented
def test_pull_requests_that_are_switched_off_are_named(make: Make) -> None:
    world = make(edges=TWO, packages=["web"])
    world.simulator.repositories["acme/edge-1"].has_pulls = False

    ran = world.run()

    (problem,) = ran.plan.problems
    assert "Pull requests of acme/edge-1 are switched off" in problem.message
    assert "Switch them on" in problem.hint
    assert [edge for edge, _ in world.open_heads()] == ["acme/edge-2"]
    assert {c.op for c in ran.plan.changes if c.repository.name == "edge-1"} <= {Op.KEEP}


@pytest.mark.one_forge
def test_what_closed_with_its_base_is_a_rejection_that_is_reopened(make: Make) -> None:
    world = make(edges=TWO, packages=["web"])
    world.run()
    repo = world.repo("edge-1")
    main = repo.oid("main")
    repo.git.set_head("refs/heads/elsewhere")
    repo.delete("refs/heads/main")
    world.pulls("edge-1")  # the forge sees it
    assert world.run().code is not Exit.DONE
    repo.point("refs/heads/main", main)
    repo.git.set_head("refs/heads/main")

    ran = world.run()

    if world.simulator.closes_with_base:
        assert Reason.REJECTED in {change.reason for change in ran.plan.changes}
    else:
        assert ran.plan.is_empty


def test_refusals_of_several_drafts_are_one_error_each(bench: SimulatorBench) -> None:
    bench.simulator.may_write = False
    for head in HEADS.values():
        with pytest.raises(ReconcilerError) as raised:
            bench.forge.ensure(desired(head))
        assert raised.value.cause.startswith(bench.simulator.address)


def test_refused_tag_is_told_as_that_and_stops_no_other_package(serve: Serve) -> None:
    world = serve("gitea", edges=["edge-1"])
    world.run()
    for pull in world.pulls("edge-1"):
        world.simulator.merge("acme/edge-1", pull.number)
    hook = world.root / "acme/edge-1.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    refusal = 'echo "Tag web/v1 is protected" >&2; exit 1'
    hook.write_text(f"#!/bin/sh\ngrep -q refs/tags/web/ || exit 0\n{refusal}\n")
    hook.chmod(0o755)

    ran = world.run()

    assert ran.code is Exit.REFUSED
    failed = [(effect.ref, effect.error) for effect in ran.outcome.effects if effect.error]
    ((refs, error),) = failed
    assert (
        refs == "refs/heads/drafts/web/packagevariant-1, refs/tags/web/v1"
    )  # what was pushed for the package
    assert "Tag web/v1 is protected" in error
    assert "refs/tags/db/v1" in world.repo("edge-1").refs()
    hook.unlink()
    assert world.run().code is Exit.DONE
    assert "refs/tags/web/v1" in world.repo("edge-1").refs()
