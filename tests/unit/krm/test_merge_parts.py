"""Parts of a three-way merge by whole texts: comments, unions of fields, lists that become something else."""

from collections.abc import Sequence

import pytest

from reconciler.krm.merge import Winner, merge_document, path_text
from reconciler.krm.schema import Shape
from reconciler.krm.yaml import Tree, load_documents

KEYED = Shape(fields={"l": Shape(keys=("name",))})
UNIONS = Shape(unions=(frozenset({"a", "b"}), frozenset({"c", "d"})))


def merged(
    base: str, upstream: str, local: str, *, shape: Shape | None = None, winner: Winner = Winner.OPEN
) -> tuple[str | None, list[str]]:
    old, theirs, ours = (Tree.parse(text) for text in (base, upstream, local))
    done = merge_document(old, theirs, ours, shape=shape, resolver=lambda _: winner)
    return done.text, [path_text(conflict.path) for conflict in done.conflicts]


@pytest.mark.parametrize(
    ("base", "upstream", "want"),
    [
        pytest.param("m:\n  a: 1\n", "m:\n  a: 1\n  b: 2\n", "m:\n  a: 1\n  b: 2\nz: 2\n", id="new key"),
        pytest.param("m:\n  a: 1\n  b: 2\n", "m:\n  a: 1\n", "m:\n  a: 1\nz: 2\n", id="a key is deleted"),
        pytest.param("m:\n  a: 1\n", "m:\n  b: 1\n", "m:\n  b: 1\nz: 2\n", id="a key is renamed"),
        pytest.param("l:\n- a: 1\n", "l:\n- a: 2\n", "l:\n- a: 2\nz: 2\n", id="an item changes"),
        pytest.param("l:\n- 1\n", "l:\n- 1\n- 2\n", "l:\n- 1\n- 2\nz: 2\n", id="an item is added"),
        pytest.param("l:\n- 1 # a\n", "l:\n- 1 # b\n", "l:\n- 1 # b\nz: 2\n", id="comment of an item"),
        pytest.param("m:\n  a: 1 # a\n", "m:\n  a: 1 # b\n", "m:\n  a: 1 # b\nz: 2\n", id="comment"),
        pytest.param("m:\n  a: 1\n", "m: text\n", "m: text\nz: 2\n", id="a mapping becomes a text"),
        pytest.param("l:\n- 1\n", "l: text\n", "l: text\nz: 2\n", id="a list becomes a text"),
    ],
)
def test_change_of_upstream_alone_is_taken(base: str, upstream: str, want: str) -> None:
    assert merged(f"{base}z: 1\n", f"{upstream}z: 1\n", f"{base}z: 2\n") == (want, [])


@pytest.mark.parametrize(
    ("base", "upstream", "local", "want"),
    [
        pytest.param(
            "l:\n- 1 # a\n- 2\n",
            "l:\n- 1 # b\n- 2\n",
            "l:\n- 1 # a\n- 2 # mine\n",
            "l:\n- 1 # b\n- 2 # mine\n",
            id="list",
        ),
        pytest.param(
            "l:\n- x: 1 # a\n",
            "l:\n- x: 1 # b\n",
            "l: # mine\n- x: 1 # a\n",
            "l: # mine\n- x: 1 # b\n",
            id="nested",
        ),
        pytest.param(
            "m:\n  a: 1 # a\n  b: 1\n",
            "m:\n  a: 1 # b\n  b: 1\n",
            "m:\n  a: 1 # a\n  b: 1 # mine\n",
            "m:\n  a: 1 # b\n  b: 1 # mine\n",
            id="mapping",
        ),
    ],
)
def test_comments_of_both_sides_are_kept_where_values_are_equal(
    base: str, upstream: str, local: str, want: str
) -> None:
    assert merged(base, upstream, local) == (want, [])


@pytest.mark.parametrize("other", ["l: text\n", "l:\n  name: a\n", "l: null\n"])
def test_keyed_list_that_one_side_made_something_else_is_one_value(other: str) -> None:
    base, changed = "l:\n- name: a\n  v: 1\n", "l:\n- name: a\n  v: 2\n"

    assert merged(base, other, changed, shape=KEYED) == (changed, ["l"])
    assert merged(base, changed, other, shape=KEYED) == (other, ["l"])


def test_each_union_of_fields_is_decided_by_itself() -> None:
    base, upstream, local = "a: 1\nc: 1\nz: 1\n", "b: 1\nd: 1\nz: 1\n", "a: 2\nc: 2\nz: 1\n"

    ours, conflicts = merged(base, upstream, local, shape=UNIONS)
    theirs, _ = merged(base, upstream, local, shape=UNIONS, winner=Winner.UPSTREAM)

    assert ours == local
    assert {path[0] for path in conflicts} == {"a", "b", "c", "d"}
    (document,) = load_documents((theirs or "").encode())
    assert document.value == {"b": 1, "d": 1, "z": 1}


@pytest.mark.parametrize("answered", ["a", "b"])
def test_choice_for_any_field_of_a_union_decides_all_of_it(answered: str) -> None:
    base, theirs, ours = (Tree.parse(text) for text in ("z: 1\n", "a: 1\nb: 2\nz: 1\n", "b: 3\nz: 1\n"))

    def resolver(steps: Sequence[str]) -> Winner:
        return Winner.UPSTREAM if tuple(steps) == (answered,) else Winner.OPEN

    done = merge_document(base, theirs, ours, shape=UNIONS, resolver=resolver)

    (document,) = load_documents((done.text or "").encode())
    assert document.value == {"a": 1, "b": 2, "z": 1}
    assert {(each.winner, each.reason) for each in done.conflicts} == {(Winner.UPSTREAM, "BothChanged")}
