"""Print what became of the mutants, and write it as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from tools.mutation.runner import Result, Status
from tools.mutation.sample import folder_of

CAUGHT = {Status.CAUGHT, Status.TIMEOUT}
FEWEST = 10
"""Mutants of a change below which its score depends on chance."""


def format_result(result: Result) -> str:
    """Return a line about a mutant, and its difference if it survived."""
    mutant = result.subject.mutant
    where = (
        f"{result.status:<9} {mutant.function.path}:{mutant.line} {mutant.function.name} ({mutant.operator})"
    )
    if result.status in CAUGHT:
        return f"{where} by {result.test} in {result.seconds:.1f} s"
    left = result.subject.reaching - result.ran
    beyond = f", {left} beyond the budget" if left else ""
    return f"{where}: {result.ran} tests in {result.seconds:.1f} s{beyond}\n{indent(mutant.diff, '    ')}"


def print_scores(results: Sequence[Result]) -> dict[str, float]:
    """Print and return the score of each folder and of all."""
    counts: dict[str, Counter[Status]] = {}
    for result in results:
        counts.setdefault(folder_of(result.subject.mutant.function), Counter())[result.status] += 1
    counts["all"] = Counter(result.status for result in results)
    for folder, statuses in counts.items():
        detail = ", ".join(f"{statuses[status]} {status}" for status in Status if statuses[status])
        print(f"{folder:<14} {score_of(statuses):5.1f} %  {detail}")
    return {folder: score_of(statuses) for folder, statuses in counts.items()}


def find_gates(scores: Mapping[str, float], count: int, *, is_change: bool) -> list[float]:
    """Return the scores that must reach the minimum: of a change the whole, unless it has few mutants."""
    if not is_change:
        return list(scores.values())
    if count < FEWEST:
        print(f"{count} mutants are too few for a minimum; {FEWEST} are enough")
        return []
    return [scores["all"]]


def score_of(statuses: Mapping[Status, int]) -> float:
    """Return the share of caught mutants in per cent; a sample without mutants has the full score."""
    tried = sum(count for status, count in statuses.items() if status is not Status.INVALID)
    return 100 * sum(statuses.get(status, 0) for status in CAUGHT) / tried if tried else 100.0


def write_json(path: Path, options: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write the options and what became of each mutant."""
    result = {
        "options": {name: options[name] for name in ("seed", "number", "budget", "limit", "changed")},
        "mutants": [_describe(result) for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _describe(result: Result) -> dict[str, Any]:
    mutant = result.subject.mutant
    return {
        "folder": folder_of(mutant.function),
        "file": mutant.function.path,
        "line": mutant.line,
        "function": mutant.function.name,
        "operator": mutant.operator,
        "change": mutant.change,
        "diff": mutant.diff,
        "status": result.status,
        "test": result.test,
        "tests": [test.id for test in result.subject.tests],
        "beyond_the_budget": result.subject.reaching - len(result.subject.tests),
        "seconds": round(result.seconds, 2),
    }
