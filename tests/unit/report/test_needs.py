"""What waits for people, and in which order."""

from collections.abc import Sequence

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Plan, Refusal
from reconciler.plan.status import PackageStatus
from reconciler.records.state import RolloutRecord
from reconciler.report.build import find_needs
from reconciler.report.report import NeedPlace
from reconciler.resolve.rollout_model import (
    MemberPhase,
    MemberStatus,
    Rollout,
    RolloutPhase,
    WavePhase,
    WaveStatus,
)

SET = ObjectName("default", "web")
EAST, WEST = ObjectName("default", "web-east"), ObjectName("default", "web-west")


def rollout(*waves: WaveStatus, phase: RolloutPhase = RolloutPhase.PROGRESSING) -> Rollout:
    names = tuple(wave.name for wave in waves)
    record = RolloutRecord(namespace="default", name="web", revision="web/v2", waves=names)
    return Rollout(SET, phase, record, waves)


def moving(name: str, *variants: ObjectName, phase: WavePhase = WavePhase.PROGRESSING) -> WaveStatus:
    members = tuple(MemberStatus(key, key.name, MemberPhase.IN_REVIEW) for key in variants)
    return WaveStatus(name, phase, members)


def status(variant: ObjectName, phase: Phase, *, pull: int = 3, reason: str = "") -> PackageStatus:
    repository = ObjectName("default", variant.name.removeprefix("web-"))
    return PackageStatus(
        phase, variant, repository=repository, name="web", pull=pull, url=f"https://x/{pull}", reason=reason
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

    assert needs(plan, [status(WEST, Phase.IN_REVIEW), status(EAST, Phase.CONFLICT)]) == [
        ("decide", "9 packages would be deleted", ""),
        ("answer", "conflicts; holds wave canary of web/v2", "east#3"),
        ("repair", "unknown field", "a.yaml:2"),
        ("review", "change", "west#3"),
    ]


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
    found = needs(Plan(rollouts=(rollout(wave),)))

    assert found == [(*row, "default/web") for row in expected]


def test_paused_rollout_asks_for_nobody() -> None:
    waves = (WaveStatus("canary", WavePhase.VERIFYING, asks=True),)

    assert needs(Plan(rollouts=(rollout(*waves, phase=RolloutPhase.PAUSED),))) == []


@pytest.mark.parametrize(
    ("phase", "reason", "action"),
    [
        (Phase.CONFLICT, Reason.MERGE_CONFLICT, "answer"),
        (Phase.NOT_READY, Reason.NOT_READY, "repair"),
        (Phase.IN_REVIEW, "", "review"),
        (Phase.IN_REVIEW, Reason.AWAITING_CHECKS, ""),
        (Phase.IN_REVIEW, Reason.AWAITING_WAVE, ""),
        (Phase.HELD_BACK, Reason.HELD_BACK, "decide"),
        (Phase.HELD_BACK, Reason.AWAITING_WAVE, ""),
        (Phase.HELD_BACK, Reason.ROLLED_BACK, ""),
        (Phase.HELD_BACK, Reason.STILL_NEEDED, ""),
        (Phase.PUBLISHED, "", ""),
        (Phase.PENDING, "", ""),
        (Phase.PAUSED, Reason.PAUSED, ""),
        (Phase.REJECTED, Reason.REJECTED, ""),
        (Phase.STALLED, Reason.NOT_OURS, ""),  # its problem is listed
    ],
)
def test_what_a_state_asks_of_people(phase: Phase, reason: str, action: str) -> None:
    found = needs(Plan(), [status(EAST, phase, reason=reason)])

    assert [first for first, *_ in found] == ([action] if action else [])


def test_packages_of_one_cause_share_a_row_and_one_pull_request_is_named_once() -> None:
    grouped = PackageStatus(
        Phase.IN_REVIEW, WEST, repository=ObjectName("default", "east"), name="api", pull=3, url="https://x/3"
    )

    (need,) = find_needs(Plan(), [status(EAST, Phase.IN_REVIEW), grouped])

    assert need.places == (NeedPlace("east#3", "https://x/3", ""),)
