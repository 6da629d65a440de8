"""Pull requests are desired state: whatever left one wrong, the next plan shows it and apply repairs it."""

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Change, Op
from tests.support.forges.bench import DIALECTS, WITH_LABELS
from tests.support.forges.server import Pull
from tests.support.forges.world import ForgeWorld, Serve

pytestmark = [pytest.mark.one_forge, pytest.mark.slow]

LABELS = "  pullRequests:\n    labels: [team-a]\n"
EDITS = {
    "github": ("PATCH", r"/pulls/\d+$"),
    "gitlab": ("PUT", r"/\d+$"),
    "gitea": ("PATCH", r"/pulls/\d+$"),
    "azure": ("PATCH", r"/pullrequests/\d+$"),
    "bitbucket": ("PUT", r"/pullrequests/\d+$"),
}
CREATE = r"/(pulls|merge_requests|pullrequests)$"


@pytest.fixture(params=list(DIALECTS))
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    made = serve(request.param, edges=("edge-1",), packages=("web",), more=LABELS)
    made.kind = request.param  # type: ignore[attr-defined]
    return made


def kind_of(world: ForgeWorld) -> str:
    return str(world.kind)  # type: ignore[attr-defined]


def changed(world: ForgeWorld) -> Change:
    (change,) = world.plan().plan.changes
    return change


def only(world: ForgeWorld) -> Pull:
    (pull,) = [pull for pull in world.pulls("edge-1") if pull.state == "open"]
    return pull


def settled(world: ForgeWorld) -> None:
    """See that a run has nothing to do and writes nothing, also without any cache."""
    writes = len(world.simulator.writes())
    world.cache = f"cache-{writes}"
    plan = world.run().plan
    assert plan.is_empty, [(c.reason, c.message) for c in plan.changes if c.pending]
    assert len(world.simulator.writes()) == writes


@pytest.mark.parametrize("status", ["403", "422", "500"])
def test_a_text_that_was_not_written_is_pending_and_repaired(world: ForgeWorld, status: str) -> None:
    world.run()
    world.upgrade("web")
    world.simulator.plan(status, *EDITS[kind_of(world)], times=10)
    assert world.run().code is not Exit.DONE
    assert "v2" not in only(world).title
    world.simulator.faults.clear()

    change = changed(world)
    assert (change.op, change.reason) == (Op.UPDATE, Reason.PULL_REQUEST_OUTDATED)
    assert change.repair == f"Pull request #{only(world).number} gets its text"
    assert change.writes == ()

    assert world.run().code is Exit.DONE
    assert only(world).title.endswith("Create web from web/v2")
    assert "web/v2" in only(world).body
    settled(world)


@pytest.mark.parametrize("world", WITH_LABELS, indirect=True)
def test_a_label_that_was_not_written_is_pending_and_repaired(world: ForgeWorld) -> None:
    world.simulator.plan("403", "PUT", r"/labels$", times=10)
    world.run()
    if kind_of(world) != "github":  # the others take labels with the pull request
        only(world).labels.clear()
    assert only(world).labels == []
    world.simulator.faults.clear()

    assert changed(world).repair == f"Pull request #{only(world).number} gets its labels"

    world.run()
    assert only(world).labels == ["team-a"]
    settled(world)


def test_another_base_is_pending_and_repaired(world: ForgeWorld) -> None:
    world.run()
    repo = world.repo("edge-1")
    repo.point("refs/heads/elsewhere", repo.oid("main"))
    only(world).base = "elsewhere"

    assert changed(world).repair == f"Pull request #{only(world).number} gets its base"

    world.run()
    assert only(world).base == "main"
    settled(world)


def test_text_of_people_is_kept_and_generated_part_repaired(world: ForgeWorld) -> None:
    world.run()
    pull = only(world)
    pull.body = f"Please look at this.\n\n{pull.body}\n\nThanks."
    pull.title = f"{pull.title} (urgent)"
    settled(world)

    pull.body = pull.body.replace("Adds a package that a manifest asks for.", "Removes everything.")
    assert changed(world).reason is Reason.PULL_REQUEST_OUTDATED
    world.run()

    assert "Adds a package that a manifest asks for." in only(world).body
    assert only(world).body.startswith("Please look at this.")
    assert only(world).body.endswith("Thanks.")
    assert only(world).title.endswith("(urgent)")
    settled(world)


def test_concurrent_runs_keep_the_first_pull_request(world: ForgeWorld) -> None:
    world.simulator.plan("raced", "POST", CREATE)

    assert world.run().code is Exit.DONE

    first, second = world.pulls("edge-1")
    assert (first.state, second.state) == ("open", "closed")
    comments = [text for _, text in second.comments.values()]
    assert any(f"Pull request #{first.number} proposes the same branch" in text for text in comments)
    settled(world)
    world.simulator.merge("acme/edge-1", first.number)
    assert Reason.REJECTED not in {change.reason for change in world.run().plan.changes}
    settled(world)


def test_duplicate_is_closed_by_a_later_run(world: ForgeWorld) -> None:
    world.run()
    hosted = world.simulator.repositories["acme/edge-1"]
    first = only(world)
    copy = {"title": first.title, "body": first.body, "head": first.head, "base": first.base}
    twin = world.simulator.new_pull(hosted, **copy, draft=first.draft, labels=list(first.labels))

    change = changed(world)
    assert change.reason is Reason.PULL_REQUEST_DUPLICATE
    assert change.repair == f"Pull request #{first.number} proposes the same as #{twin.number}"

    assert world.run().code is Exit.DONE
    assert [pull.number for pull in world.pulls("edge-1") if pull.state == "open"] == [first.number]
    settled(world)
    world.upgrade("web")
    world.run()
    assert only(world).number == first.number
    settled(world)


def test_rejection_counts_despite_closed_duplicate(world: ForgeWorld) -> None:
    world.simulator.plan("raced", "POST", CREATE)
    world.run()
    first = only(world).number
    world.simulator.close("acme/edge-1", first)

    change = changed(world)
    assert change.reason is Reason.REJECTED
    assert f"Its pull request #{first} was closed" in f"{change.message} {change.detail}"


def test_title_describes_the_whole_pull_request(world: ForgeWorld) -> None:
    world.run()
    assert only(world).title.endswith("Create web from web/v1")
    world.upgrade("web")
    world.run()
    assert only(world).title.endswith("Create web from web/v2")
    assert "Adds a package that a manifest asks for." in only(world).body
    world.simulator.merge("acme/edge-1", only(world).number)
    world.run()
    world.upgrade("web", revision=1)
    world.run()

    assert only(world).title.endswith("Roll web back from web/v2 to web/v1")
    assert "Rolls a package back to an older upstream revision" in only(world).body
    settled(world)


def test_a_persons_commit_is_mentioned(world: ForgeWorld) -> None:
    world.run()
    repo = world.repo("edge-1")
    repo.commit({"web/notes.yaml": "a: 1\n"}, branch=only(world).head, message="A note\n")

    world.run()

    assert "People committed to this branch" in only(world).body
    settled(world)


@pytest.mark.parametrize("fault", ["403", "500"])
def test_update_that_waits_to_be_opened_is_not_taken_for_rejected(world: ForgeWorld, fault: str) -> None:
    world.run()
    world.simulator.close("acme/edge-1", only(world).number)
    assert world.run().code is Exit.WAITING
    world.upgrade("web")
    world.simulator.plan(fault, "POST", CREATE, times=50)
    assert world.run().code is not Exit.DONE

    world.simulator.faults.clear()
    assert world.run().code is Exit.DONE
    assert [pull.state for pull in world.pulls("edge-1")] == ["closed", "open"]
    settled(world)


def test_content_that_was_closed_stays_rejected_with_a_persons_commit_on_it(world: ForgeWorld) -> None:
    world.run()
    pull = only(world)
    world.repo("edge-1").commit({"web/notes.md": "kim\n"}, branch=pull.head, message="A person's\n")
    world.simulator.pulls("acme/edge-1")
    world.simulator.close("acme/edge-1", pull.number)
    assert world.run().code is Exit.WAITING
    assert [pull.state for pull in world.pulls("edge-1")] == ["closed"]
