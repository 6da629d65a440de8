"""Conflicts of new packages with other packages, files, directories and refs of their repository (D24)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from reconciler.base.reasons import Reason
from reconciler.expand import Desired, DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import PackageKey
from reconciler.names.problems import Problem
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
from reconciler.plan.changes import Change, Op
from reconciler.plan.compose import Held, Veto, deny, place_hint
from reconciler.plan.context import Neighbours, PlanContext, PlanTarget
from reconciler.plan.deletions import decide_unwanted
from reconciler.resolve.ownership import ADOPT_EXISTING, downstream_packages, find_view


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
    for view in context.inventory.views.values():
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
    # Of an undesired package that was never on main untouched drafts alone are there to be removed.
    leaving = {
        t.key.path
        for t in targets
        if t.key.path not in downstreams and _is_new(t) and t.owner is not None
        if decide_unwanted(t, context).op is Op.DELETE
    }
    existing = {path for view in views for path, package in view.packages.items() if package.exists}
    existing |= {path for view in views for path in view.broken}
    others = PathIndex(path for view in views for path in (*view.directories, *view.files))
    return Neighbours(
        PathIndex(existing - leaving), PathIndex(downstreams - existing), index_refs(views), others
    )


def index_refs(views: Iterable[RepositoryView]) -> RefIndex:
    """Return the branches and tags of one repository, of which every view knows all."""
    first = next((view for view in views if view.is_available), None)
    if first is None:
        return RefIndex(())
    return RefIndex.of_branches_and_tags(first.branches, first.tags)


def find_obstacle(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Held | None:
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


def _outside_of_view(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Held | None:
    """Refuse a path in the directory of a more specific Repository: its packages are that one's."""
    named = find_view(variant, context.inventory)
    if named is None:
        return None
    path = target.key.path
    for view in context.inventory.views_of(target.key.url):
        if len(view.directory) <= len(named.directory):
            break
        if is_within(path, view.directory):
            message = f'package path "{path}" lies in the directory of Repository {view.key}'
            hint = "Name that Repository in spec.downstream.repo, or choose another downstream package."
            return _denied(Reason.PATH_TAKEN, message, hint, target, variant)
    return None


def _nested(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Iterator[Held]:
    path, neighbours = target.key.path, context.neighbours.get(target.key.url)
    if neighbours is None:
        return
    existing = neighbours.existing.find_nested(path)
    if existing is not None:
        yield _nested_denied(nested_message(path, existing), target, variant)
    clash = neighbours.existing.find_case_clash(path) or neighbours.others.find_case_clash(path)
    if clash is not None:
        yield _nested_denied(
            f'package path "{path}" differs from "{clash}" in upper and lower case only', target, variant
        )
    planned = neighbours.planned.find_nested(path) if path in neighbours.planned else None
    if planned is not None:
        rivals = context.downstreams[PackageKey(target.key.url, planned)]
        yield _nested_denied(_rival_message(path, planned, rivals), target, variant)


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


def _nested_denied(message: str, target: PlanTarget, variant: DesiredVariant) -> Held:
    return deny(Veto.PATH, Reason.NESTED_PACKAGE, message, target, _nested_problem(message, variant))


def _nested_problem(message: str, variant: DesiredVariant) -> Problem:
    hint = place_hint(variant.key) or "Choose another downstream package."
    location = variant.source.at("spec", "downstream", "package")
    return Problem(location, Reason.NESTED_PACKAGE, message, hint).owned_by(variant.owner)


def _rival_message(path: str, planned: str, rivals: Iterable[DesiredVariant]) -> str:
    names = " and ".join(f"{rival.key} ({rival.source.location})" for rival in rivals)
    return (
        f'package path "{path}" conflicts with package "{planned}" of PackageVariant {names}: '
        "packages cannot be nested"
    )


def _files(target: PlanTarget, variant: DesiredVariant) -> Iterator[Held]:
    for path in (*parent_directories(target.key.path), target.key.path):
        if path in target.view.files:
            where = f"branch {target.view.branch} of repository {target.view.key.name}"
            message = f'package path "{target.key.path}" cannot be a directory: "{path}" is a file on {where}'
            hint = place_hint(variant.key) or "Remove the file, or choose another downstream package."
            yield _denied(Reason.PATH_TAKEN, message, hint, target, variant)


def _tags(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Iterator[Held]:
    """Refuse a path if a tag blocks the tags of its revisions."""
    neighbours = context.neighbours.get(target.key.url)
    number = next_revision([revision.revision for revision in target.package.published])
    blocker = neighbours.refs.find_blocker(tag_ref(target.key.path, number)) if neighbours else ""
    if blocker:
        name = blocker.removeprefix(TAGS)
        message = f'package path "{target.key.path}" cannot have tags: tag {name} is in the way of v{number}'
        hint = place_hint(variant.key) or "Delete or rename the tag, or choose another downstream package."
        yield _denied(Reason.PATH_TAKEN, message, hint, target, variant)


def _directories(target: PlanTarget, variant: DesiredVariant) -> Iterator[Held]:
    if target.key.path not in target.view.directories:
        return
    message = f"Directory {target.key.path} in repository {target.view.key.name} exists without a Kptfile"
    hint = place_hint(variant.key) or (
        f"Set spec.adoptionPolicy to {ADOPT_EXISTING} to keep its files in the package, "
        "or choose another downstream package."
    )
    if variant.spec.adoption_policy != ADOPT_EXISTING:
        yield _denied(Reason.PACKAGE_EXISTS, message, hint, target, variant)


def _denied(reason: Reason, message: str, hint: str, target: PlanTarget, variant: DesiredVariant) -> Held:
    location = variant.source.at("spec", "downstream", "package")
    problem = Problem(location, reason, message, hint).owned_by(variant.owner)
    return deny(Veto.PATH, reason, message, target, problem)


# Refs


def find_blocked_refs(
    changes: Mapping[PackageKey, Change], context: PlanContext
) -> tuple[Mapping[PackageKey, Held], list[Problem]]:
    """Return the vetoes of changes with refs that Git cannot create, with a problem for each blocking ref.

    Git keeps refs as files: a branch called `drafts` makes every branch below `drafts/` impossible.
    """
    indexes: dict[str, RefIndex] = {}
    vetoes: dict[PackageKey, Held] = {}
    problems: dict[tuple[str, str], Problem] = {}
    for key, change in changes.items():
        if change.writes and key.url not in indexes:
            indexes[key.url] = index_refs(context.inventory.views_of(key.url))
        if change.writes and (blocker := _blocker(change, indexes[key.url])):
            problem = _blocked_problem(context.inventory.views[change.repository], blocker)
            problems[key.url, blocker] = problem
            vetoes[key] = Held(Veto.REF, Reason.PATH_TAKEN, problem.message, Op.BLOCK, change.waits, problem)
    return vetoes, list(problems.values())


def _blocker(change: Change, index: RefIndex) -> str:
    """Return the ref that makes a new ref of a change impossible, "" if none does."""
    going = change.removed
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
    return view.problem_at(Reason.PATH_TAKEN, message, hint, "spec", "git")
