"""Sentences about dependencies name the manifests that people wrote, not their packages (D36)."""

import json
from pathlib import Path

import pytest

from tests.support.edge_fleet import the_set
from tests.support.git import Repo, make_repository
from tests.support.needy_fleet import STRICT
from tests.support.small_world import CONFIGURATION, blueprint, repository, variant
from tests.support.world import World, restored

CLUSTERS = ("dev", "prod")


def needing(package: str, *needs: str) -> dict[str, str]:
    value = {
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": package, "annotations": {"config.kubernetes.io/local-config": "true"}},
        "spec": {
            "refName": package,
            "version": "0.0.0",
            "dependencies": [{"package": {"refName": n}} for n in needs],
        },
    }
    return {**blueprint(package, 1), f"{package}/package.yaml": json.dumps(value)}


def named(name: str, package: str, cluster: str = "dev") -> str:
    return variant(cluster, package).replace(f"name: {package}-{cluster}", f"name: {name}")


def start(root: Path) -> World:
    """`site` makes the package `web`, which needs what nobody has, and `store` the package `app`."""
    root.mkdir()
    packages = needing("web", "gone.io") | needing("app", "base") | needing("base")
    upstream = make_repository(root / "blueprints.git", packages)
    for package in ("web", "app", "base"):
        upstream.tag(f"{package}/v1")
    for name in CLUSTERS:
        make_repository(root / f"{name}.git", {"README.md": f"{name}\n"})
    files = {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", *CLUSTERS)}
    files |= {"manifests/site.yaml": named("site", "web"), "manifests/store.yaml": named("store", "app")}
    make_repository(root / "control.git", files | {"reconciler.yaml": CONFIGURATION})
    return World(root)


@pytest.fixture
def world() -> World:
    return restored("dependency-names", start)


@pytest.mark.parametrize(
    "command", [("plan",), ("apply",), ("lock", "--check"), ("status",), ("explain", "dev/web")],
    ids=lambda line: line[0],
)  # fmt: skip
def test_a_variant_asks_under_its_own_name(world: World, command: tuple[str, ...]) -> None:
    said = world.run(*command)

    assert "PackageVariant default/site" in said.out
    assert "PackageVariant default/web" not in said.out


def test_a_package_of_a_set_asks_in_the_name_of_the_set(world: World) -> None:
    target = {"repositories": [{"name": name} for name in CLUSTERS]}
    Repo(world.control).commit({
        "manifests/site.yaml": the_set(1, own="sites", target=target),
        "manifests/store.yaml": None,
    })  # fmt: skip

    said = world.run("plan")

    assert "package default/web of PackageVariantSet default/sites asks for" in said.out
    assert "PackageVariant default/web " not in said.out


def test_what_variants_need_stays_where_locks_are_reviewed_from_now_on(world: World) -> None:
    Repo(world.control).commit({"manifests/site.yaml": None})
    world.publish()
    Repo(world.control).commit({"reconciler.yaml": STRICT})

    changes = json.loads(world.run("plan", "-o", "json").out)["changes"]

    assert {c["package"]["path"]: (c["op"], c["reason"]) for c in changes}["base"] == ("keep", "LockPending")
