from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.errors import RefusedError
from reconciler.forge.local.merge import ProposedPackage, proposed_packages, replaced_child
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import RawEntry, parse_tree
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature, object_id
from tests.support.git import BOT, format_tree, make_repository

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
    pack = Pack(mirror)
    oid = pack.add("tree", object_id("tree", data), data)
    pack.save()
    return oid


NAMES = st.sampled_from([b"a", b"b", b"x a", b"a b"])
CHILDREN = st.sampled_from([b"a" * 20, b"b" * 20, b"..... a\0............"])
ENTRIES = st.lists(st.builds(RawEntry, st.sampled_from([b"40000", b"100644"]), NAMES, CHILDREN), max_size=5)


@given(ENTRIES, ENTRIES, st.booleans(), CHILDREN)
def test_replaced_child_is_the_only_difference(
    entries: list[RawEntry], others: list[RawEntry], is_like: bool, child: bytes
) -> None:
    before = [*entries, RawEntry(b"40000", b"a", child)]
    changed = [e._replace(oid=b"c" * 20) if e.name == b"a" else e for e in before]
    after = changed if is_like else others

    found = replaced_child(format_tree(before), format_tree(after), b"a", child)

    if found is not None:
        expected = {entry for entry in before if entry.name != b"a"}
        assert {entry for entry in after if entry.name != b"a"} == expected
        assert (b"40000", b"a", found) in after


def test_replaced_child_is_found_among_others() -> None:
    before = [RawEntry(b"40000", name, b"1" * 20) for name in (b"a", b"b", b"c")]
    after = [before[0], before[1]._replace(oid=b"2" * 20), before[2]]

    assert replaced_child(format_tree(before), format_tree(after), b"b", b"1" * 20) == b"2" * 20
    assert replaced_child(format_tree(before), format_tree(after), b"a", b"1" * 20) is None
    assert replaced_child(format_tree(before), format_tree(after[:2]), b"b", b"1" * 20) is None


def test_removed_and_added_packages_are_proposed(mirror: Mirror) -> None:
    base = mirror.refs()["refs/heads/main"]
    package = mirror.subtree(base, "web")

    proposed = proposed_packages(
        mirror, base, commit(mirror, renamed(mirror, mirror.commit(base).tree, b"db"))
    )

    assert proposed == {"db": ProposedPackage(None, package), "web": ProposedPackage(package, None)}


@pytest.mark.parametrize("name", [b"\xff\xfe", b".git", b"a\n"])
def test_unsafe_directory_is_refused(mirror: Mirror, name: bytes) -> None:
    base = mirror.refs()["refs/heads/main"]
    head = commit(mirror, renamed(mirror, mirror.commit(base).tree, name))

    with pytest.raises(RefusedError, match="does not belong to a package"):
        proposed_packages(mirror, base, head)
