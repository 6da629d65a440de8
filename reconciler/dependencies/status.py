"""What every package of a cluster came to, in the words of its ecosystem: documents of the status branch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.dependencies.decision import Decision, Locked, ScopeDecision
from reconciler.dependencies.emit import Family, family_of
from reconciler.dependencies.lockfile import LockedDependency, LockedPackage
from reconciler.dependencies.model import Ecosystem, Install
from reconciler.dependencies.names import Dialect
from reconciler.dependencies.recording import USER
from reconciler.dependencies.world import World
from reconciler.errors import Problem

DIRECTORY = "conditions/packages"


def status_files(
    worlds: Iterable[World], decision: Decision, *, shared_namespace: str = "default"
) -> dict[str, bytes]:
    """Return a document for every install of a user's and every generated one, by path. No times.

    Pure, order-free. A cluster whose manifests are not understood has none: nothing is known of it.
    """
    scopes = {scope.cluster: scope for scope in decision.scopes}
    found: dict[str, bytes] = {}
    for world in worlds:
        scope = scopes.get(world.cluster)
        if scope is not None and scope.after is not None:
            reader = _Reader(world, scope, scope.after, _by_place(decision.problems), shared_namespace)
            for value in reader.documents():
                path = "/".join(
                    str(value[part]) for part in ("cluster", "kind", "namespace", "name") if value[part]
                )
                found[f"{DIRECTORY}/{path}.json"] = _bytes(value)
    return dict(sorted(found.items()))


def _by_place(problems: Iterable[Problem]) -> Mapping[tuple[str, str], Problem]:
    return {(problem.subject, problem.location.path): problem for problem in problems}


def _bytes(value: Mapping[str, Any]) -> bytes:
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=options)


@dataclass(frozen=True, slots=True)
class _Reader:
    world: World
    scope: ScopeDecision
    locked: Locked
    problems: Mapping[tuple[str, str], Problem]
    shared_namespace: str

    def documents(self) -> Iterator[dict[str, Any]]:
        family = family_of(self.world, self.locked, self.shared_namespace)
        seen = set()
        for one in self.locked.resolution.packages:
            if one.instance.ecosystem == Ecosystem.KPT:
                continue
            install = family.installs.get(str(one.instance)) if one.owner == USER else None
            seen.add(str(one.instance))
            yield self._document(one, install, family)
        for who, install in family.installs.items():
            if who not in seen and install.need.id.ecosystem is not Ecosystem.KPT:
                yield self._unresolved(install)

    def _document(self, one: LockedPackage, install: Install | None, family: Family) -> dict[str, Any]:
        ref = family.ref_of(one)
        problem = self._problem(install)
        return {
            "cluster": self.world.cluster,
            **ref._asdict(),
            "conditions": [*_conditions(problem, *self._ready(one))],
            "status": self._status(one, family, problem),
        }

    def _unresolved(self, install: Install) -> dict[str, Any]:
        problem = self._problem(install)
        return {
            "cluster": self.world.cluster,
            "kind": install.kind,
            "namespace": install.namespace,
            "name": install.name,
            "conditions": [*_conditions(problem, "Unresolved", "It has no version yet")],
            "status": {"invalidDependencies": 1}
            if install.dialect is Dialect.CROSSPLANE
            else {"dependencies": []},
        }

    def _problem(self, install: Install | None) -> Problem | None:
        return self.problems.get((str(install), install.location.path)) if install else None

    def _ready(self, one: LockedPackage) -> tuple[str, str]:
        """Return why a package is not what it asks for, or empty words."""
        revisions = self.locked.revisions_of(one)
        current = next((revision for revision in revisions if revision.current), None)
        if current is None or current.is_active:
            return "", ""
        active = next((revision.name for revision in revisions if revision.is_active), "none")
        return "AwaitingActivation", f"{current.name} is not active; active is {active}"

    def _status(self, one: LockedPackage, family: Family, problem: Problem | None) -> dict[str, Any]:
        needs = [need for need in one.dependencies if need.active]
        if one.instance.ecosystem == Ecosystem.XPKG:
            return self._crossplane(one, needs, problem)
        shown = [_dependency(need, family) for need in needs]
        return {
            "version": one.version,
            "lastAttemptedVersion": one.last_attempted_version,
            "dependencies": shown,
        }

    def _crossplane(
        self, one: LockedPackage, needs: list[LockedDependency], problem: Problem | None
    ) -> dict[str, Any]:
        """Return the counts as Crossplane's package manager has them on a revision.

        Source: crossplane apis/pkg/v1, PackageRevisionStatus: what a package needs, what of it is
        there, and what is there in a version that does not do.
        """
        current = next((revision for revision in self.locked.revisions_of(one) if revision.current), None)
        missing = [skipped for skipped in self.locked.resolution.skipped if skipped.parent == one.instance]
        image = f"{one.source or one.instance.name}:{one.version}"
        return {
            "currentRevision": current.name if current else "",
            "currentIdentifier": current.image if current else image,
            "resolvedPackage": f"{image}@{one.digest}" if one.digest else image,
            "foundDependencies": len(needs) + len(missing),
            "installedDependencies": len(needs),
            "invalidDependencies": 1 if problem else 0,
        }


def _conditions(problem: Problem | None, reason: str, message: str) -> Iterator[dict[str, str]]:
    stalled = problem is not None
    yield {
        "type": "Ready",
        "status": "False" if stalled or reason else "True",
        "reason": str(problem.reason) if problem else reason or "Resolved",
        "message": problem.message if problem else message,
    }
    yield {
        "type": "Stalled",
        "status": "True" if stalled else "False",
        "reason": str(problem.reason) if problem else "Valid",
        "message": problem.message if problem else "",
    }


def _dependency(need: LockedDependency, family: Family) -> dict[str, Any]:
    """Return how one need is met, as the proposal's `status.dependencies` has it.

    An API may be there without anybody knowing from which package: then the cluster provides it.
    """
    target = family.packages.get(str(need.resolved)) if need.resolved else None
    created = target is not None and target.owner != USER
    ref = family.ref_of(target) if target else None
    if need.need == "api":
        api, _, kind = need.id.rpartition("/")
        by = {"providedBy": str(ref), "version": target.version} if target else {"providedBy": "cluster"}
        return {"created": created, "gvk": {"apiVersion": api, "kind": kind, **by}}
    name = target.instance.name if target else need.id.partition(":")[2]
    met = {"packageInstallRef": {"name": ref.name}, "version": target.version} if ref and target else {}
    alias = {"alias": need.alias} if need.alias else {}
    return {"created": created, **alias, "package": {"refName": name, **met}}
