"""Lives that once violated a promise, kept: every check of the combination machine after each step."""

from itertools import product
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


def test_nested_foreign_package_stays_on_main(tmp_path: Path) -> None:
    play(tmp_path, [("approve_all", {})], neighbours=["package:web/inner"])


@pytest.mark.parametrize("adoption", ["adoptNone", "adoptExisting"])
def test_directory_of_a_person_keeps_its_files(tmp_path: Path, adoption: str) -> None:
    play(tmp_path, [("approve_all", {})], variant={"adoption": adoption}, neighbours=["files:web"])


def test_plain_file_in_the_way_stalls_its_variant_alone(tmp_path: Path) -> None:
    play(tmp_path, [("approve_all", {})], neighbours=["file:web"])


def test_declined_push_leaves_no_condition_true(tmp_path: Path) -> None:
    play(tmp_path, [("decline_the_next_push", {"repository": "edge-1"}), bump(COLOR)])


def test_first_push_that_is_declined_leaves_no_condition_true(tmp_path: Path) -> None:
    added = {"name": "db", "package": "db", "repository": "edge-1", "paths": ["db"]}
    life = play(tmp_path, [])
    life.declined = "edge-1"
    life.play("add_variant", {"variant": added})


@pytest.mark.parametrize("step", ["delete_branch", "close"])
def test_rejected_package_is_not_ready(tmp_path: Path, step: str) -> None:
    play(tmp_path, [(step, DRAFT)])


def test_note_in_another_file_answers_no_conflict(tmp_path: Path) -> None:
    draft = {**DRAFT, "head": "drafts/web/packagevariant-3"}
    play(
        tmp_path,
        [
            *MERGED,
            ("edit_main", {**MAIN, "edit": COLOR}),
            bump(COLOR),
            ("edit_draft", {**draft, "edit": NOTE}),
        ],
    )


WRONG = (("paused", "yes"), ("pause", "true"), ("on-conflict", "theirs"), ("onconflict", "local"))


@pytest.mark.parametrize(("key", "text"), sample(WRONG, 4))
def test_annotation_that_means_nothing_is_a_problem(tmp_path: Path, key: str, text: str) -> None:
    annotations = {f"reconciler.dev/{key}": text}
    play(tmp_path, [("annotate", {"name": "web", "annotations": annotations}), bump(COLOR)])


def test_checksum_covers_a_pull_request_that_is_missing(tmp_path: Path) -> None:
    play(tmp_path, [("lose_a_pull_request", DRAFT)])


PIPELINES = ("setters", "rename", "namespace", "labels", "search", "starlark")


@pytest.mark.parametrize(("pipeline", "policy"), sample([*product(PIPELINES, ("ask", "upstream"))], 5))
def test_pipeline_causes_no_conflict(tmp_path: Path, pipeline: str, policy: str) -> None:
    edits = bump(COLOR, value("  strategy: rolling", "deploy.yaml"))
    play(tmp_path, [*MERGED, edits], variant={"pipeline": pipeline, "policy": policy})


@pytest.mark.parametrize("pipeline", sample(["labels", "search", "rename"], 3))
def test_resource_that_only_a_pipeline_changed_goes_with_upstreams(tmp_path: Path, pipeline: str) -> None:
    removed = {"kind": "remove", "file": "service.yaml", "line": ""}
    life = play(tmp_path, [*MERGED, bump(removed)], variant={"pipeline": pipeline})

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
    change = ("change_site", {"site": "north", "present": True})
    variant = {"injection": True}
    life = play(tmp_path, [change], variant=variant, snapshot=form)
    life.play("choose_injection", {"name": "web", "injection": False})


@pytest.mark.parametrize("repository", sample(["catalog", "edge-1", "edge-2"], 3))
def test_repository_that_is_away_is_told(tmp_path: Path, repository: str) -> None:
    play(tmp_path, [("hide_a_repository", {"repository": repository}), bump(COLOR)])


def test_upstream_policy_drops_nothing_without_a_word(tmp_path: Path) -> None:
    removed = {"kind": "remove", "file": "service.yaml", "line": ""}
    changed = value("  type: ClusterIP", "service.yaml")
    play(
        tmp_path,
        [*MERGED, ("edit_main", {**MAIN, "edit": removed}), bump(changed)],
        variant={"policy": "upstream"},
    )


@pytest.mark.parametrize("away", sample(["catalog", "edge-1"], 2))
def test_check_calls_no_package_unchanged_that_it_cannot_read(tmp_path: Path, away: str) -> None:
    unfollowed = ("bump", {"package": "web", "edits": [COLOR], "stable": False, "follow": False})
    chosen = {"name": "web", "form": "revision", "number": 2, "away": away}
    play(tmp_path, [*MERGED, unfollowed, ("choose_while_away", chosen)])


def test_check_says_what_merging_a_revision_does(tmp_path: Path) -> None:
    unfollowed = ("bump", {"package": "web", "edits": [COLOR], "stable": False, "follow": False})
    choices = [("choose_upstream", {"name": "web", "form": "revision", "number": n}) for n in (2, 3, 1)]
    play(tmp_path, [*MERGED, unfollowed, *choices])


def test_refused_deletions_stay_refused_when_orphans_have_left(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(6)]
    variants = [
        VariantSpec(name, "web", "edge-1", [name], deletion="orphan" if name < "a2" else "delete")
        for name in names
    ]
    steps: Steps = [("approve_all", {}), ("remove_several", {"names": names}), ("approve_all", {})]
    life = play(tmp_path, steps, variants=variants, guard={"minimum": 5, "share": 0.5})

    assert {c["reason"] for c in life.last_plan["changes"] if c["variant"]} == {"DeletionGuard"}
    life.play("consent", {})
    assert len(life.fleet.pulls("edge-1")) == 4


@pytest.mark.parametrize("form", sample(["yaml", "import"], 2))
def test_injected_object_is_that_of_the_own_cluster(tmp_path: Path, form: str) -> None:
    variants = [
        VariantSpec(name, "site", name, ["site"], injection=True, adoption="adoptNone")
        for name in ("edge-1", "edge-2")
    ]
    change = ("change_site", {"site": "north", "present": True})
    clusters = ["edge-1", "edge-2"]
    play(tmp_path, [("approve_all", {}), change], variants=variants, snapshot=form, clusters=clusters)
