"""Read the conflict policy of a package from its Kptfile and variant, and its recorded conflicts (D10)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.expand import DesiredVariant
from reconciler.functions.secrets import MASK
from reconciler.krm.values import mapping_at
from reconciler.names.objects import Files
from reconciler.names.trailers import without_mark
from reconciler.policy import OnConflict, Policy
from reconciler.records.state import AnsweredConflict, OpenConflict, PackageVariantRecord
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.kptfile import kptfile_value
from reconciler.render.update import Conflict, ConflictPolicy
from reconciler.render.update.conflict_policy import ON_CONFLICT

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
    files: Files,
    annotations: Mapping[str, str],
    fallback: OnConflict,
    sources: PolicySources = _ANY_SOURCES,
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


def open_conflict(conflict: Conflict) -> OpenConflict:
    """Return the record of a conflict; values of a Secret are masked."""
    return OpenConflict(**_record_fields(conflict))


def answered_conflict(answer: Answer) -> AnsweredConflict:
    """Return the record of an answer; values of a Secret are masked."""
    chosen = _masked(answer.chosen) if is_hidden(answer.conflict) else answer.chosen
    policy = {"policy": answer.policy, "source": answer.source}
    return AnsweredConflict(**_record_fields(answer.conflict), chosen=chosen, by=str(answer.by), **policy)


def masked_base(conflict: Conflict) -> str | None:
    """Return the value of a conflict before both sides changed it; that of a Secret is masked."""
    return _masked(conflict.base) if is_hidden(conflict) else conflict.base


def is_hidden(conflict: Conflict) -> bool:
    """Return whether a conflict is about a Secret, or in a file with one."""
    return conflict.hidden or conflict.resource.partition(" ")[0] == "Secret"


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
    conflicts: tuple[OpenConflict | AnsweredConflict, ...] = ()
    conflicts = (*record.conflicts, *record.answers) if record else conflicts
    return {conflict.name: _recorded(conflict) for conflict in conflicts if conflict.name}


def _recorded(old: OpenConflict | AnsweredConflict) -> Conflict:
    return Conflict(old.path, old.resource, old.field, None, old.upstream, old.local, "BothChanged", old.name)


def _record_fields(conflict: Conflict) -> dict[str, Any]:
    hidden = is_hidden(conflict)
    return {
        "path": conflict.path,
        "resource": conflict.resource,
        "field": conflict.field,
        "upstream": _masked(conflict.upstream) if hidden else conflict.upstream,
        "local": _masked(conflict.local) if hidden else conflict.local,
        "name": without_mark(conflict.name) if hidden else conflict.name,
    }


def _masked(value: str | None) -> str | None:
    return None if value is None else MASK


def _choice(text: Any) -> OnConflict | None:
    return OnConflict(text) if isinstance(text, str) and text in set(OnConflict) else None
