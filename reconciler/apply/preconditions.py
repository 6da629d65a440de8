"""Preconditions of writing: the commit is merged and the newest, and the plan is the reviewed one."""

from typing import NamedTuple

from reconciler.base.errors import RefusedError
from reconciler.inventory.inventory import Control
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import Oid
from reconciler.plan.changes import Plan

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
            f"The plan now is {plan.checksum[:12]}, not the one that was reviewed",
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
