"""One object of a manifest file: a manifest of ours, somebody else's object, or an owner that stalls."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from reconciler.api import porch
from reconciler.api.annotations import check_keys
from reconciler.api.meta import Manifest
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.validation import FieldError, parse_model, suggest
from reconciler.dependencies.dialects import GROUPS
from reconciler.errors import Location, Problem
from reconciler.expand.migration import migrate_set, untranslated_fields
from reconciler.ids import GroupKind, ObjectKey, group_of
from reconciler.inventory import Source, SourcedDocument
from reconciler.read.documents import BrokenDocument, ParsedObject, SourcePosition
from reconciler.reasons import Reason

_CLOSE = 0.85
_SHOWN = 5
"""How many fields a hint names."""


@dataclass(frozen=True, slots=True)
class ManifestKind:
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
class UnsupportedObject:
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


MANIFEST_KINDS: Mapping[GroupKind, ManifestKind] = {
    r.group_kind: r
    for r in (
        ManifestKind(porch.PACKAGE_VARIANT, "PackageVariant", PackageVariant, distinctive=True),
        ManifestKind(
            porch.PACKAGE_VARIANT_SET,
            "PackageVariantSet",
            PackageVariantSet,
            distinctive=True,
            migrate={f"{porch.GROUP}/v1alpha1": _migrate_set},
        ),
        ManifestKind(porch.REPOSITORY, "Repository", Repository),
    )
}
"""By group and kind. A further kind is one more line here; what it means is for `expand` to say."""

_GROUPS = frozenset(kind.group for kind in MANIFEST_KINDS)
_NOT_READ = frozenset({GroupKind(porch.GROUP, "PackageRev"), GroupKind(porch.GROUP, "FunctionConfig")})


def find_kind(value: Mapping[str, Any]) -> ManifestKind | UnsupportedObject | None:
    """Return what reads an object, why nothing can although something should, or None for a foreign one."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return _half_named(api_version, kind)
    group = group_of(api_version)
    found = MANIFEST_KINDS.get(GroupKind(group, kind))
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


def _other_version(found: ManifestKind, value: Mapping[str, Any]) -> UnsupportedObject:
    api_version = str(value["apiVersion"])
    migrate = found.migrate.get(api_version)
    hint = migrate(value) if migrate else f"Use apiVersion: {found.api_version}."
    message = f"{found.kind} {api_version} is not supported; {found.api_version} is"
    return UnsupportedObject(Reason.UNSUPPORTED_VERSION, message, hint, "apiVersion", found.group_kind)


def _unknown_kind(group: str, kind: str) -> UnsupportedObject:
    kinds = [known.kind for known in MANIFEST_KINDS if known.group == group]
    hint = suggest(kind, kinds)
    meant = next((GroupKind(group, k) for k in kinds if hint == f"Did you mean {k}?"), None)
    return UnsupportedObject(Reason.UNKNOWN_KIND, f"Unknown kind {kind} of {group}", hint, "kind", meant)


def _unknown_group(group: str, kind: str) -> UnsupportedObject | None:
    for known in MANIFEST_KINDS.values():
        same_kind = known.kind == kind
        close = SequenceMatcher(None, group, group_of(known.api_version)).ratio() >= _CLOSE
        if same_kind and (known.distinctive or close):
            message = f"Unknown API group {group or '(none)'} of kind {kind}"
            hint = f"Use apiVersion: {known.api_version}."
            return UnsupportedObject(Reason.UNKNOWN_GROUP, message, hint, "apiVersion", known.group_kind)
    return None


def _half_named(api_version: object, kind: object) -> UnsupportedObject | None:
    """Judge an object without apiVersion or kind: ours only if the other one says so."""
    by_kind = [r for r in MANIFEST_KINDS.values() if r.kind == kind and r.distinctive]
    by_group = isinstance(api_version, str) and group_of(api_version) in _GROUPS
    if by_kind:
        hint = f"Add apiVersion: {by_kind[0].api_version}."
        return UnsupportedObject(
            Reason.MISSING_FIELD,
            "Missing required field apiVersion",
            hint,
            "apiVersion",
            by_kind[0].group_kind,
        )
    if by_group:
        return UnsupportedObject(Reason.MISSING_FIELD, "Missing required field kind", "Add the kind.", "kind")
    return None


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Classification:
    """What one object turned out to be.

    With a `manifest` it is understood; with only a `key` its owner stalls; `broken` names the file
    when not even the owner is certain; `foreign` is the kind of an object that is not ours. A
    `document` is left to the dialects of dependencies. `claim` is the downstream that a PackageVariant
    names which is not understood: repository and package.
    """

    key: ObjectKey | None = None
    manifest: Manifest | None = None
    source: Source | None = None
    problems: tuple[Problem, ...] = ()
    broken: str = ""
    foreign: str = ""
    document: SourcedDocument | None = None
    claim: tuple[str, str] | None = None


def classify_object(found: ParsedObject, default_namespace: str) -> Classification:
    """Return what an object is. Total."""
    value, place = found
    source = Source(place.location, marks=place)
    if not isinstance(value, Mapping):
        return _not_an_object(value, place)
    reader = find_kind(value)
    if reader is None:
        return _foreign(value, place)
    key, problem = _identity(
        value,
        place,
        reader.group_kind if not isinstance(reader, UnsupportedObject) else reader.kind,
        default_namespace,
    )
    if isinstance(reader, UnsupportedObject):
        where = _at(place, (reader.field,))
        wrong = Problem(where, reader.reason, reader.message, reader.hint, _subject(key))
        return Classification(key, None, source, (wrong,), broken="" if key else place.path)
    if key is None:
        return Classification(None, None, source, (problem,) if problem else (), broken=place.path)
    parsed = parse_model(reader.model, {k: v for k, v in value.items() if k != "status"})
    # What a misspelt safety annotation asks for is not known: its owner stalls, and nothing moves.
    faults = parsed if isinstance(parsed, tuple) else check_keys(key.kind, value)
    if isinstance(parsed, tuple) or faults:
        problems = tuple(_problem(fault, place, key) for fault in faults)
        return Classification(key, None, source, problems, claim=_claim(key, value))
    return Classification(key, parsed, source)


def classify_broken(found: BrokenDocument, path: str, default_namespace: str) -> Classification:
    """Return who stalls because a document is not YAML: whoever it still seems to be, and its whole file."""
    claim = found.claim
    kind = GroupKind(group_of(claim.api_version), claim.kind)
    problem = found.problem
    if kind not in MANIFEST_KINDS or not claim.name:
        return Classification(problems=(problem,), broken=path)
    key = ObjectKey(*kind, claim.namespace or default_namespace, claim.name)
    named = Problem(problem.location, problem.reason, problem.message, problem.hint, _subject(key))
    return Classification(key, None, Source(problem.location), (named,), broken=path)


def _claim(key: ObjectKey, value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the downstream that a PackageVariant names, None where it names none or is another kind."""
    found: Any = value if key.kind == "PackageVariant" else None
    for step in ("spec", "downstream"):
        found = found.get(step) if isinstance(found, Mapping) else None
    repo, package = (found.get(name) if isinstance(found, Mapping) else None for name in ("repo", "package"))
    return (repo, package) if isinstance(repo, str) and isinstance(package, str) else None


def _not_an_object(value: Any, place: SourcePosition) -> Classification:
    """Judge a document that is no mapping: a list is some other tool's, a bare text is a mistake."""
    if isinstance(value, list):
        return Classification(broken=place.path, foreign="(a list)")
    text = str(value)[:40]
    message = f"This is not a Kubernetes object, but the text {text!r}"
    hint = "A manifest starts with apiVersion, kind and metadata."
    return Classification(
        problems=(Problem(place.location, Reason.INVALID_MANIFEST, message, hint),), broken=place.path
    )


def _foreign(value: Mapping[str, Any], place: SourcePosition) -> Classification:
    """Judge an object of another group; one without a kind may have been ours, which its file remembers."""
    if is_dependency(value):
        return Classification(document=SourcedDocument(value, Source(place.location, marks=place)))
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        return Classification(foreign=str(GroupKind(group_of(api_version), kind)))
    return Classification(broken=place.path, foreign="(no kind)")


def _identity(
    value: Mapping[str, Any], place: SourcePosition, kind: GroupKind | None, default_namespace: str
) -> tuple[ObjectKey | None, Problem | None]:
    """Return who an object is, or what is wrong with its name or namespace."""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name, namespace = metadata.get("name"), metadata.get("namespace") or default_namespace
    if kind is None:
        return None, None
    if not name:
        hint = (
            "Give it a name; generateName is not enough." if "generateName" in metadata else "Give it a name."
        )
        where = _at(place, ("metadata", "name"))
        return None, Problem(where, Reason.MISSING_FIELD, "Missing required field metadata.name", hint)
    for name_field, text, pattern in (("name", name, _SUBDOMAIN), ("namespace", namespace, _LABEL)):
        if not isinstance(text, str) or len(text) > _LONGEST_NAME or not pattern.fullmatch(text):
            message = f"metadata.{name_field} {str(text)[:80]!r} is not a valid name of Kubernetes"
            hint = "Use lower-case letters, digits and dashes, and start and end with a letter or digit."
            return None, Problem(_at(place, ("metadata", name_field)), Reason.INVALID_NAME, message, hint)
    return ObjectKey(*kind, namespace, name), None


def _problem(fault: FieldError, place: SourcePosition, key: ObjectKey) -> Problem:
    where = _at(place, fault.path, of_key=fault.of_key)
    return Problem(where, fault.reason, fault.message, fault.hint, _subject(key))


def _at(place: SourcePosition, path: tuple[str | int, ...], *, of_key: bool = False) -> Location:
    return Location(place.path, *(place.key_mark(path) if of_key else place.mark(path)))


def _subject(key: ObjectKey | None) -> str:
    return f"{key.kind} {key.namespace}/{key.name}" if key else ""
