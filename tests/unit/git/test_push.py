import pytest

from reconciler.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.git.push import (
    PushResult,
    PushStatus,
    RefUpdate,
    _push_error,
    _result,
    _with_hook_output,
    _with_lock_faults,
    name_refs,
)


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
