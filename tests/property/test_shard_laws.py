"""Laws of shards on drawn fleets: in any order they leave what one run leaves, byte for byte."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random

import pytest
from pygit2 import GitError

from tests.support.git import Repo, kptfile, make_repository
from tests.support.samples import sample
from tests.support.small_world import app
from tests.support.standing import standing
from tests.support.world import World

pytestmark = pytest.mark.slow

API = "config.porch.kpt.dev"
EDGES = ("edge-1", "edge-2", "edge-3", "edge-4")
SOURCES = ("base", "extra", "rare")
PACKAGES = ("web", "db", "lone")
STEPS = 5
NEED = """\
apiVersion: data.packaging.carvel.dev/v1alpha1
kind: Package
metadata:
  name: {name}.example.com
  annotations: {{config.kubernetes.io/local-config: "true"}}
spec:
  refName: {name}.example.com
  version: 0.0.0
"""


@dataclass
class DrawnFleet:
    """Repositories below a directory, and the manifests of the control repository, drawn from a seed."""

    root: Path
    random: Random
    manifests: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def build(self) -> None:
        self.root.mkdir()
        for source in SOURCES:
            repo = make_repository(self.root / f"{source}.git", self.blueprints(source, 1))
            for package in PACKAGES:
                repo.tag(f"{package}/v1")
            repo.commit(self.blueprints(source, 2), message="Two\n")
            for package in PACKAGES:
                repo.tag(f"{package}/v2")
        shared = self.random.random() < 0.3
        for edge in EDGES:
            make_repository(self.root / f"{edge}.git", {"README.md": f"{edge}\n"})
        for name in (*SOURCES, *EDGES):
            cluster = "pair" if shared and name in EDGES[:2] else name
            self.manifests[f"manifests/repositories/{name}.yaml"] = repository(name, cluster)
        guard = self.random.choice(
            ["", "", "  deletions: {minimum: 3, share: 0.4}\n", "  deletions: {count: 1}\n"]
        )
        mode = self.random.choice(["", "", "", "  lock: {mode: reviewed}\n"])
        text = f"{CONFIGURATION}{guard}{mode}"
        make_repository(self.root / "control.git", {"reconciler.yaml": text, **self.manifests})
        for _ in range(self.random.randint(3, 6)):
            self.add_owner()

    def blueprints(self, source: str, revision: int) -> dict[str, str]:
        """Return the packages of one repository; those of `rare` may need one of `base`."""
        files = {}
        for package in PACKAGES:
            files[f"{package}/Kptfile"] = kptfile(package)
            files[f"{package}/app.yaml"] = app(f"{source}-{package}", revision)
        files["lone/package.yaml"] = NEED.format(name=f"lone-{source}")
        if source == "rare":
            files["web/package.yaml"] = (
                NEED.format(name="web")
                + "  dependencies:\n  - {package: {refName: lone-base.example.com, version: '>=0.0.0'}}\n"
            )
        return files

    @property
    def control(self) -> Repo:
        return Repo(self.root / "control.git", time=2_000_000_000)

    def write(self, changes: dict[str, str | None]) -> None:
        self.control.commit(changes, message="Ask\n")
        for path, text in changes.items():
            self.manifests.pop(path, None)
            if text is not None:
                self.manifests[path] = text

    def owners(self) -> list[str]:
        return sorted(path for path in self.manifests if "/owners/" in path)

    # what people do

    def add_owner(self) -> None:
        self.count += 1
        name, source = f"o{self.count}", self.random.choice(["base", "base", "extra", "rare"])
        package = self.random.choice(PACKAGES)
        if source == "rare" and package == "web" and self.random.random() < 0.5:
            package = "db"
        upstream = f"{{repo: {source}, package: {package}, revision: {self.random.choice([1, 1, 2])}}}"
        if self.random.random() < 0.1:
            upstream = f"{{repo: {source}, package: missing, revision: 1}}"
        if self.random.random() < 0.15:  # a chain
            upstream = f"{{repo: {self.random.choice(EDGES)}, package: {package}, revision: 1}}"
        text = self.set(upstream, name) if self.random.random() < 0.4 else self.variant(upstream, name)
        self.write({f"manifests/owners/{name}.yaml": text})

    def variant(self, upstream: str, name: str) -> str:
        package = self.random.choice([*PACKAGES, "web", "apps/x"])
        downstream = f"{{repo: {self.random.choice(EDGES)}, package: {package}}}"
        policy = self.random.choice(["delete", "delete", "orphan"])
        return (
            f"apiVersion: {API}/v1alpha1\nkind: PackageVariant\nmetadata: {{name: {name}}}\n"
            f"spec:\n  upstream: {upstream}\n  downstream: {downstream}\n  deletionPolicy: {policy}\n"
        )

    def set(self, upstream: str, name: str) -> str:
        some = self.random.sample(EDGES, self.random.randint(1, 3))
        named = ", ".join(f"{{name: {edge}}}" for edge in some)
        bad = self.random.choice(["not.new", name])
        given = "repositoryDefault" if self.random.random() < 0.5 else "'edge-' + '2'"
        computed = "template: {downstream: {packageExpr: \"'s-' + target.name\"}}"
        routed = f'template: {{downstream: {{repoExpr: "{given}", package: {name}}}}}'
        target = self.random.choice(
            [
                f"repositories: [{packages_in(some, name)}]",
                f"repositories: [{packages_in(some, bad)}]",
                f"repositorySelector: {{matchLabels: {{kind: edge}}}}\n    {computed}",
                f"repositories: [{named}]\n    {routed}",
            ]
        )
        return (
            f"apiVersion: {API}/v1alpha2\nkind: PackageVariantSet\nmetadata: {{name: {name}}}\n"
            f"spec:\n  upstream: {upstream}\n  targets:\n  - {target}\n"
        )

    def remove_owners(self) -> None:
        there = self.owners()
        gone = self.random.sample(there, min(len(there), self.random.choice([1, 1, 2, 3])))
        self.write(dict.fromkeys(gone))

    def replace_owner(self) -> None:
        if there := self.owners():
            path = self.random.choice(there)
            name = path.rpartition("/")[2].removesuffix(".yaml")
            package, source = self.random.choice(PACKAGES), self.random.choice(SOURCES)
            upstream = f"{{repo: {source}, package: {package}, revision: 2}}"
            self.write({path: self.variant(upstream, name)})

    def upgrade(self) -> None:
        changed = {path: self.manifests[path].replace("revision: 1", "revision: 2") for path in self.owners()}
        self.write({path: text for path, text in changed.items() if self.random.random() < 0.7})

    def merge(self) -> None:
        for edge in EDGES:
            repo = Repo(self.root / f"{edge}.git", time=2_000_000_000)
            heads = [ref.removeprefix("refs/heads/") for ref in sorted(repo.refs())]
            for head in heads:
                if ("drafts/" in head or "/delete/" in head) and self.random.random() < 0.7:
                    with contextlib.suppress(GitError):  # two of them conflict: people leave one
                        repo.merge(head, how=self.random.choice(["merge", "squash"]))


CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests:
  - manifests
"""


def packages_in(edges: Iterable[str], package: str) -> str:
    return ", ".join(f"{{name: {edge}, packageNames: [{package}]}}" for edge in edges)


def repository(name: str, cluster: str) -> str:
    kind = "edge" if name in EDGES else "source"
    return f"""\
apiVersion: {API}/v1alpha1
kind: Repository
metadata:
  name: {name}
  labels: {{kind: {kind}}}
  annotations: {{reconciler.dev/cluster: {cluster}}}
spec:
  type: git
  deployment: {str(kind == "edge").lower()}
  git: {{repo: ../{name}.git, branch: main}}
"""


def live(root: Path, seed: int, parts: int) -> list[dict[str, str]]:
    """Play one life of a drawn fleet; return what stands after each step."""
    fleet, order, steps = DrawnFleet(root, Random(seed)), Random(seed), []
    fleet.build()
    world = World(root)
    doings = [
        fleet.merge,
        fleet.merge,
        fleet.remove_owners,
        fleet.replace_owner,
        fleet.upgrade,
        fleet.add_owner,
    ]
    for _ in range(STEPS):
        shards = [f"{part}/{parts}" for part in range(parts)] if parts > 1 else [""]
        # The second round settles how many packages there are: a shard sees what others made before it.
        for _ in range(2):
            order.shuffle(shards)
            for shard in shards:
                said = world.run("apply", *(["--shard", shard] if shard else []), cache=f"cache{shard[:1]}")
                assert said.code in {0, 3, 4, 7}, said
            steps.append({k: v for k, v in standing(root).items() if len(steps) % 2 or "/status " not in k})
        for _ in range(2):
            fleet.random.choice(doings)()
    return steps


@pytest.mark.parametrize(("seed", "parts"), sample([*product(range(10), (2, 3))], 7))
def test_shards_in_any_order_equal_one_run(seed: int, parts: int, tmp_path: Path) -> None:
    one = live(tmp_path / "w", seed, 1)
    (tmp_path / "w").rename(tmp_path / "one")

    assert live(tmp_path / "w", seed, parts) == one
