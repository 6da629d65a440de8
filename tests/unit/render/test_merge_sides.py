"""Sides of a merge: rendered by local's pipeline, with the fields that we write ourselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.render.merging import UpdateTrees, render_sides, with_own_fields
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
def test_update_that_needs_no_rendering_is_left_out(local, old, new) -> None:
    assert rendered(contents(local, old, new)) == ({}, [])


CONFIGURED = contents(
    a_side("3", kptfile=MUTATED, labels="mine"), a_side("1", labels="old"), a_side("2", labels="new")
)


def test_configuration_that_upstream_deleted_is_rendered_on_the_old_side_alone() -> None:
    without = {path: file for path, file in a_side("2").items() if path != "labels.yaml"}
    trees = {**CONFIGURED, NEW: without}

    sides, given = rendered(trees)

    assert len(given) == 3
    assert sides[TREES].configuration == {"labels.yaml"}
    assert "a: old" in texts(sides[TREES].original)["labels.yaml"]
    assert "labels.yaml" not in sides[TREES].upstream


@pytest.mark.parametrize(
    "kept", [MUTATED + "  # validators: none\n", KPTFILE + "pipeline: &p\n  validators: []\nx: *p\n"]
)
def test_kptfile_without_validators_to_remove_stays(kept: str) -> None:
    _, given = rendered(contents(a_side("3", kptfile=kept)))

    assert all("labels.yaml" in files for files in given)
    assert {texts(files)["Kptfile"] for files in given} <= {
        kept,
        kept.replace("  validators: []\n", "  {}\n"),
    }


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


def own_fields(
    original: dict[str, str], upstream: dict[str, str], local: dict[str, str], *context: str
) -> tuple[dict[str, str], dict[str, str]]:
    sides = with_own_fields(Sides(*map(package, (original, upstream, local))), context)
    assert texts(sides.local) == local
    return texts(sides.original), texts(sides.upstream)


def point(size: str, injected: str = "") -> str:
    return POINT.format(size=size, injected=injected)


def test_side_that_cannot_be_edited_stays() -> None:
    aliased = point("1").replace("metadata:", "metadata: &m") + "other: *m\n"

    old, _ = own_fields({"a.yaml": aliased}, {"a.yaml": point("2")}, {"a.yaml": point("9", INJECTED)})

    assert old == {"a.yaml": aliased}
