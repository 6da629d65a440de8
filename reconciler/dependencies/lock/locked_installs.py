"""Hold what is locked for manifests without a solution, and the objects of packages that others take over."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import keeps_ownership, ownership_entries
from reconciler.dependencies.lock.revisions import owned_resources
from reconciler.dependencies.model.cluster import ClusterInputs, install_slot
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolution, Resolved
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Install,
    Override,
    PackageNeed,
    Platform,
)
from reconciler.dependencies.solve.alternatives import any_version, qualified
from reconciler.dependencies.solve.problem import AlternativeSource, Explanation, Solution
from reconciler.names.problems import Problem

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
        is_there = instance in solution.failed or (resolved is not None and resolved.user)
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
    former = {name: gone[e.package] for name, e in ownership_entries(before) if e.package in gone}
    locked = {package.instance for package in before.packages}
    objects = {package.object for package in fresh.packages}
    packages = []
    for package in fresh.packages:
        resolved = solution.resolved.get(package.instance)
        is_new = resolved is not None and not package.by_user and package.instance not in locked
        resources = sorted(owned_resources(resolved.candidate)) if resolved and is_new else ()
        formers = (former[resource.name] for resource in resources if resource.name in former)
        free = (f for f in formers if f.kind == package.kind and f.object not in objects)
        if (heir := next(free, None)) is not None and keeps_ownership(package.instance):
            package = replace(package, api_version=heir.api_version, name=heir.name)  # noqa: PLW2901
            objects.add(heir.object)
        packages.append(package)
    return replace(fresh, packages=tuple(packages))
