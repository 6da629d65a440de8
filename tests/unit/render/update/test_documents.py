"""Files as documents: split and joined without losing a byte, edited one by one."""

import pytest

from reconciler.krm.merge import Identity, TextFormat
from reconciler.krm.yaml import PACKAGE_LIMITS, SetValue, YamlError
from reconciler.names.objects import File, Mode
from reconciler.render.update.documents import (
    documents_of,
    edit_document,
    join_documents,
    split_documents,
)


def cm(name: str, comment: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:{comment}\n  name: {name}\n"


MANY = f"# only a comment\n--- # first\n{cm('a')}---\n\n---\n{cm('b', ' # kpt-merge: ns/old')}--- \n{cm('a')}"


def test_documents_are_numbered_without_those_that_are_empty() -> None:
    split = split_documents(File.of(MANY.encode()))

    assert split
    assert [(d.above, d.text) for d in split.documents] == [
        ("# only a comment\n--- # first\n", cm("a")),
        ("---\n\n---\n", cm("b", " # kpt-merge: ns/old")),
        ("--- \n", cm("a")),
    ]
    assert split.below == ""
    assert [(d.index, d.ordinal, d.identity, d.comment) for d in split.documents] == [
        (0, 0, Identity("", "ConfigMap", "", "a"), ""),
        (1, 0, Identity("", "ConfigMap", "ns", "old"), "# kpt-merge: ns/old"),
        (2, 1, Identity("", "ConfigMap", "", "a"), ""),
    ]
    assert split.documents[0].data == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [MANY, "a: 1", "---\na: 1\n---", "a: 1\n---\n# end\n", "# a\n", ""])
def test_file_that_is_split_and_joined_is_the_same(text: str, line_break: str, mark: str) -> None:
    data = (mark + text.replace("\n", line_break)).encode()

    split = split_documents(File.of(data))

    assert split
    assert "\r" not in "".join(d.text + d.above for d in split.documents)
    assert join_documents([(d.above, d.text) for d in split.documents], split.below, split.format) == data


@pytest.mark.parametrize(
    "file",
    [
        File.of(b"a: 1\n", Mode.SYMLINK),
        File.of(b"a: 1\n" + b" " * PACKAGE_LIMITS.max_bytes),
        File.of(b"a: \xff\n"),
        File.of(b"%YAML 1.2\n---\na: 1\n"),
        File.of(b"--- {a: 1}\n"),
        File.of(b"a: 1\n--- text\n"),
        File.of(b"a: [\n"),
        File.of(b"a: 1\n---\nb: [\n"),
    ],
    ids=[
        "link",
        "too large",
        "no UTF-8",
        "directive",
        "flow",
        "text on the marker",
        "broken",
        "broken later",
    ],
)
def test_file_that_could_not_be_joined_again_is_not_split(file: File) -> None:
    assert split_documents(file) is None
    assert documents_of(file) == ()


def test_file_of_the_greatest_size_is_split() -> None:
    file = File.of(b"a: 1\n#" + b" " * (PACKAGE_LIMITS.max_bytes - 6))

    assert len(documents_of(file)) == 1


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        ([("", "a: 1\n"), ("", "b: 1\n")], "a: 1\n---\nb: 1\n"),
        ([("", "a: 1"), ("--- # x\n", "b: 1")], "a: 1\n--- # x\nb: 1"),
        ([("---\n", "a: 1\n")], "---\na: 1\n"),
        ([("", "a: 1\n"), ("# b\n", "b: 1\n")], "a: 1\n# b\n---\nb: 1\n"),
        ([], ""),
    ],
)
def test_documents_are_joined_with_the_markers_that_are_missing(
    pieces: list[tuple[str, str]], joined: str
) -> None:
    assert join_documents(pieces).decode() == joined


def test_missing_line_ends_and_markers_are_those_of_the_file() -> None:
    pieces = [("", "a: 1"), ("", "b: 1\n")]

    joined = join_documents(pieces, "# end\n", TextFormat("\ufeff", "\r\n"))

    assert joined.decode() == "\ufeffa: 1\r\n---\r\nb: 1\r\n# end\r\n"


def test_one_document_is_edited_by_its_number() -> None:
    file = File.of(f"# comment\n---\n{cm('a')}--- # x\n{cm('b')}...\n".encode(), Mode.EXECUTABLE)
    rename = [SetValue(("metadata", "name"), "new")]

    assert edit_document(file, rename, index=1) == File.of(
        f"# comment\n---\n{cm('a')}--- # x\n{cm('new')}...\n".encode(), Mode.EXECUTABLE
    )
    assert edit_document(file, rename).data == file.data.replace(b"name: a", b"name: new")
    assert edit_document(file, []) is file
    assert edit_document(file, [SetValue(("metadata", "name"), "b")], index=1) is file
    with pytest.raises(YamlError, match="There is no document number 3"):
        edit_document(file, rename, index=2)


@pytest.mark.parametrize("empty", ["", "\n", "# a\n", "  # a\n", "...\n", "%YAML 1.2\n", "  \n# a\n...\n"])
def test_document_without_content_has_no_number(empty: str) -> None:
    file = File.of(f"{empty}---\na: 1\n".encode())

    assert edit_document(file, [SetValue(("a",), 2)]).data.decode() == f"{empty}---\na: 2\n"
