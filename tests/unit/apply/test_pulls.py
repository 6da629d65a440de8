"""Pull requests of a plan: once each, in order, and what a failure leaves to whom."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.apply.outcome import EffectKind, Result, Target, merge_results
from reconciler.apply.pulls import PullRequestTexts, approve_pulls, call_forge, remaining_effects
from reconciler.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.forge.api_errors import LimitedError
from reconciler.forge.api_forge import ApiForge
from reconciler.git.effects import StoppedError
from reconciler.inventory import PullRequest
from reconciler.plan.changes import Approval, Change, ClosePull
from tests.support.forges.scripted import scripted_api
from tests.unit.apply.world import Edge


@dataclass
class Forge:
    """Accepts every call but those about the heads and numbers in `failing`."""

    failing: dict[object, ReconcilerError] = field(default_factory=dict)
    calls: list[tuple[str, object]] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)

    def ensure(self, pull: PullRequest) -> PullRequest:
        self.bodies[pull.head] = pull.body
        self._call("ensure", pull.head)
        return replace(pull, number=pull.number or 7)

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        self._call(f"close: {comment} {duplicate_of}", number)

    def approve(self, number: int, *, expect: str) -> str:
        self._call(f"approve {expect}", number)
        return ""

    def _call(self, name: str, about: object) -> None:
        if about in self.failing:
            raise self.failing[about]
        self.calls.append((name, about))


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


def target(edge: Edge, forge: Forge) -> Target:
    return edge.target(forge=cast("Any", forge))


def called(edge: Edge, forge: Forge, *changes: Change) -> Result:
    return merge_results(call_forge(target(edge, forge), changes, PullRequestTexts(changes)))


def head(package: str) -> str:
    return f"drafts/{package}/packagevariant-1"


def grouped(edge: Edge, *packages: str) -> list[Change]:
    pull = PullRequest("reconciler/demo/group/all", "main", "All", "Why.")
    return [replace(edge.created(package), group="all", pull=pull) for package in packages]


def test_pull_request_that_packages_share_is_opened_once(edge: Edge) -> None:
    forge = Forge()

    result = called(edge, forge, *grouped(edge, "web", "db"), edge.created("cache"))

    assert forge.calls == [("ensure", "reconciler/demo/group/all"), ("ensure", head("cache"))]
    assert [effect.ref for effect in result.effects] == ["#7 All", "#7 Create cache"]
    assert {url_and_head[1] for url_and_head in result.opened} == {"reconciler/demo/group/all", head("cache")}


def test_known_number_is_an_update_and_closing_follows(edge: Edge) -> None:
    change = edge.created("web")
    assert change.pull
    change = replace(
        change, pull=replace(change.pull, number=3), close=(ClosePull(2, "old", "Obsolete.", duplicate_of=3),)
    )
    forge = Forge()

    result = called(edge, forge, change)

    assert forge.calls == [("ensure", head("web")), ("close: Obsolete. 3", 2)]
    assert [(effect.what, effect.ref) for effect in result.effects] == [
        (EffectKind.UPDATED, "#3 Create web"),
        (EffectKind.CLOSED, "#2"),
    ]


def test_text_that_a_pull_request_has_stays_and_a_missing_one_is_made(edge: Edge) -> None:
    change = edge.created("web")
    assert change.pull
    forge = Forge()

    called(
        edge, forge, change, replace(edge.created("db"), pull=replace(change.pull, head=head("db"), body=""))
    )

    assert forge.bodies[head("web")] == "Why."
    assert "cm.yaml" in forge.bodies[head("db")]


@pytest.mark.parametrize(
    "error", [RefusedError("no branch"), UnavailableError("down")], ids=["refused", "down"]
)
def test_failed_pull_request_stops_no_other_and_names_all_packages_that_share_it(
    edge: Edge, error: ReconcilerError
) -> None:
    forge = Forge({"reconciler/demo/group/all": error})

    result = called(edge, forge, *grouped(edge, "web", "db"), edge.created("cache"))

    assert forge.calls == [("ensure", head("cache"))]
    assert {package.path: why.pushed for package, why in result.unfinished.items()} == {
        "web": True,
        "db": True,
    }
    assert [(effect.what, effect.ref, effect.error) for effect in result.effects] == [
        (EffectKind.OPENED, "All", str(error)),
        (EffectKind.OPENED, "#7 Create cache", ""),
    ]
    assert result.exits == {error.exit_code}
    assert result.left == 0


def test_closing_that_fails_keeps_the_effect_before_it(edge: Edge) -> None:
    change = replace(edge.created("web"), close=(ClosePull(2, "old", "Obsolete."),))

    result = called(edge, Forge({2: UnavailableError("down")}), change)

    assert [(effect.what, effect.error) for effect in result.effects] == [
        (EffectKind.OPENED, ""),
        (EffectKind.CLOSED, "down"),
    ]
    assert [pull.number for pull in result.opened.values()] == [7]


@pytest.mark.parametrize(
    "error", [LimitedError("The budget is spent", wait_s=60), StoppedError()], ids=["limit", "signal"]
)
def test_limit_leaves_this_and_later_pull_requests_to_the_next_run(
    edge: Edge, error: ReconcilerError
) -> None:
    forge = Forge({head("b"): error})
    without = replace(edge.created("d"), pull=None)

    result = called(edge, forge, edge.created("a"), edge.created("b"), edge.created("c"), without)

    assert forge.calls == [("ensure", head("a"))]
    assert result.left == 2
    assert {package.path for package in result.failed} == {"b", "c"}
    assert all(why.left and why.pushed for why in result.unfinished.values())
    assert [effect.error for effect in result.effects] == ["", f"2 pull requests are left: {error}"]
    assert result.exits == {Exit.PARTIAL}


def test_last_pull_request_that_is_left_is_counted_as_one(edge: Edge) -> None:
    result = called(edge, Forge({head("a"): StoppedError()}), edge.created("a"))

    assert result.effects[0].error.startswith("1 pull request is left: ")


def approved(edge: Edge, package: str, number: int) -> Change:
    return replace(edge.created(package), approve=Approval(number, head(package), f"c0ffee{number}"))


def test_approval_that_packages_share_is_given_once(edge: Edge) -> None:
    forge = Forge()
    shared = [replace(edge.created(name), approve=Approval(1, "all", "c0ffee")) for name in ("web", "db")]

    result = merge_results(approve_pulls(target(edge, forge), [*shared, edge.created("cache")]))

    assert forge.calls == [("approve c0ffee", 1)]
    assert [(effect.what, effect.ref) for effect in result.effects] == [(EffectKind.MERGED, "#1 all")]


def test_failed_approval_stops_no_other_and_names_all_packages_that_share_it(edge: Edge) -> None:
    shared = [replace(edge.created(name), approve=Approval(1, "all", "c0ffee")) for name in ("web", "db")]
    forge = Forge({1: RefusedError("the head moved")})

    result = merge_results(approve_pulls(target(edge, forge), [*shared, approved(edge, "cache", 2)]))

    assert forge.calls == [("approve c0ffee2", 2)]
    assert {package.path for package in result.failed} == {"web", "db"}
    assert [(effect.what, effect.ref, effect.error) for effect in result.effects] == [
        (EffectKind.MERGED, "#1 all", "the head moved"),
        (EffectKind.MERGED, f"#2 {head('cache')}", ""),
    ]


def test_limit_leaves_this_and_later_approvals_to_the_next_run(edge: Edge) -> None:
    forge = Forge({2: LimitedError("The budget is spent", wait_s=60)})
    changes = [approved(edge, name, number) for number, name in enumerate("abc", 1)]

    result = merge_results(approve_pulls(target(edge, forge), changes))

    assert forge.calls == [("approve c0ffee1", 1)]
    assert result.left == 2
    assert {package.path for package in result.failed} == {"b", "c"}


def test_what_a_budget_leaves_is_summed_over_its_repositories(edge: Edge) -> None:
    with scripted_api() as api:
        shared = api.transport()
        forges = [
            ApiForge(cast("Any", None), transport, "demo") for transport in (shared, shared, api.transport())
        ]
        targets = {str(n): edge.target(forge=forge) for n, forge in enumerate(forges)}
        results = {"0": Result(left=2), "1": Result(left=1), "2": Result()}

        (effect,) = remaining_effects({**results, "3": Result(left=9)}, {**targets, "3": edge.target()})

    assert effect.error.startswith("3 pull requests are left in all; about ")
    assert effect.left
