"""The command line: which commands there are, and the one place where errors become exit codes."""

import errno
import gc
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import click

from reconciler import __version__
from reconciler.base.collector import COLLECT
from reconciler.base.errors import Exit, ReconcilerError, UnavailableError
from reconciler.base.escape import terminal
from reconciler.base.redact import Redactor
from reconciler.base.suggestions import close_names
from reconciler.cli.common import add_common_options, terminal_width
from reconciler.cli.output import redact_standard_streams
from reconciler.cli.watching import run_watched
from reconciler.git import effects
from reconciler.git.command import is_local_failure
from reconciler.report.console import folded


class Command(NamedTuple):
    """Where a command lives, and its one line in `--help`, known without importing it."""

    module: str
    about: str


COMMANDS = {
    "plan": Command("plan", "Show what `apply` would do to every package, and why. Writes nothing."),
    "apply": Command("apply", "Plan, then do it: drafts, pull requests, publications, deletions."),
    "check": Command("check", "Check a change of the control repository before it is merged."),
    "validate": Command("validate", "Check manifests offline, for editors and before a commit."),
    "lock": Command("lock", "Choose the version of every package for each cluster, and lock it."),
    "repo": Command("repo", "Register repositories, and list them with their reach and packages."),
    "index": Command("index", "List and change the packages and defaults of the index."),
    "approve": Command("approve", "Approve drafts and deletions of packages, on every forge."),
    "pr": Command("pr", "List, show, merge, close and reopen pull requests, on every forge."),
    "status": Command(
        "status", "Show every package: version, state, age, pull request, and what it waits for."
    ),
    "report": Command("report", "Merge the JSON reports of shards into one."),
    "explain": Command("explain", "Explain the change of one package, and the origin of its fields."),
    "why-not": Command("why_not", "Explain what keeps a package from an upstream revision."),
    "history": Command("history", "List the revisions of a package: when, from which upstream, by whom."),
    "doctor": Command("doctor", "Check the set-up, and name the next step for whatever is wrong."),
    "graph": Command("graph", "Draw the dependencies of the fleet: text, Mermaid, DOT or SVG."),
    "expand": Command("expand", "Print the PackageVariants that the sets expand to."),
    "package": Command("package", "Update, render, compare and list packages in directories."),
    "functions": Command("functions", "List the functions that run here, and pin the images of the others."),
    "snapshot": Command("snapshot", "Turn cluster objects into the snapshot that plans read."),
    "init": Command("init", "Write the first files of a control repository, or convert those of Porch."),
    "completion": Command("completion", "Print the script that completes commands and names in a shell."),
    "schema": Command("schema", "Print the JSON schema of a manifest or an output."),
    "action": Command("action", "Run one mode of the GitHub action, its inputs in the environment."),
    "demo": Command("demo", "Write a small world of real Git repositories to try things on."),
}
"""In the order of `--help`. A command is registered when its module exists: there are no stubs."""
COMPLETING = "_RECONCILER_COMPLETE"
"""The variable by which a shell asks for completions, as click names it."""
_STDERR = 2
_STOPPING = "note: Stopping: what is under way is finished, nothing else begins. A second signal kills.\n"
_LIMIT_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.EROFS,
        errno.EIO,
        errno.ENOMEM,
    }
)


class LazyGroup(click.Group):
    """A group that imports a command when it is called, so that `--help` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands that have a module."""
        del ctx
        return [name for name, command in COMMANDS.items() if find_spec(f"reconciler.cli.{command.module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"reconciler.cli.{COMMANDS[cmd_name].module}")
        command = getattr(module, cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"reconciler.cli.{COMMANDS[cmd_name].module}.{cmd_name} is not a click command")
        return _laid_out(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called.

        Raises:
            UsageError: No command has this name; the message suggests the nearest.
        """
        name = args[0]
        if name.startswith("-") or name in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        raise _no_such_command(name, self.list_commands(ctx), ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].about) for name in self.list_commands(ctx)])


def _laid_out(command: click.Command) -> click.Command:
    r"""Add the common options; let `\b` in a raw docstring keep click from wrapping what follows."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        add_common_options(command)
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            _laid_out(sub)
    return command


def _no_such_command(name: str, names: Sequence[str], context: click.Context) -> click.UsageError:
    """Return the error of a command that does not exist."""
    near = close_names(name, names, most=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return click.UsageError(f"No such command {name!r}.{hint}", context)


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
    gc.set_threshold(*COLLECT)
    # Looking for plugins of pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Before anything else may print: tracebacks and warnings of libraries are redacted too.
    redact_standard_streams()
    if os.environ.get("RECONCILER_LOG_FORMAT") == "json":
        from reconciler.cli.log import use_json

        use_json()
    if COMPLETING in os.environ:
        sys.exit(invoke(sys.argv[1:]))
    sys.exit(run_watched(_work, _stop, _stopped))


def _work() -> int:
    _show_progress()
    code = invoke(sys.argv[1:])
    # The process ends: looking for cycles among all that it made would take a fifth of a short run.
    gc.freeze()
    return code


def _stopped() -> int:
    return _explain(effects.StoppedError(), Redactor.of_environment(os.environ))


def _show_progress() -> None:
    """Show progress where a person looks: on standard error, if it is a terminal that can erase a line."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb" or COMPLETING in os.environ:
        return
    from reconciler.base.progress import show_on
    from reconciler.cli.progress_line import ProgressLine

    redactor = Redactor.of_environment(os.environ)
    show_on(ProgressLine(sys.stderr.fileno(), lambda text: terminal(redactor.text(text))))


def _stop(number: int, _frame: object) -> None:
    """Note that the run shall end. A second signal kills: here, or by the watching process."""
    if effects.request_shutdown():
        # The stream may be in the middle of a line when a signal comes: this one goes past it, as a whole.
        form = getattr(sys.stderr, "form", None) or str
        os.write(_STDERR, form(_STOPPING).encode())
    if not effects.is_watched():
        signal.signal(number, signal.SIG_DFL)
    if effects.is_interruptible(number):
        raise effects.StoppedError


def invoke(arguments: Sequence[str]) -> int:
    """Run one command; print what went wrong, return the exit code.

    An expected error is two lines; anything else is a bug: a traceback with the versions to report.
    """
    redactor = Redactor.of_environment(os.environ)
    try:
        code = main.main(args=list(arguments), prog_name="reconciler", standalone_mode=False)
    except click.ClickException as error:
        _with_choice(error).show()
        return Exit.USAGE
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except SystemExit as error:
        # So click leaves when the reader of our output left (`plan | head`): nothing more can be said. It
        # also leaves so after it answered a shell that asked for completions.
        return int(error.code or 0) if COMPLETING in os.environ else 141
    except OSError as error:
        return _explain(_limit_error(error) or error, redactor)
    except Exception as error:  # noqa: BLE001 - the one boundary of the process
        return _explain(error, redactor)
    return int(code or Exit.DONE)


def _with_choice(error: click.ClickException) -> click.ClickException:
    """Return an error; that of a value outside its choices with the closest of them."""
    value = re.match(r"'(.+?)' is not one of ", error.message)
    if value is not None and isinstance(error, click.BadParameter) and error.param is not None:
        choices = getattr(error.param.type, "choices", ())
        if near := close_names(value[1], map(str, choices), most=1):
            message = f"{error.message} Did you mean {near[0]!r}?"
            return click.BadParameter(message, error.ctx, error.param, error.param_hint)
    return error


def _limit_error(error: OSError) -> UnavailableError | None:
    """Return a full disk or a limit of the process as what it is, None for any other error."""
    if error.errno not in _LIMIT_ERRORS and not is_local_failure(str(error)):  # libgit2 gives no number
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
        return _report_bug(error, redactor)
    lines = [line for part in error.parts for line in _lines(part)]
    for line in folded(map(redactor.text, lines), terminal_width(sys.stderr)):
        click.echo(line, err=True)
    return error.exit_code


def _lines(error: ReconcilerError) -> list[str]:
    return [f"error: {terminal(str(error))}", *([f"hint: {terminal(error.hint)}"] if error.hint else [])]


def _report_bug(error: BaseException, redactor: Redactor) -> int:
    import traceback

    text = "".join(traceback.format_exception(error))
    click.echo(redactor.text(text), err=True)
    click.echo("This is a bug in reconciler; nothing is half done: a plain `apply` completes it.", err=True)
    click.echo("Please report it with everything above and these versions:", err=True)
    for name, version in _versions():
        click.echo(f"  {name} {version}", err=True)
    return Exit.BUG


def _versions() -> list[tuple[str, str]]:
    import platform
    from importlib import metadata

    def of(distribution: str) -> str:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return "not installed"

    libraries = ("pygit2", "pydantic", "PyYAML", "ruamel.yaml", "cel-expr-python", "python-sat", "click")
    return [
        ("reconciler", __version__),
        ("python", platform.python_version()),
        ("platform", platform.platform()),
        *((name, of(name)) for name in libraries),
    ]


if __name__ == "__main__":
    entrypoint()
