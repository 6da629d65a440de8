"""Follow needs through the catalogue: ranges of every package, and packages without a version that works."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.dependencies.model.cluster import Catalogue
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
)


class MissingPackage(NamedTuple):
    """A package of which no known version is in a range; `needed_by` are installs and package versions."""

    id: PackageId
    range: VersionRange
    needed_by: tuple[str, ...]
    is_known: bool
    """Whether other versions of it are known."""

    def __str__(self) -> str:
        return f"{self.id} {self.range}" if self.range.text else str(self.id)


def package_needs(requirement: Requirement) -> Iterator[PackageNeed]:
    """Yield the packages that a requirement names: in any alternative, as provider of an API, as default."""
    for need in (*requirement.alternatives, *((requirement.default,) if requirement.default else ())):
        if isinstance(need, PackageNeed):
            yield need
        elif isinstance(need, ApiNeed) and need.provider is not None:
            yield need.provider


def collect_needs(
    installs: Iterable[Install], catalogue: Catalogue
) -> Mapping[PackageId, frozenset[PackageNeed]]:
    """Return the needs of installs, and of all versions of the catalogue, by package. Order-free."""
    needs: dict[PackageId, set[PackageNeed]] = {}
    for install in installs:
        needs.setdefault(install.need.id, set()).add(install.need)
        for override in install.overrides:
            # An override names a package as its dependants do, without its ecosystem.
            if override.range is not None:
                id_ = PackageId(install.need.id.ecosystem, override.name)
                needs.setdefault(id_, set()).add(PackageNeed(id_, override.range, override.location))
    for candidates in catalogue.packages.values():
        for requirement in (each for candidate in candidates for each in candidate.requires):
            for need in package_needs(requirement):
                needs.setdefault(need.id, set()).add(need)
    return {id_: frozenset(each) for id_, each in sorted(needs.items())}


def find_missing(worlds: Iterable[tuple[Iterable[Install], Catalogue]]) -> tuple[MissingPackage, ...]:
    """Return every package, with the range, that installs lack. Pure, order-free, total.

    A version works if each of its requirements has an alternative with a version that works; conflicts
    between versions are the solver's. Where no version of a range works, what its highest one lacks counts.
    """
    lacking: dict[tuple[PackageId, VersionRange], set[str]] = {}
    partly: set[PackageId] = set()
    for installs, catalogue in worlds:
        search = _Search(catalogue)
        for install in installs:
            if not install.external:
                search.follow(install.need, str(install), expands=not install.skip_dependencies)
        for need, parents in search.missing.items():
            lacking.setdefault(need, set()).update(parents)
            partly |= {need[0]} if catalogue.candidates(catalogue.find(need[0])) else set()
    return tuple(
        MissingPackage(id_, range_, tuple(sorted(parents)), id_ in partly)
        for (id_, range_), parents in sorted(lacking.items(), key=lambda item: (item[0][0], item[0][1].text))
    )


class _Search(Struct):
    """Finds what is missing in one catalogue."""

    catalogue: Catalogue
    missing: dict[tuple[PackageId, VersionRange], set[str]] = field(default_factory=dict)
    _works: dict[tuple[PackageId, str], bool] = field(default_factory=dict)
    _followed: set[tuple[PackageId, str]] = field(default_factory=set)

    def follow(self, need: PackageNeed, parent: str, *, expands: bool = True) -> None:
        """Collect what a need lacks, directly or below the highest version that it admits."""
        pending = [(need, parent)]
        while pending:
            need, parent = pending.pop()
            candidates = self._admitted(need)
            if not candidates:
                self.missing.setdefault((need.id, need.range), set()).add(parent)
                continue
            highest = candidates[-1]
            key = (highest.id, highest.version.text)
            if not expands or any(map(self._is_working, candidates)) or key in self._followed:
                continue
            self._followed.add(key)
            for requirement in highest.requires:
                if not self._is_met(requirement):
                    named = next(package_needs(requirement), None)
                    pending += [(named, f"{highest.id.name} {highest.version}")] if named else []

    def _admitted(self, need: PackageNeed) -> list[Candidate]:
        id_ = self.catalogue.find(need.id)
        versions = self.catalogue.candidates(id_)
        return [versions[place] for place in sorted(self.catalogue.places(id_, need.range))]

    def _is_met(self, requirement: Requirement) -> bool:
        """Tell whether a requirement has an alternative that works; other needs count as met."""
        needs = list(package_needs(requirement))
        others = len(requirement.alternatives) > sum(
            isinstance(n, PackageNeed) for n in requirement.alternatives
        )
        is_asked = requirement.may_install_all and not requirement.optional
        return (
            not is_asked
            or others
            or any(map(self._is_working, (c for n in needs for c in self._admitted(n))))
        )

    def _is_working(self, candidate: Candidate) -> bool:
        """Tell whether everything that a version needs is there. A cycle of versions works.

        Depth first on a stack of our own: chains of requirements may be longer than Python's.
        """
        key = (candidate.id, candidate.version.text)
        if key not in self._works:
            self._settle(candidate)
        return self._works[key]

    def _settle(self, start: Candidate) -> None:
        """Settle everything that a version may reach: all works until some requirement cannot be met."""
        reached: dict[tuple[PackageId, str], Candidate] = {}
        pending = [start]
        while pending:
            candidate = pending.pop()
            key = (candidate.id, candidate.version.text)
            if key in reached or key in self._works:
                continue
            reached[key] = candidate
            needs = (n for requirement in candidate.requires for n in package_needs(requirement))
            pending += [each for need in needs for each in self._admitted(need)]
        self._works |= dict.fromkeys(reached, True)
        changed = True
        while changed:
            changed = False
            for key, candidate in reached.items():
                if self._works[key] and not all(map(self._is_met, candidate.requires)):
                    self._works[key] = False
                    changed = True
