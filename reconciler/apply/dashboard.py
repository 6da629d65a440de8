"""The dashboard, after everything else: an issue of the control repository, or a file beside the status."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.apply.outcome import Did, Result, Target, failure
from reconciler.errors import ReconcilerError
from reconciler.forge.api_errors import duration_text
from reconciler.forge.api_forge import ApiForge
from reconciler.forge.registry import Forge
from reconciler.plan.changes import Effect, Plan
from reconciler.plan.rejection import dashboard_key
from reconciler.plan.shard import WHOLE, Shard, dashboard_file, problems_of, statuses_of
from reconciler.plan.status import PackageStatus
from reconciler.report.dashboard import Dashboard, make_dashboard, merge_parts
from reconciler.report.summary import Names

EMPTY = "There is no package."


@dataclass(frozen=True, slots=True)
class Board:
    """Where the dashboard of an instance is kept, and what packages are called there.

    Each shard writes its part: a section of the one issue, or a file of its own.
    """

    forge: Forge
    names: Names
    shard: Shard = WHOLE

    def make(
        self,
        plan: Plan,
        statuses: Sequence[PackageStatus],
        results: Mapping[str, Result],
        targets: Mapping[str, Target],
    ) -> Dashboard:
        """Return what the dashboard should say after these results."""
        if self.shard.parts > 1 and plan.context is not None:
            statuses = statuses_of(self.shard, statuses, plan.context)
            refusals = plan.refusals if self.shard.part == 0 else ()
            plan = replace(plan, problems=problems_of(self.shard, plan), refusals=refusals)
        return make_dashboard(plan, statuses, self.names, _eta(results, targets))

    def files(self, dashboard: Dashboard) -> Mapping[str, bytes]:
        """Return the dashboard as files of the status branch; none where it is an issue."""
        if isinstance(self.forge, ApiForge) or not dashboard.text:
            return {}
        return {dashboard_file(self.shard): dashboard.text.encode()}

    def write(self, dashboard: Dashboard) -> Result:
        """Bring the issue up to date; one is opened only if it calls for somebody. Its failure is its own."""
        if not isinstance(self.forge, ApiForge):
            return Result()
        forge, instance = self.forge, self.names.instance
        key, title = dashboard_key(instance), f"Dashboard of {instance}"
        forge.transport.budget.reserve(0)
        try:
            found = forge.find_issue(key) if self.shard.parts > 1 or not dashboard.calls else None
            if not dashboard.calls and found is None:
                return Result()
            text = merge_parts(found.body if found else "", dashboard.text, self.shard.part, self.shard.parts)
            issue = forge.write_issue(key, title, text or EMPTY)
        except ReconcilerError as error:
            return failure(forge.dialect.name, error, (), title, did=Did.UPDATED)
        effects = (Effect(forge.dialect.name, Did.UPDATED, f"#{issue.number} {title}"),) if issue else ()
        return Result(effects)


def hold_back(forges: Iterable[Forge]) -> None:
    """Keep one write of each forge for the dashboard, which matters most where a limit ends a run."""
    for forge in forges:
        if isinstance(forge, ApiForge):
            forge.transport.budget.reserve(1)


def _eta(results: Mapping[str, Result], targets: Mapping[str, Target]) -> str:
    """Return how long what is left takes, on the forge where that is longest; empty if nothing is left."""
    counts: dict[ApiForge, int] = {}
    for url, result in results.items():
        forge = targets[url].forge
        if isinstance(forge, ApiForge) and result.left:
            known = next((one for one in counts if one.transport is forge.transport), forge)
            counts[known] = counts.get(known, 0) + result.left
    waits = [forge.transport.budget.eta_s(count) for forge, count in counts.items()]
    return duration_text(max(waits)) if waits else ""
