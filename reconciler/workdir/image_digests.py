"""Pin digests of function images: on the state branch, or in a working copy to be reviewed."""

from collections.abc import Mapping
from pathlib import Path

from reconciler.apply.outcome import Result
from reconciler.apply.state import MOST_TRIES, Branch, read_branch, state_ref, write_branch
from reconciler.base.errors import Exit, RefusedError
from reconciler.base.values import read_record
from reconciler.git.repository import Mirror
from reconciler.policy import Policy
from reconciler.records.upstream_lock import IMAGES_PATH, ImagesLock, lock_bytes


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
