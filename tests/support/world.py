"""Worlds of fixtures/worlds as real Git repositories, and the actions of their stories."""

import atexit
import contextlib
import copy
import io
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import pygit2

import reconciler.run.plan
from reconciler.base import effects
from reconciler.cli.main import invoke
from reconciler.forge.registry import Forges
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.http.client import Clock
from reconciler.read.snapshot import parse_time

EPOCH = 1_767_225_600
IDENTITY = {
    "GIT_AUTHOR_NAME": "Kim",
    "GIT_AUTHOR_EMAIL": "kim@example.com",
    "GIT_COMMITTER_NAME": "Kim",
    "GIT_COMMITTER_EMAIL": "kim@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


class Said(NamedTuple):
    """What one command printed, and its exit code."""

    code: int
    out: str
    err: str


def git(directory: Path, *arguments: str, when: int = EPOCH) -> str:
    """Run git as a person would, at a fixed time; return its output."""
    environment = {
        **os.environ,
        **IDENTITY,
        "GIT_AUTHOR_DATE": f"@{when} +0000",
        "GIT_COMMITTER_DATE": f"@{when} +0000",
    }
    ran = subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"git {arguments}: {ran.stderr}"
    return ran.stdout


def run_line(*line: str) -> Said:
    """Run one command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(line)
    return Said(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def runs_at(now: Callable[[], float]) -> Iterator[None]:
    """Give runs of this process another clock."""
    clock = Clock(now, effects.sleep)
    reconciler.run.plan.Forges = partial(Forges, clock=clock)
    try:
        yield
    finally:
        reconciler.run.plan.Forges = Forges


def refs(repository: Path) -> dict[str, str]:
    """Return every ref of a repository and the object it names."""
    references = pygit2.Repository(str(repository)).references.objects
    return {reference.name: str(reference.target) for reference in sorted(references, key=lambda r: r.name)}


@dataclass
class World:
    """A directory of bare repositories; commands are run against its control repository.

    `clock` is the time of the last commit of a person. Runs have it too if the world is `timed`, and that of
    this machine otherwise.
    """

    root: Path
    clock: int = EPOCH + 100_000
    timed: bool = False

    @property
    def control(self) -> Path:
        """The control repository, bare."""
        return self.root / "control.git"

    def repositories(self) -> list[Path]:
        """Return every bare repository, sorted."""
        return sorted(self.root.glob("*.git"))

    def all_refs(self) -> dict[str, dict[str, str]]:
        """Return the refs of every repository."""
        return {repository.name: refs(repository) for repository in self.repositories()}

    def run(self, *arguments: str, cache: str = "cache", control: object = None) -> Said:
        """Run one command in this process, by default against the bare control repository."""
        places = ["--control", str(control or self.control), "--cache-dir", str(self.root / cache)]
        with runs_at(lambda: self.clock) if self.timed else contextlib.nullcontext():
            return run_line(*arguments, *places)

    def publish(self) -> None:
        """Publish everything that is asked for: apply, approve all of it, and apply what follows."""
        for line in (("apply",), ("approve", "--all"), ("apply",)):
            said = self.run(*line)
            assert said.code == 0, said

    def consent(self) -> None:
        """Consent to every refused deletion of the plan, by a commit to the configuration."""
        sums = sorted(set(re.findall(r"(\w{64}): why", self.run("plan").out)))
        assert sums, "nothing is refused"
        with self.edit("control", "Consent to deletions") as copy:
            path = copy / "reconciler.yaml"
            consents = "".join(f"    {consent}: meant\n" for consent in sums)
            path.write_text(f"{path.read_text()}  consents:\n{consents}")

    @contextlib.contextmanager
    def edit(self, repository: str, message: str, *, branch: str = "main") -> Iterator[Path]:
        """Yield a working copy of a branch; what is changed in it becomes one pushed commit."""
        self.clock += 60
        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            copy = Path(scratch) / "copy"
            source = str(self.root / f"{repository}.git")
            clone = pygit2.clone_repository(source, str(copy), checkout_branch=branch)
            yield copy
            clone.index.add_all()
            tree, author = clone.index.write_tree(), pygit2.Signature("Kim", "kim@example.com", self.clock, 0)
            clone.create_commit("HEAD", author, author, f"{message}\n", tree, [clone.head.target])
            clone.remotes["origin"].push([f"refs/heads/{branch}"])

    def wait_until(self, time: str) -> None:
        """Let time pass."""
        self.clock = parse_time(time)

    def release(self, repository: str, package: str, version: Path) -> None:
        """Publish a revision of an upstream package: its content, and its tag, which moves if it is there."""
        with self.edit(repository, f"Release {package}/{version.name}") as copy:
            shutil.rmtree(copy / package, ignore_errors=True)
            shutil.copytree(version, copy / package)
        self.tag(repository, f"{package}/{version.name}", "main")

    def tag(self, repository: str, name: str, target: str) -> None:
        """Set a tag, or move it, as its author does by force."""
        git(self.root / f"{repository}.git", "tag", "--force", name, f"{target}^{{commit}}")

    def revert(self, repository: str) -> None:
        """Take back the last commit of main, as a person does."""
        self.clock += 60
        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            copy = Path(scratch) / "copy"
            git(self.root, "clone", "-q", str(self.root / f"{repository}.git"), str(copy))
            merge = ["-m", "1"] if " " in git(copy, "log", "-1", "--format=%P").strip() else []
            git(copy, "revert", "--no-edit", *merge, "HEAD", when=self.clock)
            git(copy, "push", "-q", "origin", "HEAD:main")

    def draft_branch(self, repository: str, package: str) -> str:
        """Return the one draft branch of a package, or else of its group."""
        names = refs(self.root / f"{repository}.git")
        own = [n for n in names if re.fullmatch(rf"refs/heads/drafts/{re.escape(package)}/[^/]+", n)]
        (branch,) = own or (n for n in names if re.match(r"refs/heads/reconciler/[^/]+/group/", n))
        return branch.removeprefix("refs/heads/")

    def propose(self, step: Path) -> None:
        """Lay the files of one step on a branch of its name, as the author of a pull request does."""
        git(self.control, "branch", step.name, "main")
        self.lay(step, branch=step.name)

    def propose_nothing(self, branch: str = "words") -> str:
        """Make a branch with one commit that changes no file, for `check`, and return its name."""
        commit = git(self.control, "commit-tree", "main^{tree}", "-p", "main", "-m", "Say nothing").strip()
        git(self.control, "branch", "-f", branch, commit)
        return branch

    def lay(self, step: Path, *, branch: str = "main") -> None:
        """Lay the files of one step over the repositories, one commit for each that changes."""
        removed = (step / "remove").read_text().split() if (step / "remove").exists() else []
        for source, repository, inside in _overlays(step, removed):
            with self.edit(repository, step.name, branch=branch) as copy:
                if source.is_dir():
                    shutil.copytree(source, copy / inside, dirs_exist_ok=True)
                for path in removed:
                    if _place(path) == (repository, inside):
                        (copy / inside / path.split("/", 1)[1]).unlink()
        for version in sorted((step / "upstream").glob("*/*/*")):
            repository, name = version.parts[-3:-1]
            self.release(repository, name, version)
        for package in sorted((step / "draft").glob("*/*")):
            repository, name = package.parts[-2:]
            with self.edit(repository, step.name, branch=self.draft_branch(repository, name)) as copy:
                shutil.copytree(package, copy / name, dirs_exist_ok=True)


AnyWorld = TypeVar("AnyWorld", bound=World)


@cache
def _worlds() -> Path:
    place = Path(tempfile.mkdtemp(prefix="worlds-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


_built: dict[str, World] = {}


def restored(name: str, build: Callable[[Path], AnyWorld]) -> AnyWorld:
    """Return a world as `build` left it, which is done once per process.

    It is always at one place, as records hold the place of the repositories: a test has one of a name.
    """
    root, saved = _worlds() / name / "w", _worlds() / name / "saved"
    shutil.rmtree(root, ignore_errors=True)
    if name not in _built:
        root.parent.mkdir(exist_ok=True)
        _built[name] = build(root)
        shutil.copytree(root, saved, symlinks=True)
    else:
        shutil.copytree(saved, root, symlinks=True)
    return cast("AnyWorld", copy.copy(_built[name]))


def _overlays(step: Path, removed: list[str]) -> list[tuple[Path, str, str]]:
    found = [(step / top, "control", inside) for top, inside in (("config", ""), ("cluster", "snapshot"))]
    found += [(d, d.name, "") for d in sorted((step / "downstream").glob("*"))]
    places = {_place(path) for path in removed}
    return [o for o in found if o[0].is_dir() or (o[1], o[2]) in places]


def _place(path: str) -> tuple[str, str]:
    top = path.split("/", 1)[0]
    return ("control", "snapshot" if top == "cluster" else "")


def build_world(source: Path, root: Path) -> World:
    """Make the repositories that a world's folders describe."""
    root.mkdir(parents=True, exist_ok=True)
    control = _files(source / "config") | {f"snapshot/{p}": d for p, d in _files(source / "cluster").items()}
    create_bare(root / "control.git", [NewCommit("Describe the world", control, EPOCH)])
    for repository in _folders(source / "upstream"):
        create_bare(root / f"{repository.name}.git", _releases(repository))
    for repository in _folders(source / "downstream"):
        create_bare(root / f"{repository.name}.git", [NewCommit("Start", _files(repository), EPOCH)])
    return World(root, timed=True)


def _releases(repository: Path) -> list[NewCommit]:
    content: dict[str, bytes] = {}
    snapshots: list[NewCommit] = []
    versions = sorted({v.name for p in _folders(repository) for v in _folders(p)}, key=lambda v: (len(v), v))
    for number, version in enumerate(versions):
        tags = []
        for package in _folders(repository):
            if (package / version).is_dir():
                content = {p: d for p, d in content.items() if not p.startswith(f"{package.name}/")}
                content |= {f"{package.name}/{p}": d for p, d in _files(package / version).items()}
                tags.append(f"{package.name}/{version}")
        snapshots.append(NewCommit(f"Release {version}", dict(content), EPOCH + 3600 * number, tuple(tags)))
    return snapshots


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def _files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def story(source: Path) -> list[list[str]]:
    """Return the actions of a world's story, each split as a shell would."""
    return [shlex.split(line) for line in (source / "story").read_text().splitlines() if line.strip()]
