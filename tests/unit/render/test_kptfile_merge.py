"""Kptfiles across an update: which of their lists merge by which keys, and what is read from them."""

import pytest

from reconciler.krm.yaml import YamlError
from reconciler.names.objects import File
from reconciler.render.kptfile import kptfile_value
from reconciler.render.update import update_package
from reconciler.render.update.conflicts import UpdateRefused
from reconciler.render.update.kptfile_merge import UpstreamRef, edit_upstream, set_upstream
from tests.support.model import package

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"


def functions(kind: str, *items: str) -> str:
    return "".join([f"  {kind}:\n", *(f"  - {item}\n" for item in items)])


def merged(base: str, upstream: str, local: str) -> dict[str, object]:
    sides = (package({"Kptfile": HEAD + text}) for text in (base, upstream, local))
    done = update_package(*sides)
    assert not done.conflicts
    return kptfile_value(done.files["Kptfile"].data)


@pytest.mark.parametrize("kind", ["mutators", "validators"])
def test_functions_merge_by_name(kind: str) -> None:
    base = "pipeline:\n" + functions(kind, "image: a:v1\n    name: a", "image: b:v1\n    name: b")
    upstream = base.replace("a:v1", "a:v2")
    local = base.replace("b:v1", "b:v2")

    pipeline = merged(base, upstream, local)["pipeline"]

    assert pipeline == {kind: [{"image": "a:v2", "name": "a"}, {"image": "b:v2", "name": "b"}]}


@pytest.mark.parametrize("kind", ["mutators", "validators"])
def test_functions_without_a_name_merge_by_image(kind: str) -> None:
    base = "pipeline:\n" + functions(kind, "image: a:v1", "image: b:v1")
    upstream = base.replace("a:v1", "a:v2")
    local = base + "  - image: c:v1\n"

    pipeline = merged(base, upstream, local)["pipeline"]

    assert pipeline == {kind: [{"image": "a:v2"}, {"image": "b:v1"}, {"image": "c:v1"}]}


@pytest.mark.parametrize(
    ("field", "key"), [("readinessGates", "conditionType"), ("keywords", ""), ("emails", "")]
)
def test_lists_of_info_merge_by_their_elements(field: str, key: str) -> None:
    def text(*names: str) -> str:
        items = "".join(f"  - {key}: {name}\n" if key else f"  - {name}\n" for name in names)
        return f"info:\n  {field}:\n{items}"

    info = merged(text("a"), text("a", "b"), text("a", "c"))["info"]

    found = info[field]  # type: ignore[index]
    assert sorted(str(item[key] if key else item) for item in found) == ["a", "b", "c"]


def test_conditions_merge_by_type() -> None:
    def text(*pairs: str) -> str:
        return "status:\n  conditions:\n" + "".join(
            f"  - type: {p[0]}\n    status: '{p[1]}'\n" for p in pairs
        )

    status = merged(text("a0", "b0"), text("a1", "b0"), text("a0", "b1"))["status"]

    assert status == {"conditions": [{"type": "a", "status": "1"}, {"type": "b", "status": "1"}]}


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_conflict_in_metadata_of_a_kptfile_is_named_by_its_path(field: str) -> None:
    def side(value: str) -> str:
        return HEAD + f"  {field}:\n    a: {value}\n"

    base, upstream, local = (package({"Kptfile": side(value)}) for value in ("one", "two", "three"))

    (conflict,) = update_package(base, upstream, local).conflicts

    assert (conflict.path, conflict.field) == ("Kptfile", f"metadata.{field}.a")


OWNER = "  annotations:\n    reconciler.dev/location: edge/web\n    reconciler.dev/owner: fleet/default/web\n"
UPSTREAM = "upstream: {type: git, git: {repo: r, directory: web, ref: web/v1}}\n"


@pytest.mark.parametrize("head", [HEAD, HEAD + OWNER], ids=["plain", "owned"])
@pytest.mark.parametrize(
    "rest",
    ["", "  labels: {a: b}\n", "    note: x\n", f"{UPSTREAM}# end", "? upstream\n: git: {}\n", "a: [\n"],
)
def test_upstream_is_written_alike_with_and_without_a_look_at_the_head(head: str, rest: str) -> None:
    file = File.of((head + rest).encode())
    outcomes = []
    for write in (set_upstream, edit_upstream):
        try:
            outcomes.append(write(file, UpstreamRef("repo", "web", "web/v2", "a" * 40)))
        except (UpdateRefused, YamlError) as error:
            outcomes.append(str(error))

    assert outcomes[0] == outcomes[1]
