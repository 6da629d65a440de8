"""Whole runs against simulated forges: real pushes, pull requests, merges by people, second runs."""

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.report.build import group_problems
from reconciler.run.report import plan_report
from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import Pull
from tests.support.forges.world import VARIABLE, ForgeWorld, Serve
from tests.support.samples import sample

pytestmark = [pytest.mark.one_forge, pytest.mark.slow]


def expected(world: ForgeWorld) -> list[tuple[str, str]]:
    return [
        (f"acme/{e}", f"drafts/{p}/packagevariant-1") for e in world.edges for p in sorted(world.packages)
    ]


def test_every_draft_gets_one_pull_request_and_a_second_run_writes_nothing(world: ForgeWorld) -> None:
    first = world.run()
    writes = len(world.simulator.writes())
    refs = {edge: world.repo(edge).refs() for edge in world.edges}
    second = world.run()
    world.cache = "another-cache"
    third = world.run()

    assert (first.code, second.code, third.code) == (Exit.DONE, Exit.DONE, Exit.DONE)
    assert world.open_heads() == expected(world)
    assert all(
        p.draft or p.title.startswith(("WIP:", "Draft:")) for edge in world.edges for p in world.pulls(edge)
    )
    assert len(world.simulator.writes()) == writes == 4
    assert refs == {edge: world.repo(edge).refs() for edge in world.edges}
    assert third.plan.is_empty


@pytest.mark.parametrize(
    "word", sample(["packagevariant-1", "drafts/web", "reconciler", "refs/heads", "Deployment"], 2)
)
def test_token_that_is_a_name_changes_no_request(
    world: ForgeWorld, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.simulator.token = word
    monkeypatch.setenv(VARIABLE, word)

    codes = {world.run().code for _ in range(3)}

    assert codes == {Exit.DONE}
    assert world.open_heads() == expected(world)
    assert len(world.simulator.writes()) == 4
    pulls = [pull for edge in world.edges for pull in world.pulls(edge)]
    assert not any("***" in text for p in pulls for text in (p.title, p.body, p.head, p.base, *p.labels))


def test_the_page_of_a_package_links_to_its_directory_once_main_has_it(serve: Serve) -> None:
    world = serve("gitea", edges=("edge-1",))
    world.run()
    world.simulator.merge("acme/edge-1", next(p.number for p in world.pulls("edge-1") if "/web/" in p.head))

    report = plan_report(world.plan())

    main = world.repo("edge-1").oid("main")
    there = f"{world.simulator.address}/acme/edge-1/src/commit/{main}/web"
    assert {row.name: row.web_url for row in report.packages} == {"web": there, "db": ""}


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_merged_draft_is_published_and_upgraded_in_new_draft(world: ForgeWorld, how: str) -> None:
    world.run()
    world.simulator.merge("acme/edge-1", world.pulls("edge-1")[0].number, how)
    merged = world.pulls("edge-1")[0].head.split("/")[1]

    assert world.run().code is Exit.DONE
    assert f"refs/tags/{merged}/v1" in world.repo("edge-1").refs()
    assert world.run().plan.is_empty

    world.upgrade(merged)
    world.run()
    heads = [p.head for p in world.pulls("edge-1") if p.state == "open"]
    assert f"drafts/{merged}/packagevariant-2" in heads
    assert world.run().plan.is_empty


def test_an_open_draft_is_updated_in_place(world: ForgeWorld) -> None:
    world.run()
    before = {p.number: p.head_oid for p in world.pulls("edge-1")}
    world.upgrade("web")

    assert world.run().code is Exit.DONE

    after = {p.number: p.head_oid for p in world.pulls("edge-1")}
    assert before.keys() == after.keys()
    assert sum(before[n] != after[n] for n in before) == 1
    assert world.open_heads() == expected(world)


def test_closed_pull_request_is_proposed_again_only_after_a_change(world: ForgeWorld) -> None:
    world.run()
    pull = next(p for p in world.pulls("edge-1") if "web" in p.head)
    world.simulator.close("acme/edge-1", pull.number)
    writes = len(world.simulator.writes())

    assert world.run().code is Exit.WAITING
    assert len(world.simulator.writes()) == writes

    world.upgrade("web")
    world.run()
    states = [p.state for p in world.pulls("edge-1") if "web" in p.head]
    assert states == ["closed", "open"]


def test_title_text_and_labels_of_people_are_kept(world: ForgeWorld) -> None:
    world.run()
    pull = next(p for p in world.pulls("edge-1") if "web" in p.head)
    pull.title = pull.title.replace("Create edge", "").replace("Create", "Please review:")
    pull.body = f"Kim: look at the replicas.\n\n{pull.body}\n\nAnd at the image."
    pull.labels = ["urgent"]
    title, old = pull.title, pull.body
    world.upgrade("web")

    world.run()

    assert (pull.title, pull.labels) == (title, ["urgent"])
    assert pull.body.startswith("Kim: look at the replicas.\n\n")
    assert pull.body.endswith("\n\nAnd at the image.")
    assert pull.body != old
    assert world.run().plan.is_empty


def test_an_obsolete_untouched_pull_request_is_closed_with_a_comment(world: ForgeWorld) -> None:
    world.run()
    world.repo("control").commit({"manifests/edge-1-web.yaml": None}, message="Not any more\n")

    world.run()

    pull = next(p for p in world.pulls("edge-1") if "web" in p.head)
    assert pull.state == "closed"
    assert len(pull.comments) == 1
    assert pull.head not in {r.removeprefix("refs/heads/") for r in world.repo("edge-1").refs()}
    assert world.run().plan.is_empty


PREFIXES = ("WIP: ", "Draft: ")


def is_draft(pull: Pull) -> bool:
    return pull.draft or pull.title.startswith(PREFIXES)


def test_ready_pull_request_with_new_conflict_becomes_draft(world: ForgeWorld) -> None:
    world.run()
    pull = next(p for p in world.pulls("edge-1") if "web" in p.head)
    text = world.repo("edge-1").read(pull.head, "web/app.yaml").decode()
    world.repo("edge-1").commit({"web/app.yaml": text.replace(":v1", ":mine")}, branch=pull.head)
    pull.draft, pull.title = False, pull.title.split(": ", 1)[-1]
    assert not is_draft(pull)
    assert world.run().code is Exit.DONE
    assert not is_draft(pull)
    world.upgrade("web")

    assert world.run().code is Exit.WAITING

    assert is_draft(pull)
    assert world.run().plan.is_empty
    pull.draft, pull.title = False, pull.title.removeprefix("WIP: ").removeprefix("Draft: ")
    assert world.run().plan.is_empty
    assert not is_draft(pull), "a person who marks it ready all the same is left alone"


def test_pull_request_marked_ready_is_proposed(world: ForgeWorld) -> None:
    world.run()
    pull = next(p for p in world.pulls("edge-1") if "web" in p.head)
    pull.draft, pull.title = False, pull.title.removeprefix("WIP: ").removeprefix("Draft: ")

    ready = {c.package.path: c.ready for c in world.run().plan.changes if c.repository.name == "edge-1"}
    assert ready == {"web": True, "db": False}

    world.upgrade("web")
    world.run()
    assert not pull.draft
    assert not pull.title.startswith(("WIP:", "Draft:"))


def test_a_deletion_is_a_pull_request_that_a_person_merges(world: ForgeWorld) -> None:
    world.run()
    for pull in world.pulls("edge-1"):
        world.simulator.merge("acme/edge-1", pull.number)
    world.run()
    world.repo("control").commit({"manifests/edge-1-web.yaml": None}, message="Not any more\n")

    assert world.run().code is Exit.DONE
    (proposal,) = [p for p in world.pulls("edge-1") if p.state == "open"]
    assert proposal.head == "reconciler/fleet/delete/web"
    assert "refs/heads/deletionProposed/web/v1" in world.repo("edge-1").refs()
    writes = len(world.simulator.writes())
    assert world.run().plan.is_empty
    assert len(world.simulator.writes()) == writes

    world.simulator.merge("acme/edge-1", proposal.number)
    world.run()
    refs = world.repo("edge-1").refs()
    assert "web" not in {entry.name for entry in world.repo("edge-1").git[refs["refs/heads/main"]].tree}
    assert not [ref for ref in refs if "delet" in ref]
    assert "refs/tags/web/v1" in refs
    assert world.run().plan.is_empty


def test_a_closed_deletion_is_rejected(world: ForgeWorld) -> None:
    world.run()
    for pull in world.pulls("edge-1"):
        world.simulator.merge("acme/edge-1", pull.number)
    world.run()
    world.repo("control").commit({"manifests/edge-1-web.yaml": None}, message="Not any more\n")
    world.run()
    (proposal,) = [p for p in world.pulls("edge-1") if p.state == "open"]
    world.simulator.close("acme/edge-1", proposal.number)

    declined = world.run()
    # The person decided: nothing waits, the package stays, and its deletion is not proposed again.
    assert declined.code is Exit.DONE
    assert Reason.REJECTED in {change.reason for change in declined.plan.changes}
    assert world.run().plan.is_empty
    assert not [p for p in world.pulls("edge-1") if p.state == "open"]


@pytest.fixture(params=list(DIALECTS))
def proposing(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    return serve(request.param, more="  pullRequests:\n    openOn: propose\n")


def test_draft_has_no_pull_request_before_proposal(proposing: ForgeWorld) -> None:
    proposing.run()
    assert proposing.run().plan.is_empty
    assert (proposing.open_heads(), proposing.simulator.writes()) == ([], [])
    repo = proposing.repo("edge-1")
    old, new = "refs/heads/drafts/web/packagevariant-1", "refs/heads/proposed/web/packagevariant-1"
    repo.point(new, repo.oid(old))
    repo.delete(old)

    assert proposing.run().code is Exit.DONE

    assert proposing.open_heads() == [("acme/edge-1", "proposed/web/packagevariant-1")]
    assert not proposing.pulls("edge-1")[0].draft
    assert proposing.run().plan.is_empty
    proposing.simulator.merge("acme/edge-1", proposing.pulls("edge-1")[0].number)
    proposing.run()
    assert "refs/tags/web/v1" in proposing.repo("edge-1").refs()


@pytest.fixture(params=list(DIALECTS))
def grouped(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    return serve(request.param, more="  pullRequests:\n    groupBy: repository\n")


def group(edge: str, number: int = 1) -> str:
    return f"reconciler/fleet/group/repository/default/{edge}/{number}"


def test_packages_of_a_repository_share_one_pull_request(grouped: ForgeWorld) -> None:
    assert grouped.run().code is Exit.DONE
    assert grouped.open_heads() == [(f"acme/{edge}", group(edge)) for edge in grouped.edges]
    assert len(grouped.simulator.writes()) == len(grouped.edges)
    assert "`edge-1/web`" in grouped.pulls("edge-1")[0].body

    grouped.cache = "another-cache"
    assert grouped.run().plan.is_empty
    assert len(grouped.simulator.writes()) == len(grouped.edges)


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_a_merged_group_is_published_package_by_package(grouped: ForgeWorld, how: str) -> None:
    grouped.run()
    grouped.simulator.merge("acme/edge-1", grouped.pulls("edge-1")[0].number, how)
    grouped.upgrade("web")

    assert grouped.run().code is Exit.DONE

    refs = grouped.repo("edge-1").refs()
    assert {"refs/tags/web/v1", "refs/tags/db/v1"} <= refs.keys()
    assert ("acme/edge-1", group("edge-1", 2)) in grouped.open_heads()
    assert f"refs/heads/{group('edge-1')}" not in refs
    assert grouped.run().plan.is_empty


def test_an_edited_package_of_a_group_holds_back_nothing_else(grouped: ForgeWorld) -> None:
    grouped.run()
    person = grouped.repo("edge-1").commit({"db/notes.txt": "Mine\n"}, branch=group("edge-1"))
    grouped.upgrade("web")

    assert grouped.run().code is Exit.DONE

    repo = grouped.repo("edge-1")
    assert repo.git.descendant_of(repo.oid(group("edge-1")), person)
    assert b"web:v2" in repo.read(group("edge-1"), "web/app.yaml")
    assert grouped.run().plan.is_empty


def test_closed_group_is_rejected_and_changes_join_the_next(grouped: ForgeWorld) -> None:
    grouped.run()
    grouped.simulator.close("acme/edge-1", grouped.pulls("edge-1")[0].number)
    assert grouped.run().code is Exit.WAITING

    grouped.upgrade("web")
    grouped.run()

    states = [(p.head, p.state) for p in grouped.pulls("edge-1")]
    assert states == [(group("edge-1"), "closed"), (group("edge-1", 2), "open")]
    assert b"web:v2" in grouped.repo("edge-1").read(group("edge-1", 2), "web/app.yaml")
    assert grouped.run().plan.is_empty


def test_pull_request_of_fork_is_ignored(world: ForgeWorld) -> None:
    hosted = world.simulator.repositories["acme/edge-1"]
    stranger = world.simulator.new_pull(
        hosted, title="Mine", body="", head="drafts/web/packagevariant-1", base="main", fork=True
    )

    world.run()

    assert world.open_heads() == sorted([*expected(world), ("acme/edge-1", stranger.head)])
    assert stranger.title == "Mine"


def test_a_refused_token_is_one_cause_in_every_repository(world: ForgeWorld) -> None:
    world.simulator.token = "another"

    problems = [p for p in world.plan().plan.problems if p.reason == Reason.REPOSITORY_UNAVAILABLE]

    assert len(problems) == 2
    assert len({problem.cause for problem in problems}) == 1


def test_token_that_only_the_api_refuses_is_one_cause_in_every_repository(world: ForgeWorld) -> None:
    world.simulator.plan("401", "GET", times=99)

    problems = world.plan().plan.problems

    causes = [problem.cause for problem in problems]
    assert causes == [f"{world.simulator.address} refuses the credential: 401 planned 401"] * 2


def test_a_refused_token_is_one_cause_for_all_repositories(
    world: ForgeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "ended")

    problems = world.plan().plan.problems

    (group,) = group_problems(problems)
    assert len(group.problems) == len(world.edges)
    assert group.problems[0].hint.startswith("Check its entry in spec.credentials")
