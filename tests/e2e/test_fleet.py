"""Real packages over a fleet: four blueprints, fifty clusters, fifty bare repositories."""

import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.git.working_copy import NewCommit, create_bare
from tests.support.corpus import corpus_package
from tests.support.world import EPOCH, World, git, refs

pytestmark = pytest.mark.slow

PACKAGES = ("free5gc-cp", "pkg-example-upf-bp", "cluster-capi-kind", "cert-manager")
CLUSTERS = 50
KPT = shutil.which("kpt")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The fleet after one apply."""
    root = tmp_path_factory.mktemp("fleet")
    files = {f"{name}/{path}": data for name in PACKAGES for path, data in corpus_package(name).items()}
    tags = tuple(f"{name}/v1" for name in PACKAGES)
    create_bare(root / "blueprints.git", [NewCommit("Release", files, EPOCH, tags)])
    for number in range(CLUSTERS):
        create_bare(root / f"edge-{number:02}.git", [NewCommit("Start", {"README.md": b"# edge\n"}, EPOCH)])
    create_bare(root / "control.git", [NewCommit("Describe the fleet", _control(), EPOCH)])
    world = World(root)

    said = world.run("apply")

    assert said.code == 0, said.out + said.err
    return world


def test_every_draft_is_there(fleet: World) -> None:
    for number in range(CLUSTERS):
        names = refs(fleet.root / f"edge-{number:02}.git")
        for package in PACKAGES:
            assert f"refs/heads/drafts/{package}/packagevariant-1" in names


def test_every_repository_is_sound(fleet: World) -> None:
    repositories = list(fleet.repositories())
    assert repositories
    for repository in repositories:
        assert git(repository, "fsck", "--strict", "--full") == ""


def test_every_draft_holds_the_upstream_package(fleet: World) -> None:
    for package in PACKAGES:
        upstream = corpus_package(package)
        listed = git(
            fleet.root / "edge-07.git",
            "ls-tree",
            "-r",
            "--name-only",
            f"drafts/{package}/packagevariant-1",
            package,
        ).splitlines()
        assert set(listed) >= {f"{package}/{path}" for path in upstream}


@pytest.mark.needs("kpt")
@pytest.mark.parametrize("package", PACKAGES)
def test_kpt_accepts_a_draft(fleet: World, package: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    branch = f"drafts/{package}/packagevariant-1"
    git(tmp_path, "clone", "-q", "-b", branch, str(fleet.root / "edge-31.git"), str(copy))
    for kptfile in copy.rglob("Kptfile"):
        kptfile.write_text(_without_pipeline(kptfile.read_text()))

    for command in (["pkg", "tree", package], ["fn", "render", package]):
        ran = subprocess.run([str(KPT), *command], cwd=copy, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_second_apply_writes_nothing(fleet: World) -> None:
    before = fleet.all_refs()

    said = fleet.run("apply", cache="another-cache")

    assert said.code == 0, said.out + said.err
    assert fleet.all_refs() == before


def _without_pipeline(kptfile: str) -> str:
    kept, skipping = [], False
    for line in kptfile.splitlines():
        skipping = line.startswith("pipeline:") or (skipping and line.startswith((" ", "-", "#")))
        if not skipping:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _control() -> dict[str, bytes]:
    repositories = [_repository("blueprints", deployment=False)]
    repositories += [_repository(f"edge-{n:02}", deployment=True) for n in range(CLUSTERS)]
    sets = [_set(package) for package in PACKAGES]
    clusters = [_cluster(n) for n in range(CLUSTERS)]
    return {
        "reconciler.yaml": _CONFIGURATION.encode(),
        "manifests/repositories.yaml": "---\n".join(repositories).encode(),
        "manifests/sets.yaml": "---\n".join(sets).encode(),
        "snapshot/clusters.yaml": "---\n".join(clusters).encode(),
    }


_CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests:
  - manifests
  snapshot:
    path: snapshot
"""


def _repository(name: str, *, deployment: bool) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: {name}
  namespace: default
spec:
  type: git
  deployment: {str(deployment).lower()}
  git:
    repo: ../{name}.git
"""


def _set(package: str) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: {package}
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: {package}
    revision: 1
  targets:
  - objectSelector:
      apiVersion: infra.nephio.org/v1alpha1
      kind: WorkloadCluster
      matchLabels:
        nephio.org/site-type: edge
    template:
      downstream:
        repoExpr: target.name
"""


def _cluster(number: int) -> str:
    return f"""\
apiVersion: infra.nephio.org/v1alpha1
kind: WorkloadCluster
metadata:
  name: edge-{number:02}
  namespace: default
  labels:
    nephio.org/site-type: edge
spec:
  clusterName: edge-{number:02}
"""
