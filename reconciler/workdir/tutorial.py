"""The fleet of the tutorial and the guides: a package with two revisions, and two clusters without it."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from reconciler.git.working_copy import NewCommit, create_bare, create_with_files
from reconciler.workdir.demo import EPOCH, STEP_S, check_is_new
from reconciler.workdir.starter import Starter

CLUSTERS = ("east", "west")
STEPS = (
    ("Go to the control repository", ("cd fleet",)),
    ("Install the first revision of web in both clusters",
     ("reconciler apply", "reconciler approve --all", "reconciler apply")),
)  # fmt: skip
"""The title and the shell commands of each step that the command `demo` prints."""
_KPTFILE = dedent(
    """\
    apiVersion: kpt.dev/v1
    kind: Kptfile
    metadata:
      name: web
    """
)
_DEPLOYMENT = dedent(
    """\
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
    spec:
      replicas: 1
      selector:
        matchLabels:
          app: web
      template:
        metadata:
          labels:
            app: web
        spec:
          containers:
          - name: web
            image: nginx:1.27
    """
)


def write_tutorial(directory: Path, schemas: Mapping[str, str]) -> None:
    """Write the repositories below `directory`: blueprints, one for each cluster, and the control repository.

    Args:
        directory: A directory that is empty, or not there.
        schemas: Further files of the control repository, for editors.

    Raises:
        UsageError: The directory is not empty; nothing was written.
        UnavailableError: Git is missing or refused.
    """
    check_is_new(directory)
    blueprints, fleet = directory / "blueprints", directory / "fleet"
    clusters = [directory / f"{name}.git" for name in CLUSTERS]
    create_with_files(blueprints, [_revision("Add web", 1), _revision("Use nginx 1.29", 2)])
    for cluster in clusters:
        create_bare(cluster, ())
    addresses = tuple(str(path.resolve()) for path in (blueprints, *clusters))
    files = Starter("fleet", upstream=addresses[0], downstreams=addresses[1:]).files()
    create_with_files(fleet, [_commit("Describe the fleet", {**files, **schemas}, 2)])


def _revision(message: str, number: int) -> NewCommit:
    image = {1: "nginx:1.27", 2: "nginx:1.29"}[number]
    files = {"web/Kptfile": _KPTFILE, "web/deployment.yaml": _DEPLOYMENT.replace("nginx:1.27", image)}
    return _commit(message, files, number - 1, f"web/v{number}")


def _commit(message: str, files: Mapping[str, str], hour: int, *tags: str) -> NewCommit:
    content = {path: text.encode() for path, text in files.items()}
    return NewCommit(message, content, EPOCH + STEP_S * hour, tags)
