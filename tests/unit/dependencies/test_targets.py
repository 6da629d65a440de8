"""Installs into another cluster: what is known of the cluster of the lock does not count for them."""

import pytest

from reconciler.dependencies.lock.format import ClusterLock, lock_solution, next_lock, transferred_pins
from reconciler.dependencies.lock.revisions import owned_resources
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


@pytest.mark.parametrize(("target", "is_met"), [("paused: false", True), (EDGE, False)])
def test_api_and_platform_of_this_cluster_count_here_alone(target: str, is_met: bool) -> None:
    cluster = "---\nkind: Cluster\napis: [k.io/v1/K]\nplatforms: {kubernetes: 1.27.0}\n"
    new = package("b.io", "1.0.0", "kubernetesVersionSelection: {constraints: '>=1.28.0'}")
    text = cluster + package("app.io", "1.0.0", K) + package("b.io", "0.9.0") + new

    found = solved(text + install("app", "app.io", "", target) + install("b", "b.io", "", target))

    assert any("app.io" in name for name in found) is is_met
    assert [version for name, version in found.items() if "b.io" in name] == ["0.9.0" if is_met else "1.0.0"]


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


def test_lock_of_a_dependency_stays_in_its_cluster_when_a_manifest_declares_it() -> None:
    text = package("db.io", "1.0.0") + package("app.io", "1.0.0", needs("db.io"))
    before = world_of(text + install("app", "app.io", "", EDGE))
    locked = lock_solution(before, resolve_cluster(before)).packages

    def pinned(line: str) -> bool:
        after = world_of(text + install("app", "app.io", "", EDGE) + install("db", "db.io", "", line))
        (own,) = (after.instance_of(i) for i in after.installs if i.name == "db")
        return own in {pin.instance for pin in transferred_pins(locked, after)}

    assert (pinned(EDGE), pinned(OTHER), pinned("paused: false")) == (True, False, False)


def test_kinds_of_another_cluster_are_owned_by_nobody_here() -> None:
    text = package("s.io", "1.0.0", BRINGS) + package("t.io", "1.0.0", BRINGS)
    world = world_of(text + install("s", "s.io", "", EDGE) + install("t", "t.io", "", "paused: false"))

    solution = resolve_cluster(world)

    assert len(solution.resolved) == 2
    assert all(map(owned_resources, solution.candidates.values()))
