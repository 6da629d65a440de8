"""Porch's API: PackageVariant v1alpha1, PackageVariantSet v1alpha2, Repository v1alpha1.

Every field is optional where Porch's validation has its own message for its absence; an absent list
and an empty one differ there.
"""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from reconciler.api.meta import ApiModel, LabelSelector, Manifest
from reconciler.base.values import whole_number
from reconciler.names.objects import file_name_error

GROUP = "config.porch.kpt.dev"
PACKAGE_VARIANT = f"{GROUP}/v1alpha1"
PACKAGE_VARIANT_SET = f"{GROUP}/v1alpha2"
REPOSITORY = f"{GROUP}/v1alpha1"
REQUESTED_BY = "reconciler.dev/requested-by"
"""Annotation of generated variants: the variants that depend on it, each with the path to it."""
SET_LABEL = f"{GROUP}/packagevariantset"
PLAIN_PACKAGES = "reconciler.dev/plain-packages"
"""Annotation of a Repository: directories without a Kptfile are packages."""
PLACEHOLDER = -1
"""Porch's revision number of a package on the branch of its repository."""


def _revision(value: object) -> object:
    """Accept 3, "3" and "v3" as revision 3, as users of every Porch release write it."""
    if value == str(PLACEHOLDER):
        return PLACEHOLDER
    if isinstance(value, str):
        number = whole_number(value.removeprefix("v"))
        return value if number is None else number
    return value


Revision = Annotated[int, BeforeValidator(_revision, json_schema_input_type=int | str)]


class Upstream(ApiModel):
    """The package to derive from; design D9 lists the valid combinations of selectors."""

    repo: str | None = None
    """Name of a Repository in the namespace of the manifest."""
    package: str | None = None
    """Path of the package below the directory of the Repository."""
    revision: Revision | None = None
    """Number of a published revision; `3`, `"3"` and `v3` are the same. -1: head of the branch.
    A name, as older releases of Porch have it, is read as `workspaceName`."""
    workspace_name: str | None = None
    """Workspace that the revision was made in, or the Repository's branch: its head, followed."""
    tag: str | None = None
    """Tag to follow: `PACKAGE/TAG`, else `TAG` of the repository."""
    version: str | None = None
    """Range of versions; the highest one in it is followed."""
    branch: str | None = None
    """Branch with a head to follow."""

    @model_validator(mode="before")
    @classmethod
    def _read_named_revision(cls, value: object) -> object:
        """Read a revision as Porch means it: a name is a workspace's, and beside one -1 is ignored."""
        if not isinstance(value, dict):
            return value
        revision, workspace = _revision(value.get("revision")), value.get("workspaceName")
        is_name = isinstance(revision, str) and revision and workspace in (None, "", revision)
        if not is_name and not (revision == PLACEHOLDER and workspace):
            return value
        others = {key: field for key, field in value.items() if key != "revision"}
        return {**others, "workspaceName": revision} if is_name else others


class Downstream(ApiModel):
    """Repository and package name of the variant."""

    repo: str | None = None
    """Name of a Repository in the namespace of the manifest."""
    package: str | None = None
    """Path of the package below the directory of the Repository."""


class PackageContext(ApiModel):
    """Keys to set in, then remove from, the package context."""

    data: dict[str, str] | None = None
    """Keys to set in `package-context.yaml`; `name` and `package-path` are reserved."""
    remove_keys: list[str] | None = None
    """Keys to remove from it."""


class FunctionSelector(ApiModel):
    """Which resources a function sees: all given fields must be equal."""

    api_version: str | None = None
    """apiVersion of the resources."""
    kind: str | None = None
    """Kind of the resources."""
    name: str | None = None
    """Name of the resource."""
    namespace: str | None = None
    """Namespace of the resources."""
    labels: dict[str, str] | None = None
    """Labels that the resources have."""
    annotations: dict[str, str] | None = None
    """Annotations that the resources have."""


class Function(ApiModel):
    """One step of a pipeline, as in a Kptfile."""

    image: str | None = None
    """Image of the function; built-in functions run without a container."""
    exec: str | None = None
    """Name of an executable that the configuration allows (`functions.exec`)."""
    config_path: str | None = None
    """File of the package with the function's configuration."""
    config_map: dict[str, str] | None = None
    """Configuration as the data of a ConfigMap."""
    name: str | None = None
    """Name of the step, unique in its list."""
    tag: str | None = None
    """Tag of the image, or a range of versions; it replaces the tag in `image`."""
    selectors: list[FunctionSelector] | None = None
    """Resources that the function gets: those that any item selects. Empty: all."""
    exclude: list[FunctionSelector] | None = None
    """Resources that it does not get: those that any item selects."""


class Pipeline(ApiModel):
    """Functions to put before the package's own."""

    mutators: list[Function] | None = None
    """Functions that change resources, in order."""
    validators: list[Function] | None = None
    """Functions that check resources, after all mutators."""


class InjectionTarget(ApiModel):
    """The in-package object that an injector is meant for; an addition to Porch's API."""

    kind: str | None = None
    """Kind of the resource in the package."""
    name: str | None = None
    """Name of the resource in the package."""


class InjectionSelector(ApiModel):
    """Which cluster object feeds an injection point; absent fields match anything."""

    group: str | None = None
    """API group of the object in the snapshot."""
    version: str | None = None
    """API version of the object."""
    kind: str | None = None
    """Kind of the object."""
    name: str | None = None
    """Name of the object; required in a PackageVariant."""
    target: InjectionTarget | None = None
    """Resource of the package that this injector is for; empty: any of that kind."""


class PackageVariantSpec(ApiModel):
    """Desired state of one variant."""

    upstream: Upstream | None = None
    """The package to derive from."""
    downstream: Downstream | None = None
    """The package to make."""
    adoption_policy: str | None = None
    """`adoptNone`, or `adoptExisting` to take over a package that exists without an owner."""
    deletion_policy: str | None = None
    """`delete`, or `orphan` to leave the package when the variant goes."""
    labels: dict[str, str] | None = None
    """Labels of the package revisions."""
    annotations: dict[str, str] | None = None
    """Annotations of the package revisions."""
    package_context: PackageContext | None = None
    """Keys of the package context."""
    pipeline: Pipeline | None = None
    """Functions that run before those of the package."""
    mutators: list[Function] | None = None
    """Another name of `pipeline.mutators`; both together are an error."""
    injectors: list[InjectionSelector] | None = None
    """Objects of the snapshot to inject, in the order in which they are tried."""


class PackageVariant(Manifest):
    """One variant of one upstream package."""

    spec: PackageVariantSpec = Field(default_factory=PackageVariantSpec)
    """Desired state."""


class RepositoryTarget(ApiModel):
    """A repository named outright, with the packages to create in it."""

    name: str | None = None
    """Name of a Repository in the namespace of the set."""
    package_names: list[str] | None = None
    """Packages to make in it; empty: one with the name of the upstream package."""


class ObjectSelector(LabelSelector):
    """Any kind of object in the set's namespace, by labels and name."""

    api_version: str | None = None
    """apiVersion of the objects in the snapshot."""
    kind: str | None = None
    """Kind of the objects."""
    name: str | None = None
    """Name of the one object; empty: any."""


class MapExpr(ApiModel):
    """One entry of a map, each side a literal or an expression."""

    key: str | None = None
    """The key, as it is."""
    value: str | None = None
    """The value, as it is."""
    key_expr: str | None = None
    """CEL expression of the key."""
    value_expr: str | None = None
    """CEL expression of the value."""


class DownstreamTemplate(ApiModel):
    """Where a target's variant goes, by literal or expression."""

    repo: str | None = None
    """Name of the downstream Repository; empty: that of the target."""
    package: str | None = None
    """Path of the downstream package; empty: that of the target."""
    repo_expr: str | None = None
    """CEL expression of the name of the Repository."""
    package_expr: str | None = None
    """CEL expression of the path of the package."""


class PackageContextTemplate(ApiModel):
    """Package context with expressions."""

    data: dict[str, str] | None = None
    """Keys to set in `package-context.yaml`."""
    remove_keys: list[str] | None = None
    """Keys to remove from it."""
    data_exprs: list[MapExpr] | None = None
    """Keys to set, by expressions."""
    remove_key_exprs: list[str] | None = None
    """CEL expressions of keys to remove."""


class FunctionTemplate(Function):
    """A function with expressions in its configMap."""

    config_map_exprs: list[MapExpr] | None = None
    """Entries of `configMap` by expressions."""


class PipelineTemplate(ApiModel):
    """Functions with expressions."""

    validators: list[FunctionTemplate] | None = None
    """Functions that check resources, after all mutators."""
    mutators: list[FunctionTemplate] | None = None
    """Functions that change resources, in order."""


class InjectionSelectorTemplate(InjectionSelector):
    """An injector with an optional expression for its name."""

    name_expr: str | None = None
    """CEL expression of the name of the object."""


class VariantTemplate(ApiModel):
    """Template of the variants of a target."""

    downstream: DownstreamTemplate | None = None
    """The package to make."""
    adoption_policy: str | None = None
    """`adoptNone`, or `adoptExisting` to take over packages that exist without an owner."""
    deletion_policy: str | None = None
    """`delete`, or `orphan` to leave packages when their variants go."""
    labels: dict[str, str] | None = None
    """Labels of the package revisions."""
    label_exprs: list[MapExpr] | None = None
    """Labels by expressions."""
    annotations: dict[str, str] | None = None
    """Annotations of the package revisions."""
    annotation_exprs: list[MapExpr] | None = None
    """Annotations by expressions."""
    package_context: PackageContextTemplate | None = None
    """Keys of the package context."""
    pipeline: PipelineTemplate | None = None
    """Functions that run before those of the package."""
    injectors: list[InjectionSelectorTemplate] | None = None
    """Objects of the snapshot to inject, in the order in which they are tried."""


class Target(ApiModel):
    """Targets of variants: exactly one of three selectors, and a template."""

    repositories: list[RepositoryTarget] | None = None
    """Repositories by name."""
    repository_selector: LabelSelector | None = None
    """Repositories of the set's namespace by labels; `{}` selects all of them."""
    object_selector: ObjectSelector | None = None
    """Objects of the snapshot by kind and labels: one variant for each."""
    template: VariantTemplate | None = None
    """Fields of the variants of this target."""


class PackageVariantSetSpec(ApiModel):
    """One upstream, or several, and the targets of their variants."""

    upstream: Upstream | None = None
    """The package to derive from, the same for all variants."""
    upstreams: list[Upstream] | None = None
    """Several packages in place of `upstream`, each in a rollout of its own. Porch has no such field,
    and refuses a set without `upstream`."""
    targets: list[Target] | None = None
    """Targets; each has one of `repositories`, `repositorySelector` and `objectSelector`."""

    @property
    def sources(self) -> tuple[Upstream, ...]:
        """The packages to derive from: one, or those of the list."""
        if self.upstreams is not None:
            return tuple(self.upstreams)
        return () if self.upstream is None else (self.upstream,)


class PackageVariantSet(Manifest):
    """A generator of PackageVariants."""

    spec: PackageVariantSetSpec = Field(default_factory=PackageVariantSetSpec)
    """Desired state."""


class SecretRef(ApiModel):
    """Name of a Secret in the cluster; ignored, because credentials come from the environment."""

    name: str = ""
    """Not used."""


def _check_inside(directory: str) -> str:
    steps = (step for step in directory.split("/") if step not in ("", "."))
    if any(file_name_error(step, is_directory=True) for step in steps):
        hint = {"hint": "Write the path from the repository's root, or leave it out."}
        raise PydanticCustomError("value_error", f"{directory!r} is not a path inside the repository", hint)
    return directory


class GitRepository(ApiModel):
    """URL, branch and directory of a repository."""

    repo: Annotated[str, Field(pattern=r"\S")]
    """Address of the repository; `./` and `../` start at the control repository."""
    branch: str = "main"
    """Branch with the published packages, called main in this documentation."""
    create_branch: bool = False
    """Begin the branch of an empty repository with a first commit."""
    directory: Annotated[str, AfterValidator(_check_inside)] = ""
    """Directory of the packages; only what is below it belongs to this Repository."""
    secret_ref: SecretRef | None = None
    """Not used: credentials come from the environment."""
    author: str = ""
    """Name of the author of our commits."""
    email: str = ""
    """Address of the author of our commits; without `author` it is the name too."""


class RepositorySync(ApiModel):
    """Polling schedule of Porch; ignored by batch runs."""

    schedule: str | None = None
    """Not used."""
    run_once_at: str | None = None
    """Not used."""


class RepositorySpec(ApiModel):
    """A registered repository."""

    type: str = "git"
    """`git`; no other type is supported."""
    deployment: bool = False
    """Packages here are deployed to a cluster, so each gets a package context."""
    content: str | None = None
    """Not used."""
    description: str | None = None
    """Text for people."""
    sync: RepositorySync | None = None
    """Not used: how Porch polls."""
    git: GitRepository | None = None
    """The Git repository."""
    oci: dict[str, object] | None = None
    """Not used."""
    mutators: list[dict[str, object]] | None = None
    """Not used."""
    validators: list[dict[str, object]] | None = None
    """Not used."""
    upstream: dict[str, object] | None = None
    """Not used."""


class Repository(Manifest):
    """A registration, as Porch does it."""

    spec: RepositorySpec = Field(default_factory=RepositorySpec)
    """The registration."""

    @property
    def has_plain_packages(self) -> bool:
        """Whether directories without a Kptfile are packages, which get one where they are cloned to."""
        return (self.metadata.annotations or {}).get(PLAIN_PACKAGES) == "true"
