"""The table of docs/contributing/faults.md is what the registry of faults says, and what the tests try."""

import re
from pathlib import Path

import pytest

from tests.faults import matrix
from tests.faults.forges import WORLDS as FORGE_WORLDS
from tests.faults.matrix import Tried
from tests.faults.moments import MOMENTS
from tests.faults.rows import EFFECT_FAULTS, FORGES, ROWS
from tests.faults.rows import WORLDS as LOCAL_WORLDS
from tests.faults.test_two_machines import LOCAL

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = ("test_effects.py", "test_forge_effects.py", "test_two_machines.py")


def test_the_table_is_what_the_registry_says() -> None:
    text = matrix.DOCUMENT.read_text()

    assert text == matrix.document(text), "run `make faults`, or `python -m tests.faults.matrix` after it"


def test_no_cell_of_the_table_is_empty() -> None:
    rows = matrix.table().splitlines()[2:-2]
    assert rows
    for line in rows:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == 4, line
        assert all(cells), line
        assert all(int(re.split(r"\D", number)[0]) > 0 for number in cells[3].split(", ")), line


def test_every_row_names_a_test_that_exists() -> None:
    assert [key for key, row in ROWS.items() if matrix.count_cases(row.test) < 1] == []


def test_every_sweep_is_recorded() -> None:
    sweeps = {key for key, row in ROWS.items() if row.test.partition("::")[0].endswith(SWEEPS)}

    assert set(matrix.read_record()) == sweeps


def test_every_part_of_a_sweep_is_recorded() -> None:
    record = matrix.read_record()
    for fault in EFFECT_FAULTS:
        for world in LOCAL_WORLDS:
            moments = {name for name, moment in MOMENTS.items() if moment.world == world}
            assert set(record[f"{fault}/local/{world}"]) == moments, (fault, world)
        for kind in FORGES:
            assert set(record[f"{fault}/{kind}"]) == set(FORGE_WORLDS), (fault, kind)
    assert set(record["machines/local"]) == set(LOCAL)
    assert all(set(record[f"machines/{kind}"]) == set(FORGE_WORLDS) for kind in FORGES)


def test_every_fault_test_has_a_row() -> None:
    named = {row.test for row in ROWS.values()}
    paths = sorted((ROOT / "tests/faults").glob("test_*.py"))
    assert paths
    for path in paths:
        if path.name == "test_matrix.py":
            continue
        assert any(test.startswith(f"tests/faults/{path.name}::") for test in named), path.name


def test_a_sample_of_a_sweep_is_part_of_it_and_changes_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "WANTED", "")
    monkeypatch.setattr(matrix, "note", lambda _: None)
    monkeypatch.setattr(matrix, "read_record", lambda: {"kill/local/grouped": {"groups": Tried(20, 20)}})
    points = [f"point {number}" for number in range(1, 21)]
    drawn = set()
    for seed in range(40):
        monkeypatch.setattr(matrix, "SEED", seed)
        with matrix.sweep("kill/local/grouped", "groups", points, 3) as tried:
            assert 2 <= len(tried) <= 3
            assert all(points[point.number - 1] == point.name for point in tried)
            drawn |= {point.number for point in tried}

    assert drawn == set(range(1, 21))


def test_a_world_with_another_number_of_points_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "WANTED", "")
    monkeypatch.setattr(matrix, "note", lambda _: None)
    monkeypatch.setattr(matrix, "read_record", lambda: {"kill/local/grouped": {"groups": Tried(19, 19)}})

    with (
        pytest.raises(AssertionError, match="run `make faults`"),
        matrix.sweep("kill/local/grouped", "groups", ["point"] * 20, 3),
    ):
        pass
