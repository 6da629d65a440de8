"""Work that waits for people, the most urgent first: answers, decisions, repairs, reviews. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.base.escape import terminal
from reconciler.base.reasons import Phase, Reason
from reconciler.base.wording import some, words
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import ObjectName
from reconciler.names.refs import lock_ref, short_branch
from reconciler.plan.changes import Change, Op, Outcome, Plan
from reconciler.plan.context import newest_pull
from reconciler.plan.deletions import kept_drafts
from reconciler.plan.status import PackageStatus, current_statuses
from reconciler.report.causes import group_problems
from reconciler.report.console import Color, Paint, plain, table_rows
from reconciler.report.overview import PackageOverview, package_overviews
from reconciler.resolve.rollout_model import MemberPhase, Rollout, RolloutPhase, WavePhase

_MOST_PLACES = 4
"""Places of one row that a text names; more of them are counted."""
_RETRY = "retry it, or leave it"
_BY_ITSELF = frozenset(
    {
        Reason.AWAITING_CHECKS,
        Reason.AWAITING_SCHEDULE,
        Reason.AWAITING_WAVE,
        Reason.CHECKOUT_OUTDATED,
        Reason.MANIFEST_UNREADABLE,
        Reason.RATE_LIMITED,
        Reason.ROLLED_BACK,
        Reason.STILL_NEEDED,
    }
)
"""Reasons of packages that wait for a machine, another package or the repair of a problem that is listed."""


class Action(StrEnum):
    """Acts of a person, the most urgent first."""

    DECIDE = "decide"
    ANSWER = "answer"
    RELEASE = "release"
    REPAIR = "repair"
    REVIEW = "review"


class NeedPlace(NamedTuple):
    """Where it is done: `REPOSITORY#NUMBER`, a package, a manifest or a set; `url` is "" for none.

    `package` is the package that it is about as `REPOSITORY/PACKAGE`, "" if it is about none or several.
    """

    name: str
    url: str = ""
    package: str = ""


class Need(NamedTuple):
    """Something that waits for people: what they have to do, why, and where.

    `holds` are the waves that move on when it is done.
    """

    action: Action
    text: str
    places: tuple[NeedPlace, ...]
    holds: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The text, and the waves that wait for it."""
        return f"{self.text}; holds {', '.join(self.holds)}" if self.holds else self.text

    @property
    def first(self) -> tuple[NeedPlace, ...]:
        """The places that a text names."""
        return self.places[:_MOST_PLACES]

    @property
    def more(self) -> str:
        """How many more there are, "" for none."""
        more = len(self.places) - _MOST_PLACES
        return f" and {more} more" if more > 0 else ""

    @property
    def where(self) -> str:
        """The first places, and how many more there are."""
        return some([place.name for place in self.places], _MOST_PLACES)


def needs_after(plan: Plan, outcome: Outcome | None = None) -> list[Need]:
    """Return what waits for people after the effects of a plan; without an outcome before any of them."""
    return find_needs(plan, current_statuses(plan, outcome), outcome)


def find_needs(plan: Plan, statuses: Sequence[PackageStatus], outcome: Outcome | None = None) -> list[Need]:
    """Return what waits for people, the most urgent first, by the states of packages. Deterministic."""
    needs = [Need(Action.DECIDE, refusal.message, ()) for refusal in plan.refusals]
    needs += [*_repairs(plan), *_of_packages(plan, statuses)]
    for rollout in plan.rollouts:
        needs += _of_rollout(rollout)
    pull = _lock_pull(plan, outcome)
    if plan.lock is not None and (pull is not None or plan.lock.change.waits):
        place = NeedPlace(f"control#{pull.number}", pull.url) if pull else NeedPlace("control")
        action = Action.DECIDE if plan.lock.change.waits else Action.REVIEW
        needs.append(Need(action, "the lock", (place,)))
    order = list(Action)
    return sorted(needs, key=lambda need: (order.index(need.action), not need.holds, need.text, need.places))


def _lock_pull(plan: Plan, outcome: Outcome | None) -> PullRequest | None:
    """Return the open pull request of the lock, with what a run did; None without any."""
    if plan.lock is None or plan.context is None or plan.lock.change.op is Op.CLOSE:
        return None
    inventory, url = plan.context.inventory, plan.lock.change.package.url
    head = short_branch(lock_ref(inventory.policy.instance))
    opened = outcome.opened.get((url, head)) if outcome is not None else None
    there = (
        pull for pull in inventory.pulls.get(url, ()) if pull.head == head and pull.state is PullState.OPEN
    )
    return opened or next(there, None)


def _repairs(plan: Plan) -> Iterator[Need]:
    """Yield the problems by reason: their messages and hints are below, once each."""
    places: dict[str, dict[NeedPlace, None]] = {}
    for group in group_problems(plan.problems):
        of_reason = places.setdefault(group.reason, {})
        of_reason |= dict.fromkeys(
            NeedPlace(str(problem.location) or problem.subject) for problem in group.problems
        )
    for reason, of_reason in places.items():
        yield Need(Action.REPAIR, words(reason), tuple(of_reason))


def _of_packages(plan: Plan, statuses: Sequence[PackageStatus]) -> Iterator[Need]:
    """Yield what packages wait for, those that wait for the same together."""
    overviews = package_overviews(plan, statuses)
    changes = {change.package: change for change in plan.changes}
    holds = dict(_held_waves(plan.rollouts))
    groups: dict[tuple[Action, str], tuple[dict[str, NeedPlace], set[str]]] = {}
    for status in statuses:
        if status.variant is None:
            continue
        overview = overviews.get((status.variant, status.package), PackageOverview())
        change = changes.get(status.package) if status.package else None
        for action, place in _asks(status, overview, plan, waits=change is not None and change.waits):
            text = _text(action, status, overview, change)
            places, waves = groups.setdefault((action, text), ({}, set()))
            # A pull request of several packages is about none of them alone.
            places[place.name] = place._replace(package="") if place.name in places else place
            waves |= {holds[status.variant]} if status.variant in holds else set()
    for (action, text), (places, waves) in groups.items():
        yield Need(action, text, tuple(sorted(places.values())), tuple(sorted(waves)))


def _asks(
    status: PackageStatus, overview: PackageOverview, plan: Plan, *, waits: bool
) -> Iterator[tuple[Action, NeedPlace]]:
    """Yield what a package asks of people, and where; a draft that people left is apart from its deletion."""
    action = _action(status, overview, waits=waits)
    target = plan.context.targets.get(status.package) if plan.context and status.package else None
    is_deletion = action is Action.DECIDE and status.reason == Reason.DELETION_PROPOSED
    drafts = kept_drafts(target) if target is not None and is_deletion else ()
    for draft in drafts:
        pull = newest_pull(target.pulls, draft.ref) if target is not None else None
        number, url = (pull.number, pull.url) if pull is not None else (0, "")
        yield Action.DECIDE, _place(replace(status, pull=number, url=url))
    action = Action.REVIEW if drafts else action
    if action is not None:
        yield action, _place(status)


def _action(status: PackageStatus, overview: PackageOverview, *, waits: bool) -> Action | None:
    """Return what a person does about a package; what `waits` for one never goes without."""
    if waits and status.phase is Phase.REJECTED:
        return Action.DECIDE
    if status.reason in _BY_ITSELF or overview.stopped:
        return None
    if status.phase is Phase.HELD_BACK:
        return Action.REPAIR if status.reason == Reason.REMOVAL_UNPROVEN else Action.DECIDE
    return {
        Phase.CONFLICT: Action.ANSWER,
        Phase.NOT_READY: Action.REPAIR,
        Phase.IN_REVIEW: Action.REVIEW,
    }.get(status.phase, Action.DECIDE if waits and status.phase is not Phase.PENDING else None)


def _text(action: Action, status: PackageStatus, overview: PackageOverview, change: Change | None) -> str:
    if action is Action.ANSWER:
        return "conflicts"
    if action is not Action.REVIEW:
        # Of a rejected package that no variant wants only a draft of people is left.
        rejected = _RETRY if change and change.upstream_to else Reason.DRAFT_EDITED.facts.waits_for
        return rejected if status.phase is Phase.REJECTED else overview.waiting_for
    by = f", by {', '.join(overview.reviewers)}" if overview.reviewers else ""
    first = f"new {overview.review}, which no manifest asks for"
    ends = {
        str(Reason.DELETION_PROPOSED): "deletion",
        str(Reason.ORPHANED): f"release of {overview.main}" if overview.main else first,
    }
    if status.reason in ends:
        return f"{ends[status.reason]}{by}"
    review = overview.review_after(change) if change else overview.review
    if review in ("", overview.main):
        return f"change of {overview.main}{by}" if overview.main else f"change{by}"
    is_back = change is not None and change.request is not None and change.request.is_back
    kind = "adoption as" if overview.replaces == "others" else "new"
    kind = "update to" if overview.main or overview.replaces == "ours" else kind
    return f"{'rollback to' if is_back else kind} {review}{by}"


def _place(status: PackageStatus) -> NeedPlace:
    if status.repository is None:
        return NeedPlace(str(status.variant))
    package = f"{status.repository.name}/{status.name}"
    name = f"{status.repository.name}#{status.pull}" if status.pull else package
    return NeedPlace(name, status.url, package)


def _held_waves(rollouts: Iterable[Rollout]) -> Iterator[tuple[ObjectName, str]]:
    """Yield the variants that a wave waits for, with the wave."""
    for rollout in rollouts:
        for wave in rollout.waves[:-1] if rollout.phase is RolloutPhase.PROGRESSING else ():
            if wave.phase is WavePhase.PROGRESSING:
                name = f"wave {wave.name} of {rollout.revision}"
                yield from ((m.key, name) for m in wave.members if m.phase is not MemberPhase.PUBLISHED)


def _of_rollout(rollout: Rollout) -> Iterator[Need]:
    """Yield the waves that failed, and those that a person has to release."""
    place = (NeedPlace(str(rollout.key)),)
    for wave in rollout.waves:
        if wave.phase is WavePhase.FAILED:
            yield Need(Action.DECIDE, f"wave {wave.name} of {rollout.revision} failed", place)
        if wave.asks and rollout.phase is RolloutPhase.PROGRESSING:
            yield Need(Action.RELEASE, f"wave {wave.name} of {rollout.revision}", place)


def need_lines(needs: Sequence[Need], *, paint: Paint = plain, width: int | None = None) -> Iterator[str]:
    """Yield the needs as a table; nothing without any."""
    rows = [(need.action, terminal(need.what), terminal(need.where)) for need in needs]
    if not rows:
        return
    table: list[tuple[str, ...]] = [("NEEDS YOU", "WHAT", "WHERE"), *rows]
    if width and sum(max(map(len, column)) + 2 for column in zip(*table, strict=True)) > width:
        table = [(first, ": ".join(filter(None, others))) for first, *others in table]
    heads, *lines = table_rows(table[0], table[1:], width)
    yield from (paint(line, Color.BOLD) for line in heads)
    for need, (first, *others) in zip(needs, lines, strict=True):
        color = Color.YELLOW if need.action is Action.REVIEW else Color.RED
        yield paint(need.action, color) + first[len(need.action) :]
        yield from others


def need_value(need: Need) -> Mapping[str, Any]:
    """Return a need as a JSON value."""
    return {
        "action": str(need.action),
        "text": need.text,
        "holds": list(need.holds),
        "places": [place._asdict() for place in need.places],
    }
