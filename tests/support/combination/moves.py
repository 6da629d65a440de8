"""Steps of an operator's life that move packages: other clusters, sets over snapshots, a package that moves.

Here are also a change of the instance's name, and what people do by the name of a package.
"""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.edge_fleet import EDGES
from tests.support.git import Repo

if TYPE_CHECKING:
    from tests.support.combination.operations import OperatorLife

CLUSTERS = "reconciler.dev/clusters"
INSTANCES = ("fleet", "fleet", "other")
SOLO = "solo"
"""A package of a variant without a set, which moves from cluster to cluster."""
TEAMS = {"group": "hr.example.com", "kind": "Team", "namespace": "*", "complete": True}


def where(edges: Sequence[str], notes: dict[str, str], *, selects: bool) -> dict[str, Any]:
    """Return the target of a set for these clusters: by their names, or by an object in their snapshots."""
    if not selects:
        return {"repositories": [{"name": edge} for edge in edges]}
    notes[CLUSTERS] = ",".join(EDGES)
    return {"objectSelector": {"apiVersion": "hr.example.com/v1", "kind": "Team"}}


def snapshots(edges: Sequence[str]) -> dict[str, str]:
    """Return snapshots of all clusters; those of `edges` have a team."""
    files = {}
    for edge in EDGES:
        names = ["web"] if edge in edges else []
        spec = {"time": "2026-01-01T00:00:00Z", "lists": [{**TEAMS, "count": len(names)}]}
        start = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot"}
        header = {**start, "metadata": {"name": edge}, "spec": spec}
        team = {"apiVersion": "hr.example.com/v1", "kind": "Team"}
        teams = [{**team, "metadata": {"name": name, "namespace": "default"}} for name in names]
        files[f"snapshot/{edge}/snapshot.yaml"] = json.dumps(header)
        files[f"snapshot/{edge}/teams.ndjson"] = "".join(f"{json.dumps(each)}\n" for each in teams) or "\n"
    return files


def solo(edge: str, revision: int) -> str:
    """Return the manifest of the package that moves."""
    spec = {
        "upstream": {"repo": "blueprints", "package": "db", "revision": revision},
        "downstream": {"repo": edge, "package": SOLO},
    }
    start = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "PackageVariant"}
    return json.dumps({**start, "metadata": {"name": SOLO, "namespace": "default"}, "spec": spec})


def _clusters(_life: "OperatorLife", random: Random) -> dict[str, Any]:
    edges = random.choice([EDGES, EDGES, *(EDGES[:n] + EDGES[n + 1 :] for n in range(3)), EDGES[:1]])
    return {"package": random.choice(["web", "db"]), "edges": edges, "selects": random.random() < 0.4}


def choose_clusters(life: "OperatorLife", package: str, edges: Sequence[str], *, selects: bool) -> None:
    """A person changes the clusters of a set, or how they are selected."""
    wish = life.wishes[package]
    wish.edges, wish.selects = tuple(edges), selects
    life.ask(package)


def _place(_life: "OperatorLife", random: Random) -> dict[str, Any]:
    return {"edge": random.choice([*EDGES, ""]), "revision": random.randint(1, 3)}


def move_solo(life: "OperatorLife", edge: str, revision: int) -> None:
    """A person moves a package to another cluster, or drops it."""
    if edge or life.places.get(SOLO):
        text = solo(edge, revision) if edge else None
        Repo(life.world.control).commit({"manifests/solo.json": text})
    life.places[SOLO] = edge


def change_instance(life: "OperatorLife", name: str) -> None:
    """A person gives the instance another name: what it has so far belongs to nobody that runs."""
    life.configure({"instance": name})


def close_by_name(life: "OperatorLife", edge: str, name: str, *, in_value: bool) -> None:
    """A person closes the pull request of a package, whichever that is."""
    del in_value
    life.judged.add(edge)
    life.run("pr", "close", f"{edge}/{name}", "--comment", "No")
    life.give_up()


MOVES: Mapping[str, tuple[Any, Any, int]] = {
    "choose_clusters": (_clusters, choose_clusters, 3),
    "move_solo": (_place, move_solo, 3),
    "change_instance": (
        lambda _life, random: {"name": random.choice(INSTANCES)},
        change_instance,
        1,
    ),
}
