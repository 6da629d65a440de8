"""Values of a rollout: its packages, its waves, and the orders of people."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.text import Text
from reconciler.names.ids import ObjectName, RolloutKey
from reconciler.records.state import RolloutRecord

PAUSE = "reconciler.dev/rollout-paused"
"""On a set: nothing more of a rollout moves."""
GO = "reconciler.dev/rollout-go"
"""On a set: the waves, as `REVISION/WAVE`, after which a person lets the rollout go on."""
START = "reconciler.dev/rollout-start"
"""On a set: the waves, as `REVISION/WAVE`, that a person lets begin."""
SKIP = "reconciler.dev/rollout-skip"
"""On a set: the waves, as `REVISION/WAVE`, for which the next ones do not wait."""
ROLL_BACK = "reconciler.dev/rollout-rollback"
"""On a set: the revisions of rollouts that are to be rolled back, separated by semicolons."""


def revisions_taken_back(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the revisions that a set orders to be rolled back."""
    names = (name.strip() for name in annotations.get(ROLL_BACK, "").split(";"))
    return tuple(name for name in names if name)


class MemberPhase(StrEnum):
    """Phase of one package in a rollout."""

    WAITING = "waiting"
    """It has the previous revision."""
    IN_REVIEW = "in review"
    """It has a draft of the new revision."""
    PUBLISHED = "published"
    """Main has the new revision."""
    REFUSED = "refused"
    """A person closed the pull request of the new revision."""
    REVERTED = "reverted"
    """Main had the new revision, and has another one now."""
    UNKNOWN = "unknown"
    """Its variant is stalled, or its repository could not be read."""


class Verdict(StrEnum):
    """Verdict of one gate for one package."""

    PASSED = "passed"
    WAITING = "waiting"
    FAILED = "failed"


class GateResult(NamedTuple):
    """Verdict of one gate for one package, and why; one that is not `seen` tells nothing about its health."""

    result: Verdict
    message: str = ""
    seen: bool = True


class MemberStatus(NamedTuple):
    """One package of a rollout.

    `published` is when a run first saw the revision on main, in seconds. `why` is what it waits for, or that
    nothing moves it now, and `failure` why it failed. One that has `ended` counts for no wave any more.
    """

    key: ObjectName
    name: str
    phase: MemberPhase
    published: int = 0
    gates: tuple[GateResult, ...] = ()
    why: Text = ""
    failure: Text = ""
    ended: bool = False

    @property
    def has_moved(self) -> bool:
        """Whether a draft or main has the new revision, or had it."""
        return self.phase not in {MemberPhase.WAITING, MemberPhase.UNKNOWN}


def listed(texts: Sequence[str]) -> str:
    """Return texts as a list in a sentence; more than a few are counted."""
    more = f" and {len(texts) - _MOST_TEXTS} more" if len(texts) > _MOST_TEXTS else ""
    return "; ".join(texts[:_MOST_TEXTS]) + more


_MOST_TEXTS = 3


class WavePhase(StrEnum):
    """Phase of one wave."""

    WAITING = "waiting"
    """An earlier wave is not complete, or a person has not let it begin."""
    PROGRESSING = "progressing"
    """Some of its packages are not published."""
    VERIFYING = "verifying"
    """All of its packages are published, and a gate or the soak time is not over."""
    FAILED = "failed"
    """More of its packages failed than its budget allows: nothing more moves."""
    SKIPPED = "skipped"
    """A person skipped it: the next waves do not wait for it."""
    COMPLETE = "complete"
    """The next wave may move."""
    ROLLED_BACK = "rolled back"
    """A person rolled the rollout back: packages that moved get the previous revision again."""


class WaveStatus(Struct, frozen=True):
    """Status of one wave: how many of its packages are published, and what holds it.

    `due` are the packages that move now; `hint` is what people can do about it. A wave `asks` when nothing
    but the agreement of a person is missing.
    """

    name: str
    phase: WavePhase
    members: tuple[MemberStatus, ...] = ()
    detail: str = ""
    due: frozenset[ObjectName] = frozenset()
    hint: str = ""
    asks: bool = False

    @property
    def message(self) -> str:
        """Cause that holds the wave, in words that stay the same when its due packages have moved."""
        return self.detail if self.phase is not WavePhase.PROGRESSING else _missing_text(self)

    @property
    def published(self) -> int:
        """The number of published packages."""
        return sum(member.phase is MemberPhase.PUBLISHED for member in self.members)

    @property
    def is_passed(self) -> bool:
        """Whether the next wave may move."""
        return self.phase in {WavePhase.COMPLETE, WavePhase.SKIPPED}


def _missing_text(wave: WaveStatus) -> str:
    """Return what is still to be published, and what holds it."""
    missing = [m for m in wave.members if not (m.phase is MemberPhase.PUBLISHED or m.failure or m.ended)]
    unknown = sum(m.phase is MemberPhase.UNKNOWN for m in missing)
    waiting = sum(m.phase is MemberPhase.WAITING and m.key not in wave.due for m in missing)
    counts = {"on the way": len(missing) - unknown - waiting, "to move": waiting, "unknown": unknown}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    holders = [f"{m.name}: {m.why}" for m in missing if m.why]
    return f"{text} ({listed(holders)})" if holders else text


class Orders(Struct, frozen=True):
    """Annotations of people on the set: a pause, waves to let begin, go on or to skip, a rollback.

    `revision` is the one that travels, as annotations name it. `pause` is why nothing moves, "" if it may.
    """

    revision: str = ""
    pause: str = ""
    go: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    is_rolled_back: bool = False


class RolloutPhase(StrEnum):
    """Phase of a rollout."""

    PROGRESSING = "progressing"
    PAUSED = "paused"
    FAILED = "failed"
    COMPLETE = "complete"
    ROLLED_BACK = "rolled back"


class Rollout(Struct, frozen=True):
    """A new upstream revision on its way through the packages of one set.

    `staying` are the variants that keep their present revision, with why; `rejected` those that people
    took back; `stopped` those with a draft that must not be merged by policy now, with why. `waves_of` are
    the waves of all its variants.
    """

    key: RolloutKey
    phase: RolloutPhase
    record: RolloutRecord
    waves: tuple[WaveStatus, ...] = ()
    staying: Mapping[ObjectName, Text] = field(default_factory=dict)
    rejected: frozenset[ObjectName] = frozenset()
    stopped: Mapping[ObjectName, str] = field(default_factory=dict)
    waves_of: Mapping[ObjectName, str] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        """The revision that travels, as people call it."""
        return self.record.revision

    def with_holders(self, holders: Mapping[ObjectName, Text]) -> "Rollout":
        """Return the rollout with what its packages on the way wait for, beside a review."""
        waves = (
            replace(
                wave,
                members=tuple(
                    member._replace(why=holders[member.key])
                    if member.key in holders
                    and (member.key in wave.due or member.phase is MemberPhase.IN_REVIEW)
                    else member
                    for member in wave.members
                ),
            )
            for wave in self.waves
        )
        return replace(self, waves=tuple(waves))
