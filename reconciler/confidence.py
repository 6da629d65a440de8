"""Confidence in an upstream revision: how the packages of this fleet fared with it. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from reconciler.ids import Oid


class UpstreamRevision(NamedTuple):
    """A package of an upstream repository at one commit: the same one under whatever URL it is known."""

    path: str
    commit: Oid


class Confidence(NamedTuple):
    """How the packages of a fleet fared with one upstream revision, as main of their repositories tells it.

    `since` are the times, in seconds and in order, since when each package runs it. `reverted` counts
    packages that went back from it to a revision that they had before, `conflicts` those that met a conflict
    with it, and `total` all that ever had it.
    """

    since: tuple[int, ...] = ()
    reverted: int = 0
    conflicts: int = 0
    total: int = 0

    @property
    def running(self) -> int:
        """The number of packages that run it."""
        return len(self.since)


class RevisionConfidence(NamedTuple):
    """Confidence in a revision that a plan brings, under the name that people call it by."""

    label: str
    revision: UpstreamRevision
    confidence: Confidence


UNTRIED = Confidence()
"""Confidence in a revision that no package ever had."""

Confidences = Mapping[UpstreamRevision, Confidence]
