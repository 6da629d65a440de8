"""Effects of a plan, by whole values: what its checksum is computed from."""

from typing import Any

import pytest

from reconciler.api.porch import GitRepository
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.inventory.inventory import HeadStatus, RepositoryView, ReviewedLock
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.build import plan_effects, registered_addresses
from reconciler.plan.changes import (
    Approval,
    Change,
    ClosePull,
    GroupPart,
    LockProposal,
    MoveRef,
    Plan,
    StartBranch,
    WriteGroup,
    WriteRemoval,
)
from reconciler.policy import CommitPolicy, Policy
from reconciler.records.state import UpstreamLock, lock_bytes, lock_path, lock_upstream
from tests.support.plan_values import EDGE, PACKAGE, URL, WEB, a_change, a_pull, a_write, oid
from tests.support.sets import registered, repository, world
from tests.support.values import replace

KEPT = a_change(variant=WEB)
MOVE = MoveRef("refs/heads/x", oid("a1"), oid("a2"))
DRAFT = a_write(ref="refs/heads/d", expect=oid("a3"), message="Title", time=7)
DRAFTED = ["commit", "refs/heads/d", oid("a3"), oid("b2"), [["web", oid("e1")]], "Title", 7]
COMMITS = CommitPolicy()
PEOPLE = [COMMITS.name, COMMITS.email, COMMITS.sign, COMMITS.sign_off]


def effects(*changes: Change, views: tuple[RepositoryView, ...] = (EDGE,), **plan: Any) -> dict[str, Any]:
    return plan_effects(Plan(changes=changes, **plan), world(views=views), LockUpdate())


def of_edge(**change: Any) -> Any:
    return effects(replace(KEPT, **change))["repositories"].get(URL)


def test_plan_without_effects_is_empty() -> None:
    assert effects(KEPT) == {"repositories": {}}


@pytest.mark.parametrize(
    ("write", "effect", "is_commit"),
    [
        (MOVE, ["move", "refs/heads/x", oid("a1"), oid("a2")], False),
        (replace(MOVE, to=None), ["move", "refs/heads/x", oid("a1"), None], False),
        (DRAFT, DRAFTED, True),
        (replace(DRAFT, merges=oid("b9")), [*DRAFTED, oid("b9")], True),
        (WriteGroup("refs/heads/g", None, oid("b2"), (GroupPart("a", oid("e1")), GroupPart("b", None)), "T",
            8), ["commit", "refs/heads/g", None, oid("b2"), [["a", oid("e1")], ["b", None]], "T", 8], True),
        (WriteRemoval("refs/heads/r", None, oid("b2"), "web", "T", 9),
            ["commit", "refs/heads/r", None, oid("b2"), [["web", None]], "T", 9], True),
        (StartBranch("refs/heads/main", {}, oid("c1"), "T", 9), ["start", "refs/heads/main", None, oid("c1")],
            True),
    ],
)  # fmt: skip
def test_write_is_named_by_all_that_its_commit_is_made_from(
    write: Any, effect: list[Any], is_commit: bool
) -> None:
    assert of_edge(writes=(write,)) == {"refs": [effect], **({"commits": PEOPLE} if is_commit else {})}


def test_pull_requests_are_effects_by_their_content() -> None:
    pull = a_pull(number=3, title="T", body="B", digest="D", labels=("b", "a"), draft=False, redraft=True)
    plain = [3, pull.head, "main", "T", "B", "D", ["a", "b"], False, True]

    assert of_edge(pull=pull) == {"pulls": [plain]}
    assert of_edge(pull=replace(pull, reviewers=("ann",))) == {"pulls": [[*plain, ["ann"], []]]}
    assert of_edge(pull=replace(pull, assignees=("bob",))) == {"pulls": [[*plain, [], ["bob"]]]}
    status = HeadStatus("fleet", passed=True, text="Ready")
    assert of_edge(pull=replace(pull, status=status)) == {"pulls": [[*plain, list(status)]]}
    assert of_edge(close=(ClosePull(4, "x", "why", 3),)) == {"close": [[4, "why", 3]]}
    assert of_edge(approve=Approval(5, "x", oid("d2"), by_forge=True)) == {
        "approve": [[5, "x", oid("d2"), True]]
    }


def test_what_changes_share_counts_once_and_in_order() -> None:
    later = replace(MOVE, ref="refs/heads/y")
    one = replace(KEPT, writes=(later, MOVE))
    other = replace(one, package=PackageKey(URL, "api"), writes=(MOVE,))

    found = effects(one, other)["repositories"][URL]["refs"]

    assert [ref[1] for ref in found] == ["refs/heads/x", "refs/heads/y"]


def test_repositories_are_named_as_they_are_registered() -> None:
    views = (registered("b", url=URL, git="https://b"), registered("a", url=URL, git="https://a"))
    inventory = world(views=(*views, repository("plain")))

    assert registered_addresses(inventory) == {
        inventory.control.url: "control",
        URL: "https://a",
        "host/plain": "host/plain",
    }
    assert list(effects(replace(KEPT, writes=(MOVE,)), views=views)["repositories"]) == ["https://a"]


def test_lock_that_is_proposed_is_an_effect_on_the_control_repository() -> None:
    control = PackageKey(world().control.url, "locks")
    change = replace(KEPT, package=control, writes=(MOVE,))

    assert list(effects(lock=LockProposal(change))["repositories"]) == ["control"]


def test_commits_are_made_by_the_people_of_their_repository() -> None:
    git = GitRepository(repo="https://host/edge", author="Ann", email="a@x")
    spec = EDGE.manifest.spec.model_copy(update={"git": git})
    signed = replace(EDGE, manifest=EDGE.manifest.model_copy(update={"spec": spec}))
    change = replace(KEPT, writes=(DRAFT,))

    found = effects(change, views=(signed,))["repositories"]["https://host/edge"]

    assert found["commits"] == [*PEOPLE, ["", "Ann", "a@x"]]
    policy = Policy(commits=replace(COMMITS, name="Bot", sign_off=True))
    plan = Plan(changes=(change,))
    other = plan_effects(plan, world(views=(EDGE,), policy=policy), LockUpdate())["repositories"][URL]
    assert other["commits"] == ["Bot", COMMITS.email, COMMITS.sign, True]


# Locks on the state branch


def a_lock(digit: str) -> UpstreamLock:
    lock = lock_upstream(
        ObjectName("default", "web"),
        {"repo": "b", "package": "web", "branch": "main"},
        commit=digit * 40,
        tree="",
        ref="main",
    )
    assert lock is not None
    return lock


OLD, NEW = a_lock("1"), a_lock("2")
PATH = lock_path(OLD)


@pytest.mark.parametrize(
    ("before", "after", "mine", "others", "is_effect"),
    [
        (OLD, NEW, True, None, True),
        (None, NEW, True, None, True),
        (OLD, None, True, None, True),
        (OLD, OLD, True, None, False),
        (OLD, NEW, False, None, False),
        (OLD, NEW, True, frozenset({PATH}), False),
        (OLD, NEW, True, frozenset({"other"}), True),
    ],
)
def test_pins_that_change_are_effects(
    before: UpstreamLock | None, after: UpstreamLock | None, mine: bool, others: Any, is_effect: bool
) -> None:
    records = {PATH: lock_bytes(after)} if after else {}
    plan = Plan(
        records={**records, "packagevariants/a.json": b"{}"},
        record_owners={PATH: PACKAGE, "packagevariants/a.json": PACKAGE} if mine else {},
        other_files=others,
    )
    inventory = world(views=(EDGE,), locks={before.key: before} if before else {})

    found = plan_effects(plan, inventory, LockUpdate()).get("locks")

    assert (found is not None) is is_effect
    assert set(found or {}) <= {PATH}
    assert ((found or {}).get(PATH) is None) is (after is None or not is_effect)


def test_pins_of_a_reviewed_lock_are_effects_too() -> None:
    plan = Plan(records={PATH: lock_bytes(NEW)}, record_owners={PATH: PACKAGE})
    inventory = world(views=(EDGE,), reviewed=ReviewedLock())

    assert list(plan_effects(plan, inventory, LockUpdate())["locks"]) == [PATH]
