"""Confidence in upstream revisions as lines and as JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.confidence import RevisionConfidence
from reconciler.rollout.confidence import confidence_text


def confidence_lines(confidences: Iterable[RevisionConfidence]) -> Iterator[str]:
    """Yield how the packages of the fleet fared with each revision that any of them had, in a line."""
    for label, _, confidence in confidences:
        if confidence.total:
            yield f"{label}: {confidence_text(confidence)}"


def confidence_value(item: RevisionConfidence) -> dict[str, Any]:
    """Return the confidence in one revision as a JSON value; times are in seconds."""
    confidence = item.confidence
    return {
        "revision": item.label,
        "upstream": item.revision._asdict(),
        "text": confidence_text(confidence),
        "running": confidence.running,
        "since": list(confidence.since),
        "reverted": confidence.reverted,
        "conflicts": confidence.conflicts,
        "total": confidence.total,
    }
