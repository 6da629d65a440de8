"""Names of generated objects: made from the instance alone, so that no upgrade renames them."""

import hashlib

import orjson

from reconciler.dependencies.lockfile import LockedInstance
from reconciler.dependencies.world import SlotKind

_SUFFIX = 6
_INPUTS = "inputs="


def bundle_name(instance: LockedInstance) -> str:
    """Return the name of a bundle's installation: `<parent>-<alias>` for one parent's own.

    A shared one is called by its group and its bundle, so that it keeps its name whoever comes
    and goes; labels and inputs that tell two of them apart are told by a few digits of their digest.
    """
    slot = instance.slot
    if slot.kind == SlotKind.FOR:
        return "-".join(slot.path)
    group, words = sharing(instance)
    inputs = slot.path[-1:] if slot.path and slot.path[-1].startswith(_INPUTS) else ()
    parts = [group, instance.name.rpartition("/")[2]]
    if words or inputs:
        text = orjson.dumps([sorted(words.items()), *inputs])
        parts.append(hashlib.sha256(text).hexdigest()[:_SUFFIX])
    return "-".join(part for part in parts if part)


def sharing(instance: LockedInstance) -> tuple[str, dict[str, str]]:
    """Return the sharing group and the labels that a shared instance is found by."""
    if instance.slot.kind != SlotKind.SHARED:
        return "", {}
    path = instance.slot.path
    group = path[0] if path and "=" not in path[0] else ""
    words = [word.partition("=") for word in path[bool(group) :] if not word.startswith(_INPUTS)]
    return group, {name: value for name, _, value in sorted(words)}
