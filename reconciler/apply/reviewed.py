"""The pull request that proposes another lock, with the text that its reviewers read."""

from dataclasses import replace

from reconciler.plan.changes import Change, LockProposal


def lock_change(proposal: LockProposal) -> Change:
    """Return what is done about the lock's branch, like any other change, its pull request with its text."""
    from reconciler.report.markdown import lock_body  # noqa: PLC0415 - templates are slow to import

    change = proposal.change
    if change.pull is None:
        return change
    return replace(change, pull=replace(change.pull, body=lock_body(proposal)))
