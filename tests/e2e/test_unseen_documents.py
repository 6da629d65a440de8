"""Warnings of a plan: documents that no function sees, and inventories of upstreams."""

import pytest

from tests.support.git import Repo
from tests.support.small_world import app, manifest, published, variant
from tests.support.world import World, git

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"""
LOCAL = "  annotations: {config.kubernetes.io/local-config: 'true'}\n"
NO_YAML = " bad: [\n"
PIPELINE = """\
pipeline:
  mutators:
  - image: set-namespace:v0.4
    configMap: {namespace: prod}
"""
BROKEN = {
    "it is no YAML": app("web", 3) + " bad: x\n",
    "it has no metadata.name": app("web", 3).replace("  name: web\n", "  generateName: web-\n"),
}


@pytest.fixture
def world() -> World:
    """A package with a pipeline is published at v3."""
    world = published("edge-1")
    with world.edit("blueprints", "web v3") as copy:
        (copy / "web/Kptfile").write_text((copy / "web/Kptfile").read_text() + PIPELINE)
    Repo(world.root / "blueprints.git").tag("web/v3")
    follow(world, 3)
    return world


def release(world: World, revision: int, files: dict[str, str]) -> None:
    with world.edit("blueprints", f"web v{revision}") as copy:
        for name, text in files.items():
            (copy / "web" / name).write_text(text)
    Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
    follow(world, revision, approve=False)


@pytest.fixture
def plain() -> World:
    """A package without a pipeline is published at v3, with a file of two resources and local settings."""
    world = published("edge-1")
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: local\n" + LOCAL
    with world.edit("blueprints", "web v3") as copy:
        (copy / "web/data.yaml").write_text(CLAIM)
        (copy / "web/local.yaml").write_text(settings)
    Repo(world.root / "blueprints.git").tag("web/v3")
    follow(world, 3)
    return world


def follow(world: World, revision: int, *, approve: bool = True) -> None:
    with world.edit("control", f"web v{revision}") as copy:
        (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=revision))
    for line in (("apply",), ("approve", "--all"), ("apply",)) if approve else ():
        done = world.run(*line)
        assert done.code == 0, done


@pytest.mark.parametrize("why", BROKEN)
def test_resource_that_functions_no_longer_see_is_not_published(world: World, why: str) -> None:
    release(world, 4, {"app.yaml": BROKEN[why]})

    applied, approved = world.run("apply"), world.run("approve", "--all")

    cause = f"they do not see app.yaml, which had resources before: {why}"
    assert cause in " ".join(applied.out.split())
    assert "web v4" not in approved.out
    assert "web:v2" in git(world.root / "edge-1.git", "show", "main:web/app.yaml")
    assert "not ready" in world.run("status").out

    release(world, 5, {"app.yaml": app("web", 5)})
    world.publish()
    assert "web:v5" in git(world.root / "edge-1.git", "show", "main:web/app.yaml")


@pytest.mark.parametrize(("why", "text"), BROKEN.items(), ids=BROKEN)
def test_new_file_that_functions_do_not_see_is_named(world: World, why: str, text: str) -> None:
    release(world, 4, {"new.yaml": text})

    planned, applied = world.run("plan"), world.run("apply")

    for said in (planned, applied, world.run("pr", "show", "edge-1/web")):
        assert f"Functions do not see new.yaml: {why}" in " ".join(said.out.split())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_broken_file_is_not_published_without_a_pipeline(plain: World, end: str) -> None:
    release(plain, 4, {"app.yaml": (app("web", 4) + NO_YAML).replace("\n", end)})

    planned, applied, approved = (plain.run(*line) for line in (("plan",), ("apply",), ("approve", "--all")))

    for said in (planned, applied, plain.run("status")):
        assert "app.yaml, which had resources before, is broken: it is no YAML: line " in said.out, said
    assert approved.code == 4
    assert "web:v2" in git(plain.root / "edge-1.git", "show", "main:web/app.yaml")
    base = git(plain.control, "rev-parse", "main~1").strip()
    checked = plain.run("check", "--base", base, "--head", "main")
    assert (checked.code, "Correct the file" in checked.out) == (3, True), checked

    release(plain, 5, {"app.yaml": app("web", 5)})
    plain.publish()
    assert "web:v5" in git(plain.root / "edge-1.git", "show", "main:web/app.yaml")
