"""Decide which repositories a shard reads: its own, and those that they need (D16)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from reconciler.expand import Desired, expand
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Inventory, RepositoryRole, RepositoryView
from reconciler.inventory.shard import Shard
from reconciler.names.ids import ObjectName
from reconciler.plan.deletion_diff import retained_variants
from reconciler.read.dependencies import read_dependencies
from reconciler.read.repositories.trees import PackageTrees
from reconciler.read.shard_needs import (
    assign_roles,
    every_url,
    static_needs,
    variant_needs,
    why_dependencies,
    why_whole_fleet,
)
from reconciler.resolve.fleet import find_dependent_clusters

Views = Mapping[ObjectName, RepositoryView]


@dataclass(slots=True)
class ShardReader:
    """Decides, round by round, which repositories a shard reads.

    `inventory` has no repositories yet. `read_trees` returns the packages at commits without a revision.
    `why_whole` is the reason to read the whole fleet, "" if there is none.
    """

    inventory: Inventory
    shard: Shard
    mirrors: Mirrors
    read_trees: Callable[[Views], PackageTrees]
    why_whole: str = field(default="", init=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the whole fleet is read, for the plan."""
        shard = f"{self.shard.part}/{self.shard.parts}"
        return (f"Shard {shard} reads every repository: {self.why_whole}",) if self.why_whole else ()

    def with_roles(self, views: Views) -> Views:
        """Return the views, each with its role in this run."""
        return assign_roles(replace(self.inventory, repositories=views), self.shard).repositories

    def needed_urls(self, views: Views) -> frozenset[str]:
        """Return the URLs of the repositories that the shard needs, given the views read so far."""
        inventory = assign_roles(replace(self.inventory, repositories=views), self.shard)
        if self.why_whole or not inventory.is_partial:
            return every_url(inventory)
        needed = static_needs(inventory, self.shard)
        if _is_read(inventory, needed):
            # Every set expands as it does where the whole fleet is read, so this is certain.
            desired = expand(inventory)
            self.why_whole = why_whole_fleet(inventory, desired, self.shard)
            needed |= variant_needs(inventory, desired)
            if not self.why_whole and _is_read(inventory, needed):
                self.why_whole = self._why_dependencies(inventory, desired)
        return every_url(inventory) if self.why_whole else needed

    def _why_dependencies(self, inventory: Inventory, desired: Desired) -> str:
        trees = self.read_trees(inventory.repositories)
        inventory = replace(inventory, trees=trees.trees, times=trees.times)
        inputs = read_dependencies(inventory, self.mirrors)
        retained = retained_variants(desired, inventory)
        dependent = find_dependent_clusters(inventory, desired, inputs, retained)
        return why_dependencies(inventory, self.shard, inputs.locks, dependent)


def _is_read(inventory: Inventory, urls: frozenset[str]) -> bool:
    views = inventory.repositories.values()
    return not any(view.role is RepositoryRole.SKIPPED and view.url in urls for view in views)
