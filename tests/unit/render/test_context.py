"""The package context: created if missing, kept if present; keys are set, then removed."""

from typing import NamedTuple

import pytest

from reconciler.api.kptfile import PACKAGE_CONTEXT_FILE
from reconciler.api.porch import PackageContext
from reconciler.base.reasons import Reason
from reconciler.names.objects import File, Files
from reconciler.render.injection import ensure_context
from reconciler.render.rendered import Blocked
from tests.support.identifiers import without_identifiers

HEAD = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: kptfile.kpt.dev
  annotations:
    config.kubernetes.io/local-config: "true"
data:
"""


class Case(NamedTuple):
    reason: str
    before: str | None
    deployment: bool
    data: dict[str, str] | None
    removed: list[str] | None
    after: str | None


CASES = [
    Case("nothing asked, nothing made", None, False, None, None, None),
    Case("made for a deployment", None, True, None, None, "  name: web\n  package-path: deep/web\n"),
    Case("made for a variant's keys", None, False, {"z": "1", "b": "2"}, None,
        '  name: web\n  b: "2"\n  z: "1"\n'),
    Case("upstream's own keys stay", "  region: eu # why\n", True, None, None,
        "  region: eu # why\n  name: web\n  package-path: deep/web\n"),
    Case("a variant's value wins over ours", None, True, {"name": "mine"}, None,
        "  name: mine\n  package-path: deep/web\n"),
    Case("upstream's name becomes ours", "  name: base\n", True, None, None,
        "  name: web\n  package-path: deep/web\n"),
    Case("a key is replaced in place", "  a: old\n  b: kept\n", False, {"a": "new"}, None,
        "  a: new\n  b: kept\n"),
    Case("a key is removed", "  a: old\n  b: kept\n", False, None, ["a", "absent"], "  b: kept\n"),
    Case("removal wins over setting", "  a: old\n", False, {"b": "1"}, ["b"], "  a: old\n"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_context(case: Case) -> None:
    files: Files = {}
    if case.before is not None:
        files = {PACKAGE_CONTEXT_FILE: File.of((HEAD + case.before).encode())}
    spec = PackageContext(data=case.data, remove_keys=case.removed)

    made = ensure_context(files, deployment=case.deployment, package="deep/web", spec=spec)

    assert not isinstance(made, Blocked), made
    file = made.get(PACKAGE_CONTEXT_FILE)
    text = without_identifiers(file.data.decode()) if file else None
    assert text == (None if case.after is None else HEAD + case.after)
    assert ensure_context(made, deployment=case.deployment, package="deep/web", spec=spec) == made


@pytest.mark.parametrize("text", ["a: [\n", "kind: ConfigMap\nmetadata:\n  name: other\n"])
def test_invalid_context_blocks(text: str) -> None:
    files = {PACKAGE_CONTEXT_FILE: File.of(text.encode())}

    result = ensure_context(files, deployment=True, package="web", spec=None)

    assert isinstance(result, Blocked)
    assert result.reason is Reason.CONTEXT_NOT_INJECTED


def test_context_in_another_file_is_edited() -> None:
    context = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: old\n"
    files = {
        "all.yaml": File.of(context),
        "sub/Kptfile": File.of(b"kind: Kptfile\n"),
        "sub/a.yaml": File.of(context),
    }

    made = ensure_context(files, deployment=True, package="web", spec=None)

    assert not isinstance(made, Blocked)
    assert made.keys() == files.keys()
    assert b"name: web" in made["all.yaml"].data
    assert made["sub/a.yaml"].data == context


@pytest.mark.parametrize("package_path", ["package-context.yaml", "other.yaml"])
def test_renamed_context_gets_its_name_again_where_nothing_else_is_written(package_path: str) -> None:
    renamed = "kind: ConfigMap\r\nmetadata:\r\n  name: p-kptfile.kpt.dev\r\ndata:\r\n  name: old\r\n"
    files = {package_path: File.of(renamed.encode()), "a.yaml": File.of(b"kind: ConfigMap\n")}

    made = ensure_context(files, deployment=False, package="deep/web", spec=None)

    assert not isinstance(made, Blocked)
    assert made == {**files, package_path: File.of(renamed.replace("p-kptfile", "kptfile").encode())}
    assert ensure_context(made, deployment=False, package="deep/web", spec=None) is made


def test_context_among_documents_with_carriage_returns_is_edited() -> None:
    both = f"{HEAD}  name: base\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n"
    files = {PACKAGE_CONTEXT_FILE: File.of(both.replace("\n", "\r\n").encode())}

    edited = ensure_context(files, deployment=False, package="web", spec=PackageContext(data={"zone": "z1"}))

    assert not isinstance(edited, Blocked)
    added = both.replace("  name: base\n", "  name: base\n  zone: z1\n").replace("\n", "\r\n")
    assert edited[PACKAGE_CONTEXT_FILE].data.decode() == added
