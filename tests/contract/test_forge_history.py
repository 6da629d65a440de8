"""A run lists no pull request that ended long ago, and judges each as if it did."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reconciler.records.state import PULLS_DIRECTORY
from tests.support.forges.bench import DIALECTS, shorten_pages
from tests.support.forges.server import HOUR, Entry
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.small_world import manifest, variant

pytestmark = pytest.mark.slow

EDGE = "edge-1"
NAME = f"acme/{EDGE}"
DAY = 24 * HOUR
FATES = ("closed", "deleted", "gone", "merged", "reopened", "restored", "upgraded")
"""What happens to the pull request of each package."""


@pytest.fixture(params=list(DIALECTS))
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    with forge_world(request.param, tmp_path / "world", monkeypatch, edges=(EDGE,), packages=FATES) as made:
        shorten_pages(made.simulator, 4, monkeypatch)
        yield made


def lists(world: ForgeWorld, since: int) -> list[Entry]:
    """Return the requests for lists of pull requests since a place in the journal."""
    ends = ("/pulls", "/merge_requests", "/pullrequests")
    return [e for e in world.simulator.journal[since:] if e.path.endswith(ends)]


def assert_same_plan(world: ForgeWorld) -> None:
    """Compare the plan with the one that lists everything."""
    short, whole = world.plan().plan, world.plan(lists_ended=True).plan
    assert short.changes == whole.changes
    assert (short.checksum, short.records) == (whole.checksum, whole.records)
    assert statuses(short.status) == statuses(whole.status)


def statuses(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not path.startswith(PULLS_DIRECTORY)}


def pull_of(world: ForgeWorld, package: str) -> int:
    return next(p.number for p in world.pulls(EDGE) if p.head.startswith(f"drafts/{package}/"))


def end_some(world: ForgeWorld) -> str:
    """Let people merge and close what the first run opened; return the commit of a draft that goes."""
    world.run()
    simulator, repo = world.simulator, world.repo(EDGE)
    restored = repo.oid("drafts/restored/packagevariant-1")
    for package in ("merged", "restored", "deleted", "upgraded"):
        simulator.merge(NAME, pull_of(world, package))
    for package in ("closed", "gone", "reopened"):
        simulator.close(NAME, pull_of(world, package))
    repo.delete("refs/heads/drafts/gone/packagevariant-1")
    simulator.clock.sleep(DAY)
    restore = {manifest(EDGE, "restored"): variant(EDGE, "restored", revision=2)}
    world.repo("control").commit({manifest(EDGE, "deleted"): None, **restore}, message="Change\n")
    world.run()
    simulator.merge(NAME, max(p.number for p in world.pulls(EDGE) if "/restored/" in p.head))
    simulator.close(NAME, next(p.number for p in world.pulls(EDGE) if "/delete/" in p.head))
    return restored


def add_ended(world: ForgeWorld, count: int) -> None:
    """Let people open and close pull requests of their own branches, an hour each."""
    hosted = world.simulator.repositories[NAME]
    for number in range(count):
        world.simulator.clock.sleep(HOUR)
        pull = world.simulator.new_pull(
            hosted, title="T", body="", head=f"feature/{number}", base="main", fork=True
        )
        world.simulator.close(NAME, pull.number)


def test_what_ended_long_ago_is_judged_as_if_it_were_listed(world: ForgeWorld) -> None:
    restored = end_some(world)
    add_ended(world, 8)
    world.run()  # lists everything once more, and records it
    add_ended(world, 2)
    before = len(world.simulator.journal)
    assert_same_plan(world)
    assert len(lists(world, before)) == 2 + 5
    world.repo(EDGE).git.create_reference("refs/heads/drafts/restored/packagevariant-1", restored)
    reopened = world.simulator.repositories[NAME].pulls[pull_of(world, "reopened")]
    reopened.state, reopened.closed, reopened.updated = "open", None, world.simulator.clock.now()
    files = {manifest(EDGE, name): variant(EDGE, name, revision=2) for name in ("upgraded", "gone")}
    world.repo("control").commit(files, message="Upgrade\n")

    assert_same_plan(world)
    world.run()
    assert_same_plan(world)
    assert not world.run().outcome.effects
