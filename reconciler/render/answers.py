"""Which conflicts of a draft wait for a person, and what answered the others (D10).

Nothing here remembers: what is open follows from the two merges, from the values in the draft, and from
the commit messages on its branch. So it is the same after a lost state, a squash or a rebase.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import unquote

from reconciler.objects import Files
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, Decision
from reconciler.render.update.lookup import current_value
from reconciler.trailers import Answers, ConflictName, conflict_name, parse_name, value_mark

Found = tuple[Conflict, Decision | None]
"""A conflict that a merge found, and what a policy decided; None if no policy decides it."""


class AnsweredBy(StrEnum):
    """What answered a conflict."""

    EDIT = "edit"
    POLICY = "policy"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Answer:
    """A conflict that does not wait any more; `chosen` is the value that the draft has.

    `policy` is the policy that answered it, as it is written, and `source` where.
    """

    conflict: Conflict
    by: AnsweredBy
    chosen: str | None
    policy: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Sides:
    """What conflicts of one draft are judged by.

    `package` is its path in the repository and `commit` the upstream commit: of a value that must not
    be shown, it takes the value's place in the conflict's name. `files` are the draft as it will be,
    `written` the draft as we wrote it last, `upstream` the package that it is brought to. `choose` says who
    wins a conflict by policy. `recorded` are conflicts by name as they were shown last: a value that was
    dropped stands nowhere else.
    """

    package: str
    commit: str
    answers: Answers
    files: Files
    upstream: Files
    choose: Callable[[Conflict], Decision | None]
    written: Files | None = None
    recorded: Mapping[str, Conflict] = field(default_factory=dict)

    def name(self, conflict: Conflict) -> ConflictName:
        """Return the name of a conflict: a new value on either side gives another one."""
        theirs = value_mark(self.commit if conflict.hidden else conflict.upstream)
        mark = f"{theirs}-{value_mark(conflict.local)}"
        return conflict_name(self.package, conflict.path, conflict.resource, conflict.field, mark)

    def named(self, conflict: Conflict) -> Conflict:
        """Return a conflict with its name."""
        return replace(conflict, name=str(self.name(conflict)))


@dataclass(frozen=True, slots=True)
class Judged:
    """The conflicts of a draft: those that wait, and those that were answered."""

    waiting: tuple[Conflict, ...] = ()
    answers: tuple[Answer, ...] = ()


def judge_conflicts(main: Iterable[Found], new: Iterable[Found], sides: Sides) -> Judged:
    """Return what waits and what was answered, each conflict by itself.

    Args:
        main: What both upstream and main changed.
        new: What this run's merges into the draft found: nobody can have answered it by an edit,
            unless our commits asked before about the same value of the other side.
        sides: The draft and what people said on it.
    """
    results: dict[object, Conflict | Answer] = {}
    for conflict, choice in main:
        results[_key(conflict)] = _judge_main(conflict, choice, sides)
    for conflict, choice in new:
        results[_key(conflict)] = _judge_new(conflict, choice, sides)
    places = {conflict_place(each, sides) for each in results.values()}
    for conflict, side in _asked_before(sides, places):
        results[_key(conflict)] = _judge_asked(conflict, side, sides)
    waiting = sorted(each for each in results.values() if isinstance(each, Conflict))
    answers = [each for each in results.values() if isinstance(each, Answer)]
    return Judged(tuple(waiting), tuple(sorted(answers, key=lambda each: each.conflict)))


def judge_fresh(found: Iterable[Found], sides: Sides) -> Judged:
    """Return what waits and what was answered in a draft that is ours alone: it has the local values."""
    results = [_judge_fresh(conflict, choice, sides) for conflict, choice in found]
    return Judged(
        tuple(each for each in results if isinstance(each, Conflict)),
        tuple(each for each in results if isinstance(each, Answer)),
    )


def judge_delivery(found: Iterable[Conflict], sides: Sides) -> Judged:
    """Return what waits and what was answered of generated files that people changed in a draft."""
    results = [_judge_new(conflict, None, sides) for conflict in found]
    return Judged(
        tuple(each for each in results if isinstance(each, Conflict)),
        tuple(each for each in results if isinstance(each, Answer)),
    )


def _judge_fresh(conflict: Conflict, choice: Decision | None, sides: Sides) -> Conflict | Answer:
    conflict = sides.named(conflict)
    if sides.answers.is_kept(sides.name(conflict)):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    return conflict if choice is None else by_policy(conflict, choice)


def conflict_place(result: Conflict | Answer, sides: Sides) -> ConflictName:
    """Return the place of a conflict, whatever its values."""
    return sides.name(result if isinstance(result, Conflict) else result.conflict).place


def by_policy(conflict: Conflict, decision: Decision) -> Answer:
    """Return the answer that a policy gives; `conflict` has its name."""
    chosen = conflict.upstream if decision.winner is OnConflict.UPSTREAM else conflict.local
    return Answer(conflict, AnsweredBy.POLICY, chosen, decision.policy, decision.source)


def _key(conflict: Conflict) -> object:
    """Return what tells conflicts of one draft apart: a text file has several at one place."""
    text = conflict.upstream if not conflict.resource else ""
    return conflict.path, conflict.resource, conflict.field, text


def _judge_main(conflict: Conflict, choice: Decision | None, sides: Sides) -> Conflict | Answer:
    now = current_value(sides.files, conflict)
    conflict = sides.named(conflict)
    there = sides.named(replace(conflict, local=now))
    asked = sides.answers
    if asked.is_kept(sides.name(conflict)) or asked.is_kept(sides.name(there)):
        return Answer(conflict, AnsweredBy.KEEP, now)
    if choice is not None:
        answer = by_policy(conflict, choice)
        return answer if answer.chosen == now else Answer(conflict, AnsweredBy.EDIT, now)
    if now == conflict.local:
        return conflict
    if now != conflict.upstream and asked.latest.get(sides.name(there)) == "":
        return there
    return Answer(conflict, AnsweredBy.EDIT, now)


def _judge_new(conflict: Conflict, choice: Decision | None, sides: Sides) -> Conflict | Answer:
    conflict, name = sides.named(conflict), sides.name(conflict)
    if choice is not None:
        return by_policy(conflict, choice)
    if sides.answers.is_kept(name):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    # A question that no commit could hold, because nothing was written, stands in the record alone.
    told = (parse_name(text) for text in sides.recorded)
    asked = {*sides.answers.asked, *(each for each in told if each is not None and each.mark)}
    if name in asked:
        return conflict
    same = (each for each in asked if each.place == name.place)
    if any(each.upstream_mark == name.upstream_mark for each in same):
        return Answer(conflict, AnsweredBy.EDIT, conflict.local)
    return conflict


def _asked_before(sides: Sides, places: Iterable[ConflictName]) -> Iterator[tuple[Conflict, str]]:
    """Yield what our newest commit names and no merge of this run finds, with the side that it tells.

    Upstream's value is the same since: else a merge of this run would have found it.
    """
    judged = set(places)
    for name, side in sorted(sides.answers.latest.items()):
        conflict = _parsed(name, sides)
        if name.place in judged or conflict is None:
            continue
        theirs, ours = (current_value(files, conflict) for files in (sides.upstream, sides.files))
        yield replace(conflict, upstream=theirs, local=ours, name=str(name)), side


def asked_conflicts(sides: Sides) -> Iterator[Conflict]:
    """Yield what our commits ask and nobody answered since: by an edit or by `Keep:`."""
    for conflict, choice in _asked_before(sides, ()):
        name = sides.name(conflict)
        if not choice and _is_unchanged(conflict, sides) and not sides.answers.is_kept(name):
            yield conflict


def _is_unchanged(conflict: Conflict, sides: Sides) -> bool:
    """Whether the draft has the value that our commit asked about, and upstream another one."""
    now = sides.name(conflict).mark.rpartition("-")[2]
    return conflict.name.rpartition("-")[2] == now and conflict.local != conflict.upstream


def _judge_asked(conflict: Conflict, choice: str, sides: Sides) -> Conflict | Answer:
    name = sides.name(conflict)
    now, before = conflict.local, sides.recorded.get(conflict.name, conflict)
    shown = replace(conflict, upstream=before.upstream, local=before.local)
    decision = sides.choose(conflict)
    if choice:
        told = (
            decision if decision is not None and decision.winner == choice else Decision(OnConflict(choice))
        )
        return Answer(shown, AnsweredBy.POLICY, now, told.policy, told.source)
    if not conflict.resource:
        return _judge_lines(conflict, sides)
    if sides.answers.is_kept(name) or any(str(each) == conflict.name for each in sides.answers.kept):
        return Answer(conflict, AnsweredBy.KEEP, now)
    if _is_unchanged(conflict, sides):
        keeps = decision is not None and decision.winner is OnConflict.LOCAL
        return by_policy(conflict, decision) if decision is not None and keeps else conflict
    return Answer(shown, AnsweredBy.EDIT, now)


def _judge_lines(conflict: Conflict, sides: Sides) -> Conflict | Answer:
    """Judge an old question about lines of a text file: the whole file answers it."""
    if any(str(name) == conflict.name or name == name.place for name in _kept_at(conflict, sides)):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    before = sides.written.get(conflict.path) if sides.written is not None else None
    if sides.written is not None and before != sides.files.get(conflict.path):
        return Answer(conflict, AnsweredBy.EDIT, conflict.local)
    return conflict


def _kept_at(conflict: Conflict, sides: Sides) -> Iterator[ConflictName]:
    place = sides.name(conflict).place
    yield from (name for name in sides.answers.kept if name.place == place)


def _parsed(name: ConflictName, sides: Sides) -> Conflict | None:
    """Return a conflict from its name, None if the name is of another package."""
    inside = f"{sides.package}/" if sides.package else ""
    path, resource, field_path = ("" if part == "-" else unquote(part) for part in name[:3])
    if not path.startswith(inside):
        return None
    kind, slash, where = resource.partition("/")
    shown = f"{kind} {where}" if slash else resource
    hidden = kind == "Secret"
    return Conflict(
        path.removeprefix(inside), shown, field_path, None, None, None, "BothChanged", hidden=hidden
    )


def conflict_choices(waiting: Iterable[Conflict], answers: Iterable[Answer]) -> Mapping[str, str]:
    """Return what our commit says of conflicts: the name of each, and the side that a policy chose."""
    found = {conflict.name: "" for conflict in waiting}
    for answer in answers:
        if answer.by is AnsweredBy.POLICY:
            upstream = answer.chosen == answer.conflict.upstream
            found[answer.conflict.name] = "upstream" if upstream else "local"
    return dict(sorted(found.items()))
