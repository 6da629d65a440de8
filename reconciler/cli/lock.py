"""`lock`: resolve dependencies and record the pins; `lock hold` and `follow`."""

from collections.abc import Iterator

import click

from reconciler.base.errors import Exit, RefusedError, UsageError, worst
from reconciler.base.text import plural
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Output,
    Printer,
    output_options,
    resolving_options,
    show_standing,
    show_unread,
    writing_control_options,
)
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS
from reconciler.report.json import wire
from reconciler.report.locks import lock_lines, lock_values
from reconciler.report.machine import listing
from reconciler.report.text import effect_line, pin_line, problem_lines
from reconciler.run.lock import LockResult, PinRequest, decide_lock, lock_fleet, read_lock_inputs
from reconciler.run.options import RunOptions


@click.group(cls=CommandGroup, invoke_without_command=True)
@writing_control_options
@output_options()
@click.option("--check", is_flag=True, help="Write nothing; exit 10 if a lock would change.")
@click.option("--frozen", is_flag=True, help="Write nothing; exit 4 if a pin would have to change.")
@resolving_options
@click.pass_context
def lock(
    context: click.Context, settings: RunOptions, printer: Printer, *, check: bool, frozen: bool
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
    """
    if context.invoked_subcommand:
        return Exit.DONE
    options = settings.resolving
    if frozen and options != DEFAULT_OPTIONS:
        raise UsageError(
            "--frozen contradicts --upgrade, --no-dependencies and --prune",
            hint="It refuses every change; `reconciler lock` without it shows what they would change.",
        )
    if frozen or check:
        locking = decide_lock(read_lock_inputs(settings), options)
        exits = {Exit.PENDING} if check and locking.changed else set()
    else:
        locking = lock_fleet(settings, options)
        exits = set(locking.outcome.exits)
    exits |= show_unread(printer, locking.unread)
    show_standing(printer, locking.standing)
    show_locking(printer, locking)
    if frozen:
        moved = [scope.cluster for scope in locking.decision.scopes if scope.changes]
        moved += [pin.what for pin in locking.pins]
        if moved:
            hint = "Run `reconciler lock`, and review what changes."
            if locking.pins and locking.reviewed is None:
                # Without a reviewed lock the pin of an upstream moves together with the draft made from it.
                hint = "Run `reconciler apply`: it moves the pins, and drafts the updates."
            raise RefusedError(f"The lock of {', '.join(moved)} would have to change", hint=hint)
    return worst(exits | ({Exit.INVALID_INPUT} if locking.problems else set()))


@lock.command()
@writing_control_options
@output_options()
@click.argument("name", metavar="[NAMESPACE/]VARIANT")
@click.argument("what", default="", metavar="[REVISION|TAG|BRANCH]")
def hold(settings: RunOptions, printer: Printer, name: str, what: str) -> Exit:
    r"""Keep the upstream of a variant at one commit.

    Its tag, range or branch may come to mean another one.

    Without a second word it stays where it is locked now. An older one is a rollback: `apply` drafts
    it. The hold ends with `lock follow`, or when the manifest asks for something else.

    \b
    Examples:
      reconciler lock hold web                     stay here
      reconciler lock hold team-a/web v1.4.0       go back to 1.4.0, and stay there
    """
    return _lock(settings, PinRequest(hold={name: what}), printer)


@lock.command()
@writing_control_options
@output_options()
@click.argument("names", nargs=-1, required=True, metavar="[NAMESPACE/]VARIANT...")
def follow(settings: RunOptions, printer: Printer, names: tuple[str, ...]) -> Exit:
    r"""Let upstreams follow their tag, range or branch again.

    \b
    Examples:
      reconciler lock follow web
    """
    return _lock(settings, PinRequest(follow=frozenset(names)), printer)


def _lock(settings: RunOptions, pinning: PinRequest, printer: Printer) -> Exit:
    locking = lock_fleet(settings, DEFAULT_OPTIONS, pinning)
    exits = show_unread(printer, locking.unread) | locking.outcome.exits
    show_locking(printer, locking)
    return worst(exits | ({Exit.INVALID_INPUT} if locking.problems else set()))


def show_locking(printer: Printer, locking: LockResult) -> None:
    """Print what was decided about every pin, and what was written."""
    if printer.form is Output.TEXT:
        printer.lines(map(pin_line, locking.pins))
        printer.lines(problem_lines(locking.invalid, paint=printer.paint))
        printer.lines(lock_lines(locking.decision, paint=printer.paint))
        printer.lines(_pin_notes(locking))
        printer.lines(f"wrote {path}" for path in locking.written)
        printer.lines(f"removed {path}" for path in locking.removed)
        effects = [effect for effect in locking.outcome.effects if effect.error or locking.reviewed]
        printer.lines(effect_line(effect, paint=printer.paint) for effect in effects)
    else:
        problems = wire(locking.problems)
        upstreams = [pin._asdict() for pin in locking.pins]
        files = {"written": locking.written, "removed": locking.removed}
        value = listing("Lock", lock_values(locking.decision))
        printer.value({**value, **files, "upstreams": upstreams, "problems": problems})


def _pin_notes(locking: LockResult) -> Iterator[str]:
    """Yield which pins are not moved yet, or that none is to be moved."""
    if locking.deferred:
        pins = plural(len(locking.deferred), "upstream pin")
        yield f"{pins} not moved yet: the next `apply` moves them with the drafts made from them"
    elif not (locking.pins or locking.decision.scopes or locking.problems):
        nothing = "Nothing to lock: no upstream floats, and no cluster asks for a package"
        yield nothing if locking.is_empty else "No pin changed"
