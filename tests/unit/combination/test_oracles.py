"""Each oracle of the combination machine sees a violation that was made by hand, and nothing before it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.combination import oracles
from tests.support.combination.fleet import Fleet
from tests.support.combination.life import Life
from tests.support.combination.oracles import Observation
from tests.support.combination.spec import FleetSpec, VariantSpec
from tests.support.world import Said

DRAFT = "drafts/web/packagevariant-1"
Check = Callable[[Fleet, Observation], Iterable[str]]


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A fleet of one variant whose draft is open, settled."""
    spec = FleetSpec(variants=[VariantSpec("web", "web", "edge-1", ["web"])], neighbours=["package:solo"])
    made = Life(Fleet(tmp_path / "w", spec).build())
    made.settle()
    return made


def violated(check: Check, life: Life, words: str) -> None:
    """Assert that a check sees one violation, which says this."""
    seen = list(check(life.fleet, life.observation))
    assert [words in text for text in seen] == [True], seen


def test_settled_fleet_violates_nothing(life: Life) -> None:
    assert oracles.check_everything(life.fleet, life.observation) == []


def test_unforeseen_failure_is_seen() -> None:
    seen = list(oracles.check_results([("plan", Said(1, "", "Traceback (most recent call last)"))]))

    assert len(seen) == 1
    assert "unforeseen" in seen[0]


def test_exit_without_a_line_is_seen() -> None:
    empty = json.dumps({"problems": [], "refusals": [], "changes": [], "effects": []})

    assert len(list(oracles.check_results([("apply", Said(5, empty, ""))]))) == 1


def test_problem_without_a_hint_is_seen() -> None:
    problem = {"location": {"path": "a.yaml", "line": 1}, "hint": "", "message": "wrong"}
    value = json.dumps({"problems": [problem], "refusals": [], "changes": []})

    assert len(list(oracles.check_results([("apply", Said(3, value, ""))]))) == 1


def test_plan_with_pending_work_is_seen(life: Life) -> None:
    plan = json.loads(json.dumps(life.observation.plan))
    plan["changes"][0]["pending"] = True

    assert len(list(oracles.check_plan_is_empty(Observation(plan, {})))) == 1


def test_package_listed_twice_is_seen(life: Life) -> None:
    plan = {"changes": [*life.observation.plan["changes"], life.observation.plan["changes"][0]]}

    assert len(list(oracles.check_books(life.fleet, plan))) == 1


def test_published_package_without_a_row_is_seen(life: Life) -> None:
    life.fleet.run("approve", "--all")

    assert len(list(oracles.check_books(life.fleet, {"changes": []}))) == 1


def test_removal_of_a_foreign_file_by_a_merge_is_seen(life: Life) -> None:
    life.fleet.repo("edge-1").commit({"solo/Kptfile": None}, branch=DRAFT)

    violated(lambda fleet, _: oracles.check_foreign_files(fleet), life, "solo/Kptfile")


def test_change_outside_of_the_package_is_seen(life: Life) -> None:
    life.fleet.repo("edge-1").commit({"other.txt": "x\n"}, branch=DRAFT)

    violated(lambda fleet, _: oracles.check_merges_stay_inside(fleet), life, "other.txt")


def test_unlisted_file_of_a_package_is_seen(life: Life) -> None:
    life.fleet.repo("edge-1").commit({"web/hidden.txt": "x\n"}, branch=DRAFT)

    violated(lambda fleet, _: oracles.check_merges_stay_inside(fleet), life, "hidden.txt")


def test_lost_change_of_a_person_is_seen(life: Life) -> None:
    life.fleet.ledger.wrote("k99999x", "edge-1", "web", "deploy.yaml")

    violated(oracles.check_people, life, "k99999x")


def test_missing_upstream_change_is_seen(life: Life) -> None:
    repo = life.fleet.repo("catalog")
    text = repo.read("main", "web/deploy.yaml").replace(b"rolling", b"u99999x")
    repo.commit({"web/deploy.yaml": text})
    repo.tag("web/v1")

    violated(oracles.check_upstream, life, "u99999x")


def test_conflict_that_nobody_caused_is_seen(life: Life) -> None:
    conflict = {"path": "deploy.yaml", "field": "spec.replicas", "upstream": "1", "local": "2"}
    changes = [{**life.observation.plan["changes"][1], "conflicts": [conflict]}]
    life.observation = Observation({"changes": changes}, {})

    violated(oracles.check_conflicts_have_causes, life, "no person caused")


def test_conflict_that_an_edit_elsewhere_closes_is_seen(life: Life) -> None:
    conflict = {"path": "deploy.yaml", "field": "spec.replicas", "upstream": "1", "local": "2"}
    change = life.observation.plan["changes"][1]
    before = Observation({"changes": [{**change, "conflicts": [conflict]}]}, {})
    after = Observation({"changes": [{**change, "conflicts": []}]}, {})
    place = (change["repository"]["name"], change["package"]["path"])

    assert len(list(oracles.check_answers(before, after, {(*place, "README.md")}))) == 1
    assert list(oracles.check_answers(before, after, {(*place, "deploy.yaml")})) == []


def test_draft_that_is_not_there_is_seen(life: Life) -> None:
    life.fleet.repo("edge-1").delete(f"refs/heads/{DRAFT}")

    seen = list(oracles.check_status(life.fleet, life.observation))

    assert any("DraftExists=True" in text for text in seen)
    assert any("Ready=True" in text or "DownstreamEnsured=True" in text for text in seen)


def test_variant_without_a_status_is_seen(life: Life) -> None:
    life.observation = Observation(life.observation.plan, {"items": []})

    violated(oracles.check_status, life, "does not know web")


def test_published_package_of_another_commit_is_seen(life: Life) -> None:
    life.fleet.run("approve", "--all")
    life.settle()
    life.fleet.release("web", {"Kptfile": b"other\n"}, number=1)

    violated(oracles.check_published, life, "does not name")


def test_misspelt_annotation_without_a_problem_is_seen(life: Life) -> None:
    life.fleet.spec.variants[0].annotations = {"reconciler.dev/pause": "true"}

    violated(oracles.check_unknown_annotations, life, "reconciler.dev/pause")


@pytest.mark.parametrize(("first", "effects"), [("a", True), ("b", False)])
def test_checksum_that_hides_effects_is_seen(first: str, *, effects: bool) -> None:
    seen = list(oracles.check_checksum({"checksum": first}, {"checksum": "a"}, has_effects=effects))

    assert len(seen) == 1


def test_broken_repository_is_seen(life: Life) -> None:
    repo = life.fleet.repo("edge-1")
    repo.point("refs/heads/broken", repo.write(repo.raw_tree((b"40000", b"..", repo.tree("main"))), []))

    violated(lambda fleet, _: oracles.check_sound(fleet), life, "not sound")
