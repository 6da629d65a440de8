"""`explain`: each field that we put into a package, and the words, object or commit that it came from."""

import json
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.points import team_point
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World

EDGE = "edge-1"
TEAM = (
    "apiVersion: hr.example.com/v1\nkind: Team\nmetadata: {name: red, namespace: default}\nspec: {code: 7}\n"
)
POINT = team_point("required")
MORE = """\
  packageContext:
    data:
      region: eu
    removeKeys: [zone]
  pipeline:
    mutators:
    - image: ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2
      name: labels
      configMap: {team: red}
  injectors:
  - name: red
"""
SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: many, namespace: default}
spec:
  upstream: {repo: blueprints, package: db, revision: 1}
  targets:
  - repositories: [{name: edge-1, packageNames: [db-set]}]
    template:
      packageContext:
        dataExprs:
        - {key: place, valueExpr: repository.name}
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    more = {
        manifest(EDGE, "web"): variant(EDGE, "web", revision=3) + MORE,
        "manifests/many.yaml": SET,
        "snapshot/team.yaml": TEAM,
    }
    write_world(tmp_path / "w", (EDGE,), more=more)
    blueprints = Repo(tmp_path / "w" / "blueprints.git")
    blueprints.commit({"web/team.yaml": POINT})
    blueprints.tag("web/v3")
    return World(tmp_path / "w")


def fields(world: World, package: str) -> dict[tuple[str, str], dict]:
    said = world.run("explain", f"{EDGE}/{package}", "-o", "json")
    assert said.code == 0, said.err
    return {(one["file"], one["field"]): one for one in json.loads(said.out)["fields"]}


def line_of(path: str, text: str, world: World) -> int:
    lines = Repo(world.control).read("main", path).decode().splitlines()
    return 1 + next(n for n, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("is_applied", [False, True])
def test_each_field_has_its_place(world: World, *, is_applied: bool) -> None:
    if is_applied:
        world.run("apply", "--quiet")

    found = fields(world, "web")

    path = manifest(EDGE, "web")
    region = found["package-context.yaml", "data.region"]
    assert (region["value"], region["source"]) == ("eu", "spec.packageContext.data.region")
    assert region["location"]["path"] == path
    assert region["location"]["line"] == line_of(path, "region: eu", world)
    assert found["package-context.yaml", "data.zone"]["value"] == "(removed)"
    (mutator,) = [one for (_, field), one in found.items() if field.startswith("pipeline.mutators")]
    assert mutator["source"] == "spec.pipeline.mutators[0]"
    assert mutator["location"]["line"] == line_of(path, "image:", world)
    team = found["team.yaml", "Team/team spec"]
    assert (team["value"], team["source"]) == ("red", "object Team default/red of the snapshot")
    assert team["location"]["path"] == "snapshot/team.yaml"
    lock = found["Kptfile", "upstreamLock"]
    assert lock["value"] == Repo(world.root / "blueprints.git").oid("web/v3")


def test_functions_of_the_alias_have_the_place_where_they_are_written(world: World) -> None:
    path, alias = (
        manifest(EDGE, "web"),
        MORE.replace("  pipeline:\n    mutators:\n    -", "  mutators:\n    -"),
    )
    text = variant(EDGE, "web", revision=3) + alias
    control = Repo(world.control)
    control.commit({path: text})
    world.publish()

    (mutator,) = [one for (_, field), one in fields(world, "web").items() if field.startswith("pipeline.")]
    control.commit({path: text.replace("team: red", "team: blue")})
    changed = world.run("plan").out
    control.commit({path: text.replace("set-labels:", "set-label:")}, branch="faulty", start="main")
    checked = world.run("check", "--base", "main", "--head", "faulty").out

    assert mutator["source"] == "spec.mutators[0]"
    assert mutator["location"]["line"] == line_of(path, "image:", world)
    assert "spec.mutators[0].configMap.team changed" in changed
    assert f"problem: {path}:{line_of(path, 'image:', world)}:" in checked
    assert "spec.mutators[0].image" in checked


def test_kinds_that_packages_want_injected_are_asked_of_clusters(world: World) -> None:
    assert world.run("snapshot", "kinds").out == "Team.hr.example.com\n"


@pytest.mark.parametrize("is_applied", [False, True])
def test_broken_manifest_is_named_with_a_hint(world: World, *, is_applied: bool) -> None:
    if is_applied:
        world.run("apply", "--quiet")
    path = manifest(EDGE, "web")
    world.clock += 60
    Repo(world.control, time=world.clock).commit({path: "kind: [\n"})

    said = world.run("explain", f"{EDGE}/web")

    if is_applied:
        assert said.code == 0
        assert "(OwnerStalled)" in said.out
        assert f"problem: {path}:2:1: InvalidYAML" in said.out
        assert "  hint: Check quotes, indentation and brackets." in said.out
        (problem,) = json.loads(world.run("explain", f"{EDGE}/web", "-o", "json").out)["problems"]
        assert problem["location"]["path"] == path
    else:
        assert said.code == 2
        assert f"Or mend its manifest: {path}:2:1: InvalidYAML" in said.err


def test_package_that_cannot_be_made_is_explained_by_the_manifest_that_asks_for_it(world: World) -> None:
    text = variant(EDGE, "web")
    wrong = {
        f"manifests/{name}.yaml": text.replace("name: web-", f"name: {name}-").replace(
            f"repo: {EDGE}\n    package: web", f"repo: {EDGE}\n    package: {name.upper()} x"
        )
        for name in ("one", "two")
    }
    world.clock += 60
    Repo(world.control, time=world.clock).commit(wrong)

    asked = {name: world.run("explain", f"{EDGE}/{name}").err for name in ("ONE x", "TWO x", "three")}

    for name, path in (("ONE x", "manifests/one.yaml"), ("TWO x", "manifests/two.yaml")):
        assert f"Or mend its manifest: {path}:13:14: InvalidName" in asked[name]
    assert "mend" not in asked["three"]
