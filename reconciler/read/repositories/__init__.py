"""Read the views of all registered repositories, fetching each Git repository once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.api.porch import GitRepository, Repository
from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.errors import UnavailableError
from reconciler.base.progress import track
from reconciler.base.reasons import Reason
from reconciler.forge.local.pulls import record_blobs
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import without_user
from reconciler.inventory.inventory import PackageState, RepositoryView, Sourced, available_by_url, unusable
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import HEADS, TAGS, parse_ref
from reconciler.policy import ForgeKind, OnUnavailable, Policy, find_rule
from reconciler.read.repositories.discovery import PackageAtRef, find_refs, settle_addresses, survey_packages
from reconciler.read.repositories.packages import (
    ViewContent,
    read_emptied,
    read_groups,
    read_packages,
    read_root,
    share_texts,
)
from reconciler.read.repositories.trees import HeaderIndex, tag_commits, with_commits

CLUSTER = "reconciler.dev/cluster"
"""Annotation of a Repository: the cluster that its packages are deployed to."""
UNAVAILABLE = "reconciler.dev/unavailable"
"""Annotation of a Repository: whether a run fails if it is unavailable."""

_CODE_OWNERS = {
    ForgeKind.GITHUB: (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    ForgeKind.GITLAB: ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
}
"""Where the file may be, the first one counts. Gitea's server asks the owners by itself.

Source: GitHub's documentation, "About code owners"; GitLab's, "Code Owners".
"""

Registration = Sourced[Repository]


def read_repositories(
    views: Mapping[ObjectName, RepositoryView],
    mirrors: Mirrors,
    policy: Policy,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[ObjectName, RepositoryView]:
    """Return described views with their content. Views of one Git repository share one fetch.

    Total: an unavailable repository has a `problem` and no content, and the others proceed. Equal paths and
    trees of packages in `texts` are not held twice.
    """
    reading = _Reading(policy, HeaderIndex(), texts)

    def without(left_out: Mapping[ObjectName, DefectError]) -> dict[ObjectName, RepositoryView]:
        usable = {**views, **{key: unusable(views[key], error) for key, error in left_out.items()}}
        available = [view for view in usable.values() if view.is_available]
        fetched = mirrors.fetch_all(dict.fromkeys(view.remote for view in available))
        by_url = available_by_url(available)
        readable = {url: mirror for url in by_url if isinstance(mirror := fetched[url], Mirror)}
        mirrors.ensure_all({url: _read_anyway(mirror, by_url[url]) for url, mirror in readable.items()})
        groups = track(by_url.items(), "reading repositories")
        pages = (_read_url(fetched[url], siblings, reading) for url, siblings in groups)
        return usable | {view.key: view for view in chain.from_iterable(pages)}

    return isolate(lambda: views, without, lambda key: f"Repository {key}")[0]


def with_commits_of_tags(
    views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors
) -> Mapping[ObjectName, RepositoryView]:
    """Return views in which no upstreamLock names the object of a tag of any of them. Idempotent.

    kpt writes that object's id for an annotated tag, and everything here compares commits.
    """
    tags = tag_commits(views, mirrors)

    def of(package: PackageState) -> PackageState:
        header = package.main_header and with_commits(package.main_header, tags)
        drafts = tuple(replace(draft, header=with_commits(draft.header, tags)) for draft in package.drafts)
        return replace(package, main_header=header, drafts=drafts)

    def names_tag(package: PackageState) -> bool:
        headers = (package.main_header, *(draft.header for draft in package.drafts))
        return any(h and h.upstream_lock and h.upstream_lock.commit in tags for h in headers)

    changed = {
        key: {path: of(package) for path, package in view.packages.items() if names_tag(package)}
        for key, view in (views.items() if tags else ())
    }
    return {
        key: replace(view, packages={**view.packages, **changed[key]}) if changed.get(key) else view
        for key, view in views.items()
    }


class _Reading(NamedTuple):
    policy: Policy
    headers: HeaderIndex
    texts: Mapping[str, str]


def describe_repositories(
    registrations: Sequence[Registration],
    mirrors: Mirrors,
    policy: Policy,
    check: Callable[[RepositoryView], Problem | None] = lambda _: None,
    *,
    home: str = "",
) -> Mapping[ObjectName, RepositoryView]:
    """Return the views of registered repositories without content; none is read.

    `check` refuses repositories that must not be read: they are not opened, and of two addresses of one
    repository only the first one is. `home` is the URL of the control repository, which is read at the
    address of the run.
    """

    def described(registration: Registration) -> RepositoryView:
        try:
            with guard(f"Repository {registration.key}"):
                view = _empty_view(registration, mirrors, policy)
                return replace(view, problem=view.problem or check(view))
        except DefectError as error:
            key, manifest, source = registration.key, registration.manifest, registration.source
            return unusable(RepositoryView(key, "", "", "", "", manifest, source), error)

    checked = [*map(described, registrations)]
    opened = {view.key: _opened(view, mirrors) for view in settle_addresses(checked, policy, home)}
    return dict(sorted(opened.items()))


def _empty_view(registration: Registration, mirrors: Mirrors, policy: Policy) -> RepositoryView:
    """Return the view of a registration without content, with a problem if it is not usable."""
    manifest = registration.manifest
    git = manifest.spec.git or GitRepository.model_construct(repo="")
    annotations = manifest.metadata.annotations or {}
    unavailable = annotations.get(UNAVAILABLE, "")
    view = RepositoryView(
        key=registration.key,
        url="",
        remote=without_user(git.repo),
        branch=git.branch,
        directory=str(PurePosixPath("/" + git.directory)).strip("/"),
        manifest=manifest,
        source=registration.source,
        cluster=annotations.get(CLUSTER) or registration.key.name,
        unavailable=OnUnavailable(unavailable) if unavailable in set(OnUnavailable) else policy.unavailable,
    )
    if manifest.spec.type != "git" or not git.repo:
        hint = "Set spec.type to git and spec.git.repo to its URL."
        return _failed(view, Reason.INVALID_MANIFEST, "Only Git repositories can be registered", hint, "spec")
    try:
        remote = mirrors.parse(git.repo)
        return replace(view, url=remote.url, remote=remote.address)
    except UnavailableError as error:
        return _failed(view, Reason.REPOSITORY_UNAVAILABLE, str(error), error.hint)


def _opened(view: RepositoryView, mirrors: Mirrors) -> RepositoryView:
    if view.problem is not None or view.manifest.spec.git is None:
        return view
    try:
        with guard(f"Repository {view.key}"):
            return replace(view, remote=mirrors.open(view.manifest.spec.git.repo).remote)
    except (UnavailableError, DefectError) as error:
        return unread(view, error)


def _read_url(
    mirror: Mirror | UnavailableError | DefectError, siblings: list[RepositoryView], reading: _Reading
) -> Iterator[RepositoryView]:
    try:
        if not isinstance(mirror, Mirror):
            raise mirror
        with guard(f"repository {mirror.remote}"):
            # Of a place that an older version recorded the branch is not known.
            siblings = [
                view if view.branch else replace(view, branch=mirror.head_branch) for view in siblings
            ]
            views, broken = isolate(
                lambda: _paths(mirror, siblings),
                lambda left_out: list(_read_views(mirror, siblings, reading, left_out)),
                lambda path: f"package {path} of {mirror.remote}",
            )
    except (UnavailableError, DefectError) as error:
        yield from (unread(view, error) for view in siblings)
        return
    for view in views:
        place, prefix = view.source.location, f"{view.directory}/" if view.directory else ""
        faults = {
            path: defect_problem(error, place, subject=f"package {path}")
            for path, error in broken.items()
            if path.startswith(prefix)
        }
        yield replace(view, broken=faults) if faults else view


def unread(view: RepositoryView, error: UnavailableError | DefectError) -> RepositoryView:
    """Return a view without content: its repository was not read, or a bug of ours broke the reading."""
    if isinstance(error, DefectError):
        return unusable(view, error)
    problem = view.problem_at(Reason.REPOSITORY_UNAVAILABLE, str(error), error.hint, cause=error.cause)
    return replace(view, problem=problem, head=None, packages={}, branches={}, tags={})


def _paths(mirror: Mirror, siblings: Iterable[RepositoryView]) -> set[str]:
    contents = [_content(mirror, view, (), ()) for view in siblings]
    on_main = {package.path for content in contents for package in content.survey.packages}
    return on_main | {named.path for ref in mirror.refs() if (named := parse_ref(ref)) is not None}


def _read_views(
    mirror: Mirror, siblings: list[RepositoryView], reading: _Reading, left_out: Mapping[str, DefectError]
) -> Iterator[RepositoryView]:
    policy, index = reading.policy, reading.headers
    directories = frozenset(view.directory for view in siblings)
    tips = {tip for view in siblings if (tip := mirror.refs().get(HEADS + view.branch))}
    groups = tuple(read_groups(mirror, sorted(tips), policy))
    emptied = list(read_emptied(mirror, tips, policy))
    grouped = (draft for group in groups for draft in group.drafts)
    refs: dict[str, list[PackageAtRef]] = {}

    def is_inside(path: str) -> bool:
        return path not in left_out and _directory(path, directories) is not None

    for ref in (*find_refs(mirror, is_inside), *(group for group in grouped if is_inside(group.named.path))):
        refs.setdefault(_directory(ref.named.path, directories) or "", []).append(ref)
    inside = _directories_inside(directories)
    contents = [
        (view, _content(mirror, view, refs.get(view.directory, ()), inside[view.directory] | left_out.keys()))
        for view in siblings
    ]
    index.load(mirror, (oid for _, content in contents for oid in content.kptfiles()))
    branches, tags = dict(_commits(mirror, HEADS)), dict(_commits(mirror, TAGS))
    tag_objects = mirror.tag_commits()
    yield from (_no_branch(view, mirror) for view, content in contents if not _has_branch(view, content))
    contents = [(view, content) for view, content in contents if _has_branch(view, content)]
    unfit = {view.key: what for view, content in contents if (what := _unfit_directory(view, content))}
    yield from (_no_place(view, unfit[view.key]) for view, _ in contents if view.key in unfit)
    contents = [(view, content) for view, content in contents if view.key not in unfit]
    read = read_packages(mirror, [content for _, content in contents], policy, index)
    for (view, content), packages in zip(contents, read, strict=True):
        yield replace(
            view,
            head=branches.get(view.branch),
            packages=share_texts(packages, reading.texts),
            root=read_root(mirror, content, index) if not view.directory else None,
            directories=content.survey.directories,
            files=content.survey.files,
            branches=branches,
            tags=tags,
            tag_objects=tag_objects,
            groups=(*(group.branch for group in groups), *emptied),
            code_owners=_read_code_owners(mirror, content.head, policy),
        )


def _read_anyway(mirror: Mirror, siblings: Iterable[RepositoryView]) -> Iterator[Oid]:
    """Yield the Kptfiles of packages on main and in drafts, and the records of local pull requests."""
    refs = tuple(find_refs(mirror, lambda _: True))
    for view in siblings:
        yield from filter(None, _content(mirror, view, refs, ()).kptfiles())
    yield from (oid for _, oid in record_blobs(mirror) if oid)


def _has_branch(view: RepositoryView, content: ViewContent) -> bool:
    git = view.manifest.spec.git
    return content.head is not None or bool(git and git.create_branch)


def _read_code_owners(mirror: Mirror, head: CommitData | None, policy: Policy) -> str:
    """Return CODEOWNERS of a repository if it is used; "" if there is none, or none that can be read."""
    rule = find_rule(policy.forges, mirror.remote)
    locations = _CODE_OWNERS.get(rule.kind, ()) if rule is not None else ()
    if head is None or not policy.pull_requests.code_owners:
        return ""
    blob = next((oid for path in locations if (oid := mirror.blob_at(head.tree, path))), None)
    if blob is None:
        return ""
    mirror.ensure([blob])
    try:
        return mirror.blob(blob, policy.limits.manifest_bytes).decode(errors="replace")
    except PackageRefusedError:
        return ""


def _content(
    mirror: Mirror, view: RepositoryView, refs: Sequence[PackageAtRef], inside: Collection[str]
) -> ViewContent:
    tip = mirror.refs().get(HEADS + view.branch)
    if tip is None:
        return ViewContent(None, tuple(refs))
    head = mirror.commit(tip)
    survey = survey_packages(
        mirror, head.tree, view.directory, inside.__contains__, plain=view.manifest.has_plain_packages
    )
    return ViewContent(head, tuple(refs), survey)


def _directories_inside(directories: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return for each directory of a view the directories of other views in it, at any depth."""
    inside: dict[str, set[str]] = {directory: set() for directory in directories}
    for directory in inside:
        above = directory
        while above:
            above = above.rpartition("/")[0]
            if above in inside:
                inside[above].add(directory)
    return {directory: frozenset(below) for directory, below in inside.items()}


def _directory(path: str, directories: frozenset[str]) -> str | None:
    while path and path not in directories:
        path = path.rpartition("/")[0]
    return path if path in directories else None


def _commits(mirror: Mirror, prefix: str) -> Iterator[tuple[str, Commit]]:
    for ref, oid in sorted(mirror.refs().items()):
        if ref.startswith(prefix) and (commit := mirror.find_commit(oid)):
            yield ref.removeprefix(prefix), Commit(oid, commit.committer.time)


def _no_branch(view: RepositoryView, mirror: Mirror) -> RepositoryView:
    message = f"Repository {mirror.remote} has no branch {view.branch}"
    head = mirror.head_branch
    other = f"Its default branch is {head}. " if head and HEADS + head in mirror.refs() else ""
    hint = f"{other}Set spec.git.branch, push the branch, or set createBranch for an empty repository."
    return _failed(view, Reason.REPOSITORY_UNAVAILABLE, message, hint, "spec", "git", "branch")


def _unfit_directory(view: RepositoryView, content: ViewContent) -> str:
    """Return what is in place of a directory for packages of a cluster: a package or a file, else ""."""
    if not (view.deployment and view.directory):
        return ""  # variants may be made from a package there: it is their upstream "."
    packages = {package.path for package in content.survey.packages if package.kptfile is not None}
    is_file = view.directory in content.survey.files
    return "package" if view.directory in packages else "file" if is_file else ""


def _no_place(view: RepositoryView, what: str) -> RepositoryView:
    message = f"directory {view.directory} is a {what} on branch {view.branch}"
    hint = "Name a directory that holds packages, or leave the field out."
    return _failed(view, Reason.INVALID_MANIFEST, message, hint, "spec", "git", "directory")


def _failed(view: RepositoryView, reason: Reason, message: str, hint: str, *field: str) -> RepositoryView:
    return replace(view, problem=view.problem_at(reason, message, hint, *field))
