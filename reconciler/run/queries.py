"""Runs that only report: the status of every package, and the kinds that snapshots must list."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Struct, field

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.dependencies.status import status_entries
from reconciler.inventory.standing import Standing
from reconciler.names.ids import GroupKind, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.plan.overview import PackageOverview, package_overviews
from reconciler.plan.status import PackageStatus, current_status, current_statuses, status_value
from reconciler.plan.unread import find_unread
from reconciler.policy import OnUnavailable
from reconciler.read.contents import fetch_contents
from reconciler.render.needed_kinds import needed_kinds
from reconciler.report.summary import exits_of
from reconciler.resolve.resolution import Needs
from reconciler.resolve.rollout_model import Rollout
from reconciler.run.inputs import read_inputs
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run, resolve_inputs

_VARIANT = "PackageVariant"
_UNRELATED_TO_KINDS = frozenset({Reason.REPOSITORY_UNAVAILABLE, Reason.NO_MATCHING_TARGETS})
"""Problems that are listed as unread repositories, or that the next snapshot ends."""


class FleetStatus(Struct, frozen=True):
    """The status of every owner, sorted by kind and name, with problems, classes of exit and rollouts.

    `planned` is the run that it was read in, `standing` the position of the commit that was read.
    """

    owners: list[dict[str, Any]]
    planned: PlannedRun
    problems: tuple[Problem, ...] = ()
    exits: frozenset[Exit] = frozenset()
    rollouts: tuple[Rollout, ...] = ()
    standing: Standing = Standing()


def read_status(options: RunOptions) -> FleetStatus:
    """Return the phase of every package and the conditions of its owner before any effect."""
    planned = plan_run(options)
    plan = planned.plan
    statuses = current_statuses(plan)
    overviews = package_overviews(plan, statuses)
    packages: dict[tuple[str, ObjectName], list[PackageStatus]] = {}
    for status in statuses:
        if status.variant is not None:
            packages.setdefault((_VARIANT, status.variant), []).append(status)
    files = current_status(plan)
    values = (orjson.loads(files[path]) for path in sorted(files) if path.startswith("conditions/"))
    owners: list[dict[str, Any]] = []
    for owner in (entry for value in values for entry in status_entries(value)):
        key = ObjectName(owner["namespace"], owner["name"])
        rows = [] if "cluster" in owner else packages.get((owner["kind"], key), [])
        owners += [_row(owner, status, overviews[key, status.package]) for status in rows] or [dict(owner)]
    standing = planned.inputs.inventory.control.standing
    return FleetStatus(owners, planned, plan.problems, exits_of(plan), plan.rollouts, standing)


def _row(owner: Mapping[str, Any], status: PackageStatus, overview: PackageOverview) -> dict[str, Any]:
    """Return the row of one package of an owner."""
    summary = {
        "set": overview.set_name,
        "cluster": overview.cluster,
        "main": overview.main,
        "review": overview.review,
        "waitingFor": overview.waiting_for,
    }
    downstream = [{"name": status.revision}] if status.revision else []
    return {**owner, "package": status_value(status), "downstreamTargets": downstream, "summary": summary}


class NeededKinds(Struct, frozen=True):
    """The kinds of objects that a fleet reads from snapshots of clusters, sorted.

    `problems` are manifests and `unread` repositories that may need further kinds. `standing` is
    the position of the commit that was read.
    """

    kinds: tuple[GroupKind, ...]
    problems: tuple[Problem, ...] = ()
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)
    standing: Standing = Standing()


def find_needed_kinds(options: RunOptions) -> NeededKinds:
    """Return the kinds of objects that this fleet reads from snapshots of clusters."""
    inputs = read_inputs(options)
    fleet = resolve_inputs(inputs)
    injected = [resolved for resolved in fleet.resolution.variants if resolved.variant.spec.injectors]
    trees: dict[str, set[Oid]] = {}
    for resolved in injected:
        trees.setdefault(resolved.pin.package.url, set()).add(resolved.pin.tree)
    needs = Needs({url: frozenset(oids) for url, oids in trees.items()})
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits)
    problems = {*inputs.inventory.problems, *fleet.desired.problems, *fleet.resolution.problems}
    return NeededKinds(
        needed_kinds(inputs.inventory, injected, contents),
        tuple(sorted(p for p in problems if p.reason not in _UNRELATED_TO_KINDS)),
        find_unread(inputs.inventory),
        inputs.inventory.control.standing,
    )
