"""The pipelines of many packages within limits of time: cached results are looked up, others computed."""

import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from reconciler.base.progress import open_task
from reconciler.functions.pipeline import (
    RunPipelines,
    StepLimit,
    declared_steps,
    find_engine,
    may_have_pipeline,
    run_pipeline,
)
from reconciler.functions.protocol import FunctionRuntime
from reconciler.functions.runtimes.container import ContainerRuntime
from reconciler.functions.runtimes.helm import HelmRuntime
from reconciler.functions.runtimes.process import ExecRuntime
from reconciler.functions.runtimes.result_cache import PackageCache
from reconciler.functions.runtimes.schemas import SchemaRuntime
from reconciler.functions.runtimes.starlark import StarlarkRuntime
from reconciler.functions.step import (
    FunctionTimeoutError,
    InvalidPipelineError,
    PipelineResult,
    RunTimeoutError,
    Unrunnable,
)
from reconciler.names.objects import Files
from reconciler.policy import FunctionPolicy, Limits

_SHORTEST_S: Final = 0.001
"""A timer of no time at all would never ring."""


class RunLimit:
    """When the functions of a run must end, for the threads that wait for their processes.

    `ends_s` is a time of the monotonic clock.
    """

    def __init__(self, policy: FunctionPolicy) -> None:
        self.ends_s = math.inf
        self._policy = policy

    def check(self) -> None:
        """Raise RunTimeoutError if the time is over while a function runs."""
        if time.monotonic() >= self.ends_s:
            raise _run_timeout(self._policy, is_running=True)


def limited(policy: FunctionPolicy, ends_s: float = math.inf) -> StepLimit:
    """Return a limit that stops each function after `policy.timeout_s`, and all at `ends_s`.

    `ends_s` is a time of the monotonic clock. What waits for a process, and what computes in this one, is
    stopped by a signal that raises FunctionTimeoutError or RunTimeoutError: the runtimes then end their
    processes. Builtin functions change copies only, so nothing is left half done. In another thread than the
    main one, which gets no signals, only the limits of the runtimes themselves hold.
    """

    @contextmanager
    def limit() -> Iterator[None]:
        remaining_s = ends_s - time.monotonic()
        if remaining_s <= 0:
            raise _run_timeout(policy, is_running=False)
        is_last = remaining_s < policy.timeout_s

        def ring(_number: int, _frame: object) -> NoReturn:
            if is_last:
                raise _run_timeout(policy, is_running=True)
            raise FunctionTimeoutError(f"It was stopped after {policy.timeout_s} s")

        if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
            yield
            return
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, max(_SHORTEST_S, min(remaining_s, policy.timeout_s)))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return limit


def _run_timeout(policy: FunctionPolicy, *, is_running: bool) -> RunTimeoutError:
    limit = f"functions.runTimeout, {policy.run_timeout_s} s"
    message = f"The time of all functions of a run is over ({limit}); the next run goes on"
    return RunTimeoutError(message, is_running=is_running)


Definitions = Sequence[Mapping[str, Any]]
"""CustomResourceDefinitions for validation, besides those in each package."""


@contextmanager
def open_runtimes(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Definitions = (),
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[FunctionRuntime, ...]]:
    """Yield the runtimes of a policy in the order in which they are tried (D11); end their processes.

    `cache` is a directory for the results of containers; what `check` raises ends a function that runs.
    """
    with StarlarkRuntime(policy, check) as starlark, HelmRuntime(policy, check) as helm:
        containers = ContainerRuntime(policy, cache, check)
        yield (starlark, helm, SchemaRuntime(definitions), ExecRuntime(policy, check), containers)


@contextmanager
def open_pipelines(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Definitions = (),
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Iterator[RunPipelines]:
    """Yield a function that runs the pipelines of packages; end its processes.

    Deterministic: each package is rendered by itself, and the results come in the order of the packages.
    `cache` is a directory for results, `limits` bound what functions make.
    """
    cached = PackageCache(cache and cache / "packages", policy, definitions, limits)
    spent_s = 0.0
    limit = RunLimit(policy)
    with open_runtimes(policy, cache, definitions, limit.check) as runtimes:

        def run(packages: Sequence[Files]) -> list[PipelineResult]:
            nonlocal spent_s
            hits = [
                cached.find(files) if may_have_pipeline(files) else run_pipeline(files) for files in packages
            ]
            missing = _fairly(packages, (number for number, hit in enumerate(hits) if hit is None), cached)
            begun = time.monotonic()
            limit.ends_s = begun + max(0.0, policy.run_timeout_s - spent_s)
            with open_task("running functions", len(missing)) as task:

                def render(number: int) -> PipelineResult:
                    step_limit = limited(policy, limit.ends_s)
                    result = run_pipeline(packages[number], runtimes, policy, step_limit, limits=limits)
                    task.advance()
                    return result

                done = _render_all(packages, missing, render, policy, limit)
            spent_s += time.monotonic() - begun
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
    rendered for ever. The order decides about nothing else. Packages of one upstream, by their largest file,
    come one after another: what is loaded of it is loaded once.
    """
    shuffled = list(numbers)
    random.shuffle(shuffled)
    largest = {n: max(packages[n].values(), key=lambda file: len(file.data)).oid for n in shuffled}
    turns = {oid: turn for turn, oid in enumerate(largest.values())}
    return sorted(shuffled, key=lambda number: (cached.is_slow(packages[number]), turns[largest[number]]))


def _render_all(
    packages: Sequence[Files],
    numbers: Sequence[int],
    render: Callable[[int], PipelineResult],
    policy: FunctionPolicy,
    limit: RunLimit,
) -> dict[int, PipelineResult]:
    """Render packages by their numbers: those that wait for executables or containers side by side."""
    waiting = [number for number in numbers if _waits(packages[number], policy)]
    with ThreadPoolExecutor(max(1, policy.parallel), "functions") as pool:
        try:
            futures = {number: pool.submit(render, number) for number in waiting}
            here = {number: render(number) for number in numbers if number not in futures}
            return here | {number: future.result() for number, future in futures.items()}
        except BaseException:
            limit.ends_s = -math.inf  # what runs ends, and nothing begins any more
            pool.shutdown(cancel_futures=True)
            raise


def _waits(files: Files, policy: FunctionPolicy) -> bool:
    if not policy.runtime and not policy.exec:
        return False
    try:
        steps = declared_steps(files)
    except InvalidPipelineError:
        return False
    return any(isinstance(find_engine(step, (), policy), Unrunnable) for step in steps)
