"""Read Crossplane's package manifests, of today and of the packages-v2 design."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reconciler.base.lazy import LazyModule, regex
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import parse_boolean, suggest
from reconciler.dependencies.dialects.reading import (
    OWNER,
    PAUSED,
    Diagnostics,
    Document,
    ParsedManifest,
    Path,
    annotations,
    join_api_version,
    manifest_label,
    parse_source,
)
from reconciler.dependencies.model.cluster import written_values
from reconciler.dependencies.model.packages import (
    DEFAULT_ACTIONS,
    ActivationRequest,
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    PackageId,
    PackageNeed,
    Platform,
    PlatformNeed,
    Requirement,
    RevisionPolicy,
    VersionRange,
    exact_range,
)
from reconciler.dependencies.versions import VersionError, parse_loose
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at, value_at
from reconciler.names.ids import group_of

if TYPE_CHECKING:
    from reconciler.api import crossplane as api
else:  # its models are slow to make, and few fleets have such manifests
    api = LazyModule("reconciler.api.crossplane")

_PROJECT = "meta.dev.upbound.io"
META_GROUPS = frozenset({"meta.pkg.crossplane.io", _PROJECT})
"""The API groups of a package's own `crossplane.yaml`, and of a Project's `upbound.yaml`."""
GROUPS = frozenset({"pkg.crossplane.io", *META_GROUPS, "packages.crossplane.io", "stacks.crossplane.io"})
_INSTALLS = frozenset({"Provider", "Configuration", "Function", "Package"})
REVISIONS = frozenset({"ProviderRevision", "ConfigurationRevision", "FunctionRevision", "PackageRevision"})
_GONE = {
    "ClusterPackageInstall": "Write a Provider or Configuration (pkg.crossplane.io/v1) with `spec.package`",
    "PackageInstall": "Write a Provider or Configuration (pkg.crossplane.io/v1), which stand cluster-wide",
    "StackDefinition": "Build a Configuration package with Compositions instead of a behavior.yaml",
}
_PACKAGES = ("provider", "configuration", "function", "package")
_CARRIED = frozenset({"DeploymentRuntimeConfig", "ControllerConfig"})
PARENT = "pkg.crossplane.io/package"
PRUNE_DEPENDENCIES = "reconciler.dev/prune-dependencies"
PRUNE_KINDS = "reconciler.dev/prune-orphaned-crds"
TAKE_OVER = "reconciler.dev/take-over"
"""The annotation of a package that may get the kinds of the packages that it names."""

_INHERITED = ("packagePullSecrets", "packagePullPolicy", "serviceAccount")
"""The settings that a dependency takes over from its parent.

A runtime config is none: it can fix the name of a Deployment, which two packages cannot share.
"""
_LEGACY = {"imagePullSecrets": "packagePullSecrets", "imagePullPolicy": "packagePullPolicy"}


def read_crossplane(document: Document, source: Source) -> ParsedManifest:
    """Read a Provider, Configuration, Function, design Package, revision, Lock or ImageConfig.

    The kinds of the first package manager are refused, with what to write instead.
    """
    notes = Diagnostics(source, manifest_label(document))
    kind = str(document.get("kind"))
    if kind in _GONE:
        notes.refuse(
            ("kind",),
            f"{kind} belongs to a package manager that no longer exists",
            reason=Reason.DEPRECATED_MANIFEST,
            hint=_GONE[kind],
        )
    elif group_of(str(document.get("apiVersion"))) in META_GROUPS:
        notes.warn(
            ("kind",),
            "What a package needs is read from the index, not from manifests",
            hint="Bring it there with `reconciler index import FILE`, and remove it here.",
        )
    elif kind in _INSTALLS:
        return _read_install(document, notes)
    elif kind in REVISIONS:
        return _read_revision(document, notes)
    elif kind in ("Lock", "PackageLock"):
        notes.parse(api.Lock, flatten_lock(document))
    elif kind == "ImageConfig":
        return _read_image_config(document, notes)
    elif kind in _CARRIED:
        notes.parse(api.RuntimeConfig, document)
    else:
        notes.refuse(("kind",), f"{kind} is no kind of Crossplane's package API", reason=Reason.UNKNOWN_KIND)
    return notes.reading()


def _read_install(document: Document, notes: Diagnostics) -> ParsedManifest:
    renamed = {_LEGACY.get(k, k): v for k, v in mapping_at(document, "spec").items()}
    parsed = notes.parse(api.CrossplanePackage, {**document, "spec": renamed or document.get("spec")})
    if parsed is None:
        return notes.reading()
    name, tag, digest = parse_source(parsed.spec.package)
    range_ = _pinned(tag, digest, notes)
    install = Install(
        "",
        parsed.metadata.name,
        Dialect.CROSSPLANE,
        PackageNeed(
            PackageId(Ecosystem.XPKG, notes.image(name, ("spec", "package"))),
            range_,
            notes.at("spec", "package"),
        ),
        kind=parsed.kind,
        api_version=parsed.api_version,
        labels=tuple(sorted((parsed.metadata.labels or {}).items())),
        skip_dependencies=parsed.spec.skip_dependency_resolution,
        ignore_platforms=frozenset(
            {Platform.CROSSPLANE} if parsed.spec.ignore_crossplane_constraints else ()
        ),
        inherit=written_values({k: renamed[k] for k in _INHERITED if renamed.get(k) is not None}),
        revisions=_policy(parsed.spec, annotations(document), notes),
        prune_dependencies=parse_boolean(annotations(document).get(PRUNE_DEPENDENCIES)) is not False,
        tag=tag if digest else "",
        location=notes.source.location,
    )
    if annotations(document).get("crossplane.io/paused") == "true":
        notes.warn(("metadata", "annotations", "crossplane.io/paused"), PAUSED, reason=Reason.PAUSED)
    return notes.reading(installs=(install,))


def _read_image_config(document: Document, notes: Diagnostics) -> ParsedManifest:
    parsed = notes.parse(api.ImageConfig, document)
    rewrite = parsed.spec.rewrite_image if parsed is not None else None
    matched = parsed.spec.match_images if parsed is not None else ()
    rewrites = tuple((match.prefix, rewrite.prefix) for match in matched if rewrite is not None)
    return replace(notes.reading(), rewrites=() if notes.problems else rewrites)


def _policy(
    spec: "api.CrossplanePackageSpec", noted: Mapping[str, str], notes: Diagnostics
) -> RevisionPolicy:
    """Return the revision policy of a package. A limit of 0 keeps all revisions, no limit means 1.

    Source: crossplane, packages-v2 design, spec.revisionActivationPolicy and spec.revisionHistoryLimit.
    """
    limit = 1 if spec.revision_history_limit is None else spec.revision_history_limit
    if limit < 0:
        notes.refuse(("spec", "revisionHistoryLimit"), f"revisionHistoryLimit is {limit}, below 0")
    consents = (name.strip() for name in noted.get(TAKE_OVER, "").split(","))
    return RevisionPolicy(
        manual=spec.revision_activation_policy == "Manual",
        history_limit=limit,
        take_over=tuple(sorted(name for name in consents if name)),
        prune_kinds=noted.get(PRUNE_KINDS) == "true",
    )


def _read_revision(document: Document, notes: Diagnostics) -> ParsedManifest:
    """Read the requested state of one revision; generated revisions request nothing.

    The name may follow either of Crossplane's naming schemes. If it is not ours, the package label and the
    image identify the revision.
    """
    parsed = notes.parse(api.Revision, document)
    if parsed is None or OWNER in annotations(document):
        return notes.reading()
    name, tag, digest = parse_source(parsed.spec.image or parsed.spec.package)
    # Names of revisions end in a hash, and may be cut: the label names the package object.
    labels = parsed.metadata.labels or {}
    activation = ActivationRequest(
        parsed.kind,
        parsed.metadata.name,
        parsed.spec.desired_state == "Active",
        package=labels.get(PARENT, ""),
        image=f"{name}:{tag}" if tag else "",
        digest=digest,
        location=notes.source.location,
    )
    return notes.reading(activations=(activation,))


def _pinned(tag: str, digest: str, notes: Diagnostics) -> VersionRange:
    path: Path = ("spec", "package")
    # A digest counts, whatever the tag beside it: registries do the same.
    if digest:
        return exact_range(Dialect.CROSSPLANE, digest)
    if not tag:
        notes.refuse(path, "spec.package has neither a tag nor a digest", hint="Add one, as in name:v1.2.3")
        return VersionRange(Dialect.CROSSPLANE)
    try:
        if parse_loose(tag).is_partial:
            notes.warn(path, f"{tag} is a moving tag: it is read as a range", reason=Reason.INVALID_VERSION)
        return exact_range(Dialect.CROSSPLANE, tag)
    except VersionError:
        notes.refuse(
            path,
            f"The tag {tag} is no version, so nothing can be compared with it",
            reason=Reason.INVALID_VERSION,
            hint="Name a version, or pin the digest",
        )
        return VersionRange(Dialect.CROSSPLANE)


def read_meta(
    document: Document, source: Source, *, image: str, version: str, provides: tuple[Gvk, ...] = ()
) -> ParsedManifest:
    """Read a package's own `crossplane.yaml` as one candidate. Total.

    `image` is the package's name without tag; `provides` are the kinds of its CRDs, which the
    manifest does not tell.
    """
    notes = Diagnostics(source, manifest_label(document))
    group = group_of(str(document.get("apiVersion")))
    parsed = notes.parse(api.Project if group == _PROJECT else api.Meta, _join_crds(document))
    kind = str(document.get("kind"))
    kind = "Configuration" if (group, kind) == (_PROJECT, "Project") else kind
    if kind not in _INSTALLS:
        message = f"{kind} is no kind of package of {group}"
        notes.refuse(("kind",), message, reason=Reason.UNKNOWN_KIND, hint=suggest(kind, sorted(_INSTALLS)))
    number = notes.version(version, ())
    if number is not None and number.is_partial:
        notes.warn((), f"{version} is a moving tag and no candidate", reason=Reason.INVALID_VERSION)
    if parsed is None or number is None or number.is_partial:
        return notes.reading()
    spec = parsed.spec
    requires: list[Requirement] = []
    platforms: list[PlatformNeed] = []
    if spec.crossplane is not None and spec.crossplane.version:
        platforms.append(_platform(spec.crossplane.version, ("spec", "crossplane", "version"), notes))
    for place, dependency in enumerate(spec.depends_on):
        path: Path = ("spec", "dependsOn", place)
        kinds = [name for name in (*_PACKAGES, "crd", "crossplane") if getattr(dependency, name)]
        if len(kinds) != 1:
            message = "A dependency names exactly one of package, crd and crossplane; this one names "
            message += " and ".join(kinds) if kinds else "none of them"
            notes.refuse(path, message, hint="Write each as an item of its own." if kinds else "")
        elif dependency.crossplane:
            platforms.append(_platform(dependency.crossplane, (*path, "crossplane"), notes))
        else:
            requires.append(_dependency(dependency, path, notes))
    candidate = Candidate(
        PackageId(Ecosystem.XPKG, image),
        number,
        requires=tuple(requires),
        provides=provides,
        platforms=tuple(platforms),
        source=image,
        kind=str(kind),
        location=source.location,
    )
    return notes.reading(candidates=(candidate,))


def _platform(text: str, path: Path, notes: Diagnostics) -> PlatformNeed:
    return PlatformNeed(Platform.CROSSPLANE, notes.range(Dialect.CROSSPLANE, text, path), notes.at(*path))


def _dependency(dependency: "api.MetaDependency", path: Path, notes: Diagnostics) -> Requirement:
    if dependency.crd:
        need = ApiNeed(_crd(dependency.crd, (*path, "crd"), notes))
        return Requirement((need,), actions=DEFAULT_ACTIONS, location=notes.at(*path))
    field = next(name for name in _PACKAGES if getattr(dependency, name))
    kind = field.capitalize() if field != "package" else dependency.kind or ""
    if kind not in ("", *_INSTALLS):
        hint = suggest(kind, sorted(_INSTALLS))
        notes.refuse((*path, "kind"), f"{kind} is no kind of package", reason=Reason.UNKNOWN_KIND, hint=hint)
    written = getattr(dependency, field)
    name, tag, digest = parse_source(written)
    text = dependency.version or digest or tag
    if tag or digest:
        notes.warn(path, f"The version of {written} belongs into the field version")
    range_ = notes.range(Dialect.CROSSPLANE, text, (*path, "version"))
    id_ = PackageId(Ecosystem.XPKG, notes.image(name, (*path, field)))
    package = PackageNeed(id_, range_, notes.at(*path, "version"), kind)
    return Requirement((package,), actions=DEFAULT_ACTIONS, location=notes.at(*path))


def _join_crds(document: Document) -> Document:
    """Bring the CRDs of dependencies, which the design calls GVKs, into apiVersion and kind."""
    spec, listed = mapping_at(document, "spec"), value_at(document, "spec", "dependsOn")
    if not isinstance(listed, list):
        return document
    joined = [
        {**item, "crd": join_api_version(crd)} if (crd := mapping_at(item, "crd")) else item
        for item in listed
    ]
    return {**document, "spec": {**spec, "dependsOn": joined}}


_CRD_NAME = regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


def _crd(crd: "str | api.TypeMeta", path: Path, notes: Diagnostics) -> Gvk:
    """Return the API of a CRD's name, PLURAL.GROUP, or of a kind with its group and version."""
    words = crd.split("/") if isinstance(crd, str) else [*crd.api_version.split("/"), crd.kind]
    if len(words) == 1 and _CRD_NAME.fullmatch(words[0]):
        plural, _, group = words[0].partition(".")
        return Gvk(group, "", plural)
    if len(words) == 3 and all(words):  # noqa: PLR2004 - group, version and kind
        return Gvk(*words)
    message = f"{'/'.join(words)} is no API: a group, a version and a kind"
    notes.refuse(path, message, hint="Write PLURAL.GROUP, GROUP/VERSION/KIND, or both apiVersion and kind.")
    return Gvk("", "", words[-1])


def flatten_lock(document: Document) -> dict[str, Any]:
    """Bring the design's lock, with a spec and bare names, into the shape of today's."""
    flat = {**document, **mapping_at(document, "spec")}
    flat.pop("spec", None)
    packages = flat.get("packages")
    if isinstance(packages, Mapping):
        packages = [{"name": name, **value} for name, value in packages.items() if isinstance(value, Mapping)]
    for package in packages if isinstance(packages, list) else ():
        listed = package.get("dependencies") or []
        package["dependencies"] = [{"package": d} if isinstance(d, str) else d for d in listed]
    return {**flat, "packages": packages or []}


def read_lock(document: Document, source: Source) -> tuple[tuple[Candidate, ...], ParsedManifest]:
    """Read an upstream `Lock` as candidates that were chosen before. Total."""
    notes = Diagnostics(source, manifest_label(document))
    parsed = notes.parse(api.Lock, flatten_lock(document))
    candidates = []
    for number, package in enumerate(parsed.packages if parsed else ()):
        name, tag, digest = parse_source(package.source or package.image or package.name)
        version = package.version or tag or digest
        pinned_digest = version if version.startswith("sha256:") else digest
        try:
            text = "0.0.0" if version.startswith("sha256:") else version
            candidate = Candidate(PackageId(Ecosystem.XPKG, name), parse_loose(text), digest=pinned_digest)
        except VersionError as error:
            notes.warn(("packages", number, "version"), str(error), reason=Reason.INVALID_VERSION)
            continue
        needs = []
        for dependency in package.dependencies:
            range_ = notes.range(Dialect.CROSSPLANE, dependency.constraints, ("packages",))
            id_ = PackageId(Ecosystem.XPKG, parse_source(dependency.package)[0])
            needs.append(Requirement((PackageNeed(id_, range_),)))
        candidates.append(replace(candidate, requires=tuple(needs), source=name, location=source.location))
    return tuple(candidates), notes.reading()
