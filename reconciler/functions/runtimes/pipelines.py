"""The pipelines of many packages: cached results are looked up, others are computed in several processes."""

import gc
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.collector import COLLECT
from reconciler.base.lazy import lazy_pattern
from reconciler.base.progress import Task, current_display, open_task
from reconciler.base.timing import SpanKind, TimeSpan, emit, is_watched, timed, watching
from reconciler.functions.pipeline import RunPipelines, may_have_pipeline, run_pipeline
from reconciler.functions.runtime import FunctionRuntime
from reconciler.functions.runtimes.container import ContainerRuntime, Semaphore
from reconciler.functions.runtimes.process import ExecRuntime
from reconciler.functions.runtimes.result_cache import PackageCache, changed_files
from reconciler.functions.runtimes.schemas import SchemaRuntime
from reconciler.functions.runtimes.starlark import StarlarkRuntime
from reconciler.functions.runtimes.time_limits import limited
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy

_LOCATION: Final = lazy_pattern(rb"reconciler\.dev/location:[ \t]*[\"']?([^\s\"']+)")
_LEAST: Final = 64
"""Packages from which a second process pays: starting it takes as long as rendering some of them."""
_LEAST_OUTSIDE: Final = 2
"""The same where functions may run in containers or executables, and this process mostly waits."""
_CHUNKS: Final = 8
"""Chunks of work for each process, so that all end at about the same time."""
_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) for the signal that the end of the parent sends."""

Definitions = Sequence[Mapping[str, Any]]
"""CustomResourceDefinitions for validation, besides those in each package."""


@contextmanager
def open_runtimes(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Definitions = (),
    semaphore: Semaphore | None = None,
) -> Iterator[tuple[FunctionRuntime, ...]]:
    """Yield the runtimes of a policy in the order in which they are tried (D11); end their processes.

    `cache` is a directory for the results of containers; `semaphore` limits concurrent containers.
    """
    with StarlarkRuntime(policy) as starlark:
        containers = ContainerRuntime(policy, cache, semaphore)
        yield (starlark, SchemaRuntime(definitions), ExecRuntime(policy), containers)


@contextmanager
def open_pipelines(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Definitions = (),
    processes: int | None = None,
) -> Iterator[RunPipelines]:
    """Yield a function that runs the pipelines of packages; end its processes.

    Deterministic: each package is rendered by itself, and the results come in the order of the packages,
    whatever the number of processes. `cache` is a directory for results; `processes` is the number of
    processes, by default one for each core.
    """
    cached = PackageCache(cache and cache / "packages", policy, definitions)
    spent = [0.0]
    with ExitStack() as stack:
        pool = _Pool(_Settings(policy, cache, definitions), processes or _cores(), stack)

        def run(packages: Sequence[Files]) -> list[PipelineResult]:
            hits = [
                cached.find(files) if may_have_pipeline(files) else PipelineResult(files)
                for files in packages
            ]
            missing = _fairly(packages, (number for number, hit in enumerate(hits) if hit is None), cached)
            begun = time.monotonic()
            with open_task("running functions", len(missing)) as task:
                ends_s = begun + max(0.0, policy.run_timeout_s - spent[0])
                computed = _counted(pool.run([packages[number] for number in missing], ends_s), task)
                done = dict(zip(missing, computed, strict=True))
            spent[0] += time.monotonic() - begun
            for number, result in done.items():
                cached.keep(packages[number], result)
                if result.is_late:
                    cached.keep_slow(packages[number])
            return [hit or done[number] for number, hit in enumerate(hits)]

        yield run
    cached.prune()


def _fairly(packages: Sequence[Files], numbers: Iterable[int], cached: PackageCache) -> list[int]:
    """Return the numbers of packages in the order in which to render them before the time is over.

    Another order in each run, and those that took too long before come last: none keeps the others from being
    rendered for ever. The order decides about nothing else.
    """
    shuffled = list(numbers)
    random.shuffle(shuffled)
    return sorted(shuffled, key=lambda number: cached.is_slow(packages[number]))


def _counted(results: Iterable[PipelineResult], task: Task) -> Iterator[PipelineResult]:
    for result in results:
        task.advance()
        yield result


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


class _Settings(Struct, frozen=True):
    """The arguments from which each process opens its runtimes."""

    policy: FunctionPolicy
    cache: Path | None
    definitions: Definitions


class _ResultDelta(Struct, frozen=True):
    """A result on its way between processes, without the unchanged files."""

    result: PipelineResult
    changed: Mapping[str, File]
    removed: frozenset[str]
    spans: tuple[TimeSpan, ...] = ()

    def apply_to(self, before: Files) -> PipelineResult:
        """Return the whole result of a package."""
        if not self.changed and not self.removed:
            return replace(self.result, files=before)
        kept = {path: file for path, file in before.items() if path not in self.removed}
        return replace(self.result, files={**kept, **self.changed})


class _Pool:
    """Runs pipelines in this process, or in forks of it where there are enough packages."""

    def __init__(self, settings: _Settings, processes: int, stack: ExitStack) -> None:
        self._settings = settings
        self._processes = processes
        self._stack = stack
        self._runtimes: tuple[FunctionRuntime, ...] | None = None
        self._ends_s = math.inf

    def run(self, packages: Sequence[Files], ends_s: float = math.inf) -> Iterator[PipelineResult]:
        """Yield the result of each package, in their order; what is not done at `ends_s` is postponed."""
        done, self._ends_s = 0, ends_s
        with current_display().paused():
            can_fork = self._can_fork(len(packages))
        if can_fork:
            for done, delta in enumerate(self._run_forked(packages), 1):
                for span in delta.spans:
                    emit(span)
                yield delta.apply_to(packages[done - 1])
        for files in packages[done:]:
            yield self._run_here(files)

    def _can_fork(self, count: int) -> bool:
        """Tell whether forks pay and are safe: a lock that another thread holds stays locked in a fork."""
        policy = self._settings.policy
        least = _LEAST_OUTSIDE if policy.runtime or policy.exec else _LEAST
        safe = self._processes > 1 and threading.active_count() == 1
        return count >= least and safe and sys.platform == "linux"

    def _run_here(self, files: Files) -> PipelineResult:
        if self._runtimes is None:
            settings = self._settings
            runtimes = open_runtimes(settings.policy, settings.cache, settings.definitions)
            self._runtimes = self._stack.enter_context(runtimes)
        return _measured(files, self._runtimes, self._settings.policy, self._ends_s)

    def _run_forked(self, packages: Sequence[Files]) -> Iterator[_ResultDelta]:
        """Yield the results of forked processes; end early if one of them is killed from outside."""
        import multiprocessing  # noqa: PLC0415 - slow to import, and only for many packages
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as above
        from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - as above

        context = multiprocessing.get_context("fork")
        semaphore = context.BoundedSemaphore(max(1, self._settings.policy.parallel))
        count = min(self._processes, len(packages))
        arguments = (self._settings, semaphore, packages, self._ends_s)
        size = max(1, len(packages) // (count * _CHUNKS))
        with ProcessPoolExecutor(count, context, _start_worker, arguments) as pool:
            try:
                with current_display().paused():  # all processes start here
                    chunks = [pool.submit(_run_in_worker, numbers) for numbers in _divide(packages, size)]
                # Not Executor.map: it cancels what the thread of a broken pool is about to end, which ends
                # that thread, and this process would wait for the other workers for ever.
                for chunk in chunks:
                    yield from chunk.result()
            except BrokenProcessPool:
                return
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _divide(packages: Sequence[Files], size: int) -> Iterator[range]:
    for first in range(0, len(packages), size):
        yield range(first, min(first + size, len(packages)))


_worker: list[tuple[Sequence[Files], FunctionPolicy, tuple[FunctionRuntime, ...], float]] = []
"""The work of a forked process, once it has started; empty in every other process."""
_worker_stack: Final = ExitStack()
_is_working = False
"""Whether a forked process renders a package."""


def _start_worker(
    settings: _Settings, semaphore: Semaphore, packages: Sequence[Files], ends_s: float
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    _end_with_parent()
    # The values of the parent live to the end: walking them would copy their memory into every fork.
    gc.set_threshold(*COLLECT)
    gc.freeze()
    runtimes = open_runtimes(settings.policy, settings.cache, settings.definitions, semaphore)
    _worker.append((packages, settings.policy, _worker_stack.enter_context(runtimes), ends_s))


def _end_with_parent() -> None:
    """Get a SIGTERM when the parent ends, however that is: without it, this process would wait for ever."""
    import ctypes  # noqa: PLC0415 - only here
    from multiprocessing import parent_process  # noqa: PLC0415 - slow to import, and only for many packages

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:  # it ended before
        os._exit(1)


def _leave(_number: int, _frame: object) -> None:
    """End this forked process; the functions that it runs are ended first.

    It would inherit the handler with which its parent finishes what is under way.
    """
    if not _is_working:
        os._exit(1)
    raise KeyboardInterrupt


def _run_in_worker(numbers: range) -> list[_ResultDelta]:
    global _is_working  # noqa: PLW0603 - read by a signal handler
    _is_working = True
    try:
        return [_render(number) for number in numbers]
    except KeyboardInterrupt:
        os._exit(1)
    finally:
        _is_working = False


def _render(number: int) -> _ResultDelta:
    ((packages, policy, runtimes, ends_s),) = _worker
    files, spans = packages[number], list[TimeSpan]()
    if is_watched():  # as its parent was
        with watching(spans.append):
            result = _measured(files, runtimes, policy, ends_s)
    else:
        result = run_pipeline(files, runtimes, policy, limited(policy, ends_s))
    changed = changed_files(files, result.files) if result.files is not files else {}
    removed = frozenset(files.keys() - result.files.keys())
    return _ResultDelta(replace(result, files={}), changed, removed, tuple(spans))


def _measured(
    files: Files, runtimes: Sequence[FunctionRuntime], policy: FunctionPolicy, ends_s: float
) -> PipelineResult:
    """Render a package within the limits of time; its functions are spans if there is a watcher."""
    if not is_watched():
        return run_pipeline(files, runtimes, policy, limited(policy, ends_s))
    with timed(SpanKind.PACKAGE, _location(files)) as span:
        spans = limited(policy, ends_s, lambda name: timed(SpanKind.FUNCTION, name))
        result = run_pipeline(files, runtimes, policy, spans)
        span.is_kept = result.declared
    return result


def _location(files: Files) -> str:
    """Return repository and path of a package from its Kptfile, "" if they are not there."""
    kptfile = files.get(KPTFILE)
    match = _LOCATION.search(kptfile.data) if kptfile else None
    return match[1].decode(errors="replace") if match else ""
