"""Write the status of every package of a cluster for the status branch, in the terms of its ecosystem."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import orjson
from msgspec import Struct

from reconciler.api.meta import Condition
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.dependencies.lock.format import ClusterLock, LockUpdate
from reconciler.dependencies.model.cluster import ClusterInputs, install_slot
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved
from reconciler.dependencies.model.packages import Dialect, Ecosystem, Install
from reconciler.names.problems import Problem
from reconciler.plan.status import OwnerStatus
from reconciler.render.delivery import ObjectRef, PackageGraph, package_graph

DIRECTORY = "conditions/packages"


def status_files(
    worlds: Iterable[ClusterInputs], decision: LockUpdate, *, shared_namespace: str = "default"
) -> dict[str, bytes]:
    """Return a document per cluster: every user's install and every generated package. No times.

    Pure, order-free. A cluster with unreadable manifests has none. Clusters with equal contents and no
    problems are described once.
    """
    locked = {scope.cluster: scope.after for scope in decision.scopes if scope.after}
    problems = {(problem.subject, problem.location.path): problem for problem in decision.problems}
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    by_content: dict[Hashable, list[dict[str, Any]]] = {}
    files: dict[str, bytes] = {}
    for inputs in worlds:
        if after := locked.get(inputs.cluster):
            reader = _Reader(inputs, after, problems, shared_namespace)
            key = (id(inputs.catalogue), inputs.installs, after.lock.resolution, after.lock.revisions)
            # Where something of a cluster is wrong, its places are its own.
            is_alone = any(map(reader.problem, inputs.installs))
            documents = None if is_alone else by_content.get(key)
            if documents is None:
                documents = sorted(reader.documents(), key=itemgetter("kind", "namespace", "name"))
                by_content |= {} if is_alone else {key: documents}
            value = {"cluster": inputs.cluster, "packages": documents}
            files[f"{DIRECTORY}/{inputs.cluster}.json"] = orjson.dumps(value, option=options)
    return dict(sorted(files.items()))


def read_packages(files: Mapping[str, bytes]) -> Iterator[OwnerStatus]:
    """Yield the status of each package of a cluster from documents that this run wrote."""
    for path in sorted(files):
        if path.startswith(f"{DIRECTORY}/"):
            document = orjson.loads(files[path])
            for entry in document["packages"]:
                conditions = tuple(Condition(**condition) for condition in entry["conditions"])
                name = (entry["kind"], entry["namespace"], entry["name"])
                yield OwnerStatus(*name, conditions, cluster=document["cluster"], details=entry["status"])


class _Reader(Struct, frozen=True):
    inputs: ClusterInputs
    locked: ClusterLock
    problems: Mapping[tuple[str, str], Problem]
    shared_namespace: str

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the status of every package."""
        family = package_graph(self.inputs, self.locked, self.shared_namespace)
        # A manifest without a solution may keep another package than it names.
        declared = {ObjectRef(i.kind, install_slot(i).namespace, i.name): i for i in self.inputs.installs}
        listed: set[Install | None] = set()
        withheld = self._withheld(family)
        for package in self.locked.resolution.packages:
            if package.instance.ecosystem == Ecosystem.KPT:
                continue
            install = declared.get(family.ref_of(package)) if package.by_user else None
            listed.add(install)
            problem = withheld.get(package.instance) or self.problem(install)
            yield {
                **family.ref_of(package)._asdict(),
                "conditions": [*_conditions(problem, *self._ready(package))],
                "status": self._status(package, family, problem),
            }
        duplicates = (i for i in declared.values() if self._is_duplicate(i))
        for install in (*duplicates, *family.installs.values()):
            if install not in listed and install.need.id.ecosystem is not Ecosystem.KPT:
                listed.add(install)
                yield self._unresolved(install)

    def _withheld(self, family: PackageGraph) -> dict[Instance, Problem]:
        """Return the problem of each generated package that is locked, and not made: it lacks an input."""
        problems = {problem.location: problem for i in self.inputs.installs if (problem := self.problem(i))}
        unbound = {p.location for p in problems.values() if p.reason == Reason.UNBOUND_INPUT}
        items = family.generated()[0] if unbound else ()
        lacking = (item for item in items if item.location in unbound and not item.is_complete)
        return {item.package.instance: problems[item.location] for item in lacking}

    def _is_duplicate(self, install: Install) -> bool:
        problem = self.problem(install)
        return problem is not None and problem.reason == Reason.DUPLICATE_PACKAGE

    def _unresolved(self, install: Install) -> dict[str, Any]:
        problem = self.problem(install)
        return {
            "kind": install.kind,
            "namespace": install.namespace,
            "name": install.name,
            "conditions": [*_conditions(problem, "Unresolved", "It has no version yet")],
            "status": {"invalidDependencies": 1}
            if install.dialect is Dialect.CROSSPLANE
            else {"dependencies": []},
        }

    def problem(self, install: Install | None) -> Problem | None:
        """Return what is wrong with an install."""
        return self.problems.get((str(install), install.location.path)) if install else None

    def _ready(self, package: Resolved) -> tuple[str, str]:
        """Return reason and message if the current revision is not active, else empty texts."""
        revisions = self.locked.revisions_of(package)
        current = next((revision for revision in revisions if revision.current), None)
        if current is None or current.is_active:
            return "", ""
        active = next((revision.name for revision in revisions if revision.is_active), "none")
        return "AwaitingActivation", f"{current.name} is not active; active is {active}"

    def _status(self, package: Resolved, family: PackageGraph, problem: Problem | None) -> dict[str, Any]:
        if package.instance.ecosystem == Ecosystem.XPKG:
            # As crossplane apis/pkg/v1, PackageRevisionStatus: required, installed and invalid dependencies.
            current = next(
                (revision for revision in self.locked.revisions_of(package) if revision.current), None
            )
            missing = sum(skipped.parent == package.instance for skipped in self.locked.resolution.skipped)
            installed = len(package.dependencies)
            image = f"{package.source or package.instance.name}:{package.version}"
            return {
                "currentRevision": current.name if current else "",
                "currentIdentifier": current.image if current else image,
                "resolvedPackage": f"{image}@{package.digest}" if package.digest else image,
                "foundDependencies": installed + missing,
                "installedDependencies": installed,
                "invalidDependencies": 1 if problem else 0,
            }
        return {
            "version": package.version,
            "lastAttemptedVersion": package.version,
            "dependencies": [_dependency(need, package, family) for need in package.dependencies],
        }


def _conditions(problem: Problem | None, reason: str, message: str) -> Iterator[dict[str, Text]]:
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


def _dependency(need: MetNeed, parent: Resolved, family: PackageGraph) -> dict[str, Any]:
    """Return how one need is met, in the form of the proposal's `status.dependencies`.

    Of two parents it was created by the one that owns it. An API that no package is known to bring has no
    provider.

    Source: Carvel, packaging API dependency management, PackageInstall `status.dependencies`.
    """
    target = family.packages.get(need.resolved) if need.resolved else None
    created = target is not None and target.owner == parent.instance
    if need.need == "api":
        api, _, kind = need.id.rpartition("/")
        provider = {"providedBy": target.instance.name, "version": target.version} if target else {}
        return {"created": created, "gvk": {"apiVersion": api, "kind": kind, **provider}}
    name = target.instance.name if target else need.name
    met = {"packageInstallRef": family.ref_of(target).name, "version": target.version} if target else {}
    alias = {"alias": need.alias} if need.alias else {}
    return {"created": created, **alias, "package": {"refName": name, **met}}
