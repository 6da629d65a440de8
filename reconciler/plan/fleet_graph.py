"""The packages of the fleet as a graph: a picture of each set, and one of chains of upstreams. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from reconciler.base.graph import Edge, Graph, GraphNode, Group, NodeRole, Subject
from reconciler.base.wording import plural
from reconciler.names.ids import PackageKey
from reconciler.plan.fleet_packages import FleetPackage, UpstreamVersion
from reconciler.plan.status import Phase

MOST_BOXES: Final = 12
"""Boxes that are drawn for packages that are alike; more of them are one box with their number."""
MOST_REVISIONS: Final = 24
"""Upstream revisions that a set is drawn with; of more of them those with equal numbers are one box."""
_MOST_NAMES: Final = 5
_MOST_VERSIONS: Final = 5
_OF_ONE_PACKAGE: Final = 2
"""Versions that one package can have: on main, and in review."""
_USUAL = frozenset({str(Phase.PUBLISHED), str(Phase.IN_REVIEW)})
"""States that the versions on main and in review tell already."""
CHAINS: Final = "Chains of upstreams"
Published = Mapping[PackageKey, FleetPackage]


def fleet_graph(
    packages: Sequence[FleetPackage], published: Published, shown: Iterable[FleetPackage]
) -> Graph:
    """Return the graph of packages: a group for each set, and one for packages made from made packages.

    Args:
        packages: Every package of the fleet.
        published: Upstream packages that no variant made.
        shown: The packages to draw; of chains all that they come from is drawn too.
    """
    sets: dict[str, list[FleetPackage]] = {}
    for package in shown:
        sets.setdefault(package.group, []).append(package)
    groups = [_set_group(title, _with_few_revisions(sets[title])) for title in sorted(sets)]
    drawn = [package for title in sorted(sets) for package in sets[title]]
    chains = _chains(drawn, {**published, **{each.package: each for each in packages if each.package}})
    groups += [chains] if chains is not None else []
    description = " ".join(f"{_description(group)}." for group in groups)
    return Graph("Packages of the fleet", tuple(groups), description, Subject.PACKAGES)


def _description(group: Group) -> str:
    """Return a group in a sentence, for readers who do not see the picture."""
    if group.title != CHAINS:
        return group.title
    labels = {node.key: node.label for node in group.nodes}
    steps = (f"{labels[edge.target]} from {labels[edge.source]}" for edge in group.edges)
    return f"{CHAINS}: {', '.join(steps)}"


# Sets


class _Like(NamedTuple):
    """Common properties of packages that are alike: they differ in repository and state at most."""

    main: UpstreamVersion | None
    review: UpstreamVersion | None
    on_main: bool
    in_review: bool


def _set_group(title: str, packages: Sequence[FleetPackage]) -> Group:
    alike: dict[_Like, list[FleetPackage]] = {}
    for package in packages:
        like = _Like(package.main, package.review, package.on_main, package.in_review)
        alike.setdefault(like, []).append(package)
    root = GraphNode("set", title, NodeRole.ROOT, packages=_package_names(packages), states=_states(packages))
    on_main = Counter(package.main for package in packages if package.main)
    in_review = Counter(package.review for package in packages if package.review)
    upstreams = sorted({*on_main, *in_review}, key=lambda u: (u.name, len(u.version), u))
    revisions = [_revision(upstream, on_main[upstream], in_review[upstream]) for upstream in upstreams]
    edges = [Edge("set", _revision_key(u), "", on_main[u], in_review[u]) for u in upstreams]
    boxes = []
    for number, like in enumerate(sorted(alike, key=repr)):
        for place, members in enumerate(_folded(alike[like])):
            box = _box(f"packages {number}.{place}", members)
            boxes.append(box)
            edges += _box_edges(box.key, like, len(members))
    clusters = tuple(sorted({package.cluster for package in packages} - {""}))
    summary = f"{title}: {_summary(packages)}"
    return Group(summary, (root, *revisions, *boxes), tuple(edges), members=clusters)


def _revision(upstream: UpstreamVersion, on_main: int, in_review: int) -> GraphNode:
    role = NodeRole.REVISION if upstream.is_registered else NodeRole.OUTSIDE
    notes = [f"{on_main} on main"] if on_main else []
    notes += [f"{in_review} in review"] if in_review else []
    label = f"{upstream.name} {upstream.version}".strip()
    return GraphNode(_revision_key(upstream), label, role, tuple(notes), version=upstream.version)


def _with_few_revisions(packages: Sequence[FleetPackage]) -> Sequence[FleetPackage]:
    """Return packages with at most so many upstream revisions: `v2` of all upstreams, and other revisions."""
    uses = Counter(upstream for package in packages for upstream in package.upstreams)
    if len(uses) <= MOST_REVISIONS:
        return packages
    numbers = {upstream: upstream.version.rpartition("/")[2] for upstream in uses}
    counts: Counter[str] = Counter()
    for upstream, count in uses.items():
        counts[numbers[upstream]] += count
    common = sorted(counts, key=lambda number: (-counts[number], number))[: MOST_REVISIONS - 1]
    kinds = {u: numbers[u] if numbers[u] in common else _OTHERS for u in uses}
    members: dict[str, set[PackageKey]] = {}
    for upstream, kind in kinds.items():
        members.setdefault(kind, set()).add(upstream.package)
    folded = {
        upstream: UpstreamVersion(PackageKey("", ""), plural(len(members[kind]), "upstream package"), kind)
        for upstream, kind in kinds.items()
    }
    return [
        package._replace(
            main=folded[package.main] if package.main else None,
            review=folded[package.review] if package.review else None,
        )
        for package in packages
    ]


_OTHERS = "at other revisions"


def _revision_key(upstream: UpstreamVersion) -> str:
    return f"{upstream.package} {upstream.version}"


def _folded(packages: Iterable[FleetPackage]) -> list[list[FleetPackage]]:
    """Return packages that are alike by repository and state, or all together if those are too many."""
    boxes: dict[tuple[str, str, str], list[FleetPackage]] = {}
    for package in packages:
        # What has no repository is named by its owner.
        place = package.repository or package.name
        boxes.setdefault((place, package.cluster, package.state), []).append(package)
    if len(boxes) <= MOST_BOXES:
        return [boxes[key] for key in sorted(boxes)]
    return [[package for key in sorted(boxes) for package in boxes[key]]]


def _box(key: str, packages: Sequence[FleetPackage]) -> GraphNode:
    first, repositories = packages[0], _repositories(packages)
    label = first.name
    notes: list[str] = []
    if len(packages) > 1:
        label = _many(packages)
        names = [package.name.removeprefix(f"{first.repository}/") for package in packages]
        notes = [_listed(names)] if len(repositories) == 1 else []
    if len(repositories) == 1 and first.cluster not in ("", first.repository):
        notes.append(f"cluster {first.cluster}")
    notes += _versions(first)
    notes += _state_notes(packages)
    members = _package_names(packages)
    return GraphNode(key, label, notes=tuple(notes), packages=members, states=_states(packages))


def _versions(package: FleetPackage) -> Iterator[str]:
    """Yield the versions of a package with two or none; a single one is that of the revision above it."""
    if package.on_main and package.in_review:
        yield f"{_version(package.main)} on main, {_version(package.review)} in review"
    elif not package.on_main and not package.in_review:
        yield "neither on main nor in review"


def _state_notes(packages: Sequence[FleetPackage]) -> Iterator[str]:
    states = _states(packages)
    if len(packages) == 1 or len(states) == 1:
        yield from (state for state, _ in states if state not in _USUAL)
    else:
        yield ", ".join(f"{count} {state}" for state, count in states)


def _box_edges(key: str, like: _Like, count: int) -> Iterator[Edge]:
    """Yield the edges from the revisions of a box to it, from the set where it has none."""
    if like.main is not None and like.main == like.review:
        yield Edge(_revision_key(like.main), key, "on main and in review", count, count)
        return
    if like.main is not None:
        yield Edge(_revision_key(like.main), key, "on main", count, 0)
    if like.review is not None:
        yield Edge(_revision_key(like.review), key, "in review", 0, count)
    if like.main is None and like.review is None:
        places = ((like.on_main, "on main"), (like.in_review, "in review"))
        label = " and ".join(place for is_there, place in places if is_there)
        yield Edge("set", key, label, count * like.on_main, count * like.in_review)


# Words


def _summary(packages: Sequence[FleetPackage]) -> str:
    """Return how many packages are at which revision: `312 packages in 40 repositories at web/v2; …`."""
    has_one_upstream = len({u.package for package in packages for u in package.upstreams}) == 1
    on_main = Counter(_version(p.main, short=has_one_upstream) for p in packages if p.on_main)
    in_review = Counter(_version(p.review, short=has_one_upstream) for p in packages if p.in_review)
    absent = sum(not package.on_main and not package.in_review for package in packages)
    if not in_review and not absent and len(on_main) == 1:
        return f"{_many(packages)} at {next(iter(on_main))}"
    parts = [_many(packages), *_places(on_main, "on main at"), *_places(in_review, "in review at")]
    return "; ".join([*parts, *([f"{absent} neither on main nor in review"] if absent else [])])


def _places(counts: Counter[str], place: str) -> Iterator[str]:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    yield from (f"{count} {place} {version}" for version, count in ordered[:_MOST_VERSIONS])
    if rest := ordered[_MOST_VERSIONS:]:
        yield f"{sum(count for _, count in rest)} {place} {plural(len(rest), 'other revision')}"


def _version(upstream: UpstreamVersion | None, *, short: bool = True) -> str:
    if upstream is None:
        return "an unknown upstream"
    return upstream.version if short else f"{upstream.name} {upstream.version}"


def _many(packages: Sequence[FleetPackage]) -> str:
    """Return the number of packages and of their repositories, which is a name where it is one."""
    repositories = _repositories(packages)
    if not repositories:
        return plural(len(packages), "package")
    where = repositories[0] if len(repositories) == 1 else plural(len(repositories), "repository")
    return f"{plural(len(packages), 'package')} in {where}"


def _repositories(packages: Iterable[FleetPackage]) -> list[str]:
    return sorted({package.repository for package in packages} - {""})


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join([*islice(names, _MOST_NAMES), *([f"{rest} more"] if rest > 0 else [])])


def _package_names(packages: Iterable[FleetPackage]) -> tuple[str, ...]:
    return tuple(sorted(package.name for package in packages))


def _states(packages: Iterable[FleetPackage]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(package.state for package in packages if package.state).items()))


# Chains


class _Link(NamedTuple):
    """A package and one that was made from it, by the version that it has on main or in review."""

    source: PackageKey
    target: PackageKey
    version: str
    on_main: bool


def _chains(shown: Iterable[FleetPackage], by_key: Published) -> Group | None:
    """Return the packages that were made from made packages, down from where they come; None without any."""
    links: dict[_Link, None] = {}
    for package in shown:
        if any(_is_made(upstream, by_key) for upstream in package.upstreams):
            links |= dict.fromkeys(_links_above(package, by_key))
    if not links:
        return None
    outside = {u.package: u.name for each in by_key.values() for u in each.upstreams if not u.is_registered}
    keys = {key: None for link in links for key in (link.source, link.target)}
    boxes = _chain_boxes(keys, by_key, _depths(links))
    nodes: list[GraphNode] = []
    place: dict[PackageKey, str] = {}
    for number, members in enumerate(boxes):
        nodes.append(_chain_node(f"chain {number}", members, by_key, outside))
        place |= dict.fromkeys(members, f"chain {number}")
    return Group(CHAINS, tuple(nodes), tuple(_chain_edges(links, place)))


def _is_made(upstream: UpstreamVersion, by_key: Published) -> bool:
    return upstream.package in by_key and bool(by_key[upstream.package].upstreams)


def _links_above(package: FleetPackage, by_key: Published) -> Iterator[_Link]:
    """Yield the links from a package up to where it comes from; circles end."""
    queue, seen = [package], set[PackageKey]()
    for each in queue:
        if each.package is None or each.package in seen:
            continue
        seen.add(each.package)
        for upstream, on_main in ((each.main, True), (each.review, False)):
            if upstream is not None:
                yield _Link(upstream.package, each.package, upstream.version, on_main)
                queue += [by_key[upstream.package]] if upstream.package in by_key else []


def _depths(links: Iterable[_Link]) -> dict[PackageKey, tuple[PackageKey, int]]:
    """Return for each package the first one above it that was made from none, and its distance."""
    above: dict[PackageKey, PackageKey] = {}
    for link in links:
        above.setdefault(link.target, link.source)
    depths = {}
    for key in {key for link in links for key in (link.source, link.target)}:
        seen, root = {key}, key
        while root in above and above[root] not in seen:
            root = above[root]
            seen.add(root)
        depths[key] = (root, len(seen))
    return depths


def _chain_boxes(
    keys: Iterable[PackageKey], by_key: Published, depths: Mapping[PackageKey, tuple[PackageKey, int]]
) -> list[list[PackageKey]]:
    """Return the packages of each box: those of one set at one distance from one root, if they are many."""
    alike: dict[tuple[PackageKey, int, str], list[PackageKey]] = {}
    for key in sorted(keys):
        group = by_key[key].group if key in by_key else ""
        alike.setdefault((*depths[key], group or str(key)), []).append(key)
    boxes: list[list[PackageKey]] = []
    for _, members in sorted(alike.items(), key=lambda item: (item[0][1], item[0])):
        boxes += [members] if len(members) > MOST_BOXES else [[member] for member in members]
    return boxes


def _chain_node(
    key: str, members: Sequence[PackageKey], by_key: Published, outside: Mapping[PackageKey, str]
) -> GraphNode:
    if members[0] not in by_key:
        label = outside.get(members[0], str(members[0]))
        return GraphNode(key, label, NodeRole.OUTSIDE)
    packages = [by_key[member] for member in members]
    first = packages[0]
    label = first.name if len(packages) == 1 else _many(packages)
    notes = [first.group] if first.group else []
    notes += _state_notes(packages) if first.state else ()
    names = _package_names(packages)
    return GraphNode(key, label, notes=tuple(notes), packages=names, states=_states(packages))


def _chain_edges(links: Iterable[_Link], place: Mapping[PackageKey, str]) -> Iterator[Edge]:
    """Yield an edge for each pair of boxes, with the versions that packages have by it."""
    counts: dict[tuple[str, str], Counter[tuple[str, bool]]] = {}
    for link in links:
        pair = place[link.source], place[link.target]
        counts.setdefault(pair, Counter())[link.version, link.on_main] += 1
    for (source, target), of_versions in sorted(counts.items()):
        on_main = sum(count for (_, is_main), count in of_versions.items() if is_main)
        total = of_versions.total()
        versions = sorted(of_versions.items(), key=lambda item: (not item[0][1], -item[1], item[0]))
        texts = [
            (f"{version} {'on main' if is_main else 'in review'}", count)
            for (version, is_main), count in versions[:_MOST_VERSIONS]
        ]
        words = [f"{count} at {text}" if total > _OF_ONE_PACKAGE else text for text, count in texts]
        rest = len(versions) - _MOST_VERSIONS
        words += [plural(rest, "other revision")] if rest > 0 else []
        yield Edge(source, target, ", ".join(words), on_main, total - on_main)
