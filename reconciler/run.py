"""The run on one page: read everything once, compute everything purely, write everything once."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from reconciler.apply.dashboard import Board
from reconciler.apply.gate import Checkout, check_applicable, check_merged
from reconciler.apply.plan import apply_changes
from reconciler.apply.target import Target
from reconciler.config import variable_name
from reconciler.dependencies.catalog.published import DependencyInputs
from reconciler.dependencies.status import status_entries, status_files
from reconciler.dependencies.update.changes import version_changes
from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS, ResolveOptions
from reconciler.errors import ConfigurationError, Exit, Problem
from reconciler.expand import Desired, expand
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirrors
from reconciler.ids import GroupKind, Oid
from reconciler.inventory import Inventory
from reconciler.plan.authors import repository_commits
from reconciler.plan.changes import Effect, Outcome, Plan
from reconciler.plan.checksum import with_checksum
from reconciler.plan.decide import plan_changes
from reconciler.plan.deletion_diff import retained_variants
from reconciler.plan.moves import with_moves
from reconciler.plan.observed import current_status
from reconciler.plan.reviewed import with_lock
from reconciler.plan.shard import WHOLE, Shard, keep_shard
from reconciler.plan.unread import find_unread
from reconciler.policy import OnUnavailable
from reconciler.read.contents import fetch_contents
from reconciler.read.control import OpenControl, find_default_tip, open_commit, open_control
from reconciler.read.credentials import control_credential
from reconciler.read.dependencies import read_dependencies
from reconciler.read.governance import (
    ReadOptions,
    policy_governor,
    read_merged_policy,
    read_options,
    registered_in,
    repository_check,
)
from reconciler.read.inventory import read_inventory
from reconciler.reasons import Reason
from reconciler.render.delivery import render_deliveries
from reconciler.render.merging import Contents
from reconciler.render.needed_kinds import needed_kinds
from reconciler.render.package import render_packages
from reconciler.render.rendered import Rendered
from reconciler.report.summary import Names, exits_of
from reconciler.resolve import Closed, Resolution, close
from reconciler.resolve.deliveries import Deliveries, find_deliveries, join_deliveries
from reconciler.resolve.resolution import Needs
from reconciler.runtime.pipelines import open_pipelines

Narrate = Callable[[Effect], None]
_NOT_OF_KINDS = frozenset({Reason.REPOSITORY_UNAVAILABLE, Reason.NO_MATCHING_TARGETS})
"""Problems that are told as repositories, or that a snapshot itself ends."""
_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says about a run; everything else stands in the control repository.

    `control` is a working copy, a bare repository or a URL; `allow_deletes` a person's consent;
    `shard` the part of the fleet that is this run's.
    """

    control: str = "."
    cache_dir: Path | None = None
    allow_deletes: int = 0
    shard: Shard = WHOLE


@dataclass(frozen=True)
class World:
    """Everything that was read, and the repositories that it was read from."""

    inventory: Inventory
    mirrors: Mirrors
    forges: Forges = field(default_factory=Forges)

    @cached_property
    def dependencies(self) -> DependencyInputs:
        """Published packages and locks, read when first needed: listing pull requests needs none.

        Raises:
            UnavailableError: The control repository cannot be read.
        """
        return read_dependencies(self.inventory, self.mirrors)

    @property
    def names(self) -> Names:
        """How people call the packages of this world."""
        views = self.inventory.repositories
        return Names(self.inventory.policy.instance, {key: view.directory for key, view in views.items()})


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the stages that led to it."""

    world: World
    desired: Desired
    resolution: Resolution
    plan: Plan

    @property
    def names(self) -> Names:
        """How people call the packages of this plan."""
        return self.world.names

    @property
    def steps(self) -> int:
        """How many effects applying it has, roughly: for a progress bar."""
        changes = (change for change in self.plan.everything if change.pending)
        return 2 + sum(len(c.writes) + bool(c.pull) + len(c.close) for c in changes)


def read_world(settings: Settings, forges: Forges | None = None, *, writes: bool = False) -> World:
    """Read everything that a run may know. Writes nothing.

    Args:
        settings: What to read.
        forges: Where pull requests are read.
        writes: The caller is going to write: an unmerged commit is refused before anything else is read.

    Raises:
        RefusedError: The commit is not merged, and `writes`.
    """
    forges = forges or Forges(shard=settings.shard, writes=writes)
    mirrors = open_mirrors(settings)
    opened = open_control(settings.control, mirrors)
    if writes:
        _check_merged(opened)
    reading = _reading(settings, opened, mirrors)
    inventory = read_inventory(settings.control, mirrors, os.environ, reading, forges)
    return World(_with_consent(inventory, settings.allow_deletes), mirrors, forges)


def _reading(settings: Settings, opened: OpenControl, mirrors: Mirrors) -> ReadOptions:
    """Return how the commit is read; one that is not merged also where the default branch registers."""
    reading = read_options(opened, os.environ)
    tip = find_default_tip(opened.mirror) if reading.is_proposed else None
    if tip is None:
        return reading
    merged = read_merged_policy(opened.mirror, os.environ)
    shallow = ReadOptions(open_commit(opened.mirror, tip), policy_governor(merged), deep=False)
    try:
        registered = registered_in(read_inventory(settings.control, mirrors, os.environ, shallow))
    except ConfigurationError:
        return reading
    return replace(reading, check=repository_check(merged, opened.mirror, registered))


def _check_merged(opened: OpenControl) -> None:
    mirror = opened.mirror
    checkout = Checkout(mirror.remote, opened.commit.oid, opened.branch, published=opened.published)
    check_merged(checkout, mirror.head_branch)


def make_plan(settings: Settings, forges: Forges | None = None, *, to_apply: bool = False) -> Planned:
    """Compute what every package should be, and what it takes. Writes nothing.

    Raises:
        RefusedError: The commit is not merged, and the plan is to be applied.
    """
    return plan_world(read_world(settings, forges, writes=to_apply), settings.shard)


def plan_world(world: World, shard: Shard = WHOLE) -> Planned:
    """Compute the plan of a world that was read. Reads package contents, writes nothing."""
    inventory = world.inventory
    closed = close_world(world)
    deliveries = find_deliveries(inventory, closed)
    whole = join_deliveries(closed, deliveries, inventory)
    contents = fetch_contents(whole.resolution.needs, world.mirrors, inventory.policy.limits)
    rendered = _render(world, closed, deliveries, contents)
    plan = plan_changes(inventory, whole.desired, whole.resolution, rendered)
    plan = replace(plan, notes=(*inventory.notes, *deliveries.notes, *plan.notes))
    plan = with_moves(plan, version_changes(closed.decision), deliveries.items, contents)
    plan = _with_locks(plan, closed, inventory)
    plan = with_lock(plan, inventory, whole.desired, whole.resolution, closed.wanted)
    # Last, over the complete plan: nothing may change a plan that has its checksum.
    plan = with_checksum(keep_shard(plan, shard), inventory, closed.decision)
    return Planned(world, whole.desired, whole.resolution, plan)


def _render(world: World, closed: Closed, deliveries: Deliveries, contents: Contents) -> Rendered:
    """Return every package as it should be: those of variants, and what is generated for clusters."""
    inventory = world.inventory
    cache = world.mirrors.cache_dir / "functions"
    definitions = [each.body for each in inventory.snapshot.in_any_cluster(*_CRD)]
    with open_pipelines(inventory.policy.functions, cache, definitions) as run:
        rendered = render_packages(closed.resolution, contents, inventory, run)
    delivered = render_deliveries(deliveries.items, contents, inventory)
    return replace(rendered, variants={**rendered.variants, **delivered})


def apply_plan(planned: Planned, *, checksum: str = "", narrate: Narrate = lambda _: None) -> Outcome:
    """Do what was planned, each effect once, in the order that makes every interruption harmless.

    Raises:
        RefusedError: Doing it would be unsafe, or is not what was reviewed; nothing was written.
    """
    world, inventory = planned.world, planned.world.inventory
    policy, views = inventory.policy, inventory.repositories.values()
    control = world.mirrors.open(inventory.control.remote)
    check_applicable(
        planned.plan, checksum=checksum, control=inventory.control, default_branch=control.head_branch
    )
    mirrors = {view.url: world.mirrors.open(view.remote) for view in views if view.is_available}
    commits = {url: repository_commits(inventory.views_of(url), policy.commits) for url in mirrors}
    if planned.plan.lock is not None:
        mirrors[inventory.control.url] = control
    targets = {
        url: Target(mirror, world.forges.of(mirror), commits.get(url, policy.commits), planned.names)
        for url, mirror in mirrors.items()
    }
    forge = world.forges.of(control)
    board = Board(forge, planned.names, world.forges.shard) if policy.dashboard else None
    return apply_changes(planned.plan, inventory, targets, control, narrate, board=board)


def close_world(world: World, wishes: ResolveOptions = DEFAULT_OPTIONS, *, trace: bool = False) -> Closed:
    """Return every variant, also those that others need, with its pin; and the locks. Writes nothing.

    Args:
        world: What was read.
        wishes: What a person asks of this run.
        trace: Also say for every field of every variant where it came from.
    """
    # Reading ends here: everything below is computed.
    inventory, desired = world.inventory, expand(world.inventory, trace=trace)
    retained = retained_variants(desired, inventory)
    return close(inventory, desired, world.dependencies, retained, wishes=wishes)


def _with_locks(plan: Plan, closed: Closed, inventory: Inventory) -> Plan:
    """Return the plan that also records what was decided about dependencies, unless that is reviewed."""
    decision, shared = closed.decision, inventory.policy.delivery.shared_namespace
    recorded = {} if inventory.reviewed is not None else decision.files
    told = status_files(closed.scopes.worlds, decision, shared_namespace=shared)
    return replace(
        plan,
        problems=tuple(sorted({*plan.problems, *decision.problems})),
        records={**plan.records, **recorded},
        status={**plan.status, **told},
        notes=(*plan.notes, *(f"{warning}" for warning in decision.warnings)),
    )


@dataclass(frozen=True, slots=True)
class Status:
    """What every owner came to, sorted by kind and name; what is wrong; and the classes of exit."""

    owners: list[dict[str, Any]]
    problems: tuple[Problem, ...] = ()
    exits: frozenset[Exit] = frozenset()


def read_status(settings: Settings) -> Status:
    """Return where every package stands and the conditions of its owner, as the world is now."""
    plan = make_plan(settings).plan
    files = current_status(plan)
    values = (orjson.loads(files[path]) for path in sorted(files) if path.startswith("conditions/"))
    owners = [dict(owner) for value in values for owner in status_entries(value)]
    return Status(owners, plan.problems, exits_of(plan))


@dataclass(frozen=True, slots=True)
class NeededKinds:
    """The kinds whose objects a fleet reads from snapshots of clusters, sorted, as far as it was read.

    `problems` are manifests that may need others, `unread` the repositories whose packages may.
    """

    kinds: tuple[GroupKind, ...]
    problems: tuple[Problem, ...] = ()
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)


def find_needed_kinds(settings: Settings) -> NeededKinds:
    """Return the kinds whose objects this fleet reads from snapshots of clusters."""
    world = read_world(settings)
    closed = close_world(world)
    variants = closed.resolution.variants
    injected = [one for one in variants if one.variant.spec.injectors]
    trees: dict[str, set[Oid]] = {}
    for one in injected:
        trees.setdefault(one.pin.package.url, set()).add(one.pin.tree)
    needs = Needs({url: frozenset(found) for url, found in trees.items()})
    contents = fetch_contents(needs, world.mirrors, world.inventory.policy.limits)
    found = {*world.inventory.problems, *closed.desired.problems, *closed.resolution.problems}
    return NeededKinds(
        needed_kinds(world.inventory, injected, contents),
        tuple(sorted(p for p in found if p.reason not in _NOT_OF_KINDS)),
        find_unread(world.inventory),
    )


def open_mirrors(settings: Settings) -> Mirrors:
    """Return where repositories are opened.

    The control repository is read before its configuration is known: its token, and how long it may take
    to answer, come from the environment.
    """
    mirrors = Mirrors(settings.cache_dir or default_cache(), control_credential(os.environ))
    seconds = os.environ.get(variable_name(("limits", "readSeconds")), "")
    if re.fullmatch(r"[1-9][0-9]{0,5}", seconds):
        mirrors.limit_reads(float(seconds))
    return mirrors


def default_cache() -> Path:
    """Return where mirrors are kept: the user's cache directory, as XDG says."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "reconciler"


def _with_consent(inventory: Inventory, allowed: int) -> Inventory:
    if not allowed:
        return inventory
    guard = replace(inventory.policy.deletions, allowed=allowed)
    return replace(inventory, policy=replace(inventory.policy, deletions=guard))
