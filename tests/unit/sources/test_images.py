"""What the images of packages hold, as each tool builds them, and what is refused."""

import json
from collections.abc import Iterator

import pytest

from reconciler.base.errors import RefusedError
from reconciler.functions.archives import ArchiveReader
from reconciler.policy import Limits, RegistryPolicy
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import pull_bundle, pull_packages, pull_xpkg
from tests.support.registry import MemoryRegistry, layer, serve_gate

Served = tuple[MemoryRegistry, RegistryClient]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_gate() as gate:
        gate.plan = registry = MemoryRegistry()
        policy = RegistryPolicy(mirrors={"x.io": f"http://{gate.address}"})
        yield registry, RegistryClient(policy, lambda _: None)


def test_a_crossplane_package_of_several_platforms_is_the_first_that_is_no_attestation(
    served: Served,
) -> None:
    registry, client = served
    inner = registry.push_xpkg("a", "", "kind: Provider\n", filler=10)
    other = registry.push_xpkg("a", "", "kind: Function\n")
    reference = {"vnd.docker.reference.type": "attestation-manifest"}
    listed = [
        {"digest": "sha256:" + "0" * 64, "size": 1, "annotations": reference},
        *({"digest": digest, "size": 1} for digest in (inner, other)),
    ]
    top = registry.push_manifest(
        "a", {"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": listed}, "v1.0.0"
    )

    pulled = pull_xpkg(client, "x.io/a", "v1.0.0", ArchiveReader(Limits()))

    assert pulled == (top.digest, (("package.yaml", b"kind: Provider\n"),))


def test_an_image_that_is_no_package_says_what_it_lacks(served: Served) -> None:
    registry, client = served
    registry.push_bundle("plain", "v1", {"a.yaml": "a"})
    registry.push_xpkg("wrong", "v1", "x")
    manifest = json.loads(registry.content["/v2/wrong/manifests/v1"])
    manifest["layers"][0] |= registry.push_blob("wrong", layer({"package.yml": b"x"}))._asdict()
    registry.push_manifest("wrong", manifest, "v1")

    lacks = r"No layer of x\.io/plain:v1 is annotated io\.crossplane\.xpkg: base, so it is no package of Cro"
    with pytest.raises(RefusedError, match=lacks):
        pull_xpkg(client, "x.io/plain", "v1", ArchiveReader(Limits()))
    with pytest.raises(RefusedError, match=r"The base layer of x\.io/wrong:v1 has no package\.yaml"):
        pull_xpkg(client, "x.io/wrong", "v1", ArchiveReader(Limits()))
    with pytest.raises(
        RefusedError, match=r"x\.io/plain:v1 has no manifest that is annotated .*, so it is no bundle"
    ):
        pull_bundle(client, "x.io/plain", "v1")


def test_a_bundle_is_the_configuration_that_its_index_names(served: Served) -> None:
    registry, client = served
    digest = registry.push_cnab("app", "v1", {"name": "app"})

    assert pull_bundle(client, "x.io/app", "v1") == (digest, (("bundle.json", b'{"name": "app"}'),))


def test_package_files_of_all_layers_count(served: Served) -> None:
    registry, client = served
    registry.push_bundle(
        "shops", "1", {"packages/b.yml": "b", "packages/a.json": "a", "packages/x.txt": "x", "c.yaml": "c"}
    )
    manifest = json.loads(registry.content["/v2/shops/manifests/1"])
    more = registry.push_blob("shops", layer({"packages/d.yaml": b"d"}))
    manifest["layers"].append({"mediaType": "x", **more._asdict()})
    pushed = registry.push_manifest("shops", manifest, "1")

    pulled = pull_packages(client, "x.io/shops", "1", ArchiveReader(Limits()))

    names = ["packages/a.json", "packages/b.yml", "packages/d.yaml"]
    assert pulled == (pushed.digest, tuple((name, name[9:10].encode()) for name in names))
