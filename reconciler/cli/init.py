"""`init`: a first reconciler.yaml, with every common setting explained."""

import re
from pathlib import Path
from string import Template

import click

from reconciler.cli.output import make_printer
from reconciler.errors import Exit, RefusedError, UsageError

CONFIGURATION = Template(
    """\
# What the reconciler may do in this repository; `reconciler schema` has every setting.
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  # Packages are owned under this name. Choose it once: it must never change.
  name: $instance
spec:
  # Files and directories with PackageVariants, PackageVariantSets and Repositories.
  manifests:
  - manifests
  # Namespace of manifests that name none.
  # defaultNamespace: default

  # What the cluster holds; `reconciler snapshot import` writes it.
  snapshot:
    path: snapshot
    # A snapshot that is older than this deletes nothing.
    # maxAge: 7d

  # A draft gets its pull request at once (draft), or when somebody proposes it (propose).
  # pullRequests:
  #   openOn: draft

  # A plan that deletes more than this is refused until a person consents.
  # deletions:
  #   share: 0.3
  #   minimum: 10
  #   count: 100

  # Who makes the commits.
  # commits:
  #   name: Package Reconciler
  #   email: package-reconciler@reconciler.dev

  # What one unreachable repository means: fail (exit code 5) or warn.
  # unavailable: fail

  # Where credentials are found: names of variables and files, never secrets.
  # credentials:
  # - prefix: https://git.example.com/
  #   tokenEnv: GIT_TOKEN
"""
)

MANIFESTS = """\
# Manifests

PackageVariants, PackageVariantSets and Repositories: any number in a file, any number of files.
`reconciler plan` shows what they mean.
"""

SNAPSHOT = """\
# Snapshot

What the cluster holds, for sets that select objects; `reconciler snapshot import` writes it.
"""


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--instance", default="", help="Name of the instance.  [default: the directory's name]")
def init(directory: Path, instance: str) -> Exit:
    r"""Write a first reconciler.yaml into DIRECTORY, with folders for manifests and snapshot.

    What exists is never overwritten: if any of the files is there, nothing is written.

    \b
    Example:
      reconciler init fleet && cd fleet && git init && git add . && git commit -m "Start"
    """
    name = instance or _instance_of(directory)
    files = {
        "reconciler.yaml": CONFIGURATION.substitute(instance=name),
        "manifests/README.md": MANIFESTS,
        "snapshot/README.md": SNAPSHOT,
    }
    _check(name, files["reconciler.yaml"])
    there = [path for path in files if (directory / path).exists()]
    if there:
        raise RefusedError(
            f"{', '.join(str(directory / path) for path in there)} exists already",
            hint="Nothing was written. Name another directory, or remove it first.",
        )
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")
    make_printer().lines(
        [*(f"wrote {directory / path}" for path in files), "Next: commit, `reconciler plan`."]
    )
    return Exit.DONE


def _instance_of(directory: Path) -> str:
    word = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return word[:63].strip("-") or "default"


def _check(name: str, text: str) -> None:
    """Refuse a name that the configuration could not hold.

    Raises:
        UsageError: The name cannot be an instance's.
    """
    from reconciler.config import parse_configuration
    from reconciler.errors import ConfigurationError

    try:
        parse_configuration(text.encode(), "reconciler.yaml", {})
    except ConfigurationError as error:
        raise UsageError(f"{name!r} cannot name an instance", hint=error.hint) from error
