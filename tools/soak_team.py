"""`make soak-team`: 200 changes of a simulated team over 30 repositories, a run after each, and figures.

Every run is a fork of this process; now and then a plan in a process of its own tells its memory. After
each run no commit of a person is lost, and no published revision has moved or gone.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.values import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from typing import TYPE_CHECKING

import reconciler.run.apply  # noqa: F401 - imported once, before forking
from reconciler.cli import apply, approve, main, pr, pull_requests  # noqa: F401 - and so are these
from tests.support.git import Repo
from tests.support.small_world import app, blueprint, manifest, variant, write_world

if TYPE_CHECKING:
    from collections.abc import Callable

STATE = "refs/heads/reconciler/fleet/state"
STATUS = "refs/heads/reconciler/fleet/status"
CODES = {0, 3, 4, 7}
_PROJECT = Path(__file__).resolve().parents[1]
_MEASURED = """
import re, sys
from pathlib import Path
from reconciler.cli import main
code = main.invoke(sys.argv[1:])
status = Path("/proc/self/status").read_text()
peak = re.search("VmHWM: *([0-9]+)", status.replace(chr(9), " ")).group(1)
print(chr(10) + "#" + str(int(code)), peak)
"""
EVERY = 20


@dataclass
class Run:
    """What one run came to: exit code, output, seconds."""

    code: int
    out: str
    seconds: float


@dataclass
class Team:
    """The repositories, what the team did to them, and what must still be there."""

    root: Path
    draw: random.Random
    edges: tuple[str, ...]
    revisions: dict[str, int] = field(default_factory=lambda: {"web": 2, "db": 1})
    wanted: dict[tuple[str, str], int] = field(default_factory=dict)
    commits: list[tuple[str, str, str]] = field(default_factory=list)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    clock: int = 1_767_300_000

    def repo(self, name: str) -> Repo:
        self.clock += 60
        return Repo(self.root / f"{name}.git", time=self.clock)

    def run(self, *line: str) -> Run:
        """Run a command in a fork."""
        places = ["--control", str(self.root / "control.git"), "--cache-dir", str(self.root / "cache")]
        began = time.monotonic()
        with tempfile.TemporaryFile() as out:
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                code = 99
                try:
                    code = main.invoke([*line, *places])
                    sys.stdout.flush()
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            out.seek(0)
            text = out.read().decode()
        return Run(os.waitstatus_to_exitcode(status), text, time.monotonic() - began)

    def measure(self) -> tuple[int, str]:
        """Plan in a process of its own; return the most memory that it had, in MiB, and its output."""
        line = ["plan", "--detailed-exitcode", "--control", str(self.root / "control.git")]
        line += ["--cache-dir", str(self.root / "cache")]
        ran = subprocess.run(
            [sys.executable, "-c", _MEASURED, *line], cwd=_PROJECT, capture_output=True, text=True, check=True
        )
        said, _, figures = ran.stdout.rpartition("\n#")
        code, kib = figures.split()
        return int(kib) // 1024, said if int(code) else ""

    # What the team does

    def release(self) -> str:
        package = self.draw.choice(sorted(self.revisions))
        self.revisions[package] += 1
        repo = self.repo("blueprints")
        repo.commit(blueprint(package, self.revisions[package]), message="Release\n")
        repo.tag(f"{package}/v{self.revisions[package]}")
        return f"release {package} v{self.revisions[package]}"

    def upgrade(self) -> str:
        package = self.draw.choice(sorted(self.revisions))
        edges = [edge for edge, name in self.wanted if name == package]
        chosen = self.draw.sample(edges, min(len(edges), self.draw.randint(1, 10)))
        for edge in chosen:
            self.wanted[edge, package] = self.revisions[package]
        texts = {manifest(e, package): variant(e, package, revision=self.revisions[package]) for e in chosen}
        if texts:
            self.repo("control").commit(texts, message="Upgrade\n")
        return f"upgrade {package} in {len(chosen)} repositories"

    def remove(self) -> str:
        if len(self.wanted) < len(self.edges):
            return self.add()
        edge, package = self.draw.choice(sorted(self.wanted))
        del self.wanted[edge, package]
        self.repo("control").commit({manifest(edge, package): None}, message="Remove\n")
        return f"remove {edge}/{package}"

    def add(self) -> str:
        every = [(edge, package) for edge in self.edges for package in self.revisions]
        free = sorted(set(every) - self.wanted.keys())
        if not free:
            return self.remove()
        edge, package = self.draw.choice(free)
        self.wanted[edge, package] = self.revisions[package]
        text = variant(edge, package, revision=self.revisions[package])
        self.repo("control").commit({manifest(edge, package): text}, message="Add\n")
        return f"add {edge}/{package}"

    def approve(self) -> str:
        edge = self.draw.choice(self.edges)
        heads = [ref for ref in self.repo(edge).refs() if ref.startswith("refs/heads/drafts/")]
        names = sorted({f"{edge}/{ref.split('/')[3]}" for ref in heads})
        return f"approve {names}: exit {self.run('approve', *names).code}" if names else self.hotfix()

    def approve_everything(self) -> str:
        return f"approve everything: exit {self.run('approve', '--all').code}"

    def hotfix(self) -> str:
        edge, package = self.draw.choice(sorted(self.wanted))
        repo = self.repo(edge)
        path = f"{package}/app.yaml"
        try:
            text = repo.read("main", path).decode()
        except KeyError:
            path, text = "README.md", ""
        text = text.replace("replicas: 1", f"replicas: {self.draw.randint(2, 9)}") or f"{self.clock}\n"
        oid = repo.commit({path: text}, message="Fix\n")
        self.commits.append((edge, str(oid), "main"))
        return f"fix {edge}/{path}"

    def edit_draft(self) -> str:
        edge = self.draw.choice(self.edges)
        repo = self.repo(edge)
        heads = sorted(ref for ref in repo.refs() if ref.startswith("refs/heads/drafts/"))
        if not heads:
            return self.hotfix()
        head = self.draw.choice(heads).removeprefix("refs/heads/")
        package = head.split("/")[1]
        oid = repo.commit({f"{package}/notes-{self.clock}.txt": "Mine\n"}, branch=head, message="Mine\n")
        self.commits.append((edge, str(oid), head))
        return f"edit {edge} {head}"

    def replace_file(self) -> str:
        edge, package = self.draw.choice(sorted(self.wanted))
        repo = self.repo(edge)
        text = app(package, 1).replace("replicas: 1", "replicas: 3")
        if f"{package}" not in repo.git[repo.oid("main")].tree:
            return self.hotfix()
        oid = repo.commit({f"{package}/more.yaml": text}, message="More\n")
        self.commits.append((edge, str(oid), "main"))
        return f"add a file to {edge}/{package}"

    # What must hold

    def check(self) -> list[str]:
        """Return what is broken after a run."""
        broken = []
        for edge in self.edges:
            repo = Repo(self.root / f"{edge}.git")
            refs = repo.refs()
            tips = [oid for ref, oid in refs.items() if ref.startswith(("refs/heads/", "refs/tags/"))]
            for where, oid, branch in self.commits:
                if where == edge and not any(tip == oid or repo.git.descendant_of(tip, oid) for tip in tips):
                    broken.append(f"{edge}: the commit {oid} of a person on {branch} is lost")
            for ref, oid in refs.items():
                if ref.startswith("refs/tags/") and self.tags.setdefault((edge, ref), oid) != oid:
                    broken.append(f"{edge}: {ref} moved")
            gone = [ref for (where, ref) in self.tags if where == edge and ref not in refs]
            broken += [f"{edge}: {ref} is gone" for ref in gone]
        return broken

    def figures(self) -> dict[str, int]:
        """Return the sizes of what grows: commits and content of state and status, control, cache."""
        repo = Repo(self.root / "control.git")
        count = {
            ref.rpartition("/")[2]: sum(1 for _ in repo.git.walk(oid)) if (oid := repo.find(ref)) else 0
            for ref in (STATE, STATUS)
        }
        tree = subprocess.run(
            ["git", "ls-tree", "-r", "-l", STATE], cwd=repo.path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        return {
            "stateCommits": count["state"],
            "statusCommits": count["status"],
            "stateFiles": len(tree),
            "stateKiB": sum(int(line.split()[3]) for line in tree) // 1024,
            "controlKiB": _kib(self.root / "control.git"),
            "cacheKiB": _kib(self.root / "cache"),
        }


def _kib(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) // 1024


def play(team: Team, changes: int) -> bool:
    """Let the team make changes, a run after each; print figures now and then, return whether all held."""
    acts: list[Callable[[], str]] = [team.release, team.upgrade, team.upgrade, team.remove, team.add]
    acts += [
        team.approve,
        team.approve,
        team.approve_everything,
        team.hotfix,
        team.edit_draft,
        team.replace_file,
    ]
    first = team.run("apply")
    assert first.code == 0, first.out
    runs = []
    for number in range(1, changes + 1):
        act = team.draw.choice(acts)()
        ran = team.run("apply")
        broken = team.check()
        if ran.code not in CODES:
            broken.append(f"exit {ran.code}: {ran.out}")
        runs.append(replace(ran, out=""))
        if number % EVERY == 0:
            mib, left = team.measure()
            if left:
                broken.append(f"a second plan is not empty: {left}")
            last = runs[-EVERY:]
            print(
                json.dumps(
                    {
                        "changes": number,
                        "secondsPerRun": round(sum(r.seconds for r in last) / len(last), 2),
                        "mibOfAPlan": mib,
                        **team.figures(),
                    }
                ),
                flush=True,
            )
        if broken:
            print(f"after change {number} ({act}):", *broken, sep="\n  ", flush=True)
            return False
    for edge in team.edges:
        Repo(team.root / f"{edge}.git").fsck()
    print(f"{changes} changes, exits {sorted({r.code for r in runs})}, nothing broken")
    return True


def start() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--changes", type=int, default=200)
    options.add_argument("--repositories", type=int, default=30)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="soak-team-"))
    try:
        edges = tuple(f"edge-{number}" for number in range(1, asked.repositories + 1))
        write_world(directory / "w", edges)
        team = Team(directory / "w", random.Random(asked.seed), edges)
        team.wanted = {(edge, package): 1 for edge in edges for package in ("web", "db")}
        return 0 if play(team, asked.changes) else 1
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(start())
