"""Stamping a Kptfile: the fields that are written, and no others."""

from typing import Any

import pytest

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import Function, PackageVariantSpec, Pipeline
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files
from reconciler.render.kptfile import (
    FunctionOwners,
    add_functions,
    function_name,
    is_own_function,
    kptfile_value,
    shared_inventories,
    stamp_kptfile,
    strip_ownership,
    unmet_gates,
    upstream_functions,
)
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import Pin
from tests.support.model import package
from tests.support.values import replace

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


def stamp(files: Files, **fields: Any) -> Files | Blocked:
    given = {"name": "web", "pin": PIN, "owner": "fleet/default/web", "location": "edge/web", **fields}
    return stamp_kptfile(files, **given)


def text_of(files: Files | Blocked) -> str:
    assert not isinstance(files, Blocked), files
    return files[KPTFILE].data.decode()


def test_stamping_changes_only_its_fields() -> None:
    files = stamp(a_package(BEFORE))

    assert text_of(files) == AFTER
    assert files == {**a_package(BEFORE), KPTFILE: File.of(AFTER.encode())}
    assert stamp(files) == files


@pytest.mark.parametrize("text", [BEFORE, "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"])
def test_stripping_removes_ownership_annotations_only(text: str) -> None:
    owned = stamp(a_package(text), name=None, pin=None)

    assert "reconciler.dev" in text_of(owned)
    assert text_of(strip_ownership(owned)) == text


@pytest.mark.parametrize(
    ("annotation", "reason", "hint"),
    [
        ("reconciler.dev/on-conflict: theirs", Reason.INVALID_ANNOTATION, "Known here:"),
        ("reconciler.dev/on-conflicts: local", Reason.UNKNOWN_ANNOTATION, "reconciler.dev/on-conflict?"),
        ("reconciler.dev/paused: yes", Reason.UNKNOWN_ANNOTATION, ""),
    ],
)
def test_invalid_annotation_under_our_prefix_blocks(annotation: str, reason: Reason, hint: str) -> None:
    blocked = stamp(a_package(BEFORE.replace('{local: "true"}', f"{{{annotation}}}")))

    assert isinstance(blocked, Blocked)
    assert blocked.reason is reason
    assert hint in blocked.hint


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


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ({}, "The package has no Kptfile", "Add one at its root."),
        (a_package("a: 1\n---\nb: 1\n"), "The Kptfile is not one object", ""),
        (a_package("- 1\n"), "The Kptfile is not one object", ""),
        (a_package(""), "The Kptfile is not one object", ""),
    ],
)
def test_kptfile_that_cannot_be_stamped_is_told_with_what_is_wrong(files, message, hint) -> None:
    blocked = Blocked(Reason.INVALID_PACKAGE, message, hint)

    assert stamp(files) == blocked
    assert strip_ownership(files) == blocked


@pytest.mark.parametrize("text", ["kind: KptFile\n", "kind: 5\n", "a: 1\n"])
def test_package_whose_draft_no_run_would_know_is_blocked(text: str) -> None:
    message, hint = "The Kptfile has another kind than Kptfile", "Write `kind: Kptfile` into it."
    blocked = Blocked(Reason.INVALID_PACKAGE, message, hint)

    assert stamp(a_package(text)) == blocked


INVALID = "metadata:\n  annotations:\n    reconciler.dev/on-conflict: theirs\n"
VALID = "metadata:\n  annotations:\n    reconciler.dev/on-conflict: local\n"


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"Kptfile": INVALID, "a.yaml": INVALID}, "The Kptfile"),
        ({"b.yaml": INVALID, "a.yaml": INVALID}, "a.yaml"),
        ({"a.json": '{"metadata": {"annotations": {"reconciler.dev/on-conflict": "theirs"}}}'}, "a.json"),
        ({"a.yml": INVALID}, "a.yml"),
        ({"sub/Kptfile": INVALID}, "sub/Kptfile"),
        ({"a.yaml": f"{VALID}---\n{INVALID}"}, "a.yaml"),
        ({"a.yaml": f"- 1\n---\n{INVALID}"}, "a.yaml"),
        ({"a.txt": INVALID}, ""),
        ({"a.yaml": f"{INVALID}  broken: ["}, ""),
        ({"a.yaml": VALID}, ""),
    ],
)
def test_first_file_with_an_invalid_annotation_is_named(files: dict[str, str], where: str) -> None:
    head = "apiVersion: kpt.dev/v1\nkind: Kptfile\n"
    given = {"Kptfile": f"{head}metadata:\n  name: p\n", **files}
    texts = {
        name: head + text if name.endswith("Kptfile") and text == INVALID else text
        for name, text in given.items()
    }

    result = stamp(package(texts))

    assert isinstance(result, Blocked) is bool(where)
    if isinstance(result, Blocked):
        assert result.message.partition(": ")[0] == where
        assert result.reason is Reason.INVALID_ANNOTATION
        assert result.hint


GIT = "  type: git\n  git:\n    repo: {repo}\n    directory: old\n    ref: old\n"
SPELLED = (
    "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
    f"upstream:\n{GIT}upstreamLock:\n{GIT}    commit: {{commit}}\n"
)
SPELLINGS = {
    "the identity": ("git@git.example:blueprints", "a" * 40, True),
    "the remote": ("https://mirror.example/blueprints", "a" * 40, True),
    "the registration": ("https://registered.example/blueprints.git", "a" * 40, True),
    "another commit": ("git@git.example:blueprints", "b" * 40, False),
    "another repository": ("https://git.example/other", "a" * 40, False),
    "no text": ("[1]", "a" * 40, False),
}


@pytest.mark.parametrize(("repo", "commit", "is_kept"), SPELLINGS.values(), ids=SPELLINGS)
def test_spelling_of_a_repository_stays_until_the_commit_changes(repo, commit, is_kept) -> None:
    pin = replace(
        PIN, remote="https://mirror.example/blueprints.git", repo="https://registered.example/blueprints"
    )
    files = a_package(SPELLED.format(repo=repo, commit=commit))

    value = kptfile_value(text_of(stamp(files, name=None, pin=pin)).encode())

    git = {"repo": repo if is_kept else pin.address, "directory": "base/web", "ref": "base/web/v3"}
    assert value["upstream"] == {"type": "git", "git": git}
    assert value["upstreamLock"] == {"type": "git", "git": {**git, "commit": "a" * 40}}
    assert value["metadata"]["name"] == "web"


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
OWN = "  - name: PackageVariant.web.labels.0\n    image: set-labels:v1\n    configMap:\n      a: b\n"


def test_former_functions_of_the_variant_are_replaced_and_those_of_others_stay() -> None:
    former = (
        "pipeline:\n  mutators:\n  - name: PackageVariant.web.old.0\n    image: old:v1\n"
        "  - image: theirs:v1 # kept\n  - name: PackageVariant.web.older.1\n    image: older:v1\n"
        "  - name: PackageVariant.other.x.0\n    image: other:v1\n"
    )
    rest = "  - image: theirs:v1 # kept\n  - name: PackageVariant.other.x.0\n    image: other:v1\n"

    assert (
        functions(former, PackageVariantSpec(pipeline=Pipeline(mutators=[LABELS])))
        == f"pipeline:\n  mutators:\n{OWN}{rest}"
    )
    assert functions(former, PackageVariantSpec()) == f"pipeline:\n  mutators:\n{rest}"


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
def test_functions_of_a_name_belong_to_upstream_first(owners, before, after) -> None:
    text = f"pipeline:\n  mutators:\n{NAMED.format(*before)}"

    assert (
        functions(text, PackageVariantSpec(pipeline=Pipeline(mutators=[LABELS])), owners)
        == f"pipeline:\n  mutators:\n{after}"
    )


OF_WEB = ["labels.0", "labels.-1", ".0"]
OTHER = ["labels", "0", "a.b.0", "labels.x", "labels.\u00b2", "labels.\u0663", "labels."]


@pytest.mark.parametrize("rest", [*OF_WEB, *OTHER])
def test_name_of_a_function_is_a_variants_own_with_one_name_and_a_number(rest: str) -> None:
    assert is_own_function(f"PackageVariant.web.{rest}", "web") is (rest in OF_WEB)


def test_names_that_variants_gave_in_upstream_packages_are_of_both_lists() -> None:
    text = "pipeline:\n  mutators:\n  - name: PackageVariant.a.b.0\n  validators:\n  - name: x\n"

    assert upstream_functions([with_pipeline(text), {}]) == {"PackageVariant.a.b.0", "x"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pipeline:\n  mutators:\n  - name: PackageVariant.web.old.0\n    image: old:v1\n", ""),
        (
            "pipeline:\n  mutators:\n  - name: PackageVariant.web.old.0\n    image: old:v1\n  other: 1\n",
            "pipeline:\n  other: 1\n",
        ),
        ("pipeline:\n  mutators: []\n", ""),
        ("pipeline:\n  mutators: none\n", ""),
        ("pipeline: {}\n", ""),
        ("", ""),
    ],
)
def test_list_and_pipeline_without_functions_are_deleted(before: str, after: str) -> None:
    assert functions(before, PackageVariantSpec()) == after


def test_unmet_gates_are_sorted() -> None:
    gates = "info:\n  readinessGates:\n  - conditionType: b\n  - conditionType: a\n  - other: c\n"

    assert unmet_gates(f"kind: Kptfile\n{gates}".encode()) == (
        "a: the package has no such condition",
        "b: the package has no such condition",
    )


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


def test_name_of_an_own_function_is_read_back_where_it_had_dots() -> None:
    assert function_name("web", "set.labels.v1", 2) == "PackageVariant.web.set-labels-v1.2"
    assert is_own_function("PackageVariant.web.set-labels-v1.2", "web")
