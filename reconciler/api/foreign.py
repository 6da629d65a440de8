"""Base models of manifests that other projects own."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from reconciler.api.meta import ObjectMeta


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
