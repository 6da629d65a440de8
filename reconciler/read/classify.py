"""Classify objects of manifest files: valid manifests, foreign objects, dependencies, invalid owners."""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct, field

from reconciler.api import porch
from reconciler.api.annotations import INSTALLATION, check_keys
from reconciler.api.meta import Manifest
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.validation import FieldError, parse_model, parse_partly, type_error
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.dependencies.dialects import GROUPS
from reconciler.expand import check_partial
from reconciler.expand.migration import migrate_set, untranslated_fields
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.names.ids import GroupKind, ObjectKey, group_of
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.read.documents import BrokenDocument, ParsedObject, SourcePosition

_SIMILAR = 0.85
"""Ratio from which an unknown API group is a misspelling of a known one."""
_SHOWN = 5
"""Fields that one hint lists."""
_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ManifestKind(Struct, frozen=True):
    """A kind of manifest: its version and model. `migrate` returns the hint for objects of other versions.

    A `distinctive` kind name belongs to no other API group, so that any other group is a mistake.
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


class UnsupportedObject(Struct, frozen=True):
    """An invalid object of our API: `kind` is its probable kind, `field` the wrong field."""

    reason: Reason
    message: str
    hint: str
    field: str
    kind: GroupKind | None = None


def _migrate_set(value: Mapping[str, Any]) -> str:
    """Return the hint for a set of v1alpha1: its v1alpha2 manifest, if that is equivalent."""
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

_GROUPS = frozenset(kind.group for kind in MANIFEST_KINDS)
_IGNORED = frozenset({GroupKind(porch.GROUP, "PackageRev"), GroupKind(porch.GROUP, "FunctionConfig")})


def find_kind(value: Mapping[str, Any]) -> ManifestKind | UnsupportedObject | None:
    """Return the kind of an object, why it is not supported, or None for a foreign object."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return _incomplete(api_version, kind)
    group = group_of(api_version)
    manifest_kind = MANIFEST_KINDS.get(GroupKind(group, kind))
    if manifest_kind is not None:
        is_current = manifest_kind.api_version == api_version
        return manifest_kind if is_current else _other_version(manifest_kind, value)
    if group in _GROUPS:
        return None if GroupKind(group, kind) in _IGNORED else _unknown_kind(group, kind)
    return _unknown_group(group, kind)


def _other_version(current: ManifestKind, value: Mapping[str, Any]) -> UnsupportedObject:
    api_version = str(value["apiVersion"])
    migrate = current.migrate.get(api_version)
    hint = migrate(value) if migrate else f"Use apiVersion: {current.api_version}."
    message = f"{current.kind} {api_version} is not supported; {current.api_version} is"
    return UnsupportedObject(Reason.UNSUPPORTED_VERSION, message, hint, "apiVersion", current.group_kind)


def _unknown_kind(group: str, kind: str) -> UnsupportedObject:
    kinds = [other.kind for other in MANIFEST_KINDS if other.group == group]
    hint = suggest(kind, kinds, most=1)
    meant = next((GroupKind(group, k) for k in kinds if hint == f"Did you mean {k}?"), None)
    return UnsupportedObject(Reason.UNKNOWN_KIND, f"Unknown kind {kind} of {group}", hint, "kind", meant)


def _unknown_group(group: str, kind: str) -> UnsupportedObject | None:
    for meant in MANIFEST_KINDS.values():
        if meant.kind == kind and (meant.distinctive or _is_similar(group, group_of(meant.api_version))):
            message = f"Unknown API group {group or '(none)'} of kind {kind}"
            hint = f"Use apiVersion: {meant.api_version}."
            return UnsupportedObject(Reason.UNKNOWN_GROUP, message, hint, "apiVersion", meant.group_kind)
    return None


def _is_similar(group: str, meant: str) -> bool:
    return SequenceMatcher(None, group, meant).ratio() >= _SIMILAR


def _incomplete(api_version: object, kind: object) -> UnsupportedObject | None:
    """Return the error of an object of ours without apiVersion or kind, None for a foreign one."""
    for meant in MANIFEST_KINDS.values():
        if meant.kind == kind and meant.distinctive:
            message = "Missing required field apiVersion"
            hint = f"Add apiVersion: {meant.api_version}."
            return UnsupportedObject(Reason.MISSING_FIELD, message, hint, "apiVersion", meant.group_kind)
    if isinstance(api_version, str) and group_of(api_version) in _GROUPS:
        return UnsupportedObject(Reason.MISSING_FIELD, "Missing required field kind", "Add the kind.", "kind")
    return None


class Classification(Struct, frozen=True):
    """The classification of one object.

    With a `manifest` it is valid; with a `key` alone its owner stalls. `broken` is the file of an object
    of uncertain identity. `foreign` is the kind of an object of another API, `document` one of a
    dependency dialect. `claim` is the downstream (repository, package) of an invalid PackageVariant.
    """

    key: ObjectKey | None = None
    manifest: Manifest | None = None
    source: Source | None = None
    problems: tuple[Problem, ...] = ()
    broken: str = ""
    foreign: str = ""
    document: SourcedDocument | None = None
    claim: tuple[str, str] | None = None


def classify_object(parsed: ParsedObject, policy: Policy) -> Classification:
    """Classify an object. Total. Of an invalid one all checks yield their problems."""
    value, place = parsed
    source = Source(place.location, marks=place)
    if not isinstance(value, Mapping):
        return _not_an_object(value, place)
    kind = find_kind(value)
    if kind is None:
        return _foreign(value, place)
    group_kind = kind.kind if isinstance(kind, UnsupportedObject) else kind.group_kind
    key, wrong = _identity(value, group_kind, policy.default_namespace)
    problems = list[Problem]()
    if isinstance(kind, UnsupportedObject):
        problems.append(Problem(_at(place, (kind.field,)), kind.reason, kind.message, kind.hint))
    current = MANIFEST_KINDS.get(group_kind) if group_kind else None
    # A version with fields of its own is translated as a whole.
    if current is not None and not (problems and value.get("apiVersion") in current.migrate):
        read = {k: v for k, v in value.items() if k != "status"}
        read |= {"apiVersion": current.api_version, "kind": current.kind} if problems else {}
        manifest = parse_model(current.model, read)
        # A misspelt safety annotation leaves the intent unknown: its owner stalls, and nothing of it changes.
        keys = check_keys(current.kind, value)
        if key is not None and not problems and not keys and not isinstance(manifest, tuple):
            return Classification(key, manifest, source)
        partial = parse_partly(current.model, read)
        partial = partial._replace(errors=(*wrong, *partial.errors, *keys))
        problems += [_problem(error, place) for error in dict.fromkeys(partial.errors)]
        problems += check_partial(partial, source, policy.limits)
    return _stalled(key, source, problems, value)


def _stalled(
    key: ObjectKey | None, source: Source, problems: Iterable[Problem], value: Mapping[str, Any]
) -> Classification:
    """Return the classification of an invalid object; of one without identity, its file is broken."""
    if key is None:
        return Classification(None, None, source, tuple(problems), broken=source.location.path)
    owned = tuple(problem.owned_by(key) for problem in problems)
    return Classification(key, None, source, owned, claim=_claim(key, value))


def classify_broken(broken: BrokenDocument, path: str, default_namespace: str) -> Classification:
    """Classify a document that is not valid YAML: the owner it seems to be stalls, and its whole file."""
    problem, guess = broken.problem, broken.identity
    kind = GroupKind(group_of(guess.api_version), guess.kind)
    if kind not in MANIFEST_KINDS or not guess.name:
        return Classification(problems=(problem,), broken=path)
    key = ObjectKey(*kind, guess.namespace or default_namespace, guess.name)
    return Classification(key, None, Source(problem.location), (problem.owned_by(key),), broken=path)


def _claim(key: ObjectKey, value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the downstream of a PackageVariant, None if it is missing or the kind is another one."""
    downstream: Any = value if key.kind == "PackageVariant" else None
    for step in ("spec", "downstream"):
        downstream = downstream.get(step) if isinstance(downstream, Mapping) else None
    if not isinstance(downstream, Mapping):
        return None
    repo, package = downstream.get("repo"), downstream.get("package")
    return (repo, package) if isinstance(repo, str) and isinstance(package, str) else None


def _not_an_object(value: Any, place: SourcePosition) -> Classification:
    """Classify a document that is not a mapping: a list belongs to another tool, plain text is an error."""
    if isinstance(value, list):
        return Classification(broken=place.path, foreign="(a list)")
    message = f"This is not a Kubernetes object, but the text {str(value)[:40]!r}"
    hint = "A manifest starts with apiVersion, kind and metadata."
    problem = Problem(place.location, Reason.INVALID_MANIFEST, message, hint)
    return Classification(problems=(problem,), broken=place.path)


def _foreign(value: Mapping[str, Any], place: SourcePosition) -> Classification:
    """Classify an object of another API; one without a kind may have been ours, so its file is broken."""
    if _is_installation(value):
        value = {**value, "schemaType": INSTALLATION}
    if value.get("schemaType") == INSTALLATION or group_of(str(value.get("apiVersion") or "")) in GROUPS:
        source = Source(place.location, marks=place)
        return Classification(source=source, document=SourcedDocument(value, source))
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        return Classification(foreign=str(GroupKind(group_of(api_version), kind)))
    return Classification(broken=place.path, foreign="(no kind)")


def _is_installation(value: Mapping[str, Any]) -> bool:
    """Tell whether a document is an Installation that has no schemaType, as Porter permits."""
    is_typed = "apiVersion" in value or "kind" in value
    return not is_typed and {"schemaVersion", "name", "bundle"} <= value.keys()


def _identity(
    value: Mapping[str, Any], kind: GroupKind | None, default_namespace: str
) -> tuple[ObjectKey | None, tuple[FieldError, ...]]:
    """Return the identity of an object, or what is wrong with its name and namespace."""
    metadata: Any = value.get("metadata") or {}
    if kind is None:
        return None, ()
    if not isinstance(metadata, Mapping):
        return None, (type_error(("metadata",), "a mapping", metadata),)
    name: Any = metadata.get("name", "")
    namespace: Any = default_namespace if metadata.get("namespace") in (None, "") else metadata["namespace"]
    errors = list[FieldError]()
    for field_name, text, pattern in (("name", name, _SUBDOMAIN), ("namespace", namespace, _LABEL)):
        path = ("metadata", field_name)
        if text is None or text == "":
            hint = "; generateName is not enough" if "generateName" in metadata else ""
            message = "Missing required field metadata.name"
            errors.append(FieldError(path, Reason.MISSING_FIELD, message, f"Give it a name{hint}."))
        elif not isinstance(text, str):
            errors.append(type_error(path, "a string", text))
        elif len(text) > _MAX_NAME or not pattern.fullmatch(text):
            message = f"metadata.{field_name} {text[:80]!r} is not a valid Kubernetes name"
            hint = "Use lower-case letters, digits and dashes, and start and end with a letter or digit."
            errors.append(FieldError(path, Reason.INVALID_NAME, message, hint))
    return (None, tuple(errors)) if errors else (ObjectKey(*kind, namespace, name), ())


def _problem(error: FieldError, place: SourcePosition) -> Problem:
    where = _at(place, error.path, of_key=error.of_key)
    return Problem(where, error.reason, error.message, error.hint)


def _at(place: SourcePosition, path: tuple[str | int, ...], *, of_key: bool = False) -> Location:
    return Location(place.path, *(place.key_mark(path) if of_key else place.mark(path)))
