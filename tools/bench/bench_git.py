"""How long reading, packing and pushing take, beside git itself in the same run.

Run as `python tools/bench/bench_git.py [--quick] [REPOSITORIES ...]`, by default 50 and 500.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.api.porch import Repository
from reconciler.base.errors import Location
from reconciler.git.command import process_count
from reconciler.git.pack import Pack
from reconciler.git.push import RefUpdate, push
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Source, Sourced
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Signature
from reconciler.policy import Limits, Policy
from tests.support.git import BOT, Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tools.bench.goals import Goals, is_quick

T = TypeVar("T")
SIGNATURE = Signature(*BOT, 1_767_225_600)


class Row(NamedTuple):
    """One line of the table: ours and the baseline in seconds, the processes that ours started."""

    what: str
    ours: float
    baseline: float
    processes: int


def timed(action: Callable[[], T]) -> tuple[float, T, int]:
    """Return seconds, result and git processes of an action."""
    before, start = process_count(), time.perf_counter()
    result = action()
    return time.perf_counter() - start, result, process_count() - before


def git(*arguments: str, cwd: Path, stdin: bytes = b"") -> bytes:
    ran = subprocess.run(["git", *arguments], cwd=cwd, input=stdin, capture_output=True, check=True)
    return ran.stdout


def fleet(root: Path, count: int) -> list[Repo]:
    """Make repositories with four packages each, two tags and a draft of ours."""
    repos = []
    for number in range(count):
        files = {f"p{i}/{f}": kptfile(f"p{i}-{number}") for i in range(4) for f in ("Kptfile", "a.yaml")}
        repo = make_repository(root / f"{number}.git", files)
        repo.tag("p0/v1")
        repo.tag("p1/v1")
        repo.commit({"p0/a.yaml": "x"}, branch="drafts/p0/w", start="main", who=BOT)
        repos.append(repo)
    return repos


def registrations(repos: Sequence[Repo]) -> list[Sourced[Repository]]:
    return [
        Sourced(
            ObjectName("default", f"r{number}"),
            Repository.model_validate(
                {"apiVersion": "v1", "kind": "Repository", "spec": {"git": {"repo": str(repo.path)}}}
            ),
            Source(Location("r.yaml")),
        )
        for number, repo in enumerate(repos)
    ]


def bench_fleet(root: Path, count: int) -> list[Row]:
    """Read and write a fleet of small repositories; the baseline is one git process per repository."""
    repos = fleet(root / "repos", count)
    mirrors = Mirrors(root / "cache")
    remotes = [str(repo.path) for repo in repos]
    fetch, _, processes = timed(lambda: mirrors.fetch_all(remotes))
    listed, _, _ = timed(lambda: [git("for-each-ref", cwd=repo.path) for repo in repos])
    rows = [Row(f"fetch {count} repositories / git for-each-ref", fetch, listed, processes)]

    read, views, processes = timed(
        lambda: read_registered(registrations(repos), Mirrors(root / "c2"), Policy())
    )
    assert all(len(view.packages) == 4 for view in views.values())
    rows.append(Row(f"read {count} views / git ls-tree -r", read, bench_ls_tree(repos), processes))

    write, _, processes = timed(lambda: [write_draft(mirrors, repo) for repo in repos])
    pushed = bench_plain_push(root, repos)
    rows.append(Row(f"draft in {count} repositories / git push", write, pushed, processes))
    return rows


def bench_ls_tree(repos: Sequence[Repo]) -> float:
    return timed(lambda: [git("ls-tree", "-r", "main", cwd=repo.path) for repo in repos])[0]


def write_draft(mirrors: Mirrors, repo: Repo) -> Oid:
    mirror = mirrors.open(str(repo.path))
    head = mirror.refs()["refs/heads/main"]
    pack = Pack(mirror)
    root = pack.patch_tree(mirror.commit(head).tree, "new", {"Kptfile": File.of(b"x"), "a": File.of(b"y")})
    commit = pack.commit(root, [head], SIGNATURE, SIGNATURE, "Draft\n")
    pack.save()
    assert push(mirror, [RefUpdate("refs/heads/drafts/new/w", None, commit)])[0].ok
    return commit


def bench_plain_push(root: Path, repos: Sequence[Repo]) -> float:
    """Push one new commit of as many objects from a clone of each repository: the least git can do."""
    for number, repo in enumerate(repos):
        clone = root / f"clone-{number}"
        git("clone", "-q", "--bare", "--shared", str(repo.path), str(clone), cwd=root)
        files = {"new/Kptfile": f"x{number}", "new/a": f"y{number}"}
        Repo(clone).commit(files, branch="bench", start="main")

    def run() -> None:
        for number, repo in enumerate(repos):
            git("push", "-q", str(repo.path), "bench", cwd=root / f"clone-{number}")

    return timed(run)[0]


def busy_s() -> float:
    """Return the CPU seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Drafts(NamedTuple):
    """The CPU seconds of a fleet's drafts: packed, and pushed as one branch instead."""

    packed_s: float
    batch_s: float


def draft_packages(count: int) -> list[dict[str, File]]:
    shared = {f"{n}.yaml": File.of(b"kind: ConfigMap\n" * 100 + b"%d" % n) for n in range(9)}
    return [{**shared, "Kptfile": File.of(b"name: p%d\n" % n * 50)} for n in range(count)]


def bench_drafts(root: Path, count: int) -> tuple[list[Row], Drafts]:
    """Write many drafts into one repository; the baseline is git fast-import of the same."""
    repo = make_repository(root / "one.git", {"README.md": "x"})
    mirror = Mirrors(root / "cache").open(str(repo.path))
    head = mirror.refs()["refs/heads/main"]
    tree = mirror.commit(head).tree
    packages = draft_packages(count)
    pack = Pack(mirror)

    def commits() -> list[RefUpdate]:
        made = []
        for number, files in enumerate(packages):
            root_tree = pack.patch_tree(tree, f"c{number}/web", files)
            oid = pack.commit(root_tree, [head], SIGNATURE, SIGNATURE, f"Draft {number}\n")
            made.append(RefUpdate(f"refs/heads/drafts/c{number}/web/w", None, oid))
        return made

    start = busy_s()
    packed, updates, _ = timed(commits)
    saved, _, _ = timed(pack.save)
    packed_s = busy_s() - start
    pushed, _, pushes = timed(lambda: push(mirror, updates))
    imported = bench_fast_import(root, packages)
    plain = bench_push_all(root, repo)
    git("fsck", "--strict", cwd=repo.path)
    rows = [
        Row(f"pack {count} drafts of 10 files / git fast-import", packed + saved, imported, 0),
        Row(f"push {count} drafts / git push of as many refs", pushed, plain, pushes),
    ]
    return rows, Drafts(packed_s, batch_s(root, packages))


def batch_s(root: Path, packages: Sequence[dict[str, File]]) -> float:
    """Return the CPU seconds of all packages in one commit on one branch, packed and pushed."""
    repo = make_repository(root / "batch.git", {"README.md": "x"})
    mirror = Mirrors(root / "cache").open(str(repo.path))
    head = mirror.refs()["refs/heads/main"]
    pack = Pack(mirror)
    start = busy_s()
    tree = mirror.commit(head).tree
    trees = {f"c{number // 100}/p{number}": pack.files(files) for number, files in enumerate(packages)}
    tree = pack.graft(tree, trees)
    commit = pack.commit(tree, [head], SIGNATURE, SIGNATURE, "Update the fleet\n")
    pack.save()
    assert push(mirror, [RefUpdate("refs/heads/drafts/fleet/w", None, commit)])[0].ok
    return busy_s() - start


def bench_fast_import(root: Path, packages: Sequence[dict[str, File]]) -> float:
    target = root / "import.git"
    git("init", "-q", "--bare", str(target), cwd=root)
    stream = [b"commit refs/heads/main\ncommitter a <a@b> 1 +0000\ndata 0\nM 100644 inline r\ndata 0\n\n"]
    for number, files in enumerate(packages):
        stream.append(
            b"commit refs/heads/d%d\ncommitter a <a@b> 1 +0000\ndata 0\nfrom refs/heads/main\n" % number
        )
        for name, file in files.items():
            path = f"c{number}/web/{name}".encode()
            stream.append(b"M 100644 inline %b\ndata %d\n%b\n" % (path, len(file.data), file.data))
    data = b"".join(stream)
    return timed(lambda: git("fast-import", "--quiet", cwd=target, stdin=data))[0]


def bench_push_all(root: Path, repo: Repo) -> float:
    """Push the same branches to an empty repository with one wildcard."""
    git("init", "-q", "--bare", "empty.git", cwd=root)
    spec = "refs/heads/*:refs/heads/*"
    return timed(lambda: git("push", "-q", str(root / "empty.git"), spec, cwd=repo.path))[0]


def bench_monorepo(root: Path, count: int) -> list[Row]:
    """Read one repository with many packages and drafts; the baseline is git ls-tree and for-each-ref."""
    files = {f"c{n // 100}/p{n}/{f}": kptfile(f"p{n}") for n in range(count) for f in ("Kptfile", "a.yaml")}
    repo = make_repository(root / "mono.git", files)
    for n in range(0, count, 10):
        ref = f"drafts/c{n // 100}/p{n}/w"
        repo.commit({f"c{n // 100}/p{n}/a.yaml": "edited"}, branch=ref, start="main", who=BOT)
    git("pack-refs", "--all", cwd=repo.path)
    git("gc", "-q", cwd=repo.path)
    views = registrations([repo])
    ours, found, processes = timed(lambda: read_registered(views, Mirrors(root / "cache"), Policy()))
    (view,) = found.values()
    assert len(view.packages) == count
    listed, _, _ = timed(lambda: git("ls-tree", "-r", "main", cwd=repo.path))
    refs, _, _ = timed(lambda: git("for-each-ref", cwd=repo.path))
    mirror = Mirrors(root / "cache").open(str(repo.path))
    trees = [state.main_tree for state in view.packages.values() if state.main_tree]
    contents, _, _ = timed(lambda: [mirror.files(tree, Limits()) for tree in trees])
    oids = b"".join(b"%b\n" % e.oid.encode() for t in trees for e in mirror.entries(t))
    batch, _, _ = timed(lambda: git("cat-file", "--batch", cwd=repo.path, stdin=oids))
    return [
        Row(f"read {count} packages, {count // 10} drafts / git ls-tree", ours, listed + refs, processes),
        Row(f"contents of {count} packages / git cat-file", contents, batch, 0),
    ]


def main(counts: Sequence[int], drafts: int) -> int:
    """Print the table and judge it."""
    rows: list[Row] = []
    root = Path(tempfile.mkdtemp(prefix="bench-git-"))
    goals = Goals(__file__)
    try:
        for count in counts:
            (root / str(count)).mkdir()
            rows += bench_fleet(root / str(count), count)
        (root / "drafts").mkdir()
        shown, costs = bench_drafts(root / "drafts", drafts)
        rows += shown
        (root / "mono").mkdir()
        rows += bench_monorepo(root / "mono", min(drafts, 2000))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{'':62} {'ours':>8} {'git':>8} {'ratio':>6} processes")
    for row in rows:
        ratio = row.ours / row.baseline
        print(f"{row.what:62} {row.ours:7.3f}s {row.baseline:7.3f}s {ratio:6.2f} {row.processes:9}")
    goals.at_most("packing drafts, against git fast-import", shown[0].ours / shown[0].baseline, 1, "x")
    if not is_quick():
        goals.cpu("10,000 drafts packed", costs.packed_s, 2.5)
        goals.cpu("10,000 packages pushed as one branch", costs.batch_s, 3.5)
    return goals.finish()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:] if argument != "--quick"]
    sys.exit(main(arguments or ([10] if is_quick() else [50, 500]), 300 if is_quick() else 10_000))
