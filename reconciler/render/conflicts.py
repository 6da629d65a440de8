"""Who wins a conflict in one package, as its Kptfile and its variant say (D10)."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.kptfile import KPTFILE
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.objects import Files
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, ConflictPolicy
from reconciler.state import OpenConflict, PackageVariantRecord

ON_CONFLICT = "reconciler.dev/on-conflict"
ON_CONFLICT_FIELDS = "reconciler.dev/on-conflict-fields"
"""`spec.replicas=local;spec.template.*=upstream`: the first pattern that matches a field decides."""

MASK = "***"


def conflict_policy(files: Files, annotations: Mapping[str, str], fallback: OnConflict) -> ConflictPolicy:
    """Return who wins the conflicts of a package: as its Kptfile says, else its variant, else `fallback`.

    Total: a word that means nothing is passed over.
    """
    both = (_annotations(files), annotations)
    default = next((choice for notes in both if (choice := _choice(notes.get(ON_CONFLICT)))), fallback)
    fields: dict[str, OnConflict] = {}
    for notes in both:
        for pattern, choice in _patterns(notes.get(ON_CONFLICT_FIELDS)):
            fields.setdefault(pattern, choice)
    return ConflictPolicy(default, fields)


def open_conflict(conflict: Conflict) -> OpenConflict:
    """Return a conflict as a record keeps it: nothing of a Secret ever is."""
    hidden = conflict.resource.partition(" ")[0] == "Secret"
    return OpenConflict(
        path=conflict.path,
        resource=conflict.resource,
        field=conflict.field,
        upstream=_masked(conflict.upstream) if hidden else conflict.upstream,
        local=_masked(conflict.local) if hidden else conflict.local,
    )


def _masked(value: str | None) -> str | None:
    return None if value is None else MASK


def recorded_conflicts(record: PackageVariantRecord | None) -> tuple[Conflict, ...]:
    """Return the conflicts that waited for a person when a variant was last applied."""
    found = record.conflicts if record else ()
    return tuple(
        Conflict(c.path, c.resource, c.field, None, c.upstream, c.local, "BothChanged") for c in found
    )


def _annotations(files: Files) -> Mapping[str, Any]:
    value: Any = None
    if KPTFILE in files:
        try:
            documents = load_documents(files[KPTFILE].data, PACKAGE_LIMITS)
        except YamlError:
            documents = ()
        value = documents[0].value if documents else None
    for key in ("metadata", "annotations"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _choice(text: Any) -> OnConflict | None:
    return OnConflict(text) if isinstance(text, str) and text in set(OnConflict) else None


def _patterns(text: Any) -> list[tuple[str, OnConflict]]:
    parts = [part.partition("=") for part in text.split(";")] if isinstance(text, str) else []
    named = [(pattern.strip(), _choice(choice.strip())) for pattern, _, choice in parts]
    return [(pattern, choice) for pattern, choice in named if pattern and choice]
