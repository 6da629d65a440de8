"""Files on three sides: what needs a merge, whose mode and whose lines stay."""

from itertools import product

import pytest

from reconciler.names.objects import File, Mode
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, ConflictPolicy
from reconciler.render.update.merge_report import MergeReport
from reconciler.render.update.three_way import (
    FileSides,
    Sides,
    changed_side,
    file_text,
    has_directory,
    is_equal,
    keep_text_file,
    merge_text_file,
    merged_mode,
    needs_merge,
    split_packages,
)
from tests.support.model import package

A, B, C = (File.of(text) for text in (b"a\n", b"b\n", b"c\n"))
RUN_A = File.of(b"a\n", Mode.EXECUTABLE)


def test_files_are_equal_with_bytes_and_mode() -> None:
    assert is_equal(None, None)
    assert is_equal(A, File.of(b"a\n"))
    for other in (B, RUN_A, None):
        assert not is_equal(A, other)
        assert not is_equal(other, A)


@pytest.mark.parametrize("sides", [*product((None, A, B, C), repeat=3)])
def test_only_a_file_that_both_sides_changed_differently_needs_a_merge(
    sides: tuple[File | None, File | None, File | None],
) -> None:
    base, upstream, local = sides
    three = FileSides(*sides)

    assert needs_merge(three) is (len({*map(id, sides)}) == 3)
    if not needs_merge(three):
        assert changed_side(three) is (upstream if base == local else local)


REGULAR, RUN = Mode.REGULAR, Mode.EXECUTABLE


@pytest.mark.parametrize(
    ("base", "upstream", "local", "mode"),
    [
        (REGULAR, REGULAR, REGULAR, REGULAR),
        (REGULAR, RUN, REGULAR, RUN),
        (REGULAR, REGULAR, RUN, RUN),
        (RUN, REGULAR, RUN, REGULAR),
        (RUN, REGULAR, REGULAR, REGULAR),
        (None, RUN, REGULAR, REGULAR),
        (None, RUN, None, RUN),
        (RUN, None, RUN, RUN),
        (RUN, None, None, REGULAR),
        (None, None, RUN, RUN),
        (None, None, None, REGULAR),
    ],
)
def test_mode_is_locals_unless_only_upstream_changed_it(
    base: Mode | None, upstream: Mode | None, local: Mode | None, mode: Mode
) -> None:
    sides = (File.of(b"", each) if each else None for each in (base, upstream, local))

    assert merged_mode(FileSides(*sides)) is mode


def merge(
    base: bytes | None, upstream: bytes | None, local: bytes | None, policy: OnConflict = OnConflict.ASK
) -> tuple[bytes | None, list[Conflict]]:
    sides = FileSides(*(None if data is None else File.of(data) for data in (base, upstream, local)))
    report = MergeReport(ConflictPolicy(policy))
    merged = merge_text_file("a.txt", sides, report)
    return None if merged is None else merged.data, report.conflicts


def conflict(base: str | None, upstream: str | None, local: str | None, reason: str) -> Conflict:
    return Conflict("a.txt", "", "", base, upstream, local, reason)


@pytest.mark.parametrize(
    ("sides", "merged", "reason"),
    [
        ((b"a\n", b"b\n", None), None, "DeletedLocally"),
        ((b"a\n", None, b"b\n"), b"b\n", "DeletedUpstream"),
        ((None, b"b\n", b"c\n"), b"c\n", "BothAdded"),
        ((b"a\n", b"b\n", b"c\n"), b"c\n", "BothChanged"),
        ((b"\0a", b"\0b", b"\0c"), b"\0c", "BothChanged"),
    ],
)
def test_file_that_cannot_be_merged_stays_locals_and_is_a_conflict(
    sides: tuple[bytes | None, bytes | None, bytes | None], merged: bytes | None, reason: str
) -> None:
    texts = (None if data is None else data.decode() for data in sides)

    assert merge(*sides) == (merged, [conflict(*texts, reason)])


def test_lines_that_one_side_changed_are_merged() -> None:
    assert merge(b"1\n2\n3\n4\n5\n", b"0\n2\n3\n4\n5\n", b"1\n2\n3\n4\n6\n") == (b"0\n2\n3\n4\n6\n", [])


def test_conflicting_lines_are_upstreams_if_a_policy_says_so() -> None:
    sides = (b"1\n2\n3\n4\n5\n", b"u\n2\n3\n4\n5\n", b"l\n2\n3\n4\n6\n")

    assert merge(*sides) == (b"l\n2\n3\n4\n6\n", [conflict("1\n", "u\n", "l\n", "BothChanged")])
    assert merge(*sides, OnConflict.UPSTREAM) == (b"u\n2\n3\n4\n6\n", [])
    assert merge(b"\0a", b"\0b", b"\0c", OnConflict.UPSTREAM) == (b"\0b", [])


def test_nul_makes_a_file_binary_only_where_git_looks() -> None:
    far = b"x" * 8000 + b"\0\n"

    assert merge(b"1\n" + far, b"2\n" + far, b"1\n" + far + b"3\n")[0] == b"2\n" + far + b"3\n"
    near = b"\n" + b"x" * 7995 + b"\0\n"
    assert merge(b"1" + near, b"2" + near, b"1" + near + b"3\n")[1] != []


def test_bytes_that_are_no_text_survive_a_merge_and_are_shown_as_such() -> None:
    sides = (b"\xff\n2\n3\n", b"\xff\n2\n4\n", b"\xfe\n2\n3\n")

    assert merge(*sides) == (b"\xfe\n2\n4\n", [])
    assert file_text(File.of(b"a\xff")) == "a\ufffd"
    assert file_text(None) is None


def merged_file(base: File, upstream: File, local: File) -> File | None:
    return merge_text_file("a", FileSides(base, upstream, local), MergeReport(ConflictPolicy()))


def test_mode_and_content_merge_separately() -> None:
    run_b = File.of(b"b\n", Mode.EXECUTABLE)

    assert merged_file(A, RUN_A, B) == run_b
    assert merged_file(A, B, RUN_A) == run_b
    assert merged_file(A, run_b, B) == run_b
    lines = (File.of(b"1\n2\n3\n"), File.of(b"0\n2\n3\n", Mode.EXECUTABLE), File.of(b"1\n2\n4\n"))
    assert merged_file(*lines) == File.of(b"0\n2\n4\n", Mode.EXECUTABLE)


def test_target_of_a_link_is_never_merged() -> None:
    link, other = File.of(b"x\n", Mode.SYMLINK), File.of(b"y\n", Mode.SYMLINK)

    assert merged_file(A, link, other) == other
    assert merged_file(link, A, B) == B
    assert merged_file(A, link, B) == B
    assert merged_file(A, B, link) == link


@pytest.mark.parametrize(
    ("sides", "kept"),
    [
        ((A, B, A), B),
        ((A, B, C), C),
        ((A, B, None), B),
        ((None, B, C), C),
        ((A, None, A), None),
        ((A, None, B), B),
    ],
)
def test_kpt_keeps_a_text_file_only_if_it_was_edited(
    sides: tuple[File | None, File | None, File | None], kept: File | None
) -> None:
    assert keep_text_file(FileSides(*sides)) == kept


def test_files_are_divided_by_the_packages_of_any_side() -> None:
    original = package({"Kptfile": "", "a.txt": "", "sub/b.txt": ""})
    upstream = package({"Kptfile": "", "sub/Kptfile": "", "sub/b.txt": "", "sub/deep/Kptfile": ""})
    local = package({"Kptfile": "", "z/Kptfile": "", "sub/deep/c.txt": ""})

    parts = split_packages(Sides(original, upstream, local))

    assert list(parts) == ["", "sub", "z", "sub/deep"]
    assert {path: [sorted(side) for side in sides] for path, sides in parts.items()} == {
        "": [["Kptfile", "a.txt"], ["Kptfile"], ["Kptfile"]],
        "sub": [["sub/b.txt"], ["sub/Kptfile", "sub/b.txt"], []],
        "sub/deep": [[], ["sub/deep/Kptfile"], ["sub/deep/c.txt"]],
        "z": [[], [], ["z/Kptfile"]],
    }
    alone = Sides(original, original, original)
    assert split_packages(alone) == {"": alone}


@pytest.mark.parametrize(
    ("directory", "is_there"), [("sub", True), ("su", False), ("sub/a.txt", False), ("", False)]
)
def test_directory_is_there_if_a_file_is_below_it(directory: str, *, is_there: bool) -> None:
    assert has_directory(package({"sub/a.txt": "", "b.txt": ""}), directory) is is_there
