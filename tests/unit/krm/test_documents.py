"""Package files as documents."""

from typing import NamedTuple

import pytest

from reconciler.krm.documents import DocumentKind, ResourceId, split_file
from reconciler.krm.yaml import SetValue, YamlError


class Case(NamedTuple):
    reason: str
    data: bytes
    want: list[tuple[str, str, str, int]]


CASES = [
    Case("two documents", b"a: 1\n---\nb: 2\n", [("", "a: 1\n", "data", 1), ("---\n", "b: 2\n", "data", 3)]),
    Case("a marker first", b"---\na: 1\n", [("---\n", "a: 1\n", "data", 2)]),
    Case("a marker last", b"a: 1\n---", [("", "a: 1\n", "data", 1), ("---", "", "empty", 2)]),
    Case(
        "a marker with a comment",
        b"--- # x\na: 1\n--- \t\r\nb: 2",
        [("--- # x\n", "a: 1\n", "data", 2), ("--- \t\r\n", "b: 2", "data", 4)],
    ),
    Case("content on the marker's line", b"--- {a: 1}\n", [("", "--- {a: 1}\n", "data", 1)]),
    Case("what only looks like a marker", b"a: |\n  ---\n  x\n", [("", "a: |\n  ---\n  x\n", "data", 1)]),
    Case("a text that starts with dashes", b"---a\n", [("", "---a\n", "data", 1)]),
    Case("comments only", b"# c\n---\n", [("", "# c\n", "empty", 1), ("---\n", "", "empty", 3)]),
    Case(
        "directives",
        b"%YAML 1.1\n---\na: 1\n...\n---\nb: 1\n",
        [("", "%YAML 1.1\n---\na: 1\n...\n", "data", 1), ("---\n", "b: 1\n", "data", 6)],
    ),
    Case(
        "a byte order mark",
        b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2",
        [("", "a: 1\r\n", "data", 1), ("---\r\n", "b: 2", "data", 3)],
    ),
    Case("UTF-16", "a: é\n".encode("utf-16"), [("", "a: é\n", "data", 1)]),
    Case("nothing", b"", [("", "", "empty", 1)]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_split_documents_join_to_the_file(case: Case) -> None:
    file = split_file(case.data)

    assert [(doc.marker, doc.text, doc.kind, doc.line) for doc in file.documents] == case.want
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
    with pytest.raises(YamlError):
        file.edit(0, [SetValue(("a",), 2)])


KINDS = [
    (
        "an object",
        "apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: b}\n",
        "f.yaml",
        DocumentKind.KRM,
        ResourceId("v1", "X", "b", "a"),
    ),
    (
        "no name",
        "apiVersion: v1\nkind: X\nmetadata: {generateName: a}\n",
        "f.yaml",
        DocumentKind.DATA,
        ResourceId("v1", "X", "", ""),
    ),
    ("no kind", "apiVersion: v1\nmetadata: {name: a}\n", "f.yaml", DocumentKind.DATA, None),
    (
        "a name that is no string",
        "apiVersion: v1\nkind: X\nmetadata: {name: 1}\n",
        "f.yaml",
        DocumentKind.DATA,
        ResourceId("v1", "X", "", ""),
    ),
    ("a kustomization by its file", "resources: []\n", "d/kustomization.yaml", DocumentKind.KRM, None),
    ("a kustomization by its kind", "kind: Kustomization\n", "f.yaml", DocumentKind.KRM, None),
    (
        "a kustomization by its group",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Component\n",
        "f.yaml",
        DocumentKind.KRM,
        ResourceId("kustomize.config.k8s.io/v1beta1", "Component", "", ""),
    ),
    ("a list", "- a\n", "f.yaml", DocumentKind.DATA, None),
    ("a scalar", "a\n", "f.yaml", DocumentKind.DATA, None),
]


@pytest.mark.parametrize(
    ("reason", "text", "path", "kind", "resource"), KINDS, ids=[case[0] for case in KINDS]
)
def test_kind_of_document(
    reason: str, text: str, path: str, kind: DocumentKind, resource: ResourceId | None
) -> None:
    (doc,) = split_file(text.encode(), path).documents

    assert (doc.kind, doc.resource) == (kind, resource), reason


def test_encrypted_documents_are_detected() -> None:
    texts = (
        "kind: Secret\nsops: {mac: x, version: 3.8.1}\n---\nkind: Secret\nsops: text\n---\n"
        "apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\n---\napiVersion: v1\nkind: SealedSecret\n"
    )
    documents = split_file(texts.encode()).documents

    assert [(doc.is_sops, doc.is_sealed_secret) for doc in documents] == [
        (True, False),
        (False, False),
        (False, True),
        (False, False),
    ]


def test_edit_of_one_document_keeps_the_others_and_the_encoding() -> None:
    file = split_file("\ufeffa: é\r\n---\r\nb: 1 # x\r\n".encode("utf-16-le"))

    edited, fallbacks = file.edit(1, [SetValue(("b",), 2)])

    assert fallbacks == 0
    assert edited.data == "\ufeffa: é\r\n---\r\nb: 2 # x\r\n".encode("utf-16-le")
    assert edited.documents[1].value == {"b": 2}
