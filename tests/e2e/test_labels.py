"""Labels of variants reach pull requests, their filter, `explain`, the history and the plan."""

import re
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world

LABELLED = manifest("edge-1", "web")


def label(control: Repo, labels: str) -> None:
    control.commit({LABELLED: f"{variant('edge-1', 'web')}  labels: {labels}\n"}, message="Label web\n")


def test_labels_are_seen_wherever_people_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    control = Repo(tmp_path / "w/control.git")
    at = ["--control", str(control.path)]

    def said(*command: str) -> str:
        capsys.readouterr()
        assert invoke([*command, *at]) == 0
        return capsys.readouterr().out

    label(control, f'{{team: a, "acme.example/{"x" * 60}": z, critical: ""}}')
    said("apply")

    for found in ("team=a", "team", "critical", f"acme.example/{'x' * 60}=z"):
        assert "edge-1/web" in said("pr", "list", "--label", found), found
    assert "no open pull requests that match" in said("pr", "list", "--label", "team=b")
    assert "labels team = a" in said("explain", "edge-1/web")

    label(control, "{team: b}")
    assert "web/v1; Pull request #2 gets its text and labels" in said("plan")
    said("apply")
    assert "edge-1/web" in said("pr", "list", "--label", "team=b")
    assert "match" in said("pr", "list", "--label", "team=a")

    said("approve", "--all")
    said("apply")
    assert re.search(
        r"v1 .*\n +drafted with labels acme.*=z, critical, team=a\n",
        said("explain", "edge-1/web", "--history"),
    )
    label(control, "{tier: c}")
    for command in ("plan", "apply"):
        assert "PackageVariant default/web-edge-1 gets other labels: tier=c, team removed" in said(command)
    assert "gets other labels" not in said("plan")
