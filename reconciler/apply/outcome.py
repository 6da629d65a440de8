"""Preconditions of writing, and the results of effects per repository."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.apply.links import NO_LINKS, Links, UpstreamLog
from reconciler.base import effects
from reconciler.base.defects import DefectError
from reconciler.base.errors import Exit, ReconcilerError, RefusedError
from reconciler.forge.registry import Forge
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Control, PullRequest
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import Oid, PackageKey
from reconciler.plan.changes import Effect, Plan, Unfinished
from reconciler.policy import CommitPolicy, RiskPolicy
from reconciler.report.diff import DifferenceReader
from reconciler.report.report import Names


class EffectKind(StrEnum):
    """Kind of an effect, as reports name it."""

    PUSHED = "pushed"
    DELETED = "deleted"
    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"
    AUTO_MERGE = "auto-merge"
    QUEUED = "queued"
    RECORDED = "recorded"


class Result(NamedTuple):
    """Result for one repository: effects in order, packages with missing effects, classes of exit.

    `remaining` counts the pull requests that a budget left to the next run, `opened` are those that were
    opened or updated, by URL and head.
    """

    effects: tuple[Effect, ...] = ()
    unfinished: Mapping[PackageKey, Unfinished] = MappingProxyType({})
    exits: frozenset[Exit] = frozenset()
    remaining: int = 0
    opened: Mapping[tuple[str, str], PullRequest] = MappingProxyType({})

    @property
    def failed(self) -> frozenset[PackageKey]:
        """The packages of which some effect was not done."""
        return frozenset(self.unfinished)


def merge_results(results: Iterable[Result]) -> Result:
    """Return the sum of results, their effects in the same order."""
    every = list(results)
    return Result(
        tuple(effect for result in every for effect in result.effects),
        {package: why for result in reversed(every) for package, why in result.unfinished.items()},
        frozenset(code for result in every for code in result.exits),
        sum(result.remaining for result in every),
        {head: pull for result in every for head, pull in result.opened.items()},
    )


def failed_result(
    repository: str,
    error: ReconcilerError,
    packages: Iterable[PackageKey],
    ref: str = "",
    *,
    kind: EffectKind = EffectKind.PUSHED,
    pushed: bool = False,
) -> Result:
    """Return the result of something that could not be done: named, so that the rest can proceed.

    `pushed` tells whether the refs of these packages moved as planned.
    """
    if isinstance(error, DefectError) and effects.is_shutting_down():
        error = effects.StoppedError()  # a signal interrupts calls of the system, and libgit2 fails with that
    effect = Effect(repository, kind, ref, error=str(error), hint=error.hint, cause=error.cause)
    why = Unfinished(str(error), error.hint, pushed=pushed)
    return Result((effect,), dict.fromkeys(packages, why), frozenset({error.exit_code}))


class Target(Struct, frozen=True):
    """A repository to write to: its mirror, its forge, commits, names of packages, and classes of risks.

    Targets of one run share the readers of differences and of upstream commits. `texts` are those of pull
    requests that are about no package, by their heads.
    """

    mirror: Mirror
    forge: Forge
    policy: CommitPolicy
    names: Names
    risks: RiskPolicy = RiskPolicy()
    links: Links = NO_LINKS
    differences: DifferenceReader = field(default_factory=DifferenceReader)
    log: UpstreamLog | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


_LEAST = 7
"""Digits of a checksum that name a plan, as git takes ids of commits."""


def check_applicable(plan: Plan, *, checksum: str, control: Control, default_branch: str) -> None:
    """Refuse a plan that must not be applied. Deletions without consent are no part of it any more.

    Raises:
        RefusedError: The first reason that applies; nothing was written.
    """
    if checksum and not (len(checksum) >= _LEAST and plan.checksum.startswith(checksum)):
        if len(checksum) < _LEAST:
            raise RefusedError(
                f"{checksum} is too short for a checksum", hint=f"Give {_LEAST} digits or more."
            )
        raise RefusedError(
            f"The plan now is {plan.short_checksum}, not the one that was reviewed",
            hint="Something changed since: review the plan above, then pass its checksum.",
        )
    check_checkout(Checkout.of(control), default_branch)


class Checkout(NamedTuple):
    """The commit of the control repository that a run reads; `published` if its remote has it.

    `standing` is its position against the default branch and what was applied last.
    """

    remote: str
    commit: Oid
    branch: str
    published: bool
    standing: Standing = Standing()

    @classmethod
    def of(cls, control: Control) -> "Checkout":
        """Return what was read of the control repository."""
        return cls(control.remote, control.commit.oid, control.branch, control.published, control.standing)


def check_checkout(checkout: Checkout, default_branch: str) -> None:
    """Refuse what the control repository's default branch does not hold (D17), and what is not its tip (D28).

    A working copy may be on no branch, as in many build jobs; its commit must be merged all the same.

    Raises:
        RefusedError: Another branch is checked out, a commit that was not pushed or not merged, an older one
            than the tip, or a tip that was moved back.
    """
    # Build jobs check out a commit without a branch: then only the commit itself must be merged.
    if checkout.branch and default_branch and checkout.branch != default_branch:
        raise RefusedError(
            f"Branch {checkout.branch} is not the default branch {default_branch} of the control repository",
            hint="Merge it first; `reconciler plan` shows what it would do.",
        )
    standing = checkout.standing
    if standing.is_outdated:
        raise RefusedError(f"{standing.sentence}: pull, or run from the tip", hint=_pull_hint(checkout))
    if not checkout.published:
        raise RefusedError(
            f"Commit {checkout.commit} is not on branch {default_branch} of {checkout.remote}",
            hint="Push it, or merge it first; `reconciler plan` shows what it would do.",
        )
    if standing.position is Position.REWOUND:
        raise RefusedError(
            f"{standing.sentence}; nothing is changed from an older commit",
            hint=(
                "If that is meant, push another commit to it: then `reconciler plan` shows what changes, and "
                "how to consent to deletions. If not, push the newer commits again."
            ),
        )


def _pull_hint(checkout: Checkout) -> str:
    branch = checkout.standing.branch
    if not branch:
        return "Check out the newest commit."
    if checkout.standing.position is Position.DROPPED:
        here = f"`git fetch origin {branch}`, and `git rebase origin/{branch}` or check that branch out anew"
    elif checkout.branch:
        here = "`git pull`"
    else:
        here = f"`git fetch origin {branch} && git checkout FETCH_HEAD`"
    return f"Run {here}; in a workflow, start a new run from the newest commit."
