"""The forge's part of a plan: pull requests, after the branches are there."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from reconciler.apply.outcome import Did, Result, failure, joined
from reconciler.apply.target import Target
from reconciler.errors import ReconcilerError, UnavailableError
from reconciler.forge.faults import LimitedError, duration_text
from reconciler.forge.http import Transport
from reconciler.forge.remote import RemoteForge
from reconciler.git.files import PackageRefusedError
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.inventory import PullRequest
from reconciler.layout import HEADS
from reconciler.objects import Files
from reconciler.plan.changes import Change, Effect, WriteDraft, WriteRemoval
from reconciler.policy import Limits
from reconciler.report.diff import file_changes


def call_forge(target: Target, changes: Sequence[Change]) -> Iterator[Result]:
    """Open, update and close pull requests, one change after the other.

    One that fails does not stop the others; a limit does: what is left is left to the next run.
    """
    for index, change in enumerate(changes):
        try:
            yield _call(target, change)
        except LimitedError as error:
            left = [c for c in changes[index:] if c.pull or c.close]
            effect = Effect(
                change.repository.name, Did.OPENED, error=f"{len(left)} pull requests are left: {error}"
            )
            packages = frozenset(c.package for c in left)
            yield Result((effect,), packages, frozenset({error.exit_code}), left=len(left))
            return


def tell_left(results: Mapping[str, Result], targets: Mapping[str, Target]) -> Iterator[Effect]:
    """Yield, for each budget that ran out, how much is left and how long that will take."""
    left = Counter[Transport]()
    for url, result in results.items():
        forge = targets[url].forge
        if isinstance(forge, RemoteForge):
            left[forge.transport] += result.left
    for transport, count in left.items():
        if count:
            eta = duration_text(transport.budget.eta_s(count))
            said = f"{count} pull requests are left in all; they take about {eta}"
            yield Effect(transport.base, Did.OPENED, error=said)


def wanted(target: Target, change: Change, pull: PullRequest) -> PullRequest:
    """Return the pull request to open, its body as reviewers will read it."""
    from reconciler.report.markdown import pull_body  # noqa: PLC0415 - templates are slow to import

    files = file_changes(*_sides(target.mirror, change, pull))
    return replace(pull, body=pull_body(change, target.names, files), labels=target.labels)


def _sides(mirror: Mirror, change: Change, pull: PullRequest) -> tuple[Files, Files]:
    """Return the package as the base has it and as the pull request proposes it."""
    path, refs = change.package.path, mirror.refs()
    before = _files(mirror, refs.get(f"{HEADS}{pull.base}"), path)
    drafts = [write.files for write in change.writes if isinstance(write, WriteDraft)]
    if drafts:
        return before, drafts[-1]
    if any(isinstance(write, WriteRemoval) for write in change.writes):
        return before, {}
    return before, _files(mirror, refs.get(f"{HEADS}{pull.head}"), path)


def _files(mirror: Mirror, commit: Oid | None, path: str) -> Files:
    """Return a package at a commit; none where it cannot be read: the text does without."""
    tree = mirror.subtree(commit, path) if commit else None
    if tree is None:
        return {}
    try:
        return mirror.files(tree, Limits())
    except (PackageRefusedError, UnavailableError):
        return {}


def _call(target: Target, change: Change) -> Result:
    effects = []
    name = change.repository.name
    try:
        if change.pull:
            pull = target.forge.ensure(wanted(target, change, change.pull))
            did = Did.UPDATED if change.pull.number else Did.OPENED
            effects.append(Effect(name, did, f"#{pull.number} {pull.title}"))
        for close in change.close:
            target.forge.close(close.number, comment=close.comment)
            effects.append(Effect(name, Did.CLOSED, f"#{close.number}"))
    except LimitedError:
        raise
    except ReconcilerError as error:
        return joined([Result(tuple(effects)), failure(name, error, {change.package})])
    return Result(tuple(effects))
