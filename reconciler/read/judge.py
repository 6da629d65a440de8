"""One object of a manifest file: a manifest of ours, somebody else's object, or an owner that stalls."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.keys import check_keys
from reconciler.api.meta import Manifest
from reconciler.api.validation import Fault, parse_model
from reconciler.errors import Location, Problem
from reconciler.ids import GroupKind, ObjectKey, group_of
from reconciler.inventory import FoundDocument, Source
from reconciler.read.documents import BrokenDocument, FoundObject, Place
from reconciler.read.kinds import REGISTERED, Misfit, dispatch, is_dependency
from reconciler.reasons import Reason

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Judged:
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
    document: FoundDocument | None = None
    claim: tuple[str, str] | None = None


def judge_object(found: FoundObject, default_namespace: str) -> Judged:
    """Return what an object is. Total."""
    value, place = found
    source = Source(place.location, marks=place)
    if not isinstance(value, Mapping):
        return _not_an_object(value, place)
    reader = dispatch(value)
    if reader is None:
        return _foreign(value, place)
    key, problem = _identity(
        value, place, reader.group_kind if not isinstance(reader, Misfit) else reader.kind, default_namespace
    )
    if isinstance(reader, Misfit):
        where = _at(place, (reader.field,))
        wrong = Problem(where, reader.reason, reader.message, reader.hint, _subject(key))
        return Judged(key, None, source, (wrong,), broken="" if key else place.path)
    if key is None:
        return Judged(None, None, source, (problem,) if problem else (), broken=place.path)
    parsed = parse_model(reader.model, {k: v for k, v in value.items() if k != "status"})
    # What a misspelt safety annotation asks for is not known: its owner stalls, and nothing moves.
    faults = parsed if isinstance(parsed, tuple) else check_keys(key.kind, value)
    if isinstance(parsed, tuple) or faults:
        problems = tuple(_problem(fault, place, key) for fault in faults)
        return Judged(key, None, source, problems, claim=_claim(key, value))
    return Judged(key, parsed, source)


def judge_broken(found: BrokenDocument, path: str, default_namespace: str) -> Judged:
    """Return who stalls because a document is not YAML: whoever it still seems to be, and its whole file."""
    claim = found.claim
    kind = GroupKind(group_of(claim.api_version), claim.kind)
    problem = found.problem
    if kind not in REGISTERED or not claim.name:
        return Judged(problems=(problem,), broken=path)
    key = ObjectKey(*kind, claim.namespace or default_namespace, claim.name)
    named = Problem(problem.location, problem.reason, problem.message, problem.hint, _subject(key))
    return Judged(key, None, Source(problem.location), (named,), broken=path)


def _claim(key: ObjectKey, value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the downstream that a PackageVariant names, None where it names none or is another kind."""
    found: Any = value if key.kind == "PackageVariant" else None
    for step in ("spec", "downstream"):
        found = found.get(step) if isinstance(found, Mapping) else None
    repo, package = (found.get(name) if isinstance(found, Mapping) else None for name in ("repo", "package"))
    return (repo, package) if isinstance(repo, str) and isinstance(package, str) else None


def _not_an_object(value: Any, place: Place) -> Judged:
    """Judge a document that is no mapping: a list is some other tool's, a bare text is a mistake."""
    if isinstance(value, list):
        return Judged(broken=place.path, foreign="(a list)")
    text = str(value)[:40]
    message = f"This is not a Kubernetes object, but the text {text!r}"
    hint = "A manifest starts with apiVersion, kind and metadata."
    return Judged(
        problems=(Problem(place.location, Reason.INVALID_MANIFEST, message, hint),), broken=place.path
    )


def _foreign(value: Mapping[str, Any], place: Place) -> Judged:
    """Judge an object of another group; one without a kind may have been ours, which its file remembers."""
    if is_dependency(value):
        return Judged(document=FoundDocument(value, Source(place.location, marks=place)))
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        return Judged(foreign=str(GroupKind(group_of(api_version), kind)))
    return Judged(broken=place.path, foreign="(no kind)")


def _identity(
    value: Mapping[str, Any], place: Place, kind: GroupKind | None, default_namespace: str
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
    for field, text, pattern in (("name", name, _SUBDOMAIN), ("namespace", namespace, _LABEL)):
        if not isinstance(text, str) or len(text) > _LONGEST_NAME or not pattern.fullmatch(text):
            message = f"metadata.{field} {str(text)[:80]!r} is not a valid name of Kubernetes"
            hint = "Use lower-case letters, digits and dashes, and start and end with a letter or digit."
            return None, Problem(_at(place, ("metadata", field)), Reason.INVALID_NAME, message, hint)
    return ObjectKey(*kind, namespace, name), None


def _problem(fault: Fault, place: Place, key: ObjectKey) -> Problem:
    where = _at(place, fault.path, of_key=fault.of_key)
    return Problem(where, fault.reason, fault.message, fault.hint, _subject(key))


def _at(place: Place, path: tuple[str | int, ...], *, of_key: bool = False) -> Location:
    return Location(place.path, *(place.key_mark(path) if of_key else place.mark(path)))


def _subject(key: ObjectKey | None) -> str:
    return f"{key.kind} {key.namespace}/{key.name}" if key else ""
