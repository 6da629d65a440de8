"""Edits between values: the edited text has the new value, and keeps unchanged bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.krm.values import copy_value, differences, is_same
from reconciler.krm.yaml import Tree, apply_edits, emit

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab:# -", max_size=4)
KEYS = st.sampled_from(["a", "b", "c", "name"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@given(old=DOCUMENTS, new=DOCUMENTS)
def test_the_edits_turn_one_document_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    text = emit(old) + "\n"

    edited = apply_edits(text, differences(old, new)).text

    assert is_same(Tree.parse(edited).value, new)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("a1 b1", "b1 a1"), ("a1 b1", "c1 b1 a1"), ("a1 b1 c1", "c1 b2"), ("a1 a2", "a2 a1")),
        *(("a1 a1 b1", "a1 b1"), ("a1 b1", "a2 a1 b1"), ("a1 b1", "a1 b1 c1 c2"), ("a1", "b1")),
    ],
)
def test_list_of_named_items_becomes_the_other_one(before: str, after: str) -> None:
    old, new = (
        {"list": [{"name": name, "v": value} for name, value in text.split()]} for text in (before, after)
    )

    assert Tree.parse(apply_edits(emit(old) + "\n", differences(old, new)).text).value == new


@given(value=VALUES)
def test_equal_values_have_no_differences(value: Any) -> None:
    assert list(differences(value, copy_value(value))) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (0, False), ([1], [True]), ({"a": 1}, {"a": True}), ([1 << 70, 1], [1 << 70, True])],
)
def test_a_number_is_no_boolean(left: Any, right: Any) -> None:
    assert list(differences({"x": left}, {"x": right})) != []
    assert is_same([1 << 70, left], [1 << 70, left])


def test_items_with_names_are_matched_by_name() -> None:
    text = "list:\n- name: a # first\n  v: 1\n- name: b # second\n  v: 2\n- name: c # third\n  v: 3\n"
    old = Tree.parse(text).value
    new = copy_value(old)
    del new["list"][1]
    new["list"].append({"name": "d", "v": 4})
    new["list"][0]["v"] = 9

    edited = apply_edits(text, differences(old, new)).text

    assert edited == "list:\n- name: a # first\n  v: 9\n- name: c # third\n  v: 3\n- name: d\n  v: 4\n"
