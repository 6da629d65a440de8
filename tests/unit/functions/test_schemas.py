"""Resources against Kubernetes' schemas and the package's own CRDs."""

from typing import Any

import pytest
import yaml

from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.functions.runtimes.schemas import SchemaRuntime

RUNTIME = SchemaRuntime()
DEPLOYMENT: dict[str, Any] = yaml.safe_load("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {internal.config.kubernetes.io/path: web.yaml}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]}}
""")
CRD: dict[str, Any] = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  names: {kind: Site, plural: sites}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [url]
            properties:
              url: {type: string}
              port: {type: integer, format: int32, nullable: true}
""")


def check(*items: dict[str, Any], **options: str) -> FunctionRun:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": options}
    call = FunctionCall(claimed="kubeconform", config=config, items=items)
    assert RUNTIME.can_run(call) == ""
    return RUNTIME.run(call)


def site(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s"}, "spec": spec}


def test_valid_items_are_returned_unchanged() -> None:
    run = check(DEPLOYMENT, CRD, site(url="u", port=None))

    assert (run.exit_code, run.results) == (0, ())
    assert run.items == (DEPLOYMENT, CRD, site(url="u", port=None))


def test_error_of_core_kind_has_its_field_path() -> None:
    wrong = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": "three"}}

    (result,) = check(wrong).results

    assert result.severity == "error"
    assert result.field == {"path": "spec.replicas"}
    assert result.file == {"path": "web.yaml"}
    assert result.resource_ref == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


@pytest.mark.parametrize("spec", [{}, {"url": 3}, {"url": "u", "port": "80"}])
def test_custom_resource_is_validated_by_its_crd(spec: dict[str, Any]) -> None:
    run = check(CRD, site(**spec))

    assert run.exit_code == 1
    assert [(result.resource_ref or {})["kind"] for result in run.results] == ["Site"]


def with_fields(**properties: Any) -> dict[str, Any]:
    (version,) = CRD["spec"]["versions"]
    schema = {"type": "object", "required": [*properties], "properties": properties}
    root = {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}
    return {**CRD, "spec": {**CRD["spec"], "versions": [{**version, "schema": root}]}}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        pytest.param(
            {"type": "string", "pattern": "^(?i)(abort|warn)?$"}, "WARN", 0, id="pattern of Go fits"
        ),
        pytest.param({"type": "string", "pattern": "^(?i)(abort|warn)?$"}, "no", 1, id="pattern of Go"),
        pytest.param({"type": "string", "default": "a"}, None, 0, id="required field with a default"),
        pytest.param({"type": "string", "pattern": "("}, "a", 1, id="no pattern"),
        pytest.param(
            {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}, 1, 1, id="rule in CEL"
        ),
    ],
)
def test_schema_of_a_crd_is_read_as_by_the_api_server(
    field: dict[str, Any], value: object, code: int
) -> None:
    spec = {} if value is None else {"url": value}

    assert check(with_fields(url=field), site(**spec)).exit_code == code


def test_strict_validation_refuses_unknown_fields() -> None:
    odd = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replica": 3}}

    assert check(odd).results == ()
    assert check(odd, strict="true").exit_code == 1


def test_missing_schema_is_error_unless_ignored() -> None:
    assert "could not find schema" in check(site(url="u")).results[0].message
    assert check(site(url="u"), ignore_missing_schemas="true").results == ()
    assert check(site(url="u"), skip_kinds="Other, Site").results == ()


def test_local_configuration_is_not_validated() -> None:
    kptfile = {"apiVersion": "kpt.dev/v1", "kind": "Kptfile", "metadata": {"name": "p"}}
    local = site() | {"metadata": {"name": "s", "annotations": {"config.kubernetes.io/local-config": "true"}}}

    assert check(kptfile, local).results == ()


def test_kind_cannot_name_file_outside_of_schemas() -> None:
    odd = {"apiVersion": "v1", "kind": "../../../etc/passwd", "metadata": {"name": "x"}}

    assert "could not find schema" in check(odd).results[0].message


def test_only_schema_validators_are_claimed() -> None:
    assert RUNTIME.can_run(FunctionCall(image="example.com/kubeconform:v1")) != ""
