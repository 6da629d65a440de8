"""Explain an unsatisfiable problem: the chain of facts in sentences, with one next step for each code."""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.text import plural, verb
from reconciler.base.values import grouped, reachable
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Platform,
)
from reconciler.dependencies.solve.alternatives import lacks, qualified
from reconciler.dependencies.solve.problem import (
    Cause,
    CauseKind,
    ConflictCode,
    Explanation,
    InstanceNode,
    InstanceRequirement,
    Rejection,
    ResolutionProblem,
    Unsatisfiable,
    within_reach,
)
from reconciler.dependencies.solve.sat import contradiction
from reconciler.dependencies.versions import Version, lint_constraint, only_prereleases, only_with_build

NEXT_STEPS = {
    ConflictCode.CYCLE: "Name versions that do not need one another, or remove one of these manifests",
    ConflictCode.OWN_CRD: (
        "Remove all but one of these manifests, or name versions of which one alone brings it"
    ),
    ConflictCode.OWN_COMPOSITION: (
        "Remove all of these manifests but one, or name a version without the composition"
    ),
    ConflictCode.CARD_CLUSTER: "Remove all of these manifests but one",
    ConflictCode.CARD_NAMESPACE: "Remove all of these manifests but one in each namespace",
    ConflictCode.FOREIGN: (
        "Write a manifest for {name} with the name that it has in the cluster: then it is yours"
    ),
    ConflictCode.PLATFORM: (
        "Name a version that runs on this cluster; or upgrade the cluster, and import its snapshot with"
        " `reconciler snapshot import --cluster CLUSTER --platform {name}=VERSION`; the annotation"
        ' `packaging.carvel.dev/ignore-{name}-version-selection: ""` of its PackageInstall passes over it'
    ),
    ConflictCode.CROSSPLANE: (
        "Name a version that runs on this Crossplane; or write `ignoreCrossplaneConstraints: true` below"
        " `spec` of the manifest that installs {name}, one of your own if it is generated; or upgrade"
        " Crossplane, and import the snapshot with"
        " `reconciler snapshot import --cluster CLUSTER --platform crossplane=VERSION`"
    ),
    ConflictCode.BIND: (
        "Correct `reconciler.dev/dependencies` in `custom` of the Installation: name a dependency"
        " of its bundle, and an installation of what that needs"
    ),
    ConflictCode.INTERFACE: (
        "Choose what implements it: `reconciler index set-default {name} ECOSYSTEM:NAME`,"
        " with `--cluster CLUSTER` where that cluster has a default of its own"
    ),
    ConflictCode.API: (
        "Write a manifest that installs a package which brings it. If the cluster serves it, import its"
        " snapshot with `reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
    ),
    ConflictCode.DECLINED: (
        "Write a manifest that installs {name}, or let it be installed: remove `install: false`"
    ),
    ConflictCode.INVALID: (
        "Correct the manifest of {name} at the place above, or name a version that is valid"
    ),
    ConflictCode.NO_CANDIDATE: (
        "Add {name} to the index, with {ways}; `reconciler index missing` lists all that is missing"
    ),
    ConflictCode.NO_VERSION: (
        "Add a version of {name} that fits to the index, with {ways};"
        " or name another range of it in a manifest of yours"
    ),
    ConflictCode.DIGEST: (
        "A digest names one content of {name}: ask for it by that digest or by its version everywhere;"
        " `reconciler index sync --all` brings versions with their digests"
    ),
    ConflictCode.PRERELEASE: (
        "Ask for a release of {name}; or let pre-releases in where the range is written: with `-0` after its"
        " version, for a PackageInstall with `prereleases: {{}}` below `versionSelection`"
    ),
    ConflictCode.UNPUBLISHED: "Publish {name} with a package.yaml, in a version that is asked for",
    ConflictCode.DOWNGRADE: (
        "Name the version in a manifest of your own for {name}{form}; for the whole fleet,"
        " `allowDowngrade: true` below `dependencies` in reconciler.yaml"
    ),
    ConflictCode.SELECTION: (
        "Name a version within that policy, or change the policy: `select` below `dependencies` in"
        " reconciler.yaml, `reconciler.dev/version-strategy` in `custom` of an Installation"
    ),
    ConflictCode.STORED: (
        "Name a version of {name} that has the stored version still; or store the objects in a newer one,"
        " take the old one out of `status.storedVersions` of the definition, and import the snapshot with"
        " `reconciler snapshot import`"
    ),
    ConflictCode.WITHDRAWN: "Name a version that is not withdrawn, or remove its `withdrawn` in the index",
    ConflictCode.VERSION: ("Name another version or range in one of these manifests{form}"),
}
"""A sentence for each code. It holds for every conflict of that code."""

OVERRIDDEN = "; a PackageInstall has `override` below `spec.dependencies` for what its package needs"
DOWNGRADABLE = ', a PackageInstall with the annotation `packaging.carvel.dev/downgradable: ""`'
NAMED = ", with the name {name} that it has in the cluster"
BOUND = (
    ", and bind it: `reconciler.dev/dependencies: {{{alias}: NAMESPACE/NAME}}` below `custom` of the"
    " Installation that needs it"
)
"""Further words for the manifest that takes the place of a generated one, by ecosystem."""


class NextStep:
    """The next step after one conflict of a problem. Deterministic."""

    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem, causes: tuple[Cause, ...]) -> None:
        self.inputs = inputs
        self.problem = within_reach(problem)
        self.causes = causes
        self.installs = {str(install): install for install in inputs.installs}

    def after(self, code: ConflictCode, subject: PackageId | str) -> str:
        """Return the step: what takes over or moves along where a kind is held, else that of the code.

        `subject` is the package, interface or API that is missing or there already; "" for none.
        """
        if code.is_ownership and (text := next(self._of_owners(), "")):
            return text
        if code is ConflictCode.VERSION and (text := next(self._move_together(), "")):
            return text
        if not isinstance(subject, PackageId):
            asking = (self.installs[str(c.subject)] for c in self.causes if str(c.subject) in self.installs)
            is_carvel = any(install.dialect is Dialect.CARVEL for install in asking)
            return NEXT_STEPS[code].format(name=subject, form=OVERRIDDEN * is_carvel)
        if code is ConflictCode.DOWNGRADE:
            return NEXT_STEPS[code].format(name=subject.name, form=self._form(subject))
        is_xpkg = subject.ecosystem is Ecosystem.XPKG
        prefix, suffix = ("", " --manifest crossplane.yaml") if is_xpkg else (f"{subject.ecosystem}:", "")
        command = f"`reconciler index add {prefix}{subject.name} VERSION{suffix}`"
        ways = f"`reconciler index sync` or {command}"
        if not is_xpkg and "/" not in subject.name:  # no registry has it by its name
            ways = f"`reconciler index import PATH` or {command}"
        if subject.ecosystem is Ecosystem.CARVEL:
            ways += ", or with `reconciler index sync` if a PackageRepository among the manifests has it"
        return NEXT_STEPS[code].format(name=subject.name, ways=ways)

    def _form(self, package: PackageId) -> str:
        """Return what a manifest needs to take the place of the generated one of a package."""
        pins = (pin for pin in self.inputs.pins if pin.instance.package == package and not pin.by_user)
        pin = next(pins, None)
        if pin is not None and package.ecosystem is Ecosystem.BUNDLE:
            return BOUND.format(alias=pin.instance.slot.alias)
        if pin is not None and pin.name and package.ecosystem is Ecosystem.XPKG:
            return NAMED.format(name=pin.name)
        return DOWNGRADABLE if package.ecosystem is Ecosystem.CARVEL else ""

    # Packages that move together

    def _move_together(self) -> Iterator[str]:
        """Yield the move of all manifests that keep the version back which another one needs."""
        demands = {demand.cause: demand for demand in self.problem.requirements()}
        for demand in (demands[cause] for cause in self.causes if cause.kind is CauseKind.REQUIRES):
            way = demand.alternatives[0] if len(demand.alternatives) == 1 else None
            if way is None or way.instance is None or not way.allowed:
                continue
            needed = self.problem.nodes[way.instance].candidates[max(way.allowed)]
            movers = list[Install]()
            for install in self.inputs.installs:
                instance = self.inputs.instance_of(install)
                range_, versions = install.need.range, self.inputs.published(instance)
                admitted = [c for c in versions if range_.allows(c.version, c.digest)]
                if any(self._goes_with(candidate, needed) for candidate in admitted):
                    continue
                movers.append(install)
                same = (c for c in versions if c.version == needed.version)
                if not any(self._goes_with(candidate, needed) for candidate in same):
                    return
            if len(movers) > 1:
                listed = " and ".join(f"{install} ({install.need.location})" for install in movers)
                yield f"Write {needed.version} at {listed}, which move together"

    def _goes_with(self, candidate: Candidate, other: Candidate) -> bool:
        """Tell whether a version is another one of its package, or needs none of the others of it."""
        if candidate.id == other.id:
            return candidate == other
        needs = [r.alternatives[0] for r in candidate.requires if len(r.alternatives) == 1]
        named = [n for n in needs if isinstance(n, PackageNeed)]
        ours = [need for need in named if self.inputs.catalogue.find(need.id) == other.id]
        return all(need.range.allows(other.version, other.digest) for need in ours)

    # Kinds that another package has

    def _of_owners(self) -> Iterator[str]:
        for cause in self.causes:
            if cause.kind is CauseKind.HELD and cause.owner is not None:
                yield from self._take_over(cause.subject, cause.owner)
            elif cause.kind is CauseKind.OWNER:
                yield from self._move_along(cause)

    def _take_over(self, package: object, owner: PackageId) -> Iterator[str]:
        """Yield consent to take over all that the manifest brings of what others have.

        If other manifests bring the owners still, they have to go or to move along.
        """
        takers = self._installs_of(package) or self._leading_to(package)
        if owner.ecosystem is not Ecosystem.XPKG:
            yield f"Remove what needs {owner.name}, if anything does, and run `reconciler lock --prune`"
            return
        if not takers:
            return
        taker = takers[0]
        # What keeps versions within reach from what another package has
        bans = (node.banned.get(p, ()) for node in self.problem.nodes.values() for p in node.order)
        holds = (cause for causes in bans for cause in causes if cause.kind is CauseKind.HELD)
        held = [cause for cause in holds if taker in self._leading_to(cause.subject)]
        owners = sorted({cause.owner for cause in held if cause.owner is not None} | {owner})
        consents = sorted({owner.name for owner in owners} | set(taker.revisions.take_over))
        names = {cause.resource for cause in held}
        still = [package for package in owners if self._brings_still(package, names)]
        removed = {i: None for former in still for i in self._installs_of(former) if i != taker}
        moved = self._along(still, {taker, *removed})
        text = f"Write `reconciler.dev/take-over: {', '.join(consents)}` into the annotations of {taker}"
        text += f" ({taker.location})"
        text += "".join(f", and remove {install} ({install.location})" for install in removed)
        yield text + "".join(f", and move {install} ({install.location}) along" for install in moved)

    def _move_along(self, cause: Cause) -> Iterator[str]:
        """Yield the move of the manifests that need the owner still, where another one may take over."""
        owner = dict(self.inputs.held).get(str(cause.subject))
        consented = {name for install in self.inputs.installs for name in install.revisions.take_over}
        if owner is not None and owner.name in consented:
            moved = self._along([owner], ())
            listed = " and ".join(f"{install} ({install.location})" for install in moved)
            if listed:
                yield f"Move {listed} along, or remove what needs {owner.name}"

    def _brings_still(self, package: PackageId, names: set[str]) -> bool:
        """Tell whether every version of a package that is within reach brings one of these things."""
        nodes = (node for node in self.problem.nodes.values() if node.instance.package == package)
        versions = [node.candidates[place] for node in nodes for place in node.order]
        return bool(versions) and not any(names.isdisjoint(version.owned_names) for version in versions)

    def _along(self, owners: Iterable[PackageId], others: Container[Install]) -> list[Install]:
        """Return the further installs that need packages from which something is taken over."""
        leading = (install for owner in owners for install in self._leading_to(owner))
        return [install for install in dict.fromkeys(leading) if install not in others]

    def _installs_of(self, package: object) -> list[Install]:
        installs = self.inputs.installs
        return [install for install in installs if self.inputs.instance_of(install).package == package]

    def _leading_to(self, package: object) -> list[Install]:
        """Return the installs that may need a package, or install it."""

        def needed(instance: Instance) -> Iterator[Instance]:
            groups = self.problem.nodes[instance].requirements
            return (target for group in groups for demand in group for target in _targets(demand))

        below = ((demand, reachable(_targets(demand), needed)) for demand in self.problem.roots)
        leading = (demand for demand, instances in below if any(i.package == package for i in instances))
        return [self.installs[str(demand.cause.subject)] for demand in leading]


_MOST_NAMES = 3
"""Versions, places or packages that one sentence names; more of them are counted."""

_MOST_SENTENCES = 14
"""Sentences of one explanation: with rejected versions and a hint it fits on a screen of 24 lines."""

_SKIP_STEPS = 100
"""Questions to the solver about one skipped requirement: a solution may skip many."""

_FIRST_SENTENCES = 7
"""Sentences at the beginning of a chain that stay when its middle is left out."""

_CODES = {
    CauseKind.CYCLE: ConflictCode.CYCLE,
    CauseKind.OWNER: ConflictCode.OWN_CRD,
    CauseKind.HELD: ConflictCode.OWN_CRD,
    CauseKind.ONCE: ConflictCode.CARD_CLUSTER,
    CauseKind.FOREIGN: ConflictCode.FOREIGN,
    CauseKind.PLATFORM: ConflictCode.PLATFORM,
    CauseKind.ALIAS: ConflictCode.BIND,
}

_RULES = {
    CauseKind.DOWNGRADE: ConflictCode.DOWNGRADE,
    CauseKind.POLICY: ConflictCode.SELECTION,
    CauseKind.WITHDRAWN: ConflictCode.WITHDRAWN,
    CauseKind.STORED: ConflictCode.STORED,
}
"""Codes of rules without which the ranges have a version."""

_OF_RANGES = {ConflictCode.NO_VERSION, ConflictCode.VERSION, ConflictCode.DOWNGRADE}
"""Codes that a digest or a pre-release may be behind."""

_PLACED = {CauseKind.PLATFORM, CauseKind.WITHDRAWN, CauseKind.STORED, CauseKind.OWNER}
_OF_VERSIONS = _PLACED | {CauseKind.ALIAS}
"""Causes that are about versions of a package; most are written where these are."""


_PLAIN_FACTS = {
    CauseKind.REQUESTED: "{subject} asks for {what}",
    CauseKind.DOWNGRADE: "{name} is locked at {what} and may not go below that",
    CauseKind.POLICY: "The version policy of {name} is {what}",
    CauseKind.FOREIGN: "{name} is there already, as {what}, and is not ours",
    CauseKind.CYCLE: "Packages that need one another in a circle have no order of installation",
}


def explain(inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable) -> Explanation:
    """Explain a conflict: a chain of sentences from the users' installs down, with places and the next step.

    Order-free.
    """
    explainer = _Explainer(inputs, problem, conflict.causes)
    chain = explainer.chain()
    code, subject = explainer.verdict()
    return Explanation(
        code=code,
        sentences=tuple(explainer.sentences(chain)),
        places=tuple(dict.fromkeys(place for group in chain for place in explainer.places(group))),
        rejected=explainer.rejected(chain),
        hint=NextStep(inputs, problem, conflict.causes).after(code, subject),
        minimal=conflict.minimal,
    )


def explain_skipped(inputs: ClusterInputs, problem: ResolutionProblem, demand: InstanceRequirement) -> str:
    """Return why nothing meets an optional requirement: by itself, or what it contradicts."""
    if unmet := _Explainer(inputs, problem, (demand.cause,)).unmet(demand):
        return unmet

    # What would contradict it if it had to be met
    def required(other: InstanceRequirement) -> InstanceRequirement:
        if other.cause != demand.cause:
            return other
        return replace(other, requirement=replace(other.requirement, optional=False))

    nodes = {
        instance: replace(
            node, requirements=tuple(tuple(required(d) for d in group) for group in node.requirements)
        )
        for instance, node in problem.nodes.items()
    }
    strict = replace(problem, nodes=nodes, explain_steps=min(problem.explain_steps, _SKIP_STEPS))
    # A lock says it, and equal clusters have equal ones, whatever their variants are called.
    names = {str(i): f"package {i.namespace}/{i.name}" for i in inputs.installs if i.label}
    explainer = _Explainer(inputs, problem, contradiction(strict)[0].causes, names)
    leading = explainer.paths_to(demand) | {demand.cause}
    facts = [explainer.fact(c) for group in explainer.chain() for c in group if c not in leading]
    return _listing(facts) or "it contradicts other requirements"


Group = tuple[Cause, ...]
"""Causes that one sentence tells: equal requirements of several versions of a package, or a single cause."""


class _Explainer:
    def __init__(
        self,
        inputs: ClusterInputs,
        problem: ResolutionProblem,
        causes: tuple[Cause, ...],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.names = names
        self.inputs = inputs
        self.problem = problem
        self.causes = causes
        named = frozenset(causes)
        self.requirements = {d.cause: d for d in problem.requirements() if d.cause in named}
        self.depths = _depths(problem)
        self.by_parent = grouped((demand.parent, demand) for demand in self.requirements.values())

    # The order of the causes

    def chain(self) -> list[Group]:
        """Return the causes in the order of a chain: each install, what it needs, and what contradicts it."""
        walks = [self._walk(root) for root in self.by_parent.get(None, ())]
        ordered: dict[Cause, None] = {}
        for walk in sorted(walks, key=lambda walk: -len(walk)):
            ordered.update(dict.fromkeys(walk))
        rest = [cause for cause in self.causes if cause not in ordered]
        ordered.update(dict.fromkeys(sorted(rest, key=self._rank)))
        return [tuple(group) for group in grouped((self._group_key(c), c) for c in ordered).values()]

    def _walk(self, root: InstanceRequirement) -> list[Cause]:
        ordered: dict[Cause, None] = {}
        stack = [root]
        while stack:
            demand = stack.pop()
            if demand.cause not in ordered:
                ordered[demand.cause] = None
                for target in reversed(_targets(demand)):
                    stack.extend(reversed(self.by_parent.get(target, ())))
        return list(ordered)

    def _rank(self, cause: Cause) -> tuple[int, int, Cause]:
        demand = self.requirements.get(cause)
        depth = 0 if demand is None or demand.parent is None else self.depths.get(demand.parent, 0)
        return (list(CauseKind).index(cause.kind), depth, cause)

    def _group_key(self, cause: Cause) -> Hashable:
        """Return what requirements of several versions for the same package have in common."""
        demand = self.requirements.get(cause)
        if demand is None or demand.parent is None or len(demand.alternatives) != 1:
            return cause
        is_simple = not self.unmet(demand) and demand.alternatives[0].instance is not None
        return (demand.parent, demand.alternatives[0].instance, demand.optional) if is_simple else cause

    # The code

    def verdict(self) -> tuple[ConflictCode, PackageId | str]:
        """Return the code of the conflict, and what is missing or there already; "" for nothing."""
        kinds = {cause.kind for cause in self.causes}
        if any(cause.kind is CauseKind.ONCE and cause.resource == "namespace" for cause in self.causes):
            return ConflictCode.CARD_NAMESPACE, ""
        owned = {cause.subject for cause in self.causes if cause.kind is CauseKind.OWNER}
        candidates = (c for node in self.problem.nodes.values() for c in node.candidates) if owned else ()
        if any(not owned.isdisjoint(candidate.compositions) for candidate in candidates):
            return ConflictCode.OWN_COMPOSITION, ""
        code = next((code for kind, code in _CODES.items() if kind in kinds), None)
        if code is ConflictCode.PLATFORM:
            cause = next(cause for cause in self.causes if cause.kind is CauseKind.PLATFORM)
            platform = cause.resource.partition(" ")[0]
            is_crossplane = platform == Platform.CROSSPLANE
            return (ConflictCode.CROSSPLANE, cause.package) if is_crossplane else (code, platform)
        if code is not None:
            return code, next((c.package for c in self.causes if c.kind is CauseKind.FOREIGN), "")
        ruled = (
            (code, cause.subject.package if isinstance(cause.subject, Instance) else cause.package)
            for kind, code in _RULES.items()
            for cause in self.causes
            if cause.kind is kind
        )
        verdict = next(self._of_needs(), None) or next(ruled, (ConflictCode.VERSION, ""))
        return next(self._of_ranges(), verdict) if verdict[0] in _OF_RANGES else verdict

    def _of_ranges(self) -> Iterator[tuple[ConflictCode, str]]:
        """Yield that a digest is asked for, or that a range leaves out a pre-release that would do."""
        floors = {c.resource for c in self.causes if c.kind is CauseKind.DOWNGRADE}
        demands = [(d, way) for d in self.requirements.values() for way in d.alternatives]
        for demand, way in demands:
            if way.instance is None:
                continue
            others = [w.allowed for d, w in demands if d is not demand and w.instance == way.instance]
            is_contested = not way.allowed or any(map(way.allowed.isdisjoint, others))
            for need in demand.requirement.alternatives:
                if not isinstance(need, PackageNeed) or not (is_contested or floors):
                    continue
                if is_contested and need.range.constraint and need.range.constraint.digest:
                    yield ConflictCode.DIGEST, need.id.name
                for place, candidate in enumerate(self.problem.nodes[way.instance].candidates):
                    is_wanted = not way.allowed or any(place in allowed for allowed in others)
                    is_wanted |= str(candidate.version) in floors
                    if is_wanted and _leaves_out(need, candidate.version):
                        yield ConflictCode.PRERELEASE, need.id.name

    def _of_needs(self) -> Iterator[tuple[ConflictCode, PackageId | str]]:
        """Yield the verdicts on needs that nothing meets, whatever else is wrong; the first one counts."""
        demands = self.requirements.values()
        unmet = [demand for demand in demands if not demand.alternatives]
        dead = [d for d in demands if not any(w.allowed or w.instance is None for w in d.alternatives)]
        yield from ((ConflictCode.BIND, "") for demand in unmet if self._is_bound(demand))
        yield from ((ConflictCode.CYCLE, "") for demand in unmet if self._is_circle(demand))
        yield from ((ConflictCode.DECLINED, str(d.requirement)) for d in unmet if not d.requirement.install)
        for need in (need for demand in dead for need in demand.requirement.alternatives):
            if isinstance(need, InterfaceNeed):
                yield ConflictCode.INTERFACE, need.id
        for need in (need for demand in unmet for need in demand.requirement.alternatives):
            if isinstance(need, ApiNeed):
                yield ConflictCode.API, ""
        targets = (target for demand in demands for target in _targets(demand))
        unknown = (t.package for t in targets if not self.problem.nodes[t].candidates)
        unfit = (target.package for demand in dead for target in _targets(demand))
        for package in unknown:
            if self.inputs.catalogue.refused.get(package.name):
                yield ConflictCode.INVALID, package
            is_kpt = package.ecosystem is Ecosystem.KPT
            yield ConflictCode.UNPUBLISHED if is_kpt else ConflictCode.NO_CANDIDATE, package
        for package in unfit:
            is_kpt = package.ecosystem is Ecosystem.KPT
            yield ConflictCode.UNPUBLISHED if is_kpt else ConflictCode.NO_VERSION, package

    def _is_bound(self, demand: InstanceRequirement) -> bool:
        install = None if demand.parent is None else self.inputs.install_of(demand.parent)
        return install is not None and demand.requirement.alias in dict(install.bindings)

    def _is_circle(self, demand: InstanceRequirement) -> bool:
        """Tell whether a package that is made anew for each of its parents is one of its own parents."""
        above: dict[Instance, None] = {}
        parent = demand.parent
        while parent is not None and parent not in above:
            above[parent] = None
            parent = next((d.parent for d in self.requirements.values() if parent in _targets(d)), None)
        return len({instance.package for instance in above}) < len(above)

    def fact(self, cause: Cause) -> str:
        """Return a cause as a sentence without places."""
        demand = self.requirements.get(cause)
        if demand is None:
            return self._fact(cause)
        return ", but ".join(filter(None, [self._requirement(demand), self.unmet(demand)]))

    def paths_to(self, demand: InstanceRequirement) -> set[Cause]:
        """Return the causes that only lead to the parent of a requirement."""
        causes: set[Cause] = set()
        target = demand.parent
        while target is not None:
            leading = [d for d in self.requirements.values() if target in _targets(d)]
            if len(leading) != 1 or leading[0].cause in causes:
                break
            causes.add(leading[0].cause)
            target = leading[0].parent
        return causes

    # The sentences

    def sentences(self, chain: Sequence[Group]) -> Iterator[str]:
        """Yield the sentences of a chain; a single one names the packages in the middle of a long chain."""
        if len(chain) <= _MOST_SENTENCES:
            yield from dict.fromkeys(map(self._sentence, chain))
            return
        last = _MOST_SENTENCES - _FIRST_SENTENCES - 1
        middle = chain[_FIRST_SENTENCES:-last]
        yield from map(self._sentence, chain[:_FIRST_SENTENCES])
        parents = (d.parent for group in middle if (d := self.requirements.get(group[0])) and d.parent)
        names = list(dict.fromkeys(parent.package.name for parent in parents))
        way = " → ".join(names if len(names) <= _MOST_NAMES else [*names[:2], "…", names[-1]])
        count = len(middle)
        yield f"{plural(count, 'more requirement')} in between, {way}" if way else plural(count, "more fact")
        yield from map(self._sentence, chain[-last:])

    def _sentence(self, group: Group) -> str:
        demands = [self.requirements[cause] for cause in group if cause in self.requirements]
        places = " ".join(f"({place})" for place in self.places(group))
        if not demands:
            return f"{self._fact(group[0])} {places}".rstrip()
        demand = demands[0]
        if len(demands) > 1:
            texts = [self._requirement(demand) for demand in demands[:_MOST_NAMES]]
            more = len(demands) - len(texts)
            texts += [f"{plural(more, 'more version')} likewise"] if more else []
            return f"{_listing(texts, most=len(texts))} {places}".rstrip()
        unmet = self.unmet(demand)
        text = f"{self._requirement(demand)} {places}".rstrip()
        return f"{text}; {unmet}" if unmet else text

    def _requirement(self, demand: InstanceRequirement) -> str:
        if demand.held:
            ((version,),) = (way.allowed for way in demand.alternatives)
            running = self.problem.nodes[_targets(demand)[0]].candidates[version]
            return f"{self._subject(demand.cause)} keeps {running}"
        if demand.parent is None:
            return f"{self._subject(demand.cause)} asks for {demand.requirement}"
        node = self.problem.nodes[demand.parent]
        candidates = [candidate for candidate, _ in self._requiring(node, demand.cause)]
        name, is_plural = demand.parent.package.name, len(candidates) > 1
        versions = f"{name} {_listing([str(candidate.version) for candidate in candidates])}"
        if is_plural and len(candidates) == len(node.candidates):
            versions, is_plural = f"Every version of {name}", False
        if demand.optional:
            return f"{versions} {'accept' if is_plural else 'accepts'} only {demand.requirement}"
        return f"{versions} {'require' if is_plural else 'requires'} {demand.requirement}"

    def _requiring(self, node: InstanceNode, cause: Cause) -> list[tuple[Candidate, InstanceRequirement]]:
        """Return the versions with a requirement: those that the rest of the conflict admits, or else all."""
        ways = [d.alternatives[0] for d in self.requirements.values() if len(d.alternatives) == 1]
        ranges = [way.allowed for way in ways if way.instance == node.instance]
        pairs = enumerate(zip(node.candidates, node.requirements, strict=True))
        having = [(place, c, d) for place, (c, group) in pairs for d in group if d.cause == cause]
        admitted = [item for item in having if all(item[0] in allowed for allowed in ranges)]
        is_all = len(having) == len(node.candidates)
        return [(candidate, demand) for _, candidate, demand in (having if is_all else admitted or having)]

    def unmet(self, demand: InstanceRequirement) -> str:
        """Return why nothing meets a requirement by itself, "" if something does."""
        if any(alternative.instance is None for alternative in demand.alternatives):
            return ""
        nodes = [self.problem.nodes[target] for target in _targets(demand)]
        if not nodes:
            return self._nothing(demand)
        if all(not node.candidates for node in nodes):
            return self._unpublished(nodes[0])
        if all(not alternative.allowed for alternative in demand.alternatives):
            by_package = {node.instance.package: node for node in nodes}.values()
            parts = (self._misfit(demand, n) if n.candidates else [self._unpublished(n)] for n in by_package)
            return "; ".join(dict.fromkeys(part for texts in parts for part in texts))
        if all(not alternative.active for alternative in demand.alternatives):
            return "it may be met only by what is installed for other reasons"
        return ""

    def _unpublished(self, node: InstanceNode) -> str:
        name = node.instance.package.name
        refused = self.inputs.catalogue.refused.get(name, ())
        if refused:
            problem = refused[0].problem
            return f"no version of {name} is valid: {problem.location}: {problem.message}"
        others = self.inputs.catalogue.namesakes(node.instance.package)
        whole = (other.name for other in self.inputs.catalogue.packages if name.startswith(f"{other.name}."))
        if kin := next((other for other in whole if name[len(other) + 1 :][0].isdigit()), ""):
            return f"no version of {name} is published; {kin} is, and a version is no part of a name"
        if not others:
            return f"no version of {name} is published"
        choices = f"{_listing([other.name for other in others])} {verb(len(others), 'is', 'are')}"
        return f"no version of {name} is published; {choices} called so, too"

    def _nothing(self, demand: InstanceRequirement) -> str:
        """Return why a requirement has no alternative."""
        install = self.inputs.install_of(demand.parent) if demand.parent else None
        if install is not None and self._is_bound(demand):
            bound = dict(install.bindings)[demand.requirement.alias]
            return f"its binding {demand.requirement.alias}={bound} {self._unfit(demand, install, bound)}"
        if not demand.requirement.install:
            return "nothing there meets it, and nothing may be installed"
        if self._is_circle(demand):
            return "that is a circle without end"
        return "; ".join(map(self._nothing_for, demand.requirement.alternatives))

    def _unfit(self, demand: InstanceRequirement, install: Install, bound: str) -> str:
        """Return why a binding fits nothing: there is no such installation, or it has not what is used."""
        places = {bound, f"{install.namespace}/{bound}"}
        there = [
            *((qualified(i.namespace, i.name), i.id) for i in self.inputs.presence.installations),
            *((qualified(i.namespace, i.name), i.need.id) for i in self.inputs.installs),
        ]
        named = [id_ for name, id_ in there if name in places]
        if not named:
            return "names no installation that is there"
        versions = self.inputs.catalogue.candidates(self.inputs.catalogue.find(named[0]))
        missing = lacks(versions[-1], demand.requirement) if versions else []
        if missing:
            return f"is of {named[0].name}, which has not the {' and the '.join(missing)}"
        return f"is of {named[0].name}, which does not implement {demand.requirement} with all that is used"

    def _nothing_for(self, need: Need) -> str:
        candidates = [c for versions in self.inputs.catalogue.packages.values() for c in versions]
        match need:
            case ApiNeed():
                apis = {g for c in candidates for g in c.provides} | self.inputs.presence.apis
                makers = sorted({c.id.name for c in candidates if need.gvk in c.provides})
                kin = sorted({str(gvk) for gvk in apis if gvk.group_kind == need.gvk.group_kind})
                if makers:
                    return f"nothing that is installed brings it, {_listing(makers)} would"
                return f"there is only {_listing(kin)}" if kin else "no known package brings it"
            case InterfaceNeed():
                named = sorted({c.id.name for c in candidates if any(i.id == need.id for i in c.interfaces)})
                makers = sorted({c.id.name for c in candidates if any(i.meets(need) for i in c.interfaces)})
                others = [name for name in named if name not in makers]
                how = "implements it, but is not" if len(makers) == 1 else "implement it, but none is"
                parts = [f"{_listing(makers)} {how} the default"] if makers else []
                how = verb(len(others), "lacks", "lack")
                parts += [f"{_listing(others)} {how} its version or what is used of it"] if others else []
                return "; ".join(parts) or "no known package implements it"
            case PackageNeed():
                return "nothing meets it"

    def _misfit(self, demand: InstanceRequirement, node: InstanceNode) -> Iterator[str]:
        """Yield why no published version is in the range of a requirement."""
        versions = [candidate.version for candidate in node.candidates]
        published = _listing([str(version) for version in versions], last=True)
        published += f" {verb(len(versions), 'is', 'are')} published"
        yield f"no version of {node.instance.package.name} fits: {published}"
        for refused in self.inputs.catalogue.refused.get(node.instance.package.name, ())[:1]:
            yield f"another one is not valid: {refused.problem.location}: {refused.problem.message}"
        for need in demand.requirement.alternatives:
            constraint = need.range.constraint if isinstance(need, PackageNeed) else None
            if constraint is None:
                continue
            yield from lint_constraint(constraint)[:1]
            prereleases = (version for version in versions if version.prerelease)
            if only_prereleases(constraint, versions) or any(map(constraint.allows, prereleases)):
                yield f"only pre-releases match {constraint}"
            if only_with_build(constraint, versions):
                yield "build metadata counts in this range"

    def _fact(self, cause: Cause) -> str:
        name, what, subject = cause.package, cause.resource, self._subject(cause)
        concerned = list(self._concerned(cause)) if cause.kind in _OF_VERSIONS else []
        versions = _listing([str(candidate.version) for candidate in concerned])
        match cause.kind:
            case CauseKind.PLATFORM:
                needs = {n.platform for c in concerned for n in c.platforms if str(n) == what}
                ((platform, version),) = (p for p in self.inputs.presence.platforms if p[0] in needs)
                text = f"{name} {versions} {verb(len(concerned), 'needs', 'need')} {what}, and this cluster"
                text += f" has {platform} {version}{', a pre-release' if version.prerelease else ''}"
            case CauseKind.WITHDRAWN:
                reasons = [c.withdrawn for c in concerned if c.withdrawn not in ("", "true")]
                text = f"{name} {what} is withdrawn{f': {reasons[0]}' if reasons else ''}"
            case CauseKind.STORED:
                kinds = {str(stored.kind): stored for stored in self.inputs.presence.stored}
                text = f"{name} {versions} {verb(len(concerned), 'drops', 'drop')} {what}, a version in which"
                text += f" this cluster stores objects: it has {kinds[what.rpartition(' ')[2]].objects},"
                text += " and its API server refuses that"
            case CauseKind.OWNER:
                owners = _listing(sorted(set(map(str, concerned))))
                text = f"Only one package may own {subject}: {owners} bring it"
            case CauseKind.HELD:
                # The lock remembers what a removed owner had.
                there = {pin.instance.package for pin in self.inputs.pins}
                there |= {self.inputs.catalogue.find(install.need.id) for install in self.inputs.installs}
                keeps = "keeps it" if cause.owner in there else "is removed and had it"
                text = f"{name} brings {what} of {cause.owner.name if cause.owner else ''}, which {keeps}"
            case CauseKind.ALIAS:
                aliases = _listing(sorted({r.alias for c in concerned for r in c.requires}))
                text = f"{name} has no dependency {what}, which its manifest names, only {aliases}"
            case CauseKind.ONCE:
                paths = sorted(self.path(i) for i in self.problem.nodes if i.package == cause.subject)
                text = f"{name} may be installed only once in a {what}: {' and '.join(paths)}"
            case kind:
                text = _PLAIN_FACTS[kind].format(name=name, what=what, subject=subject)
        return text

    def _asker(self, demand: InstanceRequirement) -> str:
        return self._subject(demand.cause) if demand.parent is None else demand.parent.package.name

    def _subject(self, cause: Cause) -> str:
        name = str(cause.subject)
        return self.names.get(name, name)

    def places(self, causes: Group) -> list[Location]:
        """Return where the causes of a sentence are written, the first few."""
        locations: set[Location] = set()
        for cause in causes:
            demands = [d for d in self.problem.roots if d.cause == cause]
            if (demand := self.requirements.get(cause)) and demand.parent:
                demands += [d for _, d in self._requiring(self.problem.nodes[demand.parent], cause)]
            locations |= set(map(_place, demands))
            if cause.kind in _PLACED | {CauseKind.HELD}:
                locations |= {candidate.location for candidate in self._concerned(cause)}
        return sorted(place for place in locations if place.path)[:_MOST_NAMES]

    def _concerned(self, cause: Cause) -> Iterator[Candidate]:
        for node in self.problem.nodes.values():
            for place, candidate in enumerate(node.candidates):
                if cause in node.banned.get(place, ()) or cause.subject in candidate.owned_names:
                    yield candidate

    def path(self, instance: Instance) -> str:
        """Return the path from the user's manifest to an instance, as text."""
        roots = {target: d for d in self.problem.roots for target in _targets(d)}
        trail = [instance]
        while trail[0] not in roots:
            demands = (*self.requirements.values(), *self.problem.requirements())
            ways = ((d.parent, way) for d in demands for way in d.alternatives if way.active)
            leading = (p for p, way in ways if p is not None and p not in trail and way.instance == trail[0])
            earlier = min(leading, key=lambda p: (self.depths.get(p, 0), p), default=None)
            if earlier is None:
                break
            trail.insert(0, earlier)
        root = roots.get(trail[0])
        names = [step.package.name for step in trail]
        return " → ".join([self._subject(root.cause), *names] if root else names)

    # The versions

    def rejected(self, chain: Sequence[Group]) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
        """Return the rejected versions of the package where the chains meet: two causes reject some of it."""
        demands = [self.requirements[c] for group in chain for c in group if c in self.requirements]
        meeting: Instance | None = None
        for target in dict.fromkeys(target for demand in demands for target in _targets(demand)):
            places = len(self.problem.nodes[target].candidates)
            allowed = [(d, [w.allowed for w in d.alternatives if w.instance == target]) for d in demands]
            strict = (d for d, ways in allowed if ways and len(frozenset().union(*ways)) < places)
            rejecting = set(map(self._asker, strict))
            if len(rejecting) > 1:
                meeting = target
        if meeting is None:
            return ()
        rejections = tuple(self._rejections(self.problem.nodes[meeting]))
        return ((meeting.package.name, rejections),)

    def _rejections(self, node: InstanceNode) -> Iterator[Rejection]:
        against = ((tuple(self._against(node, place)), c) for place, c in enumerate(node.candidates))
        versions = grouped((reasons, str(candidate.version)) for reasons, candidate in against if reasons)
        for reasons, texts in list(versions.items())[:_MOST_NAMES]:
            yield Rejection(_listing(texts), reasons[:2])
        more = sum(len(texts) for texts in list(versions.values())[_MOST_NAMES:])
        if more:
            yield Rejection(f"{more} more", ("likewise",))

    def _against(self, node: InstanceNode, place: int) -> Iterator[str]:
        for demand in self.requirements.values():
            ways = [way for way in demand.alternatives if way.instance == node.instance]
            if ways and not any(place in way.allowed for way in ways):
                asks = f"{self._asker(demand)} {'accepts only' if demand.optional else 'requires'}"
                yield f"{asks} {demand.requirement}" if demand.parent else self._requirement(demand)
        yield from (self._fact(cause) for cause in node.banned.get(place, ()) if cause in self.causes)


def _leaves_out(need: PackageNeed, version: Version) -> bool:
    constraint = need.range.constraint
    is_near = constraint is not None and constraint.allows(version, include_prerelease=True)
    return bool(version.prerelease) and is_near and not need.range.allows(version)


def _targets(demand: InstanceRequirement) -> list[Instance]:
    return [way.instance for way in demand.alternatives if way.instance is not None]


def _place(demand: InstanceRequirement) -> Location:
    """Return where a requirement is written; that of a user's install is the field with its version."""
    need = demand.requirement.alternatives[0]
    if demand.parent is None and isinstance(need, PackageNeed) and need.location.path:
        return need.location
    return demand.requirement.location


def _listing(texts: Sequence[str], *, most: int = _MOST_NAMES, last: bool = False) -> str:
    """Join texts as a sentence does; of many the first are named, with `last` also the highest one."""
    if len(texts) <= most:
        return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))
    if last:
        return f"{', '.join(texts[: most - 1])}, … and {texts[-1]}"
    return f"{', '.join(texts[:most])} and {len(texts) - most} more"


def _depths(problem: ResolutionProblem) -> dict[Instance, int]:
    depths: dict[Instance, int] = {}
    queue = [(target, 0) for d in problem.roots for target in _targets(d)]
    for instance, depth in queue:
        if instance in depths:
            continue
        depths[instance] = depth
        for group in problem.nodes[instance].requirements:
            for demand in group:
                queue.extend((w.instance, depth + 1) for w in demand.alternatives if w.instance and w.active)
    return depths
