"""A run whose forges answer as before repeats its report; any other answer is a reason to compute it."""

import os

import pytest

from reconciler.base.errors import Exit
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_run
from reconciler.run.report_cache import Report, ReportCache
from tests.support.forges.bench import DIALECTS
from tests.support.forges.world import ForgeWorld, Serve

pytestmark = pytest.mark.one_forge

EDGE = "edge-1"
NAME = f"acme/{EDGE}"
PRINTED = ["Nothing to do\n"]


@pytest.fixture(params=list(DIALECTS))
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    made = serve(request.param, edges=(EDGE,))
    made.run()
    made.run()
    return made


def cache(world: ForgeWorld) -> ReportCache:
    return ReportCache(RunOptions(world.control, world.root / world.cache), ("plan",), dict(os.environ))


def keep(world: ForgeWorld) -> None:
    kept = cache(world)
    inputs = kept.inputs_of(world.plan())
    assert inputs is not None
    kept.keep(inputs, PRINTED, Exit.DONE)


def test_report_is_repeated_while_the_forge_answers_the_same(world: ForgeWorld) -> None:
    keep(world)

    assert cache(world).find() == cache(world).find() == Report(tuple(PRINTED), Exit.DONE)


def test_repeating_a_report_takes_no_more_requests_than_a_run(world: ForgeWorld) -> None:
    keep(world)
    journal = world.simulator.journal
    before = len(journal)
    world.plan()
    of_run = len(journal) - before

    assert cache(world).find() is not None
    assert len(journal) - before - of_run == of_run


def test_closed_pull_request_is_noticed(world: ForgeWorld) -> None:
    keep(world)
    world.simulator.close(NAME, world.pulls(EDGE)[0].number)

    assert cache(world).find() is None


def test_edited_title_is_noticed(world: ForgeWorld) -> None:
    keep(world)
    world.pulls(EDGE)[0].title = "A person's title"

    assert cache(world).find() is None


def test_merged_pull_request_is_noticed(world: ForgeWorld) -> None:
    keep(world)
    world.simulator.merge(NAME, world.pulls(EDGE)[0].number)

    assert cache(world).find() is None


def test_forge_that_does_not_answer_is_left_to_the_run(world: ForgeWorld) -> None:
    keep(world)
    world.simulator.plan("404", times=20)
    again = cache(world)

    assert again.find() is None
    assert again.opened is None


def test_rule_that_makes_the_forge_local_is_noticed(world: ForgeWorld) -> None:
    keep(world)
    repo = world.repo("control")
    text = repo.read("main", "reconciler.yaml").decode()
    repo.commit({"reconciler.yaml": text.replace("manifests:", "suspend: false\n  manifests:", 1)})

    assert cache(world).find() is None


def test_report_of_a_run_with_a_failed_read_is_not_kept(world: ForgeWorld) -> None:
    world.simulator.plan("404", times=20)
    planned = world.plan()

    assert cache(world).inputs_of(planned) is None


def test_run_after_a_change_writes_to_the_repositories_that_were_opened(world: ForgeWorld) -> None:
    keep(world)
    world.upgrade()
    again = ReportCache(
        RunOptions(world.control, world.root / world.cache), ("plan",), dict(os.environ), writes=True
    )

    assert again.find() is None
    assert again.opened is not None
    ran = world.apply(plan_run(again.options, to_apply=True, opened=again.opened))

    assert ran.code is Exit.DONE
    assert [effect.error for effect in ran.outcome.effects if effect.error] == []
    assert "v2" in world.repo(EDGE).read(f"refs/heads/{world.pulls(EDGE)[1].head}", "web/app.yaml").decode()
