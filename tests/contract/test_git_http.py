"""Repositories elsewhere, over HTTP on the loopback: partial mirrors, batches of blobs, secrets."""

import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.api.porch import Repository
from reconciler.base.errors import Location, UnavailableError
from reconciler.git.command import process_count
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, push
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import Credential
from reconciler.inventory.inventory import Source, Sourced
from reconciler.names.ids import ObjectName
from reconciler.names.objects import File, Signature
from reconciler.policy import Limits, Policy
from reconciler.read.contents import fetch_contents
from reconciler.resolve.resolution import Needs
from tests.support.git import Repo, kptfile, make_repository, run
from tests.support.http_git import HttpGit, serve
from tests.support.reading import read_registered

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
DRAFT = "refs/heads/drafts/q/w"
TOKEN = "c4n4ry-t0ken"


def large(text: str) -> bytes:
    """Return a content that does not come with refs and history."""
    return text.encode().ljust(5000)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    files = {f"p{n}/{name}": large(f"{n} {name}") for n in range(5) for name in "ab"}
    files |= {f"p{n}/Kptfile": f"{n} Kptfile".encode() for n in range(5)}
    repo = make_repository(tmp_path / "served" / "a.git", files)
    for name, value in (("uploadpack.allowFilter", "true"), ("http.receivepack", "true")):
        run("config", name, value, cwd=repo.path)
    return repo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpGit]:
    with serve(tmp_path / "served") as running:
        yield running


def opened(tmp_path: Path, server: HttpGit, credential: Credential | None = None) -> Mirror:
    return Mirrors(tmp_path / "cache", lambda _: credential).open(server.url("a.git"))


def present(mirror: Mirror) -> int:
    """Return how many objects the mirror holds."""
    listed = run("count-objects", "-v", cwd=mirror.location.directory)
    counts = dict(line.split(": ") for line in listed.splitlines())
    return int(counts["count"]) + int(counts["in-pack"])


def test_mirror_is_partial_and_fetches_package_in_one_batch(
    tmp_path: Path, repo: Repo, server: HttpGit
) -> None:
    mirrors = Mirrors(tmp_path / "cache")
    mirror = mirrors.open(server.url("a.git"))
    mirror.fetch()
    trees = frozenset(repo.tree("main", f"p{n}") for n in range(3))
    assert not mirror.has(repo.blob(large("0 a")))
    before, had = process_count(), present(mirror)

    contents = fetch_contents(Needs({mirror.url: trees}), mirrors)

    assert process_count() - before == 1
    assert {file.data for file in contents[repo.tree("main", "p1")].values()} == {
        b"1 Kptfile",
        large("1 a"),
        large("1 b"),
    }
    assert present(mirror) - had == 6
    assert not mirror.has(repo.blob(large("4 a")))


def test_contents_of_repositories_are_fetched_side_by_side(
    tmp_path: Path, repo: Repo, server: HttpGit
) -> None:
    shutil.copytree(repo.path, tmp_path / "served" / "b.git")
    mirrors = Mirrors(tmp_path / "cache")
    names = {mirrors.open(server.url(f"{name}.git")).url: f"p{n}" for n, name in enumerate("ab")}
    mirrors.fetch_all(server.url(f"{name}.git") for name in "ab")
    needs = Needs({url: frozenset({repo.tree("main", package)}) for url, package in names.items()})
    server.barrier, before = threading.Barrier(2), process_count()

    contents = fetch_contents(needs, mirrors)

    assert process_count() - before == 2
    assert contents.keys() == {repo.tree("main", "p0"), repo.tree("main", "p1")}


@pytest.mark.parametrize(
    ("text", "fetches"), [(kptfile("p"), 1), (f"{kptfile('p')}#{'x' * 5000}\n", 2)], ids=["small", "large"]
)
def test_packages_of_repositories_are_read_with_few_fetches_side_by_side(
    tmp_path: Path, server: HttpGit, text: str, fetches: int
) -> None:
    for name in "abc":
        made = make_repository(tmp_path / "served" / f"{name}.git", {"p/Kptfile": f"{text}# {name}\n"})
        run("config", "uploadpack.allowFilter", "true", cwd=made.path)
    addresses = [server.url(f"{name}.git") for name in "abc"]
    server.barrier, before = threading.Barrier(3), process_count("fetch")

    registered = [
        Sourced(
            ObjectName("default", name),
            Repository.model_validate(
                {"apiVersion": "v1", "kind": "Repository", "spec": {"git": {"repo": address}}}
            ),
            Source(Location("r.yaml")),
        )
        for name, address in zip("abc", addresses, strict=True)
    ]
    views = read_registered(registered, Mirrors(tmp_path / "cache"), Policy())

    assert process_count("fetch") - before == 3 * fetches
    assert [view.problem for view in views.values()] == [None] * 3
    assert all(not header.error for view in views.values() if (header := view.packages["p"].main_header))


def test_fetch_follows_branch_that_becomes_a_directory(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    repo.point("refs/heads/drafts", repo.oid("main"))
    mirror = opened(tmp_path, server)
    mirror.fetch()
    repo.delete("refs/heads/drafts")
    repo.commit({"x": "1"}, branch="drafts/p0/w", start="main")

    mirror.fetch()

    assert set(mirror.refs()) == {"refs/heads/main", "refs/heads/drafts/p0/w"}


def test_push_from_partial_mirror(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    mirror = opened(tmp_path, server)
    head = mirror.refs()["refs/heads/main"]
    pack = Pack(mirror)
    root = pack.patch_tree(mirror.commit(head).tree, "q", {"Kptfile": File.of(b"new")})
    new = pack.commit(root, [head], BOT, BOT, "Ours\n")
    pack.save()

    assert [r.status for r in push(mirror, [RefUpdate(DRAFT, None, new)])] == [PushStatus.DONE]
    theirs = repo.commit({"q/x": "1"}, branch="drafts/q/w")
    assert [r.status for r in push(mirror, [RefUpdate(DRAFT, new, head)])] == [PushStatus.STALE]
    assert repo.find(DRAFT) == theirs
    repo.fsck()


def test_push_that_is_too_large_is_refused_as_a_whole(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    mirror = opened(tmp_path, server)
    mirror.fetch()
    pack, main, updates = Pack(mirror), repo.oid("main"), list[RefUpdate]()
    for number, size in enumerate((10, 20_000)):
        files = {"Kptfile": File.of(random.Random(number).randbytes(size))}
        tree = pack.patch_tree(mirror.commit(main).tree, f"q{number}", files)
        commit = pack.commit(tree, [main], BOT, BOT, "Draft\n")
        updates.append(RefUpdate(f"{DRAFT}{number}", None, commit))
    pack.save()
    server.largest = 5_000

    both, small, large = (push(mirror, each) for each in (updates, updates[:1], updates[1:]))

    refused = (PushStatus.REJECTED, "The requested URL returned error: 413")
    assert [each[1:] for each in (*both, *large)] == [refused] * 3
    assert small[0].status is PushStatus.DONE


def test_stale_locks_of_a_killed_fetch_are_removed(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    mirror = opened(tmp_path, server)
    mirror.fetch()
    for lock in ("refs/heads/main.lock", "packed-refs.lock", "shallow.lock", "HEAD.lock"):
        (mirror.location.directory / lock).touch()
    moved = repo.commit({"x": "2"})

    mirror.fetch()

    assert mirror.refs()["refs/heads/main"] == moved


def test_two_processes_share_a_cache(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    script = (
        "import sys; from pathlib import Path; from reconciler.git.repository import Mirrors\n"
        "for _ in range(5):\n"
        "    mirror = Mirrors(Path(sys.argv[1])).open(sys.argv[2]); mirror.fetch()\n"
        "print(mirror.refs()['refs/heads/main'])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), server.url("a.git")]
    project = Path(__file__).resolve().parents[2]
    running = [subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    assert [process.communicate(timeout=60)[0].strip() for process in running] == [repo.oid("main")] * 2


def test_token_is_sent_to_its_host_only(tmp_path: Path, repo: Repo) -> None:
    with serve(tmp_path / "served", password=TOKEN) as server:
        mirror = opened(tmp_path, server, Credential(password=TOKEN))

        assert mirror.refs()["refs/heads/main"] == repo.oid("main")

    written = [path for path in mirror.location.directory.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_without_a_token_a_private_repository_is_unavailable_at_once(tmp_path: Path, repo: Repo) -> None:
    assert repo
    with serve(tmp_path / "served", password=TOKEN) as server:
        with pytest.raises(UnavailableError) as caught:
            opened(tmp_path, server).fetch()
        with pytest.raises(UnavailableError):
            opened(tmp_path, server, Credential(password="wrong")).fetch()
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("credential", [None, Credential(password=TOKEN)])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_redirect_to_other_host_gets_no_token(
    tmp_path: Path, repo: Repo, credential: Credential | None, host: str
) -> None:
    """Neither a token nor any request: another port of the same host is another server."""
    assert repo
    with (
        serve(tmp_path / "served") as other,
        serve(tmp_path / "served", redirect=other.address.replace("127.0.0.1", host)) as server,
    ):
        with pytest.raises(UnavailableError, match="redirects to another address, which is not followed"):
            opened(tmp_path, server, credential).fetch()

        assert server.requests
        assert other.requests == []


def test_redirect_on_the_same_server_is_followed_with_the_token(tmp_path: Path, repo: Repo) -> None:
    """So GitLab answers an address without `.git`, and GitHub one of a repository that was renamed."""
    with serve(tmp_path / "served", password=TOKEN, moved={"/old.git": "/a.git"}) as server:
        mirror = Mirrors(tmp_path / "cache", lambda _: Credential(password=TOKEN)).open(server.url("old.git"))

        mirror.fetch()

        assert mirror.refs()["refs/heads/main"] == repo.oid("main")
        (result,) = push(mirror, [RefUpdate("refs/heads/new", None, repo.oid("main"))])
        assert result.ok


def test_unsafe_tree_refuses_its_package_only(tmp_path: Path, repo: Repo, server: HttpGit) -> None:
    blob = repo.blob(b"x")
    evil = repo.raw_tree((b"100644", b"..", blob), (b"100644", b"Kptfile", blob))
    root = repo.raw_tree((b"40000", b"evil", evil), (b"40000", b"p0", repo.tree("main", "p0")))
    repo.point("refs/heads/main", repo.write(root, [repo.oid("main")]))

    mirrors = Mirrors(tmp_path / "cache")
    mirror = mirrors.open(server.url("a.git"))
    trees = {name: mirror.subtree(mirror.refs()["refs/heads/main"], name) for name in ("evil", "p0")}
    contents = fetch_contents(
        Needs({mirror.url: frozenset(t for t in trees.values() if t)}), mirrors, Limits()
    )

    assert set(contents) == {trees["p0"]}
    assert set(contents.refused) == {trees["evil"]}
