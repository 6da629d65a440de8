"""A repository that is one package, with its Kptfile at the root, as an upstream."""

from pathlib import Path

import pytest

from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import app, repository, variant, write_world
from tests.support.world import World, git

INSIDE = "sub/config.yaml"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world with the repository `shop`, of two revisions."""
    more = {
        "manifests/repositories/shop.yaml": repository("shop").replace(
            "deployment: true", "deployment: false"
        )
    }
    write_world(tmp_path / "w", ("edge-1",), more=more)
    shop = make_repository(
        tmp_path / "w/shop.git",
        {
            "Kptfile": kptfile("shop"),
            "app.yaml": app("shop", 1),
            "sub/Kptfile": kptfile("sub"),
            INSIDE: app("sub", 1),
        },
    )
    shop.tag("v1")
    shop.commit({"app.yaml": app("shop", 2), INSIDE: app("sub", 2)})
    shop.tag("v2", message="annotated")
    shop.tag("v2.1.0")
    return World(tmp_path / "w")


def ask(world: World, asked: str, package: str = ".") -> None:
    text = variant("edge-1", "web").replace(
        "repo: blueprints\n    package: web\n    revision: 1",
        f'repo: shop\n    package: "{package}"\n    {asked}',
    )
    with world.edit("control", asked) as copy:
        (copy / "manifests/edge-1-web.yaml").write_text(text)


def publish(world: World) -> str:
    world.publish()
    return git(world.root / "edge-1.git", "show", "main:web/app.yaml")


@pytest.mark.parametrize(
    ("package", "asked"),
    [(".", "revision: 2"), ("/", "tag: v2"), ("./", 'version: ">=2.1"'), (".", "branch: main")],
)
def test_whole_repository_is_asked_for_as_any_package(world: World, package: str, asked: str) -> None:
    ask(world, asked, package)

    planned = world.run("plan")

    assert planned.code == 0, planned
    assert "create  edge-1/web" in planned.out


def test_package_at_the_root_is_cloned_edited_and_updated(world: World) -> None:
    ask(world, "revision: 1")
    assert "image: registry.example/shop:v1" in publish(world)
    made = git(world.root / "edge-1.git", "show", "main:web/Kptfile")
    assert "directory: /\n" in made
    with world.edit("edge-1", "three of them") as copy:
        text = (copy / "web/app.yaml").read_text()
        (copy / "web/app.yaml").write_text(text.replace("replicas: 1", "replicas: 3"))
    ask(world, "revision: 2")

    updated = publish(world)

    assert "image: registry.example/shop:v2" in updated
    assert "replicas: 3" in updated
    assert "sub:v2" in git(world.root / "edge-1.git", "show", f"main:web/{INSIDE}")
    assert "v2" in world.run("explain", "edge-1/web").out
    assert "Nothing to do" in world.run("plan").out


def test_package_inside_of_the_repository_that_it_is_made_from_is_a_circle(world: World) -> None:
    text = variant("shop", "inner").replace(
        "repo: blueprints\n    package: inner\n    revision: 1",
        "repo: shop\n    package: .\n    branch: main",
    )
    with world.edit("control", "a circle") as copy:
        (copy / "manifests/inner.yaml").write_text(text)

    planned = world.run("plan")

    assert planned.code == 3
    assert "Package shop/inner is made from its own repository" in " ".join(planned.out.split())


def test_root_of_a_downstream_repository_is_nobodys_place(world: World) -> None:
    Repo(world.root / "edge-1.git").commit({"Kptfile": kptfile("edge-1")})

    planned = world.run("plan", "--all")

    assert planned.code == 0, planned
    assert "2 to create" in planned.out
