"""Clone, update and adoption of one package, and the base that an adopted one is compared with."""

from typing import Any

import pytest

from reconciler.api.porch import PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Source
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.policy import Policy
from reconciler.render.kptfile import kptfile_value
from reconciler.render.merging import (
    NearestBase,
    PackageInProgress,
    RenderedSides,
    VariantInputs,
    base_not_found,
    find_nearest_base,
    replaced_values,
    update_local,
)
from reconciler.render.rendered import Blocked
from reconciler.render.update import ConflictPolicy
from reconciler.resolve.resolution import Pin
from tests.support.model import kptfile, package
from tests.support.plan_values import WEB, a_desired_variant, a_pin, a_resolved, oid
from tests.support.values import replace

BROKEN = package({"Kptfile": "a: [", "app.yaml": ""})
ASK = ConflictPolicy()


def app(color: str, **more: str) -> str:
    extra = "".join(f"  {name}: {text}\n" for name, text in more.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  color: {color}\n{extra}"


def a_package(color: str, name: str = "web", **files: str) -> Files:
    return package({"Kptfile": kptfile(name), "app.yaml": app(color), **files})


PIN, BASE = a_pin(2, repo="https://host/blueprints"), a_pin(1)


def inputs(contents: dict[Oid, Files], sides: RenderedSides | None = None, **fields: Any) -> VariantInputs:
    spec = PackageVariantSpec(package_context=fields.pop("context", None))
    variant = a_desired_variant(spec=spec, source=Source(Location("web.yaml")))
    resolved = a_resolved(variant=variant, view=WEB, pin=PIN, **fields)
    return VariantInputs(resolved, contents, sides or {}, Policy())


def lock_of(files: Files) -> dict[str, Any]:
    lock: dict[str, Any] = kptfile_value(files["Kptfile"].data)["upstreamLock"]
    return lock


LOCK = {
    "type": "git",
    "git": {"repo": "https://host/blueprints", "directory": "web", "ref": "web/v2", "commit": PIN.commit.oid},
}


def test_package_whose_base_is_lost_is_blocked_with_what_to_do() -> None:
    blocked = update_local(inputs({}, lost_base="It is gone"), a_package("blue"), oid("b1"), None, ASK)

    assert blocked == base_not_found("It is gone")
    assert blocked == Blocked(
        Reason.BASE_NOT_FOUND,
        "There is no base to merge from: It is gone",
        "Register the repository that has the commit again, or push the commit to it. If it is gone for good,"
        " write the commit of the upstream that the content comes from into upstreamLock of the Kptfile.",
    )


# Adoption


def adopt(local: Files, *candidates: Pin, contents: dict[Oid, Files]) -> PackageInProgress | Blocked:
    return update_local(inputs(contents, candidates=candidates), local, oid("b1"), None, ASK)


def test_package_without_upstreamlock_is_merged_from_the_nearest_revision() -> None:
    local = package({"Kptfile": kptfile("web"), "app.yaml": app("blue", own="x")})
    contents = {PIN.tree: a_package("green", **{"new.txt": "n\n"}), BASE.tree: a_package("blue")}

    adopted = adopt(local, PIN, BASE, contents=contents)

    assert isinstance(adopted, PackageInProgress)
    text = adopted.files["app.yaml"].data.decode()
    assert "color: green" in text
    assert "own: x" in text
    assert adopted.files["new.txt"].data == b"n\n"
    assert lock_of(adopted.files) == LOCK
    assert adopted.notes == (
        "There was no upstreamLock: compared with web/v1, the nearest published revision",
    )


def test_package_with_nothing_in_common_gets_all_of_upstream() -> None:
    adopted = adopt(package({"own.txt": "o\n"}), PIN, contents={PIN.tree: a_package("green")})

    assert isinstance(adopted, PackageInProgress)
    assert adopted.files.keys() == {"Kptfile", "app.yaml", "own.txt"}
    assert adopted.notes == ("There was no upstreamLock: nothing to compare",)


def test_adoption_is_blocked_by_a_broken_kptfile_of_either_side() -> None:
    local = a_package("blue")
    for contents in (
        {PIN.tree: a_package("green"), BASE.tree: BROKEN},
        {PIN.tree: BROKEN, BASE.tree: a_package("blue")},
    ):
        nearest = [BASE] if contents[BASE.tree] is BROKEN else [BASE, PIN]
        assert isinstance(adopt(local, *nearest, contents=contents), Blocked)


# Nearest base


def files_of(**texts: str) -> Files:
    return package({f"{name}.txt": text for name, text in texts.items()})


NEAREST: dict[str, tuple[dict[str, str], dict[int, dict[str, str]], int | None]] = {
    "the same": ({"a": "1\n2\n3\n"}, {1: {"a": "1\n2\n3\n"}, 2: {"a": "1\n"}}, 1),
    "fewest lines": ({"a": "1\n2\n3\n"}, {1: {"a": "1\n2\n"}, 2: {"a": "4\n5\n6\n"}}, 1),
    "the newest of equal ones": ({"a": "1\n"}, {1: {"a": "1\n"}, 2: {"a": "1\n"}}, 2),
    "the newest of equal ones in any order": ({"a": "1\n"}, {2: {"a": "1\n"}, 1: {"a": "1\n"}}, 2),
    "files that it lacks are added lines": ({"a": "1\n", "b": "1\n2\n3\n"},
        {1: {"a": "2\n", "b": "1\n2\n3\n"}, 2: {"a": "1\n"}}, 1),
    "files that local lacks do not count": ({"a": "1\n"}, {1: {"a": "1\n", "x": "x\n"}, 2: {"a": "2\n"}}, 1),
    "equal lines are counted": ({"a": "1\n1\n"}, {1: {"a": "1\n1\n2\n"}, 2: {"a": "1\n2\n3\n"}}, 1),
    "none shares a file": ({"a": "1\n"}, {1: {"b": "1\n"}}, None),
    "the only one that shares a file": ({"a": "1\n"}, {1: {"b": "1\n"}, 2: {"a": "9\n"}}, 2),
    "an empty package": ({}, {1: {"a": "1\n"}}, None),
}  # fmt: skip


@pytest.mark.parametrize(("local", "revisions", "nearest"), NEAREST.values(), ids=NEAREST)
def test_nearest_revision_is_the_one_with_the_fewest_changed_lines(local, revisions, nearest) -> None:
    pins = {number: a_pin(number) for number in revisions}
    contents = {pins[number].tree: files_of(**texts) for number, texts in revisions.items()}

    base = find_nearest_base(pins.values(), contents, files_of(**local))

    if nearest is None:
        assert base is None
    else:
        shared = {name: text for name, text in revisions[nearest].items() if name in local}
        assert base == NearestBase(pins[nearest], files_of(**shared))


def test_first_name_of_equal_unnumbered_revisions_wins() -> None:
    pins = [replace(a_pin(), revision=-1, ref=ref) for ref in ("web/b", "web/a")]

    base = find_nearest_base(pins, {pins[0].tree: files_of(a="1\n")}, files_of(a="1\n"))

    assert base
    assert base.pin.ref == "web/a"


def test_adoption_names_the_values_that_it_replaces_and_not_what_it_adds() -> None:
    spec = "spec:\r\n  a: mine\r\n  gone: 1\r\n  ports:\r\n  - name: x\r\n    port: 1\r\n"
    before = f"kind: Net\r\nmetadata:\r\n  name: n\r\n{spec}"
    after = (
        before.replace("mine", "theirs")
        .replace("  gone: 1\r\n", "  new: 1\r\n")
        .replace("port: 1", "port: 2")
    )
    local = package(
        {
            "Kptfile": kptfile("web"),
            "net.yaml": f"kind: Other\r\nmetadata:\r\n  name: o\r\n---\r\n{before}",
            "a.yaml": "a",
        }
    )
    result = package(
        {
            "Kptfile": kptfile("x"),
            "net.yaml": f"kind: Other\r\nmetadata:\r\n  name: o\r\n---\r\n{after}",
            "b.yaml": "b",
        }
    )

    replaced = ["spec.a in net.yaml", "spec.gone in net.yaml", "spec.ports[0].port in net.yaml"]
    assert sorted(replaced_values(local, result, {})) == replaced
    assert replaced_values(local, local, {}) == []
    renamed = File.of(result["net.yaml"].data.replace(b"name: n\r\n", b"name: pre-n\r\n"))
    assert sorted(replaced_values(local, {**result, "net.yaml": renamed}, {})) == [
        "metadata.name in net.yaml",
        *replaced,
    ]


def test_adoption_names_no_value_that_nobody_changed_since_upstream() -> None:
    text = "kind: Net\nmetadata:\n  name: n\nspec:\n  a: 1\n  b: 1\n"
    base, local, result = (
        package({"net.yaml": text.replace("a: 1", f"a: {a}").replace("b: 1", f"b: {b}")})
        for a, b in ((1, 1), (2, 1), (3, 3))
    )

    assert replaced_values(local, result, base) == ["spec.a in net.yaml"]
