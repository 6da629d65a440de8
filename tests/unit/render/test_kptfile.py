"""Stamping a Kptfile: the fields that are written, and no others."""

import pytest

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import Function, PackageVariantSpec
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files
from reconciler.render.kptfile import (
    FunctionOwners,
    add_functions,
    shared_inventories,
    stamp_kptfile,
    strip_ownership,
    upstream_functions,
)
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import Pin
from tests.support.model import package

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


@pytest.mark.parametrize("text", ["kind: KptFile\n", "kind: 5\n", "a: 1\n"])
def test_package_whose_draft_no_run_would_know_is_blocked(text: str) -> None:
    message, hint = "The Kptfile has another kind than Kptfile", "Write `kind: Kptfile` into it."
    blocked = Blocked(Reason.INVALID_PACKAGE, message, hint)

    assert stamp_kptfile(a_package(text), name="web", pin=PIN, owner="o", location="l") == blocked


# Functions of the variant


WEB = ObjectName("team", "web")
MINE = FunctionOwners(WEB)


def with_pipeline(text: str) -> Files:
    return a_package(f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n{text}")


def functions(text: str, spec: PackageVariantSpec, owners: FunctionOwners = MINE) -> str:
    """Return the text after the name of a Kptfile to which the variant's functions were added."""
    files = add_functions(with_pipeline(text), spec, owners)
    assert not isinstance(files, Blocked), files
    again = add_functions(files, spec, owners)
    assert again == files, "adding functions twice is once"
    return files[KPTFILE].data.decode().partition("  name: web\n")[2]


LABELS = Function(image="set-labels:v1", name="labels", config_map={"a": "b"})


NAMED = "  - name: PackageVariant.{}.labels.0\n    image: {}:v1\n"
MINE_NOW = NAMED.format("web", "set-labels") + "    configMap:\n      a: b\n"


@pytest.mark.parametrize(
    ("owners", "before", "after"),
    [
        (FunctionOwners(WEB, {"PackageVariant.web.labels.0"}), ("web", "theirs"),
            NAMED.format("team.web", "set-labels") + "    configMap:\n      a: b\n"
            + NAMED.format("web", "theirs")),
        (FunctionOwners(WEB), ("team.web", "mine"), MINE_NOW),
        (FunctionOwners(WEB), ("shop", "theirs"), MINE_NOW + NAMED.format("shop", "theirs")),
        (FunctionOwners(WEB, former=ObjectName("team", "shop")), ("shop", "gone"), MINE_NOW),
        (FunctionOwners(WEB, {"PackageVariant.shop.labels.0"}, former=ObjectName("team", "shop")),
            ("shop", "theirs"), MINE_NOW + NAMED.format("shop", "theirs")),
    ],
    ids=["upstream has the name", "the longer name is ours", "another variant's",
        "the former owner's", "upstream has the former owner's name"],
)  # fmt: skip
def test_functions_of_a_name_belong_to_upstream_first(
    owners: FunctionOwners, before: tuple[str, str], after: str
) -> None:
    text = f"pipeline:\n  mutators:\n{NAMED.format(*before)}"

    assert (
        functions(text, PackageVariantSpec(mutators=[LABELS]), owners) == f"pipeline:\n  mutators:\n{after}"
    )


def test_names_that_variants_gave_in_upstream_packages_are_of_both_lists() -> None:
    text = "pipeline:\n  mutators:\n  - name: PackageVariant.a.b.0\n  validators:\n  - name: x\n"

    assert upstream_functions([with_pipeline(text), {}]) == {"PackageVariant.a.b.0", "x"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Kptfile", "inventory:\n  namespace: a\n  name: b\n  inventoryID: {}\n"),
        ("resourcegroup.yaml", "metadata:\n  labels:\n    cli-utils.sigs.k8s.io/inventory-id: '{}'\n"),
    ],
)
def test_inventory_that_came_from_upstream_is_named(path: str, text: str) -> None:
    upstream, own = package({path: text.format("one")}), package({path: text.format("mine")})

    assert [line.split(":")[0] for line in shared_inventories(upstream, upstream)] == [
        "It has the inventory one of its upstream"
    ]
    assert not [*shared_inventories(own, upstream)]
