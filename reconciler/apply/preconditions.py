"""Preconditions of apply: the commit is merged, and the plan is the reviewed one."""

from typing import NamedTuple

from reconciler.errors import RefusedError
from reconciler.ids import Oid
from reconciler.inventory import Control
from reconciler.plan.changes import Plan


def check_applicable(plan: Plan, *, checksum: str, control: Control, default_branch: str) -> None:
    """Refuse a plan that must not be applied. Deletions without consent are no part of it any more.

    Raises:
        RefusedError: The first reason that applies; nothing was written.
    """
    if checksum and checksum != plan.checksum:
        raise RefusedError(
            f"The plan now is {plan.checksum}, not the one that was reviewed",
            hint="Something changed since: review the plan above, then pass its checksum.",
        )
    check_merged(Checkout.of(control), default_branch)


class Checkout(NamedTuple):
    """The commit of the control repository that a run reads; `published` if its remote has it."""

    remote: str
    commit: Oid
    branch: str
    published: bool

    @classmethod
    def of(cls, control: Control) -> "Checkout":
        """Return what was read of the control repository."""
        return cls(control.remote, control.commit.oid, control.branch, control.published)


def check_merged(checkout: Checkout, default_branch: str) -> None:
    """Refuse what the control repository's default branch does not hold (D17).

    A working copy may be on no branch, as in many build jobs; its commit must be merged all the same.

    Raises:
        RefusedError: Another branch is checked out, or a commit that was not pushed or not merged.
    """
    # Build jobs check out a commit without a branch: then only the commit itself must be merged.
    if checkout.branch and default_branch and checkout.branch != default_branch:
        raise RefusedError(
            f"Branch {checkout.branch} is not the default branch {default_branch} of the control repository",
            hint="Merge it first; `reconciler plan` shows what it would do.",
        )
    if not checkout.published:
        raise RefusedError(
            f"Commit {checkout.commit} is not on branch {default_branch} of {checkout.remote}",
            hint="Push it, or merge it first; `reconciler plan` shows what it would do.",
        )
