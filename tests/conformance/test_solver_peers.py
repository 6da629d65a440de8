"""Worlds that pub publishes for its solver: the same versions, and explanations of the same packages.

The facts are those of dart-lang/pub, test/version_solver_test.dart, groups basicGraph, withLockFile,
unsolvable, backtracking and prerelease, without sources, development and SDK constraints, which have no
counterpart. Packages are of Crossplane: each has one version in a cluster, as in pub. What differs stands
beside the case, and in docs/contributing/divergences.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.solve.problem import Solution
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_loose
from tests.support.dependency_worlds import pin


class World(NamedTuple):
    """What is published (`name version: need range, ...`), what a user asks for, and pub's answer.

    Without an answer `named` are the packages that pub's explanation names. `ours` is another answer.
    """

    published: str
    asked: str
    answer: str
    named: str = ""
    locked: str = ""
    ours: str | None = None


FOO_BAR = "; ".join(f"foo 1.0.{n}: bar 1.0.{n}; bar 1.0.{n}" for n in range(3))
AFFECTED = (
    "foo 1.0.0; foo 1.0.1: bang 1.0.0; foo 1.0.2: whoop 1.0.0; foo 1.0.3: zoop 1.0.0;"
    "bar 1.0.0: foo <=1.0.1; bang 1.0.0; whoop 1.0.0; zoop 1.0.0"
)
CHAIN = (
    "foo 1.0.0: bar <2.0.0; bar 1.0.0: baz <2.0.0; baz 1.0.0: qux <2.0.0; qux 1.0.0;"
    "foo 2.0.0: bar <3.0.0; bar 2.0.0: baz <3.0.0; baz 2.0.0: qux <3.0.0; qux 2.0.0;"
    "newdep 2.0.0: baz >=1.5.0"
)
GRID = "; ".join(
    f"foo {i}.{j}.0: baz {i}.0.0; bar {i}.{j}.0: baz 0.{j}.0" for i in range(10) for j in range(10)
)
NEEDS = "di >=0.0.32 <0.1.0, collection >=0.9.1 <1.0.0"
ANGULAR = "; ".join(f"angular {version}: {NEEDS}" for version in ("0.10.0", "0.9.11", "0.9.10"))
BRANCHES = (
    "foo 1.0.0: a ^1.0.0, b ^1.0.0; foo 1.1.0: x ^1.0.0, y ^1.0.0; a 1.0.0: b ^2.0.0; b 1.0.0; b 2.0.0;"
    "x 1.0.0: y ^2.0.0; y 1.0.0; y 2.0.0"
)
FEWER = (
    "a 1.0.0: c any; a 2.0.0: c any; a 3.0.0: c any; a 4.0.0: c any; a 5.0.0: c 1.0.0;"
    "b 1.0.0: c any; b 2.0.0: c any; b 3.0.0: c any; b 4.0.0: c 2.0.0; c 1.0.0; c 2.0.0"
)
PARTIAL = (
    "a 1.0.0: x >=1.0.0; b 1.0.0: x <2.0.0; c 1.0.0; c 2.0.0: a any, b any; x 0.0.0; x 1.0.0: y 1.0.0;"
    "x 2.0.0; y 1.0.0; y 2.0.0"
)
WORLDS = {
    "no dependencies": World("a 1.0.0", "", ""),
    "simple dependency tree": World(
        "a 1.0.0: aa 1.0.0, ab 1.0.0; aa 1.0.0; ab 1.0.0; b 1.0.0: ba 1.0.0, bb 1.0.0; ba 1.0.0; bb 1.0.0",
        "a 1.0.0, b 1.0.0",
        "a 1.0.0, aa 1.0.0, ab 1.0.0, b 1.0.0, ba 1.0.0, bb 1.0.0",
    ),
    "shared dependency with overlapping constraints": World(
        "a 1.0.0: shared >=2.0.0 <4.0.0; b 1.0.0: shared >=3.0.0 <5.0.0;"
        "shared 2.0.0; shared 3.0.0; shared 3.6.9; shared 4.0.0; shared 5.0.0",
        "a 1.0.0, b 1.0.0",
        "a 1.0.0, b 1.0.0, shared 3.6.9",
    ),
    "dependent version affects others": World(AFFECTED, "foo <=1.0.2, bar 1.0.0",
        "bang 1.0.0, bar 1.0.0, foo 1.0.1"),
    "circular dependency": World("foo 1.0.0: bar 1.0.0; bar 1.0.0: foo 1.0.0", "foo 1.0.0",
        "bar 1.0.0, foo 1.0.0", ours=""),
    "removed dependency": World("foo 1.0.0; foo 2.0.0; bar 1.0.0; bar 2.0.0: baz 1.0.0; baz 1.0.0: foo 2.0.0",
        "foo 1.0.0, bar any", "bar 1.0.0, foo 1.0.0"),
    "with compatible locked dependency": World(FOO_BAR, "foo any", "bar 1.0.1, foo 1.0.1",
        locked="foo 1.0.1, bar 1.0.1"),
    "with incompatible locked dependency": World(FOO_BAR, "foo >1.0.1", "bar 1.0.2, foo 1.0.2",
        locked="foo 1.0.1, bar 1.0.1"),
    "with unrelated locked dependency": World(f"{FOO_BAR}; baz 1.0.0", "foo any", "bar 1.0.2, foo 1.0.2",
        locked="baz 1.0.0"),
    "unlocks dependencies if necessary": World(CHAIN, "foo any, newdep 2.0.0",
        "bar 2.0.0, baz 2.0.0, foo 2.0.0, newdep 2.0.0, qux 1.0.0",
        locked="foo 1.0.0, bar 1.0.0, baz 1.0.0, qux 1.0.0"),
    "a locked dependency that is the only version": World("foo 1.0.0: bar >=2.0.0; bar 1.0.0; bar 2.0.0",
        "foo any, bar <2.0.0", "", "foo bar", locked="foo 1.0.0, bar 2.0.0"),
    "no version that matches constraint": World("foo 2.0.0; foo 2.1.3", "foo >=1.0.0 <2.0.0", "", "foo"),
    "no version that matches combined constraint": World(
        "foo 1.0.0: shared >=2.0.0 <3.0.0; bar 1.0.0: shared >=2.9.0 <4.0.0; shared 2.5.0; shared 3.5.0",
        "foo 1.0.0, bar 1.0.0",
        "",
        "foo bar shared",
    ),
    "disjoint constraints": World(
        "foo 1.0.0: shared <=2.0.0; bar 1.0.0: shared >3.0.0; shared 2.0.0; shared 4.0.0",
        "foo 1.0.0, bar 1.0.0",
        "",
        "foo bar shared",
    ),
    "no valid solution": World("a 1.0.0: b 1.0.0; a 2.0.0: b 2.0.0; b 1.0.0: a 2.0.0; b 2.0.0: a 1.0.0",
        "a any, b any", "", "a b"),
    "no version that matches while backtracking": World("a 1.0.0; b 1.0.0", "a any, b >1.0.0", "", "b"),
    "issue 18300": World(
        f"analyzer 0.12.2; {ANGULAR}; collection 0.9.0; collection 0.9.1;"
        "di 0.0.37: analyzer >=0.13.0 <0.14.0; di 0.0.36: analyzer >=0.13.0 <0.14.0",
        "angular any, collection any",
        "",
        "angular di analyzer",
    ),
    "circular dependency on older version": World("a 1.0.0; a 2.0.0: b 1.0.0; b 1.0.0: a 1.0.0", "a >=1.0.0",
        "a 1.0.0"),
    "diamond dependency graph": World(
        "a 2.0.0: c ^1.0.0; a 1.0.0; b 2.0.0: c ^3.0.0; b 1.0.0: c ^2.0.0; c 3.0.0; c 2.0.0; c 1.0.0",
        "a any, b any",
        "a 1.0.0, b 2.0.0, c 3.0.0",
    ),
    "backjumps after a partial satisfier": World(PARTIAL, "c any, y ^2.0.0", "c 1.0.0, y 2.0.0"),
    "branching error reporting": World(BRANCHES, "foo ^1.0.0", "", "foo a b x y"),
    "rolls back leaf versions first": World(
        "a 1.0.0: b any; a 2.0.0: b any, c 2.0.0; b 1.0.0; b 2.0.0: c 1.0.0; c 1.0.0; c 2.0.0",
        "a any",
        "a 2.0.0, b 1.0.0, c 2.0.0",
    ),
    "simple transitive": World(
        "foo 1.0.0: bar 1.0.0; foo 2.0.0: bar 2.0.0; foo 3.0.0: bar 3.0.0; bar 1.0.0: baz any;"
        "bar 2.0.0: baz 2.0.0; bar 3.0.0: baz 3.0.0; baz 1.0.0",
        "foo any",
        "bar 1.0.0, baz 1.0.0, foo 1.0.0",
    ),
    "backjump to nearer unsatisfied package": World(
        "a 1.0.0: c 1.0.0; a 2.0.0: c 2.0.0-nonexistent; b 1.0.0; b 2.0.0; b 3.0.0; c 1.0.0",
        "a any, b any",
        "a 1.0.0, b 3.0.0, c 1.0.0",
    ),
    "traverse into package with fewer versions first": World(FEWER, "a any, b any",
        "a 4.0.0, b 4.0.0, c 2.0.0", ours="a 5.0.0, b 3.0.0, c 1.0.0"),
    "complex backtrack": World(f"baz 0.0.0; {GRID}", "foo any, bar any", "bar 9.0.0, baz 0.0.0, foo 0.9.0"),
    "backjump past failed package on disjoint constraint": World(
        "a 1.0.0: foo any; a 2.0.0: foo <1.0.0; foo 2.0.0; foo 2.0.1; foo 2.0.2; foo 2.0.3; foo 2.0.4",
        "a any, foo >2.0.0",
        "a 1.0.0, foo 2.0.4",
    ),
    "prefer stable versions over unstable": World("a 1.0.0; a 1.1.0-dev; a 2.0.0-dev; a 3.0.0-dev", "a any",
        "a 1.0.0"),
    "use latest allowed prerelease if no stable versions match": World(
        "a 1.0.0-dev; a 1.1.0-dev; a 1.9.0-dev; a 3.0.0", "a <2.0.0", "a 1.9.0-dev", ours=""
    ),
    "use an earlier stable version on a < constraint": World("a 1.0.0; a 1.1.0; a 2.0.0-dev; a 2.0.0",
        "a <2.0.0", "a 1.1.0"),
    "prefer a stable version even if constraint mentions unstable": World(
        "a 1.0.0; a 1.1.0; a 2.0.0-dev; a 2.0.0", "a <=2.0.0-dev", "a 1.1.0", ours="a 2.0.0-dev"
    ),
    "use pre-release when desired": World("a 1.0.0; a 1.1.0-dev", "a ^1.1.0-dev", "a 1.1.0-dev"),
    "can upgrade from pre-release": World("a 1.0.0; a 1.1.0-dev; a 1.1.0", "a ^1.1.0-dev", "a 1.1.0"),
    "will use pre-release if depended on in stable release": World(
        "a 1.0.0: b ^1.0.0; a 1.1.0: b ^1.1.0-dev; b 1.0.0; b 1.1.0-dev", "a ^1.0.0", "a 1.1.0, b 1.1.0-dev"
    ),
    "backtracks pre-release choice with direct dependency": World(
        "a 1.0.0: b ^1.0.0; a 1.1.0: b ^1.1.0-dev; b 1.0.0; b 1.1.0-dev",
        "a ^1.0.0, b ^1.0.0",
        "a 1.0.0, b 1.0.0",
    ),
    "backtracking pre-release fails with indirect dependency": World(
        "a 1.0.0: b ^1.0.0; a 1.1.0: b ^1.1.0-dev; b 1.0.0; b 1.1.0-dev; c 1.0.0: b ^1.0.0",
        "a ^1.0.0, c ^1.0.0",
        "a 1.1.0, b 1.1.0-dev, c 1.0.0",
        ours="a 1.0.0, b 1.0.0, c 1.0.0",
    ),
    "issue 3057": World(
        "a 0.12.0; b 0.1.0: c 2.0.0; b 0.9.0-1: c ^1.6.0; b 0.10.0: a 1.0.0; b 0.17.0: a 1.0.0; c 2.0.1",
        "a 0.12.0, b any",
        "",
        "a b c",
    ),
    "pull 3038": World(
        "a 1.1.0: b ^1.0.0; b 1.0.0: c ^1.0.0; c 0.9.0; b 1.1.0-alpha; a 1.0.0: b ^1.1.0-alpha",
        "a ^1.0.0",
        "a 1.0.0, b 1.1.0-alpha",
    ),
}  # fmt: skip


def words(text: str, separator: str = ",") -> Iterator[tuple[str, str]]:
    for each in filter(None, map(str.strip, text.split(separator))):
        name, _, rest = each.partition(" ")
        yield name, rest


def need(name: str, text: str) -> PackageNeed:
    """Return a need in Crossplane's words, where a space between bounds is a comma and any is all."""
    constraint = ">=0.0.0" if text == "any" else text.replace(" ", ", ")
    return PackageNeed(PackageId(Ecosystem.XPKG, name), version_range(Dialect.CROSSPLANE, constraint))


def solved(world: World) -> Solution:
    candidates = []
    for name, rest in words(world.published, ";"):
        version, _, needs = rest.partition(":")
        requires = tuple(Requirement((need(*own),)) for own in words(needs))
        candidates.append(Candidate(PackageId(Ecosystem.XPKG, name), parse_loose(version), requires=requires))
    by_name = {(c.id.name, str(c.version)): c for c in candidates}
    slot = Slot(SlotKind.CLUSTER)
    locked = (by_name[own] for own in words(world.locked))
    installs = (
        Install("", name, Dialect.CROSSPLANE, need(name, text), kind="Configuration")
        for name, text in words(world.asked)
    )
    pins = tuple(pin(Instance(*candidate.id, slot), candidate) for candidate in locked)
    return resolve_cluster(ClusterInputs(tuple(installs), build_catalogue(candidates), pins=pins))


@pytest.mark.parametrize("case", WORLDS)
def test_world_has_the_answer_that_pub_gives_or_ours(case: str) -> None:
    world = WORLDS[case]
    ours = world.answer if world.ours is None else world.ours

    solution = solved(world)

    chosen = sorted(f"{i.package.name} {own.candidate.version}" for i, own in solution.resolved.items())
    if ours or not world.asked:
        assert (chosen, solution.problems) == ([f"{n} {v}" for n, v in words(ours)], ())
    else:
        assert solution.problems


@pytest.mark.parametrize("case", [case for case, world in WORLDS.items() if world.named])
def test_explanation_names_the_packages_that_pub_names_and_no_other_one(case: str) -> None:
    world = WORLDS[case]

    explanations = solved(world).explanations

    text = " ".join(sentence for explanation in explanations for sentence in explanation.sentences)
    text = text.replace(",", " ").replace(";", " ")
    names = {name for name, _ in words(world.published, ";")}
    assert names.intersection(text.split()) == set(world.named.split())
    assert all(explanation.minimal for explanation in explanations)
