"""The next step of an explanation: one for each code, and that a conflict is gone when it is followed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.dialects.porter import BINDINGS
from reconciler.dependencies.lock.format import FleetLocks, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    version_range,
)
from reconciler.dependencies.solve.explain import BOUND, DOWNGRADABLE, NAMED, NEXT_STEPS, OVERRIDDEN
from reconciler.dependencies.solve.problem import ConflictCode
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_loose
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    resolved,
    world_of,
)
from tests.support.dependency_worlds import pin
from tests.support.values import replace

AWS = PackageId(Ecosystem.XPKG, "x.io/aws")
DATABASE, TWO = PackageId(Ecosystem.CARVEL, "db.io"), parse_loose("2.0.0")
DB = PackageId(Ecosystem.BUNDLE, "r.io/db")
FILE = "config/cluster.yaml"
WORLDS = Path(__file__).parents[3] / "fixtures/explanations"


def cluster(**fields: Any) -> str:
    return f"---\n{json.dumps({'kind': 'Cluster', **fields})}\n"


def pinned(version: str) -> Resolved:
    return pin(Instance(*AWS, Slot(SlotKind.CLUSTER)), Candidate(AWS, parse_loose(version)))


def upbound(need: str = ">=v1.0.0", *versions: str) -> str:
    """Return a Configuration that needs the provider `aws` in a range, and versions of that."""
    text = provider("a", "v1.0.0", "Configuration")
    text += crossplane("a", "v1.0.0", f"[{{provider: x.io/aws, version: '{need}'}}]")
    return text + "".join(crossplane("aws", version) for version in versions)


def for_kubernetes(constraints: str) -> str:
    return f"kubernetesVersionSelection: {{constraints: '{constraints}'}}"


def fixture(name: str) -> str:
    return (WORLDS / name / "manifests.yaml").read_text()


def configuration(name: str, *lines: str) -> str:
    """Return a Provider and its package, which brings the kind Thing."""
    return provider(name, "v1.0.0", *lines) + crossplane(name, "v1.0.0", kinds="g.io/v1/Thing")


def put(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


def add(more: str) -> Callable[[str], str]:
    return lambda text: text + more


def without(part: str) -> Callable[[str], str]:
    return lambda text: "---".join(document for document in text.split("---") if part not in document)


IGNORED = "packaging.carvel.dev/ignore-kubernetes-version-selection"
THEIRS = [{"name": "theirs", "package": "xpkg:x.io/aws", "version": "v0.9.0"}]
OWNED = (("Thing.g.io", AWS),)
TAKEN = put("{name: a}", "{name: a, annotations: {reconciler.dev/take-over: x.io/aws}}")
LET_GO = provider("a", "v1.0.0") + provider("aws", "v1.0.0") + crossplane("aws", "v1.0.0")
LET_GO += crossplane("a", "v1.0.0", kinds="g.io/v1/Thing")
KPT = PackageNeed(PackageId(Ecosystem.KPT, "g.io//web"), version_range(Dialect.KPT, ">=2.0.0"))
WITHDRAWN = package("web.io", "1.0.0").replace(
    "metadata: {", "metadata: {annotations: {reconciler.dev/withdrawn: 'leaks'}, "
)

NEW_AWS = crossplane("aws", "v1.0.0").replace("dependsOn", "crossplane: {version: '>=v1.15.0'}, dependsOn")
OLD_CROSSPLANE = cluster(platforms={"crossplane": "v1.16.0-rc.0.38"})
DIGEST = f"sha256:{'1' * 64}"
CARVEL_WAYS = (
    "with `reconciler index import PATH` or `reconciler index add carvel:{} VERSION`, or with"
    " `reconciler index sync` if a PackageRepository among the manifests has it;"
)


class Case(NamedTuple):
    reason: str
    code: ConflictCode
    text: str
    followed: Callable[[str], str]
    fields: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it
    hint: str = ""


CASES = [
    Case("a circle", ConflictCode.CYCLE, fixture("cycle"), put("{package: x.io/a}", "")),
    Case("one of two goes", ConflictCode.OWN_CRD, fixture("two-owners"), without("x.io/b:v1.0.0")),
    Case("once in a cluster", ConflictCode.CARD_CLUSTER, fixture("one-per-cluster"), without("namespace: y")),
    Case(
        "once in a namespace",
        ConflictCode.CARD_NAMESPACE,
        install("x", "certs.io", "")
        + install("y", "certs.io", "")
        + package("certs.io", "1.0.0", "installationType: onePerNamespace"),
        without("name: y"),
    ),
    Case("somebody else installed it", ConflictCode.FOREIGN,
        upbound(">=v1.0.0", "v1.0.0") + cluster(installations=THEIRS),
        add(provider("aws", "v1.0.0").replace("{name: aws}", "{name: theirs}")), {},
        "Write a manifest for x.io/aws with the name that it has in the cluster: then it is yours"),
    Case("an old cluster", ConflictCode.PLATFORM, fixture("old-cluster"), put("1.24.3", "1.27.0")),
    Case("a new cluster", ConflictCode.PLATFORM, fixture("new-cluster"), put("<1.20.0", "<1.32.0")),
    Case(
        "an old cluster is passed over",
        ConflictCode.PLATFORM,
        install("web", "web.io", "")
        + package("web.io", "1.0.0", for_kubernetes(">=1.25.0"))
        + cluster(platforms={"kubernetes": "1.24.3"}),
        put("namespace: prod}", f"namespace: prod, annotations: {{{IGNORED}: ''}}}}"),
    ),
    Case("a Crossplane that is a pre-release is passed over", ConflictCode.CROSSPLANE,
        provider("aws", "v1.0.0") + NEW_AWS + OLD_CROSSPLANE,
        put("package: 'x.io/aws:v1.0.0'", "package: 'x.io/aws:v1.0.0', ignoreCrossplaneConstraints: true")),
    Case("a Crossplane is passed over for a generated package", ConflictCode.CROSSPLANE,
        upbound() + NEW_AWS + OLD_CROSSPLANE,
        add(provider("aws", "v1.0.0").replace("v1.0.0'", "v1.0.0', ignoreCrossplaneConstraints: true"))),
    Case("a digest against a version", ConflictCode.DIGEST,
        upbound(DIGEST, "v1.0.0") + provider("aws", "v2.0.0") + crossplane("aws", "v2.0.0"),
        put(f"'{DIGEST}'", "'>=v1.0.0'")),
    Case("a pre-release that another range leaves out", ConflictCode.PRERELEASE,
        upbound(">=v0.14.36", "v0.14.36", "v0.16.0-feat.0") + provider("aws", "v0.16.0-feat.0"),
        put(">=v0.14.36", ">=v0.14.36-0")),
    Case("a locked pre-release that a range leaves out", ConflictCode.PRERELEASE,
        upbound(">=v0.14.36", "v0.14.36", "v0.16.0-feat.0"), put(">=v0.14.36", ">=v0.14.36-0"),
        {"pins": (pinned("v0.16.0-feat.0"),)}),
    Case("a release beside the pre-release", ConflictCode.PRERELEASE,
        upbound(">=v0.14.36", "v0.14.36", "v0.16.0-feat.0") + provider("aws", "v0.16.0-feat.0"),
        put("x.io/aws:v0.16.0-feat.0", "x.io/aws:v0.14.36")),
    Case("only pre-releases of a Carvel package", ConflictCode.PRERELEASE, fixture("prereleases-carvel"),
        put("constraints: '>=1.0.0'", "constraints: '>=1.0.0', prereleases: {}"), {},
        NEXT_STEPS[ConflictCode.PRERELEASE].format(name="web.io")),
    Case("a binding", ConflictCode.BIND, fixture("wrong-binding"), put("onsite/beest", "onsite/beast")),
    Case("a dependency is not installed", ConflictCode.DECLINED, fixture("declined-installation"),
        add(install("db", "db.io", "")), {},
        "Write a manifest that installs db.io >=1.0.0, or let it be installed: remove `install: false`"),
    Case(
        "no default",
        ConflictCode.INTERFACE,
        fixture("no-default"),
        put("{io.cnab", "{io.cnab.interface.mysql: 'bundle:r.io/helm', io.cnab"),
        {},
        (
            "Choose what implements it:"
            " `reconciler index set-default io.cnab.interface.mysql ECOSYSTEM:NAME`,"
            " with `--cluster CLUSTER` where that cluster has a default of its own"
        ),
    ),
    Case("a package brings the API", ConflictCode.API, fixture("unserved-api"),
        add(install("certs", "certs.io", ""))),
    Case("the cluster serves the API", ConflictCode.API, fixture("no-snapshot"),
        add(cluster(apis=["apps/v1/Deployment"]))),
    Case("a wrong manifest", ConflictCode.INVALID, fixture("refused-manifest"), put("oncePer", "onePer"), {},
        "Correct the manifest of bad.io at the place above, or name a version that is valid"),
    Case(
        "a Carvel package is missing",
        ConflictCode.NO_CANDIDATE,
        fixture("unpublished-package"),
        add(package("db.corp", "1.0.0")),
        {},
        (
            f"Add db.corp to the index, {CARVEL_WAYS.format('db.corp')}"
            " `reconciler index missing` lists all that is missing"
        ),
    ),
    Case("the lock has a higher version", ConflictCode.DOWNGRADE, upbound("=v1.0.0", "v1.0.0", "v2.0.0"),
        add(cluster(choices={"allowDowngrade": True})), {"pins": (pinned("v2.0.0"),)}),
    Case("the lock has a higher version, in one cluster", ConflictCode.DOWNGRADE,
        upbound("=v1.0.0", "v1.0.0", "v2.0.0"), add(provider("aws", "v1.0.0")),
        {"pins": (pinned("v2.0.0"),)}),
    Case(
        "the lock has a higher version of a Carvel package",
        ConflictCode.DOWNGRADE,
        install("shop", "shop.io", "")
        + package("shop.io", "1.0.0", needs("db.io", "1.0.0"))
        + package("db.io", "1.0.0")
        + package("db.io", "2.0.0"),
        add(
            install("db", "db.io", "1.0.0").replace(
                "metadata: {", "metadata: {annotations: {packaging.carvel.dev/downgradable: ''}, "
            )
        ),
        {"pins": (pin(Instance(*DATABASE, Slot(SlotKind.NAMESPACE, "prod")), Candidate(DATABASE, TWO)),)},
        NEXT_STEPS[ConflictCode.DOWNGRADE].format(name="db.io", form=DOWNGRADABLE),
    ),
    Case(
        "the lock has a higher version of a bundle",
        ConflictCode.DOWNGRADE,
        installation("a", "a")
        + bundle("a", "1.0.0", "{requires: [{name: db, bundle: {reference: r.io/db, version: 1.x}}]}")
        + bundle("db", "1.0.0")
        + bundle("db", "2.0.0"),
        lambda text: (
            text.replace("name: a\n", f"name: a\ncustom: {{{BINDINGS}: {{db: prod/db}}}}\n", 1)
            + installation("db", "db")
        ),
        {"pins": (pin(Instance(*DB, Slot(SlotKind.FOR, "prod", ("a", "db"))), Candidate(DB, TWO)),)},
        NEXT_STEPS[ConflictCode.DOWNGRADE].format(name="r.io/db", form=BOUND.format(alias="db")),
    ),
    Case("the policy of versions keeps the major version", ConflictCode.SELECTION,
        upbound(">=v2.0.0", "v1.0.0", "v2.0.0") + cluster(choices={"policies": {"xpkg": "max-minor"}}),
        put("max-minor", "highest"), {"pins": (pinned("v1.0.0"),)}),
    Case("a withdrawn version", ConflictCode.WITHDRAWN, install("web", "web.io", "") + WITHDRAWN,
        put("reconciler.dev/withdrawn: 'leaks'", "")),
    Case(
        "a version without what is stored",
        ConflictCode.STORED,
        provider("aws", "v1.0.0")
        + crossplane("aws", "v1.0.0", kinds="g.io/v1/Thing")
        + cluster(stored=["g.io/v1alpha1/Thing"]),
        put("g.io/v1alpha1/Thing", "g.io/v1/Thing"),
    ),
    Case(
        "a family moves together",
        ConflictCode.VERSION,
        "".join(provider(name, "v2.5.3") for name in ("family", "ec2"))
        + provider("s3", "v2.6.0")
        + "".join(
            crossplane("family", version)
            + "".join(
                crossplane(name, version, f"[{{provider: x.io/family, version: {version}}}]")
                for name in ("s3", "ec2")
            )
            for version in ("v2.5.3", "v2.6.0")
        ),
        lambda text: text.replace("family:v2.5.3", "family:v2.6.0").replace("ec2:v2.5.3", "ec2:v2.6.0"),
        {},
        (
            f"Write v2.6.0 at Provider family ({FILE}:5:17) and Provider ec2 ({FILE}:10:17),"
            " which move together"
        ),
    ),
    Case("two ranges", ConflictCode.VERSION, fixture("deep-requirement"), put("'2.0.0'", "'1.0.0'"), {},
        NEXT_STEPS[ConflictCode.VERSION].format(form=OVERRIDDEN)),
    Case("two ranges of Crossplane, where no PackageInstall is named", ConflictCode.VERSION,
        upbound(">=v2.0.0", "v1.0.0", "v2.0.0") + provider("aws", "v1.0.0"),
        put("x.io/aws:v1.0.0", "x.io/aws:v2.0.0")),
    Case(
        "a range that no version is in",
        ConflictCode.NO_VERSION,
        fixture("prefixed-version"),
        put("3.0.0", "2.0.0"),
        {},
        (
            f"Add a version of press.io that fits to the index, {CARVEL_WAYS.format('press.io')}"
            " or name another range of it in a manifest of yours"
        ),
    ),
    Case(
        "no version fits",
        ConflictCode.NO_VERSION,
        upbound(">=v2.0.0", "v1.0.0"),
        add(crossplane("aws", "v2.0.0")),
        {},
        (
            "Add a version of x.io/aws that fits to the index, with `reconciler index sync` or"
            " `reconciler index add x.io/aws VERSION --manifest crossplane.yaml`;"
            " or name another range of it in a manifest of yours"
        ),
    ),
    Case("another package had the kind", ConflictCode.OWN_CRD, configuration("a"), TAKEN, {"held": OWNED},
        f"Write `reconciler.dev/take-over: x.io/aws` into the annotations of Provider a ({FILE}:2)"),
    Case("another package that a manifest installs has let go of the kind", ConflictCode.OWN_CRD, LET_GO,
        TAKEN, {"held": OWNED},
        f"Write `reconciler.dev/take-over: x.io/aws` into the annotations of Provider a ({FILE}:2)"),
    Case(
        "another package that a manifest installs brings the kind still",
        ConflictCode.OWN_CRD,
        configuration("a") + configuration("aws"),
        lambda text: without("package: 'x.io/aws:")(TAKEN(text)),
        {"held": OWNED},
        (
            "Write `reconciler.dev/take-over: x.io/aws` into the annotations of "
            f"Provider a ({FILE}:2), and remove Provider aws ({FILE}:12)"
        ),
    ),
]  # fmt: skip
ELSEWHERE = {ConflictCode.OWN_COMPOSITION, ConflictCode.UNPUBLISHED}
"""These worlds have no compositions (`test_two_packages_cannot_own_one_composition`) and no variants."""


@pytest.mark.parametrize("case", CASES, ids=[case.reason for case in CASES])
def test_conflict_is_gone_when_its_next_step_is_followed(case: Case) -> None:
    (explanation,) = resolve_cluster(world_of(case.text, **case.fields)).explanations

    assert explanation.code is case.code
    named = {ConflictCode.PLATFORM: "kubernetes", ConflictCode.WITHDRAWN: "web.io"}
    step = NEXT_STEPS[case.code].format(name=named.get(case.code, AWS.name), ways="", form="")
    assert explanation.hint == (case.hint or step)
    solution = resolve_cluster(world_of(case.followed(case.text), **case.fields))
    assert [str(explanation) for explanation in solution.explanations] == []
    assert solution.resolved


def test_each_code_has_a_sentence_that_is_followed() -> None:
    assert set(NEXT_STEPS) == set(ConflictCode)
    assert {case.code for case in CASES} | ELSEWHERE == set(ConflictCode)


def test_revision_of_a_kpt_package_is_to_be_published() -> None:
    def explained(version: str) -> list[tuple[ConflictCode, str]]:
        text = package("web", version).replace("metadata: {", "metadata: {annotations: {kpt: g.io//web}, ")
        own = Install("default", "web", Dialect.KPT, KPT, kind="PackageVariant")
        solution = resolve_cluster(replace(world_of(text), installs=(own,)))
        return [(explanation.code, explanation.hint) for explanation in solution.explanations]

    step = "Publish g.io//web with a package.yaml, in a version that is asked for"
    assert explained("1.0.0") == [(ConflictCode.UNPUBLISHED, step)]
    assert explained("2.0.0") == []


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

    assert (
        first.hint
        == second.hint
        == NEXT_STEPS[ConflictCode.DOWNGRADE].format(form=NAMED.format(name="aws"), name="x.io/aws")
    )
    assert second.sentences[-1] == f"Configuration one keeps x.io/one v3.0.0 ({FILE}:5:17)"


@pytest.mark.parametrize(("policies", "version"), [({}, "2.0.0"), ({"carvel": "lowest"}, "1.0.0")])
def test_install_without_a_policy_has_that_of_its_ecosystem(policies: dict[str, str], version: str) -> None:
    text = install("db", "db.io", "") + package("db.io", "1.0.0") + package("db.io", "2.0.0")

    assert f"prod/db {version} for user" in resolved(text + cluster(choices={"policies": policies}))
