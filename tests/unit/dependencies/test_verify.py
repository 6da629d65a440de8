"""The verifier of solutions: damaged ones, each with the sentence that names what is wrong."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from reconciler.dependencies.lock.format import lock_solution, with_lock
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import Candidate, Gvk, InstallationType
from reconciler.dependencies.solve import build_problem
from reconciler.dependencies.solve.problem import ConflictCode, Explanation, Solution
from reconciler.dependencies.solve.resolve import UnverifiedSolutionError, resolve_cluster
from reconciler.dependencies.solve.verify import verify
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
from tests.support.dependency_worlds import pin
from tests.support.values import replace

DB, OLD_DB, NEW_DB = (package("db.io", version) for version in ("1.5.0", "1.0.0", "2.0.0"))
SHOP = install("shop", "web.io", ">=1.0.0") + package("web.io", "1.0.0", needs("db.io", ">=1.0.0 <2.0.0"))
WORLD = SHOP + package("web.io", "0.9.0") + DB + OLD_DB + NEW_DB + package("spare.io", "1.0.0")
API = "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}"
ISSUER = "provides: [{apiVersion: certs.io/v1, kind: Issuer}]"
USING = install("a", "a.io", "") + package("a.io", "1.0.0", API)
SERVED = "---\n{kind: Cluster, apis: [certs.io/v1/Issuer], platforms: {kubernetes: v1.31.0}}\n"
TWO = install("a", "a.io", "") + install("b", "b.io", "")
LIKED = package("web.io", "1.0.0", "{package: {refName: db.io, version: '>=2.0.0'}, optional: true}")
MYSQL = "{requires: [{name: db, interface: {id: io.cnab.interface.mysql, version: 5.x}}]}"
BOUND = "custom: {reconciler.dev/dependencies: {db: there}}"
THERE = "---\n{kind: Cluster, installations: [{namespace: prod, name: there, package: 'bundle:r.io/db', "
THERE += "version: 1.0.0, provides: {io.cnab.interface.mysql: 5.7.0}}]}\n"

EITHER = package("web.io", "1.0.0", "{or: [" + f"{needs('a.io')}, {needs('b.io')}" + "]}")
EITHER += package("a.io", "1.0.0") + package("b.io", "1.0.0")
DECLINED = "dependencies: {override: [{refName: a.io, install: false}]}"
ISSUER_KIND = Gvk("certs.io", "v1", "Issuer")

Damage = Callable[[ClusterInputs, Solution], tuple[ClusterInputs, Solution]]


def instance_of(solution: Solution, name: str) -> Instance:
    return next(instance for instance in solution.resolved if instance.package.name == name)


def changed(name: str, version: str = "", **fields: object) -> Damage:
    """Give an instance another version, or other fields."""

    def damage(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
        instance = instance_of(solution, name)
        candidates = inputs.catalogue.candidates(instance.package)
        other = [c for c in candidates if c.version.text == version]
        chosen = solution.candidates | ({instance: other[0]} if other else {})
        resolved = solution.resolved | {instance: replace(solution.resolved[instance], **fields)}
        return inputs, replace(solution, resolved=resolved, candidates=chosen)

    return damage


def removed(name: str) -> Damage:
    def damage(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
        kept = {i: r for i, r in solution.resolved.items() if i.package.name != name}
        return inputs, replace(solution, resolved=kept)

    return damage


def recatalogued(change: Callable[[Candidate], Candidate | None]) -> Damage:
    """Change the candidates of the catalogue, in the solution too."""

    def damage(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
        candidates = [c for versions in inputs.catalogue.packages.values() for c in versions]
        catalogue = build_catalogue(kept for c in candidates if (kept := change(c)) is not None)
        chosen = {i: change(candidate) or candidate for i, candidate in solution.candidates.items()}
        return replace(inputs, catalogue=catalogue), replace(solution, candidates=chosen)

    return damage


def withdrawn(candidate: Candidate) -> Candidate:
    return replace(candidate, withdrawn="broken") if candidate.id.name == "db.io" else candidate


def vanished(candidate: Candidate) -> Candidate | None:
    return None if candidate.id.name == "db.io" else candidate


def added(name: str) -> Damage:
    """Add an instance that nothing requires."""

    def damage(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
        (candidate,) = next(v for i, v in inputs.catalogue.packages.items() if i.name == name)
        instance = Instance(*candidate.id, instance_of(solution, "db.io").slot)
        resolved = solution.resolved | {instance: pin(instance, replace(candidate, requires=()))}
        chosen = solution.candidates | {instance: candidate}
        return inputs, replace(solution, resolved=resolved, candidates=chosen)

    return damage


def looped(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
    """Let the dependency need its parent."""
    first = instance_of(solution, "x.io/a")
    (need,) = solution.resolved[first].dependencies
    second = instance_of(solution, "x.io/b"), need.signature
    asked = solution.requirements | {second: solution.requirements[first, need.signature]}
    damage = changed("x.io/b", dependencies=(replace(need, resolved=first),))
    return damage(inputs, replace(solution, requirements=asked))


def preempted(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
    """Say that the install gave way, where the lock holds another version of it."""
    older = install("shop", "web.io", "") + package("web.io", "0.9.0")
    inputs, _ = locked_at(older)(inputs, solution)
    why = Explanation(ConflictCode.OWN_CRD, (), stalled=(str(inputs.installs[0]),))
    return inputs, replace(solution, explanations=(why,))


def with_inputs(text: str) -> Damage:
    return lambda _, solution: (world_of(text), solution)


def locked_at(text: str) -> Damage:
    """Let the lock hold what another text resolves to."""

    def damage(inputs: ClusterInputs, solution: Solution) -> tuple[ClusterInputs, Solution]:
        other = world_of(text)
        return with_lock(inputs, lock_solution(other, resolve_cluster(other))), solution

    return damage


class Row(NamedTuple):
    """A world, what is done to its solution, and the sentence about it."""

    text: str
    damage: Damage
    sentence: str


ROWS = {
    "an install is missing": Row(WORLD, removed("web.io"), "shop is not there"),
    "an install has another version than it asks for": Row(WORLD, changed("web.io", "0.9.0"),
        "asks for web.io >=1.0.0 and gets 0.9.0"),
    "a dependency is out of its range": Row(WORLD, changed("db.io", "2.0.0"),
        "and carvel:db.io@namespace/prod is not that"),
    "a dependency is missing": Row(WORLD, removed("db.io"), "is not that"),
    "a requirement is met by nothing": Row(WORLD, changed("web.io", dependencies=()), "and nothing meets it"),
    "a version is not published": Row(WORLD, recatalogued(vanished), "is no candidate of"),
    "a version is withdrawn": Row(WORLD, recatalogued(withdrawn), "db.io 1.5.0 is withdrawn"),
    "a package does not run on the platform": Row(
        SHOP + package("db.io", "1.5.0", "kubernetesVersionSelection: {constraints: '>=1.32.0'}"),
        lambda inputs, solution: (replace(inputs, presence=world_of(SERVED).presence), solution),
        "needs kubernetes >=1.32.0, and the cluster has v1.31.0",
    ),
    "a version is below the locked one": Row(
        SHOP + OLD_DB + DB,
        lambda inputs, solution: changed("db.io", "1.0.0")(*locked_at(SHOP + OLD_DB + DB)(inputs, solution)),
        "db.io 1.0.0 is below what is locked",
    ),
    "an optional package that is there does not fit": Row(
        install("shop", "web.io", "") + LIKED + install("mine", "db.io", "") + NEW_DB + DB,
        changed("db.io", "1.5.0", dependencies=()),
        "would need db.io >=2.0.0, and db.io 1.5.0 is there",
    ),
    "a package is in a cluster twice": Row(
        TWO.replace("b.io", "a.io") + package("a.io", "1.0.0"),
        recatalogued(lambda c: replace(c, installation=InstallationType.ONE_PER_CLUSTER)),
        "cannot both stand",
    ),
    "a package is in a namespace twice": Row(
        TWO.replace("b.io", "a.io") + package("a.io", "1.0.0"),
        recatalogued(lambda c: replace(c, installation=InstallationType.ONE_PER_NAMESPACE)),
        "cannot both stand",
    ),
    "two packages own one kind": Row(
        TWO + package("a.io", "1.0.0") + package("b.io", "1.0.0"),
        recatalogued(lambda c: replace(c, provides=(ISSUER_KIND,))),
        "both own Issuer.certs.io",
    ),
    "two packages own one composition": Row(
        TWO + package("a.io", "1.0.0") + package("b.io", "1.0.0"),
        recatalogued(lambda c: replace(c, compositions=("network",))),
        "both own network",
    ),
    "a package is not required": Row(WORLD, added("spare.io"), "nothing requires carvel:spare.io"),
    "packages require one another in a circle": Row(
        provider("a", "v1.0.0", "Configuration")
        + crossplane("a", "v1.0.0", "[{configuration: x.io/b}]")
        + crossplane("b", "v1.0.0"),
        looped,
        "is needed by what it needs",
    ),
    "an API is not served": Row(
        USING + SERVED,
        lambda inputs, solution: (replace(inputs, presence=world_of("").presence), solution),
        "requires the API certs.io/v1/Issuer, and api:cluster is not that",
    ),
    "a package does not bring the API": Row(
        USING + install("b", "b.io", "") + package("b.io", "1.0.0", ISSUER),
        recatalogued(lambda c: replace(c, provides=())),
        "requires the API certs.io/v1/Issuer",
    ),
    "a bundle does not implement the interface": Row(
        installation("a", "a")
        + bundle("a", "1.0.0", MYSQL)
        + installation("db", "db")
        + bundle("db", "1.0.0", "{provides: [{interface: io.cnab.interface.mysql, version: 5.7.0}]}"),
        recatalogued(lambda c: replace(c, interfaces=())),
        "requires the interface io.cnab.interface.mysql 5.x",
    ),
    "an observed installation does not implement the interface": Row(
        installation("a", "a") + bundle("a", "1.0.0", MYSQL) + THERE,
        lambda inputs, solution: (replace(inputs, presence=world_of("").presence), solution),
        "requires the interface io.cnab.interface.mysql 5.x",
    ),
    "a binding is not there": Row(installation("a", "a", more=BOUND) + bundle("a", "1.0.0", MYSQL) + THERE,
        with_inputs(installation("a", "a") + bundle("a", "1.0.0", MYSQL) + THERE),
        "requires the interface io.cnab.interface.mysql 5.x"),
    "a declined package is installed": Row(install("shop", "web.io", "") + EITHER,
        with_inputs(install("shop", "web.io", "", DECLINED) + EITHER),
        "requires a.io or b.io, and carvel:a.io@namespace/prod is not that"),
    "an install that gave way does not keep its version": Row(install("shop", "web.io", "") + DB + LIKED,
        preempted, "gives way and does not keep 0.9.0"),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_damaged_solution_is_refused_with_what_is_wrong(row: Row) -> None:
    inputs = world_of(row.text)
    solution = resolve_cluster(inputs)
    assert verify(inputs, solution) == ()

    violations = verify(*row.damage(inputs, solution))

    assert any(row.sentence in violation for violation in violations), violations


@pytest.mark.parametrize(
    ("settings", "violation"),
    [
        (
            "dependencies: {override: [{refName: db.io, versionSelection: {constraints: '>=2.0.0'}}]}",
            "db.io >=2",
        ),
        ("dependencies: {override: [{refName: db.io, install: false}]}", "web.io 1.0.0 requires db.io"),
        ("dependencies: {install: false}", "web.io 1.0.0 requires db.io"),
    ],
)
def test_a_solver_that_misreads_what_a_user_overrides_is_noticed(
    settings: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = install("shop", "web.io", "", settings) + package("web.io", "1.0.0", needs("db.io", "1.5.0"))
    text += DB + NEW_DB + install("mine", "db.io", "")
    resolve_cluster(world_of(text))
    monkeypatch.setattr(build_problem, "effective_requirement", lambda requirement, _: requirement)

    with pytest.raises(UnverifiedSolutionError, match=violation):
        resolve_cluster(world_of(text))
