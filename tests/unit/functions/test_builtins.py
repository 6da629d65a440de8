"""Builtin functions: what each changes, and what it refuses."""

import re
from typing import Any

import pytest

from reconciler.functions.builtin import BUILTINS
from reconciler.functions.builtin.apply_replacements import matches_selector
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError
from reconciler.functions.builtin.search_replace import glob_pattern
from reconciler.functions.patterns import PatternError, compile_pattern
from reconciler.functions.pipeline import run_steps
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.functions.step import Stage, Step
from reconciler.names.objects import File
from reconciler.policy import FunctionPolicy
from tests.support.builtins import Row, body, check_row, config_of, ids, of_kind, table


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


def test_expression_that_is_none_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError, match="no regular expression"):
        compile_pattern("(")

    assert capfd.readouterr().err == ""


def test_results_are_in_the_order_of_files_of_documents_and_of_fields() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {}}}}
    items = [
        Resource({**job, "metadata": {"name": "a"}}, path=p, index=n)
        for p, n in (("b", 1), ("b", 0), ("a", 0))
    ]
    call = BuiltinCall(items, config_map(note="x"))

    results = [*BUILTINS["set-annotations"](call)]

    fields = ["metadata.annotations", "spec.template.metadata.annotations"]
    files = [{"path": "a"}, {"path": "b"}, {"path": "b", "index": 1}]
    assert [(r.file, r.field) for r in results] == [(f, {"path": path}) for f in files for path in fields]


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


def test_kind_of_another_group_that_is_called_namespace_keeps_its_name() -> None:
    queue = {"apiVersion": "servicebus.azure.com/v1", "kind": "Namespace", "metadata": {"name": "old"}}
    values = [queue, {**queue, "apiVersion": "v1", "metadata": {"name": "old"}}]

    run("set-namespace", values, config_map(namespace="new"))

    assert [value["metadata"]["name"] for value in values] == ["old", "new"]


IMAGE = "  - image: {}"
POD = of_kind("v1", "Pod", "spec:", "  containers:", IMAGE)
BOTH = ["containers:", "- image: {}", "initContainers:", "- image: {}"]


def containers(api_version: str, kind: str, *above: str) -> str:
    """Return a workload with a container and one that runs before, below these fields."""
    fields = [f"{'  ' * depth}{name}:" for depth, name in enumerate(above)]
    return of_kind(api_version, kind, *fields, *("  " * len(above) + line for line in BOTH))


TEMPLATE = containers("{}", "{}", "spec", "template", "spec")
CRON = containers("batch/v1", "CronJob", "spec", "jobTemplate", "spec", "template", "spec")
POD_TEMPLATE = containers("v1", "PodTemplate", "template", "spec")
WORKLOADS = [
    *("apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 ReplicaSet", "apps/v1 DaemonSet", "batch/v1 Job"),
    "v1 ReplicationController",
]
TAG = {"name": "web", "newTag": "2"}


def images(why: str, config: dict[str, str], before: str, after: str, *, compatible: bool = False) -> Row:
    message = f"summary: updated a total of {int(before != after)} image(s)"
    return Row(why, config, POD.format(before), POD.format(after), (message,), compatible)


@pytest.mark.parametrize(
    "row",
    [
        images("the tag", TAG, "web:1", "web:2"),
        images("a tag where there is none", TAG, "web", "web:2"),
        images("another image", TAG, "website:1", "website:1"),
        images("a name without a tag", {"name": "web", "newName": "b"}, "web", "b"),
        images("an image of another registry", TAG, "host/web:1", "host/web:1"),
        images("a registry with a port", {**TAG, "name": "host:5000/web"}, "host:5000/web:1",
            "host:5000/web:2"),
        images("the digest", {"name": "web", "digest": "sha256:ab"}, "web:1", "web@sha256:ab"),
        images("a digest before a tag", {**TAG, "digest": "sha256:ab"}, "web:1", "web@sha256:ab"),
        images("a name keeps tag and digest", {"name": "web", "newName": "b"}, "web:1@sha256:ab",
            "b:1@sha256:ab"),
        images("name and tag", {**TAG, "newName": "b"}, "web:1", "b:2"),
        images("the catalog loses a colon", {"name": "web", "newName": "b"}, "web:1", "b1", compatible=True),
        *(Row(of, TAG, *(TEMPLATE.format(*of.split(), tag, tag) for tag in ("web:1", "web:2")))
            for of in WORKLOADS),
        Row("CronJob", TAG, CRON.format("web:1", "web"), CRON.format("web:2", "web:2")),
        Row("PodTemplate", TAG, POD_TEMPLATE.format("web:1", "web"), POD_TEMPLATE.format("web:2", "web:2")),
        Row("the catalog has no Job", TAG, TEMPLATE.format("batch/v1", "Job", "web", "web"),
            TEMPLATE.format("batch/v1", "Job", "web", "web"), None, compatible=True),
        Row("the catalog has no init containers", TAG, TEMPLATE.format("apps/v1", "Deployment", "web", "web"),
            TEMPLATE.format("apps/v1", "Deployment", "web:2", "web"), None, compatible=True),
        Row("a field of the configuration",
            config_of("SetImage", image=TAG, additionalImageFields=[{"kind": "Foo", "path": "spec/img"}]),
            of_kind("e/v1", "Foo", "spec:", "  img: web:1"), of_kind("e/v1", "Foo", "spec:", "  img: web:2")),
        Row("no name", {"newTag": "2"}, POD.format("web:1"), "error: must specify `name`"),
        Row("nothing to set", {"name": "web"}, POD.format("web:1"),
            "error: must specify one of `newName`, `newTag`"),
        Row("an unknown field", {"name": "web", "tag": "2"}, POD.format("web:1"),
            "error: data.tag is no field of set-image. Did you mean newTag?"),
        Row("no expression", {**TAG, "name": "("}, POD.format("web:1"), "error: is no regular expression"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, POD.format("web:1"),
            "error: must be a `ConfigMap` or `SetImage`"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_image(row: Row) -> None:
    check_row("set-image:v0.1", row)


MUTATED = 'Mutated field value to "{}"'


@pytest.mark.parametrize(
    "row",
    [
        *table(
            """
    the whole value | by-value: x, put-value: z | k: x ; l: xx | k: z ; l: xx | Mutated field value to "z"
    no expression | by-value-regex: ( | k: v1 | error: is no regular expression
    two values | by-value: a, by-value-regex: b | k: a | error: only one of
    a list of matches | by-value: x | k: x | = | Matched field value "x"
    no match | by-value: q, put-value: z | k: x | = | no matches
    nothing to find | put-value: z | k: x | = | no matches
    a path | by-path: data.k, put-value: z | k: x ; l: x | k: z ; l: x
    path and value | by-path: data.*, by-value: x, put-value: z | k: x ; l: q | k: z ; l: q
    any depth | by-path: "**.x", put-value: z | x: 1 ; k: ;   x: 2 | x: z ; k: ;   x: z
    any item | by-path: "l[*].x", put-value: z | .l: ; .- x: 1 ; .- x: 2 | .l: ; .- x: z ; .- x: z
    the second item | by-path: "l[1].x", put-value: z | .l: ; .- x: 1 ; .- x: 2 | .l: ; .- x: 1 ; .- x: z
    a new field | by-path: data.new.x, put-value: "5" | k: x | k: x ; new: ;   x: 5
    no new field of a pattern | by-path: "*.new", put-value: "5" | k: x | = | no matches
    no new field below a scalar | by-path: data.k.x, put-value: "5" | k: x | = | no matches
    no new field for a value | by-path: data.new, by-value: q, put-value: "5" | k: x | = | no matches
    no new field without a value | by-path: data.new, put-comment: c | k: x | = | no matches
    a comment of a list | by-path: l, put-comment: "kpt-set: ${l}" | .l: ; .- a | .l: # kpt-set: ${l} ; .- a
    a value is none of a list | by-path: l, put-value: z | .l: ; .- a | = | no matches
    a comment for nothing | put-comment: c | k: x ; .l: ; .- a | = | no matches
    an empty list has no values | by-value: x, put-value: z | k: x ; .l: [] | k: z ; .l: []
    a file | by-value: x, by-file-path: "*.yaml", put-value: z | k: x | k: z
    another file | by-value: x, by-file-path: sub/*.yaml, put-value: z | k: x | = | no matches
    a file by alternatives | by-value: x, by-file-path: "{q,r}.[xy]aml", put-value: z | k: x | k: z
    a file in any directory | by-value: x, by-file-path: "**/[!a].?aml", put-value: z | k: x | k: z
    quotes stay | by-value: "1", put-value: "2" | k: "1" ; l: 1 | k: "2" ; l: 2
            """
        ),
        Row("groups of an expression", {"by-value-regex": r"v(\d+)-(\d+)", "put-value": "${2}.${1}"},
            body("  k: v1-2"), body("  k: 2.1")),
        Row("an absent group", {"by-value-regex": r"v\d", "put-value": "${1}"}, body("  k: v1"),
            "error: unable to resolve capture groups"),
        Row("an unknown matcher", {"by-valu": "a"}, body("  k: a"),
            "error: data.by-valu is no field of search-replace. Did you mean by-value"),
        Row("a comment", {"by-value": "x", "put-comment": "why"}, body("  k: x", "  l: x # old"),
            body("  k: x # why", "  l: x # why"), (MUTATED.format("x"),) * 2),
        Row("a comment with groups",
            {"by-value-regex": "(x)", "put-value": "z${1}", "put-comment": "kpt-set: ${name}-${1}"},
            body("  k: x"), body("  k: zx # kpt-set: ${name}-x")),
        Row("a comment with a group that there is not",
            {"by-value-regex": "(x)", "put-comment": "kpt-set: ${4}"}, body("  k: x"),
            "error: unable to resolve capture groups"),
        Row("a Secret is not shown", {"by-value": "x", "put-value": "z"}, body("  k: x", kind="Secret"),
            body("  k: z", kind="Secret"), (MUTATED.format("(hidden)"),)),
    ],
    ids=ids,
)  # fmt: skip
def test_search_replace(row: Row) -> None:
    check_row("search-replace:v0.2", row)


DEV = body("  k: dev # kpt-set: ${env}")
LIST = body("l: # kpt-set: ${l}", "- x")


@pytest.mark.parametrize(
    "row",
    [
        *table(
            """
    a part of a value | env: prod | k: x-dev-1 # kpt-set: x-${env}-${n} | k: x-prod-1 # kpt-set: x-${env}-${n}
    the same value | env: dev | k: dev # kpt-set: ${env} | = | none
    no field | other: x | k: dev # kpt-set: ${env} | = | no matches for input setter(s)
    no setters |  | k: dev # kpt-set: ${env} | = | no matches for input setter(s)
    an empty list | l: "" | .l: # kpt-set: ${l} ; .- x | .l: [] # kpt-set: ${l} | set field value to ""
    the same list | l: "[x]" | .l: # kpt-set: ${l} ; .- x | = | none
    no list | l: x | .l: # kpt-set: ${l} ; .- x | error: must be an array of values, but found "x"
    no YAML | l: "[x" | .l: # kpt-set: ${l} ; .- x | error: must be an array of values, but found "[x"
            """
        ),
        Row("its value", {"env": "prod"}, body("  k: dev # kpt-set: ${env}", "  l: dev"),
            body("  k: prod # kpt-set: ${env}", "  l: dev"), ('set field value to "prod"',)),
        Row("an absent part", {"env": "prod"}, body("  k: dev # kpt-set: ${env}-${n}"),
            "error: values for setters [${n}] must be provided"),
        Row("a list", {"l": "[a, b]"}, LIST, body("l: # kpt-set: ${l}", "- a", "- b"),
            ('set field value to "[a, b]"',)),
        Row("a list in a text", {"l": "[x]"}, LIST.replace("${l}", "a-${l}"),
            'error: invalid setter pattern for array node: "a-${l}"'),
        Row("a value that grows", {"b": "x-y"}, body("  k: a-a # kpt-set: ${a}-${b}"),
            body("  k: a-x-y # kpt-set: ${a}-${b}"),
            ("the value grows with every run; provide all setters of '${a}-${b}'",
            'set field value to "a-x-y"')),
        Row("values of a configuration file count as text",
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {"num": 3, "flag": True, "none": None}},
            body("  k: 1 # kpt-set: ${num}", "  l: x # kpt-set: ${flag}-${num}", "  m: x # kpt-set: ${none}"),
            body("  k: 3 # kpt-set: ${num}", "  l: true-3 # kpt-set: ${flag}-${num}",
            '  m: "" # kpt-set: ${none}')),
        Row("a number keeps its quotes", {"n": "3"},
            body("  k: 1 # kpt-set: ${n}", '  l: "1" # kpt-set: ${n}'),
            body("  k: 3 # kpt-set: ${n}", '  l: "3" # kpt-set: ${n}')),
        Row("an empty value of a pattern", {"image": ""}, body("  k: nginx:1.7.1 # kpt-set: ${image}:${tag}"),
            body("  k: :1.7.1 # kpt-set: ${image}:${tag}")),
        Row("a Secret is not shown", {"env": "prod"}, DEV.replace("ConfigMap", "Secret"),
            DEV.replace("ConfigMap", "Secret").replace("dev", "prod"), ('set field value to "(hidden)"',)),
    ],
    ids=ids,
)  # fmt: skip
def test_apply_setters(row: Row) -> None:
    check_row("apply-setters:v0.2", row)


def test_old_apply_setters_needs_setters() -> None:
    check_row("apply-setters:v0.1", Row("", {}, DEV, "error: input setters list cannot be empty"))


ADDED = 'Added line comment "kpt-set: {}" for field with value "{}"'


@pytest.mark.parametrize(
    "row",
    [
        *table(
            """
    the longer value first | a: dev, b: dev-1 | k: x-dev-1 | k: x-dev-1 # kpt-set: x-${b}
    another list | l: "[b]" | .l: ; .- a ; .- b | error: no matches for the input list of setters
    no field | env: q | k: dev | error: no matches for the input list of setters
    no setters |  | k: dev | error: input setters list cannot be empty
    a comment that exists | env: dev | k: dev # kpt-set: ${env} | = | none
    another comment | env: dev | k: dev # why | k: dev # kpt-set: ${env}
            """
        ),
        Row("a value and a part", {"env": "dev"}, body("  k: dev", "  l: x-dev", "  m: q"),
            body("  k: dev # kpt-set: ${env}", "  l: x-dev # kpt-set: x-${env}", "  m: q"),
            (ADDED.format("${env}", "dev"), ADDED.format("x-${env}", "x-dev"))),
        Row("a list in any order", {"l": "[b, a]"}, body("l:", "- a", "- b"),
            body("l: # kpt-set: ${l}", "- a", "- b"), (ADDED.format("${l}", "[a, b]"),)),
        Row("an element of a list on one line", {"env": "dev"}, body("  k: [a, dev] # why", "  l: [x]"),
            body("  k: # why", "  - a", "  - dev # kpt-set: ${env}", "  l: [x]"),
            (ADDED.format("${env}", "dev"),)),
        Row("text of lines", {"env": "dev"}, body("  k: |", "    dev", "z: dev"),
            body("  k: |", "    dev", "z: dev # kpt-set: ${env}")),
        Row("a Secret is not shown", {"env": "dev"}, body("  k: dev", kind="Secret"),
            DEV.replace("ConfigMap", "Secret"), (ADDED.format("${env}", "(hidden)"),)),
    ],
    ids=ids,
)  # fmt: skip
def test_create_setters(row: Row) -> None:
    check_row("create-setters:v0.1", row)


TYPES = body(
    "  k: dev # kpt-set: ${env}",
    "  l: 3 # kpt-set: ${n}",
    "  m: true # kpt-set: ${f}",
    "  o: a-dev # kpt-set: a-${env}",
    "  p: 1.5 # kpt-set: ${d}",
    "l: # kpt-set: ${l}",
    "- b",
    "- a",
)


@pytest.mark.parametrize(
    "row",
    [
        *table("""
    none |  | k: dev | = | no setters found
            """),
        Row("types and counts", {}, TYPES, TYPES,
            ("Name: d, Value: 1.5, Type: float, Count: 1", "Name: env, Value: dev, Type: str, Count: 2",
            "Name: f, Value: true, Type: bool, Count: 1", "Name: l, Value: [a, b], Type: array, Count: 1",
            "Name: n, Value: 3, Type: int, Count: 1")),
        Row("a Secret is not shown", {}, DEV.replace("ConfigMap", "Secret"),
            DEV.replace("ConfigMap", "Secret"), ("Name: env, Value: (hidden), Type: str, Count: 1",)),
    ],
    ids=ids,
)  # fmt: skip
def test_list_setters(row: Row) -> None:
    check_row("list-setters:v0.1", row)


BUCKET = of_kind("storage.cnrm.cloud.google.com/v1beta1", "StorageBucket")
PROJECT = "  annotations:\n    cnrm.cloud.google.com/project-id: {}\n"
OF_CORE = BUCKET.replace("storage.cnrm", "core.cnrm")


@pytest.mark.parametrize(
    "row",
    [
        Row("a resource of the cloud", {"project-id": "p"}, BUCKET, BUCKET + PROJECT.format("p")),
        Row("its own project", {"project-id": "p"}, BUCKET + PROJECT.format("q"), BUCKET
            + PROJECT.format("q"), ()),
        Row("the connector itself", {"project-id": "p"}, OF_CORE, OF_CORE, ()),
        Row("another resource", {"project-id": "p"}, body("  k: x"), body("  k: x"), ()),
        Row("no project", {}, BUCKET, "error: `project-id` is required"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_project_id(row: Row) -> None:
    check_row("set-project-id:v0.2", row)


NOTES = '  annotations:\n    x: "1"\n    z: "2"\n'
LOCAL = '  annotations:\n    config.kubernetes.io/local-config: "{}"\n'
NOT_QUOTED = LOCAL.format("false").replace('"', "")
B = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n"


UPSERT = config_map("a", k="new")
PATH = {"config.kubernetes.io/target-path": "q.yaml"}
ADDED_AND_REMOVED = {
    "delete-annotations:v0.1": [Row("one of two", {"annotationKeys": " x, q,"}, body() + NOTES,
        body() + NOTES.replace('    x: "1"\n', ""),
        ("Number of annotations removed: 1", "Annotation: [x] removed from resource: [a]")),
        Row("all", {"annotationKeys": "x,z"}, body() + NOTES, body()),
        Row("no keys", {"annotationKeys": " ,"}, body() + NOTES, "error: `annotationKeys` is required")],
    "remove-local-config-resources:v0.1": [Row("local ones", {}, f"{body()}{LOCAL.format('True')}---\n{B}", B,
        ("Number of resources pruned: 1", "Resource name: [a]")),
        Row("no local ones", {}, body() + LOCAL.format("false"), body() + LOCAL.format("false"),
        ("found no local config resources to prune",)),
        Row("false without quotes", {}, body() + NOT_QUOTED, body() + NOT_QUOTED)],
    "upsert-resource:v0.2": [
        Row("replaced", UPSERT, body("  k: old"), body("  k: new")),
        Row("of a list", {"apiVersion": "v1", "kind": "List", "items": [UPSERT]}, body("  k: old"),
            body("  k: new")),
        Row("no items", {"apiVersion": "v1", "kind": "List"}, body("  k: old"),
            "error: the List has no items"),
        *(Row(why, {**UPSERT, "metadata": {"name": "a", **of}}, body("  k: old"), body("  k: old"))
            for why, of in (("of another namespace", {"namespace": "x"}),
                ("of another file", {"annotations": PATH}))),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "row"), [(name, row) for name, rows in ADDED_AND_REMOVED.items() for row in rows]
)
def test_added_and_removed(function: str, row: Row) -> None:
    check_row(function, row)


def replace_in(source: dict[str, Any], *targets: dict[str, Any]) -> dict[str, Any]:
    return config_of("ApplyReplacements", replacements=[{"source": source, "targets": list(targets)}])


def part(index: Any = None) -> dict[str, Any]:
    return {"delimiter": ".", **({} if index is None else {"index": index})}


MAP = {"kind": "ConfigMap", "name": "a"}
FROM = {**MAP, "fieldPath": "data.from"}
TO = {"select": MAP, "fieldPaths": ["data.to"]}


def swap(
    path: str = "data.to", source: str = "data.from", into: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the replacement of a field of the ConfigMap, or of a part of it, by another one."""
    to = {"select": MAP, "fieldPaths": [path], **({"options": into} if into else {})}
    return replace_in({**MAP, "fieldPath": source, **more}, to)


def everywhere(*rejected: dict[str, str], **select: str) -> dict[str, Any]:
    return replace_in(FROM, {"select": select, "reject": list(rejected), "fieldPaths": ["data.to"]})


def of_pods(path: str, source: str = "metadata.name") -> dict[str, Any]:
    to = {"select": {"kind": "Pod"}, "fieldPaths": [f"spec.containers.{path}.image"]}
    return replace_in({"kind": "Pod", "fieldPath": source}, to)


POD_PAIR = of_kind(
    "v1", "Pod", "spec:", "  containers:", "  - name: app", "    image: {}", "  - name: side", "    image: {}"
)
PODS = POD_PAIR.format("x", "z")
TWO = (
    body("  from: new", "  to: old")
    + "---\n"
    + of_kind("v1", "Secret", "data:", "  to: old").replace("name: a", "name: s")
)
NEW = TWO.replace("old", "new", 1)
HOST = body("  from: a.b.c", "  to: x.old.z")
SCALAR = "error: delimiter option can only be used with scalar nodes"
LISTED = "error: replacements must specify a source and at least one target"


def host(text: str) -> str:
    return HOST.replace("x.old.z", text)


@pytest.mark.parametrize(
    "row",
    [
        Row("a field", swap(), TWO, NEW),
        Row("the name by default", replace_in(MAP, TO), TWO, TWO.replace("old", "a", 1)),
        Row("the name of a target by default", replace_in(FROM, {"select": {"kind": "Secret"}}), TWO,
            TWO.replace("name: s", "name: new")),
        Row("every kind",
            everywhere({"kind": "ConfigMap", "name": "fn"}, {"kind": "ApplyReplacements"}, version="v1"),
            TWO, TWO.replace("old", "new")),
        Row("but a rejected one", everywhere({"kind": "Secret"}, version="v1"), TWO, NEW),
        Row("another group", everywhere(group="apps"), TWO, TWO),
        Row("the default namespace", swap(namespace="default"), TWO, NEW),
        Row("another namespace", swap(namespace="other"), TWO,
            "error: nothing selected by kind: ConfigMap, name: a, namespace: other"),
        Row("a part of the source", swap(options=part(1)), HOST, host("b")),
        Row("the first part of the source", swap(options=part()), HOST, host("a")),
        Row("no such part", swap(options=part(3)), HOST, "error: options.index 3 is out of bounds"),
        Row("a part of the target", swap(into=part(1)), HOST, host("x.a.b.c.z")),
        Row("before the target", swap(into=part(-1)), HOST, host("a.b.c.x.old.z")),
        Row("behind the target", swap(into=part(3)), HOST, host("x.old.z.a.b.c")),
        Row("a part of a mapping", swap(source="data", options=part()), HOST, SCALAR),
        Row("a part in a mapping", swap("data", into=part()), HOST, SCALAR),
        Row("no number", swap(options=part("1")), HOST, "error: options.index '1' is no number"),
        Row("an item by its name", of_pods("[name=side]", "spec.containers.[name=app].image"), PODS,
            POD_PAIR.format("x", "x")),
        Row("an item by an expression", of_pods("[name=^s]"), PODS, POD_PAIR.format("x", "a")),
        Row("an item by its index", of_pods("0", "spec.containers.1.image"), PODS, POD_PAIR.format("z", "z")),
        Row("every item", of_pods("*"), PODS, POD_PAIR.format("a", "a")),
        Row("an item by a text with a sign", of_pods("[image=^x=1$]"), POD_PAIR.format("x=1", "z"),
            POD_PAIR.format("a", "z")),
        Row("an absent item", of_pods("2"), PODS, 'error: unable to find field "spec.containers.2.image"'),
        Row("a new field", swap("new.list.[name=x].value", into={"create": True}), HOST, HOST
            + "new:\n  list:\n  - name: x\n    value: a.b.c\n"),
        Row("no new field below text", swap("data.to.x", into={"create": True}), HOST,
            'error: unable to find or create field "data.to.x"'),
        Row("an absent field", swap("data.q"), HOST,
            'error: unable to find field "data.q" in replacement target'),
        Row("an absent source field", swap(source="data.q"), HOST,
            "error: fieldPath `data.q` is missing for replacement source"),
        Row("no source", replace_in({"kind": "Foo"}, TO), HOST, "error: nothing selected by kind: Foo"),
        Row("two sources", replace_in({"version": "v1"}, TO), TWO,
            "error: multiple matches for selector version: v1"),
        Row("no targets", replace_in(MAP), HOST, LISTED),
        Row("no selection", replace_in(MAP, {"fieldPaths": ["data.to"]}), HOST,
            "error: target must specify resources to select"),
        Row("no list", config_of("ApplyReplacements", replacements={"a": 1}), HOST,
            "error: replacements must be a list"),
        Row("no mappings", config_of("ApplyReplacements", replacements=["a"]), HOST,
            "error: replacements[0] must be a mapping"),
        Row("another kind", {"apiVersion": "v1", "kind": "Foo"}, HOST,
            "error: received functionConfig of kind Foo and apiVersion v1"),
        Row("a dot in a key", swap("data.[q.r/s]", r"data.x\.z"), body("  x.z: new", "  q.r/s: old"),
            body("  x.z: new", "  q.r/s: new")),
    ],
    ids=ids,
)  # fmt: skip
def test_apply_replacements(row: Row) -> None:
    check_row("apply-replacements:v0.1", row)


LABELS = {"app": "web", "tier": "a"}


MATCHING = [
    *("", "app", "!other", "app=web", "app==web", "app!=a", "other!=a", "tier in (a, b)", "tier notin (b)"),
    *("other notin (a)", "app=web,tier=a"),
]
OTHERS = [
    *("other", "!app", "app=a", "other=a", "app!=web", "tier in (b)", "other in (a)", "tier notin (a,b)"),
    *("app=web,tier=b", "app=x,tier=a"),
]


@pytest.mark.parametrize("selector", [*MATCHING, *OTHERS])
def test_label_selectors_match_as_in_kubernetes(selector: str) -> None:
    assert matches_selector(selector, LABELS) is (selector in MATCHING)
    assert matches_selector(selector, None) is (selector == "" or "!" in selector or "notin" in selector)


@pytest.mark.parametrize("selector", ["=", "app=web tier=a", "app in", "a b", "-a"])
def test_text_that_is_no_selector_is_refused(selector: str) -> None:
    with pytest.raises(FunctionFailedError, match="is no label selector"):
        matches_selector(selector, LABELS)


KPTFILE = {"apiVersion": "kpt.dev/v1", "kind": "Kptfile", "metadata": {"name": "edge"}}


@pytest.mark.parametrize("package", ["", "sub"])
@pytest.mark.parametrize("name", ["kptfile.kpt.dev", "other"])
@pytest.mark.parametrize("path", ["package-context.yaml", "other.yaml"])
def test_package_context_gets_the_name_of_its_package(package: str, name: str, path: str) -> None:
    prefix = f"{package}/" if package else ""
    foreign = Resource({**KPTFILE, "metadata": {"name": "other"}}, path="x/Kptfile", index=0)
    context = Resource(config_map(name, zone="a"), path=prefix + path, index=0)
    items = [foreign, Resource(KPTFILE, path=f"{prefix}Kptfile", index=0), context]

    results = [*BUILTINS["builtins/gen-pkg-context"](BuiltinCall(items, package=package))]

    is_context = (name, path) == ("kptfile.kpt.dev", "package-context.yaml")
    assert [each.message for each in results] == ["generated package context"]
    assert items[-1].path == prefix + "package-context.yaml"
    assert items[-1].value["data"] == ({"zone": "a", "name": "edge"} if is_context else {"name": "edge"})
    assert len(items) == (3 if is_context else 4)
    assert (items[-1].api_version, items[-1].kind) == ("v1", "ConfigMap")
    assert is_context or items[-1].is_local_config  # a new one is configuration, an old one stays as it is


def test_package_without_kptfile_gets_no_context() -> None:
    items = [Resource(KPTFILE, path="sub/Kptfile", index=0)]

    assert [*BUILTINS["builtins/gen-pkg-context"](BuiltinCall(items))] == []
    assert len(items) == 1


def test_configuration_without_kind_is_named_as_such() -> None:
    with pytest.raises(FunctionFailedError, match=r"unknown FunctionConfig `\.`"):
        run("set-labels", [config_map("web")], {"data": {"a": "b"}})
    with pytest.raises(FunctionFailedError, match="of kind ApplyReplacements and apiVersion , only"):
        run("apply-replacements", [config_map("web")], {"kind": "ApplyReplacements"})


@pytest.mark.parametrize("glob", ["[ab", "{a", "a]", "[]"])
def test_unclosed_bracket_of_a_glob_is_text(glob: str) -> None:
    assert re.fullmatch(glob_pattern(glob), glob)


def test_result_names_field_and_place() -> None:
    text = body("  k: x") + "---\n" + DEV.replace("name: a", "name: b")
    step = Step("", Stage.MUTATORS, 0, image="apply-setters:v0.2", config_map={"env": "prod"})

    result = run_steps({"r.yaml": File.of(text.encode())}, [step], [], FunctionPolicy())

    (changed,) = result.results
    assert (changed.file, changed.field) == ({"path": "r.yaml", "index": 1}, {"path": "data.k"})


def test_group_without_a_match_is_empty() -> None:
    config = {"by-value-regex": "(a)?b", "put-value": "<${1}>"}

    check_row("search-replace:v0.2", Row("", config, body("  k: b", "  l: ab"), body("  k: <>", "  l: <a>")))
