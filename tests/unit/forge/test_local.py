"""Approving on the local forge: Porch's commit, the tag, the clean-up, and what it refuses."""

from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.base.errors import RefusedError
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.local.merge import DeletionHead, DraftHead, next_revision, parse_head
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.policy import CommitPolicy
from tests.unit.apply.world import Edge

DRAFT = "refs/heads/drafts/web/packagevariant-1"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    edge = Edge(tmp_path)
    edge.apply(edge.created())
    return edge


def forge(edge: Edge) -> LocalForge:
    return LocalForge(edge.mirror(), edge.target().policy)


def approve(edge: Edge, number: int = 1) -> str:
    local = forge(edge)
    pull = next(p for p in local.list_pulls() if p.number == number)
    return local.approve(number, expect=pull.head_oid)


def test_approval_makes_commit_and_tag_and_deletes_draft(edge: Edge) -> None:
    main, tip = edge.repo.commit({"db/cm.yaml": "a: 9\n"}), edge.repo.oid(DRAFT)

    oid = approve(edge)

    commit = edge.repo.git[oid]
    assert [str(p) for p in commit.parent_ids] == [main, tip]
    assert commit.message == (
        "Approving package revision web/1\n\n"
        'kpt:{"package":"web","workspaceName":"packagevariant-1","revision":"1"}\n'
    )
    assert edge.repo.oid("main") == edge.repo.oid("web/v1") == oid
    assert edge.repo.tree("main", "web") == edge.repo.tree(tip, "web")
    assert edge.repo.read("main", "db/cm.yaml") == b"a: 9\n"
    assert DRAFT not in edge.repo.refs()
    assert [p.state for p in forge(edge).list_pulls()] == [PullState.MERGED]
    edge.repo.fsck()


def test_refused_push_changes_nothing(edge: Edge) -> None:
    edge.repo.git.config["receive.denyDeletes"] = "true"
    before = edge.repo.refs()

    with pytest.raises(RefusedError, match=f"edge.git refuses {DRAFT}: deletion prohibited"):
        approve(edge)

    assert edge.repo.refs() == before


def test_branch_has_one_open_pull_request(edge: Edge) -> None:
    forge(edge).reject(1)
    other = PullRequest(DRAFT.removeprefix("refs/heads/"), "main", "Again", "")
    assert forge(edge).ensure(other).number == 2

    with pytest.raises(RefusedError, match="Pull request 2"):
        forge(edge).reopen(1)


def test_revision_numbers_continue_from_the_tags(edge: Edge) -> None:
    for name in ("web/v1", "web/v7", "web/v2.0.0", "website/v9", "web/x/v8"):
        edge.repo.tag(name)

    approve(edge)

    assert edge.repo.oid("web/v8") == edge.repo.oid("main")


def test_approved_deletion_removes_package_and_keeps_tags(edge: Edge) -> None:
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


def test_deletion_of_changed_package_is_refused(edge: Edge) -> None:
    edge.apply(edge.change("db", edge.removal()))
    edge.repo.commit({"db/cm.yaml": "still used"})

    with pytest.raises(RefusedError):
        approve(edge, 2)

    assert edge.repo.read("main", "db/cm.yaml") == b"still used"


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
def test_head_is_parsed_into_its_package(head: str, want: object) -> None:
    assert parse_head(head) == want


def test_the_first_revision_is_one() -> None:
    assert next_revision("web", ["refs/tags/other/v4", "refs/heads/web/v3"]) == 1


def test_local_forge_has_no_auto_merge() -> None:
    forge = LocalForge(cast("Any", None), CommitPolicy())

    with pytest.raises(RefusedError, match=r"^Pull request 5: the local forge has no auto-merge$"):
        forge.enable_auto_merge(5, expect="c0ffee")
