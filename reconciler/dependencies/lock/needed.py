"""List the kpt packages that the variants of a cluster need and no manifest asks for."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from reconciler.dependencies.lock.format import LockedInstance, LockedPackage, Resolution
from reconciler.dependencies.model.cluster import SlotKind
from reconciler.dependencies.model.packages import VARIANT_KIND, Ecosystem

RequirementPath = tuple[LockedPackage, ...]


class NeededPackage(Struct, frozen=True):
    """A kpt package that a cluster needs because its variants require it.

    Each of the `paths` leads to one direct parent: from the package of a variant, first, to the parent,
    last. They are sorted by their instances.
    """

    package: LockedPackage
    paths: tuple[RequirementPath, ...]

    @property
    def roots(self) -> tuple[LockedInstance, ...]:
        """The variants' own packages that it is there for."""
        return tuple(dict.fromkeys(trail[0].instance for trail in self.paths))


def needed_packages(resolution: Resolution) -> Iterator[NeededPackage]:
    """Yield every kpt package that the variants of a cluster need and no manifest installs. Order-free.

    Each is listed once, however many need it, as its slot demands. Packages that only installs of other
    kinds need are left out: no repository is known to deliver them.
    """
    by_instance = {str(package.instance): package for package in resolution.packages}
    for package in sorted(resolution.packages, key=lambda package: str(package.instance)):
        if package.instance.ecosystem == Ecosystem.KPT and package.instance.slot.kind != SlotKind.INSTALL:
            paths = sorted(
                _trails(package, by_instance), key=lambda path: [str(step.instance) for step in path]
            )
            if paths:
                yield NeededPackage(package, tuple(paths))


def _trails(needed: LockedPackage, by_instance: Mapping[str, LockedPackage]) -> Iterator[RequirementPath]:
    for parent in sorted(needed.requested_by):
        path = _shortest(by_instance[parent], by_instance) if parent in by_instance else None
        if path is not None:
            yield path


def _shortest(last: LockedPackage, by_instance: Mapping[str, LockedPackage]) -> RequirementPath | None:
    """Return the shortest way from a variant to a package, the first of several; None if none leads there."""
    paths: list[RequirementPath] = [(last,)]
    seen = {str(last.instance)}
    for path in paths:
        if path[0].kind == VARIANT_KIND:
            return path
        parents = [
            parent for parent in sorted(path[0].requested_by) if parent in by_instance and parent not in seen
        ]
        seen.update(parents)
        paths += [(by_instance[parent], *path) for parent in parents]
    return None
