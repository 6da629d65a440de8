"""Desired PackageVariants: what the manifests ask for, set by set, with who stalls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Condition
from reconciler.api.porch import PackageVariantSpec
from reconciler.errors import Problem
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import FieldPath, Source


@dataclass(frozen=True, slots=True)
class DesiredVariant:
    """One PackageVariant that should exist, authored or generated.

    `spec` is valid and has its defaults filled in. `source` is the manifest to blame and
    `times` are committer times of its own inputs (manifest, target object), in seconds.
    `target` is the kind and name of the object that its set selected, if any; `place` is the field of
    the set's target.
    `requested_by` are the ways from other variants to one that is there because they need it.
    """

    key: ObjectName
    uid: str
    spec: PackageVariantSpec
    source: Source
    set_key: ObjectName | None = None
    target: str = ""
    paused: bool = False
    times: tuple[int, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)
    place: FieldPath = field(default=(), compare=False)
    requested_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything the manifests ask for.

    `stalled` are the owners we could not understand: nothing of theirs is changed or deleted.
    `conditions` are the Stalled and Ready conditions of every set and authored variant, as Porch
    words them. `targets` is the number of variants each set that could be expanded yields.
    Of the variants that others needed once, `released` are those that certainly nobody needs any more,
    and `held` those that something needs which has not gone yet, with what that is.
    """

    variants: tuple[DesiredVariant, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    conditions: Mapping[ObjectKey, tuple[Condition, ...]] = field(default_factory=dict)
    targets: Mapping[ObjectName, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    released: frozenset[ObjectName] = frozenset()
    held: Mapping[ObjectName, str] = field(default_factory=dict)


def spec_data(variant: DesiredVariant) -> dict[str, Any]:
    """Return the spec as manifests and records spell it: camelCase, absent fields left out."""
    return variant.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
