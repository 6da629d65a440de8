"""The rule of waves: which targets a wave has, its phase, and which packages may move."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from reconciler.names.ids import ObjectName
from reconciler.policy.rollouts import Gates, Wave
from reconciler.policy.settings import amount
from reconciler.resolve.rollout_model import (
    GateResult,
    Judgement,
    MemberPhase,
    MemberStatus,
    Orders,
    Verdict,
    WavePhase,
    assign_waves,
    judge_waves,
)
from tests.support.decision_table import DecisionTable, Row

NOW = 10_000
NO_ORDERS = Orders()
LABELS = {
    ObjectName("default", f"edge-{number}"): {"tier": "canary" if number < 2 else "main"}
    for number in range(8)
}


def member(
    name: str,
    phase: MemberPhase = MemberPhase.WAITING,
    *gates: GateResult,
    published: int = NOW - 100,
    why: str = "",
) -> MemberStatus:
    at = published if phase is MemberPhase.PUBLISHED else 0
    failure = next((gate.message for gate in gates if gate.result is Verdict.FAILED), "")
    if phase in {MemberPhase.REFUSED, MemberPhase.REVERTED}:
        failure, why = why, ""
    return MemberStatus(ObjectName("default", name), f"{name}/web", phase, at, gates, why, failure)


PUBLISHED = MemberPhase.PUBLISHED
WAITS = GateResult(Verdict.WAITING, "Application a is Progressing")
FAILS = GateResult(Verdict.FAILED, "Application a is Degraded")
PASSES = GateResult(Verdict.PASSED)
CLOSED = member("b", MemberPhase.REFUSED, why="pull request 3 was closed")


class Case(NamedTuple):
    reason: str
    wave: Wave
    members: tuple[MemberStatus, ...]
    phase: WavePhase
    message: str
    orders: Orders = Orders(revision="web/v2")


CASES = [
    Case("no target is complete", Wave("w"), (), WavePhase.COMPLETE, ""),
    Case("published is complete", Wave("w"), (member("a", PUBLISHED),), WavePhase.COMPLETE, ""),
    Case("a package moves now", Wave("w"), (member("a"),), WavePhase.PROGRESSING, "1 on the way"),
    Case("a package waits for a free place", Wave("w", max_open="1"), (member("a"), member("b")),
        WavePhase.PROGRESSING, "1 on the way, 1 to move"),
    Case("nothing moves while it is paused", Wave("w"), (member("a", MemberPhase.IN_REVIEW), member("b")),
        WavePhase.PROGRESSING, "1 on the way, 1 to move", Orders("web/v2", pause="paused")),
    Case("some in review", Wave("w"),
        (member("a", PUBLISHED), member("b", MemberPhase.IN_REVIEW), member("c")), WavePhase.PROGRESSING,
        "2 on the way"),
    Case("an unreadable repository is waited for", Wave("w"),
        (member("a", MemberPhase.UNKNOWN, why="its repository could not be read"),), WavePhase.PROGRESSING,
        "1 unknown (a/web: its repository could not be read)"),
    Case("a closed pull request is a failure", Wave("w"), (member("a", PUBLISHED), CLOSED), WavePhase.FAILED,
        "1 failed (b/web: pull request 3 was closed)"),
    Case("a reverted package is a failure", Wave("w"),
        (member("a", MemberPhase.REVERTED, why="main has another revision again"),), WavePhase.FAILED,
        "1 failed (a/web: main has another revision again)"),
    Case("an unhealthy object is a failure, also while it soaks", Wave("w", soak_s=1000),
        (member("a", PUBLISHED, FAILS),), WavePhase.FAILED, "1 failed (a/web: Application a is Degraded)"),
    Case("failures within the budget complete", Wave("w", failure_budget="50%"),
        (member("a", PUBLISHED), CLOSED), WavePhase.COMPLETE,
        "1 failed (b/web: pull request 3 was closed), within the failure budget"),
    Case("a share of the budget is rounded down", Wave("w", failure_budget="49%"),
        (member("a", PUBLISHED), CLOSED), WavePhase.FAILED, "1 failed (b/web: pull request 3 was closed)"),
    Case(
        "more failures than the budget",
        Wave("w", failure_budget="1"),
        (member("a", PUBLISHED, FAILS), CLOSED),
        WavePhase.FAILED,
        "2 failed (a/web: Application a is Degraded; b/web: pull request 3 was closed), "
        "and the failure budget is 1",
    ),
    Case("a failure is not missing", Wave("w", failure_budget="1"), (member("a"), CLOSED),
        WavePhase.PROGRESSING, "1 on the way"),
    Case("the soak time is not over", Wave("w", soak_s=101),
        (member("a", PUBLISHED, published=0), member("b", PUBLISHED)), WavePhase.VERIFYING,
        "soaks until 1970-01-01 02:46 UTC"),
    Case("the soak time is over", Wave("w", soak_s=100), (member("a", PUBLISHED),), WavePhase.COMPLETE, ""),
    Case("a gate waits", Wave("w"), (member("a", PUBLISHED, PASSES, WAITS), member("b", PUBLISHED, PASSES)),
        WavePhase.VERIFYING, "waits for a/web: Application a is Progressing"),
    Case("a person did not let it go on", Wave("w", gates=Gates(approval=True)), (member("a", PUBLISHED),),
        WavePhase.VERIFYING,
        'waits for a person: annotate the set with reconciler.dev/rollout-go: "web/v2/w"'),
    Case("a person let it go on", Wave("w", gates=Gates(approval=True)), (member("a", PUBLISHED),),
        WavePhase.COMPLETE, "", Orders("web/v2", go=frozenset({"w"}))),
    Case("the approval of a person replaces no gate", Wave("w", gates=Gates(approval=True)),
        (member("a", PUBLISHED, WAITS),), WavePhase.VERIFYING,
        "waits for a/web: Application a is Progressing", Orders("web/v2", go=frozenset({"w"}))),
    Case("a skipped wave is not judged", Wave("w"), (member("a", PUBLISHED, FAILS), member("b")),
        WavePhase.SKIPPED, "", Orders("web/v2", skipped=frozenset({"w"}))),
    Case("a pause changes no phase", Wave("w"), (member("a", PUBLISHED),), WavePhase.COMPLETE, "",
        Orders("web/v2", pause="paused")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_phase_of_a_wave(case: Case) -> None:
    judged = judge_waves([case.wave, Wave("next")], [("w", m) for m in case.members], case.orders, NOW)

    wave, _ = judged.waves
    assert (wave.phase, wave.message, wave.members) == (case.phase, case.message, case.members)


def judge(*members: tuple[str, MemberStatus], orders: Orders = NO_ORDERS, **rules: Wave) -> Judgement:
    waves = [rules.get(name, Wave(name)) for name in ("first", "second", "third")]
    return judge_waves(waves, members, orders, NOW)


def moving(judged: Judgement) -> list[str]:
    return sorted(key.name for key in judged.moving)


def test_a_failure_stops_every_wave_and_takes_nothing_back() -> None:
    judged = judge(
        ("first", member("a", PUBLISHED, FAILS)),
        ("first", member("b")),
        ("second", member("c", MemberPhase.IN_REVIEW)),
        ("second", member("d")),
    )

    assert moving(judged) == ["a", "c"]
    assert judged.waves[1].message == "is stopped: wave first failed"


@pytest.mark.parametrize(
    ("most", "moved"), [("1", ["a"]), ("2", ["a", "b"]), ("25%", ["a"]), ("26%", ["a", "b"]), ("0", ["a"])]
)
def test_as_many_packages_are_in_review_as_are_allowed(most: str, moved: list[str]) -> None:
    members = [("first", member(name)) for name in "dcba"]

    assert moving(judge(*members, first=Wave("first", max_open=most))) == moved


@pytest.mark.parametrize("orders", [NO_ORDERS, Orders("web/v2", go=frozenset({"second"}))])
def test_a_wave_asks_a_person_before_it_begins(orders: Orders) -> None:
    asked = Wave("second", start_approval=True)

    judged = judge(("first", member("a", PUBLISHED)), ("second", member("b")), orders=orders, second=asked)

    assert moving(judged) == ["a"]
    assert (judged.waves[1].phase, judged.waves[1].asks) == (WavePhase.WAITING, True)
    order = f'annotate the set with reconciler.dev/rollout-start: "{orders.revision}/second"'
    assert judged.waves[1].message == f"waits for a person before it begins: {order}"


@pytest.mark.parametrize("order", ["started", "skipped"])
def test_a_person_lets_a_wave_begin(order: str) -> None:
    asked = Wave("second", start_approval=True)
    orders = Orders("web/v2", **{order: frozenset({"second"})})

    judged = judge(("first", member("a", PUBLISHED)), ("second", member("b")), orders=orders, second=asked)

    assert moving(judged) == ["a", "b"] if order == "started" else ["a"]
    assert not judged.waves[1].asks


@pytest.mark.parametrize(
    ("text", "of", "up", "number"),
    [
        ("3", 10, True, 3),
        ("25%", 10, True, 3),
        ("25%", 10, False, 2),
        ("100%", 7, True, 7),
        ("1%", 7, True, 1),
        ("0%", 7, True, 0),
        ("25%", 0, True, 0),
    ],
)
def test_amounts(text: str, of: int, up: bool, number: int) -> None:
    assert amount(text, of, up=up) == number


def names_of(assigned: Mapping[ObjectName, str]) -> dict[str, str]:
    by_wave: dict[str, list[str]] = {}
    for key, wave in assigned.items():
        by_wave.setdefault(wave, []).append(key.name.removeprefix("edge-"))
    return {wave: "".join(sorted(names)) for wave, names in by_wave.items()}


def test_a_target_is_in_the_first_wave_that_selects_it_and_has_room() -> None:
    canary = Wave("canary", selector={"matchLabels": {"tier": "canary"}}, size="1")
    waves = [canary, Wave("quarter", size="25%"), Wave("tier", selector={"matchLabels": {"tier": "main"}})]

    assert names_of(assign_waves(waves, LABELS)) == {"canary": "0", "quarter": "12", "tier": "34567"}
    assert names_of(assign_waves([Wave("few", size="10%")], LABELS)) == {"few": "0", "rest": "1234567"}


PHASES: DecisionTable[tuple[WavePhase, bool]] = DecisionTable(
    {
        "before": ("complete", "not complete"),
        "skipped": ("no", "yes"),
        "failed": ("none", "within the budget", "more"),
        "missing": ("no", "yes"),
        "soak": ("over", "not over"),
        "gate": ("passes", "waits"),
        "approval": ("not asked for", "given", "missing"),
        "paused": ("no", "yes"),
    },
    [
        ({"before": "not complete"}, (WavePhase.WAITING, False), "an earlier wave is not complete"),
        ({"skipped": "yes", "paused": "yes"}, (WavePhase.SKIPPED, False), "skipped, and paused"),
        ({"skipped": "yes", "missing": "yes"}, (WavePhase.SKIPPED, True), "skipped: its packages move"),
        ({"skipped": "yes"}, (WavePhase.SKIPPED, False), "skipped, and nothing is left to move"),
        ({"failed": "more"}, (WavePhase.FAILED, False), "a failure stops everything"),
        ({"missing": "yes", "paused": "yes"}, (WavePhase.PROGRESSING, False),
            "a package is missing, and the rollout is paused"),
        ({"missing": "yes"}, (WavePhase.PROGRESSING, True), "a missing package moves"),
        ({"soak": "not over"}, (WavePhase.VERIFYING, False), "it soaks"),
        ({"gate": "waits"}, (WavePhase.VERIFYING, False), "a gate waits"),
        ({"approval": "missing"}, (WavePhase.VERIFYING, False), "a person is waited for"),
        ({}, (WavePhase.COMPLETE, False), "complete"),
    ],
)  # fmt: skip


@pytest.mark.parametrize("row", PHASES.rows, ids=str)
def test_table_of_waves(row: Row[tuple[WavePhase, bool]]) -> None:
    assert PHASES.mistakes(row, decide_case) == []


def decide_case(case: Mapping[str, str]) -> tuple[WavePhase, bool]:
    """Return the phase of the second wave of a case, and whether its package moves."""
    gate = WAITS if case["gate"] == "waits" else PASSES
    members = [member("a", PUBLISHED, gate), member("z", PUBLISHED, PASSES)]
    members += [CLOSED] * {"none": 0, "within the budget": 1, "more": 2}[case["failed"]]
    members += [member("c")] if case["missing"] == "yes" else []
    wave = Wave(
        "second",
        failure_budget="1",
        soak_s=1000 if case["soak"] == "not over" else 100,
        gates=Gates(approval=case["approval"] != "not asked for"),
    )
    orders = Orders(
        pause="paused" if case["paused"] == "yes" else "",
        go=frozenset({"second"} if case["approval"] == "given" else ()),
        skipped=frozenset({"second"} if case["skipped"] == "yes" else ()),
    )
    before = member("first", PUBLISHED if case["before"] == "complete" else MemberPhase.IN_REVIEW)
    named = [("first", before), *(("second", m) for m in members)]
    judged = judge_waves([Wave("first"), wave, Wave("third")], named, orders, NOW)
    return judged.waves[1].phase, member("c").key in judged.moving
