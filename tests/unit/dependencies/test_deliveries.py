"""What is delivered after one decision upon the other: locks, and the manifests that they generate."""

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import ClusterLock, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.packages import ActivationRequest
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import generate_manifests
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    world_of,
)
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


# Crossplane

MANUAL = provider("cfg", "v1.0.0", "Configuration").replace(
    "spec: {", "spec: {revisionActivationPolicy: Manual, "
)
NEEDS_NET = crossplane("cfg", "v1.0.0", "[{provider: x.io/net, version: '>=v1.0.0'}]")
NET = crossplane("net", "v1.0.0").replace("kind: Configuration", "kind: Provider")
ACTIVATE = ActivationRequest(
    "ConfigurationRevision", "any", active=True, package="cfg", image="x.io/cfg:v1.0.0"
)


def test_dependencies_of_a_package_that_waits_are_delivered_when_it_runs_and_run_by_themselves() -> None:
    cluster = Cluster()

    waiting = cluster.decided(MANUAL + NEEDS_NET + NET)
    running = cluster.decided(MANUAL + NEEDS_NET + NET, ACTIVATE)

    assert waiting == {}
    assert running["providers/net.yaml"]["spec"] == {"package": "x.io/net:v1.0.0"}
    assert {revision.package: revision.is_active for revision in cluster.lock.lock.revisions} == {
        "Configuration/cfg": True,
        "Provider/net": True,
    }


def test_newer_version_for_a_package_that_waits_is_asked_for_when_it_runs() -> None:
    cluster = Cluster()
    cluster.decided(MANUAL + NEEDS_NET + NET, ACTIVATE)
    newer = crossplane("cfg", "v2.0.0", "[{provider: x.io/net, version: '>=v2.0.0'}]") + NET.replace(
        "1.0.0", "2.0.0"
    )
    wish = MANUAL.replace("v1.0.0", "v2.0.0") + NEEDS_NET + NET + newer

    waiting = cluster.decided(wish, ACTIVATE)
    second = replace(ACTIVATE, image="x.io/cfg:v2.0.0")
    running = cluster.decided(wish, second)

    assert waiting["providers/net.yaml"]["spec"] == {"package": "x.io/net:v1.0.0"}
    assert running["providers/net.yaml"]["spec"] == {"package": "x.io/net:v2.0.0"}


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


def test_shared_bundle_whose_giver_leaves_stays_as_it_is_and_the_others_are_told() -> None:
    cluster = Cluster()
    cluster.decided(installation("a", "a") + installation("c", "c") + REDIS + GIVES + TAKES)

    found = cluster.decided(installation("c", "c") + REDIS + GIVES + TAKES)

    (problem,) = cluster.problems
    assert found == {}
    assert problem.message == "r.io/redis 6.0.0 needs the parameter req, which no manifest gives it"
    assert (
        problem.hint == "Give it as the parameter redis#req; or bind redis to an installation that is there."
    )


@pytest.mark.parametrize(
    "wired", ["${bundle.dependencies.aks.outputs.kubeconfig}", "${bundle.credentials.kubeconfig}"]
)
@pytest.mark.parametrize("optional", [False, True])
def test_credential_that_an_author_wires_reaches_no_installation_of_its_own(
    wired: str, optional: bool
) -> None:
    cluster = Cluster()
    required = "" if optional is False else ", required: false"
    aks = bundle("aks", "1.0.0", more="outputs: [{name: kubeconfig}]")
    ing = bundle("ing", "1.0.0", more=f"credentials: [{{name: kubeconfig{required}}}]")
    given = f"credentials: {{kubeconfig: '{wired}'}}"
    needs_both = (
        f"{{requires: [{{name: aks, reference: r.io/aks}}, {{name: ing, reference: r.io/ing, {given}}}]}}"
    )
    app = bundle("a", "1.0.0", needs_both, more="credentials: [{name: kubeconfig}]")

    cluster.decided(installation("a", "a") + aks + ing + app)
    told = {problem.reason for problem in (*cluster.problems, *cluster.warnings)}
    cluster.decided(installation("a", "a", more="credentialSets: [azure]") + aks + ing + app)

    assert told == {Reason.UNBOUND_INPUT}
    assert (cluster.problems, cluster.warnings) == ((), ())


def test_credentials_that_are_missing_are_given_by_a_set() -> None:
    cluster = Cluster()
    needs_it = bundle("mysql", "1.0.0", more="credentials: [{name: kubeconfig}]")
    app = bundle("a", "1.0.0", "{requires: [{name: mysql, reference: r.io/mysql}]}")

    cluster.decided(installation("a", "a") + needs_it + app)
    (problem,) = cluster.problems
    cluster.decided(installation("a", "a", more="credentialSets: [azure]") + needs_it + app)

    assert "`credentialSets: [NAME]`" in problem.hint
    assert cluster.problems == ()


def needs_redis(*names: str) -> str:
    """Return bundles of these repositories, each of which needs redis without a reference."""
    parts = [
        bundle("a", "1.0.0", "{requires: [{name: redis}]}").replace("r.io/a", f"{name}/a") for name in names
    ]
    return "".join(parts)


def test_bundle_without_a_reference_is_the_one_of_its_parents_registry() -> None:
    cluster = Cluster()
    redis = bundle("redis", "6.0.0")
    both = redis.replace("r.io/", "h.io/") + redis.replace("r.io/", "z.io/")
    wish = installation("a", "a").replace("r.io/", "z.io/")

    cluster.decided(wish + needs_redis("z.io", "h.io") + both)
    before = cluster.pins()
    cluster.decided(wish + needs_redis("z.io", "h.io") + both + redis.replace("r.io/", "a.io/"))

    assert before == cluster.pins()
    assert before == {"bundle:z.io/a@install/prod/a": "1.0.0", "bundle:z.io/redis@shared": "6.0.0"}


def test_bundle_without_a_reference_that_its_registry_lacks_is_refused_with_the_choices() -> None:
    cluster = Cluster()
    redis = bundle("redis", "6.0.0")
    both = redis.replace("r.io/", "h.io/") + redis.replace("r.io/", "z.io/")
    wish = installation("a", "a").replace("r.io/", "k.io/") + needs_redis("k.io") + both
    own = (
        installation("mine", "redis")
        .replace("r.io/", "h.io/")
        .replace("1.0.0", "6.0.0", 2)
        .replace("6.0.0.2", "1.0.2")
    )
    bound = wish.replace(
        "version: 1.0.0}", "version: 1.0.0}\ncustom: {reconciler.dev/dependencies: {redis: prod/mine}}", 1
    )

    cluster.decided(wish)
    (alone,) = cluster.problems
    cluster.decided(wish + own)
    (beside,) = cluster.problems
    cluster.decided(bound + own)

    assert (
        "no version of k.io/redis is published; h.io/redis and z.io/redis are called so, too" in alone.message
    )
    assert alone.hint == beside.hint
    assert alone.hint.startswith("Add k.io/redis to the index, with `reconciler index sync` or")
    assert cluster.problems == ()


def test_short_name_that_two_bundles_have_means_none_of_them() -> None:
    cluster = Cluster()
    one = bundle("cache", "1.0.0").replace("r.io/cache", "h.io/redis")
    two = bundle("cache", "1.0.0").replace("r.io/cache", "z.io/redis")
    wish = installation("a", "cache").replace("r.io/", "")

    cluster.decided(wish + one)
    (alone,) = cluster.pins()
    fresh = Cluster()
    fresh.decided(wish + one + two)
    (problem,) = fresh.problems

    assert alone == "bundle:h.io/redis@install/prod/a"
    assert "no version of cache is published; h.io/redis and z.io/redis are called so, too" in problem.message


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


def test_binding_to_any_bundle_that_has_what_is_used_counts() -> None:
    cluster = Cluster()

    cluster.decided(bound("sqlserver", "mine") + installation("mine", "server") + APP + SQL + SERVER)

    assert cluster.problems == ()
    assert set(cluster.pins()) == {
        "bundle:r.io/app@install/prod/shop",
        "bundle:r.io/server@install/prod/mine",
    }


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
def test_of_two_installs_of_a_package_that_may_be_there_once_the_one_that_runs_counts(
    before: str, counts: str
) -> None:
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
