"""Real Nephio packages in twelve repositories, from creation to a settled update, beside the real kpt.

Clusters come from an imported snapshot; a person edits every package; upstream changes every resource.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.names.objects import File
from tests.support.combination import trees
from tests.support.combination.fleet import run_line
from tests.support.combination.spec import dump
from tests.support.corpus import corpus_package
from tests.support.git import Repo, make_repository
from tests.support.merges import difference
from tests.support.world import World, git

pytestmark = pytest.mark.slow

PACKAGES = ("rootsync", "vlanindex", "pkg-example-ric", "free5gc-cp")
CLUSTERS = [f"edge{number:02}" for number in range(10)]
API = "infra.nephio.org/v1alpha1"
RELEASE = "example.com/release: two"
CONFIGURATION = {
    "apiVersion": "reconciler.dev/v1alpha1",
    "kind": "Reconciler",
    "metadata": {"name": "fleet"},
    "spec": {"manifests": ["manifests"]},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The fleet after its packages were created, merged and edited by a person."""
    world = World(tmp_path_factory.mktemp("corpus") / "w")
    world.root.mkdir()
    catalog = make_repository(world.root / "catalog.git", upstream_files(1))
    for package in PACKAGES:
        catalog.tag(f"{package}/v1")
    for cluster in CLUSTERS:
        make_repository(world.root / f"{cluster}.git", {"README.md": f"{cluster}\n"})
    make_repository(world.control, {**control_files(revision=1), **snapshot_files(world.root)})
    assert_settled(world, waiting=True)
    for cluster in CLUSTERS:
        merge_all(repo(world, cluster))
    assert_settled(world)
    for cluster in CLUSTERS:
        repo(world, cluster).commit(person_edits(repo(world, cluster)), message="Mine\n")
    assert_settled(world)
    return world


@pytest.fixture(scope="module")
def before(fleet: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cluster's repository as a person has it before the update."""
    copy = tmp_path_factory.mktemp("kpt") / "copy"
    git(copy.parent, "clone", "-q", str(fleet.root / "edge00.git"), str(copy))
    return copy


@pytest.fixture(scope="module")
def updated(fleet: World, before: Path) -> World:
    """The fleet after upstream changed every resource, with drafts that wait for their review."""
    assert before.is_dir()
    catalog = repo(fleet, "catalog")
    catalog.commit(upstream_files(2), message="Release 2\n")
    for package in PACKAGES:
        catalog.tag(f"{package}/v2")
    repo(fleet, "control").commit(control_files(revision=2), message="Upgrade\n")
    assert_settled(fleet, waiting=True)
    return fleet


def test_update_of_every_resource_conflicts_nowhere(updated: World) -> None:
    plan = json.loads(updated.run("plan", "-o", "json").out)

    assert [c["name"] for c in plan["changes"] if c["conflicts"]] == []
    assert len([c for c in plan["changes"] if c["variant"]]) == len(PACKAGES) * len(CLUSTERS)


@pytest.mark.parametrize("package", PACKAGES)
def test_draft_holds_upstreams_changes_and_the_persons(updated: World, package: str) -> None:
    for cluster in CLUSTERS:
        repository = repo(updated, cluster)
        drafted = trees.files(repository, trees.root(repository, draft(repository, package)), package)
        upstream = {p: d for p, d in corpus_package(package).items() if p.endswith(".yaml")}
        for path, data in upstream.items():
            assert drafted[f"{package}/{path}"].count(RELEASE.encode()) == resources(data), path
        assert any(f"Kim of {cluster}".encode() in data for data in drafted.values())


@pytest.mark.needs("kpt")
def test_kpt_pkg_update_gives_the_same_data(updated: World, before: Path) -> None:
    mine = repo(updated, "edge00")
    for package in PACKAGES:
        point_kptfile(before / package / "Kptfile", updated.root / "catalog.git")
    git(before, "commit", "-qam", "Let kpt find the catalog")
    for package in PACKAGES:
        ran = subprocess.run(
            ["kpt", "pkg", "update", f"{package}@{package}/v2"],
            cwd=before,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        theirs = {
            str(p.relative_to(before)): File.of(p.read_bytes())
            for p in (before / package).rglob("*")
            if p.is_file() and p.name != "Kptfile"
        }
        root = trees.root(mine, draft(mine, package))
        ours = {
            p: File.of(d) for p, d in trees.files(mine, root, package).items() if not p.endswith("Kptfile")
        }
        assert difference(ours, theirs, loose=True) == {}, package


def test_merged_update_is_settled(updated: World) -> None:
    for cluster in CLUSTERS:
        merge_all(repo(updated, cluster))

    assert_settled(updated)
    for repository in updated.repositories():
        assert git(repository, "fsck", "--strict", "--full") == ""


def repo(world: World, name: str) -> Repo:
    return Repo(world.root / f"{name}.git", time=1_767_300_000)


def assert_settled(world: World, *, waiting: bool = False) -> None:
    """Apply twice: the second run writes nothing; without open drafts nothing waits for a review."""
    applied = world.run("apply", "-o", "json")
    assert applied.code == 0, applied.out[-3000:] + applied.err
    refs = world.all_refs()
    again = world.run("apply", "-o", "json")
    assert again.code == 0
    assert world.all_refs() == refs
    drafts = [ref for cluster in CLUSTERS for ref in refs[f"{cluster}.git"] if "/drafts/" in ref]
    assert bool(drafts) == waiting, (world.root, drafts[:3])


def draft(repository: Repo, package: str) -> str:
    """Return the branch of the one draft of a package."""
    (ref,) = [ref for ref in repository.refs() if ref.startswith(f"refs/heads/drafts/{package}/")]
    return ref.removeprefix("refs/heads/")


def merge_all(repository: Repo) -> None:
    for ref in sorted(repository.refs()):
        if ref.startswith("refs/heads/drafts/"):
            repository.merge(ref.removeprefix("refs/heads/"))


def upstream_files(release: int) -> dict[str, bytes]:
    """Return the catalog; in its second release every resource has one more label."""
    return {
        f"{package}/{path}": released(data) if release > 1 and path.endswith(".yaml") else data
        for package in PACKAGES
        for path, data in corpus_package(package).items()
    }


def released(data: bytes) -> bytes:
    """Return a file of resources with a label added to each."""
    return b"---".join(_labelled(part.decode()).encode() for part in data.split(b"---"))


def _labelled(document: str) -> str:
    if re.search(r"^  labels:$", document, re.MULTILINE):
        return re.sub(r"^  labels:$", f"  labels:\n    {RELEASE}", document, count=1, flags=re.MULTILINE)
    pattern = r"^(metadata:.*)$"
    return re.sub(pattern, rf"\1\n  labels:\n    {RELEASE}", document, count=1, flags=re.MULTILINE)


def resources(data: bytes) -> int:
    """Return how many resources a file of the corpus holds."""
    return len(re.findall(rb"^metadata:", data, re.MULTILINE))


def person_edits(repository: Repo) -> dict[str, bytes]:
    """Return edits of every package: a value, a comment, a text, a new file."""
    cluster = repository.path.stem
    rootsync = repository.read("main", "rootsync/rootsync.yaml")
    readme = repository.read("main", "free5gc-cp/README.md")
    assert b"period: 15s" in rootsync
    return {
        "rootsync/rootsync.yaml": rootsync.replace(
            b"period: 15s", f"period: 30s # Kim of {cluster}".encode()
        ),
        "vlanindex/notes.txt": f"Kim of {cluster}\n".encode(),
        "free5gc-cp/README.md": readme + f"\nKim of {cluster}\n".encode(),
        "pkg-example-ric/notes.txt": f"Kim of {cluster}\n".encode(),
    }


def control_files(*, revision: int) -> dict[str, str]:
    """Return the manifests: every package for every cluster, by sets that select clusters."""
    registered = "---\n".join(dump(registration(name)) for name in ("catalog", *CLUSTERS))
    return {
        "reconciler.yaml": dump(CONFIGURATION),
        "manifests/repositories.yaml": registered,
        **{f"manifests/{package}.yaml": dump(variant_set(package, revision)) for package in PACKAGES},
    }


def registration(name: str) -> Mapping[str, object]:
    return {
        "apiVersion": "config.porch.kpt.dev/v1alpha1",
        "kind": "Repository",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "git", "deployment": name != "catalog", "git": {"repo": f"../{name}.git"}},
    }


def variant_set(package: str, revision: int) -> Mapping[str, object]:
    template = {"injectors": [{"kind": "WorkloadCluster", "nameExpr": "target.name"}]}
    target = {"objectSelector": {"apiVersion": API, "kind": "WorkloadCluster"}, "template": template}
    return {
        "apiVersion": "config.porch.kpt.dev/v1alpha2",
        "kind": "PackageVariantSet",
        "metadata": {"name": package, "namespace": "default"},
        "spec": {
            "upstream": {"repo": "catalog", "package": package, "revision": revision},
            "targets": [target],
        },
    }


def snapshot_files(root: Path) -> dict[str, str]:
    """Return what `snapshot import` makes of ten clusters as kubectl lists them."""
    items = [
        {
            "apiVersion": API,
            "kind": "WorkloadCluster",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterName": name, "cnis": ["macvlan", "ipvlan"], "masterInterface": "eth1"},
        }
        for name in CLUSTERS
    ]
    source, output = root / "objects.json", root / "imported" / "snapshot"
    source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kinds = ["--cluster", "management", "--kinds", "WorkloadCluster.infra.nephio.org"]
    when = ["--time", "2026-01-01T00:00:00Z"]
    result = run_line(["snapshot", "import", str(source), "--out-dir", str(output), *kinds, *when])
    assert result.code == 0, result
    files = {
        f"snapshot/{p.relative_to(output)}": p.read_text() for p in sorted(output.rglob("*")) if p.is_file()
    }
    shutil.rmtree(output)
    source.unlink()
    return files


def point_kptfile(kptfile: Path, catalog: Path) -> None:
    """Let kpt find the catalog, wherever the Kptfile says it is."""
    text = re.sub(r"^(    repo): .*$", rf"\1: file://{catalog}", kptfile.read_text(), flags=re.MULTILINE)
    kptfile.write_text(text)
