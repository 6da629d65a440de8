"""What one more version would mean to a fleet, for people and programs."""

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.dependencies.model.packages import Candidate
from reconciler.dependencies.what_if import WhatIfOutcome, WhatIfResult
from reconciler.report.escape import terminal
from reconciler.report.locks import explanation_value

_MEANINGS = {
    WhatIfOutcome.MOVES: "could move",
    WhatIfOutcome.STAYS: "could take it, but another version fits better",
    WhatIfOutcome.BLOCKED: "cannot move",
    WhatIfOutcome.UNAFFECTED: "does not have it",
}


def prospect_lines(candidate: Candidate, prospects: Iterable[WhatIfResult]) -> Iterator[str]:
    """Yield the prospects as text: a block for clusters that answer alike, with what moves or who blocks."""
    yield terminal(f"If {candidate.id} {candidate.version} were published:")
    for one in prospects:
        yield terminal(f"  {_MEANINGS[one.verdict]}: {', '.join(one.clusters)}")
        for change in one.changes:
            versions = " -> ".join(text.partition("@")[0] for text in (change.before, change.after) if text)
            yield terminal(f"    {change.op} {change.instance} {versions}")
        for explanation in one.explanations:
            yield from (terminal(f"    {line}") for line in str(explanation).splitlines())


def prospect_values(prospects: Iterable[WhatIfResult]) -> list[dict[str, Any]]:
    """Return the prospects as JSON values."""
    return [
        {
            "verdict": str(one.verdict),
            "clusters": list(one.clusters),
            "changes": [change._asdict() for change in one.changes],
            "explanations": [explanation_value(explanation) for explanation in one.explanations],
        }
        for one in prospects
    ]
