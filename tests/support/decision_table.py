"""Decision tables: a rule as rows of conditions with one outcome, complete over all combinations."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Generic, TypeVar

Outcome = TypeVar("Outcome")
Case = Mapping[str, str]
"""One combination: the value of every condition."""
Pattern = Mapping[str, str | tuple[str, ...]]
"""The values that a row needs; a condition that it does not name may have any."""


@dataclass(frozen=True)
class Row(Generic[Outcome]):
    """One row: what must hold, the outcome, and the reason why."""

    when: Pattern
    outcome: Outcome
    why: str

    def __str__(self) -> str:
        return self.why


class DecisionTable(Generic[Outcome]):
    """A rule: the first row that fits decides. `impossible` has combinations that cannot be, by reason.

    A table decides each other combination, every row decides one, and has a reason of its own.
    """

    def __init__(
        self,
        conditions: Mapping[str, tuple[str, ...]],
        rows: Iterable[tuple[Pattern, Outcome, str]],
        impossible: Mapping[str, Pattern] | None = None,
    ) -> None:
        self.rows = tuple(Row(*row) for row in rows)
        excluded = tuple((impossible or {}).values())
        patterns = [*(row.when for row in self.rows), *excluded]
        assert {name for pattern in patterns for name in pattern} <= conditions.keys()
        self._cases: dict[str, list[Case]] = {row.why: [] for row in self.rows}
        assert len(self._cases) == len(self.rows)
        for values in product(*conditions.values()):
            case = dict(zip(conditions, values, strict=True))
            if not any(_fits(pattern, case) for pattern in excluded):
                row = next((row for row in self.rows if _fits(row.when, case)), None)
                assert row is not None, f"no row decides {case}"
                self._cases[row.why].append(case)
        assert [why for why, cases in self._cases.items() if not cases] == [], "rows that decide nothing"

    def cases(self, row: Row[Outcome]) -> list[Case]:
        """Return the combinations that a row decides."""
        return self._cases[row.why]

    def mistakes(self, row: Row[Outcome], decide: Callable[[Case], Any]) -> list[tuple[Case, Any]]:
        """Return the combinations of a row for which the code decides otherwise, with its decisions."""
        decisions = ((case, decide(case)) for case in self.cases(row))
        return [(case, decision) for case, decision in decisions if decision != row.outcome]


def _fits(pattern: Pattern, case: Case) -> bool:
    return all(case[name] in ((v,) if isinstance(v, str) else v) for name, v in pattern.items())
