"""Locks for people: updates as text and JSON, and the packages of a cluster as a tree."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import plural, terminal
from reconciler.dependencies.lock.changes import MoveOp, cluster_changes, waiting_text
from reconciler.dependencies.lock.format import ClusterUpdate, LockChange, LockOp, LockUpdate
from reconciler.dependencies.model.instances import COMPOSITION, Instance, Resolution, Resolved
from reconciler.dependencies.model.packages import VARIANT_KIND, PackageId
from reconciler.dependencies.solve.problem import Explanation
from reconciler.names.problems import Problem
from reconciler.report.console import Paint, plain
from reconciler.report.text import problem_lines


class GraphNode(Struct, frozen=True):
    """One node. `label` is its text, `owns` and `notes` make further lines of it.

    Paths start at a root. A `shared` node has several parents, an `unused` one has none though it needs one.
    """

    key: str
    label: str
    is_root: bool = False
    notes: tuple[str, ...] = ()
    shared: bool = False
    unused: bool = False
    owns: tuple[str, ...] = ()
    package: PackageId | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its key, its package with and without the ecosystem and by its last segment, and what it owns."""
        name = self.package.name if self.package else ""
        named = (str(self.package), name, name.rpartition("/")[2]) if name else ()
        return (self.key, *named, *(owned.removeprefix(COMPOSITION) for owned in self.owns))

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below its label."""
        return (*(f"owns {name}" for name in self.owns), *self.notes)


class Edge(NamedTuple):
    """A directed edge between two nodes of one group."""

    source: str
    target: str
    label: str = ""


class Group(Struct, frozen=True):
    """Nodes and edges that are drawn together below a title, in the order of the picture."""

    title: str
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[Edge, ...] = ()


def find_path(group: Group, target: str) -> tuple[str, ...]:
    """Return the shortest path from a root to a node, the first in order; empty if no root leads there."""
    children = _children(group)
    roots = [node.key for node in group.nodes if node.is_root]
    paths: deque[tuple[str, ...]] = deque((root,) for root in roots)
    seen = set(roots)
    while paths:
        path = paths.popleft()
        if path[-1] == target:
            return path
        for edge in children.get(path[-1], ()):
            if edge.target not in seen:
                seen.add(edge.target)
                paths.append((*path, edge.target))
    return ()


def _children(group: Group) -> Mapping[str, list[Edge]]:
    children: dict[str, list[Edge]] = {}
    for edge in group.edges:
        children.setdefault(edge.source, []).append(edge)
    return children


def text_tree(groups: Iterable[Group]) -> list[str]:
    """Return groups as lines, with an empty one between two.

    Each node is there once below its first parent, with its notes; its other parents refer to it.
    """
    lines: list[str] = []
    for group in groups:
        lines += [group.title, *(_tree(group) if group.nodes else ["  no package is locked"]), ""]
    return list(map(terminal, lines[:-1]))


def _tree(group: Group) -> Iterator[str]:
    nodes, children = {node.key: node for node in group.nodes}, _children(group)
    seen: set[str] = set()
    # For each level of a row, from the root: whether it is the last one below its parent.
    rows: list[tuple[str, Edge | None, tuple[bool, ...]]]
    rows = [(key, None, ()) for key in reversed(_roots(group, children))]
    while rows:
        key, edge, last = rows.pop()
        above = "".join("   " if is_last else "│  " for is_last in last)
        branch = f"{above[:-3]}{'└─ ' if last[-1] else '├─ '}" if last else ""
        yield f"  {branch}{_described(nodes[key], edge)}{' (see above)' if key in seen else ''}"
        if key not in seen:
            seen.add(key)
            yield from (f"  {above}  {note}" for note in nodes[key].lines)
            below = children.get(key, ())
            steps = [(e.target, e, (*last, place == len(below) - 1)) for place, e in enumerate(below)]
            rows += reversed(steps)


def _roots(group: Group, children: Mapping[str, Sequence[Edge]]) -> list[str]:
    """Return the nodes without parents, and one node of each part that only has circles."""
    targets = {edge.target for edge in group.edges}
    roots: list[str] = []
    reached: set[str] = set()
    for node in (*(node for node in group.nodes if node.key not in targets), *group.nodes):
        if node.key in reached:
            continue
        roots.append(node.key)
        queue = [node.key]
        for key in queue:
            if key not in reached:
                reached.add(key)
                queue += (edge.target for edge in children.get(key, ()))
    return roots


def _described(node: GraphNode, edge: Edge | None) -> str:
    """Return a node in one line: its label, the requirement that it meets, and whether it is shared."""
    words = [f"[{edge.label}]"] if edge is not None and edge.label else []
    words += ["shared"] if node.shared else []
    words += ["unused"] if node.unused else []
    return " ".join([node.label, *words])


Labels = Mapping[tuple[str, str, str], str]
"""How people call what requests a package that a lock has, by cluster, namespace and name of its install."""


def dependency_graph(
    locks: LockUpdate, *, cluster: str = "", labels: Labels = MappingProxyType({})
) -> tuple[Group, ...]:
    """Return the dependencies of a fleet or of one cluster; clusters with equal locks are one group. Pure.

    A lock names packages of variants, not the variants: `labels` have their names.
    """
    clusters: dict[str, list[str]] = {}
    resolutions: dict[str, Resolution] = {}
    unavailable: dict[Instance, str] = {}
    for scope in locks.scopes:
        if scope.after is not None and cluster in ("", scope.cluster):
            clusters.setdefault(scope.after.lock.resolution, []).append(scope.cluster)
            resolutions[scope.after.lock.resolution] = scope.after.resolution
            unavailable.update(scope.unavailable)
    pairs = sorted((tuple(sorted(names)), digest) for digest, names in clusters.items())
    return tuple(_group(names, resolutions[digest], unavailable, labels) for names, digest in pairs)


def highlight(groups: Iterable[Group], package: str) -> tuple[Group, ...]:
    """Return the groups that have a package, of each only a path from a manifest to it.

    The package is named as `lock` prints it, with or without ecosystem and slot, or by its last segment, or
    by a kind that it owns.
    """
    highlighted = []
    for group in groups:
        matches = (node.key for node in group.nodes if package in node.names)
        paths = [find_path(group, key) or (key,) for key in matches]
        if paths:
            path = min(paths, key=len)
            nodes = {node.key: replace(node, owns=(), notes=()) for node in group.nodes}
            steps = {edge[:2]: edge for edge in reversed(group.edges) if edge[:2] in pairwise(path)}
            highlighted.append(Group(group.title, tuple(map(nodes.__getitem__, path)), tuple(steps.values())))
    return tuple(highlighted)


def node_names(groups: Iterable[Group]) -> set[str]:
    """Return every name by which `highlight` finds a package."""
    return {name for group in groups for node in group.nodes for name in node.names}


def _group(
    clusters: tuple[str, ...], resolution: Resolution, unavailable: Mapping[Instance, str], labels: Labels
) -> Group:
    owned, uncontrolled = _owned(resolution)
    others: dict[str, GraphNode] = {}
    edges = tuple(sorted(set(_edges(resolution, others, clusters, labels))))
    parents = Counter(edge.target for edge in edges)
    packages = [
        GraphNode(
            str(package.instance),
            f"{package.instance.name} {package.version}",
            notes=tuple(_notes(package, uncontrolled.pop(package.instance, ()), unavailable)),
            shared=parents[str(package.instance)] > 1,
            unused=package.instance in resolution.unused,
            owns=tuple(owned.get(package.instance, ())),
            package=package.instance.package,
        )
        for package in resolution.packages
    ]
    named = [node for _, node in sorted(others.items()) if node.is_root]
    outside = [node for _, node in sorted(others.items()) if not node.is_root]
    removed = [
        GraphNode(str(gone), f"{gone.name}, which is removed", notes=tuple(names), package=gone.package)
        for gone, names in sorted(uncontrolled.items(), key=lambda item: str(item[0]))
    ]
    return Group(", ".join(clusters), (*named, *packages, *outside, *removed), edges)


_THERE = "which is installed already"


def _edges(
    resolution: Resolution, others: dict[str, GraphNode], clusters: tuple[str, ...], labels: Labels
) -> Iterator[Edge]:
    """Yield the edges of a lock, and note the nodes at their ends that no lock pins."""
    for package in resolution.packages:
        key = str(package.instance)
        if package.by_user:
            label = _manifest(package, clusters, labels)
            manifest = GraphNode(f"manifest {label}", label, is_root=True)
            others[manifest.key] = manifest
            yield Edge(manifest.key, key)
        for dependency in package.dependencies:
            of_id = dependency.id if dependency.need != "package" else ""
            label = f"{of_id} {dependency.constraints}".strip()
            if dependency.resolved:
                yield Edge(key, str(dependency.resolved), label)
            elif target := dependency.detail:
                is_api = dependency.need == "api"
                where = "API that the cluster serves" if is_api else f"{dependency.installation}, {_THERE}"
                others[target] = GraphNode(target, where)
                yield Edge(key, target, label)


def _manifest(package: Resolved, clusters: tuple[str, ...], labels: Labels) -> str:
    """Return what requests a package, as people call it; the package where clusters of a group differ."""
    slot = package.instance.slot
    where = (slot.namespace, package.name or "/".join(slot.path))
    called = {labels.get((cluster, *where), "") for cluster in clusters}
    kind = "package" if package.kind == VARIANT_KIND else package.kind or str(package.dialect)
    return (len(called) == 1 and called.pop()) or f"{kind} {'/'.join(filter(None, where))}".rstrip()


def _notes(
    package: Resolved, uncontrolled: Iterable[str], unavailable: Mapping[Instance, str]
) -> Iterator[str]:
    """Yield what is special about a package."""
    yield from uncontrolled
    if package.unavailable:
        yield unavailable.get(package.instance, "is no longer published").removeprefix("is ")


def _owned(resolution: Resolution) -> tuple[dict[Instance, list[str]], dict[Instance, list[str]]]:
    """Return the kinds and compositions that each instance owns, and notes on those without a controller.

    What an object installs no more stays, as the object owns it; with the object it goes.
    """
    objects = {p.object: p.instance for p in resolution.packages if p.object}
    installed = {package.instance for package in resolution.packages}
    owned: dict[Instance, list[str]] = {}
    notes: dict[Instance, list[str]] = {}
    for resource, entry in resolution.ownership():
        owner = entry.package if entry.controller else objects.get(entry.object, entry.package)
        if owner is None:
            continue
        if entry.controller:
            owned.setdefault(owner, []).append(str(resource))
        else:
            fate = "stays without a controller" if owner in installed else "goes with it"
            fate = fate if entry.retained else "is not there yet"
            notes.setdefault(owner, []).append(f"{resource} {fate}")
    return owned, notes


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
    locked = scope.before.resolution.packages if scope.before is not None else ()
    is_locked = bool(locked)
    if not explanation.stalled:
        return f"no solution: {'the locked versions stay' if is_locked else 'nothing is locked'}"
    *installs, last = explanation.stalled
    names = {package.name for package in locked if package.by_user}
    is_locked = any(install.replace("/", " ").split()[-1] in names for install in explanation.stalled)
    if installs:
        both = f"{', '.join(installs)} and {last}"
        stays = "they keep what is locked for them" if is_locked else "nothing is locked for them"
        return f"{both} contradict one another: {stays}, the others proceed"
    verb = "is preempted" if explanation.code.is_ownership else "has no solution"
    stays = "it keeps what is locked for it" if is_locked else "nothing is locked for it"
    return f"{last} {verb}: {stays}, the others proceed"


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
            yield move.line
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
