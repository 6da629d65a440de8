"""Labels and annotations that tell which version of a chart made a resource, and not what it does."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.base.lazy import regex

_METADATA: Final = "metadata"
_GROUPS: Final = ("labels", "annotations")
_VERSIONS: Final = frozenset(
    ("helm.sh/chart", "app.kubernetes.io/version", "controller-gen.kubebuilder.io/version")
)
_CHECKSUMS: Final = "checksum/"
_RECORDS: Final = (
    "app.kubernetes.io/",
    "argocd.argoproj.io/",
    "config.kubernetes.io/",
    "helm.sh/",
    "internal.kpt.dev/",
    "meta.helm.sh/",
)
"""The beginnings of labels and annotations by which tools find a resource again, and which grant nothing."""
_OLD_CHART: Final = regex(r"[a-z0-9-]+-v?\d+\.\d+\.\d+\S*")
"""A value of the label `chart`, as old charts write it."""


def is_version_field(path: Sequence[str]) -> bool:
    """Tell whether a path leads to a label or annotation that carries a version or a checksum."""
    return (
        len(path) > 2  # noqa: PLR2004 - metadata, labels, name
        and path[-2] in _GROUPS
        and path[-3] == _METADATA
        and (path[-1] in _VERSIONS or path[-1].startswith(_CHECKSUMS))
    )


def without_versions(value: Any) -> Any:
    """Return a value without the labels and annotations that carry versions, at any depth."""
    if isinstance(value, list):
        return [without_versions(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    result = {key: without_versions(part) for key, part in value.items()}
    metadata = result.get(_METADATA)
    if isinstance(metadata, dict):
        groups = {group: _kept(metadata[group]) for group in _GROUPS if isinstance(metadata.get(group), dict)}
        others = {key: part for key, part in metadata.items() if key not in groups}
        result[_METADATA] = {**others, **{group: part for group, part in groups.items() if part}}
    return result


def substance(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a resource does, without the metadata that grants nothing, as the version of its chart.

    Labels and annotations of controllers stay, as they may grant rights; those of a Namespace decide about
    all that is in it.
    """
    result: dict[str, Any] = without_versions(resource)
    metadata = result.get(_METADATA)
    if not isinstance(metadata, dict) or result.get("kind") == "Namespace":
        return result
    groups = {group: metadata.get(group) for group in _GROUPS}
    granting = {
        group: {name: text for name, text in entries.items() if _may_grant(str(name))}
        for group, entries in groups.items()
        if isinstance(entries, dict)
    }
    others = {name: part for name, part in metadata.items() if name not in granting}
    return {**result, _METADATA: {**others, **{group: part for group, part in granting.items() if part}}}


def _may_grant(name: str) -> bool:
    return "/" in name and not name.startswith(_RECORDS)


def _kept(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: text
        for name, text in entries.items()
        if not (
            name in _VERSIONS
            or str(name).startswith(_CHECKSUMS)
            or (name == "chart" and _OLD_CHART.fullmatch(str(text)))
        )
    }
