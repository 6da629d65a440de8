"""kpt writes the object of an annotated tag into upstreamLock: it names the commit all the same."""

import re

from tests.support.git import Repo
from tests.support.small_world import app, manifest, published, variant
from tests.support.world import git

FOLLOW = "reconciler.dev/follow-moved-tag"


def test_package_that_was_fetched_at_an_annotated_tag_is_updated() -> None:
    world = published("edge-1")
    blueprints = Repo(world.root / "blueprints.git")
    tag = blueprints.tag("web/v3", message="Signed tags are annotated")
    with world.edit("blueprints", "web v4") as copy:
        (copy / "web/app.yaml").write_text(app("web", 4))
    blueprints.tag("web/v4", message="annotated too")
    with world.edit("edge-1", "kpt pkg get web@v3") as copy:
        text = (copy / "web/Kptfile").read_text()
        (copy / "web/Kptfile").write_text(
            re.sub(r"commit: \w+", f"commit: {tag}", text).replace("ref: web/v1", "ref: web/v3")
        )
        (copy / "web/app.yaml").write_text(app("web", 2) + "# mine\n")
    with world.edit("control", "web v4") as copy:
        (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=4))

    planned = world.run("plan")
    world.publish()

    assert "moved" not in planned.out
    merged = git(world.root / "edge-1.git", "show", "main:web/app.yaml")
    assert app("web", 4).splitlines()[-1] in merged
    assert "# mine" in merged


def test_moved_tag_is_followed_at_the_id_of_its_object() -> None:
    world = published("edge-1")
    with world.edit("blueprints", "web v1 once more") as copy:
        (copy / "web/app.yaml").write_text(app("web", 4))
    blueprints = Repo(world.root / "blueprints.git")
    blueprints.delete("refs/tags/web/v1")
    tag = blueprints.tag("web/v1", message="moved, and annotated")
    held = world.run("plan").out
    with world.edit("control", "follow it") as copy:
        text = variant("edge-1", "web").replace(
            "metadata:\n", f"metadata:\n  annotations: {{{FOLLOW}: {tag}}}\n"
        )
        (copy / manifest("edge-1", "web")).write_text(text)

    assert "UpstreamTagMoved" in held
    assert "update  edge-1/web" in world.run("plan").out


def test_same_commit_under_another_name_is_the_reason_of_the_change() -> None:
    world = published("edge-1")
    blueprints = Repo(world.root / "blueprints.git")
    blueprints.tag("web/stable", blueprints.refs()["refs/tags/web/v1"], message="annotated")
    with world.edit("control", "float") as copy:
        text = variant("edge-1", "web").replace("revision: 1", "tag: stable")
        (copy / manifest("edge-1", "web")).write_text(text)

    assert "It follows web/stable instead of web/v1; same commit" in world.run("plan").out
