"""Up-to-date packages: compare the digest of all inputs with the record, to skip rendering (D15)."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace
from pydantic.alias_generators import to_camel

from reconciler.api.porch import PackageVariantSpec
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.policy import OnConflict
from reconciler.records.state import PackageVariantRecord, recorded_ticks
from reconciler.resolve.resolution import Pin, ResolvedVariant, SubpackagePin

ObjectIndex = Mapping[ObjectName, Sequence[SnapshotObject]]

POLICIES = ("reconciler.dev/on-conflict", "reconciler.dev/on-conflict-fields")
"""Annotations of a variant that decide what its package becomes."""

_SHORT = 16
"""Hexadecimal digits that tell one content of an object from another in a record."""

ENGINE = 3
"""Raised when rendering changes what it makes of the same inputs; then every package is rendered once."""

_TOLD = ("engine", "instance", "repository", "deployment", "policies", "functions", "subpackages")
"""The inputs that a record keeps beside the digest, to report later which of them changed."""

_RENDERED = ("package_context", "pipeline", "mutators", "injectors")


def input_facts(
    variant: DesiredVariant,
    view: RepositoryView,
    downstream: PackageKey,
    pin: Pin,
    inventory: Inventory,
    *,
    objects: ObjectIndex,
) -> dict[str, Any]:
    """Return everything that rendering this variant reads, but for the package itself, as plain data."""
    policies = {name: text for name, text in variant.annotations.items() if name in POLICIES}
    facts: dict[str, Any] = {
        "engine": ENGINE,
        "instance": inventory.policy.instance,
        "variant": list(variant.key),
        "repository": view.key.name,
        "downstream": _place(downstream, view.manifest.spec.git.repo if view.manifest.spec.git else ""),
        "deployment": view.deployment,
        "upstream": _upstream_fact(pin),
        "spec": variant_values(variant),
        "objects": _injected(variant, inventory.snapshot.of(view.cluster), objects),
    }
    if inventory.policy.on_conflict is not OnConflict.ASK:
        policies["default"] = inventory.policy.on_conflict
    if policies:
        facts["policies"] = policies
    if has_charts(pin, variant, inventory):
        snapshot = inventory.snapshot.of(view.cluster)  # what charts may ask of a cluster
        served = None if snapshot.served is None else snapshot.apis
        facts["cluster"] = [snapshot.versions.get("kubernetes"), served]
    # Which functions may run, and how, decides what they make of the same package.
    if inventory.function_facts:
        facts["functions"] = inventory.function_facts
    return facts


def _upstream_fact(pin: Pin) -> list[Any]:
    return [*_place(pin.package, pin.repo), pin.repo, pin.ref, pin.revision, pin.commit.oid, pin.tree]


def has_no_edits(
    resolved: ResolvedVariant, facts: Mapping[str, Any], record: PackageVariantRecord | None
) -> bool:
    """Tell whether main has, unedited, what was made of the base, so that an update is a new package.

    Values of cluster objects that are gone stay: with injectors, nothing else than the upstream may differ.
    """
    base, local = resolved.base, resolved.local
    if record is None or base is None or local is None or base.tree == resolved.pin.tree:
        return False
    if record.upstream_tree != base.tree or record.output_tree != local:
        return False
    if local not in (record.unedited or ()):
        return False
    has_injectors = resolved.variant.spec.injectors or record.spec.get("injectors")
    return not has_injectors or inputs_digest({**facts, "upstream": _upstream_fact(base)}) == record.inputs


def _place(package: PackageKey, registered: str) -> list[str]:
    """Return where a package is; the path of this machine that a relative address means is no input."""
    is_beside = package.url.startswith("/") and registered.startswith(".")
    return [registered if is_beside else package.url, package.path]


def has_charts(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> bool:
    """Tell whether an upstream package has charts of Helm, on main or in a draft."""
    view = inventory.repositories.get(ObjectName(variant.key.namespace, pin.repository))
    state = view.upstream_at(pin.package.path) if view is not None else None
    if state is None:
        return False
    headers = [state.main_header, *(draft.header for draft in state.drafts)]
    return any(header.has_charts for header in headers if header is not None)


def subpackage_facts(subpackages: Sequence[SubpackagePin]) -> list[Any]:
    """Return the revisions that a variant sets for sub-packages, as plain data."""
    return [
        [
            pinned.directory,
            *_place(pinned.pin.package, pinned.pin.repo),
            pinned.pin.ref,
            pinned.pin.commit.oid,
        ]
        for pinned in subpackages
    ]


Values = Mapping[str, Any]
"""The part of a spec that rendering reads beside the upstream, as it is on disk; most have none."""


def variant_values(variant: DesiredVariant) -> Values:
    """Return the values that a variant asks for."""
    return variant.spec.model_dump(exclude_none=True, include=set(_RENDERED))


def recorded_values(record: PackageVariantRecord) -> Values:
    """Return the values that a variant had when it was last applied."""
    return {name: record.spec[name] for name in map(to_camel, _RENDERED) if name in record.spec}


def with_values(variant: DesiredVariant, values: Values) -> DesiredVariant:
    """Return a variant with other values."""
    if variant_values(variant) == values:
        return variant
    spec = PackageVariantSpec.model_validate(dict(values))
    fields = {name: getattr(spec, name) for name in _RENDERED}
    return replace(variant, spec=variant.spec.model_copy(update=fields))


def values_digest(values: Values) -> str:
    """Return what tells values from others, "" for none."""
    return inputs_digest(values)[:_SHORT] if values else ""


def inputs_digest(facts: object) -> str:
    """Return the digest of inputs. Deterministic: the order of maps does not matter, that of lists does."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def told_facts(facts: Mapping[str, Any], inputs: str, record: PackageVariantRecord | None) -> dict[str, str]:
    """Return the facts that a record keeps, each as it is or, if it is large, as a short digest.

    Where the record has them for these very inputs already, they are not made again.
    """
    if record is not None and record.inputs == inputs and record.facts:
        return record.facts
    recorded = {name: facts[name] for name in _TOLD if name in facts}
    return {n: str(f) if isinstance(f, str | int) else inputs_digest(f)[:_SHORT] for n, f in recorded.items()}


def find_settled(resolved: ResolvedVariant, record: PackageVariantRecord | None) -> Oid | None:
    """Return the recorded output tree, if its inputs are unchanged and the output is on main or in the draft.

    It holds if the inputs are the recorded ones, and the package on main is the recorded one or
    the output itself. An output that is in neither place must be rendered to be written.
    """
    if record is None or not record.output_tree or record.inputs != resolved.inputs:
        return None
    # What could not run may have come since, an image that was pulled, say; so may the answer of a box.
    if record.failed or resolved.ticks != recorded_ticks(record):
        return None
    output = Oid(record.output_tree)
    if record.local_tree != (resolved.local or "") and output != resolved.local:
        return None
    draft = resolved.draft
    may_answer = draft is not None and (draft.is_edited or (draft.append_only and not draft.is_grouped))
    # Functions wait for answers, so a draft that people merged without a run since is not finished.
    is_unfinished = bool(record.conflicts) and output == resolved.local != record.local_tree
    if is_unfinished or (may_answer and (record.conflicts or record.answers or record.warnings)):
        # People answer conflicts, and warnings, by what they commit, in a group beside what we wrote last.
        return None
    # A draft that people changed may be broken now: whether it is ready takes rendering it.
    is_there = output == resolved.local or (draft is not None and output == draft.tree)
    return output if is_there else None


def index_objects(snapshot: Snapshot) -> ObjectIndex:
    """Return the objects of a snapshot by namespace and name, of any kind, for injectors.

    The empty name has one object of each kind that the namespace has.
    """
    index: dict[ObjectName, list[SnapshotObject]] = {}
    for _, objects in sorted(snapshot.objects.items()):
        kinds = {obj.namespace: obj for obj in objects}
        for namespace in sorted(kinds):
            index.setdefault(ObjectName(namespace, ""), []).append(kinds[namespace])
        for obj in objects:
            index.setdefault(ObjectName(obj.namespace, obj.name), []).append(obj)
    return index


def named_objects(variant: DesiredVariant, objects: ObjectIndex) -> dict[str, str]:
    """Return a short digest of every object that an injector of the variant may name, by kind and name."""
    named = _named(variant, objects)
    return {f"{o.kind} {o.name}": inputs_digest(o.body)[:_SHORT] for o in named}


def _named(variant: DesiredVariant, objects: ObjectIndex) -> list[SnapshotObject]:
    if not variant.spec.injectors:
        return []
    names = sorted({injector.name for injector in variant.spec.injectors if injector.name})
    return [o for name in names for o in objects.get(ObjectName(variant.key.namespace, name), ())]


def _injected(variant: DesiredVariant, snapshot: Snapshot, objects: ObjectIndex) -> list[Any]:
    """Return identity and digest of every object that an injector of the variant may name."""
    if not variant.spec.injectors:
        return []
    if not snapshot.present and snapshot.cluster:
        return [snapshot.path]
    namespace = variant.key.namespace
    named = _named(variant, objects)
    kinds = [[o.api_version, o.kind] for o in objects.get(ObjectName(namespace, ""), ())]
    definitions = snapshot.definitions
    schemas = (
        None
        if snapshot.served is None and not definitions
        else [snapshot.apis, sorted([*kind] for kind in definitions if snapshot.converts(kind))]
    )
    return [kinds, schemas, [[o.api_version, o.kind, o.name, inputs_digest(o.body)] for o in named]]
