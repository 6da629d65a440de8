"""Conflicts of new packages with other packages, files, directories and refs of their repository (D24)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from reconciler.base.errors import Problem
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import PackageKey
from reconciler.names.refs import (
    BRANCH_DIRECTORIES,
    HEADS,
    TAGS,
    PathIndex,
    RefIndex,
    is_within,
    nested_message,
    next_revision,
    parent_directories,
    tag_ref,
)
from reconciler.plan.adoption import Denied, place_hint
from reconciler.plan.changes import Change, Op
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletions import decide_unwanted
from reconciler.resolve.ownership import ADOPT_EXISTING, downstream_packages, find_view
from reconciler.resolve.upstreams import subject_of


class Neighbours(Struct, frozen=True):
    """Index of the packages and refs of one Git repository.

    `existing` are packages on main or in drafts, except those that leave with this plan; `planned`
    are those that variants want and that do not exist yet.
    """

    existing: PathIndex
    planned: PathIndex
    refs: RefIndex


def index_neighbours(context: PlanContext) -> Mapping[str, Neighbours]:
    """Return the neighbours of new packages by repository URL; a repository without new ones has none."""
    # Group by URL once: a pass over the whole fleet for each of its repositories takes quadratic time.
    targets: dict[str, list[PlanTarget]] = defaultdict(list)
    for target in context.targets.values():
        targets[target.key.url].append(target)
    downstreams: dict[str, set[str]] = defaultdict(set)
    for key in context.downstreams:
        downstreams[key.url].add(key.path)
    views: dict[str, list[RepositoryView]] = defaultdict(list)
    for view in context.inventory.repositories.values():
        views[view.url].append(view)
    return {
        url: _neighbours(local, downstreams[url], views[url], context)
        for url, local in targets.items()
        if any(_is_new(target) and target.key.path in downstreams[url] for target in local)
    }


def _neighbours(
    targets: Iterable[PlanTarget],
    downstreams: set[str],
    views: Sequence[RepositoryView],
    context: PlanContext,
) -> Neighbours:
    leaving = {t.key.path for t in targets if t.key.path not in downstreams and _leaves(t, context)}
    existing = {path for view in views for path, package in view.packages.items() if package.exists}
    return Neighbours(PathIndex(existing - leaving), PathIndex(downstreams - existing), index_refs(views))


def index_refs(views: Iterable[RepositoryView]) -> RefIndex:
    """Return the branches and tags of one repository, of which every view knows all."""
    first = next((view for view in views if view.is_available), None)
    if first is None:
        return RefIndex(())
    return RefIndex.of_branches_and_tags(first.branches, first.tags)


def find_obstacle(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Denied | None:
    """Return why a variant cannot have a package at its path, None if nothing is in the way.

    A package that is on main stays where it is: whatever came near it later is the intruder.
    """
    outside = _outside_of_view(target, variant, context)
    if outside is not None or not _is_new(target):
        return outside
    obstacles = chain(
        _nested(target, variant, context),
        _files(target, variant),
        _tags(target, variant, context),
        _directories(target, variant),
    )
    return next(obstacles, None)


def _is_new(target: PlanTarget) -> bool:
    return target.package.main_tree is None


def _leaves(target: PlanTarget, context: PlanContext) -> bool:
    """Tell whether applying the plan removes an undesired package: it has only untouched drafts."""
    return _is_new(target) and target.owner is not None and decide_unwanted(target, context).op is Op.DELETE


def _outside_of_view(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Denied | None:
    """Refuse a path in the directory of a more specific Repository: its packages are that one's."""
    views = context.inventory.views_of(target.key.url)
    named = find_view(variant, context.inventory) if len(views) > 1 else None
    if named is None:
        return None
    path = target.key.path
    for view in views:
        if len(view.directory) <= len(named.directory):
            break
        if is_within(path, view.directory):
            message = f'package path "{path}" lies in the directory of Repository {view.key}'
            hint = "Name that Repository in spec.downstream.repo, or choose another downstream package."
            return _denied(Reason.PATH_TAKEN, message, hint, variant)
    return None


def _nested(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Iterator[Denied]:
    path, neighbours = target.key.path, context.neighbours.get(target.key.url)
    if neighbours is None:
        return
    existing = neighbours.existing.find_nested(path)
    if existing is not None:
        yield _nested_denied(nested_message(path, existing), variant)
    clash = neighbours.existing.find_case_clash(path)
    if clash is not None:
        yield _nested_denied(
            f'package path "{path}" differs from "{clash}" in upper and lower case only', variant
        )
    planned = neighbours.planned.find_nested(path) if path in neighbours.planned else None
    if planned is not None:
        rivals = context.downstreams[PackageKey(target.key.url, planned)]
        yield _nested_denied(_rival_message(path, planned, rivals), variant)


def find_nested_downstreams(
    desired: Desired, inventory: Inventory, urls: Collection[str]
) -> Iterator[Problem]:
    """Yield the nested packages that manifests and records tell of, in repositories that were not read.

    Other packages there are unknown: this finds a part of what a plan finds.
    """
    downstreams = downstream_packages(desired.variants, inventory)
    for url in sorted(urls):
        applied = {record.path for record in inventory.records.values() if record.url == url}
        new = {key.path for key in downstreams if key.url == url} - applied
        existing, planned = PathIndex(applied), PathIndex(new)
        for path in sorted(new):
            inner = existing.find_nested(path)
            outer = planned.find_nested(path) if inner is None else None
            for variant in downstreams[PackageKey(url, path)]:
                if inner is not None:
                    yield _nested_problem(nested_message(path, inner), variant)
                elif outer is not None:
                    rivals = downstreams[PackageKey(url, outer)]
                    yield _nested_problem(_rival_message(path, outer, rivals), variant)


def _nested_denied(message: str, variant: DesiredVariant) -> Denied:
    return Denied(Reason.NESTED_PACKAGE, message, _nested_problem(message, variant))


def _nested_problem(message: str, variant: DesiredVariant) -> Problem:
    hint = place_hint(variant) or "Choose another downstream package."
    location = variant.source.at("spec", "downstream", "package")
    return Problem(location, Reason.NESTED_PACKAGE, message, hint, subject_of(variant))


def _rival_message(path: str, planned: str, rivals: Iterable[DesiredVariant]) -> str:
    names = " and ".join(f"{rival.key} ({rival.source.location})" for rival in rivals)
    return (
        f'package path "{path}" conflicts with package "{planned}" of PackageVariant {names}: '
        "packages cannot be nested"
    )


def _files(target: PlanTarget, variant: DesiredVariant) -> Iterator[Denied]:
    for path in (*parent_directories(target.key.path), target.key.path):
        if path in target.view.files:
            where = f"branch {target.view.branch} of repository {target.view.key.name}"
            message = f'package path "{target.key.path}" cannot be a directory: "{path}" is a file on {where}'
            hint = place_hint(variant) or "Remove the file, or choose another downstream package."
            yield _denied(Reason.PATH_TAKEN, message, hint, variant)


def _tags(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Iterator[Denied]:
    """Refuse a path if a tag blocks the tags of its revisions."""
    neighbours = context.neighbours.get(target.key.url)
    number = next_revision([revision.revision for revision in target.package.published])
    blocker = neighbours.refs.find_blocker(tag_ref(target.key.path, number)) if neighbours else ""
    if blocker:
        name = blocker.removeprefix(TAGS)
        message = f'package path "{target.key.path}" cannot have tags: tag {name} is in the way of v{number}'
        hint = place_hint(variant) or "Delete or rename the tag, or choose another downstream package."
        yield _denied(Reason.PATH_TAKEN, message, hint, variant)


def _directories(target: PlanTarget, variant: DesiredVariant) -> Iterator[Denied]:
    if target.key.path not in target.view.directories:
        return
    message = f"Directory {target.key.path} in repository {target.view.key.name} exists without a Kptfile"
    hint = place_hint(variant) or (
        f"Set spec.adoptionPolicy to {ADOPT_EXISTING} to keep its files in the package, "
        "or choose another downstream package."
    )
    if variant.spec.adoption_policy != ADOPT_EXISTING:
        yield _denied(Reason.PACKAGE_EXISTS, message, hint, variant)


def _denied(reason: Reason, message: str, hint: str, variant: DesiredVariant) -> Denied:
    location = variant.source.at("spec", "downstream", "package")
    return Denied(reason, message, Problem(location, reason, message, hint, subject_of(variant)))


# Refs


def refuse_blocked_refs(
    changes: tuple[Change, ...], context: PlanContext
) -> tuple[tuple[Change, ...], list[Problem]]:
    """Block changes with refs that Git cannot create; return them with a problem for each blocking ref.

    Git keeps refs as files: a branch called `drafts` makes every branch below `drafts/` impossible.
    """
    indexes: dict[str, RefIndex] = {}
    kept: list[Change] = []
    problems: dict[tuple[str, str], Problem] = {}
    for change in changes:
        url = change.package.url
        if change.writes and url not in indexes:
            indexes[url] = index_refs(context.inventory.views_of(url))
        blocker = _blocker(change, indexes[url]) if change.writes else ""
        if not blocker:
            kept.append(change)
            continue
        problem = _blocked_problem(context.inventory.repositories[change.repository], blocker)
        problems[url, blocker] = problem
        kept.append(change.without_effects(Op.BLOCK, Reason.PATH_TAKEN, problem.message))
    return tuple(kept), list(problems.values())


def _blocker(change: Change, index: RefIndex) -> str:
    """Return the ref that makes a new ref of a change impossible, "" if none does."""
    going = {write.ref for write in change.writes if getattr(write, "to", "") is None}
    for write in change.writes:
        if write.expect is None and write.ref not in going:
            blocker = index.find_blocker(write.ref)
            if blocker and blocker not in going:
                return blocker
    return ""


def _blocked_problem(view: RepositoryView, blocker: str) -> Problem:
    kind, name = ("Tag", blocker.removeprefix(TAGS)) if blocker.startswith(TAGS) else ("Branch", blocker)
    name = name.removeprefix(HEADS)
    below = (
        f"branches below {name}/" if name in BRANCH_DIRECTORIES else f"refs below {name}/, or of that name"
    )
    message = f"{kind} {name} of repository {view.key.name} makes {below} impossible"
    hint = f"Rename or delete {kind.lower()} {name}; drafts, proposals and deletions need such names."
    return Problem(view.source.at("spec", "git"), Reason.PATH_TAKEN, message, hint, f"Repository {view.key}")
