"""The closure: what variants need becomes variants too, until nothing is missing in any cluster (D12)."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs, collect_cluster_inputs, fleet_clusters
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.catalog.published import DependencyInputs, repository_names
from reconciler.dependencies.emit import is_generated_by
from reconciler.dependencies.lock.format import LockedPackage
from reconciler.dependencies.lock.needed import VARIANT_KIND
from reconciler.dependencies.lock.read import read_locks
from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS, ResolveOptions
from reconciler.dependencies.update.fleet import ClusterUpdate, LockUpdate, effective_locks, update_locks
from reconciler.errors import Problem
from reconciler.expand.findings import VALID
from reconciler.expand.variants import Desired, variant_key
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import Inventory
from reconciler.reasons import Reason
from reconciler.resolve.generated import Generated, generate
from reconciler.resolve.leaving import Leaving, find_leaving
from reconciler.resolve.resolution import Resolution
from reconciler.resolve.roots import Root, RootKey, Roots, find_roots
from reconciler.resolve.variants import resolve

_TOLD = frozenset({Reason.DEPENDENCY_CONFLICT, Reason.DEPENDENCY_CYCLE})
_UNDECIDED = "Not all that its cluster uses is known, or could be decided in the steps that are allowed"


@dataclass(frozen=True, slots=True)
class Closed:
    """The fixed point: every variant, also those that others need, with its pin; what is locked, for whom.

    `wanted` is what should be locked: the same, unless that must be reviewed first.
    """

    desired: Desired
    resolution: Resolution
    decision: LockUpdate = field(default_factory=LockUpdate)
    wanted: LockUpdate = field(default_factory=LockUpdate)
    scopes: FleetInputs = field(default_factory=FleetInputs)


def close(
    inventory: Inventory,
    desired: Desired,
    known: DependencyInputs,
    retained: Container[ObjectName] = frozenset(),
    *,
    wishes: ResolveOptions = DEFAULT_OPTIONS,
) -> Closed:
    """Resolve every variant, and everything that their packages need, to a fixed point. Pure; order-free.

    A variant that people wrote, or a set made, wins over one that would be generated in its place.
    A variant whose needs cannot be met stalls, and what stands there stays. A generated variant goes
    only where it is certain that nobody needs it (law 4).

    Args:
        inventory: The world.
        desired: What the manifests ask for.
        known: What is published, and what is locked.
        retained: Undesired variants that stay: their packages need what they needed.
        wishes: What a person asks of this run.
    """
    resolution = resolve(inventory, desired)
    roots = find_roots(inventory, desired, resolution, known.published, retained)
    scopes = _scopes(inventory, known, roots)
    if not (
        scopes.worlds or scopes.problems or scopes.warnings or known.locks or _generated_before(inventory)
    ):
        return Closed(desired, resolution)
    decision = wanted = _decide(inventory, known, scopes, wishes)
    if inventory.reviewed is not None:
        decision = effective_locks(wanted, strict=inventory.policy.lock.strict)
    found = generate(inventory, desired, decision, roots)
    unmet = {**_unmet(decision, roots), **found.unmet}
    told = (problem for problem in decision.problems if not (unmet and _is_told_better(problem)))
    decision = replace(decision, problems=tuple(sorted({*told, *(p for ps in unmet.values() for p in ps)})))
    closed = Closed(desired, resolution, decision, wanted, scopes)
    desired = _extended(desired, found, _leaving(inventory, known, closed, found))
    if found.variants:
        resolution = resolve(inventory, desired)
    return replace(closed, desired=desired, resolution=_without(resolution, unmet))


def _scopes(inventory: Inventory, known: DependencyInputs, roots: Roots) -> FleetInputs:
    asked = {cluster: roots.asked(cluster) for cluster in {*roots.by_cluster, *roots.incomplete}}
    index, fleet = read_index(inventory.index), fleet_clusters(inventory)
    instance = inventory.policy.instance
    written = (document for document in inventory.documents if not is_generated_by(document.value, instance))
    return collect_cluster_inputs(written, known.published.candidates, index, fleet, asked)


def _decide(
    inventory: Inventory, known: DependencyInputs, scopes: FleetInputs, wishes: ResolveOptions
) -> LockUpdate:
    views = inventory.repositories.values()
    names = repository_names(views)
    decision = update_locks(
        scopes,
        read_locks(known.locks),
        wishes=wishes,
        sure=_is_sure(inventory),
        unreachable=frozenset(names.get(view.url, "") for view in views if not view.is_available),
    )
    return replace(decision, warnings=(*known.published.warnings, *decision.warnings))


def _is_sure(inventory: Inventory) -> bool:
    return inventory.control.readable and not inventory.control.broken


def _generated_before(inventory: Inventory) -> bool:
    return any(record.requested_by for record in inventory.records.values())


# What cannot be met


def _unmet(decision: LockUpdate, roots: Roots) -> dict[ObjectKey, tuple[Problem, ...]]:
    """Return the variants that must not get what they are pinned to, because their needs are not met there.

    That is what a cluster's lock does not hold at its revision, where a part of the cluster has no answer.
    """
    found: dict[ObjectKey, tuple[Problem, ...]] = {}
    for scope in decision.scopes:
        held = {_place(one): one.version for one in scope.after.resolution.packages} if scope.after else {}
        for key, root in roots.by_cluster.get(scope.cluster, {}).items() if not scope.finished else ():
            candidate = root.candidate
            met = held.get((candidate.id.name, key)) == candidate.version.text
            if candidate.requires and not met and root.variant is not None:
                found[variant_key(root.key)] = (_problem(scope, key, root),)
    return found


def _place(one: LockedPackage) -> tuple[str, RootKey]:
    slot = one.instance.slot
    return one.instance.name, RootKey(slot.namespace, "/".join(slot.path))


def _problem(scope: ClusterUpdate, key: RootKey, root: Root) -> Problem:
    name = f"{VARIANT_KIND} {key.namespace}/{key.name}"
    mine = [one for one in scope.explanations if any(name in said for said in (*one.sentences, *one.paths))]
    several = mine or list(scope.explanations)
    sentences = dict.fromkeys(sentence for one in several for sentence in one.sentences)
    hints = dict.fromkeys(hint for one in several for hint in one.hints)
    circle = any(one.code == "E-CYCLE" for one in several)
    reason = Reason.DEPENDENCY_CYCLE if circle else Reason.DEPENDENCY_CONFLICT
    message = f"Dependencies cannot be met: {'; '.join(sentences) or _UNDECIDED}"
    return Problem(root.location, reason, message, "; ".join(hints), f"{VARIANT_KIND} {root.key}")


def _is_told_better(problem: Problem) -> bool:
    """Whether a variant of the problem's cluster is told what this says of its install."""
    return problem.reason in _TOLD and problem.subject.startswith(f"{VARIANT_KIND} ")


# What follows from it


def _leaving(inventory: Inventory, known: DependencyInputs, closed: Closed, found: Generated) -> Leaving:
    wanted = found.undecided | {variant.key for variant in found.variants}
    doubtful = closed.scopes.incomplete if _is_sure(inventory) else frozenset({""})
    return find_leaving(
        inventory, known.published, closed.resolution, closed.decision, wanted=wanted, incomplete=doubtful
    )


def _extended(desired: Desired, found: Generated, leaving: Leaving) -> Desired:
    variants = sorted((*desired.variants, *found.variants), key=lambda variant: variant.key)
    conditions = {variant_key(variant.key): (VALID,) for variant in found.variants}
    return replace(
        desired,
        variants=tuple(variants),
        conditions={**desired.conditions, **conditions},
        released=leaving.released,
        held=leaving.held,
    )


def _without(resolution: Resolution, unmet: Mapping[ObjectKey, tuple[Problem, ...]]) -> Resolution:
    """Return the resolution in which variants whose needs are not met are stalled."""
    if not unmet:
        return resolution
    kept = tuple(one for one in resolution.variants if variant_key(one.variant.key) not in unmet)
    problems = {*resolution.problems, *(problem for several in unmet.values() for problem in several)}
    return replace(
        resolution,
        variants=kept,
        stalled=resolution.stalled | unmet.keys(),
        problems=tuple(sorted(problems)),
    )
