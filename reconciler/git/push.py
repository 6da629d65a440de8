"""Pushes: one atomic compare-and-swap of refs per repository, the answer for every ref read."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from reconciler.errors import RefusedError, UnavailableError
from reconciler.git.command import Ran, is_local_trouble, last_line, run_git
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.report.redact import mask_credentials

TAGS_PER_PUSH = 3
"""GitHub creates no events for a push of more tags, so no workflow would see them (D4)."""
REFS_PER_PUSH = 1000
"""Arguments are bounded by the operating system."""


class RefUpdate(NamedTuple):
    """Move `ref` from `expected` (None: it must not exist) to `new` (None: delete it)."""

    ref: str
    expected: Oid | None
    new: Oid | None


class PushStatus(StrEnum):
    """What became of one ref."""

    DONE = "done"
    UP_TO_DATE = "upToDate"
    STALE = "stale"
    REJECTED = "rejected"
    SKIPPED = "skipped"


class PushResult(NamedTuple):
    """One ref after a push; `message` is the other side's own words."""

    update: RefUpdate
    status: PushStatus
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the ref is now where it should be."""
        return self.status in {PushStatus.DONE, PushStatus.UP_TO_DATE}


_ZERO_PLUS = re.compile(r"\+|[\s:?*\[\\^~]|\.\.|@\{|//|\.lock(/|$)|/$|\.$")
_OID = re.compile(r"[0-9a-f]{40}")
_STALE = ("stale info", "failed to update ref", "cannot lock ref", "incorrect old value", "fetch first",
          "non-fast-forward", "already exists", "reference already exists", "remote ref does not exist",
          "fail to compare")  # fmt: skip
_SKIPPED = ("atomic push failed", "atomic push failure", "atomic transaction failed", "transaction failed")
_LOCK_FAULT = re.compile(r"cannot lock ref '([^']+)': (.*)")
_MOVED = ("but expected", "reference already exists", "unable to resolve reference", "reference is missing")
_NOISE = ("error: hook declined to update ", "Resolving deltas", "Processing changes")
LONGEST_WORDS = 400
"""Characters of a hook's message that reports and conditions quote."""
_NO_ATOMIC = "does not support --atomic"


def push(mirror: Mirror, updates: Sequence[RefUpdate]) -> tuple[PushResult, ...]:
    """Apply every update or none, each only if its ref still is what we saw; one push.

    A race that another writer wins is `stale`, a refusal of the other side (a hook, a protected
    branch) `rejected`, what fell with another's failure `skipped`. No ref is believed without an
    answer of its own. Where the other side cannot push atomically the updates go one by one, in
    order, up to the first failure.

    Raises: UnavailableError if the repository cannot be reached or answers nothing about a ref;
    RefusedError for an update that must never be made: a tag that moves, a hostile ref name.
    """
    for update in updates:
        _check(update)
    if not updates:
        return ()
    ran = _push(mirror, updates, atomic=True)
    if _NO_ATOMIC in ran.err:
        return tuple(_one_by_one(mirror, updates))
    return _results(mirror, updates, ran)


def _check(update: RefUpdate) -> None:
    ref, expected, new = update
    if not ref.startswith("refs/") or _ZERO_PLUS.search(ref) or not ref.isprintable():
        raise RefusedError(f"{ref!r} is not a ref that may be pushed")
    if any(oid is not None and not _OID.fullmatch(oid) for oid in (expected, new)):
        raise RefusedError(f"An object id for {ref} is not 40 hexadecimal digits")
    if ref.startswith("refs/tags/") and expected and new and expected != new:
        raise RefusedError(f"{ref} exists and would move", hint="A published tag never moves.")
    if expected is None and new is None:
        raise RefusedError(f"{ref} would be deleted without being known")


def _push(mirror: Mirror, updates: Sequence[RefUpdate], *, atomic: bool) -> Ran:
    leases = [f"--force-with-lease={ref}:{expected or ''}" for ref, expected, _ in updates]
    specs = [f"{new or ''}:{ref}" for ref, _, new in updates]
    options = ["--porcelain", "--no-verify", "--no-follow-tags", *(["--atomic"] if atomic else [])]
    place = mirror.place
    return run_git(
        ["push", *options, *leases, "--", mirror.remote, *specs],
        directory=mirror.attach_store(),
        remote=mirror.remote,
        credential=place.credential,
    )


def _one_by_one(mirror: Mirror, updates: Sequence[RefUpdate]) -> Iterator[PushResult]:
    failed = False
    for update in updates:
        if failed:
            yield PushResult(update, PushStatus.SKIPPED, "an earlier ref was not updated")
            continue
        (result,) = _results(mirror, [update], _push(mirror, [update], atomic=False))
        failed = not result.ok
        yield result


def _results(mirror: Mirror, updates: Sequence[RefUpdate], ran: Ran) -> tuple[PushResult, ...]:
    answers = dict(_answers(ran.out.decode("utf-8", "replace")))
    if any(update.ref not in answers for update in updates):
        raise UnavailableError(f"Cannot push to {mirror.remote}: {last_line(ran.err)}")
    plain = [_result(update, *answers[update.ref]) for update in updates]
    _check_limits(mirror, plain, ran.err)
    results = _blamed(plain, ran.err)
    results = tuple(_with_remote_words(result, ran.err) for result in results)
    if ran.code and all(result.ok for result in results):
        raise UnavailableError(f"Push to {mirror.remote} failed: {last_line(ran.err)}")
    for update, status, _ in results:
        if status in {PushStatus.DONE, PushStatus.UP_TO_DATE}:
            mirror.record(update.ref, update.new)
    return results


def _check_limits(mirror: Mirror, results: Iterable[PushResult], said: str) -> None:
    """Tell a full disk or too few descriptors of the other side from a refusal: it passes.

    Raises: UnavailableError with the other side's words.
    """
    words = [result.message for result in results if not result.ok]
    if words and is_local_trouble(" ".join((said, *words))):
        word = next((word for word in words if is_local_trouble(word)), last_line(said))
        hint = "Free the disk or raise the limits of the machine that serves the repository, then run again."
        raise UnavailableError(f"Cannot push to {mirror.remote}: {word}", hint=hint)


def _blamed(results: list[PushResult], said: str) -> tuple[PushResult, ...]:
    """Tell who was at fault where the other side's transaction failed and its answer names nobody.

    A ref that moved between its announcement and its lock is found there only.
    """
    if not any(r.status is PushStatus.SKIPPED for r in results) or any(
        r.status in {PushStatus.STALE, PushStatus.REJECTED} for r in results
    ):
        return tuple(results)
    faults = {match.group(1): match.group(2) for match in _LOCK_FAULT.finditer(said)}
    if not any(result.update.ref in faults for result in results):
        return tuple(r._replace(status=PushStatus.STALE) if not r.ok else r for r in results)
    return tuple(_with_fault(result, faults.get(result.update.ref)) for result in results)


def _with_fault(result: PushResult, fault: str | None) -> PushResult:
    if fault is None or result.ok:
        return result
    moved = any(text in fault for text in _MOVED)
    return PushResult(result.update, PushStatus.STALE if moved else PushStatus.REJECTED, fault)


def _with_remote_words(result: PushResult, said: str) -> PushResult:
    """Add what the other side's hooks printed to a refusal: git itself only says that one declined."""
    if result.status is not PushStatus.REJECTED:
        return result
    lines = (line.removeprefix("remote:").strip() for line in said.splitlines() if line.startswith("remote:"))
    words = " ".join(line for line in dict.fromkeys(lines) if line and not line.startswith(_NOISE))
    if not words or words in result.message:
        return result
    return result._replace(message=f"{result.message}: {words[:LONGEST_WORDS]}")


def _answers(porcelain: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in porcelain.splitlines():
        flag, tab, rest = line.partition("\t")
        spec, second, summary = rest.partition("\t")
        if len(flag) == 1 and tab and second:
            yield spec.rpartition(":")[2], (flag, summary)


def _result(update: RefUpdate, flag: str, summary: str) -> PushResult:
    message = mask_credentials(summary.partition("(")[2].rpartition(")")[0] or summary)
    if flag == "=":
        return PushResult(update, PushStatus.UP_TO_DATE, message)
    if flag != "!":
        return PushResult(update, PushStatus.DONE)
    if any(text in summary for text in _SKIPPED):
        return PushResult(update, PushStatus.SKIPPED, message)
    if any(text in summary for text in _STALE):
        return PushResult(update, PushStatus.STALE, message)
    return PushResult(update, PushStatus.REJECTED, message)
