"""Functions in a run: packages are rendered before they are proposed, and a failing one keeps its draft."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.git import make_repository
from tests.support.identifiers import without_identifiers
from tests.support.small_world import app, manifest, published, repository, variant
from tests.support.world import World, git, refs

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\npipeline:\n  mutators:\n"
SET_NAMESPACE = (
    "  - image: ghcr.io/kptdev/krm-functions-catalog/set-namespace:v0.4.1\n    configMap: {namespace: prod}\n"
)
UNKNOWN = "  - image: example.com/acme/no-such-function:v1\n"
FAILING = "  - image: starlark:v0.5\n    configMap:\n      source: fail('the author says no')\n"
RENAMING = (
    "  - image: starlark:v0.5\n    configMap:\n      source: |\n"
    "        for each in ctx.resource_list['items']:\n"
    "          each['metadata']['name'] = 'other'\n"
)
SETTERS = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: setters\n  annotations:\n"
    "    config.kubernetes.io/local-config: 'true'\ndata:\n  replicas: \"2\"\n"
)
PIPELINES = {
    "good": SET_NAMESPACE,
    "unknown": SET_NAMESPACE + UNKNOWN,
    "failing": FAILING,
    "renaming": RENAMING,
}


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One edge with four packages: one renders, one needs an image, one fails, one renames all it gets."""
    root = tmp_path_factory.mktemp("functions") / "world"
    root.mkdir()
    files = {}
    for name, pipeline in PIPELINES.items():
        files |= {f"{name}/Kptfile": HEAD.format(name=name) + pipeline, f"{name}/app.yaml": app(name, 1)}
    blueprints = make_repository(root / "blueprints.git", files)
    for name in PIPELINES:
        blueprints.tag(f"{name}/v1")
    make_repository(root / "edge-1.git", {"README.md": "edge\n"})
    control = {
        "reconciler.yaml": "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"
    }
    control |= {f"repositories/{name}.yaml": repository(name) for name in ("blueprints", "edge-1")}
    control |= {manifest("edge-1", name): variant("edge-1", name) for name in PIPELINES}
    make_repository(root / "control.git", control)
    return World(root)


def drafted(world: World, package: str) -> str:
    return git(world.root / "edge-1.git", "show", f"drafts/{package}/packagevariant-1:{package}/app.yaml")


def test_a_run_renders_names_what_it_cannot_and_settles(world: World) -> None:
    planned = world.run("plan", "--output", "json")
    applied = world.run("apply")
    before = world.all_refs()
    again = world.run("apply")

    changes = {each["package"]["path"]: each for each in json.loads(planned.out)["changes"]}
    assert changes["good"]["unready"] == []
    assert "no-such-function:v1" in changes["unknown"]["unready"][0]
    assert "the author says no" in changes["failing"]["unready"][0]
    assert applied.code == 0, applied.out + applied.err
    assert {f"refs/heads/drafts/{name}/packagevariant-1" for name in PIPELINES} <= refs(
        world.root / "edge-1.git"
    ).keys()
    assert "  namespace: prod\n" in drafted(world, "good")
    assert without_identifiers(drafted(world, "unknown")).strip() == app("unknown", 1).strip()
    assert without_identifiers(drafted(world, "failing")).strip() == app("failing", 1).strip()
    assert again.code == 0, again.out + again.err
    assert world.all_refs() == before


def test_function_that_renames_everything_leaves_the_package_its_name(world: World) -> None:
    assert world.run("apply").code == 0

    kptfile = git(world.root / "edge-1.git", "show", "drafts/renaming/packagevariant-1:renaming/Kptfile")

    assert "\n  name: renaming\n" in kptfile
    assert "\n  name: other\n" in drafted(world, "renaming")


def test_what_could_not_run_is_tried_again_without_any_other_change(world: World, tmp_path: Path) -> None:
    function = tmp_path / "function"
    mapped = (
        "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"
        "spec:\n  functions:\n"
        f"    exec:\n      example.com/acme/no-such-function: {function}\n"
    )
    with world.edit("control", "Map the function") as directory:
        (directory / "reconciler.yaml").write_text(mapped)
    assert world.run("apply").code == 0
    assert "  name: unknown\n" in drafted(world, "unknown")  # what is mapped is not there yet
    function.write_text("#!/bin/sh\nPATH=/usr/bin:/bin\nsed 's/^    name: unknown$/    name: known/'\n")
    function.chmod(0o755)

    applied = world.run("apply")

    assert applied.code == 0, applied.out + applied.err
    assert "  name: known\n" in drafted(world, "unknown")
    assert "  namespace: prod\n" in drafted(world, "unknown")


def test_edit_of_what_a_function_reads_is_no_lost_edit_and_one_of_what_it_writes_is() -> None:
    world = published("edge-1")
    setter = "  - image: apply-setters:v0.2.0\n    configPath: setters.yaml\n"
    text = app("web", 3).replace("replicas: 1", "replicas: 1 # kpt-set: ${replicas}")
    kptfile = HEAD.format(name="web") + setter
    release(world, 3, {"Kptfile": kptfile, "setters.yaml": SETTERS, "app.yaml": text})
    merge(world)

    for before, after in ((2, 5), (5, 6)):  # the second edit begins where no upstream ever was
        edit_edge(world, "setters.yaml", f'"{before}"', f'"{after}"')
        merge(world)
        assert f"replicas: {after} #" in git(world.root / "edge-1.git", "show", "main:web/app.yaml")
    edit_edge(world, "app.yaml", "replicas: 6", "replicas: 2")
    edit_edge(world, "setters.yaml", '"6"', '"7"')

    said = world.run("apply")
    assert "writes spec.replicas of Deployment web anew" in said.out
    assert world.run("approve", "--all").code == 4


def test_draft_whose_functions_wait_for_answers_tells_no_losses() -> None:
    world = published("edge-1")
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: blank}\n"
    files = {
        "Kptfile": HEAD.format(name="web") + SET_NAMESPACE,
        "claim.yaml": claim,
        "app.yaml": app("web", 3),
    }
    release(world, 3, files)
    merge(world)
    edit_edge(world, "app.yaml", "replicas: 1", "replicas: 5")
    release(world, 4, {"app.yaml": app("web", 3).replace("replicas: 1", "replicas: 3")})

    said = world.run("plan")

    assert said.code == 7, said
    assert ("1 conflict in app.yaml" in said.out, "PersistentVolumeClaim" in said.out) == (True, False)


def release(world: World, revision: int, files: Mapping[str, str]) -> None:
    with world.edit("blueprints", f"Publish v{revision}") as copy:
        for name, text in files.items():
            (copy / "web" / name).write_text(text)
    world.tag("blueprints", f"web/v{revision}", "main")
    with world.edit("control", f"Take v{revision}") as copy:
        (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=revision))


def merge(world: World) -> None:
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        said = world.run(*line)
        assert (said.code, "does not survive" in said.out) == (0, False), said


def edit_edge(world: World, file: str, old: str, new: str) -> None:
    with world.edit("edge-1", f"Change {file}") as copy:
        path = copy / "web" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
