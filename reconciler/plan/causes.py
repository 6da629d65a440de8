"""Why the content of a package changes, in words: what differs from when it was last applied."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.expand.variants import spec_data
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.state import PackageVariantRecord, functions_failed

_SPEC = ("packageContext", "pipeline", "mutators", "injectors")
_SHOWN = 5
_FACTS = {
    "deployment": "spec.deployment of the Repository",
    "functions": "the configuration of functions",
    "instance": "the name of this instance",
    "policies": "the conflict policies",
    "repository": "the name of the Repository",
    "engine": "the version of this tool",
}
"""What people call the inputs that a record keeps, the last resort last."""


def content_causes(
    resolved: ResolvedVariant, record: PackageVariantRecord | None, *, asked_again: bool = False
) -> str:
    """Return what changed since the variant was last applied. Total: never empty. Deterministic.

    Named are the fields of its spec, the objects that its injectors may take, the package on main, the
    configuration; what nothing explains is said to be so.
    """
    if record is None:
        return "Nothing was recorded of the last time; the package is not what it should be"
    changed = _listed([*_causes(resolved, record)])
    sentences = [f"{changed} changed"] if changed else []
    if asked_again:
        sentences.append("A person asked for it again")
    if not sentences and functions_failed(record.unready):
        sentences.append("A function that failed or could not run was tried again")
    return "; ".join(sentences) or "No input changed, but the draft that was proposed is gone"


def upstream_causes(
    resolved: ResolvedVariant, record: PackageVariantRecord | None, before: Pin | None
) -> str:
    """Return what else changed with the upstream, and which commits, where one name stands for both."""
    pin = resolved.pin
    moved = ""
    if before is not None and before.package.url != pin.package.url:
        moved = f"The upstream repository was {before.address}, and is {pin.address}"
    elif before is not None and (before.ref, before.revision) == (pin.ref, pin.revision) and pin.revision > 0:
        moved = f"{pin.ref} moved from commit {before.commit.oid} to {pin.commit.oid}"
    changed = _listed([*_causes(resolved, record)]) if record is not None else ""
    also = f"{changed} also changed" if changed else ""
    return "; ".join(part for part in (moved, also) if part)


def _listed(causes: Sequence[str]) -> str:
    """Return causes as the subject of a sentence; more than a few are counted."""
    shown = [*causes[:_SHOWN], *([f"{len(causes) - _SHOWN} more"] if len(causes) > _SHOWN else [])]
    text = " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
    return text if text.startswith("spec.") else text[:1].upper() + text[1:]


def _causes(resolved: ResolvedVariant, record: PackageVariantRecord) -> Iterator[str]:
    """Yield what differs, what people write themselves first."""
    now = spec_data(resolved.variant)
    for name in _SPEC:
        yield from _fields(f"spec.{name}", record.spec.get(name), now.get(name))
    objects = {**record.objects, **resolved.objects}
    yield from (f"object {one}" for one in sorted(objects) if _differ(one, record.objects, resolved.objects))
    if resolved.local and resolved.local not in (record.local_tree, record.output_tree):
        yield "the package on main"
    if record.facts:
        yield from (words for name, words in _FACTS.items() if _differ(name, record.facts, resolved.facts))


def _differ(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(old.get(name) != new.get(name))


def _fields(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the fields that differ, as deep as both sides have them."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _fields(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _fields(f"{path}[{index}]", one, other)
    else:
        yield path
