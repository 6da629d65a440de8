"""Find the places of recorded packages that no registered Repository is at any more (D36)."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import GROUP, REPOSITORY, GitRepository, Repository, RepositorySpec
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirrors
from reconciler.git.urls import local_path, parse_remote
from reconciler.inventory.inventory import Former, Inventory, RepositoryView, Source, Sourced
from reconciler.inventory.standing import SHORT
from reconciler.names.ids import ObjectKey, ObjectName, recorded_address
from reconciler.names.problems import Problem
from reconciler.names.refs import parent_directories
from reconciler.read.repositories import CLUSTER
from reconciler.records.state import PackageVariantRecord, RecordedDownstream

Registration = Sourced[Repository]


class FormerRegistration(NamedTuple):
    """The registration of a former place, as if it were there still, and why it is none."""

    registration: Registration
    former: Former


class _Place(NamedTuple):
    """A directory of a branch; a registered one has its Repository and the address as it is recorded."""

    url: str
    directory: str
    branch: str
    address: str
    key: ObjectName = ObjectName("", "")


class _Left(NamedTuple):
    """A record with a package at a former place, its name and cluster, and whether it is `aside` there."""

    record: PackageVariantRecord
    known_as: str
    cluster: str
    is_aside: bool


def find_former(
    inventory: Inventory, located: Iterable[Registration], written: Mapping[ObjectName, Registration]
) -> tuple[Mapping[ObjectName, FormerRegistration], Mapping[ObjectName, DefectError]]:
    """Return the former places of records, each under a name that no registered Repository has.

    Registrations that a bug of ours breaks are returned with it: each may be at any place, so none is known
    to be former then, and all are kept.

    A place that another registered Repository is at now is not former: a Repository that is renamed, or
    registered twice, hands its packages over. One that is not understood keeps its place.

    `located` has the registrations at their absolute addresses, `written` as they are written.
    """
    places, broken = _registered(located, written)
    registered = {place.key: place for place in places}
    groups = _recorded(inventory, registered, broken)

    def known_as(group: tuple[_Place, Reason]) -> str:
        place, names = group[0], (left.known_as for left in groups[group].values())
        return max((n for n in names if ObjectName(place.key.namespace, n) not in registered), default="")

    former: dict[ObjectName, FormerRegistration] = {}
    for group in sorted(groups, key=lambda group: (not known_as(group), group)):
        (place, reason), packages = group, groups[group]
        now, record = registered.get(place.key), next(iter(packages.values())).record
        key = _free_name(place, known_as(group), {*registered, *former}, is_moved=now is not None)
        owners = {path: left.record.key for path, left in sorted(packages.items())}
        aside = frozenset(path for path, left in packages.items() if left.is_aside)
        message = _message(place, reason, now, record, inventory)
        annotations = (written[now.key].manifest.metadata.annotations or {}) if now is not None else {}
        # Of a Repository that is gone only the records know the cluster.
        recorded = max(left.cluster for left in packages.values())
        cluster = recorded or annotations.get(CLUSTER) or place.key.name
        manifest = Repository(
            api_version=REPOSITORY,
            kind="Repository",
            metadata=ObjectMeta(name=key.name, namespace=key.namespace, annotations={CLUSTER: cluster}),
            spec=RepositorySpec(
                deployment=True,
                # A record of an earlier version may have no address.
                git=GitRepository.model_construct(
                    repo=place.address, branch=place.branch, directory=place.directory
                ),
            ),
        )
        registration = Sourced(key, manifest, Source(Location(record.manifest)))
        former[key] = FormerRegistration(registration, Former(reason, message, owners, aside))
    return former, broken


def _recorded(
    inventory: Inventory, registered: Mapping[ObjectName, _Place], broken: dict[ObjectName, DefectError]
) -> Mapping[tuple[_Place, Reason], Mapping[str, _Left]]:
    """Return the recorded packages at former places by path; add to `broken` what a bug of ours breaks."""
    by_directory: dict[tuple[str, str], list[_Place]] = defaultdict(list)
    addresses: dict[str, str] = {}
    for place in registered.values():
        by_directory[place.url, place.directory].append(place)
        addresses.setdefault(place.url, place.address)
    stalled = {k.object_name for k in inventory.stalled if (k.group, k.kind) == (GROUP, "Repository")}
    groups: dict[tuple[_Place, Reason], dict[str, _Left]] = defaultdict(dict)
    for record in inventory.records.values():
        for downstream in record.downstreams:
            name = ObjectName(record.namespace, downstream.repository)
            now = registered.get(name)
            try:
                with guard(f"Repository {name}"):
                    why = _why_former(downstream, now, by_directory, inventory, is_stalled=name in stalled)
            except DefectError as error:
                broken[name] = error
                continue
            if why is None or name in broken:
                continue
            reason, is_aside = why
            local = downstream.url if downstream.url.startswith("/") else ""
            address = addresses.get(downstream.url) or downstream.remote or local
            place = _Place(downstream.url, downstream.directory, downstream.branch, address, name)
            left = _Left(record, downstream.known_as, downstream.cluster, is_aside)
            groups[place, Reason.DEFECT if broken else reason].setdefault(downstream.path, left)
    return groups


def _registered(
    located: Iterable[Registration], written: Mapping[ObjectName, Registration]
) -> tuple[list[_Place], dict[ObjectName, DefectError]]:
    places, broken = list[_Place](), dict[ObjectName, DefectError]()
    for item in located:
        git, as_written = item.manifest.spec.git, written[item.key].manifest.spec.git
        if git is None or as_written is None:
            continue
        try:
            with guard(f"Repository {item.key}"):
                remote = parse_remote(git.repo)
                address = recorded_address(as_written.repo, remote.address)
                directory = str(PurePosixPath("/" + git.directory)).strip("/")
                places.append(_Place(remote.url, directory, git.branch, address, item.key))
        except UnavailableError:
            continue
        except DefectError as error:
            broken[item.key] = error
    return places, broken


def _why_former(
    downstream: RecordedDownstream,
    now: _Place | None,
    registered: Mapping[tuple[str, str], list[_Place]],
    inventory: Inventory,
    *,
    is_stalled: bool,
) -> tuple[Reason, bool] | None:
    """Return why no Repository is at a recorded place, and whether one is on another branch; else None."""
    if now is None and is_stalled:
        return Reason.OWNER_STALLED, False
    broken, file = inventory.control.broken, downstream.registration
    if now is None and broken and (not file or file in broken):
        return Reason.MANIFEST_UNREADABLE, False
    reason = Reason.PLACE_GONE if now is None else Reason.MOVED
    above = (downstream.path, *reversed(parent_directories(downstream.path)), "")
    holders = next((there for d in above if (there := registered.get((downstream.url, d)))), [])
    if not holders:
        return reason, False
    is_known = not downstream.branch or any(place.branch == downstream.branch for place in holders)
    return None if is_known else (reason, True)


def _free_name(place: _Place, known_as: str, taken: Container[ObjectName], *, is_moved: bool) -> ObjectName:
    """Return a name that nothing else has: that of its Repository, else its directory, else its address.

    A place that has a name keeps it, whatever else comes or goes, until a Repository is called so.
    """
    address = (place.address if place.address.startswith(".") else place.url).removesuffix(".git")
    below = "/".join(filter(None, (address, place.directory)))
    names = [known_as, "" if is_moved else place.key.name, place.directory, below]
    free = (ObjectName(place.key.namespace, name) for name in names if name)
    last = ObjectName(place.key.namespace, f"{below}@{place.branch}")
    return next((name for name in free if name not in taken), last)


def _message(
    place: _Place, reason: Reason, now: _Place | None, record: PackageVariantRecord, inventory: Inventory
) -> str:
    if reason is Reason.OWNER_STALLED:
        return f"Repository {place.key} is not understood: nothing of it changes until its manifest is right"
    if reason is Reason.DEFECT:
        return (
            f"Repository {place.key} is not known: a bug broke the reading of a Repository, which may be here"
        )
    if reason is Reason.MANIFEST_UNREADABLE:
        file = record.registration or "A file that may declare it"
        return f"Repository {place.key} is not known: {file} cannot be read"
    if now is None:
        removal = inventory.control.removed.get(ObjectKey(GROUP, "Repository", *place.key))
        if removal is None:
            return f"Repository {place.key} is not registered any more"
        return f"Repository {place.key} is not registered any more, since commit {removal.commit[:SHORT]}"
    pairs = [
        (place.address or place.url, now.address or now.url) if place.url != now.url else None,
        (_named_directory(place), _named_directory(now)) if place.directory != now.directory else None,
        (f"branch {place.branch}", f"branch {now.branch}") if place.branch not in ("", now.branch) else None,
    ]
    named = [pair for pair in pairs if pair]
    old, new = ", ".join(a for a, _ in named), ", ".join(b for _, b in named)
    return f"Repository {place.key} moved from {old} to {new}"


def _named_directory(place: _Place) -> str:
    return f"directory {place.directory}" if place.directory else "the root directory"


# What can be told only from what was read


def with_distinct_places(
    views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors
) -> Mapping[ObjectName, RepositoryView]:
    """Return the views with only the recorded packages of former ones, and none that has not really moved.

    Two addresses may lead to one repository: a forge redirects from the old one, a directory is a link. On
    this machine that is certain. Elsewhere a history that both have may be one repository or a copy, and
    nothing may be deleted then.
    """
    registered = [view for view in views.values() if view.former is None and view.is_available]
    distinct = {}
    for key, view in views.items():
        if view.former is None:
            distinct[key] = view
            continue
        packages = view.former.packages
        packages_here = {path: view.packages[path] for path in packages if path in view.packages}
        broken = {path: view.broken[path] for path in packages if path in view.broken}
        others = [v for v in registered if v.url != view.url and v.directory == view.directory]
        if not any(_is_same_directory(view, other) for other in others):
            twin = next((other for other in others if _shares_history(view, other, mirrors)), None)
            problem = view.problem if twin is None else _copy_problem(view, twin)
            distinct[key] = replace(view, packages=packages_here, broken=broken, problem=problem)
    return distinct


def _is_same_directory(view: RepositoryView, other: RepositoryView) -> bool:
    here, there = local_path(view.remote), local_path(other.remote)
    return here is not None and there is not None and here.resolve() == there.resolve()


def _shares_history(view: RepositoryView, other: RepositoryView, mirrors: Mirrors) -> bool:
    """Tell whether one has what the other has on main, and not only what both began with."""
    are_here = local_path(view.remote) is not None and local_path(other.remote) is not None
    if are_here or view.head is None or other.head is None:
        return False
    if mirrors.open(other.remote).find_commit(view.head.oid) is not None:
        return True
    is_there = any(path in other.packages for path in view.packages)
    return is_there and mirrors.open(view.remote).find_commit(other.head.oid) is not None


def _copy_problem(view: RepositoryView, twin: RepositoryView) -> Problem:
    message = (
        f"{twin.remote}, where Repository {twin.key} is, has the same history: one is a copy, or both are one"
    )
    return view.problem_at(Reason.MOVED, message)
