"""Publishing: what main holds of our packages and no tag names yet becomes a revision (D4)."""

from collections.abc import Iterator

from reconciler.inventory import Inventory
from reconciler.plan.changes import MoveRef
from reconciler.plan.world import Target
from reconciler.resolve.ownership import find_owner


def publish_tags(target: Target, inventory: Inventory) -> Iterator[MoveRef]:
    """Yield the tags `F/vN` of the untagged states of our package on main, in first-parent order.

    A person's hotfix is published as it is; states from before the package was ours are not.
    """
    if not inventory.policy.publish_tags:
        return
    package = target.package
    latest = package.latest
    number = latest.revision if latest else 0
    tree = latest.tree if latest else None
    for state in package.untagged:
        owner = find_owner(state.header, target.key, inventory)
        if owner is None or state.tree == tree:
            continue
        number += 1
        while f"{package.path}/v{number}" in target.view.tags:
            number += 1
        tree = state.tree
        yield MoveRef(f"refs/tags/{package.path}/v{number}", None, state.commit.oid)
