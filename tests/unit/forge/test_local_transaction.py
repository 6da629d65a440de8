"""Local pull requests: what each step writes, in the same push as the branches."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.base.errors import ConflictError, RefusedError
from reconciler.base.redact import learn_credential
from reconciler.forge.local import forge as local
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.local.merge import OutdatedError, approval_message, check_new_package
from reconciler.forge.local.pulls import (
    LARGEST_NUMBER,
    LocalTransaction,
    PullRecord,
    missing_branch_hint,
    number_of,
    parse_record,
    read_records,
    record_bytes,
    unreadable_pull,
)
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, RefUpdate
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.refs import nested_message
from reconciler.policy import CommitPolicy
from tests.support.git import kptfile
from tests.support.values import TOKEN, replace
from tests.unit.apply.world import POLICY, TIME, Edge

HEAD = "drafts/web/packagevariant-1"
DRAFT, PROPOSED = f"refs/heads/{HEAD}", "refs/heads/proposed/web/packagevariant-1"
PULL = "refs/reconciler/pulls/1"
GROUP = "reconciler/demo/group/all"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    edge = Edge(tmp_path)
    edge.apply(edge.created())
    return edge


def forge(edge: Edge, policy: CommitPolicy = POLICY) -> LocalForge:
    return LocalForge(edge.mirror(), policy)


def begin(edge: Edge) -> LocalTransaction:
    mirror = edge.mirror()
    return LocalTransaction(mirror, Pack(mirror), POLICY)


def record(edge: Edge, number: int = 1) -> PullRecord:
    parsed = parse_record(edge.repo.read(f"refs/reconciler/pulls/{number}", "pull.json"), ref=PULL)
    assert isinstance(parsed, PullRecord)
    return parsed


DESIRED = PullRequest(HEAD, "main", "New title", "New text.", labels=("a",), digest="d1")


def test_pull_request_is_written_with_every_field_and_as_old_as_its_head(edge: Edge) -> None:
    tip = edge.repo.oid(DRAFT)

    assert forge(edge).ensure(DESIRED) == replace(DESIRED, number=1, head_oid=tip)
    assert record(edge) == PullRecord(
        number=1,
        head=HEAD,
        base="main",
        title="New title",
        body="New text.",
        labels=("a",),
        digest="d1",
        head_oid=tip,
    )
    commit = edge.repo.git[edge.repo.oid(PULL)]
    assert (commit.message, commit.committer.time, commit.author.email) == (
        "Pull request 1: New title\n",
        TIME,
        POLICY.email,
    )
    assert not commit.parent_ids


def test_unreadable_pull_request_is_not_written_beside(edge: Edge) -> None:
    edge.repo.commit({"pull.json": f'{{"head": "{HEAD}"}}'}, branch="bad", start="main")
    edge.repo.point("refs/reconciler/pulls/1", edge.repo.oid("bad"))

    with pytest.raises(RefusedError) as caught:
        forge(edge).ensure(DESIRED)

    assert str(caught.value).startswith(f"Pull request 1 of {HEAD} cannot be read: ")
    assert caught.value.hint == "Delete refs/reconciler/pulls/1 if nothing needs it."


@pytest.mark.parametrize(
    ("refs", "number"),
    [
        ((), 2),
        (("refs/reconciler/pulls/7",), 8),
        (("refs/reconciler/pulls/7/x",), 8),
        (("refs/reconciler/pulls/x",), 2),
        (("refs/reconciler/pulls/0",), 2),
        ((f"refs/reconciler/pulls/{LARGEST_NUMBER}",), 2),
        ((f"refs/reconciler/pulls/{LARGEST_NUMBER}", "refs/reconciler/pulls/2"), 3),
        ((f"refs/reconciler/pulls/{LARGEST_NUMBER - 1}",), LARGEST_NUMBER),
    ],
)
def test_number_follows_the_greatest_unless_that_is_too_large(
    edge: Edge, refs: tuple[str, ...], number: int
) -> None:
    edge.repo.commit({"x": "1"}, branch="feature", start="main")
    for ref in refs:
        edge.repo.point(ref, edge.repo.oid("main"))

    assert forge(edge).ensure(replace(DESIRED, head="feature")).number == number


def test_pull_request_follows_its_branch_in_the_same_push(edge: Edge) -> None:
    before = begin(edge)
    before.move(DRAFT, edge.repo.commit({"web/a": "2"}, branch=HEAD))
    edge.repo.merge(DRAFT, how="squash")
    after = begin(edge)
    after.move(DRAFT, None)

    states = [(staged.records[1].state, [u.ref for u in staged.updates()]) for staged in (before, after)]
    assert states == [(PullState.OPEN, [PULL]), (PullState.MERGED, [PULL])]


def test_ready_pull_request_moves_its_branch_and_back(edge: Edge) -> None:
    tip = edge.repo.oid(DRAFT)

    assert begin(edge).mark_ready(1) == [RefUpdate(DRAFT, tip, None), RefUpdate(PROPOSED, None, tip)]
    forge(edge).mark_ready(1)
    assert begin(edge).mark_ready(1) == []
    assert record(edge).draft is False

    assert begin(edge).mark_draft(1) == [RefUpdate(PROPOSED, tip, None), RefUpdate(DRAFT, None, tip)]
    forge(edge).mark_draft(1)
    assert begin(edge).mark_draft(1) == []
    assert (record(edge).draft, edge.repo.oid(DRAFT), PROPOSED in edge.repo.refs()) == (True, tip, False)


def test_branch_that_is_no_draft_stays_where_it_is_when_ready(edge: Edge) -> None:
    edge.repo.commit({"x": "1"}, branch="feature", start="main")
    forge(edge).ensure(replace(DESIRED, head="feature"))

    assert (begin(edge).mark_ready(2), begin(edge).mark_draft(2)) == ([], [])
    forge(edge).mark_ready(2)
    assert record(edge, 2).draft is False
    forge(edge).mark_draft(2)
    assert record(edge, 2).draft is True


def test_ended_pull_request_is_not_marked(edge: Edge) -> None:
    forge(edge).reject(1)

    ended = record(edge)

    for mark in ("mark_ready", "mark_draft"):
        staged = begin(edge)
        assert getattr(staged, mark)(1) == []
        assert staged.find(1) == ended
    assert ended.state is PullState.CLOSED


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_closed_pull_request_counts_as_merged_if_the_base_has_its_content(edge: Edge, how: str) -> None:
    edge.repo.merge(DRAFT, how=how)

    forge(edge).close(1, comment="Obsolete.")

    written = record(edge)
    assert (written.state, written.merge_oid, written.draft) == (
        PullState.MERGED,
        edge.repo.oid("main"),
        False,
    )
    assert written.comments == {}


def proposal(edge: Edge, head: str, changes: dict[str, Any]) -> None:
    edge.repo.commit(changes, branch=head, start="main")
    forge(edge).ensure(replace(DESIRED, head=head))


MERGES = {
    "a deletion": ("reconciler/demo/delete/db", {"db/Kptfile": None, "db/cm.yaml": None}),
    "the lock": ("reconciler/demo/lock", {"locks/a.json": "1"}),
    "a group": (GROUP, {"x/Kptfile": kptfile("x"), "db/cm.yaml": "a: 2\n"}),
}


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("name", MERGES)
def test_content_of_every_kind_is_recognised_on_the_base(edge: Edge, name: str, merged: bool) -> None:
    head, changes = MERGES[name]
    proposal(edge, head, changes)
    if merged:
        edge.repo.commit(changes)
    else:
        edge.repo.commit({next(iter(changes)): "other"})

    forge(edge).close(2, comment="")

    assert record(edge, 2).state is (PullState.MERGED if merged else PullState.CLOSED)


def test_lock_that_both_removed_is_merged_and_a_draft_without_its_package_is_not(edge: Edge) -> None:
    edge.repo.commit({"locks/a.json": "1"})
    proposal(edge, "reconciler/demo/lock", {"locks/a.json": None})
    edge.repo.commit({"locks/a.json": None})
    edge.repo.commit({"web/Kptfile": None, "web/cm.yaml": None}, branch=HEAD)

    forge(edge).close(2, comment="")
    forge(edge).close(1, comment="")

    assert (record(edge, 2).state, record(edge, 1).state) == (PullState.MERGED, PullState.CLOSED)


def test_group_that_changes_files_outside_of_packages_is_not_merged(edge: Edge) -> None:
    proposal(edge, GROUP, {"x/Kptfile": kptfile("x"), "README.md": "changed"})
    edge.repo.commit({"x/Kptfile": kptfile("x"), "README.md": "changed"})

    forge(edge).close(2, comment="")

    assert record(edge, 2).state is PullState.CLOSED


def test_group_without_history_in_common_is_neither_merged_nor_mergeable(edge: Edge) -> None:
    orphan = edge.repo.write(edge.repo.tree("main"), [], message="orphan")
    edge.repo.point(f"refs/heads/{GROUP}", orphan)
    forge(edge).ensure(replace(DESIRED, head=GROUP))

    with pytest.raises(RefusedError, match=f"{GROUP} and main have no commit in common"):
        forge(edge).approve(2, expect=orphan)
    forge(edge).close(2, comment="")
    assert record(edge, 2).state is PullState.CLOSED


def test_impossible_steps_name_the_cause_and_what_to_do(edge: Edge) -> None:
    forge(edge).reject(1)
    edge.repo.delete(DRAFT)
    with pytest.raises(RefusedError) as gone:
        forge(edge).reopen(1)
    with pytest.raises(RefusedError) as missing:
        forge(edge).mark_ready(9)

    assert str(gone.value) == f"Branch {HEAD} of pull request 1 is gone"
    assert gone.value.hint == missing_branch_hint(HEAD)
    assert str(missing.value) == f"There is no pull request 9 in {edge.repo.path}"
    assert missing_branch_hint(HEAD) == (
        "Set annotation reconciler.dev/retry of its variant to another value, and run `reconciler apply`."
    )
    assert "reconciler lock" in missing_branch_hint("reconciler/demo/lock")
    for head in ("reconciler/demo/index/registry", "reconciler/demo/chart/web/next"):
        assert "reconciler index sync --pull-request" in missing_branch_hint(head)
    assert missing_branch_hint("reconciler/demo/delete/db") == (
        "Write its PackageVariant again, run `reconciler apply`, and remove it again: "
        "that proposes the deletion."
    )


def test_merged_pull_request_is_not_reopened_and_is_merged_once(edge: Edge) -> None:
    tip = edge.repo.oid(DRAFT)
    oid = forge(edge).approve(1, expect=tip)

    with pytest.raises(RefusedError, match="Pull request 1 was merged and cannot be opened again") as caught:
        forge(edge).reopen(1)
    assert caught.value.hint == "Revert its commit on the base, or change what its variant asks for."
    assert forge(edge).merge(1, expect="other") == oid
    written = record(edge)
    assert (written.state, written.merge_oid, written.draft) == (PullState.MERGED, oid, False)
    assert edge.repo.git[edge.repo.oid(PULL)].committer.time == edge.repo.git[oid].committer.time


def test_branch_of_no_package_is_merged_by_git_alone(edge: Edge) -> None:
    proposal(edge, "feature", {"x": "1"})

    with pytest.raises(RefusedError, match="feature is not the draft of a package; merge it with git"):
        forge(edge).approve(2, expect=edge.repo.oid("feature"))


def test_what_the_base_has_already_holds_no_group(edge: Edge) -> None:
    """A package that left the branch of the group, and main too."""
    edge.repo.commit({"db/Kptfile": "kind: Kptfile\n", "db/cm.yaml": "a: 1\n"})
    proposal(edge, GROUP, {"x/Kptfile": "kind: Kptfile\n", "db/Kptfile": None, "db/cm.yaml": None})
    edge.repo.commit({"db/Kptfile": None, "db/cm.yaml": None})

    forge(edge).approve(2, expect=edge.repo.oid(GROUP))

    assert edge.repo.read("main", "x/Kptfile") == b"kind: Kptfile\n"


@pytest.mark.parametrize(
    ("ready", "branch"), [(False, "drafts/db/packagevariant-1"), (True, "proposed/db/packagevariant-1")]
)
def test_package_that_changed_on_the_base_is_not_overwritten(edge: Edge, ready: bool, branch: str) -> None:
    proposal(edge, "drafts/db/packagevariant-1", {"db/cm.yaml": "a: 2\n"})
    tip = edge.repo.oid("drafts/db/packagevariant-1")
    if ready:
        forge(edge).mark_ready(2)
    edge.repo.commit({"db/cm.yaml": "a: 3\n"})

    with pytest.raises(OutdatedError) as caught:
        forge(edge).approve(2, expect=tip)

    assert str(caught.value) == "db changed on main since pull request 2 was made"
    assert caught.value.path == "db"
    assert caught.value.hint == f"Merge main into {branch} with git and push it, then approve again."


def test_missing_base_and_missing_package_are_refused(edge: Edge) -> None:
    forge(edge).ensure(replace(DESIRED, base="gone"))
    with pytest.raises(RefusedError, match=f"{edge.repo.path} has no branch gone"):
        forge(edge).approve(1, expect=edge.repo.oid(DRAFT))
    tip = edge.repo.commit({"web/Kptfile": None, "web/cm.yaml": None}, branch=HEAD)
    with pytest.raises(RefusedError, match=f"{HEAD} does not contain package web"):
        forge(edge).approve(1, expect=tip)


def test_writer_that_always_loses_gives_up(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    pushes = []

    def lose(_: object, updates: list[RefUpdate]) -> list[PushResult]:
        pushes.append(len(updates))
        return [PushResult(update, PushStatus.STALE, "moved") for update in updates]

    monkeypatch.setattr(local, "push", lose)

    with pytest.raises(
        ConflictError, match=f"Other writers keep changing the pull requests of {edge.repo.path}"
    ):
        forge(edge).comment(1, key="k", body="b")
    assert pushes == [1] * local.ATTEMPTS


def test_files_of_pull_requests_are_read_with_their_reason(edge: Edge) -> None:
    edge.repo.commit({"other.json": "{"}, branch="x", start="main")
    for number in (3, 10):
        edge.repo.point(f"refs/reconciler/pulls/{number}", edge.repo.oid("x"))
    edge.repo.commit({"pull.json": "x" * (2 << 20)}, branch="y", start="main")
    edge.repo.point("refs/reconciler/pulls/4", edge.repo.oid("y"))
    edge.repo.point("refs/reconciler/pulls/x", edge.repo.oid("y"))

    read = {pull.number: pull for pull in read_records(edge.mirror(), {})}

    assert isinstance(read[1], PullRecord)
    assert read[3] == unreadable_pull("refs/reconciler/pulls/3", "it has no pull.json")
    assert isinstance(read[4], PullRequest)
    assert "it has 2097152 bytes, more than" in read[4].unreadable
    assert sorted(read) == [1, 3, 4, 10]
    assert [pull.number for pull in forge(edge).begin(Pack(edge.mirror())).unreadable] == [3, 4, 10]


def test_unreadable_pull_request_keeps_number_head_and_reason() -> None:
    pull = unreadable_pull("refs/reconciler/pulls/8", "why", head="x")

    assert pull == PullRequest("x", "", "", "", number=8, state=PullState.CLOSED, unreadable="why")
    assert unreadable_pull("refs/heads/x", "why").number == 0


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (b"{", ""),
        (b"[]", ""),
        (b'{"head": 5}', ""),
        (b'{"head": "x", "number": 1}', "x"),
        (b'{"other": "x"}', ""),
    ],
)
def test_head_of_a_malformed_record_is_read_where_it_can(data: bytes, head: str) -> None:
    pull = parse_record(data, ref="refs/reconciler/pulls/8")

    assert isinstance(pull, PullRequest)
    assert (pull.head, pull.number, bool(pull.unreadable)) == (head, 8, True)


def test_credential_is_in_no_record() -> None:
    learn_credential(TOKEN, "a test")
    record = PullRecord(
        number=3, head="x", base="main", title=f"sent {TOKEN}", body=TOKEN, comments={"a": TOKEN}
    )

    assert TOKEN.encode() not in record_bytes(record)
    assert record_bytes(record).count(b"***") == 3
    with pytest.raises(RefusedError, match=r"^Field labels\[0\] of pull request 3 holds a credential"):
        record_bytes(msgspec.structs.replace(record, labels=(TOKEN,)))


@pytest.mark.parametrize(
    ("ref", "number"),
    [
        ("refs/reconciler/pulls/1", 1),
        ("refs/reconciler/pulls/12", 12),
        ("refs/reconciler/pulls/01", None),
        ("refs/reconciler/pulls/0", None),
        ("refs/reconciler/pulls/1/x", None),
        ("refs/reconciler/pulls/-1", None),
        ("refs/reconciler/pulls/", None),
        ("refs/heads/1", None),
        ("1", None),
    ],
)
def test_number_of_a_ref_is_written_in_one_way(ref: str, number: int | None) -> None:
    assert number_of(ref) == number


def test_message_of_an_approval_has_the_annotation_of_porch() -> None:
    assert approval_message("a/b", "w", 7) == (
        'Approving package revision a/b/7\n\nkpt:{"package":"a/b","workspaceName":"w","revision":"7"}\n'
    )


PLAN = "Run `reconciler plan`: it shows what blocks the package."


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, ""),
        ({"a/b/Kptfile": "k", "a/b/lost": "1"}, ""),
        ({"a/b/Kptfile": "k", "a/Kptfile": "k"}, ""),
        ({"a/b/x": "other"}, ""),
        ({"a/c/Kptfile": "k"}, ""),
        ({"a/Kptfile": "k"}, nested_message("a/b", "a")),
        ({"a/b/sub/Kptfile": "k"}, nested_message("a/b", "a/b/sub")),
        ({"a/b/lost": "1"}, "Merging package a/b would remove a/b/lost"),
        ({"a/b/sub/lost": "1"}, "Merging package a/b would remove a/b/sub/lost"),
    ],
)
def test_new_package_removes_nothing_and_nests_nothing(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    edge = Edge(tmp_path)
    package = edge.repo.commit({"p/Kptfile": "k", "p/x": "1", "p/sub/y": "1"}, branch="p", start="main")
    base = edge.repo.commit({"other": "1", **files})
    mirror, tree = edge.mirror(), edge.repo.tree(package, "p")

    if not message:
        check_new_package(mirror, base, tree, "a/b")
        return
    with pytest.raises(RefusedError) as caught:
        check_new_package(mirror, base, tree, "a/b")
    assert str(caught.value) == message
    assert caught.value.hint == PLAN
