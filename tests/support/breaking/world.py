"""A world in which every unit has a name of its own, and every kind of change is due."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import CONFIGURATION, app, blueprint, package_set, repository, variant
from tests.support.world import World, restored

PACKAGES = {
    **dict.fromkeys(("alder", "birch", "cedar", "dogwood", "elm", "quince"), "north"),
    **dict.fromkeys(("fir", "ginkgo", "hazel", "larch", "maple", "rowan"), "south"),
}
"""The packages of the fleet, each with its repository."""
GENERATED = frozenset({"quince", "rowan"})
CONTAINERS = {
    "north": {name for name, repo in PACKAGES.items() if repo == "north"},
    "south": {"yew", *(name for name, repo in PACKAGES.items() if repo == "south")},
    "oak": set(GENERATED),
    "acorn": set(GENERATED),
    "blueprints": set(PACKAGES),
    "lichen": {"maple"},
    "moss": set(),
}
"""What several packages share: repositories, a set, its blueprint, an object of the snapshot."""
BLUEPRINTS = [*(name for name in PACKAGES if name not in GENERATED), "acorn"]


def world() -> World:
    """Return the world at rest but for what people asked for since: an apply has work in each package."""
    return restored("breaking", _build)


def _build(root: Path) -> World:
    root.mkdir(parents=True)
    repos = {
        name: make_repository(root / f"{name}.git", {"README.md": f"{name}\n"})
        for name in ("blueprints", "north", "south")
    }
    for name in BLUEPRINTS:
        _release(repos["blueprints"], name, 1)
    files = {"reconciler.yaml": CONFIGURATION, **_snapshot("calm")}
    files |= {f"manifests/{name}.yaml": repository(name) for name in repos}
    files |= {f"manifests/{name}.yaml": _variant(name, 1) for name in PACKAGES if name not in GENERATED}
    del files["manifests/fir.yaml"]
    files["manifests/oak.yaml"] = package_set("oak", _TARGETS, package="acorn")
    control = make_repository(root / "control.git", files)
    repos["south"].commit({"yew/Kptfile": kptfile("yew")})
    made = World(root)
    _apply(made)
    drafts = {"ginkgo", "cedar", "dogwood"}
    said = made.run(
        "approve", *(f"{repo}/{name}" for name, repo in PACKAGES.items() if name not in drafts | {"fir"})
    )
    assert said.code == 0, said
    _apply(made)
    north, south = (
        Repo(root / "north.git", repos["north"].time + 1000),
        Repo(root / "south.git", repos["south"].time + 1000),
    )
    north.merge("drafts/dogwood/packagevariant-1")
    north.commit({"birch/app.yaml": app("birch", 1).replace("replicas: 1", "replicas: 3")})
    south.commit({"hazel/app.yaml": app("hazel", 1).replace("hazel:v1", "hazel:mine")})
    south.commit({"ginkgo/note.yaml": _NOTE}, branch="drafts/ginkgo/packagevariant-1")
    for name in ("birch", "cedar", "ginkgo", "hazel", "maple", "acorn"):
        _release(repos["blueprints"], name, 2)
    changed = ("birch", "cedar", "ginkgo", "hazel", "maple", "fir")
    control.commit(
        {
            **{f"manifests/{name}.yaml": _variant(name, 1 if name == "fir" else 2) for name in changed},
            **_snapshot("windy"),
            "manifests/oak.yaml": package_set("oak", _TARGETS, package="acorn", revision=2),
            "manifests/elm.yaml": None,
            "manifests/larch.yaml": None,
        }
    )
    return made


def _apply(made: World) -> None:
    said = made.run("apply")
    assert said.code == 0, said


def _release(repo: Repo, name: str, number: int) -> None:
    repo.commit(blueprint(name, number), message=f"Release {name}\n")
    repo.tag(f"{name}/v{number}")


def _variant(name: str, revision: int) -> str:
    more = {"larch": "  deletionPolicy: orphan\n", "maple": _FEATURES}.get(name, "")
    text = variant(PACKAGES[name], name, revision=revision)
    return text.replace(f"name: {name}-{PACKAGES[name]}\n", f"name: {name}\n") + more


_FEATURES = """\
  packageContext:
    data:
      region: east
  injectors:
  - kind: Site
    name: lichen
  pipeline:
    mutators:
    - image: ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0
      configMap:
        team: blue
"""
_TARGETS = "{repositories: [{name: north, packageNames: [quince]}, {name: south, packageNames: [rowan]}]}"
_NOTE = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: note\ndata:\n  by: hand\n"


def _snapshot(zone: str) -> Mapping[str, str]:
    sites = {
        name: {**_SITE, "metadata": {"name": name, "namespace": "default"}, "spec": {"zone": zone}}
        for name in ("lichen", "moss")
    }
    lists = [{"group": "example.com", "kind": "Site", "namespace": "default", "count": 2, "complete": True}]
    header = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "Snapshot",
        "metadata": {"name": "management"},
        "spec": {"served": ["example.com/v1 Site"], "lists": lists},
    }
    files = {f"snapshot/{name}.yaml": json.dumps(site) for name, site in sites.items()}
    return {"snapshot/snapshot.yaml": json.dumps(header), **files}


_SITE = {"apiVersion": "example.com/v1", "kind": "Site"}
