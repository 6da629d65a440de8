"""One address for each repository: what counts where two registrations would read it in two ways."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.git.urls import reading_of
from reconciler.inventory.inventory import RepositoryView
from reconciler.names.ids import is_prefix
from reconciler.policy import Policy
from reconciler.read.files import is_below

_HINT = "Write one address in both, or delete one of the two; spec.addresses may list the one that is meant."


def is_of_cluster(view: RepositoryView, policy: Policy) -> bool:
    """Tell whether a snapshot names a repository, and no manifest of that name."""
    return is_below(view.source.location.path, policy.snapshot.path)


def settle_addresses(views: Iterable[RepositoryView], policy: Policy, home: str) -> Iterator[RepositoryView]:
    """Yield every view; those of a repository with its first one first, and a problem at other addresses.

    Two addresses differ if the repository would be read in two ways: by another scheme or user. The first
    one is that of a manifest before a snapshot's; then one that a rule of `verify`, `credentials` or `forges`
    names with its scheme; then one that is encrypted; then the first by file and line. No name counts, and
    nothing that is refused. The control repository, at `home`, is read at the address of the run.
    """
    prefixes = [rule.prefix for rules in (policy.verify, policy.credentials, policy.forges) for rule in rules]

    def order(view: RepositoryView) -> tuple[Any, ...]:
        is_named = any(is_prefix(prefix, view.remote) for prefix in prefixes)
        is_clear = view.remote.lower().startswith("http:")
        return is_of_cluster(view, policy), not is_named, is_clear, view.source.location, view.key

    usable = []
    for view in views:
        if view.problem is None:
            usable.append(view)
        else:
            yield view
    usable.sort(key=lambda view: (view.url, *order(view)))
    for url, group in groupby(usable, lambda view: view.url):
        first, *others = group
        yield first
        for view in others:
            yield view if url == home or _way(view) == _way(first) else _refused(view, first)


def _way(view: RepositoryView) -> object:
    git = view.manifest.spec.git
    return reading_of(git.repo if git else view.remote)


def _refused(view: RepositoryView, first: RepositoryView) -> RepositoryView:
    message = (
        f"{view.remote} is the repository that {first.source.at('spec', 'git', 'repo')} registers as "
        f"{first.remote}, and would be read in another way; that one counts"
    )
    return replace(view, problem=view.problem_at(Reason.REPOSITORY_REFUSED, message, _HINT))
