"""What our commits say: Porch's titles and the `kpt:` line that names package, workspace and revision."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TITLES = {
    "init": "Creating new empty revision",
    "clone": "Creating new revision by cloning",
    "edit": "Creating new revision by copying previous revision",
    "upgrade": "Upgrading revision",
    "render": "Rendering package",
    "": "Intermediate commit",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """The `kpt:` line of a commit: advisory, never evidence of ownership."""

    package: str
    workspace: str = ""
    revision: str = ""
    task: Mapping[str, Any] | None = None


def commit_title(task: str) -> str:
    """Return the title that Porch gives a commit for a kind of task.

    Source: porch pkg/externalrepo/git, commit messages by task type.
    """
    return _TITLES.get(task) or f"Intermediate commit: {task}"


def clone_task(upstream: str) -> Mapping[str, Any]:
    """Return the task of a clone from the package revision with this object name."""
    return {"type": "clone", "clone": {"upstreamRef": {"upstreamRef": {"name": upstream}}}}


def annotation_line(annotation: Annotation) -> str:
    """Return the `kpt:` line: compact JSON, Porch's key order, empty fields left out. Deterministic."""
    fields = {
        "package": annotation.package,
        "workspaceName": annotation.workspace,
        "revision": annotation.revision,
        "task": annotation.task,
    }
    given = {key: value for key, value in fields.items() if value}
    return "kpt:" + json.dumps(given, separators=(",", ":"), ensure_ascii=False)


def annotated_message(title: str, annotation: Annotation, body: str = "") -> str:
    """Return a commit message as Porch writes one: title, two blank lines, the annotation.

    A body stands between; it may not begin a line with `kpt:`, which is quoted if it does.
    """
    safe = "\n".join(f" {line}" if line.startswith("kpt:") else line for line in body.splitlines())
    middle = f"\n{safe}\n" if safe else "\n"
    return f"{title}\n{middle}\n{annotation_line(annotation)}\n"


def approve_message(path: str, workspace: str, revision: int) -> str:
    """Return the message of the commit that publishes a revision."""
    line = annotation_line(Annotation(path, workspace, str(revision)))
    return f"Approving package revision {path}/{revision}\n\n{line}\n"


def delete_message(path: str) -> str:
    """Return the message of the commit that removes a package from main."""
    return f"Delete {path}\n"


def parse_annotations(message: str) -> tuple[Annotation, ...]:
    """Return the annotations of a commit message in their order; malformed ones are left out. Total."""
    found = []
    for line in message.splitlines():
        if line.startswith("kpt:"):
            try:
                fields = json.loads(line.removeprefix("kpt:"))
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                found.append(_annotation(fields))
    return tuple(found)


def _annotation(fields: Mapping[str, Any]) -> Annotation:
    package, workspace, revision = (
        str(fields.get(k) or "") for k in ("package", "workspaceName", "revision")
    )
    task = fields.get("task")
    return Annotation(package, workspace, revision, task if isinstance(task, dict) else None)
