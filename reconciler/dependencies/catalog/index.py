"""The package index: its versions and defaults, what it lists, and what installs lack in it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field
from pydantic import Field

from reconciler.api.meta import ApiModel
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.published import VERSION_KIND, read_package_version
from reconciler.dependencies.dialects.crossplane import TAKE_OVER
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    ParsedManifest,
    canonical_interface,
    parsed_or_broken,
)
from reconciler.dependencies.model.cluster import Catalogue, RefusedVersion
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
)
from reconciler.inventory.inventory import SourcedDocument
from reconciler.names.problems import Problem, defect_problem


class IndexEntry(NamedTuple):
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
    labels: Iterable[tuple[str, str]] = (),
    interface: str = "",
    keywords: Iterable[str] = (),
) -> tuple[IndexEntry, ...]:
    """Return the packages that pass every given filter, sorted, versions highest first.

    `is_default` is set if the package is the default of the given interface, or of any without one.
    """
    interface, required, words = canonical_interface(interface), frozenset(labels), frozenset(keywords)
    chosen = {id_ for default_of, id_ in defaults if interface in ("", default_of)}
    entries = []
    for id_, candidates in sorted(catalogue.packages.items()):
        interfaces = sorted(
            {implemented.id for candidate in candidates for implemented in candidate.interfaces}
        )
        own_labels = {pair for candidate in candidates for pair in candidate.labels}
        own_keywords = {word for candidate in candidates for word in candidate.keywords}
        if name.lower() not in id_.name.lower() or not (required <= own_labels and words <= own_keywords):
            continue
        if interface and interface not in interfaces:
            continue
        versions = tuple(str(candidate.version) for candidate in reversed(candidates))
        entries.append(IndexEntry(id_, versions, tuple(interfaces), id_ in chosen))
    return tuple(entries)


INDEX_DIRECTORY = "index"
INDEX_KIND = "PackageIndex"
INDEX_API_VERSION = "reconciler.dev/v1alpha1"
FLEET = "index/defaults.yaml"


class PackageIndex(ApiModel):
    """Choices of one layer: the default package of each interface, as `ECOSYSTEM:NAME`.

    `environment` is the environment of a cluster; only the layer of a cluster has it.
    """

    api_version: str
    kind: str
    environment: str = ""
    defaults: dict[str, str] = Field(default_factory=dict)


class LayerDefaults(NamedTuple):
    """Contents of one file of defaults."""

    environment: str
    defaults: Mapping[str, PackageId]


NO_DEFAULTS = LayerDefaults("", {})


class IndexContents(Struct, frozen=True):
    """Every version that the index has, and every layer by the path of its file."""

    candidates: tuple[Candidate, ...] = ()
    layers: Mapping[str, LayerDefaults] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    refused: Mapping[str, tuple[RefusedVersion, ...]] = field(default_factory=dict)
    """Versions that are no candidates because of a problem, by the name of their package."""

    def environment_of(self, cluster: str) -> str:
        """Return the environment that a cluster's layer names, "" if it names none."""
        return self.layers.get(layer_path(cluster=cluster), NO_DEFAULTS).environment

    def defaults_of(self, cluster: str, environment: str) -> tuple[tuple[str, PackageId], ...]:
        """Return one default per interface, sorted: cluster before environment before fleet.

        An empty name has no layer of its own.
        """
        paths = [FLEET, *([layer_path(environment=environment)] if environment else [])]
        paths += [layer_path(cluster=cluster)] if cluster else []
        merged: dict[str, PackageId] = {}
        for path in paths:
            merged |= self.layers.get(path, NO_DEFAULTS).defaults
        return tuple(sorted(merged.items()))


def layer_path(*, environment: str = "", cluster: str = "") -> str:
    """Return the path of the defaults of a cluster, of an environment, or of the fleet."""
    if cluster:
        return f"index/clusters/{cluster}.yaml"
    return f"index/environments/{environment}.yaml" if environment else FLEET


def read_index(documents: Iterable[SourcedDocument]) -> IndexContents:
    """Parse the documents of the index. Total; order-free; one bad file affects no other."""
    candidates: list[Candidate] = []
    layers: dict[str, LayerDefaults] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    refused: dict[str, tuple[RefusedVersion, ...]] = {}
    ordered = sorted(documents, key=lambda document: document.source.location)
    folders: dict[str, list[SourcedDocument]] = {}
    for document in ordered:
        path = document.source.location.path
        if document.value.get("kind") != INDEX_KIND:
            folders.setdefault(path.rpartition("/")[0], []).append(document)
            continue
        notes = Diagnostics(document.source, f"{INDEX_KIND} {path}")
        try:
            with guard(path):
                layer = _layer(document, notes)
        except DefectError as error:
            problems.append(defect_problem(error, document.source.location, subject=f"{INDEX_KIND} {path}"))
            continue
        problems += notes.problems
        if layer is not None:
            layers[path] = layer
    headers_of: list[tuple[SourcedDocument, PackageId]] = []
    for folder in folders.values():
        pairs = [(item.value, item.source) for item in folder]
        reading = parsed_or_broken(folder[0].source, partial(read_package_version, pairs)) or ParsedManifest()
        candidates += reading.candidates
        headers_of += [(header, candidate.id) for header in folder for candidate in reading.candidates]
        problems += reading.problems
        warnings += reading.warnings
        if reading.problems:
            headers = {(str(d.value.get("source") or ""), str(d.value.get("version") or "")) for d in folder}
            # A Carvel Package has no header, and broken YAML has nothing: their folder is called as they are.
            _, *own_name, own_version = ("", *folder[0].source.location.path.split("/")[:-1])
            called = {header for header in headers if header[0]} or {("/".join(own_name[1:]), own_version)}
            for name, version in sorted(called):
                refused_here = (RefusedVersion(version, problem) for problem in reading.problems)
                refused[name] = (*refused.get(name, ()), *refused_here)
    problems += _refused_aliases(headers_of, frozenset(candidate.id for candidate in candidates))
    return IndexContents(tuple(candidates), layers, tuple(sorted(problems)), tuple(sorted(warnings)), refused)


def _refused_aliases(
    headers: Iterable[tuple[SourcedDocument, PackageId]], packages: Collection[PackageId]
) -> Iterator[Problem]:
    """Yield a problem for each alias that is a package of the index itself: it would mean two packages."""
    for header, id_ in headers:
        aliases = header.value.get("aliases") if header.value.get("kind") == VERSION_KIND else None
        for number, alias in enumerate(aliases if isinstance(aliases, list) else ()):
            if alias == id_.name or PackageId(id_.ecosystem, alias) not in packages:
                continue
            message = f"{alias} has versions of its own in the index, so it is no alias of {id_.name}"
            move = f"name {id_.name} in the manifest"
            move += f" with `{TAKE_OVER}: {alias}`" if id_.ecosystem is Ecosystem.XPKG else ""
            hint = f"Remove the alias, or the versions of {alias} if both are one package; to move, {move}."
            where = header.source.at("aliases", number)
            yield Problem(where, Reason.DUPLICATE_OBJECT, message, hint, f"{VERSION_KIND} {id_.name}")


def _layer(document: SourcedDocument, notes: Diagnostics) -> LayerDefaults | None:
    parsed = notes.parse(PackageIndex, document.value)
    if parsed is None:
        return None
    defaults: dict[str, PackageId] = {}
    for written, text in sorted(parsed.defaults.items()):
        id_, interface = parse_id(text), canonical_interface(written)
        if id_ is None:
            notes.refuse(
                ("defaults", written),
                f"{text!r} is not ECOSYSTEM:NAME",
                hint=f"One of {', '.join(f'{ecosystem}:' for ecosystem in Ecosystem)}.",
            )
        elif defaults.setdefault(interface, id_) != id_:
            message = f"{written} is {interface}, which is {defaults[interface]} already"
            notes.refuse(("defaults", written), message, hint="Keep one of the two lines.")
    return None if notes.problems else LayerDefaults(parsed.environment, defaults)


def parse_id(text: str) -> PackageId | None:
    """Return the package that `ECOSYSTEM:NAME` means, None if it means none."""
    ecosystem, colon, name = text.partition(":")
    if not colon or not name or ecosystem not in set(Ecosystem):
        return None
    return PackageId(Ecosystem(ecosystem), name)


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
        for requirement in (needed for candidate in candidates for needed in candidate.requires):
            for need in package_needs(requirement):
                needs.setdefault(need.id, set()).add(need)
    return {id_: frozenset(packages) for id_, packages in sorted(needs.items())}


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
            pending += [admitted for need in needs for admitted in self._admitted(need)]
        self._works |= dict.fromkeys(reached, True)
        changed = True
        while changed:
            changed = False
            for key, candidate in reached.items():
                if self._works[key] and not all(map(self._is_met, candidate.requires)):
                    self._works[key] = False
                    changed = True
