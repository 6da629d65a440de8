"""Statuses and problems that one shard of a run reports."""

from collections.abc import Iterable

from reconciler.base.errors import Problem
from reconciler.plan.changes import Plan
from reconciler.plan.context import PlanContext
from reconciler.plan.deletion_evidence import claimed_packages
from reconciler.plan.shard import Shard
from reconciler.plan.status import PackageStatus


def statuses_of(
    shard: Shard, statuses: Iterable[PackageStatus], context: PlanContext
) -> tuple[PackageStatus, ...]:
    """Return the statuses that a shard tells of: those of its packages; the first one also what has none."""
    packages = {v.key: package for package, variants in context.downstreams.items() for v in variants}

    def is_own(status: PackageStatus) -> bool:
        package = status.package or (packages.get(status.variant) if status.variant else None)
        return shard.holds(package.url) if package else shard.part == 0

    return tuple(filter(is_own, statuses))


def problems_of(shard: Shard, plan: Plan) -> tuple[Problem, ...]:
    """Return the problems that a shard tells of: those of its packages; the first one also what has none."""
    context = plan.context
    if context is None:
        return plan.problems
    urls = {f"PackageVariant {v.key}": p.url for p, variants in context.downstreams.items() for v in variants}
    claims = claimed_packages(context.stalled, context.inventory)
    urls |= {f"PackageVariant {key}": package.url for package, key in claims.items()}
    urls |= {f"Repository {key}": view.url for key, view in context.inventory.repositories.items()}
    own = (shard.holds(urls[p.subject]) if p.subject in urls else shard.part == 0 for p in plan.problems)
    return tuple(problem for problem, is_own in zip(plan.problems, own, strict=True) if is_own)
