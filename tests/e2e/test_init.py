"""What `init` writes is planned: a fleet of one's own, and one that Porch had."""

import subprocess
from pathlib import Path

import pytest
import yaml

from reconciler.cli.main import invoke
from tests.support.small_world import EDGES, manifest, repository, variant, write_world


def commit(folder: Path) -> None:
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.com"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*identity, "commit", "-qm", "Describe the fleet"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)


def plan(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    control = str(root / "fleet")
    assert invoke(["plan", "--control", control, "--cache-dir", str(root / "cache")]) == 0
    return capsys.readouterr().out


def as_exported(text: str, root: Path, uid: str) -> dict[str, object]:
    """Return a manifest as a cluster with Porch has it."""
    value: dict[str, dict[str, object]] = yaml.safe_load(text.replace("../", f"{root}/w/"))
    value["metadata"] |= {"uid": uid, "generation": 1, "managedFields": [{"manager": "porch"}]}
    value["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "NoErrors"}]}
    if value["kind"] == "Repository":
        value["spec"]["git"] = {**value["spec"]["git"], "secretRef": {"name": "auth"}}  # type: ignore[dict-item]
    return value


def test_fleet_of_a_cluster_with_porch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_world(tmp_path / "w")
    texts = [repository("blueprints"), *map(repository, EDGES), *(variant(edge, "web") for edge in EDGES)]
    items = [as_exported(text, tmp_path, f"uid-{number}") for number, text in enumerate(texts)]
    (tmp_path / "porch.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    assert invoke(["init", str(tmp_path / "fleet"), "--from-porch", str(tmp_path / "porch.yaml")]) == 0
    said = capsys.readouterr().out
    commit(tmp_path / "fleet")

    assert [f"Repository default/{name}: spec.git.secretRef is left out" in said for name in EDGES] == [
        True
    ] * 3
    planned = plan(tmp_path, capsys)
    assert [f"create  {edge}/web" in planned for edge in EDGES] == [True] * 3
    assert "\n3 to create (checksum " in planned
    assert manifest("edge-1", "web") not in planned


def test_package_that_porch_made_is_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    edge = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", tmp_path / "w/edge-1.git", edge], check=True)
    (edge / "web").mkdir()
    (edge / "web/Kptfile").write_text("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n")
    identity = ["-c", "user.name=Porch", "-c", "user.email=porch@example.com"]
    for command in (["add", "."], [*identity, "commit", "-qm", "web"], ["push", "-q", "origin", "HEAD:main"]):
        subprocess.run(["git", *command], cwd=edge, check=True)
    items = [as_exported(text, tmp_path, "") for text in (repository("blueprints"), repository("edge-1"))]
    made = {"status": {"downstreamTargets": [{"name": "edge-1.web.v1"}]}}
    items.append(as_exported(variant("edge-1", "web"), tmp_path, "") | made)
    (tmp_path / "porch.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    assert invoke(["init", str(tmp_path / "fleet"), "--from-porch", str(tmp_path / "porch.yaml")]) == 0
    commit(tmp_path / "fleet")

    assert "adopt   edge-1/web" in plan(tmp_path, capsys)
