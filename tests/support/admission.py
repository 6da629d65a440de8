"""A fleet whose clusters have snapshots of what decides about objects, and a package that changes in all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import repository
from tests.support.world import World

CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {name: fleet}
spec:
  manifests: [manifests]
"""
KINDS = (
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("", "Namespace"),
)
"""The kinds that a snapshot lists for judgements."""


def snapshot(
    cluster: str,
    objects: Sequence[Mapping[str, Any]] = (),
    *,
    kinds: Sequence[tuple[str, str]] = KINDS,
    kubernetes: str = "v1.33.1",
    time: str = "2026-01-01",
    served: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the snapshot of a cluster with complete lists of some kinds."""
    lists = [
        {
            "group": g,
            "kind": k,
            "namespace": "*",
            "count": sum(o["kind"] == k for o in objects),
            "complete": True,
        }
        for g, k in kinds
    ]
    spec = {"time": f"{time}T00:00:00Z", "lists": lists, "versions": {"kubernetes": kubernetes}}
    spec |= {} if served is None else {"served": list(served)}
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot", "metadata": {"name": cluster}}
    return {
        f"snapshot/{cluster}/snapshot.yaml": json.dumps({**header, "spec": spec}),
        f"snapshot/{cluster}/objects.ndjson": "".join(f"{json.dumps(v)}\n" for v in objects) or "\n",
    }


def variant(edge: str, revision: int) -> str:
    """Return the manifest of the package in a cluster."""
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: web-{edge}}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  downstream: {{repo: {edge}, package: web}}
"""


def fleet(
    root: Path,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
    *,
    edges: Sequence[str] = ("edge-1", "edge-2"),
    settings: str = "",
    **files: str,
) -> World:
    """Return a world in which all clusters have the first revision of a package; the second one is there."""
    root.mkdir(exist_ok=True)
    package = {f"web/{path}": text for path, text in before.items()}
    blueprints = make_repository(root / "blueprints.git", {"web/Kptfile": kptfile("web"), **package})
    blueprints.tag("web/v1")
    blueprints.commit({f"web/{path}": text for path, text in after.items()})
    blueprints.tag("web/v2")
    for edge in edges:
        make_repository(root / f"{edge}.git", {"README.md": f"{edge}\n"})
    registered = {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", *edges)}
    variants = {f"manifests/web-{edge}.yaml": variant(edge, 1) for edge in edges}
    make_repository(
        root / "control.git", {"reconciler.yaml": CONFIGURATION + settings, **registered, **variants, **files}
    )
    world = World(root)
    for line in ("apply",), ("approve", "--all"), ("apply",):
        assert world.run(*line).code == 0
    return world


def ask_for_second(world: World, edges: Sequence[str] = ("edge-1", "edge-2")) -> None:
    """Have the second revision in these clusters."""
    Repo(world.control).commit({f"manifests/web-{edge}.yaml": variant(edge, 2) for edge in edges})


def judgements(world: World) -> list[tuple[str, str, str, str]]:
    """Return cluster, verdict, object and message of each judgement of the plan."""
    plan = json.loads(world.run("plan", "--output", "json").out)
    return sorted(
        (j["cluster"], "old " * j["old"] + j["verdict"], j["object"], j["message"])
        for change in plan["changes"]
        for j in change["judgements"]
    )
