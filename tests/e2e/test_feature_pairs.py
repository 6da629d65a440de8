"""Every pair of features of a variant, end to end: a covering array of rows, each a life with every check.

A row is created, merged, edited by a person, updated where both sides changed one value, and removed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.combination.fleet import Fleet
from tests.support.combination.forge_fleet import forge_fleet
from tests.support.combination.life import Life
from tests.support.combination.spec import FORMS, FleetSpec, VariantSpec
from tests.support.pairs import Pair, Row, covering_rows, pairs_in, pairs_of
from tests.support.samples import sample

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
