"""Read published package versions: folders of the index, the APIs they provide, repository names."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from reconciler.api.meta import ApiModel
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects import read_bundle, read_meta, read_package
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    Document,
    ParsedManifest,
    canonical_interface,
    manifest_label,
    parse_source,
)
from reconciler.dependencies.model.cluster import RefusedVersion
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Gvk, Interface, PackageId, Pairs
from reconciler.dependencies.versions import VersionError, parse_loose
from reconciler.inventory.inventory import RepositoryView, Source, counted_views
from reconciler.names.ids import Oid, PackageKey, group_of, normalise_url
from reconciler.names.problems import Problem

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
    kinds: set[Gvk] = set()
    for content in contents:
        spec, kind = content.get("spec"), content.get("kind")
        if kind in (_CRD, _XRD):
            kinds.update((*_apis(spec, "names"), *(_apis(spec, "claimNames") if kind == _XRD else ())))
        elif kind == _DEFINITION and isinstance(spec, Mapping):
            own = _apis(spec.get("crdSpecTemplate"), "names")
            kinds.update(own)
            if any(_publishes(other, content) for other in contents):
                kinds.update(api._replace(kind=api.kind + _PUBLISHED_AS) for api in own if api.version)
    return frozenset(kinds)


def composition_names(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the Compositions among the objects of a package. Total; order-free."""
    metadata = (content.get("metadata") for content in objects if content.get("kind") == _COMPOSITION)
    return frozenset(str(meta["name"]) for meta in metadata if isinstance(meta, Mapping) and meta.get("name"))


def _publishes(publication: Mapping[str, Any], definition: Mapping[str, Any]) -> bool:
    spec, meta = publication.get("spec"), definition.get("metadata")
    reference = spec.get("infrastructureDefinitionRef") if isinstance(spec, Mapping) else None
    if publication.get("kind") != _PUBLICATION or not (
        isinstance(reference, Mapping) and isinstance(meta, Mapping)
    ):
        return False
    return reference.get("name") == meta.get("name")


def _apis(spec: Any, key: str) -> tuple[Gvk, ...]:
    """Return the served APIs of one set of names; a single `version` counts as served."""
    names = spec.get(key) if isinstance(spec, Mapping) else None
    if not isinstance(names, Mapping):
        return ()
    listed = spec.get("versions")
    versions = [v for v in listed if isinstance(v, Mapping)] if isinstance(listed, list) else []
    served = [str(v.get("name")) for v in versions if v.get("served")]
    if not versions and spec.get("version"):
        served = [str(spec["version"])]
    if not served:
        return ()
    group = str(spec.get("group", ""))
    own = [Gvk(group, version, str(names.get("kind", ""))) for version in served]
    return tuple(sorted([*own, Gvk(group, "", str(names.get("plural", "")))]))


VERSION_KIND = "PackageVersion"


_RETAIN = "reconciler.dev/retain"
"""The label of a package with data that outlives its use."""


_META = "meta.pkg.crossplane.io"


_CARVEL = frozenset({"data.packaging.carvel.dev", "internal.packaging.carvel.dev"})


class PackageVersion(ApiModel):
    """Header of a version with its content elsewhere, mostly in a registry.

    `source` is the package's name there without tag, `aliases` are its names in mirrors; `ecosystem` is
    needed where no manifest is beside the header. `provides` lists `group/version/Kind` for CRDs that are not
    in the folder, `interfaces` those that a bundle implements, with the version of each or none; `withdrawn`
    is the reason not to choose this version any more.
    """

    api_version: str
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
    """Parse the documents of one version's folder as one candidate. Total; order-free.

    The header has name and version; the manifest of its ecosystem, which may be missing, has the
    requirements; CRDs, XRDs and Compositions have the provided APIs.
    """
    pairs = list(documents)
    headers = [(d, s) for d, s in pairs if d.get("kind") == VERSION_KIND]
    if len(headers) != 1:
        source = pairs[0][1] if pairs else Source(Location(""))
        notes = Diagnostics(source, "package version")
        notes.refuse((), f"A version's folder has one {VERSION_KIND}, not {len(headers)}")
        return notes.reading()
    document, source = headers[0]
    notes = Diagnostics(source, manifest_label({**document, "metadata": {"name": document.get("source")}}))
    header = notes.parse(PackageVersion, document)
    if header is None:
        return notes.reading()
    kinds = {_gvk(text, notes) for text in header.provides}
    objects = [d for d, _ in pairs if d.get("kind") in CONTENT_KINDS]
    kinds |= provided_kinds(objects)
    manifests = [pair for pair in pairs if pair[0].get("kind") not in {VERSION_KIND, *CONTENT_KINDS}]
    declared = tuple(_declared(header, notes))
    reading = _manifest(header, manifests, source)
    for other in (
        c for c in reading.candidates if c.id.ecosystem is not (header.ecosystem or c.id.ecosystem)
    ):
        notes.refuse(("ecosystem",), f"The ecosystem is {header.ecosystem}, but its manifest is {other.id}'s")
    problems = (*notes.problems, *reading.problems)
    if problems or not reading.candidates:
        return replace(reading, candidates=(), problems=problems)
    id_ = reading.candidates[0].id
    candidate = replace(
        reading.candidates[0],
        digest=header.digest,
        names=tuple(sorted({*header.aliases, *reading.candidates[0].names} - {id_.name})),
        withdrawn=header.withdrawn,
        provides=tuple(sorted({*reading.candidates[0].provides, *kinds})),
        interfaces=_merged(reading.candidates[0].interfaces, declared),
        compositions=tuple(sorted({*header.compositions, *composition_names(objects)})),
        labels=_pairs(header.labels),
        keywords=tuple(sorted({*header.keywords, *reading.candidates[0].keywords})),
        source=id_.name if id_.ecosystem is Ecosystem.XPKG else header.source,
        retain=header.labels.get(_RETAIN) == "true",
    )
    return ParsedManifest((candidate,), warnings=reading.warnings)


def _manifest(
    header: PackageVersion, manifests: list[tuple[Document, Source]], source: Source
) -> ParsedManifest:
    for document, own in manifests:
        group = group_of(str(document.get("apiVersion") or ""))
        if group == _META:
            name, _, _ = parse_source(header.source)
            return read_meta(document, own, image=name, version=header.version)
        if group in _CARVEL:
            spec = document.get("spec")
            stated = {**(spec if isinstance(spec, Mapping) else {}), "version": header.version}
            return read_package({**document, "spec": stated}, own)
        if not document.get("apiVersion"):
            return read_bundle(document, own, repository=header.source, version=header.version)
    return _bare(header, source)


def _bare(header: PackageVersion, source: Source) -> ParsedManifest:
    """Return a package of which only the header is known: it needs nothing. Only bundles have interfaces."""
    notes = Diagnostics(source, f"{VERSION_KIND} {header.source}")
    try:
        version = parse_loose(header.version)
    except VersionError as error:
        notes.refuse(("version",), str(error), reason=Reason.INVALID_VERSION)
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
        try:
            version = parse_loose(text) if text else None
        except VersionError as error:
            notes.refuse(("interfaces", name), str(error), reason=Reason.INVALID_VERSION)
            continue
        yield Interface(canonical_interface(name), version, is_declared=True)


def _merged(own: tuple[Interface, ...], declared: tuple[Interface, ...]) -> tuple[Interface, ...]:
    """Return the interfaces of a manifest, and those that only the header names."""
    names = {interface.id for interface in own}
    return (*own, *(interface for interface in declared if interface.id not in names))


def _gvk(text: str, notes: Diagnostics) -> Gvk:
    parts = text.rsplit("/", 2)
    if len(parts) != 3:  # noqa: PLR2004 - group, version and kind
        notes.refuse(("provides",), f"{text!r} is not group/version/Kind")
        return Gvk("", "", text)
    return Gvk(*parts)


def _pairs(labels: Mapping[str, Any]) -> Pairs:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


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
            written.setdefault(view.url, set()).add(_normal(git.repo))
    return {url: min(names, key=lambda name: (name.startswith("."), name)) for url, names in written.items()}


def _normal(written: str) -> str:
    name = normalise_url(written)
    return posixpath.normpath(name) if name.startswith(".") else name
