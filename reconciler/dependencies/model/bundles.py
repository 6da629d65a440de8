"""Names and labels of the installations of bundles."""

import hashlib
from contextlib import suppress
from typing import Final, Protocol

import orjson

from reconciler.dependencies.model.cluster import SlotKind
from reconciler.dependencies.model.packages import Share
from reconciler.dependencies.model.parameters import UnknownVariableError, render_text

SHARING_GROUP: Final = "sh.porter.SharingGroup"
"""The label with the group that shares an installation."""

_SUFFIX = 6
_INPUTS = "inputs="


class BundleSlot(Protocol):
    """The slot of an installation, in a resolution or in a lock."""

    @property
    def kind(self) -> str:
        """The kind of slot: shared, or for one parent."""

    @property
    def path(self) -> tuple[str, ...]:
        """The group and labels of a shared installation, or the way of aliases to an exclusive one."""


def bundle_name(package: str, slot: BundleSlot) -> str:
    """Return the name of a bundle's installation: `<parent>-<alias>` for one parent's own.

    A shared installation is named after its group and its bundle, so that the name does not depend on the
    parents; a short digest distinguishes labels and inputs.
    """
    if slot.kind == SlotKind.FOR:
        return "-".join(slot.path)
    group, words = sharing_labels(slot)
    inputs = slot.path[-1:] if slot.path and slot.path[-1].startswith(_INPUTS) else ()
    parts = [group, package.rpartition("/")[2]]
    if words or inputs:
        text = orjson.dumps([sorted(words.items()), *inputs])
        parts.append(hashlib.sha256(text).hexdigest()[:_SUFFIX])
    return "-".join(part for part in parts if part)


def sharing_labels(slot: BundleSlot) -> tuple[str, dict[str, str]]:
    """Return the sharing group and the labels that a shared instance is found by."""
    if slot.kind != SlotKind.SHARED:
        return "", {}
    path = slot.path
    group = path[0] if path and "=" not in path[0] else ""
    words = [word.partition("=") for word in path[bool(group) :] if not word.startswith(_INPUTS)]
    return group, {name: value for name, _, value in sorted(words)}


def rendered_labels(share: Share, name: str, namespace: str) -> dict[str, str]:
    """Return the labels of a sharing rule for the installation of the bundle that has it."""
    variables = {"installation.name": name, "installation.namespace": namespace}
    labels = dict(share.labels)
    for label, text in share.labels:
        with suppress(UnknownVariableError):
            labels[label] = str(render_text(text, variables))
    return labels
