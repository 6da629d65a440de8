"""`init`: the first files of a control repository, or those of a cluster with Porch."""

import re
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import click

from reconciler.base.errors import ConfigurationError, Exit, RefusedError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.progress import current_display
from reconciler.base.redact import Redactor
from reconciler.cli.output import Printer, output_options
from reconciler.cli.schema import manifest_schema
from reconciler.cli.validate import problem_lines
from reconciler.git.working_copy import find_working_copy
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.objects import check_names
from reconciler.read.configuration import parse_configuration
from reconciler.report.machine import dump
from reconciler.run.validate import validate_files
from reconciler.workdir.manifest_files import read_manifest_files
from reconciler.workdir.porch_export import convert_export
from reconciler.workdir.starter import FILES, FORGES, SCHEMAS, Starter

_OF_SHELL = "and put one into the variable GIT_TOKEN of this shell (docs/forges.md has its permissions)"
_LEFT_TO_DO: Mapping[str, tuple[str, ...]] = {
    "github": (
        "create a GitHub App (docs/security.md has its permissions), install it on the repositories,",
        "write its numbers into reconciler.yaml and its private key into the secret FLEET_APP_KEY",
    ),
    "gitlab": (
        "create the tokens that the head of .gitlab-ci.yml names, as variables of the project,",
        "and a pipeline schedule, by which it looks again",
    ),
    "gitea": (
        "create the tokens that the head of .gitea/workflows/reconciler.yml names, as secrets,",
        _OF_SHELL,
    ),
    "azure": (
        "create the tokens that the head of azure-pipelines.yml names, as secrets of the pipeline,",
        _OF_SHELL,
        "create the pipeline from azure-pipelines.yml, and make it the build validation of main",
    ),
    "bitbucket": (
        "create the tokens that the head of bitbucket-pipelines.yml names, as secured variables,",
        _OF_SHELL,
        "enable Pipelines, and give the pipeline look-again a schedule",
    ),
}
"""The steps of a person at each forge, before its pipeline runs."""
_UNRELEASED = regex("your[-]org/", re.IGNORECASE)
"""The placeholder of the publisher in workflows, until a release is made."""


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--instance", default="", help="Name of the instance.  [default: the directory's name]")
@click.option("--forge", type=click.Choice(FORGES), help="Where pull requests are.  [default: none]")
@click.option(
    "--upstream-url",
    "upstream",
    default="",
    metavar="URL",
    help="The repository with the packages to install.",
)
@click.option("--package", default="web", show_default=True, help="A package of it.")
@click.option(
    "--revision", type=click.IntRange(1), default=1, show_default=True, help="Revision of --package."
)
@click.option(
    "--downstream-url",
    "downstreams",
    multiple=True,
    metavar="URL",
    help="The repository of a cluster; may be repeated.",
)
@output_options(whole_lines=True)
@click.option(
    "--from-porch",
    "exports",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="FILE|DIRECTORY",
    help="Convert manifests of Porch, from kubectl or a repository; may be repeated.",
)
def init(
    directory: Path,
    *,
    instance: str,
    forge: str | None,
    upstream: str,
    package: str,
    revision: int,
    downstreams: tuple[str, ...],
    exports: tuple[Path, ...],
    printer: Printer,
) -> Exit:
    r"""Write the first files of a control repository into DIRECTORY, and print the next steps.

    These are reconciler.yaml, first manifests, the schemas by which editors complete and check them, and
    the pipeline of the forge. On a terminal it prompts for values
    without option. What exists is never overwritten: if any of the files is there, nothing is written.

    \b
    Examples:
      reconciler init fleet
      reconciler init fleet --forge github --upstream-url https://github.com/acme/blueprints.git \
        --package web --downstream-url https://github.com/acme/edge.git
      kubectl get repositories.config.porch.kpt.dev,packagevariants,packagevariantsets -A -o yaml > porch.yaml
      reconciler init fleet --from-porch porch.yaml

    With --from-porch each change is printed with its reason. It exits 3 where manifests need corrections.
    """
    converts = bool(exports)
    word = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    name = instance or word[:63].strip("-") or "default"
    starter = Starter(name, forge or FORGES[0], upstream, downstreams, package, revision)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal and not (forge or upstream or downstreams or converts):
        with current_display().paused():
            starter = _ask(starter)
    source = Path(starter.upstream) if starter.upstream else None
    copy = find_working_copy(source) if source and source.is_dir() else None
    starter = starter._replace(branch=(copy and copy.branch) or "main")
    conversion = (
        convert_export(read_manifest_files({str(path): path for path in exports})) if exports else None
    )
    files = starter.files(conversion.manifests if conversion else None)
    _check(starter.instance, files)
    files |= editor_schemas(files)
    _write(directory, files)
    written = [directory / path for path in files]
    lines = [f"note: {note}" for note in conversion.lines()] if conversion else []
    lines += (f"wrote {path}" for path in written)
    # What no rule can mend, as `validate` prints it.
    made = {path: text.encode() for path, text in files.items() if path.startswith("manifests/")}
    wrong = list(problem_lines(validate_files(made).problems)) if converts else []
    lines += (f"{directory}/{line}" if line[0] != " " else line for line in wrong)
    lines += _next_steps(directory, starter, files, converted=converts, is_valid=not wrong)
    printer.files(lines, written=written)
    return Exit.INVALID_INPUT if wrong else Exit.DONE


def _ask(starter: Starter) -> Starter:
    """Return the answers of the person at the terminal; each question has an answer already."""
    instance = click.prompt("Name of the instance, which owns packages and never changes", starter.instance)
    forge = click.prompt("Where are pull requests", FORGES[0], type=click.Choice(FORGES))
    upstream = click.prompt("URL of the repository with the packages to install (empty: later)", "")
    if not upstream:
        return starter._replace(instance=instance, forge=forge)
    package = click.prompt("Package of that repository to install", starter.package)
    revision = click.prompt(f"Revision of {package}", starter.revision, type=click.IntRange(1))
    return Starter(instance, forge, upstream, tuple(_ask_for_clusters()), package, revision)


def _ask_for_clusters() -> Iterator[str]:
    question = "URL of the repository of a cluster (empty: later)"
    while address := click.prompt(question, ""):
        yield address
        question = "URL of the repository of another cluster (empty: no more)"


def editor_schemas(files: Container[str]) -> dict[str, str]:
    """Return the schemas that the first files of a control repository name, by their paths."""
    kinds = ["Reconciler", *(kind for kind, name in FILES.items() if f"manifests/{name}" in files)]
    return {f"{SCHEMAS}/{kind.lower()}.json": dump(manifest_schema(kind), Redactor()) for kind in kinds}


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Write all files, or none if one of them exists."""
    check_names(files, maker="An object's name")
    there = [path for path in files if (directory / path).exists()]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise RefusedError(
            f"{directory / there[0]}{more}: exists already",
            hint="Nothing was written. Name another directory, or remove it first.",
        )
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def _next_steps(
    directory: Path, starter: Starter, files: Mapping[str, str], *, converted: bool, is_valid: bool
) -> Iterator[str]:
    yield ""
    yield "Next:"
    if not converted and not starter.is_complete:
        yield "  write your repositories and a package into manifests/: the files show how"
    yield from (f"  {line}" for line in _LEFT_TO_DO.get(starter.forge, ()))
    if any(map(_UNRELEASED.search, files.values())):
        yield "  write your copy of the reconciler into the workflow (docs/guides/host-your-copy.md says how)"
    if directory.resolve() != Path.cwd():
        yield f"  cd {directory}"
    if find_working_copy(directory.absolute()) is None:
        yield "  git init -b main"
    if not is_valid:
        yield "  correct what is told above, until this finds nothing: reconciler validate"
    yield '  git add . && git commit -m "Describe the fleet"'
    if starter.forge != FORGES[0]:
        yield "  git remote add origin ADDRESS && git push -u origin main"
    yield "  reconciler plan"


def _check(name: str, files: Mapping[str, str]) -> None:
    """Refuse a name, an address or a package that the files could not hold."""
    try:
        parse_configuration(files["reconciler.yaml"].encode(), "reconciler.yaml", {})
    except ConfigurationError as error:
        raise UsageError(f"{name!r} cannot name an instance", hint=error.hint) from error
    for path in (f"manifests/{file}" for file in FILES.values()):
        try:
            load_documents(files.get(path, "").encode())
        except YamlError as error:
            raise UsageError(
                f"{path} would not be YAML: {error}", hint="Check addresses and names."
            ) from error
