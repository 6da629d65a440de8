"""Moments in the life of a small world at which a run is disturbed, and the command that runs then."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.faults.world import PROJECT, FaultWorld, Ran, Runner, live, make_world
from tests.support.small_world import EDGES, manifest, variant
from tests.support.world import build_world

DELIVERY = PROJECT / "fixtures/worlds/70-crossplane-delivery"


def first(world: FaultWorld) -> None:
    """Nothing was ever applied."""
    del world


def later(world: FaultWorld) -> None:
    """Everything that can happen to a fleet happened since the last run."""
    _done(world.run("apply"))
    live(world)


def opened(world: FaultWorld) -> None:
    """Drafts and deletions wait for approval."""
    later(world)
    assert world.run("apply").code in (0, 7)


def grouped(world: FaultWorld) -> None:
    """Each repository has one group: nothing was ever applied."""
    control = world.repo("control")
    text = control.read("main", "reconciler.yaml").decode()
    control.commit({"reconciler.yaml": f"{text}  pullRequests: {{groupBy: repository}}\n"})


def grouped_later(world: FaultWorld) -> None:
    """One group was edited, one merged, one closed; then upstream moved and a variant went."""
    grouped(world)
    _done(world.run("apply"))
    first, second, third = map(world.repo, EDGES)
    first.commit({"db/notes.txt": "Mine\n"}, branch=_group("edge-1"))
    second.merge(_group("edge-2"))
    _done(world.run("pr", "close", "edge-3#1"))
    asked = {manifest(edge, "web"): variant(edge, "web", revision=2) for edge in EDGES}
    world.repo("control").commit({**asked, manifest("edge-1", "db"): None, manifest("edge-2", "db"): None})
    assert third.oid(_group("edge-3"))


def grouped_open(world: FaultWorld) -> None:
    """Groups wait for approval."""
    grouped(world)
    _done(world.run("apply"))


def reviewed(world: FaultWorld) -> None:
    """Pins are reviewed: the first ones are merged, one tag has moved since, and one variant is new."""
    control = world.repo("control")
    text = control.read("main", "reconciler.yaml").decode()
    floating = {manifest(edge, "web"): _floating(edge) for edge in EDGES[1:]}
    control.commit({"reconciler.yaml": f"{text}  lock: {{mode: reviewed}}\n", **floating})
    world.repo("blueprints").tag("web/stable", "web/v1")
    _done(world.run("apply"))
    _done(world.run("approve", "control/locks"))
    _done(world.run("apply"))
    world.repo("blueprints").tag("web/stable", "web/v2")
    control.commit({manifest(EDGES[0], "web"): _floating(EDGES[0])})


def reviewed_open(world: FaultWorld) -> None:
    """The proposal of another lock waits for approval."""
    reviewed(world)
    _done(world.run("apply"))


def _done(ran: Ran) -> None:
    assert ran.code == 0, ran.out


def _floating(edge: str) -> str:
    return variant(edge, "web").replace("revision: 1", "tag: stable")


def _group(edge: str) -> str:
    return f"reconciler/fleet/group/repository/default/{edge}/1"


APPLY = ("apply", "--output", "json")
DELETING = APPLY
APPROVE = ("approve", "--output", "json")


class Moment(NamedTuple):
    """Which of the three worlds it is, how the world gets there, and the command that is disturbed."""

    world: str
    make: Callable[[FaultWorld], None]
    line: tuple[str, ...]
    source: Path | None = None

    def build(self, root: Path, runner: Runner) -> FaultWorld:
        """Make the world and bring it to this moment."""
        made = make_world(root, runner) if self.source is None else _built(self.source, root, runner)
        self.make(made)
        return made


def _built(source: Path, root: Path, runner: Runner) -> FaultWorld:
    return FaultWorld(build_world(source, root).root, runner)


MOMENTS = {
    "first-apply": Moment("ungrouped", first, APPLY),
    "later-apply": Moment("ungrouped", later, DELETING),
    "approve-all": Moment("ungrouped", opened, (*APPROVE, "--all")),
    "groups": Moment("grouped", grouped, APPLY),
    "later-groups": Moment("grouped", grouped_later, DELETING),
    "approve-groups": Moment("grouped", grouped_open, (*APPROVE, "--all")),
    "reviewed": Moment("locks", reviewed, APPLY),
    "approve-lock": Moment("locks", reviewed_open, (*APPROVE, "control/locks")),
    "delivery": Moment("locks", first, APPLY, DELIVERY),
}
