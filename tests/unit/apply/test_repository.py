"""One repository's share of a plan, on a real repository."""

from pathlib import Path

import pytest

from reconciler.apply.outcome import EffectKind
from reconciler.apply.repository import _refused
from reconciler.errors import Exit
from reconciler.git.push import PushResult, PushStatus, RefUpdate
from reconciler.inventory import PullState
from reconciler.plan.changes import ClosePull, MoveRef
from tests.support.fake_forge import FakeForge
from tests.unit.apply.world import POLICY, TIME, Edge

DRAFT = "refs/heads/drafts/web/packagevariant-1"
PULL = "refs/reconciler/pulls/1"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


def test_a_draft_is_one_commit_on_main_with_its_pull_request(edge: Edge) -> None:
    result = edge.apply(edge.created())

    commit = edge.repo.git[edge.repo.oid(DRAFT)]
    assert [str(p) for p in commit.parent_ids] == [edge.repo.oid("main")]
    assert (commit.committer.name, commit.committer.email) == (POLICY.name, POLICY.email)
    assert (commit.committer.time, commit.author.time) == (TIME, TIME)
    assert edge.repo.read(DRAFT, "web/cm.yaml") == b"v1"
    assert edge.repo.tree(DRAFT, "db") == edge.repo.tree("main", "db")
    assert [(e.repository, e.what, e.ref, e.oid) for e in result.effects] == [
        ("edge", EffectKind.PUSHED, "drafts/web/packagevariant-1", str(commit.id)),
        ("edge", EffectKind.OPENED, "#1 Create web", ""),
    ]
    assert b'"title": "Create web"' in edge.repo.read(PULL, "pull.json")
    edge.repo.fsck()


def test_applying_again_pushes_nothing(edge: Edge) -> None:
    edge.apply(edge.created())
    before = edge.repo.refs()

    again = edge.apply(edge.created())

    assert again.effects == ()
    assert edge.repo.refs() == before


def test_the_same_change_makes_the_same_commits_anywhere(edge: Edge, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Edge(tmp_path / "other")

    edge.apply(edge.created())
    other.apply(other.created())

    assert edge.repo.refs() == other.repo.refs()


def test_several_packages_are_one_push(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.apply import repository

    pushes = []
    original = repository.push
    monkeypatch.setattr(repository, "push", lambda *a: pushes.append(len(a[1])) or original(*a))

    edge.apply(*(edge.created(f"web-{n}") for n in range(5)))

    assert pushes == [10]


def test_more_than_three_tags_take_another_push(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.apply import repository

    tags = []
    original = repository.push
    monkeypatch.setattr(repository, "push", lambda *a: tags.append(len(a[1])) or original(*a))
    main = edge.repo.oid("main")
    changes = [edge.change(f"p{n}", MoveRef(f"refs/tags/p{n}/v1", None, main)) for n in range(7)]

    result = edge.apply(*changes)

    assert tags == [3, 3, 1]
    assert len(result.effects) == 7


def test_a_draft_that_somebody_moved_fails_alone(edge: Edge) -> None:
    planned = edge.change("web", edge.draft(expect=None))
    target = edge.target()
    theirs = edge.repo.commit({"web/cm.yaml": "mine"}, branch="drafts/web/packagevariant-1", start="main")

    result = edge.apply(planned, edge.created("other"), target=target)

    assert edge.repo.oid(DRAFT) == theirs
    assert edge.repo.read("drafts/other/packagevariant-1", "other/cm.yaml") == b"v1"
    assert {p.path for p in result.failed} == {"web"}
    assert result.exits == {Exit.UNAVAILABLE}
    assert [bool(e.error) for e in result.effects] == [True, False, False]


def test_another_run_that_was_faster_did_our_work(edge: Edge) -> None:
    target = edge.target()
    Edge.apply(edge, edge.created(), edge.created("other"))
    before = edge.repo.refs()

    result = edge.apply(edge.created(), edge.created("third"), target=target)

    assert not result.failed
    assert "refs/heads/drafts/third/packagevariant-1" in edge.repo.refs()
    assert before.items() <= edge.repo.refs().items()


def test_a_new_draft_replaces_our_single_commit(edge: Edge) -> None:
    edge.apply(edge.created())
    first = edge.repo.oid(DRAFT)

    edge.apply(edge.change("web", edge.draft(text="v2", expect=first), pull=False))

    assert edge.repo.read(DRAFT, "web/cm.yaml") == b"v2"
    assert edge.repo.oid(DRAFT).encode() in edge.repo.read(PULL, "pull.json")


def test_a_commit_of_a_person_is_built_upon(edge: Edge) -> None:
    edge.apply(edge.created())
    tip = edge.repo.commit({"web/more.yaml": "b: 2"}, branch="drafts/web/packagevariant-1")

    edge.apply(edge.change("web", edge.draft(text="v2", expect=tip, onto=tip)))

    assert [str(p) for p in edge.repo.git[edge.repo.oid(DRAFT)].parent_ids] == [tip]


def test_another_number_is_taken_when_somebody_was_faster(edge: Edge) -> None:
    target = edge.target()
    Edge.apply(edge, edge.created("other"))

    result = edge.apply(edge.created(), target=target)

    assert not result.failed
    pulls = {p.number: p.head for p in edge.target().forge.list_pulls()}
    assert pulls == {1: "drafts/other/packagevariant-1", 2: "drafts/web/packagevariant-1"}


def test_a_repository_that_refuses_is_reported(edge: Edge) -> None:
    edge.repo.git.config["receive.denyNonFastForwards"] = "true"
    edge.apply(edge.created())
    first = edge.repo.oid(DRAFT)

    result = edge.apply(edge.change("web", edge.draft(text="v2", expect=first)), edge.created("other"))

    assert edge.repo.oid(DRAFT) == first
    assert "refs/heads/drafts/other/packagevariant-1" in edge.repo.refs()
    assert result.failed
    assert result.exits <= {Exit.REFUSED, Exit.UNAVAILABLE}


def refuse(edge: Edge, pattern: str) -> None:
    """Let the repository refuse refs of a pattern of the shell."""
    hook = edge.repo.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\ncase "$1" in {pattern}) echo "locked"; exit 1;; esac\n')
    hook.chmod(0o755)


def test_pull_request_that_the_repository_refuses_fails_all_of_its_push(edge: Edge) -> None:
    refuse(edge, "refs/reconciler/pulls/*")

    result = edge.apply(edge.created(), edge.created("other"))

    assert {p.path for p in result.failed} == {"web", "other"}
    assert result.exits == {Exit.REFUSED}
    assert "The repository refuses refs/reconciler/pulls/1" in result.effects[0].error
    assert list(edge.repo.refs()) == ["refs/heads/main"]


def test_draft_that_the_repository_refuses_fails_alone(edge: Edge) -> None:
    refuse(edge, "refs/heads/drafts/web/*")

    result = edge.apply(edge.created(), edge.created("other"))

    assert {p.path for p in result.failed} == {"web"}
    assert result.exits == {Exit.REFUSED}
    assert "refs/heads/drafts/other/packagevariant-1" in edge.repo.refs()
    assert DRAFT not in edge.repo.refs()


@pytest.mark.parametrize(
    ("statuses", "refused"),
    [
        ((PushStatus.DONE, PushStatus.UP_TO_DATE), set()),
        ((PushStatus.DONE, PushStatus.REJECTED), {1}),
        ((PushStatus.SKIPPED, PushStatus.REJECTED, PushStatus.STALE), {1, 2}),
        ((PushStatus.SKIPPED, PushStatus.SKIPPED), {0, 1}),
        ((PushStatus.SKIPPED, PushStatus.DONE), {0}),
    ],
)
def test_skipped_refs_are_blamed_only_if_no_other_failed(
    statuses: tuple[PushStatus, ...], refused: set[int]
) -> None:
    updates = [RefUpdate(f"refs/heads/{number}", None, None) for number in range(len(statuses))]
    results = [PushResult(update, status) for update, status in zip(updates, statuses, strict=True)]

    assert _refused(results) == {updates[number].ref: results[number] for number in refused}


def test_a_branch_in_the_way_is_named(edge: Edge) -> None:
    edge.repo.point("refs/heads/drafts/web", edge.repo.oid("main"))

    result = edge.apply(edge.created(), edge.created("other"))

    assert result.exits == {Exit.REFUSED}
    assert {p.path for p in result.failed} == {"web"}
    assert "Branch drafts/web stands in the way" in result.effects[0].error
    assert "refs/heads/drafts/other/packagevariant-1" in edge.repo.refs()


def test_a_gone_repository_fails_all_of_its_packages(edge: Edge) -> None:
    target = edge.target()
    changes = [edge.created(), edge.created("other")]
    edge.repo.path.rename(edge.root / "gone")

    result = edge.apply(*changes, target=target)

    assert {p.path for p in result.failed} == {"web", "other"}
    assert result.exits == {Exit.UNAVAILABLE}


def test_closing_deletes_the_branch_and_says_why(edge: Edge) -> None:
    edge.apply(edge.created())
    close = ClosePull(1, "drafts/web/packagevariant-1", "Obsolete.")

    result = edge.apply(edge.change("web", MoveRef(DRAFT, edge.repo.oid(DRAFT), None), close=(close,)))

    assert DRAFT not in edge.repo.refs()
    (pull,) = edge.target().forge.list_pulls()
    assert pull.state is PullState.CLOSED
    assert b'"withdrawn": true' in edge.repo.read(PULL, "pull.json")
    assert b"Obsolete." in edge.repo.read(PULL, "pull.json")
    assert [(e.what, e.ref, e.oid) for e in result.effects] == [
        (EffectKind.DELETED, "drafts/web/packagevariant-1", ""),
        (EffectKind.CLOSED, "#1 Create web", ""),
    ]


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_publishing_what_a_person_merged_ends_its_pull_request_as_merged(edge: Edge, how: str) -> None:
    edge.apply(edge.created())
    tip = edge.repo.oid(DRAFT)
    merged = edge.repo.merge(DRAFT, how=how)

    edge.apply(edge.change("web", MoveRef("refs/tags/web/v1", None, merged), MoveRef(DRAFT, tip, None)))

    assert edge.repo.oid("web/v1") == merged
    assert [p.state for p in edge.target().forge.list_pulls()] == [PullState.MERGED]


def test_a_real_forge_is_called_after_the_push(edge: Edge) -> None:
    forge = FakeForge({"drafts/web/packagevariant-1": "x"})

    result = edge.apply(edge.created(), target=edge.target(forge=forge))

    assert [e.what for e in result.effects] == [EffectKind.PUSHED, EffectKind.OPENED]
    assert [p.title for p in forge.list_pulls()] == ["Create web"]
    assert PULL not in edge.repo.refs()


def test_a_forge_that_is_down_keeps_the_push_and_names_the_package(edge: Edge) -> None:
    forge = FakeForge({})
    forge.down = True

    result = edge.apply(edge.created(), target=edge.target(forge=forge))

    assert DRAFT in edge.repo.refs()
    assert {p.path for p in result.failed} == {"web"}
    assert result.exits == {Exit.UNAVAILABLE}


def test_a_deletion_is_proposed_as_a_branch_without_the_package(edge: Edge) -> None:
    edge.apply(edge.change("db", edge.removal()))

    tree = edge.repo.git[edge.repo.oid("reconciler/demo/delete/db")].tree
    assert [entry.name for entry in tree] == ["README.md"]
    assert edge.repo.tree("main", "db")
