"""Registered repositories: every view of every repository, each repository fetched once."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from reconciler.api.porch import GitRepository, Repository
from reconciler.errors import Problem, UnavailableError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import without_user
from reconciler.ids import ObjectName
from reconciler.inventory import Commit, RepositoryRole, RepositoryView, Sourced
from reconciler.policy import OnUnavailable, Policy
from reconciler.read.repositories.discovery import PackageAtRef, Survey, find_refs, survey_packages
from reconciler.read.repositories.drafts import read_groups
from reconciler.read.repositories.kptfiles import HeaderIndex
from reconciler.read.repositories.packages import ViewContent, read_packages
from reconciler.reasons import Reason
from reconciler.refs import HEADS, TAGS

CLUSTER = "reconciler.dev/cluster"
UNAVAILABLE = "reconciler.dev/unavailable"

Registration = Sourced[Repository]
Choose = Callable[[Mapping[ObjectName, RepositoryView]], Container[str]]
"""Returns the URLs of the repositories that a shard needs, as far as the views that were read tell."""


def read_repositories(
    registrations: Sequence[Registration],
    mirrors: Mirrors,
    policy: Policy,
    judge: Callable[[RepositoryView], Problem | None] = lambda _: None,
    *,
    choose: Choose | None = None,
    index_name: str = "",
) -> Mapping[ObjectName, RepositoryView]:
    """Return every registered repository as a view: what its Git repository held.

    Several views of one repository are one fetch and one reading of its refs. Total: a repository
    that cannot be read has its `problem` set and no content, and the others proceed.

    Args:
        registrations: The Repository objects.
        mirrors: Where repositories are opened.
        policy: Limits and choices.
        judge: Returns why a repository must not be read.
        choose: What a shard needs. Its repositories are read, and then those that it needs in view of what
            they hold, until nothing is missing. The others are skipped.
        index_name: Tells the index of Kptfiles from those of runs that read other repositories.
    """
    views = describe_repositories(registrations, mirrors, policy)
    views = {key: replace(view, problem=view.problem or judge(view)) for key, view in views.items()}
    index = HeaderIndex(mirrors.cache_dir / f"headers-{policy.instance}{index_name}.json")
    if choose is None:
        views |= _read_all([view for view in views.values() if view.is_available], mirrors, policy, index)
    else:
        skipped = {key: replace(view, role=RepositoryRole.SKIPPED) for key, view in views.items()}
        views |= {key: view for key, view in skipped.items() if view.problem is None}
        while needed := _needed(views, choose):
            views |= _read_all(needed, mirrors, policy, index)
    index.save()
    return dict(sorted(views.items()))


def _needed(views: Mapping[ObjectName, RepositoryView], choose: Choose) -> list[RepositoryView]:
    """Return the views that a shard needs and that were not read yet."""
    urls = choose(views)
    missing = (v for v in views.values() if v.role is RepositoryRole.SKIPPED and v.url in urls)
    return [replace(view, role=RepositoryRole.PLANNED) for view in missing]


def _read_all(
    views: Iterable[RepositoryView], mirrors: Mirrors, policy: Policy, index: HeaderIndex
) -> dict[ObjectName, RepositoryView]:
    views = list(views)
    fetched = mirrors.fetch_all(dict.fromkeys(view.remote for view in views))
    by_url: dict[str, list[RepositoryView]] = {}
    for view in views:
        by_url.setdefault(view.url, []).append(view)
    read = (view for url, some in by_url.items() for view in _read_url(fetched[url], some, policy, index))
    return {view.key: view for view in read}


def describe_repositories(
    registrations: Sequence[Registration], mirrors: Mirrors, policy: Policy
) -> Mapping[ObjectName, RepositoryView]:
    """Return every registered repository as its registration alone says it; none is read."""
    views = {registration.key: _empty_view(registration, mirrors, policy) for registration in registrations}
    return dict(sorted(views.items()))


def _empty_view(registration: Registration, mirrors: Mirrors, policy: Policy) -> RepositoryView:
    """Return the view with all that the registration says, and a problem if it says nothing usable."""
    manifest = registration.manifest
    git = manifest.spec.git or GitRepository(repo="")
    notes = manifest.metadata.annotations or {}
    view = RepositoryView(
        key=registration.key,
        url="",
        remote=without_user(git.repo),
        branch=git.branch,
        directory=str(PurePosixPath("/" + git.directory)).strip("/"),
        manifest=manifest,
        source=registration.source,
        cluster=notes.get(CLUSTER) or registration.key.name,
        unavailable=_on_unavailable(notes.get(UNAVAILABLE, ""), policy),
    )
    if manifest.spec.type != "git" or not git.repo:
        hint = "Set spec.type to git and spec.git.repo to its URL."
        return _failed(view, Reason.INVALID_MANIFEST, "Only Git repositories can be registered", hint, "spec")
    try:
        mirror = mirrors.open(git.repo)
        return replace(view, url=mirror.url, remote=mirror.remote)
    except UnavailableError as error:
        return _failed(view, Reason.REPOSITORY_UNAVAILABLE, str(error), error.hint)


def _read_url(
    mirror: Mirror | UnavailableError, siblings: list[RepositoryView], policy: Policy, index: HeaderIndex
) -> Iterator[RepositoryView]:
    try:
        if isinstance(mirror, UnavailableError):
            raise mirror
        yield from list(_read_views(mirror, siblings, policy, index))
    except UnavailableError as error:
        for view in siblings:
            yield _failed(view, Reason.REPOSITORY_UNAVAILABLE, str(error), error.hint)


def _read_views(
    mirror: Mirror, siblings: list[RepositoryView], policy: Policy, index: HeaderIndex
) -> Iterator[RepositoryView]:
    homes = frozenset(view.directory for view in siblings)
    found: dict[str, list[PackageAtRef]] = {}
    tips = {tip for view in siblings if (tip := mirror.refs().get(HEADS + view.branch))}
    groups = tuple(read_groups(mirror, sorted(tips), policy))
    grouped = (draft for group in groups for draft in group.drafts)
    for one in (*find_refs(mirror, lambda path: _home(path, homes) is not None), *grouped):
        found.setdefault(_home(one.named.path, homes) or "", []).append(one)
    materials = [_material(mirror, view, found.get(view.directory, ()), homes) for view in siblings]
    index.load(mirror, (oid for material in materials for oid in material.kptfiles()))
    branches = dict(_commits(mirror, HEADS))
    tags = dict(_commits(mirror, TAGS))
    for view, material in zip(siblings, materials, strict=True):
        if material.head is None and not _may_be_created(view):
            yield _no_branch(view, mirror)
            continue
        head = branches.get(view.branch)
        packages = read_packages(mirror, material, policy, index)
        standing = tuple(group.branch for group in groups)
        yield replace(
            view,
            head=head,
            packages=packages,
            directories=material.survey.directories,
            files=material.survey.files,
            branches=branches,
            tags=tags,
            groups=standing,
        )


def _material(
    mirror: Mirror, view: RepositoryView, found: Iterable[PackageAtRef], homes: frozenset[str]
) -> ViewContent:
    tip = mirror.refs().get(HEADS + view.branch)
    head = mirror.commit(tip) if tip else None
    others = homes - {view.directory}
    survey = survey_packages(mirror, head.tree, view.directory, others.__contains__) if head else Survey()
    return ViewContent(head, survey, tuple(found))


def _home(path: str, homes: frozenset[str]) -> str | None:
    """Return the most specific of the registered directories that holds `path`, None if none does."""
    while path and path not in homes:
        path = path.rpartition("/")[0]
    return path if path in homes else None


def _commits(mirror: Mirror, prefix: str) -> Iterator[tuple[str, Commit]]:
    for ref, oid in sorted(mirror.refs().items()):
        if ref.startswith(prefix) and (commit := mirror.find_commit(oid)):
            yield ref.removeprefix(prefix), Commit(oid, commit.committer.time)


def _may_be_created(view: RepositoryView) -> bool:
    git = view.manifest.spec.git
    return git is not None and git.create_branch


def _no_branch(view: RepositoryView, mirror: Mirror) -> RepositoryView:
    message = f"Repository {mirror.remote} has no branch {view.branch}"
    head = mirror.head_branch
    other = f"Its default branch is {head}. " if head and HEADS + head in mirror.refs() else ""
    hint = f"{other}Set spec.git.branch, push the branch, or set createBranch for an empty repository."
    return _failed(view, Reason.REPOSITORY_UNAVAILABLE, message, hint, "spec", "git", "branch")


def _on_unavailable(text: str, policy: Policy) -> OnUnavailable:
    return OnUnavailable(text) if text in set(OnUnavailable) else policy.unavailable


def _failed(view: RepositoryView, reason: Reason, message: str, hint: str, *field: str) -> RepositoryView:
    where = view.source.at(*(field or ("spec", "git", "repo")))
    return replace(view, problem=Problem(where, reason, message, hint, f"Repository {view.key}"))
