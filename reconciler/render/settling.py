"""Find the function of a pipeline that changes its own output (D32).

A value that a merge takes from a rendered upstream is rendered again. Where a function changes it again, an
edited file differs from what the author of the package meant, and a warning names the value and the function.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.pipeline import RunPipelines, declared_steps
from reconciler.functions.step import Step
from reconciler.krm.documents import documents_of, edit_document
from reconciler.krm.values import differences
from reconciler.krm.yaml import DeleteItem, YamlError
from reconciler.names.objects import Files


class _ChangedField(NamedTuple):
    path: str
    resource: str
    field: str

    def __str__(self) -> str:
        return f"{self.field} of {self.resource} in {self.path}"


def unsettled_steps(rendered: Sequence[Files], run: RunPipelines) -> list[str]:
    """Return for each rendered package the function and the field that it changes in its own output, or "".

    One more run of each pipeline; where it changes something, each of its functions runs alone.
    """
    again = run(rendered)
    reasons = []
    for files, second in zip(rendered, again, strict=True):
        changed = set(_changed_fields(files, second.files)) if second.ok else set()
        reasons.append(_describe(files, changed, run) if changed else "")
    return reasons


def _describe(files: Files, changed: set[_ChangedField], run: RunPipelines) -> str:
    steps = declared_steps(files)
    try:
        alone = run([_with_one_step(files, steps, step) for step in steps])
    except YamlError:
        alone = ()
    for step, result in zip(steps, alone, strict=False):
        if step_fields := changed.intersection(_changed_fields(files, result.files)):
            return f"{step} changes its own output: {min(step_fields)}"
    return f"The pipeline changes its own output: {min(changed)}"


def _with_one_step(files: Files, steps: Sequence[Step], only: Step) -> Files:
    """Return a package with one function; the later ones of a list go first, so that numbers stay."""
    result = dict(files)
    for step in sorted(steps, key=lambda applied: applied.index, reverse=True):
        if step != only:
            path = f"{step.package}/{KPTFILE}" if step.package else KPTFILE
            result[path] = edit_document(
                result[path], [DeleteItem(("pipeline", str(step.stage), step.index))]
            )
    return result


def _changed_fields(before: Files, after: Files) -> Iterator[_ChangedField]:
    for path in sorted(before):
        file = after.get(path)
        if before[path] == file:
            continue
        old, new = documents_of(before[path]), documents_of(file) if file is not None else ()
        for old_document, right in zip(old, new, strict=False):
            for edit in differences(old_document.data, right.data):
                yield _ChangedField(path, str(old_document.identity), ".".join(map(str, edit.path)))
