"""What is generated for a cluster, brought into its package: files that people changed stay as they are."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.kptfile import KPTFILE
from reconciler.dependencies.emit import has_header, is_unmodified, needed_by
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import Inventory
from reconciler.krm.yaml import MANIFEST_LIMITS, YamlError, emit, load_documents
from reconciler.objects import File, Files, tree_id
from reconciler.render.answers import Sides, judge_delivery
from reconciler.render.kptfile import stamp_kptfile
from reconciler.render.merging import Contents
from reconciler.render.package import input_time, known_package, unread
from reconciler.render.rendered import Blocked, Package, RenderedVariant
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import Delivery, delivery_trees
from reconciler.resolve.ownership import location_text, owner_text
from reconciler.trailers import NO_ANSWERS

_NOT_NEEDED = "nobody needs it any more"


def render_deliveries(
    deliveries: Iterable[Delivery], contents: Contents, inventory: Inventory
) -> dict[ObjectName, RenderedVariant]:
    """Return the packages of all clusters, by owner; what blocks one blocks no other."""
    return {one.resolved.variant.key: render_delivery(one, contents, inventory) for one in deliveries}


def render_delivery(delivery: Delivery, contents: Contents, inventory: Inventory) -> RenderedVariant:
    """Return the package of one cluster: the generated files, and whatever people made of it.

    What a person changed stays, and every value that would be another is told until they answer:
    by restoring it, by removing the line that says that the file is generated, or by declaring the
    package in a manifest of their own.
    """
    resolved = delivery.resolved
    key, time = resolved.variant.key, input_time(resolved, inventory)
    if resolved.settled is not None:
        return RenderedVariant(key, known_package(resolved.settled, inventory.records[key]), time=time)
    missing = [tree for tree in delivery_trees(resolved) if tree not in contents]
    if missing:
        return RenderedVariant(key, unread(missing[0], contents), time=time)
    fresh = _package(delivery, _files(resolved.local, contents), inventory)
    draft = resolved.draft
    if draft is None or not draft.append_only:
        return RenderedVariant(key, fresh, time=time)
    return RenderedVariant(key, fresh, _package(delivery, contents[draft.tree], inventory), time)


def bring(
    generated: Files, there: Files, *, kept: frozenset[str] = frozenset(), complete: bool = True
) -> tuple[Files, tuple[Conflict, ...]]:
    """Return a package with `generated` in place of what was generated before. Pure, idempotent.

    Files that a person wrote or changed stay, byte for byte, and those that are `kept`. A generated
    file that is not needed any more goes, and one that fewer need now changes, but only where
    `generated` is all that is needed: else those who need it may only not be understood.
    """
    files: dict[str, File] = {}
    conflicts: list[Conflict] = []
    for path in sorted({*generated, *there}):
        new, old = generated.get(path), there.get(path)
        if new is not None and (old is None or is_unmodified(old.data)):
            files[path] = old if old and not complete and _forgets(new, old) else new
        elif old is not None and (new or path in kept or not complete or not is_unmodified(old.data)):
            files[path] = old
            if path != KPTFILE and path not in kept and (new or complete):
                conflicts += _told(path, new, old)
    return files, tuple(conflicts)


def _forgets(new: File, old: File) -> bool:
    """Tell whether somebody needed an old file who does not need the new one."""
    was, now = (
        needed_by(values[0]) if (values := _values(file.data)) else frozenset() for file in (old, new)
    )
    return not was <= now


def _told(path: str, new: File | None, old: File) -> Iterator[Conflict]:
    """Yield what an edited file has otherwise than it would be generated; nothing of a person's own file."""
    if not has_header(old.data):
        return
    if new is not None:
        yield from _differing(path, new.data, old.data)
    else:
        yield Conflict(path, "", "", None, _NOT_NEEDED, "a person changed it", "BothChanged")


def _package(delivery: Delivery, there: Files, inventory: Inventory) -> Package | Blocked:
    resolved, draft = delivery.resolved, delivery.resolved.draft
    view = inventory.repositories[resolved.view]
    files, conflicts = bring(delivery.files, there, kept=delivery.emission.kept, complete=delivery.complete)
    owner = owner_text(inventory.policy.instance, resolved.variant.key)
    place = location_text(view, resolved.downstream.path)
    stamped = stamp_kptfile(files, name=None, pin=None, owner=owner, location=place)
    if isinstance(stamped, Blocked):
        return stamped
    sides = Sides(
        package=resolved.downstream.path,
        commit=resolved.pin.commit.oid,
        answers=draft.answers if draft is not None else NO_ANSWERS,
        files=stamped,
        upstream={},
        choose=lambda _: None,
    )
    judged = judge_delivery(conflicts, sides)
    return Package(tree_id(stamped), stamped, conflicts=judged.waiting, answers=judged.answers)


def _files(tree: Oid | None, contents: Contents) -> Files:
    return contents[tree] if tree is not None else {}


def _differing(path: str, ours: bytes, theirs: bytes) -> Iterator[Conflict]:
    """Yield every value of a generated file that a person has otherwise; comments are theirs anyway."""
    new, old = _values(ours), _values(theirs)
    if old is None or len(old) != 1:
        yield Conflict(path, "", "", None, "generated", "a person rewrote it", "BothChanged")
        return
    for where, upstream, local in _leaves((), new[0] if new else None, old[0]):
        yield Conflict(path, "", ".".join(where), None, _text(upstream), _text(local), "BothChanged")


_ABSENT = object()


def _leaves(path: tuple[str, ...], new: Any, old: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        for name in dict.fromkeys((*new, *old)):
            yield from _leaves((*path, str(name)), new.get(name, _ABSENT), old.get(name, _ABSENT))
    elif new != old:
        yield path, new, old


def _text(value: Any) -> str:
    return "(none)" if value is _ABSENT else emit(value, flow=True)


def _values(data: bytes) -> list[Any] | None:
    try:
        return [document.value for document in load_documents(data, MANIFEST_LIMITS)]
    except YamlError:
        return None
