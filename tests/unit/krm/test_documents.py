"""Package files as documents: split and joined without losing a byte, edited one by one."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from reconciler.krm.documents import (
    DocumentKind,
    documents_of,
    edit_document,
    join_documents,
    resources_in,
    split_file,
)
from reconciler.krm.merge import Identity, TextFormat
from reconciler.krm.yaml import PACKAGE_LIMITS, SetValue, YamlError
from reconciler.names.objects import File, Mode


class Case(NamedTuple):
    reason: str
    data: bytes
    want: list[tuple[str, str, str]]


CASES = [
    Case("two documents", b"a: 1\n---\nb: 2\n", [("", "a: 1\n", "data"), ("---\n", "b: 2\n", "data")]),
    Case("a marker first", b"---\na: 1\n", [("---\n", "a: 1\n", "data")]),
    Case("a marker last", b"a: 1\n---", [("", "a: 1\n", "data"), ("---", "", "empty")]),
    Case("a marker with a comment", b"--- # x\na: 1\n--- \t\r\nb: 2",
        [("--- # x\n", "a: 1\n", "data"), ("--- \t\r\n", "b: 2", "data")]),
    Case("content on the marker's line", b"--- {a: 1}\n", [("", "--- {a: 1}\n", "data")]),
    Case("what only looks like a marker", b"a: |\n  ---\n  x\n", [("", "a: |\n  ---\n  x\n", "data")]),
    Case("a text that starts with dashes", b"---a\n", [("", "---a\n", "data")]),
    Case("comments only", b"# c\n---\n", [("", "# c\n", "empty"), ("---\n", "", "empty")]),
    Case("directives", b"%YAML 1.1\n---\na: 1\n...\n---\nb: 1\n",
        [("", "%YAML 1.1\n---\na: 1\n...\n", "data"), ("---\n", "b: 1\n", "data")]),
    Case("a byte order mark", b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2",
        [("", "a: 1\r\n", "data"), ("---\r\n", "b: 2", "data")]),
    Case("UTF-16", "a: é\n".encode("utf-16"), [("", "a: é\n", "data")]),
    Case("nothing", b"", [("", "", "empty")]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_split_documents_join_to_the_file(case: Case) -> None:
    file = split_file(case.data)

    assert [(doc.marker, doc.text, doc.kind) for doc in file.documents] == case.want
    assert file.data == case.data


OPAQUE = [
    ("a Helm template", b"a: 1\n---\n{{- if .Values.x }}\nb: {{ .Values.y }}\n", 3),
    ("invalid UTF-8", b"a: 1\n\xff\n", 2),
    ("a duplicate key", b"a: 1\n---\nb: 1\nb: 2\n", 4),
    ("a bare second document", b"a: 1\n...\nb: 2\n", 3),
    ("NUL bytes", b"a: 1\n---\na: \x00\n", 3),
    ("1,000 levels", b"[" * 2000, 1),
]


@pytest.mark.parametrize(("reason", "data", "line"), OPAQUE, ids=[case[0] for case in OPAQUE])
def test_file_that_is_no_yaml_is_one_opaque_document(reason: str, data: bytes, line: int) -> None:
    file = split_file(data)

    assert [doc.kind for doc in file.documents] == [DocumentKind.OPAQUE], reason
    assert file.problem is not None
    assert file.problem.line == line
    assert file.data == data


def test_file_of_fifty_megabytes_is_one_opaque_document() -> None:
    file = split_file(data := b"# " * (25 << 20))

    assert [doc.kind for doc in file.documents] == [DocumentKind.OPAQUE]
    assert file.problem is not None
    assert file.data == data


KINDS = [
    ("an object", "apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: b}\n", "f.yaml", DocumentKind.KRM),
    ("no name", "apiVersion: v1\nkind: X\nmetadata: {generateName: a}\n", "f.yaml", DocumentKind.DATA),
    ("no kind", "apiVersion: v1\nmetadata: {name: a}\n", "f.yaml", DocumentKind.DATA),
    ("a name that is no string", "apiVersion: v1\nkind: X\nmetadata: {name: 1}\n", "f.yaml",
        DocumentKind.DATA),
    ("a kustomization by its file", "resources: []\n", "d/e/kustomization.yaml", DocumentKind.KUSTOMIZE),
    ("a kustomization by its kind", "kind: Kustomization\n", "f.yaml", DocumentKind.KUSTOMIZE),
    ("a kustomization by its group", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Component\n",
        "f.yaml", DocumentKind.KUSTOMIZE),
    ("an object of Flux in a file of that name",
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n",
        "kustomization.yaml", DocumentKind.KRM),
    ("a list", "- a\n", "f.yaml", DocumentKind.DATA),
    ("a scalar", "a\n", "f.yaml", DocumentKind.DATA),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "text", "path", "kind"), KINDS, ids=[case[0] for case in KINDS])
def test_kind_of_document(reason: str, text: str, path: str, kind: DocumentKind) -> None:
    (doc,) = split_file(text.encode(), path).documents

    assert doc.kind is kind, reason


def test_file_with_too_many_documents_is_not_parsed() -> None:
    limits = replace(PACKAGE_LIMITS, max_documents=3)
    three = b"a: 1\n---\nb: 2\n---\nc: 3\n"

    assert len(split_file(three, "f.yaml", limits).documents) == 3
    for more in (b"---\n", b"--- # c\nd: 4\n", b"---\nd: [\n"):
        file = split_file(three + more, "f.yaml", limits)
        assert file.data == three + more
        assert file.problem is not None
        assert file.problem.message == "The file has more than 3 documents"


def cm(name: str, comment: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:{comment}\n  name: {name}\n"


MANY = f"# only a comment\n--- # first\n{cm('a')}---\n\n---\n{cm('b', ' # kpt-merge: ns/old')}--- \n{cm('a')}"


def test_documents_are_numbered_without_those_that_are_empty() -> None:
    split = resources_in(File.of(MANY.encode()))

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

    split = resources_in(File.of(data))

    assert split
    assert "\r" not in "".join(d.text + d.above for d in split.documents)
    assert join_documents([(d.above, d.text) for d in split.documents], split.below, split.format) == data


@pytest.mark.parametrize(
    "file",
    [
        File.of(b"a: 1\n", Mode.SYMLINK),
        File.of(b"a: 1\n" + b" " * PACKAGE_LIMITS.max_bytes),
        File.of(b"a: \xff\n"), File.of(b"%YAML 1.2\n---\na: 1\n"), File.of(b"--- {a: 1}\n"),
        File.of(b"a: 1\n--- text\n"), File.of(b"a: 1\n---\rb: 1\n"),
        File.of(b"a: 1\n---\n\xef\xbb\xbfb: 1\n"),
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
        "text behind a carriage return",
        "a byte order mark inside",
        "broken",
        "broken later",
    ],
)  # fmt: skip
def test_file_that_could_not_be_joined_again_is_not_split(file: File) -> None:
    assert resources_in(file) is None
    assert documents_of(file) == ()


def test_file_as_large_as_the_limit_is_split() -> None:
    assert len(documents_of(File.of(b"a: 1\n#" + b" " * (PACKAGE_LIMITS.max_bytes - 6)))) == 1


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
    windows = join_documents([("", "a: 1"), ("", "b: 1\n")], "# end\n", TextFormat("\ufeff", "\r\n"))
    assert windows.decode() == "\ufeffa: 1\r\n---\r\nb: 1\r\n# end\r\n"


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


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_document_that_a_merge_numbers_is_the_one_that_is_edited(line_break: str, mark: str) -> None:
    file = File.of((mark + MANY.replace("\n", line_break)).encode())

    for number, document in enumerate(documents_of(file)):
        name = document.data["metadata"]["name"]
        edited = edit_document(file, [SetValue(("metadata", "name"), "new")], index=number)
        names = [other.data["metadata"]["name"] for other in documents_of(edited)]
        assert names == [*("a", "b", "a")[:number], "new", *("a", "b", "a")[number + 1 :]]
        assert edited.data.replace(b"name: new", f"name: {name}".encode()) == file.data


@pytest.mark.parametrize("empty", ["", "\n", "# a\n", "  # a\n", "...\n", "%YAML 1.2\n", "  \n# a\n...\n"])
def test_document_without_content_has_no_number(empty: str) -> None:
    file = File.of(f"{empty}---\na: 1\n".encode())

    assert edit_document(file, [SetValue(("a",), 2)]).data.decode() == f"{empty}---\na: 2\n"
