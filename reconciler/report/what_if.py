"""Rehearsed changes as text and JSON: which clusters move, what moves along, what blocks the others."""

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.base.escape import terminal
from reconciler.dependencies.what_if import Hypothesis, WhatIfOutcome, WhatIfResult
from reconciler.report.locks import explanation_value

_REMOVED = {
    WhatIfOutcome.MOVES: "could do without it",
    WhatIfOutcome.BLOCKED: "cannot do without it",
    WhatIfOutcome.UNAFFECTED: "not affected",
}
_MEANINGS = {
    WhatIfOutcome.MOVES: "could move",
    WhatIfOutcome.STAYS: "could take it, but another version fits better",
    WhatIfOutcome.BLOCKED: "cannot move",
    WhatIfOutcome.CURRENT: "has it already",
    WhatIfOutcome.UNAFFECTED: "not affected",
}


def what_if_lines(hypothesis: Hypothesis, results: Iterable[WhatIfResult]) -> Iterator[str]:
    """Yield the effects of a change as text: a block for clusters with equal results."""
    meanings = _REMOVED if hypothesis.forgets else _MEANINGS
    yield terminal(f"{condition(hypothesis)}:")
    for result in results:
        preferred = f" ({', '.join(result.preferred)})" if result.preferred else ""
        yield terminal(f"  {meanings[result.verdict]}{preferred}: {', '.join(result.clusters)}")
        yield from (terminal(f"    {change.op} {change}") for change in result.changes)
        for explanation in result.explanations:
            yield from (terminal(f"    {line}") for line in str(explanation).splitlines())


def condition(hypothesis: Hypothesis) -> str:
    """Return the first clause of the report, in text and in JSON."""
    return f"If {hypothesis.text}"


def what_if_values(results: Iterable[WhatIfResult]) -> list[dict[str, Any]]:
    """Return the effects of a change as JSON values."""
    return [
        {
            "verdict": str(result.verdict),
            "clusters": list(result.clusters),
            "changes": [
                {
                    "op": str(change.op),
                    "instance": change.instance,
                    "before": change.before,
                    "after": change.after,
                    "why": change.why,
                }
                for change in result.changes
            ],
            "preferred": list(result.preferred),
            "explanations": [explanation_value(explanation) for explanation in result.explanations],
        }
        for result in results
    ]
