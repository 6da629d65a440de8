"""Upstreams that must be signed: what is not is a problem of its variant, and reaches nothing in any way."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.signing import Key, make_key, signing_options
from tests.support.small_world import CONFIGURATION, manifest, repository, variant, write_world
from tests.support.world import World, git

VERIFIED = """\
  verify:
  - prefix: {prefix}
    sshKeys: ["{key}"]
"""


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path / "key")


def require_signatures(world: World, key: Key, prefix: str = "") -> None:
    public = key.private.with_suffix(".pub").read_text().strip()
    text = CONFIGURATION + VERIFIED.format(prefix=prefix or world.root / "blueprints.git", key=public)
    Repo(world.control).commit({"reconciler.yaml": text})


def sign_tags(world: World, key: Key, *tags: str) -> None:
    """Replace tags of the blueprints by signed ones of the same commits."""
    for tag in tags:
        commit = f"{tag}^{{commit}}"
        git(world.root / "blueprints.git", *signing_options(key), "tag", "-s", "-f", "-m", tag, tag, commit)


def make(root: Path, *, revision: int = 1) -> World:
    files = {manifest("edge-1", "web"): variant("edge-1", "web", revision=revision)}
    return write_world(root, ("edge-1",), more=files)


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


# Without a key: what who may push to the blueprints makes of what was signed.


def follow_latest(root: Path, signer: Key, *, more: str = "") -> World:
    """Make a world whose commits and tags are all signed, and whose variant has the latest revision, v2."""
    files = {manifest("edge-1", "web"): variant("edge-1", "web").replace("    revision: 1\n", more)}
    world = write_world(root, ("edge-1",), more=files)
    blueprints, options = root / "blueprints.git", signing_options(signer)
    parent: list[str] = []
    for name in ("web/v1", "web/v2"):
        tree = git(blueprints, "rev-parse", f"{name}^{{tree}}").strip()
        oid = git(blueprints, *options, "commit-tree", "-S", *parent, "-m", name, tree).strip()
        parent = ["-p", oid]
        git(blueprints, *options, "tag", "-s", "-f", "-m", name, name, oid)
    git(blueprints, "update-ref", "refs/heads/main", oid)
    git(blueprints, *options, "tag", "-s", "-f", "-m", "db", "db/v1", "web/v1^{commit}")
    require_signatures(world, signer)
    world.publish()
    return world


def commands(*lines: str) -> Callable[[Path], None]:
    """Return the trick that is a few commands of git."""

    def trick(blueprints: Path) -> None:
        for line in lines:
            git(blueprints, *line.split())

    return trick


def replace_bytes(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Return the trick that changes bytes of the signed tag web/v1 and calls it web/v4."""

    def trick(blueprints: Path) -> None:
        data = subprocess.run(
            ["git", "cat-file", "tag", "web/v1"], cwd=blueprints, capture_output=True, check=True
        ).stdout
        assert old in data
        (blueprints / "trick").write_bytes(data.replace(old, new, 1))
        oid = git(blueprints, "hash-object", "-t", "tag", "--literally", "-w", "trick").strip()
        git(blueprints, "update-ref", "refs/tags/web/v4", oid)

    return trick


TRICKS = {
    "the signed tag object under a new name": commands("tag web/v4 web/v1"),
    "a plain tag on an old signed commit": commands("tag web/v4 web/v1^{commit}"),
    "a tag of the signed tag": commands("tag -a -m x web/v4 web/v1"),
    "a second name below the signed one": replace_bytes(b"\ntagger", b"\ntag web/v4\ntagger"),
    "another name": replace_bytes(b"\ntag web/v1", b"\ntag web/v4"),
    "a copy of the signature over another tag": replace_bytes(b"\n\nweb/v1\n", b"\n\nweb/v4\n"),
    "a branch that is called like a tag": commands("update-ref refs/heads/refs/tags/web/v4 web/v1^{commit}"),
    "the newest tag moved to the older one": commands("tag -f web/v2 web/v1"),
    "the newest tag deleted": commands("tag -d web/v2"),
    "the newest tag renamed": commands("tag web/V2 web/v2", "tag -d web/v2"),
    "the branch set back": commands("update-ref refs/heads/main web/v1^{commit}"),
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_no_trick_with_signed_objects_moves_a_package(
    tmp_path: Path, key: Key, trick: Callable[[Path], None]
) -> None:
    world = follow_latest(tmp_path / "w", key)
    before = world.all_refs()["edge-1.git"]
    trick(world.root / "blueprints.git")

    runs = [world.run("apply") for _ in range(2)]

    assert {ran.code for ran in runs} <= {Exit.DONE, Exit.INVALID_INPUT}
    assert world.all_refs()["edge-1.git"] == before
    moved = "UpstreamNotVerified" in runs[1].out
    assert moved is (runs[1].code == Exit.INVALID_INPUT)


@pytest.mark.parametrize("trick", ["tag -f web/stable web/v1", "tag -f web/stable other"])
def test_floating_tag_that_was_set_back_is_not_followed(tmp_path: Path, key: Key, trick: str) -> None:
    """An old tag object of the very name is still signed well."""
    root, options = tmp_path / "w", signing_options(key)
    world = follow_latest(root, key)
    blueprints = root / "blueprints.git"
    git(blueprints, *options, "tag", "-s", "-m", "s", "web/stable", "web/v1^{commit}")
    git(blueprints, "update-ref", "refs/tags/other", git(blueprints, "rev-parse", "web/stable").strip())
    git(blueprints, *options, "tag", "-s", "-f", "-m", "s", "web/stable", "web/v2^{commit}")
    floating = variant("edge-1", "web").replace("revision: 1", "tag: stable")
    Repo(world.control).commit({manifest("edge-1", "web"): floating})
    assert world.run("apply").code == Exit.DONE
    before = world.all_refs()["edge-1.git"]
    git(blueprints, *trick.replace("other", git(blueprints, "rev-parse", "other").strip()).split())

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert "UpstreamNotVerified" in ran.out
    assert world.all_refs()["edge-1.git"] == before


SPELLINGS = {
    "the path": "{path}",
    "the directory above": "{root}",
    "relative, with a detour": "../x/.././blueprints.git",
    "percent-encoding": "file://{encoded}",
    "a link to the repository": "{direct}",
}


@pytest.mark.parametrize("registered", ["../blueprints.git", "file://{path}", "{link}/blueprints.git"])
@pytest.mark.parametrize("prefix", SPELLINGS.values(), ids=SPELLINGS)
def test_rule_counts_however_it_and_the_repository_are_spelled(
    tmp_path: Path, key: Key, prefix: str, registered: str
) -> None:
    world = make(tmp_path / "w")
    path = world.root / "blueprints.git"
    (tmp_path / "link").symlink_to(world.root)
    (tmp_path / "direct").symlink_to(path)
    names = {
        "path": path,
        "bare": path.with_suffix(""),
        "root": world.root,
        "encoded": str(path).replace("b", "%62"),
        "link": tmp_path / "link",
        "direct": tmp_path / "direct",
        "capitals": str(path).upper(),
    }
    text = repository("blueprints").replace("../blueprints.git", registered.format(**names))
    Repo(world.control).commit({"manifests/repositories/blueprints.yaml": text})
    require_signatures(world, key, prefix.format(**names))

    ran = world.run("plan")

    assert ran.code == Exit.INVALID_INPUT
    assert ran.out.count("UpstreamNotVerified: ") == 2
    assert "is about no registered repository" not in ran.out


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
