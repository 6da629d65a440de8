"""Approving on the local forge: Porch's commit, the tag, the clean-up, and what it refuses."""

from pathlib import Path

import pytest

from reconciler.errors import RefusedError
from reconciler.forge.local import LocalForge
from reconciler.forge.local_merge import DeletionHead, DraftHead, next_revision, parse_head
from reconciler.inventory import PullRequest, PullState
from tests.unit.apply.world import TIME, Edge

DRAFT = "refs/heads/drafts/web/packagevariant-1"
PROPOSED = "refs/heads/proposed/web/packagevariant-1"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    found = Edge(tmp_path)
    found.apply(found.created())
    return found


def forge(edge: Edge) -> LocalForge:
    return LocalForge(edge.mirror(), edge.target().policy)


def approve(edge: Edge, number: int = 1) -> str:
    local = forge(edge)
    pull = next(p for p in local.list_pulls() if p.number == number)
    return local.approve(number, expect=pull.head_oid)


def test_approving_is_porchs_commit_a_tag_and_no_draft(edge: Edge) -> None:
    main, tip = edge.repo.oid("main"), edge.repo.oid(DRAFT)

    oid = approve(edge)

    commit = edge.repo.git[oid]
    assert [str(p) for p in commit.parent_ids] == [main, tip]
    assert commit.message == (
        "Approving package revision web/1\n\n"
        'kpt:{"package":"web","workspaceName":"packagevariant-1","revision":"1"}\n'
    )
    assert edge.repo.oid("main") == edge.repo.oid("web/v1") == oid
    assert edge.repo.tree("main", "web") == edge.repo.tree(tip, "web")
    assert DRAFT not in edge.repo.refs()
    assert [p.state for p in forge(edge).list_pulls()] == [PullState.MERGED]
    edge.repo.fsck()


def test_approving_is_as_old_as_what_it_approves(edge: Edge) -> None:
    edge.repo.commit({"README.md": "newer"}, time=TIME + 500)

    oid = approve(edge)

    assert edge.repo.git[oid].committer.time == TIME + 500


def test_what_main_got_beside_the_package_stays(edge: Edge) -> None:
    edge.repo.commit({"README.md": "hotfix", "db/cm.yaml": "a: 9\n"})

    approve(edge)

    assert edge.repo.read("main", "README.md") == b"hotfix"
    assert edge.repo.read("main", "db/cm.yaml") == b"a: 9\n"


def test_a_hotfix_inside_the_package_is_never_undone(edge: Edge) -> None:
    hotfix = edge.repo.commit({"web/cm.yaml": "hotfix"})

    with pytest.raises(RefusedError):
        approve(edge)

    assert edge.repo.oid("main") == hotfix
    assert DRAFT in edge.repo.refs()


def test_a_commit_of_a_person_on_the_draft_is_approved_too(edge: Edge) -> None:
    edge.repo.commit({"web/more.yaml": "b: 2"}, branch="drafts/web/packagevariant-1")

    approve(edge)

    assert edge.repo.read("main", "web/more.yaml") == b"b: 2"


def test_a_repository_that_refuses_keeps_everything(edge: Edge) -> None:
    edge.repo.git.config["receive.denyDeletes"] = "true"
    before = edge.repo.refs()

    with pytest.raises(RefusedError):
        approve(edge)

    assert edge.repo.refs() == before


def test_what_was_rejected_is_not_approved(edge: Edge) -> None:
    forge(edge).reject(1, comment="No.")

    with pytest.raises(RefusedError):
        approve(edge)

    assert b'"withdrawn": false' in edge.repo.read("refs/reconciler/pulls/1", "pull.json")


def test_what_was_rejected_may_be_reopened_and_approved(edge: Edge) -> None:
    forge(edge).reject(1, comment="No.")
    edge.repo.commit({"web/more.yaml": "b: 2"}, branch="drafts/web/packagevariant-1")

    for _ in range(2):
        forge(edge).reopen(1)

    (pull,) = forge(edge).list_pulls()
    assert (pull.state, pull.head_oid) == (PullState.OPEN, edge.repo.oid(DRAFT))
    approve(edge)
    assert edge.repo.read("main", "web/more.yaml") == b"b: 2"


def test_what_cannot_be_reopened_is_refused_with_a_way_out(edge: Edge) -> None:
    approve(edge)
    with pytest.raises(RefusedError, match="merged"):
        forge(edge).reopen(1)
    with pytest.raises(RefusedError, match="no pull request 9"):
        forge(edge).reopen(9)


def test_a_pull_request_without_its_branch_is_not_reopened(edge: Edge) -> None:
    forge(edge).reject(1, comment="No.")
    edge.repo.delete(DRAFT)

    with pytest.raises(RefusedError, match="gone") as caught:
        forge(edge).reopen(1)

    assert "retry" in caught.value.hint


def test_of_two_pull_requests_of_one_branch_one_is_open(edge: Edge) -> None:
    forge(edge).reject(1)
    other = PullRequest(DRAFT.removeprefix("refs/heads/"), "main", "Again", "")
    assert forge(edge).ensure(other).number == 2

    with pytest.raises(RefusedError, match="Pull request 2"):
        forge(edge).reopen(1)


def test_approving_twice_is_approving_once(edge: Edge) -> None:
    first = approve(edge)
    before = edge.repo.refs()

    assert approve(edge) == first
    assert edge.repo.refs() == before


def test_a_branch_that_lost_its_package_is_not_approved(edge: Edge) -> None:
    edge.repo.commit({"web/Kptfile": None, "web/cm.yaml": None}, branch="drafts/web/packagevariant-1")

    with pytest.raises(RefusedError):
        approve(edge)


def test_numbers_continue_from_the_tags(edge: Edge) -> None:
    for name in ("web/v1", "web/v7", "web/v2.0.0", "website/v9", "web/x/v8"):
        edge.repo.tag(name)

    approve(edge)

    assert edge.repo.oid("web/v8") == edge.repo.oid("main")


def test_proposing_moves_the_branch_as_porch_does(edge: Edge) -> None:
    tip = edge.repo.oid(DRAFT)

    forge(edge).mark_ready(1)

    assert DRAFT not in edge.repo.refs()
    assert edge.repo.oid(PROPOSED) == tip
    (pull,) = forge(edge).list_pulls()
    assert (pull.draft, pull.head, pull.head_oid) == (False, "proposed/web/packagevariant-1", tip)


def test_a_proposal_is_approved_as_well(edge: Edge) -> None:
    forge(edge).mark_ready(1)

    approve(edge)

    assert PROPOSED not in edge.repo.refs()
    assert edge.repo.oid("web/v1") == edge.repo.oid("main")


def test_a_branch_that_porch_moved_is_a_proposal_not_a_close(edge: Edge) -> None:
    edge.repo.point(PROPOSED, edge.repo.oid(DRAFT))
    edge.repo.delete(DRAFT)

    (pull,) = forge(edge).list_pulls()

    assert (pull.state, pull.draft) == (PullState.OPEN, False)


def test_approving_a_deletion_removes_the_package_and_keeps_its_tags(edge: Edge) -> None:
    tag = edge.repo.tag("db/v1")
    edge.repo.point("refs/heads/deletionProposed/db/v1", tag)
    edge.apply(edge.change("db", edge.removal()))

    oid = approve(edge, 2)

    refs = edge.repo.refs()
    assert edge.repo.git[oid].message == "Delete db\n"
    assert [entry.name for entry in edge.repo.git[oid].tree] == ["README.md"]
    assert refs["refs/tags/db/v1"] == tag
    assert "refs/heads/deletionProposed/db/v1" not in refs
    assert "refs/heads/reconciler/demo/delete/db" not in refs
    assert DRAFT in refs


def test_a_deletion_of_what_changed_since_is_refused(edge: Edge) -> None:
    edge.apply(edge.change("db", edge.removal()))
    edge.repo.commit({"db/cm.yaml": "still used"})

    with pytest.raises(RefusedError):
        approve(edge, 2)

    assert edge.repo.read("main", "db/cm.yaml") == b"still used"


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_a_merge_by_hand_ends_the_pull_request(edge: Edge, how: str) -> None:
    edge.repo.merge(DRAFT, how=how)

    (pull,) = forge(edge).list_pulls()

    assert pull.state is (PullState.MERGED if how == "merge" else PullState.OPEN)


@pytest.mark.parametrize(
    ("head", "want"),
    [
        ("drafts/a/b/w", DraftHead("a/b", "w")),
        ("proposed/a/w", DraftHead("a", "w")),
        ("reconciler/demo/delete/a/b", DeletionHead("a/b")),
        ("reconciler/demo/state", None),
        ("drafts/w", None),
        ("main", None),
    ],
)
def test_a_head_says_which_package_it_is_about(head: str, want: object) -> None:
    assert parse_head(head) == want


def test_the_first_revision_is_one() -> None:
    assert next_revision("web", ["refs/tags/other/v4", "refs/heads/web/v3"]) == 1
