"""One repository's share of a plan, on a real repository."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply import repository
from reconciler.apply.outcome import EffectKind
from reconciler.apply.repository import MOST_REFUSALS, compose
from reconciler.base.errors import ConflictError, Exit, UnavailableError
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, RefUpdate
from reconciler.git.repository import Mirror
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, tree_id
from reconciler.plan.changes import ClosePull, GroupPart, MoveRef, StartBranch, WriteGroup
from tests.support.fake_forge import FakeForge
from tests.support.values import replace
from tests.unit.apply.world import POLICY, TIME, Edge

DRAFT = "refs/heads/drafts/web/packagevariant-1"


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


@pytest.mark.parametrize(
    ("count", "prefix", "is_local", "pushes"),
    [
        (0, "heads", True, []),
        (5, "heads", True, [5]),
        (7, "tags", True, [7]),
        (7, "tags", False, [3, 3, 1]),  # a host creates no events for more; a directory has no events
        (600, "heads", True, [600]),
        (600, "heads", False, [250, 250, 100]),  # a command has so many arguments
    ],
)
def test_packages_of_a_repository_are_as_few_pushes_as_it_takes(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, *, count: int, prefix: str, is_local: bool, pushes: list[int]
) -> None:
    made: list[int] = []
    monkeypatch.setattr(repository, "push", lambda _, updates: made.append(len(updates)) or ())
    main, own = edge.repo.oid("main"), edge.mirror()
    known = {name: getattr(own, name) for name in ("refs", "commit", "attach_store", "signing")}
    mirror = SimpleNamespace(is_local=is_local, **known)
    target = edge.target(cast("Any", mirror), cast("Any", FakeForge({})))
    moves = [MoveRef(f"refs/{prefix}/p{number}/v1", None, main) for number in range(count)]

    edge.apply(*(edge.change(move.ref, move) for move in moves), target=target)

    assert made == pushes


def test_another_run_that_was_faster_did_our_work(edge: Edge) -> None:
    target = edge.target()
    Edge.apply(edge, edge.created(), edge.created("other"))
    before = edge.repo.refs()

    assert not edge.apply(edge.created(), edge.created("third"), target=target).failed
    assert "refs/heads/drafts/third/packagevariant-1" in edge.repo.refs()
    assert before.items() <= edge.repo.refs().items()


def test_another_number_is_taken_when_somebody_was_faster(edge: Edge) -> None:
    target = edge.target()
    Edge.apply(edge, edge.created("other"))

    assert not edge.apply(edge.created(), target=target).failed
    pulls = {p.number: p.head for p in edge.target().forge.list_pulls()}
    assert pulls == {1: "drafts/other/packagevariant-1", 2: "drafts/web/packagevariant-1"}


def refuse(edge: Edge, pattern: str) -> None:
    """Let the repository refuse refs of a pattern of the shell."""
    hook = edge.repo.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\ncase "$1" in {pattern}) echo "locked"; exit 1;; esac\n')
    hook.chmod(0o755)


def decline(edge: Edge, pattern: str) -> Path:
    """Let the repository refuse every push that has a path of a regular expression; return its log."""
    hook, count = edge.repo.path / "hooks" / "pre-receive", edge.root / "pushes"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f"#!/bin/sh\necho x >> {count}\nwhile read old new ref; do git ls-tree -r --name-only $new; done"
        f" | grep -qE '{pattern}' && echo 'no such files' && exit 1\nexit 0\n"
    )
    hook.chmod(0o755)
    return count


def test_pull_request_that_the_repository_refuses_fails_with_its_package(edge: Edge) -> None:
    refuse(edge, "refs/reconciler/pulls/*")

    result = edge.apply(edge.created(), edge.created("other"))

    assert {p.path for p in result.failed} == {"web", "other"}
    assert result.exits == {Exit.REFUSED}
    assert {effect.error for effect in result.effects} == {"The repository refuses it: hook declined: locked"}
    assert [effect.ref for effect in result.effects] == ["refs/reconciler/pulls/1"] * 2
    assert list(edge.repo.refs()) == ["refs/heads/main"]


@pytest.mark.parametrize("count", [5, MOST_REFUSALS - 1])
def test_drafts_that_the_repository_refuses_one_after_the_other_are_left_out(edge: Edge, count: int) -> None:
    refuse(edge, "refs/heads/drafts/locked*")

    result = edge.apply(edge.created("z"), *(edge.created(f"locked{number}") for number in range(count)))

    assert "refs/heads/drafts/z/packagevariant-1" in edge.repo.refs()
    assert result.exits == {Exit.REFUSED}
    assert {package.path for package in result.failed} == {f"locked{n}" for n in range(count)}
    assert "The repository refuses it: hook declined: locked" in {e.error for e in result.effects}


@pytest.mark.parametrize(
    ("guilty", "pushes"), [(range(7, 8), 10), (range(3), 12), (range(0, 16, 6), 20), (range(5, 13), 24)]
)
def test_push_that_the_repository_refuses_as_a_whole_is_tried_in_halves(
    edge: Edge, guilty: range, pushes: int
) -> None:
    """The server says neither which ref nor which package; each one that it would take gets its draft."""
    count = decline(edge, "^bad")
    names = ["bad" * (number in guilty) + f"p{number}" for number in range(16)]

    result = edge.apply(*map(edge.created, names))

    good = {name for name in names if not name.startswith("bad")}
    drafts = {ref.split("/")[3] for ref in edge.repo.refs() if ref.startswith("refs/heads/drafts/")}
    assert drafts == good
    assert {pull.head.split("/")[1] for pull in edge.target().forge.list_pulls()} == good
    assert {package.path: why.message for package, why in result.unfinished.items()} == dict.fromkeys(
        set(names) - good, "The repository refuses it: pre-receive hook declined: no such files"
    )
    assert all(why.hint.startswith("Change what the server names") for why in result.unfinished.values())
    assert result.exits == {Exit.REFUSED}
    assert len(count.read_text().split()) <= pushes
    edge.repo.fsck()

    before = edge.repo.refs()
    again = edge.apply(*map(edge.created, names))
    assert (edge.repo.refs(), again.unfinished) == (before, result.unfinished)
    assert {effect.error for effect in again.effects} == {
        effect.error for effect in result.effects if effect.error
    }


def test_repository_that_takes_no_push_is_left_after_some(edge: Edge) -> None:
    count = decline(edge, "^p")

    result = edge.apply(*(edge.created(f"p{number}") for number in range(60)))

    last = "pre-receive hook declined: no such files"
    assert len(count.read_text().split()) == MOST_REFUSALS
    assert len(result.unfinished) == 60
    assert {why.message for why in result.unfinished.values()} <= {
        f"{edge.repo.path} refused 20 pushes in a row, the last with: {last}",
        f"The repository refuses it: {last}",
    }
    assert result.exits == {Exit.REFUSED}


def test_group_that_the_repository_refuses_fails_with_its_members_and_no_other(edge: Edge) -> None:
    count = decline(edge, "^bad")
    parts = [GroupPart(name, tree_id(FILES), FILES) for name in ("web", "bad", "db")]
    write = group(edge, *parts)
    members = [edge.change(name, write, pull=False) for name in ("web", "bad", "db")]

    result = edge.apply(edge.created("a"), *members, edge.created("z"))

    assert {package.path for package in result.unfinished} == {"web", "bad", "db"}
    assert [effect.ref for effect in result.effects if effect.error] == [GROUP] * 3
    assert GROUP not in edge.repo.refs()
    assert len(count.read_text().split()) == 5
    assert {
        "refs/heads/drafts/a/packagevariant-1",
        "refs/heads/drafts/z/packagevariant-1",
    } <= edge.repo.refs().keys()


@pytest.mark.parametrize("last", range(1, 8))
@pytest.mark.parametrize("is_before", [True, False])
def test_run_that_ends_between_two_pushes_is_completed_by_the_next(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, last: int, *, is_before: bool
) -> None:
    decline(edge, "^bad")
    names, pushes, really = ("bad", "a", "b", "c"), list[int](), repository.push

    def end_at_last(mirror: Mirror, updates: Sequence[RefUpdate]) -> Sequence[PushResult]:
        pushes.append(len(updates))
        results = () if is_before and len(pushes) == last else really(mirror, updates)
        if len(pushes) == last:
            raise UnavailableError("The network is down")
        return results

    with monkeypatch.context() as broken:
        broken.setattr(repository, "push", end_at_last)
        result = edge.apply(*map(edge.created, names))

    drafts = {ref.split("/")[3]: oid for ref, oid in edge.repo.refs().items() if "/drafts/" in ref}
    claimed = {effect.ref.split("/")[1] for effect in result.effects if effect.oid}
    assert claimed <= drafts.keys() <= {"a", "b", "c"}
    assert {package.path for package in result.unfinished} == {*names} - claimed
    assert {package.path for package in edge.apply(*map(edge.created, names)).unfinished} == {"bad"}
    after = {ref.split("/")[3]: oid for ref, oid in edge.repo.refs().items() if "/drafts/" in ref}
    assert drafts.items() <= after.items()
    assert after.keys() == {"a", "b", "c"}
    assert sorted(pull.head.split("/")[1] for pull in edge.target().forge.list_pulls()) == ["a", "b", "c"]


REFUSES, OVERTAKEN = "The repository refuses it: locked", "Another writer moved or locked it: locked"
MALFORMED = "missing necessary objects"


@pytest.mark.parametrize(
    ("statuses", "message", "errors"),
    [
        ((PushStatus.DONE, PushStatus.UP_TO_DATE), "", {}),
        ((PushStatus.DONE, PushStatus.REJECTED), "locked", {1: REFUSES}),
        ((PushStatus.SKIPPED, PushStatus.REJECTED, PushStatus.STALE), "locked", {1: REFUSES, 2: OVERTAKEN}),
        ((PushStatus.SKIPPED, PushStatus.SKIPPED), "locked", {0: OVERTAKEN, 1: OVERTAKEN}),
        ((PushStatus.SKIPPED, PushStatus.DONE), "locked", {0: OVERTAKEN}),
        ((PushStatus.REJECTED,), MALFORMED, {0: f"The repository refuses it: {MALFORMED}"}),
    ],
)
def test_ref_that_did_not_move_is_refused_or_a_conflict_and_skipped_ones_only_if_no_other_is(
    edge: Edge,
    monkeypatch: pytest.MonkeyPatch,
    statuses: tuple[PushStatus, ...],
    message: str,
    errors: dict[int, str],
) -> None:
    answers = iter([statuses])
    monkeypatch.setattr(
        repository,
        "push",
        lambda _, updates: [
            PushResult(update, status, message)
            for update, status in zip(updates, next(answers, ()), strict=False)
        ],
    )
    main = edge.repo.oid("main")
    changes = [
        edge.change(str(n), MoveRef(f"refs/heads/{n}", None, main), pull=False) for n in range(len(statuses))
    ]

    result = edge.apply(*changes)

    malformed = (
        "Git takes no push onto a malformed tree: `git fsck` names it; commit to the branch without it."
    )
    hints = {
        REFUSES: "Change what the server names, in the package or in its rules, or pause the variant.",
        OVERTAKEN: ConflictError.hint,
    }
    assert {int(package.path): why.message for package, why in result.unfinished.items()} == errors
    for why in result.unfinished.values():
        assert why.hint == hints.get(why.message, malformed)


@pytest.mark.parametrize(
    ("refs", "blocking"),
    [
        (["refs/heads/drafts/web", "refs/heads/z"], "drafts/web"),
        (["refs/heads/drafts"], "drafts"),
        ([f"{DRAFT}/below"], "drafts/web/packagevariant-1/below"),
        (["refs/heads/drafts/we", f"{DRAFT}1", "refs/tags/drafts/web"], ""),
    ],
)
def test_branch_above_or_below_stands_in_the_way(edge: Edge, refs: list[str], blocking: str) -> None:
    for ref in refs:
        edge.repo.point(ref, edge.repo.oid("main"))
    if not blocking:
        refuse(edge, DRAFT)

    result = edge.apply(edge.created())

    error = (
        f"Branch {blocking} stands in the way; rename or delete it" if blocking else "The repository refuses"
    )
    assert result.exits == {Exit.REFUSED}
    assert result.effects[0].error.startswith(error)


def test_a_gone_repository_fails_all_of_its_packages(edge: Edge) -> None:
    target = edge.target()
    changes = [edge.created(), replace(edge.created("other"), repository=ObjectName("default", "second"))]
    edge.repo.path.rename(edge.root / "gone")

    result = edge.apply(*changes, target=target)

    assert {p.path for p in result.failed} == {"web", "other"}
    assert [effect.repository for effect in result.effects] == ["edge"]
    assert result.exits == {Exit.UNAVAILABLE}


def test_a_forge_that_is_down_keeps_the_push_and_names_the_package(edge: Edge) -> None:
    forge = FakeForge({})
    forge.down = True

    result = edge.apply(edge.created(), target=edge.target(forge=forge))

    assert DRAFT in edge.repo.refs()
    assert {p.path for p in result.failed} == {"web"}
    assert result.exits == {Exit.UNAVAILABLE}


GROUP = "refs/heads/reconciler/demo/group/all"
FILES = {"Kptfile": File.of(b"new"), "x": File.of(b"1")}


def group(edge: Edge, *parts: GroupPart) -> WriteGroup:
    return WriteGroup(GROUP, None, edge.repo.oid("main"), parts, "Group\n", TIME)


def test_tree_that_was_not_planned_is_an_error(edge: Edge) -> None:
    planned = edge.repo.tree("main", "db")

    result = edge.apply(edge.change("web", group(edge, GroupPart("web", planned, FILES)), pull=False))

    assert result.effects[0].error == f"{GROUP} would hold {tree_id(FILES)}, but {planned} was planned"
    assert GROUP not in edge.repo.refs()


def test_empty_repository_is_begun_once_with_its_files(edge: Edge) -> None:
    starts = [
        StartBranch("refs/heads/trunk", dict(FILES), edge.repo.oid("main"), "Begin\n", TIME) for _ in range(2)
    ]

    result = edge.apply(
        *(edge.change(name, start, pull=False) for name, start in zip(("db", "web"), starts, strict=True))
    )

    commit = edge.repo.git[edge.repo.oid("trunk")]
    assert (commit.message, list(commit.parent_ids), commit.committer.time) == ("Begin\n", [], TIME)
    assert edge.repo.tree("trunk") == tree_id(FILES)
    assert [(e.what, e.ref) for e in result.effects] == [(EffectKind.PUSHED, "trunk")]


@pytest.mark.parametrize("to", [True, False])
def test_moved_ref_has_the_time_of_its_commit_and_a_deleted_one_none(edge: Edge, to: bool) -> None:
    new = edge.repo.commit({"x": "1"}, branch="x", start="main", time=TIME + 7)
    ref = "refs/heads/y" if to else "refs/heads/x"
    mirror = edge.mirror()

    composed = compose(MoveRef(ref, None if to else new, new if to else None), mirror, Pack(mirror), POLICY)

    assert composed is not None
    assert composed == (RefUpdate(ref, None if to else new, new if to else None), TIME + 7 if to else 0)
    assert compose(MoveRef("refs/heads/x", new, new), mirror, Pack(mirror), POLICY) is None


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("README.md/web", "README.md: a file stands where the package would be"),
        ("DB", "db: on some file systems it is the same as DB"),
    ],
)
def test_package_that_no_tree_can_hold_fails_alone(edge: Edge, path: str, error: str) -> None:
    draft = edge.draft(path)

    result = edge.apply(edge.change("web", replace(draft, ref=DRAFT)), edge.created("other"))

    assert result.exits == {Exit.REFUSED}
    assert {p.path for p in result.failed} == {"web"}
    assert [effect.error for effect in result.effects if effect.error] == [error]
    assert "refs/heads/drafts/other/packagevariant-1" in edge.repo.refs()


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (("x", "x/y"), "x: it would be both a file and a directory"),
        ((".GIT/x",), ".GIT/x: some file systems take its name for Git's own"),
    ],
)
def test_no_pack_has_a_tree_that_git_refuses(edge: Edge, names: tuple[str, ...], error: str) -> None:
    """Planning finds them; whatever slips through ends here."""
    files = dict.fromkeys(names, File.of(b"x"))
    draft = replace(edge.draft(), files=files, tree=tree_id(files))

    result = edge.apply(edge.change("web", draft), edge.created("other"))

    assert [effect.error for effect in result.effects if effect.error] == [error]
    assert "refs/heads/drafts/other/packagevariant-1" in edge.repo.refs()


def test_repository_that_others_keep_writing_to_is_left_after_some_attempts(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def lose(_: object, updates: list[RefUpdate]) -> tuple[PushResult, ...]:
        attempts.append(len(updates))
        return tuple(
            PushResult(update, PushStatus.STALE, "moved") for update in updates if "pulls" in update.ref
        )

    monkeypatch.setattr(repository, "push", lose)

    result = edge.apply(edge.created(), edge.created("other"))

    assert attempts == [4, 4, 4]
    assert {p.path for p in result.failed} == {"web", "other"}
    assert {effect.error for effect in result.effects} == {f"Others keep writing to {edge.repo.path}"}


def test_update_of_a_pull_request_is_reported_as_such_and_the_same_one_is_not(edge: Edge) -> None:
    edge.apply(edge.created())
    change = edge.created()
    assert change.pull is not None

    result = edge.apply(replace(change, pull=replace(change.pull, title="Another")))

    assert [(e.what, e.ref) for e in result.effects] == [(EffectKind.UPDATED, "#1 Another")]
    assert {key: pull.title for key, pull in result.opened.items()} == {
        ("file:///edge", "drafts/web/packagevariant-1"): "Another"
    }


def test_pull_request_that_is_closed_is_not_closed_again(edge: Edge) -> None:
    edge.apply(edge.created())
    close = ClosePull(1, "drafts/web/packagevariant-1", "Obsolete.")
    edge.apply(edge.change("web", MoveRef(DRAFT, edge.repo.oid(DRAFT), None), close=(close,)))

    assert edge.apply(edge.change("web", close=(close,))).effects == ()


@pytest.mark.parametrize(
    ("there", "new", "is_there"),
    [
        (None, None, True),
        (None, "made", False),
        ("made", None, False),
        ("made", "made", True),
        ("signed", "made", True),
        ("made", "signed", False),
        ("other", "made", False),
    ],
)
def test_ref_is_there_at_the_commit_or_at_the_same_one_with_another_signature(
    there: Oid | None, new: Oid | None, is_there: bool
) -> None:
    commit = SimpleNamespace(committer=SimpleNamespace(time=TIME))
    mirror = SimpleNamespace(refs=lambda: {DRAFT: there} if there else {}, commit=lambda _: commit)
    pack = SimpleNamespace(differs_in_signature=lambda commit, other: (commit, other) == ("made", "signed"))

    made = compose(MoveRef(DRAFT, there, new), mirror, pack, POLICY)  # type: ignore[arg-type]

    assert (made is None) is is_there
