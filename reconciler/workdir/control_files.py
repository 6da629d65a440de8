"""Files of a working copy of a control repository: the index, and digests of images."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reconciler.apply.outcome import Result
from reconciler.apply.state import MOST_TRIES, Branch, read_branch, write_branch
from reconciler.base.errors import Exit, RefusedError
from reconciler.base.values import read_record
from reconciler.dependencies.catalog.index import INDEX_API_VERSION, INDEX_KIND, LayerDefaults
from reconciler.git.repository import Mirror
from reconciler.krm.merge import TextFormat
from reconciler.krm.yaml import emit
from reconciler.policy import Policy
from reconciler.read.state import state_ref
from reconciler.records.state import IMAGES_PATH, ImagesLock, lock_bytes


def append_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document at the end of a file, which is made if it is not there; nothing else changes."""
    form, before = TextFormat.split(path.read_bytes().decode() if path.exists() else "")
    if before and not before.endswith("\n"):
        before += "\n"
    separator = "---\n" if before.strip() and not before.rstrip().endswith("---") else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(form.joined(f"{before}{separator}{emit(document)}\n").encode())


# The index


def add_version(root: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """Write the folder of a version.

    Raises:
        RefusedError: It is there already: what was published is not changed.
    """
    target = root / folder
    if target.exists():
        is_same = {p.name: p.read_bytes() for p in target.iterdir() if p.is_file()} == files
        message = f"{folder} exists already{'' if is_same else ', with other content'}"
        raise RefusedError(message, hint="Remove that version first, or add another one.")
    target.mkdir(parents=True)
    for name, data in files.items():
        (target / name).write_bytes(data)


def remove_folders(root: Path, folders: Iterable[str]) -> None:
    """Remove folders of versions, and the directories of the index that are empty then."""
    for folder in sorted(folders):
        shutil.rmtree(root / folder)
        above = (root / folder).parent
        while above != root and not any(above.iterdir()):
            above.rmdir()
            above = above.parent


def write_layer(root: Path, path: str, layer: LayerDefaults) -> None:
    """Write the defaults of one layer, sorted by interface; an empty layer has no file."""
    file = root / path
    if not layer.defaults and not layer.environment:
        file.unlink(missing_ok=True)
        return
    value: dict[str, Any] = {"apiVersion": INDEX_API_VERSION, "kind": INDEX_KIND}
    if layer.environment:
        value["environment"] = layer.environment
    value["defaults"] = {interface: str(id_) for interface, id_ in sorted(layer.defaults.items())}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{emit(value)}\n", encoding="utf-8")


def pin_on_branch(control: Mirror, policy: Policy, pins: Mapping[str, str], time: int) -> Result:
    """Add digests to the lock on the state branch, by compare-and-swap; everything else stays as it is.

    A slower writer reads the branch again, so that no pin is lost. `time` is that of the commit, in seconds.

    Raises:
        RefusedError: The lock that is there cannot be read.
        UnavailableError: The state branch cannot be read.
    """
    ref, result = state_ref(policy.instance), Result()
    for _ in range(MOST_TRIES):
        tip = control.refs().get(ref)
        there = read_branch(control, tip, policy.limits)
        files = there | {IMAGES_PATH: _with_pins(there.get(IMAGES_PATH), pins)}
        branch = Branch(ref, tip, files, "Pin function images\n")
        result = write_branch(control, branch, policy.commits, time)
        if Exit.UNAVAILABLE not in result.exits:
            break
        control.fetch()
    return result


def pin_in_copy(root: Path, pins: Mapping[str, str]) -> None:
    """Add digests to the lock in a working copy; nothing is committed.

    Raises:
        RefusedError: The lock that is there cannot be read.
    """
    file = root / IMAGES_PATH
    data = _with_pins(file.read_bytes() if file.is_file() else None, pins)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _with_pins(data: bytes | None, pins: Mapping[str, str]) -> bytes:
    try:
        lock = ImagesLock() if data is None else read_record(data, ImagesLock)
    except ValueError as error:
        raise RefusedError(
            f"The lock of function images cannot be read: {error}",
            hint=f"Correct {IMAGES_PATH}, or remove it and pin every image again.",
        ) from error
    return lock_bytes(lock.pinned(pins))
