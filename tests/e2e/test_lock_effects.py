"""What a lock decides beside versions is in every plan: revisions, kinds, owners, pins of upstreams."""

import json
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.schema import violations
from tests.support.world import World, build_world, git

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = ROOT / "fixtures/worlds/62-provider-split"
ACTIVATED = PROVIDERS / "steps/activate-in-two"
COUNTS = "1 kind to hand over, 2 revisions to activate"
TAKEN = "kind: hand over Bucket.s3.aws.io x.example.com/aws -> x.example.com/aws-s3"
NEW, OLD = "revision: activate aws-71c9ce561faf Inactive -> Active", "aws-0dd139426669"
ROWS = [
    f"{TAKEN}: aws-s3-c7b849e91e3a controls it (two)",
    f"{NEW}: revision 2 of Provider/aws, in place of {OLD} (two)",
    "revision: activate aws-s3-c7b849e91e3a Inactive -> Active: revision 1 of Provider/aws-s3 (two)",
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two clusters; in one of them a revision waits for a person to activate it."""
    world = build_world(PROVIDERS, tmp_path / "w")
    for step in ("split-without-a-word", "say-it"):
        world.run("lock")
        world.lay(PROVIDERS / "steps" / step)
    world.run("apply")
    return world


def test_activation_is_in_every_report_of_a_plan(world: World) -> None:
    world.lay(ACTIVATED)
    page = world.root / "plan.html"

    text = world.run("plan", "--detailed-exitcode", "--html", str(page))
    value = json.loads(world.run("plan", "-o", "json").out)
    summary = world.run("plan", "-o", "markdown").out

    assert text.code == Exit.PENDING
    *rows, last = text.out.splitlines()
    assert last.startswith(COUNTS)
    assert rows == ROWS
    assert [move["op"] for move in value["moves"]] == ["hand over", "activate", "activate"]
    assert not value["empty"]
    assert violations(json.loads((ROOT / "docs/schemas/plan.schema.json").read_text()), value) == []
    row = "revision: activate aws-71c9ce561faf Inactive"
    assert row in summary
    assert row in page.read_text()
    assert summary.index("### In clusters") < summary.index("hand over Bucket")


def test_reviewed_lock_proposes_the_activation(world: World) -> None:
    with world.edit("control", "Review locks") as copy:
        path = copy / "reconciler.yaml"
        path.write_text(f"{path.read_text()}  lock:\n    mode: reviewed\n")
    world.run("apply")
    assert world.run("approve", "control/locks").code == Exit.DONE
    world.propose(ACTIVATED)
    checked = world.run("check", "--head", ACTIVATED.name).out
    world.lay(ACTIVATED)

    said = world.run("apply").out

    assert "lock request: cluster two: revision: activate aws-71c9ce561faf" in checked
    assert "~ cluster two: revision: activate aws-71c9ce561faf: Inactive -> Active" in said
    assert world.run("approve", "control/locks").code == Exit.DONE
    lock = json.loads(git(world.control, "show", "main:locks/two.json"))
    assert {r["name"]: r["desiredState"] for r in lock["revisions"]}["aws-71c9ce561faf"] == "Active"
    assert json.loads(world.run("plan", "-o", "json").out)["empty"]
