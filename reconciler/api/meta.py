"""Base models of manifests: metadata, selectors and conditions of Kubernetes objects."""

from typing import ClassVar, Literal

from msgspec import field

from reconciler.base.models import Model


class ApiModel(Model, frozen=True):
    """Base of every manifest model: immutable, camelCase on disk, unknown fields refused."""

    strict: ClassVar[bool] = True


class OwnerReference(ApiModel, frozen=True):
    """A reference from a dependent to its owner."""

    api_version: str
    """apiVersion of the owner."""
    kind: str
    """Kind of the owner."""
    name: str
    """Name of the owner."""
    uid: str
    """Id of the owner."""
    controller: bool | None = None
    """Written by a cluster, ignored."""
    block_owner_deletion: bool | None = None
    """Written by a cluster, ignored."""


class ObjectMeta(ApiModel, frozen=True):
    """Metadata of an object, with every field that `kubectl get -o yaml` prints."""

    name: str = ""
    """Name of the object: a DNS name."""
    generate_name: str | None = None
    """Not used; a name is required."""
    namespace: str = ""
    """Namespace; empty: `defaultNamespace` of the configuration."""
    labels: dict[str, str] | None = None
    """Labels, by which selectors find the object."""
    annotations: dict[str, str] | None = None
    """Annotations; those with the prefix `reconciler.dev/` have a meaning here."""
    uid: str | None = None
    """Written by a cluster, ignored."""
    resource_version: str | None = None
    """Written by a cluster, ignored."""
    generation: int | None = None
    """Written by a cluster, ignored."""
    creation_timestamp: str | None = None
    """Written by a cluster, ignored."""
    deletion_timestamp: str | None = None
    """Written by a cluster, ignored."""
    deletion_grace_period_seconds: int | None = None
    """Written by a cluster, ignored."""
    self_link: str | None = None
    """Written by a cluster, ignored."""
    finalizers: list[str] | None = None
    """Written by a cluster, ignored."""
    owner_references: list[OwnerReference] | None = None
    """Written by a cluster, ignored."""
    managed_fields: list[dict[str, object]] | None = None
    """Written by a cluster, ignored."""


class LabelSelectorRequirement(ApiModel, frozen=True):
    """One term of a label selector; the operator is checked where the selector is used."""

    key: str = ""
    """Label to look at."""
    operator: str = ""
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""
    values: list[str] | None = None
    """Values for `In` and `NotIn`."""


class LabelSelector(ApiModel, frozen=True):
    """A label query: all terms are ANDed, an empty selector selects everything."""

    match_labels: dict[str, str] | None = None
    """Labels with exactly these values."""
    match_expressions: list[LabelSelectorRequirement] | None = None
    """Further terms; all must hold."""


class Condition(ApiModel, frozen=True):
    """A condition as Kubernetes spells it; ours carry no times, so that they never flap."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class Manifest(ApiModel, frozen=True):
    """Base of all manifests; `status` is ignored on reading."""

    api_version: str
    """API version of the kind."""
    kind: str
    """Kind of the object."""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Name, namespace, labels and annotations."""
    status: dict[str, object] | None = None
    """Written by a cluster, ignored; our conditions are on the status branch."""
