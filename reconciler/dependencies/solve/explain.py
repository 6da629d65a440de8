"""Explain an unsatisfiable problem in sentences: the conflicting facts, their places, and hints."""

from collections.abc import Callable, Iterable, Iterator

from reconciler.dependencies.model.cluster import ClusterInputs, ClusterState, Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    InterfaceNeed,
    Need,
    PackageNeed,
    Platform,
)
from reconciler.dependencies.solve.problem import (
    Cause,
    CauseKind,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
    Unsatisfiable,
)
from reconciler.dependencies.solve.solution import Explanation, Rejection
from reconciler.dependencies.versions import lint_constraint
from reconciler.dependencies.versions.lint import only_prereleases, only_with_build
from reconciler.errors import Location

_MOST_VERSIONS = 3


_MOST_FACTS = 24


_CODES = {
    CauseKind.CYCLE: "E-CYCLE",
    CauseKind.OWNER: "E-OWN-CRD",
    CauseKind.HELD: "E-OWN-CRD",
    CauseKind.ONCE: "E-CARD-CLUSTER",
    CauseKind.FOREIGN: "E-FOREIGN",
    CauseKind.PLATFORM: "E-PLATFORM",
}


def explain(inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable) -> Explanation:
    """Explain a conflict in sentences, with places, rejected versions and hints.

    Order-free: causes are sorted from the user's installs downwards.
    """
    explainer = _Explainer(inputs, problem, conflict.causes)
    ranked = sorted(conflict.causes, key=explainer.rank)
    ordered = ranked[:_MOST_FACTS]
    more = len(ranked) - len(ordered)
    return Explanation(
        code=explainer.code(),
        sentences=(
            *(explainer.sentence(cause) for cause in ordered),
            *([f"{more} more facts take part in this"] if more else []),
        ),
        places=tuple(dict.fromkeys(place for cause in ordered for place in explainer.places(cause))),
        paths=tuple(
            dict.fromkeys(explainer.path(d.parent) for d in explainer.requirements.values() if d.parent)
        ),
        rejected=tuple(explainer.rejected()),
        hints=suggest_fixes(inputs, problem, conflict.causes),
        minimal=conflict.minimal,
    )


class _Explainer:
    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem, causes: tuple[Cause, ...]) -> None:
        self.inputs = inputs
        self.problem = problem
        self.causes = causes
        named = frozenset(causes)
        self.requirements = {d.cause: d for d in problem.requirements() if d.cause in named}
        self.depths = _depths(problem)

    def rank(self, cause: Cause) -> tuple[int, int, Cause]:
        kinds = list(CauseKind)
        demand = self.requirements.get(cause)
        depth = 0 if demand is None or demand.parent is None else self.depths.get(demand.parent, 0)
        return (kinds.index(cause.kind), depth, cause)

    def code(self) -> str:
        kinds = {cause.kind for cause in self.causes}
        if any(cause.kind is CauseKind.ONCE and cause.detail == "namespace" for cause in self.causes):
            return "E-CARD-NS"
        if any(cause.kind is CauseKind.OWNER and self._is_composition(cause) for cause in self.causes):
            return "E-OWN-COMPOSITION"
        return next((code for kind, code in _CODES.items() if kind in kinds), "") or self._code_of_needs()

    def _code_of_needs(self) -> str:
        unmet = [demand for demand in self.requirements.values() if not demand.alternatives]
        needs = [need for demand in unmet for need in demand.requirement.alternatives]
        if any(self._is_bound(demand) for demand in unmet):
            return "E-BIND"
        if any(isinstance(need, InterfaceNeed) for need in needs):
            return "E-INTERFACE"
        if any(isinstance(need, ApiNeed) for need in needs):
            return "E-API"
        return "E-NOCANDIDATE" if any(True for _ in self._unknown()) else "E-VERSION"

    def _is_composition(self, cause: Cause) -> bool:
        candidates = (c for node in self.problem.nodes.values() for c in node.candidates)
        return any(cause.subject in candidate.compositions for candidate in candidates)

    def _is_bound(self, demand: InstanceRequirement) -> bool:
        install = None if demand.parent is None else self.inputs.install_of(demand.parent)
        return install is not None and demand.requirement.alias in dict(install.bindings)

    def _unknown(self) -> Iterator[InstanceNode]:
        targets = {
            w.instance for d in self.requirements.values() for w in d.alternatives if w.instance is not None
        }
        return (self.problem.nodes[i] for i in targets if not self.problem.nodes[i].candidates)

    def sentence(self, cause: Cause) -> str:
        demand = self.requirements.get(cause)
        if demand is not None:
            return self._asked(cause, demand)
        name = _name(cause.subject)
        sentences: dict[CauseKind, Callable[[], str]] = {
            CauseKind.PLATFORM: lambda: self._platform(cause),
            CauseKind.WITHDRAWN: lambda: f"{name} {cause.detail} is withdrawn{self._withdrawal(cause)}",
            CauseKind.DOWNGRADE: lambda: f"{name} is locked at {cause.detail} and may not go below that",
            CauseKind.POLICY: lambda: f"The version policy of {name} is {cause.detail}",
            CauseKind.FOREIGN: lambda: (
                f"{name} is there already, as {cause.detail.strip('/')}, and is not ours"
            ),
            CauseKind.OWNER: lambda: (
                f"Only one package may own {cause.subject}: {self._owners(cause)} bring it"
            ),
            CauseKind.HELD: lambda: f"{name} brings {cause.detail}, which keeps it",
            CauseKind.ONCE: lambda: f"{name} may not stand twice in a {cause.detail}: {self._twice(cause)}",
        }
        circle = "Packages that need one another in a circle have no order of installation"
        return sentences.get(cause.kind, lambda: circle)()

    def _asked(self, cause: Cause, demand: InstanceRequirement) -> str:
        places = " ".join(f"({place})" for place in self.places(cause))
        if demand.parent is None:
            text = f"{cause.subject} asks for {demand.requirement} {places}".rstrip()
        else:
            verb = "would like" if demand.optional else "requires"
            text = f"{self._versions(demand)} {verb} {demand.requirement} {places}".rstrip()
            text += f", and is needed by {self.path(demand.parent)}"
        unmet = self._unmet(demand)
        return f"{text}; {unmet}" if unmet else text

    def _unmet(self, demand: InstanceRequirement) -> str:
        if any(w.instance is None for w in demand.alternatives):
            return ""
        nodes = [self.problem.nodes[w.instance] for w in demand.alternatives if w.instance]
        if not demand.alternatives:
            install = demand.requirement.install
            return "nothing meets it" if install else "nothing there meets it, and nothing may be installed"
        if all(not node.candidates for node in nodes):
            return f"no version of {nodes[0].instance.package.name} is published"
        if all(not alternative.allowed for alternative in demand.alternatives):
            return f"no version of {nodes[0].instance.package.name} fits"
        if all(not alternative.active for alternative in demand.alternatives):
            return "it may be met only by what is installed for other reasons"
        return ""

    def _versions(self, demand: InstanceRequirement) -> str:
        if demand.parent is None:
            return demand.cause.subject
        node = self.problem.nodes[demand.parent]
        having = [
            c for c, ds in zip(node.candidates, node.requirements, strict=True) if _contains(ds, demand.cause)
        ]
        name = demand.parent.package.name
        if len(having) == len(node.candidates) > 1:
            return f"Every version of {name}"
        texts = [str(candidate.version) for candidate in having]
        if len(texts) > _MOST_VERSIONS:
            texts = [*texts[:_MOST_VERSIONS], f"{len(texts) - _MOST_VERSIONS} more"]
        return f"{name} {', '.join(texts)}"

    def places(self, cause: Cause) -> list[Location]:
        locations: dict[Location, None] = {}
        for demand in self._all(cause):
            locations[demand.requirement.location] = None
        if cause.kind in (CauseKind.PLATFORM, CauseKind.OWNER, CauseKind.HELD, CauseKind.WITHDRAWN):
            for node in self.problem.nodes.values():
                for place, candidate in enumerate(node.candidates):
                    if cause in node.banned.get(place, ()) or cause.subject in _owned_names(
                        candidate.provides
                    ):
                        locations[candidate.location] = None
        return sorted(place for place in locations if place.path)[:_MOST_VERSIONS]

    def _all(self, cause: Cause) -> Iterator[InstanceRequirement]:
        yield from (demand for demand in self.problem.roots if demand.cause == cause)
        for node in self.problem.nodes.values():
            for group in node.requirements:
                yield from (demand for demand in group if demand.cause == cause)

    def _platform(self, cause: Cause) -> str:
        platforms = {str(name): version for name, version in self.inputs.presence.platforms}
        platform = cause.detail.split()[0]
        texts = [
            str(node.candidates[place].version)
            for node in self.problem.nodes.values()
            for place, causes in node.banned.items()
            if cause in causes
        ]
        needed = f"{_name(cause.subject)} {', '.join(texts[:_MOST_VERSIONS])} needs {cause.detail}"
        return f"{needed}, and this cluster has {Platform(platform)} {platforms.get(platform)}"

    def _withdrawal(self, cause: Cause) -> str:
        for node in self.problem.nodes.values():
            for place in node.banned:
                candidate = node.candidates[place]
                if cause in node.banned[place] and candidate.withdrawn not in ("", "true"):
                    return f": {candidate.withdrawn}"
        return ""

    def _owners(self, cause: Cause) -> str:
        names = {
            str(candidate)
            for node in self.problem.nodes.values()
            for candidate in node.candidates
            if cause.subject in (*_owned_names(candidate.provides), *candidate.compositions)
        }
        return ", ".join(sorted(names))

    def _twice(self, cause: Cause) -> str:
        where = [self.path(i) for i in self.problem.nodes if str(i.package) == cause.subject]
        return " and ".join(sorted(where))

    def path(self, instance: Instance) -> str:
        """Return the path from the user's manifest to an instance, as text."""
        trail = [instance]
        while trail[0] not in self._roots():
            earlier = self._parent(trail[0], trail)
            if earlier is None:
                break
            trail.insert(0, earlier)
        root = self._roots().get(trail[0])
        names = [step.package.name for step in trail]
        return " → ".join([root.cause.subject, *names] if root else names)

    def _roots(self) -> dict[Instance, InstanceRequirement]:
        return {
            alternative.instance: d
            for d in self.problem.roots
            for alternative in d.alternatives
            if alternative.instance
        }

    def _parent(self, instance: Instance, trail: Iterable[Instance]) -> Instance | None:
        parents = [
            demand.parent
            for demand in (*self.requirements.values(), *self.problem.requirements())
            if demand.parent is not None
            and demand.parent not in trail
            and any(
                alternative.instance == instance and alternative.active for alternative in demand.alternatives
            )
        ]
        return min(parents, key=lambda p: (self.depths.get(p, 0), p), default=None)

    def rejected(self) -> Iterator[tuple[str, tuple[Rejection, ...]]]:
        """Yield the rejected versions of each package in the conflict, with reasons."""
        targets = {
            w.instance for d in self.requirements.values() for w in d.alternatives if w.instance is not None
        }
        for instance in sorted(targets):
            node = self.problem.nodes[instance]
            against = [self._against(node, place) for place in range(len(node.candidates))]
            rejections = tuple(
                Rejection(str(candidate.version), tuple(reasons))
                for candidate, reasons in zip(node.candidates, against, strict=True)
                if reasons
            )
            if rejections:
                yield instance.package.name, rejections

    def _against(self, node: InstanceNode, place: int) -> list[str]:
        reasons = []
        for cause, demand in self.requirements.items():
            ways = [
                alternative for alternative in demand.alternatives if alternative.instance == node.instance
            ]
            if ways and not any(place in alternative.allowed for alternative in ways):
                asker = cause.subject if demand.parent is None else demand.parent.package.name
                reasons.append(f"{asker} asks for {demand.requirement}")
        reasons += [self.sentence(cause) for cause in node.banned.get(place, ()) if cause in self.causes]
        for demand in node.requirements[place]:
            if demand.cause in self.causes:
                reasons.append(f"requires {demand.requirement}")
        return reasons


def _contains(demands: tuple[InstanceRequirement, ...], cause: Cause) -> bool:
    return any(demand.cause == cause for demand in demands)


def _owned_names(provides: Iterable[object]) -> list[str]:
    return [str(getattr(gvk, "group_kind", gvk)) for gvk in provides]


def _name(subject: str) -> str:
    return subject.partition(":")[2].partition("@")[0]


def _depths(problem: ResolutionProblem) -> dict[Instance, int]:
    depths: dict[Instance, int] = {}
    queue = [
        (alternative.instance, 0)
        for d in problem.roots
        for alternative in d.alternatives
        if alternative.instance
    ]
    for instance, depth in queue:
        if instance in depths:
            continue
        depths[instance] = depth
        for group in problem.nodes[instance].requirements:
            for demand in group:
                queue.extend((w.instance, depth + 1) for w in demand.alternatives if w.instance and w.active)
    return depths


_HINTS = {
    CauseKind.DOWNGRADE: (
        "Consent with packaging.carvel.dev/downgradable on the PackageInstall or `allowDowngrade` in "
        "reconciler.yaml, or take the package out of the lock with `lock --upgrade {name}`"
    ),
    CauseKind.WITHDRAWN: "Ask for another version of {name}",
    CauseKind.POLICY: "Change the version policy of {name}, or name a version",
    CauseKind.FOREIGN: "Declare what is there in a manifest, so that it is adopted, or remove it",
    CauseKind.OWNER: "Remove one of the two packages, or ask for a version without {name}",
    CauseKind.HELD: (
        "Remove {holder} or ask for a version of it without that, and annotate {name} with "
        "reconciler.dev/take-over: {holder}"
    ),
    CauseKind.ONCE: "Remove one of the two manifests, or let both use the one that is there",
    CauseKind.CYCLE: "Ask for a version of one of them that does not need the others",
    CauseKind.PLATFORM: "Upgrade the cluster, or ask for a version that supports it",
}


_NO_SNAPSHOT = (
    "Nothing is known of what cluster CLUSTER serves: import its snapshot with "
    "`reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
)
"""Names no cluster, because a result can be shared between clusters; see `name_cluster`."""


def name_cluster(hint: str, cluster: str) -> str:
    """Return a hint with the name of the cluster that it is for."""
    return hint.replace(_NO_SNAPSHOT, _NO_SNAPSHOT.replace("CLUSTER", cluster))


def suggest_fixes(
    inputs: ClusterInputs, problem: ResolutionProblem, causes: tuple[Cause, ...]
) -> tuple[str, ...]:
    """Return hints, most specific first, each once."""
    named = frozenset(causes)
    demands = [demand for demand in problem.requirements() if demand.cause in named]
    suggestions: dict[str, None] = {}
    for demand in demands:
        suggestions.update(dict.fromkeys(_about_demand(inputs, demand)))
    for cause in causes:
        if cause.kind in _HINTS:
            name = cause.subject.partition(":")[2].partition("@")[0] or cause.subject
            holder = cause.detail.rpartition(" of ")[2]
            suggestions[_HINTS[cause.kind].format(name=name, holder=holder)] = None
    if not suggestions and len(demands) > 1:
        ranges = sorted({str(n) for d in demands for n in d.requirement.alternatives if _is_narrow(n)})
        suggestions[f"Relax one of these: {', '.join(ranges)}"] = None
    return tuple(suggestions)


def _is_narrow(need: Need) -> bool:
    return isinstance(need, PackageNeed) and bool(need.range.text)


def _about_demand(inputs: ClusterInputs, demand: InstanceRequirement) -> Iterator[str]:
    install = None if demand.parent is None else inputs.install_of(demand.parent)
    if install is not None and not demand.alternatives:
        bound = dict(install.bindings).get(demand.requirement.alias)
        if bound is not None:
            yield f"The binding {demand.requirement.alias}={bound} names nothing that fits; check its name"
            return
    for need in demand.requirement.alternatives:
        yield from _about_need(inputs, need, demand)
    creates = any(alternative.active for alternative in demand.alternatives)
    if not demand.requirement.install and not creates:
        yield f"Install {demand.requirement} yourself, or let it be installed with `install: true`"


def _about_need(inputs: ClusterInputs, need: Need, demand: InstanceRequirement) -> Iterator[str]:
    match need:
        case PackageNeed():
            yield from _about_package(inputs, need)
        case ApiNeed():
            makers = sorted({c.id.name for c in _all(inputs) if any(g == need.gvk for g in c.provides)})
            if makers and demand.requirement.install:
                yield f"{', '.join(makers)} would bring {need.gvk}: require it, or turn discovery on"
            elif not makers:
                kin = sorted(
                    {str(g) for c in _all(inputs) for g in c.provides if g.group_kind == need.gvk.group_kind}
                )
                kin += sorted(str(g) for g in inputs.presence.apis if g.group_kind == need.gvk.group_kind)
                if not kin and inputs.presence == ClusterState():
                    yield _NO_SNAPSHOT
                yield f"There is {', '.join(kin)}" if kin else f"No known package brings {need.gvk}"
        case InterfaceNeed():
            makers = sorted({c.id.name for c in _all(inputs) if any(i.id == need.id for i in c.interfaces)})
            if not makers:
                yield f"No known package implements {need.id}"
            else:
                yield (
                    f"Set a default for {need.id} with `index set-default`, or bind an installation; "
                    f"known: {', '.join(makers)}"
                )


def _about_package(inputs: ClusterInputs, need: PackageNeed) -> Iterator[str]:
    candidates = inputs.catalogue.candidates(inputs.catalogue.find(need.id))
    if not candidates:
        near = sorted(id_.name for id_ in inputs.catalogue.packages if _is_near(id_.name, need.id.name))
        similar = f"; similar names: {', '.join(near)}" if near else ""
        yield f"Add {need.id.name} to the index, or correct its name{similar}"
        return
    constraint = need.range.constraint
    if constraint is None or any(need.range.allows(c.version, c.digest) for c in candidates):
        return
    versions = [candidate.version for candidate in candidates]
    yield from lint_constraint(constraint)
    selection = need.range.selection
    if selection is None and only_prereleases(constraint, versions):
        yield f"Only pre-releases match {need.range}; add -0 to its versions to admit them"
    elif selection is not None and any(v.prerelease and constraint.allows(v) for v in versions):
        yield f"Only pre-releases match {need.range}; admit them with `prereleases: {{}}`"
    builds = only_with_build(constraint, versions)
    if builds:
        yield f"Build metadata counts here; write {' or '.join(str(v) for v in builds)} in full"
    yield f"Published are {_version_span(candidates)}"


def _version_span(candidates: tuple[Candidate, ...]) -> str:
    texts = [str(candidate.version) for candidate in candidates]
    return ", ".join(texts if len(texts) <= 5 else [*texts[:2], "…", *texts[-2:]])  # noqa: PLR2004 - two at each end


def _is_near(name: str, other: str) -> bool:
    tails = name.rpartition("/")[2], other.rpartition("/")[2]
    return tails[0] == tails[1] or name.partition(".")[0] == other.partition(".")[0]


def _all(inputs: ClusterInputs) -> Iterator[Candidate]:
    return (candidate for candidates in inputs.catalogue.packages.values() for candidate in candidates)
