"""Inputs that must be bound: what generated bundles ask for, and neither parent nor user gives."""

from collections.abc import Callable, Iterator

from reconciler.dependencies.model import Install, Requirement
from reconciler.dependencies.solution import Resolved, Solution
from reconciler.dependencies.world import Instance, World
from reconciler.errors import Location, Problem
from reconciler.reasons import Reason


def unbound_inputs(world: World, solution: Solution) -> Iterator[Problem]:
    """Yield a problem for every input of a generated package that nobody gives, at its user's install.

    The parent gives what its requirement names; the user gives parameters as `alias#name`. Where an
    install names credential sets, which credentials are in them is its own matter.

    Source: Porter's dependency proposal: inputs of whoever implements an interface are unmapped.
    """
    for instance, one in sorted(solution.resolved.items()):
        if one.user or not one.candidate.inputs:
            continue
        for parent in one.requested_by:
            install = _root(world, solution, parent)
            for requirement in _wanting(solution.resolved[parent], instance):
                given = _given(requirement, install)
                missing = [name for name in one.candidate.inputs if not given(name)]
                if missing:
                    yield _problem(one, requirement, install, missing)


def _wanting(parent: Resolved, instance: Instance) -> Iterator[Requirement]:
    return (edge.requirement for edge in parent.edges if edge.target == instance and edge.active)


def _given(requirement: Requirement, install: Install | None) -> Callable[[str], bool]:
    """Return the test whether an input is given, by the requirement or by the user's install."""
    known = set(requirement.gives)
    sets = False
    if install is not None:
        own = (name.rpartition("#") for name in install.gives)
        known |= {f"parameter {name}" for alias, _, name in own if alias == requirement.alias}
        sets = install.gives_credentials
    return lambda name: name in known or (sets and name.startswith("credential "))


def _root(world: World, solution: Solution, instance: Instance) -> Install | None:
    """Return the user's install that an instance is there for, the lowest of several."""
    queue, seen = [instance], {instance}
    for one in queue:
        install = world.install_of(one)
        if install is not None:
            return install
        parents = [parent for parent in solution.resolved[one].requested_by if parent not in seen]
        seen.update(parents)
        queue += parents
    return None


def _problem(one: Resolved, requirement: Requirement, install: Install | None, missing: list[str]) -> Problem:
    alias = requirement.alias or one.instance.package.name
    message = f"{one.candidate} needs the {', the '.join(missing)}, which nobody gives it"
    names = [name.partition(" ")[2] for name in missing if name.startswith("parameter ")]
    hint = f"Bind {alias} to an installation that is there"
    if names:
        hint = f"Give it as the parameter {', '.join(f'{alias}#{name}' for name in names)}, or {hint.lower()}"
    where = install.location if install else Location("")
    return Problem(where, Reason.UNBOUND_INPUT, message, f"{hint}.", str(install or one.instance))
