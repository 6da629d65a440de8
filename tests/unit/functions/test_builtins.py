"""Builtin functions: what each changes, and what it refuses."""

from typing import Any

import pytest

from reconciler.functions.builtin import BUILTINS
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult


def config_map(name: str = "c", /, **data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def run(name: str, values: list[dict[str, Any]], config: Any, **options: Any) -> list[FunctionResult]:
    """Run a builtin on resources, which it changes in place."""
    items = [Resource(value, path=f"{i}.yaml", index=0) for i, value in enumerate(values)]
    results = list(BUILTINS[name](BuiltinCall(items, config, **options)))
    values[:] = [item.value for item in items]
    return results


def replacements(source: str, target: str, **options: Any) -> dict[str, Any]:
    select = {"kind": "ConfigMap", "name": "c"}
    return {
        "apiVersion": "fn.kpt.dev/v1alpha1",
        "kind": "ApplyReplacements",
        "replacements": [
            {
                "source": {**select, "fieldPath": source},
                "targets": [{"select": select, "fieldPaths": [target], "options": options}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("reason", "value", "old", "new"),
    [
        ("text stays text", 5, "a", "5"),
        ("a boolean becomes its text", True, "a", "true"),
        ("a number takes a number", "2", 1, 2),
        ("a boolean takes a boolean", "false", True, False),
        ("a number takes text that is no number", "two", 1, "two"),
        ("text that is a mapping in YAML stays text", "a: b", 1, "a: b"),
        ("text that is no YAML stays text", "{", 1, "{"),
        ("a mapping is copied whole", {"k": 1}, {"o": 2}, {"k": 1}),
        ("a list replaces text", [1], "a", [1]),
    ],
)
def test_replaced_scalar_keeps_the_type_of_its_target(reason: str, value: Any, old: Any, new: Any) -> None:
    values = [config_map(source=value, target=old)]

    run("apply-replacements", values, replacements("data.source", "data.target"))

    assert values == [config_map(source=value, target=new)], reason


def test_values_of_a_config_map_count_as_text() -> None:
    values = [config_map("web", old="x")]

    run("set-annotations", values, config_map(number=1, flag=True, nothing=None))

    assert values[0]["metadata"]["annotations"] == {"number": "1", "flag": "true", "nothing": ""}


@pytest.mark.parametrize(
    ("name", "data", "is_absent"),
    [("function-input", {}, True), ("function-input", {"a": "b"}, False), ("c", {}, False)],
)
def test_empty_function_input_is_no_configuration(
    name: str, data: dict[str, str], *, is_absent: bool
) -> None:
    values = [config_map("web")]
    if is_absent:
        with pytest.raises(FunctionFailedError, match="`FunctionConfig` is not given"):
            run("set-labels", values, config_map(name, **data))
    else:
        run("set-labels", values, config_map(name, **data))
        assert values[0]["metadata"].get("labels", {}) == data


def test_namespace_comes_from_the_package_context() -> None:
    values = [config_map("web")]

    run("set-namespace", values, config_map("kptfile.kpt.dev", name="edge", namespace="other"))

    assert values[0]["metadata"].get("namespace") == "edge"
