"""`snapshot`: what a cluster holds, as files that plans read."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reconciler.base import effects
from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.progress import current_display
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Command,
    Output,
    Printer,
    control_options,
    out_directory_option,
    output_options,
    show_standing,
    show_unread,
)
from reconciler.dependencies.catalog.cluster_inputs import read_platforms
from reconciler.dependencies.model.packages import Platform
from reconciler.git.working_copy import find_working_copy
from reconciler.policy import Limits
from reconciler.read.configuration import FILE, parse_configuration
from reconciler.read.governance import CONFIG_VARIABLE
from reconciler.read.snapshot import parse_time, snapshot_limits
from reconciler.report.machine import document, listing
from reconciler.report.text import problem_lines
from reconciler.run.options import RunOptions
from reconciler.run.queries import find_needed_kinds
from reconciler.workdir.snapshot import (
    NO_RESOURCES,
    ImportOptions,
    SnapshotFiles,
    find_directory,
    parse_api_resources,
    parse_kinds,
    plan_import,
    read_directory,
    write_directory,
)


def _api_resources_option(purpose: str) -> Callable[[Command], Command]:
    return click.option(
        "--api-resources",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"Output of `kubectl api-resources`, {purpose}",
    )


@click.group(cls=CommandGroup)
def snapshot() -> None:
    r"""Turn cluster objects into the snapshot that plans read.

    \b
    Example:
      KINDS=$(reconciler snapshot kinds)
      kubectl get "$KINDS" -A -o json | reconciler snapshot import - --cluster edge-1 --kinds "$KINDS"
    """


@snapshot.command("import")
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@out_directory_option("Directory of the snapshot.  [default: as configured, below it the cluster's]")
@output_options()
@click.option(
    "--cluster", default="", metavar="NAME", help="Name of the cluster that was listed.  [default: as before]"
)
@click.option("--kinds", default="", help="What was asked for, as kubectl takes it: Kind.group,Kind.group,…")
@click.option(
    "--namespace", "-n", default="", metavar="NAME", help="The one namespace that was listed.  [default: all]"
)
@click.option("--partial", is_flag=True, help="A selector left objects out: absence means nothing.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME=VERSION",
    help="Version of kubernetes, crossplane or kapp-controller; repeatable.",
)
@click.option("--time", "taken", default="", help="When the objects were listed.  [default: now]")
@_api_resources_option("so that it is known which kinds the cluster serves.")
def import_(
    files: tuple[str, ...],
    *,
    out: Path | None,
    printer: Printer,
    cluster: str,
    kinds: str,
    namespace: str,
    partial: bool,
    platforms: tuple[str, ...],
    taken: str,
    api_resources: Path | None,
) -> Exit:
    r"""Write the output of `kubectl get -A -o json|yaml` as a snapshot.

    Each imported kind is replaced whole: an object that is not in the input is gone. Name the kinds
    with --kinds, so that one without objects is known to be empty. Data of Secrets, managed fields,
    status that nothing reads and what kubectl applied last are dropped. `reconciler snapshot kinds`
    prints the kinds that this fleet needs.

    \b
    Example, as a cluster publishes its snapshot:
      kubectl get Cluster.example.com,Repository.config.porch.kpt.dev -A -o json |
        reconciler snapshot import - --cluster management \
          --kinds Cluster.example.com,Repository.config.porch.kpt.dev
      git add snapshot && git commit -m "Snapshot" && git push
    """
    resources = parse_api_resources(api_resources.read_text()) if api_resources else NO_RESOURCES
    options = ImportOptions(
        _seconds(taken),
        cluster,
        parse_kinds(kinds, resources),
        namespace,
        partial,
        resources,
        _versions(platforms),
    )
    inputs = [_read(name) for name in files or ("-",)]
    directory = out or find_directory(_configured_directory(), cluster)
    planned = plan_import(inputs, read_directory(directory), options, snapshot_limits(Limits()))
    write_directory(directory, planned)
    if printer.form is Output.JSON:
        printer.value(_import_value(directory, planned))
        return Exit.DONE
    for count in planned.counts:
        incomplete = "" if count.complete else ", incomplete"
        objects = plural(count.now, "object")
        printer.lines([f"{count.kind}: {objects} (before: {count.before}){incomplete}"])
    printer.lines([f"written to {directory}"])
    printer.notes(planned.notes)
    return Exit.DONE


def _configured_directory() -> Path:
    """Return the snapshot directory of the working copy around here, as its configuration has it."""
    copy = find_working_copy(Path.cwd())
    path = os.environ.get(CONFIG_VARIABLE) or FILE
    try:
        data = (copy.root / path).read_bytes() if copy else None
    except OSError:
        data = None
    if copy is None or data is None:
        hint = "Run it in a working copy of the control repository, or name the directory: --out-dir PATH."
        raise UsageError(f"There is no {path} here that says where the snapshot is", hint=hint)
    directory = copy.root / parse_configuration(data, path, os.environ).snapshot.path
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


@snapshot.command()
@control_options
@output_options()
@_api_resources_option("to leave out kinds that the cluster does not serve.")
def kinds(settings: RunOptions, printer: Printer, api_resources: Path | None) -> Exit:
    r"""Print the kinds that this fleet needs from its clusters.

    They are on one line, as kubectl takes them. kubectl refuses the whole line if the cluster lacks one of
    them, such as the Installation of Porter's operator: with --api-resources such kinds are left out.

    These are the kinds that sets select, those that packages want to have injected, and, where
    packages have dependencies, what clusters show of those. What could not be read may need more kinds:
    such manifests (exit 3) and repositories (exit 5) are named, and the line is what is known without
    them. Kinds that only a dependency still to be chosen brings are not known.

    \b
    Example:
      KINDS=$(reconciler snapshot kinds)
      kubectl get "$KINDS" -A -o json | reconciler snapshot import - --cluster edge-1 --kinds "$KINDS"
      kubectl api-resources > served.txt && reconciler snapshot kinds --api-resources served.txt
    """
    needed = find_needed_kinds(settings)
    needed_kinds, is_whole = needed.kinds, not needed.problems and not needed.unread
    if api_resources is not None:
        resources = parse_api_resources(api_resources.read_text())
        left_out = [str(kind) for kind in needed_kinds if not resources.serves(kind)]
        needed_kinds = tuple(kind for kind in needed_kinds if resources.serves(kind))
        if left_out:
            printer.notes([f"Left out, as the cluster does not serve them: {', '.join(left_out)}"])
    if printer.form is Output.JSON:
        printer.value(
            listing("SnapshotKind", ({"group": kind.group, "kind": kind.kind} for kind in needed_kinds))
        )
    elif needed_kinds:
        printer.lines([",".join(map(str, needed_kinds))])
    elif is_whole and not needed.kinds:
        printer.notes(["This fleet needs no snapshot: no set selects objects, and nothing is injected"])
    printer.lines(problem_lines(needed.problems, paint=printer.paint), err=True)
    exits = show_unread(printer, needed.unread)
    show_standing(printer, needed.standing)
    if not is_whole:
        printer.notes(["What could not be read may need kinds that are not listed"])
    return worst(exits | ({Exit.INVALID_INPUT} if needed.problems else set()))


def _versions(platforms: tuple[str, ...]) -> dict[str, str]:
    versions = {name: version for name, _, version in (text.partition("=") for text in platforms)}
    platforms_known = {str(name) for name in read_platforms(versions)}
    if unknown := sorted(versions.keys() - platforms_known):
        otherwise = "Write kubernetes=v1.31.0, crossplane=v2.0.1 or kapp-controller=v0.55.0."
        is_platform = unknown[0] in set(Platform)
        hint = otherwise if is_platform else suggest(unknown[0], Platform, otherwise=otherwise)
        raise UsageError(f"{unknown[0]}={versions[unknown[0]]} is no version of a platform", hint=hint)
    return versions


def _seconds(text: str) -> int:
    try:
        return parse_time(text) if text else int(time.time())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time", hint="Write 2026-01-31T12:00:00Z.") from error


def _read(name: str) -> tuple[str, bytes]:
    if name == "-":
        with current_display().paused(), effects.interruptible():  # a person may type it
            return "standard input", sys.stdin.buffer.read()
    try:
        return name, Path(name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", hint="Name a file, or - for standard input."
        ) from error


def _import_value(directory: Path, planned: SnapshotFiles) -> dict[str, Any]:
    kinds = [
        {
            "group": count.kind.group,
            "kind": count.kind.kind,
            "objects": count.now,
            "before": count.before,
            "complete": count.complete,
        }
        for count in planned.counts
    ]
    value = {"directory": str(directory), "kinds": kinds, "notes": list(planned.notes)}
    return document("SnapshotImport", value)
