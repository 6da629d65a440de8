"""The forge's part of a plan: pull requests, after the branches are there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.links import known_bases, local_origins, unmade_files
from reconciler.apply.outcome import EffectKind, Result, Target, failed_result, merge_results
from reconciler.base.defects import DefectError, guard
from reconciler.base.effects import StoppedError
from reconciler.base.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.base.text import plural, verb
from reconciler.forge.api.forge import ApiForge, has_issues
from reconciler.forge.http import Transport
from reconciler.forge.local.forge import LocalForge, LocalMerge
from reconciler.forge.registry import Forge
from reconciler.git.trees import PackageRefusedError
from reconciler.http.client import LimitedError, duration_text
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.names.refs import HEADS, is_group
from reconciler.plan.changes import Approval, Change, Effect, LockProposal, Unfinished, WriteRemoval
from reconciler.plan.impact import ImpactReader
from reconciler.policy import Limits, RiskPolicy

_COMPARING: Final = Lock()
"""Repositories are written side by side: of those with equal changes one compares them, the others wait."""


class PullRequestTexts:
    """The pull requests of one repository's changes: several changes may share one."""

    def __init__(self, changes: Sequence[Change], risks: RiskPolicy | None = None) -> None:
        self._impacts = ImpactReader(risks or RiskPolicy())
        self._groups: dict[str, list[Change]] = {}
        self._made: dict[str, PullRequest] = {}
        for change in changes:
            if change.group:
                self._groups.setdefault(change.group, []).append(change)

    def sharing(self, change: Change) -> set[PackageKey]:
        """Return the packages that the pull request of a change is about."""
        return {change.package, *(member.package for member in self._groups.get(change.group, ()))}

    def wanted(self, target: Target, change: Change, pull: PullRequest) -> PullRequest:
        """Return the pull request to open, its body as reviewers will read it; one that it has stays."""
        if pull.head not in self._made:
            body = target.texts.get(pull.head) or pull.body or self._body(target, change, pull)
            difference = target.links.whole_difference(target.mirror, pull.base, pull.head)
            pull = replace(pull, body=body, difference=difference)
            if pull.status is not None:
                pull = replace(pull, head_oid=target.mirror.refs().get(f"{HEADS}{pull.head}", ""))
            self._made[pull.head] = pull
        return self._made[pull.head]

    def _body(self, target: Target, change: Change, pull: PullRequest) -> str:
        from reconciler.report.markdown import group_body, pull_body  # noqa: PLC0415 - templates are slow to import

        members = self._groups[change.group] if change.group else [change]
        files, described, links, upstream = {}, [], {}, {}
        for member in members:
            before, after = _sides(target, member, pull)
            unmade = unmade_files(target.log.mirrors, member, target.log.limits) if target.log else {}
            with _COMPARING:
                differences = target.differences.changes(before, after, member.own_names, unmade)
                files[member.package] = differences
            links[member.package] = dict(target.links.of(member, target.mirror, pull.base))
            commits = member.request.upstream if member.request else None
            upstream[member.package] = target.log.changes(commits) if target.log else ()
            impact = member.impact or self._impacts.impact(before, after, ())
            described.append(replace(member, impact=impact))
        difference = target.links.whole_difference(target.mirror, pull.base, pull.head)
        if is_group(f"{HEADS}{change.group}"):
            return group_body(described, target.names, files, links, difference, upstream=upstream)
        (single,) = described
        origins = local_origins(target.mirror, pull.base, single)
        return pull_body(
            known_bases(single, origins),
            target.names,
            files[change.package],
            links=links[change.package],
            difference=difference,
            upstream=upstream[change.package],
            origins=origins,
            boxes=has_issues(target.forge),
        )


def call_forge(target: Target, changes: Sequence[Change], requests: PullRequestTexts) -> Iterator[Result]:
    """Open, update and close pull requests, one change after the other; one that several share once.

    One that fails does not stop the others; a limit does, and a request to end: the rest is left to the
    next run.
    """
    for index, (change, pull) in enumerate(calls := list(_with_pulls(changes))):
        done = _Done()
        try:
            with guard(f"pull request of package {change.package}"):
                _call(target, change, pull, requests, done)
        except (LimitedError, StoppedError) as error:
            # The budget of a forge is one for all repositories: further calls would fail as well.
            yield done.result
            unwritten = [call for call, request in calls[index:] if request or call.close or call.approve]
            yield _limited(unwritten, target.names.repository(change), error)
            return
        except ReconcilerError as error:
            kind, ref = done.trying
            name, packages = target.names.repository(change), requests.sharing(change)
            yield merge_results(
                [done.result, failed_result(name, error, packages, ref, kind=kind, pushed=True)]
            )
        else:
            yield done.result


def approve_pulls(target: Target, changes: Sequence[Change]) -> Iterator[Result]:
    """Merge what a policy approves: each pull request once, and only while its head is what was judged."""
    approvals = {change.approve: change for change in changes if change.approve}
    if not approvals:
        return
    merges: Mapping[int, str | ReconcilerError]
    try:
        with guard(f"merges in {target.mirror.remote}"):
            merges = _merge_together(target, list(approvals))
    except DefectError as error:
        merges = {approval.number: error for approval in approvals}
    for index, (approval, change) in enumerate(approvals.items()):
        name, ref = target.names.repository(change), f"#{approval.number} {approval.head}"
        try:
            merge = merges.get(approval.number)
            if isinstance(merge, ReconcilerError):
                raise merge
            with guard(f"pull request {ref}"):
                kind = EffectKind.MERGED if merge else _approve(target, approval)
            yield Result((Effect(name, kind, ref),))
        except (LimitedError, StoppedError) as error:
            yield _limited(list(approvals.values())[index:], name, error)
            return
        except ReconcilerError as error:
            sharing = {other.package for other in changes if other.approve == approval}
            kind = EffectKind.AUTO_MERGE if approval.by_forge else EffectKind.MERGED
            failed = failed_result(name, error, sharing, ref, kind=kind, pushed=True)
            yield _refused(target.forge, approval, failed) if isinstance(error, RefusedError) else failed


def _refused(forge: Forge, approval: Approval, failed: Result) -> Result:
    """Return the result of a merge that a forge refused, with times for the next runs to remember it by."""
    if not isinstance(forge, ApiForge):
        return failed
    refused, changed = int(forge.transport.clock.now()), forge.changed_at(approval.number)
    unfinished = {
        package: why._replace(refused=refused, changed=changed) for package, why in failed.unfinished.items()
    }
    return failed._replace(unfinished=unfinished)


def _merge_together(target: Target, approvals: Sequence[Approval]) -> Mapping[int, str | ReconcilerError]:
    """Merge on the local forge, which takes many in one push; return the merge or the error of each."""
    if not isinstance(target.forge, LocalForge):
        return {}
    merges = [LocalMerge(approval.number, approval.expect) for approval in approvals if not approval.by_forge]
    return target.forge.approve_all(merges) if merges else {}


def _approve(target: Target, approval: Approval) -> EffectKind:
    """Merge a pull request, or let the forge merge it; return what was done."""
    if not approval.by_forge:
        merge = target.forge.approve(approval.number, expect=approval.expect)
        return EffectKind.MERGED if merge else EffectKind.QUEUED
    is_merged = target.forge.enable_auto_merge(approval.number, expect=approval.expect)
    return EffectKind.MERGED if is_merged else EffectKind.AUTO_MERGE


def _with_pulls(changes: Iterable[Change]) -> Iterator[tuple[Change, PullRequest | None]]:
    """Yield the changes, each pull request with the first of those that share it."""
    heads: set[str] = set()
    for change in changes:
        pull = change.pull if change.pull and change.pull.head not in heads else None
        heads |= {pull.head} if pull else set()
        yield change, pull


def _limited(rest: Sequence[Change], repository: str, error: LimitedError | StoppedError) -> Result:
    """Return what a limit, or the end of the run, leaves to the next one."""
    count = f"{plural(len(rest), 'pull request')} {verb(len(rest), 'is', 'are')} left"
    message = f"{count}: {error}"
    effect = Effect(repository, EffectKind.OPENED, error=message, hint=error.hint, is_left=True)
    why = Unfinished(str(error), error.hint, pushed=True, is_left=True)
    packages = {change.package: why for change in rest}
    return Result((effect,), packages, frozenset({error.exit_code}), remaining=len(rest))


def remaining_effects(results: Mapping[str, Result], targets: Mapping[str, Target]) -> Iterator[Effect]:
    """Yield, for each budget that ran out, how much is left and how long that will take."""
    remaining = Counter[Transport]()
    for url, result in results.items():
        forge = targets[url].forge if url in targets else None
        if isinstance(forge, ApiForge):
            remaining[forge.transport] += result.remaining
    for transport, count in remaining.items():
        if count:
            eta = duration_text(transport.budget.eta_s(count))
            pulls = f"{plural(count, 'pull request')} {verb(count, 'is', 'are')}"
            message = f"{pulls} left in all; about {eta} to go"
            yield Effect(transport.base, EffectKind.OPENED, error=message, is_left=True)


def _sides(target: Target, change: Change, pull: PullRequest) -> tuple[Files, Files]:
    """Return the package as the base has it and as the pull request proposes it."""
    path, refs = change.package.path, target.mirror.refs()
    written = change.written.files if change.written is not None else {}
    before = _files(target, refs.get(f"{HEADS}{pull.base}"), path, written)
    if written or any(isinstance(write, WriteRemoval) for write in change.writes):
        return before, written
    return before, _files(target, refs.get(f"{HEADS}{pull.head}"), path, before)


def _files(target: Target, commit: Oid | None, path: str, other: Files) -> Files:
    """Return a package at a commit; none where it cannot be read: the text does without."""
    tree = target.mirror.subtree(commit, path) if commit else None
    if tree is None:
        return {}
    if tree in target.contents:
        return target.contents[tree]
    try:
        return target.mirror.files(tree, Limits(), other)
    except (PackageRefusedError, UnavailableError):
        return {}


def _call(
    target: Target, change: Change, request: PullRequest | None, requests: PullRequestTexts, done: "_Done"
) -> None:
    """Make the calls of one change, each noted in `done` before it is made and after."""
    name = target.names.repository(change)
    if request:
        kind = EffectKind.UPDATED if request.number else EffectKind.OPENED
        done.trying = (kind, request.title)
        pull = target.forge.ensure(requests.wanted(target, change, request))
        done.opened[change.package.url, pull.head] = pull
        done.effects.append(Effect(name, kind, f"#{pull.number} {pull.title}"))
    for close in change.close:
        done.trying = (EffectKind.CLOSED, f"#{close.number}")
        target.forge.close(close.number, comment=close.comment, duplicate_of=close.duplicate_of)
        done.effects.append(Effect(name, EffectKind.CLOSED, f"#{close.number}"))


class _Done(Struct):
    """The calls of one change: the one that is being made, and what came of those before it."""

    trying: tuple[EffectKind, str] = (EffectKind.OPENED, "")
    effects: list[Effect] = field(default_factory=list)
    opened: dict[tuple[str, str], PullRequest] = field(default_factory=dict)

    @property
    def result(self) -> Result:
        """The sum of the calls that were made."""
        return Result(tuple(self.effects), opened=self.opened)


def lock_texts(proposal: LockProposal | None) -> Mapping[str, str]:
    """Return the text of the pull request of a lock, by its head; none where no pull request is written."""
    pull = proposal.change.pull if proposal is not None else None
    if proposal is None or pull is None:
        return {}
    from reconciler.report.markdown import lock_body  # noqa: PLC0415 - templates are slow to import

    return {pull.head: lock_body(proposal)}
