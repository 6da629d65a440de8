"""What an explanation suggests for each rule that forbids a version, as its reader sees it."""

import json
from typing import Any, NamedTuple

import pytest

from reconciler.dependencies.model.cluster import InstallSlot, Instance, Pin, SlotKind
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.dependencies.solve.repairs import name_cluster
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_loose
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, world_of
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
        (
            "Upgrade kubernetes of this cluster from 1.20.0 to >=1.25.0",
            (
                f'Write `{IGNORED}: ""` into the annotations of PackageInstall prod/web ({FILE}:2), '
                "if it works there all the same"
            ),
        ),
    ),
    Case(
        "the cluster is too new for a dependency",
        install("web", "web.io", "")
        + package("web.io", "1.0.0", needs("db.io"))
        + package("db.io", "1.0.0", for_kubernetes("<1.25.0"))
        + cluster(platforms={"kubernetes": "1.30.0"}),
        "E-PLATFORM",
        f"db.io 1.0.0 needs kubernetes <1.25.0, and this cluster has kubernetes 1.30.0 ({FILE}:17)",
        ("Install db.io in a cluster with kubernetes <1.25.0, not 1.30.0",),
    ),
    Case(
        "Crossplane is too old",
        provider("a", "v1.0.0")
        + crossplane("a", "v1.0.0", "[{crossplane: '>=v2.0.0'}]")
        + cluster(platforms={"crossplane": "1.20.0"}),
        "E-PLATFORM",
        f"x.io/a v1.0.0 needs crossplane >=v2.0.0, and this cluster has crossplane 1.20.0 ({FILE}:7)",
        (
            "Upgrade crossplane of this cluster from 1.20.0 to >=v2.0.0",
            (
                f"Write `ignoreCrossplaneConstraints: true` into the spec of Provider a ({FILE}:2), "
                "if it works there all the same"
            ),
        ),
    ),
    Case(
        "the package is installed by somebody else",
        upbound(">=v1.0.0", "v1.0.0") + cluster(installations=THEIRS),
        "E-FOREIGN",
        "x.io/aws is there already, as theirs, and is not ours",
        ("Declare theirs of x.io/aws in a manifest, so that it is adopted",),
    ),
    Case(
        "the policy of versions keeps the major version",
        upbound(">=v2.0.0", "v1.0.0", "v2.0.0") + cluster(choices={"policies": {"xpkg": "max-minor"}}),
        "E-VERSION",
        "The version policy of x.io/aws is max-minor",
        (
            "Write `crossplane: highest` below `dependencies.select` in reconciler.yaml",
            (
                f"Write `>=v1.0.0` instead of `>=v2.0.0` at {FILE}:10:50, "
                "so that x.io/a v1.0.0 accepts x.io/aws v1.0.0"
            ),
        ),
        {"pins": (pinned("v1.0.0"),)},
    ),
    Case(
        "the lock has a higher version",
        upbound("=v1.0.0", "v1.0.0", "v2.0.0"),
        "E-VERSION",
        "x.io/aws is locked at v2.0.0 and may not go below that",
        (
            "Write `allowDowngrade: true` below `dependencies` in reconciler.yaml",
            "Run `reconciler lock --upgrade x.io/aws`",
            (
                f"Write `v2.0.0` instead of `v1.0.0` at {FILE}:10:50, "
                "so that x.io/a v1.0.0 accepts x.io/aws v2.0.0"
            ),
        ),
        {"pins": (pinned("v2.0.0"),)},
    ),
    Case(
        "another package has the kind",
        provider("a", "v1.0.0") + crossplane("a", "v1.0.0", kinds="g.io/v1/Thing"),
        "E-OWN-CRD",
        f"x.io/a brings Thing.g.io of x.io/aws, which keeps it ({FILE}:7)",
        (f"Write `reconciler.dev/take-over: x.io/aws` into the annotations of Provider a ({FILE}:2)",),
        {"held": OWNED},
    ),
    Case(
        "another package that a manifest installs has the kind",
        provider("a", "v1.0.0")
        + provider("aws", "v1.0.0")
        + crossplane("a", "v1.0.0", kinds="g.io/v1/Thing")
        + crossplane("aws", "v1.0.0"),
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
]


@pytest.mark.parametrize("case", CASES, ids=[case.reason for case in CASES])
def test_suggestions_for_a_forbidden_version(case: Case) -> None:
    (explanation,) = resolve_cluster(world_of(case.text, **case.fields)).explanations

    assert explanation.code == case.code
    assert explanation.sentences[-1] == case.fact
    assert explanation.hints == case.hints


def test_platform_of_a_cluster_forbids_nothing_if_it_is_ignored_unknown_or_new_enough() -> None:
    text = install("web", "web.io", "") + package("web.io", "1.0.0", for_kubernetes(">=1.25.0"))
    ignored = text.replace("namespace: prod}", f"namespace: prod, annotations: {{{IGNORED}: ''}}}}")

    def fits(world: str, **platforms: str) -> bool:
        return not resolve_cluster(world_of(world + cluster(platforms=platforms))).explanations

    assert fits(text, kubernetes="1.25.0")
    assert fits(text)
    assert fits(ignored, kubernetes="1.20.0")
    assert not fits(text, kubernetes="1.24.9")


def test_each_of_several_conflicts_is_a_problem_with_its_own_suggestion() -> None:
    text = "".join(install(name, f"{name}.io", ">=2.0.0") for name in ("one", "two"))
    text += package("one.io", "1.0.0") + package("two.io", "1.0.0")

    solution = resolve_cluster(world_of(text))

    assert [e.hints for e in solution.explanations] == [
        (
            (
                f"Write `1.0.0` instead of `>=2.0.0` at {FILE}:{line}, "
                f"so that PackageInstall prod/{name} takes {name}.io 1.0.0"
            ),
        )
        for name, line in (("one", "6:65"), ("two", "12:65"))
    ]
    assert [str(problem.location) for problem in solution.problems] == [f"{FILE}:2", f"{FILE}:8"]
    assert [problem.hint for problem in solution.problems] == [e.hints[0] for e in solution.explanations]


def test_what_another_package_has_may_be_taken_over_by_consent() -> None:
    text = CASES[-2].text.replace(
        "{name: a}", "{name: a, annotations: {reconciler.dev/take-over: x.io/aws}}", 1
    )

    solution = resolve_cluster(replace(world_of(text), held=OWNED))

    assert solution.explanations == ()
    assert solution.resolved


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
