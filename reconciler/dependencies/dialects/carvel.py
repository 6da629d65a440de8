"""Read the manifests of Carvel and kpt packages, in both spellings of the dependency proposal."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from reconciler.base.lazy import LazyModule
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.reading import (
    PAUSED,
    Diagnostics,
    Document,
    ParsedManifest,
    Path,
    annotations,
    join_api_version,
    manifest_label,
)
from reconciler.dependencies.model.cluster import written_values
from reconciler.dependencies.model.packages import (
    DEFAULT_ACTIONS,
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    Need,
    Override,
    PackageId,
    PackageNeed,
    Platform,
    PlatformNeed,
    Requirement,
    Values,
)
from reconciler.dependencies.versions import parse_relaxed
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at

if TYPE_CHECKING:
    from reconciler.api import carvel as api
else:  # its models are slow to make, and few fleets have such manifests
    api = LazyModule("reconciler.api.carvel")

GROUPS = frozenset({"data.packaging.carvel.dev", "internal.packaging.carvel.dev", "packaging.carvel.dev"})
WITHDRAWN = "reconciler.dev/withdrawn"
DOWNGRADABLE = "packaging.carvel.dev/downgradable"
IGNORED_PLATFORMS = {
    Platform.KUBERNETES: "packaging.carvel.dev/ignore-kubernetes-version-selection",
    Platform.KAPP_CONTROLLER: "packaging.carvel.dev/ignore-kapp-controller-version-selection",
}
"""Annotations that install a package on a version of a platform that it does not allow."""

_DEPENDENCY_KINDS = ("package", "gvk", "or")


def read_carvel(document: Document, source: Source) -> ParsedManifest:
    """Read a Package, InternalPackage, PackageMetadata, PackageInstall or PackageRepository. Total."""
    notes = Diagnostics(source, manifest_label(document))
    match document.get("kind"):
        case "Package" | "InternalPackage":
            return read_package(document, source)
        case "PackageInstall":
            return _read_install(document, notes)
        case "PackageMetadata":
            notes.parse(api.PackageMetadata, document)
        case "PackageRepository":
            _check_repository(document, notes)  # `index sync` and `index import` read it
        case kind:
            message = f"{kind} is no kind of Carvel's packaging API"
            notes.refuse(("kind",), message, reason=Reason.UNKNOWN_KIND)
    return notes.reading()


def _check_repository(document: Document, notes: Diagnostics) -> None:
    parsed = notes.parse(api.PackageRepository, document)
    inline, image = (parsed.spec.fetch.inline, parsed.spec.fetch.image) if parsed else (None, None)
    if inline and inline.paths_from:
        message = "The packages of these objects are not read: bring them with `reconciler index import`"
        notes.warn(("spec", "fetch", "inline", "pathsFrom"), message)
    if image and image.sub_path:
        notes.warn(("spec", "fetch", "image", "subPath"), "Packages are read below packages/ alone")


def read_package(
    document: Document, source: Source, *, dialect: Dialect = Dialect.CARVEL, id_: PackageId | None = None
) -> ParsedManifest:
    """Read one version of a package.

    With `id_` the manifest is inside a package of another kind, and `id_` is the identity of that package.
    """
    notes = Diagnostics(source, manifest_label(document))
    plain, items = _normalize(document, notes)
    parsed = notes.parse(api.CarvelPackage, plain)
    if parsed is None:
        return notes.reading()
    spec = parsed.spec
    version = notes.version(spec.version, ("spec", "version"), parse_relaxed)
    if version is None:
        return notes.reading()
    if id_ is None and parsed.metadata.name not in ("", f"{spec.ref_name}.{spec.version}"):
        notes.warn(("metadata", "name"), f"The name should be {spec.ref_name}.{spec.version}")
    _check_aliases(spec, items, notes)
    installation = InstallationType.NO_RESTRICTIONS
    if spec.installation_type in set(InstallationType):
        installation = InstallationType(spec.installation_type)
    else:
        message = f"installationType {spec.installation_type!r} is none of {', '.join(InstallationType)}"
        notes.refuse(("spec", "installationType"), message)
    reader = _Items(notes, dialect)
    requires = [reader.requirement(item, path) for item, path in zip(spec.dependencies, items, strict=True)]
    candidate = Candidate(
        id_ or PackageId(Ecosystem.CARVEL, spec.ref_name),
        version,
        requires=tuple(requires),
        provides=tuple(Gvk.of(provided.api_version, provided.kind) for provided in spec.provides),
        installation=installation,
        platforms=tuple(_platforms(spec, notes)),
        names=(spec.ref_name,) if id_ else (),
        withdrawn=annotations(document).get(WITHDRAWN, ""),
        location=source.location,
    )
    return notes.reading(candidates=(candidate,))


def _check_aliases(spec: "api.CarvelPackageSpec", items: list[Path], notes: Diagnostics) -> None:
    """Note a second dependency of one alias: overrides and values by this alias are for both."""
    seen: set[str] = set()
    for item, path in zip(spec.dependencies, items, strict=True):
        if item.alias in seen:
            message = f"What installs give {item.alias} is for each dependency of this alias"
            notes.warn((*path, "alias"), message)
        seen |= {item.alias} - {""}


def _platforms(spec: "api.CarvelPackageSpec", notes: Diagnostics) -> Iterator[PlatformNeed]:
    selections = (
        (Platform.KUBERNETES, spec.kubernetes_version_selection, "kubernetesVersionSelection"),
        (Platform.KAPP_CONTROLLER, spec.kapp_controller_version_selection, "kappControllerVersionSelection"),
    )
    for platform, selection, name in selections:
        if selection is not None and selection.constraints:
            path = ("spec", name, "constraints")
            # Distributions report versions such as 1.29.1-gke.5: a prerelease of a platform is admitted.
            range_ = notes.range(Dialect.CARVEL, selection.constraints, path, prereleases=())
            yield PlatformNeed(platform, range_, notes.at(*path))


def _normalize(document: Document, notes: Diagnostics) -> tuple[dict[str, Any], list[Path]]:
    """Rewrite the spellings of the proposal to one, and return the path of each dependency."""
    spec = dict(mapping_at(document, "spec"))
    base: Path = ("spec", "dependencies")
    items = spec.get("dependencies") or []
    if isinstance(items, Mapping):
        base = (*base, "packages")
        items = items.get("packages") or []
        notes.warn(base, "dependencies.packages is read as the list dependencies")
    paths: list[Path] = []
    if isinstance(items, list):
        paths = [(*base, number) for number in range(len(items))]
        spec["dependencies"] = [_item(item, path, notes) for item, path in zip(items, paths, strict=True)]
    provides = spec.get("provides") or []
    if isinstance(provides, list):
        spec["provides"] = [_api(item, ("spec", "provides", n), notes) for n, item in enumerate(provides)]
    return {**document, "spec": spec}, paths


def _item(item: Any, path: Path, notes: Diagnostics) -> Any:
    if not isinstance(item, Mapping):
        return item
    normalized = dict(item)
    kinds = [name for name in _DEPENDENCY_KINDS if name in normalized]
    if len(kinds) != 1:
        fields = " and ".join(kinds) if kinds else "nothing"
        notes.refuse(path, f"A dependency names exactly one of package, gvk and or; this one names {fields}")
    if "gvk" in normalized:
        normalized["gvk"] = _api({"gvk": normalized["gvk"]}, (*path, "gvk"), notes)
    if normalized.get("or") == []:
        notes.refuse((*path, "or"), "or names no alternative", hint="Name a package or an API in it.")
    if isinstance(normalized.get("or"), list):
        members = enumerate(normalized["or"])
        normalized["or"] = [_item(member, (*path, "or", n), notes) for n, member in members]
    return normalized


def _api(item: Any, path: Path, notes: Diagnostics) -> Any:
    if not isinstance(item, Mapping):
        return item
    fields = mapping_at(item, "gvk") or item
    if "group" in fields or "version" in fields:
        notes.warn(path, "group, kind and version are read as apiVersion and kind")
    return join_api_version(fields)


class _Items(Struct, frozen=True):
    notes: Diagnostics
    dialect: Dialect

    def requirement(self, item: "api.Dependency", path: Path) -> Requirement:
        needs = list(self._alternatives(item, path, ""))
        return Requirement(
            tuple(need for need, _ in needs),
            alias=item.alias,
            aliases=tuple(alias for _, alias in needs) if any(alias for _, alias in needs) else (),
            optional=item.optional,
            install=item.install is not False,
            actions=DEFAULT_ACTIONS,
            location=self.notes.at(*path),
        )

    def _alternatives(self, item: "api.Dependency", path: Path, alias: str) -> Iterator[tuple[Need, str]]:
        """Yield the needs of an item, each with the alias of its own alternative; the item's is `alias`."""
        for number, member in enumerate(item.or_ or ()):
            yield from self._alternatives(member, (*path, "or", number), member.alias or alias)
        if item.package is not None:
            yield self._package(item.package, (*path, "package", "version")), alias
        if item.gvk is not None:
            by = item.gvk.provided_by
            provider = None if by is None else self._package(by, (*path, "gvk", "providedBy", "version"))
            location = self.notes.at(*path, "gvk", "apiVersion")
            yield ApiNeed(Gvk.of(item.gvk.api_version, item.gvk.kind), provider, location), alias

    def _package(self, reference: "api.PackageReference", path: Path) -> PackageNeed:
        range_ = self.notes.range(self.dialect, reference.version, path)
        return PackageNeed(PackageId(Ecosystem.CARVEL, reference.ref_name), range_, self.notes.at(*path))


def _read_install(document: Document, notes: Diagnostics) -> ParsedManifest:
    parsed = notes.parse(api.PackageInstall, _normalized_install(document, notes))
    if parsed is None:
        return notes.reading()
    spec, noted = parsed.spec, annotations(document)
    selection = spec.package_ref.version_selection
    if selection is None:
        notes.refuse(
            ("spec", "packageRef"),
            "packageRef.versionSelection is missing",
            reason=Reason.MISSING_FIELD,
            hint="Add `versionSelection: {constraints: '>=1.0.0'}`",
        )
    range_ = _selected_range(selection, ("spec", "packageRef", "versionSelection"), notes)
    settings = {"cluster": document["spec"].get("cluster"), "serviceAccountName": spec.service_account_name}
    dependencies = spec.dependencies
    path: Path = ("spec", "dependencies")
    overrides = []
    for number, override in enumerate(dependencies.override):
        version_selection, at = override.version_selection, (*path, "override", number)
        another = None
        if version_selection and (version_selection.constraints or version_selection.prereleases is not None):
            another = _selected_range(version_selection, (*at, "versionSelection"), notes)
        overrides.append(Override(override.ref_name, another, override.install, notes.at(*at)))
    install = Install(
        parsed.metadata.namespace or "default",
        parsed.metadata.name,
        Dialect.CARVEL,
        PackageNeed(
            PackageId(Ecosystem.CARVEL, spec.package_ref.ref_name),
            range_,
            notes.at("spec", "packageRef", "versionSelection", "constraints"),
        ),
        kind="PackageInstall",
        api_version=parsed.api_version,
        labels=tuple(sorted((parsed.metadata.labels or {}).items())),
        install_dependencies=dependencies.install,
        overrides=tuple(overrides),
        values=tuple(
            Values(v.alias or v.ref_name, v.secret_ref.name, v.secret_ref.key) for v in dependencies.values
        ),
        inherit=written_values({name: value for name, value in settings.items() if value}),
        allow_downgrade=DOWNGRADABLE in noted,
        target=_target(spec.cluster, parsed.metadata.namespace or "default"),
        prune_dependencies=dependencies.delete_policy != "orphan",
        ignore_platforms=frozenset(platform for platform, name in IGNORED_PLATFORMS.items() if name in noted),
        location=notes.source.location,
    )
    if spec.paused or spec.canceled:
        notes.warn(("spec",), PAUSED, reason=Reason.PAUSED)
    return notes.reading(installs=(install,))


def _target(cluster: "api.ClusterReference | None", namespace: str) -> str:
    """Return the name of another cluster: that of the Secret with its kubeconfig."""
    if cluster is None:
        return ""
    secret = cluster.kubeconfig_secret_ref
    return "/".join([namespace, secret.name, *([secret.key] if secret.key not in ("", "value") else [])])


def _selected_range(selection: "api.VersionSelection | None", path: Path, notes: Diagnostics) -> Any:
    text = selection.constraints if selection else ""
    admitted = selection.prereleases.identifiers if selection and selection.prereleases else None
    return notes.range(Dialect.CARVEL, text, (*path, "constraints"), prereleases=admitted)


def _normalized_install(document: Document, notes: Diagnostics) -> Document:
    """Bring a single value of the proposal's last example, a mapping, into the list that it belongs to.

    And correct its misspelt `contraints`: a constraint that is silently dropped would be worse.
    """
    if not isinstance(document.get("spec"), Mapping):
        return document
    spec = dict(document["spec"])
    if isinstance(spec.get("values"), Mapping):
        notes.warn(("spec", "values"), "values is read as a list of one", hint="Start the item with a dash")
        spec["values"] = [spec["values"]]
    dependencies = mapping_at(spec, "dependencies")
    if isinstance(dependencies.get("override"), list):
        path: Path = ("spec", "dependencies", "override")
        items = enumerate(dependencies["override"])
        corrected = [_correct_override(item, (*path, number), notes) for number, item in items]
        spec["dependencies"] = {**dependencies, "override": corrected}
    return {**document, "spec": spec}


def _correct_override(override: Any, path: Path, notes: Diagnostics) -> Any:
    selection = mapping_at(override, "versionSelection")
    if "contraints" not in selection:
        return override
    notes.warn((*path, "versionSelection"), "contraints is read as constraints", hint="Correct the spelling")
    spelled = {"constraints" if key == "contraints" else key: value for key, value in selection.items()}
    return {**override, "versionSelection": spelled}


def read_kpt(
    document: Document, source: Source, *, repository: str, path: str, revision: str
) -> ParsedManifest:
    """Read the `Package` manifest of one published revision of a kpt package. Total.

    `repository` is a normalised URL and `path` the package's directory; its identity is both
    together, and `spec.refName` is a further name of it. The version is the tag's: the
    version in the manifest is advisory, so a copy of it in a later revision does no harm.
    """
    spec = document.get("spec")
    tagged = {**document, "spec": {**spec, "version": revision}} if isinstance(spec, dict) else document
    return read_package(tagged, source, dialect=Dialect.KPT, id_=package_id(repository, path))


def package_id(repository: str, path: str) -> PackageId:
    """Return the identity of a kpt package."""
    return PackageId(Ecosystem.KPT, f"{repository}//{path.strip('/')}")


def version_of(tag: str) -> str:
    """Return the version of a tag of a package: Porch's `vN` is `N.0.0`."""
    number = tag.removeprefix("v")
    return f"{number}.0.0" if number.isdigit() else number
