"""Push refs: one atomic compare-and-swap per repository, with the result of each ref."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from reconciler.base.defects import is_local_failure
from reconciler.base.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import mask_credentials, mask_tokens, refuse_credentials
from reconciler.base.text import some
from reconciler.git.cache import drop_pack
from reconciler.git.command import GitResult, last_line, run_git
from reconciler.git.database import NO_OBJECT, objects_directory
from reconciler.git.local import is_sha256, sha256_error
from reconciler.git.pack import pack_bytes
from reconciler.git.repository import Mirror
from reconciler.names.ids import Oid

TAGS_PER_PUSH = 3
"""GitHub creates no events for a push of more tags, so no workflow would see them (D4)."""
REFS_PER_PUSH = 1000
"""The operating system limits the length of arguments, and git compares each with each ref of the server."""


class RefUpdate(NamedTuple):
    """Move `ref` from `expected` (None: it must not exist) to `new` (None: delete it)."""

    ref: str
    expected: Oid | None
    new: Oid | None


class PushStatus(StrEnum):
    """The result of one ref."""

    DONE = "done"
    UP_TO_DATE = "upToDate"
    STALE = "stale"
    REJECTED = "rejected"
    SKIPPED = "skipped"


class PushResult(NamedTuple):
    """The result of one ref of a push; `message` is the server's."""

    update: RefUpdate
    status: PushStatus
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the ref has the new value."""
        return self.status in {PushStatus.DONE, PushStatus.UP_TO_DATE}


_FORBIDDEN = regex(
    r"returned error: 403|archived|read-only|not allowed to (push|write)|permission .*denied to",
    re.IGNORECASE,
)
# `git check-ref-format` refuses all of these but `+`, which would force the update in a refspec.
_UNSAFE_REF = regex(r"\+|[\s:?*\[\\^~]|\.\.|@\{|//|\.lock(/|$)|/$|\.$")
_OID = regex(r"[0-9a-f]{40}")
_NO_OID = "0" * 40
# One race, as git's client and servers of several versions report it; there is no status code for it.
_STALE = ("stale info", "failed to update ref", "cannot lock ref", "incorrect old value", "fetch first",
          "non-fast-forward", "already exists", "reference already exists", "remote ref does not exist",
          "fail to compare")  # fmt: skip
# Refs that failed only because another ref of the same atomic push failed.
_SKIPPED = ("atomic push failed", "atomic push failure", "atomic transaction failed", "transaction failed")
_LOCK_FAULT = regex(r"cannot lock ref '([^']+)': (.*)")
_REASON = regex(r"^(?:remote: )?(?:error|fatal): (.+?)\s*$", re.MULTILINE)
_MOVED = ("but expected", "reference already exists", "unable to resolve reference", "reference is missing")
_NOISE = ("error: hook declined to update ", "Resolving deltas", "Processing changes")
LONGEST_HOOK_OUTPUT = 400
"""Characters of a hook's output that reports and conditions quote."""
_NAMED_REFS = 3
_TOO_LARGE = "The requested URL returned error: 413"
# The capability `atomic` is optional: a server without it refuses the push before it takes anything.
_NO_ATOMIC = "does not support --atomic"


def fits_push(mirror: Mirror, tags: int, refs: int) -> bool:
    """Tell whether one push takes so many new tags and refs: of a directory it takes any number."""
    return mirror.is_local or (tags <= TAGS_PER_PUSH and refs <= REFS_PER_PUSH)


def push(mirror: Mirror, updates: Sequence[RefUpdate]) -> tuple[PushResult, ...]:
    """Apply all updates or none in one push, each only if its ref has the expected value.

    A ref that another writer moved is `stale`; one that the server refuses (a hook, a protected branch)
    is `rejected`; one that failed with another's failure is `skipped`. If the server does not support
    atomic pushes, the updates are pushed one by one, in order, up to the first failure.

    Raises: UnavailableError if the repository cannot be reached, or returns no result for a ref;
    RefusedError for a forbidden update: a moved tag, an unsafe ref name.
    """
    for update in updates:
        ref, expected, new = update
        if not ref.startswith("refs/") or _UNSAFE_REF.search(ref) or not ref.isprintable():
            raise RefusedError(f"{ref!r} is not a ref that may be pushed")
        refuse_credentials(ref, f"Ref {ref}")
        if any(oid is not None and not _OID.fullmatch(oid) for oid in (expected, new)):
            raise RefusedError(f"An object id for {ref} is not 40 hexadecimal digits")
        # `git fetch` does not update a tag that a clone has: a moved one would be two revisions of one name.
        if ref.startswith("refs/tags/") and expected and new and expected != new:
            raise RefusedError(f"{ref} exists and would move", hint="A published tag never moves.")
        if expected is None and new is None:
            raise RefusedError(f"{ref} would be deleted without its expected value")
    if not updates:
        return ()
    result = _push(mirror, updates, atomic=True)
    if _NO_ATOMIC in result.err:
        return tuple(_one_by_one(mirror, updates))
    return _results(mirror, updates, result)


def check_push(mirror: Mirror, ref: str, oid: Oid) -> str:
    """Return why this process may not push to a repository, "" if it may; nothing is pushed.

    A server is asked as for a push of a ref that stays as it is. Of a directory the permissions count.
    """
    if mirror.is_local:
        repository = mirror.open()
        places = (Path(repository.path), objects_directory(repository))
        return next((f"{p} is not writable" for p in places if not os.access(p, os.W_OK)), "")
    result = run_git(
        ["push", "--dry-run", "--porcelain", "--no-verify", "--", mirror.remote, f"{oid}:{ref}"],
        directory=mirror.attach_store(),
        remote=mirror.remote,
        credential=mirror.location.credential,
    )
    return last_line(result.err) if result.code else ""


def name_refs(results: Sequence[PushResult]) -> str:
    """Return the refs of results as text: the first three, and the number of the others."""
    return some([result.update.ref for result in results], _NAMED_REFS)


def _push(mirror: Mirror, updates: Sequence[RefUpdate], *, atomic: bool) -> GitResult:
    """Push by git's client, or to a directory by its server; return what `git push --porcelain` prints."""
    if mirror.is_local:
        return _push_here(mirror, updates)
    # A lease makes git compare the expected value on the server, in the same transaction as the update.
    leases = [f"--force-with-lease={ref}:{expected or ''}" for ref, expected, _ in updates]
    # A lease with an empty value holds only if the ref does not exist; a refspec with an empty source
    # deletes.
    specs = [f"{new or ''}:{ref}" for ref, _, new in updates]
    # Only --porcelain has a stable form. push.followTags, wherever it is set, would push tags along.
    options = ["--porcelain", "--no-verify", "--no-follow-tags", *(["--atomic"] if atomic else [])]
    location = mirror.location
    return run_git(
        ["push", *options, *leases, "--", mirror.remote, *specs],
        directory=mirror.attach_store(),
        remote=mirror.remote,
        credential=location.credential,
    )


def _push_here(mirror: Mirror, updates: Sequence[RefUpdate]) -> GitResult:
    """Push to a directory in one transaction, in time that grows with the updates alone.

    The other side is that of `git push`, with the rules and hooks of the repository. It compares the expected
    values again, under the locks of the refs.
    """
    refs = mirror.open().references
    # What this run made for the push: whatever else a new tip has is in the repository.
    written, mirror.unpushed = mirror.unpushed, None
    try:
        tips = {u.ref: Oid(str(tip.resolve().target)) if (tip := refs.get(u.ref)) else None for u in updates}
    except NO_OBJECT as error:
        raise UnavailableError(f"Cannot read the refs of {mirror.remote}: {error}") from error
    waiting = [u for u in updates if u.new is None or tips[u.ref] != u.new]
    lines = {u.ref: f"=\t:{u.ref}\t[up to date]" for u in updates if u.new and tips[u.ref] == u.new}
    if stale := {u.ref for u in waiting if tips[u.ref] != u.expected}:
        why = {u.ref: "stale info" if u.ref in stale else "atomic push failed" for u in waiting}
        lines |= {ref: f"!\t:{ref}\t[rejected] ({reason})" for ref, reason in why.items()}
    elif waiting:
        commands = [f"{u.expected or _NO_OID} {u.new or _NO_OID} {u.ref}" for u in waiting]
        commands[0] += "\0report-status atomic delete-refs side-band-64k quiet"
        # A push that only deletes has no pack.
        has_pack = any(u.new for u in waiting)
        pack = (written[1] if written else pack_bytes({})) if has_pack else b""
        result = _receive(mirror, b"".join((*map(_packet, commands), b"0000", pack)), lines.values())
        if written and has_pack and not result.code:
            drop_pack(written[0])  # each later run would check it
        return result
    return GitResult(int(bool(stale)), "\n".join(lines.values()).encode(), "")


def _receive(mirror: Mirror, request: bytes, others: Iterable[str]) -> GitResult:
    """Hand a request to git's server for pushes, and return its answer as `git push` prints it."""
    # Whatever the repository advertises: the updates are all done or none.
    command = ["-c", "receive.advertiseAtomic=true", "receive-pack", str(mirror.location.remote.path)]
    result = run_git(command, stdin=request, remote=mirror.remote)
    packets = list(_packets(result.out))
    bands = packets[packets.index(b"") :] if b"" in packets else []
    report = b"".join(packet[1:] for packet in bands if packet[:1] == b"\1")
    messages = b"".join(packet[1:] for packet in bands if packet[:1] == b"\2").decode(errors="replace")
    err = "\n".join((*(f"remote: {line}" for line in messages.splitlines()), result.err))
    answers = [packet.decode(errors="replace").strip().split(" ", 2) for packet in _packets(report)]
    failed = [f"!\t:{a[1]}\t[remote rejected] ({''.join(a[2:])})" for a in answers if a[0] == "ng"]
    done = [f"*\t:{a[1]}\t[done]" for a in answers if a[0] == "ok"]
    code = result.code or int(bool(failed))
    return GitResult(code, "\n".join((*others, *failed, *done)).encode(), mask_tokens(err))


def _packet(line: str) -> bytes:
    return b"%04x%b" % (len(line.encode()) + 4, line.encode())


def _packets(data: bytes) -> Iterator[bytes]:
    """Yield the packets of git's protocol: each begins with its length in four digits; a flush is empty."""
    start = 0
    while start + 4 <= len(data):
        size = int(data[start : start + 4], 16)
        yield data[start + 4 : start + size]
        start += max(size, 4)


def _one_by_one(mirror: Mirror, updates: Sequence[RefUpdate]) -> Iterator[PushResult]:
    failed = False
    for update in updates:
        if failed:
            yield PushResult(update, PushStatus.SKIPPED, "an earlier ref was not updated")
            continue
        (result,) = _results(mirror, [update], _push(mirror, [update], atomic=False))
        failed = not result.ok
        yield result


def _results(mirror: Mirror, updates: Sequence[RefUpdate], pushed: GitResult) -> tuple[PushResult, ...]:
    lines = dict(_parse_porcelain(pushed.out.decode(errors="replace")))
    if _TOO_LARGE in pushed.err:  # of the server in front of git: fewer packages may be taken
        return tuple(PushResult(update, PushStatus.REJECTED, _TOO_LARGE) for update in updates)
    # A ref without a line: the connection ended before the server reported on it.
    if any(update.ref not in lines for update in updates):
        raise _push_error(mirror.remote, pushed.err)
    listed = [_result(update, *lines[update.ref]) for update in updates]
    # A full disk or another limit of the server is temporary, unlike a refusal.
    messages = [result.message for result in listed if not result.ok]
    if messages and is_local_failure(" ".join((pushed.err, *messages))):
        message = next((text for text in messages if is_local_failure(text)), last_line(pushed.err))
        hint = "Free the disk or raise the limits of the machine that serves the repository, then run again."
        raise UnavailableError(f"Cannot push to {mirror.remote}: {message}", hint=hint)
    results = tuple(_with_hook_output(result, pushed.err) for result in _with_lock_faults(listed, pushed.err))
    if pushed.code and all(result.ok for result in results):
        raise UnavailableError(f"Push to {mirror.remote} failed: {last_line(pushed.err)}")
    for result in results:
        if result.ok:
            mirror.record(result.update.ref, result.update.new)
    return results


def _push_error(remote: str, stderr: str) -> ReconcilerError:
    """Return why a server took no ref at all: it forbids pushes, or it cannot be reached."""
    if _FORBIDDEN.search(stderr):
        lines = [line.removeprefix("remote:").strip() for line in stderr.splitlines()]
        reason = next((line for line in lines if _FORBIDDEN.search(line)), last_line(stderr))
        hint = "Check that the credential may write to the repository, and that it is not archived."
        return RefusedError(f"{remote} takes no push: {reason}", hint=hint)
    if is_sha256(stderr):  # a server tells it of an empty repository only when something is pushed
        return sha256_error(remote)
    return UnavailableError(f"Cannot push to {remote}: {last_line(stderr)}")


def _with_lock_faults(results: list[PushResult], stderr: str) -> tuple[PushResult, ...]:
    """Find the failed ref of a transaction in the messages if every ref is listed as skipped.

    Git reports a ref that moved between its announcement and its lock in this way only.
    """
    if not any(r.status is PushStatus.SKIPPED for r in results) or any(
        r.status in {PushStatus.STALE, PushStatus.REJECTED} for r in results
    ):
        return tuple(results)
    faults = {match.group(1): match.group(2).rstrip() for match in _LOCK_FAULT.finditer(stderr)}
    if not any(result.update.ref in faults for result in results):
        return tuple(result if result.ok else _with_reason(result, stderr) for result in results)
    return tuple(_with_fault(result, faults.get(result.update.ref)) for result in results)


def _with_reason(result: PushResult, stderr: str) -> PushResult:
    """Add the messages of git about a transaction that failed for no ref of the push: a lock of HEAD."""
    reasons = "; ".join(dict.fromkeys(_REASON.findall(stderr)))
    message = f"{result.message}: {reasons}" if reasons else result.message
    return PushResult(result.update, PushStatus.STALE, message)


def _with_fault(result: PushResult, fault: str | None) -> PushResult:
    if fault is None or result.ok:
        return result
    moved = any(text in fault for text in _MOVED)
    return PushResult(result.update, PushStatus.STALE if moved else PushStatus.REJECTED, fault)


def _with_hook_output(result: PushResult, stderr: str) -> PushResult:
    """Add the output of the server's hooks to a rejection: git's own message has no reason."""
    if result.status is not PushStatus.REJECTED:
        return result
    lines = [
        line.removeprefix("remote:").strip() for line in stderr.splitlines() if line.startswith("remote:")
    ]
    output = " ".join(line for line in dict.fromkeys(lines) if line and not line.startswith(_NOISE))
    output = mask_credentials(output)  # a part of one that is cut would not be found
    if not output or output in result.message:
        return result
    return result._replace(message=f"{result.message}: {output[:LONGEST_HOOK_OUTPUT]}")


def _parse_porcelain(porcelain: str) -> Iterator[tuple[str, tuple[str, str]]]:
    # A line is `flag TAB source:ref TAB summary (reason)`; those around them are for people.
    for line in porcelain.splitlines():
        flag, tab, rest = line.partition("\t")
        spec, second, summary = rest.partition("\t")
        if len(flag) == 1 and tab and second:
            yield spec.rpartition(":")[2], (flag, summary)


def _result(update: RefUpdate, flag: str, summary: str) -> PushResult:
    message = mask_tokens(summary.partition("(")[2].rpartition(")")[0] or summary)
    if flag == "=":
        return PushResult(update, PushStatus.UP_TO_DATE, message)
    # Blank, `+`, `-` and `*` are a fast-forward, a forced update, a deletion and a new ref.
    if flag != "!":
        return PushResult(update, PushStatus.DONE)
    if any(text in summary for text in _SKIPPED):
        return PushResult(update, PushStatus.SKIPPED, message)
    if any(text in summary for text in _STALE):
        return PushResult(update, PushStatus.STALE, message)
    return PushResult(update, PushStatus.REJECTED, message)
