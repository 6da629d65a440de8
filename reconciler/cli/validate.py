"""`validate`: check manifests offline, for editors and before a commit."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from reconciler.base import effects
from reconciler.base.errors import ConfigurationError, Exit, UsageError
from reconciler.base.progress import current_display
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import message_line, plural
from reconciler.cli.output import Output, Printer, output_options
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.git.working_copy import find_working_copy
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.read.configuration import FILE, parse_configuration
from reconciler.report.machine import document, problem_value, problems_sarif
from reconciler.run.validate import validate_files
from reconciler.workdir.manifest_files import read_manifest_files

_STDIN = "-"


@click.command()
@output_options(Output.TEXT, Output.JSON, Output.SARIF)
@click.argument("paths", nargs=-1, metavar="[FILE|DIRECTORY|-]...")
def validate(printer: Printer, paths: Sequence[str]) -> Exit:
    r"""Check manifests and reconciler.yaml by themselves, without any repository or network.

    Without a path the configured manifests and the package index of this working copy are checked, as they
    are on disk. Each error has file, line and column. `-` reads standard input. Directories with a Kptfile
    are packages and no manifests. Functions are checked against the settings of reconciler.yaml. Whether
    repositories, revisions and targets exist is for `reconciler check`. Exits 3 if something is wrong.

    \b
    Examples:
      reconciler validate                          what reconciler.yaml names, and itself
      reconciler validate manifests/web.yaml       one file, as an editor does on saving
      git show :manifests/web.yaml | reconciler validate -
      reconciler validate -o sarif manifests > results.sarif
    """
    policy, files, index, absent = _read(paths)
    result = validate_files(files, policy, index, absent)
    match printer.form:
        case Output.JSON:
            counts = {"files": result.files, "manifests": result.manifests}
            value = {
                **counts,
                "problems": [*map(problem_value, result.problems)],
                "notes": list(result.notes),
            }
            printer.value(document("Validation", value))
        case Output.SARIF:
            printer.value(problems_sarif(result.problems))
        case _:
            checked = f"{plural(result.manifests, 'manifest')} in {plural(result.files, 'file')}"
            wrong = plural(len(result.problems), "error") if result.problems else "valid"
            printer.lines([*problem_lines(result.problems), f"{checked}: {wrong}"])
            printer.notes(result.notes)
    if not (paths or result.problems) and result.manifests == 1 and policy:
        printer.notes([f"There is no manifest in {policy.manifest_places} yet: only {FILE} was checked"])
    return Exit.INVALID_INPUT if result.problems else Exit.DONE


def _read(paths: Sequence[str]) -> tuple[Policy | None, dict[str, bytes], dict[str, bytes], list[Problem]]:
    """Return the policy of the configuration here, and the contents of manifests and of the index by path.

    Configured paths that are not there are problems.
    """
    copy = find_working_copy(Path.cwd())
    root = copy.root if copy else Path.cwd()
    path = root / FILE
    policy = None
    try:
        policy = parse_configuration(path.read_bytes(), FILE, {})
    except (OSError, ConfigurationError):
        if not paths and not path.is_file():
            hint = "Name files or directories, or run it in a working copy of the control repository."
            raise UsageError(f"There is no {FILE} here that says where manifests are", hint=hint) from None
    named = {text: Path(text) for text in paths if text != _STDIN}
    settings, absent = policy or Policy(), list[Problem]()
    if not paths:
        configured = {name: root / name for name in (FILE, *settings.manifests, INDEX_DIRECTORY)}
        named = {_shown(path): path for path in configured.values() if path.exists()}
        beside = [entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."]
        for name in settings.manifests:
            if not configured[name].exists():
                message = f"Manifest path {name} does not exist"
                hint = suggest(name, beside, otherwise="Correct spec.manifests, or create it.")
                where = settings.manifest_location(name)._replace(path=_shown(path))
                absent.append(Problem(where, Reason.MANIFEST_UNREADABLE, message, hint))
    files = read_manifest_files(named, frozenset({(root / settings.snapshot.path).resolve()}))
    whole = root.resolve() / INDEX_DIRECTORY
    index = {path: files.pop(path) for path in [*files] if Path(path).resolve().is_relative_to(whole)}
    if _STDIN in paths:
        with current_display().paused(), effects.interruptible():  # a person may type it
            files["standard input"] = sys.stdin.buffer.read()
    if paths and not files and not index:
        hint = "Name files, or directories with YAML: those with a Kptfile are packages, and no manifests."
        raise UsageError(f"There is no manifest in {', '.join(paths)}", hint=hint)
    return policy, files, index, absent


def _shown(path: Path) -> str:
    """Return a path as a person here would write it."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)


def problem_lines(problems: Iterable[Problem]) -> Iterator[str]:
    """Yield `file:line:column: reason: message` for each error, as compilers do, and its hint below."""
    for problem in problems:
        yield message_line(str(problem))
        yield from (f"  hint: {message_line(line)}" for line in problem.hint.splitlines()[:1])
        yield from (f"        {message_line(line)}" for line in problem.hint.splitlines()[1:])
