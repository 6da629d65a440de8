"""`package`: update and render packages in directories, as kpt does, and make them of charts."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, cast, get_args

import click
from msgspec.structs import asdict

from reconciler.api.kptfile import KPTFILE
from reconciler.base import effects
from reconciler.base.errors import ConfigurationError, Exit, Location, RefusedError, UsageError
from reconciler.base.redact import Redactor
from reconciler.base.text import plural, terminal
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Printer,
    cache_dir_option,
    config_option,
    detailed_exitcode_option,
    out_directory_option,
    output_options,
)
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.resources import other_documents
from reconciler.functions.runtimes.pipelines import limited, open_runtimes
from reconciler.functions.secrets import MASK, hides_field
from reconciler.functions.step import PipelineResult, result_list
from reconciler.git.working_copy import find_working_copy
from reconciler.krm.yaml import emit
from reconciler.names.objects import Files
from reconciler.names.refs import TAGS, parse_ref, ref_error, tag_ref
from reconciler.policy import Engine, FunctionPolicy, MergeMode, OnConflict, Policy, Strategy
from reconciler.read.configuration import parse_configuration
from reconciler.read.files import read_package
from reconciler.render.update import Conflict, Updated, UpdateRefused, update_package, upstream_of
from reconciler.render.update.identifiers import with_identifiers
from reconciler.report.conflicts import cut_lines
from reconciler.run.from_chart import read_chart, write_package
from reconciler.workdir.directory import check_writable, write_directory

EXISTING = click.Path(path_type=Path, exists=True, file_okay=False)

_MOST_NAMED = 20


@click.group(cls=CommandGroup)
def package() -> None:
    r"""Update and render packages in directories, and make them of charts.

    \b
    Examples:
      reconciler package from-chart ../charts/web blueprints/web
      reconciler package render edge-east/nginx
      reconciler package update --original nginx-v1 --upstream nginx-v2 --local nginx --out-dir nginx
    """


@package.command("from-chart")
@click.argument("chart", metavar="CHART")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option(
    "--version",
    default="",
    metavar="RANGE",
    help="A version or a range, such as ~1.2; of Git also a tag, branch or commit.",
)
@config_option
@cache_dir_option
@output_options(whole_lines=True)
def from_chart(
    chart: str,
    directory: Path | None,
    *,
    version: str,
    config: Path | None,
    cache_dir: Path | None,
    printer: Printer,
) -> Exit:
    r"""Make a package of a Helm chart, or update its chart.

    CHART is a directory, an archive (.tgz), oci://REGISTRY/NAME, https://REPOSITORY/NAME (a repository of
    charts with an index.yaml) or REPOSITORY.git/PATH. The chart is vendored into the package and pinned by
    its digest: no run fetches it. DIRECTORY is, by default, the name of the chart. Of a package that is there
    only the chart is replaced, with its version, digest and commented defaults. The range is recorded:
    `index sync --pull-request` proposes newer charts in it.

    Mirrors, credentials and limits are those of the reconciler.yaml that --config names; credentials that
    docker and podman stored count too.

    \b
    Examples:
      reconciler package from-chart ../charts/web blueprints/web
      reconciler package from-chart web-1.2.0.tgz blueprints/web
      reconciler package from-chart oci://registry.example.com/charts/web blueprints/web --version=~1.2
      reconciler package from-chart https://charts.example.com/stable/web --config ../fleet/reconciler.yaml
      reconciler package from-chart https://git.example.com/charts.git/charts/web --version v1.2.0
    """
    read = read_chart(chart, version, policy_of_file(config), cache_dir)
    target = directory or Path(read.name)
    is_new = not target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        steps = list(_steps_to_publish(target.resolve()))
        changed = write_package(read, target)
    except BaseException:
        if is_new:
            target.rmdir()
        raise
    lines = [f"{target} has {read.name} {read.version} already: nothing changed"]
    if changed:
        brought = [f"with {source}" for source in read.brought]
        lines = [f"wrote {target}: {read.name} {read.version}, {plural(len(changed), 'file')}", *brought]
    if left_out := _left_out(target):
        steps = [line.replace("git add ", "git add -f ") for line in steps]
    lines += [*left_out, *(steps if changed or left_out else ())]
    printer.files(lines, written=[target / path for path in changed])
    return Exit.DONE


def _left_out(target: Path) -> list[str]:
    """Return lines about files that a .gitignore of the repository, or of its user, keeps from the commit."""
    copy = find_working_copy(target.resolve())
    ignored = copy.ignored(path for path in sorted(target.rglob("*")) if path.is_file()) if copy else ()
    head = f"note: a .gitignore leaves out {plural(len(ignored), 'file')} of it, so add them with -f:"
    names = [*map(str, ignored[:_MOST_NAMED]), f"and {len(ignored) - _MOST_NAMED} more"]
    return [head, *(f"  {name}" for name in names[: len(ignored)])] if ignored else []


def _steps_to_publish(directory: Path) -> Iterator[str]:
    """Yield what remains to be done before a fleet sees the package of a directory without a Kptfile."""
    copy = find_working_copy(directory)
    package = directory.relative_to(copy.root.resolve()).as_posix() if copy else directory.name
    why = "it is the root of its repository" if package == "." else ref_error(tag_ref(package, 1))
    if why:
        hint = "Nothing was written. Name a directory below the root whose path can be part of a tag."
        raise RefusedError(f"No fleet can have a package at {package}: {why}", hint=hint)
    parents = [parent for parent in PurePosixPath(package).parents if parent.name and copy]
    above = [parent for parent in parents if copy and (copy.root / parent / KPTFILE).exists()]
    below = sorted(path.parent for path in directory.rglob(KPTFILE) if path.parent != directory)
    if above:
        yield f"note: it is a sub-package of {above[-1]}"
    if below:
        names = ", ".join(path.relative_to(directory).as_posix() for path in below)
        yield f"note: these are its sub-packages now: {names}"
    tags = copy.tags(f"{package}/") if copy else ()
    number = max((ref.revision for tag in tags if (ref := parse_ref(TAGS + tag))), default=0)
    path, tag = quote(package), quote(f"{package}/v{max(number, 0) + 1}")
    yield from ("", "Next:")
    if copy is None:
        yield "  put the directory into a Git repository, and there:"
    elif copy.root.resolve() != Path.cwd():
        yield f"  cd {quote(str(copy.root))}"
    yield f"  git add {path} && git commit -m {quote(f'Make a package of {package}')}"
    yield f"  git tag {tag}"
    yield f"  git push origin HEAD {tag}"


@package.command()
@click.option("--original", type=EXISTING, required=True, help="The upstream that the package was made from.")
@click.option("--upstream", type=EXISTING, required=True, help="The upstream to update to.")
@click.option("--local", type=EXISTING, required=True, help="The package, with what people changed in it.")
@out_directory_option("Where the result goes; may be the local directory.", required=True)
@output_options(color=False, whole_lines=True)
@click.option(
    "--strategy",
    type=click.Choice([s.value for s in Strategy]),
    help="[default: the Kptfile's, else resource-merge]",
)
@click.option(
    "--mode",
    type=click.Choice([m.value for m in MergeMode]),
    default="default",
    show_default=True,
    help="How to merge: `compatible` as kpt does, also where it loses data.",
)
@click.option(
    "--on-conflict",
    type=click.Choice([c.value for c in OnConflict]),
    default="ask",
    show_default=True,
    help="Who wins where both sides changed one value; `ask` keeps local's and exits 7.",
)
@click.option("--ref", default="", help="The upstream's new ref, to be recorded in the Kptfile.")
@click.option("--commit", default="", help="The upstream's new commit, to be recorded in the Kptfile.")
def update(original: Path, upstream: Path, local: Path, out: Path, printer: Printer, **options: Any) -> int:
    r"""Bring a new upstream into a package that people have edited.

    Nothing is written unless the whole package could be updated.

    \b
    Exit codes: 0 done, 3 the package cannot be read, 4 refused, 7 conflicts remain.

    \b
    Example:
      reconciler package update --original nginx-v1 --upstream nginx-v2 --local nginx --out-dir nginx
    """
    check_writable(out, replaces=local)
    sides = tuple(read_package(side, needs_kptfile=side is local) for side in (original, upstream, local))
    try:
        updated = _update(*sides, **options)
    except UpdateRefused as refused:
        _print_refusal(printer, refused, sides)
        return refused.exit_code
    write_directory(updated.files, out, replaces=local)
    _print_update(printer, updated, sides)
    return Exit.WAITING if updated.conflicts else Exit.DONE


def _update(
    original: Files, upstream: Files, local: Files, *, ref: str, commit: str, **options: Any
) -> Updated:
    if original != upstream:
        original, upstream, local = with_identifiers(original, upstream, local)
    new = upstream_of(local, ref=ref, commit=commit) if ref or commit else None
    if new is None and (ref or commit):
        hint = "Leave --ref and --commit out, or write `upstream.git` into the Kptfile."
        raise UsageError("The Kptfile of the package has no upstream, so no ref can be recorded", hint=hint)
    strategy = options["strategy"]
    return update_package(
        original,
        upstream,
        local,
        strategy=Strategy(strategy) if strategy else None,
        mode=MergeMode(options["mode"]),
        on_conflict=OnConflict(options["on_conflict"]),
        new_upstream=new,
    )


def _print_update(printer: Printer, updated: Updated, sides: tuple[Files, ...]) -> None:
    changes = _changes(sides[2], updated.files)
    conflicts = [_conflict_value(conflict, sides) for conflict in updated.conflicts]
    details = {"notes": list(updated.notes), "fallbacks": updated.fallbacks}
    value = {"updated": True, "changes": changes, "conflicts": conflicts, **details}
    lines = [f"{kind:8} {path}" for kind, paths in changes.items() for path in paths]
    lines += [*updated.notes, *_conflict_lines(conflicts)]
    printer.show(value, _safe(lines or ["Nothing changed"]))


def _print_refusal(printer: Printer, refused: UpdateRefused, sides: tuple[Files, ...]) -> None:
    conflicts = [_conflict_value(conflict, sides) for conflict in refused.conflicts]
    why = {"reason": refused.reason, "message": refused.message, "paths": list(refused.paths)}
    value = {"updated": False, "refused": why, "conflicts": conflicts}
    printer.show(value, _safe([f"refused: {refused.reason}: {refused.message}", *_conflict_lines(conflicts)]))


def _changes(before: Files, after: Files) -> dict[str, list[str]]:
    both = before.keys() & after.keys()
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(path for path in both if before[path] != after[path]),
        "deleted": sorted(before.keys() - after.keys()),
    }


def _conflict_value(conflict: Conflict, sides: tuple[Files, ...]) -> dict[str, Any]:
    value: dict[str, Any] = asdict(conflict)
    del value["template"]  # of a chart, and none is rendered here
    values = (conflict.base, conflict.upstream, conflict.local)
    if hides_field(sides, conflict.path, conflict.field, *values):
        value |= {side: MASK for side in ("base", "upstream", "local") if value[side] is not None}
        value["hidden"] = True
    return value


def _conflict_lines(conflicts: list[dict[str, Any]]) -> list[str]:
    lines = []
    for conflict in conflicts:
        place = ": ".join(
            part for part in (conflict["path"], conflict["resource"], conflict["field"]) if part
        )
        lines.append(f"conflict {place} ({conflict['reason']})")
        for side in ("base", "upstream", "local"):
            text = conflict[side]
            cut = ["(absent)"] if text is None else cut_lines(text.strip().split("\n"))
            lines.append("\n             ".join([f"  {side:9} {cut[0]}", *cut[1:]]))
    return lines


def _safe(lines: list[str]) -> Iterator[str]:
    return ("\n".join(map(terminal, line.split("\n"))) for line in lines)


runtime_option = click.option(
    "--runtime",
    type=click.Choice(get_args(Engine)[1:]),
    help="The engine of containers, for pinned images.  [default: the configuration's]",
)


@package.command()
@click.argument("directory", type=EXISTING, default=".")
@out_directory_option("Where the result goes.  [default: DIRECTORY]")
@output_options(color=False)
@click.option(
    "--results-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Write results.yaml there, as kpt does.",
)
@config_option
@runtime_option
@click.option(
    "--engine-argument", multiple=True, metavar="ARG", help="One more argument of the engine's run."
)
@click.option("--pin", multiple=True, metavar="IMAGE=DIGEST", help="Digest of an image, by its name and tag.")
@click.option("--allow-exec", is_flag=True, help="Let the executables run that are mapped.")
@click.option(
    "--exec", "executables", multiple=True, metavar="NAME=PATH", help="Map a name to an executable."
)
@click.option("--compatible", is_flag=True, help="Copy the faults of the functions that are reproduced.")
@detailed_exitcode_option
def render(
    directory: Path, out: Path | None, results_dir: Path | None, printer: Printer, **options: Any
) -> int:
    r"""Run the functions of a package and of its sub-packages.

    Common functions run in this process; images only where they are pinned and an engine is named.
    Nothing is written unless every function could run and none failed. Only where the Kptfile has the
    annotation kpt.dev/save-on-render-failure: "true", and without --out-dir, the changes of the functions
    before the one that failed are written.

    \b
    Exit codes: 0 done, 3 a function failed, 4 a function that cannot run here.

    \b
    Example:
      reconciler package render edge-east/nginx --out-dir rendered
    """
    policy = _policy(**{name: options[name] for name in _POLICY})
    target = out or directory
    if out is not None:
        check_writable(target, replaces=directory)
    before = read_package(directory)
    others = list(other_documents(before))
    if others and policy.compatible:
        path, why = others[0]
        hint = "Leave out --compatible: then such a document is kept, and functions do not see it."
        raise ConfigurationError(f"This is no resource: {why}", location=Location(path), hint=hint)
    with effects.interruptible(), open_runtimes(policy) as runtimes:
        ends_s = time.monotonic() + policy.run_timeout_s
        limits = policy_of_file(options["config"]).limits
        result = run_pipeline(before, runtimes, policy, limited(policy, ends_s), limits=limits)
    if results_dir is not None:
        listed = Redactor.of_environment(os.environ).value(result_list(result))
        results_dir.mkdir(parents=True, exist_ok=True)
        (results_dir / "results.yaml").write_text(emit(listed) + "\n", encoding="utf-8")
    partial = result.partial if out is None else None
    written = dict(result.files if result.ok else partial or before)
    if written != before or (result.ok and target != directory):
        write_directory(written, target, replaces=directory)
    _print_result(printer, result, before, written)
    printer.notes(f"{path} is no resource: {why}. Functions do not see it" for path, why in others)
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
) -> FunctionPolicy:
    policy = policy_of_file(config).functions
    return replace(
        policy,
        runtime=cast("Engine", runtime or policy.runtime),
        engine_arguments=(*policy.engine_arguments, *engine_argument),
        images={**policy.images, **_pairs(pin, "--pin")},
        exec={**policy.exec, **_pairs(executables, "--exec")} if allow_exec else {},
        compatible=policy.compatible or compatible,
    )


def policy_of_file(config: Path | None) -> Policy:
    """Return the settings of a configuration file; the defaults without one.

    Raises:
        ConfigurationError: The file is no configuration.
    """
    if config is None:
        return Policy()
    return parse_configuration(config.read_bytes(), str(config), os.environ)


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    if not all(name and value for name, value in pairs.items()):
        raise UsageError(f"{option} takes NAME=VALUE", hint=f"Write it like {option} region=eu.")
    return pairs


def _print_result(printer: Printer, result: PipelineResult, before: Files, written: Files) -> None:
    changes = _changes(before, written)
    value = {
        "rendered": result.ok,
        "error": result.error,
        "unrunnable": [{"function": u.function, "reason": u.reason} for u in result.unrunnable],
        "changes": changes,
        "results": result_list(result),
    }
    lines = [line for run in result.steps for line in _step_lines(run)]
    lines += [f"{kind:8} {path}" for kind, paths in changes.items() for path in paths]
    if result.error:
        lines += [f"needs {function.function}: {function.reason}" for function in result.unrunnable] or [
            f"failed: {result.error}"
        ]
        lines.append("Nothing was written" if written == before else "What was changed before is written")
    elif not lines or written == before:
        lines.append("Nothing changed")
    printer.show(value, (terminal(line) for line in "\n".join(lines).split("\n")))


def _step_lines(run: Any) -> list[str]:
    end = f" (exit {run.exit_code})" if run.exit_code else ""
    lines = [f"{run.step} by {run.engine}{end}"]
    for result in run.results:
        places = (str((place or {}).get("path") or "") for place in (result.file, result.field))
        where = " ".join(filter(None, places))
        lines.append(f"  {result.severity:8}{result.message}{f' ({where})' if where else ''}")
    return lines + [f"  stderr  {line}" for line in run.stderr.splitlines()[:4]]
