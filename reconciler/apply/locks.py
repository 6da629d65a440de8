"""The locks on the state branch, and nothing else of it."""

from collections.abc import Iterable, Mapping

from reconciler.apply.outcome import Result
from reconciler.apply.state import Branch, read_branch, state_ref, write_branch
from reconciler.dependencies.lock.format import is_lock_file
from reconciler.errors import Exit
from reconciler.git.repository import Mirror
from reconciler.inventory import Inventory
from reconciler.upstream_lock import UpstreamLock, lock_bytes, lock_path


def write_locks(
    inventory: Inventory, control: Mirror, files: Mapping[str, bytes], pins: Iterable[UpstreamLock] = ()
) -> Result:
    """Replace the locks of clusters by `files`, by compare-and-swap, and set these pins of upstreams.

    Every other file stays as it is.

    Raises:
        UnavailableError: The state branch cannot be read.
    """
    policy, recorded = inventory.policy, inventory.control
    before = read_branch(control, recorded.state, policy.limits)
    kept = {path: data for path, data in before.items() if not is_lock_file(path)}
    chosen = {lock_path(lock): lock_bytes(lock) for lock in pins}
    there = kept | dict(files) | chosen
    branch = Branch(state_ref(policy.instance), recorded.state, there, "Record locks\n")
    return write_branch(control, branch, policy.commits, recorded.commit.time)


def is_overtaken(inventory: Inventory, control: Mirror, result: Result) -> bool:
    """Tell whether the locks were not written because another run moved the state branch first."""
    there = control.refs().get(state_ref(inventory.policy.instance))
    return Exit.UNAVAILABLE in result.exits and there != inventory.control.state
