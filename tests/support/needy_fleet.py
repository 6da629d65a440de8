"""A cluster whose manifests ask for packages of the index, with what they need delivered and merged."""

import json
from pathlib import Path
from typing import Any

from tests.support.git import Repo, make_repository
from tests.support.small_world import CONFIGURATION, repository
from tests.support.world import World, git

REVIEWED = f"{CONFIGURATION}  lock: {{mode: reviewed}}\n"
STRICT = f"{CONFIGURATION}  lock: {{mode: reviewed, reviewed: {{strict: true}}}}\n"


def package(name: str, version: str = "1.0.0", *needs: str, **spec: Any) -> dict[str, str]:
    """Return a version of a Carvel package for the index."""
    value = {
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": f"{name}.{version}"},
        "spec": {"refName": name, "version": version, **spec},
    }
    if needs:
        value["spec"]["dependencies"] = [{"package": {"refName": need}} for need in needs]  # type: ignore[index]
    return {f"index/{name}/{version}/package.yaml": json.dumps(value, indent=1)}


def install(name: str, package: str, *, constraints: str = "") -> dict[str, str]:
    """Return a PackageInstall of cluster dev."""
    value = {
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "serviceAccountName": "sa",
            "packageRef": {"refName": package, "versionSelection": {"constraints": constraints}},
        },
    }
    return {f"manifests/clusters/dev/{name}.yaml": json.dumps(value, indent=1)}


class NeedyFleet(World):
    """A control repository and the repository of cluster `dev`."""

    def want(self, files: dict[str, str | None]) -> None:
        """Commit files of the control repository; None removes one."""
        Repo(self.control).commit(files)

    def settle(self) -> None:
        """Apply, merge every pull request of `dev`, and apply again."""
        for line in (("apply",), ("approve", "dev/*"), ("apply",)):
            said = self.run(*line)
            assert said.code == 0, said

    def placed(self) -> set[str]:
        """Return the files of main of cluster `dev`."""
        return set(git(self.root / "dev.git", "ls-tree", "-r", "--name-only", "main").split())

    def plan(self) -> dict[str, tuple[str, str]]:
        """Return operation and reason of each package of the plan."""
        rows = json.loads(self.run("plan", "-o", "json").out)["changes"]
        return {row["package"]["path"]: (row["op"], row["reason"]) for row in rows}


def needy_fleet(root: Path, files: dict[str, str], configuration: str = CONFIGURATION) -> NeedyFleet:
    """Make the repositories below `root`."""
    root.mkdir()
    make_repository(root / "dev.git", {"README.md": "dev\n"})
    own = {"reconciler.yaml": configuration, "manifests/dev.yaml": repository("dev")}
    make_repository(root / "control.git", own | files)
    return NeedyFleet(root)
