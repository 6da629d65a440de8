"""A fleet as real bare repositories, the commands that are run on it, and what it shows afterwards."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.combination import trees
from tests.support.combination.blueprints import DRAWN, package_files
from tests.support.combination.ledger import Ledger
from tests.support.combination.spec import CATALOG, INSTANCE, SITE, FleetSpec, VariantSpec, dump
from tests.support.git import Repo, make_repository
from tests.support.world import Said, run_line

MANAGEMENT = "management"
KINDS = "Site.example.com,Team.example.com"
STATE = (f"refs/heads/reconciler/{INSTANCE}/state", f"refs/heads/reconciler/{INSTANCE}/status")

FOREIGN = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: foreign\ninfo:\n  description: {token}\n"


class Pull(NamedTuple):
    """A pull request of the local forge, as its ref holds it."""

    number: int
    head: str
    state: str
    title: str
    body: str
    draft: bool
    member: str = ""
    """The path of one package of a group."""

    @property
    def is_deletion(self) -> bool:
        return self.head.startswith(f"reconciler/{INSTANCE}/delete/")

    @property
    def package(self) -> str:
        """The package's path: of `drafts/F/W`, of the branch of a deletion, or of one of a group."""
        if self.member:
            return self.member
        if self.is_deletion:
            return self.head.removeprefix(f"reconciler/{INSTANCE}/delete/")
        return self.head.partition("/")[2].rpartition("/")[0]


@dataclass
class Fleet:
    """Repositories, what people want of them, and what was written by whom."""

    root: Path
    spec: FleetSpec
    ledger: Ledger = field(default_factory=Ledger)
    repos: dict[str, Repo] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=lambda: {"north": "n0", "south": "s0"})

    # building

    def build(self) -> "Fleet":
        """Make the repositories."""
        self.root.mkdir(parents=True, exist_ok=True)
        names = {self.spec.git_of(r)[0] for r in (CATALOG, *self.spec.repositories())} | {"control"}
        for name in sorted(names):
            self.add(name)
        for package in [*DRAWN, *self.spec.corpus]:
            self.release(package, package_files(package))
        for repository in self.spec.repositories():
            self._add_neighbours(repository)
        registered = [self.spec.registration(r) for r in (CATALOG, *self.spec.repositories())]
        self.commit_control(
            {
                "reconciler.yaml": dump(self.spec.configuration()),
                "manifests/repositories.yaml": "---\n".join(map(dump, registered)),
            }
        )
        for variant in self.spec.variants:
            self.write_variant(variant)
        self.write_snapshot()
        return self

    def add(self, name: str) -> None:
        """Make one more repository."""
        self.repos[name] = make_repository(self.root / f"{name}.git", {"README.md": f"{name}\n"})

    def _add_neighbours(self, repository: str) -> None:
        repo, directory = self.repo(repository), self.spec.git_of(repository)[1]
        start = f"{directory}/" if directory else ""
        files: dict[str, str] = {}
        for neighbour in self.spec.neighbours:
            what, _, path = neighbour.partition(":")
            if any(f"{start}{path}/".startswith(f"{p}/") or p.startswith(f"{start}{path}/") for p in files):
                continue  # a file and a directory at one path: the first stays
            token = self.ledger.next("f")
            match what:
                case "package":
                    files[f"{start}{path}/Kptfile"] = FOREIGN.format(token=token)
                    self.ledger.guard(token, repository, f"{start}{path}", "Kptfile")
                case "files":
                    files[f"{start}{path}/mine.txt"] = f"{token}\n"
                    self.ledger.guard(token, repository, f"{start}{path}", "mine.txt")
                case "file":
                    files[f"{start}{path}"] = f"{token}\n"
                    self.ledger.guard(token, repository, f"{start}{path}", path)
                case "branch":
                    repo.point(f"refs/heads/{path}", repo.oid("main"))
        if files:
            repo.commit(files, message="Neighbours\n")

    def release(self, package: str, content: dict[str, bytes], *, number: int = 0, message: str = "") -> int:
        """Publish the next revision of an upstream package."""
        repo, path = self.repo(CATALOG), self.full(CATALOG, package)
        here = {p for p in trees.listing(repo, trees.root(repo, "main")) if p.startswith(f"{path}/")}
        changes: dict[str, Any] = {f"{path}/{p}": data for p, data in content.items()}
        changes |= dict.fromkeys(here - changes.keys())
        number = number or self.latest(package) + 1
        repo.commit(changes, message=message or f"Release {package} v{number}\n")
        repo.tag(f"{path}/v{number}")
        repo.tag(f"{path}/v{number}.0.0")
        if number == 1:
            repo.tag(f"{path}/stable")
        return number

    # what is where

    def repo(self, repository: str) -> Repo:
        """Return the Git repository of a registered Repository."""
        return self.repos[self.spec.git_of(repository)[0]]

    def full(self, repository: str, package: str) -> str:
        """Return a package's path in its Git repository."""
        directory = self.spec.git_of(repository)[1]
        return f"{directory}/{package}" if directory else package

    def latest(self, package: str) -> int:
        """Return the highest published revision of an upstream package, 0 if there is none."""
        start = f"refs/tags/{self.full(CATALOG, package)}/v"
        numbers = [ref.removeprefix(start) for ref in self.repo(CATALOG).refs() if ref.startswith(start)]
        return max((int(n) for n in numbers if n.isdecimal()), default=0)

    def upstream_commit(self, variant: VariantSpec) -> str | None:
        """Return the commit that a variant asks for; None where it is not there."""
        path, repo = self.full(CATALOG, variant.package), self.repo(CATALOG)
        match variant.form:
            case "revision" | "workspace":
                ref = f"refs/tags/{path}/v{variant.number}"
            case "tag":
                ref = f"refs/tags/{path}/stable"
            case "version":
                ref = f"refs/tags/{path}/v{min(variant.number, self.latest(variant.package))}.0.0"
            case "branch":
                ref = "refs/heads/main"
            case _:
                ref = f"refs/tags/{path}/v{self.latest(variant.package)}"
        return repo.oid(ref) if repo.find(ref) else None

    def upstream_text(self, variant: VariantSpec) -> bytes:
        """Return the whole content of the upstream package that a variant asks for."""
        commit = self.upstream_commit(variant)
        repo = self.repo(CATALOG)
        if commit is None:
            return b""
        return trees.text(repo, str(repo.git[commit].tree_id), self.full(CATALOG, variant.package))

    def pulls(self, repository: str, state: str = "open") -> list[Pull]:
        """Return the pull requests of a repository; without its branch, or merged in Git, none is open."""
        repo, refs = self.repo(repository), self.repo(repository).refs()
        listed = []
        for ref, oid in refs.items():
            if ref.startswith("refs/reconciler/pulls/"):
                data = json.loads(next(iter(repo.git[oid].tree)).data)
                names = (data["head"], data["head"].replace("drafts/", "proposed/", 1))
                stands = [name for name in names if f"refs/heads/{name}" in refs]
                if data["state"] == state and (stands or state != "open"):
                    head = stands[0] if stands else data["head"]
                    body = f"{data['title']}\n{data['body']}\n{json.dumps(data['comments'])}"
                    pull = Pull(data["number"], head, data["state"], data["title"], body, data["draft"])
                    listed += [pull._replace(member=each) for each in self._members(repo, pull)]
        if state == "open":
            main = trees.root(repo, "main")
            listed = [pull for pull in listed if trees.merged(repo, pull.head) != main]
        return sorted(listed)

    def _members(self, repo: Repo, pull: Pull) -> list[str]:
        """Return the packages that a group's branch changes; of another pull request its own, as ""."""
        if not pull.head.startswith(f"reconciler/{INSTANCE}/group/"):
            return [""]
        tree = trees.merged(repo, pull.head) or trees.root(repo, pull.head)
        before, after = trees.listing(repo, trees.root(repo, "main")), trees.listing(repo, tree)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        kptfiles = sorted(p.removesuffix("Kptfile") for p in before | after if p.endswith("/Kptfile"))
        outer = [p for p in kptfiles if not any(p != o and p.startswith(o) for o in kptfiles)]
        return [p.rstrip("/") for p in outer if any(path.startswith(p) for path in changed)]

    def packages(self, repository: str, branch: str = "main") -> list[str]:
        """Return the paths of the directories with a Kptfile."""
        repo = self.repo(repository)
        names = trees.listing(repo, trees.root(repo, branch))
        start = self.full(repository, "")
        return sorted(p.rpartition("/")[0] for p in names if p.endswith("/Kptfile") and p.startswith(start))

    # the control repository

    def commit_control(self, changes: dict[str, Any]) -> None:
        """Commit to the control repository's main branch; None deletes."""
        repo = self.repos["control"]
        there = trees.listing(repo, trees.root(repo, "main"))
        kept = {path: data for path, data in changes.items() if data is not None or path in there}
        if kept:
            repo.commit(kept, message="Ask\n")

    def write_variant(self, variant: VariantSpec) -> None:
        """Write a variant's manifest."""
        self.commit_control({f"manifests/{variant.name}.yaml": dump(variant.manifest())})

    def write_configuration(self) -> None:
        """Write reconciler.yaml again."""
        self.commit_control({"reconciler.yaml": dump(self.spec.configuration())})

    def zone(self, site: str, repository: str) -> str:
        """Return the zone of a site as the cluster of a repository knows it, "" where there is none."""
        zone = self.sites.get(site, "")
        return f"{zone}-{repository}" if zone and self.spec.clusters else zone

    def write_snapshot(self) -> None:
        """Write what each cluster holds, in the form of this fleet."""
        if self.spec.snapshot == "none":
            return
        there = trees.listing(self.repos["control"], trees.root(self.repos["control"], "main"))
        changes: dict[str, Any] = {path: None for path in there if path.startswith("snapshot/")}
        for cluster in self.spec.clusters or [""]:
            start = f"snapshot/{cluster}/" if cluster else "snapshot/"
            files = self._snapshot(cluster)
            changes |= {f"{start}{path}": text for path, text in files.items()}
        self.commit_control(changes)

    def _snapshot(self, cluster: str) -> dict[str, str]:
        objects = [
            {
                **SITE,
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"zone": self.zone(name, cluster), "open": True},
            }
            for name in sorted(self.sites)
        ]
        header = {"snapshot.yaml": _header(cluster or MANAGEMENT, len(objects))}
        match self.spec.snapshot:
            case "yaml":
                return header | {"sites.yaml": "---\n".join(map(dump, objects))}
            case "json":
                listed = {"apiVersion": "v1", "kind": "List", "items": objects}
                return header | {"sites.json": json.dumps(listed)}
            case "ndjson":
                return header | {"sites.ndjson": "".join(json.dumps(o) + "\n" for o in objects)}
        return self._imported(cluster or MANAGEMENT, objects)

    def _imported(self, cluster: str, objects: list[dict[str, Any]]) -> dict[str, str]:
        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            source = Path(scratch) / "objects.json"
            source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
            output = Path(scratch) / "snapshot"
            where = ["--out-dir", str(output), "--cluster", cluster, "--kinds", KINDS]
            result = run_line("snapshot", "import", str(source), *where, "--time", "2026-01-01T00:00:00Z")
            assert result.code == 0, result
            return {
                str(path.relative_to(output)): path.read_text()
                for path in sorted(output.rglob("*"))
                if path.is_file()
            }

    # commands

    def places(self, cache: str = "cache") -> list[str]:
        """Return the options that name this fleet."""
        return ["--control", str(self.root / "control.git"), "--cache-dir", str(self.root / cache)]

    def run(self, *line: str, cache: str = "cache") -> Said:
        """Run one command in this process."""
        return run_line(*line, *self.places(cache))

    def all_refs(self) -> dict[str, dict[str, str]]:
        """Return every ref of every repository, without what is recorded of runs."""
        return {
            name: {ref: oid for ref, oid in repo.refs().items() if ref not in STATE}
            for name, repo in self.repos.items()
        }

    def locks(self) -> str:
        """Return the id of the directory of decided locks, empty where nothing was decided."""
        control = self.repos["control"]
        if not control.find(STATE[0]):
            return ""
        tree = control.git[control.oid(STATE[0])].tree
        return str(tree["locks"].id) if "locks" in tree else ""


def _header(cluster: str, count: int) -> str:
    lists = [
        {"group": "example.com", "kind": "Site", "namespace": "default", "count": count, "complete": True}
    ]
    served = ["example.com/v1 Site"]
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot", "metadata": {"name": cluster}}
    return dump({**header, "spec": {"served": served, "lists": lists}})
