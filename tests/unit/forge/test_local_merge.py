from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError
from reconciler.forge.local.merge import proposed_packages
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


@pytest.mark.parametrize("name", [b"\xff\xfe", b".git", b"a\n"])
def test_unsafe_directory_is_refused(mirror: Mirror, name: bytes) -> None:
    base = mirror.refs()["refs/heads/main"]
    head = commit(mirror, renamed(mirror, mirror.commit(base).tree, name))

    with pytest.raises(RefusedError, match="does not belong to a package"):
        proposed_packages(mirror, base, head)
