"""Read locks of version 1, which name an instance by its text: `xpkg:x.io/aws@cluster`."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from reconciler.dependencies.lock.format import LOCK_VERSION, PackageLock, resolution_path
from reconciler.dependencies.model.instances import Instance, Resolution, Slot, SlotKind
from reconciler.dependencies.model.packages import Ecosystem

_USER = "user"


class _Version(msgspec.Struct, rename="camel"):
    lock_version: int = LOCK_VERSION


def is_former(lock: bytes) -> bool:
    """Tell whether a lock has the former version. Total."""
    try:
        return msgspec.json.decode(lock, type=_Version).lock_version == 1
    except msgspec.MsgspecError:
        return False


def read_former(lock: bytes, files: Mapping[str, bytes]) -> tuple[PackageLock, Resolution]:
    """Return a lock of version 1 as one of today, and its resolution, which is one of the files.

    Raises:
        ValueError: They are no such lock.
    """
    try:
        head = orjson.loads(lock)
        body = orjson.loads(files.get(resolution_path(head["resolution"]), b""))
        names = _Names(package["instance"] for package in body["packages"])
        for package in body["packages"]:
            owner, parents = package["owner"], package["requestedBy"]
            package["byUser"] = owner == _USER
            package["owner"] = names.instance(owner if owner != _USER else "")
            package["requestedBy"] = [names.instance(parent) for parent in parents if parent != _USER]
            del package["lastAttemptedVersion"]
        for table in (body["customResourceDefinitions"], body["compositions"]):
            for entry in table.values():
                entry["package"] = names.instance(entry["package"])
        for revision in head["revisions"]:
            revision["needs"] = [names.instance(need) for need in revision["needs"]]
        converted = msgspec.convert(body, Resolution)
        head |= {"lockVersion": LOCK_VERSION, "resolution": converted.digest}
        return msgspec.convert(head, PackageLock), converted
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"It is no lock of version 1: {error}") from error


class _Names:
    """The instances of a resolution by their texts."""

    def __init__(self, instances: Iterable[Mapping[str, Any]]) -> None:
        self._known = {str(msgspec.convert(value, Instance)): value for value in instances}

    def instance(self, text: str) -> Mapping[str, Any] | None:
        """Return the instance of a text, None for an empty one."""
        if not text:
            return None
        if text not in self._known:
            # What is gone from the lock still owns kinds: of Crossplane, which has one slot.
            ecosystem, _, rest = text.partition(":")
            name, _, slot = rest.rpartition("@")
            kind, _, where = slot.partition("/")
            instance = Instance(Ecosystem(ecosystem), name, Slot(SlotKind(kind), where))
            self._known[text] = msgspec.to_builtins(instance)
        return self._known[text]
