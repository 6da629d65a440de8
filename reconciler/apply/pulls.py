"""The forge's part of a plan: pull requests, after the branches are there."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from reconciler.apply.outcome import Did, Result, failure, joined
from reconciler.apply.target import Target
from reconciler.errors import ReconcilerError
from reconciler.forge.faults import LimitedError, duration_text
from reconciler.forge.http import Transport
from reconciler.forge.remote import RemoteForge
from reconciler.inventory import PullRequest
from reconciler.plan.changes import Change, Effect
from reconciler.report.markdown import pull_body
from reconciler.report.summary import Names


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


def wanted(change: Change, pull: PullRequest, names: Names) -> PullRequest:
    """Return the pull request to open, its body as reviewers will read it."""
    return replace(pull, body=pull_body(change, names))


def _call(target: Target, change: Change) -> Result:
    effects = []
    name = change.repository.name
    try:
        if change.pull:
            asked = replace(wanted(change, change.pull, target.names), labels=target.labels)
            pull = target.forge.ensure(asked)
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
