"""Push many refs into a repository on this machine, by git's own protocol.

`git push` compares each ref of its arguments with each ref of the repository: 10,000 drafts take it minutes.
Here the same server side, `git receive-pack`, gets the list of updates as it is.

Source: git Documentation/gitprotocol-pack.txt, pushing data to a server.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from reconciler.base.errors import UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.base.timing import SpanKind, timed
from reconciler.git.command import DEFAULT_TIMEOUT_S, LIMITS_HINT, GitResult, start_git
from reconciler.git.effects import effect
from reconciler.names.ids import Oid

_NOTHING = Oid("0" * 40)
_NEEDED = frozenset({"report-status", "atomic", "delete-refs", "side-band-64k"})
_WANTED = "report-status atomic delete-refs side-band-64k quiet ofs-delta object-format=sha1 agent=reconciler"
_FLUSH = b"0000"


class RefUpdate(NamedTuple):
    """Move `ref` from `expected` (None: it must not exist) to `new` (None: delete it)."""

    ref: str
    expected: Oid | None
    new: Oid | None


class Missing(NamedTuple):
    """Objects that a repository lacks: those that new commits in the git directory `store` need.

    It sees the objects of the repository, too; `parents` are commits on which the new ones are based.
    """

    store: Path
    parents: frozenset[Oid]


class Announcement(NamedTuple):
    """The refs of a repository, and what its server side is capable of."""

    refs: Mapping[str, Oid]
    capabilities: frozenset[str]


def push_local(objects: Path | Missing, repository: Path, updates: Sequence[RefUpdate]) -> GitResult | None:
    """Apply all updates or none; return the result of each ref in the form of `git push --porcelain`.

    Args:
        objects: The pack with all objects that the repository lacks, or what git needs to make one.
        repository: The repository that gets them.
        updates: The moves of refs, each made only if the ref has the expected value.

    Returns: None if the server side of this version of git cannot do that; nothing was done then.

    Raises: UnavailableError if git cannot be started, or if this machine has no disk or descriptors left.
    """
    try:
        work = timed(SpanKind.GIT, "git receive-pack", str(repository))
        with effect("git push"), work, tempfile.TemporaryFile() as errors:
            return _push(objects, repository, updates, errors)
    except OSError as error:
        message = f"Cannot push to {repository}: {error.strerror}"
        raise UnavailableError(message, hint=LIMITS_HINT) from error


def _push(
    objects: Path | Missing, repository: Path, updates: Sequence[RefUpdate], errors: IO[bytes]
) -> GitResult | None:
    server = start_git(
        ["receive-pack", str(repository)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
    )
    watch = threading.Timer(DEFAULT_TIMEOUT_S, os.killpg, (server.pid, signal.SIGKILL))
    watch.start()
    try:
        result = _converse(server, objects, updates)
        server.wait()
    except BaseException:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        raise
    finally:
        watch.cancel()
        for pipe in (server.stdin, server.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what could not be sent is flushed again
                    pipe.close()
    errors.seek(0)
    if result is not None:
        words = mask_credentials(errors.read().decode(errors="replace"))
        return GitResult(result.code, result.out, f"{result.err}{words}")
    return None


def _converse(
    server: subprocess.Popen[bytes], objects: Path | Missing, updates: Sequence[RefUpdate]
) -> GitResult | None:
    assert server.stdin is not None  # noqa: S101 - both are pipes
    assert server.stdout is not None  # noqa: S101
    announced = _read_announcement(server.stdout)
    if announced is None or not announced.capabilities >= _NEEDED:
        server.stdin.write(_FLUSH if announced else b"")
        server.stdin.close()
        return None
    early = {update.ref: _early_result(update, announced.refs.get(update.ref)) for update in updates}
    moves = [update for update in updates if early[update.ref] is None]
    if not moves or any(result for result in early.values() if result and result.startswith("!")):
        # A lease that is lost before anything is sent: nothing moves, as with `git push --atomic`.
        server.stdin.write(_FLUSH)
        server.stdin.close()
        skipped = "[rejected] (atomic push failed)"
        lines = [early[update.ref] or _line("!", update, skipped) for update in updates]
        return GitResult(int(bool(moves)), "".join(lines).encode(), "")
    try:
        _send_commands(server.stdin, moves)
        if any(move.new for move in moves):
            _send_objects(server.stdin, objects, moves, announced.refs)
        server.stdin.close()
    except BrokenPipeError:
        pass  # the server side ended early; its output has the reason
    report, output = _read_report(server.stdout)
    lines = [early[update.ref] or _reported(update, report) for update in updates]
    return GitResult(
        int(any(line.startswith("!") for line in lines)), "".join(lines).encode(), _remote_lines(output)
    )


def _early_result(update: RefUpdate, there: Oid | None) -> str | None:
    """Return the result that is known before anything is sent."""
    if there == update.new:
        return _line("=", update, "[up to date]")
    return None if there == update.expected else _line("!", update, "[rejected] (stale info)")


def _line(flag: str, update: RefUpdate, summary: str) -> str:
    return f"{flag}\t{update.new or ''}:{update.ref}\t{summary}\n"


def _reported(update: RefUpdate, report: Mapping[str, str]) -> str:
    """Return the result of a ref; "" if the server side reported none."""
    if update.ref not in report:
        return ""
    why = report[update.ref]
    return _line("!", update, f"[remote rejected] ({why})") if why else _line("*", update, "[moved]")


def _send_commands(pipe: IO[bytes], moves: Sequence[RefUpdate]) -> None:
    for number, move in enumerate(moves):
        text = f"{move.expected or _NOTHING} {move.new or _NOTHING} {move.ref}"
        _write(pipe, f"{text}\0 {_WANTED}" if not number else text)
    pipe.write(_FLUSH)
    pipe.flush()


def _send_objects(
    pipe: IO[bytes], objects: Path | Missing, moves: Sequence[RefUpdate], refs: Mapping[str, Oid]
) -> None:
    if isinstance(objects, Path):
        # A pack of ours has large trees as differences, which git would compute again, or write out whole.
        with objects.open("rb") as pack:
            shutil.copyfileobj(pack, pipe)
        return
    store, parents = objects
    new = {move.new for move in moves if move.new}
    there = frozenset(refs.values())
    # What the new commits are based on is enough to leave out what the repository has, and a short list.
    based = min(parents - new, there)
    revisions = "".join([*(f"{oid}\n" for oid in sorted(new)), *(f"^{oid}\n" for oid in sorted(based))])
    options = ["--revs", "--stdout", "--thin", "--delta-base-offset", "--window=0", "-q"]
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:
        names.write(revisions.encode())
        names.seek(0)
        packer = start_git(
            ["pack-objects", *options], directory=store, stdin=names, stdout=pipe, stderr=errors
        )
        if packer.wait(DEFAULT_TIMEOUT_S):
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip()
            raise UnavailableError(f"git pack-objects failed in {store}: {message}")


def _write(pipe: IO[bytes], text: str) -> None:
    data = text.encode()
    pipe.write(b"%04x%b" % (len(data) + 4, data))


def _packets(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield packets up to the next flush or the end."""
    while True:
        head = pipe.read(4)
        size = int(head, 16) if len(head) == len(_FLUSH) else 0
        if not size:
            return
        yield pipe.read(size - 4)


def _read_announcement(pipe: IO[bytes]) -> Announcement | None:
    """Return the refs that the server side announces, None if it announces nothing."""
    refs: dict[str, Oid] = {}
    capabilities: frozenset[str] | None = None
    for packet in _packets(pipe):
        text, _, listed = packet.decode(errors="replace").rstrip("\n").partition("\0")
        if capabilities is None:
            capabilities = frozenset(listed.split())
        oid, _, ref = text.partition(" ")
        if ref.startswith("refs/"):
            refs[ref] = Oid(oid)
    return None if capabilities is None else Announcement(refs, capabilities)


def _read_report(pipe: IO[bytes]) -> tuple[dict[str, str], str]:
    """Return for each ref why it did not move ("" if it did), and the output of hooks and of git."""
    status, output = bytearray(), bytearray()
    for packet in _packets(pipe):
        (status if packet[:1] == b"\1" else output).extend(packet[1:])
    report: dict[str, str] = {}
    unpacked = "ok"
    for line in _lines(bytes(status)):
        word, _, rest = line.partition(" ")
        ref, _, why = rest.partition(" ")
        if word == "unpack":
            unpacked = rest
        elif word in ("ok", "ng"):
            report[ref] = why or "no reason" if word == "ng" else ""
    if unpacked != "ok":
        output.extend(f"\nerror: unpack failed: {unpacked}\n".encode())
    return report, output.decode(errors="replace")


def _lines(data: bytes) -> Iterator[str]:
    place = 0
    while place + 4 <= len(data) and (size := int(data[place : place + 4], 16)):
        yield data[place + 4 : place + size].decode(errors="replace").rstrip("\n")
        place += size


def _remote_lines(output: str) -> str:
    return mask_credentials("".join(f"remote: {line}\n" for line in output.splitlines() if line.strip()))
