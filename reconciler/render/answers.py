"""Classify the conflicts of a draft as open or answered, by their current values and the commits (D10).

Stateless: the result follows from the two merges, the values in the draft, and the commit messages on its
branch. So it is the same after a lost state, a squash or a rebase.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from urllib.parse import unquote

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.functions.resources import RESOURCE_ENDINGS
from reconciler.functions.secrets import hides_field
from reconciler.krm.documents import ResourceDocument, documents_of
from reconciler.krm.merge import Node, path_text, root_of
from reconciler.names.objects import File, Files
from reconciler.names.trailers import Answers, ConflictName, conflict_name, parse_name, value_mark
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, ConflictDecision
from reconciler.render.update.conflicts import REPLACED, SUBPACKAGE
from reconciler.render.update.sides import file_text, is_text

FoundConflict = tuple[Conflict, ConflictDecision | None]
"""A conflict of a merge, and the decision of a policy; None if no policy decides it."""


class AnsweredBy(StrEnum):
    """The kind of an answer to a conflict."""

    EDIT = "edit"
    POLICY = "policy"
    KEEP = "keep"


class Answer(Struct, frozen=True):
    """An answered conflict; `chosen` is the value in the draft.

    `policy` is the policy that answered it, as it is written, and `source` the file or object that has it.
    """

    conflict: Conflict
    by: AnsweredBy
    chosen: str | None
    policy: str = ""
    source: str = ""

    @property
    def dropped(self) -> str | None:
        """The side that the draft has not: local's where it has upstream's value, else upstream's."""
        return self.conflict.local if self.chosen == self.conflict.upstream else self.conflict.upstream


class DraftContext(Struct, frozen=True):
    """The state of a draft that classifies its conflicts."""

    package: str
    """Path of the package in the repository."""
    commit: str
    """The upstream commit; it replaces the value in the name of a hidden conflict."""
    answers: Answers
    files: Files
    """The draft as it will be."""
    upstream: Files
    """The package that is merged into the draft."""
    choose: Callable[[Conflict], ConflictDecision | None]
    """Returns the decision of a policy."""
    written: Files | None = None
    """The draft as we wrote it last."""
    recorded: Mapping[str, Conflict] = field(default_factory=dict)
    """Conflicts by name as they were last: a value that a merge dropped is in no file any more."""

    def name(self, conflict: Conflict) -> ConflictName:
        """Return the name of a conflict: another value on either side gives another name."""
        theirs = value_mark(self.commit if self.is_hidden(conflict) else conflict.upstream)
        mark = f"{theirs}-{value_mark(conflict.local)}"
        return conflict_name(self.package, conflict.path, conflict.resource, conflict.field, mark)

    def named(self, conflict: Conflict) -> Conflict:
        """Return a conflict with its name."""
        return replace(conflict, name=str(self.name(conflict)), hidden=self.is_hidden(conflict))

    def is_hidden(self, conflict: Conflict) -> bool:
        """Return whether a conflict is about a Secret, or a value of one, in the merge or in the draft."""
        values = (conflict.base, conflict.upstream, conflict.local)
        sides = (self.files, self.upstream, self.written or {})
        return conflict.hidden or hides_field(sides, conflict.path, conflict.field, *values)


Classified = tuple[tuple[Conflict, ...], tuple[Answer, ...]]
"""The conflicts of a draft: open ones, which wait for a person, and answered ones."""


def classify_conflicts(
    main: Iterable[FoundConflict], new: Iterable[FoundConflict], context: DraftContext
) -> Classified:
    """Classify each conflict of a draft that people committed to by itself.

    Args:
        main: Conflicts between upstream and main.
        new: Conflicts of this run's merges into the draft: no edit can have answered them, unless our commits
            asked before about the same value of the other side.
        context: The state of the draft.
    """
    results: dict[object, Conflict | Answer] = {}
    for conflict, decision in main:
        results[_key(conflict)] = _classify_main(conflict, decision, context)
    # A conflict of this run replaces the same one of main: its local value is the one in the draft.
    for conflict, decision in new:
        results[_key(conflict)] = _classify_new(conflict, decision, context)
    every = (result if isinstance(result, Conflict) else result.conflict for result in results.values())
    places = {context.name(conflict).without_mark for conflict in every}
    for conflict, side in _asked_before(context, places):
        results[_key(conflict)] = _classify_asked(conflict, side, context)
    conflicts, answers = _parted(results.values())
    return tuple(sorted(conflicts)), tuple(sorted(answers, key=lambda answer: answer.conflict))


def _parted(results: Iterable[Conflict | Answer]) -> Classified:
    """Return classified conflicts, each kind in the given order."""
    every = tuple(results)
    conflicts = tuple(outcome for outcome in every if isinstance(outcome, Conflict))
    return conflicts, tuple(outcome for outcome in every if isinstance(outcome, Answer))


def classify_fresh(conflicts: Iterable[FoundConflict], context: DraftContext) -> Classified:
    """Classify the conflicts of a draft without commits of people: it has the local values."""
    return _parted(_classify_fresh(conflict, decision, context) for conflict, decision in conflicts)


def classify_delivery(conflicts: Iterable[Conflict], context: DraftContext) -> Classified:
    """Classify the conflicts of generated files that people changed."""
    return _parted(_classify_new(conflict, None, context) for conflict in conflicts)


def _classify_fresh(
    conflict: Conflict, decision: ConflictDecision | None, context: DraftContext
) -> Conflict | Answer:
    conflict = context.named(conflict)
    if context.answers.is_kept(context.name(conflict)):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    return conflict if decision is None else _by_policy(conflict, decision)


def _by_policy(conflict: Conflict, decision: ConflictDecision) -> Answer:
    chosen = conflict.upstream if decision.winner is OnConflict.UPSTREAM else conflict.local
    return Answer(conflict, AnsweredBy.POLICY, chosen, decision.policy, decision.source)


def _key(conflict: Conflict) -> object:
    """Return the identity of a conflict in one draft: a text file has several at one place."""
    text = conflict.upstream if not conflict.resource else ""
    return *conflict.place, text


def _classify_main(
    conflict: Conflict, decision: ConflictDecision | None, context: DraftContext
) -> Conflict | Answer:
    now = current_value(context.files, conflict)
    conflict = context.named(conflict)
    current = context.named(replace(conflict, local=now))
    answers = context.answers
    if answers.is_kept(context.name(conflict)) or answers.is_kept(context.name(current)):
        return Answer(conflict, AnsweredBy.KEEP, now)
    if decision is not None:
        answer = _by_policy(conflict, decision)
        return answer if answer.chosen == now else Answer(conflict, AnsweredBy.EDIT, now)
    taken = context.named(replace(conflict, upstream=conflict.local, local=now))
    if now == conflict.upstream and answers.latest.get(context.name(taken)) == "":
        return taken  # our commit took upstream's value, and asked whether it is better than main's
    if now == conflict.local:
        return conflict
    if now != conflict.upstream and answers.latest.get(context.name(current)) == "":
        return current
    return Answer(conflict, AnsweredBy.EDIT, now)


def _classify_new(
    conflict: Conflict, decision: ConflictDecision | None, context: DraftContext
) -> Conflict | Answer:
    conflict, name = context.named(conflict), context.name(conflict)
    if decision is not None:
        return _by_policy(conflict, decision)
    if context.answers.is_kept(name):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    # A run that writes no commit can ask in the record alone.
    recorded = (parse_name(text) for text in context.recorded)
    questions = {*context.answers.named, *(name for name in recorded if name is not None and name.mark)}
    if name in questions:
        return conflict
    same_place = (question for question in questions if question.without_mark == name.without_mark)
    if any(question.upstream_mark == name.upstream_mark for question in same_place):
        return Answer(conflict, AnsweredBy.EDIT, conflict.local)
    return conflict


def _asked_before(context: DraftContext, places: Iterable[ConflictName]) -> Iterator[tuple[Conflict, str]]:
    """Yield the conflicts of our newest commit that no merge of this run finds, with the side named there.

    Upstream's value is the same since: else a merge of this run would have found the conflict.
    """
    classified = set(places)
    for name, side in sorted(context.answers.latest.items()):
        conflict = _parse_conflict(name, context)
        # Names of other packages in the same commit are not conflicts of this draft.
        if name.without_mark in classified or conflict is None:
            continue
        theirs, ours = (current_value(files, conflict) for files in (context.upstream, context.files))
        hidden = context.is_hidden(conflict)
        yield replace(conflict, upstream=theirs, local=ours, name=str(name), hidden=hidden), side


def asked_conflicts(context: DraftContext) -> Iterator[Conflict]:
    """Yield the questions of our commits without an answer since: neither an edit nor `Keep:`."""
    for conflict, side in _asked_before(context, ()):
        name = context.name(conflict)
        if not side and _is_unchanged(conflict, context) and not context.answers.is_kept(name):
            yield conflict


def _is_unchanged(conflict: Conflict, context: DraftContext) -> bool:
    """Return whether the draft still has the value that our commit asked about, and upstream another one."""
    now = context.name(conflict).mark.rpartition("-")[2]
    return conflict.name.rpartition("-")[2] == now and conflict.local != conflict.upstream


def _classify_asked(conflict: Conflict, side: str, context: DraftContext) -> Conflict | Answer:
    now, before = conflict.local, context.recorded.get(conflict.name, conflict)
    question = replace(conflict, upstream=before.upstream, local=before.local)
    decision = context.choose(conflict)
    if side:
        is_same = decision is not None and decision.winner == side
        chosen = decision if decision is not None and is_same else ConflictDecision(OnConflict(side))
        return Answer(question, AnsweredBy.POLICY, now, chosen.policy, chosen.source)
    if not conflict.resource:
        return _classify_lines(conflict, context)
    answers = context.answers
    if answers.is_kept(context.name(conflict)) or any(str(name) == conflict.name for name in answers.keeps):
        return Answer(conflict, AnsweredBy.KEEP, now)
    if _is_unchanged(conflict, context):
        keeps = decision is not None and decision.winner is OnConflict.LOCAL
        return _by_policy(conflict, decision) if decision is not None and keeps else conflict
    return Answer(question, AnsweredBy.EDIT, now)


def _classify_lines(conflict: Conflict, context: DraftContext) -> Conflict | Answer:
    """Classify an old question about lines of a text file: any edit of the file answers it."""
    without_mark = context.name(conflict).without_mark
    keeps = [name for name in context.answers.keeps if name.without_mark == without_mark]
    if any(str(name) == conflict.name or name == name.without_mark for name in keeps):
        return Answer(conflict, AnsweredBy.KEEP, conflict.local)
    before = context.written.get(conflict.path) if context.written is not None else None
    if context.written is not None and before != context.files.get(conflict.path):
        return Answer(conflict, AnsweredBy.EDIT, conflict.local)
    return conflict


def _parse_conflict(name: ConflictName, context: DraftContext) -> Conflict | None:
    prefix = f"{context.package}/" if context.package else ""
    path, resource, field_path = ("" if part == "-" else unquote(part) for part in name[:3])
    if not path.startswith(prefix):
        return None
    kind, slash, where = resource.partition("/")
    resource_name = f"{kind} {where}" if slash else resource
    path = path.removeprefix(prefix)
    return Conflict(path, resource_name, field_path, None, None, None, "BothChanged", hidden=kind == "Secret")


def conflict_choices(conflicts: Iterable[Conflict], answers: Iterable[Answer]) -> Mapping[str, str]:
    """Return the name of each conflict for our commit message, with the side that a policy chose, else ""."""
    choices = {conflict.name: "" for conflict in conflicts}
    for answer in answers:
        if answer.by is AnsweredBy.POLICY:
            is_upstream = answer.chosen == answer.conflict.upstream
            choices[answer.conflict.name] = "upstream" if is_upstream else "local"
    return dict(sorted(choices.items()))


_WHOLE = ("BothAdded", "DeletedUpstream", "DeletedLocally", REPLACED)


def current_value(files: Files, conflict: Conflict) -> str | None:
    """Return the current text of the value of a conflict, None if it is absent. Total.

    A resource is searched in its file first, then in every other. For a text file it is the side of the
    conflict that the file still contains, else all of its text.
    """
    if conflict.resource == SUBPACKAGE:
        inside = f"{conflict.path}/"
        return "package" if any(path.startswith(inside) for path in files) else None
    if not conflict.resource:
        return _text_value(files.get(conflict.path), conflict)
    document = find_document(files, conflict)
    if document is None:
        return None
    if not conflict.field:
        return document.text
    root = root_of(document.tree)
    node = next(_nodes_at(root, conflict.field), None) if root is not None else None
    return None if node is None else node.as_value().text


def _text_value(file: File | None, conflict: Conflict) -> str | None:
    if file is None:
        return None
    text = file_text(file) or ""
    if conflict.reason in _WHOLE or conflict.local is None or not is_text(file):
        return text
    for side in (conflict.local, conflict.upstream):
        if side and side in text:
            return side
    return text if conflict.local else conflict.local


def find_document(files: Files, conflict: Conflict) -> ResourceDocument | None:
    """Return the resource of a conflict, None if the package has none of its name."""
    if not conflict.resource:
        return None
    first = [conflict.path] if conflict.path in files else []
    for path in [*first, *(path for path in sorted(files) if path != conflict.path)]:
        if not path.endswith((*RESOURCE_ENDINGS, ".json", "Kptfile")):
            continue
        for document in documents_of(files[path]):
            if _is_resource_of(document, conflict, path):
                return document
    return None


def _is_resource_of(document: ResourceDocument, conflict: Conflict, path: str) -> bool:
    if conflict.resource == "Kptfile":
        return path == conflict.path
    return str(document.identity) == conflict.resource


def _nodes_at(node: Node, rest: str) -> Iterator[Node]:
    """Yield the nodes at a path, spelled as by `path_text`, below `node`."""
    if not rest:
        yield node
        return
    if rest.startswith("["):
        # A value may hold brackets itself, so every closing one may end the step.
        ends = [index for index, letter in enumerate(rest) if letter == "]"]
        for end in ends:
            keys = rest[1:end]
            for item in node.items:
                if has_keys(item, keys):
                    yield from _nodes_at(item, rest[end + 1 :])
        return
    rest = rest.removeprefix(".")
    for name, value in node.children.items():
        step = path_text((name,)) if not name.startswith("[") else name
        if rest.startswith(step) and rest[len(step) : len(step) + 1] in ("", ".", "["):
            yield from _nodes_at(value, rest[len(step) :])


def has_keys(item: Node, keys: str) -> bool:
    """Tell whether an item of a list is the one that a step of a field path names, as `name=app`."""
    if keys.startswith("="):
        return item.is_scalar and item.text == keys[1:]
    if not item.is_mapping:
        return False
    texts = {name: value.text for name, value in item.children.items() if value.is_scalar}
    name, _, value = keys.partition("=")
    if name == "function":
        return any(part and value.startswith(part) for part in texts.values()) or value in texts.values()
    return all(
        texts.get(key) in (text, None) for key, _, text in (pair.partition("=") for pair in keys.split(","))
    ) and bool(texts.keys() & {pair.partition("=")[0] for pair in keys.split(",")})
