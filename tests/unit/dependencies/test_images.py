"""Images of packages: other names by which a cluster pulls them, and tags beside digests."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetClusters, FleetInputs, collect_cluster_inputs
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.lock.format import ClusterLock, lock_solution, next_lock
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.inventory.snapshot import Snapshot
from reconciler.render.delivery import generate_manifests

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
API = "pkg.crossplane.io/v1"


def sourced(path: str, body: dict[str, Any]) -> SourcedDocument:
    return SourcedDocument(body, Source(Location(path, 1)))


def version(source: str, number: str, needs: str = "", **more: Any) -> list[SourcedDocument]:
    head = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "PackageVersion",
        "source": source,
        "version": number,
    }
    depends = [{"provider": needs, "version": ">=v0.1.0"}] if needs else []
    kind = "Configuration" if needs else "Provider"
    meta = {
        "apiVersion": "meta.pkg.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {"dependsOn": depends},
    }
    folder = f"index/{source}/{number}"
    return [sourced(f"{folder}/version.yaml", {**head, **more}), sourced(f"{folder}/crossplane.yaml", meta)]


def package(kind: str, name: str, image: str, cluster: str = "dev") -> SourcedDocument:
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": {"package": image}}
    return sourced(f"clusters/{cluster}/{name}.yaml", body)


def rewriting(old: str, new: str, path: str = "clusters/dev/c.yaml", **match: Any) -> SourcedDocument:
    spec = {"matchImages": [{"prefix": old, **match}], "rewriteImage": {"prefix": new}}
    body = {
        "apiVersion": "pkg.crossplane.io/v1beta1",
        "kind": "ImageConfig",
        "metadata": {"name": old},
        "spec": spec,
    }
    return sourced(path, body)


def collected(manifests: list[SourcedDocument], *index: list[SourcedDocument]) -> FleetInputs:
    contents = read_index([document for folder in index for document in folder])
    fleet = FleetClusters({"dev": "", "prod": ""}, Snapshot())
    return collect_cluster_inputs(manifests, (), contents, fleet)


def pins(found: FleetInputs, cluster: str = "dev") -> list[str]:
    (world,) = (world for world in found.worlds if world.cluster == cluster)
    return sorted(str(instance) for instance in resolve_cluster(world).resolved)


APP = version("x.io/c/app", "v1.0.0", "x.io/c/kube")
KUBE = version("x.io/c/kube", "v0.1.0")
BOTH = [
    package("Provider", "kube", "m.io/c/kube:v0.1.0"),
    package("Configuration", "app", "x.io/c/app:v1.0.0"),
]
ONCE = ["xpkg:x.io/c/app@cluster", "xpkg:x.io/c/kube@cluster"]


@pytest.mark.parametrize(
    ("configs", "is_known"),
    [
        ([rewriting("m.io/c", "x.io/c")], True),
        ([rewriting("m.io/c", "x.io/c", "images.yaml")], True),
        ([rewriting("m.io", "y.io"), rewriting("m.io/c", "x.io/c")], True),
        ([rewriting("m.io", "x.io"), rewriting("m.io/c", "y.io/c")], False),
        ([rewriting("m.io/c", "x.io/c", "clusters/prod/c.yaml")], False),
        ([], False),
    ],
)
def test_image_that_a_cluster_rewrites_is_the_package_that_it_pulls(configs, is_known) -> None:
    found = collected([*BOTH, *configs], APP, KUBE)

    (world,) = (world for world in found.worlds if world.cluster == "dev")
    assert ({str(world.instance_of(i)) for i in world.installs} == set(ONCE)) is is_known


def test_mirror_in_the_index_is_what_an_original_name_means() -> None:
    mirrored = version("m.io/c/kube", "v0.1.0")
    manifests = [
        package("Configuration", "app", "x.io/c/app:v1.0.0"),
        rewriting("x.io/c/kube", "m.io/c/kube"),
    ]

    assert pins(collected(manifests, APP, mirrored)) == [
        "xpkg:m.io/c/kube@cluster",
        "xpkg:x.io/c/app@cluster",
    ]


@pytest.mark.parametrize(
    ("tag", "digest", "of"),
    [
        ("v2.0.0", ONE, "that of v1.0.0"),
        ("v3.0.0", ONE, "that of v1.0.0"),
        ("v1.0.0", f"sha256:{'3' * 64}", "not the one that the index has of it"),
        ("v1.0.0", ONE, ""),
        ("v3.0.0", f"sha256:{'3' * 64}", ""),
    ],
)
@pytest.mark.parametrize("kind", ["Provider", "Installation"])
def test_tag_of_another_version_than_the_digest_is_noted(kind: str, tag: str, digest: str, of: str) -> None:
    ecosystem = "xpkg" if kind == "Provider" else "bundle"
    first, second = (
        [version("x.io/p", number, digest=own, ecosystem=ecosystem)[0]]
        for number, own in (("v1.0.0", ONE), ("v2.0.0", TWO))
    )
    bundle = {"repository": "x.io/p", "version": tag.removeprefix("v"), "digest": digest}
    porter = {
        "schemaType": "Installation",
        "schemaVersion": "1.0.2",
        "name": "p",
        "namespace": "n",
        "bundle": bundle,
    }
    manifest = (
        package(kind, "p", f"x.io/p:{tag}@{digest}")
        if kind == "Provider"
        else sourced("clusters/dev/p.yaml", porter)
    )

    assert [(w.reason, of in w.message) for w in collected([manifest], first, second).warnings] == (
        [(Reason.READ_DIFFERENTLY, True)] if of else []
    )


@pytest.mark.parametrize(
    ("tag", "published", "told"),
    [("1.0.0", "v1.0.0", True), ("v1.0.0", "1.0.0", True), ("v1.0.0", "v1.0.0", False)],
)
def test_tag_that_nobody_published_is_noted_beside_the_one_that_is(tag, published, told) -> None:
    found = collected([package("Provider", "p", f"x.io/p:{tag}")], version("x.io/p", published)[:1])

    notes = [(warning.message, warning.hint) for warning in found.warnings]
    message = f"The tag is {tag}, and the index has {published} alone"
    assert notes == [(message, "Write that: a registry tells the two tags apart.")] * told


def composing(name: str, function: str) -> list[SourcedDocument]:
    folder = f"x.{name}.io/acme/p{name}"
    spec = {"mode": "Pipeline", "pipeline": [{"step": "a", "functionRef": {"name": function}}]}
    body = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": f"c{name}"},
        "spec": spec,
    }
    needing = version(folder, "v1.0.0", f"x.{name}.io/acme/fn")
    return [*needing, sourced(f"index/{folder}/v1.0.0/composition.yaml", body)]


def notes(function: str, *manifests: SourcedDocument) -> list[str]:
    configurations = [package("Configuration", f"p{n}", f"x.{n}.io/acme/p{n}:v1.0.0") for n in ("one", "two")]
    index = [
        part
        for n in ("one", "two")
        for part in (composing(n, function), version(f"x.{n}.io/acme/fn", "v1.0.0"))
    ]
    (world,) = collected([*configurations, *manifests], *index).worlds
    resolution = lock_solution(world, resolve_cluster(world))
    locked = ClusterLock(next_lock("dev", input_digest="", resolution=resolution), resolution)
    return [str(note.message) for note in generate_manifests(world, locked, owner="o/x@dev").warnings]


def test_package_with_another_name_than_crossplanes_is_noted_with_the_compositions_that_run_it() -> None:
    (generated,) = notes("acme-fn")
    (plain,) = notes("other")
    (own,) = notes("acme-fn", package("Provider", "acme-fn", "x.two.io/acme/fn:v1.0.0"))

    assert generated.startswith("x.two.io/acme/fn is Provider acme-fn-")
    assert generated.endswith("; Composition ctwo of x.two.io/acme/ptwo runs acme-fn")
    assert "Composition" not in plain
    assert own.endswith("; Composition cone of x.one.io/acme/pone runs acme-fn")


def test_name_of_a_users_own_is_noted_only_where_a_composition_runs_the_expected_one() -> None:
    both = [package("Provider", f"my-{n}", f"x.{n}.io/acme/fn:v1.0.0") for n in ("one", "two")]

    assert len(notes("acme-fn", *both)) == 2
    assert notes("my-one", *both) == []
