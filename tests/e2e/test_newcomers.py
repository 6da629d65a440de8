"""A manifest that names a package which another one makes already stalls alone."""

import json
from pathlib import Path

from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World


def test_newcomer_on_one_package_stops_no_other_package_of_a_set(tmp_path: Path) -> None:
    edges = ("edge-1", "edge-2")
    write_world(tmp_path / "w", edges)
    world = World(tmp_path / "w")
    control = Repo(world.control, time=1_767_300_000)
    fleet = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: fleet, namespace: default}
spec:
  upstream: {repo: blueprints, package: web, revision: 1}
  targets:
  - repositories: [{name: edge-1}, {name: edge-2}]
"""
    singles = {manifest(edge, name): None for edge in edges for name in ("web", "db")}
    control.commit({**singles, "manifests/set.yaml": fleet})
    world.publish()
    newcomer = "manifests/newcomer.yaml"
    control.commit(
        {
            "manifests/set.yaml": fleet.replace("revision: 1", "revision: 2"),
            newcomer: variant("edge-2", "web"),
        }
    )

    plan = world.run("plan")

    assert plan.code == 3
    assert [line.split()[:3] for line in plan.out.splitlines() if line.startswith("update")] == [
        ["update", f"{edge}/web", "UpstreamChanged"] for edge in edges
    ]
    assert "PackageVariant default/web-edge-2" in plan.out + plan.err
    assert "not understood" not in world.run("status").out

    world.run("apply")
    items = json.loads(world.run("status", "-o", "json").out)["items"]
    drafts = {
        item["name"]: condition["status"]
        for item in items
        for condition in item["conditions"]
        if condition["type"] == "DraftExists"
    }
    assert drafts == {"fleet-edge-1-web": "True", "fleet-edge-2-web": "True", "web-edge-2": "False"}
