"""What dependencies cost a fleet of real Crossplane packages: 172 clusters, of which 79 have no answer.

Run as `python tools/bench/bench_packages.py`, with the manifests in RECONCILER_ECOSYSTEM. Every cluster has
one of the published configurations. What they need in the end, providers and functions, has no manifest
there: each gets versions up to the count, those that somebody names among them. Some of these packages are
missing in the index, so that 79 clusters have no answer and each of them is explained.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.working_copy import NewCommit, create_bare
from tools.bench.bench_fleet import ECOSYSTEM, EPOCH, HEAD, PORCH, START
from tools.bench.goals import Goals
from tools.bench.process import Cost, measure

CLUSTERS = 172
VERSIONS = 3746
MISSING = ("crossplane-contrib/function-kcl", "crossplane-contrib/provider-helm")
"""What is not in the index, by the end of its name."""
STEPS = (
    ("plan from nothing", "plan", 8.0),
    ("apply", "apply", 15.0),
    ("plan after it: what is unsolved is explained anew", "plan", 8.0),
)
"""What is measured: a command, and its limit in seconds."""
FAMILY = "xpkg.upbound.io/upbound/provider-family-aws"


def published() -> dict[tuple[str, str], str]:
    """Return the manifests by name and tag, those of Upbound's projects as their build packs them."""
    found = {}
    for path in sorted((ECOSYSTEM / "crossplane").glob("*/*/*.yaml")):
        manifest = next(yaml.safe_load_all(path.read_bytes()))
        spec = {"dependsOn": manifest["spec"].get("dependsOn") or []}
        name, tag = path.parts[-3:-1]
        found[f"xpkg.upbound.io/upbound/{name}", tag] = meta("Configuration", name, spec)
    return found


def meta(kind: str, name: str, spec: dict[str, object]) -> str:
    head = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": kind, "metadata": {"name": name}}
    return yaml.safe_dump({**head, "spec": spec}, sort_keys=False)


def needs(text: str) -> Iterator[tuple[str, str]]:
    for each in yaml.safe_load(text)["spec"]["dependsOn"]:
        name = next(each[key] for key in ("package", "provider", "configuration", "function") if key in each)
        yield name, str(each.get("version", ""))


def leaves(configurations: dict[tuple[str, str], str]) -> dict[str, list[str]]:
    """Return the tags of what has no manifest: those that are named, and more up to the count."""
    known = {name for name, _ in configurations}
    tags: dict[str, set[str]] = {FAMILY: set()}
    for text in configurations.values():
        for name, version in needs(text):
            if name not in known:
                named = version.removeprefix(">=").removesuffix("-0").strip()
                tags.setdefault(name, set()).update([named] if named.count(".") == 2 else [])
    more = [f"v{major}.{minor}.{patch}" for patch in (0, 1, 2) for major in (2, 1, 0) for minor in range(60)]
    kept = {name: own for name, own in sorted(tags.items()) if not name.endswith(MISSING)}
    while (lacking := VERSIONS - len(configurations) - sum(map(len, kept.values()))) > 0:
        for own in list(kept.values())[:lacking]:
            own.add(next(tag for tag in more if tag not in own))
    return {name: sorted(own) for name, own in kept.items()}


def index() -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the files of the index, and the configurations of the clusters."""
    configurations = published()
    texts = dict(configurations)
    for name, tags in leaves(configurations).items():
        short = name.rpartition("/")[2]
        kind = "Function" if short.startswith("function-") else "Provider"
        for tag in tags:
            family = {"provider": FAMILY, "version": f">= {tag[1:]}"}
            depends = [family] if "/provider-aws-" in name else []
            texts[name, tag] = meta(kind, short, {"dependsOn": depends})
    assert len(texts) == VERSIONS
    files = {}
    for (name, tag), text in texts.items():
        head = f"apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: {name}\nversion: {tag}\n"
        files[f"index/{name}/{tag}/version.yaml"] = head.encode()
        files[f"index/{name}/{tag}/crossplane.yaml"] = text.encode()
    asked = sorted(configurations)
    return files, [asked[number % len(asked)] for number in range(CLUSTERS)]


class World:
    """The control repository of the fleet and a repository for each cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files, asked = index()
        files["reconciler.yaml"] = HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet").encode()
        registered = []
        for number, (name, tag) in enumerate(asked):
            cluster = f"c{number:03}"
            create_bare(root / f"{cluster}.git", [START])
            head = HEAD.format(f"{PORCH}v1alpha1", "Repository", cluster)
            git = f"git: {{repo: ../{cluster}.git, branch: main}}"
            registered.append(f"{head}spec:\n  deployment: true\n  {git}\n")
            head = HEAD.format("pkg.crossplane.io/v1", "Configuration", name.rpartition("/")[2])
            install = f"{head}spec: {{package: '{name}:{tag}'}}\n"
            files[f"manifests/clusters/{cluster}/platform.yaml"] = install.encode()
        files["manifests/repositories.yaml"] = "---\n".join(registered).encode()
        create_bare(root / "control.git", [NewCommit("Describe the fleet", files, EPOCH)])

    def run(self, command: str) -> Cost:
        line = (sys.executable, "-m", "reconciler.cli.main", command)
        where = ("--control", "control.git", "--cache-dir", "cache")
        return measure((*line, *where), self.root, times=1, warm=False, code=3)


def main() -> int:
    goals = Goals(__file__)
    if not (ECOSYSTEM / "crossplane").is_dir():
        why = f"skipped: there are no packages in {ECOSYSTEM} (RECONCILER_ECOSYSTEM)"
        goals.at_most("a fleet of Crossplane packages", None, 0, note=why)
        return goals.finish()
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        for what, command, limit in STEPS:
            cost = world.run(command)
            goals.cpu(what, cost.cpu_s, limit, note=f"{cost.peak_mib:.0f} MiB,")
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
