"""One suite for every forge: what the runs rely on, on the local forge and on the fake that tests use."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from reconciler.base.errors import ConflictError, RefusedError
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.registry import Forge
from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.policy import CommitPolicy
from tests.support.fake_forge import FakeForge
from tests.support.forges.bench import DIALECTS, simulated
from tests.support.forges.gitea_api import GiteaBench
from tests.support.values import replace
from tests.support.world import EPOCH, git

HEAD = "drafts/web/packagevariant-1"
OTHER = "drafts/db/packagevariant-1"


class Bench(Protocol):
    """A forge with two draft branches, and a person who can push to them."""

    forge: Forge

    def again(self) -> Forge:
        """Return the forge as another process sees it."""
        ...

    def push(self, head: str) -> str:
        """Add a commit to a branch; return its id."""
        ...

    def delete(self, head: str) -> None:
        """Delete a branch."""
        ...


class FakeBench:
    def __init__(self) -> None:
        self.heads = {HEAD: "1", OTHER: "2"}
        self.forge = FakeForge(self.heads)

    def again(self) -> Forge:
        return self.forge

    def push(self, head: str) -> str:
        self.heads[head] += "+"
        return self.heads[head]

    def delete(self, head: str) -> None:
        del self.heads[head]


class LocalBench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.bare = root / "edge.git"
        create_bare(self.bare, [NewCommit("Start", {"README.md": b"edge\n"}, EPOCH)])
        self.copy = root / "copy"
        git(root, "clone", "-q", str(self.bare), str(self.copy))
        for head, package in ((HEAD, "web"), (OTHER, "db")):
            git(self.copy, "checkout", "-q", "-b", head, "main")
            (self.copy / package).mkdir()
            (self.copy / package / "Kptfile").write_text("kind: Kptfile\n")
            git(self.copy, "add", "-A")
            git(self.copy, "commit", "-qm", package)
            git(self.copy, "push", "-q", "origin", head)
        self.forge = self.again()

    def again(self) -> LocalForge:
        mirror = Mirrors(self.root / "cache").open(str(self.bare))
        return LocalForge(mirror, CommitPolicy())

    def push(self, head: str) -> str:
        git(self.copy, "checkout", "-q", head)
        git(self.copy, "commit", "-q", "--allow-empty", "-m", "A person's", when=EPOCH + 60)
        git(self.copy, "push", "-q", "origin", head)
        return git(self.copy, "rev-parse", head).strip()

    def delete(self, head: str) -> None:
        git(self.copy, "push", "-q", "origin", f":{head}")


@pytest.fixture(params=["local", "fake", *DIALECTS, "server"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param in DIALECTS:
        with simulated(request.param, tmp_path) as made:
            yield made
    elif request.param == "server":
        yield GiteaBench(request.getfixturevalue("gitea"))
    else:
        yield LocalBench(tmp_path) if request.param == "local" else FakeBench()


def desired(head: str = HEAD, title: str = "Create web", *, draft: bool = True) -> PullRequest:
    return PullRequest(head=head, base="main", title=title, body="Why.", draft=draft, labels=("reconciler",))


def test_a_pull_request_is_opened_once(bench: Bench) -> None:
    first = bench.forge.ensure(desired())
    again = bench.again().ensure(desired())

    assert (first.number, first.state, first.draft) == (1, PullState.OPEN, True)
    assert again == first
    assert bench.again().list_pulls() == (first,)


def test_each_head_has_its_own(bench: Bench) -> None:
    bench.forge.ensure(desired())
    bench.forge.ensure(desired(OTHER, "Create db"))

    assert [(p.number, p.head) for p in bench.again().list_pulls()] == [(1, HEAD), (2, OTHER)]


def test_pull_request_keeps_its_fields(bench: Bench) -> None:
    bench.forge.ensure(desired())
    bench.forge.ensure(replace(desired(), title="Update web", body="New.", labels=("a", "b")))

    (pull,) = bench.again().list_pulls()
    assert (pull.title, pull.body, pull.labels, pull.base) == ("Update web", "New.", ("a", "b"), "main")


def test_pull_request_needs_a_branch(bench: Bench) -> None:
    with pytest.raises(RefusedError):
        bench.forge.ensure(desired("drafts/none/w"))

    assert bench.again().list_pulls() == ()


def test_a_ready_pull_request_stays_ready(bench: Bench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.forge.mark_ready(number)
    bench.again().mark_ready(number)
    bench.again().ensure(desired(title="Update web"))

    (pull,) = bench.again().list_pulls()
    assert (pull.draft, pull.title, pull.state) == (False, "Update web", PullState.OPEN)


def test_a_ready_pull_request_can_be_turned_back_into_a_draft(bench: Bench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.forge.mark_draft(number)
    bench.forge.mark_ready(number)
    for _ in range(2):
        bench.again().mark_draft(number)

    (pull,) = bench.again().list_pulls()
    assert (pull.draft, pull.title, pull.state, pull.head) == (True, "Create web", PullState.OPEN, HEAD)
    bench.again().mark_ready(number)
    assert not bench.again().list_pulls()[0].draft


def test_an_ended_pull_request_is_left_as_it_is(bench: Bench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.forge.close(number, comment="")
    before = bench.again().list_pulls()

    bench.again().mark_draft(number)

    assert bench.again().list_pulls() == before


def test_head_follows_pushes_of_people(bench: Bench) -> None:
    bench.forge.ensure(desired())

    oid = bench.push(HEAD)

    assert bench.again().list_pulls()[0].head_oid == oid


def test_a_closed_pull_request_stays_closed(bench: Bench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.forge.close(number, comment="Obsolete.")
    bench.again().close(number, comment="Again.")

    assert [p.state for p in bench.again().list_pulls()] == [PullState.CLOSED]


def test_a_head_can_be_proposed_again_after_a_close(bench: Bench) -> None:
    bench.forge.close(bench.forge.ensure(desired()).number, comment="No.")

    again = bench.again().ensure(desired())

    assert again.number == 2
    assert [p.state for p in bench.again().list_pulls()] == [PullState.CLOSED, PullState.OPEN]


def test_deleting_the_branch_closes_the_pull_request(bench: Bench) -> None:
    bench.forge.ensure(desired())

    bench.delete(HEAD)

    assert [p.state for p in bench.again().list_pulls()] == [PullState.CLOSED]


def test_a_merge_happens_once(bench: Bench) -> None:
    pull = bench.forge.ensure(desired(draft=False))
    merged = bench.forge.merge(pull.number, expect=pull.head_oid)

    assert bench.again().merge(pull.number, expect=pull.head_oid) == merged
    assert [p.state for p in bench.again().list_pulls()] == [PullState.MERGED]


def test_a_head_that_moved_is_not_merged(bench: Bench) -> None:
    pull = bench.forge.ensure(desired(draft=False))
    bench.push(HEAD)

    with pytest.raises(ConflictError):
        bench.again().merge(pull.number, expect=pull.head_oid)

    assert [p.state for p in bench.again().list_pulls()] == [PullState.OPEN]


def test_a_draft_is_approved_in_one_step_and_once(bench: Bench) -> None:
    opened = bench.forge.ensure(desired())

    merged = bench.forge.approve(opened.number, expect=opened.head_oid)

    assert bench.again().approve(opened.number, expect=opened.head_oid) == merged
    assert bench.again().list_pulls()[0].state is PullState.MERGED


def test_a_head_that_moved_is_not_approved_and_stays_a_draft(bench: Bench) -> None:
    opened = bench.forge.ensure(desired())
    bench.push(HEAD)

    with pytest.raises(ConflictError):
        bench.again().approve(opened.number, expect=opened.head_oid)

    listed = bench.again().list_pulls()[0]
    assert (listed.state, listed.draft) == (PullState.OPEN, True)


def test_neither_a_draft_nor_a_closed_pull_request_is_merged(bench: Bench) -> None:
    pull = bench.forge.ensure(desired())
    with pytest.raises(RefusedError):
        bench.forge.merge(pull.number, expect=pull.head_oid)
    bench.forge.close(pull.number, comment="")

    with pytest.raises(RefusedError):
        bench.again().merge(pull.number, expect=pull.head_oid)


def test_commenting_changes_no_state(bench: Bench) -> None:
    pull = bench.forge.ensure(desired())

    bench.forge.comment(pull.number, key="conflicts", body="One.")
    bench.forge.comment(pull.number, key="conflicts", body="Two.")

    assert bench.again().list_pulls() == (pull,)


@pytest.mark.parametrize("act", ["mark_ready", "mark_draft", "close", "comment", "merge", "approve"])
def test_missing_pull_request_is_refused(bench: Bench, act: str) -> None:
    arguments = {"close": {"comment": ""}, "comment": {"key": "k", "body": ""}, "merge": {"expect": "x"}}
    arguments["approve"] = arguments["merge"]

    with pytest.raises(RefusedError):
        getattr(bench.forge, act)(9, **arguments.get(act, {}))


def test_repository_passes_fsck(tmp_path: Path) -> None:
    bench = LocalBench(tmp_path)
    number = bench.forge.ensure(desired()).number
    bench.forge.comment(number, key="k", body="x")
    bench.forge.close(number, comment="No.")

    ran = subprocess.run(
        ["git", "-C", str(bench.bare), "fsck", "--strict"], capture_output=True, text=True, check=True
    )

    assert "error" not in ran.stderr
