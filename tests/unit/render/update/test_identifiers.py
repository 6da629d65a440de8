"""Merge comments and upstream identifiers: written as kpt writes them, and nothing else changes."""

from typing import NamedTuple

import pytest

from reconciler.names.objects import File
from reconciler.render.update.identifiers import add_identifiers, with_identifiers
from tests.support.merges import files_of


class Case(NamedTuple):
    reason: str
    before: str
    after: str


HEAD = "apiVersion: v1\nkind: ConfigMap\n"
IDENTIFIER = "internal.kpt.dev/upstream-identifier"

CASES = [
    Case("a name without a namespace is in default", f"{HEAD}metadata:\n  name: app   # why\ndata: {{}}\n",
        f"{HEAD}metadata: # kpt-merge: /app\n  name: app   # why\n"
        f"  annotations:\n    {IDENTIFIER}: '|ConfigMap|default|app'\ndata: {{}}\n"),
    Case("annotations that are there come first",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  namespace: shop\n  annotations:\n"
        '    z: "1"\n  name: app\n',
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: # kpt-merge: shop/app\n  namespace: shop\n"
        f"  annotations:\n    z: \"1\"\n    {IDENTIFIER}: 'apps|Deployment|shop|app'\n  name: app\n"),
    Case("a merge comment stays, and its identifier is refreshed in its own quotes",
        f'{HEAD}metadata: # kpt-merge: old/name\n  name: new\n  annotations:\n    {IDENTIFIER}: "x|y|z|w"\n',
        f"{HEAD}metadata: # kpt-merge: old/name\n  name: new\n  annotations:\n"
        f'    {IDENTIFIER}: "|ConfigMap|old|name"\n'),
    Case("another comment moves above", f"{HEAD}# first\nmetadata: # second\n  name: app\n",
        f"{HEAD}# first\n# second\nmetadata: # kpt-merge: /app\n  name: app\n"
        f"  annotations:\n    {IDENTIFIER}: '|ConfigMap|default|app'\n"),
    Case("a name is taken as it is written", f"{HEAD}metadata:\n  name: n\n  namespace: 012\n",
        f"{HEAD}metadata: # kpt-merge: 012/n\n  name: n\n  namespace: 012\n"
        f"  annotations:\n    {IDENTIFIER}: '|ConfigMap|012|n'\n"),
    Case("labels are enough to be marked", "apiVersion: x/v1\nkind: Foo\nmetadata:\n  labels: {a: b}\n",
        "apiVersion: x/v1\nkind: Foo\nmetadata: # kpt-merge: /\n  labels: {a: b}\n"
        f"  annotations:\n    {IDENTIFIER}: 'x|Foo|default|'\n"),
    Case("flow style has no comment", f"{HEAD}metadata: {{name: app, annotations: {{a: b}}}}\n",
        f'{HEAD}metadata: {{name: app, annotations: {{a: b, {IDENTIFIER}: "|ConfigMap|default|app"}}}}\n'),
    Case("an identifier in single quotes is refreshed",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: c\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|c'\n",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: c\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|b'\n"),
    Case("an identifier elsewhere is none",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: b\nspec:\n  annotations:\n"
        f"    {IDENTIFIER}: '|ConfigMap|a|b'\n",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: b\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|b'\n"
        f"spec:\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|b'\n"),
    Case("a second document beside one that has its identifier",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: b\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|b'\n"
        f"---\n{HEAD}metadata:\n  name: c\n",
        f"{HEAD}metadata: # kpt-merge: a/b\n  name: b\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|a|b'\n"
        f"---\n{HEAD}metadata: # kpt-merge: /c\n  name: c\n  annotations:\n"
        f"    {IDENTIFIER}: '|ConfigMap|default|c'\n"),
    Case(
        "every document of a file, CRLF and byte order mark as they were",
        f"\ufeff{HEAD}metadata:\n  name: a\n--- # next\n\n---\n{HEAD}metadata:\n  name: b".replace(
            "\n", "\r\n"
        ),
        f"\ufeff{HEAD}metadata: # kpt-merge: /a\n  name: a\n  annotations:\n"
        f"    {IDENTIFIER}: '|ConfigMap|default|a'\n--- # next\n\n---\n{HEAD}metadata: # kpt-merge: /b\n"
        f"  name: b\n  annotations:\n    {IDENTIFIER}: '|ConfigMap|default|b'".replace("\n", "\r\n"),
    ),
]  # fmt: skip

UNTOUCHED = [
    Case("a generated name", f"{HEAD}metadata:\n  generateName: j-\n", ""),
    Case("no metadata", "kind: Kustomization\nresources: [a]\n", ""),
    Case("a list", f"{HEAD}items:\n- metadata:\n    name: i\n", ""),
    Case("a template", "metadata:\n  name: {{ .Values.x }}\n{{ if }}\n", ""),
    Case("annotations that are no mapping", f"{HEAD}metadata: {{name: a, annotations: text}}\n", ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_resources_get_identifiers(case: Case) -> None:
    marked = add_identifiers({"app.yaml": File.of(case.before.encode())})

    assert marked["app.yaml"].data.decode() == case.after
    assert add_identifiers(marked) == marked


@pytest.mark.parametrize("case", UNTOUCHED, ids=lambda c: c.reason)
def test_resources_that_kpt_does_not_mark_keep_every_byte(case: Case) -> None:
    files = {"app.yaml": File.of(case.before.encode())}

    assert add_identifiers(files) == files


def test_only_yaml_files_outside_krmignore_are_marked() -> None:
    resource = File.of(CASES[0].before.encode())
    files = {
        ".krmignore": File.of(b"chart\n"),
        "Kptfile": File.of(b"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\n"),
        "app.json": File.of(b'{"kind": "A", "metadata": {"name": "a"}}'),
        "chart/app.yaml": resource,
        "deep/app.yml": resource,
    }

    marked = add_identifiers(files)

    assert [path for path in files if marked[path] != files[path]] == ["deep/app.yml"]


@pytest.mark.parametrize(
    ("local", "marked"),
    [
        pytest.param("metadata:\n  name: app\n", "metadata: # kpt-merge: ns/old\n", id="it has none"),
        pytest.param("metadata: # mine\n  name: app\n", "# mine\nmetadata: # kpt-merge: ns/old\n",
            id="it has another one"),
        pytest.param("metadata:\n  name: other\n", "metadata: # kpt-merge: /other\n", id="another resource"),
    ],
)  # fmt: skip
def test_resource_that_a_pipeline_renamed_keeps_the_comment_of_its_origin(local: str, marked: str) -> None:
    head = "apiVersion: v1\nkind: ConfigMap\n"
    rendered = files_of({"a.yaml": f"{head}metadata: # kpt-merge: ns/old\n  name: app\n"})
    original, ours = (files_of({"a.yaml": head + text}) for text in ("metadata:\n  name: old\n", local))

    sides = with_identifiers(original, original, ours, rendered)

    assert sides.local["a.yaml"].data.decode().startswith(f"{head}{marked}  name:")
