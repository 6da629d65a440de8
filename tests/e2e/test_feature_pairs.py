"""Every pair of features of a variant, end to end: a covering array of rows, each a life with every check.

A row is created, merged, edited by a person, updated where both sides changed one value, and removed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.combination.fleet import Fleet, Pull
from tests.support.combination.life import Life
from tests.support.combination.spec import FORMS, FleetSpec, VariantSpec
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import Simulator, serving
from tests.support.forges.world import ORGANISATION, VARIABLE
from tests.support.git import Repo, make_repository
from tests.support.samples import sample

UNLIMITED = {"writesPerMinute": 6000, "writesPerHour": 60000}


@dataclass
class ForgeFleet(Fleet):
    """Pull requests are those of the simulator; people merge them there."""

    simulator: Simulator | None = field(default=None)

    @property
    def hosted(self) -> Simulator:
        assert self.simulator is not None
        return self.simulator

    def make(self, name: str) -> Repo:
        if name not in self.spec.repositories():
            return super().make(name)
        repo = make_repository(self.root / ORGANISATION / f"{name}.git", {"README.md": f"{name}\n"})
        self.hosted.host(f"{ORGANISATION}/{name}", repo)
        return repo

    def configuration(self) -> dict[str, Any]:
        value = super().configuration()
        prefix = f"{self.hosted.address}/{ORGANISATION}"
        value["spec"]["forges"] = [{"prefix": prefix, "type": "github", "api": self.hosted.api}]
        credentials = {"prefix": prefix, "username": "x-access-token", "tokenEnv": VARIABLE}
        value["spec"]["credentials"] = [credentials]
        value["spec"]["pullRequests"] = UNLIMITED
        return value

    def registration(self, repository: str) -> dict[str, Any]:
        value = super().registration(repository)
        if repository in self.spec.repositories():
            value["spec"]["git"]["repo"] = self.hosted.url(f"{ORGANISATION}/{repository}")
        return value

    def pulls(self, repository: str, state: str = "open") -> list[Pull]:
        listed = self.hosted.pulls(f"{ORGANISATION}/{repository}")
        heads = self.repo(repository).refs()
        return [
            Pull(p.number, p.head, p.state, p.title, f"{p.title}\n{p.body}\n{p.comments}", p.draft)
            for p in listed
            if p.state == state and (state != "open" or f"refs/heads/{p.head}" in heads)
        ]

    def all_refs(self) -> dict[str, dict[str, str]]:
        """Return every ref, and every pull request: a forge holds those outside of Git."""
        refs = super().all_refs()
        for name in self.spec.repositories():
            for pull in self.hosted.pulls(f"{ORGANISATION}/{name}"):
                refs[name][f"pull request {pull.number}"] = repr(pull)
        return refs

    def decide(self, verb: str, repository: str, number: int) -> tuple[str, ...]:
        act = {"close": self.hosted.close, "reopen": self.hosted.reopen}[verb]
        act(f"{ORGANISATION}/{repository}", number)
        return ()

    def merge(self, repository: str, head: str, how: str) -> None:
        (pull,) = [p for p in self.pulls(repository) if p.head == head]
        self.hosted.merge(f"{ORGANISATION}/{repository}", pull.number, how)


@contextmanager
def forge_fleet(root: Path, spec: FleetSpec, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Serve a fleet; what the forge finds against its description fails the test at the end."""
    root.mkdir()
    simulator = make_simulator("github", root)
    monkeypatch.setenv(VARIABLE, simulator.token)
    with serving(simulator):
        yield ForgeFleet(root, spec, simulator=simulator)
    assert not simulator.violations, simulator.violations


Row = dict[str, str]
Value = tuple[str, str]
Pair = frozenset[Value]
CANDIDATES = 30


def pairs_of(features: Mapping[str, Sequence[str]], invalid: Collection[Pair] = ()) -> set[Pair]:
    """Return every pair of values of two features that may occur together."""
    found = {
        frozenset(((first, a), (second, b)))
        for first, second in combinations(features, 2)
        for a in features[first]
        for b in features[second]
    }
    return found - set(invalid)


def pairs_in(row: Row) -> Iterator[Pair]:
    """Yield the pairs of values of one row."""
    return (frozenset(pair) for pair in combinations(row.items(), 2))


def covering_rows(features: Mapping[str, Sequence[str]], invalid: Collection[Pair] = ()) -> list[Row]:
    """Return rows in which every valid pair occurs, and no invalid one; always the same rows.

    Greedy: each row starts with a pair that is still missing, and takes for every other feature the
    value that covers most; of some such rows the best is taken.
    """
    random = Random(0)
    missing = pairs_of(features, invalid)
    rows = []
    while missing:
        ordered = sorted(missing, key=sorted)
        candidates = [
            _row(random, features, missing, random.choice(ordered), invalid) for _ in range(CANDIDATES)
        ]
        best = max(candidates, key=lambda row: len(missing & set(pairs_in(row))))
        rows.append({name: best[name] for name in features})
        missing -= set(pairs_in(best))
    return rows


def _row(
    random: Random,
    features: Mapping[str, Sequence[str]],
    missing: set[Pair],
    start: Pair,
    invalid: Collection[Pair],
) -> Row:
    row = dict(start)
    others = [name for name in features if name not in row]
    random.shuffle(others)
    for name in others:
        allowed = [v for v in features[name] if not _breaks(row, (name, v), invalid)]
        gains = {v: sum(frozenset((item, (name, v))) in missing for item in row.items()) for v in allowed}
        most = max(gains.values())
        row[name] = random.choice([v for v in allowed if gains[v] == most])
    return row


def _breaks(row: Row, value: Value, invalid: Collection[Pair]) -> bool:
    return any(frozenset((item, value)) in invalid for item in row.items())


pytestmark = pytest.mark.slow

FEATURES = {
    "upstream": FORMS,
    "downstream": ("absent", "ours", "draft", "edited", "foreign", "plain"),
    "adoption": ("adoptNone", "adoptExisting"),
    "context": ("no", "yes"),
    "injection": ("no", "yes"),
    "pipeline": ("none", "setters", "rename", "starlark"),
    "policy": ("ask", "upstream", "local", "fail"),
    "deletion": ("delete", "orphan"),
    "snapshot": ("none", "yaml", "json", "ndjson", "import"),
    "layout": ("single", "many", "mono"),
    "forge": ("local", "github"),
}
INVALID: dict[Pair, str] = {
    frozenset((("layout", "mono"), ("forge", "github"))): (
        "the control repository of these worlds is a directory, and in a monorepo it is the downstream too"
    ),
}
ROWS = covering_rows(FEATURES, INVALID)
SETTINGS = "config/settings.yaml"


def test_every_pair_of_features_occurs() -> None:
    covered = {pair for row in ROWS for pair in pairs_in(row)}

    assert covered == pairs_of(FEATURES, INVALID)
    assert all(INVALID.values())


def test_rows_are_few_and_always_the_same() -> None:
    assert covering_rows(FEATURES, INVALID) == ROWS
    assert len(ROWS) <= 60


@pytest.mark.parametrize("row", sample(ROWS, 8), ids=lambda row: "-".join(row.values()))
def test_row_keeps_every_promise(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet_of(row, tmp_path / "w", monkeypatch) as fleet:
        life = Life(fleet.build())
        life.settle()
        reach(life, row)
        life.play("bump", bump("  size: small"))
        merge_all(life)
        path = fleet.full("edge-1", "web")
        if path in fleet.packages("edge-1") and row["downstream"] not in ("foreign", "plain"):
            edit = {"kind": "value", "file": SETTINGS, "line": "  color: red"}
            life.play("edit_main", {"repository": "edge-1", "path": path, "edit": edit})
        life.play("bump", bump("  color: red"))
        life.play("change_site", {"site": "north", "present": True})
        merge_all(life)
        life.play("remove_variant", {"name": "web"})
        merge_all(life)
        life.end()


@contextmanager
def fleet_of(row: Row, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Yield the fleet of a row, not built yet."""
    variant = VariantSpec(
        "web",
        "site",
        "edge-1",
        ["web"],
        form=row["upstream"],
        adoption=row["adoption"],
        context=row["context"] == "yes",
        injection=row["injection"] == "yes",
        pipeline=row["pipeline"],
        policy=row["policy"],
        deletion=row["deletion"],
    )
    neighbours = {"foreign": ["package:web"], "plain": ["files:web"]}.get(row["downstream"], [])
    spec = FleetSpec(row["layout"], row["snapshot"], variants=[variant], neighbours=neighbours)
    if row["forge"] == "local":
        yield Fleet(root, spec)
        return
    with forge_fleet(root, spec, monkeypatch) as fleet:
        yield fleet


def reach(life: Life, row: Row) -> None:
    """Bring the downstream into the state of a row."""
    if row["downstream"] == "ours":
        merge_all(life)
    if row["downstream"] == "edited":
        (pull,) = life.fleet.pulls("edge-1")
        edit = {"kind": "value", "file": "service.yaml", "line": "  type: ClusterIP"}
        life.play("edit_draft", {"repository": "edge-1", "head": pull.head, "edit": edit})


def bump(line: str) -> dict[str, object]:
    edit = {"kind": "value", "file": SETTINGS, "line": line}
    return {"package": "site", "edits": [edit], "stable": True, "follow": True}


def merge_all(life: Life) -> None:
    """Let a person merge whatever is open."""
    for pull in life.fleet.pulls("edge-1"):
        life.play("merge", {"repository": "edge-1", "head": pull.head, "how": "merge"})
