"""kpt writes the object of an annotated tag into upstreamLock: it names the commit all the same."""

import re

from tests.support.git import Repo
from tests.support.small_world import app, manifest, published, variant
from tests.support.world import git


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
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        done = world.run(*line)
        assert done.code == 0, done

    assert "moved" not in planned.out
    merged = git(world.root / "edge-1.git", "show", "main:web/app.yaml")
    assert app("web", 4).splitlines()[-1] in merged
    assert "# mine" in merged
