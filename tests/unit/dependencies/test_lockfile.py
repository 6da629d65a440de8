"""The lock: stable bytes, thin per cluster, and everything needed to decide the same again."""

import json

import orjson
import pytest

from reconciler.base.errors import Location
from reconciler.base.values import read_record
from reconciler.dependencies.catalog.cluster_inputs import imported_pins
from reconciler.dependencies.dialects.crossplane import read_lock
from reconciler.dependencies.lock.format import (
    lock_path,
    lock_solution,
    next_lock,
    read_locks,
    resolution_path,
)
from reconciler.dependencies.lock.revisions import PreviousLock, reconcile_revisions
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import Resolution, record_bytes
from reconciler.dependencies.model.packages import Ecosystem, PackageId
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.inventory.inventory import Source
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, told, world_of
from tests.support.values import replace

TEXT = (
    install("shop", "web.io", ">=1.0.0")
    + package(
        "web.io",
        "1.0.0",
        needs("db.io", ">=1.0.0"),
        "{or: [" + f"{needs('a.io')}, {needs('b.io')}" + "]}",
        "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}",
        needs("gone.io", "", ", optional: true"),
    )
    + package("db.io", "1.0.0", "provides: [{apiVersion: db.io/v1, kind: Database}]")
    + package("a.io", "1.0.0")
    + package("b.io", "1.0.0")
    + "---\n{kind: Cluster, apis: [certs.io/v1/Issuer]}\n"
)


def locked(world: ClusterInputs) -> Resolution:
    solution = resolve_cluster(world)
    return reconcile_revisions(
        world, solution, lock_solution(world, solution), PreviousLock(Resolution())
    ).resolution


def test_the_bytes_are_canonical_and_come_back() -> None:
    body = locked(world_of(TEXT))
    data = record_bytes(body)

    assert data.endswith(b"}\n")
    assert list(orjson.loads(data)) == sorted(orjson.loads(data))
    assert read_record(data, Resolution) == body
    assert resolution_path(body.digest).startswith("locks/resolutions/")
    assert body.digest not in data.decode()


def test_the_lock_of_crossplane_is_imported_as_pins() -> None:
    world = world_of(
        provider("platform", "v1.0.0", "Configuration")
        + crossplane(
            "platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}, {provider: x.io/gcp}]"
        )
        + "".join(crossplane(name, version) for name in ("aws", "gcp") for version in ("v1.1.0", "v1.2.0"))
    )
    (gcp, _) = world.catalogue.candidates(PackageId(Ecosystem.XPKG, "x.io/gcp"))
    several = [one for group in world.catalogue.packages.values() for one in group if one != gcp]
    digested = replace(world, catalogue=build_catalogue([*several, replace(gcp, digest="sha256:ab")]))
    upstream = {
        "apiVersion": "pkg.crossplane.io/v1beta1",
        "kind": "Lock",
        "metadata": {"name": "lock"},
        "packages": [
            {"name": "aws-1", "source": "x.io/aws", "version": "v1.1.0"},
            {"name": "gcp-1", "source": "x.io/gcp", "version": "sha256:ab"},
            {"name": "lost-1", "source": "x.io/lost", "version": "sha256:cd"},
        ],
    }

    chosen, reading = read_lock(upstream, Source(Location("snapshot/lock.yaml")))
    pins = imported_pins(chosen, digested.catalogue)

    assert reading.problems == ()
    assert [(pin.instance.package.name, str(pin.candidate.version)) for pin in pins] == [
        ("x.io/aws", "v1.1.0"),
        ("x.io/gcp", "v1.1.0"),
    ]
    assert told(resolve_cluster(digested)).count("v1.2.0") == 2
    assert told(resolve_cluster(replace(digested, pins=pins))).count("v1.1.0") == 2


def broken_lock(change: dict[str, bytes]) -> tuple[str, str, str]:
    """Return path, message and hint of the one problem of a fleet's files after a change of some."""
    resolution = locked(world_of(TEXT))
    lock = next_lock("edge", input_digest="", resolution=resolution)
    files = {
        lock_path(lock): record_bytes(lock),
        resolution_path(resolution.digest): record_bytes(resolution),
    }
    assert read_locks(files).problems == ()
    (problem,) = read_locks(
        files | {path.format(**names(files)): data for path, data in change.items()}
    ).problems
    return problem.location.path, problem.message, problem.hint


def broken_resolution(**fields: str) -> bytes:
    """Return a resolution of one package with these fields."""
    instance = {"ecosystem": "carvel", "name": "web.io", "slot": {"kind": "cluster"}}
    package = {"instance": instance, "dialect": "carvel", "version": "1.0.0", **fields}
    return json.dumps({"kind": "PackageResolution", "packages": [package]}).encode()


def names(files: dict[str, bytes]) -> dict[str, str]:
    lock, resolution = sorted(files, key=lambda path: "resolutions" in path)
    return {"lock": lock, "resolution": resolution}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"{lock}": b"{"}, "Invalid JSON"),
        ({"{lock}": b'{"kind": "PackageLock"}'}, "Object missing required field `scope`"),
        ({"{lock}": b'{"kind": "PackageLock", "scope": {"cluster": "a"}, "generation": "x"}'},
            "Expected `int`, got `str` - at `$.generation`"),
        ({"{resolution}": b"{"}, "Invalid JSON"),
        ({"{resolution}": b'{"packages": [{"version": "1"}]}'},
            "Object missing required field `instance` - at `$.packages[0]`"),
        ({"{resolution}": broken_resolution(version="odd")}, "'odd' is not a "),
        ({"{resolution}": broken_resolution(api_version="x")},
            "Object contains unknown field `api_version` - at `$.packages[0]`"),
    ],
)  # fmt: skip
def test_lock_that_cannot_be_read_is_named_with_the_reason(change: dict[str, bytes], why: str) -> None:
    path, message, hint = broken_lock(change)

    assert path == "locks/edge.json"
    assert message.startswith(f"The lock cannot be read: {why}")
    assert hint == "Correct or remove it on the state branch; the cluster is resolved anew."


def test_edited_resolution_holds_its_clusters_unless_people_reviewed_it() -> None:
    resolution = locked(world_of(TEXT))
    edge, far = (next_lock(name, input_digest="", resolution=resolution) for name in ("edge", "far"))
    path = resolution_path(resolution.digest)
    files = {lock_path(lock): record_bytes(lock) for lock in (edge, far)} | {path: record_bytes(resolution)}
    edited = files | {path: files[path].replace(b'"1.0.0"', b'"9.9.9"')}

    locks = read_locks(edited)

    assert read_locks(files).problems == read_locks(edited, reviewed=True).problems == ()
    assert locks.broken == {"edge", "far"}
    assert [(p.location.path, p.message, p.hint) for p in locks.problems] == [
        (
            f"locks/{cluster}.json",
            f"The lock is broken: {path} was edited",
            "Correct it on the state branch; until then nothing of this cluster changes.",
        )
        for cluster in ("edge", "far")
    ]
    (problem,) = read_locks({"locks/edge.json": b"{"}, reviewed=True).problems
    assert problem.hint == "Correct or remove it on main; the cluster is resolved anew."
