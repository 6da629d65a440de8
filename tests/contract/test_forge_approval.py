"""Approval by policy, on every forge and in Git alone: only what a rule lets pass, and only that commit."""

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Phase, Reason
from reconciler.plan.changes import Op
from reconciler.plan.status import current_statuses
from tests.support.forges.bench import DIALECTS
from tests.support.forges.world import ForgeWorld, Make
from tests.support.git import kptfile
from tests.support.small_world import app

pytestmark = pytest.mark.one_forge

AUTO = "  approval:\n    auto:\n    - {}\n"
CHECKED = "  approval:\n    auto:\n    - checks: [ci/build, ci/lint]\n"
EDITED = "  approval:\n    auto:\n    - edited: true\n"
FORGE = "  approval:\n    auto:\n    - autoMerge: true\n"
SELECTED = "  approval:\n    auto:\n    - selector: {matchLabels: {tier: dev}}\n"
GROUPED = f"  pullRequests:\n    groupBy: repository\n{AUTO}"
WAITING = tuple(kind for kind in DIALECTS if kind != "bitbucket")
"""Forges that merge by themselves what waits for its checks."""


def states(world: ForgeWorld) -> dict[str, str]:
    """Return what became of the pull request of each package: open, closed or merged."""
    shown = {p.head.split("/")[1]: "merged" if p.merged else p.state for p in world.pulls("edge-1")}
    return dict(sorted(shown.items()))


def tags(world: ForgeWorld) -> set[str]:
    return {ref for ref in world.repo("edge-1").refs() if ref.startswith("refs/tags/")}


def test_a_draft_is_merged_by_the_run_after_the_one_that_opened_it(make: Make) -> None:
    world = make(AUTO)
    world.run()
    assert states(world) == {"db": "open", "web": "open"}

    assert {c.op for c in world.run().plan.changes} == {Op.APPROVE}

    assert states(world) == {"db": "merged", "web": "merged"}
    assert world.run().code is Exit.DONE
    assert tags(world) == {"refs/tags/db/v1", "refs/tags/web/v1"}
    assert world.run().plan.is_empty


def test_nothing_is_approved_without_a_rule(make: Make) -> None:
    world = make("")
    world.run()

    assert world.run().plan.is_empty
    assert states(world) == {"db": "open", "web": "open"}


def test_every_required_check_must_have_passed_on_that_commit(make: Make) -> None:
    world = make(CHECKED)
    world.run()
    heads = {p.head.split("/")[1]: p.head_oid for p in world.pulls("edge-1")}
    for package, lint in (("web", True), ("db", False)):
        world.simulator.check("acme/edge-1", heads[package], "ci/build")
        world.simulator.check("acme/edge-1", heads[package], "ci/lint", passed=lint)

    world.run()

    assert states(world) == {"db": "open", "web": "merged"}
    world.simulator.check("acme/edge-1", heads["db"], "ci/lint")
    world.run()
    assert states(world) == {"db": "merged", "web": "merged"}


def test_checks_that_approval_waits_for_are_told_in_plan_and_status(make: Make) -> None:
    world = make(CHECKED)
    world.run()
    heads = {p.head.split("/")[1]: p.head_oid for p in world.pulls("edge-1")}
    for package, lint in (("web", False), ("db", None)):
        world.simulator.check("acme/edge-1", heads[package], "ci/build")
        world.simulator.check("acme/edge-1", heads[package], "ci/lint", passed=lint)

    waiting = world.run()

    reasons = {change.package.path: (str(change.reason), change.message) for change in waiting.plan.changes}
    assert reasons == {
        "db": ("AwaitingChecks", "Approval waits for checks: ci/lint is pending"),
        "web": ("AwaitingChecks", "Approval waits for checks: ci/lint failed"),
    }
    assert (waiting.code, waiting.plan.is_empty) == (Exit.DONE, True)
    told = {s.name: (s.phase, s.reason, s.message) for s in current_statuses(waiting.plan)}
    assert told == {name: (Phase.IN_REVIEW, *reason) for name, reason in reasons.items()}


def test_check_that_nobody_reports_is_named_and_writes_nothing_again(make: Make) -> None:
    world = make(CHECKED)
    world.run()
    before = world.repo("edge-1").refs(), world.repo("control").refs()

    waiting = world.run()

    assert {change.message for change in waiting.plan.changes} == {
        "Approval waits for checks: ci/build has not reported, ci/lint has not reported"
    }
    assert (world.repo("edge-1").refs(), world.repo("control").refs()) == before


def test_commit_of_person_is_approved_only_by_rule(make: Make) -> None:
    world = make(AUTO)
    world.run()
    head = "drafts/web/packagevariant-1"
    world.repo("edge-1").commit({"web/notes.txt": "Mine\n"}, branch=head)

    world.run()

    assert states(world) == {"db": "merged", "web": "open"}


def test_a_rule_may_let_a_persons_commit_pass(make: Make) -> None:
    world = make(EDITED)
    world.run()
    world.repo("edge-1").commit({"web/notes.txt": "Mine\n"}, branch="drafts/web/packagevariant-1")

    world.run()

    assert states(world) == {"db": "merged", "web": "merged"}
    assert world.repo("edge-1").read("main", "web/notes.txt") == b"Mine\n"


def test_an_open_conflict_is_never_approved(make: Make) -> None:
    world = make(EDITED)
    world.run()
    world.run()
    world.run()
    text = app("web", 1).replace("web:v1", "web:mine")
    world.repo("edge-1").commit({"web/app.yaml": text}, message="Hotfix\n")
    world.upgrade("web")
    world.run()
    world.run()

    assert world.run().code is Exit.WAITING
    open_heads = [head for _, head in world.open_heads()]
    assert len(open_heads) == 1
    assert "drafts/web/" in open_heads[0]


def test_an_unmet_gate_is_never_approved(make: Make) -> None:
    world = make(AUTO)
    gates = "info:\n  readinessGates:\n  - conditionType: ready\n"
    blueprints = world.repo("blueprints")
    blueprints.commit({"web/Kptfile": kptfile("web", more=gates)}, message="Gate\n")
    blueprints.tag("web/v3")
    world.upgrade("web", revision=3)
    world.run()
    world.run()

    assert states(world) == {"db": "merged", "web": "open"}


def test_only_repositories_that_a_rule_selects_are_approved(make: Make) -> None:
    world = make(SELECTED)
    world.run()
    world.run()
    assert states(world) == {"db": "open", "web": "open"}

    path = "manifests/repositories/edge-1.yaml"
    control = world.repo("control")
    text = (
        control.read("main", path)
        .decode()
        .replace("  name: edge-1\n", "  name: edge-1\n  labels: {tier: dev}\n")
    )
    control.commit({path: text}, message="Label\n")
    world.run()
    assert states(world) == {"db": "merged", "web": "merged"}


def test_a_head_that_moves_meanwhile_is_not_merged(make: Make) -> None:
    world = make(AUTO)
    world.run()
    planned = world.plan()
    world.repo("edge-1").commit({"web/notes.txt": "Mine\n"}, branch="drafts/web/packagevariant-1")

    world.apply(planned)

    assert states(world) == {"db": "merged", "web": "open"}


def test_a_group_is_approved_as_one_or_not_at_all(make: Make) -> None:
    world = make(GROUPED)
    world.run()
    path = "manifests/edge-1-web.yaml"
    control = world.repo("control")
    text = control.read("main", path).decode()
    paused = text.replace("metadata:\n", 'metadata:\n  annotations: {reconciler.dev/paused: "true"}\n')
    control.commit({path: paused}, message="Not now\n")

    world.run()

    assert world.pulls("edge-1")[0].state == "open"


def test_a_whole_group_is_approved(make: Make) -> None:
    world = make(GROUPED)
    for _ in ("propose", "approve", "tag"):
        world.run()

    assert world.pulls("edge-1")[0].merged
    assert tags(world) == {"refs/tags/db/v1", "refs/tags/web/v1"}
    assert world.run().plan.is_empty


@pytest.mark.parametrize("make", WAITING, indirect=True)
def test_forge_merges_by_itself_when_its_required_checks_passed(make: Make) -> None:
    world = make(FORGE)
    hosted = world.simulator.repositories["acme/edge-1"]
    hosted.required = ("ci/build",)
    world.run()

    handed = world.run()

    assert [e.what for e in handed.outcome.effects if e.repository == "edge-1"] == ["auto-merge"] * 2
    assert {s.phase for s in current_statuses(world.plan().plan)} == {Phase.IN_REVIEW}
    assert states(world) == {"db": "open", "web": "open"}
    assert world.run().plan.is_empty
    for pull in world.pulls("edge-1"):
        world.simulator.check("acme/edge-1", pull.head_oid, "ci/build")
    assert states(world) == {"db": "merged", "web": "merged"}
    assert world.run().code is Exit.DONE
    assert tags(world) == {"refs/tags/db/v1", "refs/tags/web/v1"}
    assert world.run().plan.is_empty


def test_forge_merges_at_once_where_nothing_is_to_wait_for(make: Make) -> None:
    world = make(FORGE)
    world.run()

    world.run()

    assert states(world) == {"db": "merged", "web": "merged"}


@pytest.mark.parametrize("make", WAITING, indirect=True)
def test_new_content_is_handed_to_the_forge_again(make: Make) -> None:
    world = make(FORGE)
    world.simulator.repositories["acme/edge-1"].required = ("ci/build",)
    world.run()
    world.run()
    world.upgrade("web")
    world.run()

    assert {c.package.path: c.op for c in world.run().plan.changes} == {"db": Op.KEEP, "web": Op.APPROVE}


def test_refused_auto_merge_is_told_and_the_draft_is_marked_once(make: Make) -> None:
    world = make(FORGE)
    hosted = world.simulator.repositories["acme/edge-1"]
    hosted.required, hosted.auto_merge = ("ci/build",), False
    world.run()

    ran = world.run()

    assert ran.code is Exit.REFUSED
    failed = [effect for effect in ran.outcome.effects if effect.error]
    assert len(failed) == 2
    assert "the forge does not enable auto-merge: " in failed[0].error
    assert "settings of the repository" in failed[0].hint


@pytest.mark.parametrize("more", [AUTO, FORGE])
def test_what_a_forge_refused_to_merge_is_not_asked_for_again_while_nothing_changed(
    make: Make, more: str
) -> None:
    world = make(more)
    hosted = world.simulator.repositories["acme/edge-1"]
    hosted.refuses_merge, hosted.auto_merge = "review", False
    world.run()
    assert world.run().code is Exit.REFUSED
    before, refs = len(world.simulator.writes()), world.repo("control").refs()

    waiting = world.run()

    assert (waiting.code, waiting.plan.is_empty) == (Exit.WAITING, True)
    assert {change.reason for change in waiting.plan.changes} == {Reason.MERGE_REFUSED}
    assert "`reconciler approve edge-1#" in waiting.plan.changes[0].message
    assert len(world.simulator.writes()) == before
    assert world.repo("control").refs() == refs


def test_refused_merge_is_asked_for_again_when_its_head_or_the_policy_changes_and_after_a_while(
    make: Make,
) -> None:
    world = make(AUTO)
    hosted = world.simulator.repositories["acme/edge-1"]
    hosted.refuses_merge = "review"
    world.run()
    world.run()
    world.upgrade("web")
    world.run()

    assert {c.package.path: c.op for c in world.plan().plan.changes} == {"db": Op.KEEP, "web": Op.APPROVE}
    world.run()
    assert world.run().plan.is_empty
    for wait_s in (700, 1400, 2800, 5600):  # ever more rarely
        world.simulator.clock.sleep(wait_s)
        assert {c.op for c in world.plan().plan.changes} == {Op.APPROVE}, wait_s
        world.run()
        world.simulator.clock.sleep(wait_s / 3)
        assert world.run().plan.is_empty, wait_s
    control = world.repo("control")
    text = control.read("main", "reconciler.yaml").decode()
    control.commit({"reconciler.yaml": text.replace("    - {}", "    - edited: true")}, message="Edits\n")
    assert {c.op for c in world.plan().plan.changes} == {Op.APPROVE}
    hosted.refuses_merge = ""
    world.run()
    assert states(world) == {"db": "merged", "web": "merged"}


@pytest.mark.parametrize("make", ["github", "gitlab"], indirect=True)
@pytest.mark.parametrize("more", [AUTO, FORGE])
def test_what_leaves_the_merge_queue_waits_for_a_person(make: Make, more: str) -> None:
    world = make(more)
    hosted = world.simulator.repositories["acme/edge-1"]
    hosted.refuses_merge = "queue"
    world.run()

    queued = world.run()
    waiting = world.plan()
    writes = len(world.simulator.writes())
    world.run()

    assert queued.code is Exit.DONE
    assert [effect.what for effect in queued.outcome.effects if effect.repository == "edge-1"] == (
        ["queued" if more is AUTO else "auto-merge"] * 2
    )
    assert {change.reason for change in waiting.plan.changes} == {Reason.AWAITING_CHECKS}
    assert len(world.simulator.writes()) == writes

    world.simulator.run_queue("acme/edge-1", passed=False)
    dropped = world.run()

    assert dropped.code is Exit.WAITING
    assert {change.reason for change in dropped.plan.changes} == {Reason.MERGE_DROPPED}
    assert "`reconciler approve edge-1#1`" in dropped.plan.changes[0].message
    assert len(world.simulator.writes()) == writes
