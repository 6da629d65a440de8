"""A fleet of three clusters as real repositories, and what people do in it: sets, orders, drafts, merges."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import CONFIGURATION, app, repository
from tests.support.world import Said, World, restored

EDGES = ("ap1", "eu1", "us1")
WAVES = """\
  rollouts:
  - waves:
    - name: canary
      size: 1
    - name: main
"""
ROLL_BACK, SKIP = "reconciler.dev/rollout-rollback", "reconciler.dev/rollout-skip"


def blueprint(revision: int, folder: str = "", package: str = "web") -> dict[str, str]:
    """Return the files of an upstream package at a revision."""
    start = f"{folder}{package}"
    return {f"{start}/Kptfile": kptfile(package), f"{start}/app.yaml": app(package, revision)}


def the_set(
    revision: int,
    notes: Mapping[str, str] = {},
    name: str = "web",
    *,
    package: str = "web",
    own: str = "",
    target: Mapping[str, Any] | None = None,
) -> str:
    """Return the manifest of a set of this upstream package; `name` is the package of each cluster.

    `target` selects the clusters, by default all by their names; its template may have more fields.
    """
    chosen = target or {"repositories": [{"name": edge} for edge in EDGES]}
    downstream = {"package": name}
    if "objectSelector" in chosen:
        downstream["repoExpr"] = "target.annotations['reconciler.dev/cluster']"
    value = {
        "apiVersion": "config.porch.kpt.dev/v1alpha2",
        "kind": "PackageVariantSet",
        "metadata": {"name": own or package, "namespace": "default", "annotations": dict(notes)},
        "spec": {
            "upstream": {"repo": "blueprints", "package": package, "revision": revision},
            "targets": [{**chosen, "template": {**chosen.get("template", {}), "downstream": downstream}}],
        },
    }
    return json.dumps(value, indent=1)


class EdgeFleet(World):
    """The world, and what people do in it."""

    def want(
        self,
        revision: int,
        notes: Mapping[str, str] | None = None,
        name: str = "",
        *,
        package: str = "web",
        own: str = "",
        target: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask for a revision of a package on every cluster, with these orders."""
        file = "manifests/set.json" if package == "web" else f"manifests/{package}.json"
        text = the_set(revision, notes or {}, name or package, package=package, own=own, target=target)
        Repo(self.control).commit({file: text})

    def configure(self, more: str = WAVES) -> None:
        """Write the configuration with more fields of its spec."""
        Repo(self.control).commit({"reconciler.yaml": CONFIGURATION + more})

    def settle(self) -> None:
        """Apply and approve until nothing is left to do."""
        self.run("apply")
        while "approved" in self.run("approve", "--all").out:
            self.run("apply")

    def is_quiet(self) -> bool:
        """Whether one more run writes nothing, also from a fresh clone."""
        self.run("apply")
        before = self.all_refs()
        self.run("apply", cache="fresh")
        return self.all_refs() == before

    def apply(self) -> Said:
        """Apply, and see that a second run writes no ref of any repository."""
        said = self.run("apply")
        before = self.all_refs()
        again = self.run("apply", cache="fresh")
        after = self.all_refs()
        changed = [
            f"{name} {ref}"
            for name in after
            for ref in sorted(before[name].keys() | after[name].keys())
            if before[name].get(ref) != after[name].get(ref)
        ]
        assert not changed, f"a second run writes {changed}: {again.out}{again.err}"
        return said

    def image(self, edge: str, name: str = "web", branch: str = "main") -> str:
        """Return the revision that the package on a branch runs, "" without a package."""
        try:
            text = self.repo(edge).read(branch, f"{self.folder(edge)}{name}/app.yaml").decode()
        except KeyError:
            return ""
        return text.partition("registry.example/")[2].split()[0].partition(":")[2]

    def images(self, name: str = "web") -> list[str]:
        """Return the revision of each cluster."""
        return [self.image(edge, name) for edge in EDGES]

    def repo(self, edge: str) -> Repo:
        """Return the Git repository of a cluster."""
        own = self.root / f"{edge}.git"
        return Repo(own if own.exists() else self.root / "fleet.git")

    def folder(self, edge: str) -> str:
        """Return where the packages of a cluster are in its repository."""
        return "" if (self.root / f"{edge}.git").exists() else f"clusters/{edge}/"

    def pulls(self, edge: str) -> dict[int, dict[str, Any]]:
        """Return the pull requests of a cluster's repository by number."""
        said = self.run("pr", "list", "--all", "--output", "json")
        mine = [one for one in json.loads(said.out)["items"] if one["name"].startswith(f"{edge}#")]
        return {one["number"]: one for one in mine}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the plan by the package's name."""
        said = self.run("plan", "--output", "json")
        return {one["name"]: one for one in json.loads(said.out)["changes"]}


def make_edges(more: str = WAVES, *, packages: tuple[str, ...] = ("web",)) -> EdgeFleet:
    """Return the fleet with the first revision of these packages everywhere, then with more configuration."""
    world = restored("-".join(packages), lambda root: start(make_empty(root), packages))
    world.configure(more)
    return world


def make_empty(root: Path) -> EdgeFleet:
    """Return the fleet with no package."""
    root.mkdir()
    upstream = make_repository(root / "blueprints.git")
    for revision in (1, 2):
        for package in ("web", "db"):
            upstream.commit(blueprint(revision, package=package), message=f"{package} v{revision}\n")
            upstream.tag(f"{package}/v{revision}")
    for edge in EDGES:
        make_repository(root / f"{edge}.git", {"README.md": f"{edge}\n"})
    files = {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", *EDGES)}
    make_repository(root / "control.git", {"reconciler.yaml": CONFIGURATION, **files})
    return EdgeFleet(root)


def make_monorepo() -> EdgeFleet:
    """Return the fleet as directories of one repository, with the blueprints beside them."""
    world = restored("monorepo", lambda root: start(_empty_monorepo(root), ("web",)))
    world.configure()
    return world


def _empty_monorepo(root: Path) -> EdgeFleet:
    root.mkdir()
    fleet = make_repository(
        root / "fleet.git", {**blueprint(1, "blueprints/"), "clusters/README.md": "clusters\n"}
    )
    fleet.tag("blueprints/web/v1")
    fleet.commit(blueprint(2, "blueprints/"), message="web v2\n")
    fleet.tag("blueprints/web/v2")
    folders = {"blueprints": "blueprints", **{edge: f"clusters/{edge}" for edge in EDGES}}
    files = {
        f"manifests/{name}.yaml": repository(name).replace(f"../{name}.git", "../fleet.git")
        + f"    directory: {folder}\n"
        for name, folder in folders.items()
    }
    make_repository(root / "control.git", {"reconciler.yaml": CONFIGURATION, **files})
    return EdgeFleet(root)


def start(world: EdgeFleet, packages: tuple[str, ...]) -> EdgeFleet:
    """Let every cluster have the first revision of these packages."""
    for package in packages:
        world.want(1, package=package)
    world.settle()
    assert world.images() == ["v1"] * 3
    return world
