"""Render deliveries: generate the manifests of a cluster and bring them into its package."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from reconciler.api.kptfile import KPTFILE
from reconciler.base.defects import DefectError, guard
from reconciler.dependencies import emit as generation
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import Inventory
from reconciler.krm.yaml import MANIFEST_LIMITS, YamlError, emit, load_documents
from reconciler.names.ids import ObjectKey, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.names.problems import defect_problem
from reconciler.names.trailers import NO_ANSWERS
from reconciler.render.answers import DraftContext, classify_delivery
from reconciler.render.kptfile import stamp_kptfile
from reconciler.render.merging import Contents
from reconciler.render.package import input_time, recorded_package, unreadable_package
from reconciler.render.rendered import (
    Blocked,
    Package,
    RenderedDeliveries,
    RenderedDelivery,
    RenderedVariant,
    find_bad_names,
    find_excess,
)
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import Deliveries, Delivery, delivery_digest, delivery_trees, pin_delivery
from reconciler.resolve.ownership import location_text, owner_text
from reconciler.resolve.resolution import ResolvedVariant

if TYPE_CHECKING:
    from reconciler.dependencies.emit import GeneratedManifests

_ABSENT = object()


def render_deliveries(deliveries: Deliveries, contents: Contents, inventory: Inventory) -> RenderedDeliveries:
    """Generate and render the packages of all clusters; a blocked one blocks no other.

    A cluster without generated manifests has no delivery: its package is proposed for deletion as any that
    no variant wants. Where a part of the cluster is not understood, the package stays.
    """
    items: list[RenderedDelivery] = []
    stalled: set[ObjectKey] = set(deliveries.stalled)
    problems, notes = [*deliveries.problems], [*deliveries.notes]

    def render(delivery: Delivery) -> None:
        if delivery.resolved.settled is not None:
            items.append(_up_to_date(delivery, inventory))
            return
        generated = _generate(delivery, inventory)
        problems.extend(generated.manifests.problems)
        notes.extend(str(warning) for warning in generated.manifests.warnings)
        stays = generated.manifests.retained and delivery.is_complete and generated.resolved.local
        if generated.manifests.files or stays:
            items.append(_render(delivery, generated, contents, inventory))
        elif generated.manifests.retained or not delivery.is_complete:
            stalled.add(variant_key(delivery.owner))

    for waiting in deliveries.items:
        owner = variant_key(waiting.resolved.variant.key)
        try:
            with guard(f"manifests for cluster {waiting.cluster}"):
                render(waiting)
        except DefectError as error:
            problems.append(defect_problem(error, waiting.resolved.variant.source.location, owner))
            stalled.add(owner)
    return RenderedDeliveries(
        {item.resolved.variant.key: item for item in items},
        frozenset(stalled),
        tuple(sorted(problems)),
        tuple(notes),
    )


class _Generated(Struct, frozen=True):
    """The generated files of a delivery with its Kptfile, and its variant pinned to their tree."""

    manifests: "GeneratedManifests"
    files: Files
    resolved: ResolvedVariant


def _generate(delivery: Delivery, inventory: Inventory) -> _Generated:
    policy = inventory.policy
    owner = owner_text(policy.instance, delivery.owner)
    namespace = policy.dependencies.shared_namespace
    manifests = generation.generate_manifests(
        delivery.inputs, delivery.lock, owner=owner, shared_namespace=namespace
    )
    files: Files = {KPTFILE: _kptfile(delivery)}
    files = {**files, **{name: File.of(data) for name, data in manifests.files.items()}}
    tree = tree_id(files)
    digest = delivery.digest
    if manifests.problems or manifests.warnings or manifests.retained or not digest:
        # Problems and notes are reported by every run, so the record of this digest must not spare the
        # generation of the manifests: a digest of the content is recorded instead.
        digest = delivery_digest(tree, owner, *sorted(manifests.retained), delivery.is_complete)
    return _Generated(manifests, files, pin_delivery(delivery, tree, inventory, digest))


def _up_to_date(delivery: Delivery, inventory: Inventory) -> RenderedDelivery:
    """Return an up-to-date delivery from its record (D15)."""
    return RenderedDelivery(
        delivery.cluster, delivery.resolved, _recorded(delivery.resolved, inventory), delivery.lock.resolution
    )


def _recorded(resolved: ResolvedVariant, inventory: Inventory) -> RenderedVariant:
    key, time = resolved.variant.key, input_time(resolved, inventory)
    settled = resolved.settled or Oid("")
    return RenderedVariant(key, recorded_package(settled, inventory.records[key]), time=time)


def _render(
    delivery: Delivery, generated: _Generated, contents: Contents, inventory: Inventory
) -> RenderedDelivery:
    resolved = generated.resolved
    return RenderedDelivery(
        delivery.cluster,
        resolved,
        _render_package(delivery, generated, contents, inventory),
        delivery.lock.resolution,
        generated.manifests.packages,
        contents.get(resolved.local, {}) if resolved.local else {},
    )


def _render_package(
    delivery: Delivery, generated: _Generated, contents: Contents, inventory: Inventory
) -> RenderedVariant:
    """Return the package of one cluster: the generated files, and the changes of people.

    A person's change stays. Every value that would be generated differently is a conflict until a person
    restores it, removes the header of the generated file, or declares the package in an own manifest.
    """
    resolved = generated.resolved
    key, time = resolved.variant.key, input_time(resolved, inventory)
    if resolved.settled is not None:
        return _recorded(resolved, inventory)
    missing = [tree for tree in delivery_trees(resolved) if tree not in contents]
    if missing:
        return RenderedVariant(key, unreadable_package(missing[0], contents), time=time)
    fresh = _package(delivery, generated, _files(resolved.local, contents), inventory)
    draft = resolved.draft
    if draft is None or not draft.append_only:
        return RenderedVariant(key, fresh, time=time)
    return RenderedVariant(key, fresh, _package(delivery, generated, contents[draft.tree], inventory), time)


def merge_generated(
    generated: Files, existing: Files, *, keep: frozenset[str] = frozenset(), complete: bool = True
) -> tuple[Files, tuple[Conflict, ...]]:
    """Return a package with its generated files replaced, and the conflicts. Pure, idempotent.

    Files that a person wrote or changed stay, byte for byte, and those in `keep`. A generated file is
    deleted if no package needs it any more, and changed if fewer need it, but only if `generated` is
    complete: otherwise the packages that need it may be among those that could not be read.
    """
    files: dict[str, File] = {}
    conflicts: list[Conflict] = []
    for path in sorted({*generated, *existing}):
        new, old = generated.get(path), existing.get(path)
        if new is not None and (old is None or generation.is_unmodified(old.data)):
            files[path] = old if old and not complete and _drops_dependents(new, old) else new
        elif old is not None and (
            new or path in keep or not complete or not generation.is_unmodified(old.data)
        ):
            files[path] = old
            if path != KPTFILE and path not in keep and (new or complete):
                conflicts += _conflicts(path, new, old)
    return files, tuple(conflicts)


def _drops_dependents(new: File, old: File) -> bool:
    """Return whether a package that needs the old file does not need the new one."""
    before, after = (
        generation.needed_by(values[0]) if (values := _values(file.data)) else frozenset()
        for file in (old, new)
    )
    return not before <= after


def _conflicts(path: str, new: File | None, old: File) -> Iterator[Conflict]:
    """Yield the differences between an edited file and its generated content; none without our header."""
    if not generation.has_header(old.data):
        return
    if new is not None:
        yield from _differences(path, new.data, old.data)
    else:
        generated = "no package needs it any more"
        yield Conflict(path, "", "", None, generated, "a person changed it", "BothChanged")


def _package(
    delivery: Delivery, generated: _Generated, existing: Files, inventory: Inventory
) -> Package | Blocked:
    resolved, draft = generated.resolved, generated.resolved.draft
    view, manifests = inventory.repositories[resolved.view], generated.manifests
    files, conflicts = merge_generated(
        generated.files, existing, keep=manifests.retained, complete=delivery.is_complete
    )
    owner = owner_text(inventory.policy.instance, resolved.variant.key)
    location = location_text(view, resolved.downstream.path)
    stamped = stamp_kptfile(files, name=None, pin=None, owner=owner, location=location)
    if isinstance(stamped, Blocked):
        return stamped
    hint = "Rename the package in its index, or the file that people added"
    if bad := find_bad_names(stamped, existing, f"What cluster {delivery.cluster} needs", hint):
        return bad
    if excess := find_excess(stamped, inventory.policy.limits):
        return excess
    context = DraftContext(
        package=resolved.downstream.path,
        commit=resolved.pin.commit.oid,
        answers=draft.answers if draft is not None else NO_ANSWERS,
        files=stamped,
        upstream=generated.files,
        choose=lambda _: None,
    )
    waiting, answers = classify_delivery(conflicts, context)
    return Package(tree_id(stamped), stamped, conflicts=waiting, answers=answers)


def _kptfile(delivery: Delivery) -> File:
    cluster = delivery.cluster
    description = f"What packages of cluster {cluster} need and nobody wrote a manifest for."
    value = {
        "apiVersion": "kpt.dev/v1",
        "kind": "Kptfile",
        "metadata": {
            "name": delivery.target.path.rpartition("/")[2],
            "annotations": {"config.kubernetes.io/local-config": "true"},
        },
        "info": {"description": description},
    }
    return File.of(f"{emit(value)}\n".encode())


def _files(tree: Oid | None, contents: Contents) -> Files:
    return contents[tree] if tree is not None else {}


def _differences(path: str, generated: bytes, edited: bytes) -> Iterator[Conflict]:
    """Yield every value of an edited file that differs from the generated one; comments do not count."""
    new, old = _values(generated), _values(edited)
    if old is None or len(old) != 1:
        yield Conflict(path, "", "", None, "generated", "a person rewrote it", "BothChanged")
        return
    for where, upstream, local in _changed_leaves((), new[0] if new else None, old[0]):
        yield Conflict(path, "", ".".join(where), None, _text(upstream), _text(local), "BothChanged")


def _changed_leaves(path: tuple[str, ...], new: Any, old: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        for name in dict.fromkeys((*new, *old)):
            yield from _changed_leaves((*path, str(name)), new.get(name, _ABSENT), old.get(name, _ABSENT))
    elif new != old:
        yield path, new, old


def _text(value: Any) -> str:
    return "(none)" if value is _ABSENT else emit(value, flow=True)


def _values(data: bytes) -> list[Any] | None:
    try:
        return [document.value for document in load_documents(data, MANIFEST_LIMITS)]
    except YamlError:
        return None
