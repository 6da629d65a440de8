"""Convert objects that kubectl exported from a cluster with Porch to manifests of a control repository."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.api.meta import Manifest
from reconciler.api.porch import (
    GROUP,
    PACKAGE_VARIANT_SET,
    SET_LABEL,
    PackageVariant,
    PackageVariantSet,
    Repository,
)
from reconciler.api.validation import FieldError, field_text, parse_model
from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.wording import plural, verb
from reconciler.expand.migration import migrate_set, untranslated_fields
from reconciler.krm.yaml import YamlError, emit, load_documents
from reconciler.krm.yaml.limits import SNAPSHOT_LIMITS

_MODELS: Mapping[str, type[Manifest]] = {
    "Repository": Repository,
    "PackageVariantSet": PackageVariantSet,
    "PackageVariant": PackageVariant,
}
_METADATA = ("name", "namespace", "labels", "annotations")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SUBJECTS = 3
_ADOPTED = "packages that exist are taken over: adoptionPolicy is adoptExisting"
_IN_GIT = "what it describes is in Git, and is read there"
_DROPPED: Mapping[tuple[str, ...], str] = {
    ("spec", "git", "secretRef"): "credentials come from the environment: write spec.credentials",
    ("spec", "sync"): "repositories are read by every run",
    ("spec", "mutators"): "no equivalent: write functions into Kptfiles or spec.pipeline of a variant",
    ("spec", "validators"): "no equivalent: write functions into Kptfiles or spec.pipeline of a variant",
    ("spec", "upstream"): "no equivalent: name the upstream in a PackageVariant",
}
"""Fields of Repositories that mean something to Porch and nothing here."""


class Note(NamedTuple):
    """A difference between an exported object and its manifest, or why it has none."""

    text: str
    subject: str


class Conversion(NamedTuple):
    """Manifests by their kind, and what has no equivalent."""

    manifests: Mapping[str, str]
    notes: tuple[Note, ...]

    def lines(self) -> Iterator[str]:
        """Yield the notes, one line for each text."""
        subjects: dict[str, list[str]] = defaultdict(list)
        for note in self.notes:
            subjects[note.text].append(note.subject)
        for text, group in subjects.items():
            more = f" and {len(group) - _SUBJECTS} more" if len(group) > _SUBJECTS else ""
            yield f"{', '.join(group[:_SUBJECTS])}{more}: {text}"


def convert_export(exports: Mapping[str, bytes]) -> Conversion:
    """Convert Repositories, PackageVariantSets and PackageVariants.

    Status, fields that a cluster sets and variants that a set of the export owns are left out. A variant
    of a package that Porch has created adopts it.

    Args:
        exports: The exported files by name.

    Raises:
        ConfigurationError: A file is not YAML or JSON, or it has no object of these kinds.
    """
    objects = [item for name, data in exports.items() for item in _objects(name, data)]
    notes: list[Note] = []
    sets = {_key(item): _uid(item) for item in objects if item.get("kind") == "PackageVariantSet"}
    owners = [_owner(item, sets) for item in objects]
    owned = Counter(owner for owner in owners if owner)
    kinds = defaultdict[str, dict[str, Any]](dict)
    for item, owner in zip(objects, owners, strict=True):
        if not owner and (manifest := _convert(item, notes, owned)) is not None:
            kinds[manifest["kind"]][_key(manifest)] = manifest
    if not kinds:
        message = f"{', '.join(exports)} has no Repository, PackageVariant or PackageVariantSet of {GROUP}"
        raise ConfigurationError(message, hint="Export them: kubectl get packagevariants -A -o yaml")
    notes += [
        Note(
            f"{plural(n, 'PackageVariant')} of a set {verb(n, 'is', 'are')} left out: the set makes them",
            owner,
        )
        for owner, n in owned.items()
    ]
    return Conversion({kind: _text(group) for kind, group in kinds.items()}, tuple(dict.fromkeys(notes)))


def _objects(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    try:
        documents = load_documents(data, SNAPSHOT_LIMITS)
    except YamlError as error:
        raise ConfigurationError(str(error), location=Location(name)) from error
    for document in documents:
        yield from _flatten(document.value)


def _flatten(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        item_kind = str(value["kind"]).removesuffix("List")
        typed = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
        for item in items:
            if isinstance(item, dict):
                yield from _flatten({**typed, **item})
    else:
        yield value


def _text(group: Mapping[str, Any]) -> str:
    return "---\n".join(f"{emit(group[key])}\n" for key in sorted(group))


# One object


def _convert(item: dict[str, Any], notes: list[Note], owned: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the manifest of an object, None for one that is left out."""
    kind, group = str(item.get("kind", "")), str(item.get("apiVersion", "")).partition("/")[0]
    if group != GROUP or kind not in _MODELS:
        is_porch = group in {GROUP, "porch.kpt.dev"}
        text = _IN_GIT if is_porch else "not of Porch: `reconciler snapshot import` takes what sets select"
        notes.append(Note(f"left out, {text}", f"every {kind or 'object without a kind'}"))
        return None
    manifest = {
        "apiVersion": item["apiVersion"],
        "kind": kind,
        "metadata": _metadata(_mapping(item.get("metadata"))),
        "spec": _copy(_mapping(item.get("spec"))),
    }
    subject = _key(manifest)
    if kind == "PackageVariantSet" and item["apiVersion"] != PACKAGE_VARIANT_SET:
        return _migrate(manifest, notes)
    if kind == "Repository" and manifest["spec"].get("type", "git") != "git":
        notes.append(Note("left out, only Git repositories are read", subject))
        return None
    if kind == "Repository":
        notes += [Note(text, subject) for path, text in _DROPPED.items() if _remove(manifest, path)]
    elif owned.get(subject) or _mapping(item.get("status")).get("downstreamTargets"):
        _adopt(manifest)
        notes.append(Note(_ADOPTED, subject))
    notes += _without_unknown(manifest, subject)
    return manifest


def _migrate(manifest: dict[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """Return a set of v1alpha1 as one of v1alpha2, None if it cannot be translated."""
    current = {**manifest, "apiVersion": PACKAGE_VARIANT_SET}
    if isinstance(parse_model(PackageVariantSet, current), PackageVariantSet):
        return current
    if lost := untranslated_fields(manifest):
        text = f"left out, {', '.join(lost[:_SUBJECTS])} of v1alpha1 cannot be translated"
        notes.append(Note(text, _key(manifest)))
        return None
    (document,) = load_documents(migrate_set(manifest).encode())
    migrated: dict[str, Any] = document.value
    return migrated


def _adopt(manifest: dict[str, Any]) -> None:
    """Let a variant take over what Porch made for it, whatever its policy about packages of others is."""
    spec = manifest["spec"]
    if manifest["kind"] == "PackageVariant":
        spec["adoptionPolicy"] = "adoptExisting"
        return
    for target in spec.get("targets") or ():
        target["template"] = {**_mapping(target.get("template")), "adoptionPolicy": "adoptExisting"}


def _without_unknown(manifest: dict[str, Any], subject: str) -> Iterator[Note]:
    """Remove the fields that do not exist here; yield them, and what else is wrong."""
    for error in _errors(manifest):
        if error.of_key:
            _remove(manifest, error.path)
            yield Note(f"{field_text(error.path)} has no equivalent", subject)
    for error in _errors(manifest):
        yield Note(f"{error.message}{f'. {error.hint}' if error.hint else ''}", subject)


def _errors(manifest: dict[str, Any]) -> tuple[FieldError, ...]:
    parsed = parse_model(_MODELS[manifest["kind"]], manifest)
    return parsed if isinstance(parsed, tuple) else ()


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    annotations = {k: v for k, v in _mapping(kept.pop("annotations", None)).items() if k != _APPLIED}
    return {**kept, "annotations": annotations} if annotations else kept


def _owner(item: Mapping[str, Any], sets: Mapping[str, str]) -> str:
    """Return the set of the export that owns a variant, by its reference or label; empty if none does."""
    if item.get("kind") != "PackageVariant":
        return ""
    metadata = _mapping(item.get("metadata"))
    references = {o.get("uid") for o in metadata.get("ownerReferences") or () if isinstance(o, dict)}
    uids = references | {_mapping(metadata.get("labels")).get(SET_LABEL)}
    return next((name for name, uid in sets.items() if uid and uid in uids), "")


def _uid(item: Mapping[str, Any]) -> str:
    return str(_mapping(item.get("metadata")).get("uid", ""))


def _key(item: Mapping[str, Any]) -> str:
    metadata = _mapping(item.get("metadata"))
    return f"{item.get('kind')} {metadata.get('namespace', 'default')}/{metadata.get('name', '')}"


def _remove(value: Any, path: Iterable[str | int]) -> bool:
    """Remove a field, return whether it was there."""
    *parents, last = path
    for step in parents:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, dict) and value.pop(last, None) is not None


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list) else value


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
