"""Rollouts of a set over three clusters as real repositories: ways back, failures, renames, orders."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.edge_fleet import ROLL_BACK, SKIP, WAVES, make_edges, make_empty, make_monorepo
from tests.support.git import Repo

pytestmark = pytest.mark.slow

GROUP = "reconciler/fleet/group/repository/default/ap1/1"
GROUPED = "  pullRequests: {groupBy: repository}\n"


@pytest.mark.parametrize("layout", ["repositories", "monorepo"])
def test_a_rollback_reaches_every_package_and_leaves_nothing_to_do(layout: str) -> None:
    world = make_edges() if layout == "repositories" else make_monorepo()
    revision = "web/v2" if layout == "repositories" else "blueprints/web/v2"
    world.want(2)
    first = world.run("apply").out
    assert f"{revision.replace('2', '1')} -> {revision}" in first
    world.settle()
    assert world.images() == ["v2"] * 3

    world.want(2, {ROLL_BACK: revision})
    world.settle()

    assert world.images() == ["v1"] * 3
    assert world.is_quiet()
    told = world.run("explain", "ap1/web").out
    assert "manifests/set.json" in told
    assert "is rolled back" in told


@pytest.mark.parametrize("lost", ["state", "policy", "unread"])
def test_a_rollback_knows_what_main_had_before(lost: str) -> None:
    world = make_edges()
    world.want(2)
    if lost == "unread":
        (world.root / "eu1.git").rename(world.root / "away")
    world.run("apply")
    world.run("approve", "--all")
    if lost == "unread":
        (world.root / "away").rename(world.root / "eu1.git")
    elif lost == "policy":
        world.configure("")
        world.run("apply")
        world.configure()
    world.settle()
    assert world.images() == ["v2"] * 3
    if lost == "state":
        for branch in ("state", "status"):
            Repo(world.control).delete(f"refs/heads/reconciler/fleet/{branch}")

    world.want(2, {ROLL_BACK: "web/v2"})
    world.settle()

    assert world.images() == ["v1"] * 3
    assert world.is_quiet()


GONE = {f"web/{name}": None for name in ("Kptfile", "app.yaml", "package-context.yaml")}
"""Files of a package that a person deletes."""
HINT = "A person deleted it there. Approve it by name, ap1#{0}, or put web back on "
REFUSED = f"ap1#{{0}} deletes what a manifest wants: web\n  hint: {HINT}"


def test_approving_all_deletes_no_wanted_package_that_a_person_deleted_in_a_group() -> None:
    world = make_edges(GROUPED, packages=("db", "web"))
    for package in ("db", "web"):
        world.want(2, package=package)
    world.run("apply")
    world.repo("ap1").commit(GONE, branch=GROUP, message="Mine\n")
    world.configure(f"{GROUPED}  approval: {{auto: [{{selector: {{}}, edited: true}}]}}\n")

    said = world.run("apply").out

    assert "risks: deletion in 1 package" in said
    assert "keep     ap1/web  DeletedByPerson" in said
    assert f"A person deleted it on {GROUP}: merging that deletes the package" in said
    assert "updated  ap1 #3 Update 1 package and delete web" in said
    assert "decide     web: its deletion by a person  ap1#3" in said
    assert "| `ap1/web` | deleted |" in world.run("pr", "show", "ap1#3").out
    world.run("apply")
    refused = world.run("approve", "--all")
    assert refused.code == Exit.REFUSED
    assert REFUSED.format(3) in refused.out
    assert "It shares pull request ap1#3 with ap1/web" in world.run("approve", "ap1/db").out
    assert world.images() == ["v1", "v2", "v2"]
    assert world.run("approve", "ap1#3").code == Exit.DONE
    assert (world.images(), world.images("db")) == (["", "v2", "v2"], ["v2"] * 3)


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_approving_all_deletes_no_wanted_package_that_a_person_deleted_in_its_draft(left: str) -> None:
    world = make_edges("")
    world.want(2)
    world.run("apply")
    head = "drafts/web/packagevariant-2"
    gone = {path: None for path in GONE if left == "nothing" or "context" not in path}
    world.repo("ap1").commit(gone, branch=head, message="Mine\n")
    world.configure("  approval: {auto: [{selector: {}, edited: true}]}\n")

    said = world.run("apply").out

    assert f"A person deleted it on {head}: merging that deletes the package" in said
    assert "updated  ap1 #2 Delete web" in said
    assert "opened" not in said
    assert "a person deleted it on this branch" in world.run("pr", "show", "ap1#2").out
    assert f"{REFUSED.format(2)}{head}" in world.run("approve", "--all").out
    assert world.images() == ["v1", "v2", "v2"]
    ending = "removed" if left == "nothing" else "merged; the files that its branch keeps are still there"
    assert f"approved ap1/web: {ending}" in world.run("approve", "ap1#2").out
    assert world.images() == ["", "v2", "v2"]
    assert "refs/tags/web/v2" not in world.repo("ap1").refs()


def test_a_rollout_whose_only_canary_is_removed_waits_for_a_person() -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    rest = {"repositories": [{"name": edge} for edge in ("eu1", "us1")]}
    world.want(2, target=rest)

    said = world.run("apply")

    assert "wave canary: waiting, 0 of 0 published, has no package any more" in said.out
    assert world.images()[1:] == ["v1", "v1"]
    world.want(2, {SKIP: "web/v2/canary"}, target=rest)
    world.settle()
    assert world.images()[1:] == ["v2", "v2"]


@pytest.mark.parametrize("group_by", ["package", "set"])
def test_nobody_rejected_the_draft_that_a_later_wave_closed(tmp_path: Path, group_by: str) -> None:
    world = make_empty(tmp_path / "w")
    world.configure(f"  pullRequests: {{groupBy: {group_by}}}\n")
    world.want(1)
    world.apply()
    world.configure(f"{WAVES}  pullRequests: {{groupBy: {group_by}}}\n")
    world.want(2)
    assert "close   2 packages  AwaitingWave" in world.apply().out
    world.want(1)

    ran = world.apply()

    assert ran.code == Exit.DONE
    assert "Rejected" not in ran.out
    world.settle()
    assert world.images() == ["v1"] * 3


def test_the_hint_of_an_order_names_the_wave_that_it_is_about() -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    world.want(2, {SKIP: "web/v9/main"})

    assert 'write "web/v2/main"' in world.run("plan").out


def test_a_canary_that_left_and_came_back_is_the_canary_that_it_was() -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    world.run("approve", "ap1/web")
    world.want(2, target={"repositories": [{"name": edge} for edge in ("eu1", "us1")]})
    world.run("apply")

    world.want(2)

    assert "wave canary: complete, 1 of 1 published" in world.run("apply").out
    world.want(2, {ROLL_BACK: "web/v2"})
    world.settle()
    assert world.images() == ["v1"] * 3
    assert world.is_quiet()
