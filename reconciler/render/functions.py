"""The functions of a package, as the last step of making it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.step import PipelineResult
from reconciler.objects import Files, tree_id
from reconciler.reasons import Reason
from reconciler.render.readiness import unmet_gates
from reconciler.render.rendered import Blocked, Package
from reconciler.state import FUNCTIONS

Key = TypeVar("Key")


def run_functions(
    made: Mapping[Key, Package | Blocked],
    run: RunPipelines,
    restore: Callable[[Key, Files], Files | Blocked] = lambda _, files: files,
) -> dict[Key, Package | Blocked]:
    """Return packages as their functions leave them, all of them in one go.

    `restore` writes again what no function decides, such as the package context.

    Where a function fails, or nobody can run it, the package stays as it was made: people can look
    at it, and it is not ready. What waits for an answer to a conflict is not rendered either, nor
    what was known without its files.
    """
    waiting = {
        key: package
        for key, package in made.items()
        if isinstance(package, Package) and not package.conflicts and not package.is_known
    }
    results = run([package.files for package in waiting.values()])
    done = zip(waiting.items(), results, strict=True)
    rendered = {key: _rendered(package, result, partial(restore, key)) for (key, package), result in done}
    return {**made, **rendered}


def _rendered(
    made: Package, result: PipelineResult, restore: Callable[[Files], Files | Blocked]
) -> Package | Blocked:
    if result.changes_protected:
        hint = "Remove the function from the pipeline, or have it select other resources than the Kptfile."
        return Blocked(Reason.PROTECTED_FIELD, _line(result.error), hint)
    if result.error:
        kind = "cannot run" if result.unrunnable else "failed"
        return replace(made, unready=(f"{FUNCTIONS} {kind}: {_line(result.error)}", *made.unready))
    made = replace(made, warnings=tuple(_warnings(result)))
    if result.files is made.files or dict(result.files) == dict(made.files):
        return made
    files = restore(result.files)
    if isinstance(files, Blocked):
        return files
    unready = unmet_gates(files[KPTFILE].data) if KPTFILE in files else made.unready
    return replace(made, tree=tree_id(files), files=files, unready=unready)


def _warnings(result: PipelineResult) -> Iterator[str]:
    """Yield what functions warned of, each with the step that did and the file that it is about."""
    for run in result.steps:
        for each in run.results:
            if each.severity == "warning":
                path = str((each.file or {}).get("path") or "")
                yield _line(f"{run.step}: {each.message}{f' ({path})' if path else ''}")


def _line(text: str) -> str:
    """Return a message as one line: a function's may have many."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
