"""Suggest what to change so that a conflict is gone: a closed list of changes, each tried with the solver."""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.dependencies.dialects import DOWNGRADABLE
from reconciler.dependencies.dialects.porter import BINDINGS
from reconciler.dependencies.model.cluster import ClusterInputs, ClusterState, Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    VersionRange,
    version_range,
)
from reconciler.dependencies.solve.alternatives import qualified
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.formula import BudgetError
from reconciler.dependencies.solve.lookup import any_version
from reconciler.dependencies.solve.problem import (
    Cause,
    CauseKind,
    InstanceRequirement,
    ResolutionProblem,
    Unsatisfiable,
    split_problem,
    within_reach,
)
from reconciler.dependencies.solve.sat import Questions, assign, is_solvable
from reconciler.dependencies.versions.constraint import Grammar, probe_versions
from reconciler.dependencies.versions.version import VersionError

Edit = Callable[[ClusterInputs], ClusterInputs]

_MOST_HINTS = 3

_MOST_EDITS = 4
"""Changes of one explanation for which the problem is built anew."""

_ALMOST = 0.85
"""Least similarity of a mistyped name: a letter or two of ten differ."""

_MOST_CHANGES = 12
"""Changes that are tried together."""


class Hints(NamedTuple):
    """Hints, the easiest first, and the names of the packages that the last one adds to the index."""

    texts: tuple[str, ...]
    adds: tuple[str, ...] = ()


class _Change(NamedTuple):
    """A change that drops causes. Where it has a target, its text depends on the version of that."""

    without: frozenset[Cause]
    text: str | Callable[[Candidate], str]
    target: Instance | None = None


def suggest_hints(
    inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable, questions: Questions
) -> Hints:
    """Return changes after each of which the installs of a conflict have a solution. Deterministic.

    What a person can do: widen a range of their own manifest, allow a downgrade, take over a kind, bind or
    set a default, and add what is missing, everything at once. No published manifest is changed.
    """
    texts: dict[str, None] = {}
    missing: list[PackageNeed] = []
    others = [d.cause for d in problem.roots if d.cause not in conflict.causes]
    with suppress(BudgetError):
        # Where other installs contradict one another, too, they have an explanation of their own.
        for left_out in ([], others) if others else ([],):
            finder = _HintFinder(inputs, problem, conflict, questions, frozenset(left_out))
            missing = finder.missing()
            texts |= dict.fromkeys(islice(finder.changes(), _MOST_HINTS))
            if texts or missing:
                break
    if not missing:
        return Hints(tuple(texts))
    return Hints((*texts, _addition(missing, inputs)), tuple(sorted({need.id.name for need in missing})))


class _HintFinder:
    def __init__(
        self,
        inputs: ClusterInputs,
        problem: ResolutionProblem,
        conflict: Unsatisfiable,
        questions: Questions,
        left_out: frozenset[Cause],
    ) -> None:
        self.inputs = inputs
        self.problem = problem
        self.questions = questions
        self.formula = questions.solver.formula
        self.causes = conflict.causes
        self.requirements = {demand.cause: demand for demand in problem.requirements()}
        self.installs = {str(install): install for install in inputs.installs}
        self.assumed = [cause for cause in questions.causes if cause not in left_out]

    def _solves(self, without: frozenset[Cause], *literals: int) -> bool:
        assumed = (cause for cause in self.assumed if cause not in without)
        return self.questions.is_solvable(assumed, *literals)

    def changes(self) -> Iterator[str]:
        """Yield the texts of changes that solve the problem; of several ones where none does alone."""
        texts = [text for change in self._changes(self.causes) if (text := self._tell([change]))]
        yield from texts
        yield from self._edits()
        if not texts and (text := self._together()):
            yield text

    def _changes(self, causes: Iterable[Cause]) -> Iterator[_Change]:
        causes = list(causes)
        requested = [self.installs[str(c.subject)] for c in causes if c.kind is CauseKind.REQUESTED]
        requested = [install for install in requested if install.requested is None]
        yield from (self._range(install) for install in requested if install.need.range.text)
        for cause in causes:
            demand = self.requirements.get(cause)
            if demand is not None and demand.parent is not None:
                yield from self._overrides(demand, demand.parent)
        yield from self._downgrades(causes)
        for cause in causes:
            if cause.kind is CauseKind.HELD:
                yield from self._take_over(cause)
            elif cause.kind is CauseKind.OWNER:
                yield from self._move_along(cause)

    def _together(self) -> str:
        """Return the text of changes that solve the problem together, none of them superfluous; else ""."""
        changes: list[_Change] = []
        while not self._solves_all(changes):
            core = [cause for cause in self.questions.core() if not any(cause in c.without for c in changes)]
            more = next(iter(self._changes(core)), None)
            if more is None or len(changes) == _MOST_CHANGES:
                return ""
            changes.append(more)
        for change in changes[::-1]:
            fewer = [other for other in changes if other is not change]
            if fewer and self._solves_all(fewer):
                changes = fewer
        return self._tell(changes) if changes else ""

    def _solves_all(self, changes: list[_Change]) -> bool:
        present = self.formula.present
        without = frozenset[Cause]().union(*(change.without for change in changes))
        return self._solves(without, *(present[c.target] for c in changes if c.target is not None))

    def _tell(self, changes: list[_Change]) -> str:
        """Return the text of changes, with the best versions that a solution then has; "" without one."""
        if not self._solves_all(changes):
            return ""
        without = frozenset[Cause]().union(*(change.without for change in changes))
        literals: list[int] = []
        texts: list[str] = []
        for change in changes:
            if change.target is None or isinstance(change.text, str):
                texts.append(str(change.text))
                continue
            node, versions = self.problem.nodes[change.target], self.formula.versions[change.target]
            fitting = (place for place in node.order if self._solves(without, *literals, versions[place]))
            place = next(fitting, None)
            if place is None:
                return ""
            literals.append(versions[place])
            texts.append(change.text(node.candidates[place]))
        if not all(texts):
            return ""
        return "; and ".join([texts[0], *(text[0].lower() + text[1:] for text in texts[1:])])

    # Ranges of our manifests

    def _range(self, install: Install) -> _Change:
        instance, need = self.inputs.instance_of(install), install.need

        def text(chosen: Candidate) -> str:
            own, where = need.range.dialect, need.location if need.location.path else install.location
            version, old = _range_text(own, chosen), need.range.text.removeprefix("=")
            change = f"Write `{version}` instead of `{old}`"
            if own is Dialect.KPT and chosen.id.ecosystem is Ecosystem.KPT and chosen.source:
                change = f"Name revision {chosen.source} of {chosen.id.name}"
            return f"{change}{_at(where)}, so that {install} takes {chosen}" if version != old else ""

        own = (demand.cause for demand in self.problem.roots if demand.cause.subject == str(install))
        return _Change(frozenset(own), text, instance)

    def _overrides(self, demand: InstanceRequirement, parent: Instance) -> Iterator[_Change]:
        """Yield the user's own range for a dependency, in place of that of the package."""
        install = self.inputs.install_of(parent)
        if install is None or install.dialect is not Dialect.CARVEL:
            return
        for number, need in enumerate(demand.requirement.alternatives):
            if not isinstance(need, PackageNeed) or not need.range.text:
                continue
            target = next((w.instance for w in demand.alternatives if w.alternative == number), None)
            if target is None or not self.problem.nodes[target].candidates:
                continue
            demands = (d for group in self.problem.nodes[parent].requirements for d in group)
            same = {d.cause for d in demands if any(way.instance == target for way in d.alternatives)}
            yield _Change(frozenset(same), _override_text(install, demand, need), target)

    # Rules that a setting lifts

    def _downgrades(self, causes: Iterable[Cause]) -> Iterator[_Change]:
        locked = [cause for cause in causes if cause.kind is CauseKind.DOWNGRADE]
        for cause in locked:
            install = self.inputs.install_of(cause.subject) if isinstance(cause.subject, Instance) else None
            if install is not None and install.dialect is Dialect.CARVEL:
                text = f'Write `{DOWNGRADABLE}: ""` into the annotations of {install} ({install.location})'
                yield _Change(frozenset({cause}), text)
        if locked:
            every = frozenset(c for c in self.questions.causes if c.kind is CauseKind.DOWNGRADE)
            text = "Write `allowDowngrade: true` below `dependencies` in reconciler.yaml"
            yield _Change(every, text)

    def _take_over(self, cause: Cause) -> Iterator[_Change]:
        """Yield consent to take over what a package owns: of it alone, or of all that its manifest brings.

        If other manifests bring the owner still, they have to go or to move along.
        """
        takers = self._installs_of(cause.subject) or self._leading_to(cause.subject)
        if not takers or cause.owner is None or not isinstance(cause.subject, PackageId):
            return
        if cause.owner.ecosystem is not Ecosystem.XPKG:
            text = "Run `reconciler lock --prune`, which removes packages that nothing needs"
            yield _Change(self._held(cause.subject, cause.owner), text)
            return
        brought = {pair for pair in self._contested() if takers[0] in self._leading_to(pair[0])}
        changes = [
            change
            for pairs in ({(cause.subject, cause.owner)}, {(cause.subject, cause.owner), *brought})
            for change in self._taken(takers[0], pairs)
        ]
        solving = next((change for change in changes if self._solves_all([change])), None)
        yield from changes[2:] if solving is None else [solving]

    def _taken(self, taker: Install, pairs: set[tuple[PackageId, PackageId]]) -> Iterator[_Change]:
        """Yield the consent of a manifest, alone and with the removal of what brings the owners still."""
        held = frozenset[Cause]().union(*(self._held(*pair) for pair in pairs))
        given = sorted({owner.name for _, owner in pairs} | set(taker.revisions.take_over))
        text = f"Write `reconciler.dev/take-over: {', '.join(given)}` into the annotations of {taker}"
        text += f" ({taker.location})"
        yield _Change(held, text)
        owners = [owner for _, owner in sorted(pairs, key=str)]
        removed = dict.fromkeys(install for owner in owners for install in self._installs_of(owner))
        moved = self._along(owners, {taker, *removed})
        text += "".join(f", and remove {install} ({install.location})" for install in removed)
        text += "".join(f", and move {install} ({install.location}) along" for install in moved)
        yield _Change(held | self._roots([*removed, *moved]), text)

    def _along(self, owners: Iterable[PackageId], others: Container[Install]) -> list[Install]:
        """Return the further installs that need packages from which something is taken over."""
        leading = (install for owner in owners for install in self._leading_to(owner))
        return [install for install in dict.fromkeys(leading) if install not in others]

    def _roots(self, installs: Iterable[Install]) -> frozenset[Cause]:
        names = set(map(str, installs))
        return frozenset(demand.cause for demand in self.problem.roots if demand.cause.subject in names)

    def _move_along(self, cause: Cause) -> Iterator[_Change]:
        """Yield the move of the manifests that need the owner still, where another one may take over."""
        owner = dict(self.inputs.held).get(str(cause.subject))
        given = {name for install in self.inputs.installs for name in install.revisions.take_over}
        if owner is not None and owner.name in given:
            moved = self._along([owner], ())
            listed = " and ".join(f"{install} ({install.location})" for install in moved)
            yield _Change(self._roots(moved), f"Move {listed} along, or remove what needs {owner.name}")

    def _contested(self) -> set[tuple[PackageId, PackageId]]:
        """Return the packages that own something which others bring, after those."""
        held = (cause for cause in self.questions.causes if cause.kind is CauseKind.HELD)
        return {(c.subject, c.owner) for c in held if isinstance(c.subject, PackageId) and c.owner}

    def _held(self, taker: PackageId, owner: PackageId) -> frozenset[Cause]:
        return frozenset(
            other
            for other in self.questions.causes
            if other.kind is CauseKind.HELD and (other.subject, other.owner) == (taker, owner)
        )

    def _installs_of(self, package: object) -> list[Install]:
        installs = self.inputs.installs
        return [install for install in installs if self.inputs.instance_of(install).package == package]

    def _leading_to(self, package: object) -> list[Install]:
        """Return the installs that may need a package, or install it."""
        leading = (d for d in self.problem.roots if any(i.package == package for i in self._below(d)))
        return [self.installs[str(demand.cause.subject)] for demand in leading]

    def _below(self, root: InstanceRequirement) -> Iterable[Instance]:
        """Return the instances that an install may need, directly or not."""
        reached: dict[Instance, None] = {}
        queue = [root]
        for demand in queue:
            for instance in (way.instance for way in demand.alternatives):
                if instance is not None and instance not in reached:
                    reached[instance] = None
                    queue += [d for group in self.problem.nodes[instance].requirements for d in group]
        return reached

    # Changes for which the problem is built anew

    def _edits(self) -> Iterator[str]:
        """Yield bindings, defaults and installs that bring what nothing meets."""
        tried = 0
        for cause in self.causes:
            for text, edit in self._renamed(cause):
                if self._has_solution(edit):
                    yield text
        demands = filter(None, map(self.requirements.get, self.causes))
        unmet = [d for d in demands if not any(way.allowed or way.instance is None for way in d.alternatives)]
        for demand in unmet:
            for text, edit in (*self._bindings(demand), *self._providers(demand)):
                tried += 1
                if tried <= _MOST_EDITS and self._has_solution(edit):
                    yield text
            is_api = any(isinstance(need, ApiNeed) for need in demand.requirement.alternatives)
            is_unknown = is_api and self.inputs.presence == ClusterState()
            if is_unknown and self._solves(frozenset({demand.cause})):
                yield NO_SNAPSHOT

    def _has_solution(self, edit: Edit) -> bool:
        """Tell whether the parts of the installs in question have a solution with an edit of the inputs."""
        assumed = frozenset(self.assumed)
        names = frozenset(demand.cause.subject for demand in self.problem.roots if demand.cause in assumed)
        parts = split_problem(build_problem(edit(self.inputs)).problem)
        own = [part for part in parts if any(demand.cause.subject in names for demand in part.roots)]
        return bool(own) and all(map(is_solvable, own))

    def _renamed(self, cause: Cause) -> Iterator[tuple[str, Edit]]:
        """Yield the dependency with almost the name that a manifest has."""
        instance, wrong = cause.subject, cause.resource
        install = self.inputs.install_of(instance) if isinstance(instance, Instance) else None
        if cause.kind is not CauseKind.ALIAS or not isinstance(instance, Instance) or install is None:
            return
        aliases = {r.alias for c in self.problem.nodes[instance].candidates for r in c.requires}
        for right in get_close_matches(wrong, sorted(aliases - {""}), 1):
            bindings = tuple(sorted((right if a == wrong else a, name) for a, name in install.bindings))
            text = f"Write `{right}` instead of `{wrong}` in {install} ({install.location})"
            yield text, with_install(install, bindings=bindings)

    def _bindings(self, demand: InstanceRequirement) -> Iterator[tuple[str, Edit]]:
        """Yield installations to bind a dependency to: of the package, any that fits, or almost of this name.

        A dependency without a binding gets one where its bundle is unknown, and others are called like it.
        """
        install = self.inputs.install_of(demand.parent) if demand.parent is not None else None
        alias, catalogue = demand.requirement.alias, self.inputs.catalogue
        bound = dict(install.bindings).get(alias) if install is not None else None
        needed = {catalogue.find(n.id) for n in demand.requirement.alternatives if isinstance(n, PackageNeed)}
        unknown = (id_ for id_ in needed if not catalogue.candidates(id_))
        alike = {other for id_ in unknown for other in catalogue.namesakes(id_)}
        if install is None or install.dialect is not Dialect.PORTER or (bound is None and not alike):
            return
        there = {(i.namespace, i.name): i.id for i in self.inputs.presence.installations}
        there |= {(i.namespace, i.name): i.need.id for i in self.inputs.installs if i != install}
        names = {qualified(*name): id_ for name, id_ in there.items()}
        close = get_close_matches(bound, names, 1, _ALMOST) if bound else []
        suitable = needed | alike
        fitting = sorted(name for name, id_ in names.items() if not needed or catalogue.find(id_) in suitable)
        for name in dict.fromkeys([*close, *fitting]):
            bindings = (*((a, b) for a, b in install.bindings if a != alias), (alias, name))
            instead = f"instead of `{alias}: {bound}` in" if bound else f"below `{BINDINGS}` in `custom` of"
            text = f"Write `{alias}: {name}` {instead} {install} ({install.location})"
            yield text, with_install(install, bindings=tuple(sorted(bindings)))

    def _providers(self, demand: InstanceRequirement) -> Iterator[tuple[str, Edit]]:
        """Yield the default of an interface, or an install of what brings an API."""
        catalogue, parent = self.inputs.catalogue, demand.parent
        for need in demand.requirement.alternatives:
            for id_, versions in catalogue.packages.items():
                match need:
                    case InterfaceNeed() if any(i.id == need.id for c in versions for i in c.interfaces):
                        # A nearer layer than the fleet's may have the default, and would hide another one.
                        layer = " --cluster CLUSTER" if need.id in dict(self.inputs.choices.defaults) else ""
                        text = f"Run `reconciler index set-default {need.id} {id_}{layer}`"
                        yield text, with_default(need.id, id_)
                    case ApiNeed() if parent and need.gvk in versions[-1].provides:
                        text = f"Install {id_.name} with a manifest of its own: it brings {need.gvk}"
                        range_ = any_version(id_)
                        space = "" if range_.dialect is Dialect.CROSSPLANE else parent.slot.namespace
                        name, own = id_.name.rpartition("/")[2], PackageNeed(id_, range_)
                        yield text, _declared(Install(space, name, range_.dialect, own, kind="Install"))

    # What is missing

    def missing(self) -> list[PackageNeed]:
        """Return every package that a solution lacks, in a version; none if something else is wrong too."""
        lacking: dict[Cause, PackageNeed] = {}
        for demand in self.requirements.values():
            need = next(iter(demand.requirement.alternatives), None)
            ways = [bool(way.allowed) or way.instance is None for way in demand.alternatives]
            if ways and not any(ways) and isinstance(need, PackageNeed):
                lacking[demand.cause] = need
        if lacking.keys().isdisjoint(self.causes) or not self._solves(frozenset(lacking)):
            return []
        assumed = frozenset(self.assumed)
        roots = [demand for demand in self.problem.roots if demand.cause in assumed]
        answer = assign(within_reach(replace(self.problem, roots=tuple(roots)), lacking))
        chosen = answer.chosen.items() if answer is not None else ()
        demands = [*roots, *(d for i, place in chosen for d in self.problem.nodes[i].requirements[place])]
        needed = (demand.cause for demand in demands if not demand.optional)
        needs = list(dict.fromkeys(lacking[cause] for cause in needed if cause in lacking))
        limits = [need.range for need in needs if need.range.constraint is not None]
        # A range that no version can be in is not met by adding one.
        exist = (any(map(r.allows, probe_versions(r.constraint))) for r in limits if r.constraint is not None)
        return needs if all(exist) else []


def _addition(missing: list[PackageNeed], inputs: ClusterInputs) -> str:
    """Return how packages get a version in a range: with its manifest where nothing else tells its kind."""
    first = missing[0]
    refused = inputs.catalogue.refused.get(first.id.name, ())
    if refused:
        problem = refused[0].problem
        return f"Correct {problem.location} ({problem.message}){f': {problem.hint}' if problem.hint else ''}"
    names = [f"{need.id.name}{f' {need.range}' if need.range.text else ''}" for need in missing]
    is_alone = len(missing) == 1
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    which = f", in a version that is {first.range}" if first.range.text and is_alone else ""
    if first.id.ecosystem is Ecosystem.KPT:
        what = first.id.name if is_alone else f"{listed}, each"
        return f"Publish {what} as a package with a package.yaml{which}"
    is_xpkg = first.id.ecosystem is Ecosystem.XPKG
    prefix, suffix = ("", " --manifest crossplane.yaml") if is_xpkg else (f"{first.id.ecosystem}:", "")
    command = f"reconciler index add {prefix}{first.id.name if is_alone else 'NAME'} VERSION{suffix}"
    if is_alone:
        return f"Add {first.id.name} to the index, with `reconciler index sync` or `{command}`{which}"
    ways = f"with `reconciler index sync` or each with `{command}`"
    return f"Add all that is missing to the index, {ways}: {listed}"


def _override_text(
    install: Install, demand: InstanceRequirement, need: PackageNeed
) -> Callable[[Candidate], str]:
    names = (demand.requirement.alias, need.id.name)
    own = next((o for o in install.overrides if o.name in names and o.range is not None), None)

    def text(chosen: Candidate) -> str:
        range_ = widened(need, chosen)
        if range_ is None or range_ == need.range:
            return ""
        if own is not None:
            change = f"Write `{range_}` instead of `{need.range}` in the override{_at(own.location)}"
        else:
            item = f'{{refName: {need.id.name}, versionSelection: {{constraints: "{range_}"}}}}'
            change = f"Write `override: [{item}]` below spec.dependencies of {install} ({install.location})"
        return f"{change}, so that it accepts {chosen}"

    return text


def with_install(install: Install, **changes: Any) -> Edit:
    """Return the edit that changes fields of one install."""
    key = (install.kind, install.namespace, install.name)

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        changed = (
            replace(i, **changes) if (i.kind, i.namespace, i.name) == key else i for i in inputs.installs
        )
        return replace(inputs, installs=tuple(changed))

    return edit


def with_default(interface: str, package: PackageId) -> Edit:
    """Return the edit that makes a package the default of an interface."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        defaults = {**dict(inputs.choices.defaults), interface: package}
        return replace(inputs, choices=replace(inputs.choices, defaults=tuple(sorted(defaults.items()))))

    return edit


def _declared(install: Install) -> Edit:
    return lambda inputs: replace(inputs, installs=(*inputs.installs, install))


def widened(need: PackageNeed, chosen: Candidate) -> VersionRange | None:
    """Return the shortest range that admits a version, too; None if there is none."""
    old, dialect = need.range.text, need.range.dialect
    version = _range_text(dialect, chosen)
    separator = ", " if dialect.grammar is Grammar.MASTERMINDS else " "
    words = old.replace(",", " ").split()
    low = next((word for word in words if word.startswith(">")), "")
    high = next((word for word in words if word.startswith("<")), "")
    texts = []
    if low and high and len(words) > 1:
        texts = [f"{low}{separator}<={version}", f">={version}{separator}{high}"]
    elif len(words) == 1 and (low or high):
        texts = [f"<={version}" if high else f">={version}"]
    texts += [f"{old} || {version}", version] if low or high else [version]
    for text in texts:
        try:
            range_ = version_range(dialect, text, prereleases=need.range.prereleases)
        except VersionError:
            continue
        if range_.allows(chosen.version, chosen.digest):
            return range_
    return None


def _range_text(dialect: Dialect, chosen: Candidate) -> str:
    """Return a version as ranges of a dialect have it: those of Carvel know no leading `v`."""
    text = str(chosen.version)
    return text if dialect.grammar is Grammar.MASTERMINDS else text.removeprefix("v")


def _at(location: Location) -> str:
    return f" at {location}" if location.path else ""


NO_SNAPSHOT = (
    "Import the snapshot of cluster CLUSTER, if it serves this API: "
    "`reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
)
"""Names no cluster, because a result can be shared between clusters; see `name_cluster`."""


def name_cluster(hint: str, cluster: str) -> str:
    """Return a hint with the name of the cluster that it is for."""
    text = hint.replace(NO_SNAPSHOT, NO_SNAPSHOT.replace("CLUSTER", cluster))
    return text.replace("--cluster CLUSTER`", f"--cluster {cluster}`")
