"""Stamping a Kptfile: what is written, and what must not be."""

import pytest

from reconciler.api.kptfile import KPTFILE
from reconciler.ids import Oid, PackageKey
from reconciler.inventory import Commit
from reconciler.objects import File, Files
from reconciler.reasons import Reason
from reconciler.render.kptfile import stamp_kptfile, strip_ownership
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
    found = stamp_kptfile(files, name="web", pin=PIN, owner="fleet/default/web", location="edge/web")
    assert not isinstance(found, Blocked), found
    return found


def test_only_what_has_a_reason_changes() -> None:
    files = stamped(a_package(BEFORE))

    assert files[KPTFILE].data.decode() == AFTER
    assert files["a.yaml"] == a_package(BEFORE)["a.yaml"]


def test_stamping_twice_is_stamping_once() -> None:
    once = stamped(a_package(BEFORE))

    assert stamped(once) == once


def test_stripping_takes_our_annotations_and_nothing_else() -> None:
    stripped = strip_ownership(stamped(a_package(BEFORE)))

    assert not isinstance(stripped, Blocked)
    text = stripped[KPTFILE].data.decode()
    assert "reconciler.dev" not in text
    assert 'annotations: {local: "true"}' in text


def test_stripping_a_package_that_is_nobodys_changes_no_byte() -> None:
    files = a_package(BEFORE)

    assert strip_ownership(files) == files


def test_annotations_that_were_only_ours_go_whole() -> None:
    plain = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"

    stripped = strip_ownership(stamp_only_owner(a_package(plain)))

    assert not isinstance(stripped, Blocked)
    assert stripped[KPTFILE].data.decode() == plain


def stamp_only_owner(files: Files) -> Files:
    found = stamp_kptfile(files, name=None, pin=None, owner="fleet/default/web", location="edge/web")
    assert not isinstance(found, Blocked)
    return found


def test_a_package_without_or_with_a_broken_kptfile_is_blocked() -> None:
    for files in ({}, a_package("a: [\n"), a_package("a: 1\n---\nb: 1\n"), a_package("- 1\n")):
        found = stamp_kptfile(files, name="web", pin=PIN, owner="o", location="l")

        assert isinstance(found, Blocked)
        assert found.reason is Reason.INVALID_PACKAGE


@pytest.mark.parametrize(
    ("annotation", "reason", "hint"),
    [
        ("reconciler.dev/on-conflict: theirs", Reason.INVALID_ANNOTATION, "Known here:"),
        ("reconciler.dev/on-conflicts: local", Reason.UNKNOWN_ANNOTATION, "reconciler.dev/on-conflict?"),
        ("reconciler.dev/paused: yes", Reason.UNKNOWN_ANNOTATION, ""),
    ],
)
def test_an_unreadable_annotation_of_ours_blocks_the_package(
    annotation: str, reason: Reason, hint: str
) -> None:
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
