"""Which repositories one of several shards reads: its own, those that it needs, or the whole fleet."""

import json
import shutil
from pathlib import Path

import pytest

from reconciler.expand import expand
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.inventory.inventory import Inventory, RepositoryRole
from reconciler.inventory.shard import Shard
from reconciler.names.ids import normalise_url
from reconciler.records.state import REFUSED_DELETIONS, RefusedDeletionsRecord, RefusedVariant, record_bytes
from reconciler.run.options import RunOptions
from reconciler.run.plan import RunInputs, read_inputs
from tests.unit.read.test_inventory import BASE, KPTFILE, REPOSITORY, TIME, create

PLANNED, READ, SKIPPED = RepositoryRole.PLANNED, RepositoryRole.READ, RepositoryRole.SKIPPED
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: {edge}
spec:
  upstream: {{repo: up, package: web, revision: 1}}
  downstream: {{repo: {edge}, package: web}}
"""


def url_of(root: Path, name: str) -> str:
    return normalise_url(str(root / f"{name}.git"))


def name_of(root: Path, prefix: str, part: int) -> str:
    """Return the name of a repository of one of two shards."""
    names = (f"{prefix}-{number}" for number in range(99))
    return next(name for name in names if Shard(part, 2).holds(url_of(root, name)))


def edge_of(root: Path, part: int) -> str:
    return name_of(root, "edge", part)


class Fleet:
    """Upstream `up` and the downstream repositories `mine` of the first and `other` of the second shard."""

    def __init__(self, root: Path, *more: str) -> None:
        self.root = root
        self.mine, self.other = edge_of(root, 0), edge_of(root, 1)
        up = name_of(root, "up", 1)
        create(root, up, {"web/Kptfile": KPTFILE}, tags=("web/v1",))
        files = {"m/a.yaml": REPOSITORY.format(name="up", repo=f"../{up}.git", directory="")}
        for edge in (self.mine, self.other):
            create(root, edge, {"README.md": "edge"})
            files[f"m/{edge}.yaml"] = REPOSITORY.format(name=edge, repo=f"../{edge}.git", directory="")
            files[f"m/v-{edge}.yaml"] = VARIANT.format(edge=edge)
        create(
            root, "control", {**BASE, **files, **{f"m/more-{n}.yaml": text for n, text in enumerate(more)}}
        )

    def url(self, name: str) -> str:
        return url_of(self.root, name)

    def read(self, part: int, parts: int = 2) -> Inventory:
        return self.inputs(part, parts).inventory

    def inputs(self, part: int, parts: int = 2) -> RunInputs:
        return read_inputs(
            RunOptions(str(self.root / "control.git"), self.root / "cache", Shard(part, parts))
        )

    def roles(self, inventory: Inventory) -> dict[str, tuple[RepositoryRole, bool]]:
        """Return role and whether there is content, by role of the repository in this world."""
        names = {self.mine: "mine", self.other: "other", "up": "up"}
        return {
            names.get(key.name, key.name): (view.role, view.head is not None)
            for key, view in inventory.repositories.items()
        }


def test_shard_reads_its_own_repositories_and_their_upstreams(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)

    read = fleet.read(0)

    assert fleet.roles(read) == {"mine": (PLANNED, True), "other": (SKIPPED, False), "up": (READ, True)}
    assert read.notes == ()
    assert read.pulls.keys() == {
        fleet.url(fleet.mine),
        *(v.url for v in read.repositories.values() if v.head),
    }


def test_variants_are_expanded_once_unless_something_was_read_later(tmp_path: Path) -> None:
    unread = name_of(tmp_path, "unread", 1)
    create(tmp_path, unread, {"README.md": "edge"})
    fleet = Fleet(tmp_path, REPOSITORY.format(name=unread, repo=f"../{unread}.git", directory=""))
    assert fleet.inputs(0).expanded == expand(fleet.read(0))

    lock = {"repo": fleet.url(fleet.other), "directory": "web", "ref": "main", "commit": "1" * 40}
    text = KPTFILE + f"upstreamLock: {json.dumps({'type': 'git', 'git': lock})}\n"
    shutil.rmtree(tmp_path / f"{fleet.mine}.git")
    create(tmp_path, fleet.mine, {"web/Kptfile": text})
    inputs = fleet.inputs(0)

    assert fleet.roles(inputs.inventory)["other"] == (READ, True)
    assert inputs.expanded is None


def test_upstreams_are_planned_by_the_shard_that_holds_them(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)

    roles = fleet.roles(fleet.read(1))

    assert roles == {"mine": (SKIPPED, False), "other": (PLANNED, True), "up": (PLANNED, True)}


def test_run_without_shards_plans_every_repository(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)

    read = fleet.read(0, 1)

    assert set(fleet.roles(read).values()) == {(PLANNED, True)}


def test_shard_reads_the_whole_fleet_where_a_decision_needs_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    waiting = RefusedDeletionsRecord(variants=(RefusedVariant(namespace="default", name="web", of=3),))
    create_bare(
        tmp_path / "control.git",
        [NewCommit("state", {REFUSED_DELETIONS: record_bytes(waiting)}, TIME)],
        branch="reconciler/fleet/state",
    )

    read = fleet.read(0)

    assert set(fleet.roles(read).values()) == {(PLANNED, True)}
    assert read.notes == ("Shard 0/2 reads every repository: deletions wait for consent",)


INSTALL = """\
apiVersion: packaging.carvel.dev/v1alpha1
kind: PackageInstall
metadata:
  name: x
  namespace: shop
  annotations:
    reconciler.dev/cluster: {cluster}
spec:
  packageRef:
    refName: x.io
    versionSelection:
      constraints: 1.0.0
"""


@pytest.mark.parametrize(("part", "is_whole"), [(0, True), (1, False)])
def test_shard_reads_the_whole_fleet_where_its_clusters_request_packages(
    tmp_path: Path, part: int, is_whole: bool
) -> None:
    fleet = Fleet(tmp_path, INSTALL.format(cluster=edge_of(tmp_path, 0)))

    read = fleet.read(part)

    why = f"Shard {part}/2 reads every repository: packages of its clusters need other packages"
    assert read.notes == ((why,) if is_whole else ())
    assert (SKIPPED in {role for role, _ in fleet.roles(read).values()}) is not is_whole
