"""`index sync` and `index missing` as a user runs them, from a real registry before which a proxy counts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.registry import Answer, Asked, Gate, Registry, serve_gate, serve_registry
from tests.support.world import EPOCH, Said, World, build_world, git

HOST = "xpkg.example.com"
CONFIGURATION = """\
apiVersion: pkg.crossplane.io/v1
kind: Configuration
metadata: {{name: platform}}
spec: {{package: {image}}}
"""


def meta(kind: str, needs: Mapping[str, str] = {}, group: str = "example.com") -> str:
    """Return a package.yaml as Crossplane builds it: the meta manifest, and a CRD with its schema."""
    depends = "".join(
        f"  - {{apiVersion: pkg.crossplane.io/v1, kind: Provider, package: {name}, version: '{range_}'}}\n"
        for name, range_ in needs.items()
    )
    spec = f"spec:\n  dependsOn:\n{depends}" if depends else ""
    crd = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        f"metadata: {{name: as.{group}}}\n"
        f"spec: {{group: {group}, names: {{kind: A, plural: as}}, scope: Cluster, versions: [{{name: v1, "
        "served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
    )
    head = f"apiVersion: meta.pkg.crossplane.io/v1\nkind: {kind}\nmetadata: {{name: p}}\n{spec}"
    return f"{head}---\n{crd}" if kind == "Provider" else head


@dataclass
class Fleet:
    """A control repository with a working copy, and a registry behind a proxy."""

    world: World
    registry: Registry
    gate: Gate

    @property
    def copy(self) -> Path:
        return self.world.root / "copy"

    def run(self, *arguments: str) -> Said:
        """Run a command in the working copy."""
        return self.world.run(*arguments, control=self.copy)

    def commit(self) -> None:
        git(self.copy, "add", ".")
        git(self.copy, "commit", "-qm", "Fill the index", when=EPOCH + 60)
        git(self.copy, "push", "-q")

    def asked(self) -> list[str]:
        """Return what was asked of the registry since the last time."""
        paths = [f"{asked.method} {asked.path.removeprefix('/v2/')}" for asked in self.gate.asked]
        self.gate.asked.clear()
        return paths

    def versions(self) -> list[str]:
        index = self.copy / "index"
        return sorted(str(path.parent.relative_to(index)) for path in index.rglob("version.yaml"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Registry, Gate]]:
    with serve_registry(tmp_path) as registry, serve_gate(registry.address) as gate:
        yield registry, gate


def fleet_of(
    root: Path, served: tuple[Registry, Gate], manifests: Mapping[str, str], more: str = ""
) -> Fleet:
    registry, gate = served
    config = root / "source/config"
    files = {
        "reconciler.yaml": "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {name: main}\n"
        f"spec:\n  manifests: [manifests]\n  registries: {{mirrors: {{{HOST}: 'http://{gate.address}'}}}}\n{more}",
        **{f"manifests/clusters/dev/{name}": text for name, text in manifests.items()},
    }
    for name, text in files.items():
        (config / name).parent.mkdir(parents=True, exist_ok=True)
        (config / name).write_text(text)
    world = build_world(root / "source", root / "w")
    git(world.root, "clone", "-q", str(world.control), "copy")
    return Fleet(world, registry, gate)


def push_platform(registry: Registry) -> None:
    """Push a configuration that needs a provider, which needs another one, each in a range."""
    needs = {f"{HOST}/acme/provider-aws": ">=v1.0.0, <v2.0.0"}
    registry.push_xpkg("acme/platform", "v1.0.0", meta("Configuration", needs))
    registry.push_xpkg("acme/platform", "v1.1.0", meta("Configuration", needs))
    family = {f"{HOST}/acme/provider-family": "^v1.1.0"}
    for tag in ("v0.9.0", "v1.0.0", "v1.2.0", "v2.0.0"):
        registry.push_xpkg("acme/provider-aws", tag, meta("Provider", family), filler=100_000)
    for tag in ("v1.0.0", "v1.1.0", "latest", "v1"):
        registry.push_xpkg("acme/provider-family", tag, meta("Provider", group="family.example.com"))


def test_one_manifest_becomes_a_solved_cluster_and_a_second_sync_asks_for_tags_alone(
    tmp_path: Path, served: tuple[Registry, Gate]
) -> None:
    push_platform(served[0])
    image = f"{HOST}/acme/platform:v1.0.0"
    fleet = fleet_of(tmp_path, served, {"platform.yaml": CONFIGURATION.format(image=image)})

    lacking = fleet.run("index", "missing")
    said = fleet.run("index", "sync")
    asked = fleet.asked()

    assert (lacking.code, f"xpkg:{HOST}/acme/platform =v1.0.0" in lacking.out) == (3, True)
    assert "`reconciler index sync`" in lacking.out
    assert (said.code, said.err) == (0, ""), said
    assert fleet.versions() == [
        f"{HOST}/acme/{name}"
        for name in (
            "platform/v1.0.0",
            "provider-aws/v1.0.0",
            "provider-aws/v1.2.0",
            "provider-family/v1.1.0",
        )
    ]
    # A list for each package, a manifest and a layer for each version: nothing of the filler.
    assert len(asked) == 3 + 2 * 4
    assert "11 requests" in said.out
    header = (fleet.copy / f"index/{HOST}/acme/provider-aws/v1.2.0/version.yaml").read_text()
    assert "digest: sha256:" in header

    again = fleet.run("index", "sync")
    assert (again.code, "0 versions of 0 packages added, with 3 requests" in again.out) == (0, True)
    assert sorted(path.rpartition("?")[0] for path in fleet.asked()) == [
        f"GET acme/{name}/tags/list" for name in ("platform", "provider-aws", "provider-family")
    ]
    assert fleet.run("index", "missing").out == "No package is missing.\n"

    fleet.commit()
    planned = fleet.world.run("lock")
    assert (planned.code, "no solution" in planned.out) == (0, False), planned
    assert "provider-aws" in planned.out
    assert "v1.2.0" in planned.out
    assert fleet.asked() == []  # no other run reads a registry


def test_new_moved_and_withdrawn_tags_are_told(tmp_path: Path, served: tuple[Registry, Gate]) -> None:
    registry, _ = served
    push_platform(registry)
    image = f"{HOST}/acme/platform:v1.0.0"
    fleet = fleet_of(tmp_path, served, {"platform.yaml": CONFIGURATION.format(image=image)})
    fleet.run("index", "sync")
    moved = registry.push_xpkg("acme/provider-aws", "v1.2.0", meta("Provider"))
    registry.push_xpkg("acme/provider-aws", "v1.3.0", meta("Provider"))
    fleet.asked()

    quick = fleet.run("index", "sync")
    thorough = fleet.run("index", "sync", "--check-tags")

    assert (quick.code, "added xpkg:xpkg.example.com/acme/provider-aws v1.3.0" in quick.out) == (0, True)
    assert thorough.code == 3
    assert f"provider-aws v1.2.0 is not what it was: its tag now names {moved[:19]}" in thorough.err
    assert "index/xpkg.example.com/acme/provider-aws/v1.2.0/package.yaml:1" in thorough.err

    def gone(asked: Asked) -> Answer | None:
        is_list = "provider-aws/tags" in asked.path
        return Answer(200, json.dumps({"tags": ["v1.0.0", "v1.3.0"]}).encode()) if is_list else None

    fleet.gate.plan = gone
    said = fleet.run("index", "sync")
    assert (said.code, "provider-aws v1.2.0 may be withdrawn: its tag is gone" in said.err) == (0, True)


def test_new_versions_are_one_pull_request_with_what_clusters_would_choose(
    tmp_path: Path, served: tuple[Registry, Gate]
) -> None:
    push_platform(served[0])
    image = f"{HOST}/acme/platform:v1.0.0"
    fleet = fleet_of(tmp_path, served, {"platform.yaml": CONFIGURATION.format(image=image)})
    head = "reconciler/main/index/xpkg.example.com"

    said = fleet.world.run("index", "sync", "--pull-request")
    before = fleet.world.all_refs()
    again = fleet.world.run("index", "sync", "--pull-request")
    forward, fleet.gate.plan = fleet.gate.plan, lambda _: Answer(403, b"{}")
    away = fleet.world.run("index", "sync", "--pull-request")
    fleet.gate.plan = forward

    assert (away.code, fleet.world.all_refs()) == (5, before), away
    assert (said.code, said.err) == (0, ""), said
    assert "#1 Add 4 versions of xpkg.example.com to the index" in said.out
    shown = fleet.world.run("pr", "show", "control#1", "-o", "json").out
    assert "cluster dev" in shown
    assert "provider-family" in shown
    assert fleet.versions() == []
    files = git(fleet.world.control, "ls-tree", "-r", "--name-only", head).split()
    assert sum(f.startswith(f"index/{HOST}/") and f.endswith("version.yaml") for f in files) == 4
    assert (again.code, fleet.world.all_refs()) == (0, before), again
    assert "Pull request #1 waits for a review" in again.out

    served[0].push_xpkg("acme/provider-aws", "v1.5.0", meta("Provider"))
    assert "Add 5 versions" in fleet.world.run("index", "sync", "--pull-request").out
    merged = fleet.world.run("pr", "merge", "control#1")
    after = fleet.world.run("index", "sync", "--pull-request")

    assert merged.code == 0, merged
    assert (after.code, "0 versions to propose, with 3 requests" in after.out) == (0, True), after
    assert fleet.world.run("index", "missing").out == "No package is missing.\n"
