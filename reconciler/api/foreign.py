"""Base models of manifests that other projects own."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.api.meta import ObjectMeta

T = TypeVar("T")
Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list."""


class ForeignModel(BaseModel):
    """Base of models that other projects own: immutable, camelCase on disk.

    Every field of their schemas is listed, so that an unknown one is a misspelt one, and refused.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # most runs meet few of these kinds
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        strict=True,
    )


class ForeignManifest(ForeignModel):
    """Base of manifests that other projects own; `status` is ignored on reading."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
    status: object = None
