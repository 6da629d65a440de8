"""A reviewed lock on real repositories: what people do on its branch, and what becomes of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import lock_schema
from tests.support.needy_fleet import REVIEWED, install, needy_fleet, package
from tests.support.schema import violations
from tests.support.world import World, build_world, git, refs, restored

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
BRANCH = "reconciler/fleet/lock"
HEAD = f"refs/heads/{BRANCH}"
STATE = "refs/heads/reconciler/fleet/state"
WEB, API = "locks/upstreams/default/web.json", "locks/upstreams/default/api.json"


@pytest.fixture
def world() -> World:
    """Two variants follow one tag; their first pins are merged, and the tag has moved since."""
    return restored("reviewed", make_reviewed)


def make_reviewed(root: Path) -> World:
    world = build_world(WORLDS / "30-reviewed-lock", root)
    with world.edit("control", "Want another") as copy:
        text = (copy / "manifests/web.yaml").read_text()
        api = text.replace("name: web", "name: api").replace(
            "repo: edge\n    package: web", "repo: edge\n    package: api"
        )
        (copy / "manifests/api.yaml").write_text(api)
    world.tag("blueprints", "web/stable", "web/v1")
    world.run("apply")
    assert world.run("approve", "--all").code == 0
    world.run("apply")
    world.tag("blueprints", "web/stable", "web/v2")
    return world


def show(world: World, ref: str, path: str) -> dict[str, Any]:
    return json.loads(git(world.control, "show", f"{ref}:{path}"))


def commit_of(world: World, tag: str) -> str:
    return git(world.root / "blueprints.git", "rev-parse", tag).strip()


def lock_line(world: World) -> str:
    """Return what a plan says about the lock, empty if it says nothing."""
    said = world.run("plan").out
    return next((line for line in said.splitlines() if line.startswith("lock: ")), "")


def rests(world: World) -> bool:
    """Whether a run writes nothing, also from a fresh clone without any cache."""
    before = world.all_refs()
    world.run("apply", cache=f"cache-{len(list(world.root.iterdir()))}")
    return world.all_refs() == before


def test_what_people_write_on_the_branch_stays_and_the_rest_follows(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        lock = json.loads((copy / WEB).read_text())
        (copy / WEB).write_text(json.dumps({**lock, "commit": commit_of(world, "web/v1"), "held": True}))
    edited = refs(world.control)[HEAD]
    assert lock_line(world).startswith(
        "lock: update (PullRequestOutdated)"
    )  # its list of pins is shorter now
    world.run("apply")
    assert lock_line(world).startswith("lock: keep (DraftEdited)")
    assert rests(world)

    world.tag("blueprints", "web/stable", "web/v3")
    said = world.run("apply").out

    assert "left as edited: upstreams/default/web.json" in said
    assert git(world.control, "rev-parse", f"{HEAD}^").strip() == edited
    assert show(world, HEAD, API)["commit"] == commit_of(world, "web/v3")
    assert show(world, HEAD, WEB)["commit"] == commit_of(world, "web/v1")
    assert rests(world)

    assert world.run("approve", "control/locks").code == 0
    plan = world.run("plan", "--all").out
    assert re.search(r"update +edge/api .* -> web/stable@", plan)
    assert re.search(r"keep +edge/web +UpToDate", plan)
    assert "lock:" not in plan


def test_a_pin_that_a_person_takes_out_of_the_proposal_stays_out(world: World) -> None:
    world.run("apply")
    main = show(world, "main", WEB)
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.tag("blueprints", "web/stable", "web/v3")
    world.run("apply")

    assert show(world, HEAD, WEB) == main
    assert show(world, HEAD, API)["commit"] == commit_of(world, "web/v3")
    assert rests(world)


def test_bringing_the_branch_up_to_date_is_no_edit(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Something else") as copy:
        (copy / "NOTES.md").write_text("Notes\n")
    with world.edit("control", "Notes too", branch=BRANCH) as copy:
        git(copy, "merge", "--no-ff", "-m", "Merge main", "origin/main")
        (copy / "MORE.md").write_text("More\n")
    world.tag("blueprints", "web/stable", "web/v3")
    said = world.run("apply").out

    assert "left as edited" not in said
    assert show(world, HEAD, WEB)["commit"] == commit_of(world, "web/v3")
    assert git(world.control, "show", f"{HEAD}:MORE.md") == "More\n"
    assert rests(world)


def test_a_closed_proposal_whose_branch_is_gone_is_not_made_again(world: World) -> None:
    world.run("apply")
    assert world.run("pr", "close", "control/locks").code == 0
    git(world.control, "update-ref", "-d", HEAD)

    assert lock_line(world).startswith("lock: keep (Rejected)")
    assert rests(world)

    world.tag("blueprints", "web/stable", "web/v3")
    assert lock_line(world).startswith("lock: create (LockPending)")


def test_proposal_of_a_lock_waits_for_people_until_it_is_merged(world: World) -> None:
    needs = [re.findall(r"(?m)^review +the lock +(\S+)", world.run(line).out) for line in ("apply", "plan")]
    number = needs[0][0]

    assert needs == [[number]] * 2
    assert world.run("approve", number).code == 0
    assert "the lock" not in world.run("apply").out


def test_a_proposal_that_was_withdrawn_may_come_back(world: World) -> None:
    world.run("apply")
    world.tag("blueprints", "web/stable", "web/v1")
    assert lock_line(world).startswith("lock: close (DraftSuperseded)")
    world.run("apply")
    assert HEAD not in refs(world.control)
    assert rests(world)

    world.tag("blueprints", "web/stable", "web/v2")

    assert lock_line(world).startswith("lock: create (LockPending)")


def test_proposal_that_people_committed_themselves_is_closed_by_name(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Lock it by hand") as copy:
        git(copy, "checkout", "-q", f"origin/{BRANCH}", "--", "locks")

    said = world.run("apply").out

    assert f"deleted  control {BRANCH}" in said
    assert re.search(r"(?m)^closed +control #\d+ Lock ", said)
    assert rests(world)


def test_an_obsolete_branch_with_a_persons_change_is_left_to_them(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Hold", branch=BRANCH) as copy:
        lock = json.loads((copy / WEB).read_text())
        (copy / WEB).write_text(json.dumps({**lock, "held": True}))
    world.tag("blueprints", "web/stable", "web/v1")

    said = world.run("apply")

    assert HEAD in refs(world.control)
    assert "lock: update (DraftEdited)" in said.out
    assert show(world, HEAD, WEB)["held"]
    assert rests(world)


def test_another_lock_on_main_is_where_the_proposal_starts_from(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Hold web") as copy:
        lock = json.loads((copy / WEB).read_text())
        (copy / WEB).write_text(json.dumps({**lock, "held": True}))
    world.run("apply")

    changed = git(world.control, "diff", "--name-only", f"main...{HEAD}").split()
    assert changed == [API]
    assert show(world, HEAD, WEB)["held"]
    assert rests(world)


def test_pin_that_people_left_out_of_what_they_merged_is_not_called_reverted(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.run("apply")
    assert world.run("approve", "control/locks").code == 0
    world.run("apply")

    said = lock_line(world)

    assert said.startswith("lock: keep (Rejected): Pull request #2 was merged, and main does not have these")
    git(world.root, "clone", "-q", str(world.control), "copy")
    ran = Clone(world.root, world.clock, timed=True).run("lock")
    assert "`reconciler lock` in a working copy writes them" in said
    assert f"wrote {WEB}" in ran.out


def test_main_is_merged_into_a_proposal_that_people_changed(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.tag("blueprints", "web/stable", "web/v3")
    with world.edit("control", "Drop a pin") as copy:
        (copy / API).unlink()

    assert world.run("apply").code == 0

    assert git(world.control, "rev-parse", f"{HEAD}^2") == git(world.control, "rev-parse", "main")
    assert rests(world)
    assert world.run("approve", "control/locks").code == 0
    assert show(world, "main", WEB)["commit"] == commit_of(world, "web/v1")
    assert show(world, "main", API)["commit"] == commit_of(world, "web/v3")


class Clone(World):
    """Commands are run in a working copy of the control repository."""

    @property
    def control(self) -> Path:
        """The working copy."""
        return self.root / "copy"


@pytest.mark.parametrize("words", [("hold", "default/api"), ("hold", "api", "v3"), ("follow", "default/api")])
def test_request_about_one_pin_moves_no_other(world: World, words: tuple[str, ...]) -> None:
    git(world.root, "clone", "-q", str(world.control), "copy")

    said = Clone(world.root, world.clock, timed=True).run("lock", *words)

    assert said.code == 0
    assert "default/web" not in said.out
    assert git(world.root / "copy", "status", "--short").split() == ["M", API]


def test_files_that_a_reviewed_lock_loses_are_called_removed(tmp_path: Path) -> None:
    fleet = needy_fleet(tmp_path / "w", package("app.io") | install("app", "app.io"), REVIEWED)
    git(fleet.root, "clone", "-q", str(fleet.control), "copy")
    copy, clone = fleet.root / "copy", Clone(fleet.root, fleet.clock)
    written = clone.run("lock").out
    git(copy, "add", "locks")
    git(copy, "rm", "-qr", "manifests/clusters")
    git(copy, "commit", "-qm", "Lock, and want nothing")

    value = json.loads(clone.run("lock", "-o", "json").out)
    git(copy, "checkout", "-q", ".")
    said = clone.run("lock").out

    assert re.search(r"(?m)^wrote locks/\w+\.json$", written)
    assert not re.search(r"(?m)^removed ", written)
    assert re.search(r"(?m)^removed locks/\w+\.json$", said)
    assert not re.search(r"(?m)^wrote ", said)
    assert (value["written"], len(value["removed"])) == ([], 2)
    assert violations(json.loads(lock_schema.FILE.read_text()), value) == []


def test_explain_cites_the_lock_that_decided(world: World) -> None:
    fields = world.run("explain", "edge/web").out

    assert f"Kptfile upstream = ../blueprints.git web web/stable\n      from the lock ({WEB})\n" in fields


def test_losing_the_state_moves_nothing(world: World) -> None:
    world.run("apply")
    git(world.control, "update-ref", "-d", STATE)

    plan = world.run("plan").out

    assert re.search(r"keep +edge/web +UpToDate", plan)
    assert lock_line(world).startswith("lock: keep (LockPending)")


def test_a_pin_leaves_after_its_package(world: World) -> None:
    world.tag("blueprints", "web/stable", "web/v1")
    with world.edit("control", "No api") as copy:
        (copy / "manifests/api.yaml").unlink()
    assert lock_line(world) == ""
    world.run("apply")
    assert world.run("approve", "edge/api").code == 0
    world.run("apply")

    assert "- PackageVariant default/api: " in world.run("apply").out
    world.run("apply")
    assert git(world.control, "diff", "--name-status", f"main...{HEAD}").split() == ["D", API]


def test_a_pin_that_cannot_be_read_stops_its_variant_alone(world: World) -> None:
    with world.edit("control", "A conflict") as copy:
        (copy / WEB).write_text("<<<<<<< main\n{}\n")
    said = world.run("apply")

    assert said.code == 3
    assert f"problem: {WEB}" in said.out
    assert re.search(r"keep +edge/web +LockPending", said.out)
    assert show(world, HEAD, API)["commit"] == commit_of(world, "web/v2")
    assert git(world.control, "diff", "--name-only", f"main...{HEAD}").split() == [API]


def test_the_json_of_a_plan_that_proposes_a_lock_is_as_its_schema_says(world: World) -> None:
    schema = json.loads((WORLDS.parents[1] / "docs/schemas/plan.schema.json").read_text())

    value = json.loads(world.run("plan", "--output", "json").out)

    assert violations(schema, value) == []
    assert [pin["what"] for pin in value["lock"]["pins"]] == [
        "PackageVariant default/api",
        "PackageVariant default/web",
    ]
    assert not value["empty"]


def test_one_shard_proposes_the_lock(world: World) -> None:
    said = [world.run("apply", "--shard", f"{part}/3").out for part in range(3)]

    assert sum("opened   control" in one for one in said) == 1
    assert rests(world)
    assert [world.run("apply", "--shard", f"{part}/3").code for part in range(3)] == [0, 0, 0]
    assert rests(world)


def test_check_on_the_proposal_shows_what_it_does_to_the_fleet(world: World) -> None:
    world.run("apply")

    said = world.run("check", "--head", BRANCH, "--output", "json")

    assert said.code == 0
    shown = json.loads(said.out)
    assert {p["name"]: p["what"] for p in shown["packages"]} == {"edge/api": "update", "edge/web": "update"}
    old, new = (commit_of(world, f"web/{tag}")[:12] for tag in ("v1", "v2"))
    assert shown["pins"] == [
        {
            "what": f"PackageVariant default/{name}",
            "before": f"web/stable@{old}",
            "after": f"web/stable@{new}",
            "why": "follows its upstream",
        }
        for name in ("api", "web")
    ]


def test_check_shows_a_pin_that_somebody_else_changes(world: World) -> None:
    held = show(world, "main", WEB) | {"commit": commit_of(world, "web/v2"), "held": True}
    with world.edit("control", "Hold it") as copy:
        git(copy, "switch", "-qc", "hold")
        (copy / WEB).write_text(json.dumps(held))
        git(copy, "add", "-A")
        git(copy, "commit", "-qm", "Hold web at v2")
        git(copy, "push", "-q", "origin", "hold")
        git(copy, "switch", "-q", "main")
        (copy / "README.md").write_text("something\n")

    said = world.run("check", "--head", "hold")

    assert said.code == 0, said.err
    assert re.search(r"lock +~ PackageVariant default/web: .* -> .* \(held by a person\)", said.out)
    assert said.out.count("lock  ") == 1
