"""The files of the status branch, computed from what the effects of a run left behind (D23)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.plan.changes import Change, Plan, Unfinished
from reconciler.plan.conditions import plan_conditions
from reconciler.plan.world import World

DIRECTORY = "conditions"


def status_after(plan: Plan, unfinished: Mapping[PackageKey, Unfinished]) -> dict[str, bytes]:
    """Return the files of the status branch after a run that left these packages unfinished. Pure."""
    if plan.world is None or not unfinished:
        return dict(plan.status)
    conditions = plan_conditions(plan.world, plan.changes, unfinished)
    return {**plan.status, **plan_status(plan.world, conditions)}


def plan_status(world: World, conditions: Mapping[ObjectKey, tuple[Condition, ...]]) -> dict[str, bytes]:
    """Return the files of the status branch: what each owner's manifest came to. No times."""
    variants = {v.key: v for v in world.desired.variants}
    files = {}
    for key, found in sorted(conditions.items()):
        value: dict[str, Any] = {
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "conditions": [c.model_dump(by_alias=True, exclude_none=True) for c in found],
        }
        variant = variants.get(ObjectName(key.namespace, key.name))
        if key.kind == "PackageVariant" and variant is not None:
            value["labels"] = variant.spec.labels or {}
            value["annotations"] = variant.spec.annotations or {}
        files[_path(key)] = _json(value)
    return files


def status_owners(plan: Plan) -> dict[str, PackageKey]:
    """Return the package that each file about a variant tells of."""
    return dict(_owners(plan.world, plan.changes)) if plan.world else {}


def _owners(world: World, changes: Iterable[Change]) -> Iterator[tuple[str, PackageKey]]:
    for package, variants in world.wanted.items():
        yield from ((_path(ObjectKey(GROUP, "PackageVariant", *v.key)), package) for v in variants)
    for change in changes:
        if change.variant is not None:
            yield _path(ObjectKey(GROUP, "PackageVariant", *change.variant)), change.package


def _path(key: ObjectKey) -> str:
    return f"{DIRECTORY}/{key.kind.lower()}s/{key.namespace}/{key.name}.json"


def _json(value: Mapping[str, Any]) -> bytes:
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=options)
