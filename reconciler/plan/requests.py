"""Pull requests as they should be, compared with the open ones on every run, and which open now (D22).

A digest of everything that title and text are made of is kept in the hidden marker of the text, so a
text that was never written, or only half, is found and repaired, and a person's words are left alone.
Only opening is limited, oldest first: drafts are written, and open pull requests are kept as they should be.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.base.lazy import regex
from reconciler.base.reasons import UNWANTED, Reason
from reconciler.base.text import join_texts, plural, visible
from reconciler.inventory.inventory import HeadStatus, Inventory, PullRequest, PullState
from reconciler.names.ids import PackageKey
from reconciler.names.refs import short_branch
from reconciler.plan.changes import (
    Change,
    ClosePull,
    Op,
    PinChange,
    Postponed,
    PullRequestContent,
    UpstreamCommits,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.compose import RequestState
from reconciler.plan.context import PlanContext, PlanTarget, by_weight
from reconciler.plan.impact import Loss
from reconciler.policy import ForgeKind, GroupBy, PullRequestPolicy, ReviewRule, find_rule
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.resolve.rollout_model import RolloutPhase


class People(NamedTuple):
    """Reviewers and assignees of a pull request."""

    reviewers: tuple[str, ...]
    assignees: tuple[str, ...]


def find_people(members: Iterable[Change], context: PlanContext) -> People:
    """Return reviewers and assignees of the pull request of some packages. Order-free."""
    policy = context.inventory.policy.pull_requests
    reviewers: set[str] = set()
    assignees: set[str] = set()
    if not policy.reviews and not policy.code_owners:
        return People((), ())
    for change in members:
        for rule in _rules(change, context):
            reviewers |= set(rule.reviewers)
            assignees |= set(rule.assignees)
        # Every draft of a package changes its Kptfile: upstream, owner or both.
        owned = f"{change.package.path}/{KPTFILE}"
        reviewers |= set(find_code_owners(context.targets[change.package].view.code_owners, owned))
    return People(tuple(sorted(reviewers)), tuple(sorted(assignees)))


def _rules(change: Change, context: PlanContext) -> Iterator[ReviewRule]:
    view = context.targets[change.package].view
    variant = context.variants.get(change.variant) if change.variant else None
    set_name = variant.set_key.name if variant is not None and variant.set_key is not None else None
    for rule in context.inventory.policy.pull_requests.reviews:
        selects = compile_selector(LabelSelector.model_validate(rule.selector))
        is_set = not rule.sets or (set_name is not None and _is_named(set_name, rule.sets))
        is_repository = not rule.repositories or _is_named(view.key.name, rule.repositories)
        if is_set and is_repository and selects(view.manifest.metadata.labels or {}):
            yield rule


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_SECTION = regex(r"\^?\[([^\]]+)\](?:\[\d+\])?\s*(.*)")
_OWNER = regex(r"@([A-Za-z0-9_][A-Za-z0-9_./-]*)")


class _Entry(NamedTuple):
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


def find_code_owners(text: str, path: str) -> tuple[str, ...]:
    """Return the users and teams that own the file at `path`, sorted; a malformed line owns nothing.

    The last pattern that matches decides, in each section.

    Source: GitHub's documentation of code owners, and GitLab's for sections with default owners.
    Differs: addresses of email are left out, which no forge takes as reviewers. Gitea's file has expressions
    instead of patterns; its server asks the owners by itself.
    """
    owners: dict[str, tuple[str, ...]] = {}
    for section, entry in _parse(text):
        if entry.pattern.fullmatch(path):
            owners[section] = entry.owners
    return tuple(sorted({name for names in owners.values() for name in names}))


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[tuple[str, _Entry], ...]:
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[tuple[str, _Entry]]:
    section, default = "", _owners("")
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if header := _SECTION.fullmatch(stripped):
            section, default = header[1].lower(), _owners(header[2])
            continue
        # A space in a pattern is escaped.
        pattern, *rest = re.split(r"(?<!\\)\s+", stripped, maxsplit=1)
        expression = _expression(pattern.replace("\\ ", " ").replace("\\#", "#"))
        names = rest[0].partition("#")[0].strip() if rest else ""
        owners = _owners(names) if names else default
        if expression is not None:
            yield section, _Entry(expression, owners)


def _owners(text: str) -> tuple[str, ...]:
    return tuple(match[1] for word in text.split() if (match := _OWNER.fullmatch(word)))


def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the paths that a pattern names; None for what GitHub refuses: negation and character ranges.

    As in .gitignore a pattern with a slash inside starts at the root, and a directory is all that is below;
    but `docs/*` names only the files in it.
    """
    if pattern.startswith("!") or "[" in pattern:
        return None
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    parts = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", body)
    wild = {"**/": "(?:[^/]+/)*", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(wild.get(part) or re.escape(part) for part in parts)
    below = "/.+" if pattern.endswith("/") else "" if body.endswith("/*") else "(?:/.+)?"
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{expression}{below}", re.DOTALL)


_DIGITS = 16
_LONGEST_LABEL = 50
"""Characters of a label that every forge takes.

Source: the documentation of the REST APIs of GitHub and Gitea.
"""
_LONGEST_STATUS = 140
_TEXT_VERSION = 3
"""Another number lets every open pull request get its text anew: for when the texts themselves change."""

_TITLES = {
    Op.CREATE: "Create {name} from {to}",
    Op.ADOPT: "Adopt {name}, from {to}",
    Op.EDIT: "Change {name}, from {to}",
    Op.DELETE: "Delete {name}",
    Op.ORPHAN: "Stop managing {name}",
}


def plan_requests(
    context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Mapping[PackageKey, RequestState]:
    """Return the whole content of the pull requests of packages, wrong and double ones among them.

    A pull request that is there and not as it should be is pending work, whatever left it so: a budget
    that was spent, a write that failed or got lost.
    """
    states: dict[PackageKey, RequestState] = {}
    sharing: dict[tuple[str, str], list[_Described]] = {}
    rest: Counter[tuple[str, str]] = Counter()
    for key, change in changes.items():
        content = _describe(change, context.targets[key], context)
        if content is not None:
            states[key] = RequestState(content)
        head = change.after.head if content is not None else ""
        if head := change.pull.head if change.pull is not None else head:
            sharing.setdefault((key.url, head), []).append(_Described(change, content))
        elif change.group and key in context.downstreams:
            rest[key.url, change.group] += 1
    for (url, head), members in sorted(sharing.items(), key=lambda item: item[0]):
        states |= _states(head, members, context.inventory.pulls_of(url).at(head), context, rest[url, head])
    return states


class _Described(NamedTuple):
    """A change, and what its pull request proposes."""

    change: Change
    content: PullRequestContent | None


def is_right(there: PullRequest, planned: PullRequest) -> bool:
    """Tell whether an open pull request is as it should be. A title that a person gave it stays."""
    has_labels = not _lacks_labels(there, planned)
    has_status = planned.status is None or there.status == planned.status
    return (there.digest, there.base) == (planned.digest, planned.base) and has_labels and has_status


def _lacks_labels(there: PullRequest, planned: PullRequest) -> bool:
    # Forges differ in whether case distinguishes labels.
    labels = {label.casefold() for label in there.labels}
    return any(label.casefold() not in labels for label in planned.labels)


def lock_pull(
    planned: PullRequest,
    opened: PullRequest | None,
    inventory: Inventory,
    pins: Iterable[PinChange],
    edited: Iterable[str],
    *,
    losses: Sequence[Loss] = (),
) -> PullRequest:
    """Return the pull request of another lock or index with its labels and the digest of its text."""
    number, labels = opened.number if opened else 0, inventory.policy.pull_requests.labels
    planned = replace(planned, number=number, labels=labels)
    facts = [[[*pin] for pin in pins], sorted(edited), *([[loss.text for loss in losses]] if losses else [])]
    return replace(planned, digest=_digest(planned, facts))


def close_duplicates(first: PullRequest, pulls: Iterable[PullRequest]) -> tuple[ClosePull, ...]:
    """Return the closing of every other open pull request of the same branch; the first one stays."""
    comment = (
        f"Pull request #{first.number} proposes the same branch and was opened first; this one is closed."
    )
    return tuple(
        ClosePull(pull.number, pull.head, comment, first.number)
        for pull in sorted(pulls, key=lambda pull: pull.number)
        if pull.head == first.head and pull.state is PullState.OPEN and pull.number != first.number
    )


def _describe(change: Change, target: PlanTarget, context: PlanContext) -> PullRequestContent | None:
    """Return what the package's pull request proposes as a whole; None where that is not known."""
    is_left = change.reason is Reason.DRAFT_EDITED and change.waits
    # What is left on another branch is removed by people: branches of this path are not about it.
    if (
        change.op is Op.BLOCK
        or target.is_aside
        or (change.pull is None and (not change.reason.facts.described or is_left))
    ):
        return None
    before, draft = target.package.main_tree, target.draft
    if change.reason in {*UNWANTED, Reason.DELETED_BY_PERSON}:
        is_deletion = target.main_owner is not None or change.reason is Reason.DELETED_BY_PERSON
        is_moved = target.view.former is not None and change.variant in context.variants
        return PullRequestContent(Op.DELETE, before=before, is_moved=is_moved) if is_deletion else None
    written = change.written
    stays = draft is not None and change.op is not Op.CLOSE and draft.ref not in change.removed
    after = written.tree if written is not None else draft.tree if draft is not None and stays else None
    if after is None:
        return None
    # On a group's branch our next commit hides whose the one before it was.
    edited = draft is not None and draft.append_only and not draft.is_grouped
    if change.reason is Reason.ORPHANED:
        # A first draft that nobody asks for keeps its text: nothing of it is managed yet.
        release = PullRequestContent(Op.ORPHAN, before=before, after=after, edited=edited)
        return release if before is not None else None
    resolved = context.resolved.get(change.variant) if change.variant else None
    if resolved is None or resolved.downstream != change.package:
        return None
    # A generated package names no upstream, and its record follows the draft: what main has is not known.
    base = resolved.base if before and not cluster_of(resolved.variant.key) else None
    pin = _brought(resolved, is_written=written is not None)
    return PullRequestContent(
        kind=_kind(change, target, base, pin),
        upstream_from=base.label if base is not None else "",
        upstream_to=pin.label,
        before=before,
        after=after,
        requested_by=resolved.variant.requested_by,
        edited=edited,
        is_back=base is not None
        and base.package.path == pin.package.path
        and 0 < pin.revision < base.revision,
        upstream=UpstreamCommits(
            pin.remote, pin.package.path, base.commit.oid if base is not None else "", pin.commit.oid
        ),
        rollout=_rollout(resolved, context),
    )


def _rollout(resolved: ResolvedVariant, context: PlanContext) -> str:
    """Return the rollout and the wave of a package, and why its pull request must not be merged now."""
    key = resolved.variant.key
    rollout = context.rollouts.get(key)
    if rollout is None or rollout.phase is RolloutPhase.COMPLETE:
        return ""
    place = f"wave {rollout.waves_of[key]} of rollout {rollout.revision} of {rollout.key}"
    why = rollout.stopped.get(key)
    return f"{place}. {why}: do not merge it now" if why else place


def _brought(resolved: ResolvedVariant, *, is_written: bool) -> Pin:
    """Return the upstream of a draft: an unchanged draft may still have an older one.

    What is generated is of the lock as it is: its record follows that also where the draft need not change.
    """
    held = resolved.draft_base
    if (
        is_written
        or held is None
        or cluster_of(resolved.variant.key)
        or held.commit.oid == resolved.pin.commit.oid
    ):
        return resolved.pin
    return held


def _kind(change: Change, target: PlanTarget, base: Pin | None, pin: Pin) -> Op:
    if target.package.main_tree is None:
        return Op.CREATE
    if target.main_owner is None:
        return Op.ADOPT
    if target.main_owner != change.variant:
        return Op.TRANSFER
    return Op.EDIT if base is not None and base.commit.oid == pin.commit.oid else Op.UPDATE


def _states(
    head: str, members: Sequence[_Described], pulls: Sequence[PullRequest], context: PlanContext, rest: int
) -> Mapping[PackageKey, RequestState]:
    """Return the states of the packages of one pull request, with all that is to be written of it.

    Of a group `left` more packages stay in it as people left them.
    """
    changes = [member.change for member in members]
    closing = {close.number for change in changes for close in change.close}
    candidates = [pull for pull in pulls if pull.number not in closing]
    there = max(candidates, key=by_weight, default=None)
    opened = there if there is not None and there.state is PullState.OPEN else None
    requested = next((change.pull for change in changes if change.pull is not None), None)
    states = {member.change.package: RequestState(member.content) for member in members}
    if (opened is None and requested is None) or any(change.approve for change in changes):
        return states
    # The digest in the text tells whether the text is ours and current, without reading its words (D22).
    planned = _content(requested or opened or PullRequest(head, "", "", ""), members, context, rest)
    planned = replace(planned, redraft=_asks_again(changes, opened, planned))
    is_wrong = requested is None and opened is not None and not is_right(opened, planned)
    for number, (change, content) in enumerate(members):
        pull = planned if change.pull is not None or (is_wrong and not number) else None
        doubles = close_duplicates(opened, pulls) if opened is not None and not number else ()
        repair = ""
        if change.op is Op.KEEP and pull is not None and opened is not None:
            # What of the pull request is written anew.
            parts = ["text"] if opened.digest != planned.digest else []
            parts += ["base"] if opened.base != planned.base else []
            parts += ["labels"] if _lacks_labels(opened, planned) else []
            parts += ["status"] if planned.status is not None and opened.status != planned.status else []
            repair = f"Pull request #{opened.number} gets its {' and '.join(parts)}"
        elif change.op is Op.KEEP and doubles:
            numbers = ", ".join(f"#{double.number}" for double in doubles)
            repair = f"Pull request #{doubles[0].duplicate_of} proposes the same as {numbers}"
        states[change.package] = RequestState(content, pull, repair, doubles)
    return states


def _content(
    pull: PullRequest, members: Sequence[_Described], context: PlanContext, rest: int
) -> PullRequest:
    """Return a pull request with the title, base, labels and digest that it should have."""
    changes = [member.change for member in members]
    view = context.targets[changes[0].package].view
    is_group = bool(changes[0].group)
    title = _group_title(members, context, rest) if is_group else _title(members[0], context)
    people = find_people(changes, context)
    planned = replace(
        pull,
        title=visible(title) or pull.title,
        body="",
        base=view.branch,
        labels=_labels(changes, context),
        reviewers=people.reviewers,
        assignees=people.assignees,
        status=_status(changes, context),
        proposes=content.after or "" if len(members) == 1 and (content := members[0].content) else "",
    )
    facts = [[*_facts(*member), *_former(context.targets[member.change.package])] for member in members]
    return replace(planned, digest=_digest(planned, facts))


def _labels(members: Iterable[Change], context: PlanContext) -> tuple[str, ...]:
    """Return the labels of a pull request: those of the policy, and of the variants it is about.

    A key loses its prefix where the label is longer than a forge takes; what is too long then is left out.
    """
    labels = set(context.inventory.policy.pull_requests.labels)
    for change in members:
        resolved = context.resolved.get(change.variant) if change.variant else None
        for key, value in (resolved.variant.spec.labels or {} if resolved else {}).items():
            texts = (f"{name}={value}" if value else name for name in (key, key.rpartition("/")[2]))
            labels |= set(next(([text] for text in texts if len(text) <= _LONGEST_LABEL), []))
    return tuple(sorted(labels))


def _status(members: Sequence[Change], context: PlanContext) -> HeadStatus | None:
    """Return the status of the head: failed while something is to be answered or is not ready."""
    policy = context.inventory.policy
    name = policy.pull_requests.status
    rule = find_rule(policy.forges, context.targets[members[0].package].view.remote)
    if not name or rule is None or rule.kind is ForgeKind.LOCAL:
        return None
    conflicts = sum(len(change.conflicts) for change in members)
    unready = sorted({str(text) for change in members for text in change.unready})
    if conflicts:
        return HeadStatus(name, passed=False, text=f"{conflicts} conflict{'s' * (conflicts > 1)} to answer")
    if unready:
        return HeadStatus(
            name, passed=False, text=f"Not ready: {join_texts('; ', unready)}"[:_LONGEST_STATUS]
        )
    return HeadStatus(name, passed=True, text="Ready to be reviewed")


def _group_title(members: Sequence[_Described], context: PlanContext, rest: int) -> str:
    """Return the title for a group: what it does to how many packages, `rest` included, and deletes."""
    deleted = [m for m in members if m.content is not None and m.content.kind is Op.DELETE]
    changes = [member.change for member in members if member not in deleted]
    is_new = all(context.targets[change.package].package.main_tree is None for change in changes)
    verb, wave = "Create" if is_new else "Update", ""
    keys = [change.variant for change in changes if change.variant]
    rollout = context.rollouts.get(keys[0]) if keys else None
    is_back = rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK
    if rollout is not None and (is_back or context.inventory.policy.pull_requests.group_by is GroupBy.WAVE):
        verb = "Roll back" if is_back else verb
        wave = f" of wave {rollout.waves_of[keys[0]]}, rollout {rollout.revision}"
    parts = [f"{verb} {plural(len(changes) + rest, 'package')}{wave}"] if changes else []
    if deleted:
        first = deleted[0].change.package
        name = package_name(context.targets[first].view, first.path)
        what = name if len(deleted) == 1 else plural(len(deleted), "package")
        parts.append(f"{'delete' if parts else 'Delete'} {what}")
    return " and ".join(parts)


def _title(member: _Described, context: PlanContext) -> str:
    """Return the title for one package, "" where nothing is known."""
    first, request = member
    if request is None:
        return ""
    name = package_name(context.targets[first.package].view, first.package.path)
    old, new = request.upstream_from, request.upstream_to
    if request.kind is Op.UPDATE and request.is_back:
        return f"Roll {name} back from {old} to {new}"
    if request.kind is Op.TRANSFER:
        moves = f", and update it from {old} to {new}" if old and old != new else ""
        return f"Hand over {name} to {first.variant}{moves}"
    if request.kind is Op.UPDATE:
        return f"Update {name} from {old} to {new}" if old and old != new else f"Update {name} to {new}"
    return _TITLES[request.kind].format(name=name, to=new)


def _facts(change: Change, request: PullRequestContent | None) -> list[object]:
    """Return what the text about a package is made of; what only the last run knows is no part of it."""
    if request is None:
        return [change.package.path, change.reason, change.message]
    return [
        change.package.path,
        request.kind,
        request.upstream_from,
        request.upstream_to,
        request.before,
        request.after,
        request.requested_by,
        request.edited,
        str(change.variant or ""),
        change.location.path if change.location else "",
        # Without the base and the values of a chart: a later run may not know them any more.
        sorted(map(_asked, change.conflicts), key=str),
        sorted(
            ([*_asked(a.conflict), a.chosen, str(a.by), a.policy, a.source] for a in change.answers), key=str
        ),
        change.unready,
        *([request.rollout] if request.rollout else []),
        *([request.is_moved] if request.is_moved else []),
        *([[loss.text, loss.replacement] for loss in change.losses]),
        *([sorted(str(judgement.text) for judgement in change.judgements)] if change.judgements else []),
    ]


def _asked(conflict: Conflict) -> list[str | None]:
    sides = (conflict.upstream, conflict.local, conflict.resource, conflict.name)
    return [conflict.path, conflict.field, *sides]


def _former(target: PlanTarget) -> list[object]:
    """Return what a package is called where no Repository is any more, and why, without the commit."""
    name, former = target.view.key.name, target.view.former
    if former is None:
        return []
    return [[name, former.reason, "" if former.reason is Reason.PLACE_GONE else former.message]]


def _digest(planned: PullRequest, facts: Sequence[object]) -> str:
    value = [_TEXT_VERSION, planned.title, sorted(planned.labels), facts]
    if planned.reviewers or planned.assignees:
        value.append([planned.reviewers, planned.assignees])
    return hashlib.sha256(orjson.dumps(value)).hexdigest()[:_DIGITS]


def _asks_again(members: Sequence[Change], opened: PullRequest | None, planned: PullRequest) -> bool:
    """Tell whether a ready pull request gets conflicts or unmet gates that its reviewers have not seen."""
    if opened is None or opened.draft or not any(c.conflicts or c.unready for c in members):
        return False
    is_written = any(change.written is not None for change in members)
    return is_written or opened.digest not in {"", planned.digest}


Head = tuple[str, str]
"""A repository's URL and the branch of a pull request."""


class _Counts(Struct):
    """Pull requests that are open or to be opened, and those that this run opens."""

    opened: Counter[str]
    new: Counter[str] = field(default_factory=Counter)

    def exceeded(self, url: str, policy: PullRequestPolicy) -> str:
        """Return the setting that one more pull request of a repository would exceed, "" for none."""
        limits = {
            "maxOpen": (policy.max_open, self.opened.total()),
            "maxOpenPerRepository": (policy.max_open_per_repository, self.opened[url]),
            "maxNew": (policy.max_new, self.new.total()),
            "maxNewPerRepository": (policy.max_new_per_repository, self.new[url]),
        }
        return next((f"{name} is {most}" for name, (most, count) in limits.items() if 0 < most <= count), "")


def postpone_requests(
    context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Mapping[PackageKey, Postponed]:
    """Return the packages with a pull request that limits or the schedule forbid to open now, and why.

    What waits is pending: the next plan has it again, before anything newer. Order-free. A rollback waits for
    no limit. What a paused or failed rollout keeps from being merged is not opened either.
    """
    policy = context.inventory.policy.pull_requests
    limits = (policy.max_open, policy.max_open_per_repository, policy.max_new, policy.max_new_per_repository)
    opened: dict[Head, list[Change]] = {}
    for change in changes.values():
        if change.pull is not None and not change.pull.number:
            opened.setdefault((change.package.url, change.pull.head), []).append(change)
    postponed: dict[Head, Postponed] = {}
    if any(limits) or not context.inventory.opening.is_open:
        rollouts = context.rollouts.items()
        back = {key for key, rollout in rollouts if rollout.phase is RolloutPhase.ROLLED_BACK}
        ages = {
            head: max(_age(change, head, context) for change in some if change.variant not in back)
            for head, some in opened.items()
            if any(change.variant not in back for change in some)
        }
        limited = [change for change in changes.values() if change.variant not in back]
        postponed = _postponed(context, ages, limited)
    for head, some in opened.items():
        variant = some[0].variant
        if variant and all(change.variant in context.stopped for change in some):
            postponed[head] = Postponed(Reason.AWAITING_WAVE, context.stopped[variant])
    return {c.package: postponed[head] for head, some in opened.items() if head in postponed for c in some}


def _postponed(
    context: PlanContext, ages: Mapping[Head, tuple[bool, int]], changes: Sequence[Change]
) -> dict[Head, Postponed]:
    """Return what limits or the schedule forbid; by age: branches that are there come first."""
    policy, opening = context.inventory.policy.pull_requests, context.inventory.opening
    if not opening.is_open:
        message = "Its pull request waits for pullRequests.schedule"
        return dict.fromkeys(ages, Postponed(Reason.AWAITING_SCHEDULE, message, opening.opens))
    counts = _Counts(_count_open(context, changes))
    postponed: dict[Head, Postponed] = {}
    for head in sorted(ages, key=lambda head: (ages[head], head)):
        url, _ = head
        limit = counts.exceeded(url, policy)
        if limit:
            message = f"Its pull request waits: pullRequests.{limit}"
            postponed[head] = Postponed(Reason.RATE_LIMITED, message, opening.opens)
        else:
            counts.opened[url] += 1
            counts.new[url] += 1
    return postponed


def _age(change: Change, head: Head, context: PlanContext) -> tuple[bool, int]:
    """Return whether the branch is still to be made, and the time of its newest input, in seconds."""
    target = context.targets[change.package]
    _, branch = head
    draft = target.draft if target.draft is not None and short_branch(target.draft.ref) == branch else None
    standing = draft.tip if draft is not None else target.view.branches.get(branch)
    if standing is not None:
        return False, standing.time
    written = (w for w in change.writes if isinstance(w, WriteDraft | WriteGroup | WriteRemoval))
    return True, max((write.time for write in written if short_branch(write.ref) == branch), default=0)


def _count_open(context: PlanContext, changes: Sequence[Change]) -> Counter[str]:
    """Count the open pull requests of this instance by repository, without those that close now."""
    ours = {(key.url, short_branch(d.ref)) for key, target in context.targets.items() for d in target.drafts}
    prefix = f"reconciler/{context.inventory.policy.instance}/"
    closing = {(change.package.url, close.number) for change in changes for close in change.close}
    return Counter(
        url
        for url, pulls in context.inventory.pulls.items()
        for pull in pulls
        if pull.state is PullState.OPEN
        and ((url, pull.head) in ours or pull.head.startswith(prefix))
        and (url, pull.number) not in closing
    )
