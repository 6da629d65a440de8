"""`lock`: resolve dependencies and record the pins; `lock hold`, `follow` and `what-if`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    output_options,
    resolving_options,
    show_unread,
)
from reconciler.errors import Exit, RefusedError, UsageError, worst
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.dependencies.model.packages import Candidate
    from reconciler.dependencies.what_if import WhatIfResult
    from reconciler.run.inputs import RunOptions
    from reconciler.run.lock import LockResult, PinRequest


@click.group(invoke_without_command=True)
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.option("--check", is_flag=True, help="Write nothing; exit 10 if a lock would change.")
@click.option("--frozen", is_flag=True, help="Write nothing; exit 4 if a pin would have to change.")
@resolving_options
@click.pass_context
def lock(
    context: click.Context,
    settings: "RunOptions",
    output: str,
    *,
    check: bool,
    frozen: bool,
    no_color: bool,
) -> Exit:
    r"""Choose the version of every package for each cluster, and lock it.

    The lock is on the state branch; with `lock.mode: reviewed` it is in `locks/` of the control
    repository: a working copy gets the files, to be committed, else a pull request is opened.

    Locked versions stay while they fit; clusters with unchanged inputs are not resolved again. A
    conflict is explained with file and line, keeps the old lock, and affects nothing else: exit 3.
    `apply` chooses the same versions and writes the lock with everything else.

    \b
    Examples:
      reconciler lock                      decide, and lock
      reconciler lock --check              is the lock up to date, upstreams too? for pipelines
      reconciler lock --upgrade db.io      take the best version of db.io that fits
      reconciler lock --prune              remove unneeded packages
      reconciler lock what-if db.io@2.0.0  which clusters could take it, and what blocks the others?
    """
    from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS
    from reconciler.run.lock import decide_lock, lock_fleet, read_lock_inputs

    if context.invoked_subcommand:
        return Exit.DONE
    options = settings.resolving
    if frozen and options != DEFAULT_OPTIONS:
        raise UsageError("--frozen contradicts --upgrade, --no-dependencies and --prune")
    if frozen or check:
        locking = decide_lock(read_lock_inputs(settings), options)
        exits = {Exit.PENDING} if check and locking.changed else set()
    else:
        locking = lock_fleet(settings, options)
        exits = set(locking.outcome.exits)
    printer = make_printer(color=not no_color)
    exits |= show_unread(printer, locking.unread)
    show_locking(printer, locking, Output(output))
    if frozen:
        _check_frozen(locking)
    return worst(exits | ({Exit.INVALID_INPUT} if locking.problems else set()))


def _check_frozen(locking: "LockResult") -> None:
    """Refuse a decision that moves a pin.

    Raises:
        RefusedError: A pin would change.
    """
    moved = [scope.cluster for scope in locking.decision.scopes if scope.changes]
    moved += [pin.what for pin in locking.pins]
    if moved:
        hint = "Run `reconciler lock`, and review what changes."
        if locking.pins and locking.reviewed is None:
            # Without a reviewed lock the pin of an upstream moves together with the draft made from it.
            hint = "Run `reconciler apply`: it moves the pins, and drafts the updates."
        raise RefusedError(f"The lock of {', '.join(moved)} would have to change", hint=hint)


@lock.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("name", metavar="[NAMESPACE/]VARIANT")
@click.argument("what", default="", metavar="[REVISION|TAG|BRANCH]")
def hold(settings: "RunOptions", output: str, name: str, what: str, *, no_color: bool) -> Exit:
    r"""Keep the upstream of a variant at one commit, whatever its tag, range or branch comes to mean.

    Without a second word it stays where it is locked now. An older one is a rollback: `apply` drafts
    it. The hold ends with `lock follow`, or when the manifest asks for something else.

    \b
    Examples:
      reconciler lock hold web                     stay here
      reconciler lock hold team-a/web v1.4.0       go back to 1.4.0, and stay there
    """
    from reconciler.run.lock import PinRequest

    return _lock(settings, PinRequest(hold={name: what}), output, no_color=no_color)


@lock.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("names", nargs=-1, required=True, metavar="[NAMESPACE/]VARIANT...")
def follow(settings: "RunOptions", output: str, names: tuple[str, ...], *, no_color: bool) -> Exit:
    r"""Let the upstream of variants follow their tag, range or branch again.

    \b
    Examples:
      reconciler lock follow web
    """
    from reconciler.run.lock import PinRequest

    return _lock(settings, PinRequest(follow=frozenset(names)), output, no_color=no_color)


def _lock(settings: "RunOptions", pinning: "PinRequest", output: str, *, no_color: bool) -> Exit:
    from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS
    from reconciler.run.lock import lock_fleet

    locking = lock_fleet(settings, DEFAULT_OPTIONS, pinning)
    printer = make_printer(color=not no_color)
    exits = show_unread(printer, locking.unread) | locking.outcome.exits
    show_locking(printer, locking, Output(output))
    return worst(exits | ({Exit.INVALID_INPUT} if locking.problems else set()))


def show_locking(printer: "Printer", locking: "LockResult", output: Output) -> None:
    """Print what was decided about every pin, and what was written."""
    from reconciler.report.json import listing, problem_value
    from reconciler.report.locks import lock_lines, lock_values
    from reconciler.report.proposal import pin_line
    from reconciler.report.text import effect_line, problem_lines

    if output is Output.TEXT:
        printer.lines(map(pin_line, locking.pins))
        printer.lines(problem_lines(locking.invalid, paint=printer.paint))
        printer.lines(lock_lines(locking.decision, paint=printer.paint))
        printer.lines(_pin_notes(locking))
        printer.lines(f"wrote {path}" for path in locking.written)
        effects = [effect for effect in locking.outcome.effects if effect.error or locking.reviewed]
        printer.lines(effect_line(effect, paint=printer.paint) for effect in effects)
    else:
        problems = [problem_value(problem) for problem in locking.problems]
        upstreams = [pin._asdict() for pin in locking.pins]
        value = listing("Lock", lock_values(locking.decision))
        printer.value({**value, "upstreams": upstreams, "written": locking.written, "problems": problems})


def _pin_notes(locking: "LockResult") -> Iterator[str]:
    """Yield which pins are not moved yet, or that none is to be moved."""
    from reconciler.report.summary import plural

    if locking.deferred:
        pins = plural(len(locking.deferred), "upstream pin")
        yield f"{pins} not moved yet: the next `apply` moves them with the drafts made from them"
    elif not (locking.pins or locking.decision.scopes or locking.problems):
        yield "No pin changed"


@lock.command(name="what-if")
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("package", metavar="PACKAGE@VERSION")
@click.option(
    "--manifest",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The manifest of that version; else it needs what the highest known version needs.",
)
def what_if(
    settings: "RunOptions", package: str, manifest: Path | None, output: str, *, no_color: bool
) -> Exit:
    r"""Show which clusters could take a version if it were published, and what blocks the others.

    Nothing is written, and nothing moves by itself: `lock --upgrade` moves. Clusters that answer
    alike are listed together.

    \b
    Examples:
      reconciler lock what-if db.io@2.0.0
      reconciler lock what-if x.example.com/acme/aws@v3.0.0 --manifest crossplane.yaml
    """
    from reconciler.dependencies.what_if import what_if as ask
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import resolve_inputs

    inputs = read_inputs(settings)
    printer = make_printer(color=not no_color)
    exits = show_unread(printer, find_unread(inputs.inventory))
    fleet = resolve_inputs(inputs)
    candidates = {
        candidate
        for cluster in fleet.clusters.worlds
        for versions in cluster.catalogue.packages.values()
        for candidate in versions
    }
    candidate = _candidate(package, manifest, candidates)
    results = ask(fleet.clusters.worlds, fleet.locks, candidate)
    if output == Output.JSON:
        printer.value(listing("Prospect", what_if_values(results)))
    else:
        printer.lines(what_if_lines(candidate, results))
    return worst(exits)


def _candidate(package: str, manifest: Path | None, candidates: set["Candidate"]) -> "Candidate":
    """Return the version that is asked about.

    Raises:
        UsageError: It is no version of a known package, or its manifest is not understood.
    """
    from reconciler.dependencies.versions import VersionError
    from reconciler.dependencies.what_if import hypothetical_version

    name, at, version = package.rpartition("@")
    versions = [
        candidate
        for candidate in candidates
        if name in (candidate.id.name, str(candidate.id), *candidate.names)
    ]
    if not at or not versions:
        hint = "Write PACKAGE@VERSION, the name as `reconciler lock` prints it, without ecosystem."
        raise UsageError(f"No package is called {name or package}", hint=hint)
    try:
        imagined = hypothetical_version(versions, version)
    except (VersionError, ValueError) as error:
        raise UsageError(f"{package} is not one version of one package: {error}") from error
    return _read(manifest, imagined) if manifest else imagined


def _read(manifest: Path, like: "Candidate") -> "Candidate":
    from reconciler.dependencies.what_if import read_hypothetical
    from reconciler.errors import Location
    from reconciler.inventory import Source
    from reconciler.policy import Limits
    from reconciler.read.documents import parse_file, yaml_limits

    parsed = parse_file(str(manifest), manifest.read_bytes(), yaml_limits(Limits()))
    objects = ((value, Source(place.location, marks=place)) for value, place in parsed.objects)
    reading = read_hypothetical([*objects] or [({}, Source(Location(str(manifest))))], like)
    wrong = [*(broken.problem for broken in parsed.broken), *reading.problems]
    if wrong or not reading.candidates:
        message = wrong[0].message if wrong else "It describes no package"
        raise UsageError(f"{wrong[0].location if wrong else manifest}: {message}")
    return reading.candidates[0]


_MEANINGS = {
    "moves": "could move",
    "stays": "could take it, but another version fits better",
    "blocked": "cannot move",
    "unaffected": "does not have it",
}


def what_if_lines(candidate: "Candidate", results: "Iterable[WhatIfResult]") -> Iterator[str]:
    """Yield the prospects as text: a block for clusters that answer alike, with what moves or who blocks."""
    yield terminal(f"If {candidate.id} {candidate.version} were published:")
    for result in results:
        yield terminal(f"  {_MEANINGS[result.verdict]}: {', '.join(result.clusters)}")
        for change in result.changes:
            versions = " -> ".join(text.partition("@")[0] for text in (change.before, change.after) if text)
            yield terminal(f"    {change.op} {change.instance} {versions}")
        for explanation in result.explanations:
            yield from (terminal(f"    {line}") for line in str(explanation).splitlines())


def what_if_values(results: "Iterable[WhatIfResult]") -> list[dict[str, Any]]:
    """Return the prospects as JSON values."""
    from reconciler.report.locks import explanation_value

    return [
        {
            "verdict": str(result.verdict),
            "clusters": list(result.clusters),
            "changes": [change._asdict() for change in result.changes],
            "explanations": [explanation_value(explanation) for explanation in result.explanations],
        }
        for result in results
    ]
