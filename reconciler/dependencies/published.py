"""One published version of a package, from its folder in the index: header, manifest, what it brings."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from reconciler.api.meta import ApiModel
from reconciler.dependencies.contents import CONTENT, compositions_of, kinds_of
from reconciler.dependencies.dialects import read_bundle, read_meta, read_package
from reconciler.dependencies.dialects.reading import Document, Notes, Reading, named
from reconciler.dependencies.model import Candidate, Ecosystem, Gvk, PackageId, Pairs
from reconciler.dependencies.versions import VersionError, parse_loose
from reconciler.errors import Location
from reconciler.ids import group_of
from reconciler.inventory import Source
from reconciler.reasons import Reason

KIND = "PackageVersion"
_RETAIN = "reconciler.dev/retain"
"""The label of a package with data that outlives its use."""

_META = "meta.pkg.crossplane.io"
_CARVEL = frozenset({"data.packaging.carvel.dev", "internal.packaging.carvel.dev"})


class PackageVersion(ApiModel):
    """The header of a version whose content lives elsewhere, mostly in a registry.

    `source` is the package's name there without tag; `provides` lists `group/version/Kind` for
    CRDs that are not in the folder; `withdrawn` says why nobody should newly choose it.
    """

    api_version: str
    kind: str
    source: str
    version: str
    digest: str = ""
    withdrawn: str = ""
    provides: tuple[str, ...] = Field(default=(), strict=False)
    compositions: tuple[str, ...] = Field(default=(), strict=False)
    labels: dict[str, str] = Field(default_factory=dict)
    keywords: tuple[str, ...] = Field(default=(), strict=False)


def read_published(documents: Iterable[tuple[Document, Source]]) -> Reading:
    """Read the documents of one version's folder as one candidate. Total; order-free.

    The header says what the package is called and which version this is; the manifest of its
    ecosystem, which may be missing, says what it needs; CRDs, XRDs and Compositions say what it brings.
    """
    several = list(documents)
    headers = [(d, s) for d, s in several if d.get("kind") == KIND]
    if len(headers) != 1:
        source = several[0][1] if several else Source(Location(""))
        notes = Notes(source, "package version")
        notes.refuse((), f"A version's folder has one {KIND}, not {len(headers)}")
        return notes.reading()
    document, source = headers[0]
    notes = Notes(source, named({**document, "metadata": {"name": document.get("source")}}))
    header = notes.parse(PackageVersion, document)
    if header is None:
        return notes.reading()
    kinds = {_gvk(text, notes) for text in header.provides}
    objects = [d for d, _ in several if d.get("kind") in CONTENT]
    kinds |= kinds_of(objects)
    manifests = [pair for pair in several if pair[0].get("kind") not in {KIND, *CONTENT}]
    reading = _manifest(header, manifests, source)
    problems = (*notes.problems, *reading.problems)
    if problems or not reading.candidates:
        return replace(reading, candidates=(), problems=problems)
    candidate = replace(
        reading.candidates[0],
        digest=header.digest,
        withdrawn=header.withdrawn,
        provides=tuple(sorted({*reading.candidates[0].provides, *kinds})),
        compositions=tuple(sorted({*header.compositions, *compositions_of(objects)})),
        labels=_pairs(header.labels),
        keywords=tuple(sorted({*header.keywords, *reading.candidates[0].keywords})),
        source=header.source,
        retain=header.labels.get(_RETAIN) == "true",
    )
    return Reading((candidate,), warnings=reading.warnings)


def _manifest(header: PackageVersion, manifests: list[tuple[Document, Source]], source: Source) -> Reading:
    for document, own in manifests:
        group = group_of(str(document.get("apiVersion") or ""))
        if group == _META:
            return read_meta(document, own, image=header.source, version=header.version)
        if group in _CARVEL:
            spec = document.get("spec")
            stated = {**(spec if isinstance(spec, Mapping) else {}), "version": header.version}
            return read_package({**document, "spec": stated}, own)
        if not document.get("apiVersion"):
            return read_bundle(document, own, repository=header.source, version=header.version)
    return _bare(header, source)


def _bare(header: PackageVersion, source: Source) -> Reading:
    """Return a package of which only the header is known: it needs nothing."""
    notes = Notes(source, f"{KIND} {header.source}")
    try:
        version = parse_loose(header.version)
    except VersionError as error:
        notes.refuse(("version",), str(error), reason=Reason.INVALID_VERSION)
        return notes.reading()
    id_ = PackageId(Ecosystem.XPKG, header.source)
    return notes.reading(candidates=(Candidate(id_, version, location=source.location),))


def _gvk(text: str, notes: Notes) -> Gvk:
    parts = text.rsplit("/", 2)
    if len(parts) != 3:  # noqa: PLR2004 - group, version and kind
        notes.refuse(("provides",), f"{text!r} is not group/version/Kind")
        return Gvk("", "", text)
    return Gvk(*parts)


def _pairs(labels: Mapping[str, Any]) -> Pairs:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))
