"""Models: structs that accept what pydantic accepts, and nothing else, with the same values."""

import subprocess
import sys
from importlib import import_module
from typing import Any

import msgspec
import pytest

from reconciler.api.porch import PackageVariant, Upstream
from reconciler.api.validation import disk_fields
from reconciler.base.models import Model, pydantic_model, to_camel
from reconciler.forge.local.store import PullRecord
from reconciler.records.upstream_lock import ImagesLock, UpstreamLock

MODULES = (
    "api.meta",
    "api.porch",
    "api.snapshot",
    "records.state",
    "records.upstream_lock",
    "forge.local.store",
)
MODELS = [
    model
    for module in MODULES
    for model in vars(import_module(f"reconciler.{module}")).values()
    if isinstance(model, type) and issubclass(model, Model) and model.__module__ == f"reconciler.{module}"
    if model.__struct_fields__
]
VALUES: list[Any] = [  # as YAML and JSON have them
    *(None, True, 0, 1, -1, 1.0, 1.5, float("nan"), 2**70, "", "x", "x\n", "1", "v1", "true", "True", "open"),
    *("a" * 40, "a" * 40 + "\n", f"sha256:{'a' * 64}", f"sha256:{'a' * 64}\n"),
    *(
        [],
        [1],
        ["x"],
        [None],
        [{}],
        [[]],
        [1, 2, 3],
        {},
        {"a": 1},
        {"a": "x"},
        {"a": None},
        {1: "x"},
    ),
]


def correct(model: type[Model]) -> dict[str, Any]:
    """Return data of a model with its required fields only."""
    return {
        field.encode_name: _correct(field.type) for field in msgspec.structs.fields(model) if field.required
    }


def _correct(type_: Any) -> Any:
    for value in ("x", 1, "closed", "True", [], {}, [1, 2.0, 3.0], "a" * 40):
        try:
            msgspec.convert(value, type_)
        except msgspec.ValidationError:
            continue
        return value
    raise AssertionError(type_)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_struct_accepts_only_what_pydantic_accepts(model: type[Model]) -> None:
    given = [{**correct(model), name: value} for name, _ in disk_fields(model) for value in VALUES]
    accepted = [(data, read) for data in given if (read := _read(model, data)) is not None]

    checked = [model._of(pydantic_model(model).model_validate(data, by_name=False)) for data, _ in accepted]
    assert accepted
    assert list(map(repr, checked)) == [repr(read) for _, read in accepted]


def _read(model: type[Model], data: dict[str, Any]) -> Model | None:
    try:
        return msgspec.convert(data, model)
    except msgspec.ValidationError:
        return None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_names_on_disk_are_those_of_pydantic(model: type[Model]) -> None:
    fields = pydantic_model(model).model_fields.items()

    assert [name for name, _ in disk_fields(model)] == [field.alias for _, field in fields]
    assert [to_camel(name) for name, _ in fields] == [field.alias for _, field in fields]


def test_value_that_pydantic_converts_is_converted() -> None:
    assert Upstream.model_validate({"revision": "v3"}) == Upstream(revision=3)
    assert PackageVariant.model_validate(
        {"apiVersion": "v1", "kind": "PackageVariant", "spec": {"upstream": {"revision": "v3", "repo": "r"}}}
    ).spec.upstream == Upstream(repo="r", revision=3)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (UpstreamLock, {**correct(UpstreamLock), "commit": "a" * 40 + "\n"}),
        (ImagesLock, {"images": {"a": f"sha256:{'a' * 64}\n"}}),
        (PullRecord, {**correct(PullRecord), "headOid": "a" * 40 + "\n"}),
    ],
)
def test_line_after_a_pattern_is_refused(model: type[Model], data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        model.model_validate(data)
    with pytest.raises(ValueError, match="String should match pattern"):
        model.model_validate_json(msgspec.json.encode(data))


def test_data_of_a_model_is_read_back() -> None:
    spec = {
        "upstream": {"repo": "r", "workspaceName": "w"},
        "injectors": [{"name": "n"}],
        "labels": {"a": "b"},
    }
    variant = PackageVariant.model_validate({"apiVersion": "v1", "kind": "PackageVariant", "spec": spec})

    assert variant.spec.model_dump(exclude_none=True) == spec
    assert variant.model_dump(include={"spec"})["spec"].keys() == dict(disk_fields(type(variant.spec))).keys()
    assert PackageVariant.model_validate(variant.model_dump()) == variant


def test_correct_data_imports_no_pydantic() -> None:
    code = """
import sys
from reconciler.base.models import Model
class Named(Model, frozen=True):
    name: str
    size: int = 0
assert Named.model_validate({"name": "a"}) == Named.model_validate_json(b'{"name": "a"}')
assert "pydantic" not in sys.modules
try:
    Named.model_validate({"size": "big", "age": 1})
except ValueError as error:
    print(*sorted(each["type"] for each in error.errors()))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == "extra_forbidden int_parsing missing\n"
