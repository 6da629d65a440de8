"""Which checks passed on the heads that a policy may approve; asked only where a rule wants to know."""

from collections.abc import Iterator, Mapping

from reconciler.errors import ReconcilerError
from reconciler.forge.choose import Forges
from reconciler.git.repository import Mirrors
from reconciler.ids import ObjectName
from reconciler.inventory import PullRequest, RepositoryView
from reconciler.plan.approvals import wanted_checks
from reconciler.policy import Policy


def read_passed(
    views: Mapping[ObjectName, RepositoryView],
    pulls: Mapping[str, tuple[PullRequest, ...]],
    forges: Forges,
    mirrors: Mirrors,
    policy: Policy,
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield the checks that passed by repository and commit. What cannot be asked has passed nothing."""
    by_url: dict[str, list[RepositoryView]] = {}
    for view in views.values() if any(rule.checks for rule in policy.approvals) else ():
        if view.is_available:
            by_url.setdefault(view.url, []).append(view)
    for url, some in by_url.items():
        forge = forges.of(mirrors.open(some[0].remote))
        for commit in wanted_checks(some, pulls.get(url, ()), policy):
            try:
                yield (url, commit), forge.passed_checks(commit)
            except ReconcilerError:
                continue
