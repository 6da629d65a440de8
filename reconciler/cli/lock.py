"""`lock`: resolve dependencies and record the pins; `lock hold` and `lock follow` pin single upstreams."""

from typing import TYPE_CHECKING

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options, show_unread
from reconciler.cli.what_if import what_if
from reconciler.errors import Exit, RefusedError, UsageError, worst

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.run.inputs import RunOptions
    from reconciler.run.lock import LockResult, PinRequest


@click.group(invoke_without_command=True)
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.option("--check", is_flag=True, help="Write nothing; exit 10 if a lock would change.")
@click.option("--frozen", is_flag=True, help="Write nothing; exit 4 if a pin would have to change.")
@click.option("--upgrade", multiple=True, metavar="NAME", help="Let this package move; repeatable.")
@click.option("--no-dependencies", is_flag=True, help="Leave what is installed for others as it is.")
@click.option("--prune", is_flag=True, help="Also remove unneeded packages that are retained by default.")
@click.pass_context
def lock(
    context: click.Context,
    settings: "RunOptions",
    output: str,
    upgrade: tuple[str, ...],
    *,
    check: bool,
    frozen: bool,
    no_dependencies: bool,
    prune: bool,
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
    from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS, ResolveOptions
    from reconciler.run.lock import decide_lock, lock_fleet, read_lock_inputs

    if context.invoked_subcommand:
        return Exit.DONE
    wishes = ResolveOptions(frozenset(upgrade), dependencies=not no_dependencies, prune=prune)
    if frozen and wishes != DEFAULT_OPTIONS:
        raise UsageError("--frozen contradicts --upgrade, --no-dependencies and --prune")
    if no_dependencies and prune:
        raise UsageError("--no-dependencies and --prune contradict each other")
    if frozen or check:
        locking = decide_lock(read_lock_inputs(settings), wishes)
        exits = {Exit.PENDING} if check and locking.changed else set()
    else:
        locking = lock_fleet(settings, wishes)
        exits = set(locking.outcome.exits)
    printer = make_printer(color=not no_color)
    exits |= show_unread(printer, locking.unread)
    show_locking(printer, locking, Output(output))
    if frozen:
        _check_frozen(locking)
    return worst(exits | ({Exit.INVALID_INPUT} if locking.problems else set()))


lock.add_command(what_if)


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
        printer.lines(f"wrote {path}" for path in locking.written)
        effects = [effect for effect in locking.outcome.effects if effect.error or locking.reviewed]
        printer.lines(effect_line(effect, paint=printer.paint) for effect in effects)
    else:
        problems = [problem_value(problem) for problem in locking.problems]
        upstreams = [pin._asdict() for pin in locking.pins]
        value = listing("Lock", lock_values(locking.decision))
        printer.value({**value, "upstreams": upstreams, "written": locking.written, "problems": problems})
