"""Names of files: those that no tree may hold, those that clash, and new ones that clash with none."""

import random
from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.names.objects import (
    NamesError,
    TakenNames,
    case_fold_key,
    check_names,
    file_name_error,
    file_path_error,
    without_numbers,
)

HOSTILE = [
    "", ".", "..", ".git", ".GIT", ".Git", "git~1", "GIT~2", ".git.", ".git ", ".git...", ".g\u200cit",
    ".\u2060git", ".gi\u200dt", "\uff0egit", ".git::$INDEX_ALLOCATION", ".gitmodules", ".GITMODULES",
    ".gitmodules .", "gitmod~1", "GI7EBA~1", "gi7eb~12", "g~100000", "~1000000", "a/b", "a\\b", "x\n", "\x00",
    "a\x7f", "\x1b[31m", "x" * 256, "é" * 128,
]  # fmt: skip
FINE = ["Kptfile", ".github", ".gitignore", ".gitkeep", "git", "gitea", "digit~1", "a b", "ünïcode", "日本",
        "-x", "CON", "a:b", "..a", "a..", ".krmignore", "x" * 255, "~1", "gi7eba~", "gitmod"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_unsafe_name_is_refused(name: str) -> None:
    assert file_name_error(name)
    if "/" not in name:
        assert file_path_error(f"a/{name}/b")


@pytest.mark.parametrize("name", FINE, ids=repr)
def test_safe_name_is_accepted(name: str) -> None:
    assert file_name_error(name) == ""


def test_deep_path_is_refused() -> None:
    assert file_path_error("/".join("a" * 50)) == ""
    assert file_path_error("/".join("a" * 51))


def test_case_fold_key_equates_names_that_file_systems_confuse() -> None:
    assert case_fold_key("README") == case_fold_key("readme")
    assert case_fold_key("é") == case_fold_key("e\u0301")
    assert case_fold_key("É/x") == case_fold_key("e\u0301/X")
    assert case_fold_key("a\u200bb") == case_fold_key("ab")
    assert case_fold_key("a") != case_fold_key("b")


BOTH, SAME = "it would be both a file and a directory", "on some file systems it is the same as "
REORDERS = "its name contains a character that reorders text"


@pytest.mark.parametrize(
    ("paths", "before", "error"),
    [
        ([], [], ""),
        (["a", "b/a", "b/c/a"], [], ""),
        (["x", "x/y"], [], f"x: {BOTH}"),
        (["x", "X/y"], [], f"X: {SAME}x"),
        (["d/x/y", "d/x"], ["d/x/y", "d/x"], f"d/x: {BOTH}"),  # no tree can hold them, whatever was before
        (["cm.yaml", "CM.yaml"], [], f"cm.yaml: {SAME}CM.yaml"),
        (["cm.yaml", "CM.yaml"], ["CM.yaml"], f"cm.yaml: {SAME}CM.yaml"),
        (["cm.yaml", "CM.yaml"], ["CM.yaml", "cm.yaml", "gone"], ""),
        (["a", "A", "b", "B"], ["a", "A"], f"b: {SAME}B"),
        (["A/x", "a/y"], [], f"a: {SAME}A"),
        (["A/x", "a/y"], ["A/z", "a/z"], ""),
        (["é.yaml", "e\u0301.yaml"], [], f"é.yaml: {SAME}e\u0301.yaml"),
        (["d/.GIT/config"], ["d/.GIT/config"],
            "d/.GIT/config: some file systems take its name for Git's own"),
        (["a/../b"], [], "a/../b: its name is empty or stands for another directory"),
        (["/a"], [], "/a: its name is empty or stands for another directory"),
        (["a\nb"], [], "a\\x0ab: its name contains a control character"),
        (["a\u202eb"], [], f"a\\u202eb: {REORDERS}"),
        (["a\u202eb"], ["a\u202eb"], ""),
        ([".gitattributes"], [], ""),
        ([".GitAttributes/x"], [], ".GitAttributes/x: some file systems take its name for Git's own"),
        (["gi7d29~1/x"], [], "gi7d29~1/x: some file systems take its name for Git's own"),
        (["x" * 256], ["x" * 256], ""),
        (["x" * 256], [], f"{'x' * 256}: its name is longer than 255 bytes"),
    ],
)  # fmt: skip
def test_names_of_one_tree_are_sound_or_the_first_bad_one_is_told(paths, before, error) -> None:
    assert {error_of(order, before) for order in permutations(paths)} == {error}
    if error:
        with pytest.raises(NamesError) as caught:
            check_names(paths, before, maker="The chart web", hint="Ask.")
        assert str(caught.value) == f"The chart web gives a file that no package may have: {error}"
        assert caught.value.hint == "Ask."


def error_of(paths: Iterable[str], before: Iterable[str] = ()) -> str:
    """Return the error of names, "" if they are sound."""
    try:
        check_names(paths, before)
    except NamesError as error:
        return str(error)
    return ""


def test_a_large_package_is_checked_too() -> None:
    paths = [f"d/{number}" for number in range(2000)]

    assert error_of(paths) == ""
    assert error_of([*paths, "D/1"]) == f"d/1: {SAME}D/1"


@pytest.mark.parametrize(
    ("taken", "path", "chosen", "joined"),
    [
        ([], "x.yaml", "x.yaml", "x.yaml"),
        (["x.yaml"], "x.yaml", "x-2.yaml", "x.yaml"),
        (["x.yaml"], "X.yaml", "x-2.yaml", "x-2.yaml"),
        (["x.yaml", "X-2.yaml"], "X.yaml", "x-3.yaml", "x-3.yaml"),
        (["x.yaml"], "x.yaml/y", "x.yaml-2/y", "x.yaml-2/y"),
        (["x.yaml/y"], "x.yaml", "x-2.yaml", "x-2.yaml"),
        (["NS/x.yaml"], "ns/x.yaml", "ns-2/x.yaml", "ns-2/x.yaml"),
        (["NS/x.yaml", "ns-2/x.yaml"], "ns/x.yaml", "ns-2/x-2.yaml", "ns-2/x.yaml"),
        (["NS/x.yaml"], "NS/y.yaml", "NS/y.yaml", "NS/y.yaml"),
        (["a.b"], "A.b", "a-2.b", "a-2.b"),
        (["a"], "A", "a-2", "a-2"),
    ],
)
def test_new_file_gets_the_first_number_that_clashes_with_nothing(taken, path, chosen, joined) -> None:
    assert TakenNames(taken).choose(path) == chosen
    assert TakenNames(taken).choose(path, joins=True) == joined
    assert without_numbers(chosen) == without_numbers(path)


names = st.lists(st.sampled_from(["x", "X", "x.yaml", "x-2", "y", "é", "e\u0301"]), min_size=1, max_size=3)


@given(st.lists(names.map("/".join), max_size=12, unique=True), st.randoms(use_true_random=False))
def test_chosen_names_are_sound_together(paths: list[str], order: random.Random) -> None:
    taken = TakenNames(())
    order.shuffle(paths)
    chosen = []
    for path in paths:
        chosen.append(taken.choose(path))
        taken.add(chosen[-1])

    assert len({*chosen}) == len(paths)
    assert error_of(chosen) == ""
