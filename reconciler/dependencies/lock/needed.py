"""List the kpt packages that the variants of a cluster need and no manifest asks for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.dependencies.lock.format import LockedInstance, LockedPackage, Resolution
from reconciler.dependencies.model.cluster import SlotKind
from reconciler.dependencies.model.packages import Ecosystem

VARIANT_KIND = "PackageVariant"
"""The kind of the installs that stand for variants."""


RequirementPath = tuple[LockedPackage, ...]


@dataclass(frozen=True, slots=True)
class NeededPackage:
    """A kpt package that has to be in a cluster because variants there need it.

    `trails` lead to it, one for each package that needs it directly: from a variant's own package,
    first, to that one, last. They are sorted by what they start from.
    """

    package: LockedPackage
    paths: tuple[RequirementPath, ...]

    @property
    def roots(self) -> tuple[LockedInstance, ...]:
        """The variants' own packages that it is there for."""
        return tuple(dict.fromkeys(trail[0].instance for trail in self.paths))


def needed_packages(resolution: Resolution) -> Iterator[NeededPackage]:
    """Yield every kpt package that a cluster's variants need and no manifest asks for. Order-free.

    Each is there once, however many need it: that is what its slot says. What only installs of
    other kinds need is not among them: no repository is known to bring it there.
    """
    known = {str(one.instance): one for one in resolution.packages}
    for one in sorted(resolution.packages, key=lambda one: str(one.instance)):
        if one.instance.ecosystem == Ecosystem.KPT and one.instance.slot.kind != SlotKind.INSTALL:
            trails = sorted(_trails(one, known), key=lambda trail: [str(step.instance) for step in trail])
            if trails:
                yield NeededPackage(one, tuple(trails))


def _trails(needed: LockedPackage, known: Mapping[str, LockedPackage]) -> Iterator[RequirementPath]:
    for asker in sorted(needed.requested_by):
        trail = _shortest(known[asker], known) if asker in known else None
        if trail is not None:
            yield trail


def _shortest(last: LockedPackage, known: Mapping[str, LockedPackage]) -> RequirementPath | None:
    """Return the shortest way from a variant to a package, the first of several; None if none leads there."""
    ways: list[RequirementPath] = [(last,)]
    seen = {str(last.instance)}
    for way in ways:
        if way[0].kind == VARIANT_KIND:
            return way
        askers = [asker for asker in sorted(way[0].requested_by) if asker in known and asker not in seen]
        seen.update(askers)
        ways += [(known[asker], *way) for asker in askers]
    return None
