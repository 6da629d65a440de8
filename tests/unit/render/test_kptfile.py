"""Stamping a Kptfile: the fields that are written, and no others."""

import pytest

from reconciler.api.kptfile import KPTFILE
from reconciler.ids import Oid, PackageKey
from reconciler.inventory import Commit
from reconciler.objects import File, Files
from reconciler.reasons import Reason
from reconciler.render.kptfile import stamp_kptfile, strip_ownership, unmet_gates
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import Pin

PIN = Pin(
    package=PackageKey("git.example/blueprints", "base/web"),
    remote="https://git.example/blueprints.git",
    ref="base/web/v3",
    revision=3,
    commit=Commit(Oid("a" * 40), 7),
    tree=Oid("b" * 40),
    repo="https://git.example/blueprints.git",
)

BEFORE = """\
# a comment above
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: upstream-name # kept
  annotations: {local: "true"}
info:
    description:   "odd   spacing"
"""

AFTER = """\
# a comment above
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web # kept
  annotations: {local: "true", reconciler.dev/location: edge/web, reconciler.dev/owner: fleet/default/web}
info:
    description:   "odd   spacing"
upstream:
  type: git
  git:
    repo: https://git.example/blueprints.git
    directory: base/web
    ref: base/web/v3
upstreamLock:
  type: git
  git:
    repo: https://git.example/blueprints.git
    directory: base/web
    ref: base/web/v3
    commit: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
"""


def a_package(kptfile: str) -> Files:
    return {KPTFILE: File.of(kptfile.encode()), "a.yaml": File.of(b"a: 1\n")}


def stamped(files: Files) -> Files:
    result = stamp_kptfile(files, name="web", pin=PIN, owner="fleet/default/web", location="edge/web")
    assert not isinstance(result, Blocked), result
    return result


def test_stamping_changes_only_its_fields() -> None:
    files = stamped(a_package(BEFORE))

    assert files[KPTFILE].data.decode() == AFTER
    assert files["a.yaml"] == a_package(BEFORE)["a.yaml"]


def test_stamping_is_idempotent() -> None:
    once = stamped(a_package(BEFORE))

    assert stamped(once) == once


def test_stripping_removes_ownership_annotations_only() -> None:
    stripped = strip_ownership(stamped(a_package(BEFORE)))

    assert not isinstance(stripped, Blocked)
    text = stripped[KPTFILE].data.decode()
    assert "reconciler.dev" not in text
    assert 'annotations: {local: "true"}' in text


def test_stripping_unowned_package_changes_no_byte() -> None:
    files = a_package(BEFORE)

    assert strip_ownership(files) == files


def test_empty_annotations_are_deleted() -> None:
    plain = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"

    stripped = strip_ownership(stamp_only_owner(a_package(plain)))

    assert not isinstance(stripped, Blocked)
    assert stripped[KPTFILE].data.decode() == plain


def stamp_only_owner(files: Files) -> Files:
    result = stamp_kptfile(files, name=None, pin=None, owner="fleet/default/web", location="edge/web")
    assert not isinstance(result, Blocked)
    return result


def test_missing_or_invalid_kptfile_blocks() -> None:
    for files in ({}, a_package("a: [\n"), a_package("a: 1\n---\nb: 1\n"), a_package("- 1\n")):
        result = stamp_kptfile(files, name="web", pin=PIN, owner="o", location="l")

        assert isinstance(result, Blocked)
        assert result.reason is Reason.INVALID_PACKAGE


@pytest.mark.parametrize(
    ("annotation", "reason", "hint"),
    [
        ("reconciler.dev/on-conflict: theirs", Reason.INVALID_ANNOTATION, "Known here:"),
        ("reconciler.dev/on-conflicts: local", Reason.UNKNOWN_ANNOTATION, "reconciler.dev/on-conflict?"),
        ("reconciler.dev/paused: yes", Reason.UNKNOWN_ANNOTATION, ""),
    ],
)
def test_invalid_annotation_under_our_prefix_blocks(annotation: str, reason: Reason, hint: str) -> None:
    text = BEFORE.replace('{local: "true"}', f"{{{annotation}}}")

    blocked = stamp_kptfile(
        a_package(text), name="web", pin=PIN, owner="fleet/default/web", location="edge/web"
    )

    assert isinstance(blocked, Blocked)
    assert blocked.reason is reason
    assert hint in blocked.hint


def test_resource_with_unknown_conflict_policy_blocks_the_package_and_is_named() -> None:
    service = (
        "kind: Service\nmetadata:\n  name: web\n  annotations:\n    reconciler.dev/on-conflict: theirs\n"
    )
    files = {**a_package(BEFORE), "sub/service.yaml": File.of(b"a: 1\n---\n" + service.encode())}

    blocked = stamp_kptfile(files, name="web", pin=PIN, owner="fleet/default/web", location="edge/web")

    assert isinstance(blocked, Blocked)
    assert blocked.message.startswith("sub/service.yaml: reconciler.dev/on-conflict must be ")


@pytest.mark.parametrize(
    ("conditions", "unmet"),
    [
        ("", ("ready: the package has no such condition",)),
        ("  - {type: ready, status: 'True'}", ()),
        ("  - {type: ready, status: 'False', message: why, reason: Because}", ("ready: why",)),
        ("  - {type: ready, status: Unknown, reason: Because}", ("ready: Because",)),
        ("  - {type: ready}", ("ready: it is not True",)),
        ("  - {type: other, status: 'True'}", ("ready: the package has no such condition",)),
    ],
)
@pytest.mark.parametrize("has_gate", [True, False])
def test_gate_needs_a_true_condition(conditions: str, unmet: tuple[str, ...], *, has_gate: bool) -> None:
    gates = "info:\n  readinessGates:\n  - conditionType: ready\n  - conditionType: ''\n" if has_gate else ""
    status = f"status:\n  conditions:\n{conditions}\n"

    kptfile = f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\n{gates}{status}"

    assert unmet_gates(kptfile.encode()) == (unmet if has_gate else ())


@pytest.mark.parametrize("text", ["", "[", "- a", "a: {{ x }}"])
def test_file_that_is_no_kptfile_has_no_gates(text: str) -> None:
    assert unmet_gates(text.encode()) == ()
