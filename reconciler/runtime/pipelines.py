"""The pipelines of many packages: known results are looked up, the others made in several processes."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from reconciler.functions.pipeline import RunPipelines, run_pipeline
from reconciler.functions.runtime import FunctionRuntime
from reconciler.functions.step import PipelineResult
from reconciler.objects import File, Files
from reconciler.policy import FunctionPolicy
from reconciler.runtime.choose import open_runtimes
from reconciler.runtime.container import Free
from reconciler.runtime.rendered import RenderedPackages, changed_files

_LEAST: Final = 64
"""Packages that are worth a second process: starting one takes as long as rendering some of them."""
_LEAST_OUTSIDE: Final = 2
"""The same where functions may run in containers or executables, and we mostly wait."""
_CHUNKS: Final = 8
"""Pieces of work for each process, so that none waits long for the last one."""

Definitions = Sequence[Mapping[str, Any]]
"""CustomResourceDefinitions that resources are validated against besides those in their package."""


@contextmanager
def open_pipelines(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Definitions = (),
    processes: int | None = None,
) -> Iterator[RunPipelines]:
    """Yield what runs the pipelines of packages by a policy; end what that started.

    Deterministic: each package is rendered by itself, and the results come in the order of the
    packages, however many processes there are. `cache` is a directory where results are kept;
    `processes` how many may work at a time, by default one for each core.
    """
    rendered = RenderedPackages(cache and cache / "packages", policy, definitions)
    with ExitStack() as stack:
        team = _Team(_Settings(policy, cache, definitions), processes or _cores(), stack)

        def run(packages: Sequence[Files]) -> list[PipelineResult]:
            found = [rendered.find(files) for files in packages]
            missing = [files for files, known in zip(packages, found, strict=True) if known is None]
            made = iter(team.run(missing))
            results = [known or next(made) for known in found]
            for files, known, result in zip(packages, found, results, strict=True):
                if known is None:
                    rendered.keep(files, result)
            return results

        yield run
    rendered.prune()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


@dataclass(frozen=True, slots=True)
class _Settings:
    """What runtimes are made of, in whichever process."""

    policy: FunctionPolicy
    cache: Path | None
    definitions: Definitions


@dataclass(frozen=True, slots=True)
class _Change:
    """A result on its way between processes: without the files that stay."""

    result: PipelineResult
    changed: Mapping[str, File]
    removed: frozenset[str]

    def made_of(self, before: Files) -> PipelineResult:
        """Return the result of the package that was given."""
        if not self.changed and not self.removed:
            return replace(self.result, files=before)
        kept = {path: file for path, file in before.items() if path not in self.removed}
        return replace(self.result, files={**kept, **self.changed})


class _Team:
    """This process, and where there is enough to do some that are made from it."""

    def __init__(self, settings: _Settings, processes: int, stack: ExitStack) -> None:
        self._settings = settings
        self._processes = processes
        self._stack = stack
        self._runtimes: tuple[FunctionRuntime, ...] | None = None

    def run(self, packages: Sequence[Files]) -> Iterator[PipelineResult]:
        """Yield the result of each package, in their order."""
        done = 0
        if self._is_worth_it(len(packages)):
            for done, change in enumerate(self._side_by_side(packages), 1):
                yield change.made_of(packages[done - 1])
        for files in packages[done:]:
            yield self._alone(files)

    def _is_worth_it(self, count: int) -> bool:
        """Tell whether to fork: only where no thread could hold a lock for ever in the copy."""
        policy = self._settings.policy
        least = _LEAST_OUTSIDE if policy.container.engine or policy.exec else _LEAST
        alone = self._processes < 2 or threading.active_count() > 1  # noqa: PLR2004 - a second one
        return count >= least and not alone and sys.platform == "linux"

    def _alone(self, files: Files) -> PipelineResult:
        if self._runtimes is None:
            settings = self._settings
            runtimes = open_runtimes(settings.policy, settings.cache, settings.definitions)
            self._runtimes = self._stack.enter_context(runtimes)
        return run_pipeline(files, self._runtimes, self._settings.policy)

    def _side_by_side(self, packages: Sequence[Files]) -> Iterator[_Change]:
        """Yield what processes make of the packages; it ends early where one is killed from outside."""
        import multiprocessing  # noqa: PLC0415 - slow to import, and only for many packages
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as above
        from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - as above

        context = multiprocessing.get_context("fork")
        free = context.BoundedSemaphore(max(1, self._settings.policy.container.parallel))
        count = min(self._processes, len(packages))
        given = (self._settings, free, packages)
        pieces = max(1, len(packages) // (count * _CHUNKS))
        with ProcessPoolExecutor(count, context, _begin, given) as pool, suppress(BrokenProcessPool):
            yield from pool.map(_render, range(len(packages)), chunksize=pieces)


_begun: list[tuple[Sequence[Files], FunctionPolicy, tuple[FunctionRuntime, ...]]] = []
"""What a process of a team works on, once it has begun; empty in every other process."""
_open: Final = ExitStack()


def _begin(settings: _Settings, free: Free, packages: Sequence[Files]) -> None:
    runtimes = open_runtimes(settings.policy, settings.cache, settings.definitions, free)
    _begun.append((packages, settings.policy, _open.enter_context(runtimes)))


def _render(number: int) -> _Change:
    ((packages, policy, runtimes),) = _begun
    files = packages[number]
    result = run_pipeline(files, runtimes, policy)
    changed = changed_files(files, result.files) if result.files is not files else {}
    removed = frozenset(files.keys() - result.files.keys())
    return _Change(replace(result, files={}), changed, removed)
