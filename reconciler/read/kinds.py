"""Which objects are ours, by API group, version and kind, and which only seem to be by a mistake."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from reconciler.api import porch
from reconciler.api.meta import Manifest
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.validation import parse_model, suggest
from reconciler.dependencies.dialects import GROUPS
from reconciler.expand.migration import migrate_set, untranslated_fields
from reconciler.ids import GroupKind, group_of
from reconciler.reasons import Reason

_CLOSE = 0.85
_SHOWN = 5
"""How many fields a hint names."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A kind that is read from manifests: the one version of it, its model, and advice on other versions.

    `distinctive` tells that no other group has a kind of this name, so that one which claims to is a
    mistake. `migrate` turns an object of another version into a hint.
    """

    api_version: str
    kind: str
    model: type[Manifest]
    distinctive: bool = False
    migrate: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=dict)

    @property
    def group_kind(self) -> GroupKind:
        """Its group and kind."""
        return GroupKind(group_of(self.api_version), self.kind)


@dataclass(frozen=True, slots=True)
class Misfit:
    """An object that should be ours and is not understood; `kind` is what it probably is, if known."""

    reason: Reason
    message: str
    hint: str
    field: str
    kind: GroupKind | None = None


def _migrate_set(value: Mapping[str, Any]) -> str:
    """Return how a set of the version that no Porch serves any more is written today.

    The hint is a whole manifest only if that says the same.
    """
    current = {key: field for key, field in value.items() if key != "status"}
    current["apiVersion"] = porch.PACKAGE_VARIANT_SET
    if isinstance(parse_model(PackageVariantSet, current), PackageVariantSet):
        return f"Its fields are those of {porch.PACKAGE_VARIANT_SET}: change its apiVersion."
    if lost := untranslated_fields(value):
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        fields = ", ".join(lost[:_SHOWN])
        return f"Write it as {porch.PACKAGE_VARIANT_SET}, by hand: {fields}{more} cannot be translated."
    return f"Write it as {porch.PACKAGE_VARIANT_SET}:\n{migrate_set(value)}"


REGISTERED: Mapping[GroupKind, Registration] = {
    r.group_kind: r
    for r in (
        Registration(porch.PACKAGE_VARIANT, "PackageVariant", PackageVariant, distinctive=True),
        Registration(
            porch.PACKAGE_VARIANT_SET,
            "PackageVariantSet",
            PackageVariantSet,
            distinctive=True,
            migrate={f"{porch.GROUP}/v1alpha1": _migrate_set},
        ),
        Registration(porch.REPOSITORY, "Repository", Repository),
    )
}
"""By group and kind. A further kind is one more line here; what it means is for `expand` to say."""

_GROUPS = frozenset(kind.group for kind in REGISTERED)
_NOT_READ = frozenset({GroupKind(porch.GROUP, "PackageRev"), GroupKind(porch.GROUP, "FunctionConfig")})


def dispatch(value: Mapping[str, Any]) -> Registration | Misfit | None:
    """Return what reads an object, why nothing can although something should, or None for a foreign one."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return _half_named(api_version, kind)
    group = group_of(api_version)
    found = REGISTERED.get(GroupKind(group, kind))
    if found is not None:
        return found if found.api_version == api_version else _other_version(found, value)
    if group in _GROUPS:
        return None if GroupKind(group, kind) in _NOT_READ else _unknown_kind(group, kind)
    return _unknown_group(group, kind)


def is_dependency(value: Mapping[str, Any]) -> bool:
    """Tell whether an object belongs to one of the dependency dialects; Porter's has no apiVersion."""
    if value.get("schemaType") == "Installation":
        return True
    return group_of(str(value.get("apiVersion") or "")) in GROUPS


def _other_version(found: Registration, value: Mapping[str, Any]) -> Misfit:
    api_version = str(value["apiVersion"])
    migrate = found.migrate.get(api_version)
    hint = migrate(value) if migrate else f"Use apiVersion: {found.api_version}."
    message = f"{found.kind} {api_version} is not supported; {found.api_version} is"
    return Misfit(Reason.UNSUPPORTED_VERSION, message, hint, "apiVersion", found.group_kind)


def _unknown_kind(group: str, kind: str) -> Misfit:
    kinds = [known.kind for known in REGISTERED if known.group == group]
    hint = suggest(kind, kinds)
    meant = next((GroupKind(group, k) for k in kinds if hint == f"Did you mean {k}?"), None)
    return Misfit(Reason.UNKNOWN_KIND, f"Unknown kind {kind} of {group}", hint, "kind", meant)


def _unknown_group(group: str, kind: str) -> Misfit | None:
    for known in REGISTERED.values():
        same_kind = known.kind == kind
        close = SequenceMatcher(None, group, group_of(known.api_version)).ratio() >= _CLOSE
        if same_kind and (known.distinctive or close):
            message = f"Unknown API group {group or '(none)'} of kind {kind}"
            hint = f"Use apiVersion: {known.api_version}."
            return Misfit(Reason.UNKNOWN_GROUP, message, hint, "apiVersion", known.group_kind)
    return None


def _half_named(api_version: object, kind: object) -> Misfit | None:
    """Judge an object without apiVersion or kind: ours only if the other one says so."""
    by_kind = [r for r in REGISTERED.values() if r.kind == kind and r.distinctive]
    by_group = isinstance(api_version, str) and group_of(api_version) in _GROUPS
    if by_kind:
        hint = f"Add apiVersion: {by_kind[0].api_version}."
        return Misfit(
            Reason.MISSING_FIELD,
            "Missing required field apiVersion",
            hint,
            "apiVersion",
            by_kind[0].group_kind,
        )
    if by_group:
        return Misfit(Reason.MISSING_FIELD, "Missing required field kind", "Add the kind.", "kind")
    return None
