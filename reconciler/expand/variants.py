"""Desired PackageVariants with names and UIDs, the candidates of each owner, and variants as manifests."""

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from reconciler.api.meta import Condition
from reconciler.api.porch import (
    GROUP,
    PACKAGE_VARIANT,
    PACKAGE_VARIANT_SET,
    REQUESTED_BY,
    SET_LABEL,
    PackageVariantSpec,
)
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.base.values import PartlyCompared
from reconciler.expand.findings import Finding
from reconciler.expand.targets import SelectedObject
from reconciler.inventory.inventory import FieldPath, Inventory, Source
from reconciler.names.ids import NamedObject, ObjectKey, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.records.state import PackageVariantRecord

MAX_NAME = 63
# 54 bytes of the identifier, a dash and 8 digits of its SHA-1 are 63.
_PREFIX = 54
_DIGITS = 8

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "reconciler.dev")
_SUBDOMAIN = regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def variant_identifier(set_name: str, repo: str, package: str) -> str:
    """Join the three parts with dashes; nothing is escaped, so two triples may give one identifier.

    Source: porch packagevariantset_controller.go, packageVariantIdentifier.
    Differs: it is never a key here; identity is the triple.
    """
    return f"{set_name}-{repo}-{package}"


def variant_name(identifier: str) -> str:
    """Return the object name for an identifier: itself up to 63 bytes, else 54 bytes and a hash.

    A multi-byte character that the cut would split is replaced, and the name is then refused
    as invalid anyway.

    Source: porch packagevariantset_controller.go, packageVariantName.
    """
    data = identifier.encode()
    if len(data) <= MAX_NAME:
        return identifier
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    return f"{data[:_PREFIX].decode(errors='replace')}-{digest[:_DIGITS]}"


def stable_uid(instance: str, namespace: str, name: str) -> str:
    """Return the UID of a manifest without one: a UUIDv5 of (instance, namespace, name) (D18)."""
    # As uuid.uuid5, which spends most of its time on creating an object.
    data = _UUID_NAMESPACE.bytes + f"{instance}\0{namespace}\0{name}".encode()
    digest = bytearray(hashlib.sha1(data, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_object_name(name: str) -> bool:
    """Tell whether Kubernetes would accept `name` for an object: a DNS-1123 subdomain."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None  # noqa: PLR2004 - the DNS limit


FINALIZER = "config.porch.kpt.dev/packagevariants"
PAUSED = "reconciler.dev/paused"
"""Annotation of a variant, set or Repository: nothing of it changes."""
CEL_EXTENSIONS = "reconciler.dev/cel-extensions"
"""Annotation of a set: extension libraries that its expressions may use, separated by commas."""
ALLOW_DELETES = "reconciler.dev/allow-deletes"
"""Annotation of a set: the number of its variants that may be deleted."""
FROM_TARGET = "the target's default"
"""In a trace, the origin of a field that neither a literal nor an expression gives."""


class DesiredVariant(PartlyCompared, frozen=True):
    """One PackageVariant that should exist, authored or generated."""

    UNCOMPARED = frozenset({"target_path"})

    key: ObjectName
    uid: str
    spec: PackageVariantSpec
    """Valid, with its defaults."""
    source: Source
    """The declaring manifest."""
    set_key: ObjectName | None = None
    target: NamedObject | None = None
    """The object that the set selected, if any."""
    target_cluster: str = ""
    """Its cluster, where the set names clusters."""
    paused: bool = False
    times: tuple[int, ...] = ()
    """Committer times of the inputs (manifest, target object), in seconds."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)
    target_path: FieldPath = ()
    """Field of the set's target."""
    requested_by: tuple[str, ...] = ()
    """Dependency chains that need a variant which no manifest declares."""

    @property
    def target_index(self) -> int | None:
        """The index of the set's target that selected the object, None if none was selected."""
        number = self.target_path[-1] if self.target and self.target_path else None
        return number if isinstance(number, int) else None

    @property
    def owner(self) -> ObjectKey:
        """The variant as the owner of problems."""
        return variant_key(self.key)

    def problem_at(
        self, reason: Reason, message: Text, hint: Text, *path: str | int, cause: Text = ""
    ) -> Problem:
        """Return a problem of this variant, at a field of its manifest."""
        return Problem(self.source.at(*path), reason, message, hint, cause=cause).owned_by(self.owner)


class Desired(Struct, frozen=True):
    """All desired variants of a run."""

    variants: tuple[DesiredVariant, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    """Owners with errors: nothing of theirs is changed or deleted."""
    conditions: Mapping[ObjectKey, tuple[Condition, ...]] = field(default_factory=dict)
    """Stalled and Ready of every set and every invalid variant, in Porch's words."""
    targets: Mapping[ObjectName, int] = field(default_factory=dict)
    """Number of variants of each valid set."""
    problems: tuple[Problem, ...] = ()
    released: frozenset[ObjectName] = frozenset()
    """Variants that others needed before, and certainly need no more."""
    still_needed: Mapping[ObjectName, str] = field(default_factory=dict)
    """Why others of them are still needed."""
    waiting: Mapping[ObjectName, str] = field(default_factory=dict)
    """Why those of clusters without a merged lock are kept."""


class VariantCandidate(Struct, frozen=True):
    """A variant of one owner, before conflicts are detected: its downstream package and its source field."""

    variant: DesiredVariant
    owner: ObjectKey
    source: Source
    path: FieldPath
    package: PackageKey
    selected: SelectedObject | None = None

    @property
    def downstream(self) -> tuple[str, str]:
        """The repository and package by name."""
        downstream = self.variant.spec.downstream
        return (downstream.repo or "", downstream.package or "") if downstream else ("", "")


class OwnerExpansion(Struct, frozen=True):
    """The candidates of one owner, or its errors. `valid` is False if its own manifest is invalid."""

    owner: ObjectKey
    source: Source
    candidates: tuple[VariantCandidate, ...] = ()
    findings: tuple[Finding, ...] = ()
    valid: bool = True


def variant_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariant."""
    return ObjectKey(GROUP, "PackageVariant", *name)


def set_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariantSet."""
    return ObjectKey(GROUP, "PackageVariantSet", *name)


def owner_key(record: PackageVariantRecord) -> ObjectKey:
    """Return the identity of the manifest that made a variant: that of its set, or its own."""
    owner = ObjectName(record.namespace, record.set_name)
    return set_key(owner) if record.set_name else variant_key(record.key)


def spec_data(variant: DesiredVariant) -> dict[str, Any]:
    """Return the spec as manifests and records spell it: camelCase, absent fields left out."""
    return variant.spec.model_dump(exclude_none=True)


MUTATORS: tuple[FieldPath, FieldPath] = ("spec", "pipeline", "mutators"), ("spec", "mutators")
"""The functions of a variant, and their alias (D18)."""


def written_spec(variant: DesiredVariant, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a spec, as `spec_data` is, with its functions in the field that the manifest has."""
    pipeline, (field, alias) = dict(spec.get("pipeline") or {}), MUTATORS
    if variant.source.written(*field) != alias or "mutators" not in pipeline:
        return spec
    return {**spec, "mutators": pipeline.pop("mutators"), "pipeline": pipeline}


def to_manifest(variant: DesiredVariant, inventory: Inventory) -> dict[str, Any]:
    """Return a variant as a manifest; a generated one carries its set's label and owner reference.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: apiVersion has its version; defaults of the policies are filled in.
    """
    metadata: dict[str, Any] = {"name": variant.key.name, "namespace": variant.key.namespace}
    requested_by = {REQUESTED_BY: ", ".join(variant.requested_by)} if variant.requested_by else {}
    if annotations := {**variant.annotations, **requested_by}:
        metadata["annotations"] = dict(sorted(annotations.items()))
    metadata["uid"] = variant.uid
    if variant.set_key is not None:
        declared = next((pvs for pvs in inventory.sets if pvs.key == variant.set_key), None)
        uid = declared.manifest.metadata.uid if declared else None
        uid = uid or stable_uid(inventory.policy.instance, *(variant.set_key or variant.key))
        metadata["labels"] = {SET_LABEL: uid}
        metadata["finalizers"] = [FINALIZER]
        metadata["ownerReferences"] = [
            {
                "apiVersion": PACKAGE_VARIANT_SET,
                "kind": "PackageVariantSet",
                "name": variant.set_key.name,
                "uid": uid,
                "controller": True,
            }
        ]
    spec = spec_data(variant)
    return {"apiVersion": PACKAGE_VARIANT, "kind": "PackageVariant", "metadata": metadata, "spec": spec}
