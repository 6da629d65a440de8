"""What is decided for one cluster, once for all that have the same question and the same history."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.dependencies.establish import Before, Established, establish
from reconciler.dependencies.fleet import Memo
from reconciler.dependencies.inputs import unbound_inputs
from reconciler.dependencies.lifecycle import keep_all, moves_along, sweep
from reconciler.dependencies.lockfile import Resolution
from reconciler.dependencies.ownership import entries_of
from reconciler.dependencies.recording import resolution_of
from reconciler.dependencies.relock import with_lock
from reconciler.dependencies.solution import Solution
from reconciler.dependencies.world import World
from reconciler.errors import Problem


class Wishes(NamedTuple):
    """What a person asks of one run, beside what manifests say.

    The packages of `upgrade` may move although they are locked. Without `dependencies` what is installed
    for others stays as it is: nothing is added, moved or removed there. With `prune` everything goes
    that nobody needs any more, also what would be kept, and what removed packages left behind.
    """

    upgrade: frozenset[str] = frozenset()
    dependencies: bool = True
    prune: bool = False


PLAIN = Wishes()


@dataclass(frozen=True, slots=True)
class Decided:
    """What a cluster is to have. It is open where something is wrong or not known.

    `is_sound` tells that the laws of locks were looked at, for another cluster like this one.
    """

    solution: Solution
    found: Established
    problems: tuple[Problem, ...]
    is_open: bool
    is_sound: bool = False


@dataclass(slots=True)
class Decider:
    """Decides for one cluster after the other; what two have in common is decided once."""

    wishes: Wishes
    memo: Memo
    _known: dict[Hashable, Decided] = field(default_factory=dict)

    def decided(self, world: World, before: Before, *, keeps: bool) -> Decided:
        """Return what is decided for a cluster. Where it `keeps`, nothing that is locked is forgotten.

        Raises:
            UnverifiedSolutionError: An answer does not survive the independent check.
        """
        key = self._key(world, before, keeps=keeps)
        known = self._known.get(key)
        if known is not None:
            return known
        solution = self._solve(self._asked(world, before.resolution))
        fresh = resolution_of(world, solution, before.resolution)
        found = self._establish(world, solution, fresh, before, keeps=keeps)
        problems = (*solution.problems, *found.problems, *unbound_inputs(world, solution))
        is_open = bool(problems) or keeps or not self.wishes.dependencies
        decided = Decided(solution, found, problems, is_open)
        self._known[key] = replace(decided, is_sound=True)
        return decided

    def _key(self, world: World, before: Before, *, keeps: bool) -> Hashable:
        places = (*(one.location for one in world.installs), *(one.location for one in world.wishes))
        history = (before.resolution.digest, before.revisions, world.pins, world.chosen, world.observed)
        return (self.memo.digest(world), history, places, keeps)

    def _asked(self, world: World, before: Resolution) -> World:
        names = names_of(world, self.wishes.upgrade)
        asked = replace(world, choices=replace(world.choices, upgrade=names))
        if not self.wishes.dependencies:
            alone = tuple(replace(install, skip_dependencies=True) for install in world.installs)
            asked = replace(asked, installs=alone)
        return with_lock(asked, before) if before.packages or any(entries_of(before)) else asked

    def _solve(self, world: World) -> Solution:
        """Resolve, and once more where a package that moves takes its dependencies along."""
        solution = self.memo.solution(world)
        free = moves_along(world, solution)
        if not free:
            return solution
        return self.memo.solution(replace(world, pins=tuple(p for p in world.pins if p.instance not in free)))

    def _establish(
        self, world: World, solution: Solution, fresh: Resolution, before: Before, *, keeps: bool
    ) -> Established:
        """Decide what stays and what runs: what runs needs what stays, and what stays has kinds.

        Both only grow from round to round, so this ends.
        """
        needed: frozenset[str] = frozenset()
        while True:
            resolution = self._kept(fresh, before.resolution, needed, keeps=keeps)
            found = establish(world, solution, resolution, before, forget=self.wishes.prune)
            if found.still_needed <= needed:
                return found
            needed |= found.still_needed

    def _kept(
        self, fresh: Resolution, before: Resolution, needed: frozenset[str], *, keeps: bool
    ) -> Resolution:
        """Return the resolution with what nobody asks for now, as far as it stays."""
        if keeps or not self.wishes.dependencies:
            return keep_all(fresh, before, users=keeps)
        return sweep(fresh, before, needed=needed, prune=self.wishes.prune)


def names_of(world: World, upgrade: frozenset[str]) -> frozenset[str]:
    """Return the packages' own names for the names that a person used."""
    known = world.catalogue
    aliased = {id_.name for alias, id_ in known.names.items() if alias.name in upgrade}
    return frozenset(aliased | {id_.name for id_ in known.packages if id_.name in upgrade})
