"""The run of `graph --of packages`: plan, and draw the packages that are named. Nothing more is read."""

from collections.abc import Sequence

from reconciler.base.graph import Graph
from reconciler.plan.fleet_graph import fleet_graph
from reconciler.plan.fleet_packages import FleetPackage, fleet_packages, published_upstreams
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run


def read_packages(options: RunOptions) -> tuple[PlannedRun, tuple[FleetPackage, ...]]:
    """Return every package of the fleet as it is now, and the run that it was read in."""
    planned = plan_run(options)
    return planned, fleet_packages(planned.plan)


def draw_fleet(
    planned: PlannedRun, packages: Sequence[FleetPackage], names: Sequence[str] = (), cluster: str = ""
) -> Graph:
    """Return the graph of the packages that match one of the names and the cluster; by default of all."""
    shown = [package for package in packages if package.matches(names, cluster)]
    return fleet_graph(packages, published_upstreams(planned.inputs.inventory, packages), shown)
