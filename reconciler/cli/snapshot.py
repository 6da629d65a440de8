"""`snapshot`: what a cluster holds, as files that plans read."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.output import make_printer
from reconciler.errors import Exit, UsageError

if TYPE_CHECKING:
    from reconciler.read.snapshot_import import KindCount


@click.group()
def snapshot() -> None:
    """Turn cluster objects into the snapshot that plans read."""


@snapshot.command("import")
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory of the snapshot, in a working copy of the control repository.",
)
@click.option("--cluster", default="", help="Name of the cluster.  [default: as before]")
@click.option("--kinds", default="", help="What was asked for, as kubectl takes it: Kind.group,Kind.group,…")
@click.option("--namespace", "-n", default="", help="The one namespace that was listed.  [default: all]")
@click.option("--partial", is_flag=True, help="A selector left objects out: absence means nothing.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME=VERSION",
    help="Version of kubernetes, crossplane or kapp-controller; repeatable.",
)
@click.option("--time", "taken", default="", help="When the objects were listed.  [default: now]")
@click.option(
    "--api-resources",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Output of `kubectl api-resources`, so that it is known which kinds the cluster serves.",
)
def import_(
    files: tuple[str, ...],
    output: Path,
    *,
    cluster: str,
    kinds: str,
    namespace: str,
    partial: bool,
    platforms: tuple[str, ...],
    taken: str,
    api_resources: Path | None,
) -> Exit:
    r"""Write what `kubectl get -A -o json|yaml` prints into the layout of a snapshot.

    Each imported kind is replaced whole: an object that is not in the input is gone. Name the kinds
    with --kinds, so that one without objects is known to be empty. Data of Secrets, managed fields
    and what kubectl applied last are dropped.

    \b
    Example, as a cluster publishes its snapshot:
      kubectl get Cluster.example.com,Repository.config.porch.kpt.dev -A -o json |
        reconciler snapshot import - --output snapshot \
          --kinds Cluster.example.com,Repository.config.porch.kpt.dev
      git add snapshot && git commit -m "Snapshot" && git push
    """
    from reconciler.apply.snapshot import read_directory, write_directory
    from reconciler.policy import Limits
    from reconciler.read.api_resources import NO_RESOURCES, parse_api_resources
    from reconciler.read.snapshot import snapshot_limits
    from reconciler.read.snapshot_import import ImportOptions, parse_kinds, plan_import

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
    planned = plan_import(inputs, read_directory(output), options, snapshot_limits(Limits()))
    write_directory(output, planned)
    printer = make_printer()
    printer.lines(map(_line, planned.counts))
    printer.lines((f"note: {note}" for note in planned.notes), err=True)
    return Exit.DONE


def _versions(platforms: tuple[str, ...]) -> dict[str, str]:
    from reconciler.dependencies.presence import read_platforms

    versions = {name: version for name, _, version in (text.partition("=") for text in platforms)}
    known = {str(name) for name in read_platforms(versions)}
    if unknown := sorted(versions.keys() - known):
        hint = "Write kubernetes=v1.31.0, crossplane=v2.0.1 or kapp-controller=v0.55.0."
        raise UsageError(f"{unknown[0]}={versions[unknown[0]]} is no version of a platform", hint=hint)
    return versions


def _line(one: "KindCount") -> str:
    objects = "1 object" if one.now == 1 else f"{one.now} objects"
    incomplete = "" if one.complete else ", incomplete"
    return f"{one.kind}: {objects} (before: {one.before}){incomplete}"


def _seconds(text: str) -> int:
    from reconciler.read.snapshot import parse_time

    try:
        return parse_time(text) if text else int(time.time())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time", hint="Write 2026-01-31T12:00:00Z.") from error


def _read(name: str) -> tuple[str, bytes]:
    if name == "-":
        return "standard input", sys.stdin.buffer.read()
    try:
        return name, Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
