"""`lock what-if`: clusters that could move to an unpublished version, and the packages that block others."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options, show_unread
from reconciler.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from reconciler.dependencies.model.packages import Candidate
    from reconciler.run.inputs import RunOptions
from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.dependencies.model.packages import Candidate
from reconciler.dependencies.what_if import WhatIfOutcome, WhatIfResult
from reconciler.report.escape import terminal
from reconciler.report.locks import explanation_value


@click.command(name="what-if")
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
    from reconciler.cli.what_if import what_if_lines, what_if_values
    from reconciler.dependencies.what_if import what_if as ask
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import resolve_inputs

    world = read_inputs(settings)
    printer = make_printer(color=not no_color)
    exits = show_unread(printer, find_unread(world.inventory))
    closed = resolve_inputs(world)
    worlds = closed.clusters.worlds
    candidates = {
        candidate
        for world in worlds
        for versions in world.catalogue.packages.values()
        for candidate in versions
    }
    candidate = _candidate(package, manifest, candidates)
    results = ask(worlds, closed.locks, candidate)
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
    WhatIfOutcome.MOVES: "could move",
    WhatIfOutcome.STAYS: "could take it, but another version fits better",
    WhatIfOutcome.BLOCKED: "cannot move",
    WhatIfOutcome.UNAFFECTED: "does not have it",
}


def what_if_lines(candidate: Candidate, results: Iterable[WhatIfResult]) -> Iterator[str]:
    """Yield the prospects as text: a block for clusters that answer alike, with what moves or who blocks."""
    yield terminal(f"If {candidate.id} {candidate.version} were published:")
    for result in results:
        yield terminal(f"  {_MEANINGS[result.verdict]}: {', '.join(result.clusters)}")
        for change in result.changes:
            versions = " -> ".join(text.partition("@")[0] for text in (change.before, change.after) if text)
            yield terminal(f"    {change.op} {change.instance} {versions}")
        for explanation in result.explanations:
            yield from (terminal(f"    {line}") for line in str(explanation).splitlines())


def what_if_values(results: Iterable[WhatIfResult]) -> list[dict[str, Any]]:
    """Return the prospects as JSON values."""
    return [
        {
            "verdict": str(result.verdict),
            "clusters": list(result.clusters),
            "changes": [change._asdict() for change in result.changes],
            "explanations": [explanation_value(explanation) for explanation in result.explanations],
        }
        for result in results
    ]
