"""Crossplane's package manifests, of today and of its packages-v2 design."""

from typing import Literal

from pydantic import Field

from reconciler.api.foreign import ForeignManifest, ForeignModel


class LocalObjectReference(ForeignModel):
    """A reference by name."""

    name: str = ""


class ServiceAccount(ForeignModel):
    """Options of the service account made for a package's controller."""

    annotations: dict[str, str] = Field(default_factory=dict)


class CrossplanePackageSpec(ForeignModel):
    """Spec of a Provider, Configuration, Function, or of the design's Package."""

    package: str
    revision_activation_policy: Literal["Automatic", "Manual"] = "Automatic"
    revision_history_limit: int | None = None
    package_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    package_pull_policy: str | None = None
    service_account: ServiceAccount | None = None
    ignore_crossplane_constraints: bool = False
    skip_dependency_resolution: bool = False
    common_labels: dict[str, str] | None = None
    common_annotations: dict[str, str] | None = None
    runtime_config_ref: dict[str, str] | None = None


class CrossplanePackage(ForeignManifest):
    """`pkg.crossplane.io Provider | Configuration | Function`, or the design's `Package`."""

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
    """Constraints, dependencies and capabilities of a package."""

    crossplane: CrossplaneConstraint | None = None
    depends_on: tuple[MetaDependency, ...] = ()
    capabilities: tuple[str, ...] = ()


class Meta(ForeignManifest):
    """`crossplane.yaml`: `meta.pkg.crossplane.io Provider | Configuration | Function`."""

    spec: MetaSpec = MetaSpec()


class RevisionSpec(ForeignModel):
    """One revision of a package, of today (`image`) and of the design (lists of what it installs)."""

    desired_state: Literal["Active", "Inactive"]
    revision: int = 0
    image: str = ""
    package: str = ""
    custom_resource_definitions: tuple[TypeMeta, ...] = ()
    infrastructure_definitions: tuple[TypeMeta, ...] = ()
    infrastructure_publications: tuple[TypeMeta, ...] = ()
    compositions: tuple[TypeMeta, ...] = ()
    controller: dict[str, object] | None = None
    permissions: dict[str, object] | None = None
    install_job_ref: dict[str, object] | None = None
    depends_on: tuple[MetaDependency, ...] = ()
    package_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    package_pull_policy: str | None = None
    ignore_crossplane_constraints: bool = False
    skip_dependency_resolution: bool = False
    common_labels: dict[str, str] | None = None
    runtime_config_ref: dict[str, str] | None = None


class Revision(ForeignManifest):
    """`ProviderRevision | ConfigurationRevision | FunctionRevision | PackageRevision`."""

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
    dependencies: tuple[LockDependency, ...] = ()


class Lock(ForeignManifest):
    """`pkg.crossplane.io/v1beta1 Lock`, with packages at the top level, or the design's PackageLock."""

    packages: tuple[LockPackage, ...] = ()
    custom_resource_definitions: dict[str, str] = Field(default_factory=dict)
    compositions: dict[str, str] = Field(default_factory=dict)


class MatchImage(ForeignModel):
    """Matcher of images by prefix."""

    type: str = "Prefix"
    prefix: str


class RewriteImage(ForeignModel):
    """The prefix that replaces the matched one."""

    prefix: str


class ImageConfigSpec(ForeignModel):
    """Registry, rewriting and verification of images with a prefix."""

    match_images: tuple[MatchImage, ...]
    rewrite_image: RewriteImage | None = None
    registry: dict[str, object] | None = None
    verification: dict[str, object] | None = None
    runtime: dict[str, object] | None = None


class ImageConfig(ForeignManifest):
    """`pkg.crossplane.io/v1beta1 ImageConfig`."""

    spec: ImageConfigSpec
