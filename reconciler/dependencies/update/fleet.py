"""Update the locks of a fleet: resolve the clusters with changed inputs, keep the other locks."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.convert import FleetLocks
from reconciler.dependencies.lock.format import (
    DEFAULT_OPTIONS,
    ClusterLock,
    ClusterUpdate,
    DesiredState,
    LockedRevision,
    LockOp,
    LockUpdate,
    ResolveOptions,
    SolverPolicy,
    SolverRecord,
    check_lock,
    next_lock,
    ownership_entries,
)
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.instances import Resolution
from reconciler.dependencies.revisions import PreviousLock
from reconciler.dependencies.update.cluster import ClusterResolver
from reconciler.names.problems import defect_problem
from reconciler.records.upstream_lock import LOCKS_DIRECTORY

INCOMPLETE_DIGEST = ""
"""Input digest of a lock with an unsolved part: every run resolves it again."""


def update_locks(
    scopes: FleetInputs,
    locks: FleetLocks,
    *,
    options: ResolveOptions = DEFAULT_OPTIONS,
    sure: bool = True,
    unreachable: frozenset[str] = frozenset(),
    writes: bool = False,
) -> LockUpdate:
    """Resolve the clusters with changed inputs; every other one keeps its lock as it is.

    Deterministic and order-free. A cluster without manifests loses its lock if nothing must stay there, and
    an unneeded package its pin, but only if every manifest could be read. One with a defect, as a solution
    that does not pass the independent check, keeps its lock.

    It is `sure` if everything that may declare a package was readable. Users of an `unreachable` URL stay
    locked. If a run `writes` even without a changed lock, outdated digests are refreshed.

    """
    run = _FleetUpdate(ClusterResolver(options))
    held = locks.by_cluster

    def update(world: ClusterInputs) -> ClusterUpdate:
        old = held.get(world.cluster)
        is_current = old is not None and old.lock.input_digest == run.resolver.digests.of(world)
        settled = is_current and options == DEFAULT_OPTIONS
        packages = old.resolution.packages if old and unreachable else ()
        is_away = any(package.instance.name.rpartition("//")[0] in unreachable for package in packages)
        if world.cluster in locks.broken or settled or is_away:
            return ClusterUpdate(world.cluster, old, old, finished=settled)
        return run.decide(world, old, keeps=not sure or scopes.is_incomplete(world.cluster))

    def retire(cluster: str) -> ClusterUpdate:
        keeps = not sure or scopes.is_incomplete(cluster) or cluster in locks.broken
        return run.retire(held[cluster], keeps=keeps)

    updates = {world.cluster: partial(update, world) for world in scopes.worlds}
    updates |= {cluster: partial(retire, cluster) for cluster in held.keys() - updates}
    decisions = [_isolated(cluster, held.get(cluster), decide) for cluster, decide in updates.items()]
    problems = {*scopes.problems, *locks.problems, *(p for update in decisions for p in update.problems)}
    warnings = {*scopes.warnings, *(w for update in decisions for w in update.warnings)}
    decisions.sort(key=lambda item: item.cluster)
    if not writes and not any(update.changed for update in decisions):
        # A new digest of the inputs alone is left to a run that writes.
        decisions = [
            replace(u, after=u.before, is_outdated=u.finished and u.before != u.after) for u in decisions
        ]
    decisions = _with_unavailable(decisions, scopes, sure=sure)
    return LockUpdate(tuple(decisions), tuple(sorted(problems)), tuple(sorted(warnings)))


def _isolated(cluster: str, old: ClusterLock | None, decide: Callable[[], ClusterUpdate]) -> ClusterUpdate:
    """Return the update of one cluster; one with a defect keeps its lock as it is."""
    try:
        with guard(f"cluster {cluster}"):
            return decide()
    except DefectError as error:
        problem = defect_problem(
            error, Location(f"{LOCKS_DIRECTORY}/{cluster}.json"), subject=f"cluster {cluster}"
        )
        return ClusterUpdate(cluster, old, old, finished=False, problems=(problem,))


def _with_unavailable(
    decisions: list[ClusterUpdate], scopes: FleetInputs, *, sure: bool
) -> list[ClusterUpdate]:
    """Return the updates with the reasons why locked versions are no candidates."""
    catalogues = {world.cluster: world.catalogue for world in scopes.worlds}
    unread = f"while {scopes.unread[0]} cannot be read" if scopes.unread else ""
    updates = []
    for update in decisions:
        packages = update.after.resolution.packages if update.after else ()
        keeps = not sure or scopes.is_incomplete(update.cluster)
        excuse = unread or ("while some files cannot be read" if keeps else "")
        reasons = {}
        for package in packages:
            if package.unavailable:
                id_ = package.instance.package
                catalogue = catalogues.get(update.cluster)
                why = catalogue.refusal(id_, package.version) if catalogue else None
                text = f"cannot be found {excuse}" if excuse else "is no longer published"
                text = f"was refused: {why.location}: {why.message}" if why else text
                reasons[package.instance] = text
        updates.append(replace(update, unavailable=reasons) if reasons else update)
    return updates


class _FleetUpdate(NamedTuple):
    resolver: ClusterResolver

    def decide(self, world: ClusterInputs, old: ClusterLock | None, *, keeps: bool) -> ClusterUpdate:
        """Return the update of one cluster, resolved from its lock."""
        before = PreviousLock(old.resolution, old.lock.revisions) if old else _observed_lock(world)
        result = self.resolver.resolve(world, before, keeps=keeps)
        discovery = "index" if world.choices.discovery else "none"
        policy = SolverPolicy(allow_downgrade=world.choices.allow_downgrade, discovery=discovery)
        lock = next_lock(
            world.cluster,
            input_digest=INCOMPLETE_DIGEST if result.is_open else self.resolver.digests.of(world),
            resolution=result.revisions.resolution,
            revisions=result.revisions.revisions,
            solver=SolverRecord(policy=policy),
            previous=old.lock if old else None,
        )
        after = ClusterLock(lock, result.revisions.resolution)
        check_lock(old, after, is_sound=result.is_sound)
        return ClusterUpdate(
            world.cluster,
            old,
            after,
            result.solution.explanations,
            finished=not result.is_open,
            problems=result.problems,
            warnings=(*result.solution.warnings, *result.revisions.warnings),
        )

    def retire(self, old: ClusterLock, *, keeps: bool) -> ClusterUpdate:
        """Return the update of a cluster without installs: its retained packages, or nothing."""
        if keeps:
            return ClusterUpdate(old.lock.scope.cluster, old, old, finished=False)
        nothing = ClusterInputs((), Catalogue(), cluster=old.lock.scope.cluster)
        decided = replace(self.decide(nothing, old, keeps=False), problems=(), warnings=())
        remaining = decided.after.resolution if decided.after else Resolution()
        is_empty = not remaining.packages and not any(ownership_entries(remaining))
        return replace(decided, after=None) if is_empty else decided


def _observed_lock(world: ClusterInputs) -> PreviousLock:
    """Return the state before the first lock: the revisions that the cluster shows, with their numbers."""
    return PreviousLock(
        Resolution(),
        tuple(
            LockedRevision(
                package=revision.package,
                name=revision.name,
                revision=revision.number,
                desired_state=DesiredState.ACTIVE if revision.is_active else DesiredState.INACTIVE,
                image=revision.image,
                digest=revision.digest,
            )
            for revision in world.observed
        ),
    )


def effective_locks(decision: LockUpdate, *, strict: bool) -> LockUpdate:
    """Return the locks that hold before the lock pull request is merged. Pure.

    A cluster keeps its present lock as soon as one version would change. If versions only come and go,
    because merged manifests request more or less, the new lock holds at once; with `strict` every cluster
    keeps its present one.
    """
    scopes = []
    for scope in decision.scopes:
        moved = any(change.op is LockOp.CHANGE for change in scope.changes)
        scopes.append(replace(scope, after=scope.before if strict or moved else scope.after))
    return replace(decision, scopes=tuple(scopes))
