"""`repo`: register repositories of packages, and list them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from reconciler.base.errors import Exit, RefusedError, UsageError, worst
from reconciler.base.text import terminal
from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    output_options,
    show_files,
    show_unread,
)
from reconciler.git.working_copy import find_working_copy
from reconciler.inventory.inventory import RepositoryView
from reconciler.krm.yaml import emit
from reconciler.names.ids import ObjectName
from reconciler.plan.build import find_unread
from reconciler.policy import Policy
from reconciler.read.configuration import FILE, parse_configuration
from reconciler.read.manifests import parse_manifests
from reconciler.report.console import table_lines
from reconciler.report.json import listing
from reconciler.run.inputs import read_inputs
from reconciler.run.options import RunOptions
from reconciler.workdir.control_files import append_document, read_manifest_files

FORMS = (Output.TEXT, Output.JSON)
_CLUSTER = "reconciler.dev/cluster"


@click.group()
def repo() -> None:
    r"""Register repositories, and list them with their reach and packages.

    \b
    Examples:
      reconciler repo add blueprints https://git.example/acme/blueprints.git
      reconciler repo add edge-east https://git.example/acme/edge-east.git --deployment
      reconciler repo list
    """


@repo.command()
@click.option(
    "--control",
    default=".",
    envvar="RECONCILER_CONTROL",
    show_default=True,
    help="The working copy of the control repository.",
)
@click.option("--branch", default="main", show_default=True, metavar="BRANCH", help="Where its packages are.")
@click.option("--directory", default="", metavar="PATH", help="Only this directory of it.")
@click.option("--deployment", is_flag=True, help="Packages in it are deployed: it belongs to a cluster.")
@click.option("--cluster", default="", metavar="NAME", help="Its cluster.  [default: NAME]")
@click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NAME",
    help="Namespace of the manifest.  [default: as configured]",
)
@output_options(*FORMS)
@click.argument("name")
@click.argument("url")
def add(*, control: str, name: str, url: str, output: str, **options: Any) -> Exit:
    r"""Register a repository: write its manifest into the working copy.

    It goes to repositories.yaml below the first manifest path. A name is registered once.

    \b
    Examples:
      reconciler repo add blueprints https://git.example/acme/blueprints.git
      reconciler repo add edge-east https://git.example/acme/edge-east.git --deployment --cluster east-1
      reconciler repo add teams https://git.example/acme/mono.git --directory teams
    """
    root, policy = _working_copy(control)
    document = _manifest(name, url, **options)
    _check(document, root, policy)
    path = Path(next((p for p in policy.manifests if not p.endswith((".yaml", ".yml"))), "manifests"))
    file = path / "repositories.yaml"
    append_document(root / file, document)
    lines = [f"wrote Repository {name} to {file}", 'Next: git add . && git commit, then "reconciler plan"']
    show_files(make_printer(), output, lines, written=[file])
    return Exit.DONE


def _working_copy(control: str) -> tuple[Path, Policy]:
    """Return the root of a working copy and the policy of its configuration, as they are on disk.

    Raises:
        UsageError: There is no working copy with a configuration.
        ConfigurationError: The configuration is wrong.
    """
    copy = find_working_copy(Path(control))
    if copy is None or not (copy.root / FILE).is_file():
        hint = "Name a working copy with --control, or run the command inside it."
        raise UsageError(f"{control} is no working copy of a control repository", hint=hint)
    return copy.root, parse_configuration((copy.root / FILE).read_bytes(), FILE, {})


def _manifest(
    name: str, url: str, *, branch: str, directory: str, deployment: bool, cluster: str, namespace: str
) -> dict[str, Any]:
    git = {"repo": url, "branch": branch, **({"directory": directory} if directory else {})}
    metadata: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    if cluster:
        metadata["annotations"] = {_CLUSTER: cluster}
    spec = {"type": "git", **({"deployment": True} if deployment else {}), "git": git}
    api = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository"}
    return {**api, "metadata": metadata, "spec": spec}


def _check(document: dict[str, Any], root: Path, policy: Policy) -> None:
    """Refuse a manifest that is invalid, or a name that is registered.

    Raises:
        UsageError: The name or the address cannot be.
        RefusedError: The name is registered.
    """
    if not document["spec"]["git"]["repo"].strip():
        raise UsageError("The address of the repository is empty", hint="Write reconciler repo add NAME URL.")
    parsed = parse_manifests({"the new manifest": f"{emit(document)}\n".encode()}, policy)
    if parsed.problems:
        problem = parsed.problems[0]
        raise UsageError(problem.message, hint=problem.hint)
    metadata = document["metadata"]
    key = ObjectName(metadata.get("namespace") or policy.default_namespace, metadata["name"])
    paths = {path: root / path for path in policy.manifests if (root / path).exists()}
    there = parse_manifests(read_manifest_files(paths), policy)
    for repository in there.repositories:
        if repository.key == key:
            hint = "Nothing was written. Change that manifest, or choose another name."
            raise RefusedError(f"Repository {key} is registered at {repository.source.location}", hint=hint)


@repo.command("list")
@control_options
@output_options(*FORMS)
def list_(settings: RunOptions, output: str) -> Exit:
    r"""List the registered repositories, and whether they can be read.

    Exits 5 if one cannot be read.

    \b
    Examples:
      reconciler repo list
      reconciler repo list -o json
    """
    inventory = read_inputs(settings).inventory
    views = sorted(inventory.repositories.values(), key=lambda view: view.key)
    printer = make_printer()
    if output == Output.JSON:
        printer.value(listing("RegisteredRepository", map(_value, views)))
    elif views:
        heads = ("REPOSITORY", "TYPE", "REACH", "PACKAGES", "DRAFTS", "LAST COMMIT", "ADDRESS")
        printer.lines(table_lines(heads, [tuple(_cells(view)) for view in views], printer.width))
    else:
        printer.lines(["No repository is registered."])
        printer.notes(["`reconciler repo add NAME URL` registers one"])
    return worst(show_unread(printer, find_unread(inventory)))


def _value(view: RepositoryView) -> dict[str, Any]:
    head = view.head if view.is_available else None
    drafts = sum(len(package.drafts) for package in view.packages.values())
    return {
        "namespace": view.key.namespace,
        "name": view.key.name,
        "type": "deployment" if view.deployment else "package",
        "address": view.remote,
        "branch": view.branch,
        "directory": view.directory,
        "cluster": view.cluster,
        "reachable": view.is_available,
        "error": view.problem.message if view.problem else "",
        "packages": len(view.packages) + (view.root is not None) if view.is_available else None,
        "drafts": drafts if view.is_available else None,
        "lastCommit": datetime.fromtimestamp(head.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if head else None,
    }


def _cells(view: RepositoryView) -> Iterator[str]:
    value = _value(view)
    yield terminal(view.key.name)
    yield value["type"]
    yield "ok" if value["reachable"] else "not read"
    yield from ("" if value[name] is None else str(value[name]) for name in ("packages", "drafts"))
    yield (value["lastCommit"] or "")[:10]
    yield terminal("/".join(filter(None, (view.remote, view.directory))))
