"""The run of `apply`: do what was planned, each effect once."""

from collections.abc import Callable, Sequence

from reconciler.apply.dashboard import DashboardWriter
from reconciler.apply.links import Links, UpstreamLog
from reconciler.apply.outcome import Target
from reconciler.apply.plan import apply_changes
from reconciler.apply.preconditions import check_applicable
from reconciler.apply.pulls import lock_texts
from reconciler.base import effects
from reconciler.base.defects import DefectError, guard
from reconciler.base.progress import stage
from reconciler.inventory.inventory import repository_commits
from reconciler.plan.changes import Effect, Outcome
from reconciler.report.diff import DifferenceReader
from reconciler.run.plan import PlannedRun

OnEffects = Callable[[Sequence[Effect]], None]


def apply_plan(planned: PlannedRun, *, checksum: str = "", on_effects: OnEffects = lambda _: None) -> Outcome:
    """Apply a plan in the order in which an interruption at any point does no harm (D21).

    Raises:
        RefusedError: The plan is not safe to apply, or is not the reviewed one; nothing was written.
    """
    inputs, inventory = planned.inputs, planned.inputs.inventory
    policy, views = inventory.policy, inventory.views.values()
    control = inputs.mirrors.open(inventory.control.remote)
    check_applicable(
        planned.plan, checksum=checksum, control=inventory.control, default_branch=control.head_branch
    )
    differences, log = DifferenceReader(), UpstreamLog(inputs.mirrors, policy.limits)
    texts = lock_texts(planned.plan.lock)
    # A reviewed lock is proposed as a pull request on the control repository itself.
    remotes = {view.url: view.remote for view in views if view.is_available}
    remotes |= {inventory.control.url: control.remote} if planned.plan.lock is not None else {}
    targets: dict[str, Target] = {}
    unusable: dict[str, DefectError] = {}
    for url, remote in remotes.items():
        try:
            with guard(f"repository {remote}"):
                mirror = inputs.mirrors.open(remote)
                targets[url] = Target(
                    mirror,
                    inputs.forges.of(mirror),
                    repository_commits(inventory.views_of(url), policy.commits),
                    planned.names,
                    policy.risks,
                    Links(policy.forges, control, inventory.control.commit.oid),
                    differences,
                    log,
                    texts,
                    planned.contents,
                )
        except DefectError as error:
            unusable[url] = error
    forge = inputs.forges.of(control)
    has_dashboard = policy.pull_requests.dashboard
    dashboards = DashboardWriter(forge, planned.names, inputs.forges.shard) if has_dashboard else None
    with effects.applying(), stage("apply"):
        return apply_changes(
            planned.plan, inventory, targets, control, on_effects, dashboards=dashboards, unusable=unusable
        )
