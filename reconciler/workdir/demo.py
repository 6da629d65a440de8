"""Writes the demo's world as real Git repositories, and the walk through it."""

from collections.abc import Sequence
from pathlib import Path

from reconciler.errors import UsageError
from reconciler.git.working_copy import NewCommit, clone, create_bare
from reconciler.workdir.demo_world import DemoRepository, Layout, cluster_names, demo_world

EPOCH = 1_767_225_600  # 2026-01-01T00:00:00Z: the demo's commits must not depend on the clock
STEP_S = 3600
WALKTHROUGH = "walkthrough.sh"


def write_demo(directory: Path, layout: Layout, clusters: int) -> Path:
    """Write the world below `directory` and return the control repository's working copy.

    Raises:
        UsageError: The directory exists and is not empty; nothing was written.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="Name a directory that does not exist yet.")
    directory.mkdir(parents=True, exist_ok=True)
    for repository in demo_world(layout, clusters):
        create_bare(directory / f"{repository.name}.git", _snapshots(repository))
    control = directory / layout.control
    clone(directory / f"{layout.control}.git", control)
    script = walkthrough(layout, clusters)
    (directory / WALKTHROUGH).write_text(_script(script), encoding="utf-8")
    return control


def walkthrough(layout: Layout, clusters: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the steps to try: what each one shows, and its shell commands, run one after the other."""
    first, *_, last = cluster_names(clusters)
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
                f"sed -i 's/replicas: 2/replicas: 5/' ../edit/{packages}/deployment.yaml",
                "git -C ../edit commit -qam 'Scale up before the sale'",
                "git -C ../edit push -q",
            ),
        ),
        (
            "The platform team moves the fleet to the second revision of web",
            (
                *(("git pull -q",) if layout.monorepo else ()),
                "sed -i 's/revision: 1/revision: 2/' manifests/web.yaml",
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
                f'sed -i \'/name: {last}$/,/traffic/s/traffic: "yes"/traffic: "no"/\' snapshot/clusters.yaml',
                f"git commit -qam 'Drain {last}'",
                "git push -q",
                "reconciler apply",
                "reconciler approve --all",
            ),
        ),
        ("Run again: it records that the package is gone", ("reconciler apply",)),
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
