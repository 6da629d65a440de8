"""Resolve one cluster and update its lock; equal clusters are computed once."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.dependencies.lock.format import Resolution, ownership_entries
from reconciler.dependencies.lock.read import with_lock
from reconciler.dependencies.lock.write import lock_solution
from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import Requirement
from reconciler.dependencies.revisions.autoremove import autoremove, retain_all, upgraded_with_parent
from reconciler.dependencies.revisions.reconcile import PreviousLock, RevisionUpdate, reconcile_revisions
from reconciler.dependencies.solve.solution import ResolvedInstance, Solution
from reconciler.dependencies.update.memo import SolutionCache
from reconciler.errors import Location, Problem
from reconciler.reasons import Reason


class ResolveOptions(NamedTuple):
    """What a person asks of one run, beside what manifests say.

    The packages of `upgrade` may move although they are locked. Without `dependencies` what is installed
    for others stays as it is: nothing is added, moved or removed there. With `prune` everything goes
    that nobody needs any more, also what would be kept, and what removed packages left behind.
    """

    upgrade: frozenset[str] = frozenset()
    dependencies: bool = True
    prune: bool = False


DEFAULT_OPTIONS = ResolveOptions()


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """What a cluster is to have. It is open where something is wrong or not known.

    `is_sound` tells that the laws of locks were looked at, for another cluster like this one.
    """

    solution: Solution
    found: RevisionUpdate
    problems: tuple[Problem, ...]
    is_open: bool
    is_sound: bool = False


@dataclass(slots=True)
class ClusterResolver:
    """Decides for one cluster after the other; what two have in common is decided once."""

    wishes: ResolveOptions
    memo: SolutionCache
    _known: dict[Hashable, ClusterResult] = field(default_factory=dict)

    def decided(self, world: ClusterInputs, before: PreviousLock, *, keeps: bool) -> ClusterResult:
        """Return what is decided for a cluster. Where it `keeps`, nothing that is locked is forgotten.

        Raises:
            UnverifiedSolutionError: An answer does not survive the independent check.
        """
        key = self._key(world, before, keeps=keeps)
        known = self._known.get(key)
        if known is not None:
            return known
        solution = self._solve(self._asked(world, before.resolution))
        fresh = lock_solution(world, solution, before.resolution)
        found = self._establish(world, solution, fresh, before, keeps=keeps)
        problems = (*solution.problems, *found.problems, *unbound_inputs(world, solution))
        is_open = bool(problems) or keeps or not self.wishes.dependencies
        decided = ClusterResult(solution, found, problems, is_open)
        self._known[key] = replace(decided, is_sound=True)
        return decided

    def _key(self, world: ClusterInputs, before: PreviousLock, *, keeps: bool) -> Hashable:
        places = (*(one.location for one in world.installs), *(one.location for one in world.wishes))
        history = (before.resolution.digest, before.revisions, world.pins, world.chosen, world.observed)
        return (self.memo.digest(world), history, places, keeps)

    def _asked(self, world: ClusterInputs, before: Resolution) -> ClusterInputs:
        names = package_names(world, self.wishes.upgrade)
        asked = replace(world, choices=replace(world.choices, upgrade=names))
        if not self.wishes.dependencies:
            alone = tuple(replace(install, skip_dependencies=True) for install in world.installs)
            asked = replace(asked, installs=alone)
        return with_lock(asked, before) if before.packages or any(ownership_entries(before)) else asked

    def _solve(self, world: ClusterInputs) -> Solution:
        """Resolve, and once more where a package that moves takes its dependencies along."""
        solution = self.memo.solution(world)
        free = upgraded_with_parent(world, solution)
        if not free:
            return solution
        return self.memo.solution(replace(world, pins=tuple(p for p in world.pins if p.instance not in free)))

    def _establish(
        self,
        world: ClusterInputs,
        solution: Solution,
        fresh: Resolution,
        before: PreviousLock,
        *,
        keeps: bool,
    ) -> RevisionUpdate:
        """Decide what stays and what runs: what runs needs what stays, and what stays has kinds.

        Both only grow from round to round, so this ends.
        """
        needed: frozenset[str] = frozenset()
        while True:
            resolution = self._kept(fresh, before.resolution, needed, keeps=keeps)
            found = reconcile_revisions(world, solution, resolution, before, forget=self.wishes.prune)
            if found.still_needed <= needed:
                return found
            needed |= found.still_needed

    def _kept(
        self, fresh: Resolution, before: Resolution, needed: frozenset[str], *, keeps: bool
    ) -> Resolution:
        """Return the resolution with what nobody asks for now, as far as it stays."""
        if keeps or not self.wishes.dependencies:
            return retain_all(fresh, before, users=keeps)
        return autoremove(fresh, before, needed=needed, prune=self.wishes.prune)


def package_names(world: ClusterInputs, upgrade: frozenset[str]) -> frozenset[str]:
    """Return the packages' own names for the names that a person used."""
    known = world.catalogue
    aliased = {id_.name for alias, id_ in known.names.items() if alias.name in upgrade}
    return frozenset(aliased | {id_.name for id_ in known.packages if id_.name in upgrade})


def unbound_inputs(world: ClusterInputs, solution: Solution) -> Iterator[Problem]:
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


def _wanting(parent: ResolvedInstance, instance: Instance) -> Iterator[Requirement]:
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


def _root(world: ClusterInputs, solution: Solution, instance: Instance) -> Install | None:
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


def _problem(
    one: ResolvedInstance, requirement: Requirement, install: Install | None, missing: list[str]
) -> Problem:
    alias = requirement.alias or one.instance.package.name
    message = f"{one.candidate} needs the {', the '.join(missing)}, which nobody gives it"
    names = [name.partition(" ")[2] for name in missing if name.startswith("parameter ")]
    hint = f"Bind {alias} to an installation that is there"
    if names:
        hint = f"Give it as the parameter {', '.join(f'{alias}#{name}' for name in names)}, or {hint.lower()}"
    where = install.location if install else Location("")
    return Problem(where, Reason.UNBOUND_INPUT, message, f"{hint}.", str(install or one.instance))
