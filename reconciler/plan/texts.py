"""Sentences of changes, made from their facts."""

from collections.abc import Sequence

from reconciler.base.text import Text, plural, verb
from reconciler.plan.changes import Change, Unfinished
from reconciler.render.update import Conflict

_MAX_FILES = 3


def asked_text(conflicts: Sequence[Conflict]) -> str:
    """Return what open conflicts ask of a person, "" for none."""
    if not conflicts:
        return ""
    files = sorted({note.path for note in conflicts})
    listed = ", ".join(files[:_MAX_FILES]) + (
        f" and {plural(len(files) - _MAX_FILES, 'more file')}" if len(files) > _MAX_FILES else ""
    )
    number = len(conflicts)
    if not any(note.name for note in conflicts):  # on main, where nothing can be kept
        stays = f"{verb(number, 'stays', 'stay')} as people set {verb(number, 'it', 'them')}"
        ways = "Restore the file on main, remove its first line to make it yours, or declare the package"
        return f"{plural(number, 'generated value')} in {listed} {stays}. {ways}"
    them = verb(number, "it", "them")
    return f"{plural(number, 'conflict')} in {listed}: answer {them} in the pull request"


def missing_text(change: Change, missing: Unfinished) -> Text:
    """Return what an effect that was not done means for the package."""
    return missing.message or f"Not applied yet: {change.op} ({change.reason})"
