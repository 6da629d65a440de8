"""Traps of Git that lose people's work, each sprung on real repositories by real processes."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, push
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Signature
from tests.support.git import Repo, make_repository, run

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
DRAFT = "refs/heads/drafts/p/w"
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "a.git", {"p/Kptfile": "k"})


@pytest.fixture
def mirror(tmp_path: Path, repo: Repo) -> Mirror:
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    mirror.fetch()
    return mirror


def made(mirror: Mirror, text: str = "new") -> Oid:
    """Make a commit on main in the mirror, not pushed."""
    return made_on(mirror, "refs/heads/main", text)


def made_on(mirror: Mirror, ref: str, text: str = "new") -> Oid:
    head = mirror.refs()[ref]
    pack = Pack(mirror)
    root = pack.patch_tree(mirror.commit(head).tree, "q", {"Kptfile": File.of(text.encode())})
    oid = pack.commit(root, [head], BOT, BOT, "Ours\n")
    pack.save()
    return oid


def statuses(mirror: Mirror, *updates: RefUpdate) -> list[PushStatus]:
    return [result.status for result in push(mirror, updates)]


def hook(repo: Repo, name: str, script: str) -> None:
    path = repo.path / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_draft_is_created_replaced_and_deleted(repo: Repo, mirror: Mirror) -> None:
    first = made(mirror, "1")
    assert statuses(mirror, RefUpdate(DRAFT, None, first)) == [PushStatus.DONE]
    second = made(mirror, "2")
    assert statuses(mirror, RefUpdate(DRAFT, first, second)) == [PushStatus.DONE]
    assert repo.find(DRAFT) == second
    assert statuses(mirror, RefUpdate(DRAFT, second, None)) == [PushStatus.DONE]
    assert repo.find(DRAFT) is None
    repo.fsck()


def test_push_does_not_overwrite_earlier_push(repo: Repo, mirror: Mirror) -> None:
    seen = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")
    mirror.fetch()
    theirs = repo.commit({"p/x": "2"}, branch="drafts/p/w")

    for new in (made(mirror), None):
        assert statuses(mirror, RefUpdate(DRAFT, seen, new)) == [PushStatus.STALE]
    assert repo.find(DRAFT) == theirs


def test_fetch_does_not_renew_lease(repo: Repo, mirror: Mirror) -> None:
    seen = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")
    theirs = repo.commit({"p/x": "2"}, branch="drafts/p/w")
    mirror.fetch()

    assert statuses(mirror, RefUpdate(DRAFT, seen, made(mirror))) == [PushStatus.STALE]
    assert repo.find(DRAFT) == theirs


def test_new_branch_does_not_overwrite_existing_one(repo: Repo, mirror: Mirror) -> None:
    new = made(mirror)
    theirs = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")

    assert statuses(mirror, RefUpdate(DRAFT, None, new)) == [PushStatus.STALE]
    assert repo.find(DRAFT) == theirs


def test_race_after_lease_check_is_stale(repo: Repo, mirror: Mirror) -> None:
    """The hook moves the branch when the other side has already announced its old value."""
    seen = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")
    theirs = repo.write(repo.tree("main"), [seen], message="A person's\n")
    mirror.fetch()
    hook(repo, "pre-receive", f"unset GIT_QUARANTINE_PATH; git update-ref {DRAFT} {theirs}")

    assert statuses(mirror, RefUpdate(DRAFT, seen, made(mirror))) == [PushStatus.STALE]
    assert repo.find(DRAFT) == theirs
    other = RefUpdate("refs/heads/drafts/q/w", None, made(mirror))
    repo.point(DRAFT, seen)
    assert statuses(mirror, RefUpdate(DRAFT, seen, made(mirror)), other) == [
        PushStatus.STALE,
        PushStatus.SKIPPED,
    ]


def test_stale_ref_stops_the_whole_push(repo: Repo, mirror: Mirror) -> None:
    new = made(mirror)
    theirs = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")

    got = statuses(mirror, RefUpdate("refs/heads/drafts/q/w", None, new), RefUpdate(DRAFT, None, new))

    assert got == [PushStatus.SKIPPED, PushStatus.STALE]
    assert repo.find("refs/heads/drafts/q/w") is None
    assert repo.find(DRAFT) == theirs


def test_unchanged_ref_is_up_to_date(repo: Repo, mirror: Mirror) -> None:
    """Git exits 0 here although the lease is wrong."""
    new = made(mirror)
    assert statuses(mirror, RefUpdate(DRAFT, None, new)) == [PushStatus.DONE]

    assert statuses(mirror, RefUpdate(DRAFT, None, new)) == [PushStatus.UP_TO_DATE]
    wrong = RefUpdate(DRAFT, repo.oid("main"), new)
    assert statuses(mirror, wrong) == [PushStatus.UP_TO_DATE]


def test_deleting_deleted_ref_is_stale(repo: Repo, mirror: Mirror) -> None:
    seen = repo.commit({"p/x": "1"}, branch="drafts/p/w", start="main")
    mirror.fetch()
    repo.delete(DRAFT)

    assert statuses(mirror, RefUpdate(DRAFT, seen, None)) == [PushStatus.STALE]


def test_rejection_by_hook_is_not_stale(repo: Repo, mirror: Mirror) -> None:
    hook(repo, "pre-receive", "echo 'branch is protected' >&2; exit 1")

    (result,) = push(mirror, [RefUpdate(DRAFT, None, made(mirror))])

    assert result.status is PushStatus.REJECTED
    assert "hook" in result.message
    assert repo.find(DRAFT) is None


def test_branch_in_the_way_is_rejection(repo: Repo, mirror: Mirror) -> None:
    theirs = repo.oid("main")
    repo.point("refs/heads/drafts", theirs)

    (result,) = push(mirror, [RefUpdate(DRAFT, None, made(mirror))])

    assert result.status is PushStatus.REJECTED
    assert "refs/heads/drafts" in result.message
    assert repo.find("refs/heads/drafts") == theirs


def test_stale_lock_on_the_server_is_named(repo: Repo, mirror: Mirror) -> None:
    lock = repo.path / f"{DRAFT}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    (result,) = push(mirror, [RefUpdate(DRAFT, None, made(mirror))])

    assert result.status is PushStatus.REJECTED
    assert f"{DRAFT}.lock" in result.message


def test_annotated_tag_is_deleted_by_its_own_id(repo: Repo, mirror: Mirror) -> None:
    repo.tag("p/v1", message="release")
    mirror.fetch()
    tag = Oid(str(mirror.open().references["refs/tags/p/v1"].target))

    peeled = mirror.refs()["refs/tags/p/v1"]
    assert statuses(mirror, RefUpdate("refs/tags/p/v1", peeled, None)) == [PushStatus.STALE]
    assert statuses(mirror, RefUpdate("refs/tags/p/v1", tag, None)) == [PushStatus.DONE]


@pytest.mark.parametrize(
    "ref",
    ["+refs/heads/x", "refs/heads/x:refs/heads/main", "HEAD", "refs/heads/a b", "refs/heads/x\n", "--all"],
)
def test_unsafe_ref_name_is_refused(mirror: Mirror, ref: str) -> None:
    with pytest.raises(RefusedError):
        push(mirror, [RefUpdate(ref, None, made(mirror))])


def test_moved_repository_is_unavailable(repo: Repo, mirror: Mirror) -> None:
    new = made(mirror)
    repo.path.rename(repo.path.with_name("elsewhere"))

    with pytest.raises(UnavailableError):
        push(mirror, [RefUpdate(DRAFT, None, new)])


COUNTER = """
import sys
from pathlib import Path
from reconciler.git.push import RefUpdate, push
from reconciler.git.repository import Mirrors
from reconciler.git.pack import Pack
from reconciler.names.objects import File, Signature

remote, cache, name = sys.argv[1:]
mirror = Mirrors(Path(cache)).open(remote)
who = Signature(name, f"{name}@example.com", 1)
won = 0
while won < 8:
    mirror.fetch()
    ref = "refs/heads/reconciler/default/state"
    old = mirror.refs().get(ref)
    pack = Pack(mirror)
    root = pack.patch_tree(mirror.commit(old).tree if old else None, f"{name}-{won}", {"f": File.of(b"x")})
    new = pack.commit(root, [old] if old else [], who, who, f"{name} {won}")
    pack.save()
    won += push(mirror, [RefUpdate(ref, old, new)])[0].ok
"""


def test_concurrent_writers_lose_no_commit(tmp_path: Path, repo: Repo) -> None:
    """Three processes with one cache add to one branch; every commit that was acknowledged is there."""
    cache = tmp_path / "shared"
    writers = [
        subprocess.Popen([sys.executable, "-c", COUNTER, str(repo.path), str(cache), name], cwd=PROJECT)
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]

    log = run("log", "--format=%s", "reconciler/default/state", cwd=repo.path).split("\n")
    assert sorted(line for line in log if line) == sorted(f"{n} {i}" for n in "abc" for i in range(8))
    repo.fsck()


KILLED = """
import sys
from pathlib import Path
from reconciler.git.push import RefUpdate, push
from reconciler.git.repository import Mirrors
from reconciler.git.pack import Pack
from reconciler.names.objects import File, Signature

remote, cache = sys.argv[1:]
mirror = Mirrors(Path(cache)).open(remote)
bot = Signature("Bot", "bot@example.com", 1)
head = mirror.refs()["refs/heads/main"]
pack = Pack(mirror)
root = pack.patch_tree(mirror.commit(head).tree, "q", {"Kptfile": File.of(b"new")})
new = pack.commit(root, [head], bot, bot, "Ours")
pack.save()
for ref in ("refs/heads/drafts/q/w", "refs/heads/drafts/r/w"):
    old = mirror.refs().get(ref)
    if old != new:
        assert push(mirror, [RefUpdate(ref, old, new)])[0].ok
"""


def test_a_run_killed_at_any_effect_is_completed_by_the_next(tmp_path: Path) -> None:
    def attempt(repo: Repo, cache: Path, **armed: str) -> int:
        command = [sys.executable, "-c", KILLED, str(repo.path), str(cache)]
        return subprocess.run(command, cwd=PROJECT, env={**os.environ, **armed}, check=False).returncode

    log = tmp_path / "points"
    calm = make_repository(tmp_path / "calm.git", {"p/Kptfile": "k"})
    assert attempt(calm, tmp_path / "calm-cache", RECONCILER_FAILPOINT_LOG=str(log)) == 0
    points = log.read_text().splitlines()
    assert len(points) >= 6

    for number in range(1, len(points) + 1):
        repo = make_repository(tmp_path / f"{number}.git", {"p/Kptfile": "k"})
        cache = tmp_path / f"cache-{number}"
        assert attempt(repo, cache, RECONCILER_FAILPOINT=f"{number}:kill") == -signal.SIGKILL
        assert attempt(repo, cache) == 0
        assert repo.refs() == calm.refs(), points[number - 1]
        repo.fsck()


def test_full_disk_moves_no_ref(tmp_path: Path, repo: Repo) -> None:
    before = repo.refs()
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    command = [sys.executable, "-c", limited + KILLED, str(repo.path), str(tmp_path / "cache")]

    ran = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True)

    assert ran.returncode != 0
    assert repo.refs() == before
    repo.fsck()


def test_git_gets_no_environment(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    new = made(mirror)
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    dump = tmp_path / "environment"
    script = f"import json, os; json.dump(dict(os.environ), open({str(dump)!r}, 'w'))"
    stub.write_text(f"#!{sys.executable} -I\n{script}\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    for name in (
        "CANARY_TOKEN",
        "GITHUB_TOKEN",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_SSH_COMMAND",
        "LD_PRELOAD_X",
    ):
        monkeypatch.setenv(name, "canary")
    for name in ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_EXTERNAL_DIFF", "GIT_TRACE_CURL"):
        monkeypatch.setenv(name, "canary")

    with pytest.raises(UnavailableError):
        push(mirror, [RefUpdate(DRAFT, None, new)])

    seen = json.loads(dump.read_text())
    assert "canary" not in json.dumps(seen)
    assert seen["GIT_TERMINAL_PROMPT"] == "0"


def test_user_configuration_is_ignored(
    tmp_path: Path, repo: Repo, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    marker = tmp_path / "ran"
    hooks = home / "hooks"
    hooks.mkdir()
    (hooks / "pre-push").write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    (hooks / "pre-push").chmod(0o755)
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[broken\n")
    (home / ".gitconfig").write_text(
        textwrap.dedent(f"""\
            [core]
            \thooksPath = {hooks}
            [url "https://evil.example/"]
            \tinsteadOf = {repo.path.parent}
            [push]
            \tfollowTags = true
            """)
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    mirror.fetch()

    assert statuses(mirror, RefUpdate(DRAFT, None, made(mirror))) == [PushStatus.DONE]
    assert not marker.exists()


def test_decompression_bomb_is_refused_by_its_size(repo: Repo, mirror: Mirror) -> None:
    """A blob of 256 MiB that is 256 KiB on disk costs neither time nor memory."""
    size = 256 << 20
    oid = sparse_blob(repo, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()

    with pytest.raises(PackageRefusedError):
        mirror.blob(oid, 1 << 20)

    assert time.monotonic() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def sparse_blob(repo: Repo, size: int) -> Oid:
    """Write a loose blob of zeros without ever holding it."""
    import hashlib

    digest, deflate, packed = hashlib.sha1(usedforsecurity=False), zlib.compressobj(), []
    chunks = [b"blob %d\0" % size, *[bytes(1 << 20)] * (size >> 20)]
    for chunk in chunks:
        digest.update(chunk)
        packed.append(deflate.compress(chunk))
    oid = digest.hexdigest()
    path = repo.path / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(packed) + deflate.flush())
    return Oid(oid)


def test_broken_ref_hides_no_other(repo: Repo, mirror: Mirror) -> None:
    """A machine that lost power leaves empty files."""
    repo.point("refs/heads/a", repo.oid("main"))
    for name, text in (("empty", ""), ("text", "not an id\n"), ("gone", "1" * 40 + "\n")):
        (repo.path / "refs" / "heads" / name).write_text(text)

    mirror.fetch()

    assert {"refs/heads/a", "refs/heads/main"} <= set(mirror.refs())
    assert not {"refs/heads/empty", "refs/heads/text"} & set(mirror.refs())


def test_linked_working_tree_is_read_and_pushed_to(tmp_path: Path, repo: Repo) -> None:
    run("clone", "-q", str(repo.path), "work", cwd=tmp_path)
    run("worktree", "add", "-q", "../linked", "-b", "linked", cwd=tmp_path / "work")
    mirror = Mirrors(tmp_path / "cache").open(str(tmp_path / "linked"))

    assert mirror.head_branch == "linked"
    assert statuses(mirror, RefUpdate(DRAFT, None, made_on(mirror, "refs/heads/linked"))) == [PushStatus.DONE]


def test_shallow_clone_is_read_and_pushed_to(tmp_path: Path, repo: Repo) -> None:
    for number in range(3):
        repo.commit({"p/x": f"{number}"})
    run("clone", "-q", "--depth=1", f"file://{repo.path}", "shallow", cwd=tmp_path)
    mirror = Mirrors(tmp_path / "cache").open(str(tmp_path / "shallow"))
    head = mirror.refs()["refs/heads/main"]

    assert [commit.oid for commit in mirror.first_parents(head)] == [head]
    assert mirror.last_touched(head, ["p/Kptfile"]) == {"p/Kptfile": repo.time}
    assert statuses(mirror, RefUpdate(DRAFT, None, made(mirror))) == [PushStatus.DONE]
