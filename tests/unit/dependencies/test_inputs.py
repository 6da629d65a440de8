"""Inputs that must be bound, and bindings that people choose: what somebody gives, and what nobody does."""

import pytest

from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetClusters, FleetInputs
from reconciler.dependencies.lock.format import read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    build_catalogue,
)
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.dependencies.solve.alternatives import CandidateLookup, bundle_name
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_loose
from reconciler.inventory.snapshot import Snapshot
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import generate_manifests
from tests.support.dependency_manifests import bundle, installation, world_of
from tests.support.dependency_worlds import pin
from tests.support.values import replace

DB = bundle("db", "1.0.0", more="parameters: [{name: size, type: integer}]\ncredentials: [{name: key}]")


def press(given: str = "{}") -> str:
    return bundle("press", "1.0.0", "{requires: [{name: db, reference: r.io/db, " + given + "}]}")


URL = "{requires: [{name: db, reference: r.io/db, parameters: {url: URL}}, {name: app, reference: r.io/app}]}"
NEEDS_URL = bundle("db", "1.0.0", more="parameters: [{name: url, type: string}]") + bundle("app", "1.0.0")


@pytest.mark.parametrize(
    ("url", "defaults", "own", "written"),
    [
        ("shop", "", "", "shop"),
        ("3", "", "", "3"),
        ("'{{ installation.namespace }}/{{ installation.name }}'", "", "", "prod/blog"),
        ("'${installation.name}'", "", "", "blog"),
        ("'${bundle.parameters.size}'", "[{name: size, default: 3}]", "", "3"),
        ("'${bundle.parameters.size}'", "[{name: size, default: 3}]", "size: 4", "4"),
        ("'${bundle.parameters.size}'", "[{name: size}]", "size: 4", "4"),
        ("'${bundle.parameters.size}'", "[{name: size}]", "", None),
        ("'${bundle.dependencies.app.outputs.url}'", "", "", None),
        ("'tcp://{{ bundle.dependencies.app.outputs.url }}'", "", "", None),
        ("'${bundle.dependencies.app.outputs.url}'", "", "'db#url': mine", "mine"),
        ("shop", "", "'db#url': mine", "mine"),
        ("[{of: '${installation.name}'}]", "", "", '[{"of":"blog"}]'),
    ],
)
def test_a_parameter_is_given_as_its_author_wrote_it_or_is_missing(url, defaults, own, written) -> None:
    text = installation("blog", "press", more=f"parameters: {{{own}}}")
    text += bundle(
        "press", "1.0.0", URL.replace("URL", url), more=f"parameters: {defaults}" if defaults else ""
    )
    world = replace(world_of(text + NEEDS_URL), cluster="one")

    update = update_locks(FleetInputs((world,)), read_locks({}))

    (scope,) = update.scopes
    assert scope.after is not None
    found = generate_manifests(world, scope.after, owner="main/default/dependencies@one")
    given = [
        load_documents(data)[0].value["parameters"] for path, data in found.files.items() if "db" in path
    ]
    assert given == ([] if written is None else [{"url": written}])
    assert [problem.reason for problem in update.problems] == (
        [Reason.UNBOUND_INPUT] if written is None else []
    )
    assert [warning.reason for warning in found.warnings] == [problem.reason for problem in update.problems]


def test_without_dependencies_data_is_given_by_hand() -> None:
    alone = installation("blog", "press", more="custom: {reconciler.dev/dependencies: false}")
    world = replace(world_of(alone + press("labels: {}") + DB), cluster="one")

    decision = update_locks(FleetInputs((world,)), read_locks({}))

    assert decision.problems == ()
    (scope,) = decision.scopes
    assert scope.after is not None
    assert [one.instance.name for one in scope.after.resolution.packages] == ["r.io/press"]


MYSQL = "{requires: [{name: db, interface: {name: mysql, version: 5.7.x, outputs: [{name: url}]}}]}"


def external(provides: str) -> str:
    custom = f"custom: {{reconciler.dev/external: true, provides: [{provides}]}}"
    return installation("mine", "gone", more=custom)


def test_who_binds_decides_on_the_version_and_is_warned() -> None:
    bound = installation("blog", "press", more="custom: {reconciler.dev/dependencies: {db: mine}}")
    text = bound + bundle("press", "1.0.0", MYSQL)
    mysql = "{{interface: io.cnab.interface.mysql, version: {}, outputs: [{{name: url, type: string}}]}}"

    assert resolve_cluster(world_of(text + external(mysql.format("5.7.9")))).warnings == ()
    other = resolve_cluster(world_of(text + external(mysql.format("8.0.0"))))
    assert other.problems == ()
    assert "db is bound to mine, which is not the interface io.cnab.interface.mysql 5.7.x" in str(
        other.warnings
    )
    one_of_two = external(f"{mysql.format('8.0.0')}, {mysql.format('5.7.9')}")
    assert resolve_cluster(world_of(text + one_of_two)).warnings == ()


def test_what_lacks_an_output_cannot_be_bound() -> None:
    bound = installation("blog", "press", more="custom: {reconciler.dev/dependencies: {db: mine}}")
    text = bound + bundle("press", "1.0.0", MYSQL)
    shapeless = external("{interface: io.cnab.interface.mysql, version: 5.7.9}")

    assert [one.code for one in resolve_cluster(world_of(text + shapeless)).explanations] == ["E-BIND"]
    mysql = "{interface: io.cnab.interface.mysql, version: 5.7.9, outputs: [{name: url}]}"
    beside = external(f"{mysql}, {{interface: io.cnab.interface.log}}")
    assert resolve_cluster(world_of(text + beside)).explanations == ()


@pytest.mark.parametrize(
    ("clusters", "names", "path"),
    [(("dev", "prod"), "", "snapshot/dev"), (("dev",), "", "snapshot"), (("dev", "prod"), "dev", "snapshot")],
)
def test_snapshot_without_a_name_counts_where_no_other_cluster_installs(clusters, names, path) -> None:
    snapshot = Snapshot(present=True, cluster=names, path="snapshot")

    found = FleetClusters({}, snapshot).snapshot_of("dev", clusters)

    is_dropped = path != "snapshot"
    assert (found.present, found.path) == (not is_dropped, path)
    assert found.cluster == ("dev" if is_dropped else names)


CLUSTER_SLOT, NAMESPACE_SLOT = Slot(SlotKind.CLUSTER), Slot(SlotKind.NAMESPACE, "prod")
OTHER_ID = PackageId(Ecosystem.CARVEL, "other.io")
OWN_SLOT = Slot(SlotKind.FOR, "prod", ("shop", "db"))


@pytest.mark.parametrize(
    ("ecosystem", "slot", "namespace", "name", "is_object"),
    [
        (Ecosystem.CARVEL, NAMESPACE_SLOT, "prod", "db.io", True),
        (Ecosystem.CARVEL, NAMESPACE_SLOT, "test", "db.io", False),
        (Ecosystem.CARVEL, NAMESPACE_SLOT, "prod", "mine", False),
        (Ecosystem.CARVEL, CLUSTER_SLOT, "test", "db.io", True),
        (Ecosystem.XPKG, CLUSTER_SLOT, "", "mine", True),
        (Ecosystem.BUNDLE, OWN_SLOT, "prod", "db.io", False),
        (Ecosystem.BUNDLE, OWN_SLOT, "prod", "shop-db", True),
        (Ecosystem.BUNDLE, NAMESPACE_SLOT, "prod", bundle_name("db.io", NAMESPACE_SLOT), True),
    ],
)
def test_generated_object_is_recognised_by_namespace_and_name(
    *, ecosystem: Ecosystem, slot: Slot, namespace: str, name: str, is_object: bool
) -> None:
    instance = Instance(*PackageId(ecosystem, "db.io"), slot)

    pins = (pin(instance, Candidate(instance.package, parse_loose("1.0.0"))),)
    there = [ObservedInstallation(namespace, name, id_) for id_ in (instance.package, OTHER_ID)]
    state = ClusterState(installations=tuple(there))

    lookup = CandidateLookup(ClusterInputs((), build_catalogue([]), pins=pins, presence=state))

    assert lookup.observed == tuple(there[is_object:])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("size", []),
        ("siez", ["r.io/a 1.0.0 has no parameter siez, so what is said about it has no effect"]),
        ("db#user", []),
        ("db#usr", ["r.io/db 1.0.0 has no parameter usr, so what is said about it has no effect"]),
        ("porter-debug", []),
    ],
)
def test_parameter_that_its_bundle_does_not_have_is_noted(given: str, told: list[str]) -> None:
    needs_db = "{requires: [{name: db, bundle: {reference: 'r.io/db:1.0.0'}}]}"
    world = world_of(
        bundle("a", "1.0.0", needs_db, more="parameters: [{name: size, default: 1}]")
        + bundle("db", "1.0.0", more="parameters: [{name: user, default: x}]")
        + installation("a", "a", more=f"parameters: {{'{given}': 1}}")
    )

    assert [note.message for note in resolve_cluster(world).warnings] == told
