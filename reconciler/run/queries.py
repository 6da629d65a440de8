"""Runs that only report: the status of every package, and the kinds that snapshots must list."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Exit
from reconciler.base.reasons import Phase, Reason
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.packages import Ecosystem, PackageNeed
from reconciler.dependencies.status import status_entries
from reconciler.inventory.standing import Standing
from reconciler.names.ids import GroupKind, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.plan.build import find_unread
from reconciler.plan.changes import exits_of
from reconciler.plan.status import PackageStatus, current_status, current_statuses, status_value
from reconciler.policy import OnUnavailable
from reconciler.read.contents import fetch_contents
from reconciler.render.needed_kinds import needed_kinds
from reconciler.report.build import find_needs, package_overviews
from reconciler.report.isolation import tell
from reconciler.report.report import Need, PackageOverview
from reconciler.resolve.deliveries import cluster_of
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

    `planned` is the run that it was read in, `standing` the position of the commit that was read. `needs` is
    what waits for people.
    """

    owners: list[dict[str, Any]]
    planned: PlannedRun
    problems: tuple[Problem, ...] = ()
    exits: frozenset[Exit] = frozenset()
    rollouts: tuple[Rollout, ...] = ()
    standing: Standing = Standing()
    needs: tuple[Need, ...] = ()


def read_status(options: RunOptions) -> FleetStatus:
    """Return the phase of every package and the conditions of its owner before any effect."""
    planned = plan_run(options)
    return tell(planned.plan, lambda plan: _fleet_status(replace(planned, plan=plan)))


def _fleet_status(planned: PlannedRun) -> FleetStatus:
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
    deliveries = {
        cluster: (status, overviews[status.variant, status.package])
        for status in statuses
        if status.variant is not None and (cluster := cluster_of(status.variant))
    }
    notes = {change.package: change.subpackages for change in plan.changes}
    for owner in (entry for value in values for entry in status_entries(value)):
        key = ObjectName(owner["namespace"], owner["name"])
        if "cluster" in owner:
            moving = any(owner["cluster"] in move.clusters for move in plan.version_changes)
            alone = PackageStatus(Phase.PENDING), PackageOverview(waiting_for="the next apply")
            locked = alone if moving else (PackageStatus(Phase.PUBLISHED), PackageOverview())
            owners.append(_cluster_row(owner, *deliveries.get(owner["cluster"], locked)))
            continue
        rows = packages.get((owner["kind"], key), [])
        owners += [
            {
                **_row(owner, status, overviews[key, status.package]),
                "subpackages": [
                    note._asdict() for note in (status.package and notes.get(status.package)) or ()
                ],
            }
            for status in rows
        ] or [dict(owner)]
    standing = planned.inputs.inventory.control.standing
    needs = tuple(find_needs(plan, statuses))
    return FleetStatus(owners, planned, plan.problems, exits_of(plan), plan.rollouts, standing, needs)


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


def _cluster_row(
    owner: Mapping[str, Any], delivery: PackageStatus, overview: PackageOverview
) -> dict[str, Any]:
    """Return the row of a package of a cluster: the version of its lock, on main once that is delivered.

    One that is neither stalled nor waits for its activation has the state of the package that delivers it.
    """
    conditions = {condition["type"]: condition["status"] for condition in owner["conditions"]}
    phase, waiting = delivery.phase, overview.waiting_for
    if delivery.repository is not None and waiting:
        waiting = f"{delivery.repository.name}/{delivery.name}: {waiting}"
    locked = owner["status"]
    version = locked.get("version") or locked.get("currentIdentifier", "").rpartition(":")[2]
    versions = (version, "") if phase is Phase.PUBLISHED else ("", version)
    if conditions.get("Ready") == "False":
        phase = Phase.STALLED if conditions.get("Stalled") == "True" else Phase.NOT_READY
        waiting = ""
    value = status_value(replace(delivery, phase=phase, repository=None, name="", head="", pull=0))
    value |= {} if phase is delivery.phase else {"since": None, "reason": "", "message": ""}
    summary = {"set": "", "cluster": owner["cluster"], **dict(zip(("main", "review"), versions, strict=True))}
    return {**owner, "package": value, "summary": {**summary, "waitingFor": waiting}}


class NeededKinds(Struct, frozen=True):
    """The kinds of objects that a fleet reads from snapshots of clusters, sorted.

    `problems` are manifests and `unread` repositories that may need further kinds. `standing` is
    the position of the commit that was read.
    """

    kinds: tuple[GroupKind, ...]
    problems: tuple[Problem, ...] = ()
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)
    standing: Standing = Standing()


def _needed_ecosystems(worlds: Iterable[ClusterInputs]) -> set[Ecosystem]:
    """Return the ecosystems of what is installed, and of what may be where variants need packages."""
    ecosystems: set[Ecosystem] = set()
    for world in worlds:
        installed = {install.need.id.ecosystem for install in world.installs}
        ecosystems |= installed
        for versions in world.catalogue.packages.values() if Ecosystem.KPT in installed else ():
            ecosystems |= {
                need.id.ecosystem
                for candidate in versions
                for requirement in candidate.requires
                for need in requirement.alternatives
                if isinstance(need, PackageNeed)
            }
    return ecosystems


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
        needed_kinds(inputs.inventory, injected, contents, _needed_ecosystems(fleet.clusters.worlds)),
        tuple(sorted(p for p in problems if p.reason not in _UNRELATED_TO_KINDS)),
        find_unread(inputs.inventory),
        inputs.inventory.control.standing,
    )
