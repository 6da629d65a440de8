"""A package in a fleet: it climbs its revisions, untouched and edited, in repositories of its own."""

import random
import re
from pathlib import Path
from typing import Any

from tests.ecosystem.edits import draw_edits
from tests.ecosystem.inputs import revisions
from tests.ecosystem.kpt_rules import Outcome, Update, lost_edits
from tests.ecosystem.session import Session, read_files
from tests.support.combination import trees
from tests.support.git import Repo, make_repository
from tests.support.merges import files_of_bytes
from tests.support.world import refs

CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {name: fleet}
spec:
  manifests: [manifests]
  deletions: {minimum: 100}
"""
REPOSITORY = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata: {name: %s}
spec: {type: git, deployment: %s, git: {repo: ../%s.git, branch: main}}
"""
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {name: %s}
spec:
  upstream: {repo: catalog, package: %s, %s}
  downstream: {repo: %s, package: %s}
"""
FRESH, EDITED = "fresh", "edited"
_OWNER = re.compile(rb"^    reconciler.dev/(owner|location): .*\n", re.MULTILINE)
WAITS = (0, 3, 4, 7)
"""Exit codes of a run: a package may lack a function or an object of the cluster, or wait for people."""


def climbs(package: Path) -> dict[str, list[int]]:
    """Return the climbs of a package: the indexes of the revisions that each repository takes one by one."""
    last = len(revisions(package)) - 1
    drawn = random.Random(package.name).sample(range(1, last), last // 2) if last > 1 else []
    found = {"every": [*range(last + 1)], "jump": [0, last], "drawn": sorted({0, *drawn, last})}
    return {**found, EDITED: [0], FRESH: [last]} if last else {FRESH: [0]}


def run_fleet(session: Session, package: Path) -> None:
    """Create and update a package by its climbs; after every step nothing is left to do."""
    catalog = make_repository(session.root / "catalog.git", {"README.md": "Blueprints\n"})
    previous: dict[str, bytes] = {}
    for release in revisions(package):
        placed = {f"{package.name}/{path}": data for path, data in read_files(release).items()}
        catalog.commit({**dict.fromkeys(previous), **placed}, message=f"{release.name}\n")
        catalog.tag(f"{package.name}/{release.name}")
        previous = placed
    ways = climbs(package)
    for name in ways:
        make_repository(session.root / f"{name}.git", {"README.md": f"{name}\n"})
    control = make_repository(session.root / "control.git", {"reconciler.yaml": CONFIGURATION})
    for step in range(max(map(len, ways.values()))):
        control.commit(_manifests(package, ways, step), message=f"Step {step}\n")
        for command in ("apply", "approve --all"):
            _settle(session, command)
    fresh = _package(session, FRESH, package.name)
    for name in ways:
        found = _package(session, name, package.name)
        session.keep(name, found)
        pairs = (
            (path, found.get(path, b""), fresh.get(path, b"")) for path in sorted(found.keys() | fresh.keys())
        )
        differs = [path for path, *pair in pairs if len({_OWNER.sub(b"", data) for data in pair}) > 1]
        session.law(
            name == EDITED or not differs, f"after the climb `{name}` it is no fresh clone: {differs}"
        )
    if EDITED in ways:
        _edit(session, package, control, ways)


def _edit(session: Session, package: Path, control: Repo, ways: dict[str, list[int]]) -> None:
    """Let a person edit the package, and update it: their edits are in its draft, or in a listed conflict."""
    repository = Repo(session.root / f"{EDITED}.git", time=1_767_300_000)
    original = _package(session, EDITED, package.name, drafts=False)
    if not original:
        return  # it waits for a function or an object of the cluster
    local, made = draw_edits(original, package.name)
    changes = {f"{package.name}/{path}": local.get(path) for path in original.keys() | local.keys()}
    repository.commit(changes, message="Mine\n")
    control.commit(_manifests(package, {**ways, EDITED: ways[FRESH]}, 99), message="Upgrade\n")
    plan = _settle(session, "apply")
    result = _package(session, EDITED, package.name)
    session.keep("draft", result)
    row = next(row for row in plan["changes"] if row["repository"]["name"] == EDITED)
    conflicts = frozenset((conflict["path"], conflict["resource"]) for conflict in row["conflicts"])
    sides = (original, _package(session, FRESH, package.name), local)
    files = [files_of_bytes(side) for side in (*sides, result)]
    outcome = Outcome(files[3], "", conflicts)
    lost = lost_edits(Update(*files[:3], "resource-merge", outcome, outcome, outcome))
    session.law(not lost, f"of {', '.join(made)} is lost: {lost}")


def _manifests(package: Path, ways: dict[str, list[int]], step: int) -> dict[str, str]:
    names = [release.name for release in revisions(package)]
    repositories = [REPOSITORY % ("catalog", "false", "catalog")]
    variants = []
    for name, way in ways.items():
        repositories.append(REPOSITORY % (name, "true", name))
        release = names[way[min(step, len(way) - 1)]]
        number = release.removeprefix("v")
        selector = f"revision: {number}" if number.isdecimal() else f"workspaceName: {release}"
        variants.append(VARIANT % (name, package.name, selector, name, package.name))
    return {
        "manifests/repositories.yaml": "---\n".join(repositories),
        "manifests/variants.yaml": "---\n".join(variants),
    }


def _settle(session: Session, command: str) -> dict[str, Any]:
    """Run a command and apply what follows from it; then a further run writes nothing and has no plan."""
    control = ("--control", session.root / "control.git")
    session.run(*command.split(), *control, allowed=WAITS)
    session.run("apply", *control, allowed=WAITS)
    before = _refs(session)
    session.run("apply", *control, allowed=WAITS)
    session.law(_refs(session) == before, f"a second apply after `{command}` writes")
    plan = session.run("plan", "-o", "json", *control, allowed=WAITS)
    pending = [f"{change['op']} {change['name']}" for change in plan["changes"] if change["writes"]]
    session.law(plan["empty"] and not pending, f"the plan after `{command}` is not empty: {pending}")
    return plan


def _refs(session: Session) -> dict[str, dict[str, str]]:
    return {path.name: refs(path) for path in sorted(session.root.glob("*.git"))}


def _package(session: Session, repository: str, path: str, *, drafts: bool = True) -> dict[str, bytes]:
    """Return the package of a repository: its draft if it waits for something, else what is on main."""
    repo = Repo(session.root / f"{repository}.git")
    found = [ref for ref in refs(repo.path) if f"/drafts/{path}/" in ref and drafts]
    listed = trees.files(
        repo, trees.root(repo, found[0].removeprefix("refs/heads/") if found else "main"), path
    )
    return {name.removeprefix(f"{path}/"): data for name, data in listed.items()}
