"""Keys under our prefix: the table is complete, and what means nothing is a fault."""

import re
from pathlib import Path

import pytest

from reconciler.api.annotations import (
    DEPENDENCY,
    INSTALLATION,
    KEYS,
    PREFIX,
    check_keys,
    check_mapping,
    check_resource,
)
from reconciler.base.reasons import Reason
from reconciler.expand.owners import INHERITED

PROJECT = Path(__file__).parents[3]
NO_KEYS = {"reconciler.dev/v1alpha1", "reconciler.dev/v1alpha2"}


def keys_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.@/-])reconciler\.dev/[a-z][a-z0-9-]*", text)) - NO_KEYS


def test_every_annotation_in_the_code_is_registered() -> None:
    code = (PROJECT / "reconciler").rglob("*.py")
    named = set[str]().union(*(keys_in(path.read_text(encoding="utf-8")) for path in code))

    assert named - KEYS.keys() == set()


@pytest.mark.parametrize("name", INHERITED)
def test_inherited_annotation_is_valid_on_the_set(name: str) -> None:
    assert KEYS[name].kinds >= {"PackageVariant", "PackageVariantSet"}


@pytest.mark.parametrize("value", ["yes", "True", "TRUE", "", " true", "1"])
@pytest.mark.parametrize("kind", ["PackageVariant", "Repository"])
def test_paused_accepts_only_true_and_false(kind: str, value: str) -> None:
    (fault,) = check_keys(kind, {"metadata": {"annotations": {"reconciler.dev/paused": value}}})

    assert fault.reason is Reason.INVALID_ANNOTATION
    assert fault.path == ("metadata", "annotations", "reconciler.dev/paused")
    assert not fault.of_key
    assert fault.message == f'reconciler.dev/paused must be "true" or "false", but is {value!r}'


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("PackageVariant", "paused", "true"),
        ("PackageVariant", "paused", "false"),
        *((kind, "retry", "1") for kind in ("PackageVariant", "PackageVariantSet", "Repository")),
        ("PackageVariant", "on-conflict", "upstream"),
        ("PackageVariant", "on-conflict-fields", "spec.replicas=local;spec.template.*=upstream"),
        ("PackageVariant", "on-conflict-fields", "spec.replicas = local; "),
        ("PackageVariant", "follow-moved-tag", "3f8a91c"),
        ("PackageVariantSet", "allow-deletes", "12"),
        ("PackageVariantSet", "allow-deletes", "0"),
        ("PackageVariantSet", "clusters", "edge-1, edge-2"),
        ("Repository", "unavailable", "warn"),
        ("Repository", "dependencies", "deep/dependencies"),
        ("Kptfile", "on-conflict", "fail"),
        (DEPENDENCY, "prune-dependencies", "false"),
    ],
)
def test_valid_annotations_are_accepted(kind: str, name: str, value: str) -> None:
    assert check_keys(kind, {"metadata": {"annotations": {f"{PREFIX}{name}": value}}}) == ()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("PackageVariant", "on-conflict", "theirs"),
        ("Kptfile", "on-conflict", "ours"),
        ("PackageVariant", "on-conflict-fields", "spec.replicas"),
        ("PackageVariant", "on-conflict-fields", "spec.replicas=theirs"),
        ("PackageVariant", "on-conflict-fields", "spec.replicas=local,spec.x=upstream"),
        ("PackageVariant", "follow-moved-tag", "3f8a91"),
        ("PackageVariant", "follow-moved-tag", "latest"),
        ("PackageVariantSet", "allow-deletes", "-1"),
        ("PackageVariantSet", "clusters", "edge-1;edge-2"),
        ("PackageVariantSet", "clusters", ""),
        ("PackageVariantSet", "allow-deletes", "all"),
        ("PackageVariantSet", "allow-deletes", "1.5"),
        ("Repository", "unavailable", "ignore"),
        (DEPENDENCY, "prune-dependencies", "no"),
        (DEPENDENCY, "prune-orphaned-crds", "True"),
    ],
)
def test_invalid_value_is_an_error(kind: str, name: str, value: str) -> None:
    (fault,) = check_keys(kind, {"metadata": {"annotations": {f"{PREFIX}{name}": value}}})

    assert fault.reason is Reason.INVALID_ANNOTATION
    assert fault.hint


@pytest.mark.parametrize(
    ("kind", "name"),
    [("PackageVariant", "clusters"), ("Repository", "on-conflict"), ("Kptfile", "pausd")],
)
def test_key_of_another_kind_is_unknown_on_this_one(kind: str, name: str) -> None:
    (fault,) = check_keys(kind, {"metadata": {"annotations": {f"{PREFIX}{name}": "x"}}})

    assert fault.reason is Reason.UNKNOWN_ANNOTATION
    assert fault.message == f"{PREFIX}{name} is unknown on a {kind}"
    assert fault.hint.startswith(f"Did you mean {PREFIX}")


@pytest.mark.parametrize(
    ("name", "value"), [("paused", "true"), ("on-conflict", "ask"), ("follow-moved-tag", "3f8a91c")]
)
def test_key_that_is_read_among_annotations_is_no_label(name: str, value: str) -> None:
    (fault,) = check_keys("PackageVariant", {"metadata": {"labels": {f"{PREFIX}{name}": value}}})

    assert fault.reason is Reason.UNKNOWN_ANNOTATION
    assert fault.hint == "Write it in metadata.annotations."
    (unquoted,) = check_keys("PackageVariant", {"metadata": {"annotations": {f"{PREFIX}paused": True}}})
    assert unquoted.hint == 'Write it in quotes: "true" or "false".'


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("PackageVariant", "pause", "Did you mean reconciler.dev/paused?"),
        ("PackageVariant", "on-conflicts", "Did you mean reconciler.dev/on-conflict?"),
        ("PackageVariantSet", "allow-delete", "Did you mean reconciler.dev/allow-deletes?"),
        ("Repository", "unavailble", "Did you mean reconciler.dev/unavailable?"),
    ],
)
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_unknown_annotation_has_a_suggestion(kind: str, name: str, hint: str, place: str) -> None:
    (fault,) = check_keys(kind, {"metadata": {place: {f"{PREFIX}{name}": "true"}}})

    assert (fault.reason, fault.of_key, fault.hint) == (Reason.UNKNOWN_ANNOTATION, True, hint)
    assert fault.path == ("metadata", place, f"{PREFIX}{name}")


@pytest.mark.parametrize("kind", ["a PackageVariant", "an Installation"])
def test_annotation_of_another_kind_is_unknown(kind: str) -> None:
    annotations = {"reconciler.dev/allow-deletes": "1"}

    (fault,) = check_keys(kind.partition(" ")[2], {"metadata": {"annotations": annotations}})

    assert fault.message == f"reconciler.dev/allow-deletes is unknown on {kind}"


@pytest.mark.parametrize(
    "value",
    [
        {}, {"metadata": None}, {"metadata": {"annotations": None}}, {"metadata": {"annotations": []}},
        {"metadata": {"annotations": {"example.com/paused": "yes", 1: "x"}}},
        {"metadata": "text"},
    ],
)  # fmt: skip
def test_foreign_annotations_are_ignored(value: dict[str, object]) -> None:
    assert check_keys("PackageVariant", value) == ()


def test_custom_fields_of_porter_are_checked_with_their_types() -> None:
    custom = {
        "reconciler.dev/dependencies": False,
        "reconciler.dev/external": "yes",
        "reconciler.dev/extern": True,
    }

    faults = list(check_mapping(INSTALLATION, ("custom",), custom))

    assert [fault.path[-1] for fault in faults] == ["reconciler.dev/external", "reconciler.dev/extern"]


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"annotations": {"reconciler.dev/pause": "true"}}, ("annotations", "reconciler.dev/pause")),
        ({"labels": {"reconciler.dev/pause": "true"}}, ("labels", "reconciler.dev/pause")),
        (
            {"annotationExprs": [{"key": "reconciler.dev/pause", "valueExpr": "'x'"}]},
            ("annotationExprs", 0, "key"),
        ),
        ({"labelExprs": [{"keyExpr": "'a'"}, {"key": "reconciler.dev/x"}]}, ("labelExprs", 1, "key")),
    ],
)
def test_unknown_annotation_in_a_template_is_an_error_with_its_path(
    template: dict[str, object], path: tuple[str | int, ...]
) -> None:
    spec = {"targets": [{}, {"template": template}]}

    (fault,) = check_keys("PackageVariantSet", {"spec": spec})

    assert fault.reason is Reason.UNKNOWN_ANNOTATION
    assert fault.path == ("spec", "targets", 1, "template", *path)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        *((key, "Write it in metadata.annotations.") for key in ("paused", "on-conflict", "retry")),
        ("service-accont", "Did you mean reconciler.dev/service-account?"),
    ],
)
def test_policy_annotation_for_revisions_has_a_hint(key: str, hint: str) -> None:
    notes = {"annotations": {f"{PREFIX}{key}": "true"}, "labels": {"team": "a"}}

    faults = [
        *check_keys("PackageVariant", {"spec": notes}),
        *check_keys("PackageVariantSet", {"spec": {"targets": [{"template": notes}]}}),
    ]

    assert [fault.hint for fault in faults] == [hint] * 2


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("on-conflict", "theirs", Reason.INVALID_ANNOTATION),
        ("onconflict", "local", Reason.UNKNOWN_ANNOTATION),
        ("merge-keys", 1, Reason.INVALID_ANNOTATION),
    ],
)
def test_invalid_annotation_of_a_resource_is_an_error(name: str, value: object, reason: Reason) -> None:
    (fault,) = check_resource({"kind": "Service", "metadata": {"annotations": {PREFIX + name: value}}})

    assert fault.reason is reason
    assert fault.hint


@pytest.mark.parametrize(
    "annotations",
    [{"reconciler.dev/on-conflict": "local"}, {"reconciler.dev/paused": "true"}, {"team": "a"}, None, []],
)
def test_resource_may_have_annotations_of_other_kinds(annotations: object) -> None:
    assert check_resource({"kind": "PackageVariant", "metadata": {"annotations": annotations}}) == ()
