"""Files on three sides: what needs a merge, whose mode and whose lines stay."""

import pytest

from reconciler.base.text import plural
from reconciler.names.objects import File, Mode
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, ConflictPolicy
from reconciler.render.update.conflicts import MergeReport
from reconciler.render.update.sides import (
    FileSides,
    Sides,
    file_text,
    is_text,
    merge_text_file,
    split_packages,
)
from tests.support.model import package

A, B, C = (File.of(text) for text in (b"a\n", b"b\n", b"c\n"))
RUN_A = File.of(b"a\n", Mode.EXECUTABLE)


REGULAR, RUN = Mode.REGULAR, Mode.EXECUTABLE


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
        ((b"\xff", b"\xfe", b"\xfd"), b"\xfd", "BothChanged"),
        ((b"a" * 8001, b"b" * 8001, b"c" * 8001), b"c" * 8001, "BothChanged"),
        ((b"\0a", b"\0b", None), None, "DeletedLocally"),
    ],
)
def test_file_that_cannot_be_merged_stays_locals_and_is_a_conflict(
    sides: tuple[bytes | None, bytes | None, bytes | None], merged: bytes | None, reason: str
) -> None:
    texts = (None if data is None else file_text(File.of(data)) for data in sides)

    assert merge(*sides) == (merged, [conflict(*texts, reason)])


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
    assert file_text(None) is None


@pytest.mark.parametrize(
    ("data", "is_readable"),
    [
        (b"", True),
        ("caf\u00e9\r\n".encode(), True),
        (b"a\n" * 4000 + b"\0", True),
        (b"a" * 8000, True),
        (b"a" * 8001, False),
        (b"a\0b", False),
        (b"caf\xe9", False),
        ("text".encode("utf-16"), False),
    ],
)
def test_file_that_people_cannot_read_is_its_size_and_its_id(data: bytes, *, is_readable: bool) -> None:
    file = File.of(data)
    described = f"binary file, {plural(len(data), 'byte')}, {file.oid}"

    assert is_text(file) is is_readable
    assert file_text(file) == (data.decode() if is_readable else described)
    assert file_text(File.of(b"\0", RUN)) == f"binary file, 1 byte, executable, {File.of(b'' + bytes(1)).oid}"


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
