"""A repository elsewhere: its mirror is fetched, mended and never waited for longer than allowed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.cache import CACHE_HINT, MANY_PACKS, MirrorLocation, count_packs
from reconciler.git.command import process_count
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirror
from reconciler.git.urls import Credential, Remote
from reconciler.names.ids import Oid
from reconciler.names.objects import File
from tests.support.git import Repo, make_repository, run

GIT = shutil.which("git")
LARGE, LARGER = b"r" * 4096, b"s" * 5000
"""Contents that do not come with refs and history."""
NOWHERE = Oid("0" * 39 + "1")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repository(tmp_path / "a.git", {"p/Kptfile": "k", "README.md": LARGE, "more.md": LARGER})
    for name in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        run("config", name, "true", cwd=repo.path)
    return repo


@pytest.fixture
def mirror(tmp_path: Path, repo: Repo) -> Mirror:
    """A mirror that treats a repository on this machine as one elsewhere."""
    remote = Remote(f"file://{repo.path}", "https://git.example/acme/a")
    return Mirror(MirrorLocation.of(tmp_path / "cache", remote, None))


@pytest.fixture
def script(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the script that runs instead of git."""
    mirror.fetch()

    def write(text: str) -> None:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin/git").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin/git").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return write


def test_detached_and_unborn_heads_have_no_branch(repo: Repo, mirror: Mirror) -> None:
    (repo.path / "HEAD").write_text(f"{repo.oid('main')}\n")
    assert mirror.head_branch == ""
    (repo.path / "HEAD").write_text("ref: refs/heads/nowhere\n")
    del mirror.head_branch
    assert mirror.head_branch == ""


def test_missing_objects_are_fetched_in_one_batch(repo: Repo, mirror: Mirror) -> None:
    mirror.fetch()
    oids = [repo.blob(LARGE), repo.blob(LARGER)]
    before = process_count()

    mirror.ensure(oids)
    mirror.ensure(oids)
    mirror.ensure([])

    assert process_count() - before == 1
    assert [mirror.blob(oid, 5000) for oid in oids] == [LARGE, LARGER]


def test_object_that_the_remote_does_not_have_is_unavailable(mirror: Mirror) -> None:
    mirror.fetch()

    with pytest.raises(UnavailableError, match=f"Cannot read {mirror.remote}: "):
        mirror.ensure([NOWHERE])


def test_commit_that_no_branch_reaches_is_fetched(repo: Repo, mirror: Mirror) -> None:
    mirror.fetch()
    before = process_count()
    assert mirror.bring(repo.oid("main"))
    assert process_count() == before
    hidden = repo.write(repo.tree("main"), [repo.oid("main")], message="hidden")

    assert (mirror.bring(hidden), mirror.has(hidden)) == (True, True)
    assert not mirror.bring(NOWHERE)


def test_damaged_mirror_is_fetched_again(repo: Repo, mirror: Mirror) -> None:
    mirror.fetch()
    (mirror.location.directory / "kept").touch()
    shutil.rmtree(mirror.location.directory / "objects/pack")

    mirror.fetch()

    assert mirror.refs() == {"refs/heads/main": repo.oid("main")}
    assert not (mirror.location.directory / "kept").exists()


def test_mirror_that_git_cannot_fetch_into_is_replaced(
    repo: Repo, mirror: Mirror, script: Callable[[str], None]
) -> None:
    directory = mirror.location.directory
    (directory / "kept").touch()
    fetch = f"*--git-dir={directory}*fetch*"
    script(f'case "$*" in {fetch}) echo fatal: broken >&2; exit 1 ;; esac; exec {GIT} "$@"')

    mirror.fetch()

    assert mirror.refs() == {"refs/heads/main": repo.oid("main")}
    assert not (directory / "kept").exists()
    assert {path.suffix for path in directory.parent.iterdir()} == {".git", ".flock"}


def test_mirror_stays_where_the_remote_is_the_cause(repo: Repo, mirror: Mirror) -> None:
    mirror.fetch()
    kept = mirror.location.directory / "kept"
    kept.touch()
    shutil.rmtree(repo.path)

    with pytest.raises(UnavailableError, match=f"Cannot read {mirror.remote}"):
        mirror.fetch()

    assert kept.exists()
    assert {path.suffix for path in kept.parent.parent.iterdir()} == {".git", ".flock"}


def test_mirror_stays_where_a_new_one_cannot_be_fetched_either(
    mirror: Mirror, script: Callable[[str], None]
) -> None:
    kept = mirror.location.directory / "kept"
    kept.touch()
    script('case "$*" in *ls-remote*) exit 0 ;; esac; echo fatal: broken >&2; exit 1')

    with pytest.raises(UnavailableError, match="fatal: broken"):
        mirror.fetch()

    assert kept.exists()
    assert {path.suffix for path in kept.parent.parent.iterdir()} == {".git", ".flock"}


def test_mirror_with_many_packs_is_repacked_and_its_packs_are_recorded(mirror: Mirror) -> None:
    mirror.fetch()
    packs = mirror.location.directory / "objects/pack"
    for number in range(MANY_PACKS):
        pack = Pack(mirror)
        pack.files({"f": File.of(b"%d" % number)})
        pack.save()
    made = count_packs(mirror.location.directory)

    mirror.fetch()

    assert count_packs(mirror.location.directory) < made
    record = (mirror.location.directory / "reconciler-packs").read_text().split()
    assert record == sorted(path.stem for path in packs.glob("*.idx"))


LATER = "Check the server and the network, or raise limits.readSeconds."


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("fatal: no such repository", "Cannot read {remote}: fatal: no such repository", "Check the URL, "),
        ("fatal: No space left on device", "Cannot write to {directory}: fatal: No space", CACHE_HINT),
        ("fatal: Operation too slow", "Cannot read {remote}: fatal: Operation too slow", LATER),
        ("ssh: connect: timed out", "Cannot read {remote}: ssh: connect: timed out", LATER),
    ],
)
def test_failed_command_on_a_remote_names_the_cause_and_is_not_waited_for_twice(
    mirror: Mirror, script: Callable[[str], None], text: str, message: str, hint: str
) -> None:
    script(f"echo '{text}' >&2; exit 1")
    before = process_count()

    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            mirror.ensure([NOWHERE])
        expected = message.format(remote=mirror.remote, directory=mirror.location.directory)
        assert str(caught.value).startswith(expected)
        assert caught.value.hint.startswith(hint)

    assert process_count() - before == (1 if hint == LATER else 2)


def test_remote_that_does_not_answer_in_time_is_not_waited_for_again(
    mirror: Mirror, script: Callable[[str], None]
) -> None:
    script("sleep 30")
    mirror.read_s = 0.1
    before = process_count()

    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            mirror.ensure([NOWHERE])
        assert str(caught.value) == f"Cannot read {mirror.remote}: no answer within 0 s"
        assert caught.value.hint == LATER
    with pytest.raises(UnavailableError, match="no answer"):
        mirror.fetch()

    assert process_count() - before == 1


def test_command_on_a_remote_has_its_address_credential_and_limit(
    tmp_path: Path, script: Callable[[str], None]
) -> None:
    script(f'echo "$* $GIT_USER" >{tmp_path}/arguments; exit 1')
    remote = Remote("https://git.example/acme/a", "https://git.example/acme/a")
    mirror = Mirror(MirrorLocation.of(tmp_path / "cache", remote, Credential("kim", "s3cret-t0ken")))
    mirror.read_s = 7.0

    with pytest.raises(UnavailableError):
        mirror.ensure([NOWHERE])

    arguments = (tmp_path / "arguments").read_text()
    for part in ("credential.https://git.example.helper=", "http.lowSpeedTime=7 ", " kim\n"):
        assert part in arguments
