"""Hints: what an explanation suggests, and that following it to the letter solves the conflict."""

import json
from typing import Any, NamedTuple

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.convert import FleetLocks, read_locks
from reconciler.dependencies.model.cluster import InstallSlot, Instance, Pin, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    PackageId,
    PackageNeed,
    version_range,
)
from reconciler.dependencies.solve.hints import name_cluster, widened
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.update.fleet import update_locks
from reconciler.dependencies.versions.version import parse_loose
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    package,
    provider,
    world_of,
)
from tests.support.hints import follow
from tests.support.values import replace

AWS = PackageId(Ecosystem.XPKG, "x.io/aws")
FILE = "config/cluster.yaml"


def cluster(**fields: Any) -> str:
    return f"---\n{json.dumps({'kind': 'Cluster', **fields})}\n"


def pinned(version: str) -> Pin:
    return Pin(Instance(AWS, InstallSlot(SlotKind.CLUSTER)), Candidate(AWS, parse_loose(version)))


def for_kubernetes(constraints: str) -> str:
    return f"kubernetesVersionSelection: {{constraints: '{constraints}'}}"


def upbound(need: str = ">=v1.0.0", *versions: str) -> str:
    """Return a Configuration that needs the provider `aws` in a range, and versions of that."""
    text = provider("a", "v1.0.0", "Configuration")
    text += crossplane("a", "v1.0.0", f"[{{provider: x.io/aws, version: '{need}'}}]")
    return text + "".join(crossplane("aws", version) for version in versions)


IGNORED = "packaging.carvel.dev/ignore-kubernetes-version-selection"
OWNED = (("Thing.g.io", AWS),)
THEIRS = [
    {"name": "theirs", "package": "xpkg:x.io/aws", "version": "v0.9.0"},
    {"name": "other", "package": "xpkg:x.io/log", "version": "v0.9.0"},
]


class Case(NamedTuple):
    reason: str
    text: str
    code: str
    fact: str
    hints: tuple[str, ...]
    fields: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it


CASES = [
    Case(
        "the cluster is too old",
        install("web", "web.io", "")
        + package("web.io", "1.0.0", for_kubernetes(">=1.25.0"))
        + cluster(platforms={"kubernetes": "1.20.0"}),
        "E-PLATFORM",
        f"web.io 1.0.0 needs kubernetes >=1.25.0, and this cluster has kubernetes 1.20.0 ({FILE}:8)",
        (),
    ),
    Case(
        "the package is installed by somebody else",
        upbound(">=v1.0.0", "v1.0.0") + cluster(installations=THEIRS),
        "E-FOREIGN",
        "x.io/aws is there already, as theirs, and is not ours",
        (),
    ),
    Case(
        "the policy of versions keeps the major version",
        upbound(">=v2.0.0", "v1.0.0", "v2.0.0") + cluster(choices={"policies": {"xpkg": "max-minor"}}),
        "E-VERSION",
        "The version policy of x.io/aws is max-minor",
        (),
        {"pins": (pinned("v1.0.0"),)},
    ),
    Case(
        "the lock has a higher version",
        upbound("=v1.0.0", "v1.0.0", "v2.0.0"),
        "E-VERSION",
        "x.io/aws is locked at v2.0.0 and may not go below that",
        ("Write `allowDowngrade: true` below `dependencies` in reconciler.yaml",),
        {"pins": (pinned("v2.0.0"),)},
    ),
    Case(
        "another package has the kind",
        provider("a", "v1.0.0") + crossplane("a", "v1.0.0", kinds="g.io/v1/Thing"),
        "E-OWN-CRD",
        f"x.io/a brings Thing.g.io of x.io/aws, which is removed and had it ({FILE}:7)",
        (f"Write `reconciler.dev/take-over: x.io/aws` into the annotations of Provider a ({FILE}:2)",),
        {"held": OWNED},
    ),
    Case(
        "another package that a manifest installs has the kind, and has let go of it",
        provider("a", "v1.0.0")
        + provider("aws", "v1.0.0")
        + crossplane("a", "v1.0.0", kinds="g.io/v1/Thing")
        + crossplane("aws", "v1.0.0"),
        "E-OWN-CRD",
        f"x.io/a brings Thing.g.io of x.io/aws, which keeps it ({FILE}:12)",
        (f"Write `reconciler.dev/take-over: x.io/aws` into the annotations of Provider a ({FILE}:2)",),
        {"held": OWNED},
    ),
    Case(
        "another package that a manifest installs has the kind, and brings it still",
        provider("a", "v1.0.0")
        + provider("aws", "v1.0.0")
        + crossplane("a", "v1.0.0", kinds="g.io/v1/Thing")
        + crossplane("aws", "v1.0.0", kinds="g.io/v1/Thing"),
        "E-OWN-CRD",
        f"x.io/a brings Thing.g.io of x.io/aws, which keeps it ({FILE}:12)",
        (
            (
                "Write `reconciler.dev/take-over: x.io/aws` into the annotations of "
                f"Provider a ({FILE}:2), and remove Provider aws ({FILE}:7)"
            ),
        ),
        {"held": OWNED},
    ),
    Case(
        "everything that a package needs is missing",
        provider("a", "v1.0.0", "Configuration")
        + crossplane("a", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}, {function: x.io/auto}]"),
        "E-NOCANDIDATE",
        f"x.io/a v1.0.0 requires x.io/aws >=v1.0.0 ({FILE}:10:20); no version of x.io/aws is published",
        (
            (
                "Add all that is missing to the index, with `reconciler index sync` or each with "
                "`reconciler index add NAME VERSION --manifest crossplane.yaml`: "
                "x.io/aws >=v1.0.0 and x.io/auto"
            ),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.reason for case in CASES])
def test_hints_are_what_a_person_can_do_and_lead_on(case: Case) -> None:
    (explanation,) = resolve_cluster(world_of(case.text, **case.fields)).explanations

    assert explanation.code == case.code
    assert explanation.sentences[-1] == case.fact
    assert explanation.hints == case.hints
    for hint in case.hints:
        followed, _, rest = hint.partition(", and remove ")
        text = follow(case.text, followed)
        if rest:
            text = "---".join(part for part in text.split("---") if "package: x.io/aws:" not in part)
        assert resolve_cluster(world_of(text, **case.fields)).explanations == ()


def test_package_that_looks_alike_is_never_named() -> None:
    text = upbound(">=v1.0.0") + crossplane("azure", "v1.0.0") + crossplane("aws-net", "v1.0.0")
    (explanation,) = resolve_cluster(world_of(text)).explanations

    ways = "`reconciler index sync` or `reconciler index add x.io/aws VERSION --manifest crossplane.yaml`"
    assert explanation.hints == (f"Add x.io/aws to the index, with {ways}, in a version that is >=v1.0.0",)
    assert explanation.adds == ("x.io/aws",)


def test_binding_is_only_replaced_by_an_installation_of_the_package_that_is_needed() -> None:
    text = installation("a", "a", more="custom: {reconciler.dev/dependencies: {db: prod/redis-prod}}")
    text += bundle("a", "1.0.0", "{requires: [{name: db, bundle: {reference: r.io/db, version: 1.x}}]}")
    text += installation("postgres-prod", "b") + bundle("b", "1.0.0") + bundle("db", "1.0.0")

    def hints(world: str) -> tuple[str, ...]:
        return resolve_cluster(world_of(world)).explanations[0].hints

    assert hints(text) == ()
    (hint,) = hints(text + installation("store", "db"))
    assert (
        hint == f"Write `db: prod/store` instead of `db: prod/redis-prod` in Installation prod/a ({FILE}:2)"
    )


def test_way_back_of_a_tree_of_packages_is_one_setting_and_names_what_is_kept() -> None:
    """Source: Crossplane's end-to-end test `dependency-upgrade`, transitive, from v0.0.3 back to v0.0.2."""
    index = "".join(
        crossplane("one", f"v{n}.0.0", f"[{{provider: x.io/aws, version: '=v{n}.0.0'}}]")
        + crossplane("two", f"v{n}.0.0", f"[{{configuration: x.io/one, version: '=v{n}.0.0'}}]")
        + crossplane("aws", f"v{n}.0.0")
        for n in (2, 3)
    )

    def world(version: int) -> FleetInputs:
        both = (provider(name, f"v{version}.0.0", "Configuration") for name in ("one", "two"))
        return FleetInputs((replace(world_of("".join(both) + index), cluster="edge"),))

    newer = update_locks(world(3), FleetLocks())
    first, second = update_locks(world(2), read_locks(newer.files)).scopes[0].explanations

    assert first.hints == second.hints
    assert first.hints == ("Write `allowDowngrade: true` below `dependencies` in reconciler.yaml",)
    assert second.sentences[-1] == f"Configuration one keeps x.io/one v3.0.0 ({FILE}:5:17)"


@pytest.mark.parametrize(
    ("dialect", "old", "version", "new"),
    [
        (Dialect.CARVEL, ">=1.0.0 <2.0.0", "2.5.0", ">=1.0.0 <=2.5.0"),
        (Dialect.CARVEL, ">=1.0.0 <2.0.0", "0.5.0", ">=0.5.0 <2.0.0"),
        (Dialect.CARVEL, "<2.0.0 >=1.0.0", "2.5.0", ">=1.0.0 <=2.5.0"),
        (Dialect.CARVEL, "<2.0.0", "2.5.0", "<=2.5.0"),
        (Dialect.CARVEL, ">=2.0.0", "1.5.0", ">=1.5.0"),
        (Dialect.CARVEL, "1.0.0", "2.5.0", "2.5.0"),
        (Dialect.CROSSPLANE, ">=v1.0.0,<v2.0.0", "0.5.0", ">=0.5.0, <v2.0.0"),
    ],
)
def test_range_is_widened_by_the_bound_that_a_version_breaks(
    dialect: Dialect, old: str, version: str, new: str
) -> None:
    need = PackageNeed(AWS, version_range(dialect, old))

    assert widened(need, Candidate(AWS, parse_loose(version))) == version_range(dialect, new)


def test_platform_of_a_cluster_forbids_nothing_if_it_is_ignored_unknown_or_new_enough() -> None:
    text = install("web", "web.io", "") + package("web.io", "1.0.0", for_kubernetes(">=1.25.0"))
    ignored = text.replace("namespace: prod}", f"namespace: prod, annotations: {{{IGNORED}: ''}}}}")

    def fits(world: str, **platforms: str) -> bool:
        return not resolve_cluster(world_of(world + cluster(platforms=platforms))).explanations

    assert fits(text, kubernetes="1.25.0")
    assert fits(text)
    assert fits(ignored, kubernetes="1.20.0")
    assert not fits(text, kubernetes="1.24.9")


def test_hint_that_equal_clusters_share_names_the_cluster_that_it_is_for() -> None:
    text = install("web", "web.io", "") + package(
        "web.io", "1.0.0", "{gvk: {apiVersion: g.io/v1, kind: Thing}}"
    )

    (explanation,) = resolve_cluster(world_of(text)).explanations

    assert name_cluster(explanation.hints[0], "edge") == (
        "Import the snapshot of cluster edge, if it serves this API: "
        "`reconciler snapshot import --cluster edge --api-resources FILE`"
    )
    assert name_cluster("Upgrade the CLUSTER", "edge") == "Upgrade the CLUSTER"
