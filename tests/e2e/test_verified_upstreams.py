"""Upstreams that must be signed: what is not is a problem of its variant, and reaches nothing in any way."""

import json
from pathlib import Path

import pytest

from reconciler.errors import Exit
from tests.support.git import Repo
from tests.support.signing import Key, make_key, signing_options
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, build_world, git

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {{name: fleet}}
spec:
  manifests: [manifests]
  verify:
  - prefix: {root}/blueprints.git
    signed: {signed}
    sshKeys: ["{key}"]
"""


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path / "key")


def require_signatures(world: World, key: Key, signed: str = "tag") -> None:
    public = key.private.with_suffix(".pub").read_text().strip()
    text = CONFIGURATION.format(root=world.root, signed=signed, key=public)
    Repo(world.control).commit({"reconciler.yaml": text})


def sign_tags(world: World, key: Key, *tags: str) -> None:
    """Replace tags of the blueprints by signed ones of the same commits."""
    for tag in tags:
        commit = f"{tag}^{{commit}}"
        git(world.root / "blueprints.git", *signing_options(key), "tag", "-s", "-f", "-m", tag, tag, commit)


def make(root: Path, *, revision: int = 1) -> World:
    files = {manifest("edge-1", "web"): variant("edge-1", "web", revision=revision)}
    write_world(root, ("edge-1",), more=files)
    return World(root)


def problems(world: World) -> list[str]:
    ran = world.run("plan", "--output", "json")
    return [problem["message"] for problem in json.loads(ran.out)["problems"]]


def test_unsigned_revision_stalls_its_variant_and_signed_ones_proceed(tmp_path: Path, key: Key) -> None:
    world = make(tmp_path / "w", revision=2)
    sign_tags(world, key, "db/v1")
    require_signatures(world, key)

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert "manifests/edge-1-web.yaml:8:5: UpstreamNotVerified: Upstream web/v2 of repository" in ran.out
    assert "is not verified: web/v2 is no signed tag" in ran.out
    assert "spec.verify" in ran.out
    edge = "".join(world.all_refs()["edge-1.git"])
    assert "drafts/db" in edge
    assert "drafts/web" not in edge
    sign_tags(world, key, "web/v2")
    assert world.run("apply").code == Exit.DONE
    assert "drafts/web" in "".join(world.all_refs()["edge-1.git"])


def test_upgrade_to_an_unsigned_revision_leaves_package_and_draft_as_they_are(
    tmp_path: Path, key: Key
) -> None:
    world = make(tmp_path / "w")
    sign_tags(world, key, "web/v1", "db/v1")
    require_signatures(world, key)
    assert world.run("apply").code == Exit.DONE
    before = world.all_refs()["edge-1.git"]
    Repo(world.control).commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert world.all_refs()["edge-1.git"] == before


@pytest.mark.parametrize(
    ("signed", "fault"),
    [
        ("tag", "main is no signed tag"),
        ("commit", "commit {} is not signed"),
        ("either", "main is no signed tag, and commit {} is not signed"),
    ],
)
def test_branch_counts_by_the_signature_of_its_commit(
    tmp_path: Path, key: Key, signed: str, fault: str
) -> None:
    world = make(tmp_path / "w")
    branch = variant("edge-1", "web").replace("revision: 1", "branch: main")
    Repo(world.control).commit({manifest("edge-1", "web"): branch, manifest("edge-1", "db"): None})
    require_signatures(world, key, signed)
    blueprints = world.root / "blueprints.git"
    tip = git(blueprints, "rev-parse", "main").strip()

    (message,) = problems(world)

    assert message.endswith(f"is not verified: {fault.format(tip[:12])}")
    tree = git(blueprints, "rev-parse", "main^{tree}").strip()
    new = git(blueprints, *signing_options(key), "commit-tree", "-S", "-p", "main", "-m", "signed", tree)
    git(blueprints, "update-ref", "refs/heads/main", new.strip())
    assert bool(problems(world)) is (signed == "tag")


def test_signed_tag_that_is_copied_to_another_name_is_refused(tmp_path: Path, key: Key) -> None:
    world = make(tmp_path / "w", revision=2)
    sign_tags(world, key, "web/v1", "db/v1")
    require_signatures(world, key)
    blueprints = world.root / "blueprints.git"
    git(blueprints, "update-ref", "refs/tags/web/v2", git(blueprints, "rev-parse", "web/v1").strip())

    (message,) = problems(world)

    assert message.endswith("is not verified: tag web/v2 was signed under another name")


def test_pin_of_a_lock_is_verified_like_any_other(tmp_path: Path, key: Key) -> None:
    world = make(tmp_path / "w")
    floating = variant("edge-1", "web").replace("revision: 1", "tag: stable")
    Repo(world.control).commit({manifest("edge-1", "web"): floating, manifest("edge-1", "db"): None})
    blueprints = world.root / "blueprints.git"
    git(blueprints, "tag", "web/stable", "web/v1^{commit}")
    assert world.run("apply").code == Exit.DONE
    assert world.run("lock", "hold", "web-edge-1").code == Exit.DONE
    require_signatures(world, key)
    git(blueprints, *signing_options(key), "tag", "-s", "-f", "-m", "s", "web/stable", "web/v2^{commit}")

    (message,) = problems(world)

    assert "is not verified: " in message


def test_unsigned_revision_is_no_answer_to_a_dependency(tmp_path: Path, key: Key) -> None:
    world = build_world(WORLDS / "56-kpt-packages", tmp_path / "w")
    names = git(world.root / "blueprints.git", "tag", "--list").split()
    sign_tags(world, key, *(name for name in names if name != "base/v2"))
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    public = key.private.with_suffix(".pub").read_text().strip()
    rule = f"  verify:\n  - prefix: {world.root}/blueprints.git\n    signed: tag\n    sshKeys: ['{public}']\n"
    Repo(world.control).commit({"reconciler.yaml": f"{text}{rule}"})

    ran = world.run("plan")

    assert ran.code == Exit.INVALID_INPUT
    assert "DependencyConflict" in ran.out
    assert "another one is not valid: blueprints/base/v2: not verified: base/v2 is no signed tag" in ran.out
