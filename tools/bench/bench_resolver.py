"""How long resolution takes: one large catalogue, hard instances, and a fleet of a thousand clusters.

Run as `python tools/bench/bench_resolver.py [--clusters N] [--quick]`. CPU time.
Python looks for cycles as rarely as in the command, and not for those that the row before left.
"""

import argparse
import gc
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from tests.support.values import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.digest import InputDigests
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, PackageLock, lock_solution, next_lock
from reconciler.dependencies.lock.update import ClusterResolver, update_locks
from reconciler.dependencies.model.cluster import (
    Catalogue,
    ClusterInputs,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.instances import Resolved
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.problem import Assignment, BudgetExceeded, ResolutionProblem, Solution
from reconciler.dependencies.solve.sat import SatSolver, encode
from reconciler.dependencies.versions import parse_strict
from tests.support.dependency_worlds import pin, pins_of, solve
from tools.bench.goals import Goals

Wish = tuple[str, str]
T = TypeVar("T")


class Row(NamedTuple):
    """One measured line."""

    what: str
    seconds: float
    limit: float
    note: str = ""


def resolve_all(worlds: Iterable[ClusterInputs]) -> dict[str, Solution]:
    """Resolve every cluster of one run."""
    resolver = ClusterResolver()
    return {inputs.cluster: resolver.solution(inputs) for inputs in worlds}


def outdated(worlds: Iterable[ClusterInputs], locks: Mapping[str, PackageLock]) -> list[str]:
    """Return the clusters with other inputs than their locks were made from."""
    digests = InputDigests()
    return [each.cluster for each in worlds if locks[each.cluster].input_digest != digests.of(each)]


def timed(function: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def candidate(
    name: str, major: int, wishes: Iterator[Wish] | list[Wish], provides: tuple[Gvk, ...] = ()
) -> Candidate:
    needs = tuple(Requirement((need(*wish),)) for wish in wishes)
    return Candidate(
        PackageId(Ecosystem.CARVEL, name), parse_strict(f"{major}.0.0"), requires=needs, provides=provides
    )


def need(name: str, text: str) -> PackageNeed:
    return PackageNeed(PackageId(Ecosystem.CARVEL, name), version_range(Dialect.CARVEL, text))


def world(known: Catalogue, wishes: list[Wish], pins: tuple[Resolved, ...] = ()) -> ClusterInputs:
    installs = tuple(Install("x", name, Dialect.CARVEL, need(name, text)) for name, text in wishes)
    return ClusterInputs(installs, known, pins=pins, choices=ResolverSettings(allow_downgrade=True))


def correlated(packages: int = 200, versions: int = 20, needs: int = 5, window: int = 3) -> Catalogue:
    """Return a catalogue whose packages need versions near their own."""
    random = Random(1)
    found = []
    for number in range(packages):
        others = [random.randrange(packages) for _ in range(needs)]
        for version in range(1, versions + 1):
            low, high = max(1, version - window), min(versions, version + window)
            wishes = [(f"p{other}", f">={low}.0.0 <={high}.0.0") for other in others]
            found.append(candidate(f"p{number}", version, wishes))
    return build_catalogue(found)


def pigeonhole(pigeons: int, holes: int) -> ClusterInputs:
    """Return a world without an answer: more packages than kinds that they could own alone."""
    found = [
        candidate(f"g{pigeon}", hole, [], (Gvk("example.org", "v1", f"Hole{hole}"),))
        for pigeon in range(pigeons)
        for hole in range(1, holes + 1)
    ]
    return world(build_catalogue(found), [(f"g{pigeon}", "") for pigeon in range(pigeons)])


def orphaned_cycle() -> ClusterInputs:
    rows = [
        ("a", 1, []),
        ("a", 2, [("b", "1.0.0")]),
        ("b", 1, [("c", ">=1.0.0 <=2.0.0")]),
        ("b", 2, [("c", "2.0.0")]),
        ("c", 1, [("b", "2.0.0")]),
        ("c", 2, [("a", "1.0.0"), ("b", "1.0.0")]),
    ]
    return world(build_catalogue(candidate(*row) for row in rows), [("a", "")])


def one_conflict(independent: int = 50) -> ClusterInputs:
    found = [candidate(f"i{n}", version, []) for n in range(independent) for version in range(1, 21)]
    for version in range(1, 21):
        found.append(candidate("x", version, [("z", "<=10.0.0")]))
        found.append(candidate("y", version, [("z", ">=11.0.0")]))
        found.append(candidate("z", version, []))
    return world(build_catalogue(found), [(f"i{n}", "") for n in range(independent)] + [("x", ""), ("y", "")])


def decide(asked: ClusterInputs) -> tuple[float, bool]:
    question = build_problem(asked).problem

    seconds, verdict = timed(lambda: SatSolver(encode(question), question.budget).ask())
    return seconds, bool(verdict)


def hard_rows(known: Catalogue) -> Iterator[Row]:
    capped = world(known, [(f"p{n}", "<=12.0.0") for n in range(50)])
    for what, asked, wanted in (
        ("capped fleet", capped, True),
        ("pigeonhole 8 in 7", pigeonhole(8, 7), False),
        ("orphaned cycle", orphaned_cycle(), True),
        ("50 independent, one conflict", one_conflict(), False),
    ):
        seconds, verdict = decide(asked)
        assert verdict is wanted, what
        yield Row(f"decide {what}", seconds, 0.3)


def canonical_row(known: Catalogue) -> Row:
    asked = world(known, [(f"p{n}", "") for n in range(10)])
    seconds, answer = timed(lambda: solve(build_problem(asked).problem))
    assert isinstance(answer, Assignment)
    return Row("canonical 200 x 20 x 5", seconds, 1.5, f"{len(answer.chosen)} pins")


def bump_row(known: Catalogue) -> Row:
    """Bump one root of a locked cluster, and compare the changed pins with the proven least."""
    before = build_problem(world(known, [(f"p{n}", "<=12.0.0") for n in range(10)])).problem
    held = solve(before)
    assert isinstance(held, Assignment)
    pins = tuple(pin(i, before.nodes[i].candidates[place]) for i, place in held.chosen.items())
    wishes = [("p0", ">=16.0.0"), *((f"p{n}", "") for n in range(1, 10))]
    question = build_problem(world(known, wishes, pins)).problem
    seconds, answer = timed(lambda: solve(question))
    assert isinstance(answer, Assignment)
    assert not isinstance(answer, BudgetExceeded)
    old = {pin.instance: pin.version for pin in pins}
    now = {i: question.nodes[i].candidates[place].version.text for i, place in answer.chosen.items()}
    changed = sum(1 for i in old if i in now and now[i] != old[i])
    best = fewest(question)
    assert changed <= 1.25 * best, (changed, best)
    return Row("bump one of ten locked roots", seconds, 5.0, f"{changed} of {len(old)} change, least {best}")


def fewest(question: ResolutionProblem) -> int:
    """Return the least number of changed pins, as a MaxSAT solver proves it."""
    from pysat.examples.rc2 import RC2
    from pysat.formula import WCNF

    formula = encode(question)
    problem = WCNF()
    for clause in formula.clauses:
        problem.append(clause)
    for instance, node in question.nodes.items():
        if node.locked is not None:
            change = formula.new()
            problem.append([change, -formula.present[instance], formula.versions[instance][node.locked]])
            problem.append([-change], weight=1)
    with RC2(problem) as solver:
        solver.compute()
        return int(solver.cost)


def fleet(clusters: int, classes: int, packages: int) -> list[ClusterInputs]:
    """Return clusters of some classes: each class asks for other ranges of the same fifty packages."""
    random = Random(2)
    names = [f"p{n}" for n in range(packages)]
    found = []
    for number, name in enumerate(names):
        for version in range(1, 11):
            others = random.sample(names[number + 1 :], min(3, packages - number - 1))
            wishes = [(other, f">={max(1, version - 4)}.0.0") for other in others]
            found.append(candidate(name, version, wishes))
    known = build_catalogue(found)
    worlds = []
    for cluster in range(clusters):
        number = cluster % classes
        capped = set(Random(number).sample(names, packages // 7))
        wishes = [(name, f"<={1 + number % 9}.0.0" if name in capped else "") for name in names]
        worlds.append(replace(world(known, wishes), cluster=f"edge-{cluster:04}"))
    return worlds


def fleet_rows(clusters: int, classes: int, packages: int) -> Iterator[Row]:
    worlds = fleet(clusters, classes, packages)
    seconds, solutions = timed(lambda: resolve_all(worlds))
    assert all(len(solution.resolved) == packages for solution in solutions.values())
    yield Row(f"{clusters} clusters x {packages}, {classes} classes, from nothing", seconds, 2.0)
    digests = InputDigests()
    bodies = {id(s): lock_solution(w, s) for w, s in zip(worlds, solutions.values(), strict=True)}
    shared = {body.digest: body.packages for body in bodies.values()}
    locks = {}
    relocked = []
    for each in worlds:
        body = bodies[id(solutions[each.cluster])]
        pins = shared[body.digest]
        lock = next_lock(each.cluster, input_digest=digests.of(each), resolution=body)
        locks[each.cluster] = lock
        relocked.append(
            replace(each, pins=pins, locked=pins, installs=tuple(replace(i) for i in each.installs))
        )
    assert len(shared) == classes
    seconds, late = timed(lambda: outdated(relocked, locks))
    assert late == []
    yield Row(f"the same, re-checked against {len(shared)} locked resolutions", seconds, 0.2)
    again = resolve_all(relocked[:classes])
    assert all(pins_of(again[w.cluster]) == pins_of(solutions[w.cluster]) for w in relocked[:classes])


def second_run_share(clusters: int = 400, packages: int = 72) -> float:
    """Return what re-checking as many different clusters costs, as a share of resolving them."""
    resolved, checked = fleet_rows(clusters, clusters, packages)
    return checked.seconds / resolved.seconds


def unsolved_ratio(clusters: int = 40) -> float:
    """Return how much longer a fleet takes in which no cluster has a complete solution.

    Each cluster asks for one thing more: what needs a package that nobody publishes, or several of them, for
    what contradicts something else, or for a version that nobody publishes.
    """
    worlds = fleet(clusters, clusters, 30)
    several = [c for versions in worlds[0].catalogue.packages.values() for c in versions]
    several += [
        candidate("alone", 1, [("missing", "")]),
        candidate("early", 1, [("p0", ">=1.0.0"), *((f"gone{n}", "") for n in range(8))]),
        candidate("low", 1, [("p3", "<=2.0.0")]),
        candidate("high", 1, [("p3", ">=9.0.0")]),
    ]
    known = build_catalogue(several)
    worlds = [replace(world, catalogue=known) for world in worlds]
    wishes = [[("alone", "")], [("early", "")], [("low", ""), ("high", "")], [("p2", ">=11.0.0")]]
    worse = []
    for number, own in enumerate(worlds):
        more = (Install("x", f"more-{n}", Dialect.CARVEL, need(n, text)) for n, text in wishes[number % 4])
        worse.append(replace(own, installs=(*own.installs, *more)))

    def durations(inputs: list[ClusterInputs]) -> Iterator[float]:
        while True:
            seconds, decided = timed(lambda: update_locks(FleetInputs(tuple(inputs)), FleetLocks()))
            assert isinstance(decided, LockUpdate)
            assert all(scope.finished is (inputs is worlds) for scope in decided.scopes)
            yield seconds

    turns = itertools.islice(zip(durations(worlds), durations(worse), strict=True), 3)
    solved, unsolved = (min(own) for own in zip(*turns, strict=True))
    return float(unsolved / solved)


def growth(clusters: int, rounds: int = 5) -> float:
    """Return the power of the number of clusters with which a first run grows.

    The fleet is compared with one of a quarter of its size that is resolved four times: both then take as
    long, and other work on the machine slows both alike. They take turns, and the least of each counts.
    """

    def durations(size: int, times: int) -> Iterator[float]:
        worlds = fleet(size, size // 4, 30)
        while True:
            yield timed(lambda: [len(resolve_all(worlds)) for _ in range(times)])[0] / times

    turns = zip(durations(clusters // 4, 4), durations(clusters, 1), strict=True)
    small, large = (min(own) for own in zip(*itertools.islice(turns, rounds), strict=True))
    return math.log(large / small) / math.log(4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    gc.disable()  # as in the process of a command
    goals = Goals(__file__)
    catalogue = correlated()
    measured = [canonical_row(catalogue), *hard_rows(catalogue)]
    if not options.quick:
        measured += [bump_row(catalogue), *fleet_rows(options.clusters, 50, 50)]
    for row in measured:
        goals.cpu(row.what, row.seconds, row.limit, note=row.note)
    if not options.quick:
        goals.at_most("second run of 400 unlike clusters with 28,800 pins", second_run_share(), 1 / 3, "x")
        goals.at_most("unsolved clusters against solved ones", unsolved_ratio(), 2, "x")
        goals.at_most("growth exponent of resolution", growth(400), 1.05)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
