"""What we check beyond Porch: each fault with its own message, each with a twin without it."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.porch import PackageVariantSetSpec, PackageVariantSpec
from reconciler.cel import Environment
from reconciler.expand.own_checks import check_set, check_variant
from reconciler.expand.porch_checks import validate_set
from reconciler.policy import Limits
from reconciler.reasons import Reason

UPSTREAM = {"repo": "blueprints", "package": "app", "revision": 1}
TEMPLATE = "spec.targets[0].template"


class Fault(NamedTuple):
    reason: str
    template: dict[str, Any]
    message: str
    path: tuple[str | int, ...]
    twin: dict[str, Any]


def expr(text: str) -> dict[str, Any]:
    return {"downstream": {"packageExpr": text}}


PACKAGE = ("downstream", "packageExpr")
FAULTS = [
    Fault(
        "CEL that does not parse",
        expr("target.name +"),
        "template.downstream.packageExpr: Syntax error: unexpected end of the expression",
        PACKAGE,
        expr("target.name + ''"),
    ),
    Fault(
        "an undeclared name",
        expr("cluster.name"),
        "template.downstream.packageExpr: undeclared reference to 'cluster'",
        PACKAGE,
        expr("target.name"),
    ),
    Fault(
        "an expression that gives no string",
        {"labelExprs": [{"key": "n", "valueExpr": "size(target.name)"}]},
        "template.labelExprs[0].valueExpr: unsupported type conversion from 'int' to string",
        ("labelExprs", 0, "valueExpr"),
        {"labelExprs": [{"key": "n", "valueExpr": "string(size(target.name))"}]},
    ),
    Fault(
        "a reserved key in data",
        {"packageContext": {"data": {"name": "x"}}},
        f'{TEMPLATE}.packageContext.data must not contain the key "name"',
        ("packageContext", "data", "name"),
        {"packageContext": {"data": {"names": "x"}}},
    ),
    Fault(
        "a reserved key made by an expression",
        {"packageContext": {"dataExprs": [{"keyExpr": "'package-path'", "value": "x"}]}},
        f'{TEMPLATE}.packageContext.dataExprs[0] must not contain the key "package-path"',
        ("packageContext", "dataExprs", 0, "keyExpr"),
        {"packageContext": {"dataExprs": [{"keyExpr": "'path'", "value": "x"}]}},
    ),
    Fault(
        "a reserved key to remove",
        {"packageContext": {"removeKeys": ["a", "name"]}},
        f'{TEMPLATE}.packageContext.removeKeys must not contain the key "name"',
        ("packageContext", "removeKeys", 1),
        {"packageContext": {"removeKeys": ["a"]}},
    ),
    Fault(
        "a doubled key of configMapExprs",
        {"pipeline": {"mutators": [{"image": "x", "configMapExprs": [{"key": "a", "keyExpr": "'b'"}]}]}},
        f"{TEMPLATE}.pipeline.mutators[0].configMapExprs[0] may specify only one of `key` and `keyExpr`",
        ("pipeline", "mutators", 0, "configMapExprs", 0),
        {"pipeline": {"mutators": [{"image": "x", "configMapExprs": [{"key": "a"}]}]}},
    ),
    Fault(
        "an entry without a key",
        {"labelExprs": [{"value": "a"}]},
        f"{TEMPLATE}.labelExprs[0] must specify either `key` or `keyExpr`",
        ("labelExprs", 0),
        {"labelExprs": [{"key": "k", "value": "a"}]},
    ),
]


def spec(template: dict[str, Any], **target: Any) -> PackageVariantSetSpec:
    found = target or {"repositories": [{"name": "edge"}]}
    return PackageVariantSetSpec.model_validate(
        {"upstream": UPSTREAM, "targets": [{**found, "template": template}]}
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.reason)
def test_error_of_a_template_has_its_field(fault: Fault) -> None:
    wrong = spec(fault.template)

    (finding,) = check_set(wrong, Environment(Limits()))

    assert (finding.message, finding.path) == (fault.message, ("spec", "targets", 0, "template", *fault.path))
    assert validate_set(wrong) == ()
    assert check_set(spec(fault.twin), Environment(Limits())) == ()


def test_invalid_selector_has_the_field_of_its_term() -> None:
    terms = [{"key": "a", "operator": "Near"}]
    wrong = spec({}, objectSelector={"apiVersion": "v1", "kind": "Pod", "matchExpressions": terms})

    (finding,) = check_set(wrong, Environment(Limits()))

    assert finding.message == (
        'spec.targets[0].objectSelector: "Near" is not a valid label selector operator'
    )
    assert finding.path[-3:] == ("matchExpressions", 0, "operator")


def test_error_inside_an_expression_has_its_offset() -> None:
    (finding,) = check_set(spec(expr("'a' +\n  nope")), Environment(Limits()))

    assert finding.reason is Reason.INVALID_EXPRESSION
    assert finding.offset == len("'a' +\n  ")


@pytest.mark.parametrize(
    ("selectors", "legal"),
    [
        ({"revision": 1}, True),
        ({"revision": 1, "workspaceName": "v1"}, True),
        ({"tag": "v1"}, True),
        ({"version": "^1"}, True),
        ({"revision": 1, "tag": "v1"}, False),
        ({"workspaceName": "v1", "branch": "main"}, False),
        ({"tag": "v1", "version": "^1"}, False),
        ({"revision": 1, "workspaceName": "v1", "tag": "v1"}, False),
    ],
)
def test_pairs_of_upstream_selectors(selectors: dict[str, Any], legal: bool) -> None:
    manifest = PackageVariantSpec.model_validate({"upstream": {"repo": "r", "package": "p", **selectors}})

    findings = check_variant("a", manifest)

    assert [f.path for f in findings] == ([] if legal else [("spec", "upstream")])


class Variant(NamedTuple):
    reason: str
    name: str
    spec: dict[str, Any]
    messages: list[str]


FUNCTION = {"image": "x"}
VARIANTS = [
    Variant("a plain one", "a", {"pipeline": {"mutators": [FUNCTION]}}, []),
    Variant("a function that only executes", "a", {"pipeline": {"mutators": [{"exec": "x"}]}}, []),
    Variant(
        "a function without image and exec",
        "a",
        {"pipeline": {"validators": [{"name": "x"}]}},
        ["spec.pipeline.validators[0] must specify `image` or `exec`"],
    ),
    Variant(
        "a dotted function name",
        "a",
        {"mutators": [{"image": "x", "name": "a.b"}]},
        ["spec.mutators[0].name must not contain '.'"],
    ),
    Variant(
        "mutators twice",
        "a",
        {"mutators": [FUNCTION], "pipeline": {"mutators": [FUNCTION]}},
        ["spec may specify only one of `mutators` and `pipeline.mutators`"],
    ),
    Variant("a dotted name without a pipeline", "a.b", {}, []),
    Variant(
        "a dotted name with a pipeline",
        "a.b",
        {"mutators": [FUNCTION]},
        ["metadata.name \"a.b\" must not contain '.' where there is a pipeline"],
    ),
    Variant("a name that no object can have", "A b", {}, ['"A b" is not a valid object name']),
]


@pytest.mark.parametrize("case", VARIANTS, ids=lambda c: c.reason)
def test_authored_variants(case: Variant) -> None:
    findings = check_variant(case.name, PackageVariantSpec.model_validate(case.spec))

    assert [finding.message for finding in findings] == case.messages
