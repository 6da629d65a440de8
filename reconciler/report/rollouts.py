"""Rollouts as lines and as JSON: the same words in plans, statuses, summaries and on the dashboard."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from reconciler.resolve.rollout_model import (
    MemberPhase,
    MemberStatus,
    Rollout,
    RolloutPhase,
    WavePhase,
    WaveStatus,
)


class WaveText(NamedTuple):
    """A wave: how many of its packages are published, what holds it, and what people can do about it.

    `is_held` tells that it moves on only when a person does something about one of its packages.
    """

    name: str
    phase: str
    published: int
    packages: int
    message: str = ""
    hint: str = ""
    is_held: bool = False

    @property
    def counts(self) -> str:
        """How many of its packages are published."""
        return f"{self.published} of {self.packages} published"

    @property
    def lines(self) -> tuple[str, ...]:
        """The wave in a sentence, then the hint."""
        message = f", {self.message}" if self.message else ""
        text = f"wave {self.name}: {self.phase}, {self.counts}{message}"
        return (text, self.hint) if self.hint else (text,)


class RolloutText(NamedTuple):
    """A rollout in a sentence, and each of its waves; `is_failed` tells that nothing more moves."""

    title: str
    waves: tuple[WaveText, ...]
    is_failed: bool = False


def rollout_texts(rollouts: Iterable[Rollout]) -> Iterator[RolloutText]:
    """Yield the rollouts that are on their way, each with every wave and what holds it. Deterministic."""
    for rollout in rollouts:
        if rollout.phase is not RolloutPhase.COMPLETE:
            waves = tuple(map(_wave, rollout.waves))
            yield RolloutText(_title(rollout), waves, rollout.phase is RolloutPhase.FAILED)


def rollout_lines(rollouts: Iterable[Rollout]) -> Iterator[str]:
    """Yield the rollouts that are on their way as lines."""
    for text in rollout_texts(rollouts):
        yield f"rollout {text.title}"
        yield from (f"  {line}" for wave in text.waves for line in wave.lines)


def _title(rollout: Rollout) -> str:
    members = [member for wave in rollout.waves for member in wave.members]
    done = f"{_published(members)} of {len(members)} published"
    newer = sum(key not in rollout.waves_of for key in rollout.staying)
    more = f", {newer} newer {'target waits' if newer == 1 else 'targets wait'} for its end" if newer else ""
    return f"{rollout.revision} of {rollout.key}: {rollout.phase}, {done}{more}"


def _wave(wave: WaveStatus) -> WaveText:
    waits = wave.phase is WavePhase.PROGRESSING and any(member.why for member in wave.members)
    return WaveText(
        wave.name,
        str(wave.phase),
        _published(wave.members),
        len(wave.members),
        wave.message,
        wave.hint,
        waits or wave.asks or wave.phase is WavePhase.FAILED,
    )


def _published(members: Iterable[MemberStatus]) -> int:
    return sum(member.phase is MemberPhase.PUBLISHED for member in members)


def rollout_value(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as a JSON value, finished ones too."""
    return {
        "set": rollout.key._asdict(),
        "revision": rollout.revision,
        "phase": str(rollout.phase),
        "text": _title(rollout),
        "waves": [
            {
                "name": wave.name,
                "phase": str(wave.phase),
                "message": wave.message,
                "text": _wave(wave).lines[0],
                "packages": [_member_value(member) for member in wave.members],
            }
            for wave in rollout.waves
        ],
        "held": [{**key._asdict(), "message": why} for key, why in sorted(rollout.staying.items())],
    }


def _member_value(member: MemberStatus) -> dict[str, Any]:
    return {
        **member.key._asdict(),
        "package": member.name,
        "phase": str(member.phase),
        "message": member.failure or member.why,
        "gates": [{"result": str(gate.result), "message": gate.message} for gate in member.gates],
    }
