"""The wire format of functions: items with their places, and results in the shapes that functions write."""

from typing import Any

import pytest

from reconciler.functions.protocol import (
    FunctionResult,
    from_items,
    parse_results,
    place_of,
    result_value,
    to_items,
)
from reconciler.functions.resources import Resource

PATH, INDEX = "internal.config.kubernetes.io/path", "internal.config.kubernetes.io/index"
OLD_PATH, OLD_INDEX = "config.kubernetes.io/path", "config.kubernetes.io/index"


def resource(
    name: str, path: str = "r.yaml", index: int = 0, package: str = "", kind: str = "Foo"
) -> Resource:
    return Resource({"kind": kind, "metadata": {"name": name}}, path=path, package=package, index=index)


@pytest.mark.parametrize(
    ("annotations", "place"),
    [
        ({}, None),
        ({INDEX: "1"}, None),
        ({PATH: "a.yaml"}, {"path": "a.yaml"}),
        ({PATH: "a.yaml", INDEX: "0"}, {"path": "a.yaml"}),
        ({PATH: "a.yaml", INDEX: "2"}, {"path": "a.yaml", "index": 2}),
        ({OLD_PATH: "a.yaml", OLD_INDEX: "2"}, {"path": "a.yaml", "index": 2}),
        ({PATH: "a.yaml", OLD_PATH: "b.yaml"}, {"path": "a.yaml"}),
        ({PATH: "a.yaml", INDEX: "two"}, {"path": "a.yaml"}),
        ({PATH: "a.yaml", INDEX: "1234567890"}, {"path": "a.yaml"}),
    ],
)
def test_place_of_an_item(annotations: dict[str, str], place: dict[str, Any] | None) -> None:
    assert place_of({"metadata": {"annotations": annotations}}) == place


def test_item_without_metadata_comes_back_as_it_was_unless_a_function_gave_it_some() -> None:
    sent = [Resource({"kind": "Foo"}, path="r.yaml")]
    bare, named = to_items(sent), to_items(sent)
    named[0]["metadata"]["name"] = "a"

    assert [r.value for r in from_items(bare, sent, "")] == [{"kind": "Foo"}]
    assert [r.value for r in from_items(named, sent, "")] == [{"kind": "Foo", "metadata": {"name": "a"}}]


@pytest.mark.parametrize(
    ("reason", "annotations", "kind", "is_new"),
    [
        ("its id", {"internal.config.kubernetes.io/id": "1"}, "Foo", False),
        ("its id, though it is of another kind", {"internal.config.kubernetes.io/id": "1"}, "Bar", False),
        ("its place, where ids are lost", {PATH: "r.yaml", INDEX: "0"}, "Foo", False),
        ("its old place", {OLD_PATH: "r.yaml", OLD_INDEX: "0"}, "Foo", False),
        ("another kind at its place", {PATH: "r.yaml", INDEX: "0"}, "Bar", True),
        ("another place", {PATH: "r.yaml", INDEX: "1"}, "Foo", True),
        ("an unknown id", {"internal.config.kubernetes.io/id": "7", PATH: "r.yaml", INDEX: "0"}, "Foo", True),
    ],
)
def test_item_is_matched_by(reason: str, annotations: dict[str, str], kind: str, *, is_new: bool) -> None:
    sent = resource("a")
    item = {"kind": kind, "metadata": {"name": "changed", "annotations": annotations}}

    (received,) = from_items([item], [sent], "")

    assert (received is not sent) is is_new, reason
    assert received.value == {"kind": kind, "metadata": {"name": "changed"}}


@pytest.mark.parametrize(
    ("annotations", "place"),
    [
        ({PATH: "r.yaml", OLD_PATH: "new.yaml"}, ("sub/new.yaml", 0)),
        ({PATH: "new.yaml", OLD_PATH: "r.yaml"}, ("sub/new.yaml", 0)),
        ({PATH: "new.yaml", OLD_PATH: "other.yaml"}, ("sub/new.yaml", 0)),
        ({OLD_PATH: "new.yaml"}, ("sub/new.yaml", 0)),
        ({PATH: "/other/new.yaml"}, ("sub/other/new.yaml", 0)),
        ({PATH: "r.yaml", INDEX: "0", OLD_INDEX: "3"}, ("sub/r.yaml", 3)),
        ({PATH: "r.yaml", OLD_PATH: "new.yaml", INDEX: "0", OLD_INDEX: "3"}, ("sub/new.yaml", 3)),
        ({}, ("sub/r.yaml", 0)),
    ],
)
def test_place_that_a_function_changed_counts(annotations: dict[str, str], place: tuple[str, int]) -> None:
    sent = resource("a", "sub/r.yaml", package="sub")
    known = {"internal.config.kubernetes.io/id": "1", INDEX: "0", **annotations}

    (received,) = from_items([{"kind": "Foo", "metadata": {"annotations": known}}], [sent], "sub")

    assert (received.path, received.index) == place


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"message": "m", "severity": "error"}, FunctionResult("m", "error")),
        ({"message": "m", "severity": "fatal"}, FunctionResult("m", "info")),
        ({}, FunctionResult("", "info")),
        ({"field": {"path": "a", "suggestedValue": 1}},
            FunctionResult("", "info", field={"path": "a", "proposedValue": 1})),
        ({"field": "a"}, FunctionResult("", "info")),
        ({"field": {}}, FunctionResult("", "info", field={})),
        ({"resourceRef": {"kind": "Foo", "metadata": {"name": "a", "namespace": "x", "uid": "u"}}},
            FunctionResult("", "info", {"kind": "Foo", "name": "a", "namespace": "x"})),
        ({"file": {"path": "r.yaml"}, "tags": {"t": "1"}},
            FunctionResult("", "info", None, None, {"path": "r.yaml"}, {"t": "1"})),
    ],
)  # fmt: skip
@pytest.mark.parametrize("listed", [True, False])
def test_result_is_read_in_every_shape(
    given: dict[str, Any], result: FunctionResult, *, listed: bool
) -> None:
    assert parse_results({"items": [given]} if listed else [given, "text"]) == (result,)


@pytest.mark.parametrize("given", [None, "text", {"items": "text"}, 3, [1]])
def test_what_is_no_list_has_no_results(given: Any) -> None:
    assert parse_results(given) == ()


def test_result_is_written_without_empty_parts() -> None:
    full = FunctionResult("m", "error", {"kind": "Foo"}, {"path": "a"}, {"path": "r.yaml"}, {"t": "1"})

    assert result_value(FunctionResult("m", "info", {}, {})) == {"message": "m", "severity": "info"}
    assert parse_results([result_value(full)]) == (full,)
