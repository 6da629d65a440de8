"""Installs into another cluster: what is known of the cluster of the lock does not count for them."""

import pytest

from reconciler.dependencies.lock.format import ClusterLock, lock_solution, next_lock
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.solve.verify import verify
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import generate_manifests
from tests.support.dependency_manifests import install, needs, package, world_of

EDGE = "cluster: {namespace: apps, kubeconfigSecretRef: {name: edge}}"
OTHER = "cluster: {kubeconfigSecretRef: {name: other, key: config}}"
K = "{gvk: {apiVersion: k.io/v1, kind: K}}"
BRINGS = "provides: [{apiVersion: k.io/v1, kind: K}]"


def solved(text: str) -> dict[str, str]:
    world = world_of(text)
    solution = resolve_cluster(world)
    assert verify(world, solution) == ()
    return {str(one.instance): str(one.candidate.version) for one in solution.resolved.values()}


@pytest.mark.parametrize(
    ("of_app", "of_s", "is_met"),
    [("", "", True), ("", EDGE, False), (EDGE, "", False), (EDGE, EDGE, True), (EDGE, OTHER, False)],
)
def test_api_counts_in_the_cluster_that_has_it(of_app: str, of_s: str, is_met: bool) -> None:
    text = package("s.io", "1.0.0", BRINGS) + package("app.io", "1.0.0", K)

    found = solved(
        text
        + install("app", "app.io", "", of_app or "paused: false")
        + install("s", "s.io", "", of_s or "paused: false")
    )

    assert any("app.io" in name for name in found) is is_met


def test_second_of_two_alternatives_may_be_installed_already() -> None:
    there = "---\n{kind: Cluster, installations: [{namespace: prod, name: there, package: 'carvel:b.io', "
    either = package("app.io", "1.0.0", "{or: [" + f"{needs('a.io')}, {needs('b.io')}" + "]}")
    world = world_of(install("app", "app.io", "") + either + there + "version: 1.0.0}]}\n")

    solution = resolve_cluster(world)

    assert verify(world, solution) == ()
    ((met,),) = (resolved.dependencies for resolved in solution.resolved.values())
    assert (met.id, met.alternative, met.detail) == ("carvel:b.io", 1, "installed:prod/there")


def test_each_cluster_may_get_an_api_from_another_package() -> None:
    packages = package("s.io", "1.0.0", BRINGS) + package("t.io", "1.0.0", BRINGS)

    found = solved(packages + install("s", "s.io", "", EDGE) + install("t", "t.io", "", OTHER))

    assert [*found.values()] == ["1.0.0", "1.0.0"]


def test_each_cluster_gets_a_dependency_of_its_own_where_the_kubeconfig_is() -> None:
    db = package("db.io", "1.0.0", "installationType: onePerCluster", BRINGS)
    app = package("app.io", "1.0.0", needs("db.io"))
    installs = [
        install(name, "app.io", "", line)
        for name, line in (("a", EDGE), ("b", OTHER), ("c", "serviceAccountName: sa"), ("d", EDGE))
    ]
    world = world_of(db + app + "".join(installs))

    solution = resolve_cluster(world)
    resolution = lock_solution(world, solution)
    locked = ClusterLock(next_lock("dev", input_digest="", resolution=resolution), resolution)
    found = generate_manifests(world, locked, owner="main/default/x@dev")
    documents = {path: load_documents(data)[0].value for path, data in found.files.items()}

    assert verify(world, solution) == ()
    assert {p.name for p in resolution.packages if not p.by_user} == {
        "db.io",
        "db.io-edge",
        "db.io-other-config",
    }
    assert {
        path: body["spec"].get("cluster", {}).get("kubeconfigSecretRef") for path, body in documents.items()
    } == {
        "packageinstalls/default/db.io.yaml": None,
        "packageinstalls/prod/db.io-edge.yaml": {"name": "edge"},
        "packageinstalls/prod/db.io-other-config.yaml": {"name": "other", "key": "config"},
    }
    assert found.problems == found.warnings == ()
