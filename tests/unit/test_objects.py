"""Git objects are the bytes that Git itself writes."""

import pytest

from reconciler.names.objects import File, Mode, directory_objects, object_id, tree_id

EMPTY = File.of(b"")


@pytest.mark.parametrize("order", [1, -1])
def test_directory_sorts_as_if_its_name_ended_with_a_slash(order: int) -> None:
    """The id is of `git write-tree` for the entries `a-b`, `a.txt`, `a/f` and `a0`."""
    files = dict.fromkeys(["a-b", "a.txt", "a/f", "a0"][::order], EMPTY)

    assert tree_id(files) == "5e76a1e5c5052bd774c8ff37d002a6ae9cb245b3"


def test_every_directory_has_its_tree() -> None:
    root, trees = directory_objects(
        {"a/b/x": File.of(b"x", Mode.EXECUTABLE), "a/b/l": File.of(b"x", Mode.SYMLINK)}
    )

    assert [object_id("tree", data) for data in trees.values()] == list(trees)
    assert root in trees
    assert len(trees) == 3
    inner = next(data for data in trees.values() if b" x\0" in data)
    assert inner.startswith(b"120000 l\0")
    assert b"100755 x\0" in inner
