"""The package context: created if missing, kept if present; keys are set, then removed."""

from typing import NamedTuple

import pytest

from reconciler.api.kptfile import PACKAGE_CONTEXT_FILE
from reconciler.api.porch import PackageContext
from reconciler.objects import File, Files
from reconciler.reasons import Reason
from reconciler.render.context import ensure_context
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
    Case(
        "made for a variant's keys",
        None,
        False,
        {"z": "1", "b": "2"},
        None,
        '  name: web\n  b: "2"\n  z: "1"\n',
    ),
    Case(
        "upstream's own keys stay",
        "  region: eu # why\n",
        True,
        None,
        None,
        "  region: eu # why\n  name: web\n  package-path: deep/web\n",
    ),
    Case(
        "upstream's name becomes ours",
        "  name: base\n",
        True,
        None,
        None,
        "  name: web\n  package-path: deep/web\n",
    ),
    Case(
        "a key is replaced in place",
        "  a: old\n  b: kept\n",
        False,
        {"a": "new"},
        None,
        "  a: new\n  b: kept\n",
    ),
    Case("a key is removed", "  a: old\n  b: kept\n", False, None, ["a", "absent"], "  b: kept\n"),
    Case("removal wins over setting", "  a: old\n", False, {"b": "1"}, ["b"], "  a: old\n"),
]


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
    again = ensure_context(made, deployment=case.deployment, package="deep/web", spec=spec)
    assert again == made


@pytest.mark.parametrize("text", ["a: [\n", "kind: ConfigMap\nmetadata:\n  name: other\n"])
def test_invalid_context_blocks(text: str) -> None:
    files = {PACKAGE_CONTEXT_FILE: File.of(text.encode())}

    result = ensure_context(files, deployment=True, package="web", spec=None)

    assert isinstance(result, Blocked)
    assert result.reason is Reason.CONTEXT_NOT_INJECTED


def test_context_is_found_among_other_documents() -> None:
    text = f"# first\nkind: Other\n---\n{HEAD}  a: 1x\n---\nkind: Last\n"
    files = {PACKAGE_CONTEXT_FILE: File.of(text.encode())}

    made = ensure_context(files, deployment=False, package="web", spec=PackageContext(data={"a": "2x"}))

    assert not isinstance(made, Blocked)
    assert made[PACKAGE_CONTEXT_FILE].data.decode() == text.replace("1x", "2x")


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
