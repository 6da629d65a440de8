"""Comments of a document in a merge, by docs/reference/comments.md; and where keys and items come and go."""

import pytest

from reconciler.krm.merge import Winner, merge_document
from reconciler.krm.yaml import Tree


def merge(
    base: str, upstream: str, local: str, *, winner: Winner = Winner.OPEN
) -> tuple[str, tuple[str, ...]]:
    old, theirs, ours = map(Tree.parse, (base, upstream, local))
    done = merge_document(old, theirs, ours, shape=None, resolver=lambda _: winner)
    assert done.text is not None
    return done.text, done.dropped


PLACES = {
    "above": "m:\n{}  a: {}\nz: 1\n",
    "below": "m:\n  a: {1}\n{0}\n  b: 1\n",
    "end of a map": "m:\n  a: {1}\n{0}z: 1\n",
    "end of a list": "m:\n  - a: {1}\n{0}z: 1\n",
    "end of the document": "m:\n  a: {1}\n{0}",
}
RULES = [
    ("left, changed", "old", "up", "old", "up", ""),
    ("left, removed", "old", "", "old", "", ""),
    ("left, added", "", "up", "", "up", ""),
    ("changed, left", "old", "old", "mine", "mine", ""),
    ("removed, left", "old", "old", "", "", ""),
    ("added, left", "", "", "mine", "mine", ""),
    ("both changed", "old", "up", "mine", "mine", "up"),
    ("removed, changed", "old", "up", "", "", "up"),
    ("changed, removed", "old", "", "mine", "mine", ""),
    ("both removed", "old", "", "", "", ""),
    ("both alike", "old", "up", "up", "up", ""),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
def test_comment_is_merged_by_the_rules(place: str, rule: tuple[str, ...]) -> None:
    reason, base, upstream, local, want, dropped = rule
    column = 0 if place == "end of the document" else 2

    def text(comment: str, value: int) -> str:
        return PLACES[place].format(f"{' ' * column}# {comment}\n" if comment else "", value)

    got = merge(text(base, 1), text(upstream, 2), text(local, 1))

    assert got == (text(want, 2), (f"# {dropped}",) if dropped else ()), reason


@pytest.mark.parametrize(
    ("place", "want"),
    [("above", "m:\n  # up\n  # mine\n  a: 1\n"), ("end", "m:\n  a: 1\n  # mine\n  # up\n")],
)
def test_comments_that_both_sides_add_are_both_kept(place: str, want: str) -> None:
    above = "m:\n{}  a: 1\n"
    form = above if place == "above" else "m:\n  a: 1\n{}"

    assert merge(*(form.format(each) for each in ("", "  # up\n", "  # mine\n"))) == (want, ())


END = "  # End of configuration\n"
HEAD = "data:\n  a: '{}'\n"


@pytest.mark.parametrize(
    ("base", "upstream"),
    [
        pytest.param(END, f"  b: 1\n  c: 1\n{END}", id="two keys"),
        pytest.param(f"  b: 1\n  c: 1\n{END}", f"  b: 1\n{END}", id="last key goes"),
        pytest.param(f"  b: 1\n{END}", f"  b: 1\n  c:\n  - one\n{END}", id="list comes last"),
        pytest.param(f"  b: 1\n{END}", f"  b: 1\n  c: |\n    x\n{END}", id="block scalar comes last"),
        pytest.param(f"  b: 1\n{END}", f"  b: 1\n  c: |+\n    x\n\n{END}", id="kept line breaks come last"),
        pytest.param(f"  b: 1\n{END}", f"  b: 1\n{END}  # New section\n  c: 1\n", id="key comes below it"),
        pytest.param("  b: 1\n", "  n: 1\n\n  # of b\n  b: 1\n", id="key comes between"),
        pytest.param("", "  l:\n    # of x\n    - x # x\n    # end of l\n  # end\n", id="list with comments"),
        pytest.param("  l:\n  - # of x\n    x: 1\n", "  l:\n  - # new\n    x: 1\n", id="behind a dash"),
    ],
)
@pytest.mark.parametrize("mine", ["", "# mine\n"])
def test_what_upstream_changed_comes_as_it_is(base: str, upstream: str, mine: str) -> None:
    """A person changed a value, and perhaps added a comment at the end of the document."""
    old, theirs = HEAD.format("x") + base, HEAD.format("x") + upstream
    local = HEAD.format("mine") + base + mine

    assert merge(old, theirs, local) == (HEAD.format("mine") + upstream + mine, ())


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
