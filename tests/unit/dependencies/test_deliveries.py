"""What is delivered after one decision upon the other: locks, and the manifests that they generate."""

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import ClusterLock, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.packages import ActivationRequest
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import generate_manifests
from tests.support.dependency_manifests import bundle, install, installation, needs, package, world_of
from tests.support.values import replace

if TYPE_CHECKING:
    from reconciler.names.problems import Problem


class Cluster:
    """One cluster that is decided again and again, each time from its last lock."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.problems: tuple[Problem, ...] = ()
        self.warnings: tuple[Problem, ...] = ()

    @property
    def lock(self) -> ClusterLock:
        return read_locks(self.files).by_cluster["one"]

    def pins(self) -> dict[str, str]:
        return {str(p.instance): p.version for p in self.lock.resolution.packages}

    def decided(self, text: str, *activations: ActivationRequest) -> dict[str, Any]:
        """Decide, and return what is generated, by path."""
        world = replace(world_of(text), cluster="one", activations=activations)
        updated = update_locks(FleetInputs((world,)), read_locks(self.files))
        self.files = {**self.files, **updated.files}
        self.problems = updated.problems
        found = generate_manifests(world, self.lock, owner="main/default/x@one")
        self.warnings = found.warnings
        return {path: load_documents(data)[0].value for path, data in found.files.items()}


# Porter

REDIS = bundle("redis", "6.0.0", more="parameters: [{name: req, type: string}]")
SHARED = "{requires: [{name: redis, reference: r.io/redis, labels: {app: shop}MORE}]}"
GIVES = bundle("a", "1.0.0", SHARED.replace("MORE", ", parameters: {req: x}"))
TAKES = bundle("c", "1.0.0", SHARED.replace("MORE", ""))


def test_shared_bundle_that_has_its_input_from_one_parent_has_it_for_the_next() -> None:
    cluster = Cluster()
    cluster.decided(installation("a", "a") + REDIS + GIVES + TAKES)

    found = cluster.decided(installation("a", "a") + installation("c", "c") + REDIS + GIVES + TAKES)

    assert cluster.problems == ()
    (redis,) = found.values()
    assert redis["parameters"] == {"req": "x"}


def shared_bundle(*requests: str) -> str:
    parents = zip("ac", requests, strict=True)
    text = "".join(installation(n, n) + bundle(n, "1.0.0", SHARED.replace("MORE", m)) for n, m in parents)
    return text + REDIS


def shared_package(*lines: str) -> str:
    parents = zip("ac", lines, strict=True)
    text = "".join(install(n, f"{n}.io", "", line) + package(f"{n}.io", "1.0.0", DB) for n, line in parents)
    return text + package("db.io", "1.0.0")


DB = needs("db.io")
NAMED = "dependencies: {values: [{refName: db.io, secretRef: {name: NAME}}]}"


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (shared_bundle(", parameters: {req: x}", ", parameters: {req: y}"), "parameter req"),
        (shared_bundle(", parameters: {req: x}", ", parameters: {req: x}"), ""),
        (shared_bundle(", parameters: {req: x}", ""), ""),
        (shared_package("serviceAccountName: x", "serviceAccountName: y"), "serviceAccountName"),
        (shared_package("serviceAccountName: x", "serviceAccountName: x"), ""),
        (shared_package(NAMED, NAMED.replace("NAME", "OTHER")), "values"),
    ],
)
def test_what_parents_give_differently_is_that_of_the_first(text: str, setting: str) -> None:
    cluster = Cluster()
    cluster.decided(text)

    message = f"gets a different {setting} from each parent: that of"
    assert [message in warning.message for warning in cluster.warnings] == ([True] if setting else [])


def test_credentials_that_are_missing_are_given_by_a_set() -> None:
    cluster = Cluster()
    needs_it = bundle("mysql", "1.0.0", more="credentials: [{name: kubeconfig}]")
    app = bundle("a", "1.0.0", "{requires: [{name: mysql, reference: r.io/mysql}]}")

    cluster.decided(installation("a", "a") + needs_it + app)
    (problem,) = cluster.problems
    cluster.decided(installation("a", "a", more="credentialSets: [azure]") + needs_it + app)

    assert "`credentialSets: [NAME]`" in problem.hint
    assert cluster.problems == ()


@pytest.mark.parametrize(("more", "notes"), [("", 1), ("credentialSets: [azure]", 0)])
def test_credential_that_another_dependency_gives_is_named_where_no_set_has_it(more: str, notes: int) -> None:
    cluster = Cluster()
    optional = bundle("ing", "1.0.0", more="credentials: [{name: kubeconfig, required: false}]")
    wired = "credentials: {kubeconfig: '${bundle.dependencies.aks.outputs.kubeconfig}'}"
    requires = f"[{{name: aks, reference: r.io/aks}}, {{name: ing, reference: r.io/ing, {wired}}}]"
    app = bundle("a", "1.0.0", f"{{requires: {requires}}}")

    cluster.decided(installation("a", "a", more=more) + bundle("aks", "1.0.0") + optional + app)

    assert [w.message.partition(" does not get the ")[2] for w in cluster.warnings] == [
        "credential kubeconfig: its value is known at run time only"
    ] * notes


# What a user says about dependencies

APP = bundle(
    "app",
    "1.0.0",
    "{requires: [{name: sqlserver, reference: r.io/sql, version: v1.x}]}",
    more="install: [{exec: {arguments: ['{{ bundle.dependencies.sqlserver.outputs.connection-string }}']}}]",
)
SQL = bundle("sql", "1.0.0", more="outputs: [{name: connection-string, type: string}]")
SERVER = bundle("server", "1.0.0", more="outputs: [{name: connection-string, type: string}]")
OTHER = bundle("other", "1.0.0", more="outputs: [{name: url, type: string}]")


def bound(alias: str, name: str) -> str:
    """Return an app whose dependency is bound."""
    return installation("shop", "app", more=f"custom: {{reconciler.dev/dependencies: {{{alias}: {name}}}}}")


def test_binding_of_an_alias_that_the_bundle_does_not_have_installs_nothing_in_its_place() -> None:
    cluster = Cluster()

    found = cluster.decided(bound("sqlsrver", "mine") + installation("mine", "server") + APP + SQL + SERVER)

    (problem,) = cluster.problems
    assert found == {}
    assert cluster.pins() == {"bundle:r.io/server@install/prod/mine": "1.0.0"}
    assert "r.io/app has no dependency sqlsrver, which its manifest names, only sqlserver" in problem.message
    assert problem.hint.startswith("Correct `reconciler.dev/dependencies` in `custom` of the Installation")


def test_binding_to_a_bundle_without_an_output_that_is_used_is_refused() -> None:
    cluster = Cluster()

    cluster.decided(bound("sqlserver", "mine") + installation("mine", "other") + APP + SQL + OTHER)

    (problem,) = cluster.problems
    why = "its binding sqlserver=mine is of r.io/other, which has not the output connection-string"
    assert why in problem.message


def test_binding_to_what_is_in_the_cluster_is_checked_by_the_bundle_that_the_index_has() -> None:
    mine = "namespace: prod, name: mine, package: 'bundle:r.io/NAME', version: 1.0.0"
    there = f"---\nkind: Cluster\ninstallations: [{{{mine}}}]\n"
    wish = bound("sqlserver", "mine") + APP + SQL + OTHER
    cluster = Cluster()

    cluster.decided(wish + there.replace("NAME", "sql"))
    fitting = cluster.problems
    cluster.decided(wish + there.replace("NAME", "other"))
    (problem,) = cluster.problems

    assert fitting == ()
    assert "has not the output connection-string" in problem.message


# Once in a cluster

ONCE = package("db.io", "1.0.0", "installationType: onePerCluster") + package(
    "web.io", "1.0.0", needs("db.io", "1.0.0")
)
FIRST, SECOND = (install(name, "db.io", "1.0.0", namespace=name) for name in ("u1", "u2"))


@pytest.mark.parametrize(("before", "counts"), [("", "u1"), (FIRST, "u1"), (SECOND, "u2")])
def test_of_two_installs_of_a_package_that_may_be_there_once_the_one_that_runs_counts(before, counts) -> None:
    cluster = Cluster()
    cluster.decided(before + ONCE)

    cluster.decided(FIRST + SECOND + install("app", "web.io", "1.0.0") + ONCE)

    (problem,) = cluster.problems
    (other,) = {"u1", "u2"} - {counts}
    assert problem.subject == f"PackageInstall {other}/{other}"
    assert "PackageInstall u1/u1" in problem.message
    assert "PackageInstall u2/u2" in problem.message
    assert set(cluster.pins()) == {
        f"carvel:db.io@install/{counts}/{counts}",
        "carvel:web.io@install/prod/app",
    }
