"""Pipelines: order, selectors, configuration, and the output that is forbidden to functions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.functions.pipeline import broken_files, run_pipeline
from reconciler.functions.protocol import FunctionCall, FunctionResult, FunctionRun
from reconciler.functions.runtimes.schemas import SchemaRuntime
from reconciler.functions.step import PipelineResult, result_list
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import FunctionPolicy, Limits
from tests.support.merges import files_of

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\n"
MAP = "# about a\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name} # its name\ndata:\n  k: 'v'\n"


class Python:
    """A runtime of Python functions, by the `exec` of the step."""

    def __init__(self, **functions: Callable[[FunctionCall], FunctionRun]) -> None:
        self.functions = functions
        self.calls: list[FunctionCall] = []

    def can_run(self, call: FunctionCall) -> str:
        return "" if call.exec in self.functions else "no such function"

    def run(self, call: FunctionCall) -> FunctionRun:
        self.calls.append(call)
        return self.functions[call.exec](call)


def files(pipeline: str, **texts: str) -> dict[str, File]:
    kptfile = {"Kptfile": File.of((HEAD + pipeline).encode())}
    return kptfile | {f"{name}.yaml": File.of(text.encode()) for name, text in texts.items()}


def steps(*names: str, stage: str = "mutators") -> str:
    return f"pipeline:\n  {stage}:\n" + "".join(f"  - exec: {name}\n" for name in names)


def change(edit: Callable[[list[dict[str, Any]]], object]) -> Callable[[FunctionCall], FunctionRun]:
    """Return a function that edits the items of its input."""

    def run(call: FunctionCall) -> FunctionRun:
        items = [dict(item) for item in call.items]
        edit(items)
        return FunctionRun(items)

    return run


def append(text: str) -> Callable[[FunctionCall], FunctionRun]:
    def edit(items: list[dict[str, Any]]) -> None:
        for item in items:
            if item["kind"] == "ConfigMap":
                item["data"] = {**item["data"], "k": item["data"]["k"] + text}

    return change(edit)


def text_of(result: PipelineResult, name: str) -> str:
    return result.files[f"{name}.yaml"].data.decode()


def test_package_without_pipeline_is_not_read() -> None:
    given = {"broken.yaml": File.of(b"\tno yaml"), "Kptfile": File.of(HEAD.encode())}

    assert run_pipeline(given).files is given


def test_mutators_run_in_order_and_keep_other_bytes() -> None:
    runtime = Python(one=append("1"), two=append("2"))
    given = files(
        steps("one", "two"), a=MAP.format(name="a"), other="apiVersion: v1\nkind:   Odd\nmetadata: {name: o}"
    )

    result = run_pipeline(given, [runtime])

    assert result.error == ""
    assert text_of(result, "a") == MAP.format(name="a").replace("'v'", "'v12'")
    assert result.files["other.yaml"] is given["other.yaml"]
    assert result.files["Kptfile"] is given["Kptfile"]


def test_validators_get_the_result_and_change_nothing() -> None:
    runtime = Python(mutate=append("1"), check=append("2"))
    given = files(steps("mutate") + "  validators:\n  - exec: check\n", a=MAP.format(name="a"))

    result = run_pipeline(given, [runtime])

    seen = {item["metadata"]["name"]: item for item in runtime.calls[1].items}
    assert seen["a"]["data"]["k"] == "v1"
    assert "'v1'" in text_of(result, "a")


ANNOTATED = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\n  annotations:\n    {}: {}\n"
FIRST, SAVE = "kpt.dev/bfs-rendering", "kpt.dev/save-on-render-failure"


@pytest.mark.parametrize(("value", "is_first"), [('"true"', True), ("True", True), ('"false"', False)])
def test_parents_run_first_where_the_root_says_so(value: str, *, is_first: bool) -> None:
    names = {"": "outer", "b": "b", "b/deep": "deep", "a": "a"}
    runtime = Python(**{name: append(f"-{name}") for name in names.values()})
    given = {
        f"{folder}/{path}".lstrip("/"): file
        for folder, name in names.items()
        for path, file in files(steps(name), own=MAP.format(name=f"of-{name}")).items()
    }
    given["Kptfile"] = File.of((ANNOTATED.format(FIRST, value) + steps("outer")).encode())

    result = run_pipeline(given, [runtime])

    order = [call.exec for call in runtime.calls]
    assert order == (["outer", "a", "b", "deep"] if is_first else ["deep", "a", "b", "outer"])
    deep = "'v-outer-b-deep'" if is_first else "'v-deep-b-outer'"
    assert deep in result.files["b/deep/own.yaml"].data.decode()


def test_the_annotation_of_a_sub_package_decides_nothing() -> None:
    runtime = Python(inner=append("-inner"), outer=append("-outer"))
    kptfile = File.of((ANNOTATED.format(FIRST, '"true"') + steps("inner")).encode())

    run_pipeline(files(steps("outer")) | {"sub/Kptfile": kptfile}, [runtime])

    assert [call.exec for call in runtime.calls] == ["inner", "outer"]


def half_done(call: FunctionCall) -> FunctionRun:
    return FunctionRun([*append("-half")(call).items], exit_code=1)


@pytest.mark.parametrize("stage", ["mutators", "validators"])
def test_what_was_made_before_a_failure_is_kept_where_the_root_says_so(stage: str) -> None:
    runtime = Python(fine=append("1"), bad=half_done)
    bad = "  - exec: bad\n" if stage == "mutators" else "  validators:\n  - exec: bad\n"
    given = files("", a=MAP.format(name="a"))
    given["Kptfile"] = File.of((ANNOTATED.format(SAVE, '"true"') + steps("fine") + bad).encode())

    result = run_pipeline(given, [runtime])

    assert not result.ok
    assert result.files == given, "the package itself is all or nothing"
    assert result.partial is not None
    assert result.partial["a.yaml"].data.decode() == MAP.format(name="a").replace("'v'", "'v1'")
    given["Kptfile"] = files(steps("fine") + bad)["Kptfile"]
    assert run_pipeline(given, [runtime]).partial is None


def test_files_that_lost_their_resources_stay_beside_what_is_kept() -> None:
    def move(items: list[dict[str, Any]]) -> None:
        for item in items:
            if item["kind"] == "ConfigMap":
                item["metadata"]["annotations"]["config.kubernetes.io/path"] = "b.yaml"

    runtime = Python(move=change(move), bad=half_done)
    given = files("", a=MAP.format(name="a"))
    given["Kptfile"] = File.of((ANNOTATED.format(SAVE, '"true"') + steps("move", "bad")).encode())

    partial = run_pipeline(given, [runtime]).partial

    assert partial is not None
    assert partial["a.yaml"] == given["a.yaml"]
    assert partial["b.yaml"].data == given["a.yaml"].data


SELECTORS = [
    ("kind", "    selectors:\n    - kind: ConfigMap\n", {"a", "b"}),
    ("any of two", "    selectors:\n    - name: a\n    - name: b\n", {"a", "b"}),
    ("both fields", "    selectors:\n    - name: a\n      kind: Service\n", set()),
    ("no pattern is one", "    selectors:\n    - name: '*'\n", set()),
    ("a label", "    selectors:\n    - labels: {for: a}\n", {"a"}),
    ("all labels", "    selectors:\n    - labels: {for: a, tier: x}\n", set()),
    ("an annotation", "    selectors:\n    - annotations: {of: b}\n", {"b"}),
    ("labels and annotations", "    selectors:\n    - labels: {for: a}\n      annotations: {of: b}\n", set()),
    ("exclude by label", "    exclude:\n    - labels: {for: a}\n    - kind: Kptfile\n", {"b"}),
    ("exclude", "    exclude:\n    - name: a\n    - kind: Kptfile\n", {"b"}),
    ("empty exclude", "    exclude:\n    - {}\n", {"a", "b", "p"}),
    ("twice selected, passed once", "    selectors:\n    - name: a\n    - kind: ConfigMap\n", {"a", "b"}),
]


@pytest.mark.parametrize(("reason", "selection", "want"), SELECTORS, ids=[case[0] for case in SELECTORS])
def test_selectors_are_equality(reason: str, selection: str, want: set[str]) -> None:
    runtime = Python(look=change(lambda _: None))
    marks = "{0}\n  labels: {{for: {0}}}\n  annotations: {{of: {0}}}"
    maps = {name: MAP.format(name=marks.format(name)) for name in "ab"}

    result = run_pipeline(files(steps("look") + selection, **maps), [runtime])

    names = [item["metadata"]["name"] for item in runtime.calls[0].items]
    assert result.error == "", reason
    assert sorted(names) == sorted(want)


def test_configuration_has_the_changes_of_earlier_steps() -> None:
    runtime = Python(one=append("1"), two=change(lambda _: None))
    given = files(steps("one", "two") + "    configPath: conf.yaml\n", conf=MAP.format(name="conf"))
    given |= {f"sub/{name}": file for name, file in files("", conf=MAP.format(name="inner")).items()}

    run_pipeline(given, [runtime])

    config = runtime.calls[1].config
    assert config is not None
    assert config["data"] == {"k": "v1"}


def test_a_config_map_is_all_strings() -> None:
    runtime = Python(look=change(lambda _: None))

    run_pipeline(files(steps("look") + "    configMap: {a: 1, b: true, c: x}\n"), [runtime])

    config = runtime.calls[0].config
    assert config is not None
    assert config["data"] == {"a": "1", "b": "true", "c": "x"}
    assert config["metadata"] == {"name": "function-input"}


def add(*values: dict[str, Any]) -> Callable[[FunctionCall], FunctionRun]:
    return change(lambda items: items.extend(values))


def test_new_resource_gets_a_new_file() -> None:
    new = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "space"}}

    result = run_pipeline(files(steps("add"), a=MAP.format(name="a")), [Python(add=add(new))])

    assert result.files["space/secret_s.yaml"].data == (
        b"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: space\n"
    )


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        ("package_files", "makes more than 4 files (limits.packageFiles)"),
        ("yaml_documents", "makes more than 1 document of one file (limits.yamlDocuments)"),
        ("package_file_bytes", "large.yaml has 94 bytes, and limits.packageFileBytes is 93"),
        ("package_bytes", "make 184 bytes, and limits.packageBytes is 183"),
    ],
)
def test_functions_make_no_more_than_the_next_run_can_read(limit: str, want: str) -> None:
    def pod(name: str, path: str) -> dict[str, Any]:
        where = {"internal.config.kubernetes.io/path": path}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": where}}

    pods = (pod("a", "large.yaml"), pod("b", "large.yaml"), pod("c", "c.yaml"), pod("d", "d.yaml"))
    given, functions = files(steps("add"), a=MAP.format(name="a")), Python(add=add(*pods))
    exact = Limits(package_files=5, yaml_documents=2, package_file_bytes=94, package_bytes=184)

    assert not run_pipeline(given, [functions], limits=exact).error
    less = replace(exact, **{limit: getattr(exact, limit) - 1})
    assert want in run_pipeline(given, [functions], limits=less).error


def test_omitted_resource_is_deleted_with_its_empty_file() -> None:
    def without_a(items: list[dict[str, Any]]) -> None:
        items[:] = [item for item in items if item["metadata"]["name"] != "a"]

    both = MAP.format(name="a") + "---\n" + MAP.format(name="b")
    given = files(steps("drop"), a=MAP.format(name="a"), both=both)

    result = run_pipeline(given, [Python(drop=change(without_a))])

    assert "a.yaml" not in result.files
    assert text_of(result, "both") == MAP.format(name="b")


def moved(path: str) -> Callable[[FunctionCall], FunctionRun]:
    def edit(items: list[dict[str, Any]]) -> None:
        for item in items:
            if item["kind"] == "ConfigMap":
                names = item["metadata"]["annotations"]
                names["config.kubernetes.io/path"] = names["internal.config.kubernetes.io/path"] = path

    return change(edit)


def test_a_resource_may_move_and_keeps_its_comments() -> None:
    result = run_pipeline(files(steps("move"), a=MAP.format(name="a")), [Python(move=moved("b/c.yaml"))])

    assert "a.yaml" not in result.files
    assert result.files["b/c.yaml"].data.decode() == MAP.format(name="a")


def doubled(items: list[dict[str, Any]]) -> None:
    items += [dict(item) for item in items if item["kind"] == "ConfigMap"]


def emptied(items: list[dict[str, Any]]) -> None:
    items.clear()


def headless(items: list[dict[str, Any]]) -> None:
    items[:] = [item for item in items if item["kind"] != "Kptfile"]


BAD: list[tuple[str, Callable[[FunctionCall], FunctionRun], str]] = [
    ("exit 1", lambda _: FunctionRun(None, exit_code=1, stderr="it broke"), "it broke"),
    ("an error result", lambda c: FunctionRun(c.items, (FunctionResult("wrong", "error"),)), "wrong"),
    ("an error of the engine", lambda _: FunctionRun(None, error="stopped after 3 s"), "stopped after 3 s"),
    ("nothing back", change(emptied), "no resources at all"),
    ("no Kptfile back", change(headless), "removes Kptfile"),
    ("duplicates", change(doubled), "already exists"),
    ("a path above", moved("../x.yaml"), "outside of package"),
    ("a hidden way up", moved("a/../../x.yaml"), "outside of package"),
    ("a name that Windows takes for a directory", moved("a\\x.yaml"), "contains a slash"),
    ("Git's own name in another spelling", moved("a/.GIT/x.yaml"), "for Git's own"),
    ("a control character", moved("a\x07.yaml"), "contains a control character"),
    ("Git's own directory", moved(".git/config"), ".git"),
    ("no kind", add({"apiVersion": "v1", "metadata": {"name": "x"}}), "without apiVersion or kind"),
    ("no name", add({"apiVersion": "v1", "kind": "Secret", "metadata": {}}), "without metadata.name"),
    ("no mapping", lambda _: FunctionRun(["text"]), "no mapping"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("reason", "function", "error"), BAD, ids=[case[0] for case in BAD])
def test_forbidden_output_fails_the_step_and_changes_nothing(
    reason: str, function: Callable[[FunctionCall], FunctionRun], error: str
) -> None:
    given = files(steps("before", "bad", "after"), a=MAP.format(name="a"))
    runtime = Python(before=append("1"), bad=function, after=append("2"))

    result = run_pipeline(given, [runtime])

    assert error in result.error, reason
    assert "mutators[1]" in result.error
    assert result.files == given
    assert [call.exec for call in runtime.calls] == ["before", "bad"]
    assert result_list(result)["exitCode"] == 1


def test_compatible_mode_ignores_error_results() -> None:
    function = Python(f=lambda c: FunctionRun(c.items, (FunctionResult("wrong", "error"),)))

    assert run_pipeline(files(steps("f")), [function], FunctionPolicy(compatible=True)).ok


def test_all_functions_without_runtime_are_reported_and_nothing_runs() -> None:
    runtime = Python(known=append("1"))
    pipeline = steps("known", "missing") + "  - image: example.com/x:v1\n  - image: example.com/x:v1\n"

    policy = FunctionPolicy(exec={"missin": "m", "other": "o"})

    result = run_pipeline(files(pipeline, a=MAP.format(name="a")), [runtime, Python()], policy)

    assert [(each.function, each.reason, each.hint) for each in result.unrunnable] == [
        ("example.com/x:v1", "no such function", ""),
        ("missing", "no such function", "Did you mean missin?"),
    ]
    assert runtime.calls == []


MALFORMED = [
    "pipeline: []\n",
    "pipeline:\n  mutators:\n  - set-labels\n",
    "pipeline:\n  mutators:\n  - image: a\n    exec: b\n",
    "pipeline:\n  mutators:\n  - image: a\n    configPath: x\n    configMap: {a: b}\n",
    "pipeline:\n  mutators:\n  - image: a\n    configPath: ../x.yaml\n",
    "pipeline:\n  mutators:\n  - image: a\n    configPath: /x.yaml\n",
    "pipeline:\n  mutators:\n  - image: 3\n",
    "pipeline:\n  mutators:\n  - image: a\n    selectors: [x]\n",
]


@pytest.mark.parametrize("pipeline", MALFORMED)
def test_malformed_pipeline_is_an_error_with_its_path(pipeline: str) -> None:
    given = files(pipeline)

    result = run_pipeline(given)

    assert "pipeline" in result.error
    assert result.files == given


@pytest.mark.parametrize("conf", ["", "# nothing\n", MAP.format(name="a") + "---\n" + MAP.format(name="b")])
def test_a_config_path_needs_exactly_one_resource(conf: str) -> None:
    given = files("pipeline:\n  mutators:\n  - image: set-labels\n    configPath: conf.yaml\n", conf=conf)

    assert "configPath conf.yaml" in run_pipeline(given).error


def test_files_without_resources_are_not_passed_to_functions() -> None:
    runtime = Python(one=append("1"))
    given = files(steps("one"), a=MAP.format(name="a"), values="replicas: 3\n", chart="{{ if x }}\n")
    ignore = File.of(b"a.yaml\n")
    link: Files = given | {"link.yaml": File.of(b"a.yaml", Mode.SYMLINK), ".krmignore": ignore}

    result = run_pipeline(link, [runtime])

    assert [item["kind"] for item in runtime.calls[0].items] == ["Kptfile"]
    assert result.files == link
    assert "link.yaml" not in dict(result.unseen)


def test_annotations_of_the_protocol_are_not_written() -> None:
    def annotate(items: Sequence[dict[str, Any]]) -> None:
        for item in items:
            item["metadata"]["annotations"]["mine"] = "kept"

    result = run_pipeline(files(steps("f"), a=MAP.format(name="a")), [Python(f=change(annotate))])

    assert "kubernetes.io" not in text_of(result, "a")
    assert "    mine: kept\n" in text_of(result, "a")


def test_results_mask_values_of_secrets() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  k: old # kpt-set: ${k}\n"
    pipeline = (
        "pipeline:\n  mutators:\n  - image: apply-setters:v0.2\n    configMap: {k: hush5}\n"
        "    selectors: [{kind: Secret}]\n"
        "  - image: search-replace:v0.2\n    configMap: {by-value: hush5}\n"
        "    selectors: [{kind: Secret}]\n"
        "  - image: list-setters:v0.1\n"
    )

    result = run_pipeline(files(pipeline, secret=secret))

    assert "k: hush5 # kpt-set" in text_of(result, "secret")
    assert len(result.results) == 3
    assert "hush5" not in str(result.results)


SECRET = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  k: aHVudGVyMi1pcy1pdA==\n"
SPOKEN = [
    # A function that fails returns no resources: what it made is the value of no Secret.
    ("as it stands there", "aHVudGVyMi1pcy1pdA==", {0, 1}),
    ("decoded", "the password is hunter2-is-it, so there", {0, 1}),
    ("made by the function itself", "now it is correct-horse", {0}),
    ("encoded by the function", "now it is Y29ycmVjdC1ob3JzZQ==", {0}),
]


@pytest.mark.parametrize(("reason", "output", "masked"), SPOKEN, ids=[case[0] for case in SPOKEN])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_output_of_functions_masks_values_of_secrets(
    reason: str, output: str, masked: set[int], exit_code: int
) -> None:
    def talk(call: FunctionCall) -> FunctionRun:
        items = [
            {**item, "stringData": {"n": "correct-horse"}} if item["kind"] == "Secret" else item
            for item in call.items
        ]
        result = FunctionResult(output, "warning", field={"path": "data.k", "currentValue": [output]})
        return FunctionRun(items, (result,), exit_code, f"{output}\n")

    pipeline = steps("look", "talk", "talk")
    result = run_pipeline(files(pipeline, s=SECRET), [Python(look=change(len), talk=talk)])

    shown = str(result.steps[1:]) + str(result.error) + str(result_list(result))
    assert not any(value in shown for value in ("hunter2", "aHVudGVy")), reason
    assert any(value in shown for value in ("correct-horse", "Y29ycmVj")) is (exit_code not in masked)
    assert ("***" in shown) is (exit_code in masked)


def test_value_is_masked_after_a_function_made_another_object_of_its_secret() -> None:
    def turn(items: list[dict[str, Any]]) -> None:
        next(item for item in items if item["kind"] == "Secret")["kind"] = "ConfigMap"

    def talk(call: FunctionCall) -> FunctionRun:
        said = FunctionResult("a value", "warning", {"name": "hunter2-is-it"}, file={"path": "hunter2-is-it"})
        return FunctionRun(call.items, (said,), 1, "hunter2-is-it")

    result = run_pipeline(files(steps("turn", "talk"), s=SECRET), [Python(turn=change(turn), talk=talk)])

    assert result.error
    assert "hunter2" not in str(result.steps) + result.error + str(result_list(result))


def test_short_values_are_not_masked() -> None:
    secret = SECRET.replace("aHVudGVyMi1pcy1pdA==", "YQ==")

    def talk(call: FunctionCall) -> FunctionRun:
        return FunctionRun(call.items, (FunctionResult("a word"),))

    result = run_pipeline(files(steps("talk"), s=secret), [Python(talk=talk)])

    assert result.results[0].message == "a word"


OWNED = (
    "  annotations:\n    reconciler.dev/owner: fleet/default/web\n    reconciler.dev/location: edge/web\n"
    "upstream:\n  git: {repo: r, directory: d, ref: v1}\n"
    "upstreamLock:\n  git: {repo: r, directory: d, ref: v1, commit: c}\n"
    "info:\n  readinessGates:\n  - conditionType: config.injection.Net.a\n  - conditionType: theirs\n"
    'status:\n  conditions:\n  - {type: config.injection.Net.a, status: "False"}\n'
)


def _kptfile(edit: Callable[[dict[str, Any]], object]) -> Callable[[FunctionCall], FunctionRun]:
    def run(items: list[dict[str, Any]]) -> None:
        edit(next(item for item in items if item["kind"] == "Kptfile"))

    return change(run)


TRESPASSES = {
    'metadata.annotations."reconciler.dev/owner"': lambda k: k["metadata"]["annotations"].update(
        {"reconciler.dev/owner": "other/default/web"}
    ),
    'metadata.annotations."reconciler.dev/location"': lambda k: k["metadata"]["annotations"].pop(
        "reconciler.dev/location"
    ),
    "upstream": lambda k: k.update(upstream={"git": {"repo": "evil"}}),
    "upstreamLock": lambda k: k.pop("upstreamLock"),
    "status.conditions[type=config.injection.Net.a]": lambda k: k["status"]["conditions"][0].update(
        status="True"
    ),
    "info.readinessGates[conditionType=config.injection.Net.a]": lambda k: k["info"]["readinessGates"].pop(0),
    "apiVersion": lambda k: k.update(apiVersion="kpt.dev/v2"),
    "the place": lambda k: k["metadata"]["annotations"].update(
        {"internal.config.kubernetes.io/path": "other.yaml", "config.kubernetes.io/path": "other.yaml"}
    ),
}


@pytest.mark.parametrize("field", TRESPASSES)
def test_function_that_changes_ownership_fails(field: str) -> None:
    given = files(OWNED + steps("steal"), a=MAP.format(name="a"))

    result = run_pipeline(given, [Python(steal=_kptfile(TRESPASSES[field]))])

    assert result.refusal is Reason.PROTECTED_FIELD
    assert result.files == given
    assert "steal" in result.error
    assert f"changes {field} of the Kptfile" in result.error


def test_a_function_may_change_the_rest_of_the_kptfile() -> None:
    def edit(kptfile: dict[str, Any]) -> None:
        kptfile["metadata"]["labels"] = {"team": "a"}
        kptfile["info"]["readinessGates"].append({"conditionType": "mine"})

    result = run_pipeline(
        files(OWNED + steps("label"), a=MAP.format(name="a")), [Python(label=_kptfile(edit))]
    )

    assert result.ok, result.error
    assert b"conditionType: mine" in result.files["Kptfile"].data


def test_function_that_adds_a_kptfile_document_fails() -> None:
    def add(items: list[dict[str, Any]]) -> None:
        where = {"config.kubernetes.io/path": "Kptfile", "internal.config.kubernetes.io/path": "Kptfile"}
        items.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "annotations": where}}
        )

    result = run_pipeline(files(OWNED + steps("add"), a=MAP.format(name="a")), [Python(add=change(add))])

    assert result.refusal is Reason.PROTECTED_FIELD
    assert "the number of documents" in result.error


def test_functions_that_cannot_run_are_found_in_kptfiles_alone() -> None:
    unread = File(None, Mode.REGULAR, Oid(""))  # type: ignore[arg-type]

    result = run_pipeline({**files(steps("absent")), "a.yaml": unread})

    assert [each.function for each in result.unrunnable] == ["absent"]


MIGRATION = "Bring the package to kpt.dev/v1: https://kpt.dev/installation/migration."
LIST, STEP = "pipeline:\n  mutators:\n", "pipeline:\n  mutators:\n  - image: a\n"
FAULTS = {
    "pipeline:\n  mutator: []\n": "6:3: pipeline.mutator is no field of a Kptfile. Did you mean mutators?",
    f"{STEP}    selector: []\n": "8:5: pipeline.mutators[0].selector is no field of a Kptfile. Did you mean"
    " selectors?",
    f"{STEP}    selectors:\n    - kinds: Pod\n": "9:7: pipeline.mutators[0].selectors[0].kinds is no field"
    " of a Kptfile. Did you mean kind?",
    f"{STEP}    configMap:\n      envs: [dev]\n": "9:7: pipeline.mutators[0].configMap.envs must be one"
    " value, and is a list",
    "pipeline:\n  mutators: {}\n": "6:3: pipeline.mutators must be a list",
    "pipelines: {}\n": "5:1: pipelines is no field of a Kptfile. Did you mean pipeline?",
    f"---\n{HEAD}pipeline: {{}}\n": "6: The Kptfile has a second document, which nothing reads. Remove it, or"
    " give it its own file.",
    '"pipe\\u006cine":\n  mutator: []\n': "6:3: pipeline.mutator is no field of a Kptfile. Did you mean"
    " mutators?",
    f"{LIST}  - name: a\n": "7:5: pipeline.mutators[0] must have exactly one of image and exec",
}
"""What follows the name in a Kptfile, and the fault with its line and column."""
OLD = HEAD.replace("dev/v1", "dev/v1alpha2")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        *((HEAD + text, want) for text, want in FAULTS.items()),
        (OLD, f"1:1: The Kptfile has an old version (kpt.dev/v1alpha2) of its schema. {MIGRATION}"),
    ],
)
@pytest.mark.parametrize("directory", ["", "sub/"])
def test_fields_of_a_kptfile_that_are_not_understood_are_refused(
    directory: str, text: str, want: str
) -> None:
    files = files_of({"Kptfile": HEAD, f"{directory}Kptfile": text})

    assert run_pipeline(files).error == f"{directory}Kptfile:{want}"


def test_a_kptfile_in_another_encoding_is_refused() -> None:
    text = f"{HEAD}pipeline:\n  mutators:\n  - image: set-labels:v0.2\n"

    result = run_pipeline({"Kptfile": File.of(text.encode("utf-16"))})

    assert result.error == "Kptfile:1: The Kptfile is no UTF-8 text. Save it as UTF-8."


def test_a_pipeline_under_an_escaped_key_runs() -> None:
    key = '"pipe\\u006cine":\n  mutators:\n  - image: set-labels:v0.2\n    configMap: {a: b}\n'
    given = files_of({"Kptfile": HEAD + key, "a.yaml": MAP.format(name="a")})

    assert b"a: b" in run_pipeline(given).files["a.yaml"].data


def test_fields_of_a_kptfile_that_people_write_are_no_fault() -> None:
    known = (
        "metadata: {creationTimestamp: null, annotations: {a: b}}\n"
        "info: {keywords: [a], emails: [b], site: c}\n"
        "upstreamLock: {type: generic, generic: {storeID: a}}\ninventory: {name: a, inventoryID: b}\n"
        "status: {conditions: [{type: a, status: 'True'}], renderStatus: {errorSummary: a}}\npipeline: {}\n"
    )
    text = HEAD.partition("metadata")[0] + known

    assert run_pipeline(files_of({"Kptfile": text})).ok


@pytest.mark.parametrize(
    "text", ["resources: [a.yaml]\n", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"]
)
def test_kustomization_is_left_out_of_pipelines(text: str) -> None:
    kptfile = f"{HEAD}pipeline:\n  mutators:\n  - image: set-labels:v0.2.0\n    configMap: {{a: b}}\n"
    given = files_of({"Kptfile": kptfile, "kustomization.yaml": text, "a.yaml": MAP.format(name="a")})

    result = run_pipeline(given)

    assert result.ok
    assert result.files["kustomization.yaml"] is given["kustomization.yaml"]
    assert b"a: b" in result.files["a.yaml"].data


@pytest.mark.parametrize(
    ("image", "inline", "want"),
    [
        ("set-namespace:v0.4.1", "namespaces: a", "9: data.namespaces is no field of set-namespace. Did you"),
        ("set-namespace:v0.4.1", "namespaceMatcher: a", "9: data.namespaceMatcher is no field of"),
        ("kubeconform:v0.1.1", "strict: ture", "9: data.strict must be true or false. Did you mean true?"),
        ("kubeconform:v0.1.1", "strict: 'on'", "9: data.strict must be true or false. Write true or false."),
        ("generate-folders:v0.1", "parent: a", "9: data.parent is no field of generate-folders"),
        ("list-setters:v0.1", "name: a", "9: data.name is no field of list-setters"),
    ],
)
def test_keys_that_a_builtin_does_not_read_are_refused(image: str, inline: str, want: str) -> None:
    given = files_of(
        {
            "Kptfile": f"{HEAD}pipeline:\n  mutators:\n  - image: {image}\n    configMap:\n      {inline}\n",
            "a.yaml": MAP.format(name="a"),
        }
    )

    result = run_pipeline(given, (SchemaRuntime(),))

    assert result.error.startswith(f"mutators[0]: {image}: Kptfile:{want}")


def test_fields_of_a_configuration_that_a_builtin_does_not_read_are_refused() -> None:
    head = "apiVersion: fn.kpt.dev/v1alpha1\nkind: SetImage\nmetadata: {name: x}\n"
    kptfile = f"{HEAD}pipeline:\n  mutators:\n  - image: set-image:v0.1.2\n    configPath: c.yaml\n"
    given = files_of({"Kptfile": kptfile, "c.yaml": f"{head}images: {{name: a}}\nimage: [c]\n"})

    error = run_pipeline(given).error

    assert "c.yaml:4: images is no field of SetImage. Did you mean image?" in error
    assert "c.yaml:5: image must be a mapping" in error


def added(*resources: tuple[str, str]) -> Callable[[FunctionCall], FunctionRun]:
    """Return a function that adds ConfigMaps of these names, each at a path or at none."""

    def add(items: list[dict[str, Any]]) -> None:
        for name, path in resources:
            place = {"annotations": {"internal.config.kubernetes.io/path": path}} if path else {}
            items.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **place}})

    return change(add)


@pytest.mark.parametrize(
    ("resources", "there", "written"),
    [
        ([("x", "")], {}, ["configmap_x.yaml"]),
        ([("X", ""), ("x", "")], {}, ["configmap_x-2.yaml", "configmap_x.yaml"]),
        ([("X", "")], {"configmap_x": MAP.format(name="other")}, ["configmap_x-2.yaml"]),
        ([("x", "")], {"configmap_x": MAP.format(name="other")}, ["configmap_x.yaml"]),  # joined as by kpt
        ([("X", "")], {"configmap_x": MAP.format(name="other"), "configmap_x-2": MAP.format(name="X")},
            ["configmap_x-2.yaml"]),
        ([("X", "")], {f"configmap_{n}": MAP.format(name=name) for n, name in
            (("x", "other"), ("x-2", "third"), ("x-3", "X"))}, ["configmap_x-3.yaml"]),
        ([("x", ""), ("x.yaml/y", "")], {}, ["configmap_x.yaml", "configmap_x.yaml-2/y.yaml"]),
        ([("x", "A.yaml")], {"a": MAP.format(name="other")}, ["A.yaml"]),  # who knows main decides
        ([("x", "a.yaml/b.yaml")], {"a": MAP.format(name="other")}, None),
        ([("x", "b.yaml"), ("y", "b.yaml/c.yaml")], {}, None),
    ],
)  # fmt: skip
def test_new_resources_get_files_that_clash_with_none(
    resources: list[tuple[str, str]], there: dict[str, str], written: list[str] | None
) -> None:
    given = files(steps("add"), **there)
    results = [run_pipeline(given, [Python(add=added(*resources[::order]))]) for order in (1, -1)]

    for result in results:
        if written is None:
            assert result.refusal is Reason.INVALID_PACKAGE
            assert "it would be both a file and a directory" in result.error
            assert result.files == given
        else:
            assert result.ok, result.error
            assert sorted(path for path, file in result.files.items() if given.get(path) != file) == written
            assert result.steps[0].files == tuple(path for path in written if path not in given)
    assert dict(results[0].files) == dict(results[1].files)


def test_files_that_were_whole_in_any_earlier_version_are_broken() -> None:
    whole = MAP.format(name="a")
    local = whole.replace(
        "metadata:", 'metadata:\n  annotations: {config.kubernetes.io/local-config: "true"}'
    )
    first = files("", a=whole, same="b: [", local=local)
    second = files("", b=whole, same="b: [")
    now = files("", a="a: [", b="b: [", same="b: [", local="c: [", new="d: [")

    assert broken_files(now, [now, first, second]).keys() == {"a.yaml", "b.yaml"}
    assert broken_files(now, [now]) == {}
