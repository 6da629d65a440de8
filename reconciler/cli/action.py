"""`action`: what action.yml runs, one of its modes with its inputs from the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.base.errors import ConfigurationError, Exit, ReconcilerError, UsageError
from reconciler.base.suggestions import boolean_hint, parse_boolean, suggest
from reconciler.cli.check import LEVELS, check
from reconciler.cli.differences import write_page
from reconciler.cli.index import sync
from reconciler.cli.output import Output, make_printer, usable_cache, with_shard
from reconciler.cli.plan import show_report
from reconciler.cli.workflow import Runner, annotate_error, check_event, publication, pull_number
from reconciler.git.urls import local_path
from reconciler.git.working_copy import find_working_copy, is_repository
from reconciler.plan.changes import Outcome, exit_of
from reconciler.report.build import build_report
from reconciler.report.text import outcome_lines
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run

if TYPE_CHECKING:
    from reconciler.base.text import Text

MODES = ("check", "plan", "apply", "index-sync")
FLAGS = {"comment": True, "strict": False, "detailed-exitcode": False}
"""Boolean inputs with their defaults."""
JSON_FILE, SARIF_FILE, HTML_FILE = "reconciler.json", "reconciler.sarif", "reconciler.html"


@click.command()
@click.pass_context
def action(ctx: click.Context) -> Exit:
    r"""Run one mode of the GitHub action: INPUT_MODE and the other inputs are environment variables.

    Writes the job summary, annotations and outputs beside what the command itself prints.

    \b
    Example:
      INPUT_MODE=plan reconciler action
    """
    inputs, runner = Inputs(os.environ), Runner(os.environ)
    files = {"report-json": JSON_FILE, "report-sarif": SARIF_FILE, "report-html": HTML_FILE}
    reports = {name: inputs.reports / file for name, file in files.items()}
    runner.tell({name: str(path) for name, path in reports.items()})
    try:
        # Every input is read in every mode: a word that means nothing is no default.
        mode, level = inputs.choice("mode", MODES), inputs.choice("level", LEVELS)
        flags = {name: inputs.flag(name, default=default) for name, default in FLAGS.items()}
        if mode == "check":
            return Exit(_check(ctx, inputs, level, flags))
        if mode == "index-sync":
            return _sync_index(ctx, runner, inputs)
        return _plan(runner, inputs, apply=mode == "apply", detailed=flags["detailed-exitcode"])
    except Exception as error:
        _report_fatal(runner, error, inputs)
        raise


def _report_fatal(runner: Runner, error: Exception, inputs: "Inputs") -> None:
    """Annotate and summarise what ended the run; `check` annotates a configuration by itself."""
    from reconciler.report.markdown import fatal_markdown

    title, message = type(error).__name__, str(error)
    hint: Text = "The log has the details."
    if isinstance(error, ReconcilerError):
        title, hint = title.removesuffix("Error"), error.hint
    if not isinstance(error, ConfigurationError) or error.location is None:
        runner.annotate([annotate_error(title, message, hint)])
    elif inputs.text("mode") not in {"", "check"}:
        runner.annotate(annotate_error(title, e.message, e.hint, e.location) for e in error.parts)
    texts = [(str(part), part.hint) for part in error.parts] if isinstance(error, ReconcilerError) else []
    runner.summarise(fatal_markdown(title, texts or [(message, hint)]))


class Inputs:
    """The inputs of the action, as action.yml hands them on."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str) -> str:
        """Return an input; empty if it was not given."""
        return self._environment.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip()

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the value of a boolean input, the default if it was not given.

        Raises:
            UsageError: It is no boolean.
        """
        text = self.text(name)
        flag = parse_boolean(text) if text else default
        if flag is None:
            raise UsageError(f"Input {name} is {text!r}, which is no boolean", hint=boolean_hint(text))
        return flag

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return an input that is one of a few words, the first of them if it was not given.

        Raises:
            UsageError: It is another word.
        """
        value = self.text(name) or allowed[0]
        if value not in allowed:
            hint = suggest(value, allowed, otherwise=f"Use one of: {', '.join(allowed)}.")
            raise UsageError(f"Input {name} is {value!r}", hint=hint)
        return value

    @property
    def control(self) -> str:
        """The control repository: what is named, a checkout in the workspace, or the workflow's repository.

        A relative path starts at the workspace, wherever the process runs.
        """
        control = self.text("control") or "."
        if self.is_fetched:
            server = self._environment.get("GITHUB_SERVER_URL", "").rstrip("/")
            return f"{server}/{self._environment['GITHUB_REPOSITORY']}"
        return control if local_path(control) is None else str(self._workspace / control)

    @property
    def is_fetched(self) -> bool:
        """Whether the workflow's own repository is meant, and no step checked it out."""
        if self.text("control") not in {"", "."} or not self._environment.get("GITHUB_REPOSITORY"):
            return False
        return find_working_copy(self._workspace) is None and not is_repository(self._workspace)

    @property
    def head(self) -> str:
        """The commit to check, empty for that of the checkout."""
        return self._environment.get("GITHUB_SHA", "") if self.is_fetched else ""

    @property
    def reports(self) -> Path:
        """Where the reports go: the runner's own directory unless something else is asked for."""
        return self._workspace / (
            self.text("report-directory") or self._environment.get("RUNNER_TEMP") or "."
        )

    @property
    def _workspace(self) -> Path:
        return Path(self._environment.get("GITHUB_WORKSPACE") or ".").absolute()


def _check(ctx: click.Context, inputs: Inputs, level: str, flags: Mapping[str, bool]) -> int:
    code: int = ctx.invoke(
        check,
        control=inputs.control,
        cache_dir=None,
        output=str(Output.TEXT),
        base=inputs.text("base") or os.environ.get("GITHUB_BASE_REF", ""),
        head=inputs.head,
        level=level,
        comment_on=pull_number(os.environ) if flags["comment"] else None,
        strict=flags["strict"],
        detailed_exitcode=flags["detailed-exitcode"],
        json_file=inputs.reports / JSON_FILE,
        sarif_file=inputs.reports / SARIF_FILE,
        html_file=inputs.reports / HTML_FILE,
    )
    return code


def _plan(runner: Runner, inputs: Inputs, *, apply: bool, detailed: bool) -> Exit:
    from reconciler.run.apply import apply_plan

    if apply:
        check_event(os.environ)
    printer = make_printer(color=False)
    settings = RunOptions(inputs.control, usable_cache(None, writes=apply))
    planned = plan_run(with_shard(settings, inputs.text("shard")), to_apply=apply)
    show_report(printer, planned)
    outcome = None
    try:
        if apply:
            outcome = apply_plan(planned, checksum=inputs.text("checksum"))
            printer.lines(outcome_lines(outcome, quiet=True))
    finally:
        code = exit_of(planned.plan, outcome=outcome, detailed=detailed)
        _tell(runner, inputs, planned, outcome, code)
    return code


def _sync_index(ctx: click.Context, runner: Runner, inputs: Inputs) -> Exit:
    check_event(os.environ)
    code: int = ctx.invoke(
        sync,
        control=inputs.control,
        cache_dir=None,
        output=str(Output.TEXT),
        every=False,
        check_tags=True,
        pull_request=True,
    )
    runner.tell({"exit-code": str(int(code))})
    return Exit(code)


def _tell(runner: Runner, inputs: Inputs, planned: PlannedRun, outcome: Outcome | None, code: Exit) -> None:
    """Give the runner the annotations, summary and outputs of a plan or its outcome."""
    from reconciler.report.markdown import plan_markdown
    from reconciler.run.report import plan_report

    report = build_report(planned.plan, planned.names, outcome)
    made = publication(report, code, str(not report.empty).lower(), plan_markdown(report))
    runner.publish(made, inputs.reports / JSON_FILE, inputs.reports / SARIF_FILE)
    write_page(inputs.reports / HTML_FILE, plan_report(planned, outcome))
