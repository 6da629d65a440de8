import contextlib
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.git.trees import (
    FileCache,
    PackageRefusedError,
    RawEntry,
    UnsafeEntry,
    check_entry,
    link_error,
    parse_tree,
    read_files,
)
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Mode, TreeEntry
from reconciler.policy import Limits

OID = b"\x01" * 20


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (b"40000", Mode.TREE),
        (b"040000", Mode.TREE),
        (b"100644", Mode.REGULAR),
        (b"100664", Mode.REGULAR),
        (b"100755", Mode.EXECUTABLE),
        (b"120000", Mode.SYMLINK),
        (b"160000", None),
        (b"100600", None),
        (b"x", None),
        (b"", None),
    ],
)
def test_modes(mode: bytes, want: Mode | None) -> None:
    checked = check_entry(RawEntry(mode, b"name", OID))

    assert isinstance(checked, UnsafeEntry) if want is None else checked == TreeEntry("name", want, OID.hex())


class Link(NamedTuple):
    reason: str
    path: str
    target: bytes
    error: str


INSIDE, OUTSIDE = "in the target of the link, ", "the target of the link is outside the package"
LINKS = [
    Link("beside it", "a", b"b", ""),
    Link("below", "a", b"b/c", ""),
    Link("one up, inside", "d/a", b"../b", ""),
    Link("itself", "a", b".", ""),
    Link("one up, outside", "a", b"../b", OUTSIDE),
    Link("two up", "d/a", b"../../b", OUTSIDE),
    Link("absolute", "a", b"/etc/passwd", INSIDE),
    Link("up after a name, which may be a link", "d/a", b"x/../../b", INSIDE),
    Link("empty", "a", b"", INSIDE),
    Link("into git", "a", b".git/config", INSIDE),
    Link("no text", "a", b"\xff", "the target of the link is not UTF-8"),
    Link("a control character", "a", b"b\0c", INSIDE),
]


@pytest.mark.parametrize("link", LINKS, ids=lambda c: c.reason)
def test_links(link: Link) -> None:
    error = link_error(link.path, link.target)
    assert error.startswith(link.error) if link.error else error == ""


entries = st.lists(
    st.builds(
        RawEntry,
        st.sampled_from([b"40000", b"040000", b"100644", b"100755", b"120000", b"160000"]),
        st.binary(min_size=1, max_size=12).map(lambda b: b.replace(b"\0", b"x").replace(b"/", b"y")),
        st.binary(min_size=20, max_size=20),
    ),
    unique_by=lambda e: e.name,
)


@given(st.binary(max_size=200))
def test_parsing_bytes_gives_their_entries_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert b"".join(b"%b %b\0%b" % entry for entry in parse_tree(data)) == data


@pytest.mark.parametrize(("path", "text"), [("a/b", "a/b: it is too deep"), ("", "it is too deep")])
def test_refusal_names_the_path_if_it_is_about_one(path: str, text: str) -> None:
    refusal = PackageRefusedError(path, "it is too deep")

    assert (str(refusal), refusal.path) == (text, path)


@pytest.mark.parametrize(
    ("raw", "name", "reason"),
    [
        (RawEntry(b"160000", b"sub", OID), "sub", "it is a submodule"),
        (RawEntry(b"100600", b"f", OID), "f", "its mode 100600 is unknown"),
        (RawEntry(b"100644", b"\xff'", OID), "\\xff'", "its name is not UTF-8 or its mode is not a number"),
        (RawEntry(b"x", b"f", OID), "f", "its name is not UTF-8 or its mode is not a number"),
    ],
)
def test_unsafe_entry_has_a_readable_name_and_the_reason(raw: RawEntry, name: str, reason: str) -> None:
    assert check_entry(raw) == UnsafeEntry(name, reason)


class Objects:
    """Trees and blobs by id, and the ids that were asked for in each batch."""

    def __init__(self, trees: dict[str, list[TreeEntry | UnsafeEntry]], blobs: dict[str, bytes]) -> None:
        self.trees, self.blobs = trees, blobs
        self.batches: list[set[Oid]] = []

    def checked_entries(self, tree: Oid) -> tuple[TreeEntry | UnsafeEntry, ...]:
        return tuple(self.trees[tree])

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        if len(self.blobs[oid]) > max_bytes:
            raise PackageRefusedError("", "too large")
        return self.blobs[oid]

    def ensure(self, oids: set[Oid]) -> None:
        self.batches.append(oids)


def entry(name: str, mode: Mode = Mode.REGULAR, oid: str = "") -> TreeEntry:
    return TreeEntry(name, mode, Oid(oid or name))


def package(*below: TreeEntry | UnsafeEntry, **blobs: bytes) -> Objects:
    """Return a package `d/` with these entries in it."""
    trees: dict[str, list[TreeEntry | UnsafeEntry]] = {"root": [entry("d", Mode.TREE)], "d": [*below]}
    return Objects(trees, blobs)


ROOT = Oid("root")


def test_package_is_fetched_in_one_batch_and_sorted() -> None:
    objects = package(
        entry("b"), entry("a", Mode.EXECUTABLE), entry("l", Mode.SYMLINK), a=b"1", b=b"2", l=b"a"
    )
    objects.trees["root"].append(entry("c", oid="a"))

    files = read_files(objects, ROOT, Limits())

    assert [(path, file.data, file.mode, file.oid) for path, file in files.items()] == [
        ("c", b"1", Mode.REGULAR, "a"),
        ("d/a", b"1", Mode.EXECUTABLE, "a"),
        ("d/b", b"2", Mode.REGULAR, "b"),
        ("d/l", b"a", Mode.SYMLINK, "l"),
    ]
    assert objects.batches == [{"a", "b", "l"}]


def test_files_that_are_equal_in_a_known_package_are_not_read_again() -> None:
    objects = package(*map(entry, "abcd"), a=b"1", b=b"2", c=b"3", d=b"4")
    known = {
        "d/a": File(b"known", Mode.REGULAR, Oid("a")),
        "d/b": File(b"known", Mode.EXECUTABLE, Oid("b")),
        "d/c": File(b"known", Mode.REGULAR, Oid("other")),
        "elsewhere/d": File(b"known", Mode.REGULAR, Oid("d")),
    }

    files = read_files(objects, ROOT, Limits(), known)

    assert [file.data for file in files.values()] == [b"known", b"2", b"3", b"4"]
    assert objects.batches == [{"b", "c", "d"}]


@pytest.mark.parametrize(
    ("objects", "path", "reason"),
    [
        (package(UnsafeEntry("x", "it is a submodule")), "d/x", "it is a submodule"),
        (package(entry("a"), entry("a", Mode.EXECUTABLE)), "d/a", "it is there twice"),
        (package(entry("a"), a=b"12345"), "d/a", "too large"),
        (package(entry("l", Mode.SYMLINK), l=b"\xff"), "d/l", "the target of the link is not UTF-8"),
        (package(*map(entry, "abc"), a=b"123", b=b"123", c=b"123"), "",
            "it has more than 8 bytes (limits.packageBytes)"),
        (package(*map(entry, "abcde")), "", "it has more than 4 files"),
        (package(entry("e", Mode.TREE)), "d/e/", "it is deeper than 2 directories"),
    ],
)  # fmt: skip
def test_package_is_refused_with_the_path_and_the_reason(objects: Objects, path: str, reason: str) -> None:
    objects.trees["e"] = []
    limits = Limits(package_files=4, package_file_bytes=4, package_bytes=8, path_depth=2)

    with pytest.raises(PackageRefusedError) as caught:
        read_files(objects, ROOT, limits)

    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_package_may_reach_its_limits() -> None:
    objects = package(*map(entry, "abcd"), a=b"1234", b=b"12", c=b"1", d=b"1")
    limits = Limits(package_files=4, package_file_bytes=4, package_bytes=8, path_depth=2)

    assert [*read_files(objects, ROOT, limits)] == ["d/a", "d/b", "d/c", "d/d"]


def test_file_of_another_package_is_not_read_again() -> None:
    cache = FileCache()
    first = package(entry("a"), entry("b", Mode.EXECUTABLE, "a"), a=b"1")
    read_files(first, ROOT, Limits(), cache=cache)

    second = package(entry("x", oid="a"), entry("l", Mode.SYMLINK, "a"), entry("b"), a=b"other", b=b"2")
    files = read_files(second, ROOT, Limits(), cache=cache)

    assert [(file.data, file.mode) for file in files.values()] == [
        (b"2", Mode.REGULAR),
        (b"other", Mode.SYMLINK),
        (b"1", Mode.REGULAR),
    ]


def test_file_in_the_cache_is_refused_by_a_lower_limit() -> None:
    cache = FileCache()
    objects = package(entry("a"), a=b"12345")
    read_files(objects, ROOT, Limits(), cache=cache)

    with pytest.raises(PackageRefusedError, match="too large"):
        read_files(objects, ROOT, Limits(package_file_bytes=4), cache=cache)


def test_cached_link_is_judged_where_it_stands() -> None:
    cache = FileCache()
    inside = package(entry("l", Mode.SYMLINK), l=b"../a")
    read_files(inside, ROOT, Limits(), cache=cache)
    outside = package()
    outside.trees["root"].append(entry("l", Mode.SYMLINK))

    with pytest.raises(PackageRefusedError, match="outside the package"):
        read_files(outside, ROOT, Limits(), cache=cache)


def test_cache_keeps_what_is_asked_for_and_forgets_the_rest() -> None:
    cache = FileCache(most_bytes=4)
    often, rarely = entry("often"), entry("rarely")
    cache.add(File(b"1", Mode.REGULAR, Oid("rarely")))
    for number in range(6):
        cache.add(File(b"22", Mode.REGULAR, Oid(f"own{number}")))
        if not number:
            cache.add(File(b"1", Mode.REGULAR, Oid("often")))
        assert cache.find(often) is not None

    assert cache.find(rarely) is None
    assert [number for number in range(6) if cache.find(entry(f"own{number}"))] == [4, 5]
