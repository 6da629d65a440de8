"""Pull requests of a plan: once each, in order, and what a failure leaves to whom."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply.outcome import EffectKind, Result, Target, merge_results
from reconciler.apply.pulls import PullRequestTexts, approve_pulls, call_forge, lock_texts, remaining_effects
from reconciler.base.effects import StoppedError
from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.forge.api.forge import ApiForge
from reconciler.http.client import LimitedError
from reconciler.inventory.inventory import PullRequest
from reconciler.names.objects import Files
from reconciler.plan.changes import Approval, Change, ClosePull, Effect, LockProposal, MoveRef
from reconciler.policy import Limits
from tests.support.forges.scripted import scripted_api
from tests.support.plan_values import a_change
from tests.support.values import replace
from tests.unit.apply.world import Edge


@dataclass
class Forge:
    """Accepts every call but those about the heads and numbers in `failing`."""

    failing: dict[object, ReconcilerError] = field(default_factory=dict)
    calls: list[tuple[str, object]] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    merging: frozenset[int] = frozenset()
    """The pull requests that the forge merges at once."""
    queues: bool = False
    """Whether the branch takes only what its merge queue merges."""

    def ensure(self, pull: PullRequest) -> PullRequest:
        self.bodies[pull.head] = pull.body
        self._call("ensure", pull.head)
        return replace(pull, number=pull.number or 7)

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        self._call(f"close: {comment} {duplicate_of}", number)

    def approve(self, number: int, *, expect: str) -> str:
        self._call(f"approve {expect}", number)
        return "" if self.queues else "c0ffee"

    def enable_auto_merge(self, number: int, *, expect: str) -> bool:
        self._call(f"let the forge merge {expect}", number)
        return number in self.merging

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
    head = "reconciler/demo/group/all"
    pull = PullRequest(head, "main", "All", "Why.")
    return [replace(edge.created(package), group=head, pull=pull) for package in packages]


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
    assert result.remaining == 0


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
    assert result.remaining == 2
    assert {package.path for package in result.failed} == {"b", "c"}
    assert all(why.is_left and why.pushed for why in result.unfinished.values())
    assert [effect.error for effect in result.effects] == ["", f"2 pull requests are left: {error}"]
    assert result.exits == {Exit.PARTIAL}


def test_last_pull_request_that_is_left_is_counted_as_one(edge: Edge) -> None:
    result = called(edge, Forge({head("a"): StoppedError()}), edge.created("a"))

    assert result.effects[0].error.startswith("1 pull request is left: ")


def approved(edge: Edge, package: str, number: int) -> Change:
    return replace(edge.created(package), approve=Approval(number, head(package), f"c0ffee{number}"))


def test_limit_leaves_this_and_later_approvals_to_the_next_run(edge: Edge) -> None:
    forge = Forge({2: LimitedError("The budget is spent", wait_s=60)})
    changes = [approved(edge, name, number) for number, name in enumerate("abc", 1)]

    result = merge_results(approve_pulls(target(edge, forge), changes))

    assert forge.calls == [("approve c0ffee1", 1)]
    assert result.remaining == 2
    assert {package.path for package in result.failed} == {"b", "c"}


def test_merge_that_fails_names_all_packages_that_share_it(edge: Edge) -> None:
    group = Approval(3, "reconciler/demo/group/all", "c0ffee3")
    shared = [replace(change, approve=group) for change in grouped(edge, "web", "db")]

    result = merge_results(
        approve_pulls(target(edge, Forge({3: RefusedError("no")})), [*shared, approved(edge, "a", 1)])
    )

    assert {package.path for package in result.failed} == {"web", "db"}
    assert [(effect.what, effect.ref, effect.error) for effect in result.effects] == [
        (EffectKind.MERGED, "#3 reconciler/demo/group/all", "no"),
        (EffectKind.MERGED, f"#1 {head('a')}", ""),
    ]


def test_what_a_budget_leaves_is_summed_over_its_repositories(edge: Edge) -> None:
    with scripted_api() as api:
        shared = api.transport()
        forges = [
            ApiForge(cast("Any", None), transport, "demo") for transport in (shared, shared, api.transport())
        ]
        targets = {str(n): edge.target(forge=forge) for n, forge in enumerate(forges)}
        results = {"0": Result(remaining=2), "1": Result(remaining=1), "2": Result()}

        (effect,) = remaining_effects({**results, "3": Result(remaining=9)}, {**targets, "3": edge.target()})

    assert effect.error.startswith("3 pull requests are left in all; about ")
    assert effect.is_left


def test_local_forge_merges_what_we_merge_in_one_push_and_has_no_auto_merge(edge: Edge) -> None:
    names = ("a", "b", "c")
    edge.apply(*map(edge.created, names))
    changes = [
        replace(
            edge.created(name),
            approve=Approval(number, head(name), edge.repo.oid(head(name)), by_forge=name == "c"),
        )
        for number, name in enumerate(names, 1)
    ]

    result = merge_results(approve_pulls(edge.target(), changes))

    assert [(effect.what, effect.error) for effect in result.effects] == [
        *[(EffectKind.MERGED, "")] * 2,
        (EffectKind.AUTO_MERGE, "Pull request 3: the local forge has no auto-merge"),
    ]
    assert {ref for ref in edge.repo.refs() if ref.startswith("refs/tags/")} == {
        "refs/tags/a/v1",
        "refs/tags/b/v1",
    }


def test_text_is_made_once_for_all_packages_and_all_calls(edge: Edge) -> None:
    changes = [
        replace(change, pull=replace(change.pull, body=""))
        for change in grouped(edge, "web", "db")
        if change.pull
    ]
    requests, own = PullRequestTexts(changes), target(edge, Forge())
    pull = changes[0].pull
    assert pull

    first = requests.wanted(own, changes[0], pull)

    assert requests.wanted(own, changes[1], pull) is first
    assert "edge/web" in first.body
    assert "edge/db" in first.body


def sides_of(own: Target, change: Change, pull: PullRequest) -> tuple[Files, Files]:
    """Return the package before and after a pull request, as its text compares them."""
    seen: list[tuple[Files, Files]] = []

    def changes(before: Files, after: Files, *others: Any) -> Any:
        seen.append((before, after))
        return own.differences.changes(before, after, *others)

    recording = replace(own, differences=cast("Any", SimpleNamespace(changes=changes)))
    PullRequestTexts([change]).wanted(recording, change, replace(pull, title="T", body=""))
    return seen[0]


def removed(edge: Edge) -> Change:
    return edge.change("db", edge.removal())


def test_both_sides_of_a_pull_request_are_that_of_the_base_and_the_written_or_pushed_one(edge: Edge) -> None:
    package = edge.draft().files
    edge.apply(edge.change("web", edge.draft(), pull=False))
    tip = edge.repo.oid(f"refs/heads/{head('web')}")
    edge.repo.commit({"db/cm.yaml": "b: 2\n"}, branch="other", start="main")
    mirror = edge.mirror()
    db = mirror.files(edge.repo.tree("main", "db"), Limits())
    web = PullRequest(head("web"), "main", "", "")

    moved = MoveRef("refs/heads/x", None, tip)

    def sides(change: Change, pull: PullRequest) -> tuple[Files, Files]:
        return sides_of(edge.target(mirror), change, pull)

    assert sides(edge.change("web", edge.draft(text="v2")), web) == ({}, edge.draft(text="v2").files)
    assert sides(edge.change("web", moved), web) == ({}, package)
    assert sides(edge.change("web"), replace(web, head="gone")) == ({}, {})
    assert sides(removed(edge), replace(web, head="other")) == (db, {})
    before, after = sides(edge.change("db"), replace(web, head="other"))
    assert (before, after["cm.yaml"].data) == (db, b"b: 2\n")
    assert sides(edge.change("db"), replace(web, base="other", head="main")) == (after, db)


def test_package_that_cannot_be_read_is_left_out_of_the_text(edge: Edge) -> None:
    link = edge.repo.commit({"db/link": (b"/etc/passwd", 0o120000)}, branch="link", start="main")

    for base, package in (("link", "db"), ("gone", "db"), ("link", "web"), ("main", "db")):
        before, _ = sides_of(edge.target(), edge.change(package), PullRequest("x", base, "T", ""))
        assert {*before} == ({"Kptfile", "cm.yaml"} if base == "main" else set())
    assert link


def test_one_pull_request_that_is_left_is_one_with_its_forge_and_time(edge: Edge) -> None:
    with scripted_api() as api:
        forge = ApiForge(cast("Any", None), api.transport(), "demo")
        (effect,) = remaining_effects({"a": Result(remaining=1)}, {"a": edge.target(forge=forge)})

    assert effect == Effect(
        api.api, EffectKind.OPENED, error="1 pull request is left in all; about 1 s to go", is_left=True
    )


def test_lock_has_a_text_where_its_pull_request_is_written() -> None:
    pull = PullRequest("reconciler/demo/lock", "main", "Lock", "")

    assert [*lock_texts(LockProposal(a_change(pull=pull)))] == [pull.head]
    assert lock_texts(None) == {}
    assert lock_texts(LockProposal(a_change())) == {}
