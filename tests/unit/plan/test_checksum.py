"""The checksum of a plan: equal if and only if applying does the same, wherever the repositories stand."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, GitRepository, Repository, RepositorySpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.inventory.inventory import (
    Commit,
    Control,
    HeadStatus,
    Inventory,
    PullRequest,
    RepositoryView,
    Source,
)
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.plan.changes import (
    Approval,
    Change,
    ClosePull,
    GroupPart,
    LockProposal,
    MoveRef,
    Op,
    Plan,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.checksum import plan_checksum, plan_effects
from reconciler.policy import CommitPolicy, Policy
from reconciler.records.upstream_lock import UpstreamLock, lock_bytes, lock_path
from tests.support.plan_values import a_change, a_write
from tests.support.values import replace

EDGE = ObjectName("default", "edge")
WEB = PackageKey("/home/somebody/edge", "web")
A, B, C = (Oid(digit * 40) for digit in "abc")

DRAFT = a_write(ref="refs/heads/drafts/web/w", expect=A, onto=B, tree=C, message="Create web\n", time=1)
REMOVAL = WriteRemoval("refs/heads/reconciler/fleet/delete/web", None, B, "web", "Delete web\n", 1)
MOVE = MoveRef("refs/heads/drafts/web/w", A, None)
GROUP = WriteGroup("refs/heads/drafts/set/1", A, B, (GroupPart("web", C),), "Draft of 1 package\n", 1)
PULL = PullRequest("drafts/web/w", "main", "Create web", "text", draft=True, labels=("team-a",))
CLOSE = ClosePull(3, "drafts/web/w", "Main has this content.")
APPROVAL = Approval(4, "drafts/web/w", A)


def change(package: PackageKey = WEB, **more: Any) -> Change:
    return a_change(package=package, repository=EDGE, op=Op.UPDATE, reason=Reason.UPSTREAM_CHANGED, **more)


def inventory(directory: str = "/home/somebody", address: str = "../edge.git", **more: Any) -> Inventory:
    manifest = Repository(
        api_version=REPOSITORY,
        kind="Repository",
        metadata=ObjectMeta(name="edge", namespace="default"),
        spec=RepositorySpec(git=GitRepository(repo=address)),
    )
    view = RepositoryView(
        EDGE, f"{directory}/edge", address, "main", "", manifest, Source(Location("edge.yaml", 1))
    )
    control = Control(f"{directory}/control", "control", Commit(A, 1))
    return Inventory(**{"policy": Policy(), "control": control, "repositories": {EDGE: view}, **more})


def checksum(*changes: Change, world: Inventory | None = None, **more: Any) -> str:
    return plan_checksum(Plan(changes, **more), world or inventory(), LockUpdate())


EMPTY = checksum()


@pytest.mark.parametrize(
    "effect",
    [
        {"writes": (DRAFT,)},
        {"writes": (REMOVAL,)},
        {"writes": (MOVE,)},
        {"writes": (GROUP,)},
        {"pull": PULL},
        {"close": (CLOSE,)},
        {"approve": APPROVAL},
    ],
    ids=lambda effect: next(iter(effect)),
)
def test_every_kind_of_effect_counts(effect: dict[str, Any]) -> None:
    assert checksum(change(**effect)) != EMPTY


@pytest.mark.parametrize(
    ("write", "difference"),
    [
        (DRAFT, {"ref": "refs/heads/drafts/web/other"}),
        (DRAFT, {"expect": None}),
        (DRAFT, {"onto": A}),
        (DRAFT, {"path": "db"}),
        (DRAFT, {"tree": A}),
        (DRAFT, {"message": "Update web\n"}),
        (DRAFT, {"time": 2}),
        (REMOVAL, {"path": "db"}),
        (REMOVAL, {"time": 2}),
        (MOVE, {"to": B}),
        (MOVE, {"expect": B}),
        (GROUP, {"parts": (GroupPart("web", None),)}),
        (GROUP, {"parts": (GroupPart("web", C), GroupPart("db", C))}),
    ],
    ids=str,
)
def test_every_part_of_a_write_counts(write: Any, difference: dict[str, Any]) -> None:
    other = replace(write, **difference)

    assert checksum(change(writes=(write,))) != checksum(change(writes=(other,)))


@pytest.mark.parametrize(
    "difference",
    [
        {"title": "Update web"},
        {"body": "another text"},
        {"labels": ()},
        {"draft": False},
        {"base": "release"},
        {"head": "drafts/web/other"},
        {"number": 7},
        {"status": HeadStatus("fleet", passed=True, text="Ready")},
    ],
    ids=str,
)
def test_the_whole_content_of_a_pull_request_counts(difference: dict[str, Any]) -> None:
    assert checksum(change(pull=PULL)) != checksum(change(pull=replace(PULL, **difference)))


def test_what_is_closed_and_approved_counts_with_its_number_and_text() -> None:
    sums = {
        checksum(change(close=(CLOSE,))),
        checksum(change(close=(replace(CLOSE, number=9),))),
        checksum(change(close=(replace(CLOSE, comment="The package is wanted again."),))),
        checksum(change(approve=APPROVAL)),
        checksum(change(approve=APPROVAL._replace(number=9))),
        checksum(change(approve=APPROVAL._replace(expect=B))),
    }

    assert len(sums) == 6


def test_who_commits_counts_where_a_commit_is_made_and_nowhere_else() -> None:
    signed = inventory(policy=Policy(commits=CommitPolicy(name="Somebody", sign_off=True)))

    assert checksum(change(writes=(DRAFT,)), world=signed) != checksum(change(writes=(DRAFT,)))
    assert checksum(change(writes=(MOVE,)), world=signed) == checksum(change(writes=(MOVE,)))


def test_reasons_and_messages_are_no_effects() -> None:
    told = replace(change(writes=(DRAFT,)), op=Op.EDIT, reason=Reason.CONTENT_CHANGED, message="why")

    assert checksum(told) == checksum(change(writes=(DRAFT,)))
    assert checksum(replace(told, writes=())) == EMPTY


def test_the_directory_of_a_local_repository_does_not_count_but_its_address_does() -> None:
    here, there = inventory(), inventory("/tmp/clone")
    moved = change(WEB._replace(url="/tmp/clone/edge"), writes=(DRAFT,))
    elsewhere = inventory(address="../other.git")

    assert checksum(moved, world=there) == checksum(change(writes=(DRAFT,)), world=here)
    assert checksum(change(writes=(DRAFT,)), world=elsewhere) != checksum(change(writes=(DRAFT,)))


def test_a_decided_lock_counts_and_one_that_stands_does_not() -> None:
    lock = UpstreamLock(
        namespace="default",
        name="web",
        repository="blueprints",
        package="web",
        selector={},
        commit=A,
        tree=B,
    )
    files = {"records": {lock_path(lock): lock_bytes(lock)}, "record_owners": {lock_path(lock): WEB}}
    standing = inventory(locks={lock.key: lock})

    assert checksum(**files) != EMPTY
    assert checksum(**files, world=standing) == EMPTY
    assert checksum(record_owners=files["record_owners"], world=standing) != EMPTY
    assert checksum(**files, other_files=frozenset({lock_path(lock)})) == EMPTY


def test_the_proposal_of_another_lock_counts() -> None:
    proposal = LockProposal(change(PackageKey("/home/somebody/control", "locks"), pull=PULL))

    assert checksum(lock=proposal) != EMPTY


oids = st.sampled_from([A, B, C])
drafts = st.builds(
    lambda path, onto, tree, time: a_write(
        ref=f"refs/heads/drafts/{path}/w", onto=onto, path=path, tree=tree, message=path, time=time
    ),
    st.sampled_from(["web", "db"]),
    oids,
    oids,
    st.integers(0, 1),
)
moves = st.builds(MoveRef, st.sampled_from(["refs/heads/a", "refs/heads/b"]), oids, st.none() | oids)
pulls = st.builds(
    PullRequest,
    head=st.sampled_from(["a", "b"]),
    base=st.just("main"),
    title=st.sampled_from(["Create web", "Update web"]),
    body=st.sampled_from(["", "text"]),
    draft=st.booleans(),
    labels=st.sampled_from([(), ("team",)]),
)
changes = st.builds(
    change,
    writes=st.lists(drafts | moves, max_size=2).map(tuple),
    pull=st.none() | pulls,
    close=st.lists(st.builds(ClosePull, st.integers(1, 2), st.just("a"), st.just("")), max_size=1).map(tuple),
    approve=st.none() | st.builds(Approval, st.integers(1, 2), st.just("a"), oids),
    message=st.sampled_from(["", "why"]),
)
plans = st.lists(changes, max_size=3)


def effects(drawn: list[Change]) -> set[tuple[str, str]]:
    """Return what applying does, written down in another way than the checksum does it."""
    done = set()
    for each in drawn:
        done |= {("write", repr(write)) for write in each.writes}
        done |= {("close", repr(close)) for close in each.close}
        done |= {(kind, repr(value)) for kind, value in (("pull", each.pull), ("ok", each.approve)) if value}
    return done


def explained(drawn: list[Change]) -> list[Change]:
    """Return changes that do the same for another reason."""
    return [replace(each, op=Op.EDIT, reason=Reason.CONTENT_CHANGED, message="other") for each in drawn]


pairs = plans.flatmap(lambda drawn: st.tuples(st.just(drawn), plans | st.permutations(drawn).map(explained)))


@given(pairs)
def test_checksums_are_equal_if_and_only_if_the_effects_are(pair: tuple[list[Change], list[Change]]) -> None:
    one, other = pair

    assert (checksum(*one) == checksum(*other)) == (effects(one) == effects(other))


def test_effects_are_named_by_registered_address() -> None:
    drawn = plan_effects(Plan((change(pull=PULL),)), inventory(), LockUpdate())

    assert list(drawn["repositories"]) == ["../edge.git"]
    assert orjson.dumps(drawn)
