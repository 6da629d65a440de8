"""What is generated for clusters, on real repositories: recognised, rejected, deleted, never input."""

import json
import shutil
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.world import World, build_world, git, restored

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
NET = "dependencies/providers/acme-net.yaml"


def delivered(world: World) -> World:
    for line in (("apply",), ("approve", "dev/dependencies"), ("apply",)):
        assert world.run(*line).code == 0
    return world


def delivery(name: str = "70-crossplane-delivery") -> World:
    """Return a world whose packages are delivered."""
    return restored(f"delivered-{name}", lambda root: delivered(build_world(WORLDS / name, root)))


@pytest.fixture
def world() -> World:
    return delivery()


def test_generated_files_among_the_manifests_are_no_input(world: World) -> None:
    before = world.run("lock", "--output", "json").out
    with world.edit("control", "Copy what was generated") as copy:
        text = git(world.root / "dev.git", "show", f"main:{NET}")
        (copy / "manifests/clusters/dev/copied.yaml").write_text(text)

    assert world.run("lock", "--output", "json").out == before
    assert "keep    dev/dependencies  UpToDate" in world.run("plan", "--all").out


def test_a_repository_that_is_its_own_control_repository_rests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(WORLDS / "70-crossplane-delivery", source)
    manifest = source / "config/manifests/repositories.yaml"
    manifest.write_text(
        manifest.read_text().replace(
            "../dev.git, branch: main", "../control.git, branch: main, directory: live"
        )
    )
    (source / "config/reconciler.yaml").write_text(
        (source / "config/reconciler.yaml").read_text().replace("[manifests]", "[.]")
    )
    world = delivered(build_world(source, tmp_path / "w"))
    before = world.all_refs()

    assert world.run("apply", cache="another").code == 0
    assert world.all_refs() == before
    assert git(world.control, "show", f"main:live/{NET}").startswith("# Generated for")


def test_an_unreachable_repository_keeps_its_package_and_the_lock_is_written(world: World) -> None:
    (world.root / "dev.git").rename(world.root / "away.git")
    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")

    assert world.run("lock", "--upgrade", "x.example.com/acme/net").code == 5
    assert world.run("apply").code == 5
    (world.root / "away.git").rename(world.root / "dev.git")

    assert "update  dev/dependencies  UpstreamChanged" in world.run("apply").out


@pytest.mark.parametrize(
    ("name", "manifest", "package", "subject"),
    [
        ("70-crossplane-delivery", "platform", "x.example.com/acme/platform", "Configuration platform"),
        ("71-carvel-delivery", "shop", "shop.io", "PackageInstall shop/shop"),
        ("72-porter-delivery", "shop", "r.example.com/acme/store", "Installation apps/shop"),
    ],
)
def test_a_manifest_that_names_an_unknown_package_takes_nothing_from_a_cluster(
    name: str, manifest: str, package: str, subject: str
) -> None:
    world = delivery(name)
    before = world.all_refs()["dev.git"]
    path = f"manifests/clusters/dev/{manifest}.yaml"
    world.propose_nothing("typo")
    with world.edit("control", "Misname the package", branch="typo") as copy:
        text = (copy / path).read_text()
        assert package in text
        (copy / path).write_text(text.replace(package, "unknown.example.com/package"))

    checked = world.run("check", "--head", "typo")

    assert checked.code == Exit.INVALID_INPUT
    assert f"{subject} keeps {package} " in checked.out
    assert "Merging this changes no package\n" in checked.out
    with world.edit("control", "Misname the package") as copy:
        (copy / path).write_text(text.replace(package, "unknown.example.com/package"))
    planned = json.loads(world.run("plan", "-o", "json").out)
    assert planned["moves"] == []
    assert [problem["subject"] for problem in planned["problems"]] == [subject]
    assert world.run("lock", "--check").code == Exit.INVALID_INPUT
    assert world.run("apply").code == Exit.INVALID_INPUT
    assert world.all_refs()["dev.git"] == before
    with world.edit("control", "Name it again") as copy:
        (copy / path).write_text(text)
    mended = json.loads(world.run("plan", "-o", "json").out)
    assert (mended["moves"], mended["problems"]) == ([], [])
    assert world.run("apply").code == 0
    assert world.all_refs()["dev.git"] == before


def test_a_file_that_a_person_deleted_is_not_generated_again_before_it_changes(world: World) -> None:
    with world.edit("dev", "We do not want it") as copy:
        (copy / NET).unlink()

    said = world.run("apply")

    assert "Rejected" in said.out, said.out
    assert "drafts/dependencies" not in "".join(world.all_refs()["dev.git"])


def test_package_of_a_user_is_not_in_review_with_what_another_draft_changes(tmp_path: Path) -> None:
    world = build_world(WORLDS / "71-carvel-delivery", tmp_path / "w")

    def row(name: str) -> tuple[str, str, str]:
        items = json.loads(world.run("status", "-o", "json").out)["items"]
        item = next(item for item in items if item["name"] == name)
        return item["summary"]["main"], item["summary"]["review"], item["package"]["phase"]

    world.run("apply")
    assert row("shop") == ("", "1.0.0", "in review"), "what it needs is nowhere yet"

    delivered(world)
    world.lay(WORLDS / "71-carvel-delivery/steps/release")
    world.run("lock", "--upgrade", "db.io")
    assert world.run("apply").code == 0

    assert row("db.io") == ("1.0.0", "1.1.0", "in review")
    assert row("shop") == ("1.0.0", "", "published")


def test_upgrade_says_why_a_newer_version_is_not_chosen() -> None:
    world = delivery("71-carvel-delivery")
    with world.edit("control", "Release what has no solution") as copy:
        text = (copy / "index/shop.io/1.0.0/package.yaml").read_text()
        (copy / "index/shop.io/2.0.0").mkdir()
        newer = text.replace("1.0.0", "2.0.0").replace(
            'db.io, version: ">=2.0.0"', 'db.io, version: ">=3.0.0"'
        )
        (copy / "index/shop.io/2.0.0/package.yaml").write_text(newer)

    why = "(dev): 2.0.0 requires db.io >=3.0.0, and no version in the index fits"
    for command in ("lock", "plan"):
        run = world.run(command, "--upgrade", "shop.io")
        assert (run.code, run.out.count(f"shop.io is at 1.0.0 and not at 2.0.0 {why}")) == (0, 1)
        assert "is at" not in world.run(command, "--upgrade", "log.io").out


def test_upgrade_names_the_locked_package_that_has_to_move_too() -> None:
    world = delivery("71-carvel-delivery")
    with world.edit("control", "Release two that belong together") as copy:
        for name in ("shop.io", "db.io"):
            text = (copy / f"index/{name}/1.0.0/package.yaml").read_text().replace(": 1.0.0", ": 2.0.0")
            text = text.replace(f"{name}.1.0.0", f"{name}.2.0.0").replace(
                'db.io, version: ">=1', 'db.io, version: ">=2'
            )
            (copy / f"index/{name}/2.0.0").mkdir()
            (copy / f"index/{name}/2.0.0/package.yaml").write_text(text)

    alone = world.run("lock", "--check", "--upgrade", "shop.io").out
    both = world.run("lock", "--check", "--upgrade", "shop.io", "--upgrade", "db.io")

    why = "2.0.0 requires db.io >=2.0.0, and db.io is locked at 1.0.0: add --upgrade db.io"
    assert alone.count(f"shop.io is at 1.0.0 and not at 2.0.0 (dev): {why}\n") == 1
    assert (both.code, "is at" in both.out) == (10, False)
    assert "1 changed, 2 dependency pins changed" in both.out


@pytest.mark.parametrize("name", ["db.io", "carvel:db.io"])
def test_locked_package_without_a_version_in_the_index_is_a_name(name: str) -> None:
    world = delivery("71-carvel-delivery")
    with world.edit("control", "Remove every version") as copy:
        shutil.rmtree(copy / "index/db.io")

    run = world.run("lock", "--upgrade", name)

    assert run.code == 0
    assert "no version of db.io is in the index (dev): it stays at what is locked, 1.0.0" in run.out
    assert world.run("lock", "--upgrade", "dbb.io").code == Exit.USAGE


def test_check_says_where_nothing_is_delivered_any_more() -> None:
    world = delivery("71-carvel-delivery")
    world.propose_nothing("typo")
    with world.edit("control", "Misname the cluster", branch="typo") as copy:
        (copy / "manifests/clusters/dev").rename(copy / "manifests/clusters/devv")

    checked = world.run("check", "--head", "typo")

    assert checked.err.count("note: Nothing is delivered to cluster devv: no Repository belongs to it") == 1
