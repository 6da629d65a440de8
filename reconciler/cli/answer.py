"""`answer`: a conflict of a draft, from the shell."""

from collections.abc import Iterator
from pathlib import Path

import click

from reconciler.base.errors import Exit, UsageError
from reconciler.base.text import plural, terminal
from reconciler.cli.explain import find_change
from reconciler.cli.output import Printer, dry_run_option, output_options, writing_control_options
from reconciler.render.update import Conflict
from reconciler.report.conflicts import conflict_value, place_text
from reconciler.report.machine import listing
from reconciler.run.answer import Answered, Choice, answer_conflicts, find_conflicts
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_fleet, read_inputs

_DONE = {Choice.KEEP: "kept", Choice.TAKE: "took upstream's", Choice.VALUE: "set"}


@click.command()
@writing_control_options
@output_options()
@click.argument("package", metavar="REPO/PACKAGE")
@click.argument("conflict", nargs=-1)
@click.option("--keep", is_flag=True, help="Keep the local value.")
@click.option("--take", is_flag=True, help="Take upstream's value.")
@click.option("--value", metavar="VALUE", help="Set another value, as YAML.")
@dry_run_option
def answer(
    settings: RunOptions,
    printer: Printer,
    package: str,
    conflict: tuple[str, ...],
    *,
    keep: bool,
    take: bool,
    value: str | None,
    dry_run: bool,
) -> Exit:
    r"""Answer a conflict of a package: a value that an update and people changed differently.

    That makes one commit on the draft, in your name, and pushes it. The next `apply` runs the functions of
    the package, and brings its pull request up to date. CONFLICT is its file, resource or field, or its
    whole name as `plan` prints it; without one, --keep and --take answer all conflicts of the package.

    \b
    Examples:
      reconciler answer edge-east/nginx spec.replicas --keep
      reconciler answer edge-east/nginx deployment.yaml spec.replicas --take
      reconciler answer edge-east/nginx spec.replicas --value 7
      reconciler answer edge-east/nginx --keep             every conflict of it
      reconciler answer edge-east/nginx --take --dry-run   what it would answer
    """
    choices = [
        choice for choice, is_given in zip(Choice, (keep, take, value is not None), strict=True) if is_given
    ]
    if len(choices) != 1:
        hint = f"`reconciler explain {package}` shows both values of each conflict."
        raise UsageError("Choose one answer: --keep, --take or --value", hint=hint)
    (choice,) = choices
    planned = plan_fleet(read_inputs(settings, writes=True))
    change = find_change(planned, package)
    package = planned.names.of(change)
    conflicts = find_conflicts(change, package, " ".join(conflict))
    if choice is Choice.VALUE and len(conflicts) > 1:
        places = "; ".join(map(place_text, conflicts))
        message = f"One value cannot answer {plural(len(conflicts), 'conflict')}"
        raise UsageError(message, hint=f"Name one: {places}.")
    control = Path(settings.control)
    done = (
        None
        if dry_run
        else answer_conflicts(planned, change, conflicts, choice, value=value or "", control=control)
    )
    branch, commit = (done.branch, done.commit) if done else (change.after.head, "")
    shared = {"package": package, "answer": str(choice), "branch": branch, "commit": commit}
    rows = ({**shared, **conflict_value(conflict), "value": value} for conflict in conflicts)
    printer.show(listing("Answer", rows), _lines(package, conflicts, choice, done, value))
    return Exit.DONE


def _lines(
    package: str, conflicts: tuple[Conflict, ...], choice: Choice, done: Answered | None, value: str | None
) -> Iterator[str]:
    for conflict in conflicts:
        verb = _DONE[choice] if done else f"would {choice if choice is not Choice.VALUE else 'set'}"
        chosen = {Choice.KEEP: conflict.local, Choice.TAKE: conflict.upstream, Choice.VALUE: value}[choice]
        is_short = chosen is not None and len(chosen) <= 80 and "\n" not in chosen.strip()  # noqa: PLR2004 - a line
        text = (
            "(deleted)"
            if chosen is None
            else chosen.strip()
            if is_short
            else plural(chosen.count("\n") + 1, "line")
        )
        yield f"{verb} {terminal(place_text(conflict))}: {terminal(text)}"
    if done is None:
        return
    yield f"pushed {terminal(done.branch)} {done.commit[:8]}"
    if done.others:
        others = f"{plural(done.others, 'conflict')} of {terminal(package)} left"
        yield f"{others}: reconciler explain {terminal(package)}"
    yield "Next: reconciler apply"
