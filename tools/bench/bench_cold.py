"""What a runner without a cache asks of remote repositories: over Smart HTTP, with a delay for each request.

Run as `python tools/bench/bench_cold.py [REPOSITORIES]`, by default 40. Counts do not depend on the load of
the machine. The floor is `git fetch --multiple --jobs=16` of the same repositories into empty ones.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.working_copy import NewCommit, create_bare
from tests.support.git import Repo
from tests.support.http_git import HttpGit, serve
from tools.bench.bench_fleet import EPOCH, HEAD, PORCH, START
from tools.bench.goals import Goals, is_quick
from tools.bench.process import measure

DELAY_S = 0.2
AT_ONCE = 16
OVERLAP = 8
"""Requests that wait side by side even where processes start slowly."""
FETCH = "/info/refs?service=git-upload-pack"
PACKAGES = ("db", "web")


def main(count: int) -> int:
    goals = Goals(__file__)
    root = Path(tempfile.mkdtemp(prefix="cold-"))
    try:
        with serve(root) as server:
            names = [f"c{number:03}" for number in range(count)]
            write_fleet(root, names, server)
            for line in (("apply",), ("approve", "--all"), ("apply",)):
                measure(command(*line), root, times=1, warm=False)
            cold(root, server, goals, "settled")
            Repo(root / "control.git").commit({"manifests/sets.yaml": sets(2)})
            cold(root, server, goals, "all packages to their next revision")
            print(f"git fetch --multiple of the same: {fetched_by_git(root, names, server):.1f} s")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return goals.finish()


def cold(root: Path, server: HttpGit, goals: Goals, name: str) -> None:
    """Plan without a cache, and again with it."""
    shutil.rmtree(root / "cache")
    server.requests.clear()
    server.delay_s, server.most = DELAY_S, 0
    cost = measure(command("plan"), root, times=1, warm=False)
    fetches = Counter(path for method, path, _ in server.requests if method == "GET" and path.endswith(FETCH))
    most = min(OVERLAP, len(fetches))
    again = measure(command("plan"), root, times=1, warm=False)
    server.delay_s = 0
    print(f"{name}, with the cache: {again.wall_s:.1f} s")
    print(f"{name}: {cost.wall_s:.1f} s, {sum(fetches.values())} fetches of {len(fetches)} repositories")
    goals.at_most(f"{name}: fetches of one repository", max(fetches.values()), 2)
    goals.at_least(f"{name}: requests at once", server.most, most)


def fetched_by_git(root: Path, names: list[str], server: HttpGit) -> float:
    """Return the seconds of git for all repositories, with the settings of a mirror."""
    mirror = root / "floor"
    subprocess.run(["git", "init", "--quiet", "--bare", str(mirror)], check=True)
    for name in names:
        add = ["git", "-C", str(mirror), "remote", "add", name, server.url(f"{name}.git")]
        subprocess.run(add, check=True)
    server.delay_s, start = DELAY_S, time.perf_counter()
    line = ["git", "-C", str(mirror), "fetch", "--quiet", "--multiple", f"--jobs={AT_ONCE}", *names]
    subprocess.run(line, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def command(*line: str) -> list[str]:
    where = ["--control", "control.git", "--cache-dir", "cache"]
    return [sys.executable, "-m", "reconciler.cli.main", *line, *where]


def write_fleet(root: Path, names: list[str], server: HttpGit) -> None:
    """Make the repositories of a fleet; one file of each package is too large to come with the refs."""
    releases = [
        NewCommit(
            f"Release {number}",
            dict(release(number)),
            EPOCH + number,
            tuple(f"{p}/v{number}" for p in PACKAGES),
        )
        for number in (1, 2)
    ]
    create_bare(root / "blueprints.git", releases)
    for name in names:
        create_bare(root / f"{name}.git", [START])
    for name in ("blueprints", *names):
        for key in ("uploadpack.allowFilter", "http.receivepack"):
            subprocess.run(["git", "-C", root / f"{name}.git", "config", key, "true"], check=True)
    spec = "spec:\n  manifests:\n  - manifests\n"
    registered = "---\n".join(repository(name, server) for name in ("blueprints", *names))
    control = {
        "reconciler.yaml": (HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet") + spec).encode(),
        "manifests/repositories.yaml": registered.encode(),
        "manifests/sets.yaml": sets(1).encode(),
    }
    create_bare(root / "control.git", [NewCommit("Describe", control, EPOCH)])


def release(number: int) -> list[tuple[str, bytes]]:
    values = "".join(f"  key{n}: revision {number}\n" for n in range(300))
    return [
        (f"{name}/{path}", text.encode())
        for name in PACKAGES
        for path, text in (
            ("Kptfile", HEAD.format("kpt.dev/v1", "Kptfile", name)),
            ("app.yaml", f"{HEAD.format('v1', 'ConfigMap', 'app')}data:\n{values}"),
        )
    ]


def repository(name: str, server: HttpGit) -> str:
    head = HEAD.format(f"{PORCH}v1alpha1", "Repository", name)
    labels = "" if name == "blueprints" else "  labels: {role: cluster}\n"
    return (
        f"{head}{labels}spec:\n  type: git\n  git:\n    repo: {server.url(f'{name}.git')}\n    branch: main\n"
    )


def sets(revision: int) -> str:
    return "---\n".join(
        f"{HEAD.format(f'{PORCH}v1alpha2', 'PackageVariantSet', name)}spec:\n"
        f"  upstream: {{repo: blueprints, package: {name}, revision: {revision}}}\n"
        "  targets:\n  - repositorySelector: {matchLabels: {role: cluster}}\n"
        for name in PACKAGES
    )


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:] if argument != "--quick"]
    sys.exit(main(arguments[0] if arguments else 8 if is_quick() else 40))
