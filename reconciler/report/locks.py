"""Lock updates as text and JSON: pins, satisfied requirements, conflicts, revisions, owners and CRDs."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins

from reconciler.base.reasons import Reason
from reconciler.base.text import plural, terminal
from reconciler.dependencies.lock.changes import MoveOp, cluster_changes, waiting_text
from reconciler.dependencies.lock.format import ClusterUpdate, LockChange, LockOp, LockUpdate
from reconciler.dependencies.model.instances import Resolution, Resolved
from reconciler.dependencies.solve.problem import Explanation
from reconciler.names.problems import Problem
from reconciler.report.console import Paint, plain
from reconciler.report.text import problem_lines

_MARKS = {LockOp.ADD: "+", LockOp.CHANGE: "~", LockOp.REMOVE: "-"}


def lock_lines(decision: LockUpdate, *, paint: Paint = plain) -> Iterator[str]:
    """Yield a lock update as text: a block per cluster, then problems, then the counts."""
    for scope in decision.scopes:
        yield from map(terminal, _scope_lines(scope))
        yield ""
    yield from (f"note: {terminal(str(warning))}" for warning in decision.warnings)
    others = (problem for problem in decision.problems if not _is_explained(problem, decision))
    yield from problem_lines(others, paint=paint)
    yield from _counts(decision)


def _is_explained(problem: Problem, decision: LockUpdate) -> bool:
    """Return whether the block of its cluster explains a problem already."""
    explanations = [explanation for scope in decision.scopes for explanation in scope.explanations]
    losers = {install for explanation in explanations for install in explanation.stalled}
    unmet = problem.reason in (Reason.DEPENDENCY_CONFLICT, Reason.DEPENDENCY_CYCLE)
    return unmet or (problem.reason == Reason.OWNERSHIP_CONFLICT and problem.subject in losers)


def _scope_lines(scope: ClusterUpdate) -> Iterator[str]:
    before, after = scope.before, scope.after
    changes = {change.instance: change for change in scope.changes}
    packages = after.resolution.packages if after else ()
    yield f"{scope.cluster}: {_state(scope)}"
    for package in packages:
        if change := changes.get(package.instance):
            yield f"  {_MARKS[change.op]} {_pin(package, change, scope)}"
            for met in package.dependencies:
                requirement = met.alias or f"{met.id} {met.constraints}".strip()
                yield f"      {requirement} <- {met.resolved or met.detail} ({met.via})"
    for package in before.resolution.packages if before else ():
        change = changes.get(package.instance)
        if change and change.op is LockOp.REMOVE:
            yield f"  - {package.instance} {package.version}"
    same = sum(package.instance not in changes for package in packages)
    if same:
        yield f"    {plural(same, 'pin')} as before"
    for skipped in after.resolution.skipped if after else ():
        why = f": {skipped.reason}" if skipped.reason else ""
        yield f"    skipped: {skipped.requirement} of {skipped.parent}{why}"
    yield from (f"    {line}" for line in lifecycle_lines(scope))
    for explanation in scope.explanations:
        yield f"  {explanation.code}: {_outcome(explanation, scope)}"
        yield from (f"    {line}" for line in str(explanation).splitlines())


def _outcome(explanation: Explanation, scope: ClusterUpdate) -> str:
    if not explanation.stalled:
        is_locked = scope.before is not None and bool(scope.before.resolution.packages)
        return f"no solution: {'the locked versions stay' if is_locked else 'nothing is locked'}"
    *installs, last = explanation.stalled
    if installs:
        names = f"{', '.join(installs)} and {last}"
        return f"{names} contradict one another: they keep what is locked for them, the others proceed"
    verb = "is preempted" if explanation.code.is_ownership else "has no solution"
    return f"{last} {verb}: it keeps what is locked for it, the others proceed"


def _state(scope: ClusterUpdate) -> str:
    if scope.after is None:
        return "no package is required any more"
    now = scope.after.lock.generation
    was = scope.before.lock.generation if scope.before else now
    return f"generation {was} -> {now}" if was != now else f"generation {now}"


def _pin(package: Resolved, change: LockChange, scope: ClusterUpdate) -> str:
    version = package.version
    if change.before is not None:
        version = f"{change.before.version} -> {version}"
    requesters = ["a manifest"] if package.by_user else []
    asking = ", ".join([*requesters, *map(str, package.requested_by)]) or "nobody"
    gone = f" ({_unavailable(package, scope)})" if package.unavailable else ""
    return f"{package.instance} {version}{gone} for {asking}"


def _counts(decision: LockUpdate) -> Iterator[str]:
    """Yield the counts in one line; none where no cluster has dependencies and nothing is wrong."""
    pins = sum(len(scope.changes) for scope in decision.scopes)
    counts = []
    if decision.scopes:
        changed = sum(scope.changed for scope in decision.scopes)
        counts += [plural(len(decision.scopes), "cluster"), f"{changed} changed"]
        counts.append(f"{plural(pins, 'dependency pin')} changed")
        outdated = sum(scope.is_outdated for scope in decision.scopes)
        counts += [f"{outdated} resolved again until the next change is written"] if outdated else []
    if decision.problems:
        counts.append(plural(len(decision.problems), "problem"))
    if counts:
        yield ", ".join(counts)


def lock_values(decision: LockUpdate) -> list[dict[str, Any]]:
    """Return a lock update as JSON values, one per cluster; `packages` are as in the lock."""
    return [_scope_value(scope) for scope in decision.scopes]


def _scope_value(scope: ClusterUpdate) -> dict[str, Any]:
    after = scope.after
    resolution = after.resolution if after else Resolution()
    return {
        "cluster": scope.cluster,
        "generation": after.lock.generation if after else 0,
        "resolution": after.lock.resolution if after else "",
        "changed": scope.changed,
        "changes": list(map(_change_value, scope.changes)),
        "packages": to_builtins(resolution.packages),
        "revisions": to_builtins(after.lock.revisions) if after else [],
        "customResourceDefinitions": to_builtins(resolution.custom_resource_definitions),
        "compositions": to_builtins(resolution.compositions),
        "unused": [str(instance) for instance in resolution.unused],
        "explanations": [explanation_value(item) for item in scope.explanations],
    }


def _change_value(change: LockChange) -> dict[str, str]:
    sides = {"before": change.before, "after": change.after}
    contents = {name: "@".join(filter(None, (p.version, p.digest))) if p else "" for name, p in sides.items()}
    return {"op": change.op, "instance": str(change.instance), **contents}


def explanation_value(explanation: Explanation) -> Mapping[str, Any]:
    """Return the explanation of a conflict as a JSON value."""
    rejected = [
        {"package": package, "versions": [to_builtins(rejection) for rejection in rejections]}
        for package, rejections in explanation.rejected
    ]
    return {
        "code": explanation.code,
        "sentences": list(explanation.sentences),
        "rejected": rejected,
        "places": [str(place) for place in explanation.places],
        "hint": explanation.hint,
        "minimal": explanation.minimal,
        "givesWay": ", ".join(explanation.stalled),
    }


def lifecycle_lines(scope: ClusterUpdate) -> Iterator[str]:
    """Yield what changes in a cluster beside versions, and required actions."""
    after = scope.after
    if after is None:
        return
    for move in cluster_changes(scope):
        if move.op.subject != "pin" and move.op not in (MoveOp.WAIT, MoveOp.RETIRE):
            yield f"{move.op.subject}: {move.op} {move}"
    for revision in after.lock.revisions:
        if revision.awaits:
            yield f"revision {revision.revision} of {revision.package} {waiting_text(revision)}"
    for package in after.resolution.packages:
        if package.unavailable:
            pin = f"{package.instance} {package.version}"
            yield f"unavailable: {pin} {_unavailable(package, scope)}; it stays"
    for instance in after.resolution.unused:
        yield f"unused: {instance} is no longer needed; `lock --prune` removes it"


def _unavailable(package: Resolved, scope: ClusterUpdate) -> str:
    return scope.unavailable.get(package.instance, "is no longer published")
