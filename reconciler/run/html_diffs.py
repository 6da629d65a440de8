"""Differences for the HTML report: of every package that changes or has an open draft, equal ones once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.base.wording import plural
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, values_in_secrets
from reconciler.names.ids import PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change
from reconciler.plan.impact import Impact, ImpactReader
from reconciler.render.update.three_way import file_text, is_text
from reconciler.report.diff import binary_note
from reconciler.report.folding import equal_differences
from reconciler.report.html import FileDiff, PackageDiff
from reconciler.report.patch import package_patch
from reconciler.run.differences import PackageSides, is_deletion, is_removed, open_draft, read_sides
from reconciler.run.plan import PlannedRun

MOST_DIFFS: Final = 400
"""Distinct differences that a page holds; of further packages it names the command that prints them."""
MOST_DRAFTS: Final = 1000
"""Open drafts that this run does not write, and that are read to be compared."""
MOST_LINES: Final = 1500
"""Lines of one file."""
MOST_TEXT: Final = 1_000_000
"""Characters of all files together; a file that is equal in several differences counts once."""


class Differences(NamedTuple):
    """The distinct differences of a run, and for each package the place of its own."""

    places: Mapping[PackageKey, int]
    diffs: tuple[PackageDiff, ...]


def find_differences(planned: PlannedRun, changes: Iterable[Change]) -> Differences:
    """Return the differences of packages.

    Reads what mirrors lack. Of equal differences the first package's is read, as it is in `plan --diff`.
    """
    written, drafts = [], []
    for change in changes:
        if change.written is not None or is_deletion(change):
            written.append(change)
        elif is_removed(change) or open_draft(change, planned.plan) is not None:
            drafts.append(change)
    compared = drafts[:MOST_DRAFTS]
    groups = equal_differences([*written, *compared], dict(_impacts(planned, compared)))[:MOST_DIFFS]
    places = {change.package: place for place, group in enumerate(groups) for change in group}
    writer = _Writer(planned)
    firsts = [group[0] for group in groups]
    sides = read_sides(firsts, planned.plan, planned.inputs)
    diffs = tuple(writer.diff(side, len(group)) for side, group in zip(sides, groups, strict=True))
    return Differences(places, diffs)


def _impacts(planned: PlannedRun, drafts: Sequence[Change]) -> Iterator[tuple[PackageKey, Impact]]:
    """Yield the differences of drafts from main, by which equal ones are found."""
    reader = ImpactReader(planned.inputs.inventory.policy.risks)
    for side in read_sides(drafts, planned.plan, planned.inputs):
        if not side.unread:
            yield side.change.package, reader.impact(side.before, side.after, side.change.own_names)


class _Writer:
    """Writes differences as long as they fit the page."""

    def __init__(self, planned: PlannedRun) -> None:
        self._names = planned.names
        self._room = MOST_TEXT
        self._seen: set[str] = set()

    def diff(self, sides: PackageSides, count: int) -> PackageDiff:
        name = self._names.of(sides.change)
        if sides.unread:
            return PackageDiff(name, count, (), f"Not read: {sides.unread}")
        return PackageDiff(name, count, tuple(self._files(name, sides)))

    def _files(self, name: str, sides: PackageSides) -> Iterator[FileDiff]:
        before, after = sides.before, sides.after
        values = values_in_secrets(before, after)
        # A Kptfile is last, as in pull requests: it repeats the revision.
        for path in sorted(before.keys() | after.keys(), key=lambda path: (path == KPTFILE, path)):
            if before.get(path) == after.get(path):
                continue
            file = file_diff(path, before, after, values)
            if file.hunks in self._seen or len(file.hunks) <= self._room:
                self._room -= 0 if file.hunks in self._seen else len(file.hunks)
                self._seen.add(file.hunks)
                yield file
            else:
                note = f"Does not fit this page: reconciler plan --diff {name}"
                yield file._replace(hunks="", note=note)


def file_diff(path: str, before: Files, after: Files, values: SecretValues = NO_SECRET_VALUES) -> FileDiff:
    """Return the difference of one file, as `plan --diff` prints it, without these values of Secrets. Pure.

    A Secret and a file that is not text have a note in place of their lines.
    """
    old, new = before.get(path), after.get(path)
    action = "new" if old is None else "removed" if new is None else ""
    sides = ({path: side} if side else {} for side in (old, new))
    lines = list(package_patch("", *sides, values=values))
    if lines[0].startswith("#"):
        lines = [line.removeprefix("# ") for line in lines[1:]]
        if not lines:
            return FileDiff(path, action, 0, 0, note="A file that may hold a Secret is not shown.")
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    hunks = lines[start:]
    added, removed = (sum(line.startswith(sign) for line in hunks) for sign in "+-")
    if not hunks:
        note = "Empty, or only its mode changes."
        if not all(map(is_text, filter(None, (old, new)))):
            binary = binary_note(old, new) if old and new else file_text(new or old) or ""
            note = f"{binary[0].upper()}{binary[1:]}."
        elif "GIT binary patch" in lines:
            note = "Not shown: it has control characters."
        return FileDiff(path, action, 0, 0, note=note)
    more = len(hunks) - MOST_LINES
    note = f"{plural(more, 'further line')} left out." if more > 0 else ""
    return FileDiff(path, action, added, removed, "\n".join(hunks[:MOST_LINES]), note)
