import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest

from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.git import push as push_module
from reconciler.git.command import GitResult, process_count
from reconciler.git.push import PushStatus, RefUpdate, check_push, push
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from tests.support.git import make_repository, run

A, B = Oid("a" * 40), Oid("b" * 40)
REF, TAG = "refs/heads/a", "refs/tags/v1"
BOTH_REFS = tuple(RefUpdate(f"refs/heads/{name}", None, A) for name in "ab")
STALE, REJECTED, SKIPPED, DONE = (
    PushStatus.STALE, PushStatus.REJECTED, PushStatus.SKIPPED, PushStatus.DONE,
)  # fmt: skip
LINES = {
    DONE: "*\t:{}\t[new branch]",
    STALE: "!\t:{}\t[rejected] (stale info)",
    REJECTED: "!\t:{}\t[remote rejected] (declined)",
    SKIPPED: "!\t:{}\t[rejected] (atomic transaction failed)",
}
Answered = Callable[..., list[tuple[PushStatus, str]]]


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    mirror = Mirrors(tmp_path / "cache").open(str(make_repository(tmp_path / "a.git", {"x": "1"}).path))
    mirror.fetch()
    return mirror


@pytest.fixture
def pushed(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Answered:
    """Push to a server that answers so; return status and message of each ref."""

    def answer(result: GitResult, updates: Sequence[RefUpdate] = BOTH_REFS) -> list[tuple[PushStatus, str]]:
        monkeypatch.setattr(push_module, "_push", lambda *_, **__: result)
        results = push(mirror, updates)
        assert [each.update for each in results] == [*updates]
        return [(each.status, each.message) for each in results]

    return answer


def reported(*statuses: PushStatus, stderr: str = "") -> GitResult:
    """Return what git prints of the refs a and b."""
    lines = [LINES[s].format(u.ref) for s, u in zip(statuses, BOTH_REFS, strict=False)]
    return GitResult(int({*statuses} != {DONE}), "\n".join(lines).encode(), stderr)


MOVED = "error: cannot lock ref 'refs/heads/a': is at 1 but expected 2"
DENIED_LOCK = "error: cannot lock ref 'refs/heads/a': Permission denied"


@pytest.mark.parametrize(
    ("listed", "stderr", "statuses"),
    [
        ((SKIPPED, SKIPPED), MOVED, (STALE, SKIPPED)),
        ((SKIPPED, SKIPPED), DENIED_LOCK, (REJECTED, SKIPPED)),
        ((SKIPPED, SKIPPED), "fatal: the remote end hung up", (STALE, STALE)),
        ((SKIPPED, DONE), "", (STALE, DONE)),
        ((DONE, SKIPPED), MOVED, (DONE, SKIPPED)),
        ((SKIPPED, REJECTED), MOVED, (SKIPPED, REJECTED)),
        ((SKIPPED, STALE), DENIED_LOCK, (SKIPPED, STALE)),
        ((DONE, DONE), MOVED, (DONE, DONE)),
        ((REJECTED, DONE), DENIED_LOCK, (REJECTED, DONE)),
    ],
)
def test_ref_that_stops_a_transaction_is_named_by_its_lock_where_all_are_skipped(
    pushed: Answered, listed: tuple[PushStatus, ...], stderr: str, statuses: tuple[PushStatus, ...]
) -> None:
    assert tuple(status for status, _ in pushed(reported(*listed, stderr=stderr))) == statuses


def test_reason_of_a_transaction_that_fails_for_no_ref_of_the_push_is_told(pushed: Answered) -> None:
    head = "cannot lock ref 'HEAD': Unable to create '/r.git/HEAD.lock': File exists."
    stderr = f"remote: error: {head}\nremote: Counting\nremote: error: {head}\nfatal: gone \n"

    results = pushed(reported(SKIPPED, SKIPPED, stderr=stderr))

    assert {*results} == {(STALE, f"atomic transaction failed: {head}; gone")}


ARCHIVED = (
    "remote: This repository was archived so it is read-only.\nfatal: unable to access 'https://h/r.git/'"
)
DENIED = (
    "ERROR: Permission to acme/edge.git denied to deploy key\nfatal: Could not read from remote repository."
)


@pytest.mark.parametrize(
    ("stderr", "kind", "message"),
    [
        (ARCHIVED, RefusedError, "takes no push: This repository was archived so it is read-only."),
        (DENIED, RefusedError, "takes no push: ERROR: Permission to acme/edge.git denied to deploy key"),
        ("fatal: The requested URL returned error: 403", RefusedError, "takes no push: fatal: The requested"),
        ("fatal: The requested URL returned error: 502", UnavailableError, "Cannot push to"),
        ("fatal: Could not resolve host: h", UnavailableError, "Cannot push to"),
    ],
)
def test_a_push_that_a_server_forbids_is_refused_and_others_are_tried_again(
    pushed: Answered, stderr: str, kind: type[ReconcilerError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        pushed(GitResult(128, b"", stderr))

    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert caught.value.exit_code is (Exit.REFUSED if kind is RefusedError else Exit.UNAVAILABLE)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("flag", "summary", "status", "message"),
    [
        ("=", "[up to date]", PushStatus.UP_TO_DATE, "[up to date]"),
        ("*", "[new branch]", DONE, ""),
        ("!", "[remote rejected] (pre-receive hook declined)", REJECTED, "pre-receive hook declined"),
        ("!", "[rejected] (stale info)", STALE, "stale info"),
        ("!", "[rejected] (atomic push failed)", STALE, "atomic push failed"),
        ("!", "[remote rejected] (a (b) c)", REJECTED, "a (b) c"),
        ("!", "[no match]", REJECTED, "[no match]"),
    ],
)
def test_reason_of_a_ref_is_what_git_has_in_parentheses(
    pushed: Answered, flag: str, summary: str, status: PushStatus, message: str
) -> None:
    line = f"{flag}\t:{REF}\t{summary}\n".encode()

    assert pushed(GitResult(0, line, ""), BOTH_REFS[:1]) == [(status, message)]


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (REJECTED, "remote: Use a ticket.\nremote: Use a ticket.\nfatal: x\n", "declined: Use a ticket."),
        (REJECTED, "remote: error: hook declined to update refs/heads/a\n", "declined"),
        (REJECTED, "remote: declined\n", "declined"),
        (REJECTED, "fatal: x\n", "declined"),
        (STALE, "remote: Use a ticket.\n", "stale info"),
        (REJECTED, f"remote: {'x' * 500}\n", f"declined: {'x' * 400}"),
    ],
)
def test_output_of_hooks_is_the_reason_of_a_rejection(pushed: Answered, status, stderr, message) -> None:
    assert pushed(reported(status, stderr=stderr), BOTH_REFS[:1]) == [(status, message)]


@pytest.mark.parametrize(("expected", "new", "ref"), [*product((None, A), (None, A, B), (REF, TAG))])
def test_tag_never_moves_and_nothing_is_deleted_blindly(pushed: Answered, expected, new, ref) -> None:
    moves_tag, done = ref == TAG and (expected, new) == (A, B), f"*\t:{ref}\t[new reference]".encode()
    update = RefUpdate(ref, expected, new)
    if not moves_tag and (expected or new):
        assert pushed(GitResult(0, done, ""), [update]) == [(DONE, "")]
        return
    with pytest.raises(RefusedError) as caught:
        pushed(GitResult(0, done, ""), [update])
    message = (
        f"{ref} exists and would move" if moves_tag else f"{ref} would be deleted without its expected value"
    )
    assert (str(caught.value), caught.value.hint == "A published tag never moves.") == (message, moves_tag)


def test_directory_compares_what_it_has_with_what_each_update_expects(mirror: Mirror) -> None:
    head = mirror.refs()["refs/heads/main"]
    tree = mirror.commit(head).tree
    other = Oid(run("commit-tree", "-m", "other", tree, cwd=Path(mirror.remote)).strip())
    values = (None, head, other)
    cases = [case for case in product(values, repeat=3) if case[1:] != (None, None)]
    refs = {f"refs/heads/{number}": case for number, case in enumerate(cases)}
    start = [RefUpdate(ref, None, there) for ref, (there, _, _) in refs.items() if there]
    assert all(result.ok for result in push(mirror, start))

    results = {ref: push(mirror, [RefUpdate(ref, *case[1:])])[0] for ref, case in refs.items()}

    mirror.fetch()
    for ref, (there, expected, new) in refs.items():
        is_there, is_stale = new is not None and there == new, there != expected
        assert results[ref].status is (PushStatus.UP_TO_DATE if is_there else STALE if is_stale else DONE)
        assert mirror.refs().get(ref) == (new if results[ref].ok else there)


@pytest.mark.parametrize("oid", ["a" * 39, "a" * 41, "A" * 40, "main", ""])
def test_malformed_id_is_not_pushed(pushed: Answered, oid: str) -> None:
    for update in (RefUpdate(REF, Oid(oid), A), RefUpdate(REF, A, Oid(oid))):
        with pytest.raises(RefusedError, match=f"An object id for {REF} is not 40 hexadecimal digits"):
            pushed(reported(DONE), [update])


def test_each_ref_has_its_line_of_the_output_whatever_the_order(pushed: Answered, mirror: Mirror) -> None:
    out = b"To x\n=\t:refs/heads/b\t[up to date]\n*\tx:refs/heads/a\t[new branch]\nDone\n"

    assert pushed(GitResult(0, out, "")) == [(PushStatus.DONE, ""), (PushStatus.UP_TO_DATE, "[up to date]")]
    assert {ref: oid for ref, oid in mirror.refs().items() if oid == A} == {
        "refs/heads/a": A,
        "refs/heads/b": A,
    }


MISSING = b"*\tx:refs/heads/a\t[new branch]\n"
BOTH = MISSING + b"*\tx:refs/heads/b\t[new branch]\n"
FULL = MISSING + b"!\tx:refs/heads/b\t[remote rejected] (unpacker error)\n"
FULL_REF = MISSING + b"!\tx:refs/heads/b\t[remote rejected] (No space left on device)\n"


@pytest.mark.parametrize(
    ("result", "message", "hint"),
    [
        (GitResult(128, MISSING, "fatal: hung up"), "Cannot push to {remote}: fatal: hung up",
            "Check the URL, "),
        (GitResult(1, BOTH, "fatal: hung up"), "Push to {remote} failed: fatal: hung up", "Check the URL, "),
        (GitResult(1, FULL, "error: No space left on device"), "Cannot push to {remote}: error: No",
            "Free the"),
        (GitResult(1, FULL_REF, "error: other"), "Cannot push to {remote}: No space left on device",
            "Free the"),
    ],
)  # fmt: skip
def test_push_that_cannot_be_completed_is_unavailable(
    pushed: Answered, mirror: Mirror, result: GitResult, message: str, hint: str
) -> None:
    with pytest.raises(UnavailableError) as caught:
        pushed(result)

    assert str(caught.value).startswith(message.format(remote=mirror.remote))
    assert caught.value.hint.startswith(hint)


def test_limit_of_a_server_is_no_failure_of_a_push_that_succeeded(pushed: Answered) -> None:
    assert [status for status, _ in pushed(GitResult(0, BOTH, "remote: No space left on device"))] == [
        PushStatus.DONE
    ] * 2


@pytest.mark.parametrize("denied", ["", "repository", "objects"])
def test_directory_may_be_pushed_to_where_it_can_be_written(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    places = {"repository": Path(mirror.open().path), "objects": Path(mirror.open().path) / "objects"}
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != places.get(denied))

    why = check_push(mirror, "refs/heads/main", Oid("1" * 40))

    assert why == (f"{places[denied]} is not writable" if denied else "")


def test_push_of_nothing_starts_no_process_and_forbidden_update_pushes_nothing(mirror: Mirror) -> None:
    head = mirror.refs()["refs/heads/main"]

    assert push(mirror, []) == ()
    with pytest.raises(RefusedError):
        push(mirror, [RefUpdate(REF, None, head), RefUpdate(TAG, A, B)])
    mirror.fetch()
    assert REF not in mirror.refs()


def test_refs_are_pushed_in_order_up_to_a_failure_where_the_server_is_not_atomic(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_one = push_module._push
    refused = GitResult(128, b"", "fatal: the receiving end does not support --atomic push")

    def not_atomic(mirror: Mirror, updates: Sequence[RefUpdate], *, atomic: bool) -> GitResult:
        return refused if atomic else push_one(mirror, updates, atomic=atomic)

    monkeypatch.setattr(push_module, "_push", not_atomic)
    head = mirror.refs()["refs/heads/main"]
    updates = [
        RefUpdate("refs/heads/a", None, head),
        RefUpdate("refs/heads/main", A, None),
        RefUpdate(TAG, None, head),
    ]

    results = push(mirror, updates)

    assert [result.update for result in results] == updates
    assert [(result.status, result.ok) for result in results] == [
        (PushStatus.DONE, True),
        (PushStatus.STALE, False),
        (PushStatus.SKIPPED, False),
    ]
    assert results[2].message == "an earlier ref was not updated"
    assert {"refs/heads/a", TAG} & mirror.refs().keys() == {"refs/heads/a"}


@pytest.fixture
def many(mirror: Mirror) -> list[RefUpdate]:
    """1,200 new branches, and one to delete."""
    head = mirror.refs()["refs/heads/main"]
    assert push(mirror, [RefUpdate(REF, None, head)])[0].ok
    new = (RefUpdate(f"refs/heads/drafts/p{number}/w", None, head) for number in range(1200))
    return [*new, RefUpdate(REF, head, None)]


def test_directory_takes_any_number_of_refs_in_one_push_even_if_it_advertises_no_atomic_ones(
    mirror: Mirror, many: list[RefUpdate]
) -> None:
    run("config", "receive.advertiseAtomic", "false", cwd=Path(mirror.remote))
    before = process_count("push")

    assert {result.status for result in push(mirror, many)} == {PushStatus.DONE}
    assert process_count("push") == before + 1
    assert len(mirror.refs()) == 1201
    snapshot = dict(mirror.refs())
    mirror.fetch()
    assert mirror.refs() == snapshot


@pytest.mark.parametrize("hook", ["pre-receive", "update"])
def test_one_refused_ref_of_many_moves_none(mirror: Mirror, many: list[RefUpdate], hook: str) -> None:
    script = Path(mirror.remote) / "hooks" / hook
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "#!/bin/sh\n! grep -q p7/ && ! echo $1 | grep -q p7/ || { echo Use a ticket.; exit 1; }\n"
    )
    script.chmod(0o755)

    rejected = [result for result in push(mirror, many) if result.status is REJECTED]

    assert rejected
    assert all("Use a ticket." in result.message for result in rejected)
    mirror.fetch()
    assert set(mirror.refs()) == {"refs/heads/main", REF}


def test_every_ref_that_another_writer_moved_is_told_and_what_is_there_already_is_done(
    mirror: Mirror, many: list[RefUpdate]
) -> None:
    first, second, third = many[:3]
    head = mirror.refs()["refs/heads/main"]
    other = Oid(run("commit-tree", "-m", "x", f"{head}^{{tree}}", cwd=Path(mirror.remote)).strip())
    assert all(r.ok for r in push(mirror, [first._replace(new=other), second._replace(new=other), third]))

    results = push(mirror, many)

    assert [r.status for r in results[:3]] == [STALE, STALE, PushStatus.UP_TO_DATE]
    assert {r.status for r in results[3:]} == {STALE, SKIPPED} - {STALE}
    mirror.fetch()
    assert len(mirror.refs()) == 5
