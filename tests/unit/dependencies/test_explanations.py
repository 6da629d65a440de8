"""Explanations of worlds without a solution: what they say, and where."""

from pathlib import Path

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
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
    version_range,
)
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.problem import BudgetExceeded
from reconciler.dependencies.solve.resolve import UnverifiedSolutionError, resolve_cluster
from reconciler.dependencies.versions import parse_strict
from tests.support.dependency_manifests import FILE, crossplane, install, package, provider, world_of
from tests.support.dependency_worlds import pin, solve
from tests.support.values import replace

WORLDS = sorted((Path(__file__).parents[3] / "fixtures/explanations").iterdir())
WEB = install("shop", "web.io", "")
SCREEN = 24


@pytest.mark.parametrize("folder", WORLDS, ids=[folder.name for folder in WORLDS])
def test_a_conflict_is_told_as_a_chain_of_facts_with_places_and_the_next_step(
    folder: Path, *, update_golden: bool
) -> None:
    solution = resolve_cluster(world_of((folder / "manifests.yaml").read_text()))
    (explanation,) = solution.explanations

    text = f"{explanation.code}\n{explanation}\n"
    if update_golden:
        (folder / "explanation.txt").write_text(text)
    assert text == (folder / "explanation.txt").read_text()
    assert explanation.minimal
    assert explanation.hint
    assert {place.path for place in explanation.places} == {FILE}
    reasons = {"E-CYCLE": Reason.DEPENDENCY_CYCLE, "E-OWN-CRD": Reason.OWNERSHIP_CONFLICT}
    reason = reasons.get(explanation.code, Reason.DEPENDENCY_CONFLICT)
    assert {problem.reason for problem in solution.problems} == {reason}
    assert all(problem.hint == explanation.hint for problem in solution.problems)


def locked(version: str, *, downgrade: bool) -> ClusterInputs:
    def candidate(text: str, withdrawn: str = "") -> Candidate:
        return Candidate(PackageId(Ecosystem.CARVEL, "db.io"), parse_strict(text), withdrawn=withdrawn)

    need = PackageNeed(PackageId(Ecosystem.CARVEL, "db.io"), version_range(Dialect.CARVEL, version))
    slot = Slot(SlotKind.INSTALL, "x", ("mine",))
    return ClusterInputs(
        (Install("x", "mine", Dialect.CARVEL, need, kind="PackageInstall"),),
        build_catalogue([candidate("1.0.0"), candidate("2.0.0", "breaks on Tuesdays"), candidate("3.0.0")]),
        pins=(pin(Instance(*need.id, slot), candidate("3.0.0")),),
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
    assert "certs.io may be installed only once in a namespace" in str(explanation)
    assert resolve_cluster(world_of(text + package("certs.io", "1.0.0"))).explanations == ()


def test_running_out_of_steps_is_no_verdict() -> None:
    world = world_of(WEB + package("web.io", "1.0.0"), choices=ResolverSettings(budget=0))

    assert solve(build_problem(world).problem) == BudgetExceeded(0)
    assert [problem.reason for problem in resolve_cluster(world).problems] == [Reason.STEP_BUDGET_EXCEEDED]


def exact_pins(packages: int, versions: int) -> ClusterInputs:
    """Return packages of which each version requires exactly one version of the next, and two installs."""

    def need(number: int, version: int | str) -> PackageNeed:
        id_ = PackageId(Ecosystem.CARVEL, f"p{number}.io")
        return PackageNeed(
            id_, version_range(Dialect.CARVEL, f"{version}.0.0"), Location("m.yaml", number + 1)
        )

    def candidate(number: int, version: int) -> Candidate:
        last = number + 1 == packages
        requires = (
            () if last else (Requirement((need(number + 1, version),), location=Location("p.yaml", 9)),)
        )
        id_ = PackageId(Ecosystem.CARVEL, f"p{number}.io")
        return Candidate(id_, parse_strict(f"{version}.0.0"), requires=requires, location=Location("p.yaml"))

    installs = tuple(
        Install("x", name, Dialect.CARVEL, need(number, version), kind="PackageInstall")
        for name, number, version in (("top", 0, 3), ("low", packages - 1, 4))
    )
    everything = (candidate(n, v) for n in range(packages) for v in range(1, versions + 1))
    return ClusterInputs(installs, build_catalogue(everything))


def test_a_chain_of_sixty_exact_pins_fits_on_a_screen() -> None:
    (explanation,) = resolve_cluster(exact_pins(60, 12)).explanations

    lines = str(explanation).splitlines()
    assert explanation.minimal
    assert len(lines) < SCREEN, lines
    assert lines[0].startswith("1. PackageInstall x/top asks for p0.io 3.0.0")
    assert "48 more requirements in between, p6.io → p7.io → … → p53.io" in explanation.sentences[7]
    assert explanation.sentences[-1].startswith("PackageInstall x/low asks for p59.io 4.0.0")


def test_an_explanation_ends_when_its_steps_are_used_up() -> None:
    inputs = exact_pins(30, 5)
    limited = replace(inputs, choices=replace(inputs.choices, explain_steps=5))

    (explanation,) = resolve_cluster(limited).explanations
    assert not explanation.minimal
    assert len(str(explanation).splitlines()) < SCREEN


@pytest.mark.parametrize(("cluster", "subject"), [("edge", "edge"), ("", "the cluster")])
def test_wrong_solution_is_a_defect_with_each_violation(cluster: str, subject: str) -> None:
    error = UnverifiedSolutionError(cluster, ("first", "second"))

    assert str(error) == f"the resolution of {subject} is wrong: first; second"
    assert error.violations == ("first", "second")
    assert error.hint == "Please report this with the manifests and the index."


@pytest.mark.parametrize(
    ("text", "kin"),
    [
        (provider("p", "v1.0.0").replace("x.io/p", "y.io/p") + crossplane("p", "v1.0.0"),
            "x.io/p is called so, too"),
        (install("app", "app.io.1.0.0", "1.0.0") + package("app.io", "1.0.0"),
            "app.io is, and a version is no part of a name"),
    ],
)  # fmt: skip
def test_name_that_nobody_published_is_told_beside_the_one_that_is_meant(text: str, kin: str) -> None:
    (told,) = resolve_cluster(world_of(text)).explanations

    assert told.sentences[0].endswith(f"is published; {kin}")
