"""Twenty features of a variant and a set, drawn together: what nobody edited is as in a new package."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.combination.features import FEATURES, TIMES, Row, feature_rows, live
from tests.support.samples import sample

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
    sample([*enumerate(ROWS)], 4),
    ids=lambda v: "-".join(v) if isinstance(v, tuple) else str(v),
)
def test_life_keeps_every_promise(number: int, row: Row, tmp_path: Path) -> None:
    live(row, number, tmp_path)
