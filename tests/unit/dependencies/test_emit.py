"""What is generated for a cluster: the manifests that the controllers of three ecosystems apply."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.lock.format import ClusterLock, lock_solution, next_lock
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.inventory.inventory import Source
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import GeneratedManifests, generate_manifests
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


def test_a_dependency_of_a_dependency_belongs_to_its_direct_parent() -> None:
    found = documents(
        emitted(SHOP + package("db.io", "1.0.0", needs("disk.io")) + package("disk.io", "1.0.0"))
    )

    notes = found["packageinstalls/prod/disk.io.yaml"]["metadata"]["annotations"]
    assert notes["kapp-controller.carvel.dev/owner"] == "PackageInstall/db.io"
    assert found["packageinstalls/prod/disk.io.yaml"]["spec"]["serviceAccountName"] == "installer"


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
