"""Pipeline entries and config injection as Porch does them; bytes without a reason to change stay."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from reconciler.api.porch import InjectionSelector, PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import ObjectName
from reconciler.render.injection import (
    INJECTED_NAME,
    Injected,
    InjectionPoint,
    InjectionResult,
    check_points,
    find_points,
    inject_config,
    merged_conditions,
    merged_gates,
)
from reconciler.render.kptfile import FunctionOwners, add_functions, function_name, is_own_function
from reconciler.render.rendered import Blocked
from tests.support.conformance import Case, vectors
from tests.support.model import package
from tests.support.porch_divergences import rule_of

PART = "porch"


def resources(text: str) -> dict[str, str]:
    return yaml.safe_load(text)["spec"]["resources"]


def parsed(files: Mapping[str, str]) -> dict[str, Any]:
    return {path: yaml.safe_load(text) for path, text in files.items()}


@pytest.mark.parametrize("case", vectors(PART, "PipelineInjection"))
def test_pipeline(case: Case) -> None:
    """Equal once parsed; the package's own functions keep their indentation, which Porch rewrites."""
    variant = yaml.safe_load(case["packageVariant"])
    spec, name = PackageVariantSpec.model_validate(variant["spec"]), variant["metadata"]["name"]
    given = package(resources(case["packageRevisionResources"]))
    owners = FunctionOwners(ObjectName("default", name))

    files = add_functions(given, spec, owners)

    assert not isinstance(files, Blocked)
    assert case["expectedError"] is None
    found = {path: file.data.decode() for path, file in files.items()}
    assert parsed(found) == parsed(resources(case["expectedPackageRevisionResources"]))
    assert add_functions(files, spec, owners) == files, "a second application changes nothing"


@pytest.mark.parametrize("case", vectors(PART, "PipelineFunctionNames"))
def test_function_names(case: Case) -> None:
    if case["op"] == "generate":
        assert function_name(case["pvName"], case["funcName"], case["position"]) == case["expected"]
    else:
        name = yaml.safe_load(case["function"]).get("name", "")
        assert is_own_function(name, case["pvName"]) is case["expected"]


@pytest.mark.parametrize("case", vectors(PART, "InjectionPointDiscovery"))
def test_injection_points(case: Case) -> None:
    """D6: where Porch stops at a file that is not YAML, that file is opaque and the others count."""
    points = find_points(package(resources(case["packageRevisionResources"])))

    assert bool(case["expectedError"]) is bool(rule_of(case))

    found = [
        {"file": p.file, "required": p.required, "conditionType": p.condition_type}
        | ({"errors": list(p.errors)} if p.errors else {})
        for p in points
    ]
    assert sorted(found, key=str) == sorted(case["expectedInjectionPoints"], key=str)


def a_point(data: Mapping[str, Any]) -> InjectionPoint:
    return InjectionPoint(
        data["file"], data["required"], data["conditionType"], tuple(data.get("errors") or ())
    )


@pytest.mark.parametrize("case", vectors(PART, "InjectionPointValidation"))
def test_injection_validation(case: Case) -> None:
    error = check_points(a_point(point) for point in case["injectionPoints"])

    assert error == (case["expectedError"] or "")


@pytest.mark.parametrize("case", vectors(PART, "InjectionConditions"))
def test_injection_conditions(case: Case) -> None:
    initial, expected = case["initialKptfile"], case["expectedKptfile"]
    results = [an_injection_result(point) for point in case["injectionPoints"]]

    gates = merged_gates(initial.get("info", {}).get("readinessGates"), results)
    conditions = merged_conditions(initial.get("status", {}).get("conditions"), results)

    wanted_gates = expected.get("info", {}).get("readinessGates") or []
    wanted_conditions = expected.get("status", {}).get("conditions") or []
    assert sorted(gates, key=str) == sorted(wanted_gates, key=str)
    assert sorted(conditions, key=str) == sorted(wanted_conditions, key=str)


def an_injection_result(data: Mapping[str, Any]) -> InjectionResult:
    name = data.get("injectedName") or ""
    source = (
        SnapshotObject("v1", "K", "default", name, {}, {}, {}, Location("")) if data.get("injected") else None
    )
    errors = ", ".join(data.get("errors") or ())
    default = "no resource matched any injection selector for this injection point"
    return InjectionResult(a_point({**data, "errors": []}), source, "" if source else errors or default)


@pytest.mark.parametrize("case", vectors(PART, "ConfigInjection"))
def test_config_injection(case: Case) -> None:
    """Byte for byte, but for the seed's own annotation, which is written beside Porch's (D18)."""
    spec = yaml.safe_load(case["packageVariant"])["spec"]
    injectors = [InjectionSelector.model_validate(one) for one in spec.get("injectors") or ()]
    given = package(resources(case["packageRevisionResources"]))

    injected = inject_config(given, injectors, a_snapshot(case["clusterObjects"]), "default")

    assert case["expectedError"] is None
    assert isinstance(injected, Injected)
    found = {path: file.data.decode() for path, file in injected.files.items()}
    porchs = resources(case["expectedPackageRevisionResources"])
    assert {path: without_the_seeds(text) for path, text in found.items()} == porchs
    assert (found != porchs) is bool(rule_of(case))


def without_the_seeds(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if f" {INJECTED_NAME}: " not in line)


def a_snapshot(objects: list[Mapping[str, Any]]) -> Snapshot:
    found: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for body in objects:
        key = (body["apiVersion"], body["kind"])
        name = body["metadata"]["name"]
        one = SnapshotObject(*key, "default", name, {}, {}, body, Location("snapshot.yaml"))
        found[key] = (*found.get(key, ()), one)
    return Snapshot(present=True, objects=found)
