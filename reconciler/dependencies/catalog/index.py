"""The package index: its versions, the defaults of interfaces, and packages of repositories beside it."""

import itertools
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from reconciler.api.annotations import VERSION, check_mapping
from reconciler.api.meta import ApiModel
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.carvel import read_carvel, read_package
from reconciler.dependencies.dialects.crossplane import META_GROUPS, TAKE_OVER, read_meta
from reconciler.dependencies.dialects.porter import read_bundle
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    Document,
    ParsedManifest,
    canonical_interface,
    joined,
    manifest_label,
    parse_source,
    parsed_or_broken,
)
from reconciler.dependencies.model.cluster import Catalogue, RefusedVersion
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Gvk,
    Install,
    Interface,
    PackageId,
    PackageNeed,
    Pairs,
    Requirement,
    VersionRange,
)
from reconciler.inventory.inventory import RepositoryView, Source, SourcedDocument, counted_views
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.names.ids import Oid, PackageKey, group_of, normalise_url
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
        interfaces = sorted({interface.id for c in candidates for interface in c.interfaces})
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

    api_version: Literal["reconciler.dev/v1alpha1"]
    kind: Literal["PackageIndex"]
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
        aliases = header.value.get("aliases") if header.value.get("kind") == VERSION_KIND else ()
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
    for candidates in map(catalogue.everywhere, catalogue.packages):
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
        searches: dict[str, _Search] = {}
        for install in installs:
            if not install.external:
                # Few namespaces have packages of their own.
                space = install.namespace if catalogue.local else ""
                search = searches.setdefault(space, _Search(catalogue, space))
                search.follow(install.need, str(install), expands=not install.skip_dependencies)
        missing = (item for search in searches.values() for item in search.missing.items())
        for need, parents in missing:
            lacking.setdefault(need, set()).update(parents)
            partly |= {need[0]} if catalogue.everywhere(catalogue.find(need[0])) else set()
    return tuple(
        MissingPackage(id_, range_, tuple(sorted(parents)), id_ in partly)
        for (id_, range_), parents in sorted(lacking.items(), key=lambda item: (item[0][0], item[0][1].text))
    )


class _Search(Struct):
    """Finds what is missing in one catalogue."""

    catalogue: Catalogue
    namespace: str = ""
    missing: dict[tuple[PackageId, VersionRange], set[str]] = field(default_factory=dict)
    _works: set[Candidate] = field(default_factory=set)
    """The versions of which everything that they need is there. A cycle of versions works."""
    _followed: set[Candidate] = field(default_factory=set)

    def __post_init__(self) -> None:
        for id_ in self.catalogue.packages:
            self._works.update(self.catalogue.candidates(id_, self.namespace))
        # All works until some requirement cannot be met.
        while broken := [c for c in self._works if not all(map(self._is_met, c.requires))]:
            self._works.difference_update(broken)

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
            if not (expands and self._works.isdisjoint(candidates)) or highest in self._followed:
                continue
            self._followed.add(highest)
            for requirement in highest.requires:
                if not self._is_met(requirement):
                    named = next(package_needs(requirement), None)
                    pending += [(named, f"{highest.id.name} {highest.version}")] if named else []

    def _admitted(self, need: PackageNeed) -> list[Candidate]:
        id_ = self.catalogue.find(need.id)
        versions = self.catalogue.candidates(id_, self.namespace)
        return [versions[place] for place in sorted(self.catalogue.places(id_, need.range, self.namespace))]

    def _is_met(self, requirement: Requirement) -> bool:
        """Tell whether a requirement has an alternative that works; other needs count as met."""
        is_asked = requirement.may_install_all and not requirement.optional
        is_plain = all(isinstance(need, PackageNeed) for need in requirement.alternatives)
        admitted = map(self._admitted, package_needs(requirement))
        return not is_asked or not is_plain or not all(map(self._works.isdisjoint, admitted))


_CRD, _XRD, _COMPOSITION = "CustomResourceDefinition", "CompositeResourceDefinition", "Composition"
_DEFINITION, _PUBLICATION = "InfrastructureDefinition", "InfrastructurePublication"
CONTENT_KINDS = frozenset({_CRD, _XRD, _COMPOSITION, _DEFINITION, _PUBLICATION})
"""Kinds of objects that define the provided APIs and compositions of a package."""

_PUBLISHED_AS = "Requirement"


def served_apis(crd: Mapping[str, Any]) -> tuple[Gvk, ...]:
    """Return the APIs that a CustomResourceDefinition serves, sorted; none if it is not one.

    Its plural name is among them, without a version, for requirements that name the CRD.
    """
    return _apis(crd.get("spec"), "names")


def provided_kinds(objects: Iterable[Mapping[str, Any]]) -> frozenset[Gvk]:
    """Return the APIs of all CRDs that the objects of a package create. Total; order-free.

    A CompositeResourceDefinition implies one CRD, and another one for its claims. The design's
    InfrastructureDefinition implies one too, and an InfrastructurePublication of it another.

    Source: crossplane, internal/xcrd, ForCompositeResource and ForCompositeResourceClaim.
    """
    contents = list(objects)
    publications = (content for content in contents if _kind(content) == _PUBLICATION)
    published = {value_at(item, "spec", "infrastructureDefinitionRef", "name") for item in publications}
    kinds: set[Gvk] = set()
    for content in contents:
        spec, kind = content.get("spec"), _kind(content)
        if kind in (_CRD, _XRD):
            kinds.update((*_apis(spec, "names"), *(_apis(spec, "claimNames") if kind == _XRD else ())))
        elif kind == _DEFINITION:
            apis = _apis(mapping_at(spec, "crdSpecTemplate"), "names")
            kinds.update(apis)
            if value_at(content, "metadata", "name") in published - {None}:
                kinds.update(api._replace(kind=api.kind + _PUBLISHED_AS) for api in apis if api.version)
    return frozenset(kinds)


def composition_names(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the Compositions among the objects of a package. Total; order-free."""
    metadata = (mapping_at(content, "metadata") for content in objects if _kind(content) == _COMPOSITION)
    return frozenset(str(meta["name"]) for meta in metadata if meta.get("name"))


def composed_functions(objects: Iterable[Mapping[str, Any]]) -> Pairs:
    """Return each Composition with each Function that its pipeline runs, by their names. Total; sorted."""
    pairs: set[tuple[str, str]] = set()
    for content in (content for content in objects if _kind(content) == _COMPOSITION):
        composition = value_at(content, "metadata", "name")
        steps = mappings_at(content, "spec", "pipeline") if composition else ()
        functions = (value_at(step, "functionRef", "name") for step in steps)
        pairs |= {(str(composition), str(function)) for function in functions if function}
    return tuple(sorted(pairs))


def defined_kinds(objects: Iterable[Mapping[str, Any]]) -> frozenset[Gvk]:
    """Return the kinds of all definitions in every version, served or not. Total; order-free."""
    specs = [content.get("spec") for content in objects if _kind(content) in (_CRD, _XRD)]
    pairs = itertools.product(specs, ("names", "claimNames"))
    return frozenset(api for spec, key in pairs for api in _apis(spec, key, everything=True) if api.version)


def _apis(spec: Any, key: str, *, everything: bool = False) -> tuple[Gvk, ...]:
    """Return the served APIs of one set of names, or all; a single `version` counts as served."""
    names, versions = mapping_at(spec, key), mappings_at(spec, "versions")
    if not names:
        return ()
    served = [str(v.get("name")) for v in versions if everything or v.get("served")]
    if not versions and spec.get("version"):
        served = [str(spec["version"])]
    if not served:
        return ()
    group = str(spec.get("group", ""))
    gvks = [Gvk(group, version, str(names.get("kind", ""))) for version in served]
    return tuple(sorted([*gvks, Gvk(group, "", str(names.get("plural", "")))]))


VERSION_KIND = "PackageVersion"
_DIGEST = regex(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}|[0-9a-f]{40}(?:[0-9a-f]{24})?")
_RETAIN = "reconciler.dev/retain"
"""The label of a package with data that outlives its use."""
_CARVEL = frozenset({"data.packaging.carvel.dev", "internal.packaging.carvel.dev"})
_PACKAGES = frozenset({"Package", "InternalPackage"})
_CONTENTS = CONTENT_KINDS | {
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ManagedResourceDefinition",
    "ManagedResourceActivationPolicy",
    "Operation",
    "CronOperation",
    "WatchOperation",
}
"""Kinds of objects that Crossplane packages may hold; the further ones bring no API."""


class PackageVersion(ApiModel):
    """Header of a version with its content elsewhere, mostly in a registry.

    `source` is the package's name there without tag, `aliases` are its names in mirrors; `ecosystem` is
    needed where no manifest is beside the header. `provides` lists `group/version/Kind` for CRDs that are not
    in the folder, `interfaces` those that a bundle implements, with the version of each or none; `withdrawn`
    is the reason not to choose this version any more.
    """

    api_version: Literal["reconciler.dev/v1alpha1"]
    kind: str
    source: str
    aliases: Annotated[tuple[str, ...], Field(strict=False)] = ()
    version: str
    ecosystem: Annotated[Ecosystem | None, Field(strict=False)] = None
    digest: str = ""
    withdrawn: str = ""
    provides: Annotated[tuple[str, ...], Field(strict=False)] = ()
    compositions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    interfaces: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    keywords: Annotated[tuple[str, ...], Field(strict=False)] = ()


def read_package_version(documents: Iterable[tuple[Document, Source]]) -> ParsedManifest:
    """Parse the documents of one version's folder. Total; order-free.

    The header has name and version; the manifest of its ecosystem, which may be missing, has the
    requirements, and agrees with it; CRDs, XRDs and Compositions have the provided APIs. Carvel Packages name
    themselves and need no header. A document that is none of these is refused: it may be what is
    needed. An empty folder is no version.
    """
    pairs = list(documents)
    faults = tuple(source.fault for _, source in pairs if source.fault is not None)
    if faults or (pairs and not any(document for document, _ in pairs)):
        return ParsedManifest(problems=faults)
    headers = [(d, s) for d, s in pairs if _kind(d) == VERSION_KIND]
    readings = [_beside(d, s) for d, s in pairs if _kind(d) not in {VERSION_KIND, *_CONTENTS}]
    # What imgpkg's layout has above the versions of a package tells of all of them.
    is_about = all(_kind(document) == "PackageMetadata" for document, _ in pairs)
    if not headers and pairs and (is_about or any(_is_package(document) for document, _ in pairs)):
        packaged = [read_package(d, s) for d, s in pairs if _is_package(d)]
        return joined([*(reading for reading in readings if reading is not None), *packaged])
    if len(headers) != 1:
        source = pairs[0][1] if pairs else Source(Location(""))
        notes = Diagnostics(source, "package version")
        message = f"A version's folder has one {VERSION_KIND}, not {len(headers)}"
        notes.refuse((), message, hint="" if headers else "Write it with `reconciler index import PATH`.")
        return notes.reading()
    document, source = headers[0]
    notes = Diagnostics(source, manifest_label({**document, "metadata": {"name": document.get("source")}}))
    header = notes.parse(PackageVersion, document)
    if header is None:
        return notes.reading()
    if header.digest and not _DIGEST.fullmatch(header.digest):
        hint = "Write sha256: and 64 hexadecimal digits, or the commit of a Git source."
        notes.refuse(("digest",), f"{header.digest!r} is no digest", hint=hint)
    for fault in check_mapping(VERSION, ("labels",), header.labels):
        notes.refuse(fault.path, fault.message, reason=fault.reason, hint=fault.hint)
    kinds = {_gvk(text, notes) for text in header.provides}
    objects = [d for d, _ in pairs if _kind(d) in CONTENT_KINDS]
    kinds |= provided_kinds(objects)
    manifests = [(d, s) for d, s in pairs if _kind(d) not in {VERSION_KIND, *_CONTENTS} and _is_manifest(d)]
    for _, further in manifests[1:]:
        message = f"A version has one manifest, and another one is at {manifests[0][1].location}"
        notes.problems.append(
            Problem(further.location, Reason.DUPLICATE_OBJECT, message, _ONE_MANIFEST, notes.subject)
        )
    declared = tuple(_declared(header, notes))
    reading = joined([*(r for r in readings if r is not None), _manifest(header, manifests, source)])
    packages = (candidate.id for candidate in reading.candidates)
    for other in (package for package in packages if header.ecosystem not in (None, package.ecosystem)):
        message = f"The ecosystem is {header.ecosystem}, but its manifest is {other}'s"
        notes.refuse(("ecosystem",), message)
    problems = (*notes.problems, *reading.problems)
    if problems or not reading.candidates:
        return replace(reading, candidates=(), problems=problems)
    id_, implemented = reading.candidates[0].id, reading.candidates[0].interfaces
    names = {interface.id for interface in implemented}
    candidate = replace(
        reading.candidates[0],
        digest=header.digest,
        names=tuple(sorted({*header.aliases, *reading.candidates[0].names} - {id_.name})),
        withdrawn=header.withdrawn,
        provides=tuple(sorted({*reading.candidates[0].provides, *kinds})),
        defined=tuple(sorted(defined_kinds(objects))),
        interfaces=(*implemented, *(interface for interface in declared if interface.id not in names)),
        compositions=tuple(sorted({*header.compositions, *composition_names(objects)})),
        functions=composed_functions(objects),
        labels=tuple(sorted(header.labels.items())),
        keywords=tuple(sorted({*header.keywords, *reading.candidates[0].keywords})),
        source=id_.name if id_.ecosystem is Ecosystem.XPKG else header.source,
        retain=header.labels.get(_RETAIN) == "true",
    )
    return ParsedManifest((candidate,), warnings=reading.warnings)


_ONE_MANIFEST = "Give each version a folder of its own; `reconciler index import FILE` does."


def _kind(document: Document) -> str:
    kind = document.get("kind")
    return kind if isinstance(kind, str) else ""


def _is_package(document: Document) -> bool:
    return group_of(str(document.get("apiVersion") or "")) in _CARVEL and _kind(document) in _PACKAGES


def _is_manifest(document: Document) -> bool:
    """Tell whether a document is a manifest of a version: of Crossplane, Carvel or, without group, Porter."""
    api_version = document.get("apiVersion")
    is_meta = group_of(str(api_version or "")) in META_GROUPS
    return is_meta or _is_package(document) or (not api_version and "name" in document)


def _beside(document: Document, source: Source) -> ParsedManifest | None:
    """Return the reading of a document that is no manifest of a version; None of one that is."""
    if _is_manifest(document):
        return None
    if group_of(str(document.get("apiVersion") or "")) in _CARVEL and _kind(document) == "PackageMetadata":
        return read_carvel(document, source)
    notes = Diagnostics(source, manifest_label(document))
    if not document:
        notes.refuse((), "The file says nothing, so what the package needs is not known", hint="Remove it.")
    else:
        called = " of ".join(str(document.get(key) or f"no {key}") for key in ("kind", "apiVersion"))
        notes.refuse((), f"{called} is nothing that says what a package needs or brings", hint=_UNDERSTOOD)
    return notes.reading()


_UNDERSTOOD = (
    "Remove it, or write a Package, a crossplane.yaml, an upbound.yaml, a porter.yaml, a bundle.json or CRDs."
)


def _manifest(
    header: PackageVersion, manifests: list[tuple[Document, Source]], source: Source
) -> ParsedManifest:
    for document, own_source in manifests:
        if group_of(str(document.get("apiVersion") or "")) in META_GROUPS:
            name, _, _ = parse_source(header.source)
            return read_meta(document, own_source, image=name, version=header.version)
        notes = Diagnostics(own_source, manifest_label(document))
        if _is_package(document):
            spec = mapping_at(document, "spec")
            _agree(header.source, spec.get("refName"), ("spec", "refName"), "source", notes)
            _agree(header.version, spec.get("version"), ("spec", "version"), "version", notes)
            reading = read_package({**document, "spec": {**spec, "version": header.version}}, own_source)
        else:
            _agree(header.version, document.get("version"), ("version",), "version", notes)
            reading = read_bundle(document, own_source, repository=header.source, version=header.version)
        return joined([notes.reading(), reading])
    return _bare(header, source)


def _agree(stated: str, actual: object, path: tuple[str, ...], name: str, notes: Diagnostics) -> None:
    if actual and str(actual).removeprefix("v") != stated.removeprefix("v"):
        message = f"The manifest is of {actual}, but the {VERSION_KIND} beside it says {name} {stated}"
        notes.refuse(path, message, hint="`reconciler index import FILE` takes both from the file.")


def _bare(header: PackageVersion, source: Source) -> ParsedManifest:
    """Return a package of which only the header is known: it needs nothing. Only bundles have interfaces."""
    notes = Diagnostics(source, f"{VERSION_KIND} {header.source}")
    version = notes.version(header.version, ("version",))
    if version is None:
        return notes.reading()
    ecosystem = header.ecosystem or (Ecosystem.BUNDLE if header.interfaces else Ecosystem.XPKG)
    if ecosystem is Ecosystem.KPT:
        hint = "Register its repository; `index` is for packages of registries."
        notes.refuse(("ecosystem",), "A kpt package is known by the tags of its repository", hint=hint)
    name = parse_source(header.source)[0] if ecosystem is Ecosystem.XPKG else header.source
    id_ = PackageId(ecosystem, name)
    return notes.reading(candidates=(Candidate(id_, version, location=source.location),))


def _declared(header: PackageVersion, notes: Diagnostics) -> Iterator[Interface]:
    for name, text in sorted(header.interfaces.items()):
        version = notes.version(text, ("interfaces", name)) if text else None
        if version is not None or not text:
            yield Interface(canonical_interface(name), version, is_declared=True)


def _gvk(text: str, notes: Diagnostics) -> Gvk:
    parts = text.rsplit("/", 2)
    if len(parts) != 3:  # noqa: PLR2004 - group, version and kind
        notes.refuse(("provides",), f"{text!r} is not group/version/Kind")
        return Gvk("", "", text)
    return Gvk(*parts)


class PackageTree(NamedTuple):
    """One content of one kpt package, to which a variant can be pinned, tagged or not."""

    package: PackageKey
    tree: Oid


class PublishedPackages(Struct, frozen=True):
    """Versions of kpt packages with requirements.

    `candidates` can be chosen for any requirement. `revisions` are further contents to which a variant can
    be pinned: drafts, branches, and tagged revisions without requirements. A package without requirements
    in any revision is left out. A published revision cannot be corrected, so its problems are warnings.
    """

    candidates: tuple[Candidate, ...] = ()
    revisions: Mapping[PackageTree, Candidate] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    refused: Mapping[str, tuple[RefusedVersion, ...]] = field(default_factory=dict)
    """Revisions that are no candidates because of a problem, by the name of their package."""


class DependencyInputs(Struct, frozen=True):
    """Packages and lock files that `read` collects for resolution."""

    published: PublishedPackages = PublishedPackages()
    locks: Mapping[str, bytes] = field(default_factory=dict)


def repository_names(views: Iterable[RepositoryView]) -> Mapping[str, str]:
    """Return the name of each repository in package ids, by its normalised URL. Order-free.

    The name is the normalised URL of the registration. A URL relative to the control repository stays
    relative, so `../blueprints` names the same packages in every clone. Of several registrations of one
    repository, an absolute URL comes first, then the lowest.
    """
    written: dict[str, set[str]] = {}
    for view in counted_views(tuple(views)):
        git = view.manifest.spec.git
        if git is not None and view.url:
            name = normalise_url(git.repo)
            name = posixpath.normpath(name) if name.startswith(".") else name
            written.setdefault(view.url, set()).add(name)
    return {url: min(names, key=lambda name: (name.startswith("."), name)) for url, names in written.items()}
