import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.cache import MANY_PACKS
from reconciler.git.command import process_count
from reconciler.git.local import check_around, check_repository
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.signing import CommitSigning
from reconciler.git.urls import Credential
from reconciler.names.ids import Oid
from reconciler.names.objects import File, object_id
from reconciler.policy import Limits
from tests.support.git import Repo, make_repository


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "a.git", {"p/Kptfile": "k", "README.md": "r"})


@pytest.fixture
def mirror(tmp_path: Path, repo: Repo) -> Mirror:
    return Mirrors(tmp_path / "cache").open(str(repo.path))


def test_reading_a_local_repository_starts_no_process_and_writes_nothing(
    tmp_path: Path, repo: Repo, mirror: Mirror
) -> None:
    before = process_count()
    mirror.files(repo.tree("main", "p"), Limits())

    assert process_count() == before
    assert not (tmp_path / "cache").exists()


def test_spellings_of_one_address_share_a_mirror(tmp_path: Path, repo: Repo) -> None:
    mirrors = Mirrors(tmp_path / "cache")

    assert mirrors.open(str(repo.path)) is mirrors.open(f"file://{tmp_path}/a")
    assert len(mirrors.fetch_all([str(repo.path), f"file://{repo.path}"])) == 1


def test_two_repositories_with_one_identity_are_refused(tmp_path: Path, repo: Repo) -> None:
    make_repository(tmp_path / "a", {"other": "1"})
    mirrors = Mirrors(tmp_path / "cache")
    mirrors.open(str(repo.path))

    with pytest.raises(UnavailableError, match="two repositories"):
        mirrors.open(str(tmp_path / "a"))


def test_snapshot_of_refs_follows_a_recorded_push(repo: Repo, mirror: Mirror) -> None:
    head = repo.oid("main")
    mirror.record("refs/heads/early", head)
    before = dict(mirror.refs())

    mirror.record("refs/heads/new", head)
    mirror.record("refs/heads/main", None)
    mirror.record("refs/heads/gone", None)

    assert before == {"refs/heads/main": head}
    assert mirror.refs() == {"refs/heads/new": head}


@pytest.mark.parametrize("malformed", ["", "no hex", "x" * 40, "é"])
def test_malformed_object_id_is_no_object(mirror: Mirror, malformed: str) -> None:
    assert not mirror.has(Oid(malformed))
    assert mirror.find_commit(Oid(malformed)) is None
    assert mirror.subtree(Oid(malformed), "p") is None


@pytest.mark.parametrize("held", [False, True])
def test_repositories_are_fetched_once_while_they_are_held(tmp_path: Path, repo: Repo, held: bool) -> None:
    mirrors = Mirrors(tmp_path / "cache")
    if held:
        mirrors.hold()
    (before,) = (mirror.refs() for mirror in mirrors.fetch_all([str(repo.path)]).values())
    first = dict(before)
    repo.commit({"x": "1"})

    (mirror,) = mirrors.fetch_all([str(repo.path)]).values()

    assert (mirror.refs() == first) is held


def test_refs_of_other_namespaces_are_ignored(repo: Repo, mirror: Mirror) -> None:
    repo.point("refs/pull/1/head", repo.oid("main"))
    repo.point("refs/reconciler/default/pulls", repo.oid("main"))

    assert set(mirror.refs()) == {"refs/heads/main", "refs/reconciler/default/pulls"}


def test_packs_of_earlier_days_are_removed(repo: Repo, mirror: Mirror) -> None:
    directory = mirror.attach_store()
    for number in range(MANY_PACKS + 2):
        pack = Pack(mirror)
        pack.files({"f": File.of(b"%d" % number)})
        pack.save()
    packs = sorted((directory / "objects" / "pack").glob("*.pack"))
    for path in packs[1:]:
        os.utime(path, (1, 1))

    mirror.attach_store()

    assert sorted((directory / "objects" / "pack").iterdir()) == [packs[0].with_suffix(".idx"), packs[0]]
    mirror.fetch()
    assert mirror.files(repo.tree("main", "p"), Limits())


def test_settings_apply_to_repositories_that_are_open_and_to_later_ones(tmp_path: Path, repo: Repo) -> None:
    make_repository(tmp_path / "b.git")
    mirrors = Mirrors(tmp_path / "cache")
    before = mirrors.open(str(repo.path))
    signing = CommitSigning(sign_off=True)

    mirrors.limit_reads(3)
    mirrors.sign_commits(signing)

    after = mirrors.open(str(tmp_path / "b.git"))
    assert [(mirror.read_s, mirror.signing) for mirror in (before, after)] == [(3, signing)] * 2


def test_credential_of_an_address_is_what_is_configured_when_it_is_opened(tmp_path: Path) -> None:
    old, new = Credential("old"), Credential("new")
    mirrors = Mirrors(tmp_path, lambda address: old if address.endswith("a") else None)
    addresses = [f"https://git.example/{name}" for name in "abc"]
    opened = [mirrors.open(address).location.credential for address in addresses[:2]]

    mirrors.authenticate(lambda _: new)

    assert [*opened, mirrors.open(addresses[2]).location.credential] == [old, None, new]


def test_cache_stays_where_it_was_when_the_run_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert Mirrors(Path("cache")).cache_dir == tmp_path / "cache"


def test_repository_that_was_not_opened_is_not_registered(tmp_path: Path, repo: Repo) -> None:
    mirrors = Mirrors(tmp_path / "cache")
    mirror = mirrors.open(str(repo.path))

    assert mirrors.of(mirror.url) is mirror
    with pytest.raises(UnavailableError, match="Repository /x is not registered") as caught:
        mirrors.of("/x")
    assert caught.value.hint == "Register it."


def test_unusable_address_is_its_own_key_and_each_repository_has_its_error(
    tmp_path: Path, repo: Repo
) -> None:
    remotes = [str(tmp_path / "gone"), "-x", str(repo.path), f"{repo.path}/"]

    fetched = Mirrors(tmp_path / "cache").fetch_all(remotes)

    gone, bad, good = fetched.values()
    assert [*fetched] == [str(tmp_path / "gone"), "-x", str(repo.path).removesuffix(".git")]
    assert str(gone) == f"{tmp_path / 'gone'} is not a Git repository that can be read"
    assert isinstance(gone, UnavailableError)
    assert "path" in gone.hint, "no network and no credentials are needed to read a directory"
    assert isinstance(bad, UnavailableError)
    assert isinstance(good, Mirror)
    assert good.refs()


def test_failure_to_fetch_is_held_with_what_was_fetched(tmp_path: Path) -> None:
    mirrors = Mirrors(tmp_path / "cache")
    mirrors.hold()
    first = mirrors.fetch_all([str(tmp_path / "a.git")])
    make_repository(tmp_path / "a.git")

    assert [*mirrors.fetch_all([str(tmp_path / "a.git")]).values()] == [*first.values()]
    assert isinstance(next(iter(first.values())), UnavailableError)


def test_head_of_a_repository_on_this_machine_names_its_branch_if_any(repo: Repo, mirror: Mirror) -> None:
    (repo.path / "HEAD").write_text("ref: refs/heads/feature/x\n")
    assert mirror.head_branch == "feature/x"
    (repo.path / "HEAD").write_text(f"{repo.oid('main')}\n")
    del mirror.head_branch
    mirror.fetch()
    assert mirror.head_branch == ""


def test_tag_of_what_is_no_commit_is_no_ref(repo: Repo, mirror: Mirror) -> None:
    repo.point("refs/tags/blob", repo.blob(b"k"))
    repo.point("refs/tags/v1", repo.oid("main"))

    assert set(mirror.refs()) == {"refs/heads/main", "refs/tags/v1"}


def test_damaged_objects_of_a_run_are_dropped_and_made_again(mirror: Mirror) -> None:
    pack = Pack(mirror)
    pack.files({"f": File.of(b"new")})
    oid = object_id("blob", b"new")
    pack.save()
    (written,) = mirror.location.directory.glob("objects/pack/*.pack")
    written.chmod(0o644)
    written.write_bytes(b"damaged")

    mirror.fetch()

    assert not mirror.location.directory.exists()
    assert not mirror.has(oid)
    again = Pack(mirror)
    again.files({"f": File.of(b"new")})
    again.save()
    assert mirror.blob(oid, 9) == b"new"


def test_refs_have_full_names_and_are_peeled(repo: Repo, mirror: Mirror) -> None:
    head = repo.oid("main")
    repo.tag("p/v1", message="release")
    repo.tag("p/v2")

    assert mirror.refs() == {"refs/heads/main": head, "refs/tags/p/v1": head, "refs/tags/p/v2": head}
    assert mirror.head_branch == "main"
    assert mirror.tag_commits() == {mirror.tag_object("refs/tags/p/v1"): head}
    assert mirror.tag_object("refs/tags/p/v2") is None


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ("mkfifo objects/odd", "objects/odd is a named pipe, not a file, and is not read"),
        ("mkfifo refs/heads/odd", "refs/heads/odd is a named pipe, not a file, and is not read"),
        ("rm HEAD; mkfifo HEAD", "HEAD is a named pipe, not a file, and is not read"),
        ("mkdir ../more; mkfifo ../more/odd; echo ../../more > objects/info/alternates",
            "more/odd is a named pipe, not a file, and is not read"),
        ("mkdir ../more; mkfifo ../more/odd; ln -s ../../more objects/link",
            "objects/link/odd is a named pipe, not a file, and is not read"),
        ("ln -s . objects/loop", ""),
        ("git config extensions.refStorage reftable", "keeps its refs in reftables, which are not supported"),
        ("printf '# objectFormat = sha256\n' >> config", ""),
        ("git config extensions.objectFormat sha256", "SHA-256"),
        ("rm config", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("check", "below"), [(check_repository, "."), (check_around, "a/b")])
def test_repository_on_this_machine_that_cannot_be_read_in_time_is_named(
    repo: Repo, breaks: str, message: str, check: Callable[[Path, float], None], below: str
) -> None:
    subprocess.run(breaks, shell=True, cwd=repo.path, check=True)

    if not message:
        check(repo.path / below, 60)
        return
    with pytest.raises(UnavailableError, match=message) as caught:
        check(repo.path / below, 60)
    assert caught.value.hint != UnavailableError.hint
    assert caught.value.hint.startswith("Remove it. ") is message.endswith("not read")
