"""`status` says of every package where it stands, since when, and in which pull request."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.schema import violations
from tests.support.small_world import manifest, package_set, repository, variant, write_world
from tests.support.world import World, git

PROJECT = Path(__file__).resolve().parents[2]
LATER = 1_767_300_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "w", ("edge-1",))


def change(world: World, files: Mapping[str, str | None]) -> None:
    Repo(world.control, time=LATER).commit(files)


def package(world: World, name: str = "default/web-edge-1") -> dict[str, Any]:
    """Return where the package of one variant stands."""
    (owner,) = json.loads(world.run("status", name, "-o", "json").out)["items"]
    return dict(owner["package"])


def phase(world: World, name: str = "default/web-edge-1") -> str:
    return str(package(world, name)["phase"])


def test_package_goes_from_pending_over_review_to_published(world: World) -> None:
    assert phase(world) == "pending"

    world.run("apply")
    reviewed = package(world)
    assert reviewed["phase"] == "in review"
    assert reviewed["pullRequest"] == {"number": 2, "url": ""}
    assert reviewed["head"] == "drafts/web/packagevariant-1"
    assert reviewed["since"].startswith("2026-01-01T")
    row = r"edge-1/web +edge-1 +web/v1 +in review +2026-01-01 +edge-1#2 +review"
    assert re.search(row, world.run("status").out)

    world.run("approve", "edge-1/web")
    assert phase(world) == "published"
    assert re.search(r"edge-1/web +edge-1 +web/v1 +published +2026-01-01", world.run("status").out)
    world.run("apply")
    assert phase(world) == "published"
    assert package(world)["pullRequest"] is None


def test_variant_that_moved_has_a_row_for_each_of_its_packages(world: World) -> None:
    world.publish()
    change(
        world,
        {
            manifest("edge-1", "web"): variant("edge-1", "web").replace(
                "repo: edge-1\n    package: web", "repo: edge-1\n    package: www"
            )
        },
    )
    world.run("apply")

    text, table = world.run("status").out, world.run("status", "-o", "csv").out
    found = json.loads(world.run("status", "default/web-edge-1", "-o", "json").out)["items"]

    assert re.search(r"edge-1/web +edge-1 +web/v1 +in review .* review of its deletion", text)
    assert re.search(r"edge-1/www +edge-1 +web/v1 +in review .* review", text)
    assert [line.split(",")[:5] for line in table.splitlines()[2:]] == [
        ["edge-1/web", "edge-1", "web/v1", "", "in review"],
        ["edge-1/www", "edge-1", "", "web/v1", "in review"],
    ]
    assert [(o["package"]["name"], o["summary"]["waitingFor"]) for o in found] == [
        ("web", "review of its deletion"),
        ("www", "review"),
    ]
    leaving = world.run("explain", "edge-1/web", "--why-not", "newest").out
    assert "on main web/v1" in leaving
    assert "The manifest asks for" not in leaving

    world.run("approve", "edge-1/www")
    world.run("apply")

    assert re.search(r"edge-1/www +edge-1 +web/v1 +published +[0-9-]+\n", world.run("status").out)
    assert phases(world) == {"db": "published", "web": "in review", "www": "published"}


def phases(world: World) -> dict[str, str]:
    owners = json.loads(world.run("status", "-o", "json").out)["items"]
    return {owner["package"]["name"]: owner["package"]["phase"] for owner in owners}


def test_deletion_beside_an_edited_draft_is_recorded_once(world: World) -> None:
    world.publish()
    change(world, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    world.run("apply")
    with world.edit("edge-1", "Edit", branch="drafts/web/packagevariant-2") as copy:
        app = copy / "web/app.yaml"
        app.write_text(app.read_text().replace("replicas: 1", "replicas: 7"))
    world.run("apply")
    change(world, {manifest("edge-1", "web"): None})

    for approved in ("edge-1#3", "--all"):  # the draft; then the deletion with what that changed
        world.run("apply")
        before = world.all_refs()
        world.run("apply")
        assert world.all_refs() == before
        assert package(world)["head"] == "reconciler/fleet/delete/web"
        assert world.run("approve", approved).code == Exit.DONE


def test_rejection_is_asked_about_once_and_listed_afterwards(world: World) -> None:
    world.publish()
    row = re.compile(r"^decide +(?:web: )?retry it, or leave it +edge-1", re.MULTILINE)
    listed = re.compile(r"^keep +edge-1/web +Rejected", re.MULTILINE)

    def rejected_once() -> None:
        first = world.run("apply")
        assert (first.code, bool(row.search(first.out)), bool(listed.search(first.out))) == (7, True, True)
        refs, again = world.all_refs(), world.run("apply")
        assert (again.code, bool(row.search(again.out)), bool(listed.search(again.out))) == (0, False, True)
        assert "waits for a person" not in again.out
        assert world.all_refs() == refs
        assert package(world)["phase"] == "rejected"

    world.revert("edge-1")
    rejected_once()
    change(world, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    assert world.run("apply").code == 0
    world.run("pr", "close", "edge-1/web")
    rejected_once()


def test_recorded_status_is_what_the_next_run_observes(world: World) -> None:
    world.run("apply")
    world.run("approve", "edge-1/web")
    world.run("apply")
    world.run("apply")
    path = "conditions/packagevariants/default/web-edge-1.json"
    recorded = json.loads(git(world.control, "show", f"reconciler/fleet/status:{path}"))

    said = world.run("status", "default/web-edge-1", "-o", "json", cache="another")
    (owner,) = json.loads(said.out)["items"]

    assert {key: owner[key] for key in recorded} == recorded


def test_json_is_as_its_schema_says(world: World) -> None:
    schema = json.loads((PROJECT / "docs/schemas/status.schema.json").read_text())

    def wrong() -> list[str]:
        return violations(schema, json.loads(world.run("status", "-o", "json").out))

    assert wrong() == []
    world.run("apply")
    world.run("pr", "close", "edge-1/db")
    world.run("approve", "edge-1/web")
    assert wrong() == []
    change(world, {manifest("edge-1", "web"): None, manifest("edge-1", "db"): "kind: [\n"})
    world.run("apply")
    assert wrong() == []
    change(world, {"manifests/repositories/spare.yaml": repository("spare")})
    assert wrong() == []
    assert violations(schema, {"apiVersion": "reconciler.dev/v1alpha1", "kind": "StatusList", "items": [{}]})


EMPTY = package_set("sites", "{repositorySelector: {matchLabels: {no: repository}}}")


@pytest.mark.parametrize("command", ["plan", "status", "expand", "check"])
def test_set_that_selects_nothing_is_told(world: World, command: str) -> None:
    change(world, {"manifests/sites.yaml": EMPTY})

    head = ("--head", world.propose_nothing()) if command == "check" else ()

    said = world.run(command, *head)

    assert said.code == Exit.DONE
    note = "note: manifests/sites.yaml:1: PackageVariantSet default/sites selects no target"
    assert note in said.out + said.err


def test_package_of_a_repository_that_is_away_keeps_its_cluster_and_its_last_version(world: World) -> None:
    for line in (("apply",), ("approve", "edge-1/web"), ("apply",)):
        world.run(*line)
    (world.root / "edge-1.git").rename(world.root / "away.git")
    # The manifest is old, and so is the package; the stall is not.
    change(world, {"README.md": "Nothing to do with it.\n"})

    told = json.loads(world.run("status", "-o", "json").out)["items"]
    web = next(each for each in told if each["name"] == "web-edge-1")
    db = next(each for each in told if each["name"] == "db-edge-1")

    assert (web["package"]["phase"], web["summary"]["cluster"], web["summary"]["main"]) == (
        "stalled",
        "edge-1",
        "web/v1?",
    )
    assert db["summary"]["main"] == "?"
    assert web["package"]["since"].startswith("2026-01-01T20:41")
    assert re.search(r"edge-1/web +edge-1 +web/v1\? +stalled", world.run("status").out)
    since = web["package"]["since"]
    world.run("apply")
    change(world, {"README.md": "Still nothing.\n"})
    assert package(world)["since"] == since
