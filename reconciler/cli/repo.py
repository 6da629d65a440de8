"""`repo`: register repositories of packages, and list them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.base.errors import Exit, RefusedError, UsageError, worst
from reconciler.base.text import iso_time, terminal
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    output_options,
    show_unread,
    working_copy_option,
)
from reconciler.inventory.inventory import RepositoryView
from reconciler.krm.yaml import emit
from reconciler.names.ids import ObjectName
from reconciler.plan.build import find_unread
from reconciler.policy import Policy
from reconciler.read.configuration import FILE, parse_configuration
from reconciler.read.manifests import Manifests, parse_manifests
from reconciler.report.console import table_lines
from reconciler.report.machine import listing
from reconciler.run.options import RunOptions
from reconciler.run.plan import read_inputs
from reconciler.workdir.control_files import append_document
from reconciler.workdir.manifest_files import read_manifest_files

_CLUSTER = "reconciler.dev/cluster"


@click.group(cls=CommandGroup)
def repo() -> None:
    r"""Register repositories, and list them with their reach and packages.

    \b
    Examples:
      reconciler repo add blueprints https://git.example/acme/blueprints.git
      reconciler repo add edge-east https://git.example/acme/edge-east.git --deployment --label role=cluster
      reconciler repo list
    """


@repo.command()
@working_copy_option
@click.option("--branch", default="main", show_default=True, metavar="BRANCH", help="Where its packages are.")
@click.option("--directory", default="", metavar="PATH", help="Only this directory of it.")
@click.option("--deployment", is_flag=True, help="Packages in it are deployed: it belongs to a cluster.")
@click.option("--cluster", default="", metavar="NAME", help="Its cluster.  [default: NAME]")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="A label KEY=VALUE of its manifest, by which sets select it; repeatable.",
)
@click.option(
    "--create-branch/--no-create-branch",
    default=None,
    help="Make the branch where the repository is empty.  [default: with --deployment]",
)
@click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NAME",
    help="Namespace of the manifest.  [default: as configured]",
)
@output_options()
@click.argument("name")
@click.argument("url")
def add(*, root: Path, name: str, url: str, printer: Printer, **options: Any) -> Exit:
    r"""Register a repository: write its manifest into the working copy.

    It goes to repositories.yaml below the first manifest path. A name is registered once.

    \b
    Examples:
      reconciler repo add blueprints https://git.example/acme/blueprints.git
      reconciler repo add edge-east https://git.example/acme/edge-east.git --deployment --label role=cluster
      reconciler repo add edge-west https://git.example/acme/edge-west.git --deployment --cluster west-1
      reconciler repo add teams https://git.example/acme/mono.git --directory teams
    """
    if not (root / FILE).is_file():
        hint = "Name a working copy with --control, or run the command inside it."
        raise UsageError(f"{root} has no {FILE}, so it is no control repository", hint=hint)
    policy = parse_configuration((root / FILE).read_bytes(), FILE, {})
    document = _manifest(name, url, **options)
    there = _check(document, root, policy)
    path = Path(next((p for p in policy.manifests if not p.endswith((".yaml", ".yml"))), "manifests"))
    file = path / "repositories.yaml"
    append_document(root / file, document)
    printer.files(_written_lines(name, file, document, there), written=[file])
    return Exit.DONE


def _written_lines(name: str, file: Path, document: dict[str, Any], there: Manifests) -> Iterator[str]:
    """Yield what was written and what comes next; a cluster that no set selects needs a label first."""
    yield f"wrote Repository {name} to {file}"
    targets = [target for pvs in there.sets for target in pvs.manifest.spec.targets or ()]
    named = {repository.name for target in targets for repository in target.repositories or ()}
    selectors = [s for target in targets if (s := target.repository_selector) is not None]
    of_sets = [s.match_labels or {} for s in selectors if not s.match_expressions]
    labels = document["metadata"].get("labels", {}).items()
    is_selected = name in named or any(labels >= of_set.items() for of_set in of_sets)
    if document["spec"].get("deployment") and of_sets and not is_selected:
        pairs = sorted({f"{key}={value}" for of_set in of_sets for key, value in of_set.items()})
        yield f"No set selects it yet: they select by {', '.join(pairs)}. Write the label into {file}."
    yield f'Next: git add {file} && git commit -m "Register {name}", then "reconciler plan"'


def _manifest(
    name: str,
    url: str,
    *,
    branch: str,
    directory: str,
    deployment: bool,
    cluster: str,
    labels: Sequence[str],
    create_branch: bool | None,
    namespace: str,
) -> dict[str, Any]:
    git: dict[str, Any] = {"repo": url, "branch": branch, **({"directory": directory} if directory else {})}
    if deployment if create_branch is None else create_branch:
        git["createBranch"] = True
    metadata: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    if labels:
        metadata["labels"] = dict(map(_parse_label, labels))
    if cluster:
        metadata["annotations"] = {_CLUSTER: cluster}
    spec = {"type": "git", **({"deployment": True} if deployment else {}), "git": git}
    api = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository"}
    return {**api, "metadata": metadata, "spec": spec}


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UsageError(f"{text!r} is no label", hint="Write it as KEY=VALUE, such as role=cluster.")
    return key, value


def _check(document: dict[str, Any], root: Path, policy: Policy) -> Manifests:
    """Refuse an invalid manifest, or a name that is registered; return the manifests that are there."""
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
    return there


@repo.command("list")
@control_options
@output_options()
def list_(settings: RunOptions, printer: Printer) -> Exit:
    r"""List the registered repositories, and whether they can be read.

    Exits 5 if one cannot be read.

    \b
    Examples:
      reconciler repo list
      reconciler repo list -o json
    """
    inventory = read_inputs(settings).inventory
    views = sorted(inventory.repositories.values(), key=lambda view: view.key)
    heads = ("REPOSITORY", "TYPE", "REACH", "PACKAGES", "DRAFTS", "LAST COMMIT", "ADDRESS")
    table = table_lines(heads, [tuple(_cells(view)) for view in views], printer.width)
    lines = table if views else ["No repository is registered."]
    printer.show(listing("RegisteredRepository", map(_value, views)), lines)
    if not views and printer.form is not Output.JSON:
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
        "lastCommit": iso_time(head.time) if head else None,
    }


def _cells(view: RepositoryView) -> Iterator[str]:
    value = _value(view)
    yield terminal(view.key.name)
    yield value["type"]
    yield "ok" if value["reachable"] else "not read"
    yield from ("" if value[name] is None else str(value[name]) for name in ("packages", "drafts"))
    yield (value["lastCommit"] or "")[:10]
    yield terminal("/".join(filter(None, (view.remote, view.directory))))
