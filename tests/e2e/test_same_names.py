"""Repositories of two namespaces with one name: the namespace is named, too, and nothing is left out."""

import json
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import make_repository
from tests.support.small_world import manifest, repository, variant, write_world
from tests.support.world import World, restored

DEFAULT, OTHER = "default/edge-1/web", "other/edge-1/web"


def of_other(text: str) -> str:
    return text.replace("namespace: default", "namespace: other").replace("../edge-1.git", "../edge-2.git")


def build(root: Path) -> World:
    more = {
        "manifests/other.yaml": "---\n".join(
            map(of_other, (repository("blueprints"), repository("edge-1"), variant("edge-1", "web")))
        )
    }
    write_world(root, ("edge-1",), more=more)
    make_repository(root / "edge-2.git", {"README.md": "other\n"})
    world = World(root)
    assert world.run("apply").code == Exit.DONE
    return world


@pytest.fixture
def world() -> World:
    return restored("same-names", build)


def rows(world: World, *line: str) -> dict[str, str]:
    """Return packages by pull request."""
    items = json.loads(world.run("pr", "list", "-o", "json", *line).out)["items"]
    return {item["name"]: item["package"] for item in items}


def test_every_one_is_approved_under_a_name_of_its_own(world: World) -> None:
    assert sorted(rows(world).values()) == ["default/edge-1/db", DEFAULT, OTHER]
    for name in (OTHER, "other/edge-1#1"):
        assert world.run("pr", "show", name).code == Exit.DONE
        assert world.run("explain", name).out.startswith(f"{OTHER}: ")
    said = world.run("approve", "--all")

    assert said.code == Exit.DONE
    assert said.out.splitlines() == [
        "approved default/edge-1/db: db/v1",
        f"approved {DEFAULT}: web/v1",
        f"approved {OTHER}: web/v1",
    ]
    assert rows(world) == {}


@pytest.mark.parametrize(
    "line",
    [
        ("approve", "edge-1/web"),
        ("approve", "edge-1#1"),
        ("approve", "--propose-only", "edge-1/web"),
        ("pr", "show", "edge-1#1"),
        ("pr", "merge", "edge-1/web"),
        ("pr", "close", "edge-1/web"),
        ("explain", "edge-1/web"),
        ("explain", "edge-1#1"),
        ("answer", "edge-1/web", "--keep"),
    ],
    ids=" ".join,
)
def test_a_name_without_namespace_is_refused_with_names_that_work(
    world: World, line: tuple[str, ...]
) -> None:
    said = world.run(*line)

    assert said.code == Exit.USAGE
    name = next(word for word in line if word.startswith("edge-1"))
    assert f"hint: Name the namespace, too: default/{name}, other/{name}." in said.err
    assert len(rows(world)) == 3


def test_a_conflict_is_of_its_own_package_and_answered_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.com")
    world.run("approve", "--all")
    world.run("apply")
    with world.edit("edge-2", "Our image") as copy:
        app = copy / "web/app.yaml"
        app.write_text(app.read_text().replace("web:v1", "web:ours"))
    with world.edit("control", "web v2") as copy:
        for path in (copy / manifest("edge-1", "web"), copy / "manifests/other.yaml"):
            path.write_text(path.read_text().replace("revision: 1", "revision: 2"))
    applied = world.run("apply")
    assert applied.code == Exit.WAITING
    places = {line.split()[1] for line in applied.out.splitlines() if line.startswith("pushed")}
    assert places == {"default/edge-1", "other/edge-1"}
    items = json.loads(world.run("pr", "list", "-o", "json").out)["items"]

    assert {item["package"]: item["status"]["phase"] for item in items} == {
        DEFAULT: "in review",
        OTHER: "conflict",
    }
    assert world.run("answer", OTHER, "--keep").code == Exit.DONE
    assert world.run("apply").code == Exit.DONE
    assert len(world.run("approve", "--all").out.splitlines()) == 2
