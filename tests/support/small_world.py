"""A small world as real repositories: control, blueprints, a few downstreams with two packages each."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tests.support.git import Change, kptfile, make_repository
from tests.support.world import World, restored

EDGES = ("edge-1", "edge-2", "edge-3")


def write_world(
    root: Path, edges: tuple[str, ...] = EDGES, *, more: Mapping[str, str] | None = None
) -> World:
    """Make the repositories below `root`; `more` are further files of the control repository."""
    root.mkdir()
    blueprints = make_repository(root / "blueprints.git", blueprint("web", 1) | blueprint("db", 1))
    blueprints.tag("web/v1")
    blueprints.tag("db/v1")
    blueprints.commit(blueprint("web", 2), message="web v2\n")
    blueprints.tag("web/v2")
    for edge in edges:
        make_repository(root / f"{edge}.git", {"README.md": f"{edge}\n"})
    files = {"reconciler.yaml": CONFIGURATION}
    for name in ("blueprints", *edges):
        files[f"manifests/repositories/{name}.yaml"] = repository(name)
    for edge in edges:
        files |= {manifest(edge, p): variant(edge, p) for p in ("web", "db")}
    make_repository(root / "control.git", files | dict(more or {}))
    return World(root)


def write_fleet(
    root: Path,
    package: str,
    revisions: Sequence[Mapping[str, Change]],
    edges: Collection[str],
    files: Mapping[str, str],
    *,
    configuration: str = "",
) -> World:
    """Make a fleet for one upstream package; `files` are those of control beside the Repositories.

    Each revision changes files of the one before.
    """
    root.mkdir(exist_ok=True)
    blueprints = make_repository(root / "blueprints.git")
    for number, changes in enumerate(revisions, start=1):
        blueprints.commit({f"{package}/{path}": text for path, text in changes.items()})
        blueprints.tag(f"{package}/v{number}")
    for edge in edges:
        make_repository(root / f"{edge}.git", {"README.md": f"{edge}\n"})
    registered = {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", *edges)}
    control = {"reconciler.yaml": configuration or CONFIGURATION, **registered, **files}
    make_repository(root / "control.git", control)
    return World(root)


def published(*edges: str) -> World:
    """Return a small world, by default of one downstream, in which every package is published."""

    def build(root: Path) -> World:
        world = write_world(root, edges or EDGES[:1])
        world.publish()
        return world

    return restored("-".join(("published", *edges)), build)


def variant(edge: str, package: str, *, revision: int = 1) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: {package}-{edge}
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: {package}
    revision: {revision}
  downstream:
    repo: {edge}
    package: {package}
"""


def package_set(
    name: str, *targets: str, package: str = "web", revision: int = 1, annotations: str = ""
) -> str:
    """Return a set of a package of the blueprints; targets and annotations are in the flow style of YAML."""
    notes = f", annotations: {annotations}" if annotations else ""
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {{name: {name}, namespace: default{notes}}}
spec:
  upstream: {{repo: blueprints, package: {package}, revision: {revision}}}
  targets:
""" + "".join(f"  - {target}\n" for target in targets)


def manifest(edge: str, package: str) -> str:
    return f"manifests/{edge}-{package}.yaml"


def blueprint(package: str, revision: int) -> dict[str, str]:
    return {f"{package}/Kptfile": kptfile(package), f"{package}/app.yaml": app(package, revision)}


def app(package: str, revision: int) -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {package}
spec:
  replicas: 1
  template:
    metadata:
      labels:
        app: {package}
    spec:
      containers:
      - name: main
        image: registry.example/{package}:v{revision}
"""


def repository(name: str) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: {name}
  namespace: default
spec:
  type: git
  deployment: {str(name != "blueprints").lower()}
  git:
    repo: ../{name}.git
    branch: main
"""


CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests:
  - manifests
"""
