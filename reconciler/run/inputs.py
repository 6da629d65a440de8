"""The reading part of a run: its options, and everything that the core may know."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.outcome import Checkout, check_checkout
from reconciler.base.defects import DefectError
from reconciler.base.errors import ConfigurationError
from reconciler.base.progress import open_task
from reconciler.dependencies.catalog.index import DependencyInputs
from reconciler.expand import Desired, expand
from reconciler.expand.generated import assume_upstreams
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Inventory, Unit
from reconciler.inventory.shard import Shard
from reconciler.inventory.standing import Position
from reconciler.read.control import (
    ControlHistory,
    OpenControl,
    find_default_tip,
    open_commit,
    open_control,
    read_standing,
)
from reconciler.read.dependencies import read_dependencies
from reconciler.read.governance import (
    ReadOptions,
    policy_governor,
    read_merged_policy,
    read_options,
    read_policy,
    registered_in,
    repository_check,
)
from reconciler.read.inventory import Reading, read_control, read_inventory
from reconciler.read.state import read_applied, state_ref
from reconciler.report.report import Names
from reconciler.resolve.ownership import downstream_packages
from reconciler.run.options import RunOptions, open_mirrors
from reconciler.run.shards import named_urls, planned_clusters, wanted

if TYPE_CHECKING:
    from reconciler.api.porch import PackageVariantSpec
    from reconciler.names.ids import ObjectName, PackageKey


class RunInputs(Struct, frozen=True, dict=True):
    """Everything that was read, and the repositories that it was read from.

    `expanded` are the variants, where they had to be known to read the rest.
    """

    inventory: Inventory
    mirrors: Mirrors
    forges: Forges = field(default_factory=Forges)
    expanded: Desired | None = None

    @cached_property
    def dependencies(self) -> DependencyInputs:
        """Published packages and locks, read when first needed: listing pull requests needs none.

        Raises:
            UnavailableError: The control repository cannot be read.
        """
        if self.inventory.is_partial:
            return DependencyInputs()  # a shard reads the whole fleet where its clusters need packages
        return read_dependencies(self.inventory, self.mirrors)

    def without(self, units: Mapping[Unit, DefectError]) -> "RunInputs":
        """Return what was read without units that a bug of ours breaks the work on."""
        return replace(self, inventory=self.inventory.without(units), expanded=None) if units else self

    def expand(self) -> Desired:
        """Return the variants that should exist."""
        return self.expanded or expand(self.inventory)

    @property
    def has_manifests(self) -> bool:
        """Whether any manifest was read, valid or not."""
        read = self.inventory
        return bool(read.variants or read.sets or read.stalled or read.repositories or read.documents)

    @property
    def names(self) -> Names:
        """The names of packages in reports."""
        views = self.inventory.views
        policy, directories = self.inventory.policy, {key: view.directory for key, view in views.items()}
        return Names(policy.instance, directories, policy.pull_requests.report_url, str(self.forges.shard))


def read_inputs(
    options: RunOptions, forges: Forges | None = None, *, writes: bool = False, lists_ended: bool = False
) -> RunInputs:
    """Read everything that a run may know. Writes nothing.

    If the caller `writes`, an unmerged or outdated commit is refused before anything else is read.
    `lists_ended` lists all pull requests with their texts, also those that ended long ago.

    Raises:
        RefusedError: The commit is not merged or not the newest, and `writes`.
    """
    mirrors = open_mirrors(options)
    forges = forges or Forges(shard=options.shard, writes=writes, lists_ended=lists_ended)
    with open_task("reading"):
        opened = open_control(options.control, mirrors)
        if writes:
            check_opened(opened)
        reading = _reading(options, opened, mirrors)
        control = read_control(options.control, mirrors, os.environ, reading, forges)
        inventory, expanded = _read_repositories(control, options.shard)
        if not writes:
            inventory = with_former_variants(options.control, inventory, opened, mirrors, reading)
    return RunInputs(inventory, mirrors, forges, expanded)


def _read_repositories(control: Reading, shard: Shard) -> tuple[Inventory, Desired | None]:
    """Read the repositories that are named, expand, then read those that variants, records and locks name.

    The whole fleet is read at once. Returns the variants too, unless something that was read later, also
    from a forge, may change them.
    """
    if shard.parts == 1:
        return control.read().complete(), None
    clusters = planned_clusters(control.inventory, shard)
    read = control.read(named_urls(control.inventory, clusters), planned=clusters)
    if not read.skipped:
        return read.complete(), None
    inventory, desired = read.with_trees(), expand(read.inventory)
    urls, why = wanted(desired, inventory, read_dependencies(inventory, control.mirrors), shard)
    notes = [f"Shard {shard} reads every repository: {why}"] if why else ()
    inventory = read.read(urls, planned=clusters).complete(*notes)
    before, after = (frozenset(map(id, i.repositories.values())) for i in (read.inventory, inventory))
    return inventory, desired if before == after else None


def _reading(options: RunOptions, opened: OpenControl, mirrors: Mirrors) -> ReadOptions:
    """Return the rules to read the commit by: an unmerged one may use what the default branch registers."""
    reading = read_options(opened, os.environ)
    tip = find_default_tip(opened.mirror) if reading.is_proposed else None
    if tip is None:
        return reading
    merged = read_merged_policy(opened.mirror, os.environ)
    shallow = ReadOptions(open_commit(opened.mirror, tip), policy_governor(merged), deep=False)
    try:
        registered = registered_in(read_inventory(options.control, mirrors, os.environ, shallow))
    except ConfigurationError:
        return reading
    return replace(reading, check=repository_check(merged, opened.mirror, registered))


def with_former_variants(
    control: str, inventory: Inventory, opened: OpenControl, mirrors: Mirrors, reading: ReadOptions
) -> Inventory:
    """Return the inventory of an unmerged commit, with what was desired where it left the default branch.

    It may have left before the commit that was applied last: what that brought, it does not remove.
    """
    standing = inventory.control.standing
    if standing.position is not Position.UNMERGED or standing.contains_applied:
        return inventory
    history = ControlHistory(opened)
    bases = (history.merge_base(oid, opened.commit.oid) for oid in (standing.applied, standing.newest) if oid)
    base = next(filter(None, bases), None)
    before: dict[tuple[ObjectName, PackageKey], PackageVariantSpec] = {}
    if base is not None:
        shallow = replace(reading, control=open_commit(opened.mirror, base), deep=False)
        with suppress(ConfigurationError):  # nothing is known to have been desired
            there = assume_upstreams(read_inventory(control, mirrors, os.environ, shallow))
            downstreams = downstream_packages(expand(there).variants, there)
            before = {
                (variant.key, package): variant.spec for package, of in downstreams.items() for variant in of
            }
    return replace(inventory, control=replace(inventory.control, before=before))


def check_opened(opened: OpenControl) -> None:
    """Refuse to write for everybody from a commit that is not merged, or not the newest.

    Raises:
        RefusedError: The commit is such a one.
    """
    mirror, is_governed = opened.mirror, find_default_tip(opened.mirror) is not None
    policy = read_merged_policy(mirror, os.environ) if is_governed else read_policy(opened, os.environ)
    state = mirror.refs().get(state_ref(policy.instance)) if policy else None
    standing = read_standing(opened, read_applied(mirror, state, policy.limits) if policy else None)
    checkout = Checkout(mirror.remote, opened.commit.oid, opened.branch, opened.published, standing)
    check_checkout(checkout, mirror.head_branch)
