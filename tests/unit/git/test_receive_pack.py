"""Pushing many refs into a repository on this machine has the results of `git push`."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git import push as pushing
from reconciler.git import receive_pack
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, push
from reconciler.git.receive_pack import RefUpdate
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Signature
from tests.support.git import Repo, make_repository

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
OTHER = Oid("1" * 40)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repository(tmp_path / "a.git", {f"p{n}/Kptfile": "k" for n in range(5)})
    repo.tag("p0/v1")
    return repo


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "MANY_REFS", 0)


def opened(repo: Repo, cache: str = "cache") -> Mirror:
    mirror = Mirrors(repo.path.parent / cache).open(str(repo.path))
    mirror.fetch()
    return mirror


def drafts(mirror: Mirror, count: int) -> list[RefUpdate]:
    """Save commits with new content, and return the updates that make branches of them."""
    head = mirror.refs()["refs/heads/main"]
    pack = Pack(mirror)
    updates = []
    for number in range(count):
        tree = pack.patch_tree(mirror.commit(head).tree, f"q{number}", {"Kptfile": File.of(b"%d" % number)})
        oid = pack.commit(tree, [head], BOT, BOT, f"{number}\n")
        updates.append(RefUpdate(f"refs/heads/drafts/q{number}/w", None, oid))
    pack.save()
    return updates


def saved(mirror: Mirror) -> Path:
    """Return the one pack of new objects."""
    (pack,) = (mirror.attach_store() / "objects" / "pack").glob("*.pack")
    return pack


def in_every_way(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, updates: list[RefUpdate]
) -> list[tuple[str, PushStatus, str]]:
    """Push by `git push`, directly, and with a pack of ours; return what came of each ref after comparing."""
    copy = repo.path.parent / "copy.git"
    shutil.copytree(repo.path, copy)
    monkeypatch.setattr(pushing, "MANY_REFS", 1000)
    by_git, refs = told(push(opened(repo), updates)), repo.refs()
    monkeypatch.setattr(pushing, "MANY_REFS", 0)
    for pack in (None, saved(opened(repo))):
        shutil.rmtree(repo.path)
        shutil.copytree(copy, repo.path)

        mirror = opened(repo)
        direct = told(push(mirror, updates, pack))

        assert direct == by_git
        assert repo.refs() == refs
        assert {ref: oid for ref, oid in refs.items() if ref.startswith("refs/heads/")} == {
            ref: oid for ref, oid in mirror.refs().items() if ref.startswith("refs/heads/")
        }
        repo.fsck()
    return by_git


def told(results: tuple[PushResult, ...]) -> list[tuple[str, PushStatus, str]]:
    return [(each.update.ref, each.status, each.message if not each.ok else "") for each in results]


def test_refs_are_made_moved_and_deleted(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    old = repo.commit({"p0/Kptfile": "old"}, branch="drafts/p0/w", start="main")
    gone = repo.commit({"p1/Kptfile": "gone"}, branch="drafts/p1/w", start="main")
    new = drafts(opened(repo), 4)
    moves = [
        RefUpdate("refs/heads/drafts/p0/w", old, new[3].new),
        RefUpdate("refs/heads/drafts/p1/w", gone, None),
    ]

    results = in_every_way(repo, monkeypatch, [*new[:3], *moves])

    assert {status for _, status, _ in results} == {PushStatus.DONE}
    assert len(repo.refs()) == 6


@pytest.mark.parametrize("lost", ["moved", "made", "deleted"])
def test_one_lost_lease_moves_no_ref(repo: Repo, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    new = drafts(opened(repo), 3)
    there = repo.oid("main") if lost != "deleted" else None
    if there:
        repo.point(new[1].ref, there)
    expected = {"moved": OTHER, "made": None, "deleted": OTHER}[lost]
    before = repo.refs()

    results = in_every_way(repo, monkeypatch, [new[0], new[1]._replace(expected=expected), new[2]])

    assert [status for _, status, _ in results] == [PushStatus.SKIPPED, PushStatus.STALE, PushStatus.SKIPPED]
    assert repo.refs() == before


def test_ref_that_is_there_already_is_up_to_date(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    new = drafts(opened(repo), 2)
    push(opened(repo), new[:1])

    results = in_every_way(repo, monkeypatch, new)

    assert [status for _, status, _ in results] == [PushStatus.UP_TO_DATE, PushStatus.DONE]


def test_nothing_is_sent_if_everything_is_there(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    new = drafts(opened(repo), 2)
    push(opened(repo), new)

    assert {status for _, status, _ in in_every_way(repo, monkeypatch, new)} == {PushStatus.UP_TO_DATE}


@pytest.mark.parametrize("name", ["update", "pre-receive"])
def test_words_of_a_hook_that_refuses_are_kept(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    new = drafts(opened(repo), 3)
    hook = repo.path / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ncase $1 in *q1*|'') echo not $1 today; exit 1;; esac\n")
    hook.chmod(0o755)

    results = in_every_way(repo, monkeypatch, new)

    assert "today" in results[1][2]
    assert repo.refs().keys() == {"refs/heads/main", "refs/tags/p0/v1"}


def test_ref_that_blocks_another_is_named(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.point("refs/heads/drafts/q1", repo.oid("main"))
    new = drafts(opened(repo), 3)

    assert in_every_way(repo, monkeypatch, new)[1][1] is PushStatus.REJECTED


@pytest.mark.parametrize("is_ours", [True, False])
def test_many_refs_are_one_push_of_few_bytes(repo: Repo, *, is_ours: bool) -> None:
    """Objects of the repository are not sent again, also if it has very many commits."""
    mirror = opened(repo)
    new = drafts(mirror, 300)

    assert all(result.ok for result in push(mirror, new, saved(mirror) if is_ours else None))

    packs = list((repo.path / "objects" / "pack").glob("*.pack"))
    assert sum(path.stat().st_size for path in packs) < 400 * len(new)
    assert len(repo.refs()) == 302
    repo.fsck()


def test_server_side_that_ends_early_is_unavailable(repo: Repo) -> None:
    mirror = opened(repo)
    new = drafts(mirror, 2)
    hook = repo.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
    hook.chmod(0o755)

    with pytest.raises(UnavailableError):
        push(mirror, new)

    assert repo.refs().keys() == {"refs/heads/main", "refs/tags/p0/v1"}


def test_server_side_without_atomic_pushes_is_left_to_git(repo: Repo) -> None:
    repo.git.config["receive.advertiseAtomic"] = "false"
    mirror = opened(repo)
    new = drafts(mirror, 2)

    assert receive_pack.push_local(saved(mirror), repo.path, new) is None
    assert [result.status for result in push(mirror, new)] == [PushStatus.DONE] * 2


def test_objects_that_an_earlier_run_made_and_did_not_push_are_pushed(repo: Repo) -> None:
    drafts(opened(repo), 3)
    mirror = opened(repo)
    new = drafts(mirror, 3)

    results = push(mirror, new, saved(mirror))

    assert [result.status for result in results] == [PushStatus.DONE] * 3
    repo.fsck()


def test_large_trees_stay_differences(repo: Repo) -> None:
    """As git makes packs for a push, each commit would bring its whole root tree."""
    repo.commit({f"p{number}/Kptfile": str(number) for number in range(500)})
    mirror = opened(repo)
    new = drafts(mirror, 100)

    assert all(result.ok for result in push(mirror, new, saved(mirror)))

    packs = list((repo.path / "objects" / "pack").glob("*.pack"))
    assert 0 < sum(path.stat().st_size for path in packs) < 100_000
    repo.fsck()


def test_machine_without_disk_is_unavailable(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = opened(repo)
    new = drafts(mirror, 2)
    monkeypatch.setattr(receive_pack.tempfile, "TemporaryFile", full)

    with pytest.raises(UnavailableError, match=f"Cannot push to {repo.path}: No space left on device"):
        push(mirror, new, saved(mirror))


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
