"""Everything that network and forge do to a run: afterwards one pull request per draft, and nothing lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import Exit
from tests.support.forges.bench import DIALECTS
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.signing import make_key

pytestmark = [pytest.mark.one_forge, pytest.mark.slow]

OPEN = "/(pulls|merge_requests|pullrequests)$"


class Case(NamedTuple):
    """A fault of requests that match, after `skip` of them went well, and what the run ends with."""

    reason: str
    kind: str
    method: str
    times: int
    code: Exit
    only: str = ""
    skip: int = 0


CASES = [
    Case("a secondary limit with Retry-After is waited out", "secondary", "POST", 1, Exit.DONE, "github"),
    Case("one without Retry-After is waited out", "secondary-silent", "POST", 1, Exit.DONE, "github"),
    Case("the old words for it are known", "abuse-old", "POST", 1, Exit.DONE, "github"),
    Case("a 422 that means abuse is a limit", "abuse", "POST", 1, Exit.DONE, "github"),
    Case("a GraphQL limit in a 200 is a limit", "too-quickly", "POST", 1, Exit.DONE, "github"),
    Case("a 429 is waited out", "429", "POST", 1, Exit.DONE),
    Case("a second limit in a run ends it", "429", "POST", 2, Exit.PARTIAL),
    Case("an empty quota is waited out", "primary", "POST", 1, Exit.DONE, "github"),
    Case("an empty quota while reading is waited out", "primary", "GET", 1, Exit.DONE, "github"),
    Case("a 429 while reading is waited out", "429", "GET", 1, Exit.DONE),
    Case("a 429 while reading that stays ends it", "429", "GET", 50, Exit.UNAVAILABLE),
    Case("a cap of open pull requests waits for people", "cap", "POST", 50, Exit.WAITING, "github"),
    Case("a 500 after a write is looked up", "500", "POST", 1, Exit.DONE),
    Case("a 503 after a write is looked up", "503", "POST", 2, Exit.DONE),
    Case("a 502 that is a page of HTML is no answer", "html", "POST", 1, Exit.DONE),
    Case("a 200 that is a page of HTML is no answer", "html200", "POST", 1, Exit.DONE),
    Case("a forge that stays down while reading", "503", "GET", 99, Exit.UNAVAILABLE),
    Case("a proxy's page instead of a list", "html200", "GET", 99, Exit.UNAVAILABLE),
    Case("a connection that breaks before the effect", "reset_before", "POST", 1, Exit.DONE),
    Case("a connection that breaks after the effect", "reset_after", "POST", 1, Exit.DONE),
    Case("one that breaks after every effect", "reset_after", "POST", 4, Exit.DONE),
    Case("an answer that is cut short", "truncated", "POST", 1, Exit.DONE),
    Case("a list that is cut short", "truncated", "GET", 1, Exit.DONE),
    Case("an answer that comes too late", "slow", "POST", 1, Exit.DONE),
    Case("a list that comes too late", "slow", "GET", 1, Exit.DONE),
    Case("a token that is refused", "401", "GET", 99, Exit.UNAVAILABLE),
    Case("a permission that is lost before writing", "403", "POST", 99, Exit.REFUSED),
    Case("a permission that is lost after a write", "403", "POST", 99, Exit.REFUSED, skip=1),
    Case("a token that is revoked after a write", "401", "POST", 99, Exit.UNAVAILABLE, skip=1),
    Case("a repository that is gone", "404", "GET", 99, Exit.UNAVAILABLE),
    Case("a repository that is gone for good", "410", "GET", 99, Exit.UNAVAILABLE),
    Case("a repository that the law took away", "451", "GET", 99, Exit.UNAVAILABLE),
    Case("a redirection to somebody else", "elsewhere", "GET", 99, Exit.UNAVAILABLE),
    Case("a forge that says it exists already", "exists", "POST", 1, Exit.UNAVAILABLE),
]


def rows() -> list[object]:
    drawn = [(kind, case) for case in CASES for kind in DIALECTS if case.only in ("", kind)]
    return [pytest.param(kind, case, id=f"{kind}: {case.reason}") for kind, case in drawn]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeWorld]:
    with forge_world("github", tmp_path / "world", monkeypatch) as made:
        yield made


@pytest.mark.parametrize(("kind", "case"), rows())
def test_after_a_fault_there_is_one_pull_request_per_draft(
    kind: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forge_world(kind, tmp_path / "world", monkeypatch, edges=["edge-1"]) as world:
        world.simulator.plan(case.kind, case.method, OPEN, times=case.times, skip=case.skip)

        first = world.run(timeout_s=0.5)

        assert first.code is case.code, [e.error for e in first.outcome.effects]
        if case.code is Exit.UNAVAILABLE and case.method == "GET":
            assert not any("drafts/" in ref for ref in world.repo("edge-1").refs()), "D21: nothing is written"
        world.simulator.faults.clear()
        world.simulator.clock.sleep(3700)
        assert world.run().code is Exit.DONE
        assert [head for _, head in world.open_heads()] == [
            "drafts/db/packagevariant-1",
            "drafts/web/packagevariant-1",
        ]
        assert len(world.pulls("edge-1")) == 2
        writes = len(world.simulator.writes())
        assert world.run().plan.is_empty
        assert len(world.simulator.writes()) == writes


def test_a_dead_repository_is_isolated(world: ForgeWorld) -> None:
    world.simulator.plan("404", "GET", "edge-1/", times=99)

    assert world.run().code is Exit.UNAVAILABLE
    assert [name for name, _ in world.open_heads()] == ["acme/edge-2", "acme/edge-2"]
    assert not any("drafts/" in ref for ref in world.repo("edge-1").refs())


def test_a_lists_lag_makes_no_duplicate(world: ForgeWorld) -> None:
    world.simulator.plan("reset_after", "POST", OPEN, times=2)
    world.simulator.lag_until = world.simulator.clock.now() + 20

    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4


def test_what_another_run_opened_a_moment_ago_is_found(world: ForgeWorld) -> None:
    world.simulator.lag_until = world.simulator.clock.now() + 40
    world.run()
    world.cache = "cache-of-another"

    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4
    assert sum(len(world.pulls(edge)) for edge in world.edges) == 4


def test_a_renamed_repository_is_followed_on_its_own_host(world: ForgeWorld) -> None:
    simulator = world.simulator
    simulator.repositories["acme/edge-one"] = simulator.repositories["acme/edge-1"]
    simulator.moved["acme/edge-1"] = "acme/edge-one"

    assert world.run().code is Exit.DONE
    assert len(simulator.open_pulls("acme/edge-one")) == 2


def test_the_token_goes_to_no_other_host_and_into_no_output(world: ForgeWorld) -> None:
    with forge_world("github", world.root.parent / "thief", pytest.MonkeyPatch()) as thief:
        world.simulator.elsewhere = thief.simulator.api
        world.simulator.plan("elsewhere", "GET", times=99)
        ran = world.run()

        assert ran.code is Exit.UNAVAILABLE
        assert thief.simulator.journal == []
        assert world.simulator.token not in repr(ran)


def test_a_branch_that_was_deleted_before_its_pull_request_is_proposed_again(world: ForgeWorld) -> None:
    simulator = world.simulator
    answer = simulator.answer

    def racing(method: str, path: str, query: dict[str, str], body: object) -> object:
        if method == "POST" and path == "/repos/acme/edge-1/pulls" and simulator.answer is racing:
            simulator.answer = answer
            simulator.repositories["acme/edge-1"].repo.delete(f"refs/heads/{body['head']}")
        return answer(method, path, query, body)

    simulator.answer = racing
    assert world.run().code is Exit.REFUSED
    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4


def test_a_base_that_is_deleted_before_its_pull_requests_costs_nothing(world: ForgeWorld) -> None:
    simulator, edge = world.simulator, world.repo("edge-1")
    answer, tip = simulator.answer, edge.oid("main")

    def racing(method: str, path: str, query: dict[str, str], body: object) -> object:
        if method == "POST" and path == "/repos/acme/edge-1/pulls" and edge.find("refs/heads/main"):
            edge.delete("refs/heads/main")
        return answer(method, path, query, body)

    simulator.answer = racing
    assert world.run().code is Exit.REFUSED
    simulator.answer = answer
    drafts = {ref: oid for ref, oid in edge.refs().items() if "/drafts/" in ref}
    meanwhile = world.run()

    assert len(drafts) == 2
    assert meanwhile.code is Exit.UNAVAILABLE
    assert [name for name, _ in world.open_heads()] == ["acme/edge-2", "acme/edge-2"]
    assert {ref: oid for ref, oid in edge.refs().items() if "/drafts/" in ref} == drafts
    edge.point("refs/heads/main", tip)
    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4
    assert world.run().plan.is_empty


def test_run_closes_no_pull_request_whose_base_is_deleted(world: ForgeWorld) -> None:
    world.simulator.closes_with_base = False  # as GitLab: nobody else closes them
    world.run()
    edge, before = world.repo("edge-1"), world.open_heads()
    tip = edge.oid("main")
    edge.delete("refs/heads/main")

    world.upgrade("web")
    world.run()
    assert world.open_heads() == before
    edge.point("refs/heads/main", tip)
    assert world.run().code is Exit.DONE
    assert world.open_heads() == before
    assert [len(world.pulls(edge)) for edge in world.edges] == [2, 2]
    assert world.run().plan.is_empty


def test_a_repository_that_requires_signatures_is_blamed_until_commits_are_signed(
    world: ForgeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path / "key")
    hook = world.root / "acme" / "edge-1.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    verify = f"git -c gpg.ssh.allowedSignersFile={key.allowed} verify-commit $3"
    hook.write_text(
        f"#!/bin/sh\n{verify} && exit 0\necho 'Commits must have verified signatures' >&2\nexit 1\n"
    )
    hook.chmod(0o755)

    first = world.run()

    assert first.code is Exit.REFUSED
    assert {name for name, _ in world.open_heads()} == {"acme/edge-2"}
    assert not any("/drafts/" in ref for ref in world.repo("edge-1").refs())
    monkeypatch.setenv("RECONCILER_COMMITS_SIGN", "ssh")
    monkeypatch.setenv("RECONCILER_COMMITS_SIGNING_KEY_FILE", str(key.private))
    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4
    assert world.run().plan.is_empty


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("slip", [-1, 1], ids=["items twice", "items left out"])
def test_pages_that_slip_while_they_are_read_make_no_duplicate(
    kind: str, slip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = [f"p{n}" for n in range(5)]
    with forge_world(kind, tmp_path / "w", monkeypatch, edges=["edge-1"], packages=packages) as world:
        world.run()
        opened = world.open_heads()
        world.simulator.most_in_a_page, world.simulator.page_slip = 2, slip
        world.cache = "cache-of-another"
        for package in packages:
            world.upgrade(package)

        world.run()
        world.simulator.most_in_a_page, world.simulator.page_slip = 1000, 0
        last = world.run()

        assert last.code is Exit.DONE
        assert world.open_heads() == opened
        assert len(world.pulls("edge-1")) == len(packages)
        assert world.run().plan.is_empty


@pytest.mark.parametrize("skew_s", [-3600.0, -600.0, 600.0, 3600.0])
def test_a_clock_that_is_off_neither_opens_the_budget_early_nor_closes_it(
    skew_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  pullRequests:\n    writesPerMinute: 2\n    writesPerHour: 3\n    maxWait: 60\n"
    with forge_world("github", tmp_path / "w", monkeypatch, more=more) as world:
        world.simulator.skew = skew_s
        first = world.run()
        at = world.simulator.clock.now()

        assert (first.code, len(world.open_heads())) == (Exit.PARTIAL, 3)
        for later, opened in ((60, 3), (3300, 3), (3700, 4)):
            world.simulator.clock.time = at + later
            world.cache = f"cache-{later}"
            world.run()
            assert len(world.open_heads()) == opened, later
        assert world.run().plan.is_empty


def test_a_protected_branch_is_blamed_and_the_others_proceed(world: ForgeWorld) -> None:
    hook = world.root / "acme" / "edge-1.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/drafts/web/*) echo protected >&2; exit 1;; esac\n')
    hook.chmod(0o755)

    first = world.run()
    assert first.code is Exit.REFUSED
    assert ("acme/edge-1", "drafts/db/packagevariant-1") in world.open_heads()
    assert len(world.open_heads()) == 3
    hook.unlink()
    assert world.run().code is Exit.DONE
    assert len(world.open_heads()) == 4


def person_pushes(world: ForgeWorld, edge: str, head: str, path: str) -> str:
    return str(world.repo(edge).commit({path: "replicas: 7\n"}, branch=head, message="A person's\n"))


def test_a_persons_push_between_read_and_push_survives(world: ForgeWorld) -> None:
    world.run()
    world.upgrade("web")
    pushed: list[str] = []
    head = "drafts/web/packagevariant-1"
    world.simulator.on_push = lambda: pushed.append(person_pushes(world, "edge-1", head, "web/notes.yaml"))

    first = world.run()

    assert first.code is Exit.UNAVAILABLE
    repo = world.repo("edge-1") if pushed else world.repo("edge-2")
    ancestry = [str(c.id) for c in repo.git.walk(repo.oid(head))]
    assert pushed[0] in ancestry
    again = world.run()
    assert again.code in {Exit.DONE, Exit.WAITING}
    repo = world.repo("edge-1")
    assert pushed[0] in [str(c.id) for c in repo.git.walk(repo.oid(head))]
    assert len(world.open_heads()) == 4


def test_one_edited_package_of_twenty_holds_back_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = [f"p{n:02}" for n in range(20)]
    with forge_world("github", tmp_path / "w", monkeypatch, edges=["edge-1"], packages=packages) as world:
        world.run()
        before = {p.head: p.head_oid for p in world.pulls("edge-1")}
        edited = "drafts/p07/packagevariant-1"
        tip = person_pushes(world, "edge-1", edited, "p07/notes.yaml")
        for package in packages:
            world.upgrade(package)

        world.run()

        repo = world.repo("edge-1")
        after = {p.head: p.head_oid for p in world.pulls("edge-1")}
        assert sum(after[head] != before[head] for head in before if head != edited) == 19
        assert tip in [str(c.id) for c in repo.git.walk(repo.oid(edited))]


def test_update_branch_is_no_edit(world: ForgeWorld) -> None:
    world.run()
    repo = world.repo("edge-1")
    repo.commit({"README.md": "moved\n"}, message="Main moves\n")
    head = "drafts/web/packagevariant-1"
    repo.merge("main", into=head)

    assert world.run().code is Exit.DONE
    world.upgrade("web")
    ran = world.run()
    assert ran.code is Exit.DONE
    assert not any(c.reason == "DraftEdited" for c in ran.plan.changes)
    assert world.run().plan.is_empty


def test_two_reconcilers_at_once_open_each_pull_request_once(world: ForgeWorld) -> None:
    def other() -> None:
        cache, world.cache = world.cache, "cache-of-another"
        world.run()
        world.cache = cache

    world.simulator.on_push = other
    world.run()
    world.run()

    assert len(world.open_heads()) == 4
    assert sum(len(world.pulls(edge)) for edge in world.edges) == 4
    assert world.run().plan.is_empty


def test_pull_requests_that_are_newer_than_the_branches_are_not_believed(world: ForgeWorld) -> None:
    world.run()
    simulator = world.simulator
    refreshed, simulator.refreshed = simulator.refreshed, lambda _, pull: pull
    gone = simulator.repositories["acme/edge-1"].repo
    tip = gone.oid("drafts/web/packagevariant-1")
    gone.delete("refs/heads/drafts/web/packagevariant-1")
    writes = len(simulator.writes())

    assert world.run().code is Exit.UNAVAILABLE
    assert len(simulator.writes()) == writes
    gone.point("refs/heads/drafts/web/packagevariant-1", tip)
    simulator.refreshed = refreshed
    assert world.run().plan.is_empty


def test_nothing_is_wrong_with_the_repositories_afterwards(world: ForgeWorld) -> None:
    world.simulator.plan("reset_after", "POST", OPEN, times=3)
    world.run()

    assert world.edges
    for edge in world.edges:
        ran = subprocess.run(
            ["git", "-C", str(world.root / "acme" / f"{edge}.git"), "fsck", "--strict", "--no-dangling"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "error" not in ran.stderr
