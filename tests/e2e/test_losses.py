"""What a removed object takes with it: counted in its cluster, named first, merged by consent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import Repo, kptfile, make_repository
from tests.support.schema import output_violations
from tests.support.small_world import CONFIGURATION, repository, write_fleet
from tests.support.world import World

EDGES = ("edge-1", "edge-2")
APPROVAL = CONFIGURATION + "  approval: {auto: [{}]}\n"
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nets.x.io}
spec:
  group: x.io
  names: {kind: Net, plural: nets}
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
APP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {a: b}\n"


def variant(edge: str, revision: int = 1) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: net-{edge}}}
spec:
  upstream: {{repo: blueprints, package: net, revision: {revision}}}
  downstream: {{repo: {edge}, package: net}}
"""


def snapshot(cluster: str, *objects: str) -> dict[str, str]:
    """Return the snapshot of a cluster with objects of x.io, each as `Kind namespace/name`."""
    values = []
    for text in objects:
        kind, _, path = text.partition(" ")
        namespace, _, name = path.rpartition("/")
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        values.append({"apiVersion": "x.io/v1", "kind": kind, "metadata": metadata})
    kinds = [value["kind"] for value in values]
    lists = [
        {"group": "x.io", "kind": kind, "namespace": "*", "count": kinds.count(kind), "complete": True}
        for kind in ("Net", "XDb", "Db")
    ]
    spec = {"time": "2026-01-01T00:00:00Z", "lists": lists}
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot", "metadata": {"name": cluster}}
    return {
        f"snapshot/{cluster}/snapshot.yaml": json.dumps({**header, "spec": spec}),
        f"snapshot/{cluster}/objects.ndjson": "".join(f"{json.dumps(v)}\n" for v in values) or "\n",
    }


def published(
    root: Path, files: Mapping[str, str], *, later: Mapping[str, str | None] | None = None, **more: str
) -> World:
    """Return a world in which a package with these files is published in both clusters; `later` is its v2."""
    revisions = [{"Kptfile": kptfile("net"), "app.yaml": APP, **files}, *([later] if later else [])]
    variants = {f"manifests/net-{edge}.yaml": variant(edge) for edge in EDGES}
    world = write_fleet(root, "net", revisions, EDGES, variants | more)
    world.publish()
    return world


def control(world: World) -> Repo:
    return Repo(world.control)


def change(world: World, files: Mapping[str, str | None]) -> None:
    control(world).commit(files)


def plan(world: World) -> dict[str, Any]:
    text = world.run("plan", "--output", "json").out
    assert not list(output_violations("plan", text))
    return dict(json.loads(text))


def losses(world: World) -> dict[str, tuple[int | None, list[str]]]:
    return {
        f"{loss['cluster']} {loss['cause']} {loss['kind']}".strip(): (loss["count"], loss["names"])
        for loss in plan(world)["losses"]
    }


NET = "CustomResourceDefinition nets.x.io Net.x.io"
REMOVED = {"manifests/net-edge-1.yaml": None}


def test_objects_are_counted_in_the_snapshot_of_that_cluster(tmp_path: Path) -> None:
    world = published(tmp_path / "w", {"crd.yaml": CRD})

    change(world, {**REMOVED, **snapshot("edge-1", "Net b", "Net a"), **snapshot("edge-2", "Net c")})

    assert losses(world) == {f"edge-1 {NET}": (2, ["a", "b"])}


def test_loss_is_a_verdict_and_refused_without_consent(tmp_path: Path) -> None:
    world = published(tmp_path / "w", {"crd.yaml": CRD}, **snapshot("edge-1", "Net a"))
    control(world).commit(REMOVED, branch="head", start="main")
    checked = world.run("check", "--head", "head", "--output", "json")
    sarif = json.loads(world.run("check", "--head", "head", "--output", "sarif").out)
    change(world, REMOVED)
    metrics = tmp_path / "metrics.txt"
    planned = world.run("plan", "--output", "json", "--metrics-file", str(metrics))

    row = ("destroys", "CustomResourceDefinition", ["edge-1/net"])
    for said in checked, planned:
        value = json.loads(said.out)
        assert said.code == 4
        assert [(j["verdict"], j["rule"], j["names"]) for j in value["judgements"]] == [row]
        assert [r["reason"] for r in value["refusals"]] == ["LossNeedsConsent"]
    assert "CustomResourceDefinition" in [r["ruleId"] for r in sarif["runs"][0]["results"]]
    assert 'verdict="destroys"} 1.0' in metrics.read_text()
    world.consent()
    assert world.run("apply").code == 0, "the pull request is open, and policy may merge it"


AUTOMATIC = {"reconciler.yaml": APPROVAL, "manifests/net-edge-1.yaml": variant("edge-1", 2)}


@pytest.mark.parametrize(
    ("given", "is_merged"),
    [
        pytest.param(snapshot("edge-1", "Net a"), False, id="objects go"),
        pytest.param(snapshot("edge-1"), True, id="there is no object"),
    ],
)
def test_policy_merges_a_loss_by_consent_only(
    tmp_path: Path, given: Mapping[str, str], *, is_merged: bool
) -> None:
    world = published(tmp_path / "w", {"crd.yaml": CRD}, later={"crd.yaml": None})
    change(world, {**AUTOMATIC, **given})
    world.run("apply")

    assert ("approve edge-1/net" in world.run("plan").out.replace("  ", " ")) is is_merged
    if not is_merged:
        said = world.run("plan")
        assert (said.code, "LossNeedsConsent" in said.out) == (4, True)
        assert world.run("approve", "--all").code == 4
        world.consent()
        assert "ApprovedByPolicy" in world.run("plan").out
    assert world.run("approve", "--all").code == 0


def test_person_approves_a_loss_by_name(tmp_path: Path) -> None:
    world = published(tmp_path / "w", {"all.yaml": NAMESPACE})
    change(world, REMOVED)
    world.run("apply")

    refused = world.run("approve", "--all")

    assert refused.code == 4
    assert "edge-1#2 takes objects with it: edge-1: Namespace shop takes everything" in refused.out
    assert world.run("approve", "edge-1/net").code == 0
    assert losses(world) == {}


@pytest.mark.parametrize("name", ["net-edge-1", "mesh-edge-1"], ids=["moved", "renamed, too"])
def test_package_that_moved_loses_nothing_once_its_new_place_is_on_main(tmp_path: Path, name: str) -> None:
    world = published(tmp_path / "w", {"crd.yaml": CRD})
    moved = variant("edge-1").replace("{repo: edge-1, package: net}", "{repo: edge-1, package: mesh}")
    moved = moved.replace("name: net-edge-1", f"name: {name}")
    change(world, {"manifests/net-edge-1.yaml": None, f"manifests/{name}.yaml": moved})

    assert losses(world) == {f"edge-1 {NET}": (None, [])}
    world.run("apply")
    assert world.run("approve", "edge-1/mesh").code == 0
    assert losses(world) == {}
    assert world.run("approve", "--all").code == 0


# Installed packages


def xpkg(
    source: str, version: str, *, kinds: tuple[str, ...] = (), needs: str = "", kind: str = "Provider"
) -> dict[str, str]:
    """Return a Crossplane package of the index with the kinds of x.io that it brings."""
    spec: dict[str, Any] = {"crossplane": {"version": ">=v1"}}
    if needs:
        need = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", "package": needs, "version": ">=v1"}
        spec = {"dependsOn": [need]}
    meta = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec}
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "PackageVersion"}
    files = {
        "version.yaml": json.dumps({**header, "source": source, "version": version}),
        "crossplane.yaml": json.dumps(meta),
    }
    if kinds:
        crds = (CRD.replace("Net", each).replace("nets", f"{each.lower()}s") for each in kinds)
        files["crds.yaml"] = "---\n".join(f"{crd}{SERVED}" for crd in crds)
    return {f"index/{source}/{version}/{name}": text for name, text in files.items()}


SERVED = "  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n"


def install(name: str, package: str, kind: str = "Provider") -> dict[str, str]:
    """Return a manifest of a person that installs a package in cluster dev."""
    head = f"apiVersion: pkg.crossplane.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
    return {f"manifests/clusters/dev/{name}.yaml": f"{head}spec: {{package: {package}}}\n"}


def installed(root: Path, *files: Mapping[str, str]) -> World:
    """Return a world in which what cluster dev needs is delivered."""
    root.mkdir()
    make_repository(root / "dev.git", {"README.md": "dev\n"})
    given = {"reconciler.yaml": CONFIGURATION, "manifests/dev.yaml": repository("dev")}
    for each in files:
        given |= each
    make_repository(root / "control.git", given)
    world = World(root)
    world.publish()
    return world


FAMILY, S3 = "x.example.com/a/fam", "x.example.com/a/s3"
BASE = {**xpkg(FAMILY, "v1.0.0", kinds=("Net",)), **xpkg(S3, "v1.0.0", kinds=("Db",), needs=FAMILY)}
"""The Provider s3 needs the Provider fam, which is generated as a-fam."""
OBJECTS = snapshot("dev", "Net n", "Db shop/one")


def test_kinds_go_with_their_provider_and_objects_with_their_kinds(tmp_path: Path) -> None:
    world = installed(tmp_path / "w", BASE, OBJECTS, install("s3", f"{S3}:v1.0.0"))

    change(world, {"manifests/clusters/dev/s3.yaml": None})
    said = world.run("plan").out

    want = {"dev Provider a-fam Net.x.io": (1, ["n"]), "dev Provider s3 Db.x.io": (1, ["shop/one"])}
    assert losses(world) == want
    assert "without a controller" not in said
    assert "kind: drop Db.x.io x.example.com/a/s3: it goes with x.example.com/a/s3" in said
    world.run("apply")
    assert losses(world) == {"dev Provider a-fam Net.x.io": (1, ["n"])}, "its pull request is open"
    assert world.run("approve", "--all").code == 4
    assert "Net.x.io goes with it" in world.run("graph").out


@pytest.mark.parametrize(
    ("name", "want"),
    [("my-fam", {"dev Provider a-fam Net.x.io": (1, ["n"])}), ("a-fam", {})],
    ids=["another name", "the same name"],
)
def test_manifest_for_a_generated_provider_keeps_it_under_its_name_only(
    tmp_path: Path, name: str, want: Mapping[str, Any]
) -> None:
    world = installed(tmp_path / "w", BASE, OBJECTS, install("s3", f"{S3}:v1.0.0"))

    change(world, install(name, f"{FAMILY}:v1.0.0"))

    assert losses(world) == want
    note = f"note: Provider {name} replaces Provider a-fam in dev and does not take over its objects"
    hint = "Give the Provider of your manifest the metadata.name a-fam to keep the object"
    said = world.run("plan").out
    assert (note in said, hint in said) == (bool(want), bool(want))
    world.run("apply")
    assert losses(world) == want


def test_generated_package_that_moved_loses_nothing_once_its_new_place_is_on_main(tmp_path: Path) -> None:
    """Its Repository is renamed and gets another directory. The cluster stays: its objects are counted."""
    head = "  annotations: {reconciler.dev/cluster: dev}\n  namespace: default\n"
    place = repository("dev").replace("  namespace: default\n", head).replace("name: dev", "name: old")
    given = {**BASE, "manifests/dev.yaml": f"{place}    directory: clusters/dev\n"}
    world = installed(tmp_path / "w", given, OBJECTS, install("s3", f"{S3}:v1.0.0"))

    change(world, {"manifests/dev.yaml": place.replace("name: old", "name: new") + "    directory: sites\n"})

    assert losses(world) == {"dev Provider a-fam Net.x.io": (1, ["n"])}
    said = world.run("plan").out
    assert "refused: LossNeedsConsent: old/dependencies takes objects with it" in said
    world.run("apply")
    assert world.run("approve", "new/dependencies").code == 0
    assert losses(world) == {}
    assert world.run("approve", "--all").code == 0


def carvel(version: str, *kinds: str) -> dict[str, str]:
    """Return a version of the Carvel package net.io with the kinds of x.io that it brings."""
    package = {
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": f"net.io.{version}"},
        "spec": {"refName": "net.io", "version": version},
    }
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "PackageVersion"}
    header |= {"source": "net.io", "version": version}
    crds = [CRD.replace("Net", each).replace("nets", f"{each.lower()}s") + SERVED for each in kinds]
    texts = [f"{json.dumps(header)}\n", f"{json.dumps(package)}\n", *crds]
    return {f"index/net.io/{version}/package.yaml": "---\n".join(texts)}


def package_install(version: str) -> dict[str, str]:
    value = {
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {"name": "net", "namespace": "shop"},
        "spec": {"packageRef": {"refName": "net.io", "versionSelection": {"constraints": version}}},
    }
    return {"manifests/clusters/dev/net.yaml": json.dumps(value)}


@pytest.mark.parametrize("later", [package_install("2.0.0"), {"manifests/clusters/dev/net.yaml": None}])
def test_kind_that_a_package_install_has_no_more_goes(
    tmp_path: Path, later: Mapping[str, str | None]
) -> None:
    index = {**carvel("1.0.0", "Net"), **carvel("2.0.0")}
    world = installed(tmp_path / "w", index, snapshot("dev", "Net n"), package_install("1.0.0"))

    change(world, later)

    assert losses(world) == {"dev PackageInstall shop/net Net.x.io": (1, ["n"])}
