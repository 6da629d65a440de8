"""Carvel's packaging manifests, with the dependency fields that were proposed for them."""

from typing import Annotated, Literal

from pydantic import Field

from reconciler.api.meta import ForeignManifest, ForeignModel, Items, known_versions
from reconciler.names.ids import KNOWN_VERSIONS, GroupKind

_PACKAGE = GroupKind("data.packaging.carvel.dev", "Package")
_INSTALL = GroupKind("packaging.carvel.dev", "PackageInstall")
DataVersion = Annotated[
    str, known_versions(*KNOWN_VERSIONS[_PACKAGE], "internal.packaging.carvel.dev/v1alpha1")
]
PackagingVersion = Annotated[str, known_versions(*KNOWN_VERSIONS[_INSTALL])]


class ProvidedApi(ForeignModel):
    """An API; both spellings of the proposal are brought into this one before it is read."""

    api_version: str
    kind: str


class GroupVersionKind(ProvidedApi):
    """A needed API, and the package that has to bring it."""

    provided_by: "PackageReference | None" = None


class PackageReference(ForeignModel):
    """A package and a range of its versions."""

    ref_name: str
    version: str = ""


class Dependency(ForeignModel):
    """One dependency: exactly one of a package, an API, or alternatives of which one is enough."""

    package: PackageReference | None = None
    gvk: GroupVersionKind | None = None
    or_: Items["Dependency"] | None = Field(default=None, alias="or")
    optional: bool = False
    alias: str = ""
    install: bool | None = None


class Constraints(ForeignModel):
    """Supported versions of Kubernetes or kapp-controller."""

    constraints: str = ""


class CarvelPackageSpec(ForeignModel):
    """One version of a package."""

    ref_name: str
    version: str
    installation_type: str = "noRestrictions"
    dependencies: Items[Dependency] = ()
    provides: Items[ProvidedApi] = ()
    licenses: Items[str] = ()
    released_at: str | None = None
    release_notes: str = ""
    capacity_requirements_description: str = ""
    included_software: Items[dict[str, object]] = ()
    template: dict[str, object] | None = None
    values_schema: dict[str, object] | None = None
    kubernetes_version_selection: Constraints | None = None
    kapp_controller_version_selection: Constraints | None = None


class CarvelPackage(ForeignManifest):
    """`data.packaging.carvel.dev/v1alpha1 Package`, also stored as InternalPackage."""

    api_version: DataVersion
    spec: CarvelPackageSpec


class PackageMetadataSpec(ForeignModel):
    """Description of all versions of a package."""

    display_name: str = ""
    short_description: str = ""
    long_description: str = ""
    categories: Items[str] = ()
    provider_name: str = ""
    maintainers: Items[dict[str, object]] = ()
    support_description: str = ""
    icon_svg_base64: str = Field(default="", alias="iconSVGBase64")


class PackageMetadata(ForeignManifest):
    """`data.packaging.carvel.dev/v1alpha1 PackageMetadata`; it never affects resolution."""

    api_version: DataVersion
    spec: PackageMetadataSpec = PackageMetadataSpec()


class PrereleaseSelection(ForeignModel):
    """Admitted pre-releases: all, or those with one of these identifiers."""

    identifiers: Items[str] = ()


class VersionSelection(ForeignModel):
    """A range of versions, with its own rule for pre-releases."""

    constraints: str = ""
    prereleases: PrereleaseSelection | None = None


class PackageRef(ForeignModel):
    """Name and versions of the package to install."""

    ref_name: str
    version_selection: VersionSelection | None = None


class TagSelection(ForeignModel):
    """The tags of an image or a repository that may be taken."""

    semver: VersionSelection | None = None


class RepositoryImage(ForeignModel):
    """An image, or a bundle of imgpkg, with Packages below `packages/`."""

    url: str = ""
    image: str = ""
    tag_selection: TagSelection | None = None
    secret_ref: dict[str, object] | None = None
    sub_path: str = ""


class RepositoryGit(ForeignModel):
    """A repository of Git with Packages below `packages/` of a directory."""

    url: str
    ref: str = ""
    ref_selection: TagSelection | None = None
    sub_path: str = ""
    secret_ref: dict[str, object] | None = None
    lfs_skip_smudge: bool = False


class RepositoryInline(ForeignModel):
    """Packages in the manifest itself, or in objects of the cluster."""

    paths: dict[str, str] = Field(default_factory=dict)
    paths_from: Items[dict[str, object]] = ()


class RepositoryFetch(ForeignModel):
    """Where the packages of a repository are."""

    image: RepositoryImage | None = None
    imgpkg_bundle: RepositoryImage | None = None
    git: RepositoryGit | None = None
    http: dict[str, object] | None = None
    inline: RepositoryInline | None = None


class PackageRepositorySpec(ForeignModel):
    """Where packages are, and when the controller looks again."""

    fetch: RepositoryFetch
    sync_period: str | None = None
    paused: bool = False


class PackageRepository(ForeignManifest):
    """`packaging.carvel.dev/v1alpha1 PackageRepository`."""

    api_version: PackagingVersion
    spec: PackageRepositorySpec


class SecretKeyRef(ForeignModel):
    """A Secret and the key in it."""

    name: str
    key: str = ""


class ValueSource(ForeignModel):
    """Where values come from."""

    secret_ref: SecretKeyRef


class DependencyOverride(ForeignModel):
    """Override of one dependency by the user."""

    ref_name: str
    version_selection: VersionSelection | None = None
    install: bool | None = None


class DependencyValues(ForeignModel):
    """Values for one dependency."""

    alias: str = ""
    ref_name: str = ""
    secret_ref: SecretKeyRef


class InstallDependencies(ForeignModel):
    """Dependency options of the user; `deletePolicy` applies to dependencies of a deleted install."""

    install: bool = True
    delete_policy: Literal["unused", "orphan"] = "unused"
    override: Items[DependencyOverride] = ()
    values: Items[DependencyValues] = ()


class KubeconfigReference(ForeignModel):
    """A Secret with a kubeconfig, under the key `value` unless another one is named."""

    name: str
    key: str = "value"


class ClusterReference(ForeignModel):
    """Another cluster to install into, and the default namespace there."""

    namespace: str = ""
    kubeconfig_secret_ref: KubeconfigReference


class PackageInstallSpec(ForeignModel):
    """The package to install, and its options."""

    package_ref: PackageRef
    service_account_name: str = ""
    cluster: ClusterReference | None = None
    default_namespace: str = ""
    values: Items[ValueSource] = ()
    paused: bool = False
    canceled: bool = False
    sync_period: str | None = None
    no_delete: bool = Field(default=False, alias="noopDelete")
    dependencies: InstallDependencies = InstallDependencies()


class PackageInstall(ForeignManifest):
    """`packaging.carvel.dev/v1alpha1 PackageInstall`."""

    api_version: PackagingVersion
    spec: PackageInstallSpec
