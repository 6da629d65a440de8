"""One repository as a run sees it: its refs at one moment, and every object they reach, read in place."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import pygit2

from reconciler.errors import UnavailableError
from reconciler.git import history
from reconciler.git.command import last_line, run_git
from reconciler.git.files import PackageRefusedError, list_files, read_files
from reconciler.git.history import CommitData
from reconciler.git.mirror import Place, create_mirror, locked, recover_locks
from reconciler.git.trees import RawEntry, Refusal, judge_entry, parse_tree
from reconciler.git.urls import Credential, parse_remote
from reconciler.ids import Oid
from reconciler.objects import Entry, Files, Mode, Signature
from reconciler.policy import Limits

__all__ = ["CommitData", "Mirror", "Mirrors", "PackageRefusedError", "open_repository"]

_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+refs/reconciler/*:refs/reconciler/*")
_NAMESPACES = ("refs/heads/", "refs/tags/", "refs/reconciler/")
_TREE, _COMMIT = pygit2.enums.ObjectType.TREE, pygit2.enums.ObjectType.COMMIT
_FILE_MODES = frozenset({0o100644, 0o100664, 0o100755})
_AT_ONCE = 16
_LARGEST_TREE = 64 << 20
_NO_OBJECT = (KeyError, ValueError, pygit2.GitError)


class Mirror:
    """One repository: refs as `fetch` saw them, objects read from where they are.

    A repository on this machine is read in place, without a process and without a copy; another
    is mirrored in the cache, its blobs fetched when needed, in batches. Objects that we make go
    to the mirror, never to the repository itself: only a push writes there. Not for two threads.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.url = place.remote.url
        self.remote = place.remote.address
        self._snapshot: dict[str, Oid] | None = None
        self._unpeeled: dict[str, Oid] = {}
        self._commits: dict[Oid, CommitData | None] = {}
        self._judged: dict[Oid, tuple[Entry | Refusal, ...]] = {}
        self._entries: dict[Oid, tuple[Entry, ...]] = {}
        self._ancestry: dict[Oid, frozenset[Oid]] = {}

    @property
    def is_local(self) -> bool:
        """Whether the repository is on this machine and read in place."""
        return self.place.remote.path is not None

    # Refs

    def fetch(self) -> None:
        """Bring refs and history up to date and take the refs as this run's snapshot.

        Raises: UnavailableError if the repository cannot be read.
        """
        if not self.is_local:
            self._fetch_remote()
        self.__dict__.pop("_repository", None)
        self._commits = {oid: commit for oid, commit in self._commits.items() if commit}
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

    def unpeeled(self, ref: str) -> Oid | None:
        """Return what `ref` itself points at: for an annotated tag the tag, as a lease compares it."""
        self.refs()
        return self._unpeeled.get(ref)

    def record(self, ref: str, new: Oid | None) -> None:
        """Note in the snapshot that we moved a ref ourselves (None: deleted it)."""
        for refs in (self._unpeeled, self._snapshot or {}):
            refs.pop(ref, None)
            if new is not None:
                refs[ref] = new

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

    # Objects

    def has(self, oid: Oid) -> bool:
        """Tell whether an object is here.

        Raises: UnavailableError if the repository cannot be read any more.
        """
        try:
            return bool(self._repository.odb.exists(pygit2.Oid(hex=oid)))
        except pygit2.GitError as error:
            raise UnavailableError(f"Cannot read {self.remote}: {error}") from error

    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is not here (beyond a shallow clone) or is not a commit."""
        if oid in self._commits:
            return self._commits[oid]
        found = self._object(oid)
        commit = _commit_data(found) if isinstance(found, pygit2.Commit) else None
        self._commits[oid] = commit
        return commit

    def commit(self, oid: Oid) -> CommitData:
        """Return a commit.

        Raises: UnavailableError if it is not in the repository.
        """
        if (commit := self.find_commit(oid)) is None:
            raise UnavailableError(f"Commit {oid} is not in {self.remote}", hint="Fetch its whole history.")
        return commit

    def judged(self, tree: Oid) -> tuple[Entry | Refusal, ...]:
        """Return every entry of a tree in its order, those that nobody should touch as refusals."""
        if tree not in self._judged:
            self._judged[tree] = tuple(judge_entry(raw) for raw in self.raw_entries(tree))
        return self._judged[tree]

    def entries(self, tree: Oid) -> tuple[Entry, ...]:
        """Return the entries of a tree whose names and modes are safe."""
        if tree not in self._entries:
            judged = self.judged(tree)
            self._entries[tree] = tuple(entry for entry in judged if isinstance(entry, Entry))
        return self._entries[tree]

    def refusals(self, tree: Oid) -> tuple[Refusal, ...]:
        """Return the entries of a tree that are refused, with the reason."""
        return tuple(entry for entry in self.judged(tree) if isinstance(entry, Refusal))

    def raw_entries(self, tree: Oid) -> list[RawEntry]:
        """Return the entries of a tree as they are stored.

        Raises: UnavailableError if the tree is not here; PackageRefusedError if it is malformed.
        """
        try:
            return parse_tree(self._read(tree, _LARGEST_TREE))
        except ValueError as error:
            raise PackageRefusedError("", f"tree {tree} is malformed") from error

    def subtree(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the tree at `path` ("" is the root), None if there is no directory."""
        found = self._at(commit_or_tree, path)
        return Oid(str(found.id)) if isinstance(found, pygit2.Tree) else None

    def blob_at(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the id of the regular file at `path`, None if there is none; its content may not be here."""
        found = self._at(commit_or_tree, path)
        return Oid(str(found.id)) if found is not None and found.filemode in _FILE_MODES else None

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return a blob's bytes; its size is looked at before anything is read.

        Raises: PackageRefusedError if it is larger than `max_bytes`; UnavailableError if it is missing.
        """
        return self._read(oid, max_bytes)

    def files(self, tree: Oid, limits: Limits) -> Files:
        """Return the files of a package.

        Raises: PackageRefusedError, see `git.files.read_files`.
        """
        return read_files(self, tree, limits)

    def list_blobs(self, tree: Oid, limits: Limits) -> frozenset[Oid]:
        """Return the blobs of a package without reading one.

        Raises: PackageRefusedError, see `git.files.list_files`.
        """
        return frozenset(entry.oid for _, entry in list_files(self, tree, limits))

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

    # History

    def merge_base(self, main: Oid, tip: Oid) -> Oid | None:
        """Return the best common commit; `main` is the long-lived side, whose ancestry is kept."""
        return history.merge_base(self, self.ancestry(main), tip)

    def ancestry(self, tip: Oid) -> frozenset[Oid]:
        """Return `tip` and all its ancestors; computed once per tip."""
        if tip not in self._ancestry:
            self._ancestry[tip] = history.ancestors(self, tip)
        return self._ancestry[tip]

    def first_parents(self, tip: Oid, until: Oid | None = None) -> Iterator[CommitData]:
        """Yield `tip` and its first parents, newest first, up to but without `until`."""
        return history.first_parents(self, tip, until)

    def walk(self, tip: Oid, hidden: Container[Oid] = frozenset()) -> Iterator[Oid]:
        """Yield what is reachable from `tip` without passing `hidden`, nearest first."""
        return history.walk(self, tip, hidden)

    def last_touched(self, commit: Oid, paths: Iterable[str]) -> Mapping[str, int]:
        """Return for each path the committer time of the commit that last touched it, in one walk."""
        return history.last_touched(self, self.changed_paths, commit, paths)

    def changed_paths(self, old: Oid | None, new: Oid | None, paths: Iterable[str]) -> set[str]:
        """Return those of `paths` at which two trees differ; equal directories are not descended."""
        if old == new:
            return set()
        below: dict[str, set[str]] = {}
        for path in paths:
            head, _, rest = path.partition("/")
            below.setdefault(head, set()).add(rest)
        before, after = self._by_name(old, below), self._by_name(new, below)
        changed = set()
        for head, rests in below.items():
            a, b = before.get(head), after.get(head)
            if a == b:
                continue
            changed |= {head} if "" in rests else set()
            deeper = self.changed_paths(_tree_of(a), _tree_of(b), rests - {""})
            changed |= {f"{head}/{rest}" for rest in deeper}
        return changed

    # Inside

    @cached_property
    def _repository(self) -> pygit2.Repository:
        directory = self.place.directory if self.place.remote.path is None else self.place.remote.path
        try:
            repository = open_repository(directory)
        except pygit2.GitError as error:
            raise UnavailableError(f"{directory} is not a Git repository that can be read") from error
        if self.is_local and self.place.directory.is_dir():
            repository.odb.add_disk_alternate(str(self.place.directory / "objects"))
        return repository

    def attach_store(self) -> Path:
        """Return the mirror's git directory, made ready to take objects of ours; created on demand.

        Raises: UnavailableError if it cannot be created.
        """
        directory = self.place.directory
        if not directory.is_dir():
            create_mirror(self.place)
        if self.is_local:
            alternates = directory / "objects" / "info" / "alternates"
            wanted = str(Path(self._repository.path).resolve() / "objects") + "\n"
            if not alternates.is_file() or alternates.read_text() != wanted:
                alternates.write_text(wanted)
            self._repository.odb.add_disk_alternate(str(directory / "objects"))
        return directory

    def _fetch_remote(self) -> None:
        create_mirror(self.place)
        options = ["--prune", "--no-tags", "--force", "--filter=blob:none", "--no-write-fetch-head"]
        with locked(self.place.directory):
            recover_locks(self.place.directory)
            self._ask(["fetch", *options, "origin", *_REFSPECS])

    def _ask(self, arguments: list[str], stdin: bytes = b"") -> bytes:
        place = self.place
        directory = place.directory if place.directory.is_dir() else None
        ran = run_git(
            arguments, directory=directory, stdin=stdin, remote=self.remote, credential=place.credential
        )
        if ran.code:
            raise UnavailableError(f"Cannot read {self.remote}: {last_line(ran.err)}")
        return ran.out

    def _read_refs(self) -> None:
        snapshot: dict[str, Oid] = {}
        self._unpeeled = {}
        for reference in self._repository.references.iterator():
            name, target = reference.name, reference.target
            if not name.startswith(_NAMESPACES) or not isinstance(target, pygit2.Oid):
                continue
            oid = Oid(str(target))
            self._unpeeled[name] = oid
            peeled = self._peel(oid) if name.startswith("refs/tags/") else oid
            if peeled is not None:
                snapshot[name] = peeled
        self._snapshot = snapshot

    def _object(self, oid: Oid) -> Any:
        try:
            return self._repository.get(oid)
        except _NO_OBJECT:
            return None

    def _peel(self, oid: Oid) -> Oid | None:
        try:
            return Oid(str(self._repository[oid].peel(pygit2.Commit).id))
        except (*_NO_OBJECT, pygit2.InvalidSpecError):
            return None

    def _at(self, commit_or_tree: Oid, path: str) -> Any:
        found = self._object(commit_or_tree)
        try:
            found = found.tree if isinstance(found, pygit2.Commit) else found
            for segment in path.split("/") if path else ():
                if not isinstance(found, pygit2.Tree) or segment not in found:
                    return None
                found = found[segment]
        except _NO_OBJECT:
            return None
        return found

    def _by_name(self, tree: Oid | None, names: Container[str]) -> Mapping[str, Entry]:
        return {entry.name: entry for entry in self.entries(tree) if entry.name in names} if tree else {}

    def _read(self, oid: Oid, max_bytes: int) -> bytes:
        key = pygit2.Oid(hex=oid)
        try:
            _, size = self._repository.odb.read_header(key)
            if size > max_bytes:
                raise PackageRefusedError("", f"it has {size} bytes, more than {max_bytes}")
            return bytes(self._repository.odb.read(key)[1])
        except _NO_OBJECT as error:
            raise UnavailableError(f"Object {oid} is not in {self.remote}") from error


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
        self._mirrors: dict[str, Mirror] = {}

    def open(self, remote: str) -> Mirror:
        """Return the one mirror of a repository; nothing is read yet.

        Raises: UnavailableError if the address is unusable, or if two local repositories differ
        only in what does not distinguish repositories (`x` and `x.git`).
        """
        parsed = parse_remote(remote, self._base)
        mirror = self._mirrors.get(parsed.url)
        if mirror is None:
            place = Place.of(self.cache_dir, parsed, self._credentials(parsed.address))
            mirror = self._mirrors[parsed.url] = Mirror(place)
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
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            errors = pool.map(_fetch_error, mirrors)
            found.update({m.url: e for m, e in zip(mirrors, errors, strict=True) if e is not None})
        return found


def _fetch_error(mirror: Mirror) -> UnavailableError | None:
    try:
        mirror.fetch()
    except UnavailableError as error:
        return error
    return None


def _same(one: Path, other: Path) -> bool:
    try:
        return Path(open_repository(one).path).samefile(open_repository(other).path)
    except (pygit2.GitError, OSError):
        return True


def open_repository(path: Path) -> pygit2.Repository:
    """Open a repository exactly where git would: at `path`, its `.git`, or `path` with `.git` added.

    Raises: pygit2.GitError if there is none.
    """
    pygit2.settings.owner_validation = False
    for candidate in (path, path.with_name(path.name + ".git")):
        if candidate.is_dir():
            return pygit2.Repository(str(candidate))
    raise pygit2.GitError(f"{path} does not exist")


def _tree_of(entry: Entry | None) -> Oid | None:
    return entry.oid if entry and entry.mode == Mode.TREE else None


def _commit_data(found: pygit2.Commit) -> CommitData:
    return CommitData(
        Oid(str(found.id)),
        Oid(str(found.tree_id)),
        tuple(Oid(str(parent)) for parent in found.parent_ids),
        _signature(found.author),
        _signature(found.committer),
        found.raw_message.decode(found.message_encoding or "utf-8", "replace"),
    )


def _signature(found: pygit2.Signature) -> Signature:
    name, email = (raw.decode("utf-8", "replace") for raw in (found.raw_name, found.raw_email))
    return Signature(name, email, found.time)
