"""What a fanned-out package needs in each target: the variants that its dependencies become."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.dependencies.model import Ecosystem, PackageId
from reconciler.dependencies.solution import Resolved, Solution
from reconciler.dependencies.world import Instance


class WantedVariant(NamedTuple):
    """A PackageVariant that has to exist because something that is wanted needs its package.

    `upstream` is the repository's URL and the package's path there; `requested_by` is the way
    from the user's install, for the annotation that tells where a variant comes from.
    """

    target: str
    upstream: str
    path: str
    revision: str
    namespace: str
    requested_by: tuple[str, ...]


def missing_variants(
    solutions: Mapping[str, Solution], present: Mapping[str, Iterable[PackageId]]
) -> tuple[WantedVariant, ...]:
    """Return the kpt packages that a target needs and does not have, each once per place, sorted.

    `solutions` are by target repository, and `present` names what each holds or will hold
    anyway: what a user's own variant puts there is never created a second time.
    """
    wanted = []
    for target, solution in solutions.items():
        held = frozenset(present.get(target, ()))
        for one in solution.resolved.values():
            if _is_new(one, held):
                upstream, _, path = one.instance.package.name.rpartition("//")
                wanted.append(
                    WantedVariant(
                        target,
                        upstream,
                        path,
                        one.candidate.source or one.candidate.version.text,
                        one.instance.slot.namespace,
                        _trail(solution, one.instance),
                    )
                )
    return tuple(sorted(wanted))


def _is_new(one: Resolved, held: frozenset[PackageId]) -> bool:
    package = one.instance.package
    return package.ecosystem is Ecosystem.KPT and not one.user and package not in held


def _trail(solution: Solution, instance: Instance) -> tuple[str, ...]:
    trail: list[str] = []
    seen: set[Instance] = set()
    current: Instance | None = instance
    while current is not None and current not in seen:
        seen.add(current)
        askers = solution.resolved[current].requested_by
        current = min(askers, default=None)
        if current is not None:
            trail.insert(0, str(current))
    return tuple(trail)
