"""History as a table of commits: no repository, any shape, any clock."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.git.commits import CommitData, History
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature


class Table(History):
    """Commits by name: parents and time; the tree of a commit is its name."""

    def __init__(self, commits: Mapping[str, tuple[str, int]]) -> None:
        super().__init__()
        self.commits = {
            Oid(name): CommitData(
                Oid(name),
                Oid(name),
                tuple(Oid(p) for p in parents.split()),
                Signature("a", "a@b", time),
                Signature("a", "a@b", time),
                "",
            )
            for name, (parents, time) in commits.items()
        }

    def find_commit(self, oid: Oid) -> CommitData | None:
        return self.commits.get(oid)

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        return self.commits[oid].parents if oid in self.commits else None

    def changed_paths(self, old: Oid, new: Oid, paths: Iterable[str]) -> set[str]:
        return set(paths) if old != new else set()

    def base(self, main: str, tip: str) -> str | None:
        return self.merge_base(Oid(main), Oid(tip))


LINE = {"a": ("", 1), "b": ("a", 2), "c": ("b", 3), "x": ("b", 4), "y": ("x", 5)}


def test_criss_cross_merge_has_one_merge_base() -> None:
    table = Table({"a": ("", 1), "b": ("a", 2), "c": ("a", 3), "d": ("b c", 4), "e": ("c b", 5)})

    assert table.base("d", "e") == "c"


def test_shallow_clone_ends_history() -> None:
    table = Table({"b": ("a", 2), "c": ("b", 3)})

    assert list(table.walk(Oid("c"))) == ["c", "b"]
    assert [c.oid for c in table.first_parents(Oid("c"))] == ["c", "b"]
    assert [c.oid for c in table.first_parents(Oid("c"), Oid("b"))] == ["c"]


def test_commit_that_several_lead_to_is_met_once() -> None:
    table = Table({"a": ("", 1), "b": ("a", 2), "c": ("a", 3), "d": ("b c", 4), "e": ("d", 5)})

    assert list(table.walk(Oid("e"))) == ["e", "d", "b", "c", "a"]
    assert table.count_since(Oid("e"), Oid("b")) == 3


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 30), max_size=3), st.integers(0, 5)), min_size=2, max_size=12)
)
def test_merge_base_is_best_shared_commit(shape: list[tuple[set[int], int]]) -> None:
    names = "abcdefghijkl"
    commits = {
        names[i]: (" ".join(sorted({names[p % i] for p in parents})) if i else "", time)
        for i, (parents, time) in enumerate(shape)
    }
    table = Table(commits)
    tips = (names[len(shape) - 1], names[len(shape) - 2])
    shared = table.ancestry(Oid(tips[0])) & table.ancestry(Oid(tips[1]))

    base = table.base(*tips)

    assert base in (shared or {None})
    assert not any(o != base and base in table.ancestry(o) for o in shared)


class Contents(Table):
    """Commits with trees: a mapping of paths per commit."""

    def __init__(
        self, commits: Mapping[str, tuple[str, int]], trees: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(commits)
        self.trees = trees

    def changed_paths(self, old: Oid, new: Oid, paths: Iterable[str]) -> set[str]:
        return {p for p in paths if self.trees[old].get(p) != self.trees[new].get(p)}

    def touched(self, tip: str, *paths: str) -> dict[str, int]:
        return dict(self.last_touched(Oid(tip), paths))


def test_path_has_time_of_its_last_change() -> None:
    trees = {"a": {"f": "1"}, "b": {"f": "1", "g": "1"}, "c": {"f": "1", "g": "2"}}

    assert Contents(LINE, trees).touched("c", "f", "g") == {"f": 1, "g": 3}


def test_merge_changes_only_paths_that_differ_from_both_parents() -> None:
    commits = {"a": ("", 1), "b": ("a", 2), "x": ("a", 3), "m": ("b x", 9)}
    trees = {
        "a": {"f": "0", "g": "0", "h": "0"},
        "b": {"f": "b", "g": "0", "h": "b"},
        "x": {"f": "0", "g": "x", "h": "x"},
        "m": {"f": "b", "g": "x", "h": "both"},
    }

    assert Contents(commits, trees).touched("m", "f", "g", "h") == {"f": 2, "g": 3, "h": 9}


def test_same_change_on_both_sides_has_time_of_first_parent() -> None:
    commits = {"a": ("", 1), "b": ("a", 3), "x": ("a", 2), "m": ("b x", 9)}
    trees = {"a": {"f": "0"}, "b": {"f": "1"}, "x": {"f": "1"}, "m": {"f": "1"}}

    assert Contents(commits, trees).touched("m", "f") == {"f": 3}


@pytest.mark.parametrize("time", [5, 50])
def test_shallow_clone_has_time_of_its_last_commit(time: int) -> None:
    assert Contents({"c": ("b", time)}, {"c": {"f": "1"}}).touched("c", "f") == {"f": time}
