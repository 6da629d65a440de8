"""A world of real repositories in which a person does whatever people do between two runs."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pygit2

from reconciler.base.errors import ReconcilerError
from reconciler.policy import CommitPolicy
from reconciler.records.state import branch_records
from reconciler.run.apply import apply_plan
from reconciler.run.inputs import RunOptions
from reconciler.run.plan import PlannedRun, plan_run
from tests.faults.world import Runner
from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import repository
from tests.support.world import World

OURS = CommitPolicy().email
BLUEPRINTS, EDGE, FAR = "blueprints", "edge", "far"
WEB, ALPHA, BETA, CHAINED, FURTHER = "web", "alpha", "beta", "chained", "further"
INSTANCES = {"fleet": "control", "rival": "rival"}
ROUNDS = 4
"""More rounds than two instances may need that answer each other in one repository."""

CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {{name: {name}}}
spec:
  manifests: [manifests]
"""
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: {name}
  namespace: default
  annotations:
    reconciler.dev/retry: "{retry}"{follow}
spec:
  upstream: {{repo: {repo}, package: {upstream}{selector}}}
  downstream: {{repo: {downstream}, package: {package}}}
  deletionPolicy: {deletion}
"""
SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {{name: {name}, namespace: default, annotations: {{reconciler.dev/allow-deletes: "9"}}}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  targets:
  - repositories:
    - {{name: edge, packageNames: [{packages}]}}
"""


def app(color: str, size: str = "s") -> str:
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  color: {color}\n  size: {size}\n"
    )


@dataclass
class Wish:
    """What the control repository asks for."""

    name: str = "one"
    set_name: str = "sites"
    selector: str = ", revision: 1"
    revision: int = 1
    packages: tuple[str, ...] = (ALPHA, BETA)
    retry: int = 0
    follow: str = ""
    deletion: str = "delete"
    present: bool = True

    def files(self) -> dict[str, str | None]:
        """Return the manifests; None where a manifest is gone."""
        links = {
            name: {"name": name, "repo": repo, "upstream": upstream, "selector": "", "package": name}
            for name, repo, upstream in ((CHAINED, EDGE, WEB), (FURTHER, FAR, CHAINED))
        }
        follow = f'\n    reconciler.dev/follow-moved-tag: "{self.follow}"' if self.follow else ""
        common = {"retry": self.retry, "follow": follow, "deletion": self.deletion}
        web = VARIANT.format(
            **common,
            name=self.name,
            repo=BLUEPRINTS,
            upstream=WEB,
            selector=self.selector,
            downstream=EDGE,
            package=WEB,
        )
        return {
            "manifests/web.yaml": web if self.present else None,
            "manifests/sites.yaml": SET.format(
                name=self.set_name, revision=self.revision, packages=", ".join(self.packages)
            ),
            **{
                f"manifests/{name}.yaml": VARIANT.format(**common, **link, downstream=FAR)
                for name, link in links.items()
            },
        }

    def variants(self) -> set[str]:
        """Return the names of the variants that people wrote themselves."""
        return {CHAINED, FURTHER, *([self.name] if self.present else [])}


@dataclass
class Life:
    """The repositories, what the person wants, and every ref as the last run left it."""

    root: Path
    repos: dict[str, Repo] = field(default_factory=dict)
    wish: Wish = field(default_factory=Wish)
    count: int = 0

    def __post_init__(self) -> None:
        self.repos[BLUEPRINTS] = self._make(BLUEPRINTS, {})
        for number, color in enumerate(("red", "green", "blue"), start=1):
            self.blueprint(color)
            self.repos[BLUEPRINTS].tag(f"{WEB}/v{number}")
        self.repos[BLUEPRINTS].tag(f"{WEB}/stable", f"{WEB}/v1")
        for name in (EDGE, FAR):
            self.repos[name] = self._make(name, {"README.md": f"{name}\n"})
        registered = {f"manifests/repositories/{n}.yaml": repository(n) for n in (BLUEPRINTS, EDGE, FAR)}
        for instance, name in INSTANCES.items():
            files = {"reconciler.yaml": CONFIGURATION.format(name=instance), **registered}
            self.repos[name] = self._make(name, files)
        rival = {"repo": BLUEPRINTS, "upstream": WEB, "selector": ", revision: 2", "downstream": EDGE}
        text = VARIANT.format(name="rival", package=ALPHA, retry=0, follow="", deletion="delete", **rival)
        self.repos["rival"].commit({"manifests/rival.yaml": text})
        self.publish_wish()

    def _make(self, name: str, files: dict[str, str]) -> Repo:
        return make_repository(self.root / f"{name}.git", files)

    @property
    def edge(self) -> Repo:
        return self.repos[EDGE]

    def next(self) -> int:
        """Return a number that nobody used: what a person writes is always new."""
        self.count += 1
        return self.count

    # what people do

    def publish_wish(self) -> None:
        control, files = self.repos["control"], self.wish.files()
        there = set(paths(control, "main")) if control.find("refs/heads/main") else set()
        changes = {path: text for path, text in files.items() if text is not None or path in there}
        control.commit(changes)

    def blueprint(self, color: str) -> None:
        files = {f"{WEB}/Kptfile": kptfile(WEB), f"{WEB}/app.yaml": app(color)}
        self.repos[BLUEPRINTS].commit(files)

    def drafts(self, name: str = EDGE) -> list[str]:
        """Return the branches that a person may work on."""
        heads = ("refs/heads/drafts/", "refs/heads/proposed/", "refs/heads/reconciler/")
        return sorted(
            ref.removeprefix("refs/heads/") for ref in self.repos[name].refs() if ref.startswith(heads)
        )

    def packages(self, branch: str = "main", name: str = EDGE) -> list[str]:
        return sorted(p.rpartition("/")[0] for p in paths(self.repos[name], branch) if p.endswith("/Kptfile"))

    def revert(self, package: str) -> None:
        """A person puts the oldest published content of a package back on main."""
        files = {p: None for p in paths(self.edge, "main") if p.startswith(f"{package}/")}
        tags = sorted(r for r in self.edge.refs() if r.startswith(f"refs/tags/{package}/v"))
        old = {
            p: self.edge.read(tags[0], p) for p in paths(self.edge, tags[0]) if p.startswith(f"{package}/")
        }
        if files.keys() != old.keys() or any(self.edge.read("main", p) != data for p, data in old.items()):
            self.edge.commit({**files, **old}, message="Revert\n")

    def copy(self, package: str) -> None:
        """A person copies a package, annotations and all."""
        target = f"copy-{self.next()}"
        files = {
            p: self.edge.read("main", p) for p in paths(self.edge, "main") if p.startswith(f"{package}/")
        }
        self.edge.commit({p.replace(package, target, 1): data for p, data in files.items()})

    def rejected(self) -> list[str]:
        """Return the pull requests that somebody may open again: closed ones whose branch stands."""
        refs = self.edge.refs()
        records = [_record(self.edge, ref) for ref in refs if ref.startswith("refs/reconciler/pulls/")]
        opened = {r["head"] for r in records if r["state"] == "open"}
        closed = [r for r in records if r["state"] == "closed" and r["head"] not in opened]
        return [f"{EDGE}#{r['number']}" for r in closed if _stands(r["head"], refs)]

    # what a run does

    def run(self, instance: str) -> None:
        """Run once, without a cache; what holds for every run is checked here."""
        before = self.all_refs()
        said = _Instance(self.root, INSTANCES[instance]).run(
            "apply", "--quiet", "--output", "json", cache=f"fresh-{self.next()}"
        )
        assert said.code in (0, 3, 4, 7), (said.code, said.out, said.err)
        told = json.loads(said.out)
        seen = Counter((c["package"]["url"], c["package"]["path"]) for c in told["changes"])
        assert not [key for key, times in seen.items() if times > 1], "each package once"
        if instance == "fleet":
            named = {c["variant"]["name"] for c in told["changes"] if c["variant"]}
            named |= {p["subject"].rpartition("/")[2] for p in told["problems"]}
            assert self.wish.variants() <= named, "what is wanted is done, proposed, or listed with why (I4)"
        self.check(before)

    def rest(self) -> None:
        """Let both instances run until neither writes; no second run of one of them writes (law 1, I5)."""
        rested: dict[str, dict[str, dict[str, str]]] = {}
        for _ in range(ROUNDS):
            for instance in INSTANCES:
                before = self.all_refs()
                if rested.get(instance) == before:
                    continue
                self.run(instance)
                after = self.all_refs()
                if after != before:
                    self.run(instance)
                    assert self.all_refs() == after, difference(after, self.all_refs())
                rested[instance] = after
            if all(refs == self.all_refs() for refs in rested.values()):
                return
        raise AssertionError(f"never at rest: {rested}")

    def run_killed(self, runner: Runner, instance: str, point: int) -> None:
        """Run until a failpoint, and no further (I6); a run that has fewer of them ends as any other."""
        before = self.all_refs()
        where = ("--control", str(self.root / f"{INSTANCES[instance]}.git"))
        cache = ("--cache-dir", str(self.root / f"fresh-{self.next()}"))
        ran = runner.run("apply", "--quiet", *where, *cache, point=f"{point}:kill")
        assert ran.code in (-signal.SIGKILL, 0, 3, 4, 7), ran
        self.check(before)

    def run_stale(self, first: str, second: str) -> None:
        """Plan two runs on one world, and apply them one after the other: the second is stale (I7)."""
        plans = [self._plan(instance) for instance in (first, second)]
        for planned in plans:
            before = self.all_refs()
            with suppress(ReconcilerError):
                apply_plan(planned)
            self.check(before)

    def _plan(self, instance: str) -> PlannedRun:
        control = self.root / f"{INSTANCES[instance]}.git"
        return plan_run(RunOptions(str(control), self.root / f"fresh-{self.next()}"))

    def check(self, before: dict[str, dict[str, str]]) -> None:
        """Check what holds after every run, however it ended."""
        for name, repo in self.repos.items():
            self._check_moves(repo, before[name])
        self._check_pulls()
        for name in INSTANCES:
            self._check_records(name)

    def all_refs(self) -> dict[str, dict[str, str]]:
        return {name: repo.refs() for name, repo in self.repos.items()}

    def _check_pulls(self) -> None:
        """One open pull request for each head, and one open draft for each package (I3)."""
        for name in (EDGE, FAR):
            refs = self.repos[name].refs()
            pulls = [_record(self.repos[name], r) for r in refs if r.startswith("refs/reconciler/pulls/")]
            heads = [p["head"] for p in pulls if p["state"] == "open" and _stands(p["head"], refs)]
            packages = [h.partition("/")[2].rpartition("/")[0] for h in heads if h.startswith("drafts/")]
            assert len(heads) == len(set(heads)), heads
            assert len(packages) == len(set(packages)), packages

    def _check_records(self, instance: str) -> None:
        """What is recorded of upstreams exists (I8)."""
        control = self.repos[INSTANCES[instance]]
        state = control.find(f"refs/heads/reconciler/{instance}/state")
        files = {path: control.read(state, path) for path in paths(control, state)} if state else {}
        for path, data in branch_records(files).items():
            if path.startswith("packagevariants/"):
                record = json.loads(data)
                commit = record["upstreamCommit"]
                assert any(commit in repo.git for repo in self.repos.values()), f"{path} names {commit}"

    def _check_moves(self, repo: Repo, before: dict[str, str]) -> None:
        """Nothing of a person is lost, and nothing published moves, in one run (I1, I2, I9)."""
        after = repo.refs()
        for ref, old in before.items():
            new = after.get(ref)
            if new == old or ref.startswith("refs/reconciler/"):
                continue
            assert not ref.startswith("refs/tags/"), f"{ref} moved"
            assert ref != "refs/heads/main", "a run never writes to main"
            for commit in lost(repo, old, after.values()):
                if commit.committer.email != OURS:
                    assert is_merged(repo, old, ref), f"{ref}: lost {commit.id} {commit.message!r}"


class _Instance(World):
    """A world seen from one of its control repositories."""

    def __init__(self, root: Path, control: str) -> None:
        super().__init__(root)
        self.name = control

    @property
    def control(self) -> Path:
        return self.root / f"{self.name}.git"


def lost(repo: Repo, tip: str, kept: Any) -> Iterator[pygit2.Commit]:
    """Yield the commits of a tip that no ref reaches any more."""
    walker = repo.git.walk(pygit2.Oid(hex=tip))
    for oid in kept:
        target = repo.git[oid]
        if isinstance(target, pygit2.Commit):
            walker.hide(target.id)
    yield from walker


def is_merged(repo: Repo, tip: str, ref: str) -> bool:
    """Whether main's history has had the package as the branch left it: squashed and rebased ones."""
    path = ref.removeprefix("refs/heads/").split("/", 1)[1].rpartition("/")[0]
    wanted = subtree(repo.git[tip], path)
    main = repo.find("refs/heads/main")
    return main is not None and any(
        subtree(commit, path) == wanted for commit in repo.git.walk(pygit2.Oid(hex=main))
    )


def subtree(commit: Any, path: str) -> str | None:
    try:
        return str(commit.tree[path].id)
    except KeyError:
        return None


def paths(repo: Repo, name: str) -> list[str]:
    """Return every file at a branch, tag or commit."""
    found: list[str] = []

    def walk(tree: Any, prefix: str) -> None:
        for entry in tree:
            if entry.type_str == "tree":
                walk(entry, f"{prefix}{entry.name}/")
            else:
                found.append(prefix + entry.name)

    walk(repo.git[repo.oid(name)].tree, "")
    return found


def difference(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> list[str]:
    return [
        f"{name} {ref}: {before[name].get(ref)} -> {after[name].get(ref)}"
        for name in before
        for ref in sorted({*before[name], *after[name]})
        if before[name].get(ref) != after[name].get(ref)
    ]


def _stands(head: str, refs: dict[str, str]) -> bool:
    return any(f"refs/heads/{name}" in refs for name in (head, head.replace("drafts/", "proposed/", 1)))


def _record(repo: Repo, ref: str) -> dict[str, Any]:
    commit = repo.git[repo.refs()[ref]]
    return dict(json.loads(next(iter(commit.tree)).data))
