"""Values of a rollout: its packages, the orders of people, and its waves with what may move next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.base.text import Text, some, time_text
from reconciler.base.values import grouped
from reconciler.names.ids import ObjectName, RolloutKey
from reconciler.policy.rollouts import UNLISTED, Wave
from reconciler.policy.settings import amount
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
    return some(texts, _MOST_TEXTS, "; ")


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


BLOCKED = "blocked"


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

    @property
    def state(self) -> str:
        """The phase; `blocked` on its way if only what a person does about a package moves it on."""
        waits = self.phase is WavePhase.PROGRESSING and any(member.why for member in self.members)
        return BLOCKED if waits else str(self.phase)

    @property
    def is_held(self) -> bool:
        """Whether it moves on only when a person does something."""
        return self.state == BLOCKED or self.asks or self.phase is WavePhase.FAILED

    @property
    def counts(self) -> str:
        """How many of its packages are published."""
        return f"{self.published} of {len(self.members)} published"

    @property
    def lines(self) -> tuple[str, ...]:
        """The wave in a sentence, then the hint."""
        message = f", {self.message}" if self.message else ""
        text = f"wave {self.name}: {self.state}, {self.counts}{message}"
        return (text, self.hint) if self.hint else (text,)


def _missing_text(wave: WaveStatus) -> str:
    missing = [m for m in wave.members if not (m.phase is MemberPhase.PUBLISHED or m.failure or m.ended)]
    unknown = sum(m.phase is MemberPhase.UNKNOWN for m in missing)
    waiting = sum(m.phase is MemberPhase.WAITING and m.key not in wave.due for m in missing)
    counts = {"on the way": len(missing) - unknown - waiting, "to move": waiting, "unknown": unknown}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    holders = [f"{m.name}: {m.why}" for m in missing if m.why]
    return f"{text} ({listed(holders)})" if holders else text


class Orders(Struct, frozen=True):
    """Annotations of people on the set: a pause, waves to let begin, go on or to skip.

    `revision` is the one that travels, as annotations name it. `pause` is why nothing moves, "" if it may.
    """

    revision: str = ""
    pause: str = ""
    go: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()


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

    @property
    def title(self) -> str:
        """The rollout in a sentence."""
        members = sum(len(wave.members) for wave in self.waves)
        done = f"{sum(wave.published for wave in self.waves)} of {members} published"
        newer = sum(key not in self.waves_of for key in self.staying)
        wait = "target waits" if newer == 1 else "targets wait"
        is_blocked = any(wave.state == BLOCKED for wave in self.waves)
        phase = BLOCKED if is_blocked and self.phase is RolloutPhase.PROGRESSING else self.phase
        more = f", {newer} newer {wait} for its end" if newer else ""
        return f"{self.revision} of {self.key}: {phase}, {done}{more}"

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


Labels = Mapping[str, str]

CLOCK_SKEW_S = 300
"""So much the clocks of machines may differ."""


class Judgement(NamedTuple):
    """Status of every wave in order, and the packages that may move to the new revision now."""

    waves: tuple[WaveStatus, ...]
    moving: frozenset[ObjectName]

    @property
    def failed(self) -> WaveStatus | None:
        """The wave that stops the rollout, if any."""
        return next((wave for wave in self.waves if wave.phase is WavePhase.FAILED), None)

    @property
    def current(self) -> WaveStatus | None:
        """The first wave that the next ones wait for; None if the rollout is complete."""
        return next((wave for wave in self.waves if not wave.is_passed), None)


def wave_names(waves: Sequence[Wave]) -> tuple[str, ...]:
    """Return the names of all waves in their order, that of the rest too."""
    return tuple(dict.fromkeys([*(wave.name for wave in waves), UNLISTED]))


def assign_waves(waves: Sequence[Wave], targets: Mapping[ObjectName, Labels]) -> dict[ObjectName, str]:
    """Return the wave of each target: the first one that selects it and has room. Total; order-free.

    A wave takes the first targets by name. Those that no wave takes are the last wave, `rest`.
    """
    assigned: dict[ObjectName, str] = {}
    for wave in waves:
        selects = compile_selector(LabelSelector.model_validate(wave.selector))
        # Rounded up, as maxSurge of a Deployment: a tenth of nine packages is one.
        room = amount(wave.size, len(targets), up=True)
        free = [key for key in sorted(targets) if key not in assigned and selects(targets[key])]
        assigned |= dict.fromkeys(free[:room], wave.name)
    return {key: assigned.get(key, UNLISTED) for key in sorted(targets)}


def recorded_waves(names: Iterable[str], waves: Iterable[Wave]) -> tuple[Wave, ...]:
    """Return the waves of a rollout in its own order; one that is not configured any more has no gates."""
    configured = {wave.name: wave for wave in waves}
    return tuple(configured.get(name) or Wave(name=name) for name in names)


def judge_waves(
    waves: Sequence[Wave], members: Iterable[tuple[str, MemberStatus]], orders: Orders, now: int
) -> Judgement:
    """Return the status of every wave, and which packages may move. Pure, total and order-free.

    A package moves only while every earlier wave is complete or skipped. What has moved stays: neither a
    pause nor a failure takes a draft back. Everything is judged by the present state and never by an observed
    transition, so that a run that was killed, or that did not happen, leaves no wave waiting for ever.

    Differs: Argo CD's progressive syncs leave out targets that no step selects, and wait until they have seen
    each Application change its state.
    """
    by_wave = grouped(members)
    statuses: list[WaveStatus] = []
    moving: set[ObjectName] = set()
    holding: WaveStatus | None = None
    for wave in waves:
        wave_members = tuple(sorted(by_wave.get(wave.name, ()), key=lambda member: member.key))
        due = frozenset() if orders.pause else frozenset(_next(wave, wave_members))
        status = _judge(wave, wave_members, orders, now, due, is_last=wave is waves[-1])
        if status.phase is WavePhase.COMPLETE and not wave_members and _is_untried(wave, waves, by_wave):
            order = f'annotate the set with {SKIP}: "{orders.revision}/{wave.name}" to go on'
            why = f"has no package any more, so nothing there tells whether to go on: {order}"
            status = WaveStatus(wave.name, WavePhase.WAITING, detail=why, asks=True)
        if holding is None and _asks_first(wave, status, orders):
            order = f'annotate the set with {START}: "{orders.revision}/{wave.name}"'
            why = f"waits for a person before it begins: {order}"
            status = WaveStatus(wave.name, WavePhase.WAITING, wave_members, why, asks=True)
        elif holding is not None:
            status = WaveStatus(wave.name, WavePhase.WAITING, wave_members, waiting_text(holding))
        else:
            moving |= due
        holding = holding or (None if status.is_passed else status)
        statuses.append(status)
    is_stopped = holding is not None and holding.phase is WavePhase.FAILED
    every = [member for wave_members in by_wave.values() for member in wave_members]
    moved = {member.key for member in every if member.has_moved or (member.ended and not orders.pause)}
    return Judgement(tuple(statuses), frozenset(moved if is_stopped else moved | moving))


def _is_untried(wave: Wave, waves: Sequence[Wave], by_wave: Mapping[str, Sequence[MemberStatus]]) -> bool:
    """Whether nothing moved after a wave, so that its packages left before they were tried."""
    later = waves[waves.index(wave) + 1 :]
    after = [member for name in (w.name for w in later) for member in by_wave.get(name, ())]
    return bool(after) and not any(member.has_moved or member.ended for member in after)


def _asks_first(wave: Wave, status: WaveStatus, orders: Orders) -> bool:
    """Tell whether a person has to let a wave begin; one without a package to move begins by itself."""
    is_open = not wave.start_approval or wave.name in orders.started
    waiting = (m for m in status.members if m.phase is MemberPhase.WAITING and not m.ended)
    return status.phase is WavePhase.PROGRESSING and not is_open and any(waiting)


def waiting_text(holding: WaveStatus) -> str:
    """Return what a wave, or a package of it, waits for."""
    if holding.phase is WavePhase.FAILED:
        return f"is stopped: wave {holding.name} failed"
    return f"waits for wave {holding.name}"


def _next(wave: Wave, members: Sequence[MemberStatus]) -> Iterator[ObjectName]:
    """Yield the packages of an open wave that move now, as many as may be in review at one time."""
    judged = [member for member in members if not member.ended]
    in_review = sum(member.phase is MemberPhase.IN_REVIEW for member in judged)
    room = max(1, amount(wave.max_open, len(judged), up=True)) - in_review
    waiting = [member.key for member in judged if member.phase is MemberPhase.WAITING and not member.why]
    yield from waiting[: max(0, room)]


def _judge(
    wave: Wave,
    members: tuple[MemberStatus, ...],
    orders: Orders,
    now: int,
    due: frozenset[ObjectName],
    *,
    is_last: bool,
) -> WaveStatus:
    """Return the status of a wave that nothing before it holds; docs/rollouts.md has the table.

    `due` are the packages that move now. An approval after the last wave would guard nothing.
    """
    judged = [member for member in members if not member.ended]
    failed = [member for member in judged if member.failure]
    # Rounded down, as maxUnavailable of a Deployment: a tenth of nine packages is none.
    budget = amount(wave.failure_budget, len(judged), up=False)
    if wave.name in orders.skipped:
        return WaveStatus(wave.name, WavePhase.SKIPPED, members)
    if len(failed) > budget:
        allowed = f", and the failure budget is {budget}" if budget else ""
        hint = (
            f'hint: Correct what failed, or annotate the set with {SKIP}: "{orders.revision}/{wave.name}" '
            f'to go on, or with {ROLL_BACK}: "{orders.revision}" to go back'
        )
        text = f"{_failed_text(failed)}{allowed}"
        return WaveStatus(wave.name, WavePhase.FAILED, members, text, hint=hint)
    if any(member.phase is not MemberPhase.PUBLISHED and not member.failure for member in judged):
        return WaveStatus(wave.name, WavePhase.PROGRESSING, members, due=due)
    if why := _verifying_text(wave, judged, orders, now):
        return WaveStatus(wave.name, WavePhase.VERIFYING, members, why)
    if judged and wave.gates.approval and not is_last and wave.name not in orders.go:
        why = f'waits for a person: annotate the set with {GO}: "{orders.revision}/{wave.name}"'
        return WaveStatus(wave.name, WavePhase.VERIFYING, members, why, asks=True)
    tolerated = f"{_failed_text(failed)}, within the failure budget" if failed else ""
    return WaveStatus(wave.name, WavePhase.COMPLETE, members, tolerated)


def _verifying_text(wave: Wave, members: Sequence[MemberStatus], orders: Orders, now: int) -> str:
    """Return what a wave of published packages waits for beside a person, "" for nothing."""
    soaked = max((member.published for member in members), default=0) + wave.soak_s
    if members and wave.soak_s and now < soaked:
        return f"soaks until {time_text(soaked)}{_ahead_text(wave, members, orders, now)}"
    waiting = [
        f"{member.name}: {gate.message}"
        for member in members
        for gate in member.gates
        if gate.result is Verdict.WAITING and not member.failure
    ]
    if waiting:
        return f"waits for {listed(waiting)}{_ahead_text(wave, members, orders, now)}"
    return ""


def _ahead_text(wave: Wave, members: Sequence[MemberStatus], orders: Orders, now: int) -> str:
    """Return what to do where a package was recorded by a clock that was ahead of that of this run."""
    ahead = [member for member in members if now and member.published > now + CLOCK_SKEW_S]
    if not ahead:
        return ""
    seen = time_text(max(member.published for member in ahead))
    return (
        f"; {ahead[0].name} was recorded as published {seen}, which is in the future: set the clock of this "
        f'machine right, or annotate the set with {SKIP}: "{orders.revision}/{wave.name}"'
    )


def _failed_text(failed: Sequence[MemberStatus]) -> str:
    texts = listed([f"{member.name}: {member.failure}" for member in failed])
    return f"{len(failed)} failed ({texts})"
