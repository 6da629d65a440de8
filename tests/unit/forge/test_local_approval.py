"""Approving many pull requests in one push gives what approving each alone gives."""

import shutil
from pathlib import Path

import pytest

from reconciler.base.errors import ConflictError, ReconcilerError, RefusedError
from reconciler.forge.local import forge as local_approval
from reconciler.forge.local.forge import LocalForge, LocalMerge
from reconciler.git.command import process_count
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, RefUpdate, push
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import Oid
from tests.support.git import kptfile
from tests.unit.apply.world import POLICY, Edge

DELETION = "reconciler/demo/delete/db"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    """Eight drafts, one of which is for a package inside of another's, and a deletion."""
    edge = Edge(tmp_path)
    names = [*(f"team/p{number}" for number in range(6)), "web", "web/inner"]
    edge.apply(*(edge.created(name) for name in names))
    edge.repo.commit({"db/Kptfile": None, "db/cm.yaml": None}, branch=DELETION, start="main")
    forge(edge).ensure(PullRequest(DELETION, "main", "Delete db", "Why."))
    return edge


def forge(edge: Edge) -> LocalForge:
    return LocalForge(edge.mirror(), POLICY)


def approvals(edge: Edge) -> list[LocalMerge]:
    return [LocalMerge(pull.number, pull.head_oid) for pull in forge(edge).list_pulls()]


def one_by_one(edge: Edge, chosen: list[LocalMerge]) -> dict[int, str]:
    results = {}
    for number, expect, _ in chosen:
        try:
            results[number] = forge(edge).approve(number, expect=expect)
        except ReconcilerError as error:
            results[number] = repr(error)
    return results


def at_once(edge: Edge, chosen: list[LocalMerge]) -> dict[int, str]:
    results = forge(edge).approve_all(chosen)
    return {n: result if isinstance(result, str) else repr(result) for n, result in results.items()}


def compare(edge: Edge, chosen: list[LocalMerge]) -> dict[int, str]:
    """Approve in both ways; return the results after comparing them and every ref."""
    copy = edge.root / "copy.git"
    shutil.copytree(edge.repo.path, copy)
    alone, refs = one_by_one(edge, chosen), edge.repo.refs()
    shutil.rmtree(edge.repo.path)
    shutil.copytree(copy, edge.repo.path)

    together = at_once(edge, chosen)

    assert together == alone
    assert edge.repo.refs() == refs
    edge.repo.fsck()
    return together


def test_many_at_once_equal_one_by_one(edge: Edge) -> None:
    results = compare(edge, approvals(edge))

    assert [number for number, result in results.items() if "RefusedError" in result] == [8]  # web/inner
    assert {"team/p0/v1", "web/v1"} <= {ref.removeprefix("refs/tags/") for ref in edge.repo.refs()}


def test_refused_one_stops_no_other(edge: Edge) -> None:
    edge.repo.commit({"README.md": "mine"}, branch="drafts/team/p1/packagevariant-1")
    chosen = [a._replace(expect=a.expect if a.number != 4 else "0" * 40) for a in approvals(edge)]
    forge(edge).reject(3)

    results = compare(edge, [*chosen, LocalMerge(99, "0" * 40)])

    failed = {number for number, result in results.items() if not Oid(result).isalnum()}
    assert failed == {2, 3, 4, 8, 99}


def test_branch_on_top_of_another_is_merged_after_it(edge: Edge) -> None:
    """Alone it changes two packages; after the other is merged it changes one."""
    edge.repo.commit(
        {"team/top/Kptfile": kptfile("top")},
        branch="drafts/team/top/packagevariant-1",
        start="drafts/team/p0/packagevariant-1",
    )
    forge(edge).ensure(PullRequest("drafts/team/top/packagevariant-1", "main", "Create top", "Why."))
    first, *_, top = approvals(edge)

    results = compare(edge, [first, top])

    assert Oid(results[top.number]).isalnum()


def test_all_of_one_repository_are_one_push(edge: Edge) -> None:
    chosen = [approval for approval in approvals(edge) if approval.number != 8]
    local = forge(edge)
    before = process_count("push")

    local.approve_all(chosen)

    assert process_count("push") - before == 1


@pytest.mark.parametrize("ref", ["refs/tags/team/p2/v1", "refs/heads/main"])
def test_hook_that_refuses_one_package_stops_no_other(edge: Edge, ref: str) -> None:
    """Whether the hook names a ref of the package, or the branch that they share."""
    hook = edge.repo.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f"#!/bin/sh\n[ $1 != {ref} ] || ! git cat-file -e $3:team/p2/Kptfile 2>/dev/null"
        " || { git cat-file -e $2:team/p2/Kptfile 2>/dev/null; } || { echo no p2; exit 1; }\n"
    )
    hook.chmod(0o755)

    results = compare(edge, approvals(edge))

    assert [number for number, result in results.items() if "no p2" in result] == [3]


def test_refusal_of_everything_names_each(edge: Edge) -> None:
    edge.repo.git.config["receive.denyDeletes"] = "true"
    before = edge.repo.refs()

    results = forge(edge).approve_all(approvals(edge))

    assert {type(result) for result in results.values()} == {RefusedError}
    assert edge.repo.refs() == before


def test_head_that_moves_meanwhile_stops_no_other(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = approvals(edge)

    def lose_once(mirror: Mirror, updates: list[RefUpdate]) -> tuple[PushResult, ...]:
        monkeypatch.setattr(local_approval, "push", push)
        edge.repo.commit({"team/p0/cm.yaml": "late"}, branch="drafts/team/p0/packagevariant-1")
        return push(mirror, updates)

    monkeypatch.setattr(local_approval, "push", lose_once)

    results = forge(edge).approve_all(chosen)

    assert isinstance(results[1], ConflictError)
    assert sum(isinstance(result, str) for result in results.values()) == 7


def test_writer_that_always_loses_tells_of_each(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: Mirror, updates: list[RefUpdate]) -> list[PushResult]:
        return [PushResult(update, PushStatus.STALE, "moved") for update in updates]

    monkeypatch.setattr(local_approval, "push", lose)
    monkeypatch.setattr(Pack, "save", lambda _: None)

    results = forge(edge).approve_all(approvals(edge))

    assert len(results) == 9
    assert {type(result) for result in results.values()} == {ConflictError}
