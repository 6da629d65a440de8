"""The package index: which packages exist, and which one implements an interface where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.dependencies.model import PackageId
from reconciler.dependencies.world import Catalogue


class Defaults(NamedTuple):
    """The default implementation of each interface, in three layers; the nearest one counts."""

    fleet: Mapping[str, PackageId]
    environment: Mapping[str, PackageId]
    cluster: Mapping[str, PackageId]

    def effective(self) -> tuple[tuple[str, PackageId], ...]:
        """Return one default per interface, sorted: cluster before environment before fleet."""
        merged = {**self.fleet, **self.environment, **self.cluster}
        return tuple(sorted(merged.items()))


@dataclass(frozen=True, slots=True)
class Index:
    """What one layer of the index says: the packages it knows, and its defaults."""

    packages: frozenset[PackageId] = frozenset()
    defaults: Mapping[str, PackageId] = field(default_factory=dict)


def add_package(index: Index, package: PackageId, *, interface: str = "") -> Index:
    """Register a package; with an interface it becomes the default there, instead of the previous one."""
    defaults = {**index.defaults, interface: package} if interface else index.defaults
    return replace(index, packages=index.packages | {package}, defaults=defaults)


def remove_package(index: Index, package: PackageId) -> Index:
    """Forget a package, also as a default; idempotent."""
    defaults = {interface: id_ for interface, id_ in index.defaults.items() if id_ != package}
    return replace(index, packages=index.packages - {package}, defaults=defaults)


class Listed(NamedTuple):
    """One line of `index list`."""

    package: PackageId
    versions: tuple[str, ...]
    interfaces: tuple[str, ...]
    is_default: bool


def list_packages(
    catalogue: Catalogue,
    defaults: Iterable[tuple[str, PackageId]] = (),
    *,
    name: str = "",
    label: tuple[str, str] | None = None,
    interface: str = "",
    keyword: str = "",
) -> tuple[Listed, ...]:
    """Return the packages that pass every given filter, sorted, versions highest first.

    `is_default` tells whether the package is the default of the interface that was asked for, or
    of any without one.
    """
    chosen = {id_ for own, id_ in defaults if interface in ("", own)}
    found = []
    for id_, several in sorted(catalogue.packages.items()):
        interfaces = sorted({one.id for candidate in several for one in candidate.interfaces})
        labels = {pair for candidate in several for pair in candidate.labels}
        keywords = {word for candidate in several for word in candidate.keywords}
        if name.lower() not in id_.name.lower() or (label is not None and label not in labels):
            continue
        if (interface and interface not in interfaces) or (keyword and keyword not in keywords):
            continue
        versions = tuple(str(candidate.version) for candidate in reversed(several))
        found.append(Listed(id_, versions, tuple(interfaces), id_ in chosen))
    return tuple(found)
