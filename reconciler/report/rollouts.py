"""Rollouts as lines and as JSON: the same words in plans, statuses, summaries and on the dashboard."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from reconciler.resolve.rollout_model import MemberPhase, MemberStatus, Rollout, RolloutPhase, WaveStatus


class RolloutText(NamedTuple):
    """A rollout in a sentence, and each of its waves in one; `is_failed` tells that nothing more moves.

    After a failed wave comes what people can do about it.
    """

    title: str
    waves: tuple[str, ...]
    is_failed: bool = False


def rollout_texts(rollouts: Iterable[Rollout]) -> Iterator[RolloutText]:
    """Yield the rollouts that are on their way, each with every wave and what holds it. Deterministic."""
    for rollout in rollouts:
        if rollout.phase is not RolloutPhase.COMPLETE:
            is_failed = rollout.phase is RolloutPhase.FAILED
            waves = [line for wave in rollout.waves for line in (_wave(wave), wave.hint) if line]
            yield RolloutText(_title(rollout), tuple(waves), is_failed)


def rollout_lines(rollouts: Iterable[Rollout]) -> Iterator[str]:
    """Yield the rollouts that are on their way as lines."""
    for text in rollout_texts(rollouts):
        yield f"rollout {text.title}"
        yield from (f"  {wave}" for wave in text.waves)


def _title(rollout: Rollout) -> str:
    members = [member for wave in rollout.waves for member in wave.members]
    done = f"{_published(members)} of {len(members)} published"
    newer = sum(key not in rollout.waves_of for key in rollout.held)
    more = f", {newer} newer {'target waits' if newer == 1 else 'targets wait'} for its end" if newer else ""
    return f"{rollout.revision} of {rollout.key}: {rollout.phase}, {done}{more}"


def _wave(wave: WaveStatus) -> str:
    counts = f"{_published(wave.members)} of {len(wave.members)} published"
    return f"wave {wave.name}: {wave.phase}, {counts}" + (f", {wave.message}" if wave.message else "")


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
                "text": _wave(wave),
                "packages": [_member_value(member) for member in wave.members],
            }
            for wave in rollout.waves
        ],
        "held": [{**key._asdict(), "message": why} for key, why in sorted(rollout.held.items())],
    }


def _member_value(member: MemberStatus) -> dict[str, Any]:
    return {
        **member.key._asdict(),
        "package": member.name,
        "phase": str(member.phase),
        "message": member.failure or member.why,
        "gates": [{"result": str(gate.result), "message": gate.message} for gate in member.gates],
    }
