"""What a Gitea or Forgejo server does, on the one that the environment names, else on a simulated one."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.forge.api.forge import ApiForge
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from tests.support.forges.bench import HEADS
from tests.support.forges.gitea_api import GiteaBench, GiteaServer, other_address
from tests.support.git import kptfile
from tests.support.values import replace

WEB, DB = HEADS["web"], HEADS["db"]
NO_STYLE = {
    "has_pull_requests": True,  # servers before 1.23 change styles only together with it
    "allow_merge_commits": False,
    "allow_squash_merge": False,
    "allow_rebase": False,
    "allow_rebase_explicit": False,
}
PERMITS = {"merge": "allow_merge_commits", "squash": "allow_squash_merge", "rebase": "allow_rebase"}


@pytest.fixture
def bench(gitea: GiteaServer) -> GiteaBench:
    return GiteaBench(gitea)


def desired(head: str = WEB, *labels: str, draft: bool = True, base: str = "main") -> PullRequest:
    return PullRequest(head=head, base=base, title=f"Create {head}", body="Why.", draft=draft, labels=labels)


def add_heads(bench: GiteaBench, count: int) -> list[str]:
    """Push so many draft branches at once; return their names."""
    heads = [f"drafts/p{number:02}/packagevariant-1" for number in range(count)]
    for number, head in enumerate(heads):
        files = {f"p{number:02}/Kptfile": kptfile(f"p{number:02}")}
        bench.hosted.repo.commit(files, branch=head, start="main")
    bench.hosted.push("--all")
    return heads


def count_requests(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> int:
    """Return how many requests something takes."""
    stream, sent = httpx.Client.stream, []

    def counted(*request: Any, **more: Any) -> Any:
        sent.append(request)
        return stream(*request, **more)

    with monkeypatch.context() as patch:
        patch.setattr(httpx.Client, "stream", counted)
        act()
    return len(sent)


def test_two_runs_at_once_leave_one_pull_request(bench: GiteaBench) -> None:
    barrier, errors = threading.Barrier(2), []

    def open_both(forge: ApiForge) -> None:
        try:
            for head in (WEB, DB):
                barrier.wait()
                forge.ensure(desired(head, "fleet"))
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)
            barrier.abort()

    runs = [threading.Thread(target=open_both, args=(bench.again(),)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert not errors
    assert sorted(bench.hosted.open_heads()) == sorted([WEB, DB])
    listed = bench.again().list_pulls()
    assert [(p.head, p.state) for p in listed] == [(p.head, PullState.OPEN) for p in listed]
    assert len(listed) == 2
    assert all(bench.again().ensure(desired(p.head, "fleet")).number == p.number for p in listed)


def test_drafts_are_approved_one_after_the_other(bench: GiteaBench) -> None:
    opened = [bench.forge.ensure(desired(head)) for head in (WEB, DB, *add_heads(bench, 3))]

    for pull in opened:
        bench.forge.approve(pull.number, expect=pull.head_oid)

    assert {pull.state for pull in bench.again().list_pulls()} == {PullState.MERGED}


def test_lists_longer_than_a_page_are_read_by_another_address_of_the_server(bench: GiteaBench) -> None:
    heads = add_heads(bench, 51)
    for head in heads:
        bench.hosted.call("POST", "/pulls", {"title": f"WIP: {head}", "head": head, "base": "main"})

    listed = bench.again(url=other_address(bench.server.url)).list_pulls()

    assert [pull.head for pull in listed] == heads


@pytest.mark.parametrize("style", PERMITS)
def test_repository_is_merged_in_the_style_that_it_prefers(bench: GiteaBench, style: str) -> None:
    bench.hosted.call("PATCH", "", {**NO_STYLE, PERMITS[style]: True, "default_merge_style": style})
    pull = bench.forge.ensure(desired())

    bench.forge.approve(pull.number, expect=pull.head_oid)

    assert bench.again().list_pulls()[0].state is PullState.MERGED


def test_forbidden_style_is_named_and_the_draft_stays_ready(bench: GiteaBench) -> None:
    bench.hosted.call("PATCH", "", {**NO_STYLE, "allow_merge_commits": True, "default_merge_style": "merge"})
    pull = bench.forge.ensure(desired())

    with pytest.raises(RefusedError, match="does not permit to squash"):
        bench.again(merge_method="squash").approve(pull.number, expect=pull.head_oid)

    assert not bench.again().list_pulls()[0].draft


def test_labels_of_the_organization_and_of_people_stay(bench: GiteaBench) -> None:
    for name in ("fleet", "urgent"):
        label = {"name": f"{name}-{bench.hosted.name}", "color": "#ededed"}
        bench.server.call("POST", f"/orgs/{bench.server.organization}/labels", label)
    fleet, urgent = (f"{name}-{bench.hosted.name}" for name in ("fleet", "urgent"))
    number = bench.forge.ensure(desired(WEB, fleet)).number
    ids = {
        label["name"]: label["id"]
        for label in bench.server.call("GET", f"/orgs/{bench.server.organization}/labels")
    }
    bench.hosted.call("PUT", f"/issues/{number}/labels", {"labels": [ids[fleet], ids[urgent]]})

    bench.again().ensure(replace(desired(WEB, fleet, "new"), number=number))

    assert bench.again().list_pulls()[0].labels == tuple(sorted((fleet, "new", urgent)))
    assert [label["name"] for label in bench.hosted.call("GET", "/labels")] == ["new"]


def test_prefix_that_makes_no_draft_opens_nothing(bench: GiteaBench) -> None:
    with pytest.raises(RefusedError, match="takes no title with") as raised:
        bench.again(draft_prefix="Sketch: ").ensure(desired())

    assert "draftPrefix" in raised.value.hint
    assert bench.hosted.open_heads() == []


def test_opening_takes_three_requests_however_many_are_open(
    bench: GiteaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.forge.ensure(desired(DB, "fleet"))
    heads = add_heads(bench, 12)

    taken = [
        count_requests(monkeypatch, lambda head=head: bench.forge.ensure(desired(head, "fleet")))  # type: ignore[misc]
        for head in heads
    ]

    assert taken == [3] * len(heads)


def test_refused_token_is_named(bench: GiteaBench) -> None:
    with pytest.raises(UnavailableError, match="refuses the credential: 401") as raised:
        bench.again(token="0" * 40).list_pulls()

    assert raised.value.hint.startswith("Give a token that is valid")


def test_token_without_the_permission_is_refused_with_a_hint(bench: GiteaBench) -> None:
    user = bench.server.bot
    reader = bench.server.add_token(user.login, user.password, ("read:repository", "read:issue", "read:user"))

    with pytest.raises(RefusedError, match="required scope") as raised:
        bench.again(token=reader).ensure(desired())

    assert "permissions" in raised.value.hint
    assert bench.again(token=reader).list_pulls() == ()


def test_archived_repository_is_refused_with_a_hint(bench: GiteaBench) -> None:
    bench.hosted.call("PATCH", "", {"archived": True})

    with pytest.raises(RefusedError, match="archived") as raised:
        bench.forge.ensure(desired())

    assert "not archived" in raised.value.hint
    assert bench.again().list_pulls() == ()
    bench.hosted.call("PATCH", "", {"archived": False})


def test_pull_requests_that_are_switched_off_are_named(bench: GiteaBench) -> None:
    bench.hosted.call("PATCH", "", {"has_pull_requests": False})

    with pytest.raises(UnavailableError, match="are switched off"):
        bench.forge.list_pulls()


def test_missing_approval_is_named_and_the_draft_stays_ready(bench: GiteaBench) -> None:
    pull = bench.forge.ensure(desired())
    bench.hosted.call("POST", "/branch_protections", {"rule_name": "main", "required_approvals": 1})

    with pytest.raises(RefusedError, match="approvals") as raised:
        bench.forge.approve(pull.number, expect=pull.head_oid)

    assert "autoMerge: true" in raised.value.hint
    assert not bench.again().list_pulls()[0].draft


def test_server_merges_by_itself_once_the_required_check_has_passed(bench: GiteaBench) -> None:
    pull = bench.forge.ensure(desired())
    rule = {"rule_name": "main", "enable_status_check": True, "status_check_contexts": ["ci/build"]}
    bench.hosted.call("POST", "/branch_protections", rule)
    assert bench.again().checks(pull.head_oid) == {}

    assert not bench.forge.enable_auto_merge(pull.number, expect=pull.head_oid)

    status = {"context": "ci/build", "state": "success"}
    bench.hosted.call("POST", f"/statuses/{pull.head_oid}", status)
    assert bench.again().checks(pull.head_oid) == {"ci/build": CheckState.PASSED}
    bench.hosted.wait(lambda: bench.hosted.open_heads() == [], "the merge")
    assert bench.again().list_pulls()[0].state is PullState.MERGED


def test_checks_of_the_newest_report_count(bench: GiteaBench) -> None:
    oid = bench.hosted.repo.oid(WEB)
    reports = (("a", "failure"), ("a", "success"), ("b", "success"), ("b", "failure"), ("c", "pending"))
    for context, state in reports:
        bench.hosted.call("POST", f"/statuses/{oid}", {"context": context, "state": state})

    states = {"a": CheckState.PASSED, "b": CheckState.FAILED, "c": CheckState.PENDING}
    assert bench.forge.checks(oid) == states


def test_people_are_asked_once_and_unknown_ones_are_refused(bench: GiteaBench) -> None:
    kim = bench.server.person.login
    asked = replace(desired(), reviewers=(kim,), assignees=(kim,))
    number = bench.forge.ensure(asked).number

    assert bench.again().ensure(asked).number == number
    (pull,) = bench.hosted.pulls()
    assert [user["login"] for user in pull["assignees"]] == [kim]
    with pytest.raises(RefusedError, match="nobody-of-this-name"):
        bench.again().ensure(replace(asked, reviewers=(kim, "nobody-of-this-name")))


def test_comment_is_written_once_and_updated(bench: GiteaBench) -> None:
    number = bench.forge.ensure(desired()).number
    bench.hosted.call("POST", f"/issues/{number}/comments", {"body": "A person's."})

    for body in ("One.", "Two.", "Two."):
        bench.again().comment(number, key="conflicts", body=body)

    texts = [comment["body"] for comment in bench.hosted.call("GET", f"/issues/{number}/comments")]
    assert len(texts) == 2
    assert "Two." in texts[1]


def test_dashboard_is_one_issue_that_stays_closed(bench: GiteaBench) -> None:
    bench.hosted.call("POST", "/issues", {"title": "A person's", "body": "Text"})
    for body in ("One.", "Two."):
        issue = bench.again().write_issue("dashboard", "Dashboard", body)
    assert issue is not None
    assert bench.again().write_issue("dashboard", "Dashboard", "Two.") is None
    bench.hosted.call("PATCH", f"/issues/{issue.number}", {"state": "closed"})

    assert bench.again().write_issue("dashboard", "Dashboard", "Three.") is None

    assert "Two." in bench.hosted.call("GET", f"/issues/{issue.number}")["body"]


def test_deleted_base_closes_a_pull_request_that_can_be_reopened(bench: GiteaBench) -> None:
    bench.hosted.repo.commit({"notes.txt": "x"}, branch="release", start="main")
    bench.hosted.push("release")
    number = bench.forge.ensure(desired(base="release")).number

    bench.hosted.push("--delete", "release")
    bench.hosted.wait(lambda: bench.hosted.open_heads() == [], "the close")
    bench.hosted.push("release")
    bench.hosted.call("PATCH", f"/pulls/{number}", {"state": "open"})

    assert bench.hosted.open_heads() == [WEB]


def test_pull_request_of_a_person_with_our_text_is_told_by_its_branch(bench: GiteaBench) -> None:
    bench.hosted.repo.commit({"notes.txt": "x"}, branch="feature", start="main")
    bench.hosted.push("feature")
    bench.hosted.call("POST", "/pulls", {"title": "Mine", "head": "feature", "base": "main", "body": "Why."})

    assert bench.forge.list_pulls() == ()
