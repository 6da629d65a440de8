"""What we check beyond Porch: each fault with its own message, each with a twin without it."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.porch import PackageVariantSetSpec, PackageVariantSpec
from reconciler.cel import Environment, Failure
from reconciler.expand.checks import check_set, check_variant, go_json, validate_set
from reconciler.expand.findings import Finding, hint_of
from reconciler.expand.template import hint_for
from reconciler.expand.variants import set_key, variant_key
from reconciler.krm.yaml import path_text
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.policy import Limits

SET = set_key(ObjectName("default", "fleet"))
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
    Fault("CEL that does not parse", expr("target.package +"),
        "template.downstream.packageExpr: Syntax error: unexpected end of the expression", PACKAGE,
        expr("target.package + ''")),
    Fault("an undeclared name", expr("cluster.name"),
        "template.downstream.packageExpr: undeclared reference to 'cluster'", PACKAGE,
        expr("target.package")),
    Fault("an expression that gives no string",
        {"labelExprs": [{"key": "n", "valueExpr": "size(target.package)"}]},
        "template.labelExprs[0].valueExpr: unsupported type conversion from 'int' to string",
        ("labelExprs", 0, "valueExpr"), {"labelExprs": [{"key": "n",
        "valueExpr": "string(size(target.package))"}]}),
    Fault("a reserved key in data", {"packageContext": {"data": {"name": "x"}}},
        f'{TEMPLATE}.packageContext.data must not contain the key "name"', ("packageContext", "data", "name"),
        {"packageContext": {"data": {"names": "x"}}}),
    Fault("a reserved key made by an expression",
        {"packageContext": {"dataExprs": [{"keyExpr": "'package-path'", "value": "x"}]}},
        f'{TEMPLATE}.packageContext.dataExprs[0] must not contain the key "package-path"',
        ("packageContext", "dataExprs", 0, "keyExpr"),
        {"packageContext": {"dataExprs": [{"keyExpr": "'path'", "value": "x"}]}}),
    Fault("a reserved key to remove", {"packageContext": {"removeKeys": ["a", "name"]}},
        f'{TEMPLATE}.packageContext.removeKeys must not contain the key "name"',
        ("packageContext", "removeKeys", 1), {"packageContext": {"removeKeys": ["a"]}}),
    Fault("a doubled key of configMapExprs",
        {"pipeline": {"mutators": [{"image": "x", "configMapExprs": [{"key": "a", "keyExpr": "'b'"}]}]}},
        f"{TEMPLATE}.pipeline.mutators[0].configMapExprs[0] may specify only one of `key` and `keyExpr`",
        ("pipeline", "mutators", 0, "configMapExprs", 0),
        {"pipeline": {"mutators": [{"image": "x", "configMapExprs": [{"key": "a"}]}]}}),
    Fault("an entry without a key", {"labelExprs": [{"value": "a"}]},
        f"{TEMPLATE}.labelExprs[0] must specify either `key` or `keyExpr`", ("labelExprs", 0),
        {"labelExprs": [{"key": "k", "value": "a"}]}),
]  # fmt: skip


def spec(template: dict[str, Any], **target: Any) -> PackageVariantSetSpec:
    found = target or {"repositories": [{"name": "edge"}]}
    return PackageVariantSetSpec.model_validate(
        {"upstream": UPSTREAM, "targets": [{**found, "template": template}]}
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.reason)
def test_fault_of_a_template_that_porch_accepts_has_its_field(fault: Fault) -> None:
    wrong = spec(fault.template)

    (finding,) = check_set(wrong, Environment(Limits()))

    assert (finding.message, finding.path) == (fault.message, ("spec", "targets", 0, "template", *fault.path))
    assert finding.hint.startswith("Remove it: ") is ("must not contain the key" in fault.message)
    assert validate_set(wrong) == ()
    assert check_set(spec(fault.twin), Environment(Limits())) == ()


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("cluster.name", "There are repoDefault, packageDefault, upstream, target and repository; see "),
        ("'a'.lowerAscii()", "Annotate the set with "),
        ("size(target.name)", "Write string(...) around the value."),
        ("target.name +", "Correct the expression; docs/package-variant-sets.md lists what it may use."),
    ],
)
def test_error_of_an_expression_has_a_hint_for_its_cause(expression: str, hint: str) -> None:
    (finding,) = check_set(spec(expr(expression)), Environment(Limits()))

    assert hint_of(finding, SET).startswith(hint)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("spec", "Expressions see only name, namespace, labels and annotations of an object."),
        ("region", "Test for it first, as in has(target.labels.x) ? target.labels.x : 'none'."),
    ],
)
def test_missing_key_has_a_hint_that_tells_fields_from_labels(key: str, hint: str) -> None:
    assert hint_for(Failure(f"no such key: {key}", missing=key)) == hint


def test_findings_of_porch_in_a_set_name_their_fields() -> None:
    both = {"key": "a", "keyExpr": "'a'", "value": "b", "valueExpr": "'b'"}
    template = {
        "adoptionPolicy": "adoptSome",
        "deletionPolicy": "keep",
        "downstream": {"repo": "r", "repoExpr": "'r'", "package": "p", "packageExpr": "'p'"},
        "labelExprs": [{"key": "a", "value": "b"}, both],
        "annotationExprs": [both],
        "packageContext": {"dataExprs": [both]},
        "injectors": [{"name": "a"}, {"name": "a", "nameExpr": "'a'"}, {"kind": "ConfigMap"}],
        "pipeline": {
            "mutators": [{"image": "x", "name": "a.b"}],
            "validators": [{"image": "x"}, {"image": ""}],
        },
    }
    targets = [
        {"repositories": [{"name": "edge", "packageNames": ["a", ""]}, {"name": ""}]},
        {"objectSelector": {"matchLabels": {"a": "b"}}, "repositories": []},
        {},
        {"repositorySelector": {}, "template": template},
    ]

    findings = validate_set(PackageVariantSetSpec.model_validate({"upstream": {}, "targets": targets}))

    assert [path_text(finding.path) for finding in findings] == [
        "spec.upstream.package",
        "spec.upstream.repo",
        "spec.upstream",
        "spec.targets[0].repositories[0].packageNames[1]",
        "spec.targets[0].repositories[1].name",
        "spec.targets[1].repositories",
        "spec.targets[1].objectSelector.apiVersion",
        "spec.targets[1].objectSelector.kind",
        "spec.targets[1]",
        "spec.targets[2]",
        "spec.targets[3].template.adoptionPolicy",
        "spec.targets[3].template.deletionPolicy",
        "spec.targets[3].template.downstream",
        "spec.targets[3].template.downstream",
        "spec.targets[3].template.labelExprs[1]",
        "spec.targets[3].template.labelExprs[1]",
        "spec.targets[3].template.annotationExprs[0]",
        "spec.targets[3].template.annotationExprs[0]",
        "spec.targets[3].template.packageContext.dataExprs[0]",
        "spec.targets[3].template.packageContext.dataExprs[0]",
        "spec.targets[3].template.injectors[1]",
        "spec.targets[3].template.injectors[2]",
        "spec.targets[3].template.pipeline.validators[1].image",
        "spec.targets[3].template.pipeline.mutators[0].name",
    ]
    assert all(finding.hint for finding in findings)


@pytest.mark.parametrize(
    ("owner", "page"),
    [(SET, "package-variant-sets.md"), (variant_key(ObjectName("default", "web")), "manifests.md")],
)
def test_finding_without_a_hint_names_its_field_and_its_page(owner: ObjectKey, page: str) -> None:
    finding = Finding(("spec", "targets", 0), "something else is wrong")

    assert hint_of(finding, owner) == f"Correct spec.targets[0]; docs/{page} describes it."


def test_invalid_selector_has_the_field_of_its_term() -> None:
    terms = [{"key": "a", "operator": "Near"}]
    wrong = spec({}, objectSelector={"apiVersion": "v1", "kind": "Pod", "matchExpressions": terms})

    (finding,) = check_set(wrong, Environment(Limits()))

    assert finding.message == (
        'spec.targets[0].objectSelector: "Near" is not a valid label selector operator'
    )
    assert finding.path[-3:] == ("matchExpressions", 0, "operator")
    wrong = spec({}, repositorySelector={"matchExpressions": [{"key": "a", "operator": "In"}]})
    (finding,) = check_set(wrong, Environment(Limits()))
    assert (finding.path[-3:], finding.hint) == (("matchExpressions", 0, "values"), "Give it a value.")


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
    Variant("a function without image and exec", "a", {"pipeline": {"validators": [{"name": "x"}]}},
        ["spec.pipeline.validators[0] must specify `image` or `exec`"]),
    Variant("a dotted function name", "a", {"mutators": [{"image": "x", "name": "a.b"}]},
        ["spec.mutators[0].name must not contain '.'"]),
    Variant("mutators twice", "a", {"mutators": [FUNCTION], "pipeline": {"mutators": [FUNCTION]}},
        ["spec may specify only one of `mutators` and `pipeline.mutators`"]),
    Variant("a dotted name without a pipeline", "a.b", {}, []),
    Variant("a dotted name with a pipeline", "a.b", {"mutators": [FUNCTION]},
        ["metadata.name \"a.b\" must not contain '.' where there is a pipeline"]),
    Variant("a name that no object can have", "A b", {}, ['"A b" is not a valid object name']),
]  # fmt: skip


@pytest.mark.parametrize("case", VARIANTS, ids=lambda c: c.reason)
def test_authored_variants(case: Variant) -> None:
    findings = check_variant(case.name, PackageVariantSpec.model_validate(case.spec))

    assert [finding.message for finding in findings] == case.messages


def test_values_in_messages_are_json_as_go_writes_it() -> None:
    assert go_json({"b": "X<>&\u2028\u2029", "a": [1, None]}) == (
        r'{"a":[1,null],"b":"X\u003c\u003e\u0026\u2028\u2029"}'
    )


WEB = {"repo": "blueprints", "package": "web", "revision": 1}
DB = {**WEB, "package": "db"}
NAMED = [{"repositories": [{"name": "edge", "packageNames": ["a"]}]}]


class Listed(NamedTuple):
    reason: str
    spec: dict[str, Any]
    message: str
    path: tuple[str | int, ...]


LISTED = [
    Listed("beside one upstream", {"upstream": WEB, "upstreams": [DB]},
        "spec may specify only one of `upstream` and `upstreams`", ("spec", "upstreams")),
    Listed("an empty list", {"upstreams": []},
        "spec.upstreams must not be an empty list if specified", ("spec", "upstreams")),
    Listed("a package twice, in two repositories", {"upstreams": [WEB, DB, {**WEB, "repo": "others"}]},
        'spec.upstreams[2] has the package "web", as spec.upstreams[0] has',
        ("spec", "upstreams", 2, "package")),
    Listed("a package twice, once with a slash", {"upstreams": [WEB, {**WEB, "package": "web/"}]},
        'spec.upstreams[1] has the package "web", as spec.upstreams[0] has',
        ("spec", "upstreams", 1, "package")),
    Listed("no repository", {"upstreams": [WEB, {"package": "db", "revision": 1}]},
        "spec.upstreams[1].repo is a required field", ("spec", "upstreams", 1, "repo")),
    Listed("no revision", {"upstreams": [WEB, {"repo": "blueprints", "package": "db"}]},
        "either spec.upstreams[1].revision or spec.upstreams[1].workspaceName must be specified",
        ("spec", "upstreams", 1)),
    Listed("revision 0", {"upstreams": [WEB, {**DB, "revision": 0}]},
        "either spec.upstreams[1].revision or spec.upstreams[1].workspaceName must be specified",
        ("spec", "upstreams", 1, "revision")),
    Listed("two selectors", {"upstreams": [WEB, {**DB, "tag": "stable"}]},
        "spec.upstreams[1] may specify only one of `revision`, `workspaceName`, `tag`, `version`"
        " and `branch`, except `revision` with `workspaceName`", ("spec", "upstreams", 1)),
    Listed("one name for all packages of a repository", {"upstreams": [WEB, DB], "targets": NAMED},
        "spec.targets[0].repositories[0].packageNames gives one name to the packages"
        " of all of spec.upstreams",
        ("spec", "targets", 0, "repositories", 0, "packageNames")),
    Listed("one name for all packages by a template", {"upstreams": [WEB, DB], "targets": [
        {"repositories": [{"name": "edge"}], "template": {"downstream": {"package": "a"}}}]},
        "spec.targets[0].template.downstream.package gives one name to the packages of all of spec.upstreams",
        ("spec", "targets", 0, "template", "downstream", "package")),
]  # fmt: skip


@pytest.mark.parametrize("case", LISTED, ids=lambda case: case.reason)
def test_fault_in_a_list_of_upstreams_has_its_line(case: Listed) -> None:
    targets = [{"repositories": [{"name": "edge"}]}]
    wrong = PackageVariantSetSpec.model_validate({"targets": targets, **case.spec})

    (finding,) = (*validate_set(wrong), *check_set(wrong, Environment(Limits())))

    assert (finding.message, finding.path) == (case.message, case.path)


def test_a_list_of_one_may_name_its_packages() -> None:
    listed = PackageVariantSetSpec.model_validate({"upstreams": [WEB], "targets": NAMED})

    assert (*validate_set(listed), *check_set(listed, Environment(Limits()))) == ()
