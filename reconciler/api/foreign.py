"""Base of manifests that other projects own: unknown fields are theirs and are carried along."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from reconciler.api.meta import ObjectMeta


class ForeignModel(BaseModel):
    """A part of somebody else's manifest: immutable, camelCase on disk, what we do not know is kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # most runs meet few of these kinds
        extra="allow",
        frozen=True,
        populate_by_name=True,
    )


class ForeignManifest(ForeignModel):
    """What every foreign Kubernetes manifest has."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
