"""Laws of the package update, on random packages and on every file of the corpus."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.names.objects import File
from reconciler.policy import MergeMode, OnConflict
from reconciler.render.update import MergeCache, UpdateRefused, update_package
from tests.property.random_packages import Chooser, Example, draw_example
from tests.support.conformance import parameters
from tests.support.corpus import ABSENT, CORPUS
from tests.support.merges import difference, files_of, read_tree

CATALOG = CORPUS / "nephio-catalog"
PACKAGES = [path.parent for path in sorted(CATALOG.rglob("Kptfile"))]
EACH = parameters(((str(path.relative_to(CATALOG)), path) for path in PACKAGES), absent=ABSENT)


END = "# End of configuration\n"
MANNERS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "BOM": lambda text: f"\ufeff{text}",
    "a comment at both ends of each document": lambda text: "---\n".join(
        f"# Begin\n{document}{END}" for document in text.split("---\n")
    ),
}
"""How people write the files of a package."""


def link(revision: int) -> str:
    """Return the Kptfile of a sub-package, which follows no upstream at revision 0."""
    git = (
        f"\n  type: git\n  git:\n    repo: https://git.example/sub\n    directory: /\n    ref: v{revision}\n"
    )
    followed = f"upstream:{git}upstreamLock:{git}    commit: {str(revision) * 40}\n"
    head = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: sub\n"
    return head + followed * bool(revision)


@st.composite
def plain_examples(draw: st.DrawFn) -> Example:
    return draw_example(Chooser(lambda size: draw(st.integers(0, size - 1))))


@st.composite
def examples(draw: st.DrawFn, manners: Sequence[str] = tuple(MANNERS)) -> Example:
    example = draw(plain_examples())
    write = MANNERS[draw(st.sampled_from(manners))]
    for side in (example.base, example.upstream, example.local):
        if (revision := draw(st.sampled_from([None, 0, 1, 2]))) is not None:
            side["sub/Kptfile"] = link(revision)
        side.update({path: write(text) for path, text in side.items()})
    return example


@given(examples())
@settings(max_examples=60, deadline=None)
def test_unchanged_upstream_keeps_local(example: Example) -> None:
    base, local = files_of(example.base), files_of(example.local)

    assert update_package(base, base, local).files == local


@given(examples())
@settings(max_examples=60, deadline=None)
def test_unchanged_local_becomes_upstream(example: Example) -> None:
    base, upstream = files_of(example.base), files_of(example.upstream)

    assert update_package(base, upstream, base).files == upstream


@given(examples())
@settings(max_examples=60, deadline=None)
def test_local_with_the_same_changes_is_kept(example: Example) -> None:
    base, upstream = files_of(example.base), files_of(example.upstream)

    assert update_package(base, upstream, upstream).files == upstream


@given(examples(), st.sampled_from([OnConflict.ASK, OnConflict.UPSTREAM, OnConflict.LOCAL]))
@settings(max_examples=100, deadline=None)
def test_merging_twice_changes_nothing(example: Example, on_conflict: OnConflict) -> None:
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))

    once = update_package(base, upstream, local, on_conflict=on_conflict).files
    twice = update_package(upstream, upstream, once, on_conflict=on_conflict).files

    assert twice == once


@given(examples())
@settings(max_examples=100, deadline=None)
def test_memory_and_order_change_nothing(example: Example) -> None:
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))
    cache = MergeCache()

    first = update_package(base, upstream, local)
    update_package(base, upstream, local, cache=cache)
    shuffled = [dict(reversed(side.items())) for side in (base, upstream, local)]
    again = update_package(*shuffled, cache=cache)

    assert again == first


@given(examples())
@settings(max_examples=100, deadline=None)
def test_fields_that_upstream_did_not_change_keep_the_text_of_local(example: Example) -> None:
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))

    merged = update_package(base, upstream, local).files

    for path in base.keys() & local.keys():
        if base[path] == upstream.get(path):
            assert merged[path] == local[path]


@given(examples())
@settings(max_examples=100, deadline=None)
def test_local_leaf_is_lost_only_if_upstream_changed_it(example: Example) -> None:
    """Every scalar that local set, and that upstream left as it was, is in the result."""
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))

    merged = update_package(base, upstream, local)

    old, theirs, ours = (leaves(side) for side in (base, upstream, local))
    edits = {
        path: value
        for path, value in ours.items()
        if isinstance(value, str) and old.get(path) != value and old.get(path) == theirs.get(path)
    }
    result = set(leaves(merged.files).values())
    for path, value in edits.items():
        assert value in result, f"{path} is lost"


def leaves(files: dict[str, File]) -> dict[tuple[object, ...], object]:
    from tests.support.merges import documents

    found: dict[tuple[object, ...], object] = {}
    for path, file in files.items():
        for document in documents(file.data):
            name = document["metadata"]["name"]
            _collect(document, (path, name), found)
    return found


def _collect(value: object, path: tuple[object, ...], found: dict[tuple[object, ...], object]) -> None:
    if isinstance(value, dict):
        for key, child in value.items():
            _collect(child, (*path, key), found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            key = (
                child.get("name", child.get("port", child.get("containerPort", index)))
                if isinstance(child, dict)
                else index
            )
            _collect(child, (*path, key), found)
    else:
        found[path] = value


@given(examples(["CRLF", "a comment at both ends of each document"]))
@settings(max_examples=100, deadline=None)
def test_line_ends_and_the_last_comment_of_each_document_stay(example: Example) -> None:
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))

    merged = update_package(base, upstream, local).files

    for path, file in merged.items():
        text = file.data.decode()
        if "\r\n" in example.base["Kptfile"]:
            assert text.count("\n") == text.count("\r\n"), path
        else:
            assert text.count(END) == text.count("---\n") + 1, path


@given(examples())
@settings(max_examples=60, deadline=None)
def test_compatible_mode_is_stable_too(example: Example) -> None:
    base, upstream, local = (files_of(side) for side in (example.base, example.upstream, example.local))
    options = {"mode": MergeMode.COMPATIBLE}

    try:
        once = update_package(base, upstream, local, **options).files
    except UpdateRefused:
        return  # kpt refuses a sub-package or a resource that both sides added
    twice = update_package(upstream, upstream, once, **options).files

    assert difference(twice, once) == {}


@pytest.mark.parametrize("package", EACH)
def test_real_packages_stay_byte_identical(package: Path) -> None:
    files = read_tree(package)
    bumped = {**files, "added.txt": File.of(b"new\n")}
    edited = {**files, "mine.txt": File.of(b"mine\n")}

    assert update_package(files, files, edited).files == edited
    assert update_package(files, bumped, files).files == bumped
    assert update_package(files, bumped, edited).files == {**bumped, **edited}


@pytest.mark.parametrize("package", EACH)
def test_one_edit_on_each_side_of_a_real_file_touches_only_those_lines(package: Path) -> None:
    """Upstream adds a label to every resource, local an annotation; all other lines stay."""
    files = read_tree(package)
    assert files
    for path, file in files.items():
        text = file.data.decode()
        if not path.endswith(".yaml") or text.count("\nmetadata:\n  name:") != 1 or "annotations:" in text:
            continue
        start = text.index("\nmetadata:\n  name:")
        end = text.index("\n", start + len("\nmetadata:\n  name:"))
        upstream = text + "\n" * (not text.endswith("\n")) + "added: by-upstream\n"
        local = text[:end] + "\n  annotations:\n    mine: here" + text[end:]
        sides = (files, {**files, path: File.of(upstream.encode())}, {**files, path: File.of(local.encode())})

        done = update_package(*sides)

        lines = done.files[path].data.decode().splitlines()
        assert done.conflicts == ()
        assert set(text.splitlines()) <= set(lines)
        assert {"added: by-upstream", "    mine: here"} <= set(lines)
        assert len(lines) == len(local.splitlines()) + 1
