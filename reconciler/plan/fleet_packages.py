"""Every package of the fleet with its upstream revisions on main and in review, and their upstreams. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import PackageKey, normalise_url
from reconciler.names.refs import is_within
from reconciler.plan.changes import Plan
from reconciler.plan.context import PlanContext
from reconciler.plan.overview import variant_set, version_label
from reconciler.plan.status import PackageStatus, Phase, current_statuses
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.merge_bases import source_names
from reconciler.resolve.ownership import package_name

SINGLE = "PackageVariants without a set"
NEEDED = "Packages that others need"


class UpstreamVersion(NamedTuple):
    """The upstream package that a package was made from, and its revision as people call it.

    `name` is `REPOSITORY/PACKAGE`; outside of the registered repositories it is the address of the package.
    """

    package: PackageKey
    name: str
    version: str
    is_registered: bool = True


class FleetPackage(NamedTuple):
    """A package of a variant, or a variant without one.

    `group` is the set that made it, as people call it. `main` and `review` are its upstreams: where
    `on_main` or `in_review` is set without one, the package does not tell its upstream.
    """

    group: str
    name: str
    repository: str = ""
    cluster: str = ""
    state: str = ""
    package: PackageKey | None = None
    main: UpstreamVersion | None = None
    review: UpstreamVersion | None = None
    on_main: bool = False
    in_review: bool = False
    names: frozenset[str] = frozenset()

    def matches(self, patterns: Sequence[str], cluster: str) -> bool:
        """Tell whether one of its names matches a pattern; without patterns every name does."""
        named = any(fnmatchcase(name, pattern) for name in self.names for pattern in patterns)
        return (named or not patterns) and cluster in ("", self.cluster)

    @property
    def upstreams(self) -> tuple[UpstreamVersion, ...]:
        """Its upstreams, that on main first."""
        return tuple(dict.fromkeys(each for each in (self.main, self.review) if each is not None))


def fleet_packages(plan: Plan) -> tuple[FleetPackage, ...]:
    """Return every package of the fleet as it is before any effect of the plan, sorted by name."""
    if plan.context is None:
        return ()
    views = _views_by_address(plan.context.inventory)
    packages = (_package(status, plan.context, views) for status in current_statuses(plan))
    return tuple(sorted(packages, key=lambda package: (package.name, package.group)))


def published_upstreams(
    inventory: Inventory, packages: Iterable[FleetPackage]
) -> dict[PackageKey, FleetPackage]:
    """Return the packages that others are made from and no variant made, with all that they come from.

    They are in registered repositories; what a hub takes from another hub is among them.
    """
    owned = {each.package for each in packages}
    views, published = _views_by_address(inventory), dict[PackageKey, FleetPackage]()
    queue = [upstream for each in packages for upstream in each.upstreams]
    for upstream in queue:
        key = upstream.package
        if key in owned or key in published or not upstream.is_registered:
            continue
        published[key] = _published(upstream, views)
        queue += published[key].upstreams
    return published


_Views = Mapping[str, Sequence[RepositoryView]]
"""The repositories by every address that a Kptfile may have for them, those with long directories first."""


def _views_by_address(inventory: Inventory) -> _Views:
    views: dict[str, list[RepositoryView]] = {}
    for view in sorted(inventory.repositories.values(), key=lambda v: (-len(v.directory), v.key)):
        for address in source_names(view):
            views.setdefault(address, []).append(view)
    return views


def _published(upstream: UpstreamVersion, views: _Views) -> FleetPackage:
    url, path = upstream.package
    state = next((v.packages[path] for v in views.get(url, ()) if path in v.packages), None)
    made_from = _upstream(state.main_header if state else None, views)
    repository = upstream.name.partition("/")[0]
    on_main = state is not None and state.main_tree is not None
    return FleetPackage("", upstream.name, repository, "", "", upstream.package, made_from, on_main=on_main)


def _package(status: PackageStatus, context: PlanContext, views: _Views) -> FleetPackage:
    group, owner = _group(status, context), str(status.variant or "")
    target = context.targets.get(status.package) if status.package else None
    if target is None:
        return FleetPackage(group, owner, state=str(status.phase), names=_names(group, owner))
    draft = target.draft
    main = _upstream(target.package.main_header, views) if target.package.main_tree else None
    review = _upstream(draft.header, views) if draft else None
    repository, name = target.view.key.name, f"{target.view.key.name}/{status.name}"
    upstreams = (each.name for each in (main, review) if each)
    return FleetPackage(
        group,
        name,
        repository,
        target.view.cluster,
        _state(status),
        target.key,
        main,
        review,
        target.package.main_tree is not None,
        draft is not None,
        _names(group, owner, name, repository, target.view.cluster, *upstreams),
    )


def _names(group: str, *names: str) -> frozenset[str]:
    set_name = group.removeprefix(_SET) if group.startswith(_SET) else ""
    last_parts = {each.partition("/")[2] for each in (set_name, *names[:1])}
    return frozenset({set_name, *names, *last_parts} - {""})


_SET = "PackageVariantSet "


def _group(status: PackageStatus, context: PlanContext) -> str:
    if status.variant is None:
        return SINGLE
    if set_name := variant_set(status.variant, context):
        return f"{_SET}{set_name}"
    desired = context.variants.get(status.variant)
    is_needed = (desired is not None and desired.requested_by) or cluster_of(status.variant)
    return NEEDED if is_needed else SINGLE


def _state(status: PackageStatus) -> str:
    if status.phase is Phase.IN_REVIEW and status.reason == Reason.DELETION_PROPOSED:
        return "deletion in review"
    return str(status.phase)


def _upstream(header: KptfileHeader | None, views: _Views) -> UpstreamVersion | None:
    """Return the upstream that a Kptfile names; its directory may be one below that of its Repository."""
    lock, version = header.upstream_lock if header else None, version_label(header)
    if lock is None or not version:
        return None
    directory, url = lock.directory.strip("/"), normalise_url(lock.repo)
    registered = views.get(url, ())
    for view in registered:
        for path in dict.fromkeys((directory, view.full_path(directory))):
            if path in view.packages:
                return _registered(view, path, version)
    for view in registered:
        if is_within(directory, view.directory):
            return _registered(view, directory, version)
    address = f"{url}//{directory}" if directory else url
    return UpstreamVersion(PackageKey(url, directory), address, version, is_registered=False)


def _registered(view: RepositoryView, path: str, version: str) -> UpstreamVersion:
    return UpstreamVersion(PackageKey(view.url, path), f"{view.key.name}/{package_name(view, path)}", version)
