from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError
from reconciler.forge.local.merge import find_outside, proposed_packages
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import parse_tree
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature
from tests.support.git import BOT, format_tree, make_repository
from tests.support.hostile_objects import write_object

SIGNATURE = Signature(*BOT, 1_767_225_600)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    repo = make_repository(tmp_path / "a.git", {"web/Kptfile": "k", "README.md": "r"})
    return Mirrors(tmp_path / "cache").open(str(repo.path))


def commit(mirror: Mirror, root: Oid) -> Oid:
    pack = Pack(mirror)
    oid = pack.commit(root, (), SIGNATURE, SIGNATURE, "Change\n")
    pack.save()
    return oid


def renamed(mirror: Mirror, tree: Oid, name: bytes) -> Oid:
    """Return a tree in which the directory `web` has another name."""
    entries = [e._replace(name=name) if e.name == b"web" else e for e in mirror.raw_entries(tree)]
    data = format_tree(entries)
    assert parse_tree(data)
    return Oid(write_object(Path(mirror.remote), b"tree", data))


@pytest.mark.parametrize(
    ("changes", "outside"),
    [
        ({"apps/web/Kptfile": "2", "apps/web/new/a": "1"}, None),
        ({"apps/web/Kptfile": None}, None),
        ({"README.md": "2"}, "README.md"),
        ({"README.md": None}, "README.md"),
        ({"new": "1"}, "new"),
        ({"apps/db": "1"}, "apps/db"),
        ({"apps/web2/Kptfile": "1", "apps/web/Kptfile": "2"}, "apps/web2"),
    ],
)
def test_first_change_beside_a_package_is_found(
    tmp_path: Path, changes: dict[str, str | None], outside: str | None
) -> None:
    repo = make_repository(tmp_path / "a.git", {"apps/web/Kptfile": "1", "README.md": "1"})
    head = repo.commit(changes, branch="drafts", start="main")
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))

    assert find_outside(mirror, repo.oid("main"), head, "apps/web") == outside


@pytest.mark.parametrize("name", [b"\xff\xfe", b".git", b"a\n"])
def test_unsafe_directory_is_refused(mirror: Mirror, name: bytes) -> None:
    base = mirror.refs()["refs/heads/main"]
    head = commit(mirror, renamed(mirror, mirror.commit(base).tree, name))

    with pytest.raises(RefusedError, match="does not belong to a package"):
        proposed_packages(mirror, base, head)
