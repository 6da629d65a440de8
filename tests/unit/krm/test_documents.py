"""Package files as documents."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from reconciler.krm.documents import DocumentKind, split_file
from reconciler.krm.yaml import PACKAGE_LIMITS


class Case(NamedTuple):
    reason: str
    data: bytes
    want: list[tuple[str, str, str]]


CASES = [
    Case("two documents", b"a: 1\n---\nb: 2\n", [("", "a: 1\n", "data"), ("---\n", "b: 2\n", "data")]),
    Case("a marker first", b"---\na: 1\n", [("---\n", "a: 1\n", "data")]),
    Case("a marker last", b"a: 1\n---", [("", "a: 1\n", "data"), ("---", "", "empty")]),
    Case(
        "a marker with a comment",
        b"--- # x\na: 1\n--- \t\r\nb: 2",
        [("--- # x\n", "a: 1\n", "data"), ("--- \t\r\n", "b: 2", "data")],
    ),
    Case("content on the marker's line", b"--- {a: 1}\n", [("", "--- {a: 1}\n", "data")]),
    Case("what only looks like a marker", b"a: |\n  ---\n  x\n", [("", "a: |\n  ---\n  x\n", "data")]),
    Case("a text that starts with dashes", b"---a\n", [("", "---a\n", "data")]),
    Case("comments only", b"# c\n---\n", [("", "# c\n", "empty"), ("---\n", "", "empty")]),
    Case(
        "directives",
        b"%YAML 1.1\n---\na: 1\n...\n---\nb: 1\n",
        [("", "%YAML 1.1\n---\na: 1\n...\n", "data"), ("---\n", "b: 1\n", "data")],
    ),
    Case(
        "a byte order mark",
        b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2",
        [("", "a: 1\r\n", "data"), ("---\r\n", "b: 2", "data")],
    ),
    Case("UTF-16", "a: é\n".encode("utf-16"), [("", "a: é\n", "data")]),
    Case("nothing", b"", [("", "", "empty")]),
]


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
    ("50 MB", b"# " * (25 << 20), 0),
]


@pytest.mark.parametrize(("reason", "data", "line"), OPAQUE, ids=[case[0] for case in OPAQUE])
def test_file_that_is_no_yaml_is_one_opaque_document(reason: str, data: bytes, line: int) -> None:
    file = split_file(data)

    assert [doc.kind for doc in file.documents] == [DocumentKind.OPAQUE], reason
    assert file.problem is not None
    assert file.problem.line == line
    assert file.data == data


KINDS = [
    ("an object", "apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: b}\n", "f.yaml", DocumentKind.KRM),
    ("no name", "apiVersion: v1\nkind: X\nmetadata: {generateName: a}\n", "f.yaml", DocumentKind.DATA),
    ("no kind", "apiVersion: v1\nmetadata: {name: a}\n", "f.yaml", DocumentKind.DATA),
    (
        "a name that is no string",
        "apiVersion: v1\nkind: X\nmetadata: {name: 1}\n",
        "f.yaml",
        DocumentKind.DATA,
    ),
    ("a kustomization by its file", "resources: []\n", "d/e/kustomization.yaml", DocumentKind.KUSTOMIZE),
    ("a kustomization by its kind", "kind: Kustomization\n", "f.yaml", DocumentKind.KUSTOMIZE),
    (
        "a kustomization by its group",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Component\n",
        "f.yaml",
        DocumentKind.KUSTOMIZE,
    ),
    (
        "an object of Flux in a file of that name",
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n",
        "kustomization.yaml",
        DocumentKind.KRM,
    ),
    ("a list", "- a\n", "f.yaml", DocumentKind.DATA),
    ("a scalar", "a\n", "f.yaml", DocumentKind.DATA),
]


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
