"""What would help against a contradiction: one sentence per thing that a person can change."""

from collections.abc import Iterator

from reconciler.dependencies.model import ApiNeed, Candidate, InterfaceNeed, Need, PackageNeed
from reconciler.dependencies.question import Demand, Fact, FactKind, Question
from reconciler.dependencies.versions import doubts
from reconciler.dependencies.versions.doubts import only_prereleases, only_with_build
from reconciler.dependencies.world import Presence, World

_OF_KIND = {
    FactKind.DOWNGRADE: (
        "Consent with packaging.carvel.dev/downgradable on the PackageInstall or `allowDowngrade` in "
        "reconciler.yaml, or take the package out of the lock with `lock --upgrade {name}`"
    ),
    FactKind.WITHDRAWN: "Ask for another version of {name}",
    FactKind.POLICY: "Change the version policy of {name}, or name a version",
    FactKind.FOREIGN: "Declare what is there in a manifest, so that it is adopted, or remove it",
    FactKind.OWNER: "Remove one of the two packages, or ask for a version without {name}",
    FactKind.HELD: (
        "Remove {holder} or ask for a version of it without that, and annotate {name} with "
        "reconciler.dev/take-over: {holder}"
    ),
    FactKind.ONCE: "Remove one of the two manifests, or let both use the one that is there",
    FactKind.CYCLE: "Ask for a version of one of them that does not need the others",
    FactKind.PLATFORM: "Upgrade the cluster, or ask for a version that supports it",
}


_UNSEEN = (
    "Nothing is known of what cluster CLUSTER serves: import its snapshot with "
    "`reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
)
"""Names no cluster: what is decided for one may be decided for another; see `name_cluster`."""


def name_cluster(hint: str, cluster: str) -> str:
    """Return a hint with the name of the cluster that it is for."""
    return hint.replace(_UNSEEN, _UNSEEN.replace("CLUSTER", cluster))


def hints(world: World, question: Question, facts: tuple[Fact, ...]) -> tuple[str, ...]:
    """Return what to try, most specific first, each once."""
    named = frozenset(facts)
    demands = [demand for demand in question.demands() if demand.fact in named]
    found: dict[str, None] = {}
    for demand in demands:
        found.update(dict.fromkeys(_about_demand(world, demand)))
    for fact in facts:
        if fact.kind in _OF_KIND:
            name = fact.subject.partition(":")[2].partition("@")[0] or fact.subject
            holder = fact.detail.rpartition(" of ")[2]
            found[_OF_KIND[fact.kind].format(name=name, holder=holder)] = None
    if not found and len(demands) > 1:
        ranges = sorted({str(n) for d in demands for n in d.requirement.alternatives if _is_narrow(n)})
        found[f"Relax one of these: {', '.join(ranges)}"] = None
    return tuple(found)


def _is_narrow(need: Need) -> bool:
    return isinstance(need, PackageNeed) and bool(need.range.text)


def _about_demand(world: World, demand: Demand) -> Iterator[str]:
    install = None if demand.parent is None else world.install_of(demand.parent)
    if install is not None and not demand.ways:
        bound = dict(install.bindings).get(demand.requirement.alias)
        if bound is not None:
            yield f"The binding {demand.requirement.alias}={bound} names nothing that fits; check its name"
            return
    for need in demand.requirement.alternatives:
        yield from _about_need(world, need, demand)
    creates = any(way.active for way in demand.ways)
    if not demand.requirement.install and not creates:
        yield f"Install {demand.requirement} yourself, or let it be installed with `install: true`"


def _about_need(world: World, need: Need, demand: Demand) -> Iterator[str]:
    match need:
        case PackageNeed():
            yield from _about_package(world, need)
        case ApiNeed():
            makers = sorted({c.id.name for c in _all(world) if any(g == need.gvk for g in c.provides)})
            if makers and demand.requirement.install:
                yield f"{', '.join(makers)} would bring {need.gvk}: require it, or turn discovery on"
            elif not makers:
                kin = sorted(
                    {str(g) for c in _all(world) for g in c.provides if g.group_kind == need.gvk.group_kind}
                )
                kin += sorted(str(g) for g in world.presence.apis if g.group_kind == need.gvk.group_kind)
                if not kin and world.presence == Presence():
                    yield _UNSEEN
                yield f"There is {', '.join(kin)}" if kin else f"No known package brings {need.gvk}"
        case InterfaceNeed():
            makers = sorted({c.id.name for c in _all(world) if any(i.id == need.id for i in c.interfaces)})
            if not makers:
                yield f"No known package implements {need.id}"
            else:
                yield (
                    f"Set a default for {need.id} with `index set-default`, or bind an installation; "
                    f"known: {', '.join(makers)}"
                )


def _about_package(world: World, need: PackageNeed) -> Iterator[str]:
    known = world.catalogue.candidates(world.catalogue.find(need.id))
    if not known:
        near = sorted(id_.name for id_ in world.catalogue.packages if _is_near(id_.name, need.id.name))
        similar = f"; similar names: {', '.join(near)}" if near else ""
        yield f"Add {need.id.name} to the index, or correct its name{similar}"
        return
    constraint = need.range.constraint
    if constraint is None or any(need.range.allows(c.version, c.digest) for c in known):
        return
    versions = [candidate.version for candidate in known]
    yield from doubts(constraint)
    selection = need.range.selection
    if selection is None and only_prereleases(constraint, versions):
        yield f"Only pre-releases match {need.range}; add -0 to its versions to admit them"
    elif selection is not None and any(v.prerelease and constraint.allows(v) for v in versions):
        yield f"Only pre-releases match {need.range}; admit them with `prereleases: {{}}`"
    builds = only_with_build(constraint, versions)
    if builds:
        yield f"Build metadata counts here; write {' or '.join(str(v) for v in builds)} in full"
    yield f"Published are {_span(known)}"


def _span(known: tuple[Candidate, ...]) -> str:
    texts = [str(candidate.version) for candidate in known]
    return ", ".join(texts if len(texts) <= 5 else [*texts[:2], "…", *texts[-2:]])  # noqa: PLR2004 - two at each end


def _is_near(one: str, other: str) -> bool:
    tails = one.rpartition("/")[2], other.rpartition("/")[2]
    return tails[0] == tails[1] or one.partition(".")[0] == other.partition(".")[0]


def _all(world: World) -> Iterator[Candidate]:
    return (candidate for several in world.catalogue.packages.values() for candidate in several)
