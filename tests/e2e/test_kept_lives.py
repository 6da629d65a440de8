"""Lives that once violated a promise, kept: every check of the combination machine after each step."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.combination.fleet import Fleet
from tests.support.combination.life import Life
from tests.support.combination.spec import FleetSpec, VariantSpec
from tests.support.samples import sample

pytestmark = pytest.mark.slow

SETTINGS = "config/settings.yaml"
DRAFT = {"repository": "edge-1", "head": "drafts/web/packagevariant-1"}
MAIN = {"repository": "edge-1", "path": "web"}
Steps = list[tuple[str, dict[str, Any]]]


def value(line: str, file: str = SETTINGS) -> dict[str, str]:
    return {"kind": "value", "file": file, "line": line}


def bump(*edits: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return "bump", {"package": "web", "edits": list(edits), "stable": True, "follow": True}


MERGED: Steps = [("merge", {**DRAFT, "how": "merge"})]
NOTE = {"kind": "note", "file": "README.md", "line": ""}
COLOR = value("  color: red")


def play(root: Path, steps: Steps, *, variant: dict[str, Any] | None = None, **fleet: Any) -> Life:
    """Play steps on a fleet, of one variant where it names none."""
    fleet.setdefault("variants", [VariantSpec("web", "web", "edge-1", ["web"], **(variant or {}))])
    spec = FleetSpec(**fleet)
    life = Life(Fleet(root / "w", spec).build())
    life.settle()
    for name, arguments in steps:
        life.play(name, arguments)
    life.end()
    return life


REMOVED = {"kind": "remove", "file": "service.yaml", "line": ""}
DEPLOYED = value("  strategy: rolling", "deploy.yaml")
SERVED = value("  type: ClusterIP", "service.yaml")
NORTH = ("change_site", {"site": "north", "present": True})
UNFOLLOWED = ("bump", {"package": "web", "edits": [COLOR], "stable": False, "follow": False})
SECOND = {"name": "db", "package": "db", "repository": "edge-1", "paths": ["db"]}
ALL: Steps = [("approve_all", {})]


def asks(number: int, **more: str) -> tuple[str, dict[str, Any]]:
    verb = "choose_while_away" if more else "choose_upstream"
    return verb, {"name": "web", "form": "revision", "number": number, **more}


def annotated(key: str, text: str) -> Steps:
    return [("annotate", {"name": "web", "annotations": {f"reconciler.dev/{key}": text}}), bump(COLOR)]


LIVES: dict[str, tuple[Steps, dict[str, Any]]] = {
    "a nested foreign package stays on main": (ALL, {"neighbours": ["package:web/inner"]}),
    "a directory of a person keeps its files": (ALL, {"neighbours": ["files:web"]}),
    "a file in the way stalls its variant alone": (ALL, {"neighbours": ["file:web"]}),
    "a declined push leaves no condition true": (
        [("decline_the_next_push", {"repository": "edge-1"}), bump(COLOR)],
        {},
    ),
    "a package whose branch is gone is not ready": ([("delete_branch", DRAFT)], {}),
    "a rejected package is not ready": ([("close", DRAFT)], {}),
    "a note in another file answers no conflict": (
        [
            *(*MERGED, ("edit_main", {**MAIN, "edit": COLOR}), bump(COLOR)),
            ("edit_draft", {**DRAFT, "head": "drafts/web/packagevariant-3", "edit": NOTE}),
        ],
        {},
    ),
    "an annotation that means nothing is a problem": (annotated("paused", "yes"), {}),
    "a misspelt annotation is a problem": (annotated("onconflict", "local"), {}),
    "a checksum covers a missing pull request": ([("lose_a_pull_request", DRAFT)], {}),
    "an upstream policy drops nothing without a word": (
        [*MERGED, ("edit_main", {**MAIN, "edit": REMOVED}), bump(SERVED)],
        {"variant": {"policy": "upstream"}},
    ),
    "an unread upstream is not called unchanged": ([*MERGED, UNFOLLOWED, asks(2, away="catalog")], {}),
    "an unread downstream is not called unchanged": ([*MERGED, UNFOLLOWED, asks(2, away="edge-1")], {}),
    "a check says what merging a revision does": ([*MERGED, UNFOLLOWED, *map(asks, (2, 3, 1))], {}),
    **{
        f"{name} that is away is told": ([("hide_a_repository", {"repository": name}), bump(COLOR)], {})
        for name in ("catalog", "edge-1", "edge-2")
    },
    **{
        f"{pipeline} causes no conflict": (
            [*MERGED, bump(COLOR, DEPLOYED)],
            {"variant": {"pipeline": pipeline, "policy": "ask"}},
        )
        for pipeline in ("setters", "rename", "namespace", "search", "starlark")
    },
}


@pytest.mark.parametrize("name", sample(list(LIVES), 2))
def test_life_keeps_every_promise(tmp_path: Path, name: str) -> None:
    steps, fleet = LIVES[name]
    play(tmp_path, steps, **fleet)


def test_first_push_that_is_declined_leaves_no_condition_true(tmp_path: Path) -> None:
    life = play(tmp_path, [])
    life.declined = "edge-1"
    life.play("add_variant", {"variant": SECOND})


@pytest.mark.parametrize("pipeline", sample(["labels", "search", "rename"], 3))
def test_resource_that_only_a_pipeline_changed_goes_with_upstreams(tmp_path: Path, pipeline: str) -> None:
    life = play(tmp_path, [*MERGED, bump(REMOVED)], variant={"pipeline": pipeline})

    (change,) = [c for c in life.last_plan["changes"] if c["variant"]]
    assert (change["reason"], change["conflicts"]) == ("InReview", [])


def test_what_a_function_wrote_goes_with_it_from_what_nobody_edited(tmp_path: Path) -> None:
    renamed = {"kind": "rename", "file": "service.yaml", "line": "  name: web-front"}
    steps: Steps = [
        *MERGED,
        ("choose_pipeline", {"name": "web", "pipeline": "rename"}),
        ("merge", {**DRAFT, "head": "drafts/web/packagevariant-2", "how": "squash"}),
        bump(renamed),
        ("merge", {**DRAFT, "head": "drafts/web/packagevariant-3", "how": "squash"}),
    ]
    life = play(tmp_path, steps, variant={"pipeline": "labels"})

    (change,) = [c for c in life.last_plan["changes"] if c["variant"]]
    assert (change["reason"], change["conflicts"]) == ("UpToDate", [])
    assert b"team: blue" not in life.fleet.repo("edge-1").read("main", "web/service.yaml")


@pytest.mark.parametrize("form", sample(["yaml", "json", "ndjson", "import"], 4))
def test_object_of_a_snapshot_is_injected(tmp_path: Path, form: str) -> None:
    life = play(tmp_path, [NORTH], variant={"injection": True}, snapshot=form)
    life.play("choose_injection", {"name": "web", "injection": False})


def test_refused_deletions_stay_refused_when_orphans_have_left(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(6)]
    variants = [
        VariantSpec(name, "web", "edge-1", [name], deletion="orphan" if name < "a2" else "delete")
        for name in names
    ]
    steps: Steps = [*ALL, ("remove_several", {"names": names}), *ALL]
    life = play(tmp_path, steps, variants=variants, guard={"minimum": 5, "share": 0.5})

    assert {c["reason"] for c in life.last_plan["changes"] if c["variant"]} == {"DeletionGuard"}
    life.play("consent", {})
    assert len(life.fleet.pulls("edge-1")) == 4


@pytest.mark.parametrize("form", sample(["yaml", "import"], 2))
def test_injected_object_is_that_of_the_own_cluster(tmp_path: Path, form: str) -> None:
    clusters = ["edge-1", "edge-2"]
    variants = [
        VariantSpec(name, "site", name, ["site"], injection=True, adoption="adoptNone") for name in clusters
    ]
    play(tmp_path, [*ALL, NORTH], variants=variants, snapshot=form, clusters=clusters)
