"""State and status deleted, forged, older or newer, and a clock that is off: no package is touched."""

import json
import re
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.records.state import VARIANTS_FORMAT
from tests.faults.moments import MOMENTS
from tests.faults.promises import final
from tests.faults.world import FaultWorld, Ran, Runner, make_world
from tests.support.git import Repo
from tests.support.small_world import EDGES, manifest, variant

pytestmark = pytest.mark.slow

STATE = "refs/heads/reconciler/fleet/state"
STATUS = "refs/heads/reconciler/fleet/status"
RECORDS = "packagevariants/default/edge-1.jsonl"


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "points")


def _done(ran: Ran) -> None:
    assert ran.code == 0, ran.out


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> FaultWorld:
    """Make a world that was applied twice, so that its state has a past; saved, for it is made once."""
    directory = tmp_path_factory.mktemp("settled")
    made = make_world(directory / "w", Runner(directory / "points"), EDGES[:2])
    _done(made.run("apply"))
    _done(made.run("approve", "edge-1/db"))
    made.repo("control").commit({manifest(EDGES[1], "web"): variant(EDGES[1], "web", revision=2)})
    _done(made.run("apply"))
    made.save()
    return made


@pytest.fixture
def world(settled: FaultWorld) -> FaultWorld:
    settled.restore()
    return settled


def delete(repo: Repo, ref: str) -> None:
    repo.delete(ref)


def put_back(repo: Repo, ref: str) -> None:
    (parent,) = repo.git[repo.refs()[ref]].parent_ids
    repo.point(ref, str(parent))


def forge(repo: Repo, ref: str) -> None:
    """Let somebody write what we never write: no JSON, other types, another package's name."""
    files = [entry.name for entry in repo.git[repo.refs()[ref]].tree]
    assert files
    lying = json.dumps({"apiVersion": "reconciler.dev/v1alpha1", "kind": "Nobody", "name": ["web"]})
    branch = ref.removeprefix("refs/heads/")
    repo.commit({RECORDS: "{", "packagevariants/default/edge-2.jsonl": lying, "x": "y"}, branch=branch)


def replace_by_unrelated(repo: Repo, ref: str) -> None:
    tree = repo.git[repo.refs()["refs/heads/main"]].tree_id
    repo.point(ref, repo.write(str(tree), []))


FAULTS = {
    "deleted": delete,
    "older": put_back,
    "forged": forge,
    "replaced by an unrelated commit": replace_by_unrelated,
}


UNEDITED = re.compile(rb'"unedited":\[[^]]*\],?')
"""Trees that nobody edited: a lost state knows none, so `approve --all` leaves more deletions to people."""


@pytest.mark.parametrize("ref", [STATE, STATUS], ids=["state", "status"])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_state_that_is_not_ours_moves_no_package_and_is_written_again(
    fault: str, ref: str, world: FaultWorld
) -> None:
    wanted = final(world, UNEDITED)
    FAULTS[fault](world.repo("control"), ref)

    again = world.run("apply")

    assert "Traceback" not in again.out
    is_told = (fault, ref) == ("forged", STATE)
    assert again.code == (Exit.INVALID_INPUT if is_told else Exit.DONE), again.out
    assert ("InvalidState" in again.out and "hint" in again.out) is is_told, again.out
    assert world.run("apply").code == Exit.DONE
    assert final(world, UNEDITED) == wanted


def test_a_lost_state_deletes_nothing_although_a_manifest_went_with_it(world: FaultWorld) -> None:
    before = {name: refs for name, refs in world.refs().items() if name != "control.git"}
    control = world.repo("control")
    control.delete(STATE)
    control.commit({manifest(EDGES[0], "db"): None})

    ran = world.run("apply")

    assert ran.code == Exit.DONE, ran.out
    assert {name: refs for name, refs in world.refs().items() if name != "control.git"} == before
    assert "OwnerUnknown" in world.run("plan", "--output", "json").out


def test_the_state_of_a_newer_version_stops_the_run_and_stays(world: FaultWorld) -> None:
    control = world.repo("control")
    text = control.read(STATE, VARIANTS_FORMAT).decode()
    newer = text.replace("reconciler.dev/v1alpha2", "reconciler.dev/v2")
    control.commit({VARIANTS_FORMAT: newer}, branch="reconciler/fleet/state")
    control.commit({manifest(EDGES[0], "web"): variant(EDGES[0], "web", revision=2)})
    before = world.refs()

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert "newer" in ran.out
    assert "hint" in ran.out
    assert world.refs() == before


@pytest.mark.parametrize("name", ["later-apply", "groups", "reviewed", "delivery"])
@pytest.mark.parametrize("offset_s", [-3600.0, 3600.0])
def test_a_clock_that_is_an_hour_off_changes_no_commit(
    name: str, offset_s: float, runner: Runner, tmp_path: Path
) -> None:
    moment = MOMENTS[name]
    world = moment.build(tmp_path / "w", runner)
    world.save()
    code = world.run(*moment.line).code
    wanted = world.refs()

    world.restore()

    assert world.run(*moment.line, clock_s=offset_s).code == code
    assert world.refs() == wanted
