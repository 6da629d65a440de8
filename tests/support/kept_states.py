"""Worlds as an earlier release left them: repositories as text, the machine-owned branches as files.

`python -m tests.support.kept_states VERSION` plays the stories of fixtures/state/stories with the code
of this directory, and keeps what it leaves as fixtures/state/VERSION.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.test_worlds import happen
from tests.support.world import EPOCH, World, build_world, git, refs

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
STORIES = sorted((FIXTURES / "state/stories").iterdir())
KEPT = sorted(path for path in (FIXTURES / "state").glob("[0-9]*/*") if path.is_dir())
PLACE = "@WORLD@"
"""Stands for the directory of the repositories, which is part of their URLs."""


def is_machine_owned(ref: str) -> bool:
    """Tell whether a ref is a state or status branch, which holds the place of the world."""
    return ref.startswith("refs/heads/reconciler/") and ref.endswith(("/state", "/status"))


def actions(file: Path) -> list[list[str]]:
    """Return the actions of one part of a story, each split as a shell would."""
    return [shlex.split(line) for line in file.read_text().splitlines() if line.strip()]


def begin(story: Path, root: Path) -> World:
    """Make the world of a story as it is before its first action."""
    return build_world(_world_of(story), root)


def play(story: Path, part: str, world: World) -> list[str]:
    """Play one part of a story, `before` or `after`; return what its commands printed."""
    steps = story if (story / "steps").is_dir() else _world_of(story)
    said = []
    for action in actions(story / part):
        if not happen(steps, world, *action):
            ran = world.run(*action)
            said.append(f"$ reconciler {' '.join(action)}\n{ran.out}{ran.err}exit code {ran.code}\n")
    return said


def _world_of(story: Path) -> Path:
    return FIXTURES / "worlds" / (story / "world").read_text().strip()


def keep(world: World, directory: Path) -> None:
    """Write every repository of a world as text. Deterministic."""
    directory.mkdir(parents=True)
    (directory / "clock").write_text(f"{world.clock}\n")
    for repository in world.repositories():
        names = [name for name in refs(repository) if not is_machine_owned(name)]
        stream = git(repository, "fast-export", *names)
        assert str(world.root) not in stream, repository
        (directory / f"{repository.stem}.export").write_text(stream)
        for branch in filter(is_machine_owned, refs(repository)):
            for path, text in _files_at(repository, branch):
                file = directory / branch.removeprefix("refs/heads/") / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.replace(str(world.root), PLACE))


def _files_at(repository: Path, branch: str) -> Iterator[tuple[str, str]]:
    for path in git(repository, "ls-tree", "-r", "-z", "--name-only", branch).split("\0"):
        if path:
            yield path, git(repository, "show", f"{branch}:{path}")


def restore(kept: Path, root: Path) -> World:
    """Make the repositories of a kept world below a directory."""
    root.mkdir(parents=True)
    for export in sorted(kept.glob("*.export")):
        repository = root / f"{export.stem}.git"
        git(root, "init", "--quiet", "--bare", "--initial-branch=main", str(repository))
        _import(repository, export.read_bytes())
    for branch in sorted(kept.glob("reconciler/*/*")):
        name = branch.relative_to(kept)
        head = f"commit refs/heads/{name}\ncommitter Kim <kim@example.com> {EPOCH} +0000\ndata 0\n"
        files = ((p.relative_to(branch), p.read_text()) for p in sorted(branch.rglob("*")) if p.is_file())
        parts = [head.encode(), *(_file(path, text.replace(PLACE, str(root))) for path, text in files)]
        _import(root / "control.git", b"".join(parts))
    return World(root, int((kept / "clock").read_text()), timed=True)


def _file(path: Path, text: str) -> bytes:
    data = text.encode()
    return b"M 100644 inline %s\ndata %d\n%s\n" % (str(path).encode(), len(data), data)


def _import(repository: Path, stream: bytes) -> None:
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository, input=stream, check=True)


def main(version: str) -> None:
    """Keep the states of this code as those of a version."""
    target = FIXTURES / "state" / version
    shutil.rmtree(target, ignore_errors=True)
    for story in STORIES:
        with tempfile.TemporaryDirectory() as directory:
            world = begin(story, Path(directory) / "w")
            play(story, "before", world)
            keep(world, target / story.name)


if __name__ == "__main__":
    main(sys.argv[1])
