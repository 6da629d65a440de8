"""`--html` writes one page: what its data says is what plan and status say."""

import json
import re
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.html_reports import read_data
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A fleet with four published packages: two get another revision, one is deleted."""
    world = write_world(tmp_path_factory.mktemp("w") / "w", ("edge-1", "edge-2"))
    world.publish()
    control = Repo(world.control, time=world.clock + 60)
    control.commit({manifest(edge, "web"): variant(edge, "web", revision=2) for edge in ("edge-1", "edge-2")})
    control.commit({manifest("edge-1", "db"): None})
    return world


def test_page_of_a_plan_has_what_the_commands_say(world: World, tmp_path: Path) -> None:
    ran = world.run("plan", "--html", str(tmp_path / "plan.html"))
    data = read_data((tmp_path / "plan.html").read_text())

    plan = json.loads(world.run("plan", "-o", "json").out)
    web = data["packages"]["edge-1/web"]
    assert [*data["packages"]] == [change["name"] for change in plan["changes"]]
    assert [row["op"] for row in data["packages"].values()] == [change["op"] for change in plan["changes"]]
    assert (web["main"], web["review"], web["phase"]) == ("web/v1", "web/v2", "pending")
    assert web["web_url"] == ""  # a local repository has no pages
    assert plan["checksum"] in (tmp_path / "plan.html").read_text()
    assert ran.out == world.run("plan").out


def test_page_of_a_status_has_nothing_to_apply(world: World, tmp_path: Path) -> None:
    world.run("status", "--html", str(tmp_path / "status.html"))
    page = (tmp_path / "status.html").read_text()

    assert {row["op"] for row in read_data(page)["packages"].values()} == {""}
    assert "Checksum" not in page


def test_page_of_an_apply_has_the_states_after_it(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    World(tmp_path / "w").run("apply", "--html", str(tmp_path / "apply.html"))

    data = read_data((tmp_path / "apply.html").read_text())
    assert {row["phase"] for row in data["packages"].values()} == {"in review"}


def test_page_of_a_check_has_what_merging_changes_first(world: World, tmp_path: Path) -> None:
    extra = variant("edge-1", "web").replace("name: web-edge-1", "name: extra")
    extra = extra.replace("repo: edge-1\n    package: web", "repo: edge-1\n    package: extra")
    control = Repo(world.control, time=world.clock + 120)
    control.commit({manifest("edge-1", "extra"): extra}, branch="change", start="main")

    world.run("check", "--head", "change", "--html", str(tmp_path / "check.html"))
    data = read_data((tmp_path / "check.html").read_text())

    first, *rest = data["packages"].values()
    assert (first["full"], first["op"]) == ("edge-1/extra", "create")
    assert {row["op"] for row in rest} == {"same"}
    assert "Merging this creates 1 draft in 1 repository" in (tmp_path / "check.html").read_text()


def test_conflict_has_every_side_and_what_set_the_local_value(tmp_path: Path) -> None:
    root = tmp_path / "conflict"
    world = write_world(root, ("edge-1",))
    world.publish()
    with world.edit("edge-1", "Hotfix for the sale") as copy:
        path = copy / "web/app.yaml"
        path.write_text(path.read_text().replace("web:v1", "web:hotfix"))
    world.clock += 60
    Repo(world.control, time=world.clock).commit(
        {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)}
    )
    page = tmp_path / "page.html"
    for arguments in (("plan",), ("apply",), ("plan",)):
        world.run(*arguments, "--html", str(page))
        ((place, *sides, origin),) = read_data(page.read_text())["packages"]["edge-1/web"]["conflicts"]

        assert place == "app.yaml\nDeployment web\nspec.template.spec.containers[name=main].image"
        assert sides == [f"registry.example/web:{tag}" for tag in ("v1", "v2", "hotfix")]
        assert re.fullmatch(r"Hotfix for the sale \(.+, [0-9a-f]{8}\)", origin)
