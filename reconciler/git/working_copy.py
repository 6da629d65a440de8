"""Repositories of a user: working copies, their state, and new repositories with given commits."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pygit2
from msgspec import Struct

from reconciler.base.errors import UnavailableError
from reconciler.git.command import GitResult, run_checked, run_git
from reconciler.git.local import DEFAULT_READ_S, check_around, check_repository, find_odd_rules
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature


class WorkingCopy(NamedTuple):
    """Root, checked-out commit, branch and URL of `origin` of a working copy; branch and URL may be ""."""

    root: Path
    commit: Oid | None
    branch: str
    origin: str

    def uncommitted(self) -> tuple[str, ...]:
        """Return the sorted paths of changed and new files, staged or not.

        Raises: UnavailableError if the file system does not answer.
        """
        # libgit2 would wait for them, and what they hide is unknown.
        if odd := find_odd_rules(self.root, DEFAULT_READ_S):
            return odd
        try:
            status = pygit2.Repository(str(self.root)).status(untracked_files="all")
        except (pygit2.GitError, OSError):
            return ()
        return tuple(
            sorted(path for path, flags in status.items() if flags & ~pygit2.enums.FileStatus.IGNORED)
        )

    def ignored(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Return the files that `git add` leaves out, by rules of the repository and of its user.

        Raises: UnavailableError if the file system does not answer.
        """
        if find_odd_rules(self.root, DEFAULT_READ_S):
            return ()
        root = self.root.resolve()
        names = {path: path.resolve().relative_to(root).as_posix() for path in paths}
        with _configuration_of_user():
            repository = pygit2.Repository(str(self.root))
            ignored = {name for name in names.values() if repository.path_is_ignored(name)}
            return tuple(
                path for path, name in names.items() if name in ignored and name not in repository.index
            )

    def tags(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the tags that begin with `prefix`, sorted."""
        references = pygit2.Repository(str(self.root)).references.iterator()
        names = (
            ref.name.removeprefix("refs/tags/") for ref in references if ref.name.startswith("refs/tags/")
        )
        return tuple(sorted(name for name in names if name.startswith(prefix)))


@contextmanager
def _configuration_of_user() -> Iterator[None]:
    """Show libgit2 the configuration that `git add` reads; it is hidden from all that reads repositories."""
    home = Path(os.environ.get("HOME") or "/")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    folders = {pygit2.enums.ConfigLevel.GLOBAL: home, pygit2.enums.ConfigLevel.XDG: settings / "git"}
    before = {level: pygit2.settings.search_path[level] for level in folders}
    try:
        for level, path in folders.items():
            pygit2.settings.search_path[level] = str(path)
        yield
    finally:
        for level, text in before.items():
            pygit2.settings.search_path[level] = text


def find_person(path: Path, time: int) -> Signature | None:
    """Return the committer of a working copy, as of `git commit`; None where Git has no name."""
    configuration: pygit2.Config
    with _configuration_of_user():
        try:
            configuration = pygit2.Repository(pygit2.discover_repository(str(path)) or str(path)).config
        except (pygit2.GitError, OSError):
            configuration = pygit2.Config.get_global_config()
        name, email = (
            os.environ.get(f"GIT_COMMITTER_{key}") or _setting(configuration, f"user.{key.lower()}")
            for key in ("NAME", "EMAIL")
        )
    return Signature(name, email, time) if name and email else None


def _setting(configuration: pygit2.Config, name: str) -> str:
    return (configuration[name] or "") if name in configuration else ""


def find_working_copy(path: Path, seconds: float = DEFAULT_READ_S) -> WorkingCopy | None:
    """Return the working copy that contains `path`, None if there is none.

    Raises: UnavailableError if there is one that cannot be read: its file system does not answer within so
    many seconds, something in it is no file, or its format is not supported.
    """
    check_around(path.absolute(), seconds)
    pygit2.settings.owner_validation = False
    try:
        git_directory = pygit2.discover_repository(str(path))
        repository = pygit2.Repository(git_directory) if git_directory else None
    except (pygit2.GitError, OSError):
        return None
    if repository is None or repository.is_bare or repository.workdir is None:
        return None
    root = Path(repository.workdir)
    branch = "" if repository.head_is_detached else _branch(repository)
    commit = None if repository.head_is_unborn else Oid(str(repository.head.peel(pygit2.Commit).id))
    return WorkingCopy(root, commit, branch, _origin(repository, root))


def is_repository(path: Path, seconds: float = DEFAULT_READ_S) -> bool:
    """Tell whether a path is a repository itself, also without its suffix `.git`.

    Raises: UnavailableError if it is one that cannot be read, as for `find_working_copy`.
    """
    check_repository(path, seconds)
    for candidate in (path, path.with_name(f"{path.name}.git")):
        try:
            pygit2.Repository(str(candidate), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        except (pygit2.GitError, OSError):
            continue
        return True
    return False


def _branch(repository: pygit2.Repository) -> str:
    target = repository.lookup_reference("HEAD").target
    return str(target).removeprefix("refs/heads/")


def _origin(repository: pygit2.Repository, root: Path) -> str:
    """Return the URL of `origin`; a relative path is relative to the working copy, as in git."""
    try:
        url = repository.remotes["origin"].url or ""
    except (KeyError, ValueError):
        return ""
    local = url.startswith((".", "/")) and "://" not in url
    return str((root / url).resolve()) if local else url


AUTHOR = ("Demo", "demo@example.com")


class NewCommit(Struct, frozen=True):
    """A commit of a new repository: its whole content, its time in seconds and its tags."""

    message: str
    files: Mapping[str, bytes]
    time: int
    tags: tuple[str, ...] = ()


def create_bare(path: Path, commits: Sequence[NewCommit], *, branch: str = "main") -> None:
    """Create a bare repository with commits on `branch`, oldest first. Reproducible.

    Raises:
        UnavailableError: Git is missing or refused.
    """
    _check(run_git(["init", "--quiet", "--bare", f"--initial-branch={branch}", "--", str(path)]))
    run_checked(["fast-import", "--quiet"], directory=path, stdin=b"".join(_stream(commits, branch)))


def create_with_files(path: Path, commits: Sequence[NewCommit]) -> None:
    """Create a repository with commits on main, check out the last one, and configure an identity there.

    Raises:
        UnavailableError: Git is missing or refused.
    """
    create_bare(path / ".git", commits)
    settings = (("core.bare", "false"), ("user.name", AUTHOR[0]), ("user.email", AUTHOR[1]))
    for name, value in settings:
        run_checked(["config", name, value], directory=path / ".git")
    repository = pygit2.Repository(str(path))
    repository.reset(repository.head.target, pygit2.enums.ResetMode.HARD)


def clone(source: Path, target: Path) -> None:
    """Clone a repository, and configure an identity for commits in the clone.

    Raises:
        UnavailableError: Git is missing or refused.
    """
    identity = (f"--config=user.name={AUTHOR[0]}", f"--config=user.email={AUTHOR[1]}")
    _check(run_git(["clone", "--quiet", *identity, "--", str(source.resolve()), str(target)]))


def _check(ran: GitResult) -> None:
    if ran.code:
        raise UnavailableError(f"git failed: {ran.err.strip()}")


def _stream(commits: Sequence[NewCommit], branch: str) -> Iterator[bytes]:
    for mark, commit in enumerate(commits, start=1):
        committer = Signature(*AUTHOR, commit.time)
        yield f"commit refs/heads/{branch}\nmark :{mark}\ncommitter {committer}\n".encode()
        yield _data(commit.message.encode() + b"\n")
        # fast-import begins a commit with the files of its parent.
        yield b"deleteall\n"
        for path, content in sorted(commit.files.items()):
            yield f"M 100644 inline {path}\n".encode() + _data(content)
        for tag in commit.tags:
            yield f"reset refs/tags/{tag}\nfrom :{mark}\n\n".encode()


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"
