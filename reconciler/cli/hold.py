"""`lock hold` and `lock follow`: keep a floating upstream at one commit, and let it go again."""

from typing import TYPE_CHECKING

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options
from reconciler.cli.unread import show_unread
from reconciler.errors import Exit, worst

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.run.inputs import RunOptions
    from reconciler.run.lock import LockResult, PinRequest


@click.command()
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


@click.command()
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
    printer = make_printer(colour=not no_color)
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
        printer.lines(f"wrote {path}" for path in locking.written)
        told = [effect for effect in locking.outcome.effects if effect.error or locking.reviewed]
        printer.lines(effect_line(effect, paint=printer.paint) for effect in told)
    else:
        problems = [problem_value(problem) for problem in locking.problems]
        upstreams = [pin._asdict() for pin in locking.pins]
        value = listing("Lock", lock_values(locking.decision))
        printer.value({**value, "upstreams": upstreams, "written": locking.written, "problems": problems})
