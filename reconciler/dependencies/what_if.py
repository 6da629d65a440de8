"""Predict what one more published version would change: which clusters move, and what blocks the others."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.dependencies.catalog.published import VERSION_KIND, read_package_version
from reconciler.dependencies.dialects import read_kpt
from reconciler.dependencies.dialects.reading import Document, ParsedManifest
from reconciler.dependencies.lock.format import SCHEMA, LockChange, Resolution, lock_changes
from reconciler.dependencies.lock.read import with_lock
from reconciler.dependencies.lock.write import lock_solution
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs, build_catalogue
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.dependencies.solve.solution import Explanation, Solution
from reconciler.dependencies.update.fleet import LockUpdate
from reconciler.dependencies.update.memo import SolutionCache
from reconciler.dependencies.versions import parse_loose, parse_relaxed
from reconciler.inventory import Source


class WhatIfOutcome(StrEnum):
    """Effect of one more version on a cluster."""

    MOVES = "moves"
    STAYS = "stays"
    BLOCKED = "blocked"
    UNAFFECTED = "unaffected"


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Effect of a version on clusters with equal results, sorted.

    Clusters that move need `lock --upgrade`, and `changes` are all versions that change with it. Clusters
    that stay could use it, but prefer another version. `explanations` name the conflicts, without hints:
    those would assume that no other version is published.
    """

    verdict: WhatIfOutcome
    clusters: tuple[str, ...]
    changes: tuple[LockChange, ...] = ()
    explanations: tuple[Explanation, ...] = ()


def hypothetical_version(candidates: Iterable[Candidate], text: str) -> Candidate:
    """Return an unpublished version with the manifest of the highest published one.

    Raises:
        VersionError: The text is no version in the package's ecosystem.
    """
    (published,) = build_catalogue(candidates).packages.values()
    newest = published[-1]
    strict = newest.id.ecosystem in (Ecosystem.CARVEL, Ecosystem.KPT)
    version = parse_relaxed(text) if strict else parse_loose(text)
    return replace(newest, version=version, digest="", withdrawn="", unavailable=False)


def read_hypothetical(documents: Iterable[tuple[Document, Source]], like: Candidate) -> ParsedManifest:
    """Parse the manifest of an unpublished version, as the index would. Total."""
    pairs, version = list(documents), like.version.text
    if like.id.ecosystem is Ecosystem.KPT:
        repository, _, path = like.id.name.rpartition("//")
        document, source = pairs[0]
        return read_kpt(document, source, repository=repository, path=path, revision=version)
    head = {
        "apiVersion": SCHEMA,
        "kind": VERSION_KIND,
        "source": like.source or like.id.name,
        "version": version,
    }
    reading = read_package_version([(head, pairs[0][1]), *pairs])
    return replace(reading, candidates=tuple(replace(c, id=like.id) for c in reading.candidates))


def what_if(
    worlds: Iterable[ClusterInputs],
    decision: LockUpdate,
    candidate: Candidate,
    memo: SolutionCache | None = None,
) -> tuple[WhatIfResult, ...]:
    """Return the effect of a version on every cluster, equal results together. Pure, order-free.

    The cost depends on the number of distinct clusters: equal inputs are resolved once.

    Args:
        worlds: The inputs of every cluster.
        decision: The lock update of the fleet.
        candidate: The version, published or not.
        memo: Solutions of this run.

    Raises:
        UnverifiedSolutionError: A solution does not pass the independent check.
    """
    asker = _WhatIf(candidate, memo or SolutionCache())
    locked = {scope.cluster: scope.after.resolution for scope in decision.scopes if scope.after}
    clusters_by_result: dict[WhatIfResult, list[str]] = {}
    for inputs in worlds:
        answer = asker.ask(inputs, locked.get(inputs.cluster, Resolution()))
        clusters_by_result.setdefault(answer, []).append(inputs.cluster)
    results = (
        replace(result, clusters=tuple(sorted(clusters))) for result, clusters in clusters_by_result.items()
    )
    return tuple(
        sorted(results, key=lambda result: (list(WhatIfOutcome).index(result.verdict), result.clusters))
    )


class _HypotheticalCatalogues(NamedTuple):
    """A catalogue, the same with the version in question, and with no other version of its package."""

    own: Catalogue
    more: Catalogue
    only: Catalogue


@dataclass(slots=True)
class _WhatIf:
    candidate: Candidate
    memo: SolutionCache
    imagined: dict[int, _HypotheticalCatalogues] = field(default_factory=dict)

    def ask(self, inputs: ClusterInputs, before: Resolution) -> WhatIfResult:
        """Return one cluster's prospect, without its name."""
        package = inputs.catalogue.find(self.candidate.id)
        locked = with_lock(inputs, before)
        there = {(item.instance.ecosystem, item.instance.name) for item in before.packages}
        if (package.ecosystem, package.name) not in there:
            return WhatIfResult(WhatIfOutcome.UNAFFECTED, ())
        imagined = self._catalogues(inputs.catalogue)
        choices = replace(locked.choices, upgrade=locked.choices.upgrade | {package.name})
        free = self.memo.solution(replace(locked, catalogue=imagined.more, choices=choices))
        if self._has_it(free, package):
            after = lock_solution(replace(inputs, catalogue=imagined.more), free, before)
            return WhatIfResult(WhatIfOutcome.MOVES, (), lock_changes(before, after))
        pins = tuple(pin for pin in locked.pins if pin.instance.package != package)
        forced = self.memo.solution(replace(locked, catalogue=imagined.only, pins=pins, choices=choices))
        if self._has_it(forced, package):
            return WhatIfResult(WhatIfOutcome.STAYS, ())
        explained = set(free.explanations)
        blockers = (item for item in forced.explanations if item not in explained)
        return WhatIfResult(
            WhatIfOutcome.BLOCKED, (), explanations=tuple(replace(item, hints=()) for item in blockers)
        )

    def _has_it(self, solution: Solution, package: PackageId) -> bool:
        version = self.candidate.version
        return any(
            instance.package == package and resolved.candidate.version == version
            for instance, resolved in solution.resolved.items()
        )

    def _catalogues(self, own: Catalogue) -> _HypotheticalCatalogues:
        """Return the catalogues with the version; the same ones for clusters that share theirs."""
        if id(own) not in self.imagined:
            package = own.find(self.candidate.id)
            fresh = replace(self.candidate, id=package)
            others = (c for c in own.candidates(package) if c.version.text != fresh.version.text)
            candidates = build_catalogue([*others, fresh]).packages[package]
            self.imagined[id(own)] = _HypotheticalCatalogues(
                own, _with(own, package, candidates), _with(own, package, (fresh,))
            )
        return self.imagined[id(own)]


def _with(own: Catalogue, package: PackageId, candidates: tuple[Candidate, ...]) -> Catalogue:
    return Catalogue(dict(sorted({**own.packages, package: candidates}.items())), own.names, own.refused)
