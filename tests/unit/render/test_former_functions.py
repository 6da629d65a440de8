"""What a function wrote that upstream took out of the pipeline is named where an edited file still has it."""

import json
from typing import Any

import pytest

from reconciler.api.porch import Downstream, Function, PackageVariantSpec, Pipeline, Upstream
from reconciler.names.objects import Files
from tests.support.model import MAIN, ModelWorld, kptfile, package, web_spec

APP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {0}\ndata:\n  color: red\n  size: s\n"
NAMESPACE = {"image": "gcr.io/kpt-fn/set-namespace:v0.4.1", "configMap": {"namespace": "shop"}}
LABELS = {"image": "set-labels:v0.2.0", "configMap": {"team": "web"}}
SETTER = {
    "image": "search-replace:v0.2.0",
    "configMap": {"by-value": "red", "put-value": "blue"},
    "selectors": [{"kind": "ConfigMap"}],
}
PATH = {"by-path": "metadata.namespace", "put-value": "shop"}
SAME = {"image": "search-replace:v0.2.0", "configMap": PATH}


def published(mutators: list[dict[str, Any]]) -> dict[str, str]:
    pipeline = f"pipeline: {json.dumps({'mutators': mutators})}\n" if mutators else ""
    return {"Kptfile": kptfile("web", pipeline), "a.yaml": APP.format("a"), "b.yaml": APP.format("b")}


def warnings(before: dict[str, str], after: dict[str, str], edit: tuple[str, str]) -> list[str]:
    """Return what the update of a package says of which people edited a.yaml."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    for revision, files in enumerate((before, after), start=1):
        world.publish("blueprints", "web", package(files), revision)
    for revision in (1, 2):
        upstream = Upstream(repo="blueprints", package="web", revision=revision)
        downstream = Downstream(repo="edge", package="web")
        world.variants["web"] = PackageVariantSpec(upstream=upstream, downstream=downstream)
        plan = world.run()
        if revision == 1:
            world.merge("edge", world.drafts("edge")[0])
            world.run()
            text = world.repositories["edge"].at(MAIN).packages["web"]["a.yaml"].data.decode()
            world.edit("edge", "web", {"a.yaml": text.replace(*edit)})
    return [str(warning) for warning in plan.changes[0].warnings]


EDIT = ("size: s", "size: mine")
WROTE = "wrote what edited files still have"
SAID = f"Functions that are no longer in the pipeline {WROTE}"
ADVICE = "Files without edits lose it. Remove it in the draft too, or leave it there on purpose"

MORE, TIER = {"team": "web", "more": "x"}, {"tier": "front"}
ROWS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[str, str], str]] = {
    "a namespace": ([NAMESPACE], [], EDIT,
        "metadata.namespace of ConfigMap a in a.yaml (set-namespace:v0.4.1)"),
    "a label, beside another function": ([LABELS, SETTER], [SETTER], EDIT,
        "metadata.labels.team of ConfigMap a in a.yaml (set-labels:v0.2.0)"),
    "a replaced value, beside another function": ([LABELS, SETTER], [LABELS], EDIT,
        "data.color of ConfigMap a in a.yaml (search-replace:v0.2.0)"),
    "the first of two of a name": ([LABELS, {**LABELS, "configMap": TIER}], [{**LABELS, "configMap": TIER}],
        EDIT, "metadata.labels.team of ConfigMap a in a.yaml (set-labels:v0.2.0)"),
    "nobody edited a file": ([NAMESPACE], [], ("", ""), ""),
    "the value is people's own": ([NAMESPACE], [], ("shop", "mine"), ""),
    "another version": ([NAMESPACE], [{**NAMESPACE, "image": "set-namespace:v0.4.5"}], EDIT, ""),
    "another configuration": ([LABELS], [{**LABELS, "configMap": MORE}], EDIT, ""),
    "another configuration, which writes something else": ([LABELS], [{**LABELS, "configMap": TIER}], EDIT,
        "metadata.labels.team of ConfigMap a in a.yaml (set-labels:v0.2.0)"),
    "another configuration, which writes the same field": ([NAMESPACE],
        [{**NAMESPACE, "configMap": {"namespace": "other"}}], EDIT, ""),
    "another function that writes the same": ([NAMESPACE], [SAME], EDIT, ""),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "edit", "fields"), ROWS.values(), ids=ROWS)
def test_value_of_a_function_that_is_gone_is_named_where_an_edited_file_has_it(
    before: list[dict[str, Any]], after: list[dict[str, Any]], edit: tuple[str, str], fields: str
) -> None:
    (*_, said) = ["", *warnings(published(before), published(after), edit)]

    why = "are no longer in the pipeline" if len(after) < len(before) else "have another configuration now"
    assert said == (f"Functions that {why} {WROTE}: {fields}. {ADVICE}" if fields else "")


APPLY = {"image": "apply-setters:v0.2.2", "configPath": "setters.yaml"}
SETTERS = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: setters,"
    " annotations: {config.kubernetes.io/local-config: 'true'}}\ndata: {color: red, size: %s}\n"
)
FLOW = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n  color: red\n"


def updated(
    before: list[dict[str, Any]], after: list[dict[str, Any]], files: dict[str, str], edit: dict[str, str]
) -> tuple[Files, list[str]]:
    """Return the draft of an update after an edit of people, with the warnings about it."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    sizes = zip((before, after), "sm", strict=True)
    for revision, (mutators, size) in enumerate(sizes, start=1):
        setters = {"setters.yaml": SETTERS % size}
        world.publish("blueprints", "web", package(published(mutators) | setters | files), revision)
    world.variants["web"] = web_spec(1)
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    main = world.repositories["edge"].at(MAIN).packages["web"]
    (path,) = edit
    old, new = edit[path].split(" -> ")
    world.edit("edge", "web", {path: main[path].data.decode().replace(old, new)})
    world.variants["web"] = web_spec(2)
    plan = world.run()
    (draft,) = world.drafts("edge")
    warnings = [str(warning) for warning in plan.changes[0].warnings]
    return world.repositories["edge"].at(draft).packages["web"], warnings


def test_untouched_files_in_flow_style_lose_what_a_dropped_function_wrote() -> None:
    """Flow style has no line for a merge comment: the identifier alone has the name of upstream."""
    files = {"a.yaml": FLOW % "a", "b.yaml": FLOW % "b"}

    draft, warnings = updated([NAMESPACE], [], files, {"a.yaml": "red -> mine"})

    a, b = (draft[path].data.decode() for path in ("a.yaml", "b.yaml"))
    assert "color: mine" in a
    assert "namespace: shop" in a
    assert '"|ConfigMap|default|a"' in a
    assert "namespace" not in b
    assert '"|ConfigMap|default|b"' in b
    assert warnings == [
        f"{SAID}: metadata.namespace of ConfigMap shop/a in a.yaml (set-namespace:v0.4.1). {ADVICE}"
    ]


@pytest.mark.parametrize("function", [LABELS, NAMESPACE], ids=["labels", "namespace"])
def test_file_that_a_changed_setter_makes_anew_loses_what_a_dropped_function_wrote(function) -> None:
    files = {"a.yaml": APP.format("a").replace("red", "red # kpt-set: ${color}")}

    draft, warnings = updated(
        [APPLY, function], [APPLY], files, {"setters.yaml": "color: red -> color: blue"}
    )

    text = draft["a.yaml"].data.decode()
    assert "color: blue" in text
    assert "team" not in text
    assert "namespace" not in text
    assert not warnings


def test_what_a_function_wrote_stays_where_people_dropped_it_themselves() -> None:
    files = {"a.yaml": APP.format("a").replace("red", "red # kpt-set: ${color}")}
    edit = f", {json.dumps(LABELS)} -> "

    draft, _ = updated([APPLY, LABELS], [APPLY, LABELS], files, {"Kptfile": edit})

    assert "set-labels" not in draft["Kptfile"].data.decode()
    assert "team: web" in draft["a.yaml"].data.decode()


def test_changed_setter_beside_a_moved_one_is_no_output_that_a_function_changes() -> None:
    files = {"a.yaml": APP.format("a").replace("red", "red # kpt-set: ${color}")}

    draft, warnings = updated([APPLY], [APPLY], files, {"setters.yaml": "color: red -> color: blue"})

    assert "color: blue" in draft["a.yaml"].data.decode()
    assert not warnings


def replacing(value: str) -> Pipeline:
    values = {"by-value": "red", "put-value": value}
    return Pipeline(mutators=[Function(image="search-replace:v0.2.0", name="x", config_map=values)])


@pytest.mark.parametrize(
    ("pipeline", "color"), [(replacing("green"), "green"), (None, "red")], ids=["changed", "dropped"]
)
def test_what_a_function_made_of_its_own_arguments_is_no_edit(pipeline: Pipeline | None, color: str) -> None:
    """It sees the Kptfile too, and replaces the value that it looks for there."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    both = package(published([]))
    for revision, files in enumerate((both, {p: f for p, f in both.items() if p != "b.yaml"}), start=1):
        world.publish("blueprints", "web", files, revision)

    for spec in (web_spec(1, pipeline=replacing("blue")), web_spec(2, pipeline=pipeline)):
        world.variants["web"] = spec
        assert [change.conflicts for change in world.run().changes] == [()]
        world.merge("edge", world.drafts("edge")[0])
        world.edit("edge", "web", {"mine.txt": "x\n"})
        world.run()

    main = world.repositories["edge"].at(MAIN).packages["web"]
    assert f"color: {color}\n" in main["a.yaml"].data.decode()
    assert "b.yaml" not in main
    assert ("by-value: red\n" in main["Kptfile"].data.decode()) is (pipeline is not None)
