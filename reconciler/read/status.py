"""What the last run recorded of every package: the phase, since when, and on which branch."""

from datetime import datetime
from typing import Any

import orjson

from reconciler.git.trees import PackageRefusedError
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import RecordedStatus
from reconciler.policy import Limits
from reconciler.read.files import FoundFile, Objects, Walk

DIRECTORY = "conditions/packagevariants"


def read_statuses(objects: Objects, commit: Oid | None, limits: Limits) -> dict[ObjectName, RecordedStatus]:
    """Return the recorded statuses at a commit of the status branch.

    Observations only: a file that cannot be read is as good as none.
    """
    tree = objects.subtree(commit, DIRECTORY) if commit else None
    if tree is None:
        return {}
    walked = Walk((".json",)).below(objects, tree, DIRECTORY)
    files = [file for file in walked if isinstance(file, FoundFile)]
    objects.ensure(file.oid for file in files)
    found = {}
    for file in files:
        try:
            value = orjson.loads(objects.blob(file.oid, limits.manifest_bytes))
        except (PackageRefusedError, orjson.JSONDecodeError):
            continue
        status = _status(value)
        if status is not None:
            found[ObjectName(str(value["namespace"]), str(value["name"]))] = status
    return found


def _status(value: Any) -> RecordedStatus | None:
    if not isinstance(value, dict) or not isinstance(value.get("package"), dict):
        return None
    if not {"namespace", "name"} <= value.keys():
        return None
    package = value["package"]
    return RecordedStatus(
        phase=str(package.get("phase", "")),
        since=_seconds(package.get("since")),
        head=str(package.get("head", "")),
        message=str(package.get("message", "")),
        repository=str(package.get("repository", "")),
    )


def _seconds(text: Any) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError):
        return 0
