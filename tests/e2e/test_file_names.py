"""Names that no package may have: the package that would get one is blocked, and its neighbours proceed."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.names.objects import case_fold_key
from tests.support.charts import KPTFILE, config, needs_helm
from tests.support.git import Change, Repo, kptfile
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git, refs

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"
STARLARK = "starlark:v0.5"


def function(*paths: str, name: str = "n") -> str:
    """Return a Kptfile with a function that adds a ConfigMap for each path; for "" it names none."""
    places = json.dumps([{"internal.config.kubernetes.io/path": path} if path else {} for path in paths])
    return (
        kptfile("bad")
        + f"""\
pipeline:
  mutators:
  - image: {STARLARK}
    configMap:
      source: |
        items = ctx.resource_list["items"]
        there = [item["metadata"]["name"] for item in items]
        for number, place in enumerate({places}):
          name = "{name}" + str(number)
          if name not in there:
            metadata = {{"name": name, "annotations": place}} if place else {{"name": name}}
            items.append({{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
"""
    )


def add_package(world: World, files: Mapping[str, Change], *, revision: int = 1, name: str = "bad") -> None:
    """Release a revision of a package, and have edge-1 take it."""
    blueprints = Repo(world.root / "blueprints.git")
    there = git(blueprints.path, "ls-tree", "-rz", "--name-only", "main", "--", f"{name}/").split("\0")[:-1]
    new = {f"{name}/{path}": text for path, text in files.items()}
    blueprints.commit({**{path: None for path in there if path not in new}, **new}, message="release\n")
    blueprints.tag(f"{name}/v{revision}")
    with world.edit("control", "Take it") as copy:
        (copy / manifest("edge-1", name)).write_text(variant("edge-1", name, revision=revision))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world of one downstream whose server checks what it gets."""
    write_world(tmp_path / "w", ("edge-1",))
    git(tmp_path / "w/edge-1.git", "config", "receive.fsckObjects", "true")
    return World(tmp_path / "w")


def drafts(world: World) -> set[str]:
    listed = refs(world.root / "edge-1.git")
    return {ref.split("/")[3] for ref in listed if ref.startswith("refs/heads/drafts/")}


def rows(world: World) -> dict[str, dict[str, Any]]:
    """Return the changes of a plan by package."""
    said = json.loads(world.run("plan", "--output", "json").out)
    return {change["package"]["path"]: change for change in said["changes"]}


def files(world: World, revision: str = "main", package: str = "bad") -> list[str]:
    listed = git(world.root / "edge-1.git", "ls-tree", "-rz", "--name-only", f"{revision}:{package}")
    return listed.split("\0")[:-1]


SAME, MAKES = "on some file systems it is the same as", "gives a file that no package may have: "
STEP = f"mutators[0]: {STARLARK} {MAKES}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"Kptfile": function("cm.yaml/n.yaml")}, f"{STEP}cm.yaml: it would be both a file and a directory"),
        ({"Kptfile": function("a.yaml", "a.yaml/n.yaml")}, f"{STEP}a.yaml: it would be both"),
        ({"Kptfile": function("CM.yaml")}, f"{STEP}cm.yaml: {SAME} CM.yaml"),
        ({"Kptfile": function("A/n.yaml"), "a/x": ""}, f"{STEP}a: {SAME} A"),
        ({"Kptfile": function("e\u0301.yaml", "é.yaml")}, f"{STEP}é.yaml: {SAME} e\u0301.yaml"),
        ({"Kptfile": function(".GIT/n.yaml")}, "must not write '.GIT/n.yaml': some file systems take"),
        ({"Kptfile": function("a\u202eb.yaml")}, f"{STEP}a\\u202eb.yaml: its name contains a character that"),
        ({"Kptfile": function("x" * 300)}, "its name is longer than 255 bytes"),
        ({"NOTES": "", "Notes": ""}, f"bad/v1 {MAKES}Notes: {SAME} NOTES"),
        ({"a/x": "", "A/y": ""}, f"bad/v1 {MAKES}a: {SAME} A"),
        ({"Package-Context.yaml": "a: 1"}, f"The package context {MAKES}package-context.yaml: "),
    ],
)  # fmt: skip
def test_package_with_a_name_that_none_may_have_is_blocked_alone(
    world: World, content: dict[str, str], why: str
) -> None:
    add_package(world, {"Kptfile": kptfile("bad"), "cm.yaml": MAP.format("x"), **content})

    change = rows(world)["bad"]
    applied = world.run("apply")

    assert (change["op"], change["reason"]) == ("block", "InvalidPackage")
    assert why in change["message"]
    assert applied.code == 7, applied
    assert re.search(r"Rename one of the files|Have the function", change["message"])
    assert drafts(world) == {"web", "db"}
    Repo(world.root / "edge-1.git").fsck()


def chart_package(*names: str, version: str = "1.0.0", **more: str) -> dict[str, str]:
    """Return a package of a chart that gives a ConfigMap for each name."""
    template = "---\n".join(MAP.format(json.dumps(name)) + f"data:\n  v: {version}\n" for name in names)
    return {
        "Kptfile": KPTFILE,
        "chart.yaml": config(chart_args={"name": "web", "version": version}),
        "charts/web/Chart.yaml": f"apiVersion: v2\nname: web\nversion: {version}\n",
        "charts/web/templates/all.yaml": template,
        **more,
    }


def homes(world: World, revision: str = "main") -> dict[str, str]:
    """Return the file of each ConfigMap of the package, by its name."""
    edge, found = world.root / "edge-1.git", {}
    for path in files(world, revision):
        text = git(edge, "show", f"{revision}:bad/{path}")
        found |= {
            line.split(": ", 1)[1].strip("'\""): path
            for line in text.splitlines()
            if line.startswith("  name: ")
        }
    return {name: path for name, path in found.items() if path.startswith("configmap_")}


@needs_helm
def test_resources_of_a_chart_get_files_that_clash_with_none_and_keep_them(world: World) -> None:
    add_package(world, chart_package("X", "a:b", "web"))
    world.publish()
    first = homes(world)
    assert first == {"X": "configmap_X.yaml", "a:b": "configmap_a_b.yaml", "web": "configmap_web.yaml"}

    names = ("x", "X", "x.yaml/y", "x-2", "a_b", "a:b", "web")
    for revision, order in ((2, names), (3, names[::-1])):
        add_package(world, chart_package(*order, version=f"{revision}.0.0"), revision=revision)
        world.publish()

        second = homes(world)
        assert {name: second[name] for name in first} == first
        assert second == {
            **first,
            "x": "configmap_x-3.yaml",
            "x-2": "configmap_x-2.yaml",
            "x.yaml/y": "configmap_x.yaml_y.yaml",
            "a_b": "configmap_a_b-2.yaml",
        }
    assert len({*map(case_fold_key, files(world))}) == len(files(world))
    Repo(world.root / "edge-1.git").fsck()

    add_package(world, chart_package("x", "web", version="4.0.0"), revision=4)
    world.publish()
    assert homes(world) == {"x": "configmap_x-3.yaml", "web": "configmap_web.yaml"}


@needs_helm
def test_what_an_older_version_published_is_updated_as_it_is(world: World) -> None:
    """It did not tell these names apart: two that main has stay, and are merged."""
    add_package(world, chart_package("x", "X", "y"))
    world.publish()
    with world.edit("edge-1", "As it was then") as copy:
        (copy / "bad/configmap_x-2.yaml").rename(copy / "bad/configmap_X.yaml")
        (copy / "bad/readme.md").write_text("1")
        (copy / "bad/README.md").write_text("2")

    add_package(world, chart_package("x", "X", "y", "Y", version="2.0.0"), revision=2)
    world.publish()

    assert homes(world) == {
        "x": "configmap_x.yaml",
        "X": "configmap_X.yaml",
        "y": "configmap_y.yaml",
        "Y": "configmap_y-2.yaml",
    }
    assert {"readme.md", "README.md"} <= {*files(world)}
    for path in homes(world).values():
        assert "v: 2.0.0" in git(world.root / "edge-1.git", "show", f"main:bad/{path}")
    assert {change["op"] for change in rows(world).values()} == {"keep"}


def test_merge_that_brings_a_twin_is_blocked_until_somebody_renames_it(world: World) -> None:
    plain = {"Kptfile": kptfile("bad"), "cm.yaml": MAP.format("x")}
    add_package(world, plain)
    world.publish()
    with world.edit("edge-1", "Mine") as copy:
        (copy / "bad/notes.md").write_text("mine")
    add_package(world, {**plain, "NOTES.md": "theirs"}, revision=2)

    change = rows(world)["bad"]

    assert change["op"] == "block"
    assert f"The merge of bad/v2 into main {MAKES}notes.md: {SAME} NOTES.md" in change["message"]
    assert "Rename one of the files" in change["message"]
    with world.edit("edge-1", "Rename") as copy:
        (copy / "bad/notes.md").rename(copy / "bad/mine.md")
    world.publish()
    assert {"mine.md", "NOTES.md"} <= {*files(world)}


def test_pack_that_the_server_refuses_names_its_package_and_stops_no_other(world: World) -> None:
    """A line of 2,048 bytes in .gitattributes is one of the errors of `git fsck` that no name tells."""
    add_package(world, {"Kptfile": kptfile("bad"), ".gitattributes": f"{'x' * 3000} text\n"})

    applied = world.run("apply")
    again = world.run("apply")

    assert drafts(world) == {"web", "db"}
    for said in (applied, again):
        assert said.code == 4, said
        (failed,) = [line for line in said.out.splitlines() if line.startswith("failed")]
        assert "drafts/bad/" in failed
        assert "gitattributesLineLength" in failed
        assert "Change what the server names" in said.out + said.err
    assert "pushed" in applied.out
    assert "pushed" not in again.out
    Repo(world.root / "edge-1.git").fsck()
