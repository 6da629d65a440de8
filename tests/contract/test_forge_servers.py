"""What real servers do and a simple model of a forge does not: checks after merges, styles, links, labels."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import RefusedError
from reconciler.forge.api.dialect import PendingError
from reconciler.forge.api.forge import RECHECK_DELAYS_S
from reconciler.forge.api.gitea import CHECK_DELAYS_S
from reconciler.inventory.inventory import HeadStatus, PullRequest, PullState
from tests.support.forges.bench import DIALECTS, HEADS, SimulatorBench, simulated
from tests.support.forges.gitea import GiteaSimulator

WEB = HEADS["web"]
DB = HEADS["db"]
CONFIGURED = [
    ("github", "merge", 2),
    ("github", "squash", 1),
    ("gitea", "merge", 2),
    ("gitea", "squash", 1),
    ("azure", "merge", 2),
    ("azure", "squash", 1),
    ("bitbucket", "merge", 2),
    ("bitbucket", "squash", 1),
    ("gitlab", "squash", 1),  # otherwise the project decides
]


@pytest.fixture(params=list(DIALECTS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimulatorBench]:
    with simulated(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def gitea(tmp_path: Path) -> Iterator[SimulatorBench]:
    with simulated("gitea", tmp_path) as made:
        yield made


def desired(head: str = WEB, *labels: str, draft: bool = True) -> PullRequest:
    return PullRequest(
        head=head, base="main", title=f"Create {head}", body="Why.", draft=draft, labels=labels
    )


def test_drafts_are_approved_one_after_the_other_while_the_server_checks_the_rest(
    bench: SimulatorBench,
) -> None:
    bench.simulator.rechecks_s = 5.0
    opened = [bench.forge.ensure(desired(head)) for head in (WEB, DB)]

    for pull in opened:
        bench.forge.approve(pull.number, expect=pull.head_oid)

    assert [pull.state for pull in bench.again().list_pulls()] == [PullState.MERGED, PullState.MERGED]


def test_what_cannot_be_merged_yet_stays_ready_for_the_next_run(bench: SimulatorBench) -> None:
    bench.simulator.rechecks_s = 2 * sum(RECHECK_DELAYS_S)
    first, second = (bench.forge.ensure(desired(head)) for head in (WEB, DB))
    bench.forge.approve(first.number, expect=first.head_oid)

    with pytest.raises(PendingError):
        bench.forge.approve(second.number, expect=second.head_oid)

    left = bench.again().list_pulls()[1]
    assert (left.state, left.draft) == (PullState.OPEN, False)
    bench.again().approve(second.number, expect=second.head_oid)
    assert bench.again().list_pulls()[1].state is PullState.MERGED


def test_lists_go_on_where_a_server_links_to_its_public_address(bench: SimulatorBench) -> None:
    bench.simulator.most_in_a_page = 1
    bench.simulator.public_address = "https://git.example.com/forge"
    for head in (WEB, DB):
        bench.forge.ensure(desired(head))

    assert [pull.head for pull in bench.again().list_pulls()] == [WEB, DB]


@pytest.mark.parametrize("style", ["merge", "squash", "rebase"])
def test_a_repository_is_merged_in_the_style_that_it_permits(bench: SimulatorBench, style: str) -> None:
    bench.hosted.style = style
    pull = bench.forge.ensure(desired())

    bench.forge.approve(pull.number, expect=pull.head_oid)

    assert bench.again().list_pulls()[0].state is PullState.MERGED


@pytest.mark.parametrize("kind", ["github", "gitea", "azure", "bitbucket"])
def test_a_configured_style_that_the_repository_forbids_is_refused(tmp_path: Path, kind: str) -> None:
    with simulated(kind, tmp_path) as bench:
        bench.hosted.style = "merge"
        pull = bench.forge.ensure(desired())
        configured = bench.again(merge_method="squash")

        with pytest.raises(RefusedError, match=r"not permit to squash|not allowed"):
            configured.approve(pull.number, expect=pull.head_oid)

        assert bench.again().list_pulls()[0].state is PullState.OPEN


@pytest.mark.parametrize(("kind", "style", "parents"), CONFIGURED)
def test_a_configured_style_is_used(tmp_path: Path, kind: str, style: str, parents: int) -> None:
    with simulated(kind, tmp_path) as bench:
        bench.hosted.style = style
        pull = bench.forge.ensure(desired())

        bench.again(merge_method=style).approve(pull.number, expect=pull.head_oid)

        assert len(bench.hosted.repo.git[bench.hosted.repo.oid("main")].parents) == parents


@pytest.mark.parametrize("tells_drafts", [True, False])
def test_a_draft_that_the_server_takes_for_ready_is_closed_at_once(
    gitea: SimulatorBench, tells_drafts: bool
) -> None:
    simulator = gitea.simulator
    assert isinstance(simulator, GiteaSimulator)
    simulator.draft_prefixes, simulator.tells_drafts = ("Draft:",), tells_drafts

    with pytest.raises(RefusedError, match="takes no title with 'WIP: '") as raised:
        gitea.forge.ensure(desired())

    assert "draftPrefix" in raised.value.hint
    assert simulator.open_pulls("acme/edge") == []


def test_a_server_that_tells_no_drafts_is_asked_once_a_run(gitea: SimulatorBench) -> None:
    assert isinstance(gitea.simulator, GiteaSimulator)
    gitea.simulator.tells_drafts = False

    first = _calls(gitea, lambda: gitea.forge.ensure(desired()))
    second = _calls(gitea, lambda: gitea.forge.ensure(desired(DB)))

    assert [pull.draft for pull in gitea.again().list_pulls()] == [True, True]
    assert first - second == len(CHECK_DELAYS_S)


def _calls(bench: SimulatorBench, act: Any) -> int:
    before = len(bench.simulator.journal)
    act()
    return len(bench.simulator.journal) - before


def test_opening_takes_as_many_calls_in_a_repository_with_many(bench: SimulatorBench) -> None:
    forge = bench.forge
    forge.ensure(desired(DB, "reconciler"))  # labels are listed once a run
    few = _calls(bench, lambda: forge.ensure(desired(WEB, "reconciler")))
    bench.simulator.most_in_a_page = 50
    for number in range(120):
        head = f"drafts/p{number}/w"
        bench.hosted.repo.commit({f"p{number}/notes.md": "x"}, branch=head, start="main")
        bench.simulator.new_pull(bench.hosted, title="x", body="", head=head, base="main")
    bench.hosted.repo.commit({"last/notes.md": "x"}, branch="drafts/last/w", start="main")

    many = _calls(bench, lambda: forge.ensure(desired("drafts/last/w", "reconciler")))

    assert few == {"github": 4}.get(bench.kind, 3)
    # Bitbucket is asked for the whole id of a head that is newer than its list of branches.
    assert many == few + (bench.kind == "bitbucket")


def test_an_empty_repository_has_no_pull_requests(gitea: SimulatorBench) -> None:
    for head in (WEB, DB, "main"):
        gitea.hosted.repo.delete(f"refs/heads/{head}")

    assert gitea.forge.list_pulls() == ()


def test_a_pull_request_is_opened_when_the_server_has_seen_the_first_push(gitea: SimulatorBench) -> None:
    gitea.hosted.empty_until = gitea.simulator.clock.now() + 5.0

    assert gitea.forge.ensure(desired()).number == 1


def test_a_permitted_style_is_taken_where_the_preferred_one_is_forbidden(gitea: SimulatorBench) -> None:
    gitea.hosted.style, gitea.hosted.preferred = "squash", "merge"
    pull = gitea.forge.ensure(desired())

    gitea.forge.approve(pull.number, expect=pull.head_oid)

    assert gitea.again().list_pulls()[0].state is PullState.MERGED


def test_auto_merge_waits_while_the_server_checks_the_rest(gitea: SimulatorBench) -> None:
    gitea.simulator.rechecks_s = 5.0
    opened = [gitea.forge.ensure(desired(head)) for head in (WEB, DB)]
    for pull in opened:
        gitea.simulator.check("acme/edge", pull.head_oid, "build")

    assert [gitea.forge.enable_auto_merge(p.number, expect=p.head_oid) for p in opened] == [True, True]


def test_auto_merge_merges_at_once_where_nothing_reports_a_check(gitea: SimulatorBench) -> None:
    gitea.simulator.waits_for_any_check = True
    pull = gitea.forge.ensure(desired())

    assert gitea.forge.enable_auto_merge(pull.number, expect=pull.head_oid)


def test_auto_merge_waits_for_a_check_that_has_yet_to_report(gitea: SimulatorBench) -> None:
    gitea.hosted.required = ("build",)
    pull = gitea.forge.ensure(desired())

    assert not gitea.forge.enable_auto_merge(pull.number, expect=pull.head_oid)
    gitea.simulator.check("acme/edge", pull.head_oid, "build")
    assert gitea.again().list_pulls()[0].state is PullState.MERGED


def test_a_label_that_two_runs_create_at_once_is_one_in_the_end(gitea: SimulatorBench) -> None:
    gitea.forge.ensure(desired(DB, "team-a"))
    gitea.simulator.tamper = _once_without_labels()

    gitea.again().ensure(desired(WEB, "team-a"))

    assert gitea.hosted.label_ids == {"team-a": 1}
    assert gitea.hosted.doubled == {}
    assert [pull.labels for pull in gitea.again().list_pulls()] == [("team-a",), ("team-a",)]


def _once_without_labels() -> Callable[[str, Any], Any]:
    """Answer what a client saw that looked before the other one created."""
    left = [1]

    def tamper(path: str, body: Any) -> Any:
        if path.endswith("/edge/labels") and left:
            left.clear()
            return []
        return body

    return tamper


def test_a_comment_that_two_runs_write_at_once_is_one_in_the_end(bench: SimulatorBench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.simulator.plan("raced", "POST", r"/(comments|notes|threads)$")

    bench.forge.close(number, comment="Obsolete.")
    bench.again().close(number, comment="Obsolete.")

    assert len(bench.hosted.pulls[number].comments) == 1
    assert bench.hosted.pulls[number].state == "closed"


def test_statuses_whose_names_begin_alike_are_apart(bench: SimulatorBench) -> None:
    pull = bench.forge.ensure(desired())
    names = [f"fleet of all clusters in the north and the west: {part}" for part in ("plan", "lock")]

    for name in names:
        status = HeadStatus(name, passed=True, text="Ready")
        bench.forge.dialect.set_status(pull.head_oid, status, pull.head, pull.number)

    assert len(bench.hosted.checks[pull.head_oid]) == len(names)
