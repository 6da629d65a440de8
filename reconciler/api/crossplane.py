"""Crossplane's package manifests, of today and of its packages-v2 design."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from reconciler.api.meta import ForeignManifest, ForeignModel, Items, known_versions
from reconciler.names.ids import KNOWN_VERSIONS, GroupKind

PackageVersion = Annotated[
    str,
    known_versions(
        *KNOWN_VERSIONS[GroupKind("pkg.crossplane.io", "Provider")],
        *KNOWN_VERSIONS[GroupKind("packages.crossplane.io", "Package")],
    ),
]
MetaVersion = Annotated[
    str,
    known_versions(
        *(f"meta.pkg.crossplane.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")),
        *(f"meta.dev.upbound.io/{version}" for version in ("v2alpha1", "v1alpha1")),
    ),
]


class LocalObjectReference(ForeignModel):
    """A reference by name."""

    name: str = ""


class RuntimeConfigReference(ForeignModel):
    """A reference to a DeploymentRuntimeConfig."""

    api_version: str = ""
    kind: str = ""
    name: str


class ServiceAccount(ForeignModel):
    """Options of the service account made for a package's controller."""

    annotations: dict[str, str] = Field(default_factory=dict)


class CrossplanePackageSpec(ForeignModel):
    """Spec of a Provider, Configuration, Function, or of the design's Package."""

    package: str
    revision_activation_policy: Literal["Automatic", "Manual"] = "Automatic"
    revision_history_limit: int | None = None
    package_pull_secrets: Items[LocalObjectReference] | None = None
    package_pull_policy: Literal["IfNotPresent", "Always", "Never"] | None = None
    service_account: ServiceAccount | None = None
    ignore_crossplane_constraints: bool = False
    skip_dependency_resolution: bool = False
    common_labels: dict[str, str] | None = None
    common_annotations: dict[str, str] | None = None
    runtime_config_ref: RuntimeConfigReference | None = None
    controller_config_ref: LocalObjectReference | None = None


class CrossplanePackage(ForeignManifest):
    """`pkg.crossplane.io Provider | Configuration | Function`, or the design's `Package`."""

    api_version: PackageVersion
    spec: CrossplanePackageSpec


class TypeMeta(ForeignModel):
    """A kind with its apiVersion."""

    api_version: str
    kind: str


class MetaDependency(ForeignModel):
    """One dependency of a package, in any of its spellings."""

    provider: str | None = None
    configuration: str | None = None
    function: str | None = None
    package: str | None = None
    api_version: str | None = None
    kind: str | None = None
    crd: str | TypeMeta | None = None
    crossplane: str | None = None
    version: str = ""


class CrossplaneConstraint(ForeignModel):
    """The versions of Crossplane that a package supports."""

    version: str = ""


class MetaSpec(ForeignModel):
    """Constraints, dependencies and capabilities of a package; `controller` and `image` are its program."""

    crossplane: CrossplaneConstraint | None = None
    depends_on: Items[MetaDependency] = ()
    capabilities: Items[str] = ()
    controller: dict[str, object] | None = None
    image: str = ""


class Meta(ForeignManifest):
    """`crossplane.yaml`: `meta.pkg.crossplane.io Provider | Configuration | Function`."""

    api_version: MetaVersion
    spec: MetaSpec = MetaSpec()


class ProjectSpec(MetaSpec):
    """A package's needs, and how its sources are described and built."""

    description: str = ""
    license: str = ""
    maintainer: str = ""
    readme: str = ""
    icon: str = ""
    repository: str = ""
    source: str = ""
    architectures: Items[str] = ()
    api_dependencies: Items[dict[str, object]] = ()
    image_config: Items[dict[str, object]] = ()
    paths: dict[str, str] | None = None
    schemas: dict[str, object] | None = None


class Project(Meta):
    """`upbound.yaml`: `meta.dev.upbound.io Project`, the source of a Configuration."""

    spec: ProjectSpec = ProjectSpec()


class RevisionSpec(ForeignModel):
    """One revision of a package, of today (`image`) and of the design (lists of what it installs)."""

    desired_state: Literal["Active", "Inactive"]
    revision: int = 0
    image: str = ""
    package: str = ""
    custom_resource_definitions: Items[TypeMeta] = ()
    infrastructure_definitions: Items[TypeMeta] = ()
    infrastructure_publications: Items[TypeMeta] = ()
    compositions: Items[TypeMeta] = ()
    controller: dict[str, object] | None = None
    permissions: dict[str, object] | None = None
    install_job_ref: dict[str, object] | None = None
    depends_on: Items[MetaDependency] = ()
    package_pull_secrets: Items[LocalObjectReference] | None = None
    package_pull_policy: str | None = None
    ignore_crossplane_constraints: bool = False
    skip_dependency_resolution: bool = False
    common_labels: dict[str, str] | None = None
    common_annotations: dict[str, str] | None = None
    runtime_config_ref: RuntimeConfigReference | None = None
    controller_config_ref: LocalObjectReference | None = None
    tls_client_secret_name: str = Field(default="", alias="tlsClientSecretName")
    tls_server_secret_name: str = Field(default="", alias="tlsServerSecretName")


class Revision(ForeignManifest):
    """`ProviderRevision | ConfigurationRevision | FunctionRevision | PackageRevision`."""

    api_version: PackageVersion
    spec: RevisionSpec


class LockDependency(ForeignModel):
    """A dependency in a lock; the design has a bare name instead."""

    package: str
    api_version: str | None = None
    kind: str | None = None
    type: str | None = None
    constraints: str = ""


class LockPackage(ForeignModel):
    """One package of a lock."""

    name: str
    api_version: str | None = None
    kind: str | None = None
    type: str | None = None
    source: str = ""
    image: str = ""
    version: str = ""
    dependencies: Items[LockDependency] = ()


class Lock(ForeignManifest):
    """`pkg.crossplane.io/v1beta1 Lock`, with packages at the top level, or the design's PackageLock."""

    api_version: PackageVersion
    packages: Items[LockPackage] = ()
    custom_resource_definitions: dict[str, str] = Field(default_factory=dict)
    compositions: dict[str, str] = Field(default_factory=dict)


class MatchImage(ForeignModel):
    """Matcher of images by prefix."""

    type: Literal["Prefix"] = "Prefix"
    prefix: str


class RewriteImage(ForeignModel):
    """The prefix that replaces the matched one."""

    prefix: str


class ImageConfigSpec(ForeignModel):
    """Registry, rewriting and verification of images with a prefix."""

    match_images: Items[MatchImage]
    rewrite_image: RewriteImage | None = None
    registry: dict[str, object] | None = None
    verification: dict[str, object] | None = None
    runtime: dict[str, object] | None = None


class ImageConfig(ForeignManifest):
    """`pkg.crossplane.io/v1beta1 ImageConfig`."""

    api_version: PackageVersion
    spec: ImageConfigSpec


class RuntimeConfig(ForeignManifest):
    """`pkg.crossplane.io DeploymentRuntimeConfig | ControllerConfig`, of which nothing is read."""

    model_config = ConfigDict(extra="allow")

    api_version: PackageVersion
