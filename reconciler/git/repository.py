"""Repositories of a run: a snapshot of the refs of each, and all objects that they reach."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pygit2

from reconciler.base import effects
from reconciler.base.defects import DefectError, guard, is_local_failure
from reconciler.base.errors import UnavailableError
from reconciler.base.progress import open_task
from reconciler.git.cache import (
    CACHE_HINT,
    MANY_PACKS,
    MirrorLocation,
    attach,
    count_packs,
    create_empty,
    create_mirror,
    discard_mirror,
    drop_old_packs,
    find_damage,
    locked,
    record_packs,
    recover_locks,
    replace_mirror,
    restore_settings,
    write_alternates,
)
from reconciler.git.command import GitTimeoutError, is_refused, is_too_slow, last_line, run_git, slow_options
from reconciler.git.database import NO_OBJECT, Database, open_repository
from reconciler.git.local import DEFAULT_READ_S, check_repository, is_sha256, sha256_error
from reconciler.git.signing import UNSIGNED, CommitSigning
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import Credential, Remote, parse_remote
from reconciler.names.ids import Oid

# With `+` a branch that was forced is fetched, too.
_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+refs/reconciler/*:refs/reconciler/*")
DEFAULT_AT_ONCE: Final = 16
"""`limits.repositoriesAtOnce`, before the configuration is read."""
_NAMESPACES = ("refs/heads/", "refs/tags/", "refs/reconciler/")
_SMALL = "--filter=blob:limit=4k"
"""Files that come with refs and history: Kptfiles, manifests and records, which are read anyway."""


class Mirror(Database):
    """One repository: its refs at the last `fetch`, and its objects. Not thread-safe.

    A repository on this machine is read in place, without a process and a copy. A remote one is mirrored
    in the cache; its large blobs are fetched when needed, in batches. New objects are written to the mirror,
    never to the repository itself, which only a push changes; `unpushed` is the pack that was written last.
    """

    def __init__(self, location: MirrorLocation, signing: CommitSigning = UNSIGNED) -> None:
        super().__init__()
        self.location = location
        self.signing = signing
        self.url = location.remote.url
        self.remote = location.remote.address
        self._snapshot: dict[str, Oid] | None = None
        self._tag_objects: dict[str, Oid] = {}
        self._timed_out: UnavailableError | None = None
        self._is_checked = False
        self.read_s = DEFAULT_READ_S
        self.unpushed: tuple[Path, bytes] | None = None

    @property
    def is_local(self) -> bool:
        """Whether the repository is on this machine, and read in place."""
        return self.location.remote.path is not None

    def fetch(self) -> None:
        """Fetch refs and history, and take a snapshot of the refs.

        Raises: UnavailableError if the repository cannot be read.
        """
        self._snapshot = None
        self._is_checked = False
        if not self.is_local:
            self._fetch_remote()
        for name in ("_repository", "_alone"):  # opened again, to see new packs and refs
            self.__dict__.pop(name, None)
        try:
            self._read_refs()
        except pygit2.GitError as error:
            raise UnavailableError(f"Cannot read the refs of {self.remote}: {error}") from error

    def refs(self) -> Mapping[str, Oid]:
        """Return the snapshot: commits by the full names of branches, tags (peeled) and our own refs.

        Raises: UnavailableError if there is no snapshot yet and the repository cannot be read.
        """
        if self._snapshot is None:
            self.fetch()
        return self._snapshot or {}

    def tag_object(self, ref: str) -> Oid | None:
        """Return the tag object of an annotated tag in the snapshot, None for any other ref."""
        return self._tag_objects.get(ref) if ref in self.refs() else None

    def tag_commits(self) -> dict[str, Oid]:
        """Return the commits of the annotated tags in the snapshot by the ids of their tag objects."""
        refs = self.refs()
        return {oid: refs[name] for name, oid in self._tag_objects.items() if name in refs}

    def record(self, ref: str, new: Oid | None) -> None:
        """Update the snapshot after a push moved a ref (None: deleted it)."""
        if self._snapshot is None:
            return
        self._snapshot.pop(ref, None)
        if new is not None:
            self._snapshot[ref] = new

    @cached_property
    def head_branch(self) -> str:
        """The default branch of the repository, "" if it has none.

        Raises: UnavailableError if the repository cannot be read.
        """
        if self.is_local:
            target = self._repository.lookup_reference("HEAD").target
            return target.removeprefix("refs/heads/") if isinstance(target, str) else ""
        # The first line is `ref: refs/heads/NAME TAB HEAD`; a detached HEAD has none like it.
        out = self._run(["ls-remote", "--symref", "--", self.remote, "HEAD"]).decode(errors="replace")
        first = out.partition("\t")[0]
        return first.removeprefix("ref: refs/heads/") if first.startswith("ref: refs/heads/") else ""

    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the missing objects of a remote repository in one batch.

        Raises: UnavailableError if they cannot be fetched.
        """
        missing = [] if self.is_local else sorted({oid for oid in oids if not self.has(oid)})
        if not missing:
            return
        # Blobs that are asked for by their id are sent in spite of the filter.
        options = ["--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin"]
        lines = "".join(f"{oid}\n" for oid in missing).encode()
        # Without negotiation: git would walk the whole history to offer commits in common.
        command = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", *options, "origin"]
        self._run(command, stdin=lines)

    def bring(self, commit: Oid) -> bool:
        """Fetch a commit with its history, even if no branch reaches it; tell whether it exists."""
        if self.has(commit) or self.is_local:
            return self.has(commit)
        # A server may refuse an id that no ref has (uploadpack.allowReachableSHA1InWant).
        options = ["--no-tags", "--no-write-fetch-head", _SMALL]
        try:
            with locked(self.location.directory):
                self._run(["fetch", *options, "--", "origin", commit])
        except UnavailableError:
            return False
        return self.has(commit)

    def open(self) -> pygit2.Repository:
        """Return the repository with the objects: the one on this machine, or the mirror."""
        return self._repository

    def is_published(self, oid: Oid) -> bool:
        """Tell whether an object needs no push, unlike one that an earlier run made and could not push."""
        return self._exists(self._alone if self.is_local else self.open(), oid)

    @cached_property
    def _alone(self) -> pygit2.Repository:
        """The repository without the objects in the cache."""
        return self._opened()

    def _opened(self) -> pygit2.Repository:
        directory = self.location.remote.path or self.location.directory
        if not self._is_checked:
            check_repository(directory, self.read_s)
            self._is_checked = True
        try:
            return open_repository(directory)
        except pygit2.GitError as error:
            raise UnavailableError(
                f"{directory} is not a Git repository that can be read",
                hint="Correct the path in the manifest, or make the repository there.",
            ) from error

    @cached_property
    def _repository(self) -> pygit2.Repository:
        repository = self._opened()
        if self.is_local and self.location.directory.exists():
            attach(self.location, repository)
        return repository

    def attach_store(self) -> Path:
        """Return the mirror's git directory, ready for new objects; create it on demand.

        Raises: UnavailableError if it cannot be created.
        """
        directory = self.location.directory
        if not directory.is_dir():
            create_mirror(self.location)
        if self.is_local:
            drop_old_packs(directory)
            write_alternates(self.location, self._repository)
            self._repository.odb.add_disk_alternate(str(directory / "objects"))
        return directory

    def _fetch_remote(self) -> None:
        """Fetch into the mirror; replace a damaged one once."""
        directory = self.location.directory
        with locked(directory):
            if directory.exists() and find_damage(directory):
                discard_mirror(directory)
            is_new = not directory.exists()
            create_mirror(self.location)
            restore_settings(self.location)
            recover_locks(directory)
            try:
                self._fetch_refs(directory)
            except UnavailableError:
                # The mirror may be damaged in a way that only git finds.
                if is_new or not self._lists_refs():
                    raise
                # The old mirror stays if fetching into a new one fails too: then the remote is the cause.
                fresh = create_empty(self.location)
                try:
                    self._fetch_refs(fresh)
                    replace_mirror(self.location, fresh)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
            if count_packs(directory) > MANY_PACKS:
                # Each fetch adds a pack, and git's own repacking is switched off.
                run_git(["gc", "--quiet"], directory=directory)
            record_packs(directory)

    def _fetch_refs(self, directory: Path) -> None:
        # A branch that is gone would stay without --prune, and `a` would block a new `a/b`. Tags have a
        # refspec.
        options = ["--prune", "--no-tags", "--force", _SMALL, "--no-write-fetch-head"]
        self._run(["fetch", *options, "origin", *_REFSPECS], directory=directory)

    def _lists_refs(self) -> bool:
        """Tell whether the remote lists its refs: then a failed fetch may be due to the mirror."""
        if self._timed_out is not None:
            return False
        try:
            self._run(["ls-remote", "--quiet", "--", self.remote, "HEAD"])
        except UnavailableError:
            return False
        return True

    def _run(self, arguments: list[str], stdin: bytes = b"", directory: Path | None = None) -> bytes:
        """Run a git command on the remote and return its output.

        Raises: UnavailableError if it fails, or does not end in time; then every later command fails at
        once.
        """
        if self._timed_out is not None:
            raise self._timed_out
        where = directory or (self.location.directory if self.location.directory.is_dir() else None)
        try:
            result = run_git(
                [*slow_options(self.read_s), *arguments],
                directory=where,
                stdin=stdin,
                remote=self.remote,
                credential=self.location.credential,
                timeout_s=self.read_s,
            )
        except GitTimeoutError as error:
            self._timed_out = self._timeout_error(f"no answer within {self.read_s:.0f} s")
            raise self._timed_out from error
        if result.code and is_local_failure(result.err):
            raise UnavailableError(f"Cannot write to {where}: {last_line(result.err)}", hint=CACHE_HINT)
        if result.code and is_too_slow(result.err):
            self._timed_out = self._timeout_error(last_line(result.err))
            raise self._timed_out
        if result.code and is_sha256(result.err):
            raise sha256_error(self.remote)
        if result.code:
            failed = UnavailableError(f"Cannot read {self.remote}: {last_line(result.err)}")
            if is_refused(result.err):
                parts = urlsplit(self.remote)
                failed.cause = f"{parts.scheme}://{parts.netloc} refuses the credential"
                failed.hint = (
                    "Check its entry in spec.credentials: the token may have ended, or may not read this."
                )
            raise failed
        return result.out

    def _timeout_error(self, reason: str) -> UnavailableError:
        hint = "Check the server and the network, or raise limits.readSeconds."
        return UnavailableError(f"Cannot read {self.remote}: {reason}", hint=hint)

    def _read_refs(self) -> None:
        snapshot: dict[str, Oid] = {}
        self._tag_objects = {}
        for reference in self._repository.references.iterator():
            name, target = reference.name, reference.target
            if not name.startswith(_NAMESPACES) or not isinstance(target, pygit2.Oid) or not _is_text(name):
                continue
            oid = Oid(str(target))
            peeled = self._peel(oid) if name.startswith("refs/tags/") else oid
            if peeled is not None:
                snapshot[name] = peeled
            if peeled not in (None, oid):
                self._tag_objects[name] = oid
        self._snapshot = snapshot

    def _peel(self, oid: Oid) -> Oid | None:
        try:
            # An annotated tag is an object of its own, and may name a tree, a blob or another tag.
            return Oid(str(self._repository[oid].peel(pygit2.Commit).id))
        except (*NO_OBJECT, pygit2.InvalidSpecError):
            return None


class Mirrors:
    """The repositories of a run, each opened once for all spellings of its address.

    `credentials` returns the credential of an address, None for none; `base` is the directory of relative
    paths: that of the control repository.
    """

    def __init__(
        self,
        cache_dir: Path,
        credentials: Callable[[str], Credential | None] = lambda _: None,
        base: Path | None = None,
    ) -> None:
        self.cache_dir = cache_dir.absolute()
        self._base = base
        self._credentials = credentials
        self._signing = UNSIGNED
        self.read_s = DEFAULT_READ_S
        self._at_once = DEFAULT_AT_ONCE
        self._mirrors: dict[str, Mirror] = {}
        self._opened: dict[str, Mirror] = {}
        self._fetched: dict[str, UnavailableError | DefectError | None] | None = None

    def hold(self) -> None:
        """From now on fetch each repository once, so that reading again gives the same snapshot."""
        self._fetched = {}

    def authenticate(self, credentials: Callable[[str], Credential | None]) -> None:
        """Use these credentials from now on; the configuration that names them is read first."""
        self._credentials = credentials

    def limit_reads(self, seconds: float, at_once: int = DEFAULT_AT_ONCE) -> None:
        """Limit the time of each command on a remote, also in repositories that are open already.

        So many repositories are fetched side by side.
        """
        self.read_s, self._at_once = seconds, at_once
        for mirror in self._mirrors.values():
            mirror.read_s = seconds

    def sign_commits(self, signing: CommitSigning) -> None:
        """Sign new commits from now on, also in repositories that are open already."""
        self._signing = signing
        for mirror in self._mirrors.values():
            mirror.signing = signing

    def open(self, remote: str) -> Mirror:
        """Return the mirror of a repository without reading it.

        Raises: UnavailableError if the address is unusable, or if two local repositories differ
        only in what does not distinguish repositories (`x` and `x.git`).
        """
        mirror = self._opened.get(remote)
        if mirror is None:
            mirror = self._opened[remote] = self._open(remote)
        return mirror

    def _open(self, remote: str) -> Mirror:
        parsed = self.parse(remote)
        mirror = self._mirrors.get(parsed.url)
        if mirror is None:
            location = MirrorLocation.of(self.cache_dir, parsed, self._credentials(parsed.address))
            mirror = self._mirrors[parsed.url] = Mirror(location, self._signing)
            mirror.read_s = self.read_s
        elif parsed.path and (other := mirror.location.remote.path) and not _same(parsed.path, other):
            hint = "Rename one of the two directories."
            message = f"{parsed.path} and {mirror.remote} are two repositories with one identity"
            raise UnavailableError(message, hint=hint)
        return mirror

    def parse(self, remote: str) -> Remote:
        """Return a parsed address without opening the repository.

        Raises: UnavailableError if the address is unusable.
        """
        return parse_remote(remote, self._base)

    def of(self, url: str) -> Mirror:
        """Return the opened mirror of a normalised URL.

        Raises: UnavailableError if it was not opened.
        """
        if url not in self._mirrors:
            raise UnavailableError(f"Repository {url} is not registered", hint="Register it.")
        return self._mirrors[url]

    def fetch_all(self, remotes: Iterable[str]) -> Mapping[str, Mirror | UnavailableError | DefectError]:
        """Fetch repositories concurrently; return the mirror or the error of each.

        Returns: by normalised URL, in the order of `remotes`; an unusable address is its own key.
        """
        results: dict[str, Mirror | UnavailableError | DefectError] = {}
        for remote in remotes:
            try:
                with guard(f"repository {remote}"):
                    mirror = self.open(remote)
                results.setdefault(mirror.url, mirror)
            except (UnavailableError, DefectError) as error:
                results[remote] = error
        mirrors = [mirror for mirror in results.values() if isinstance(mirror, Mirror)]
        fetched = self._fetched or {}
        fresh = [mirror for mirror in mirrors if mirror.url not in fetched]
        with (
            open_task("fetching repositories", len(fresh)) as task,
            ThreadPoolExecutor(max_workers=self._at_once) as pool,
        ):

            def fetch(mirror: Mirror) -> UnavailableError | DefectError | None:
                error = _fetch_error(mirror)
                task.advance()
                return error

            errors = fetched | dict(zip((m.url for m in fresh), pool.map(fetch, fresh), strict=True))
        # A read that the signal interrupted is no fact about its repository.
        effects.check_shutdown()
        if self._fetched is not None:
            self._fetched = errors
        results.update({m.url: failure for m in mirrors if (failure := errors[m.url]) is not None})
        return results

    def ensure_all(self, objects: Mapping[str, Iterable[Oid]]) -> None:
        """Fetch missing objects of opened repositories, by normalised URL, in one batch each, side by side.

        A server refuses the whole batch for one missing object: all of it stays missing then, until it is
        read. What an iterator finds is found side by side, too.
        """
        remotes = [mirror for url in objects if not (mirror := self.of(url)).is_local]
        if not remotes:
            return
        with (
            open_task("fetching files of repositories", len(remotes)) as task,
            ThreadPoolExecutor(max_workers=self._at_once) as pool,
        ):

            def ensure(mirror: Mirror) -> None:
                with suppress(UnavailableError, PackageRefusedError, DefectError), guard(mirror.remote):
                    mirror.ensure(objects[mirror.url])
                task.advance()

            list(pool.map(ensure, remotes))
        effects.check_shutdown()


def _fetch_error(mirror: Mirror) -> UnavailableError | DefectError | None:
    try:
        with guard(f"repository {mirror.remote}"):
            mirror.fetch()
    except (UnavailableError, DefectError) as error:
        return error
    return None


def _is_text(name: str) -> bool:
    """Tell whether a name is UTF-8: no other one is ours, and none can be shown or recorded."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _same(path: Path, other: Path) -> bool:
    if path == other:
        return True
    try:
        check_repository(path, DEFAULT_READ_S)
        check_repository(other, DEFAULT_READ_S)
        return Path(open_repository(path).path).samefile(open_repository(other).path)
    except (pygit2.GitError, OSError):
        return True
