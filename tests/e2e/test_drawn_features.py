"""Twenty features of a variant and a set, drawn together: what nobody edited is as in a new package."""

import difflib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.combination import trees
from tests.support.combination.blueprints import package_files
from tests.support.combination.fleet import Fleet
from tests.support.combination.life import Life, read
from tests.support.combination.spec import CATALOG, FleetSpec, VariantSpec, dump
from tests.support.combination.steps import Arguments, step
from tests.support.git import Repo
from tests.support.samples import sample
from tests.support.world import git, run_line

STATES = (
    "floating tag", "pipeline", "context", "injection", "adoption", "orphan", "set", "group", "wave", "CRLF",
    "sub-package",
)  # fmt: skip
EVENTS = (
    "rename", "move", "edit", "removal", "second owner", "injector dropped", "function dropped",
    "old checkout", "renamed Repository",
)  # fmt: skip
FEATURES = (*STATES, *EVENTS)
NEEDS = {"wave": "set", "injector dropped": "injection", "function dropped": "pipeline"}
"""Features that there are only with another one."""
WIDTH = 7
TIMES = 5
EDIT = {"kind": "value", "file": "config/settings.yaml", "line": "  size: small"}
KEYS = ("color", "burst")
"""What each release changes in turn."""
INNER = "parts/cache"
Row = tuple[str, ...]


def feature_rows(times: int = TIMES) -> list[Row]:
    """Return rows in which each pair of features is together at least so often; always the same ones."""
    random, rows = Random(0), list[Row]()
    missing = Counter(dict.fromkeys(map(frozenset, combinations(FEATURES, 2)), times))
    while missing:
        ordered = sorted(missing, key=lambda pair: (-missing[pair], sorted(pair)))
        row = closure(random.choice(ordered[: 1 + len(ordered) // 4]))
        while len(row) < WIDTH:
            gains = {f: _gain(row, f, missing) for f in FEATURES if f not in row}
            most = max(gains.values())
            row = closure({*row, random.choice([f for f, gain in gains.items() if gain == most])})
        rows.append(tuple(f for f in FEATURES if f in row))
        missing -= Counter(map(frozenset, combinations(row, 2)))
    return rows


def closure(features: set[str] | frozenset[str]) -> set[str]:
    """Return features with those that they need."""
    return {*features, *(NEEDS[f] for f in features if f in NEEDS)}


def _gain(row: set[str], feature: str, missing: Mapping[frozenset[str], int]) -> int:
    return sum(missing[frozenset((feature, other))] for other in row)


# steps of these lives


def _rename(life: "Life", _random: Random) -> Arguments:
    return {"first": "edge-1", "now": f"site{life.count}"}


@step(0, _rename, proposed=True)
def rename_repository(life: Life, first: str, now: str) -> None:
    """A person gives a Repository another name, and its variants that name."""
    fleet, before = life.fleet, life.fleet.spec.names.get(first, first)
    fleet.spec.names[first] = now
    for variant in fleet.spec.variants:
        if variant.repository == before:
            variant.repository = now
    fleet.ledger.rename(before, now)
    registered = [fleet.spec.registration(r) for r in (CATALOG, *fleet.spec.repositories())]
    variants = {f"manifests/{v.name}.yaml": dump(v.manifest()) for v in fleet.spec.variants}
    fleet.commit_control({"manifests/repositories.yaml": "---\n".join(map(dump, registered)), **variants})


@step(0, lambda _life, _random: {})
def run_from_an_old_checkout(life: Life) -> None:
    """A person applies a checkout that they did not pull: it writes nothing and names the way out."""
    fleet, copy = life.fleet, life.fleet.root / "checkout"
    git(fleet.root, "clone", "-q", str(fleet.root / "control.git"), str(copy))
    git(copy, "reset", "-q", "--hard", "HEAD~1")
    before = fleet.all_refs()
    for line in ("plan", "status", "apply"):
        result = run_line(line, "--control", str(copy), "--cache-dir", str(fleet.root / "old"))
        if result.code == 1 or "Traceback" in result.out + result.err:
            life.violations.append(f"{line} of an old checkout fails: {result}")
    if result.code and "hint: " not in result.out + result.err:
        life.violations.append(f"an old checkout exits {result.code} and names no way out: {result}")
    if fleet.all_refs() != before:
        life.violations.append(f"an old checkout writes: {result.out}")
    shutil.rmtree(copy)


# a row as a fleet, and its life


def fleet_of(row: Row, random: Random, root: Path) -> Fleet:
    """Return the fleet of a row, not built yet."""
    pipeline = random.choice(["labels", "search", "labels+search", "namespace+labels", "setters+labels"])
    floating = ["tag", "branch", *([] if "set" in row else ["none", "version"])]
    form = random.choice(floating) if "floating tag" in row else "revision"
    variant = VariantSpec(
        "web",
        "site",
        "edge-1",
        ["web", "web-2"] if "set" in row else ["web"],
        form=form,
        pipeline=pipeline if "pipeline" in row else "none",
        context="context" in row,
        injection="injection" in row,
        adoption="adoptExisting" if "adoption" in row else "adoptNone",
        deletion="orphan" if "orphan" in row else "delete",
        is_set="set" in row,
    )
    return Fleet(
        root,
        FleetSpec(
            layout=random.choice(["single", "many"]),
            snapshot=random.choice(["yaml", "json"]),
            deployment=random.random() < 0.4,
            group=random.choice(["repository", "set", "repository"]) if "group" in row else "package",
            waves="wave" in row,
            variants=[variant],
        ),
    )


def blueprint(row: Row) -> dict[str, bytes]:
    """Return the upstream package of a row."""
    files = package_files("site")
    if "sub-package" in row:
        inner = package_files("db")
        files |= {f"{INNER}/{name}": inner[name] for name in ("Kptfile", "service.yaml")}
    if "CRLF" in row:
        files = {p: d.replace(b"\n", b"\r\n") if p.endswith(".yaml") else d for p, d in files.items()}
    return files


def live(row: Row, seed: int, root: Path) -> Life:
    """Play the life of a row; raise what is violated, with the row."""
    random = Random(seed)
    life = Life(fleet_of(row, random, root / "w").build())
    fleet = life.fleet
    fleet.release("site", blueprint(row))
    fleet.repo(CATALOG).tag(f"{fleet.full(CATALOG, 'site')}/stable")
    life.change("web", number=2)
    if "adoption" in row:
        _bring(fleet, row, random)
    life.settle()
    published(life)
    check_fresh(life, row, "at the start")
    events = [event for event in EVENTS if event in row and event != "removal"]
    random.shuffle(events)
    for number, event in enumerate(events):
        DOES[event](life, random)
        check_reasons(life, event)
        published(life)
        if number < len(events) - 1 and random.random() < BUMPED:
            bump(life, KEYS[number % 2])
            published(life)
    check_fresh(life, row, f"after {events}")
    bump(life, KEYS[len(events) % 2])
    published(life)
    check_fresh(life, row, f"after {events} and a release")
    look(life)
    if "removal" in row:
        removed(life, row)
    life.end()
    return life


BUMPED = 0.5


def _bring(fleet: Fleet, row: Row, random: Random) -> None:
    """Let a person have the package already, as `kpt pkg get` brings it, with a file beside it."""
    for path in fleet.spec.variants[0].paths[: random.choice([1, 2])]:
        full = fleet.full("edge-1", path)
        files: dict[str, Any] = {f"{full}/{p}": d for p, d in blueprint(row).items()}
        token = fleet.ledger.next("k")
        files[f"{full}/mine.txt"] = f"{token}\n"
        fleet.ledger.wrote(token, "edge-1", full, "mine.txt")
        fleet.ledger.files.add(("edge-1", full, "mine.txt"))
        fleet.repo("edge-1").commit(files, message="By hand\n")


def published(life: Life) -> None:
    """Approve whatever is open, until nothing more comes.

    What may take a person's edits, and what a cluster would refuse, is approved by its name alone.
    """
    for _ in range(4):
        pulls = [(r, p) for r in life.fleet.spec.repositories() for p in life.fleet.pulls(r)]
        if not pulls:
            return
        life.play("approve_all", {})
        for repository, pull in pulls:
            is_edited = (repository, pull.package) in life.fleet.ledger.touched
            named = is_edited if pull.is_deletion else _is_refused(life, pull.package)
            if named and pull in life.fleet.pulls(repository):
                life.play("approve", {"repository": repository, "head": pull.head})
    life.violations += [f"{pull.head} is never approved" for _, pull in pulls]


def _is_refused(life: Life, package: str) -> bool:
    """Tell whether the cluster of a package would refuse its draft: functions label selectors, too."""
    items = read(life.command("status", "-o", "json"))["items"]
    rows = [item["package"] for item in items if "package" in item]
    return any(row["name"] == package and row["reason"] == "WouldBeRefused" for row in rows)


def bump(life: Life, key: str) -> None:
    """Let upstream release another value of a key, which those who name revisions ask for."""
    lines = (
        trees.text(
            life.fleet.repo(CATALOG),
            trees.root(life.fleet.repo(CATALOG), "main"),
            f"{life.fleet.full(CATALOG, 'site')}/config",
        )
        .decode()
        .splitlines()
    )
    line = next(line for line in lines if line.startswith(f"  {key}: "))
    edit = {"kind": "value", "file": "config/settings.yaml", "line": line}
    life.play("bump", {"package": "site", "edits": [edit], "stable": True, "follow": True})


def look(life: Life) -> None:
    """Print all there is to read of each package: nothing that is over is named, and nothing waits."""
    gone = [r"default/aaa\b", *(rf"Repository default/{first}\b" for first in life.fleet.spec.names)]
    for variant in life.fleet.spec.variants:
        life.play("look", {"name": variant.name})
        gone += [r"default/web(?![\w-])"] if variant.name != "web" else []
        lines = [("explain", f"{variant.repository}/{path}") for path in variant.paths]
        for line in (*lines, ("status",), ("plan", "--all")):
            out = life.fleet.run(*line).out
            life.violations += [f"{line} names {name}: {out}" for name in gone if re.search(name, out)]
    waiting = {
        row["name"]: row["reason"]
        for row in life.last_plan["changes"]
        if row["reason"] not in ("UpToDate", "NotOurs")
    }
    life.violations += [f"{name} is {reason} at last" for name, reason in waiting.items()]


def _edit(life: Life, random: Random) -> None:
    variant = life.fleet.spec.variants[0]
    path = life.fleet.full(variant.repository, random.choice(variant.paths))
    if path in life.fleet.packages(variant.repository):
        life.play("edit_main", {"repository": variant.repository, "path": path, "edit": EDIT})


def _move(life: Life, random: Random) -> None:
    variant = life.fleet.spec.variants[0]
    start = random.choice(["moved", "new"]) + ("-" if variant.is_set else "/")
    paths = [f"{start}{path}" for path in variant.paths]
    life.play("choose_targets", {"name": variant.name, "paths": paths})


def _second(life: Life, _random: Random) -> None:
    first = life.fleet.spec.variants[0]
    added = {"name": "aaa", "package": "db", "repository": first.repository, "paths": [first.paths[0]]}
    life.play("add_variant", {"variant": added})
    bump(life, "rate")
    life.play("remove_variant", {"name": "aaa"})


def _function_dropped(life: Life, random: Random) -> None:
    variant = life.fleet.spec.variants[0]
    less = variant.pipeline.split("+")
    del less[random.randrange(len(less))]
    life.play("choose_pipeline", {"name": variant.name, "pipeline": "+".join(less) or "none"})


DOES: Mapping[str, Callable[[Life, Random], None]] = {
    "rename": lambda life, _: life.play("rename_variant", {"name": _name(life), "new": "renamed"}),
    "move": _move,
    "edit": _edit,
    "second owner": _second,
    "injector dropped": lambda life, _: life.play(
        "choose_injection", {"name": _name(life), "injection": False}
    ),
    "function dropped": _function_dropped,
    "old checkout": lambda life, _: life.play("run_from_an_old_checkout", {}),
    "renamed Repository": lambda life, _: life.play(
        "rename_repository", {"first": "edge-1", "now": "site-1"}
    ),
}


def _name(life: Life) -> str:
    return life.fleet.spec.variants[0].name


REASONS = {
    "rename": {"OwnerChanged", "ContentChanged"},
    "move": {"New", "NotDesired", "Orphaned"},
    "edit": {"PublishedByMerge"},
    "second owner": {"UpstreamChanged"},
    "injector dropped": {"ContentChanged"},
    "function dropped": {"ContentChanged"},
    "old checkout": set[str](),
    "renamed Repository": {"OwnerChanged", "ContentChanged"},
}
"""The reasons of what is written because of an event."""


def check_reasons(life: Life, event: str) -> None:
    """What a run wrote because of an event has the reason of the event."""
    plans = (read(result) for line, result in life.results if line == "apply -o json")
    for row in next(plans, {}).get("changes", ()):
        if row["op"] != "keep" and row["reason"] not in REASONS[event]:
            life.violations.append(f"{event}: {row['name']} is {row['op']} {row['reason']}")


def check_fresh(life: Life, row: Row, when: str) -> None:
    """What nobody edited equals what a new fleet with the same manifests makes of it."""
    fleet = life.fleet
    fresh = fresh_fleet(fleet)
    for variant in fleet.spec.variants:
        repository = variant.repository
        for name in variant.paths:
            path = fleet.full(repository, name)
            have, wanted = _files(fleet, repository, path), _files(fresh, repository, path)
            edited = {f for r, p, f in fleet.ledger.files if (r, p) == (repository, path)}
            for file in sorted(have.keys() | wanted.keys()):
                if file in edited:
                    continue
                if have.get(file) != wanted.get(file):
                    life.violations.append(
                        f"{when}, {path}/{file} is not as a new package has it:\n"
                        f"{_difference(wanted.get(file), have.get(file))}"
                    )
    shutil.rmtree(fresh.root)
    if life.violations:
        raise AssertionError(f"{row}\n" + "\n".join(life.violations))


def _difference(wanted: bytes | None, have: bytes | None) -> str:
    texts = [("" if data is None else data.decode()).splitlines(keepends=True) for data in (wanted, have)]
    return "".join(difflib.unified_diff(*texts, "new", "here", n=1))


def _files(fleet: Fleet, repository: str, path: str) -> dict[str, bytes]:
    repo = fleet.repo(repository)
    listed = trees.files(repo, trees.root(repo, "main"), path)
    return {p.removeprefix(f"{path}/"): data for p, data in listed.items()}


def fresh_fleet(fleet: Fleet) -> Fleet:
    """Return a fleet with the manifests of another one, in which everything is published from nothing."""
    root = fleet.root.parent / "fresh"
    fresh = Fleet(root, deepcopy(fleet.spec))
    root.mkdir()
    shutil.copytree(fleet.repo(CATALOG).path, root / fleet.repo(CATALOG).path.name)
    for name, repo in fleet.repos.items():
        there = root / repo.path.name
        if there.exists():
            fresh.repos[name] = Repo(there)
        else:
            fresh.add(name)
    tree = trees.root(fleet.repos["control"], "main")
    fresh.repos["control"].commit(trees.files(fleet.repos["control"], tree))
    for _ in range(6):
        result = fresh.run("apply")
        assert result.code == 0, result
        if not any(fresh.pulls(r) for r in fresh.spec.repositories()):
            break
        fresh.run("approve", "--all")
    return fresh


def removed(life: Life, row: Row) -> None:
    """Remove the variant: its packages go with a merged deletion, or stay as they are, released."""
    fleet, variant = life.fleet, life.fleet.spec.variants[0]
    places = [fleet.full(variant.repository, path) for path in variant.paths]
    before = {path: _files(fleet, variant.repository, path) for path in places}
    life.play("remove_variant", {"name": variant.name})
    published(life)
    for path, files in before.items():
        after = _files(fleet, variant.repository, path)
        if "orphan" in row and {**after, "Kptfile": b""} != {**files, "Kptfile": b""}:
            life.violations.append(f"{path} is changed, and was to be left")
        if "orphan" not in row and after:
            life.violations.append(f"{path} is still there: {sorted(after)}")
        owner = b"reconciler.dev/owner: "
        if owner in after.get("Kptfile", b""):
            life.violations.append(f"{path} still names an owner")
    if life.violations:
        raise AssertionError(f"{row}\n" + "\n".join(life.violations))


ROWS = feature_rows()
SMALL = ("pipeline", "context", "sub-package", "edit", "function dropped")


def test_every_pair_of_features_is_drawn_often() -> None:
    pairs = Counter(pair for row in ROWS for pair in combinations(row, 2))

    assert len(FEATURES) == 20
    assert min(pairs[pair] for pair in combinations(FEATURES, 2)) >= TIMES
    assert feature_rows() == ROWS


def test_small_life_keeps_every_promise(tmp_path: Path) -> None:
    live(SMALL, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "row"),
    sample([*enumerate(ROWS)], 6),
    ids=lambda v: "-".join(v) if isinstance(v, tuple) else str(v),
)
def test_life_keeps_every_promise(number: int, row: Row, tmp_path: Path) -> None:
    live(row, number, tmp_path)
