"""Functions of variants belong to a variant, not to a name: upstream's stay, those of a former owner go."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.git import Repo, kptfile
from tests.support.small_world import blueprint, manifest, repository, variant, write_world
from tests.support.world import World

EDGE = "edge-1"
LABELS = "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0"
OURS = manifest(EDGE, "web")


def label(value: str) -> str:
    step = f"{{image: '{LABELS}', name: policy, configMap: {{{value[0]}: {value}}}}}"
    return f"  pipeline:\n    mutators:\n    - {step}\n"


def named(text: str, name: str) -> str:
    return text.replace(f"name: web-{EDGE}", f"name: {name}")


def make(root: Path) -> World:
    write_world(root, (EDGE, "org"), more={"manifests/repositories/org.yaml": repository("org")})
    Repo(root / "control.git").commit(
        {manifest(edge, package): None for edge in (EDGE, "org") for package in ("web", "db")}
    )
    return World(root)


def publish(world: World) -> None:
    assert world.run("apply").code == 0
    # A cluster refuses labels that a function adds to a selector: such a package is approved by its name.
    for name in re.findall(r"refused: (\S+): ", world.run("approve", "--all").out):
        assert world.run("approve", name).code == 0
    assert world.run("apply").code == 0
    assert "Nothing to do" in world.run("plan").out or " keep" in world.run("plan").out


def read(world: World, path: str, repo: str = EDGE) -> str:
    return Repo(world.root / f"{repo}.git").read("main", path).decode()


def functions(world: World) -> list[tuple[str, ...]]:
    """Return name and label of each function of the package that the team has."""
    pipeline = yaml.safe_load(read(world, "web/Kptfile")).get("pipeline") or {}
    return [(item["name"], *item["configMap"].values()) for item in pipeline.get("mutators") or ()]


def platform(value: str) -> str:
    return named(variant("org", "web"), "web").replace("web-org", "web") + label(value)


def team(revision: int, more: str = "") -> str:
    text = named(variant(EDGE, "web", revision=revision), "web")
    return text.replace("repo: blueprints", "repo: org") + more


@pytest.mark.parametrize("edited", [None, "description", "crlf"])
def test_functions_of_upstream_stay_if_its_variant_has_the_same_name(
    tmp_path: Path, edited: str | None
) -> None:
    world = make(tmp_path / "w")
    control = Repo(world.control, time=1_767_300_000)
    control.commit({"manifests/org-web.yaml": platform("p1").replace("namespace: default", "namespace: org")})
    control.commit(
        {f"manifests/org-{name}.yaml": repository(name).replace("namespace: default", "namespace: org")
            for name in ("blueprints", "org")}
    )  # fmt: skip
    publish(world)
    control.commit({OURS: team(1, label("t1"))})
    publish(world)

    assert functions(world) == [
        ("PackageVariant.default.web.policy.0", "t1"),
        ("PackageVariant.web.policy.0", "p1"),
    ]
    if edited:
        text = read(world, "web/Kptfile")
        changed = text.replace("\n", "\r\n") if edited == "crlf" else f"{text}info:\n  description: ours\n"
        Repo(world.root / f"{EDGE}.git").commit({"web/Kptfile": changed})
    control.commit({"manifests/org-web.yaml": platform("p2").replace("namespace: default", "namespace: org")})
    publish(world)
    control.commit({OURS: team(2, label("t2"))})
    publish(world)

    assert functions(world) == [
        ("PackageVariant.default.web.policy.0", "t2"),
        ("PackageVariant.web.policy.0", "p2"),
    ]
    control.commit({OURS: team(2)})
    publish(world)
    assert functions(world) == [("PackageVariant.web.policy.0", "p2")]


STARLARK = """\
for resource in ctx.resource_list["items"]:
  if resource["kind"] == "Kptfile":
    resource["info"] = {"description": "made"}
"""
WRITING = {
    "set-labels:v0.2.0": {"team": "blue"},
    "set-namespace:v0.4.5": {"namespace": "tenants"},
    "starlark:v0.5.0": {"source": STARLARK},
}


@pytest.mark.parametrize(("image", "revision"), [*zip(WRITING, (1, 2, 2), strict=True)])
def test_what_a_dropped_function_wrote_goes_from_kptfiles(tmp_path: Path, image: str, revision: int) -> None:
    world = make(tmp_path / "w")
    blueprints = Repo(world.root / "blueprints.git")
    for number in (1, 2):
        blueprints.commit({"web/inner/Kptfile": kptfile("inner"), **blueprint("web", number)})
        blueprints.tag(f"web/v{number}")
    control = Repo(world.control, time=1_767_300_000)
    control.commit({OURS: variant(EDGE, "web")})
    publish(world)
    paths = ("web/Kptfile", "web/inner/Kptfile")
    before = [read(world, path) for path in paths]
    step = {
        "image": f"ghcr.io/kptdev/krm-functions-catalog/{image}",
        "name": "x",
        "configMap": WRITING[image],
    }
    pipeline = yaml.safe_dump({"pipeline": {"mutators": [step]}}, width=1000)
    control.commit({OURS: variant(EDGE, "web") + "".join(f"  {line}\n" for line in pipeline.splitlines())})
    publish(world)
    assert read(world, paths[0]) != before[0]
    edge = Repo(world.root / f"{EDGE}.git", time=1_767_400_000)
    edge.commit({"web/app.yaml": read(world, "web/app.yaml").replace("replicas: 1", "replicas: 3")})

    control.commit({OURS: variant(EDGE, "web", revision=revision)})
    publish(world)

    assert [re.sub("(ref|commit): .*", "", read(world, path)) for path in paths] == [
        re.sub("(ref|commit): .*", "", text) for text in before
    ]
    assert "replicas: 3" in read(world, "web/app.yaml")
