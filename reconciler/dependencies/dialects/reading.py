"""Result of parsing one manifest: entities, errors and normalization warnings."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel

from reconciler.api.validation import parse_model
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.packages import (
    ActivationRequest,
    Candidate,
    Dialect,
    Install,
    VersionRange,
    version_range,
)
from reconciler.dependencies.versions import Prereleases, Version, VersionError, lint_constraint, parse_loose
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at, value_at
from reconciler.names.ids import normalise_url
from reconciler.names.problems import Problem, defect_problem

_IMAGE = regex(r"(?P<name>.+?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>sha256:[0-9a-f]+))?")
_REPOSITORY = regex(r"(?:[\w.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
"""Names of images that a registry can have: lower case behind its host."""
_GIT = regex(
    r"(?:git::|git\+)?(?P<remote>(?:[a-z][a-z0-9+.-]*://(?:[^/@]+@)?|[\w.-]+@(?!sha256:)[\w.-]+:(?!\d+/))?[^?#@]+?)"
    r"(?:(?:\?(?=[^#]*\Z)(?:[^#]*&)?ref=|[#@])(?P<ref>[^?#@&]+)(?:&[^#]*)?|:(?P<tag>[^:/@?#]+))?"
)
_FORCED = regex(r"git::|git\+|[a-z][a-z0-9+.-]*://|[\w.-]+@(?!sha256:)[\w.-]+:(?!\d+/)")
_MARKED = regex(r"[^:/]\.git(?:[/:@?#]|$)|^[^?]*\?(?:|(?s:.*)[?&])ref=")
_OCI = ("oci://", "docker://")
_PREFIX, _PLURAL = "io.cnab.interface.", "io.cnab.interfaces."
_COMMIT = regex(r"[0-9a-f]{40}")


def parse_image(text: str) -> tuple[str, str, str]:
    """Split an image reference into name, tag and digest; missing parts are empty."""
    match = _IMAGE.fullmatch(text)
    return (match["name"], match["tag"] or "", match["digest"] or "") if match else (text, "", "")


@functools.lru_cache(maxsize=4096)
def parse_source(text: str) -> tuple[str, str, str]:
    """Split the source of a Crossplane package, an image or a Git repository, into name, version and digest.

    A Git source has a scheme, a user, `.git` or `?ref=`. Its name is `https://HOST/PATH`, `//DIRECTORY`
    behind it, however it is reached, so that one repository is one package; a commit is its digest. Of a
    tag with a directory (`aws/v1.2.0`) the version counts.

    Source: Crossplane, packages-v2 design: `spec.package` is an OCI image or a Git source.
    """
    if text.startswith(_OCI) or not (_FORCED.match(text) or _MARKED.search(text)):
        return parse_image(text)
    match = _GIT.fullmatch(text)
    if match is None:
        return text, "", ""
    name, ref = _repository(match["remote"]), match["ref"] or match["tag"] or ""
    return (name, "", ref) if _COMMIT.fullmatch(ref) else (name, ref.rpartition("/")[2], "")


def _repository(remote: str) -> str:
    head, separator, tail = remote.partition("://")
    path = tail if separator else head
    path, inside, directory = path.partition(".git/")
    if not inside:
        path, inside, directory = path.partition("//")
    repository = normalise_url(f"{head}{separator}{path}" if separator else path)
    below = f"//{directory.strip('/')}" if directory.strip("/") else ""
    return f"{'file' if head == 'file' else 'https'}://{repository}{below}"


def canonical_interface(text: str) -> str:
    """Return the one name of a well-known interface, `io.cnab.interface.NAME`, also of its plural and `NAME`.

    Source: Porter, dependency namespaces and labels, which spells `io.cnab.interface.mysql` in three ways.
    """
    if text.startswith(_PLURAL):
        return _PREFIX + text.removeprefix(_PLURAL)
    return text if "." in text or "/" in text or not text else _PREFIX + text


M = TypeVar("M", bound=BaseModel)
Document = Mapping[str, Any]
PAUSED = "It is paused: what is locked for it runs once it is resumed"
Path = tuple[str | int, ...]


class ParsedManifest(Struct, frozen=True):
    """The entities of one manifest. A manifest with a problem yields none; a warning stops nothing."""

    candidates: tuple[Candidate, ...] = ()
    installs: tuple[Install, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    activations: tuple[ActivationRequest, ...] = ()
    rewrites: tuple[tuple[str, str], ...] = ()
    """The prefixes of images that a cluster replaces when it pulls, each with the new one."""


def parsed_or_broken(source: Source, parse: Callable[[], ParsedManifest | None]) -> ParsedManifest | None:
    """Return what `parse` reads of a manifest; where a bug of ours breaks that, a manifest with a problem."""
    try:
        with guard(source.location):
            return parse()
    except DefectError as error:
        problem = defect_problem(error, source.location, subject=f"manifest {source.location.path}")
        return ParsedManifest(problems=(problem,))


def joined(readings: Iterable[ParsedManifest]) -> ParsedManifest:
    """Return the readings of several documents as one: with a problem in any of them it has no candidate."""
    parts = list(readings)
    problems = tuple(problem for part in parts for problem in part.problems)
    candidates = () if problems else tuple(candidate for part in parts for candidate in part.candidates)
    warnings = tuple(warning for part in parts for warning in part.warnings)
    return ParsedManifest(candidates, problems=problems, warnings=warnings)


class Diagnostics(Struct):
    """Errors and normalization warnings of one manifest, collected while it is parsed."""

    source: Source
    subject: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def at(self, *path: str | int) -> Location:
        """Return the location of a field."""
        return self.source.at(*path)

    def refuse(
        self, path: Path, message: str, *, reason: Reason = Reason.INVALID_MANIFEST, hint: str = ""
    ) -> None:
        """Add an error."""
        self.problems.append(Problem(self.at(*path), reason, message, hint=hint, subject=self.subject))

    def warn(
        self, path: Path, message: str, *, reason: Reason = Reason.READ_DIFFERENTLY, hint: str = ""
    ) -> None:
        """Add a warning about an accepted field that is not read as it is written."""
        self.warnings.append(Problem(self.at(*path), reason, message, hint=hint, subject=self.subject))

    def parse(self, model: type[M], document: object, at: Path = ()) -> M | None:
        """Return the manifest, or the part of it at a path, as its model, or None and its problems."""
        parsed = parse_model(model, document, accepted=self.source.observed)
        if isinstance(parsed, model):
            return parsed
        for fault in parsed if isinstance(parsed, tuple) else ():
            self.refuse((*at, *fault.path), fault.message, reason=fault.reason, hint=fault.hint)
        return None

    def image(self, name: str, path: Path) -> str:
        """Return the name of an image or Git source; a problem if no registry can have it."""
        _, separator, rest = name.partition("://")
        is_git = separator and not name.startswith(_OCI)
        if name and not is_git and not _REPOSITORY.fullmatch(name):
            close = _REPOSITORY.search((rest or name).lower())
            hint = f"Write {close[0]}, if that is the image." if close else ""
            self.refuse(path, f"{name} is the name of no image", hint=hint)
        return name

    def version(self, text: str, path: Path, parse: Callable[[str], Version] = parse_loose) -> Version | None:
        """Read a version; None, and a problem, if it is none."""
        try:
            return parse(text)
        except VersionError as error:
            self.refuse(path, str(error), reason=Reason.INVALID_VERSION)
            return None

    def range(
        self,
        dialect: Dialect,
        text: str,
        path: Path,
        *,
        prereleases: Prereleases = None,
        releases_only: bool = False,
    ) -> VersionRange:
        """Read a range; any version, and a problem, if it is none."""
        try:
            range_ = version_range(dialect, text, prereleases=prereleases, releases_only=releases_only)
        except VersionError as error:
            self.refuse(path, str(error), reason=Reason.INVALID_CONSTRAINT, hint=_HINTS[dialect.grammar])
            return VersionRange(dialect)
        if range_.constraint is not None:
            for doubt in lint_constraint(range_.constraint):
                self.warn(path, doubt, reason=Reason.INVALID_CONSTRAINT)
        return range_

    def reading(
        self,
        *,
        candidates: tuple[Candidate, ...] = (),
        installs: tuple[Install, ...] = (),
        activations: tuple[ActivationRequest, ...] = (),
    ) -> ParsedManifest:
        """Return everything; a manifest with a problem yields no entities."""
        if any(not install.name for install in installs):
            hint = "Give it one: a name that the cluster makes up is another one each time."
            self.refuse((), "It has no metadata.name", reason=Reason.MISSING_FIELD, hint=hint)
        problems, warnings = tuple(self.problems), tuple(self.warnings)
        if problems:
            return ParsedManifest(problems=problems, warnings=warnings)
        return ParsedManifest(candidates, installs, problems, warnings, activations)


_HINTS = {
    "masterminds": "Write a range such as '>=1.2.0, <2.0.0', '~1.2.3' or '^1.2.3'",
    "carvel": "Write a range such as '>=1.2.0 <2.0.0', '1.2.x' or '1.2.3'",
}


def manifest_label(document: Document) -> str:
    """Return how a document calls itself: kind, namespace and name."""
    meta = value_at(document, "metadata") if isinstance(document.get("metadata"), dict) else document
    parts = [str(meta.get(key) or "") for key in ("namespace", "name")]
    kind = document.get("kind") or document.get("schemaType") or "manifest"
    return f"{kind} {'/'.join(part for part in parts if part)}".strip()


def join_api_version(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an API with its `apiVersion`, also where group and version are separate fields."""
    if "group" not in fields and "version" not in fields:
        return dict(fields)
    group, version = str(fields.get("group") or ""), str(fields.get("version") or "")
    rest = {key: value for key, value in fields.items() if key not in ("group", "version")}
    return {**rest, "apiVersion": f"{group}/{version}" if group else version}


OWNER = "reconciler.dev/owner"
"""The annotation of generated manifests: an instance, and the package that they are in."""


def is_generated_by(document: Document, instance: str) -> bool:
    """Tell whether the owner annotation of a manifest names this instance."""
    return annotation_or_custom(document, OWNER).startswith(f"{instance}/")


def annotation_or_custom(document: Document, name: str) -> str:
    """Return an annotation of a manifest, or what an Installation, which has none, has below `custom`."""
    has_metadata = isinstance(document.get("metadata"), dict)
    path = ("metadata", "annotations") if has_metadata else ("custom",)
    return str(value_at(document, *path, name) or "")


def annotations(document: Document) -> dict[str, str]:
    """Return the annotations of a document; none if it has none or they are no map."""
    return {str(k): str(v) for k, v in mapping_at(document, "metadata", "annotations").items()}
