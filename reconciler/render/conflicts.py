"""Read the conflict policy of a package from its Kptfile and variant, and its recorded conflicts (D10)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.expand import DesiredVariant
from reconciler.functions.secrets import MASK, holds_secret
from reconciler.krm.values import mapping_at
from reconciler.names.objects import Files
from reconciler.names.trailers import without_mark
from reconciler.policy import OnConflict, Policy
from reconciler.records.state import ConflictRecord, PackageVariantRecord
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.kptfile import kptfile_value
from reconciler.render.update import Conflict, ConflictPolicy
from reconciler.render.update.conflicts import ON_CONFLICT

ON_CONFLICT_FIELDS = "reconciler.dev/on-conflict-fields"
"""`spec.replicas=local;spec.template.*=upstream`: the first pattern that matches a field decides."""


class PolicySources(NamedTuple):
    """Display names of the sources of a package's policies."""

    variant: str = "PackageVariant"
    configuration: str = "reconciler.yaml"


_ANY_SOURCES = PolicySources()


def policy_sources(variant: DesiredVariant, policy: Policy) -> PolicySources:
    """Return the sources of the policies of a variant's package: its own manifest, or that of its set."""
    owner = f"PackageVariantSet {variant.set_key}" if variant.set_key else f"PackageVariant {variant.key}"
    return PolicySources(f"{owner} ({variant.source.location.path})", policy.config_path)


def conflict_policy(
    files: Files, annotations: Mapping[str, str], fallback: OnConflict, sources: PolicySources = _ANY_SOURCES
) -> ConflictPolicy:
    """Return the conflict policy of a package: of its Kptfile, else of its variant, else `fallback`.

    Total: an invalid value is ignored.
    """
    kptfile = kptfile_value(files[KPTFILE].data) if KPTFILE in files else {}
    levels = ((mapping_at(kptfile, "metadata", "annotations"), KPTFILE), (annotations, sources.variant))
    default, origins = fallback, {"": ("onConflict", sources.configuration)}
    fields: dict[str, OnConflict] = {}
    # The Kptfile is closer to the package than the variant, so it is applied last.
    for values, source in reversed(levels):
        if choice := _choice(values.get(ON_CONFLICT)):
            default, origins[""] = choice, (ON_CONFLICT, source)
    for values, source in levels:
        text = values.get(ON_CONFLICT_FIELDS)
        parts = [part.partition("=") for part in text.split(";")] if isinstance(text, str) else []
        named = [(pattern.strip(), _choice(choice.strip())) for pattern, _, choice in parts]
        for pattern, choice in named:
            if pattern and choice and pattern not in fields:
                fields[pattern], origins[pattern] = choice, (ON_CONFLICT_FIELDS, source)
    return ConflictPolicy(default, fields, origins=origins)


def is_hidden(conflict: Conflict) -> bool:
    """Return whether a conflict is about a Secret, or in a file with one."""
    return conflict.hidden or conflict.resource.partition(" ")[0] == "Secret"


def masked(conflict: Conflict, files: Files = MappingProxyType({})) -> Conflict:
    """Return a conflict as it may be read, in any report or record: of a Secret neither values nor marks.

    `files` are those of the package as it will be.
    """
    if not (is_hidden(conflict) or holds_secret(files.get(conflict.path))):
        return conflict
    sides = {side: _masked(getattr(conflict, side)) for side in ("base", "upstream", "local")}
    return replace(conflict, **sides, name=without_mark(conflict.name), hidden=True)


def masked_answer(answer: Answer, files: Files = MappingProxyType({})) -> Answer:
    """Return an answer as it may be read."""
    conflict = masked(answer.conflict, files)
    return replace(answer, conflict=conflict, chosen=_masked(answer.chosen)) if conflict.hidden else answer


def conflict_record(conflict: Conflict) -> ConflictRecord:
    """Return the record of a conflict that may be read."""
    return ConflictRecord(**{name: getattr(conflict, name) for name in _RECORDED})


_RECORDED = ("path", "resource", "field", "upstream", "local", "name")


def answer_record(answer: Answer) -> ConflictRecord:
    """Return the record of an answer that may be read."""
    record, by = conflict_record(answer.conflict), str(answer.by)
    return replace(record, chosen=answer.chosen, by=by, policy=answer.policy, source=answer.source)


def recorded_conflicts(record: PackageVariantRecord | None) -> tuple[Conflict, ...]:
    """Return the conflicts that waited for a person when a variant was last applied."""
    return tuple(_recorded(conflict) for conflict in (record.conflicts if record else ()))


def recorded_answers(record: PackageVariantRecord) -> tuple[Answer, ...]:
    """Return the conflicts that were answered when a variant was last applied."""
    return tuple(
        Answer(_recorded(answer), AnsweredBy(answer.by), answer.chosen, answer.policy, answer.source)
        for answer in record.answers
    )


def recorded_by_name(record: PackageVariantRecord | None) -> Mapping[str, Conflict]:
    """Return every conflict of a record by its name."""
    conflicts = (*record.conflicts, *record.answers) if record else ()
    return {conflict.name: _recorded(conflict) for conflict in conflicts if conflict.name}


def _recorded(old: ConflictRecord) -> Conflict:
    return Conflict(old.path, old.resource, old.field, None, old.upstream, old.local, "BothChanged", old.name)


def _masked(value: str | None) -> str | None:
    return None if value is None else MASK


def _choice(text: Any) -> OnConflict | None:
    return OnConflict(text) if isinstance(text, str) and text in set(OnConflict) else None
