"""Base models of manifests: metadata, selectors and conditions of Kubernetes objects."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """Base of every manifest model: immutable, camelCase on disk, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # a run meets few of these kinds
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        strict=True,
    )


class OwnerReference(ApiModel):
    """A reference from a dependent to its owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiModel):
    """Metadata of an object, with every field that `kubectl get -o yaml` prints."""

    name: str = ""
    generate_name: str | None = None
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    self_link: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    managed_fields: list[dict[str, object]] | None = None


class LabelSelectorRequirement(ApiModel):
    """One term of a label selector; the operator is checked where the selector is used."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(ApiModel):
    """A label query: all terms are ANDed, an empty selector selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Condition(ApiModel):
    """A condition as Kubernetes spells it; ours carry no times, so that they never flap."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class Manifest(ApiModel):
    """Base of all manifests; `status` is ignored on reading."""

    api_version: str
    kind: str
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    status: dict[str, object] | None = None


class ForeignModel(BaseModel):
    """Base of models that other projects own: immutable, camelCase on disk, unknown fields are kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # most runs meet few of these kinds
        extra="allow",
        frozen=True,
        populate_by_name=True,
    )


class ForeignManifest(ForeignModel):
    """Base of manifests that other projects own."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
