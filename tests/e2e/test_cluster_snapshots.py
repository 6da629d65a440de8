"""Snapshots of several clusters side by side: each tells of its own cluster, and nothing of another."""

import json
from pathlib import Path

import pytest

from tests.support.git import Repo, kptfile
from tests.support.small_world import write_fleet
from tests.support.world import World

EDGES = ("edge-1", "edge-2", "edge-3")
TEAM = """\
apiVersion: hr.example.com/v1
kind: Team
metadata:
  name: team
  annotations:
    kpt.dev/config-injection: required
spec: {}
"""
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: web-{edge}
  namespace: default
spec:
  upstream: {{repo: blueprints, package: web, revision: 1}}
  downstream: {{repo: {edge}, package: web}}
  injectors:
  - name: ours
"""
SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: teams
  namespace: default
  annotations:
    reconciler.dev/allow-deletes: "9"
{clusters}spec:
  upstream: {{repo: blueprints, package: web, revision: 1}}
  targets:
  - objectSelector:
      apiVersion: hr.example.com/v1
      kind: Team
    template:
      downstream:
        repoExpr: >-
          'reconciler.dev/cluster' in target.annotations
          ? target.annotations['reconciler.dev/cluster'] : 'edge-3'
        packageExpr: "'of-' + target.name"
"""
CLUSTERS = "    reconciler.dev/clusters: edge-1, edge-2\n"


def snapshot(cluster: str, *names: str, count: int | None = None) -> dict[str, str | None]:
    """Return the snapshot of a cluster with these teams, listed whole."""
    header = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "Snapshot",
        "metadata": {"name": cluster},
        "spec": {
            "time": "2026-01-01T00:00:00Z",
            "lists": [
                {
                    "group": "hr.example.com",
                    "kind": "Team",
                    "namespace": "*",
                    "count": len(names) if count is None else count,
                    "complete": True,
                }
            ],
        },
    }
    teams = [
        {
            "apiVersion": "hr.example.com/v1",
            "kind": "Team",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"code": f"{cluster} {name}"},
        }
        for name in names
    ]
    lines = "".join(f"{json.dumps(team)}\n" for team in teams)
    return {
        f"snapshot/{cluster}/snapshot.yaml": json.dumps(header),
        f"snapshot/{cluster}/teams.ndjson": lines or "\n",
    }


def build(root: Path, files: dict[str, str | None]) -> World:
    given = {path: text for path, text in files.items() if text is not None}
    return write_fleet(root, "web", [{"Kptfile": kptfile("web"), "team.yaml": TEAM}], EDGES, given)


def test_injection_looks_in_the_cluster_of_the_downstream_repository(tmp_path: Path) -> None:
    variants = {f"manifests/web-{edge}.yaml": VARIANT.format(edge=edge) for edge in EDGES}
    world = build(tmp_path / "w", {**variants, **snapshot("edge-1", "ours"), **snapshot("edge-2", "ours")})

    applied = world.run("apply")

    drafts = {
        e: Repo(tmp_path / f"w/{e}.git").read("drafts/web/packagevariant-1", "web/team.yaml") for e in EDGES
    }
    assert b"code: edge-1 ours" in drafts["edge-1"]
    assert b"code: edge-2 ours" in drafts["edge-2"]
    assert b"spec: {}" in drafts["edge-3"]
    assert "there is no snapshot of cluster edge-3 in snapshot/edge-3" in world.run("plan").out, applied
    before = world.all_refs()
    world.run("apply")
    assert world.all_refs() == before


def test_set_selects_the_objects_of_the_clusters_that_it_names(tmp_path: Path) -> None:
    files = {"manifests/teams.yaml": SET.format(clusters=CLUSTERS)}
    world = build(tmp_path / "w", {**files, **snapshot("edge-1", "red"), **snapshot("edge-2", "red", "blue")})

    said = world.run("plan").out

    assert [line for line in ("edge-1/of-red", "edge-2/of-blue", "edge-2/of-red") if line not in said] == []
    assert "edge-1/of-blue" not in said


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (snapshot("edge-1"), False),
        ({**snapshot("edge-1"), **snapshot("edge-2", "red", count=2)}, True),
        ({**snapshot("edge-1"), "snapshot/edge-2/snapshot.yaml": None}, True),
        ({**snapshot("edge-1"), "snapshot/edge-2/snapshot.yaml": None, "snapshot/edge-2/teams.ndjson": None},
            True),
    ],
)  # fmt: skip
def test_absence_from_one_cluster_says_nothing_about_another(
    tmp_path: Path, change: dict[str, str | None], *, kept: bool
) -> None:
    files = {"manifests/teams.yaml": SET.format(clusters=CLUSTERS)}
    world = build(tmp_path / "w", {**files, **snapshot("edge-1", "red"), **snapshot("edge-2", "red")})
    world.run("apply")

    Repo(tmp_path / "w/control.git").commit(change)
    value = json.loads(world.run("plan", "--output", "json").out)

    ops = {one["name"]: one["op"] for one in value["changes"] if one["op"] not in ("keep", "none")}
    assert ("edge-2/of-red" in ops, "edge-1/of-red" in ops) == (False, not kept), value["changes"]
