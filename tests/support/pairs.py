"""Covering arrays: few rows in which every pair of values of any two features occurs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random

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
