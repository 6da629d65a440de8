"""Sides of a merge: rendered by local's pipeline, with the fields that we write ourselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.render.merging import (
    UpdateTrees,
    render_sides,
    with_own_fields,
)
from reconciler.render.update.sides import Sides
from reconciler.resolve.resolution import ResolvedVariant
from tests.support import plan_values
from tests.support.model import package
from tests.support.plan_values import a_pin, oid

OLD, NEW, LOCAL = oid("c1"), oid("c2"), oid("b1")
TREES = UpdateTrees(OLD, NEW, LOCAL)
KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
MUTATED = KPTFILE + "pipeline:\n  mutators:\n  - image: set-labels:v1\n    configPath: labels.yaml\n"


def config_map(name: str, value: str, **data: str) -> str:
    more = "".join(f"  {key}: {text}\n" for key, text in data.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {value}\n{more}"


def a_resolved(**fields: Any) -> ResolvedVariant:
    given: dict[str, Any] = {"pin": a_pin(2), "base": a_pin(1), "local": LOCAL, **fields}
    return plan_values.a_resolved(**given)


# Rendering of upstream sides


@dataclass
class Renderer:
    """Renders packages by adding a file with what they have, and records what it was given first.

    Later it is asked whether the pipeline changes its own output, which it does not.
    """

    failing: frozenset[int] = frozenset()
    given: list[Files] = field(default_factory=list)

    def __call__(self, packages: Sequence[Files]) -> list[Any]:
        if self.given:
            return [Done(files) for files in packages]
        self.given = list(packages)
        return [
            Done({**files, **package({"done.yaml": str(number)})}, ok=number not in self.failing)
            for number, files in enumerate(packages)
        ]


@dataclass
class Done:
    """The result of a pipeline."""

    files: Files
    ok: bool = True
    is_postponed: bool = False


def texts(files: Files) -> dict[str, str]:
    return {path: file.data.decode() for path, file in files.items()}


def a_side(value: str, *, kptfile: str = KPTFILE, labels: str = "x") -> Files:
    own = {
        "Kptfile": kptfile,
        "app.yaml": config_map("app", value),
        "labels.yaml": config_map("labels", labels),
    }
    return package(own)


def contents(local: Files, old: Files | None = None, new: Files | None = None) -> dict[Oid, Files]:
    return {OLD: old or a_side("1"), NEW: new or a_side("2"), LOCAL: local}


def rendered(
    trees: Mapping[Oid, Files], *variants: ResolvedVariant, failing: frozenset[int] = frozenset()
) -> tuple[Any, list[Files]]:
    renderer = Renderer(failing)
    sides = render_sides(variants or (a_resolved(),), trees, renderer)
    return sides, renderer.given


@pytest.mark.parametrize(
    ("local", "old", "new"),
    [
        pytest.param(a_side("3"), None, None, id="no pipeline"),
        pytest.param(a_side("1", kptfile=MUTATED), None, None, id="local changed no file"),
        pytest.param(
            {**a_side("1", kptfile=MUTATED, labels="y"), **package({"package-context.yaml": "data: {}\n"})},
            None,
            None,
            id="local changed what is compared unrendered",
        ),
        pytest.param(a_side("3", kptfile=MUTATED), package({"Kptfile": "a: ["}), None, id="no old Kptfile"),
        pytest.param(a_side("3", kptfile=MUTATED), None, package({"Kptfile": "a: ["}), id="no new Kptfile"),
    ],
)
def test_update_that_needs_no_rendering_is_left_out(
    local: Files, old: Files | None, new: Files | None
) -> None:
    assert rendered(contents(local, old, new)) == ({}, [])


def test_updates_of_several_variants_are_rendered_once_and_apart() -> None:
    trees = contents(a_side("3", kptfile=MUTATED)) | {oid("b9"): a_side("9", kptfile=MUTATED)}

    sides, given = rendered(trees, a_resolved(), a_resolved(), a_resolved(local=oid("b9")))

    assert list(sides) == [TREES, TREES._replace(local=oid("b9"))]
    assert len(given) == 4
    assert [texts(side)["done.yaml"] for each in sides.values() for side in each[:2]] == ["0", "1", "2", "3"]


CONFIGURED = contents(
    a_side("3", kptfile=MUTATED, labels="mine"), a_side("1", labels="old"), a_side("2", labels="new")
)


def test_configuration_that_both_sides_changed_is_rendered_with_their_own_values() -> None:
    sides, given = rendered(CONFIGURED)

    assert [
        "".join(line for line in texts(f)["labels.yaml"].splitlines() if " a:" in line) for f in given
    ] == [
        "  a: mine",
        "  a: mine",
        "  a: old",
        "  a: new",
    ]
    assert sides[TREES].configuration == {"labels.yaml"}
    old, new = (texts(side) for side in sides[TREES][:2])
    assert ("a: old" in old["labels.yaml"], "a: new" in new["labels.yaml"]) == (True, True)
    assert (old["done.yaml"], new["done.yaml"]) == ("0", "1")


def test_configuration_that_cannot_be_rendered_apart_is_compared_unrendered() -> None:
    for failing in ({2}, {3}):
        sides, _ = rendered(CONFIGURED, failing=frozenset(failing))
        assert sides[TREES].configuration == frozenset()
        assert "a: mine" in texts(sides[TREES].original)["labels.yaml"]


def test_configuration_that_upstream_deleted_is_rendered_on_the_old_side_alone() -> None:
    without = {path: file for path, file in a_side("2").items() if path != "labels.yaml"}
    trees = {**CONFIGURED, NEW: without}

    sides, given = rendered(trees)

    assert len(given) == 3
    assert sides[TREES].configuration == {"labels.yaml"}
    assert "a: old" in texts(sides[TREES].original)["labels.yaml"]
    assert "labels.yaml" not in sides[TREES].upstream


def test_validators_are_not_run_on_upstreams() -> None:
    validated = MUTATED + "  validators:\n  - image: kubeval:v1\n"
    sub = package({"sub/Kptfile": validated})
    sides = {tree: files | sub for tree, files in contents(a_side("3", kptfile=validated)).items()}
    _, given = rendered(sides)

    assert {texts(files)[path] for files in given for path in ("Kptfile", "sub/Kptfile")} == {MUTATED}


@pytest.mark.parametrize(
    "kept",
    [
        MUTATED + "  # validators: none\n",
        KPTFILE + "pipeline: &p\n  validators: []\nx: *p\n",
    ],
)
def test_kptfile_without_validators_to_remove_stays(kept: str) -> None:
    _, given = rendered(contents(a_side("3", kptfile=kept)))

    assert all("labels.yaml" in files for files in given)
    assert {texts(files)["Kptfile"] for files in given} <= {
        kept,
        kept.replace("  validators: []\n", "  {}\n"),
    }


# Sides of the merge


# Fields that we write


POINT = """apiVersion: hr.example.com/v1
kind: Team
metadata:
  name: team
  annotations:
    kpt.dev/config-injection: required{injected}
spec:
  size: {size}
"""
INJECTED = "\n    kpt.dev/injected-resource: default/blue\n    kpt.dev/injected-resource-name: blue"
CONTEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: {name}\n"


def own_fields(
    original: dict[str, str], upstream: dict[str, str], local: dict[str, str], *context: str
) -> tuple[dict[str, str], dict[str, str]]:
    sides = with_own_fields(Sides(*map(package, (original, upstream, local))), context)
    assert texts(sides.local) == local
    return texts(sides.original), texts(sides.upstream)


def point(size: str, injected: str = "") -> str:
    return POINT.format(size=size, injected=injected)


def test_injected_values_are_no_edits_of_people() -> None:
    local = {"a.yaml": point("9", INJECTED)}

    old, new = own_fields({"b.yaml": point("1")}, {"a.yaml": point("2"), "z.yaml": "team: 1"}, local)

    assert old == {"b.yaml": point("9", INJECTED)}
    assert new == {"a.yaml": point("9", INJECTED), "z.yaml": "team: 1"}


def test_value_of_a_point_that_upstream_took_back_is_upstreams() -> None:
    taken_back = point("2").replace("    kpt.dev/config-injection: required\n", "    other: note\n")

    old, new = own_fields({"a.yaml": point("1")}, {"a.yaml": taken_back}, {"a.yaml": point("9", INJECTED)})

    assert old == {"a.yaml": point("9", INJECTED)}
    assert new == {"a.yaml": taken_back}


def test_package_that_only_local_has_changes_no_side() -> None:
    sides = ({"b.yaml": "team: 1"}, {"b.yaml": "team: 2"}, {"a.yaml": point("9", INJECTED)})

    assert own_fields(*sides) == sides[:2]


def test_keys_of_the_package_context_are_ours() -> None:
    sides = (
        {"package-context.yaml": CONTEXT.format(name="old") + "  region: west\n  zone: z\n"},
        {"package-context.yaml": CONTEXT.format(name="new") + "  zone: z\n"},
        {"package-context.yaml": CONTEXT.format(name="mine") + "  region: east\n"},
    )

    assert own_fields(*sides, "region", "zone") == (
        {"package-context.yaml": CONTEXT.format(name="old") + "  region: east\n"},
        {"package-context.yaml": CONTEXT.format(name="new") + "  region: east\n"},
    )
    assert own_fields(*sides) == sides[:2]


def test_other_config_maps_have_no_keys_of_ours() -> None:
    def text(value: str) -> str:
        return config_map("other", value, owner="kptfile.kpt.dev")

    sides = ({"a.yaml": text("1")}, {"a.yaml": text("2")}, {"a.yaml": text("3")})

    assert own_fields(*sides, "a") == sides[:2]


def test_side_that_cannot_be_edited_stays() -> None:
    aliased = point("1").replace("metadata:", "metadata: &m") + "other: *m\n"

    old, _ = own_fields({"a.yaml": aliased}, {"a.yaml": point("2")}, {"a.yaml": point("9", INJECTED)})

    assert old == {"a.yaml": aliased}
