"""Cases that Crossplane and Porter publish for their resolvers: the same answer, or ours and why.

The facts are those of crossplane/crossplane, internal/controller/pkg/resolver/reconciler_test.go and
test/e2e/manifests/pkg/dependency-upgrade, and of getporter/porter, pkg/porter/dependency_graph_test.go.
What differs stands in docs/contributing/divergences.md.
"""

from typing import NamedTuple

import pytest

from reconciler.dependencies.model.cluster import ClusterInputs, ResolverSettings, build_catalogue
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    exact_range,
    version_range,
)
from reconciler.dependencies.solve.problem import Solution
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import VersionPolicy, parse_loose
from tests.support.dependency_manifests import bundle, installation, world_of
from tests.support.dependency_worlds import pin

IMAGE = PackageId(Ecosystem.XPKG, "x.io/cool-image")
ONE, TWO = ("sha256:" + digit * 64 for digit in "12")


class Upgrade(NamedTuple):
    """An installed version, what its parents ask for, what is published, and Crossplane's choice."""

    installed: str
    constraints: tuple[str, ...]
    published: tuple[str, ...]
    theirs: str
    ours: str | None = None
    downgrade: bool = False
    nearest: bool = False


THREE = ("v1.0.0", "v2.0.0", "v2.1.0", "v3.0.0")
UPDATES = ("v0.0.1", "v1.0.0", "v1.0.1", "v2.0.0")
SHARED = ("v1.0.0", "v1.5.0", "v2.0.0")
OLD = ("v0.0.1", "v1.0.0", "v2.0.0", "v3.0.0")
UPGRADES = {
    "SuccessReturnVersion": Upgrade("v1.0.0", (">=v1.0.0", "v2.0.0"),
        ("v1.0.0", "v1.0.1", "v2.0.0", "v3.0.0"), "v2.0.0"),
    "ErrorNoValidVersion": Upgrade("v1.0.0", (">=v1.0.0", "v2.0.0"), ("v1.0.0", "v1.0.1"), ""),
    "ErrorNoValidVersionDowngrade": Upgrade("v1.0.0", ("<=v1.0.0", "v0.0.1"), ("v0.0.1", "v1.0.0"), ""),
    "UpgradeToSmallestValid": Upgrade("v2.0.0", (">v2.0.0", "<=v3.0.0"), THREE, "v2.1.0", "v3.0.0",
        downgrade=True),
    "UpgradeToSmallestValid, select.crossplane: nearest": Upgrade("v2.0.0", (">v2.0.0", "<=v3.0.0"), THREE,
        "v2.1.0", downgrade=True, nearest=True),
    "DowngradeToLargestValid": Upgrade("v3.0.0", (">=v0.0.1", "<v3.0.0"), OLD, "v2.0.0", downgrade=True),
    "AllSameDigests": Upgrade("v0.0.1", (ONE, ONE), (f"v0.0.1@{TWO}", f"v0.0.2@{ONE}"), "v0.0.2"),
    "DifferentDigests": Upgrade("v0.0.1", (ONE, TWO), (f"v0.0.1@{TWO}", f"v0.0.2@{ONE}"), ""),
    "MixedConstraintTypes": Upgrade("v0.0.1", ("v0.0.1", TWO), (f"v0.0.1@{TWO}",), "", "v0.0.1"),
    "MixedConstraintTypes of two versions": Upgrade("v0.0.1", ("v0.0.1", ONE),
        (f"v0.0.1@{TWO}", f"v0.0.2@{ONE}"), ""),
    "MixedConstraintTypes, the digest first": Upgrade("v0.0.1", (ONE, "v0.0.1"),
        (f"v0.0.1@{TWO}", f"v0.0.2@{ONE}"), ""),
    "AllVersions": Upgrade("v0.0.1", ("v0.0.1", "v0.0.2"), ("v0.0.1", "v0.0.2"), ""),
    "SuccessfulNoMissing": Upgrade("v0.0.1", (">=v0.0.1",), ("v0.0.1",), "v0.0.1"),
    "SuccessfulNoMissingWithDigest": Upgrade("v0.0.1", (ONE,), (f"v0.0.1@{ONE}",), "v0.0.1"),
    "Reconcile, ErrorNoValidVersion": Upgrade("", (">v1.0.0",), ("v0.2.0", "v0.3.0", "v1.0.0"), ""),
    "SuccessfulCreateMissingDependency": Upgrade("", (">v1.0.0",), ("v0.2.0", "v0.3.0", "v1.0.0", "v1.2.0"),
        "v1.2.0"),
    "SuccessfulCreateMissingDependencyWithRejectedTags": Upgrade("", ("v1.0.0",),
        ("v1.0.0", "v1.0.1", "v2.0.0"), "v1.0.0"),
    "SuccessfulCreateMissingDependencyWithDigest": Upgrade("", (ONE,), (f"v0.0.1@{ONE}",), "v0.0.1"),
    "SuccessfulUpdateDependency": Upgrade("v0.0.1", (">v1.0.0",), UPDATES, "v1.0.1", "v2.0.0"),
    "SuccessfulUpdateDependency, select.crossplane: nearest": Upgrade("v0.0.1", (">v1.0.0",), UPDATES,
        "v1.0.1", nearest=True),
    "SuccessfulUpdateDependencyWithDigest": Upgrade("v0.0.1", (ONE, ONE),
        ("v0.0.1", f"v1.0.1@{ONE}", "v2.0.0"), "v1.0.1"),
    # What is locked is forgotten where nothing asks for it, and chosen anew.
    "KeepMatchingConstraint": Upgrade("v1.5.0", (">=v1.0.0",), SHARED, "v1.5.0"),
    "PruneOutdatedDependency": Upgrade("v1.5.0", (">=v2.0.0",), SHARED, "v2.0.0"),
    "KeepOneMatchingOutOfMany": Upgrade("v1.5.0", (">=v1.0.0", ">=v2.0.0"), SHARED, "v2.0.0"),
    "DigestMatchExact": Upgrade("v1.0.0", (ONE,), (f"v1.0.0@{ONE}", f"v1.1.0@{TWO}"), "v1.0.0"),
    "DigestNotMatch": Upgrade("v1.0.0", (ONE,), (f"v1.0.0@{TWO}", f"v1.1.0@{ONE}"), "v1.1.0"),
    "ComplexDependencyChainNoConflicts": Upgrade("v1.5.0", ("v2.0.0", "v2.0.0"), SHARED, "v2.0.0"),
    "ComplexDependencyChainConflicts": Upgrade("v1.5.0", ("v2.0.0", "v1.5.0"), SHARED, ""),
    "MixedSemverAndDigest": Upgrade("v0.9.0", (">=v1.0.0",), ("v0.9.0", "v1.0.0"), "v1.0.0"),
    # The worlds of its end-to-end tests.
    "version": Upgrade("v0.3.0", ("v0.3.1",), ("v0.3.0", "v0.3.1"), "v0.3.1"),
    "digest": Upgrade("v0.3.0", (ONE,), (f"v0.3.0@{TWO}", f"v0.3.1@{ONE}"), "v0.3.1"),
    "already-exists": Upgrade("v0.2.0", (">=v0.1.0", "=v0.2.0"), ("v0.1.0", "v0.2.0"), "v0.2.0"),
    "downgrade": Upgrade("v0.4.0", ("<=v0.4.0", "=v0.3.1"), ("v0.3.1", "v0.4.0"), "v0.3.1", downgrade=True),
    "no-valid": Upgrade("v0.2.0", ("v0.2.0", "v0.2.1"), ("v0.2.0", "v0.2.1"), ""),
    "a version that fits stays": Upgrade("v0.2.0", (">=v0.1.0",), ("v0.1.0", "v0.2.0", "v0.3.0"), "v0.2.0"),
}  # fmt: skip


@pytest.mark.parametrize("case", UPGRADES)
def test_dependency_is_at_the_version_that_crossplane_chooses(case: str) -> None:
    upgrade = UPGRADES[case]
    ours = upgrade.theirs if upgrade.ours is None else upgrade.ours

    solution = resolve_cluster(inputs_of(upgrade))

    chosen = [str(each.candidate.version) for i, each in solution.resolved.items() if i.package == IMAGE]
    if ours:
        assert (chosen, solution.problems) == ([ours], ())
    else:
        assert solution.problems


def inputs_of(upgrade: Upgrade) -> ClusterInputs:
    """Return a cluster with a parent for each constraint, all of which are new."""
    images = []
    for text in upgrade.published:
        version, _, digest = text.partition("@")
        images.append(Candidate(IMAGE, parse_loose(version), digest=digest, kind="Provider"))
    parents, installs = [], []
    for number, text in enumerate(upgrade.constraints):
        id_ = PackageId(Ecosystem.XPKG, f"x.io/parent{number}")
        need = PackageNeed(IMAGE, version_range(Dialect.CROSSPLANE, text))
        parents.append(Candidate(id_, parse_loose("v1.0.0"), requires=(Requirement((need,)),)))
        own = PackageNeed(id_, exact_range(Dialect.CROSSPLANE, "v1.0.0"))
        installs.append(Install("", f"parent{number}", Dialect.CROSSPLANE, own, kind="Configuration"))
    locked = [c for c in images if str(c.version) == upgrade.installed]
    policies = ((Ecosystem.XPKG, VersionPolicy.NEAREST),) if upgrade.nearest else ()
    return ClusterInputs(
        tuple(installs),
        build_catalogue([*images, *parents]),
        pins=tuple(pin(Instance(*IMAGE, Slot(SlotKind.CLUSTER)), each) for each in locked),
        choices=ResolverSettings(allow_downgrade=upgrade.downgrade, policies=policies),
    )


# Porter

MYSQL = bundle(
    "mysql",
    "1.0.0",
    more="outputs: [{name: connstr, type: string}]\nparameters: [{name: db-name, default: ''}]",
)
SECOND = ", ".join(f"{{name: db{n}, bundle: {{reference: 'r.io/mysql:v1.0.0'}}MORE{n}}}" for n in (1, 2))


def group(name: str) -> str:
    return f", sharing: {{mode: true, group: {{name: {name}}}}}"


def solved(root: str, *others: str, there: str = "") -> Solution:
    """Resolve an installation of a bundle with these requirements."""
    cluster = f"---\nkind: Cluster\ninstallations: [{there}]\n" if there else ""
    text = installation("root", "root", namespace="ns1") + bundle("root", "1.0.0", f"{{requires: [{root}]}}")
    return resolve_cluster(world_of(text + "".join(others) + cluster))


@pytest.mark.parametrize(
    ("more", "count"),
    [
        (("", ""), 2),
        ((group("app-db"), group("app-db")), 1),
        ((group("group-a"), group("group-b")), 2),
        ((", parameters: {db-name: app1}", ", parameters: {db-name: app2}"), 2),
        ((f"{group('g')}, parameters: {{db-name: a}}", f"{group('g')}, parameters: {{db-name: b}}"), 2),
    ],
    ids=["not shared", "one group", "two groups", "other parameters", "one group with other parameters"],
)
def test_dependencies_are_one_installation_where_porter_has_one_node(
    more: tuple[str, str], count: int
) -> None:
    solution = solved(SECOND.replace("MORE1", more[0]).replace("MORE2", more[1]), MYSQL)

    assert solution.problems == ()
    assert len([i for i in solution.resolved if i.package.name == "r.io/mysql"]) == count


def test_dependencies_of_the_first_generation_are_one_for_each_alias_as_porter_installs_them() -> None:
    """Its graph counts contents; its install names them PARENT-ALIAS."""
    first = "{db1: {bundle: 'r.io/mysql:v1.0.0'}, db2: {bundle: 'r.io/mysql:v1.0.0'}}"
    root = bundle("root", "1.0.0", more=f"custom: {{io.cnab.dependencies: {{requires: {first}}}}}")

    solution = resolve_cluster(world_of(installation("root", "root") + root + MYSQL))

    assert len([i for i in solution.resolved if i.package.name == "r.io/mysql"]) == 2


CIRCLE = tuple(
    bundle(
        name, "1.0.0", f"{{requires: [{{name: {other}, bundle: {{reference: 'r.io/{other}:v1.0.0'}}MORE}}]}}"
    )
    for name, other in (("a", "b"), ("b", "a"))
)


@pytest.mark.parametrize("more", ["", group("g")], ids=["not shared", "shared"])
def test_circle_of_bundles_is_refused(more: str) -> None:
    root = f"{{name: a, bundle: {{reference: 'r.io/a:v1.0.0'}}{more}}}"

    solution = solved(root, *(each.replace("MORE", more) for each in CIRCLE))

    assert solution.problems


def test_diamond_is_no_circle() -> None:
    top = ", ".join(f"{{name: {n}, bundle: {{reference: 'r.io/{n}:v1.0.0'}}}}" for n in ("left", "right"))
    shared = f"{{requires: [{{name: db, bundle: {{reference: 'r.io/mysql:v1.0.0'}}{group('g')}}}]}}"

    solution = solved(top, bundle("left", "1.0.0", shared), bundle("right", "1.0.0", shared), MYSQL)

    assert solution.problems == ()
    assert len([i for i in solution.resolved if i.package.name == "r.io/mysql"]) == 1


LABEL = "labels: {sh.porter.SharingGroup: app-db}"
GLOBAL = f"{{name: db, package: 'bundle:r.io/mysql', version: 1.0.0, {LABEL}}}"
LOCAL = GLOBAL.replace("{name", "{namespace: ns1, name", 1)
FOREIGN = GLOBAL.replace("{name", "{namespace: ns2, name", 1)
DB = "{name: db, bundle: {reference: 'r.io/mysql:v1.0.0'}MORE}"


@pytest.mark.parametrize(
    ("more", "there", "reused"),
    [
        (group("app-db"), GLOBAL, "installed:db"),
        (group("app-db"), f"{GLOBAL}, {LOCAL}", "installed:ns1/db"),
        (group("app-db"), FOREIGN, ""),
        (group("other-group"), GLOBAL, ""),
        ("", GLOBAL, ""),
        (group("app-db"), GLOBAL.replace("1.0.0", "0.9.0"), ""),
    ],
    ids=["global", "local first", "other namespace", "other group", "not shared", "other content"],
)
def test_installation_that_is_there_is_used_where_porter_uses_it(more: str, there: str, reused: str) -> None:
    solution = solved(DB.replace("MORE", more), MYSQL, there=there)

    assert solution.problems == ()
    (root,) = (each for i, each in solution.resolved.items() if i.package.name == "r.io/root")
    (need,) = root.dependencies
    assert ("" if need.resolved else need.detail) == reused


def test_interface_with_a_reference_and_a_document_is_refused() -> None:
    both = "interface: {reference: 'r.io/i:v1.0.0', document: {outputs: [{name: port, type: string}]}}"

    with pytest.raises(AssertionError, match="a reference or a document, not both"):
        solved(DB.replace("}MORE", f", {both}}}{group('app-db')}"), MYSQL)


def test_circle_of_a_bundle_with_itself_is_refused() -> None:
    needed = "{name: a, bundle: {reference: 'r.io/a:v1.0.0'}}"

    assert solved(needed, bundle("a", "1.0.0", f"{{requires: [{needed}]}}")).problems


@pytest.mark.parametrize(("count", "refused"), [(10, False), (11, True)])
def test_bundles_deeper_than_the_limit_are_refused_as_in_strict_mode(count: int, *, refused: bool) -> None:
    needs = [f"{{name: b{n}, bundle: {{reference: 'r.io/b{n}:v1.0.0'}}}}" for n in range(count)]
    chain = [bundle(f"b{n}", "1.0.0", f"{{requires: [{need}]}}") for n, need in enumerate(needs[1:])]

    assert bool(solved(needs[0], *chain, bundle(f"b{count - 1}", "1.0.0")).problems) is refused


APP = "{name: app, bundle: {reference: 'r.io/app:v1.0.0'}MORE}"
INFRA = "{name: infra, bundle: {reference: 'r.io/infra:v1.0.0'}}"
APPS = bundle(
    "app", "1.0.0", more="credentials: [{name: conn, env: A}]\nparameters: [{name: x, default: ''}]"
)
APPS += bundle("infra", "1.0.0", more="outputs: [{name: mysql, type: string}, {name: ip, type: string}]")


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("credentials: {conn: '${bundle.dependencies.infra.outputs.mysql}'}", False),
        ("credentials: {conn: '${bundle.dependencies.doesnotexist.outputs.foo}'}", True),
        ("credentials: {conn: '${bundle.dependencies.app.outputs.foo}'}", True),
        ("parameters: {x: '${bundle.outputs.foo}'}", True),
    ],
    ids=["WiringEdges", "DanglingWiringReference", "SelfReference", "RootOutputReference"],
)
@pytest.mark.parametrize("nested", [False, True], ids=["in the root", "in a dependency"])
def test_wiring_is_refused_where_porter_refuses_it_in_strict_mode(
    more: str, *, refused: bool, nested: bool
) -> None:
    wired = f"{APP.replace('MORE', f', {more}')}, {INFRA}"
    others = [bundle("svc", "1.0.0", f"{{requires: [{wired}]}}"), APPS] if nested else [APPS]
    root = "{name: svc, bundle: {reference: 'r.io/svc:v1.0.0'}}" if nested else wired

    if not refused:
        assert solved(root, *others).problems == ()
        return
    with pytest.raises(AssertionError, match="is not there when it is needed"):  # the manifest is refused
        solved(root, *others)


def test_shared_dependency_at_two_depths_is_one() -> None:
    def needing(name: str, other: str, more: str = "") -> str:
        needed = f"{{name: {other}, bundle: {{reference: 'r.io/{other}:v1.0.0'}}{more}}}"
        return bundle(name, "1.0.0", f"{{requires: [{needed}]}}")

    top = ", ".join(f"{{name: {n}, bundle: {{reference: 'r.io/{n}:v1.0.0'}}}}" for n in ("a", "e"))
    shared = group("c")
    others = (needing("a", "b"), needing("b", "c", shared), needing("e", "c", shared), needing("c", "d"))

    solution = solved(top, *others, bundle("d", "1.0.0"))

    names = sorted(instance.package.name for instance in solution.resolved)
    assert (names, solution.problems) == ([f"r.io/{n}" for n in ("a", "b", "c", "d", "e", "root")], ())


def test_bundle_that_cannot_be_had_is_a_conflict_with_the_command_that_adds_it() -> None:
    solution = solved("{name: gone, bundle: {reference: 'r.io/gone:v1.0.0'}}")

    assert [problem.hint for problem in solution.problems if "index add" in problem.hint]


def test_circle_of_a_requirement_and_a_wire_is_refused() -> None:
    """y gets an output of z, which needs the same shared y."""
    wire = "credentials: {conn: '${bundle.dependencies.z.outputs.out}'}"
    y = f"{{name: y, bundle: {{reference: 'r.io/y:v1.0.0'}}, {wire}{group('y-shared')}}}"
    z = "{name: z, bundle: {reference: 'r.io/z:v1.0.0'}}"
    own = f"{{name: y, bundle: {{reference: 'r.io/y:v1.0.0'}}{group('y-shared')}}}"
    others = (
        bundle("x", "1.0.0", f"{{requires: [{y}, {z}]}}"),
        bundle("y", "1.0.0", more="credentials: [{name: conn, env: A}]"),
        bundle("z", "1.0.0", f"{{requires: [{own}]}}", more="outputs: [{name: out, type: string}]"),
    )

    solution = solved("{name: x, bundle: {reference: 'r.io/x:v1.0.0'}}", *others)

    assert solution.problems
