"""Packages that arguments name: `REPO/PACKAGE`, patterns, and PackageVariantSets."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from reconciler.base.errors import UsageError
from reconciler.cli.output import require_readable

if TYPE_CHECKING:
    from reconciler.plan.changes import Change
    from reconciler.run.plan import PlannedRun


def find_change(planned: "PlannedRun", package: str) -> "Change":
    """Return the change of the package that a text names.

    Raises:
        UsageError: The plan has no such package.
        UnavailableError: Its repository could not be read.
    """
    from reconciler.base.suggestions import suggest

    names = planned.names
    for change in planned.plan.changes:
        if package in (names.of(change), f"{change.repository.name}/{change.package.path}"):
            return change
    require_readable(planned.inputs.inventory, [package])
    names_in_plan = [names.of(change) for change in planned.plan.changes]
    hint = suggest(package, names_in_plan, otherwise="`reconciler status` shows every package.")
    if problem := next(iter(planned.plan.problems), None):
        # A manifest that nobody can parse names no package: it may be this one's.
        hint += f" Or mend its manifest: {problem}."
    raise UsageError(f"The plan has no package {package}", hint=hint)


def select_changes(planned: "PlannedRun", texts: Sequence[str]) -> "list[Change]":
    """Return the changes of the packages that the texts name, in the order of reports.

    A text is `REPO/PACKAGE`, a pattern of it, or a set as `NAME` or `NAMESPACE/NAME`.

    Raises:
        UsageError: A text names no package and no set.
        UnavailableError: The repository that it names could not be read.
    """
    from reconciler.base.suggestions import suggest
    from reconciler.report.summary import sorted_changes

    changes = sorted_changes(planned.plan)
    names = {change.package: set(change_names(planned, change)) for change in changes}
    every = {name for own in names.values() for name in own}
    for text in texts:
        if not any(fnmatchcase(name, text) for name in every):
            require_readable(planned.inputs.inventory, [text])
            hint = suggest(text, every, otherwise="`reconciler status` shows every package.")
            raise UsageError(f"The fleet has no package and no PackageVariantSet {text}", hint=hint)
    return [c for c in changes if any(fnmatchcase(n, text) for n in names[c.package] for text in texts)]


def change_names(planned: "PlannedRun", change: "Change") -> Iterator[str]:
    """Yield the names of a package: its own, that with its whole path, and those of its set."""
    yield planned.names.of(change)
    yield f"{change.repository.name}/{change.package.path}"
    if key := change_set(planned, change):
        yield key
        yield key.partition("/")[2]


def change_set(planned: "PlannedRun", change: "Change") -> str:
    """Return the PackageVariantSet of a package as `NAMESPACE/NAME`, "" for none."""
    from reconciler.plan.overview import variant_set

    if change.variant is None or planned.plan.context is None:
        return ""
    return variant_set(change.variant, planned.plan.context)
