"""`index sync` with all versions, and as a mode of the action."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_index_sync import CONFIGURATION, HOST, fleet_of, push_platform
from tests.support.registry import Gate, Registry, serve_gate, serve_registry
from tests.support.workflow import installed_job, run_action


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Registry, Gate]]:
    with serve_registry(tmp_path) as registry, serve_gate(registry.address) as gate:
        yield registry, gate


def test_all_takes_every_version_of_what_is_needed_but_no_moving_tag(
    tmp_path: Path, served: tuple[Registry, Gate]
) -> None:
    push_platform(served[0])
    image = f"{HOST}/acme/platform:v1.0.0"
    fleet = fleet_of(tmp_path, served, {"platform.yaml": CONFIGURATION.format(image=image)})

    said = fleet.run("index", "sync", "--all")

    assert (said.code, said.err) == (0, ""), said
    assert fleet.versions() == [
        f"{HOST}/acme/{version}"
        for version in (
            *(f"platform/{tag}" for tag in ("v1.0.0", "v1.1.0")),
            *(f"provider-aws/{tag}" for tag in ("v0.9.0", "v1.0.0", "v1.2.0", "v2.0.0")),
            *(f"provider-family/{tag}" for tag in ("v1.0.0", "v1.1.0")),
        )
    ]


def test_the_action_proposes_new_versions_once(
    tmp_path: Path, project_root: Path, served: tuple[Registry, Gate]
) -> None:
    push_platform(served[0])
    image = f"{HOST}/acme/platform:v1.0.0"
    fleet = fleet_of(tmp_path, served, {"platform.yaml": CONFIGURATION.format(image=image)})
    job = installed_job(tmp_path, fleet.world.root)
    inputs = {"mode": "index-sync", "control": "copy"}

    ran = run_action(project_root, inputs, job)
    again = run_action(project_root, inputs, job)

    assert (ran.code, ran.outputs["exit-code"]) == (0, "0"), ran.log
    assert "#1 Add 4 versions of xpkg.example.com to the index" in ran.log
    assert (again.code, again.outputs["exit-code"]) == (0, "0"), again.log
    assert "Pull request #1 waits for a review" in again.log
