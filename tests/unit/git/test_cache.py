"""Damage in a mirror: every kind of file is looked at, whole ones pass."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.functions.runtimes.result_cache import checked, with_digest
from reconciler.git import cache
from reconciler.git.cache import (
    CACHE_HINT,
    MANY_PACKS,
    MirrorLocation,
    count_packs,
    create_empty,
    create_mirror,
    discard_mirror,
    drop_old_packs,
    find_damage,
    locked,
    open_cache,
    record_packs,
    recover_locks,
    replace_mirror,
    restore_settings,
)
from reconciler.git.urls import Credential, Remote, parse_remote
from tests.support.git import make_repository
from tests.support.hostile_objects import write_object
from tests.support.values import TOKEN
from tests.support.world import git


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository with every kind of file that is checked: packs, their indexes, graphs, refs."""
    root = tmp_path_factory.mktemp("integrity")
    repo = make_repository(root / "a.git", {"a.yaml": "a: 1\n"})
    repo.tag("v1")
    repo.commit({"a.yaml": "a: 2\n"})
    bare = root / "a.git"
    options = ("-c", "pack.writeReverseIndex=true", "-c", "repack.writeBitmaps=true")
    git(bare, *options, "repack", "-adbq")
    git(bare, "multi-pack-index", "write")
    git(bare, "commit-graph", "write", "--reachable")
    graphs = bare / "objects/info/commit-graphs"
    graphs.mkdir(exist_ok=True)
    shutil.copy(bare / "objects/info/commit-graph", graphs / "graph-1.graph")
    git(bare, "pack-refs", "--all")
    git(bare, "update-ref", "refs/heads/loose", "main")
    git(bare, "update-ref", "refs/tags/loose", "main")
    write_object(bare, b"blob", b"loose\n")
    record_packs(bare)
    return bare


@pytest.fixture
def mirror(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "m.git"))


def only_file(mirror: Path, pattern: str) -> Path:
    """Return the one file of a pattern, made writable."""
    (path,) = mirror.glob(pattern)
    path.chmod(0o644)
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    path.write_bytes(b"short")


def test_whole_mirror_has_no_damage(mirror: Path) -> None:
    (mirror / "refs/heads/x.lock").write_bytes(b"")

    assert find_damage(mirror) == ""


@pytest.mark.parametrize("harm", [flip, cut, extend, empty, shorten])
@pytest.mark.parametrize(
    "pattern",
    [
        "objects/pack/*.pack", "objects/pack/*.idx", "objects/pack/*.rev", "objects/pack/*.bitmap",
        "objects/pack/multi-pack-index", "objects/info/commit-graph", "objects/info/commit-graphs/*.graph",
    ],
)  # fmt: skip
def test_file_with_a_checksum_is_compared_with_it(
    mirror: Path, pattern: str, harm: Callable[[Path], None]
) -> None:
    path = only_file(mirror, pattern)
    harm(path)

    assert find_damage(mirror) == f"{path} does not have the checksum that it ends with"


def test_pack_with_wrong_name_is_damaged(mirror: Path) -> None:
    """A file that ends with its own SHA-1 passes: damage is meant here, not forgery of one's own cache."""
    path = only_file(mirror, "objects/pack/*.pack")
    data = b"other"
    path.write_bytes(data + hashlib.sha1(data, usedforsecurity=False).digest())

    assert find_damage(mirror) == ""


@pytest.mark.parametrize("kind", ["idx", "pack"])
def test_lost_half_of_a_pack_is_missed(mirror: Path, kind: str) -> None:
    path = only_file(mirror, f"objects/pack/*.{kind}")
    path.unlink()

    assert find_damage(mirror) == f"{path} is lost"


def test_lost_pack_is_missed_with_both_of_its_files(mirror: Path) -> None:
    for kind in ("pack", "idx", "rev", "bitmap"):
        only_file(mirror, f"objects/pack/*.{kind}").unlink()

    assert find_damage(mirror).endswith(".idx is lost")


@pytest.mark.parametrize("name", ["objects/info", "objects/pack", "refs/heads", "refs/tags"])
def test_directory_that_git_needs_is_missed(mirror: Path, name: str) -> None:
    shutil.rmtree(mirror / name)

    assert find_damage(mirror) == f"{mirror / name} is no directory"


@pytest.mark.parametrize("content", [b"", b"garbage", zlib.compress(b"blob 6\0other\n"), b"\0" * 40])
def test_loose_object_is_compared_with_its_name(mirror: Path, content: bytes) -> None:
    path = only_file(mirror, "objects/[0-9a-f][0-9a-f]/*")
    path.write_bytes(content)

    assert find_damage(mirror) == f"{path} is not the object that its name says"


@pytest.mark.parametrize("name", ["refs/heads/loose", "refs/tags/loose"])
@pytest.mark.parametrize("content", [b"", b"main\n", b"\0" * 41, b"F" * 40 + b"\n", b"f" * 40 + b"\nx"])
def test_ref_holds_an_object_id(mirror: Path, name: str, content: bytes) -> None:
    (mirror / name).write_bytes(content)

    assert find_damage(mirror) == f"{mirror / name} is not a ref"


@pytest.mark.parametrize(
    "content", [b"garbage\n", b"f" * 39 + b" refs/heads/x\n", b"f" * 40 + b" heads/x\n", b"\0", b"# x"]
)
def test_packed_refs_are_a_list_of_refs(mirror: Path, content: bytes) -> None:
    (mirror / "packed-refs").write_bytes(content)

    assert find_damage(mirror) == f"{mirror / 'packed-refs'} is not a list of refs"


def test_file_that_cannot_be_read_is_damage(mirror: Path) -> None:
    (mirror / "packed-refs").unlink()
    (mirror / "packed-refs").mkdir()

    assert find_damage(mirror) == f"{mirror / 'packed-refs'}: Is a directory"


@pytest.mark.parametrize("data", [b"", b"x", b"value" * 100])
def test_changed_bytes_fail_their_digest(data: bytes) -> None:
    kept = with_digest(data)

    assert checked(kept) == data
    assert checked(kept + b"\0") is None
    assert checked(kept[:-1]) is None
    assert checked(b"\0" + kept[1:]) is None
    assert checked(b"") is None


REMOTE = Remote("https://git.example/acme/edge", "https://git.example/acme/edge")


@pytest.fixture
def location(tmp_path: Path) -> MirrorLocation:
    return MirrorLocation.of(tmp_path / "cache", REMOTE, None)


@pytest.fixture
def blocked(tmp_path: Path) -> MirrorLocation:
    """A location in a cache directory that cannot be created."""
    (tmp_path / "file").touch()
    return MirrorLocation.of(tmp_path / "file", REMOTE, None)


NAMED, OWN = Credential("kim", "named"), Credential("kim", "own")


@pytest.mark.parametrize(
    ("named", "own", "used"),
    [(NAMED, OWN, NAMED), (NAMED, None, NAMED), (None, OWN, OWN), (None, None, None)],
)
def test_configured_credential_precedes_that_of_the_address(
    tmp_path: Path, named: Credential | None, own: Credential | None, used: Credential | None
) -> None:
    remote = Remote("https://git.example/a", "https://git.example/a", credential=own)

    assert MirrorLocation.of(tmp_path, remote, named).credential is used


@pytest.mark.parametrize(
    ("address", "credential", "refused"),
    [
        ("http://git.example/a", Credential("kim", "secret"), True),
        ("HTTP://git.example/a", Credential("", "secret"), True),
        ("http://git.example/a", Credential("kim"), False),
        ("http://git.example/a", Credential(TOKEN), True),
        (f"http://{TOKEN}@git.example/a", None, True),
        ("http://git.example/a", None, False),
        ("http://kim:secret@git.example/a", None, True),
        ("https://git.example/a", Credential("kim", "secret"), False),
        ("http://localhost:3000/a", Credential("kim", "secret"), False),
        ("http://127.0.0.1/a", Credential("kim", "secret"), False),
        ("http://[::1]/a", Credential("kim", "secret"), False),
        ("ssh://git.example/a", Credential("kim", "secret"), False),
        ("/srv/a", Credential("kim", "secret"), False),
    ],
)
def test_secret_is_sent_over_http_to_this_machine_only(
    tmp_path: Path, address: str, credential: Credential | None, refused: bool
) -> None:
    remote = parse_remote(address)

    if not refused:
        MirrorLocation.of(tmp_path, remote, credential)
        return
    with pytest.raises(UnavailableError, match="would be sent in the clear") as caught:
        MirrorLocation.of(tmp_path, remote, credential)
    assert (remote.address in str(caught.value), caught.value.hint) == (True, "Use https.")


def test_address_reaches_git_whatever_characters_it_has(tmp_path: Path) -> None:
    address = 'https://git.example/a"b\\c#;d'
    location = MirrorLocation.of(tmp_path, Remote(address, address), None)
    create_mirror(location)

    assert git(location.directory, "config", "remote.origin.url").strip() == address


def test_mirror_that_another_process_created_meanwhile_is_kept(
    location: MirrorLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_slowly(where: MirrorLocation) -> Path:
        fresh = create_empty(where)
        shutil.copytree(fresh, where.directory)
        (where.directory / "theirs").touch()
        return fresh

    monkeypatch.setattr(cache, "create_empty", create_slowly)

    create_mirror(location)

    assert (location.directory / "theirs").exists()
    assert [*location.directory.parent.iterdir()] == [location.directory]


def test_file_in_the_place_of_a_mirror_is_an_error_that_leaves_nothing_behind(
    location: MirrorLocation,
) -> None:
    location.directory.parent.mkdir()
    location.directory.touch()

    with pytest.raises(UnavailableError, match=f"Cannot create {location.directory}: Not a directory"):
        create_mirror(location)

    assert [*location.directory.parent.iterdir()] == [location.directory]


def test_cache_that_cannot_be_written_is_named_with_what_to_check(
    tmp_path: Path, blocked: MirrorLocation, location: MirrorLocation
) -> None:
    def lock() -> None:
        with locked(blocked.directory):
            raise AssertionError

    settings = location.directory / "HEAD"
    attempts: dict[str, Callable[[], object]] = {
        f"Cannot create {blocked.directory}: File exists": lambda: create_mirror(blocked),
        f"Cannot write {blocked.directory.with_suffix('.flock')}: ": lock,
        f"Cannot write {settings}: No such file": lambda: restore_settings(location),
        f"Cannot write to {blocked.directory}: Not a directory": lambda: record_packs(blocked.directory),
        f"Cannot create {location.directory}: No such file": lambda: replace_mirror(
            location, tmp_path / "gone"
        ),
    }
    errors = []
    for attempt in attempts.values():
        with pytest.raises(UnavailableError) as caught:
            attempt()
        errors.append(caught.value)

    pairs = zip(attempts, errors, strict=True)
    assert [str(error)[: len(message)] for message, error in pairs] == [*attempts]
    assert [error.hint for error in errors] == [CACHE_HINT] * 5


@pytest.mark.parametrize("kind", ["directory", "file", "link", "nothing"])
def test_whatever_is_in_the_place_of_a_mirror_is_removed_and_nothing_else(tmp_path: Path, kind: str) -> None:
    place, other = tmp_path / "m.git", tmp_path / "other"
    (other / "kept").mkdir(parents=True)
    match kind:
        case "directory":
            (place / "objects").mkdir(parents=True)
        case "file":
            place.touch()
        case "link":
            place.symlink_to(other)

    discard_mirror(place)

    assert not place.is_symlink()
    assert [*tmp_path.rglob("*")] == [other, other / "kept"]


def test_mirror_that_cannot_be_removed_is_left_to_people(blocked: MirrorLocation) -> None:
    with pytest.raises(UnavailableError) as caught:
        discard_mirror(blocked.directory)

    assert (
        str(caught.value)
        == f"{blocked.directory} in the cache is damaged, and cannot be removed: Not a directory"
    )
    assert caught.value.hint == "Delete it: everything in it is fetched again."


@pytest.mark.parametrize("name", ["HEAD", "config"])
@pytest.mark.parametrize("harm", ["other", "missing", "directory"])
def test_setting_that_differs_is_rewritten(location: MirrorLocation, name: str, harm: str) -> None:
    create_mirror(location)
    path = location.directory / name
    before = path.read_bytes()
    path.unlink() if harm != "other" else path.write_text("other\n")
    if harm == "directory":
        (path / "below").mkdir(parents=True)

    restore_settings(location)

    assert path.read_bytes() == before


def test_setting_that_is_as_it_was_written_stays_untouched(location: MirrorLocation) -> None:
    create_mirror(location)
    paths = [location.directory / name for name in ("HEAD", "config")]
    for path in paths:
        os.utime(path, (1, 1))

    restore_settings(location)

    assert [path.stat().st_mtime for path in paths] == [1, 1]


def test_lock_of_a_mirror_is_held_by_one_process(location: MirrorLocation) -> None:
    lock = location.directory.with_suffix(".flock")

    with locked(location.directory), lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock_files_of_killed_processes_are_removed_and_no_other_file(mirror: Path) -> None:
    before = {*mirror.rglob("*")}
    for name in ("HEAD.lock", "refs/heads/a/b.lock", "refs/x.lock", "objects/info/commit-graph.lock"):
        (mirror / name).parent.mkdir(exist_ok=True)
        (mirror / name).touch()

    recover_locks(mirror)

    assert {*mirror.rglob("*")} - {mirror / "refs/heads/a"} == before


def write_packs(mirror: Path, count: int, age_s: float) -> None:
    for number in range(count):
        for suffix in ("pack", "idx"):
            path = mirror / f"objects/pack/pack-{number}.{suffix}"
            path.touch()
            os.utime(path, (time.time() - age_s,) * 2)


@pytest.mark.parametrize(
    ("count", "age_h", "left"),
    [(MANY_PACKS, 25, MANY_PACKS), (MANY_PACKS + 1, 25, 0), (MANY_PACKS + 1, 23, MANY_PACKS + 1), (0, 25, 0)],
)
def test_packs_are_removed_if_they_are_many_and_older_than_a_day(
    location: MirrorLocation, count: int, age_h: int, left: int
) -> None:
    create_mirror(location)
    packs = location.directory / "objects/pack"
    write_packs(location.directory, count, age_h * 3600)
    assert count_packs(location.directory) == count

    drop_old_packs(location.directory)

    assert (count_packs(location.directory), len([*packs.iterdir()])) == (left, 2 * left)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("chmod 700 c", ""),
        ("chmod 755 c; touch c/f; chmod 644 c/f", ""),
        ("chmod 777 c", "The cache {c} may be written by everybody"),
        ("chmod 775 c", "The cache {c} may be written by its group"),
        ("chmod 755 c; mkdir -m 700 c/d; touch c/d/f; chmod 666 c/d/f", ""),
        ("chmod 755 c; mkdir -m 755 c/d; touch c/d/f; chmod 666 c/d/f",
            "{c}/d/f in the cache may be written by everybody"),
        ("chmod 700 c; touch c/f; chmod 666 c/f", ""),
        ("chmod 700 c; mkdir c/d; chmod 777 c/d", "{c}/d in the cache may be written by everybody"),
        ("chmod 755 c; ln -s gone c/l", ""),
        ("chmod 755 c; touch f; chmod 666 f; ln -s ../f c/l",
            "{c}/l in the cache may be written by everybody"),
        ("mv c d; ln -s d c; chmod 777 d", "The cache {c} may be written by everybody"),
        ("rmdir c; touch c", "Cannot create the cache {c}: File exists"),
    ],
)  # fmt: skip
def test_cache_that_others_may_write_is_refused(tmp_path: Path, prepare: str, message: str) -> None:
    (tmp_path / "c").mkdir()
    subprocess.run(prepare, shell=True, cwd=tmp_path, check=True)
    found = ""

    try:
        assert open_cache(tmp_path / "c") == tmp_path / "c"
    except (RefusedError, UnavailableError) as error:
        found = str(error)

    assert found == message.format(c=tmp_path / "c")


def test_cache_is_for_its_user_alone_and_what_is_in_it_becomes_so(tmp_path: Path) -> None:
    made = open_cache(tmp_path / "x/c")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    (made / "d").mkdir(mode=0o755)

    open_cache(made)

    assert (made / "d").stat().st_mode & 0o777 == 0o700
