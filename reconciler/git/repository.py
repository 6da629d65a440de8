"""One repository as a run sees it: its refs at one moment, and every object they reach, read in place."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import pygit2

from reconciler.errors import UnavailableError
from reconciler.git.cache import (
    CACHE_HINT,
    MANY_PACKS,
    Place,
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
from reconciler.git.command import (
    SilentError,
    is_local_trouble,
    is_too_slow,
    last_line,
    run_git,
    slow_options,
)
from reconciler.git.commit_signing import UNSIGNED, CommitSigning
from reconciler.git.commits import CommitData
from reconciler.git.database import NO_OBJECT, Database, open_repository
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import Credential, parse_remote
from reconciler.ids import Oid
from reconciler.policy import Limits

__all__ = ["CommitData", "Mirror", "Mirrors", "PackageRefusedError", "open_repository"]

_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+refs/reconciler/*:refs/reconciler/*")
_NAMESPACES = ("refs/heads/", "refs/tags/", "refs/reconciler/")
_AT_ONCE = 16
DEFAULT_READ_S = float(Limits().read_seconds)


class Mirror(Database):
    """One repository: refs as `fetch` saw them, objects read from where they are.

    A repository on this machine is read in place, without a process and without a copy; another
    is mirrored in the cache, its blobs fetched when needed, in batches. Objects that we make go
    to the mirror, never to the repository itself: only a push writes there. Not for two threads.
    Commits that we make are signed by `signing`.
    """

    def __init__(self, place: Place, signing: CommitSigning = UNSIGNED) -> None:
        super().__init__()
        self.place = place
        self.signing = signing
        self.url = place.remote.url
        self.remote = place.remote.address
        self._snapshot: dict[str, Oid] | None = None
        self._silent: UnavailableError | None = None
        self.read_s = DEFAULT_READ_S

    @property
    def is_local(self) -> bool:
        """Whether the repository is on this machine and read in place."""
        return self.place.remote.path is not None

    # Refs

    def fetch(self) -> None:
        """Bring refs and history up to date and take the refs as this run's snapshot.

        Raises: UnavailableError if the repository cannot be read.
        """
        self._snapshot = None
        if not self.is_local:
            self._fetch_remote()
        self.__dict__.pop("_repository", None)
        try:
            self._read_refs()
        except pygit2.GitError as error:
            raise UnavailableError(f"Cannot read the refs of {self.remote}: {error}") from error

    def refs(self) -> Mapping[str, Oid]:
        """Return the snapshot: full names of branches and tags (peeled) and the commits they name.

        Raises: UnavailableError if nothing was fetched yet and the repository cannot be read.
        """
        if self._snapshot is None:
            self.fetch()
        return self._snapshot or {}

    def record(self, ref: str, new: Oid | None) -> None:
        """Note in the snapshot that we moved a ref ourselves (None: deleted it)."""
        if self._snapshot is None:
            return
        self._snapshot.pop(ref, None)
        if new is not None:
            self._snapshot[ref] = new

    @cached_property
    def head_branch(self) -> str:
        """The branch that the repository calls its default, "" if it names none.

        Raises: UnavailableError if the repository cannot be read.
        """
        if self.is_local:
            target = self._repository.lookup_reference("HEAD").target
            return target.removeprefix("refs/heads/") if isinstance(target, str) else ""
        out = self._ask(["ls-remote", "--symref", "--", self.remote, "HEAD"]).decode("utf-8", "replace")
        first = out.partition("\t")[0]
        return first.removeprefix("ref: refs/heads/") if first.startswith("ref: refs/heads/") else ""

    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the objects that are not here yet, all in one batch; nothing to do for a local one.

        Raises: UnavailableError if they cannot be fetched.
        """
        missing = [] if self.is_local else sorted({oid for oid in oids if not self.has(oid)})
        if not missing:
            return
        options = ["--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin"]
        wanted = "".join(f"{oid}\n" for oid in missing).encode()
        command = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", *options, "origin"]
        self._ask(command, stdin=wanted)

    def bring(self, commit: Oid) -> bool:
        """Fetch a commit that no branch may name, with its history; tell whether the repository has it."""
        if self.has(commit) or self.is_local:
            return self.has(commit)
        options = ["--no-tags", "--no-write-fetch-head", "--filter=blob:none"]
        try:
            with locked(self.place.directory):
                self._ask(["fetch", *options, "origin", commit])
        except UnavailableError:
            return False
        return self.has(commit)

    # Inside

    def open(self) -> pygit2.Repository:
        """Return the repository that holds the objects: the one on this machine, or the mirror."""
        return self._repository

    @cached_property
    def _repository(self) -> pygit2.Repository:
        directory = self.place.directory if self.place.remote.path is None else self.place.remote.path
        try:
            repository = open_repository(directory)
        except pygit2.GitError as error:
            raise UnavailableError(f"{directory} is not a Git repository that can be read") from error
        if self.is_local and self.place.directory.exists():
            attach(self.place, repository)
        return repository

    def attach_store(self) -> Path:
        """Return the mirror's git directory, made ready to take objects of ours; created on demand.

        Raises: UnavailableError if it cannot be created.
        """
        directory = self.place.directory
        if not directory.is_dir():
            create_mirror(self.place)
        if self.is_local:
            drop_old_packs(directory)
            write_alternates(self.place, self._repository)
            self._repository.odb.add_disk_alternate(str(directory / "objects"))
        return directory

    def _fetch_remote(self) -> None:
        """Fetch into the mirror; one that is damaged is made anew, once."""
        directory = self.place.directory
        with locked(directory):
            if directory.exists() and find_damage(directory):
                discard_mirror(directory)
            is_new = not directory.exists()
            create_mirror(self.place)
            restore_settings(self.place)
            recover_locks(directory)
            try:
                self._fetch_refs(directory)
            except UnavailableError:
                if is_new or not self._answers():
                    raise
                self._rebuild()
            if count_packs(directory) > MANY_PACKS:
                run_git(["gc", "--quiet"], directory=directory)
            record_packs(directory)

    def _fetch_refs(self, directory: Path) -> None:
        options = ["--prune", "--no-tags", "--force", "--filter=blob:none", "--no-write-fetch-head"]
        self._ask(["fetch", *options, "origin", *_REFSPECS], directory=directory)

    def _answers(self) -> bool:
        """Tell whether the remote lists its refs: then a fetch that fails may be the fault of the mirror."""
        if self._silent is not None:
            return False
        try:
            self._ask(["ls-remote", "--quiet", "--", self.remote, "HEAD"])
        except UnavailableError:
            return False
        return True

    def _rebuild(self) -> None:
        """Fetch into a new mirror; the old one stays if that fails too: then the remote is to blame."""
        fresh = create_empty(self.place)
        try:
            self._fetch_refs(fresh)
            replace_mirror(self.place, fresh)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _ask(self, arguments: list[str], stdin: bytes = b"", directory: Path | None = None) -> bytes:
        """Ask the remote.

        Raises: UnavailableError if it refuses, or does not answer in time; then it is not asked again.
        """
        place = self.place
        if self._silent is not None:
            raise self._silent
        where = directory or (place.directory if place.directory.is_dir() else None)
        try:
            ran = run_git(
                [*slow_options(self.read_s), *arguments],
                directory=where,
                stdin=stdin,
                remote=self.remote,
                credential=place.credential,
                timeout_s=self.read_s,
            )
        except SilentError as error:
            self._silent = self._too_slow(f"no answer within {self.read_s:.0f} s")
            raise self._silent from error
        if ran.code and is_local_trouble(ran.err):
            raise UnavailableError(f"Cannot write to {where}: {last_line(ran.err)}", hint=CACHE_HINT)
        if ran.code and is_too_slow(ran.err):
            self._silent = self._too_slow(last_line(ran.err))
            raise self._silent
        if ran.code:
            raise UnavailableError(f"Cannot read {self.remote}: {last_line(ran.err)}")
        return ran.out

    def _too_slow(self, why: str) -> UnavailableError:
        hint = "Check the server and the network, or raise limits.readSeconds."
        return UnavailableError(f"Cannot read {self.remote}: {why}", hint=hint)

    def _read_refs(self) -> None:
        snapshot: dict[str, Oid] = {}
        for reference in self._repository.references.iterator():
            name, target = reference.name, reference.target
            if not name.startswith(_NAMESPACES) or not isinstance(target, pygit2.Oid):
                continue
            oid = Oid(str(target))
            peeled = self._peel(oid) if name.startswith("refs/tags/") else oid
            if peeled is not None:
                snapshot[name] = peeled
        self._snapshot = snapshot

    def _peel(self, oid: Oid) -> Oid | None:
        try:
            return Oid(str(self._repository[oid].peel(pygit2.Commit).id))
        except (*NO_OBJECT, pygit2.InvalidSpecError):
            return None


class Mirrors:
    """Every repository of a run, each opened once whatever its address is spelled like.

    `credentials` answers with the credential for an address, None for none; `base` is where
    relative paths start: the directory of the control repository.
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
        self._read_s = DEFAULT_READ_S
        self._mirrors: dict[str, Mirror] = {}
        self._held: dict[str, UnavailableError | None] | None = None

    def hold(self) -> None:
        """From now on fetch each repository once: whoever reads again sees the same moment."""
        self._held = {}

    def authenticate(self, credentials: Callable[[str], Credential | None]) -> None:
        """Answer with these credentials from now on: a configuration is read before it can name them."""
        self._credentials = credentials

    def limit_reads(self, seconds: float) -> None:
        """Wait at most this long for one answer of a remote, also in what is open already."""
        self._read_s = seconds
        for mirror in self._mirrors.values():
            mirror.read_s = seconds

    def sign_commits(self, signing: CommitSigning) -> None:
        """Sign every commit from now on, also in what is open already."""
        self._signing = signing
        for mirror in self._mirrors.values():
            mirror.signing = signing

    def open(self, remote: str) -> Mirror:
        """Return the one mirror of a repository; nothing is read yet.

        Raises: UnavailableError if the address is unusable, or if two local repositories differ
        only in what does not distinguish repositories (`x` and `x.git`).
        """
        parsed = parse_remote(remote, self._base)
        mirror = self._mirrors.get(parsed.url)
        if mirror is None:
            place = Place.of(self.cache_dir, parsed, self._credentials(parsed.address))
            mirror = self._mirrors[parsed.url] = Mirror(place, self._signing)
            mirror.read_s = self._read_s
        elif parsed.path and mirror.place.remote.path and not _same(parsed.path, mirror.place.remote.path):
            hint = "Rename one of them."
            message = f"{parsed.path} and {mirror.remote} are two repositories with one identity"
            raise UnavailableError(message, hint=hint)
        return mirror

    def of(self, url: str) -> Mirror:
        """Return the mirror, opened before, of a normalised URL.

        Raises: UnavailableError if no such repository was opened.
        """
        if url not in self._mirrors:
            raise UnavailableError(f"Repository {url} is not registered", hint="Register it.")
        return self._mirrors[url]

    def fetch_all(self, remotes: Iterable[str]) -> Mapping[str, Mirror | UnavailableError]:
        """Fetch repositories side by side; one that is dead is an error in the result, not an exception.

        Returns: by normalised URL, in the order of `remotes`; an unusable address stands for itself.
        """
        found: dict[str, Mirror | UnavailableError] = {}
        for remote in remotes:
            try:
                mirror = self.open(remote)
                found.setdefault(mirror.url, mirror)
            except UnavailableError as error:
                found[remote] = error
        mirrors = [mirror for mirror in found.values() if isinstance(mirror, Mirror)]
        known = self._held or {}
        fresh = [mirror for mirror in mirrors if mirror.url not in known]
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            errors = known | dict(zip((m.url for m in fresh), pool.map(_fetch_error, fresh), strict=True))
        if self._held is not None:
            self._held = errors
        found.update({m.url: dead for m in mirrors if (dead := errors[m.url]) is not None})
        return found


def _fetch_error(mirror: Mirror) -> UnavailableError | None:
    try:
        mirror.fetch()
    except UnavailableError as error:
        return error
    return None


def _same(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return Path(open_repository(one).path).samefile(open_repository(other).path)
    except (pygit2.GitError, OSError):
        return True
