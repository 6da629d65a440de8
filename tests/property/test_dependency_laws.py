"""Laws of resolution: the answer is the one that trying everything singles out, in any order of the input."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.digest import InputDigests
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, lock_solution, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import Catalogue, ClusterState, build_catalogue
from reconciler.dependencies.model.instances import record_bytes
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.problem import Assignment, ResolutionProblem, Unsatisfiable
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.solve.verify import verify
from tests.property.exhaustive import answers, canonical, restrict
from tests.support.dependency_worlds import RULES, crowded_world, pin, shared_world, small_world, solve
from tests.support.samples import ALL
from tests.support.values import replace
from tools.bench import bench_resolver as bench

slow = pytest.mark.slow
SEEDS = 2500 if ALL else 1000


def worlds(number: int) -> pytest.MarkDecorator:
    """Draw some worlds in every run of the tests, and so many where what is slow is tried, too."""
    seeds = [range(number // 10), pytest.param(range(number // 10, number), marks=slow)]
    return pytest.mark.parametrize("seeds", seeds, ids=["some", "many"])


@worlds(SEEDS)
def test_the_answer_is_the_one_that_trying_everything_singles_out(seeds: range) -> None:
    assert seeds
    for seed in seeds:
        question = build_problem(small_world(seed)[0]).problem
        expected = canonical(question)
        found = solve(question)

        if expected is None:
            assert isinstance(found, Unsatisfiable), seed
        else:
            assert isinstance(found, Assignment), seed
            assert (found.chosen, found.selected, found.skipped) == (
                expected.chosen,
                expected.selected,
                expected.skipped,
            ), seed


@worlds(400)
def test_what_is_shared_bound_or_asked_for_by_interface_is_decided_like_trying_everything(
    seeds: range,
) -> None:
    ways: Counter[str] = Counter()
    for seed in seeds:
        world = shared_world(seed)
        question = build_problem(world).problem
        expected, found = canonical(question), solve(question)

        if expected is None:
            assert isinstance(found, Unsatisfiable), seed
            facts = frozenset(found.causes)
            assert not answers(restrict(question, facts)), seed
            assert all(answers(restrict(question, facts - {fact})) for fact in facts), seed
        else:
            assert found == expected, seed
            assert resolve_cluster(world).explanations == (), seed
            ways.update(way.via for way in found.selected.values())
    # Ten times as many worlds have every way.
    assert len(ways) >= min(6, len(seeds) // 10)


@worlds(SEEDS)
def test_an_explanation_contradicts_itself_and_no_fact_of_it_is_idle(seeds: range) -> None:
    assert seeds
    for seed in seeds:
        question = build_problem(small_world(seed)[0]).problem
        found = solve(question)
        if isinstance(found, Unsatisfiable):
            facts = frozenset(found.causes)
            assert found.minimal, seed
            assert not answers(restrict(question, facts)), seed
            assert all(answers(restrict(question, facts - {fact})) for fact in facts), seed


@worlds(400)
def test_the_verifier_accepts_every_answer_and_no_damaged_one(seeds: range) -> None:
    damaged = 0
    for seed in seeds:
        world = small_world(seed)[0]
        solution = resolve_cluster(world)
        assert verify(world, solution) == (), seed
        for instance, one in solution.resolved.items():
            without = {i: other for i, other in solution.resolved.items() if i != instance}
            assert verify(world, replace(solution, resolved=without)), seed
            for need in one.dependencies:
                kept = tuple(other for other in one.dependencies if other is not need)
                less = {**solution.resolved, instance: replace(one, dependencies=kept)}
                if not need.optional:
                    assert verify(world, replace(solution, resolved=less)), seed
            damaged += 1
    assert damaged > len(seeds)


@worlds(500)
def test_what_was_locked_is_decided_again_and_no_byte_of_the_lock_moves(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        world = replace(small_world(seed)[0], pins=(), locked=())
        solution = resolve_cluster(world)
        if not solution.explanations:
            body = lock_solution(world, solution)
            again = replace(world, pins=body.packages, locked=body.packages)
            assert record_bytes(lock_solution(again, resolve_cluster(again))) == record_bytes(body), seed
            assert InputDigests().of(again) == InputDigests().of(world), seed
            compared += 1
    assert compared > 0.4 * len(seeds)


@slow
def test_the_worlds_exercise_every_rule_and_both_verdicts() -> None:
    satisfiable: Counter[str] = Counter()
    unsatisfiable: Counter[str] = Counter()
    for seed in range(SEEDS):
        world, rules = small_world(seed)
        verdict = satisfiable if answers(build_problem(world).problem) else unsatisfiable
        verdict.update(["all", *rules])

    assert 0.3 <= unsatisfiable["all"] / SEEDS <= 0.7
    assert all(satisfiable[rule] >= 10 and unsatisfiable[rule] >= 10 for rule in RULES)


@slow
@pytest.mark.parametrize("seed", range(6))
def test_a_bump_changes_as_few_pins_as_a_maxsat_solver_proves_possible(seed: int) -> None:
    known = bench.correlated(packages=40, versions=8, needs=3, window=1 + seed % 2)
    before = build_problem(bench.world(known, [(f"p{n}", "<=4.0.0") for n in range(5)])).problem
    held = solve(before)
    assert isinstance(held, Assignment)
    pins = tuple(pin(i, before.nodes[i].candidates[place]) for i, place in held.chosen.items())
    installs = [(f"p{seed}", f">={5 + seed % 3}.0.0"), *((f"p{n}", "") for n in range(5) if n != seed)]
    question = build_problem(bench.world(known, installs, pins)).problem

    answer = solve(question)

    assert isinstance(answer, Assignment)
    changed = sum(
        node.locked is not None and answer.chosen.get(instance, node.locked) != node.locked
        for instance, node in question.nodes.items()
    )
    assert 0 < changed == bench.fewest(question)


@worlds(150)
def test_the_order_of_the_input_does_not_matter(seeds: range) -> None:
    assert seeds
    for seed in seeds:
        world = small_world(seed)[0]
        random = Random(seed)
        candidates = [c for several in world.catalogue.packages.values() for c in several]
        random.shuffle(candidates)
        shuffled = replace(
            world,
            catalogue=build_catalogue(candidates),
            installs=tuple(random.sample(world.installs, len(world.installs))),
            pins=tuple(random.sample(world.pins, len(world.pins))),
            locked=tuple(random.sample(world.locked, len(world.locked))),
        )

        assert solve(build_problem(shuffled).problem) == solve(build_problem(world).problem), seed


@worlds(700)
def test_only_installs_of_a_contradiction_stall(seeds: range) -> None:
    """Judge by trying everything: without a stalled install, some contradiction would be none."""
    several: Counter[str] = Counter()
    for seed in seeds:
        world = crowded_world(seed)
        question = build_problem(world).problem
        if answers(question):
            continue
        solution = resolve_cluster(world)
        assert verify(world, solution) == (), seed
        stalled = {problem.subject for problem in solution.problems}
        contradictions = _contradictions(question)
        for name in sorted(stalled):
            if not any(name in names for names in contradictions):
                # Another install asks for a package that it needs, in a version that is not to be had.
                assert _needs_any(question, name, stalled - {name}), (seed, name, contradictions)
        proceeding = {demand.cause.subject for demand in question.roots} - stalled
        several.update(stalled=len(stalled) > 1, others=bool(proceeding))
    assert several["stalled"] > len(seeds) / 8
    assert several["others"] > len(seeds) / 4


def _contradictions(question: ResolutionProblem) -> list[frozenset[str]]:
    """Return the smallest sets of installs that have no answer together, by trying all sets."""
    smallest: list[frozenset[str]] = []
    for size in range(1, len(question.roots) + 1):
        for roots in combinations(question.roots, size):
            names = frozenset(demand.cause.subject for demand in roots)
            if not any(less <= names for less in smallest) and not answers(replace(question, roots=roots)):
                smallest.append(names)
    return smallest


def _needs_any(question: ResolutionProblem, name: str, others: set[str]) -> bool:
    """Tell whether an install may need what other installs ask for."""
    targets = {
        demand.cause.subject: {way.instance for way in demand.alternatives} for demand in question.roots
    }
    reached = list(targets[name])
    for instance in reached:
        for group in question.nodes[instance].requirements if instance else ():
            reached += [
                way.instance for demand in group for way in demand.alternatives if way.instance not in reached
            ]
    return any(not targets[other].isdisjoint(reached) for other in others)


MISNAMED = "nowhere.io"


@worlds(300)
def test_a_manifest_that_names_an_unknown_package_changes_no_pin_and_removes_nothing(seeds: range) -> None:
    compared: Counter[str] = Counter()
    for seed in seeds:
        for kind, drawn in (("small", small_world(seed)[0]), ("shared", shared_world(seed))):
            world = replace(drawn, pins=(), locked=(), cluster="dev")
            before = update_locks(FleetInputs((world,)), FleetLocks())
            if before.problems:
                continue
            locks = read_locks(before.files)
            for install in world.installs:
                other = replace(install.need, id=install.need.id._replace(name=MISNAMED))
                installs = tuple(replace(i, need=other) if i is install else i for i in world.installs)
                after = update_locks(FleetInputs((replace(world, installs=installs),)), locks)

                assert {problem.subject for problem in after.problems} == {str(install)}, (kind, seed)
                assert _pins(after) == _pins(before), (kind, seed, install)
                compared[kind] += 1
    assert min(compared["small"], compared["shared"]) > len(seeds) / 4


def _pins(decision: LockUpdate) -> list[tuple[str, str, str, str]]:
    packages = [p for scope in decision.scopes if scope.after for p in scope.after.resolution.packages]
    return [(str(package.instance), package.version, package.object, package.owner) for package in packages]


@worlds(120)
def test_clusters_of_one_catalogue_are_resolved_as_if_each_had_its_own(seeds: range) -> None:
    """What versions demand is read once for all clusters, but for what one of them has already."""
    differing = 0
    for seed in seeds:
        world = (small_world(seed)[0], shared_world(seed), crowded_world(seed))[seed % 3]
        clusters = [world, replace(world, pins=(), locked=()), replace(world, presence=ClusterState())]
        clusters += [replace(world, installs=(install,), pins=()) for install in world.installs]
        answers_alone = {}
        for number, inputs in enumerate(clusters):
            fresh = Catalogue(
                **{f: getattr(world.catalogue, f) for f in ("packages", "names", "refused", "local")}
            )
            answers_alone[number] = resolve_cluster(replace(inputs, catalogue=fresh))

        for number in Random(seed).sample(range(len(clusters)), len(clusters)):
            assert resolve_cluster(clusters[number]) == answers_alone[number], seed
        differing += len({str(answer) for answer in answers_alone.values()}) > 1
    assert differing > len(seeds) / 3
