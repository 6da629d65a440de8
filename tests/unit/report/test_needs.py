"""What waits for people, and in which order."""

from collections.abc import Sequence

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason, WaitsFor
from reconciler.inventory.inventory import PullState
from reconciler.names.ids import ObjectName, RolloutKey
from reconciler.names.problems import Problem
from reconciler.names.refs import lock_ref, short_branch
from reconciler.plan.changes import LockProposal, Op, Outcome, Plan, Refusal
from reconciler.plan.status import PackageStatus
from reconciler.records.state import RolloutRecord
from reconciler.report.build import find_needs, needs_after
from reconciler.report.report import NeedPlace
from reconciler.resolve.rollout_model import (
    MemberPhase,
    MemberStatus,
    Rollout,
    RolloutPhase,
    WavePhase,
    WaveStatus,
)
from tests.support.plan_values import a_change, a_context, a_pull
from tests.support.sets import world
from tests.support.values import replace

SET = ObjectName("default", "web")
EAST, WEST = ObjectName("default", "web-east"), ObjectName("default", "web-west")


def rollout(*waves: WaveStatus, phase: RolloutPhase = RolloutPhase.PROGRESSING) -> Rollout:
    names = tuple(wave.name for wave in waves)
    record = RolloutRecord(namespace="default", name="web", revision="web/v2", waves=names)
    return Rollout(RolloutKey(*SET), phase, record, waves)


def moving(name: str, *variants: ObjectName, phase: WavePhase = WavePhase.PROGRESSING) -> WaveStatus:
    members = tuple(MemberStatus(key, key.name, MemberPhase.IN_REVIEW) for key in variants)
    return WaveStatus(name, phase, members)


def status(
    variant: ObjectName, phase: Phase, waits_for: WaitsFor = WaitsFor.REVIEW, *, pull: int = 3
) -> PackageStatus:
    repository, url = ObjectName("default", variant.name.removeprefix("web-")), f"https://x/{pull}"
    return PackageStatus(
        phase, variant, repository=repository, name="web", pull=pull, url=url, waits_for=waits_for
    )


def needs(plan: Plan, statuses: Sequence[PackageStatus] = ()) -> list[tuple[str, str, str]]:
    return [(need.action, need.what, need.where) for need in find_needs(plan, statuses)]


def test_most_urgent_comes_first() -> None:
    problem = Problem(Location("a.yaml", 2), Reason.UNKNOWN_FIELD, "Unknown field x")
    plan = Plan(
        problems=(problem,),
        refusals=(Refusal(Reason.DELETION_GUARD, "9 packages would be deleted", "Consent."),),
        rollouts=(rollout(moving("canary", EAST), moving("rest", WEST)),),
    )

    assert needs(plan, [status(WEST, Phase.IN_REVIEW), status(EAST, Phase.CONFLICT, WaitsFor.ANSWER)]) == [
        ("decide", "9 packages would be deleted", ""),
        ("answer", "conflicts of web; holds wave canary of web/v2", "east#3"),
        ("repair", "unknown field", "a.yaml:2"),
        ("review", "change", "west#3"),
    ]


def test_refused_deletions_are_one_decision_with_their_packages() -> None:
    refusal = Refusal(Reason.DELETION_GUARD, "2 of 2 would be deleted", "Consent.")
    refused = [
        replace(
            status(v, Phase.HELD_BACK, WaitsFor.DECISION, pull=0),
            reason=refusal.reason,
            message=refusal.message,
        )
        for v in (WEST, EAST)
    ]

    assert needs(Plan(refusals=(refusal,)), refused) == [("decide", refusal.message, "east/web, west/web")]


@pytest.mark.parametrize(
    ("wave", "expected"),
    [
        (WaveStatus("canary", WavePhase.VERIFYING, asks=True), [("release", "wave canary of web/v2")]),
        (WaveStatus("canary", WavePhase.VERIFYING), []),
        (WaveStatus("canary", WavePhase.FAILED), [("decide", "wave canary of web/v2 failed")]),
        (WaveStatus("canary", WavePhase.WAITING), []),
    ],
)
def test_wave_that_a_person_holds_is_named(wave: WaveStatus, expected: list[tuple[str, str]]) -> None:
    assert needs(Plan(rollouts=(rollout(wave),))) == [(*row, "default/web") for row in expected]


def test_paused_rollout_asks_for_nobody() -> None:
    waves = (WaveStatus("canary", WavePhase.VERIFYING, asks=True),)

    assert needs(Plan(rollouts=(rollout(*waves, phase=RolloutPhase.PAUSED),))) == []


def test_what_a_state_asks_of_people() -> None:
    asked = {
        waits_for: [first for first, *_ in needs(Plan(), [status(EAST, Phase.IN_REVIEW, waits_for)])]
        for waits_for in WaitsFor
    }

    assert {waits_for: actions for waits_for, actions in asked.items() if actions} == {
        WaitsFor.REVIEW: ["review"],
        WaitsFor.ANSWER: ["answer"],
        WaitsFor.CORRECTION: ["repair"],
        WaitsFor.DECISION: ["decide"],
    }


def test_packages_of_one_cause_share_a_row_and_one_pull_request_is_named_once() -> None:
    grouped = replace(status(EAST, Phase.IN_REVIEW), variant=WEST, name="api")

    (need,) = find_needs(Plan(), [status(EAST, Phase.IN_REVIEW), grouped])

    assert need.places == (NeedPlace("east#3", "https://x/3", ""),)


def test_repair_names_the_object_and_its_place() -> None:
    named = Problem(
        Location("a.yaml", 2), Reason.REPOSITORY_UNAVAILABLE, "No answer", subject="Repository default/edge"
    )
    file = Problem(Location("b.yaml", 4), Reason.REPOSITORY_UNAVAILABLE, "No answer")

    ((_, _, where),) = needs(Plan(problems=(named, file)))

    assert where == "Repository default/edge (a.yaml:2), b.yaml:4"


@pytest.mark.parametrize(("why", "word"), [("1 conflict", "blocked"), ("", "progressing")])
def test_wave_that_a_person_holds_is_blocked(why: str, word: str) -> None:
    wave = moving("canary", EAST)
    held = replace(wave, members=tuple(member._replace(why=why) for member in wave.members))

    row = rollout(held, moving("rest", WEST, phase=WavePhase.WAITING))

    assert row.waves[0].state == word
    assert f": {word}, " in row.title


LOCK_PULL = a_pull(head=short_branch(lock_ref("default")), number=4, url="https://x/4")
REVIEWED, DECIDED = ("review", "the lock", "control#4"), ("decide", "the lock", "control#4")


@pytest.mark.parametrize(
    ("op", "waits", "listed", "opened", "expected"),
    [
        (Op.CREATE, False, None, None, None),
        (Op.CREATE, False, None, LOCK_PULL, REVIEWED),
        (Op.UPDATE, False, LOCK_PULL, None, REVIEWED),
        (Op.UPDATE, True, LOCK_PULL, None, DECIDED),
        (Op.CREATE, True, None, None, (*DECIDED[:2], "control")),
        (Op.CREATE, False, replace(LOCK_PULL, state=PullState.CLOSED), None, None),
        (Op.CREATE, False, replace(LOCK_PULL, head="reconciler/other/lock"), None, None),
        (Op.CLOSE, False, LOCK_PULL, None, None),
    ],
)
def test_lock_waits_for_the_review_of_its_open_pull_request_or_for_a_decision(
    op, waits, listed, opened, expected
) -> None:
    change = a_change(op=op, waits=waits)
    inventory = world(pulls={change.package.url: (listed,)} if listed else {})
    plan = Plan(context=a_context(inventory), lock=LockProposal(change))
    outcome = Outcome(opened={(change.package.url, LOCK_PULL.head): opened} if opened else {})

    for found in (needs_after(plan, outcome), *([] if opened else [find_needs(plan, ())])):
        rows = [(need.action, need.what, need.where) for need in found]
        assert rows == ([expected] if expected else [])
