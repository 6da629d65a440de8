"""Porch's API: PackageVariant v1alpha1, PackageVariantSet v1alpha2, Repository v1alpha1.

Every field is optional where Porch's validation has its own message for its absence; an absent list
and an empty one differ there.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from reconciler.api.meta import ApiModel, LabelSelector, Manifest

GROUP = "config.porch.kpt.dev"
PACKAGE_VARIANT = f"{GROUP}/v1alpha1"
PACKAGE_VARIANT_SET = f"{GROUP}/v1alpha2"
REPOSITORY = f"{GROUP}/v1alpha1"
REQUESTED_BY = "reconciler.dev/requested-by"
"""Annotation of generated variants: the variants that depend on it, each with the path to it."""
SET_LABEL = f"{GROUP}/packagevariantset"


def _revision(value: object) -> object:
    """Accept 3, "3" and "v3" as revision 3, as users of every Porch release write it."""
    if isinstance(value, str):
        digits = value.removeprefix("v")
        if digits.isascii() and digits.isdigit():
            return int(digits)
    return value


Revision = Annotated[int, BeforeValidator(_revision)]


class Upstream(ApiModel):
    """The package to derive from; design D9 lists the valid combinations of selectors."""

    repo: str | None = None
    package: str | None = None
    revision: Revision | None = None
    workspace_name: str | None = None
    tag: str | None = None
    version: str | None = None
    branch: str | None = None


class Downstream(ApiModel):
    """Repository and package name of the variant."""

    repo: str | None = None
    package: str | None = None


class PackageContext(ApiModel):
    """Keys to set in, then remove from, the package context."""

    data: dict[str, str] | None = None
    remove_keys: list[str] | None = None


class FunctionSelector(ApiModel):
    """Which resources a function sees: all given fields must be equal."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Function(ApiModel):
    """One step of a pipeline, as in a Kptfile."""

    image: str | None = None
    exec: str | None = None
    config_path: str | None = None
    config_map: dict[str, str] | None = None
    name: str | None = None
    tag: str | None = None
    selectors: list[FunctionSelector] | None = None
    exclude: list[FunctionSelector] | None = None


class Pipeline(ApiModel):
    """Functions to put before the package's own."""

    mutators: list[Function] | None = None
    validators: list[Function] | None = None


class InjectionTarget(ApiModel):
    """The in-package object that an injector is meant for; an addition to Porch's API."""

    kind: str | None = None
    name: str | None = None


class InjectionSelector(ApiModel):
    """Which cluster object feeds an injection point; absent fields match anything."""

    group: str | None = None
    version: str | None = None
    kind: str | None = None
    name: str | None = None
    target: InjectionTarget | None = None


class PackageVariantSpec(ApiModel):
    """Desired state of one variant."""

    upstream: Upstream | None = None
    downstream: Downstream | None = None
    adoption_policy: str | None = None
    deletion_policy: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    package_context: PackageContext | None = None
    pipeline: Pipeline | None = None
    mutators: list[Function] | None = None
    injectors: list[InjectionSelector] | None = None


class PackageVariant(Manifest):
    """One variant of one upstream package."""

    spec: PackageVariantSpec = Field(default_factory=PackageVariantSpec)


class RepositoryTarget(ApiModel):
    """A repository named outright, with the packages to create in it."""

    name: str | None = None
    package_names: list[str] | None = None


class ObjectSelector(LabelSelector):
    """Any kind of object in the set's namespace, by labels and name."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None


class MapExpr(ApiModel):
    """One entry of a map, each side a literal or an expression."""

    key: str | None = None
    value: str | None = None
    key_expr: str | None = None
    value_expr: str | None = None


class DownstreamTemplate(ApiModel):
    """Where a target's variant goes, by literal or expression."""

    repo: str | None = None
    package: str | None = None
    repo_expr: str | None = None
    package_expr: str | None = None


class PackageContextTemplate(ApiModel):
    """Package context with expressions."""

    data: dict[str, str] | None = None
    remove_keys: list[str] | None = None
    data_exprs: list[MapExpr] | None = None
    remove_key_exprs: list[str] | None = None


class FunctionTemplate(Function):
    """A function with expressions in its configMap."""

    config_map_exprs: list[MapExpr] | None = None


class PipelineTemplate(ApiModel):
    """Functions with expressions."""

    validators: list[FunctionTemplate] | None = None
    mutators: list[FunctionTemplate] | None = None


class InjectionSelectorTemplate(InjectionSelector):
    """An injector with an optional expression for its name."""

    name_expr: str | None = None


class VariantTemplate(ApiModel):
    """Template of the variants of a target."""

    downstream: DownstreamTemplate | None = None
    adoption_policy: str | None = None
    deletion_policy: str | None = None
    labels: dict[str, str] | None = None
    label_exprs: list[MapExpr] | None = None
    annotations: dict[str, str] | None = None
    annotation_exprs: list[MapExpr] | None = None
    package_context: PackageContextTemplate | None = None
    pipeline: PipelineTemplate | None = None
    injectors: list[InjectionSelectorTemplate] | None = None


class Target(ApiModel):
    """Targets of variants: exactly one of three selectors, and a template."""

    repositories: list[RepositoryTarget] | None = None
    repository_selector: LabelSelector | None = None
    object_selector: ObjectSelector | None = None
    template: VariantTemplate | None = None


class PackageVariantSetSpec(ApiModel):
    """One upstream and the targets of its variants."""

    upstream: Upstream | None = None
    targets: list[Target] | None = None


class PackageVariantSet(Manifest):
    """A generator of PackageVariants."""

    spec: PackageVariantSetSpec = Field(default_factory=PackageVariantSetSpec)


class SecretRef(ApiModel):
    """Name of a Secret in the cluster; ignored, because credentials come from the environment."""

    name: str = ""


class GitRepository(ApiModel):
    """URL, branch and directory of a repository."""

    repo: str
    branch: str = "main"
    create_branch: bool = False
    directory: str = ""
    secret_ref: SecretRef | None = None
    author: str = ""
    email: str = ""


class RepositorySync(ApiModel):
    """Polling schedule of Porch; ignored by batch runs."""

    schedule: str | None = None
    run_once_at: str | None = None


class RepositorySpec(ApiModel):
    """A registered repository."""

    type: str = "git"
    deployment: bool = False
    content: str | None = None
    description: str | None = None
    sync: RepositorySync | None = None
    git: GitRepository | None = None
    oci: dict[str, object] | None = None
    mutators: list[dict[str, object]] | None = None
    validators: list[dict[str, object]] | None = None
    upstream: dict[str, object] | None = None


class Repository(Manifest):
    """A registration, as Porch does it."""

    spec: RepositorySpec = Field(default_factory=RepositorySpec)
