"""Damage in a mirror: every kind of file is looked at, whole ones pass."""

import hashlib
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.digest import checked, with_digest
from reconciler.git.cache import find_damage, record_packs
from tests.support.git import make_repository
from tests.support.hostile_objects import write_object
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
        "objects/pack/*.pack",
        "objects/pack/*.idx",
        "objects/pack/*.rev",
        "objects/pack/*.bitmap",
        "objects/pack/multi-pack-index",
        "objects/info/commit-graph",
        "objects/info/commit-graphs/*.graph",
    ],
)
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
