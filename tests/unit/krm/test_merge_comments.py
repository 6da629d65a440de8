"""Comments of a document in a merge, by docs/reference/comments.md; and where keys and items come and go."""

from reconciler.krm.merge import Winner, merge_document
from reconciler.krm.yaml import Tree


def merge(
    base: str, upstream: str, local: str, *, winner: Winner = Winner.OPEN
) -> tuple[str, tuple[str, ...]]:
    old, theirs, ours = map(Tree.parse, (base, upstream, local))
    done = merge_document(old, theirs, ours, shape=None, resolver=lambda _: winner)
    assert done.text is not None
    return done.text, done.dropped


def test_comment_that_both_sides_moved_comes_once() -> None:
    ruler = "# ---\n"
    base = f"a: 1\n{ruler}# section\n{ruler}b: 1\nc: 1\n"
    upstream = f"a: 1\n{ruler}# section\n{ruler}c: 1\n"
    local = f"{ruler}# section\n{ruler}a: 1\nb: 2\nc: 1\n"

    assert merge(base, upstream, local) == (local, ())


def test_comment_of_a_removed_item_goes_with_it() -> None:
    base = "l:\n- a\n- b\nz: 1\n"

    text, _ = merge(base, "l:\n- a\n- c\nz: 1\n", "l:\n- a\n# of b\n- b\nz: 2\n")

    assert text == "l:\n- a\n- c\nz: 2\n"
