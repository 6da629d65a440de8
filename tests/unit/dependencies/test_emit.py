"""What is generated for a cluster: the manifests that the controllers of three ecosystems apply."""

from typing import Any

import msgspec
import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.lock.format import ClusterLock, LockScope, PackageLock, lock_solution, next_lock
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import DesiredState, LockedRevision
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.inventory.inventory import Source
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import GeneratedManifests, generate_manifests, installed_version
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
from tests.support.install_schemas import faults
from tests.support.text import assert_lines
from tests.support.values import replace

OWNER = "main/default/dependencies@dev"
ACCOUNT = "serviceAccountName: installer"
WEB = package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
SHOP = install("shop", "web.io", "", ACCOUNT) + WEB
PLATFORM = provider("platform", "v1.0.0", "Configuration") + crossplane(
    "platform", "v1.0.0", "[{provider: x.io/acme/net, version: '>=v1.0.0'}]"
)
NET = crossplane("acme/net", "v1.5.0").replace("kind: Configuration", "kind: Provider")


def locked_of(world: ClusterInputs) -> ClusterLock:
    resolution = lock_solution(world, resolve_cluster(world))
    return ClusterLock(next_lock("dev", input_digest="", resolution=resolution), resolution)


def emitted(text: str, **choices: Any) -> GeneratedManifests:
    world = world_of(text)
    return generate_manifests(world, locked_of(world), owner=OWNER, **choices)


def documents(found: GeneratedManifests) -> dict[str, Any]:
    return {path: load_documents(data)[0].value for path, data in found.files.items()}


def body(found: GeneratedManifests, path: str) -> str:
    return found.files[path].decode().split("\n", 1)[1]


def test_a_carvel_dependency_is_installed_under_its_name_at_exactly_its_version() -> None:
    found = emitted(SHOP + package("db.io", "1.4.0"))

    assert list(found.files) == ["packageinstalls/prod/db.io.yaml"]
    assert_lines(
        body(found, "packageinstalls/prod/db.io.yaml"),
        """
        apiVersion: packaging.carvel.dev/v1alpha1
        kind: PackageInstall
        metadata:
          name: db.io
          namespace: prod
          annotations:
            kapp-controller.carvel.dev/owner: PackageInstall/shop
            reconciler.dev/needed-by: PackageInstall prod/shop
            reconciler.dev/owner: main/default/dependencies@dev
        spec:
          serviceAccountName: installer
          packageRef:
            refName: db.io
            versionSelection:
              constraints: 1.4.0
        """,
    )


def test_an_upgrade_renames_nothing() -> None:
    before, after = (emitted(SHOP + package("db.io", version)) for version in ("1.4.0", "2.0.0"))

    assert before.files.keys() == after.files.keys()
    assert before.files != after.files


def test_values_go_to_the_dependency_that_their_alias_names_before_its_name() -> None:
    values = (
        "dependencies: {values: [{refName: db.io, secretRef: {name: by-name, key: v.yaml}}, "
        "{alias: store, secretRef: {name: by-alias, key: v.yaml}}]}"
    )
    web = package("web.io", "1.0.0", needs("db.io", more=", alias: store"), needs("log.io"))
    found = documents(
        emitted(
            install("shop", "web.io", "", ACCOUNT, values)
            + web
            + package("db.io", "1.0.0")
            + package("log.io", "1.0.0")
        )
    )

    secrets = [value["secretRef"] for value in found["packageinstalls/prod/db.io.yaml"]["spec"]["values"]]
    assert secrets == [{"name": "by-alias", "key": "v.yaml"}]
    assert "values" not in found["packageinstalls/prod/log.io.yaml"]["spec"]


def test_values_go_to_the_alternative_that_has_their_alias() -> None:
    small, big = "{alias: small, secretRef: {name: few}}", "{alias: big, secretRef: {name: many}}"
    values = f"dependencies: {{values: [{small}, {big}]}}"
    either = (
        "{or: [" + needs("gone.io", more=", alias: big") + ", " + needs("db.io", more=", alias: small") + "]}"
    )
    world = world_of(
        install("shop", "web.io", "", ACCOUNT, values)
        + package("web.io", "1.0.0", either)
        + package("db.io", "1.0.0")
    )

    found = documents(generate_manifests(world, locked_of(world), owner=OWNER))
    secrets = found["packageinstalls/prod/db.io.yaml"]["spec"]["values"]
    assert secrets == [{"secretRef": {"name": "few"}}]
    assert resolve_cluster(world).warnings == ()


def test_without_an_account_to_install_with_nothing_is_generated() -> None:
    found = emitted(SHOP.replace(ACCOUNT, "paused: false") + package("db.io", "1.4.0"))

    assert (found.files, found.retained) == ({}, {"packageinstalls/prod/db.io.yaml"})
    (problem,) = found.problems
    assert problem.message == "No package that requires it names a service account that could install it"
    assert problem.hint.startswith("Write `serviceAccountName` into the manifest that needs it")


def test_a_dependency_of_a_dependency_belongs_to_its_direct_parent() -> None:
    found = documents(
        emitted(SHOP + package("db.io", "1.0.0", needs("disk.io")) + package("disk.io", "1.0.0"))
    )

    notes = found["packageinstalls/prod/disk.io.yaml"]["metadata"]["annotations"]
    assert notes["kapp-controller.carvel.dev/owner"] == "PackageInstall/db.io"
    assert found["packageinstalls/prod/disk.io.yaml"]["spec"]["serviceAccountName"] == "installer"


def test_of_two_parents_who_disagree_the_lowest_counts_and_the_other_hears_of_it() -> None:
    found = emitted(
        install("b", "two.io", "", "serviceAccountName: second")
        + install("a", "one.io", "", "serviceAccountName: first")
        + package("one.io", "1.0.0", needs("db.io"))
        + package("two.io", "1.0.0", needs("db.io"))
        + package("db.io", "1.0.0")
    )

    assert "serviceAccountName: first" in body(found, "packageinstalls/prod/db.io.yaml")
    (warning,) = found.warnings
    assert warning.reason is Reason.INHERITED_DIFFERENTLY
    assert (
        "a different serviceAccountName from each parent: that of PackageInstall prod/a counts"
        in warning.message
    )


def test_a_provider_is_called_by_its_path_and_takes_over_what_its_parent_says() -> None:
    wish = PLATFORM.replace(
        "spec: {package: 'x.io/platform:v1.0.0'}",
        "spec: {package: 'x.io/platform:v1.0.0', packagePullPolicy: Always, "
        "packagePullSecrets: [{name: pull}], revisionActivationPolicy: Manual, "
        "runtimeConfigRef: {name: slim}, serviceAccount: {annotations: {a: b}}}",
    )
    found = emitted(wish + NET)

    assert_lines(
        body(found, "providers/acme-net.yaml"),
        """
        apiVersion: pkg.crossplane.io/v1
        kind: Provider
        metadata:
          name: acme-net
          annotations:
            reconciler.dev/needed-by: Configuration platform
            reconciler.dev/owner: main/default/dependencies@dev
        spec:
          package: x.io/acme/net:v1.5.0
          packagePullSecrets:
          - name: pull
          packagePullPolicy: Always
          serviceAccount:
            annotations:
              a: b
        """,
    )


def test_a_user_who_declares_a_generated_package_takes_it_over() -> None:
    wish = SHOP + package("db.io", "1.4.0")

    assert emitted(wish).files
    assert emitted(wish + install("db.io", "db.io", "")).files == {}


APP = installation("app", "app") + bundle(
    "app", "1.0.0", "{requires: [{name: mysql, bundle: {reference: r.io/acme/mysql}}]}"
)
MYSQL = bundle("mysql", "1.2.3").replace("r.io/mysql", "r.io/acme/mysql")


def test_a_bundle_gets_what_its_parent_says_for_it_and_the_credentials_that_are_there() -> None:
    given = "parameters: {'mysql#size': 3, 'other#size': 4, own: 5}\ncredentialSets: [cloud]\n"

    (found,) = documents(
        emitted(APP.replace("---\nschemaType: Bundle", f"{given}---\nschemaType: Bundle") + MYSQL)
    ).values()

    assert found["parameters"] == {"size": "3"}
    assert found["credentialSets"] == ["cloud"]
    assert faults(found) == []


@pytest.mark.parametrize(
    ("labels", "scope", "path", "emitted_labels"),
    [
        (
            "owner: '{{ installation.name }}', tier: cache",
            "'{{ installation.namespace }}'",
            "prod/app-mysql",
            {"owner": "app", "tier": "cache"},
        ),
        (
            "space: 'in-{{ installation.namespace }}'",
            "'{{ installation.namespace }}'",
            "prod/mysql-48fb7a",
            {"space": "in-prod"},
        ),
    ],
    ids=["exclusive", "shared"],
)
def test_a_bundle_gets_the_labels_that_its_parent_selects_it_by(
    labels: str, scope: str, path: str, emitted_labels: dict[str, str]
) -> None:
    required = f"{{name: mysql, reference: r.io/acme/mysql, namespace: {scope}, labels: {{{labels}}}}}"
    app = installation("app", "app") + bundle("app", "1.0.0", f"{{requires: [{required}]}}")

    found = emitted(app + MYSQL)

    (document,) = documents(found).values()
    assert document["labels"] == {**emitted_labels, "sh.porter.parentInstallation": "prod/app"}
    assert list(found.files) == [f"installations/{path}.yaml"]
    mine = installation("mine", "acme/mysql", more=f"labels: {emitted_labels}")
    assert emitted(app + MYSQL + mine.replace("1.0.0}", "1.2.3}")).files == {}


def test_labels_that_select_a_bundle_are_stamped_on_it() -> None:
    old = installation("app", "app") + bundle(
        "app", "1.0.0", "{requires: [{name: mysql, reference: r.io/acme/mysql, labels: {tier: gold}}]}"
    )

    (path, found) = next(iter(documents(emitted(old + MYSQL)).items()))

    assert found["labels"]["tier"] == "gold"
    assert path.startswith("installations/mysql-")
    assert "namespace" not in found


DIGEST = f"sha256:{'ab' * 32}"
GIVEN = "parameters: {'mysql#size': 3, 'mysql#ha': true, 'mysql#zones': [a, b]}\ncredentialSets: [cloud]\n"
VALUES = "dependencies: {values: [{refName: db.io, secretRef: {name: db-values}}]}"
EVERYTHING = (
    install("shop", "web.io", "", ACCOUNT, VALUES)
    + WEB
    + package("db.io", "1.4.0", needs("disk.io"))
    + package("disk.io", "2.0.0")
    + PLATFORM
    + NET
    + APP.replace("---\nschemaType: Bundle", f"{GIVEN}---\nschemaType: Bundle")
    + MYSQL
)


def with_digests(world: ClusterInputs) -> ClusterInputs:
    """Return a world whose published versions have digests."""
    candidates = [c for own in world.catalogue.packages.values() for c in own]
    return replace(world, catalogue=build_catalogue([replace(c, digest=DIGEST) for c in candidates]))


@pytest.mark.parametrize("with_digest", [False, True])
def test_everything_is_as_the_controllers_take_it(with_digest: bool) -> None:
    world = with_digests(world_of(EVERYTHING)) if with_digest else world_of(EVERYTHING)
    found = documents(generate_manifests(world, locked_of(world), owner=OWNER))

    assert len(found) == 4
    assert [wrong for document in found.values() for wrong in faults(document)] == []
    versions = {installed_version(document) for document in found.values()}
    assert versions == {"1.4.0", "2.0.0", "1.2.3", "v1.5.0"}


@pytest.mark.parametrize("with_digest", [False, True])
def test_what_was_generated_is_accepted_unchanged_as_input_and_changes_nothing(with_digest: bool) -> None:
    world = with_digests(world_of(EVERYTHING)) if with_digest else world_of(EVERYTHING)
    found = generate_manifests(world, locked_of(world), owner=OWNER)
    installs = []
    for path, document in documents(found).items():
        reading = read_manifest(document, Source(Location(path)))
        assert reading is not None
        assert (reading.problems, reading.warnings) == ((), ())
        installs += reading.installs

    asked = replace(world, installs=(*world.installs, *installs))
    pinned = {
        (one.instance.package, one.candidate.version) for one in resolve_cluster(asked).resolved.values()
    }

    assert pinned == {
        (o.instance.package, o.candidate.version) for o in resolve_cluster(world).resolved.values()
    }
    assert generate_manifests(asked, locked_of(asked), owner=OWNER).files == {}


def test_package_with_only_a_header_is_named_without_its_kind() -> None:
    world = world_of(PLATFORM + NET)
    packages = {
        id_: tuple(replace(c, kind="") if c.id.name.endswith("net") else c for c in versions)
        for id_, versions in world.catalogue.packages.items()
    }
    world = replace(world, catalogue=replace(world.catalogue, packages=packages))
    (problem,) = generate_manifests(world, locked_of(world), owner=OWNER).problems

    assert problem.subject == "package acme-net"
    assert problem.hint.startswith("Add its crossplane.yaml to the folder of its version in the index")


def revision(version: str, number: int, *, active: bool, current: bool) -> LockedRevision:
    state = DesiredState.ACTIVE if active else DesiredState.INACTIVE
    return LockedRevision(
        package="Provider/acme-net",
        name=f"acme-net-{number}",
        revision=number,
        desired_state=state,
        image=f"x.io/acme/net:{version}",
        current=current,
    )


@pytest.mark.parametrize("policy", ["Automatic", "Manual"])
@pytest.mark.parametrize(
    ("active_before", "image"),
    [(True, "x.io/acme/net:v1.4.0"), (False, None)],
    ids=["the active one stays", "nothing may run yet"],
)
def test_a_revision_that_waits_for_another_package_is_not_asked_for(
    policy: str, active_before: bool, image: str | None
) -> None:
    world = world_of(
        PLATFORM.replace("platform:v1.0.0'", f"platform:v1.0.0', revisionActivationPolicy: {policy}") + NET
    )
    locked = locked_of(world)
    old = revision("v1.4.0", 1, active=active_before, current=False)
    lock = msgspec.structs.replace(
        locked.lock, revisions=(old, revision("v1.5.0", 2, active=False, current=True))
    )

    found = documents(generate_manifests(world, replace(locked, lock=lock), owner=OWNER))

    assert [document["spec"]["package"] for document in found.values()] == ([image] if image else [])


def test_an_empty_lock_generates_nothing() -> None:
    world = world_of(SHOP)
    nothing = ClusterLock(
        PackageLock(scope=LockScope(cluster="dev"), input_digest="", resolution=""),
        msgspec.structs.replace(locked_of(world).resolution, packages=()),
    )

    assert generate_manifests(world, nothing, owner=OWNER) == GeneratedManifests()
