"""Weeks of operators that once ended in a false report or a dead end, kept: fixed steps of the command line.

Each apply is followed by a second one from a fresh clone, which must write no ref of any repository.
"""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.edge_fleet import ROLL_BACK, WAVES, EdgeFleet, blueprint, make_edges, make_empty
from tests.support.git import Repo

pytestmark = pytest.mark.slow

GROUP = "reconciler/fleet/group/repository/default/ap1/1"
GROUPED = "  pullRequests: {groupBy: repository}\n"


def edit(world: EdgeFleet, branch: str, *, edge: str = "ap1", package: str = "web") -> None:
    """A person changes a value of a package on a branch."""
    path, repo = f"{package}/app.yaml", world.repo(edge)
    text = repo.read(branch, path).decode()
    repo.commit({path: text.replace("replicas: 1", "replicas: 7")}, branch=branch, message="Mine\n")


def is_edited(world: EdgeFleet, branch: str = "main", *, edge: str = "ap1", package: str = "web") -> bool:
    return "replicas: 7" in world.repo(edge).read(branch, f"{package}/app.yaml").decode()


def opened(world: EdgeFleet, edge: str = "ap1") -> dict[int, str]:
    """Return the titles of the open pull requests of a cluster."""
    return {number: pull["title"] for number, pull in world.pulls(edge).items() if pull["state"] == "open"}


def waves_of(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if line.startswith("  wave ")]


# Rollouts


@pytest.mark.parametrize("more", ["", GROUPED])
def test_the_rollback_of_a_rollout_that_creates_packages_ends(tmp_path: Path, more: str) -> None:
    world = make_empty(tmp_path / "w")
    world.configure(WAVES + more)
    world.want(1)
    world.apply()
    world.run("approve", "--all")
    world.apply()
    world.run("approve", "eu1#1")
    world.want(1, {ROLL_BACK: "web/v1"})

    closing = next(line for line in world.apply().out.splitlines() if "us1/web" in line)
    assert closing.split()[:3] == ["close", "us1/web", "RolledBack"]

    assert opened(world, "us1") == {}
    assert world.run("approve", "--all").out.strip() == "Nothing is open."
    staying = "{0} cannot go back ({1}: {1} was made by it and stays until its target goes)"
    assert waves_of(world.apply().out) == [
        f"wave canary: rolled back, 1 of 1 published, {staying.format(1, 'ap1/web')}",
        f"wave main: rolled back, 1 of 2 published, {staying.format(1, 'eu1/web')}",
    ]
    assert world.images() == ["v1", "v1", ""]


# Packages that leave, and packages that get another name


@pytest.mark.parametrize("own", ["web", "web2"])
def test_no_name_of_set_and_package_takes_a_package_from_its_cluster(own: str) -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    edit(world, world.draft_branch("ap1", "web"))
    world.apply()
    world.want(2, name="shop", own=own)

    for _ in range(5):
        ran = world.apply()
        approved = world.run("approve", "--all")
        assert "approved ap1/web: web/v2" not in approved.out, "no manifest wants it any more"
        there = zip(world.images(), world.images("shop"), strict=True)
        assert all(old or new for old, new in there), ran.out

    assert (world.images(), world.images("shop")) == ([""] * 3, ["v2"] * 3)
    assert is_edited(world, world.draft_branch("ap1", "web"))


# Approval


def test_a_group_is_not_approved_by_the_name_of_one_of_its_packages() -> None:
    world = make_edges(GROUPED, packages=("web", "db"))
    for package in ("web", "db"):
        world.want(2, package=package)
    world.apply()

    refused = world.run("approve", "ap1/web")

    assert refused.code == Exit.REFUSED
    assert "It shares pull request ap1#3 with ap1/db" in refused.out
    assert "hint: Approve them together: `reconciler approve ap1#3`." in refused.out
    assert "Update 2 packages" in world.run("pr", "show", "ap1/web").out
    assert world.run("approve", "ap1/web", "ap1/db").code == Exit.DONE
    assert (world.image("ap1"), world.image("ap1", "db")) == ("v2", "v2")


# A reviewed lock


# What people did stays


def test_a_hotfix_on_main_that_a_draft_asks_about_is_not_answered_by_the_next_revision() -> None:
    """Our own commit changed the value that the question is about; the next run took that for an answer."""
    world = make_edges("")
    upstream = Repo(world.root / "blueprints.git")
    upstream.commit(blueprint(3))
    upstream.tag("web/v3")
    world.want(3)
    world.run("apply")
    branch, repo = world.draft_branch("ap1", "web"), world.repo("ap1")
    repo.commit({"web/note.txt": "mine\n"}, branch=branch, message="Mine\n")
    world.run("apply")
    hotfix = repo.read("main", "web/app.yaml").decode().replace("web:v1", "web:hotfix")
    repo.commit({"web/app.yaml": hotfix}, message="Hotfix\n")
    assert world.apply().code == Exit.WAITING
    world.want(2)

    assert world.apply().code == Exit.WAITING

    refused = world.run("approve", "ap1/web")
    assert "conflict in app.yaml at spec.template.spec.containers[name=main].image" in refused.out
    assert world.image("ap1") == "hotfix"
    answer = repo.read(branch, "web/app.yaml").decode().replace("web:v2", "web:both")
    repo.commit({"web/app.yaml": answer}, branch=branch, message="Answer\n")
    world.apply()
    assert world.run("approve", "ap1/web").code == Exit.DONE
    assert world.image("ap1") == "both"


# Groups that were closed


@pytest.mark.parametrize("published", [True, False])
def test_the_edit_of_a_person_in_a_group_outlives_every_revision(tmp_path: Path, published: bool) -> None:
    """Our commit on top of the edit had it; the one after that was made without it."""
    world = make_edges(GROUPED, packages=("web", "db")) if published else make_empty(tmp_path / "w")
    upstream = Repo(world.root / "blueprints.git")
    upstream.commit(blueprint(3))
    upstream.tag("web/v3")
    world.configure(GROUPED)
    for package in ("web", "db"):
        world.want(2, package=package)
    world.run("apply")
    edit(world, GROUP)
    for revision in (3, 2):
        world.want(revision)
        world.apply()
        assert (world.image("ap1", branch=GROUP), is_edited(world, GROUP)) == (f"v{revision}", True)
    Repo(world.control).commit({"manifests/set.json": None})

    world.apply()

    assert is_edited(world, GROUP)
    assert "ap1#" in (refused := world.run("approve", "--all")).out
    assert refused.code == Exit.REFUSED
