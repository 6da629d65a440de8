"""The demo: a small fleet as real Git repositories, and a walkthrough."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

from msgspec import Struct

from reconciler.base.errors import UsageError
from reconciler.git.working_copy import NewCommit, clone, create_bare

EPOCH = 1_767_225_600  # 2026-01-01T00:00:00Z: the demo's commits must not depend on the clock

STEP_S = 3600

WALKTHROUGH = "walkthrough.sh"

REGIONS = ("europe", "america")

ENVIRONMENTS = ("production", "staging")


class DemoCommit(NamedTuple):
    """One commit: the whole content of the repository after it, and the tags put on it."""

    message: str
    files: Mapping[str, str]
    tags: tuple[str, ...] = ()


class DemoRepository(Struct, frozen=True):
    """One bare repository of the world."""

    name: str
    commits: tuple[DemoCommit, ...]


class Layout(Struct, frozen=True):
    """Repositories of the demo: one for each role, or one for all of them (D19)."""

    control: str
    blueprints: str
    blueprint_directory: str
    monorepo: bool

    def cluster_repository(self, cluster: str) -> str:
        """Return the Git repository that holds a cluster's packages."""
        return self.control if self.monorepo else f"cluster-{cluster}"

    def cluster_directory(self, cluster: str) -> str:
        """Return the directory of a cluster's packages in its repository."""
        return f"clusters/{cluster}" if self.monorepo else ""


SEPARATE = Layout("control", "blueprints", "", monorepo=False)

MONOREPO = Layout("platform", "platform", "blueprints", monorepo=True)


def write_demo(directory: Path, layout: Layout, clusters: int) -> Path:
    """Write the world below `directory` and return the control repository's working copy.

    Raises:
        UsageError: The directory exists and is not empty; nothing was written.
    """
    check_is_new(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for repository in demo_world(layout, clusters):
        create_bare(directory / f"{repository.name}.git", _snapshots(repository))
    control = directory / layout.control
    clone(directory / f"{layout.control}.git", control)
    script = walkthrough(layout, clusters)
    (directory / WALKTHROUGH).write_text(_script(script), encoding="utf-8")
    return control


def check_is_new(directory: Path) -> None:
    """Check that a world can be written into a directory.

    Raises:
        UsageError: The directory exists and is not empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="Name a directory that does not exist yet.")


def walkthrough(layout: Layout, clusters: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the steps to try: what each one shows, and its shell commands, run one after the other."""
    first, *_, last = cluster_names(clusters)
    sed = "sed -i ''" if sys.platform == "darwin" else "sed -i"  # BSD's option takes an argument
    packages = f"clusters/{first}/web" if layout.monorepo else "web"
    return (
        ("Go to the control repository", (f"cd {layout.control}",)),
        ("See what would happen, before anything does", ("reconciler plan",)),
        ("Do it: drafts and pull requests appear", ("reconciler apply", "reconciler pr list")),
        ("Approve them all: each becomes revision v1", ("reconciler approve --all",)),
        (
            f"A person raises the replicas of {first}",
            (
                f"git clone -q ../{layout.cluster_repository(first)}.git ../edit",
                "git -C ../edit config user.name Kim && git -C ../edit config user.email kim@example.com",
                f"{sed} 's/replicas: 2/replicas: 5/' ../edit/{packages}/deployment.yaml",
                "git -C ../edit commit -qam 'Scale up before the sale'",
                "git -C ../edit push -q",
            ),
        ),
        (
            "The platform team moves the fleet to the second revision of web",
            (
                *(("git pull -q",) if layout.monorepo else ()),
                f"{sed} 's/revision: 1/revision: 2/' manifests/web.yaml",
                "git commit -qam 'Roll out web v2'",
                "git push -q",
                "reconciler apply",
                f"reconciler pr show cluster-{first}/web",
            ),
        ),
        ("Approve: the person's replicas are still there", ("reconciler approve --all",)),
        (
            f"{last} takes no more traffic: its package is proposed for deletion",
            (
                *(("git pull -q",) if layout.monorepo else ()),
                f'{sed} \'/name: {last}$/,/traffic/s/traffic: "yes"/traffic: "no"/\' snapshot/clusters.yaml',
                f"git commit -qam 'Drain {last}'",
                "git push -q",
                "reconciler apply",
                "reconciler approve --all",
            ),
        ),
        (
            "Run again: it records that the package is gone",
            (*(("git pull -q",) if layout.monorepo else ()), "reconciler apply"),
        ),
        ("And again: nothing is left to do", ("reconciler plan --detailed-exitcode", "reconciler apply")),
    )


def _snapshots(repository: DemoRepository) -> Sequence[NewCommit]:
    return [
        NewCommit(
            message=commit.message,
            files={path: text.encode() for path, text in commit.files.items()},
            time=EPOCH + STEP_S * number,
            tags=commit.tags,
        )
        for number, commit in enumerate(repository.commits)
    ]


def _script(steps: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    lines = [
        "#!/bin/sh",
        "# The walk through the demo, as `reconciler demo` prints it. Run it from its own directory.",
        "set -e",
        'cd "$(dirname "$0")"',
    ]
    for number, (title, commands) in enumerate(steps, start=1):
        lines += ["", f"printf '\\n== {number}. %s\\n' '{_quoted(title)}'"]
        for command in commands:
            lines += [f"printf '$ %s\\n' '{_quoted(command)}'", command]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


def cluster_names(count: int) -> tuple[str, ...]:
    """Return the names of `count` clusters, region by region."""
    return tuple(f"{REGIONS[i % 2]}-{i // 2 + 1:02}" for i in range(count))


def demo_world(layout: Layout, clusters: int) -> tuple[DemoRepository, ...]:
    """Return the repositories of the demo. Deterministic.

    Args:
        layout: One repository per role, or a monorepo.
        clusters: How many clusters the snapshot holds, at least 2.
    """
    names = cluster_names(clusters)
    if layout.monorepo:
        return (_monorepo(layout, names),)
    control = DemoRepository(
        layout.control, (DemoCommit("Describe the fleet", _control_files(layout, names)),)
    )
    targets = (
        DemoRepository(
            layout.cluster_repository(name),
            (DemoCommit("Start", {"README.md": f"# Packages of cluster {name}\n"}),),
        )
        for name in names
    )
    return (control, _blueprints(layout), *targets)


def _monorepo(layout: Layout, names: tuple[str, ...]) -> DemoRepository:
    control = _control_files(layout, names)
    first = {**control, **_blueprint_files(layout, 1)}
    second = {**control, **_blueprint_files(layout, 2)}
    commits = (
        DemoCommit("Describe the fleet and its blueprints", first, _tags(layout, 1)),
        DemoCommit("Release the second revision of the blueprints", second, _tags(layout, 2)),
    )
    return DemoRepository(layout.control, commits)


def _blueprints(layout: Layout) -> DemoRepository:
    commits = tuple(
        DemoCommit(f"Release revision {n}", _blueprint_files(layout, n), _tags(layout, n)) for n in (1, 2)
    )
    return DemoRepository(layout.blueprints, commits)


def _tags(layout: Layout, revision: int) -> tuple[str, ...]:
    prefix = f"{layout.blueprint_directory}/" if layout.blueprint_directory else ""
    return tuple(f"{prefix}{package}/v{revision}" for package in ("monitoring", "web"))


def _blueprint_files(layout: Layout, revision: int) -> dict[str, str]:
    prefix = f"{layout.blueprint_directory}/" if layout.blueprint_directory else ""
    packages = {"web": _web(revision), "monitoring": _monitoring(revision)}
    return {
        f"{prefix}{package}/{path}": text
        for package, files in packages.items()
        for path, text in files.items()
    }


def _web(revision: int) -> dict[str, str]:
    probe = """
              readinessProbe:
                httpGet:
                  path: /healthz
                  port: 8080
    """
    deployment = dedent(
        f"""\
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: web
        spec:
          # Two are enough for a region; raise it in the package of a busy cluster.
          replicas: 2
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
                image: registry.example.com/web:1.{revision}.0
                ports:
                - containerPort: 8080
        """
    )
    if revision > 1:
        deployment += indent(dedent(probe).strip() + "\n", " " * 8)
    service = dedent(
        """\
        apiVersion: v1
        kind: Service
        metadata:
          name: web
        spec:
          selector:
            app: web
          ports:
          - port: 80
            targetPort: 8080
        """
    )
    files = {
        "Kptfile": _kptfile("web", "A small web server"),
        "deployment.yaml": deployment,
        "service.yaml": service,
    }
    if revision > 1:
        files["README.md"] = "# web\n\nListens on 8080; ready when /healthz answers.\n"
    return files


def _monitoring(revision: int) -> dict[str, str]:
    rules = dedent(
        f"""\
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: alert-rules
        data:
          interval: {"30s" if revision == 1 else "15s"}
          severity: warning
        """
    )
    return {"Kptfile": _kptfile("monitoring", "Alert rules"), "rules.yaml": rules}


def _kptfile(name: str, description: str) -> str:
    return dedent(
        f"""\
        apiVersion: kpt.dev/v1
        kind: Kptfile
        metadata:
          name: {name}
        info:
          description: {description}
        """
    )


def _control_files(layout: Layout, names: tuple[str, ...]) -> dict[str, str]:
    return {
        "README.md": "# The fleet\n\nManifests and a snapshot; `reconciler plan` shows what they mean.\n",
        "reconciler.yaml": _configuration(),
        "manifests/repositories.yaml": "---\n".join(_registrations(layout, names)),
        "manifests/web.yaml": _web_set(),
        "manifests/monitoring.yaml": _monitoring_set(),
        "snapshot/clusters.yaml": "---\n".join(_cluster(name) for name in names),
        "snapshot/snapshot.yaml": _snapshot_header(len(names)),
    }


def _configuration() -> str:
    return dedent(
        """\
        apiVersion: reconciler.dev/v1alpha1
        kind: Reconciler
        metadata:
          name: demo
        spec:
          manifests:
          - manifests
          snapshot:
            path: snapshot
        """
    )


def _registrations(layout: Layout, names: tuple[str, ...]) -> list[str]:
    blueprints = _repository(
        "blueprints", f"../{layout.blueprints}.git", layout.blueprint_directory, deployment=False
    )
    targets = (
        _repository(
            f"cluster-{name}",
            f"../{layout.cluster_repository(name)}.git",
            layout.cluster_directory(name),
            deployment=True,
            labels={"region": name.partition("-")[0]},
        )
        for name in names
    )
    return [blueprints, *targets]


def _repository(
    name: str, remote: str, directory: str, *, deployment: bool, labels: Mapping[str, str] | None = None
) -> str:
    lines = [
        "apiVersion: config.porch.kpt.dev/v1alpha1",
        "kind: Repository",
        "metadata:",
        f"  name: {name}",
        "  namespace: default",
    ]
    if labels:
        lines += ["  labels:", *(f"    {key}: {value}" for key, value in labels.items())]
    lines += [
        "spec:",
        "  type: git",
        f"  deployment: {'true' if deployment else 'false'}",
        "  git:",
        f"    repo: {remote}",
        "    branch: main",
    ]
    if directory:
        lines.append(f"    directory: {directory}")
    return "\n".join(lines) + "\n"


def _web_set() -> str:
    return dedent(
        """\
        # One web server for every cluster that takes traffic.
        apiVersion: config.porch.kpt.dev/v1alpha2
        kind: PackageVariantSet
        metadata:
          name: web
          namespace: default
        spec:
          upstream:
            repo: blueprints
            package: web
            revision: 1
          targets:
          - objectSelector:
              apiVersion: fleet.example.com/v1
              kind: Cluster
              matchLabels:
                traffic: "yes"
            template:
              downstream:
                repoExpr: "'cluster-' + target.name"
              packageContext:
                dataExprs:
                - key: region
                  valueExpr: target.labels.region
                - key: environment
                  valueExpr: target.labels.environment
        """
    )


def _monitoring_set() -> str:
    return dedent(
        """\
        # Monitoring wherever something can be deployed in Europe.
        apiVersion: config.porch.kpt.dev/v1alpha2
        kind: PackageVariantSet
        metadata:
          name: monitoring
          namespace: default
        spec:
          upstream:
            repo: blueprints
            package: monitoring
            revision: 1
          targets:
          - repositorySelector:
              matchLabels:
                region: europe
        """
    )


def _cluster(name: str) -> str:
    region, _, number = name.partition("-")
    return dedent(
        f"""\
        apiVersion: fleet.example.com/v1
        kind: Cluster
        metadata:
          name: {name}
          namespace: default
          labels:
            region: {region}
            environment: {ENVIRONMENTS[int(number) % 2]}
            traffic: "yes"
        """
    )


def _snapshot_header(count: int) -> str:
    return dedent(
        f"""\
        apiVersion: reconciler.dev/v1alpha1
        kind: Snapshot
        metadata:
          name: management
        spec:
          served:
          - fleet.example.com/v1 Cluster
          lists:
          - group: fleet.example.com
            kind: Cluster
            namespace: default
            count: {count}
            complete: true
        """
    )
