"""Keep the report of a run that found nothing to do, and repeat it while no input changed (D15).

A run is a function of its inputs: with equal inputs it prints the same report and ends with the same exit
code. Whether they are equal is judged by the refs of all repositories, the control repository's commit, the
environment, the program and the clock, without an object being read.
"""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from reconciler import __version__
from reconciler.base.digest import checked, with_digest
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.git.cache_directory import default_cache
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from reconciler.names.refs import TAGS
from reconciler.read.control import OpenControl, open_control
from reconciler.run.options import Opened, RunOptions, open_mirrors

if TYPE_CHECKING:
    from reconciler.forge.registry import Forges
    from reconciler.inventory.inventory import Inventory, Opening
    from reconciler.run.plan import PlannedRun

_MOST_BYTES: Final = 4 << 20
"""A report that is larger is not kept."""
_MOST_REPORTS: Final = 32
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_CODE: Final = (_PACKAGE, _PACKAGE.parent / "templates")
_TOOLS: Final = ("git", "ssh-keygen")
_ENDS: Final = frozenset({Exit.DONE, Exit.WAITING, Exit.INVALID_INPUT})
"""Exits of runs with a report to keep: after any other, the next run may end differently."""
VOLATILE: Final = frozenset({"HOSTNAME", "OLDPWD", "SHLVL", "_"})
"""Variables that differ between processes or pods, and that nothing reads."""


class Counts(NamedTuple):
    """Numbers of a run by metric and values of its labels; `instance` and `shard` are labels of all."""

    samples: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    instance: str = ""
    shard: str = ""


class Report(NamedTuple):
    """The exit code of a run and what it printed: texts, and events on standard error.

    `counts` are the numbers of its metrics, if it had any.
    """

    texts: tuple[str | tuple[str, str, str], ...]
    exit_code: Exit
    counts: Counts = Counts()


class Watched(NamedTuple):
    """Inputs of a run outside of the control repository.

    `remotes` are the repositories that were read, `unread` those that other shards read; `commits` are those
    that a lock or Kptfile names, with their repository; `tools` are programs by name, `files` other files by
    path. With `policy` the configuration is needed before the inputs can be judged: for credentials or a
    schedule. `reads` are all reads from forges.
    """

    remotes: tuple[str, ...]
    unread: tuple[str, ...]
    commits: tuple[tuple[str, Oid], ...]
    tools: tuple[str, ...]
    files: tuple[str, ...]
    policy: bool
    reads: tuple[Any, ...]


class InputDigest(NamedTuple):
    """The digest of all inputs of a run, and which of them are outside of the control repository."""

    watched: Watched
    digest: str


class _Kept(NamedTuple):
    inputs: InputDigest
    report: Report


class ReportCache(Struct):
    """The kept reports of runs: one for each question, which is a command with its options.

    A command that `writes` opens repositories with credentials that may. Damage, and whatever cannot be
    read, is no report: the run computes it.
    """

    options: RunOptions
    question: Sequence[str]
    environment: Mapping[str, str]
    writes: bool = False
    now: Callable[[], float] = time.time
    opened: Opened | None = None

    def find(self) -> Report | None:
        """Return the report of the last run if all its inputs are unchanged."""
        kept = self._load()
        if kept is None:
            return None
        try:
            return kept.report if self._is_unchanged(kept.inputs) else None
        except ReconcilerError:
            self.opened = None  # the run reads it again, and tells what is wrong
            return None

    def inputs_of(self, planned: "PlannedRun") -> InputDigest | None:
        """Return the digest of the inputs of a run, None if its report must not be kept."""
        inputs, control = planned.inputs, planned.inputs.opened
        if control is None or not _is_idle(planned, control):
            return None
        opened = Opened(inputs.mirrors, control)
        watched = _watched(inputs.inventory, inputs.mirrors, inputs.forges)
        digest = self._fingerprint(opened, watched, inputs.inventory.opening)
        return InputDigest(watched, digest) if digest else None

    def keep(
        self,
        inputs: InputDigest | None,
        printed: Iterable[str | tuple[str, str, str]],
        code: Exit,
        counts: Counts = Counts(),  # noqa: B008 - a frozen value
    ) -> None:
        """Keep the report of a run, unless it must not be kept. A failure is ignored."""
        if inputs is None or code not in _ENDS:
            return
        with suppress(OSError, UnicodeEncodeError):
            data = msgspec.json.encode(_Kept(inputs, Report(tuple(printed), code, counts)))
            if len(data) > _MOST_BYTES:
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Write and rename: another run may read the file meanwhile.
            with NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
                file.write(with_digest(data))
            Path(file.name).replace(self._path)
            _prune(self._path.parent)

    def _load(self) -> "_Kept | None":
        try:
            return msgspec.json.decode(checked(self._path.read_bytes()) or b"", type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def _path(self) -> Path:
        name = hashlib.sha256(repr([*self.question, str(Path.cwd())]).encode()).hexdigest()
        return (self.options.cache_dir or default_cache()).absolute() / "reports" / name

    def _is_unchanged(self, inputs: InputDigest) -> bool:
        """Open all repositories as a run does, and tell whether its inputs would be the same.

        Raises:
            ReconcilerError: Something that a run needs cannot be read.
        """
        watched, mirrors = inputs.watched, open_mirrors(self.options)
        mirrors.hold()  # a run that follows fetches nothing twice
        control = open_control(self.options.control, mirrors)
        self.opened = Opened(mirrors, control)
        forges, opening = self._configure(mirrors, control) if watched.policy else (None, None)
        fetched = mirrors.fetch_all(watched.remotes)
        if not all(isinstance(mirror, Mirror) for mirror in fetched.values()):
            return False
        if self._fingerprint(self.opened, watched, opening) != inputs.digest:
            return False
        return forges is None or _are_forges_unchanged(forges, watched)

    def _configure(self, mirrors: Mirrors, control: OpenControl) -> "tuple[Forges, Opening]":
        """Give the mirrors their credentials; return the forges, and the state of the schedule."""
        from reconciler.forge.registry import Forges  # noqa: PLC0415 - slow, and rarely needed
        from reconciler.http.reply_cache import ReplyCache  # noqa: PLC0415
        from reconciler.read.governance import read_options  # noqa: PLC0415
        from reconciler.read.inventory import authorize  # noqa: PLC0415
        from reconciler.read.schedule import read_opening  # noqa: PLC0415

        options = read_options(control, self.environment)
        replies = ReplyCache(mirrors.cache_dir / "replies")
        forges = Forges(shard=self.options.shard, writes=self.writes, replies=replies)
        policy = authorize(options, mirrors, forges, self.environment)
        return forges, read_opening(policy, self.now())

    def _fingerprint(self, opened: Opened, watched: Watched, opening: "Opening | None") -> str:
        """Return the digest of all inputs, "" if a commit is missing."""
        mirrors = opened.mirrors
        if not all(mirrors.open(remote).has(commit) for remote, commit in watched.commits):
            return ""
        values = [
            [*self.question, str(Path.cwd())],
            sorted(item for item in self.environment.items() if item[0] not in VOLATILE),
            _program(),
            [_tool_state(name) for name in watched.tools],
            [_file_state(path) for path in watched.files],
            list(_control_state(opened.control)),
            [_refs_state(mirrors.open(remote)) for remote in watched.remotes],
            [mirrors.open(remote).url for remote in watched.unread],
            list(opening) if opening is not None and watched.policy else [],
        ]
        # Variables and paths may be no UTF-8: JSON has no form for them.
        return hashlib.sha256(repr(values).encode()).hexdigest()


def _are_forges_unchanged(forges: "Forges", watched: Watched) -> bool:
    from reconciler.forge.registry import ForgeReads  # noqa: PLC0415 - slow, and rarely needed

    return forges.are_unchanged(msgspec.convert(watched.reads, tuple[ForgeReads, ...]))


def _is_idle(planned: "PlannedRun", control: OpenControl) -> bool:
    """Tell whether a run found nothing to do, and whether a change of all its inputs would be noticed."""
    from reconciler.read.state import state_ref, status_ref  # noqa: PLC0415 - a run has imported it

    plan, inputs = planned.plan, planned.inputs
    inventory = inputs.inventory
    # What was computed follows from what was read; what could not be read may be there the next time.
    if not plan.is_empty or inventory.problems or plan.refusals:
        return False
    # Keys of `verify` expire, and the soak time of a rollout ends, without a change of anything else.
    if inventory.policy.verify or inventory.now or inventory.unreadable_pulls or inventory.is_history_due:
        return False
    # The control repository may be fetched again as a downstream, after its state was read.
    refs, recorded = control.mirror.refs(), inventory.control
    names = state_ref(inventory.policy.instance), status_ref(inventory.policy.instance)
    if [refs.get(name) for name in names] != [recorded.state, recorded.status]:
        return False
    views = inventory.views.values()
    return not any(view.problem for view in views) and inputs.forges.reads() is not None


def _watched(inventory: "Inventory", mirrors: Mirrors, forges: "Forges") -> Watched:
    policy, views = inventory.policy, inventory.views.values()
    remotes = {view.url: view.remote for view in views if view.is_available}
    commits = {(remotes[at.url], at.commit) for at in inventory.trees if at.url in remotes}
    engine, reads = policy.functions.runtime, forges.reads() or ()
    files = {*policy.functions.exec.values(), *_policy_files(inventory)}
    unread = {view.remote for view in views if view.url not in remotes}
    is_remote = not all(mirrors.open(remote).is_local for remote in (*remotes.values(), *unread))
    return Watched(
        remotes=tuple(sorted(remotes.values())),
        unread=tuple(sorted(unread)),
        commits=tuple(sorted(commits)),
        tools=(*_TOOLS, *((engine,) if engine else ())),
        files=tuple(sorted(files)),
        policy=is_remote or bool(reads) or bool(policy.pull_requests.schedule),
        reads=reads,
    )


def _policy_files(inventory: "Inventory") -> Iterator[str]:
    """Yield the files outside of Git that the configuration names."""
    policy = inventory.policy
    for rule in policy.credentials:
        yield from (rule.token_file, rule.app_key_file, rule.ssh_key_file, rule.known_hosts_file)
    yield policy.commits.signing_key_file


def _program() -> list[Any]:
    """Return the state of the program: its version, its files, and the installed libraries."""
    libraries = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    code = [state for folder in _CODE for state in _folder_state(str(folder))]
    return [__version__, sys.version, [_file_state(path) for path in libraries], code]


def _folder_state(folder: str) -> Iterator[list[Any]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _folder_state(entry.path)
        else:
            status = entry.stat()
            yield [entry.path, status.st_size, status.st_mtime_ns]


def _file_state(path: str) -> list[Any]:
    """Return what changes with the content of a file; the path alone if it does not exist."""
    try:
        status = Path(path).stat()
    except OSError:
        return [path]
    return [path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _tool_state(name: str) -> list[Any]:
    return _file_state(shutil.which(name) or f"no {name}")


def _control_state(control: OpenControl) -> Iterator[Any]:
    yield from (control.commit.oid, control.branch, control.published, control.uncommitted)
    yield _refs_state(control.mirror)
    yield _depth(control.objects)
    yield control.mirror.head_branch


def _refs_state(mirror: Mirror) -> list[Any]:
    refs = mirror.refs()
    tags = [mirror.tag_object(ref) for ref in sorted(refs) if ref.startswith(TAGS)]
    return [mirror.url, mirror.remote, sorted(refs.items()), tags, _depth(mirror)]


def _depth(mirror: Mirror) -> list[Any]:
    """Return what changes with the commits at which the history of a repository is cut off."""
    return _file_state(f"{mirror.open().path}shallow")


def _prune(directory: Path) -> None:
    """Remove the reports that were kept longest ago."""
    entries = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in entries[_MOST_REPORTS:]:
        path.unlink(missing_ok=True)
