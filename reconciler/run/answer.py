"""The run of `answer`: a commit on a draft that answers conflicts, as a person would make it with Git."""

import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.errors import ConflictError, RefusedError, UsageError
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, push
from reconciler.git.trees import PackageRefusedError
from reconciler.git.working_copy import find_person
from reconciler.inventory.inventory import Draft
from reconciler.names.ids import Oid
from reconciler.names.objects import Files, tree_id
from reconciler.names.refs import short_branch
from reconciler.names.trailers import KEEP, without_mark
from reconciler.plan.changes import Change
from reconciler.read.contents import fetch_contents
from reconciler.render.answering import UpstreamFiles, set_value, take_upstream
from reconciler.render.answers import current_value
from reconciler.render.update import Conflict
from reconciler.resolve.resolution import Needs
from reconciler.run.plan import PlannedRun

_APPLY = "Run `reconciler apply`, then answer."


class Choice(StrEnum):
    """A person's answer to a conflict."""

    KEEP = "keep"
    TAKE = "take"
    VALUE = "value"


class Answered(NamedTuple):
    """Conflicts that a commit answers: the commit, its branch, and the number of others that are open."""

    conflicts: tuple[Conflict, ...]
    branch: str
    commit: Oid
    others: int


def find_conflicts(change: Change, name: str, words: str) -> tuple[Conflict, ...]:
    """Return the open conflicts of a package that words name, all of them for no words.

    A conflict is named as in its `Keep:` line, or by any of its file, resource and field.

    Raises:
        UsageError: The package has none, or the words name none.
    """
    if not change.conflicts:
        done = f" {plural(len(change.answers), 'conflict')} of it: answered." if change.answers else ""
        hint = f"`reconciler explain {name}` shows its state."
        raise UsageError(f"No conflict of {name} waits for an answer.{done}", hint=hint)
    spelled = [(conflict, tuple(_spellings(conflict, change.package.path))) for conflict in change.conflicts]
    named = tuple(conflict for conflict, names in spelled if not words or words in names)
    if not named:
        names = [place for _, (place, *_) in spelled]
        raise UsageError(f"{name} has no conflict {words}", hint=suggest(words, names))
    return named


def _spellings(conflict: Conflict, package: str) -> Iterator[str]:
    """Yield the names of a conflict: first its place."""
    file, resource = conflict.path, conflict.resource
    yield " ".join(filter(None, (file, resource, conflict.field)))
    if conflict.name:
        yield from (conflict.name, without_mark(conflict.name), f"{KEEP}: {conflict.name}")
    files = (file, file.rpartition("/")[2], f"{package}/{file}", "")
    resources = (resource, resource.replace(" ", "/"), "")
    fields = (conflict.field, conflict.field.rpartition(".")[2], "")
    for parts in ((f, r, x) for f in files for r in resources for x in fields):
        if any(parts):
            yield " ".join(filter(None, parts))


def answer_conflicts(
    planned: PlannedRun,
    change: Change,
    conflicts: Sequence[Conflict],
    choice: Choice,
    *,
    value: str = "",
    control: Path,
) -> Answered:
    """Commit an answer to the draft of a package, in the name of the person who runs this.

    Raises:
        RefusedError: The draft does not ask this yet, Git does not know who commits, or only an edit by hand
            can answer it.
        ConflictError: The draft moved meanwhile.
    """
    inventory = planned.inputs.inventory
    draft, view = _find_draft(planned, change), inventory.views[change.repository]
    person = find_person(control, int(time.time()))
    ours = (inventory.policy.commits.name, inventory.policy.commits.email)
    if person is None or (person.name, person.email) == ours:
        message = (
            "Git does not know who you are" if person is None else f"{person.email} is the reconciler's own"
        )
        hint = 'Run `git config --global user.name "Your name"`, and user.email, then answer.'
        raise RefusedError(message, hint=hint)
    mirror = planned.inputs.mirrors.open(view.remote)
    files, upstream = _read(planned, change, draft)
    for conflict in conflicts:
        if not conflict.hidden and current_value(files, conflict) != conflict.local:
            raise RefusedError(
                f"The draft has another value than the one in question: {conflict}", hint=_APPLY
            )
    before, keeps = tree_id(files), list[str]()
    for conflict in conflicts:
        answered = _answered(files, conflict, choice, value, upstream)
        # What leaves the file as it is has to be said: the value in question is there already.
        keeps += [f"{KEEP}: {conflict.name}"] if answered == files else []
        files = answered
    pack = Pack(mirror, replace(mirror.signing, read_key=None))  # the key is that of the reconciler
    root = mirror.commit(draft.tip.oid).tree
    try:
        tree = root if tree_id(files) == before else pack.patch_tree(root, draft.path, files)
    except PackageRefusedError as error:
        raise RefusedError(str(error)) from error
    message = "\n\n".join([_title(conflicts, choice), *(["\n".join(keeps)] if keeps else [])])
    commit = pack.commit(tree, (draft.tip.oid,), person, person, f"{message}\n")
    pack.save()
    (result,) = push(mirror, [RefUpdate(draft.ref, draft.tip.oid, commit)])
    branch = short_branch(draft.ref)
    if result.status is PushStatus.STALE:
        raise ConflictError(f"{branch} moved meanwhile", hint="Nothing was written. Look again, then answer.")
    if not result.ok:
        raise RefusedError(f"{branch} was refused: {result.message}", hint="Answer it in the pull request.")
    return Answered(tuple(conflicts), branch, commit, len(change.conflicts) - len(conflicts))


def _title(conflicts: Sequence[Conflict], choice: Choice) -> str:
    verb = {Choice.KEEP: "Keep", Choice.TAKE: "Take upstream's", Choice.VALUE: "Set"}[choice]
    first = conflicts[0].field or conflicts[0].resource or conflicts[0].path
    return f"{verb} {first}{f' and {len(conflicts) - 1} more' if len(conflicts) > 1 else ''}"


def _answered(files: Files, conflict: Conflict, choice: Choice, value: str, upstream: UpstreamFiles) -> Files:
    if choice is Choice.KEEP:
        return files
    return (
        take_upstream(files, conflict, upstream)
        if choice is Choice.TAKE
        else set_value(files, conflict, value, upstream)
    )


def _find_draft(planned: PlannedRun, change: Change) -> Draft:
    """Return the draft of a package, as it is in Git."""
    views = planned.inputs.inventory.views_of(change.package.url)
    drafts = [
        draft
        for view in views
        for path, package in view.packages.items()
        for draft in package.drafts
        if path == change.package.path and short_branch(draft.ref) == change.after.head
    ]
    if not drafts:
        raise RefusedError("Its draft is not written yet", hint=_APPLY)
    return drafts[0]


def _read(planned: PlannedRun, change: Change, draft: Draft) -> tuple[Files, UpstreamFiles]:
    """Return the draft's files, and those of the upstream revision and of the one that main was made from."""
    resolved = next((r for r in planned.resolution.variants if r.downstream == change.package), None)
    pins = (resolved.base, resolved.pin) if resolved is not None else (None, None)
    of_upstream = [(pin.package.url, pin.tree) for pin in pins if pin is not None]
    needs = Needs.of([(change.package.url, draft.tree), *of_upstream])
    contents = fetch_contents(needs, planned.inputs.mirrors, planned.inputs.inventory.policy.limits)
    sides = ((contents.get(pin.tree) or {}) if pin is not None else {} for pin in pins)
    return contents.get(draft.tree) or {}, UpstreamFiles(*sides)
