"""What is generated for clusters, on real repositories: recognised, rejected, deleted, never input."""

import json
import shutil
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.schema import violations
from tests.support.world import World, build_world, git

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
NET = "dependencies/providers/acme-net.yaml"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return build_world(WORLDS / "70-crossplane-delivery", tmp_path / "w")


def delivered(world: World) -> World:
    assert world.run("apply").code == 0
    assert world.run("approve", "dev/dependencies").code == 0
    assert world.run("apply").code == 0
    return world


def test_generated_files_among_the_manifests_are_no_input(world: World) -> None:
    delivered(world)
    before = world.run("lock", "--output", "json").out
    with world.edit("control", "Copy what was generated") as copy:
        text = git(world.root / "dev.git", "show", f"main:{NET}")
        (copy / "manifests/clusters/dev/copied.yaml").write_text(text)

    assert world.run("lock", "--output", "json").out == before
    assert "keep    dev/dependencies  UpToDate" in world.run("plan", "--all").out


def test_a_second_run_leaves_the_pull_request_of_an_update_alone(world: World) -> None:
    delivered(world)
    with world.edit("dev", "Explain the provider") as copy:
        (copy / "dependencies/README.md").write_text("What this cluster needs.\n")
    world.run("apply")
    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")
    world.run("lock", "--upgrade", "x.example.com/acme/net")

    assert "Update dependencies to locks/dev@" in world.run("apply").out
    before = world.all_refs()

    assert "Nothing was written.\n" in world.run("apply").out
    assert world.all_refs() == before


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


def test_deletion_says_whether_nothing_is_generated_or_it_goes_elsewhere(world: World) -> None:
    delivered(world)
    before = git(world.control, "rev-parse", "main").strip()
    with world.edit("control", "Nothing needs it") as copy:
        (copy / "manifests/clusters/dev/platform.yaml").unlink()

    check = world.run("check", "--base", before).out

    gone = "Nothing is generated for cluster dev any more"
    assert f"delete    PackageVariant default/dependencies@dev  {gone}\n" in check
    assert f"delete    dev/dependencies  (NotDesired)  {gone}\n" in check
    git(world.control, "update-ref", "refs/heads/main", before)
    with world.edit("control", "Another path") as copy:
        manifest = copy / "manifests/repositories.yaml"
        annotated = "{name: dev, annotations: {reconciler.dev/dependencies: deps}}"
        manifest.write_text(manifest.read_text().replace("{name: dev}", annotated))

    plan = world.run("plan").out

    elsewhere = "PackageVariant default/dependencies@dev has another downstream now: dev/deps"
    assert f"delete  dev/dependencies  NotDesired  {elsewhere}\n" in plan


def test_what_was_rejected_is_not_proposed_again_before_it_changes(world: World) -> None:
    world.run("apply")
    assert world.run("pr", "close", "dev#1").code == 0

    again = world.run("apply")
    assert "Rejected" in again.out
    assert again.code == 7

    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")
    world.run("lock", "--upgrade", "x.example.com/acme/net")
    assert "Rejected" not in world.run("apply").out


def test_a_file_that_a_person_deleted_is_not_generated_again_before_it_changes(world: World) -> None:
    delivered(world)
    with world.edit("dev", "We do not want it") as copy:
        (copy / NET).unlink()

    said = world.run("apply")

    assert "Rejected" in said.out, said.out
    assert "drafts/dependencies" not in "".join(world.all_refs()["dev.git"])


def test_nothing_is_taken_away_for_a_manifest_that_does_not_parse(world: World) -> None:
    delivered(world)
    with world.edit("control", "Break it") as copy:
        (copy / "manifests/clusters/dev/platform.yaml").write_text("kind: [")

    said = world.run("apply")

    assert said.code == 3
    assert "keep    dev/dependencies  OwnerStalled" in said.out, said.out
    assert "delete" not in "".join(world.all_refs()["dev.git"])


def test_what_nobody_needs_any_more_is_proposed_for_deletion(world: World) -> None:
    delivered(world)
    with world.edit("control", "Remove the platform") as copy:
        (copy / "manifests/clusters/dev/platform.yaml").unlink()

    world.run("apply")
    assert "refs/heads/reconciler/main/delete/dependencies" in world.all_refs()["dev.git"]
    assert world.run("approve", "dev/dependencies").code == 0
    world.run("apply")

    assert git(world.root / "dev.git", "ls-tree", "--name-only", "main").split() == ["README.md"]
    assert world.run("plan").out.startswith("Nothing to do")


def test_an_unreachable_repository_keeps_its_package_and_the_lock_is_written(world: World) -> None:
    delivered(world)
    (world.root / "dev.git").rename(world.root / "away.git")
    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")

    assert world.run("lock", "--upgrade", "x.example.com/acme/net").code == 5
    assert world.run("apply").code == 5
    (world.root / "away.git").rename(world.root / "dev.git")

    assert "update  dev/dependencies  UpstreamChanged" in world.run("apply").out


def test_status_tells_of_every_package_in_its_own_words(world: World) -> None:
    delivered(world)

    schema = json.loads((Path(__file__).parents[2] / "docs/schemas/status.schema.json").read_text())
    assert violations(schema, json.loads(world.run("status", "--output", "json").out)) == []
    said = json.loads(world.run("status", "dev/platform", "--output", "json").out)["items"]

    assert [(one["kind"], one["status"]["foundDependencies"]) for one in said] == [("Configuration", 1)]
    assert "Provider dev/acme-net" in world.run("status", "-o", "wide").out


def test_what_has_no_place_is_not_called_published(world: World) -> None:
    delivered(world)
    before = git(world.control, "rev-parse", "main").strip()
    with world.edit("control", "Remove the Repository") as copy:
        (copy / "manifests/repositories.yaml").unlink()
    world.run("apply")
    world.run("approve", "dev/dependencies")
    assert world.run("apply").code == 0

    said = world.run("status", "--output", "json")

    items = json.loads(said.out)["items"]
    assert {item["name"] for item in items} == {"platform", "acme-net"}
    assert {item["package"]["phase"] for item in items} == {"stalled"}
    assert {(item["summary"]["main"], item["summary"]["review"]) for item in items} == {("", "")}
    why = "no Repository belongs to it; register one, or remove its manifests, clusters/dev"
    assert {item["package"]["message"] for item in items} == {f"Nothing is delivered to cluster dev: {why}"}
    check = world.run("check", "--base", before).out
    assert "drop      PackageVariant default/dependencies@dev  It is not applied\n" in check


def versions(world: World) -> tuple[str, str]:
    """Return the version of the provider on main and the one in review, as status has them."""
    (item,) = json.loads(world.run("status", "dev/acme-net", "--output", "json").out)["items"]
    return item["summary"]["main"], item["summary"]["review"]


def test_an_update_in_review_leaves_the_version_on_main(world: World) -> None:
    world.run("apply")
    assert versions(world) == ("", "v1.5.0")
    world.run("approve", "dev/dependencies")
    world.run("apply")
    assert versions(world) == ("v1.5.0", "")
    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")
    world.run("lock", "--upgrade", "x.example.com/acme/net")
    world.run("apply")

    assert versions(world) == ("v1.5.0", "v1.6.0")


@pytest.mark.parametrize("moves", [True, False])
def test_a_deletion_in_review_leaves_the_version_on_main(world: World, *, moves: bool) -> None:
    delivered(world)
    with world.edit("control", "Another path, or no place") as copy:
        manifest = copy / "manifests/repositories.yaml"
        annotated = "{name: dev, annotations: {reconciler.dev/dependencies: deps}}"
        text = manifest.read_text().replace("{name: dev}", annotated)
        manifest.write_text(text if moves else "")

    assert "deletion of dependencies" in world.run("apply").out

    assert versions(world) == ("v1.5.0", "")


def test_status_and_apply_call_a_review_alike(world: World) -> None:
    def reviews(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("review ")]

    first = reviews(world.run("apply").out)
    assert "new locks/dev@" in "".join(first)
    assert reviews(world.run("status").out) == first
    world.run("approve", "dev/dependencies")
    world.run("apply")
    world.lay(WORLDS / "70-crossplane-delivery/steps/net-1.6")
    world.run("lock", "--upgrade", "x.example.com/acme/net")

    second = reviews(world.run("apply").out)

    assert "update to locks/dev@" in "".join(second)
    assert reviews(world.run("status").out) == second


@pytest.mark.parametrize(
    ("name", "manifest", "package", "subject"),
    [
        ("70-crossplane-delivery", "platform", "x.example.com/acme/platform", "Configuration platform"),
        ("71-carvel-delivery", "shop", "shop.io", "PackageInstall shop/shop"),
        ("72-porter-delivery", "shop", "r.example.com/acme/store", "Installation apps/shop"),
    ],
)
def test_a_manifest_that_names_an_unknown_package_takes_nothing_from_a_cluster(
    tmp_path: Path, name: str, manifest: str, package: str, subject: str
) -> None:
    world = delivered(build_world(WORLDS / name, tmp_path / "w"))
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
