"""What pydantic finds wrong, as a person reads it."""

import inspect
import pkgutil
from importlib import import_module
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from reconciler import api
from reconciler.api.crossplane import CrossplanePackage, MetaDependency
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.validation import FieldError, FieldType, disk_fields, field_text, parse_model, type_error
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest

PV = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "PackageVariant", "metadata": {"name": "a"}}


class Case(NamedTuple):
    reason: str
    spec: object
    want: FieldError


CASES = [
    Case("a misspelt field names its neighbour", {"upstreem": {"repo": "r"}},
        FieldError(("spec", "upstreem"), Reason.UNKNOWN_FIELD, "Unknown field spec.upstreem",
        "Did you mean upstream?", of_key=True, meant="upstream")),
    Case("a field in the wrong case is unknown, and found", {"upstream": {"workspacename": "w"}},
        FieldError(("spec", "upstream", "workspacename"), Reason.UNKNOWN_FIELD,
        "Unknown field spec.upstream.workspacename", "Did you mean workspaceName?", of_key=True,
        meant="workspaceName")),
    Case("Python's spelling is not one of the manifest's", {"adoption_policy": "adoptNone"},
        FieldError(("spec", "adoption_policy"), Reason.UNKNOWN_FIELD, "Unknown field spec.adoption_policy",
        "Did you mean adoptionPolicy?", of_key=True, meant="adoptionPolicy")),
    Case("a boolean where a text belongs is to be quoted", {"packageContext": {"data": {"on": True}}},
        FieldError(("spec", "packageContext", "data", "on"), Reason.INVALID_MANIFEST,
        "spec.packageContext.data.on must be a string, but is the boolean true",
        "Put it in quotes: without them y, n, yes, no, on, off, true and false are booleans.")),
    Case("an item of a list is named by its index", {"injectors": [{"name": "a"}, {"nam": "b"}]},
        FieldError(("spec", "injectors", 1, "nam"), Reason.UNKNOWN_FIELD,
        "Unknown field spec.injectors[1].nam", "Did you mean name?", of_key=True, meant="name")),
    Case("a mapping where a list belongs", {"injectors": {"name": "a"}}, FieldError(("spec", "injectors"),
        Reason.INVALID_MANIFEST, "spec.injectors must be a list, but is a mapping",
        "Start each item with a dash.")),
    Case("a list where a mapping belongs", [{"name": "a"}], FieldError(("spec",), Reason.INVALID_MANIFEST,
        "spec must be a mapping, but is a list", "")),
    Case("an empty list is told as such", [], FieldError(("spec",), Reason.INVALID_MANIFEST,
        "spec must be a mapping, but is an empty list", "")),
    Case("an empty spec is not a spec", None, FieldError(("spec",), Reason.INVALID_MANIFEST,
        "spec must be a mapping, but is empty", "Give it a value, or remove the field.")),
    Case("what is nothing like a field lists what there is", {"downstream": {"zzz": 1}},
        FieldError(("spec", "downstream", "zzz"), Reason.UNKNOWN_FIELD, "Unknown field spec.downstream.zzz",
        "Known here: package, repo.", of_key=True)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_error_is_one_sentence_with_a_hint(case: Case) -> None:
    assert parse_model(PackageVariant, {**PV, "spec": case.spec}) == (case.want,)


def test_all_errors_are_reported_at_once() -> None:
    faults = parse_model(
        PackageVariantSet, {"apiVersion": "x", "kind": "y", "spec": {"a": 1, "b": 2}, "c": 3}
    )

    assert isinstance(faults, tuple)
    assert [f.path for f in faults] == [("spec", "a"), ("spec", "b"), ("c",)]


def test_missing_field_has_a_hint() -> None:
    assert parse_model(Repository, {"apiVersion": "x", "kind": "y", "spec": {"git": {}}}) == (
        FieldError(
            ("spec", "git", "repo"),
            Reason.MISSING_FIELD,
            "Missing required field spec.git.repo",
            "Add repo to spec.git.",
        ),
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [("true", "Write it without quotes."), ("ture", "Did you mean true?"), ("maybe", "Write true or false.")],
)
def test_text_where_a_boolean_belongs_has_the_next_step(text: str, hint: str) -> None:
    (fault,) = parse_model(Repository, {"apiVersion": "x", "kind": "y", "spec": {"deployment": text}})

    assert (fault.path, fault.hint) == (("spec", "deployment"), hint)


@pytest.mark.parametrize("data", [None, 1, "a", [], {"kind": 1}, {1: 2}])
def test_no_data_raises(data: object) -> None:
    assert isinstance(parse_model(PackageVariant, data), tuple)


def test_unusual_key_is_quoted_in_a_path() -> None:
    assert field_text(("metadata", "labels", "a.b/c", 0)) == 'metadata.labels["a.b/c"][0]'


def test_manifest_of_another_type_is_called_so() -> None:
    error = type_error((), 7, FieldType.MAPPING)

    assert error.message == "The manifest must be a mapping, but is the number 7"


@pytest.mark.parametrize(
    ("written", "read"), [(3, 3), ("3", 3), ("v3", 3), ("-1", -1), (-1, -1), ("v-1", None), ("\u0663", None)]
)
def test_revision_is_a_number_or_that_of_the_branch(written: object, read: int | None) -> None:
    parsed = parse_model(PackageVariant, {**PV, "spec": {"upstream": {"revision": written}}})

    found = parsed.spec.upstream if isinstance(parsed, PackageVariant) else None
    assert (found and found.revision) == read


def test_no_candidates_give_no_hint() -> None:
    assert suggest("a", ()) == ""


MODULES = [import_module(f"reconciler.api.{module.name}") for module in pkgutil.iter_modules(api.__path__)]
MODELS = sorted(
    {
        model
        for module in MODULES
        for model in vars(module).values()
        if inspect.isclass(model) and issubclass(model, BaseModel) and model.__module__ == module.__name__
        if any(disk_fields(model))
    },
    key=lambda model: (model.__module__, model.__name__),
)
VALUES: list[Any] = [None, 1, 1.5, float("inf"), "x", True, [], [1], [{}], {}, {"a": 1}, {"a": {}}, [[1]]]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_error_of_any_field_shows_a_type_of_the_program(model: type[BaseModel]) -> None:
    parsed = [parse_model(model, {name: value}) for name, _ in disk_fields(model) for value in VALUES]
    errors = [error for result in parsed if isinstance(result, tuple) for error in result]

    assert errors
    for error in errors:
        assert "Input should" not in error.message
        assert "[" not in error.message.replace("[0]", "")
        assert not any(str(step)[:1].isupper() or step in {"str", "bool"} for step in error.path)


@pytest.mark.parametrize(
    ("crd", "message"),
    [
        (1, "crd must be a string or a mapping, but is the number 1"),
        ({"kind": "Bucket"}, "Missing required field crd.apiVersion"),
        ({"apiVersion": "v1", "kind": 3}, "crd.kind must be a string, but is the number 3"),
    ],
)
def test_a_field_of_two_types_has_the_error_of_the_type_that_is_meant(crd: object, message: str) -> None:
    errors = parse_model(MetaDependency, {"crd": crd})

    assert isinstance(errors, tuple)
    assert [error.message for error in errors] == [message]


STUDIED = (
    "must be 'pkg.crossplane.io/v1', 'pkg.crossplane.io/v1beta1' or 'pkg.crossplane.io/v1alpha1', but is"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"apiVersion": "pkg.crossplane.io/v9"}, f"apiVersion {STUDIED} the text 'pkg.crossplane.io/v9'"),
        ({"spec": {"package": "x", "newer": 1}}, "Unknown field spec.newer"),
    ],
)
def test_what_nobody_studied_is_refused_unless_an_api_server_accepted_it(
    change: dict[str, Any], message: str
) -> None:
    head = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", "metadata": {"name": "a"}}
    provider = {**head, "spec": {"package": "x"}, **change}

    errors = parse_model(CrossplanePackage, provider)

    assert isinstance(errors, tuple)
    assert [error.message for error in errors] == [message]
    assert isinstance(parse_model(CrossplanePackage, provider, accepted=True), CrossplanePackage)


def test_field_that_belongs_further_up_is_told_with_its_place() -> None:
    target = {"template": {"repositorySelector": {"matchLabels": {}}}}
    faults = parse_model(PackageVariantSet, {"apiVersion": "x", "kind": "y", "spec": {"targets": [target]}})

    assert isinstance(faults, tuple)
    assert faults[0].hint == "It belongs at spec.targets[0].repositorySelector."
