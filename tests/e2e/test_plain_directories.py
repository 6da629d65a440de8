"""Upstreams that are no packages: directories without a Kptfile, and packages of another Repository."""

import json
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.git import Repo, kptfile
from tests.support.small_world import app, manifest, package_set, repository, variant, write_world

TARGET = "{repositories: [{name: edge-1, packageNames: [mine]}]}"
INNER = repository("inner").replace("../inner.git", "../blueprints.git") + "    directory: apps/inner\n"


@pytest.fixture
def control(tmp_path: Path) -> Repo:
    files = {"manifests/repositories/inner.yaml": INNER}
    write_world(tmp_path / "w", ("edge-1",), more=files)
    blueprints = Repo(tmp_path / "w/blueprints.git")
    blueprints.commit(
        {
            "plain/app.yaml": app("plain", 1),
            "web/sub/app.yaml": app("sub", 1),
            "apps/inner/o2ims/Kptfile": kptfile("o2ims"),
            "apps/inner/plain/app.yaml": app("plain", 1),
        }
    )
    return Repo(tmp_path / "w/control.git")


def test_what_is_no_package_is_called_what_it_is(control: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    one = variant("edge-1", "web").replace(
        "    package: web\n    revision", "    package: plain\n    revision"
    )
    control.commit(
        {manifest("edge-1", "web"): one, "manifests/all.yaml": package_set("all", TARGET, package="plain")}
    )

    assert invoke(["plan", "--control", str(control.path)]) == 3

    said = " ".join(capsys.readouterr().out.split())
    what = "plain is a directory without a Kptfile, and so no package"
    assert said.count(what) == 3, "the variant's row and problem, and the set's problem"
    assert "Make it one: `kpt pkg init plain` in a clone of that repository" in said


def test_directory_of_upstreams_that_holds_no_package_is_called_what_it_is(
    control: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = f"{repository('blueprints')}    directory: nope\n"
    files = {"manifests/all.yaml": package_set("all", TARGET)}
    control.commit({"manifests/repositories/blueprints.yaml": wrong, **files})

    assert invoke(["plan", "--output", "json", "--control", str(control.path)]) == 3

    problems = json.loads(capsys.readouterr().out)["problems"]
    assert len(problems) == 3, "of both variants and of the set"
    for problem in problems:
        assert "branch main has no directory nope, which Repository default/blueprints" in problem["message"]
        assert problem["hint"] == "Correct spec.git.directory there, or publish the package first."


FOLLOWER = variant("edge-1", "web").replace(
    "package: web\n    revision: 1", "package: plain\n    branch: main"
)


def test_directories_are_packages_where_the_repository_says_so(
    control: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = repository("blueprints").replace(
        "  namespace", '  annotations: {reconciler.dev/plain-packages: "true"}\n  namespace'
    )
    control.commit({"manifests/repositories/blueprints.yaml": plain, manifest("edge-1", "web"): FOLLOWER})
    blueprints, edge = Repo(tmp_path / "w/blueprints.git"), Repo(tmp_path / "w/edge-1.git")
    at = ["--control", str(control.path)]

    def run(*command: str) -> str:
        capsys.readouterr()
        assert invoke([*command, *at]) == 0
        return capsys.readouterr().out

    run("apply")
    run("approve", "--all")
    run("apply")
    made = edge.read("main", "web/Kptfile").decode()
    assert "  name: web\n" in made
    assert "    directory: plain\n" in made
    edge.commit(
        {"web/app.yaml": edge.read("main", "web/app.yaml").decode().replace("replicas: 1", "replicas: 5")}
    )
    blueprints.commit({"plain/app.yaml": app("plain", 2)})

    run("apply")
    run("approve", "--all")
    run("apply")

    merged = edge.read("main", "web/app.yaml").decode()
    assert "replicas: 5" in merged
    assert "registry.example/plain:v2" in merged
    assert "Nothing to do" in run("plan")
