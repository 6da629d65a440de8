"""`package render`: what `kpt fn render` does on a directory, all or nothing."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.output import result_options
from reconciler.errors import Exit, UsageError

if TYPE_CHECKING:
    from reconciler.functions.step import PipelineResult
    from reconciler.objects import Files
    from reconciler.policy import FunctionPolicy

ENGINES = ("docker", "podman", "nerdctl")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@result_options("Where the result goes.  [default: DIRECTORY]")
@click.option("--results-dir", type=click.Path(path_type=Path), help="Write results.yaml there, as kpt does.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A reconciler.yaml that says which functions may run, and how.",
)
@click.option("--runtime", type=click.Choice(ENGINES), help="Run pinned images by this engine.")
@click.option(
    "--engine-argument", multiple=True, metavar="ARG", help="One more argument of the engine's run."
)
@click.option(
    "--pin", multiple=True, metavar="IMAGE=DIGEST", help="The digest that an image's tag stands for."
)
@click.option("--allow-exec", is_flag=True, help="Let the executables run that are mapped.")
@click.option(
    "--exec", "executables", multiple=True, metavar="NAME=PATH", help="Map a name to an executable."
)
@click.option("--compatible", is_flag=True, help="Copy the faults of the functions that are reproduced.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 when the package changed.")
def render(directory: Path, out: Path | None, results_dir: Path | None, **options: Any) -> int:
    r"""Run the functions of a package and of its sub-packages.

    Common functions run in this process; images only where they are pinned and an engine is named.
    Nothing is written unless every function could run and none failed.

    \b
    Exit codes: 0 done, 3 a function failed, 4 a function that nobody here can run.
    """
    from reconciler.apply.directory import check_writable, write_directory
    from reconciler.functions.pipeline import run_pipeline
    from reconciler.read.files import read_directory
    from reconciler.runtime.pipelines import open_runtimes

    policy = _policy(**{name: options[name] for name in _POLICY})
    target = out or directory
    if out is not None:
        check_writable(target, replaces=directory)
    before = read_directory(directory)
    with open_runtimes(policy) as runtimes:
        result = run_pipeline(before, runtimes, policy)
    if results_dir is not None:
        _write_results(results_dir, result)
    if result.ok and (dict(result.files) != before or target != directory):
        write_directory(result.files, target, replaces=directory)
    _print_result(result, before, options["output_format"])
    if not result.ok:
        return Exit.REFUSED if result.unrunnable else Exit.INVALID_INPUT
    changed = dict(result.files) != before
    return Exit.PENDING if changed and options["detailed_exitcode"] else Exit.DONE


_POLICY = ("config", "runtime", "engine_argument", "pin", "allow_exec", "executables", "compatible")


def _policy(
    *,
    config: Path | None,
    runtime: str | None,
    engine_argument: tuple[str, ...],
    pin: tuple[str, ...],
    allow_exec: bool,
    executables: tuple[str, ...],
    compatible: bool,
) -> "FunctionPolicy":
    policy = read_function_policy(config)
    container = policy.container
    if runtime or engine_argument:
        arguments = (*container.arguments, *engine_argument)
        container = replace(container, engine=runtime or container.engine, arguments=arguments)
    return replace(
        policy,
        container=container,
        images={**policy.images, **_pairs(pin, "--pin")},
        exec={**policy.exec, **_pairs(executables, "--exec")} if allow_exec else {},
        compatible=policy.compatible or compatible,
    )


def read_function_policy(config: Path | None) -> "FunctionPolicy":
    """Return what a configuration file says of functions; the default without one.

    Raises:
        ConfigurationError: The file is no configuration.
    """
    import os

    from reconciler.config import parse_configuration
    from reconciler.policy import FunctionPolicy

    if config is None:
        return FunctionPolicy()
    return parse_configuration(config.read_bytes(), str(config), os.environ).functions


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in given)
    if not all(name and value for name, value in pairs.items()):
        raise UsageError(f"{option} takes NAME=VALUE")
    return pairs


def _write_results(directory: Path, result: "PipelineResult") -> None:
    import os

    from reconciler.functions.step import result_list
    from reconciler.krm.yaml import emit
    from reconciler.report.redact import Redactor

    listed = Redactor.of_environment(os.environ).value(result_list(result))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.yaml").write_text(emit(listed) + "\n", encoding="utf-8")


def _print_result(result: "PipelineResult", before: "Files", output_format: str) -> None:
    from reconciler.cli.output import make_printer
    from reconciler.report.escape import terminal

    printer = make_printer(colour=False)
    if output_format == "json":
        printer.value(_value(result, before))
        return
    lines = [line for run in result.steps for line in _step_lines(run)]
    lines += [f"{kind:8} {path}" for kind, paths in _changes(before, result.files).items() for path in paths]
    if result.error:
        lines += [f"needs {each.function}: {each.reason}" for each in result.unrunnable] or [
            f"failed: {result.error}"
        ]
        lines.append("Nothing was written")
    elif not lines or dict(result.files) == before:
        lines.append("Nothing changed")
    printer.lines(terminal(line) for line in "\n".join(lines).split("\n"))


def _step_lines(run: Any) -> list[str]:
    end = f" (exit {run.exit_code})" if run.exit_code else ""
    lines = [f"{run.step} by {run.engine}{end}"]
    lines += [f"  {result.severity:8}{result.message}{_place(result)}" for result in run.results]
    return lines + [f"  stderr  {line}" for line in run.stderr.splitlines()[:4]]


def _place(result: Any) -> str:
    parts = [str((result.file or {}).get("path") or ""), str((result.field or {}).get("path") or "")]
    text = " ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _value(result: "PipelineResult", before: "Files") -> dict[str, Any]:
    from reconciler.functions.step import result_list

    return {
        "rendered": result.ok,
        "error": result.error,
        "unrunnable": [{"function": each.function, "reason": each.reason} for each in result.unrunnable],
        "changes": _changes(before, result.files),
        "results": result_list(result),
    }


def _changes(before: "Files", after: "Files") -> dict[str, list[str]]:
    both = before.keys() & after.keys()
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(path for path in both if before[path] != after[path]),
        "deleted": sorted(before.keys() - after.keys()),
    }
