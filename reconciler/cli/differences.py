"""`--diff` and `--html`: a plan or a proposed change as patches on the terminal, or as one page."""

import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from reconciler.base.errors import UsageError
from reconciler.base.progress import current_display, open_task
from reconciler.base.redact import Redactor
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural, terminal
from reconciler.cli.output import Printer, require_readable
from reconciler.plan.changes import Change, Op
from reconciler.plan.chart_values import template_of
from reconciler.plan.compare import WITHDRAW
from reconciler.report.build import (
    change_order,
    common_text,
    detail,
    equal_differences,
    general_text,
    names_text,
    sorted_changes,
    variant_set,
)
from reconciler.report.console import plain
from reconciler.report.diff import MOST_TEXT, package_patch
from reconciler.run.check import CheckResult
from reconciler.run.differences import is_deletion, read_sides
from reconciler.run.plan import PlannedRun
from reconciler.run.queries import read_origins, trace_variant

if TYPE_CHECKING:
    from reconciler.report.html import Page
_MOST_VALUES = 20
"""Changed values of charts that a difference lists; more than these are counted."""

_MOST_IN_COMMENT = 50
"""Packages with files in the comment of a check."""

diff_option = click.option(
    "--diff", "shows_diff", is_flag=True, help="Print the differences of files; `git apply` takes them."
)

html_option = click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report as one HTML page to this file.",
)


def write_page(path: Path, report: "Page") -> None:
    """Write the page of a report; the environment gives secrets to mask."""
    from reconciler.report.html import html_page

    with open_task("writing the page"):
        text = html_page(report, Redactor.of_environment(os.environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def select_changes(planned: PlannedRun, texts: Sequence[str]) -> list[Change]:
    """Return the changes of the packages that the texts name, in the order of reports.

    A text is `REPO/PACKAGE`, a pattern of it, or a set as `NAME` or `NAMESPACE/NAME`.

    Raises:
        UsageError: A text names no package and no set.
        UnavailableError: The repository that it names could not be read.
    """
    changes = sorted_changes(planned.plan)
    names = {change.package: _names(planned, change) for change in changes}
    every = {name for aliases in names.values() for name in aliases}
    for text in texts:
        if not any(fnmatchcase(name, text) for name in every):
            require_readable(planned.inputs.inventory, [text])
            hint = suggest(text, every, otherwise="`reconciler status` shows every package.")
            raise UsageError(f"The fleet has no package and no PackageVariantSet {text}", hint=hint)
    return [c for c in changes if any(fnmatchcase(n, text) for n in names[c.package] for text in texts)]


def _names(planned: PlannedRun, change: Change) -> set[str]:
    """Return the names of a package: its own, that with its whole path, and those of its set."""
    names = {planned.names.of(change), f"{change.repository.name}/{change.package.path}"}
    if change.variant is not None and planned.plan.context is not None:
        key = variant_set(change.variant, planned.plan.context)
        names |= {key, key.partition("/")[2]} if key else set()
    return names


def changed_files(planned: PlannedRun) -> list[Change]:
    """Return the changes of a plan that write or remove files, in the order of reports."""
    return [c for c in sorted_changes(planned.plan) if c.written is not None or is_deletion(c)]


def show_differences(
    printer: Printer, planned: PlannedRun, changes: Sequence[Change], *, unfolded: bool = False
) -> None:
    """Print the patch of each change, through the pager on a terminal; equal ones once unless `unfolded`."""
    lines = _lines(printer, planned, changes, unfolded=unfolded)
    if not sys.stdout.isatty():
        for line in lines:
            printer.lines([line])
        return
    os.environ.setdefault("LESS", "FRX")
    with current_display().paused():  # the pager has the terminal
        click.echo_via_pager((f"{printer.redactor.text(line)}\n" for line in lines), color=printer.is_colored)


def show_check_differences(printer: Printer, checked: CheckResult) -> None:
    """Print what merging a proposed change does to the files of packages, if packages were compared."""
    if checked.proposed is None:
        printer.lines(["# Packages were not compared."])
        return
    show_differences(printer, checked.proposed, _check_changes(checked))


def _check_changes(checked: CheckResult) -> list[Change]:
    # What a draft that ends would have changed is not what merging does.
    changes = (d.change for d in checked.comparison.packages if d.what not in (WITHDRAW, Op.CLOSE))
    return sorted(changes, key=change_order)


def check_difference(printer: Printer, checked: CheckResult) -> str:
    """Return what merging does to files as lines of a patch, as much as fits a comment; "" for nothing."""
    if checked.proposed is None or not checked.comparison.packages:
        return ""
    changes, room = _check_changes(checked)[:_MOST_IN_COMMENT], MOST_TEXT
    lines: list[str] = []
    for line in _lines(replace(printer, paint=plain), checked.proposed, changes, unfolded=False):
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*lines, "# and more: reconciler check --diff"])
        lines.append(line)
    return "\n".join(lines)


def _lines(
    printer: Printer, planned: PlannedRun, changes: Sequence[Change], *, unfolded: bool
) -> Iterator[str]:
    """Yield for each distinct difference a comment with its packages, and the patch of the first of them."""
    groups = [[c] for c in changes] if unfolded else equal_differences(changes)
    firsts = [group[0] for group in groups]
    is_shown = False
    for group, sides in zip(groups, read_sides(firsts, planned.plan, planned.inputs), strict=True):
        change = sides.change
        # Equal files may have other reasons, such as what each cluster would answer.
        clauses = zip(*(general_text(detail(c), c, planned.names).split("; ") for c in group), strict=False)
        general = "; ".join(first for first, *more in takewhile(lambda same: len({*same}) == 1, clauses))
        about = common_text(map(detail, group), general)
        # Where nothing happens, its difference is that of the draft in review.
        what = "in review" if change.op == "keep" else change.op
        text = "; ".join(filter(None, (f"{what} {names_text(group, planned.names)}", about)))
        patch = package_patch(
            change.package.path,
            sides.before,
            sides.after,
            name=planned.names.of(change),
            paint=printer.paint,
            values=sides.secrets,
        )
        body = [f"# not read: {terminal(sides.unread)}"] if sides.unread else list(patch)
        if body:
            is_shown = True
            yield f"# {terminal(text)}"
            yield f"# in {terminal(planned.inputs.inventory.views[change.repository].remote)}"
            if any(map(template_of, sides.after.values())):
                yield from _value_lines(planned, change)
            yield from body
    if not is_shown:
        yield "# No file of a package changes."


def _value_lines(planned: PlannedRun, change: Change) -> Iterator[str]:
    """Yield the values of its charts that a change changes, each with its origin."""
    origins, _ = read_origins(planned, change, trace_variant(planned, change))
    changed = [origin for origin in origins if not origin.file and origin.field.startswith(".")]
    for value in changed[:_MOST_VALUES]:
        source = f"{value.source} ({value.location})" if value.location else value.source
        yield f"# {terminal(value.field)}: {terminal(value.value)}, from {terminal(source)}"
    if len(changed) > _MOST_VALUES:
        yield f"# and {plural(len(changed) - _MOST_VALUES, 'changed value')} more"
