"""Why the content of a package changes although its upstream is the same, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.expand.diff import spec_data
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.state import PackageVariantRecord

_SPEC = ("packageContext", "pipeline", "mutators", "injectors")
_SHOWN = 5


def content_causes(resolved: ResolvedVariant, record: PackageVariantRecord | None) -> str:
    """Return what changed since the variant was last applied, empty if nothing tells. Deterministic.

    Named are the fields of its spec, the objects that its injectors may take, and the package on main.
    """
    if record is None:
        return ""
    found = [
        *_changed("spec.", _SPEC, record.spec, spec_data(resolved.variant)),
        *_changed("object ", {**record.objects, **resolved.objects}, record.objects, resolved.objects),
    ]
    if record.local_tree and resolved.local and record.local_tree != resolved.local:
        found.append("the package on main")
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"Changed: {', '.join(found[:_SHOWN])}{more}" if found else ""


def _changed(prefix: str, names: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{prefix}{name}" for name in sorted(names) if old.get(name) != new.get(name))
