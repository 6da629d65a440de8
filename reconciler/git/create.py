"""New repositories from values: a bare one with given commits, and a working copy of one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import UnavailableError
from reconciler.git.command import Ran, run_checked, run_git
from reconciler.objects import Signature

AUTHOR = ("Demo", "demo@example.com")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a new repository: its whole content, its time in seconds, the tags on it."""

    message: str
    files: Mapping[str, bytes]
    time: int
    tags: tuple[str, ...] = ()


def create_bare(path: Path, commits: Sequence[Snapshot], *, branch: str = "main") -> None:
    """Make a bare repository whose `branch` holds `commits`, oldest first.

    Reproducible: the same values give the same commit ids.

    Raises:
        UnavailableError: Git is missing or refused.
    """
    _must(run_git(["init", "--quiet", "--bare", f"--initial-branch={branch}", "--", str(path)]))
    run_checked(["fast-import", "--quiet"], directory=path, stdin=b"".join(_stream(commits, branch)))


def clone(source: Path, target: Path) -> None:
    """Make a working copy of a repository, with an identity for commits made in it.

    Raises:
        UnavailableError: Git is missing or refused.
    """
    identity = (f"--config=user.name={AUTHOR[0]}", f"--config=user.email={AUTHOR[1]}")
    _must(run_git(["clone", "--quiet", *identity, "--", str(source.resolve()), str(target)]))


def _must(ran: Ran) -> None:
    if ran.code:
        raise UnavailableError(f"git failed: {ran.err.strip()}")


def _stream(commits: Sequence[Snapshot], branch: str) -> Iterator[bytes]:
    for mark, commit in enumerate(commits, start=1):
        committer = Signature(*AUTHOR, commit.time)
        yield f"commit refs/heads/{branch}\nmark :{mark}\ncommitter {committer}\n".encode()
        yield _data(commit.message.encode() + b"\n")
        yield b"deleteall\n"
        yield from _modifications(commit.files.items())
        for tag in commit.tags:
            yield f"reset refs/tags/{tag}\nfrom :{mark}\n\n".encode()


def _modifications(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    for path, content in sorted(files):
        yield f"M 100644 inline {path}\n".encode() + _data(content)


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"
