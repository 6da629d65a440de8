"""Fifteen worlds without an answer: what is said, where, and what helps; and each one's twin with one."""

from typing import NamedTuple

import pytest

from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    InstallSlot,
    Instance,
    Pin,
    ResolverSettings,
    SlotKind,
    build_catalogue,
)
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    version_range,
)
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.problem import BudgetExceeded
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.solve.sat import solve
from reconciler.dependencies.versions import parse_strict
from reconciler.reasons import Reason
from tests.support.dependency_manifests import (
    FILE,
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    world_of,
)


class Case(NamedTuple):
    """A world, what its explanation must say, and what makes it solvable."""

    reason: str
    text: str
    code: str
    causes: tuple[str, ...]
    lines: tuple[int, ...]
    hint: str
    wrong: str
    right: str


WEB = install("shop", "web.io", "")
PRESS = install("blog", "press.io", "")
DB12 = package("db.io", "1.0.0") + package("db.io", "2.0.0")


def cluster(text: str) -> str:
    return f"---\n{{kind: Cluster, {text}}}\n"


CASES = [
    Case(
        "needed package is not published",
        WEB + package("web.io", "1.0.0", needs("db.corp", ">=1.0.0")) + package("db.io", "1.0.0"),
        "E-NOCANDIDATE",
        ("web.io 1.0.0 requires db.corp >=1.0.0", "no version of db.corp is published"),
        (2, 15),
        "Add db.corp to the index, or correct its name; similar names: db.io",
        "db.corp",
        "db.io",
    ),
    Case(
        "two need versions that exclude each other",
        WEB
        + PRESS
        + package("web.io", "1.0.0", needs("db.io", ">=2.0.0"))
        + package("press.io", "1.0.0", needs("db.io", "<2.0.0"))
        + DB12,
        "E-VERSION",
        (
            "web.io 1.0.0 requires db.io >=2.0.0",
            "press.io 1.0.0 requires db.io <2.0.0",
            "PackageInstall prod/blog",
        ),
        (2, 8, 21, 30),
        "Relax one of these: db.io <2.0.0, db.io >=2.0.0",
        "<2.0.0",
        "<3.0.0",
    ),
    Case(
        "what a user pinned does not suit what is needed three levels down",
        WEB
        + install("mine", "db.io", "2.0.0")
        + package("web.io", "1.0.0", needs("mid.io"))
        + package("mid.io", "1.0.0", needs("low.io"))
        + package("low.io", "1.0.0", needs("db.io", "<2.0.0"))
        + DB12,
        "E-VERSION",
        (
            "PackageInstall prod/mine asks for db.io 2.0.0",
            "PackageInstall prod/shop → web.io → mid.io → low.io",
        ),
        (2, 8, 21, 30, 39),
        "Relax one of these: db.io 2.0.0, db.io <2.0.0",
        "constraints: '2.0.0'",
        "constraints: '1.0.0'",
    ),
    Case(
        "only pre-releases match for Crossplane",
        provider("platform", "v1.0.0")
        + crossplane("platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v0.14.0'}]")
        + crossplane("aws", "v1.0.0-rc.1"),
        "E-VERSION",
        ("requires x.io/aws >=v0.14.0", "no version of x.io/aws fits"),
        (2, 10),
        "Only pre-releases match >=v0.14.0; add -0 to its versions to admit them",
        ">=v0.14.0",
        ">=v0.14.0-0",
    ),
    Case(
        "only pre-releases match for Carvel",
        install("shop", "web.io", ">=1.0.0") + package("web.io", "2.0.0-rc.1"),
        "E-VERSION",
        ("PackageInstall prod/shop asks for web.io >=1.0.0", "no version of web.io fits"),
        (2,),
        "Only pre-releases match >=1.0.0; admit them with `prereleases: {}`",
        "constraints: '>=1.0.0'",
        "constraints: '>=1.0.0', prereleases: {}",
    ),
    Case(
        "build metadata counts for Carvel",
        WEB + package("web.io", "1.0.0", needs("db.io", "1.0.0")) + package("db.io", "1.0.0+vendor.1"),
        "E-VERSION",
        ("web.io 1.0.0 requires db.io 1.0.0",),
        (2, 15),
        "Build metadata counts here; write 1.0.0+vendor.1 in full",
        "version: '1.0.0'",
        "version: '1.0.0+vendor.1'",
    ),
    Case(
        "a range that can never match",
        WEB + package("web.io", "1.0.0", needs("db.io", "!=1.x")) + DB12,
        "E-VERSION",
        ("web.io 1.0.0 requires db.io !=1.x",),
        (2, 15),
        "'!=1.x' means below and above that range at once; write '<LOW || >=HIGH'",
        "!=1.x",
        "<1.0.0 || >=2.0.0",
    ),
    Case(
        "two packages own one kind",
        provider("a", "v1.0.0")
        + provider("b", "v1.0.0")
        + crossplane("a", "v1.0.0", "[]", "s3.io/v1/Bucket")
        + crossplane("b", "v1.0.0", "[]", "s3.io/v1/Bucket"),
        "E-OWN-CRD",
        ("Only one package may own Bucket.s3.io: x.io/a v1.0.0, x.io/b v1.0.0 bring it", "Provider b asks"),
        (2, 7, 12, 17),
        "Remove one of the two packages, or ask for a version without Bucket.s3.io",
        "version: v1.0.0, kinds: 's3.io/v1/Bucket'}}\nspec: {dependsOn: []}\n---",
        "version: v1.0.0, kinds: 's3.io/v1/Queue'}}\nspec: {dependsOn: []}\n---",
    ),
    Case(
        "one per cluster is asked for twice",
        install("x", "certs.io", "", namespace="x")
        + install("y", "certs.io", "", namespace="y")
        + package("certs.io", "1.0.0", "installationType: onePerCluster"),
        "E-CARD-CLUSTER",
        (
            (
                "certs.io may not stand twice in a cluster: "
                "PackageInstall x/x → certs.io and PackageInstall y/y → certs.io"
            ),
        ),
        (2, 8),
        "Remove one of the two manifests, or let both use the one that is there",
        "onePerCluster",
        "onePerNamespace",
    ),
    Case(
        "the cluster is too old",
        WEB
        + package("web.io", "1.0.0", "kubernetesVersionSelection: {constraints: '>=1.27.0'}")
        + cluster("platforms: {kubernetes: 1.24.3}"),
        "E-PLATFORM",
        ("web.io 1.0.0 needs kubernetes >=1.27.0, and this cluster has kubernetes 1.24.3",),
        (2, 8),
        "Upgrade the cluster, or ask for a version that supports it",
        "1.24.3",
        "1.28.1",
    ),
    Case(
        "Crossplane packages need one another",
        provider("a", "v1.0.0")
        + crossplane("a", "v1.0.0", "[{package: x.io/b}]")
        + crossplane("b", "v1.0.0", "[{package: x.io/a}]")
        + crossplane("c", "v1.0.0"),
        "E-CYCLE",
        ("x.io/a v1.0.0 requires x.io/b", "x.io/b v1.0.0 requires x.io/a", "no order of installation"),
        (2, 10, 15),
        "Ask for a version of one of them that does not need the others",
        "{package: x.io/a}",
        "{package: x.io/c}",
    ),
    Case(
        "nothing serves an API",
        WEB
        + package("web.io", "1.0.0", "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}")
        + package("certs.io", "1.0.0", "provides: [{apiVersion: certs.io/v1, kind: Issuer}]")
        + cluster("apis: [other.io/v1/Thing]"),
        "E-API",
        ("web.io 1.0.0 requires the API certs.io/v1/Issuer", "nothing meets it"),
        (2, 15),
        "certs.io would bring certs.io/v1/Issuer: require it, or turn discovery on",
        "other.io/v1/Thing",
        "certs.io/v1/Issuer",
    ),
    Case(
        "the user declined to install",
        install("shop", "web.io", "", "dependencies: {install: false}")
        + package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
        + DB12,
        "E-VERSION",
        ("nothing there meets it, and nothing may be installed",),
        (2, 16),
        "Install db.io >=1.0.0 yourself, or let it be installed with `install: true`",
        "install: false",
        "install: true",
    ),
    Case(
        "a binding names nothing",
        installation("a", "app", more="custom: {reconciler.dev/dependencies: {db: onsite/beest}}")
        + bundle("app", "1.0.0", "{requires: [{name: db, reference: r.io/db}]}")
        + cluster(
            "installations: [{name: beast, namespace: onsite, package: 'bundle:r.io/x', version: 1.0.0}]"
        ),
        "E-BIND",
        ("r.io/app 1.0.0 requires r.io/db", "nothing meets it"),
        (2, 13),
        "The binding db=onsite/beest names nothing that fits; check its name",
        "beest",
        "beast",
    ),
    Case(
        "no default implements an interface",
        installation("a", "app")
        + bundle("app", "1.0.0", "{requires: [{name: db, interface: {name: mysql}}]}")
        + bundle("helm", "1.0.0", "{provides: [{interface: io.cnab.interface.mysql}]}")
        + cluster("choices: {defaults: {io.cnab.interface.redis: 'bundle:r.io/helm'}}"),
        "E-INTERFACE",
        ("r.io/app 1.0.0 requires the interface io.cnab.interface.mysql",),
        (2, 13),
        "Set a default for io.cnab.interface.mysql with `index set-default`, or bind an installation; "
        "known: r.io/helm",
        "io.cnab.interface.redis",
        "io.cnab.interface.mysql",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.reason for case in CASES])
def test_an_explanation_says_what_where_and_what_helps(case: Case) -> None:
    solution = resolve_cluster(world_of(case.text))
    (explanation,) = solution.explanations

    text = str(explanation)
    assert explanation.code == case.code
    assert explanation.minimal
    assert all(fact in text for fact in case.causes), text
    assert all(place.path == FILE for place in explanation.places)
    assert sorted({place.line for place in explanation.places}) == sorted(case.lines), text
    assert case.hint in explanation.hints, text
    reasons = {"E-CYCLE": Reason.DEPENDENCY_CYCLE, "E-OWN-CRD": Reason.OWNERSHIP_CONFLICT}
    reason = reasons.get(case.code, Reason.DEPENDENCY_CONFLICT)
    assert {problem.reason for problem in solution.problems} == {reason}
    assert all(case.hint in problem.hint for problem in solution.problems)


@pytest.mark.parametrize("case", CASES, ids=[case.reason for case in CASES])
def test_its_twin_has_an_answer_and_says_nothing(case: Case) -> None:
    assert case.wrong in case.text
    solution = resolve_cluster(world_of(case.text.replace(case.wrong, case.right)))

    assert solution.explanations == ()
    assert solution.problems == ()


def locked(version: str, *, downgrade: bool) -> ClusterInputs:
    def candidate(text: str, withdrawn: str = "") -> Candidate:
        return Candidate(PackageId(Ecosystem.CARVEL, "db.io"), parse_strict(text), withdrawn=withdrawn)

    need = PackageNeed(PackageId(Ecosystem.CARVEL, "db.io"), version_range(Dialect.CARVEL, version))
    slot = InstallSlot(SlotKind.INSTALL, "x", ("mine",))
    return ClusterInputs(
        (Install("x", "mine", Dialect.CARVEL, need, kind="PackageInstall"),),
        build_catalogue([candidate("1.0.0"), candidate("2.0.0", "breaks on Tuesdays"), candidate("3.0.0")]),
        pins=(Pin(Instance(need.id, slot), candidate("3.0.0")),),
        choices=ResolverSettings(allow_downgrade=downgrade),
    )


def test_a_downgrade_and_a_withdrawn_version_are_explained() -> None:
    (explanation,) = resolve_cluster(locked("1.0.0", downgrade=False)).explanations
    assert "db.io is locked at 3.0.0 and may not go below that" in str(explanation)
    assert "packaging.carvel.dev/downgradable" in str(explanation)
    assert resolve_cluster(locked("1.0.0", downgrade=True)).explanations == ()

    (explanation,) = resolve_cluster(locked("2.0.0", downgrade=True)).explanations
    assert "db.io 2.0.0 is withdrawn: breaks on Tuesdays" in str(explanation)


def test_two_manifests_for_one_crossplane_package_are_both_named() -> None:
    text = provider("a", "v1.0.0") + provider("a", "v1.1.0").replace("{name: a}", "{name: second}")
    solution = resolve_cluster(world_of(text + crossplane("a", "v1.0.0") + crossplane("a", "v1.1.0")))
    (problem,) = solution.problems

    assert problem.reason == Reason.DUPLICATE_PACKAGE
    assert "Provider second" in problem.message
    assert "Provider a (config/cluster.yaml:2)" in problem.message
    assert len(solution.resolved) == 1


def test_twice_in_one_namespace_has_a_code_of_its_own() -> None:
    text = install("x", "certs.io", "") + install("y", "certs.io", "")
    (explanation,) = resolve_cluster(
        world_of(text + package("certs.io", "1.0.0", "installationType: onePerNamespace"))
    ).explanations

    assert explanation.code == "E-CARD-NS"
    assert "certs.io may not stand twice in a namespace" in str(explanation)
    assert resolve_cluster(world_of(text + package("certs.io", "1.0.0"))).explanations == ()


def test_running_out_of_steps_is_no_verdict() -> None:
    world = world_of(WEB + package("web.io", "1.0.0"), choices=ResolverSettings(budget=0))

    assert solve(build_problem(world).problem) == BudgetExceeded(0)
    assert [problem.reason for problem in resolve_cluster(world).problems] == [Reason.STEP_BUDGET_EXCEEDED]
