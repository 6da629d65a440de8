"""`index sync` and `index missing`: fill the index from registries, and name what it lacks."""

from collections.abc import Iterable

import click

from reconciler.base.errors import Exit, worst
from reconciler.base.reasons import Reason
from reconciler.base.text import plural
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    make_printer,
    output_options,
    show_files,
    writing_control_options,
)
from reconciler.dependencies.catalog.index import MissingPackage
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.names.problems import Problem
from reconciler.report.json import listing
from reconciler.report.text import effect_line, problem_lines
from reconciler.run.index import SyncOptions, find_missing_packages, sync_index
from reconciler.run.options import RunOptions
from reconciler.sources.sync import SyncResult

_SYNC = "`reconciler index sync`"


@click.command()
@writing_control_options
@click.option("--all", "every", is_flag=True, help="Take every version of packages that anything needs.")
@click.option("--check-tags", is_flag=True, help="Also ask whether tags of versions in the index moved.")
@click.option(
    "--pull-request", is_flag=True, help="Propose them, and newer charts: a pull request for each source."
)
@output_options(Output.TEXT, Output.JSON)
def sync(settings: RunOptions, output: str, *, every: bool, check_tags: bool, pull_request: bool) -> Exit:
    r"""Bring the versions that something needs into the index.

    It is the only command that reads registries. It starts from what installs and the versions in the index
    need, and from PackageRepository manifests, committed or not, and follows the needs of what it finds. It
    takes the tags in the ranges that anything asks for, and pulls of each image only the layer or
    configuration that describes the package, verified by its digest. Versions that are there are not asked
    for again. Nothing is committed: review what changed, and commit it. With --pull-request the versions that
    the default branch lacks are proposed instead, in one pull request for each registry, package repository
    or Git repository; its text tells what each cluster would choose. Newer charts are proposed too: one pull
    request for each package that `package from-chart` made, in its own repository, within the range that was
    given there.

    Credentials are those of `docker login` and of spec.credentials; limits and mirrors are in
    spec.registries. Exits 3 if something is wrong, 5 if a registry does not answer; everything else is
    written all the same.

    \b
    Examples:
      reconciler index sync
      reconciler index sync --all
      reconciler index sync --pull-request         in a scheduled job
      reconciler index sync --check-tags           once a day: a tag list does not tell that a tag moved
    """
    chosen, printer = SyncOptions(every, check_tags), make_printer()
    if pull_request:
        from reconciler.run.index_proposals import propose_versions

        proposed = propose_versions(settings, chosen)
        _show_result(printer, proposed.result, is_idle=proposed.is_idle)
        requests = plural(proposed.requests, "request")
        lines = [f"{change.package.path}: {change.message}" for change in proposed.changes if change.message]
        lines += (effect_line(effect, paint=printer.paint) for effect in proposed.outcome.effects)
        charts = f" and {plural(proposed.charts, 'chart')}" if proposed.charts else ""
        count = f"{plural(len(proposed.result.versions), 'version')}{charts}"
        show_files(
            printer, output, [*lines, f"{count} to propose, with {requests} to registries"], written=()
        )
        waits = {Exit.WAITING} if any(change.waits for change in proposed.changes) else set()
        return worst({_exit_of(proposed.result.problems), *proposed.outcome.exits, *waits})
    done = sync_index(settings, chosen)
    _show_result(printer, done.result, is_idle=done.result.is_idle)
    result = done.result
    names = {version.candidate.id for version in result.versions}
    lines = [f"added {version.candidate.id} {version.candidate.version}" for version in result.versions]
    count, packages = plural(len(result.versions), "version"), plural(len(names), "package")
    requests = plural(done.requests, "request")
    lines.append(f"{count} of {packages} added, with {requests} to registries")
    show_files(printer, output, lines, written=done.written)
    return _exit_of(result.problems)


def _show_result(printer: Printer, result: SyncResult, *, is_idle: bool) -> None:
    nothing = ["No manifest and no index entry needs a package of a registry"] if is_idle else []
    printer.lines(problem_lines(result.problems), err=True)
    printer.notes([*result.notes, *nothing])


def _exit_of(problems: Iterable[Problem]) -> Exit:
    reasons = {problem.reason for problem in problems}
    if Reason.DEFECT in reasons:
        return Exit.BUG
    if reasons - {Reason.REPOSITORY_UNAVAILABLE}:
        return Exit.INVALID_INPUT
    return Exit.UNAVAILABLE if reasons else Exit.DONE


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
def missing(settings: RunOptions, output: str) -> Exit:
    r"""Name all packages and versions that installs lack.

    Manifests and index are read as they are on disk. Exits 3 if something is missing.

    \b
    Example:
      reconciler index missing
    """
    lacking = find_missing_packages(settings)
    printer = make_printer()
    printer.lines(problem_lines(lacking.problems), err=True)
    if output == Output.JSON:
        printer.value(listing("MissingPackage", map(_value, lacking.packages)))
    else:
        lines = [line for package in lacking.packages for line in _lines(package)]
        none = "No package is missing." if lacking.installs else "No manifest asks for a package."
        printer.lines([*lines, *_steps(lacking.packages)] or [none])
    return Exit.INVALID_INPUT if lacking.packages or lacking.problems else Exit.DONE


def _lines(package: MissingPackage) -> Iterable[str]:
    others = ", other versions of it are known" if package.is_known else ""
    yield f"{package}{others}"
    yield f"  needed by {', '.join(package.needed_by)}"


def _steps(packages: Iterable[MissingPackage]) -> Iterable[str]:
    """Yield the commands that bring packages, by where their ecosystem keeps them."""
    ecosystems = {package.id.ecosystem for package in packages}
    if ecosystems & {Ecosystem.XPKG, Ecosystem.BUNDLE}:
        yield f"{_SYNC} brings them from their registries, `reconciler index import PATH` from files."
    if Ecosystem.CARVEL in ecosystems:
        repository = "of a PackageRepository among the manifests"
        yield f"{_SYNC} brings packages of Carvel {repository}, `reconciler index import PATH` from files."
    if Ecosystem.KPT in ecosystems:
        yield "Packages of kpt are published by a tag in their repository, with a package.yaml."


def _value(package: MissingPackage) -> dict[str, object]:
    return {
        "package": str(package.id),
        "range": package.range.text,
        "neededBy": list(package.needed_by),
        "known": package.is_known,
    }
