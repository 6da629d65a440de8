"""The command line: which commands there are, and the one place where errors become exit codes."""

import gc
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from reconciler import __version__
from reconciler.base import effects
from reconciler.base.defects import is_machine_limit
from reconciler.base.errors import Exit, ReconcilerError, UnavailableError
from reconciler.base.redact import Redactor
from reconciler.base.suggestions import close_names
from reconciler.base.text import terminal
from reconciler.cli.guesses import CommandGroup, led_on
from reconciler.cli.output import (
    READER_LEFT,
    add_common_options,
    code_for_reader,
    make_printer,
    redact_standard_streams,
    terminal_width,
)
from reconciler.cli.stderr import DefectLog, Event, bug_lines, rendered, show
from reconciler.cli.watching import run_watched

GROUPS = {
    "Plan and apply": {
        "plan": "Show what `apply` would do to every package, and why.",
        "apply": "Write drafts, pull requests, publications and deletions.",
        "check": "Check a change of the control repository before its merge.",
        "validate": "Check manifests offline, for editors and before a commit.",
        "lock": "Choose and lock the version of every package of a cluster.",
    },
    "Review": {
        "answer": "Answer a conflict: keep the local value, or take another.",
        "approve": "Approve drafts and deletions of packages, on every forge.",
        "pr": "List, show, merge, close and reopen pull requests.",
    },
    "Look": {
        "status": "Show the version, state and pull request of every package.",
        "explain": "Explain one package: reasons, obstacles, history, fields.",
        "graph": "Draw the dependencies of the fleet.",
        "expand": "Print the PackageVariants that the sets expand to.",
    },
    "Packages and index": {
        "package": "Update and render packages in directories, make one of a chart.",
        "functions": "List functions that run here, pin images of the others.",
        "index": "List and change the packages and defaults of the index.",
    },
    "Set up": {
        "init": "Write the first files of a control repository.",
        "repo": "Register repositories, and list them.",
        "snapshot": "Turn cluster objects into the snapshot that plans read.",
        "doctor": "Check the set-up, and name the next step for each fault.",
        "completion": "Print the script that completes commands in a shell.",
        "demo": "Write a small world of real Git repositories to try.",
    },
    "Machines": {
        "action": "Run one mode of the GitHub action.",
        "schema": "Print the JSON schema of a manifest or an output.",
    },
}
"""The commands in the order of `--help`, each with its one line, known without importing its module."""
COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}
COMPLETING = "_RECONCILER_COMPLETE"
"""The variable by which a shell asks for completions, as click names it."""
_STDERR = 2
_STOPPING = "Stopping: what is under way is finished, nothing else begins. A second signal kills."


class LazyGroup(CommandGroup):
    """A group that imports a command when it is called, so that `--help` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command: the object in the module of its name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = "main" if cmd_name == completion.name else cmd_name
        command: click.Command = getattr(import_module(f"reconciler.cli.{module}"), cmd_name)
        return _laid_out(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, without importing them, and options."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of commands, without importing them."""
        del ctx
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", about) for name, about in commands.items()])


def _laid_out(command: click.Command) -> click.Command:
    r"""Add the common options; let `\b` in a raw docstring keep click from wrapping what follows."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        add_common_options(command)
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            _laid_out(sub)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Exit codes of every command: 0 done, 1 a bug, 2 wrong usage, 3 invalid input, 4 refused, "
        "5 unavailable (run again), 6 partial (run again), 7 waiting for people, 10 changes are pending."
    ),
)
@click.version_option(__version__, prog_name="reconciler")
def main() -> None:
    r"""Reconcile packages in Git with what PackageVariants and PackageVariantSets ask for.

    One run reads the manifests and the cluster snapshot of a control repository, computes what
    every package should be, and proposes it: draft branches, pull requests, and a person's merge.

    \b
    Try it:
      reconciler demo world            a control repository, blueprints and clusters to play with
      cd world/control
      reconciler plan                  what would happen, and why; writes nothing
      reconciler apply                 do it
    """


_laid_out(main)


def entrypoint() -> None:
    """Run the command line and leave with its exit code.

    SIGTERM, with which a cluster stops a pod, and SIGINT let the effect under way finish, and end every other
    wait (exit 6); a second one kills.
    """
    # Before anything else may print: tracebacks and warnings of libraries are redacted too.
    redact_standard_streams()
    if COMPLETING in os.environ:
        sys.exit(invoke(sys.argv[1:]))
    sys.exit(
        run_watched(
            _work, _stop, lambda: _explain(effects.StoppedError(), Redactor.of_environment(os.environ))
        )
    )


def _work() -> int:
    # What a run makes lives to its end and has few cycles: the collector looks for them rarely (the replies
    # of forges have some), and not at the end: a plan of nine packages takes 0.7 s of CPU instead of 1.0 s.
    gc.set_threshold(1_000_000, 20, 100)
    # Pydantic would look through all installed distributions for plugins, which change what it reads.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _show_progress()
    code = code_for_reader(invoke(sys.argv[1:]))
    gc.freeze()
    return code


def _show_progress() -> None:
    """Show progress where a person looks: on standard error, if it is a terminal that can erase a line."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if not sys.stderr.isatty() or is_dumb or COMPLETING in os.environ:
        return
    from reconciler.base.progress import show_on
    from reconciler.cli.stderr import ProgressLine

    redactor = Redactor.of_environment(os.environ)
    show_on(ProgressLine(sys.stderr.fileno(), lambda text: terminal(redactor.text(text))))


def _stop(number: int, _frame: object) -> None:
    """Note that the run shall end. A second signal kills: here, or by the watching process."""
    if effects.request_shutdown():
        # The stream may be in the middle of a line when a signal comes: this one goes past it, as a whole.
        os.write(_STDERR, rendered(Event("note", _STOPPING), Redactor()).encode())
    if not effects.is_watched():
        signal.signal(number, signal.SIG_DFL)
    if effects.is_interruptible(number):
        raise effects.StoppedError


def invoke(arguments: Sequence[str]) -> int:
    """Run one command, print its errors, return the exit code.

    An expected error is two lines. A bug that broke the work on some units is printed when the rest is done,
    and any other one ends the command; both with a traceback and the versions to report.
    """
    redactor = Redactor.of_environment(os.environ)
    with DefectLog(redactor) as defects:
        code, crashed = _invoke(arguments, redactor)
        if crashed or effects.is_shutting_down() or not (summary := defects.summary()):
            return code
    click.echo(summary, err=True, nl=False)
    return Exit.BUG


def _invoke(arguments: Sequence[str], redactor: Redactor) -> tuple[int, bool]:
    """Run one command; return the exit code, and whether a bug ended it."""
    try:
        code = main.main(args=list(arguments), prog_name="reconciler", standalone_mode=False)
    except click.ClickException as error:
        led_on(_with_choice(error)).show()
        return Exit.USAGE, False
    except click.Abort:
        show(Event("", "interrupted"), redactor)
        return 130, False
    except SystemExit as error:
        # So click leaves when a pipe broke that is none of our streams, and after it answered a shell that
        # asked for completions.
        return (int(error.code or 0) if COMPLETING in os.environ else READER_LEFT), False
    except Exception as error:  # noqa: BLE001 - the one boundary of the process
        actual = (_limit_error(error) or error) if isinstance(error, OSError) else error
        code = _explain(actual, redactor)
        return code, code == Exit.BUG
    return int(code or Exit.DONE), False


def _with_choice(error: click.ClickException) -> click.ClickException:
    """Return an error; that of a value outside its choices with the closest of them."""
    value = re.match(r"'(.+?)' is not one of ", error.message)
    if value is not None and isinstance(error, click.BadParameter) and error.param is not None:
        choices = getattr(error.param.type, "choices", ())
        if close := close_names(value[1], map(str, choices), most=1):
            message = f"{error.message} Did you mean {close[0]!r}?"
            return click.BadParameter(message, error.ctx, error.param, error.param_hint)
    return error


def _limit_error(error: OSError) -> UnavailableError | None:
    """Return a full disk or a limit of the process as what it is, None for any other error."""
    if not is_machine_limit(error):
        return None
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error)
    hint = "Check the disk and the limits of the process (`ulimit -n`, `ulimit -f`), then run again."
    return UnavailableError(f"This machine is at its limits: {where}{what}", hint=hint)


def _explain(error: Exception, redactor: Redactor) -> int:
    if not isinstance(error, ReconcilerError) or error.exit_code is Exit.BUG:
        if effects.is_shutting_down():
            # A signal interrupts calls of the system, and libgit2 fails with whatever that is to it.
            return _explain(effects.StoppedError(), redactor)
        click.echo(bug_lines(error, redactor), err=True, nl=False)
        return Exit.BUG
    for part in error.parts:
        event = Event("error", terminal(str(part)), terminal(part.hint))
        show(event, redactor, terminal_width(sys.stderr))
    return error.exit_code


SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> Exit:
    r"""Print the script that completes commands and options in bash, zsh or fish.

    \b
    Examples:
      reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
      reconciler completion zsh > ~/.zfunc/_reconciler            with fpath+=~/.zfunc before compinit
      reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    complete = get_completion_class(shell)
    if complete is not None:
        # The class of bash would start a bash to learn its version.
        text = ShellComplete.source(complete(main, {}, "reconciler", COMPLETING))
        make_printer(color=False).text(f"{text.rstrip()}\n")
    return Exit.DONE


if __name__ == "__main__":
    entrypoint()
