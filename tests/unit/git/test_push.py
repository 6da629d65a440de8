from itertools import product
from pathlib import Path

import pytest

from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.redact import learn_credential
from reconciler.git.command import GitResult
from reconciler.git.push import (
    PushResult,
    PushStatus,
    RefUpdate,
    _check,
    _push_error,
    _result,
    _results,
    _with_hook_output,
    _with_lock_faults,
    name_refs,
    push,
)
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from tests.support.git import make_repository, run


def results(*refs: str) -> list[PushResult]:
    return [PushResult(RefUpdate(ref, None, None), PushStatus.REJECTED) for ref in refs]


def test_three_refs_are_named() -> None:
    assert name_refs(results("a", "b", "c")) == "a, b, c"


def test_further_refs_are_counted() -> None:
    assert name_refs(results("a", "b", "c", "d", "e")) == "a, b, c and 2 more"


STALE, REJECTED, SKIPPED, DONE = (
    PushStatus.STALE,
    PushStatus.REJECTED,
    PushStatus.SKIPPED,
    PushStatus.DONE,
)
MOVED = "error: cannot lock ref 'a': is at 1 but expected 2"
DENIED_LOCK = "error: cannot lock ref 'a': Permission denied"


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
    listed: tuple[PushStatus, ...], stderr: str, statuses: tuple[PushStatus, ...]
) -> None:
    pushed = [
        PushResult(RefUpdate(ref, None, None), status) for ref, status in zip("ab", listed, strict=True)
    ]

    results = _with_lock_faults(pushed, stderr)

    assert [(result.update.ref, result.status) for result in results] == list(
        zip("ab", statuses, strict=True)
    )


def test_reason_of_a_transaction_that_fails_for_no_ref_of_the_push_is_told() -> None:
    head = "cannot lock ref 'HEAD': Unable to create '/r.git/HEAD.lock': File exists."
    stderr = f"remote: error: {head}\nremote: Counting\nremote: error: {head}\nfatal: gone \n"
    pushed = [PushResult(RefUpdate(ref, None, None), SKIPPED, "atomic transaction failed") for ref in "ab"]

    results = _with_lock_faults(pushed, stderr)

    assert {(result.status, result.message) for result in results} == {
        (STALE, f"atomic transaction failed: {head}; gone")
    }


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
    stderr: str, kind: type[ReconcilerError], message: str
) -> None:
    error = _push_error("https://h/r.git", stderr)

    assert type(error) is kind
    assert message in str(error)
    assert error.exit_code is (Exit.REFUSED if kind is RefusedError else Exit.UNAVAILABLE)
    assert error.hint


@pytest.mark.parametrize(
    ("flag", "summary", "status", "message"),
    [
        ("=", "[up to date]", PushStatus.UP_TO_DATE, "[up to date]"),
        ("*", "[new branch]", PushStatus.DONE, ""),
        (
            "!",
            "[remote rejected] (pre-receive hook declined)",
            PushStatus.REJECTED,
            "pre-receive hook declined",
        ),
        ("!", "[rejected] (stale info)", PushStatus.STALE, "stale info"),
        ("!", "[rejected] (atomic push failed)", PushStatus.SKIPPED, "atomic push failed"),
        ("!", "[remote rejected] (a (b) c)", PushStatus.REJECTED, "a (b) c"),
        ("!", "[no match]", PushStatus.REJECTED, "[no match]"),
    ],
)
def test_reason_of_a_ref_is_what_git_has_in_parentheses(
    flag: str, summary: str, status: PushStatus, message: str
) -> None:
    update = RefUpdate("refs/heads/a", None, None)

    assert _result(update, flag, summary) == PushResult(update, status, message)


def test_credential_in_the_reason_of_a_ref_is_masked() -> None:
    learn_credential("cn-push-1a2b")

    result = _result(RefUpdate("refs/heads/a", None, None), "!", "[remote rejected] (sent cn-push-1a2b)")

    assert result.message == "sent ***"


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (
            PushStatus.REJECTED,
            "remote: Use a ticket.\nremote: Use a ticket.\nfatal: x\n",
            "declined: Use a ticket.",
        ),
        (PushStatus.REJECTED, "remote: error: hook declined to update refs/heads/a\n", "declined"),
        (PushStatus.REJECTED, "remote: declined\n", "declined"),
        (PushStatus.REJECTED, "fatal: x\n", "declined"),
        (PushStatus.STALE, "remote: Use a ticket.\n", "declined"),
        (PushStatus.REJECTED, f"remote: {'x' * 500}\n", f"declined: {'x' * 400}"),
    ],
)
def test_output_of_hooks_is_the_reason_of_a_rejection(status: PushStatus, stderr: str, message: str) -> None:
    result = PushResult(RefUpdate("refs/heads/a", None, None), status, "declined")

    assert _with_hook_output(result, stderr).message == message


A, B = Oid("a" * 40), Oid("b" * 40)
REF, TAG = "refs/heads/a", "refs/tags/v1"


@pytest.mark.parametrize(("expected", "new", "ref"), [*product((None, A), (None, A, B), (REF, TAG))])
def test_tag_never_moves_and_nothing_is_deleted_blindly(
    expected: Oid | None, new: Oid | None, ref: str
) -> None:
    moves_tag = ref == TAG and (expected, new) == (A, B)
    if not moves_tag and (expected or new):
        _check(RefUpdate(ref, expected, new))
        return
    with pytest.raises(RefusedError) as caught:
        _check(RefUpdate(ref, expected, new))
    message = (
        f"{ref} exists and would move" if moves_tag else f"{ref} would be deleted without its expected value"
    )
    assert (str(caught.value), caught.value.hint == "A published tag never moves.") == (message, moves_tag)


@pytest.mark.parametrize("oid", ["a" * 39, "a" * 41, "A" * 40, "main", ""])
def test_malformed_id_is_not_pushed(oid: str) -> None:
    for update in (RefUpdate(REF, Oid(oid), A), RefUpdate(REF, A, Oid(oid))):
        with pytest.raises(RefusedError, match=f"An object id for {REF} is not 40 hexadecimal digits"):
            _check(update)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    mirror = Mirrors(tmp_path / "cache").open(str(make_repository(tmp_path / "a.git", {"x": "1"}).path))
    mirror.fetch()
    return mirror


def pushed(mirror: Mirror, result: GitResult) -> list[tuple[PushStatus, str]]:
    """Return status and message of the refs a and b after a push with this result."""
    updates = [RefUpdate(f"refs/heads/{name}", None, A) for name in "ab"]
    results = _results(mirror, updates, result)
    assert [result.update for result in results] == updates
    return [(result.status, result.message) for result in results]


def test_each_ref_has_its_line_of_the_output_whatever_the_order(mirror: Mirror) -> None:
    out = b"To x\n=\t:refs/heads/b\t[up to date]\n*\tx:refs/heads/a\t[new branch]\nDone\n"

    assert pushed(mirror, GitResult(0, out, "")) == [
        (PushStatus.DONE, ""),
        (PushStatus.UP_TO_DATE, "[up to date]"),
    ]
    assert {ref: oid for ref, oid in mirror.refs().items() if oid == A} == {
        "refs/heads/a": A,
        "refs/heads/b": A,
    }


def test_ref_that_was_not_pushed_keeps_its_place_in_the_snapshot(mirror: Mirror) -> None:
    out = b"*\tx:refs/heads/a\t[new branch]\n!\tx:refs/heads/b\t[rejected] (stale info)\n"

    assert pushed(mirror, GitResult(1, out, "")) == [(PushStatus.DONE, ""), (PushStatus.STALE, "stale info")]
    assert mirror.refs().get("refs/heads/b") is None
    assert mirror.refs()["refs/heads/a"] == A


MISSING = b"*\tx:refs/heads/a\t[new branch]\n"
BOTH = MISSING + b"*\tx:refs/heads/b\t[new branch]\n"
FULL = MISSING + b"!\tx:refs/heads/b\t[remote rejected] (unpacker error)\n"
FULL_REF = MISSING + b"!\tx:refs/heads/b\t[remote rejected] (No space left on device)\n"


@pytest.mark.parametrize(
    ("result", "message", "hint"),
    [
        (
            GitResult(128, MISSING, "fatal: hung up"),
            "Cannot push to {remote}: fatal: hung up",
            "Check the URL, ",
        ),
        (GitResult(1, BOTH, "fatal: hung up"), "Push to {remote} failed: fatal: hung up", "Check the URL, "),
        (
            GitResult(1, FULL, "error: No space left on device"),
            "Cannot push to {remote}: error: No",
            "Free the",
        ),
        (
            GitResult(1, FULL_REF, "error: other"),
            "Cannot push to {remote}: No space left on device",
            "Free the",
        ),
    ],
)
def test_push_that_cannot_be_completed_is_unavailable(
    mirror: Mirror, result: GitResult, message: str, hint: str
) -> None:
    with pytest.raises(UnavailableError) as caught:
        pushed(mirror, result)

    assert str(caught.value).startswith(message.format(remote=mirror.remote))
    assert caught.value.hint.startswith(hint)


def test_limit_of_a_server_is_no_failure_of_a_push_that_succeeded(mirror: Mirror) -> None:
    assert [
        status for status, _ in pushed(mirror, GitResult(0, BOTH, "remote: No space left on device"))
    ] == [PushStatus.DONE] * 2


def test_push_of_nothing_starts_no_process_and_forbidden_update_pushes_nothing(mirror: Mirror) -> None:
    head = mirror.refs()["refs/heads/main"]

    assert push(mirror, []) == ()
    with pytest.raises(RefusedError):
        push(mirror, [RefUpdate(REF, None, head), RefUpdate(TAG, A, B)])
    mirror.fetch()
    assert REF not in mirror.refs()


def test_refs_are_pushed_in_order_up_to_a_failure_where_the_server_is_not_atomic(mirror: Mirror) -> None:
    run("config", "receive.advertiseAtomic", "false", cwd=Path(mirror.remote))
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
