"""Resolve clusters and update their locks: equal clusters are computed once, current locks stay."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, ReconcilerError
from reconciler.base.reasons import Reason
from reconciler.base.text import plural
from reconciler.base.values import reachable
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.digest import InputDigests
from reconciler.dependencies.lock.format import (
    DEFAULT_OPTIONS,
    SHARED_SLOT_KINDS,
    ClusterLock,
    ClusterUpdate,
    FleetLocks,
    LockOp,
    LockUpdate,
    ResolveOptions,
    SolverPolicy,
    SolverRecord,
    check_lock,
    exclusive_owners,
    installing_objects,
    keeps_ownership,
    lock_changes,
    lock_solution,
    next_lock,
    with_lock,
)
from reconciler.dependencies.lock.revisions import (
    PreviousLock,
    RevisionUpdate,
    nearest_install,
    owned_resources,
    reconcile_revisions,
)
from reconciler.dependencies.model.cluster import (
    Catalogue,
    ClusterInputs,
    UnknownVariableError,
    dependency_parameters,
    install_slot,
    render_parameter,
    template_variables,
)
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolution, Resolved, SlotKind
from reconciler.dependencies.model.packages import (
    BundleInput,
    Candidate,
    Dialect,
    Gvk,
    InputKind,
    Install,
    Override,
    PackageId,
    PackageNeed,
    Platform,
    Requirement,
)
from reconciler.dependencies.solve.alternatives import any_version, qualified
from reconciler.dependencies.solve.build_problem import without_duplicates
from reconciler.dependencies.solve.problem import AlternativeSource, Explanation, Solution
from reconciler.dependencies.solve.resolve import resolve_cluster, warnings_of
from reconciler.names.problems import Problem, defect_problem
from reconciler.records.state import LOCKS_DIRECTORY

LockedInstalls = Mapping[str, Install]
"""An install of what is locked for a manifest without a solution, by the label of the manifest."""


def held_installs(
    inputs: ClusterInputs, solution: Solution, problems: Iterable[Problem], before: Resolution
) -> dict[str, Install]:
    """Return an install for each manifest that has no solution and would lose what is locked for it.

    That is one that names another package now, or the package of which is to be upgraded. It keeps its
    locked version, with the ranges, bindings and dependencies that the lock has. Order-free.
    """
    stalled = {problem.subject for problem in problems if problem.reason is not Reason.UNBOUND_INPUT}
    by_users = {(p.kind, p.instance.slot.namespace, p.name): p for p in before.packages if p.by_user}
    choosing = {skipped.parent for skipped in before.skipped}
    held = {}
    for install in inputs.installs:
        locked = by_users.get((install.kind, install_slot(install).namespace, install.name))
        if locked is None or install.requested or install.external:
            continue
        is_unsolved = str(install) in stalled or inputs.instance_of(install) in solution.failed
        instance = locked.instance
        resolved = solution.resolved.get(instance)
        is_there = instance in solution.failed or (resolved is not None and resolved.by_user)
        if is_unsolved and not is_there:
            is_alone = not locked.dependencies and locked.instance not in choosing
            package = locked.instance.package
            held[str(install)] = replace(
                install,
                requested=install.need,
                need=PackageNeed(package, any_version(package), install.need.location),
                dialect=Dialect(locked.dialect),
                api_version=locked.api_version,
                install_dependencies=True,
                skip_dependencies=is_alone,
                overrides=tuple(_overrides(inputs.catalogue.candidates(package), locked)),
                bindings=tuple(_bindings(locked.dependencies)),
                ignore_platforms=frozenset(Platform),
            )
    return held


def _overrides(published: Iterable[Candidate], locked: Resolved) -> Iterator[Override]:
    """Yield the ranges that the lock has and the package has not, whatever overrides the manifest has now."""
    requires = [r for c in published if c.version.text == locked.version for r in c.requires]
    needs = [n for requirement in requires for n in requirement.alternatives if isinstance(n, PackageNeed)]
    written = {(str(need.id), need.range.text, need.range.prereleases) for need in needs}
    for need in locked.dependencies if needs else ():
        if need.need == "package" and (need.id, need.constraints, need.prereleases) not in written:
            yield Override(need.alias or need.name, need.range)


def _bindings(dependencies: Iterable[MetNeed]) -> Iterator[tuple[str, str]]:
    for need in dependencies:
        if need.via == AlternativeSource.BINDING:
            slot = need.resolved.slot if need.resolved else None
            yield need.alias, qualified(slot.namespace, "/".join(slot.path)) if slot else need.installation


def explanations_of(held: LockedInstalls, solution: Solution) -> Iterator[Explanation]:
    """Yield the explanations why manifests have no solution."""
    for explanation in solution.explanations:
        stalled = tuple(name for name in explanation.stalled if name in held)
        if stalled or not explanation.stalled:
            yield replace(explanation, stalled=stalled)


def problems_of(held: LockedInstalls, problems: Iterable[Problem], before: Resolution) -> Iterator[Problem]:
    """Yield the problems of manifests without a solution; a move to another package is one of them."""
    versions = {package.instance: package.version for package in before.packages}
    for problem in problems:
        install = held.get(problem.subject)
        if install is None or install.requested is None:
            continue
        asked_id, other = install.need.id, install.requested.id
        if asked_id == other:
            yield problem
        else:
            keeps = f"keeps {asked_id.name} {versions[Instance(*asked_id, install_slot(install))]}"
            message = f"{install} {keeps} instead of {other.name}: {problem.message}"
            yield replace(problem, message=message, consequence=f", which {keeps}")


def with_former_objects(fresh: Resolution, before: Resolution, solution: Solution) -> Resolution:
    """Return a resolution in which a generated package that takes over from another one gets its object.

    So Crossplane replaces the package of one Provider, and no kind goes with the former one.

    Source: crossplane issue 6761: the family of moved providers is moved by its `spec.package`.
    """
    there = {package.instance for package in fresh.packages}
    gone = {p.instance: p for p in before.packages if not p.by_user and p.instance not in there}
    former = {r.name: gone[e.package] for r, e in before.ownership() if e.package in gone}
    locked = {package.instance for package in before.packages}
    objects = {package.object for package in fresh.packages}
    packages = []
    for package in fresh.packages:
        candidate = solution.candidates.get(package.instance)
        is_new = not package.by_user and package.instance not in locked
        resources = sorted(owned_resources(candidate)) if candidate and is_new else ()
        formers = (former[resource.name] for resource in resources if resource.name in former)
        free = (f for f in formers if f.kind == package.kind and f.object not in objects)
        if (heir := next(free, None)) is not None and keeps_ownership(package.instance):
            package = replace(package, api_version=heir.api_version, name=heir.name)  # noqa: PLW2901
            objects.add(heir.object)
        packages.append(package)
    return replace(fresh, packages=tuple(packages))


def autoremove(
    fresh: Resolution, before: Resolution, *, needed: frozenset[Instance] = frozenset(), prune: bool = False
) -> Resolution:
    """Remove packages that nothing needs any more; retained ones are listed as unused. Order-free.

    Marks from the users' packages over every requirement, those of parts that keep their lock included.
    Packages that a user removed go. Generated packages go if all of their former parents allow it
    (`uninstall`) and they have no data to keep; else they stay, with everything that they need.

    Locked parts without a solution are part of `fresh`, and `needed` has what a running revision still needs,
    although another version is requested. With `prune` retained packages go, too.

    Source: Porter's dependency proposal, detecting unused managed dependencies.
    """
    old = {package.instance: package for package in before.packages}
    used = {package.instance: package for package in fresh.packages}
    used |= {instance: old[instance] for instance in old if instance in needed and instance not in used}
    needed_now = set(_reachable(used.values(), old | used)) - used.keys()
    used |= {instance: old[instance] for instance in needed_now}
    used = {instance: _with_present_parents(package, used) for instance, package in used.items()}
    users = [package.instance for package in used.values() if package.by_user]
    remaining = {
        instance: package
        for instance, package in old.items()
        if instance not in used and not any(_is_same_place(user, instance) for user in users)
    }
    retained = () if prune else (p for p in remaining.values() if _is_retained(p, before))
    unused = {package.instance: package for package in retained}
    unused |= {instance: remaining[instance] for instance in _reachable(unused.values(), remaining)}
    packages = list(used.values())
    for package in unused.values():
        parents = tuple(who for who in package.requested_by if who in unused)
        owner = min(parents, key=str, default=None)
        packages.append(replace(package, by_user=False, requested_by=parents, owner=owner))
    return replace(
        fresh,
        packages=tuple(sorted(packages, key=lambda package: package.instance)),
        unused=tuple(sorted(unused)),
    )


def retain_all(fresh: Resolution, before: Resolution) -> Resolution:
    """Return a resolution with every locked package: missing manifests may only be unreadable."""
    there = {package.instance for package in fresh.packages}
    objects = installing_objects(fresh.packages)
    retained = {p.instance for p in before.packages if p.instance not in there and p.object not in objects}
    return _with_kept(fresh, before, retained)


def leave_dependencies(fresh: Resolution, before: Resolution) -> Resolution:
    """Return a resolution in which only the users' packages changed, and their dependencies are as locked.

    Packages that a user removed go, unless others need them. What the next run must retain of those that
    nothing needs any more is listed as unused, as their parents are gone then.
    """
    locked = {package.instance: package for package in before.packages}
    packages = []
    for package in fresh.packages:
        old = locked.get(package.instance)
        if old is not None:
            version = old.resolved_version or old.version  # the version that has these dependencies
            version_of = None if version == package.version else version
            package = replace(package, dependencies=old.dependencies, resolved_version=version_of)  # noqa: PLW2901
        packages.append(package)
    remaining = replace(fresh, packages=tuple(packages), skipped=before.skipped)
    generated = {package.instance for package in before.packages if not package.by_user}
    needed = set(_reachable((*packages, *(locked[instance] for instance in generated)), locked))
    retained = (generated | needed) - {package.instance for package in packages}
    unchanged = _with_kept(remaining, before, retained)
    return replace(unchanged, unused=autoremove(remaining, before).unused)


def _with_kept(fresh: Resolution, before: Resolution, retained: set[Instance]) -> Resolution:
    packages = (*fresh.packages, *(package for package in before.packages if package.instance in retained))
    ordered = sorted(packages, key=lambda package: package.instance)
    unused = tuple(package for package in before.unused if package in retained)
    return replace(fresh, packages=tuple(ordered), unused=unused)


def _reachable(start: Iterable[Resolved], by_instance: dict[Instance, Resolved]) -> Iterator[Instance]:
    """Return every known instance that packages need, directly or not, each once.

    That includes those that were present for other reasons when a requirement was resolved.
    """

    def needed(package: Resolved) -> Iterator[Instance]:
        targets = (dependency.resolved for dependency in package.dependencies)
        return (target for target in targets if target is not None and target in by_instance)

    direct = [target for package in start for target in needed(package)]
    return reachable(direct, lambda instance: needed(by_instance[instance]))


def _is_retained(package: Resolved, before: Resolution) -> bool:
    if package.by_user:
        return False
    if package.retain or package.instance in before.unused:
        return True
    pointing = (d for other in before.packages for d in other.dependencies if d.resolved == package.instance)
    return not all(dependency.uninstall for dependency in pointing)


def _is_same_place(user: Instance, other: Instance) -> bool:
    """Tell whether a user's manifest replaces a generated package: same package, same place."""
    same = (user.ecosystem, user.name) == (other.ecosystem, other.name)
    is_near = other.slot.kind == SlotKind.CLUSTER or user.slot.namespace == other.slot.namespace
    return same and is_near and other.slot.kind in SHARED_SLOT_KINDS


def _with_present_parents(package: Resolved, used: dict[Instance, Resolved]) -> Resolved:
    """Return a package without its removed parents; without any other, those that it satisfies are left."""
    parents = tuple(who for who in package.requested_by if who in used)
    if parents == package.requested_by or package.by_user:
        return replace(package, requested_by=parents)
    users = (
        other.instance
        for other in used.values()
        if any(dependency.resolved == package.instance for dependency in other.dependencies)
    )
    parents = parents or tuple(sorted(users, key=str)) or package.requested_by
    owner = package.owner if package.owner in parents else min(parents, key=str)
    return replace(package, requested_by=parents, owner=owner)


def upgraded_with_parent(
    inputs: ClusterInputs, solution: Solution, before: Resolution
) -> frozenset[Instance]:
    """Return the locked dependencies that are upgraded together with their parent.

    A managed dependency takes the best version when its parent gets another one; an unmanaged one keeps its
    version while that fits. That includes what a run before left for the next one.

    Source: Porter's dependency proposal, managed and unmanaged dependencies.
    """
    locked = {pin.instance: pin.version for pin in inputs.pins}
    behind = {package.instance for package in before.packages if package.resolved_version}
    resolved = solution.resolved
    queue = [i for i, p in resolved.items() if i in locked and (p.version != locked[i] or i in behind)]
    unlocked: set[Instance] = set()
    for instance in queue:
        for need in resolved[instance].dependencies if instance in resolved else ():
            target = need.resolved
            if need.upgrade and target is not None and target in locked and target not in unlocked:
                unlocked.add(target)
                queue.append(target)
    return frozenset(unlocked)


Owners = tuple[tuple[str, PackageId], ...]

_MOST_ROUNDS = 4
"""Resolutions of one cluster in a run, each from what the one before left."""


class ClusterResult(Struct, frozen=True):
    """The new resolution of a cluster. It is open if it has a problem or unknown parts.

    `is_sound` is set if an equal lock of another cluster passed the invariants.
    """

    solution: Solution
    revisions: RevisionUpdate
    problems: tuple[Problem, ...]
    is_open: bool
    is_sound: bool = False


class ClusterResolver(Struct):
    """Resolves one cluster after the other; equal clusters of a run are resolved once."""

    options: ResolveOptions = DEFAULT_OPTIONS
    digests: InputDigests = field(default_factory=InputDigests)
    _known: dict[Hashable, ClusterResult] = field(default_factory=dict)
    _solutions: dict[Hashable, Solution] = field(default_factory=dict)

    def resolve(self, inputs: ClusterInputs, before: PreviousLock, *, keeps: bool) -> ClusterResult:
        """Resolve a cluster. If it `keeps`, nothing is removed from its lock.

        Raises:
            UnverifiedSolutionError: A solution does not pass the independent check.
        """
        places = (
            *((item.location, item.label) for item in inputs.installs),
            *(item.location for item in inputs.activations),
        )
        history = (before.resolution.digest, before.revisions, inputs.pins, inputs.locked, inputs.observed)
        key = (self.digests.of(inputs), history, places, keeps)
        cached = self._known.get(key)
        if cached is not None:
            return cached
        decided = self._decide(inputs, before, keeps=keeps)
        # What this run removes may have been in the way: a second run must not find another result.
        for _ in range(_MOST_ROUNDS if self.options == DEFAULT_OPTIONS else 0):
            changes = lock_changes(before.resolution, decided.revisions.resolution)
            if not decided.problems or all(change.op is LockOp.ADD for change in changes):
                break
            before = decided.revisions
            again = self._decide(inputs, before, keeps=keeps)
            if again.revisions.resolution == before.resolution:
                break
            decided = again
        self._known[key] = replace(decided, is_sound=True)
        return decided

    def _decide(self, inputs: ClusterInputs, before: PreviousLock, *, keeps: bool) -> ClusterResult:
        """Resolve a cluster once, beginning with a lock.

        A manifest without a solution keeps what is locked for it, also where it names another package.
        """
        explanations: list[Explanation] = []
        problems: list[Problem] = []
        while True:
            result = self._attempt(inputs, before, keeps=keeps)
            held = held_installs(inputs, result.solution, result.problems, before.resolution)
            if not held:
                break
            explanations += explanations_of(held, result.solution)
            problems += problems_of(held, result.problems, before.resolution)
            installs = tuple(held.get(str(install), install) for install in inputs.installs)
            inputs = replace(inputs, installs=installs)
        held_names = {str(install) for install in inputs.installs if install.requested}
        others = (problem for problem in result.problems if problem.subject not in held_names)
        explained = dict.fromkeys((*explanations, *result.solution.explanations))
        solution = replace(result.solution, explanations=tuple(explained))
        is_open = result.is_open or bool(problems)
        return replace(result, solution=solution, problems=(*problems, *others), is_open=is_open)

    def _attempt(self, inputs: ClusterInputs, before: PreviousLock, *, keeps: bool) -> ClusterResult:
        """Resolve a cluster with every manifest as it is, or as what is locked for it."""
        inputs, duplicates = without_duplicates(inputs, before.running)
        held = {inputs.instance_of(install).package.name for install in inputs.installs if install.requested}
        names = package_names(inputs, self.options.upgrade) - held
        locked_inputs = replace(inputs, choices=replace(inputs.choices, upgrade=names))
        if not self.options.dependencies:
            alone = tuple(replace(install, skip_dependencies=True) for install in inputs.installs)
            locked_inputs = replace(locked_inputs, installs=alone)
        if before.resolution.packages or any(before.resolution.ownership()):
            locked_inputs = with_lock(locked_inputs, before.resolution)
        while True:
            solution = self.solution(locked_inputs)
            # Once more where a package that moves takes its dependencies along
            if free := upgraded_with_parent(locked_inputs, solution, before.resolution):
                moving = locked_inputs.choices.upgrade | frozenset(map(str, free))
                choices = replace(locked_inputs.choices, upgrade=moving)
                solution = self.solution(replace(locked_inputs, choices=choices))
            fresh = lock_solution(inputs, solution, before.resolution)
            revision_update = self._establish(inputs, solution, fresh, before, keeps=keeps)
            contested = _contested_owners(
                solution, revision_update.resolution, before.resolution, locked_inputs.held
            )
            if not contested:
                break
            locked_inputs = replace(locked_inputs, held=(*locked_inputs.held, *contested))
        problems = (
            *duplicates,
            *solution.problems,
            *revision_update.problems,
            *unbound_inputs(inputs, solution),
        )
        is_open = bool(problems) or keeps or not self.options.dependencies
        return ClusterResult(solution, revision_update, problems, is_open)

    def solution(self, inputs: ClusterInputs) -> Solution:
        """Return the verified solution, computed once per distinct question; problems have places.

        Raises:
            UnverifiedSolutionError: A solution does not pass the independent check.
        """
        key: Hashable = (self.digests.of(inputs), inputs.pins, inputs.locked, inputs.held)
        if key in self._solutions and self._solutions[key].problems:
            key = (key, tuple((install.location, install.label) for install in inputs.installs))
        if key not in self._solutions:
            self._solutions[key] = resolve_cluster(replace(inputs, cluster=""))
        solution = self._solutions[key]
        return replace(solution, warnings=warnings_of(inputs, solution)) if solution.warnings else solution

    def update(self, world: ClusterInputs, old: ClusterLock | None, *, keeps: bool) -> ClusterUpdate:
        """Return the update of one cluster, resolved from its lock."""
        # Before the first lock the revisions that the cluster shows count, with their numbers.
        parts = (old.resolution, old.lock.revisions) if old else (Resolution(), world.observed)
        before = PreviousLock(*parts)
        result = self.resolve(world, before, keeps=keeps)
        discovery = "index" if world.choices.discovery else "none"
        policy = SolverPolicy(allow_downgrade=world.choices.allow_downgrade, discovery=discovery)
        lock = next_lock(
            world.cluster,
            input_digest=INCOMPLETE_DIGEST if result.is_open else self.digests.of(world),
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
        decided = replace(self.update(nothing, old, keeps=False), problems=(), warnings=())
        remaining = decided.after.resolution if decided.after else Resolution()
        is_empty = not remaining.packages and not any(remaining.ownership())
        return replace(decided, after=None) if is_empty else decided

    def _establish(
        self,
        inputs: ClusterInputs,
        solution: Solution,
        fresh: Resolution,
        before: PreviousLock,
        *,
        keeps: bool,
    ) -> RevisionUpdate:
        """Iterate retained packages and active revisions until both are stable.

        Both only grow from round to round, so this terminates.
        """
        if not self.options.dependencies:
            fresh = leave_dependencies(fresh, before.resolution)
        needed, resolution = frozenset[Instance](), fresh
        while True:
            if keeps:
                resolution = retain_all(fresh, before.resolution)
            elif self.options.dependencies:
                resolution = autoremove(fresh, before.resolution, needed=needed, prune=self.options.prune)
            resolution = with_former_objects(resolution, before.resolution, solution)
            update = reconcile_revisions(inputs, solution, resolution, before, forget=self.options.prune)
            if update.still_needed <= needed:
                return update
            needed |= update.still_needed


def _contested_owners(solution: Solution, after: Resolution, before: Resolution, held: Owners) -> Owners:
    """Return the owners of what a solution brings, too, if they stay without being part of it.

    A package stays although nothing needs it, or because a manifest may be unreadable.
    """
    undecided = {package.instance for package in after.packages} - {*solution.resolved, *solution.failed}
    if not undecided:
        return ()
    brought: dict[str, set[PackageId]] = {}
    for instance, candidate in solution.candidates.items():
        for name in candidate.owned_names if not instance.slot.target else ():
            brought.setdefault(name, set()).add(instance.package)
    owners = exclusive_owners(before, undecided)
    return tuple(o for o in owners if o not in held and brought.get(o[0], set()) - {o[1]})


def package_names(inputs: ClusterInputs, upgrade: frozenset[str]) -> frozenset[str]:
    """Return the packages' own names for names or aliases that a user gave, with or without ecosystem."""
    if not upgrade:
        return frozenset()
    ids = (*((id_, id_) for id_ in inputs.catalogue.packages), *inputs.catalogue.names.items())
    return frozenset(aliases.name for id_, aliases in ids if not upgrade.isdisjoint((id_.name, str(id_))))


def unbound_inputs(inputs: ClusterInputs, solution: Solution) -> Iterator[Problem]:
    """Yield a problem for every required input of a generated package without a value, at its user's install.

    A parent's requirement gives parameters that are known before it runs; the user gives them as
    `alias#name`. What one parent gives to a shared instance, it has for all. Which credentials an install's
    credential sets have is not checked.

    Source: Porter's dependency proposal: inputs of the implementation of an interface are unmapped.
    """
    installs = inputs.installs_by_instance()
    for instance, resolved in sorted(solution.resolved.items()):
        candidate = solution.candidates[instance]
        if resolved.by_user or not candidate.inputs:
            continue
        asking: list[tuple[Requirement, Install | None]] = []
        provided = set[BundleInput]()
        for parent in resolved.requested_by:
            variables = template_variables(solution.candidates[parent], installs.get(parent))
            for need in solution.resolved[parent].dependencies:
                if need.resolved == instance and need.active:
                    requirement = solution.requirements[parent, need.signature]
                    install = nearest_install(parent, installs, solution.resolved)
                    asking.append((requirement, install))
                    provided.update(_provided(candidate, requirement, install, variables))
        missing = [item for item in candidate.inputs if item not in provided]
        for requirement, install in asking if missing else ():
            yield _problem(candidate, requirement, install, missing, instance)


def _provided(
    candidate: Candidate, requirement: Requirement, install: Install | None, variables: Mapping[str, Any]
) -> Iterator[BundleInput]:
    """Yield the inputs that a requirement or the user's install gives."""
    # What its author wires to a credential is a value of the run, which no generated manifest has.
    for name, text in requirement.parameters:
        with suppress(UnknownVariableError):
            render_parameter(text, variables)
            yield BundleInput(InputKind.PARAMETER, name)
    for name in dependency_parameters(install, requirement.alias) if install else ():
        yield BundleInput(InputKind.PARAMETER, name)
    if install is not None and install.gives_credentials:
        yield from (item for item in candidate.inputs if item.kind is InputKind.CREDENTIAL)


def _problem(
    candidate: Candidate,
    requirement: Requirement,
    install: Install | None,
    missing: list[BundleInput],
    instance: Instance,
) -> Problem:
    alias = requirement.alias or instance.name
    message = f"{candidate} needs the {', the '.join(map(str, missing))}, which no manifest gives it"
    names = [item.name for item in missing if item.kind is InputKind.PARAMETER]
    ways = [f"give it as the parameter {', '.join(f'{alias}#{name}' for name in names)}"] if names else []
    if len(names) < len(missing):
        what = "with the name of a set that has it: dependencies get it, too"
        ways.append(f"write `credentialSets: [NAME]` {what}")
    hint = ", and ".join(ways)
    hint = f"{hint[0].upper()}{hint[1:]}; or bind {alias} to an installation that is there"
    where = install.location if install else Location("")
    return Problem(where, Reason.UNBOUND_INPUT, message, f"{hint}.", str(install or instance))


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
    resolver, held = ClusterResolver(options), locks.by_cluster

    def update(world: ClusterInputs) -> ClusterUpdate:
        old = held.get(world.cluster)
        is_current = old is not None and old.lock.input_digest == resolver.digests.of(world)
        settled = is_current and options == DEFAULT_OPTIONS
        packages = old.resolution.packages if old and unreachable else ()
        is_away = any(package.instance.name.rpartition("//")[0] in unreachable for package in packages)
        if world.cluster in locks.broken or settled or is_away:
            return ClusterUpdate(world.cluster, old, old, finished=settled)
        return resolver.update(world, old, keeps=not sure or scopes.is_incomplete(world.cluster))

    def retire(cluster: str) -> ClusterUpdate:
        keeps = not sure or scopes.is_incomplete(cluster) or cluster in locks.broken
        return resolver.retire(held[cluster], keeps=keeps)

    updates = {world.cluster: partial(update, world) for world in scopes.worlds}
    updates |= {cluster: partial(retire, cluster) for cluster in held.keys() - updates}
    decisions = []
    for cluster, decide in updates.items():
        try:
            with guard(f"cluster {cluster}"):
                decisions.append(decide())
        except DefectError as error:
            place, old = Location(f"{LOCKS_DIRECTORY}/{cluster}.json"), held.get(cluster)
            defect = defect_problem(error, place, subject=f"cluster {cluster}")
            decisions.append(ClusterUpdate(cluster, old, old, finished=False, problems=(defect,)))
    problems = {*scopes.problems, *locks.problems, *(p for update in decisions for p in update.problems)}
    warnings = {*scopes.warnings, *(w for update in decisions for w in update.warnings)}
    decisions.sort(key=lambda item: item.cluster)
    if not writes and not any(update.changed for update in decisions):
        # A new digest of the inputs alone is left to a run that writes.
        decisions = [
            replace(u, after=u.before, is_outdated=u.finished and u.before != u.after) for u in decisions
        ]
    warnings |= {*_withdrawals(decisions, scopes), *_unjudged_drops(decisions, scopes)}
    decisions = _with_unavailable(decisions, scopes, sure=sure)
    return LockUpdate(tuple(decisions), tuple(sorted(problems)), tuple(sorted(warnings)))


def _withdrawals(decisions: Iterable[ClusterUpdate], scopes: FleetInputs) -> Iterator[Problem]:
    """Yield a warning for each withdrawn version that clusters keep, and what would replace it there."""
    worlds = {world.cluster: world for world in scopes.worlds}
    clusters: dict[tuple[Candidate, str], list[str]] = {}
    resolvers: dict[str, ClusterResolver] = {}
    for update in decisions:
        world = worlds.get(update.cluster)
        if world is None or update.after is None:
            continue
        before = PreviousLock(update.after.resolution, update.after.lock.revisions)
        for package in before.resolution.packages:
            name, best = package.instance.name, package.version
            withdrawn = (c for c in world.catalogue.candidates(package.instance.package) if c.withdrawn)
            candidate = next((c for c in withdrawn if c.version.text == best), None)
            if candidate is None:
                continue
            resolver = resolvers.setdefault(name, ClusterResolver(ResolveOptions(upgrade=frozenset({name}))))
            with suppress(ReconcilerError):
                freed = resolver.resolve(world, before, keeps=True).revisions.resolution.packages
                best = next((p.version for p in freed if p.instance == package.instance), best)
            key = (candidate, "" if best == package.version else best)
            clusters.setdefault(key, []).append(update.cluster)
    for (candidate, best), names in clusters.items():
        why = f": {candidate.withdrawn}" if candidate.withdrawn != "true" else ""
        name = candidate.id.name
        step = f"`reconciler lock --upgrade {name}` takes {best}"
        step = step if best else f"no other version of {name} that is not below it fits"
        more = f" and {plural(len(names) - 1, 'more cluster')}" if names[1:] else ""
        message = f"{name} {candidate.version} is withdrawn{why}; it stays locked in {names[0]}{more}; {step}"
        yield Problem(candidate.location, Reason.INVALID_VERSION, message, subject=name)


def _unjudged_drops(decisions: Iterable[ClusterUpdate], scopes: FleetInputs) -> Iterator[Problem]:
    """Yield a warning for each upgrade that drops a version of a kind, where the stored ones are unknown."""
    worlds = {world.cluster: world for world in scopes.worlds}
    clusters: dict[tuple[Candidate, Gvk], list[str]] = {}
    for update in decisions:
        world = worlds.get(update.cluster)
        if world is None or update.before is None or update.after is None:
            continue
        recorded = {stored.kind for stored in world.presence.stored}
        locked = {package.instance: package.version for package in update.before.resolution.packages}
        for package in update.after.resolution.packages:
            former = locked.get(package.instance, package.version)
            if former == package.version or package.instance.slot.target:
                continue
            versions = {c.version.text: c for c in world.published(package.instance)}
            old, new = versions.get(former), versions.get(package.version)
            if old is None or new is None:
                continue
            there = {*new.provides, *new.defined}
            brought = {api.group_kind for api in there}
            judged = recorded & {api.group_kind for api in new.defined}
            for api in {*old.provides, *old.defined}:
                if api.version and api not in there and api.group_kind in brought - judged:
                    clusters.setdefault((new, api), []).append(update.cluster)
    for (candidate, api), names in clusters.items():
        where = f"{names[0]} and {plural(len(names) - 1, 'more cluster')}" if names[1:] else names[0]
        message = f"{candidate} drops {api.version} of {api.group_kind}; it is not known whether {where}"
        message += " stores objects in it"
        hint = "Import the snapshot with its definitions: `reconciler snapshot import`"
        yield Problem(candidate.location, Reason.SNAPSHOT_INCOMPLETE, message, hint, candidate.id.name)


def _with_unavailable(
    decisions: list[ClusterUpdate], scopes: FleetInputs, *, sure: bool
) -> list[ClusterUpdate]:
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
