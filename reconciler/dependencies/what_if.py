"""Rehearse a change: which clusters could take it, what moves along, and what blocks the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.dependencies.catalog.published import VERSION_KIND, read_package_version
from reconciler.dependencies.dialects import read_kpt
from reconciler.dependencies.dialects.reading import Document, ParsedManifest
from reconciler.dependencies.lock.format import SCHEMA, ClusterLock, LockUpdate, Resolution, ResolveOptions
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs, build_catalogue
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Install, PackageId, exact_range
from reconciler.dependencies.revisions import PreviousLock
from reconciler.dependencies.solve.hints import Edit, name_cluster, with_default, with_install
from reconciler.dependencies.solve.problem import Explanation
from reconciler.dependencies.update.changes import VersionChange, resolution_changes
from reconciler.dependencies.update.cluster import ClusterResolver, ClusterResult
from reconciler.dependencies.update.digest import InputDigests
from reconciler.dependencies.versions.version import parse_loose, parse_relaxed
from reconciler.inventory.inventory import Source


class WhatIfOutcome(StrEnum):
    """Effect of a change on a cluster."""

    MOVES = "moves"
    STAYS = "stays"
    BLOCKED = "blocked"
    CURRENT = "current"
    UNAFFECTED = "unaffected"


class WhatIfResult(Struct, frozen=True):
    """Effect of a change on clusters with equal results, sorted.

    `changes` are all versions that change in the clusters that move. Clusters that stay could use the
    version, but prefer another one: `preferred` are those. `explanations` name the conflicts of the blocked
    ones, with the smallest changes that would let them move.
    """

    verdict: WhatIfOutcome
    clusters: tuple[str, ...]
    changes: tuple[VersionChange, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    preferred: tuple[str, ...] = ()


class Hypothesis(Struct, frozen=True):
    """A change to rehearse: a condition in words, an edit of the inputs, and the clusters that it concerns.

    A cluster moves if its lock then has the `package` in this `version`; without a version, if it has no
    new conflict. If it `forgets`, what is locked of the package may not stay either.
    """

    text: str
    edit: Edit
    concerns: Callable[[ClusterInputs, Resolution], bool]
    package: PackageId | None = None
    version: str = ""
    forgets: bool = False


def publish(candidate: Candidate, *, is_published: bool = False) -> Hypothesis:
    """Return the hypothesis that a version of a package is published, or taken where it is so already."""
    text = f"{candidate.id} {candidate.version}"
    return Hypothesis(
        f"{text}, which is published, were taken" if is_published else f"{text} were published",
        _published(candidate),
        _has(candidate.id),
        candidate.id,
        candidate.version.text,
    )


def withdraw(package: PackageId, version: str = "") -> Hypothesis:
    """Return the hypothesis that a package, or one version of it, cannot be used any more."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        catalogue, own = inputs.catalogue, inputs.catalogue.find(package)
        left = tuple(c for c in catalogue.candidates(own) if version not in ("", c.version.text))
        packages = {id_: versions for id_, versions in catalogue.packages.items() if id_ != own}
        packages |= {own: left} if left else {}
        ordered = dict(sorted(packages.items()))
        return replace(inputs, catalogue=Catalogue(ordered, catalogue.names, catalogue.refused))

    text = f"{package} {version} were removed" if version else f"{package} were removed"
    return Hypothesis(text, edit, _has(package, version), package, forgets=True)


def change_default(interface: str, package: PackageId) -> Hypothesis:
    """Return the hypothesis that a package becomes the default of an interface."""
    text = f"{package} were the default of {interface}"
    return Hypothesis(text, with_default(interface, package), lambda _, resolution: bool(resolution.packages))


def bump(
    variant: str, installs: Mapping[str, frozenset[tuple[str, str]]], candidate: Candidate
) -> Hypothesis:
    """Return the hypothesis that a variant has another upstream revision.

    Args:
        variant: The name of the variant.
        installs: Its installs.
        candidate: The revision.
    """

    def own(inputs: ClusterInputs) -> list[Install]:
        keys = installs.get(inputs.cluster, frozenset())
        return [i for i in inputs.installs if (i.namespace, i.name) in keys and i.need.id == candidate.id]

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        text = candidate.version.text
        edited = _published(candidate)(inputs)
        for install in own(inputs):
            need = replace(install.need, range=exact_range(install.need.range.dialect, text))
            edited = with_install(install, need=need)(edited)
        return edited

    return Hypothesis(
        f"PackageVariant {variant} had the upstream revision {candidate.source or candidate.version}",
        edit,
        lambda inputs, _: bool(own(inputs)),
        candidate.id,
        candidate.version.text,
    )


def _published(candidate: Candidate) -> Edit:
    """Return the edit that publishes a version, or replaces a published one."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        catalogue, id_ = inputs.catalogue, inputs.catalogue.find(candidate.id)
        others = (c for c in catalogue.candidates(id_) if c.version.text != candidate.version.text)
        own = build_catalogue([*others, replace(candidate, id=id_)]).packages[id_]
        packages = dict(sorted({**catalogue.packages, id_: own}.items()))
        return replace(inputs, catalogue=Catalogue(packages, catalogue.names, catalogue.refused))

    return edit


def _has(package: PackageId, version: str = "") -> Callable[[ClusterInputs, Resolution], bool]:
    def concerns(inputs: ClusterInputs, resolution: Resolution) -> bool:
        own = inputs.catalogue.find(package)
        return any(
            (item.instance.ecosystem, item.instance.name) == (own.ecosystem, own.name)
            and version in ("", item.version)
            for item in resolution.packages
        )

    return concerns


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
    version = like.version.text
    pairs: list[tuple[Document, Source]] = []
    for document, source in documents:
        # As it would be published: with this version, wherever the manifest has one.
        spec, at_version = document.get("spec"), {**document, "version": version}
        if isinstance(spec, Mapping) and "version" in spec:
            at_version = {**document, "spec": {**spec, "version": version}}
        pairs.append((at_version if at_version.keys() == document.keys() else document, source))
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
    hypothesis: Hypothesis,
) -> tuple[WhatIfResult, ...]:
    """Return the effect of a change on every cluster, equal results together. Pure, order-free.

    The cost depends on the number of distinct clusters: equal inputs are resolved once.

    Args:
        worlds: The inputs of every cluster.
        decision: The lock update of the fleet.
        hypothesis: The change.

    Raises:
        UnverifiedSolutionError: A solution does not pass the independent check.
    """
    rehearsal = _Rehearsal(hypothesis)
    locks = {scope.cluster: scope.after for scope in decision.scopes if scope.after}
    clusters_by_result: dict[WhatIfResult, list[str]] = {}
    for inputs in worlds:
        result = rehearsal.result(inputs, locks.get(inputs.cluster))
        clusters_by_result.setdefault(result, []).append(inputs.cluster)
    results = (
        replace(result, clusters=tuple(sorted(clusters))) for result, clusters in clusters_by_result.items()
    )
    return tuple(
        sorted(results, key=lambda result: (list(WhatIfOutcome).index(result.verdict), result.clusters))
    )


class _Attempt(NamedTuple):
    """A resolution with the change, its version changes, and the conflicts that are new."""

    result: ClusterResult
    changes: tuple[VersionChange, ...]
    conflicts: tuple[Explanation, ...]


class _Rehearsal(Struct):
    hypothesis: Hypothesis
    _digests: InputDigests = field(default_factory=InputDigests)
    _catalogues: dict[int, tuple[Catalogue, Catalogue]] = field(default_factory=dict)
    _resolvers: dict[frozenset[str], ClusterResolver] = field(default_factory=dict)

    def result(self, inputs: ClusterInputs, lock: ClusterLock | None) -> WhatIfResult:
        """Return the effect on one cluster, without its name."""
        before = PreviousLock(lock.resolution, lock.lock.revisions) if lock else PreviousLock(Resolution())
        hypothesis = self.hypothesis
        if not hypothesis.concerns(inputs, before.resolution):
            return WhatIfResult(WhatIfOutcome.UNAFFECTED, ())
        edited = self._edited(inputs)
        free = self._attempt(edited, inputs, before)
        if hypothesis.version:
            return self._result_of_version(edited, inputs, before, free)
        if free.conflicts:
            return WhatIfResult(WhatIfOutcome.BLOCKED, (), explanations=free.conflicts)
        verdict = WhatIfOutcome.MOVES if free.changes else WhatIfOutcome.UNAFFECTED
        return WhatIfResult(verdict, (), free.changes)

    def _result_of_version(
        self, edited: ClusterInputs, inputs: ClusterInputs, before: PreviousLock, free: _Attempt
    ) -> WhatIfResult:
        if self._has_version(free, edited):
            verdict = WhatIfOutcome.MOVES if free.changes else WhatIfOutcome.CURRENT
            return WhatIfResult(verdict, (), free.changes)
        package = edited.catalogue.find(self.hypothesis.package) if self.hypothesis.package else None
        assumed = ((package, self.hypothesis.version),) if package else ()
        # An install that has no solution now blocks nothing: it keeps what is locked for it.
        explanations = self._present(inputs, before).solution.explanations
        stalled = {install for explanation in explanations for install in explanation.stalled}
        installs = tuple(install for install in edited.installs if str(install) not in stalled)
        forced = self._attempt(replace(edited, installs=installs, assumed=assumed), inputs, before)
        if self._has_version(forced, edited):
            return WhatIfResult(WhatIfOutcome.STAYS, (), preferred=self._versions(free, edited))
        new = tuple(e for e in forced.conflicts if e not in free.conflicts) or forced.conflicts
        return WhatIfResult(WhatIfOutcome.BLOCKED, (), explanations=new)

    def _has_version(self, attempt: _Attempt, inputs: ClusterInputs) -> bool:
        return not attempt.conflicts and self.hypothesis.version in self._versions(attempt, inputs)

    def _versions(self, attempt: _Attempt, inputs: ClusterInputs) -> tuple[str, ...]:
        """Return the versions of the package in a resolution, sorted."""
        package = inputs.catalogue.find(self.hypothesis.package) if self.hypothesis.package else None
        resolved = attempt.result.solution.resolved
        return tuple(sorted({r.candidate.version.text for i, r in resolved.items() if i.package == package}))

    def _attempt(self, edited: ClusterInputs, inputs: ClusterInputs, before: PreviousLock) -> _Attempt:
        """Return the resolution of edited inputs, compared with that of the present ones."""
        package = self.hypothesis.package
        names = frozenset({edited.catalogue.find(package).name} if package else ())
        start = before
        if self.hypothesis.forgets and package is not None:
            packages = tuple(p for p in before.resolution.packages if p.instance.name != package.name)
            start = replace(before, resolution=replace(before.resolution, packages=packages))
        result = self._resolver(names).resolve(edited, start, keeps=False)
        present = self._present(inputs, before)
        conflicts = tuple(
            replace(e, hints=tuple(self._hints(e, inputs.cluster)))
            for e in result.solution.explanations
            if e not in present.solution.explanations
        )
        changes = tuple(resolution_changes(before.resolution, result.revisions.resolution))
        return _Attempt(result, changes, conflicts)

    def _present(self, inputs: ClusterInputs, before: PreviousLock) -> ClusterResult:
        """Return the resolution without the change."""
        return self._resolver(frozenset()).resolve(inputs, before, keeps=False)

    def _hints(self, explanation: Explanation, cluster: str) -> Iterator[str]:
        """Yield the hints of a conflict, except for the one to publish again what is removed."""
        package = self.hypothesis.package
        is_removed = self.hypothesis.forgets and package is not None and package.name in explanation.adds
        for hint in explanation.hints[:-1] if is_removed else explanation.hints:
            yield name_cluster(hint, cluster)

    def _resolver(self, upgrade: frozenset[str]) -> ClusterResolver:
        if upgrade not in self._resolvers:
            self._resolvers[upgrade] = ClusterResolver(ResolveOptions(upgrade), self._digests)
        return self._resolvers[upgrade]

    def _edited(self, inputs: ClusterInputs) -> ClusterInputs:
        """Return the inputs with the change; clusters that share a catalogue share the changed one too."""
        edited = self.hypothesis.edit(inputs)
        own = inputs.catalogue
        if id(own) not in self._catalogues:
            self._catalogues[id(own)] = (own, edited.catalogue)
        return replace(edited, catalogue=self._catalogues[id(own)][1])
