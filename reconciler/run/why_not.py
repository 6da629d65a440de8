"""The run of `why-not`: plan the fleet, and find what keeps one package from an upstream revision."""

from reconciler.expand import expand
from reconciler.plan.changes import Change
from reconciler.plan.obstacles import Standstill, find_obstacles
from reconciler.run.plan import PlannedRun


def explain_standstill(planned: PlannedRun, change: Change, version: str) -> Standstill:
    """Return what keeps a package from an upstream revision, "" for the newest one."""
    traced = {variant.key: variant.trace for variant in expand(planned.inputs.inventory, trace=True).variants}
    return find_obstacles(planned.plan, change, planned.names.of(change), version, traced)
