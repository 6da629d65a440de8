"""The functions of a package, as the last step of making it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.result import PipelineResult
from reconciler.functions.runtime import FunctionRuntime
from reconciler.objects import tree_id
from reconciler.policy import FunctionPolicy
from reconciler.render.readiness import unmet_gates
from reconciler.render.rendered import Blocked, Package
from reconciler.render.update.ignore import ignored_paths
from reconciler.state import FUNCTIONS


def run_functions(
    made: Package | Blocked, runtimes: Sequence[FunctionRuntime], policy: FunctionPolicy
) -> Package | Blocked:
    """Return the package as its functions leave it.

    Where a function fails, or nobody can run it, the package stays as it was made: people can look
    at it, and it is not ready. What waits for an answer to a conflict is not rendered either.
    """
    if isinstance(made, Blocked) or made.conflicts:
        return made
    result = run_pipeline(made.files, runtimes, policy, hidden=ignored_paths)
    if result.error:
        kind = "cannot run" if result.unrunnable else "failed"
        return replace(made, unready=(f"{FUNCTIONS} {kind}: {_line(result.error)}", *made.unready))
    made = replace(made, warnings=tuple(_warnings(result)))
    if result.files is made.files or dict(result.files) == dict(made.files):
        return made
    unready = unmet_gates(result.files[KPTFILE].data) if KPTFILE in result.files else made.unready
    return replace(made, tree=tree_id(result.files), files=result.files, unready=unready)


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
