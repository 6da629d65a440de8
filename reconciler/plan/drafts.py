"""Drafts: how a rendered package gets onto a branch without losing what people did there."""

from collections.abc import Iterable

from reconciler.inventory.inventory import Draft, PullRequest, PullRequests, PullState
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.refs import (
    DRAFTS,
    WORKSPACE_PREFIX,
    draft_ref,
    is_group,
    object_name,
    short_branch,
    workspace_number,
)
from reconciler.names.trailers import CONFLICT
from reconciler.plan.changes import ClosePull, MoveRef, Write, WriteDraft
from reconciler.plan.commits import (
    CLONE,
    EDIT,
    UPGRADE,
    clone_task,
    commit_message,
    edit_task,
    revision_name,
    upgrade_task,
    with_lines,
)
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.policy import OpenOn
from reconciler.render.answers import conflict_choices
from reconciler.render.rendered import Package
from reconciler.resolve.resolution import Pin, ResolvedVariant


def next_workspace(target: PlanTarget) -> str:
    """Return `packagevariant-N` for a new draft: one more than any draft, revision or pull request has.

    Source: porch packagevariant_controller.go, newWorkspaceName.
    Differs: published revisions without a recorded workspace, and the heads of ended pull
    requests, count too, so that no name comes back.
    """
    package = target.package
    names = [d.workspace for d in package.drafts]
    for revision in package.published:
        unknown = revision.workspace == f"v{revision.revision}"
        names.append(f"{WORKSPACE_PREFIX}{revision.revision}" if unknown else revision.workspace)
    prefix = f"{DRAFTS}{package.path}/"
    # A forge keeps closed pull requests by the name of their branch: a reused name would look rejected.
    pulls = PullRequests.of(target.pulls).below(prefix)
    names += [pull.head.removeprefix(prefix) for pull in pulls]
    return f"{WORKSPACE_PREFIX}{1 + max(map(workspace_number, names), default=0)}"


def write_draft(
    target: PlanTarget,
    package: Package,
    workspace: str,
    *,
    draft: Draft | None,
    onto: Oid,
    message: str,
    time: int,
) -> WriteDraft:
    """Return the write of one commit: of a new draft in a workspace, or of `draft` if it did not move (D21).

    `onto` is main's head where our single commit is written or written anew, and the draft's own
    tip where one commit is appended to a person's. That commit merges main where the package changed
    there: otherwise no forge could merge the draft without undoing or repeating that change.
    """
    path, head = target.package.path, target.view.head
    appended = draft is not None and onto == draft.tip.oid
    merges = head.oid if draft and head and appended and is_behind(target, draft) else None
    return WriteDraft(
        ref=draft.ref if draft else draft_ref(path, workspace),
        expect=draft.tip.oid if draft else None,
        onto=onto,
        path=path,
        files=package.files,
        tree=package.tree,
        message=message,
        time=time,
        merges=merges,
    )


def is_behind(target: PlanTarget, draft: Draft) -> bool:
    """Whether the package changed on main since the draft left it, and one commit of ours can mend that.

    A group's branch is left out, and so is one that changes more than its package: a merge commit
    would have to decide about that, too.
    """
    return target.view.head is not None and draft.behind and not draft.is_grouped and not draft.has_more


def draft_message(
    target: PlanTarget, resolved: ResolvedVariant, workspace: str, package: Package | None = None
) -> str:
    """Return the message of a draft's commit, with the task that Porch would have recorded.

    It names the conflicts of `package`: from then on a commit may answer them.
    """
    choices = conflict_choices(package.conflicts, package.answers) if package else {}
    lines = [f"{CONFLICT}: {name} {choice}".rstrip() for name, choice in choices.items() if name]
    return with_lines(_task_message(target, resolved, workspace), lines)


def _task_message(target: PlanTarget, resolved: ResolvedVariant, workspace: str) -> str:
    path, pin = target.package.path, resolved.pin
    new, labels = _upstream_name(pin), resolved.variant.spec.labels
    if target.package.main_tree is None:
        return commit_message(CLONE, path, workspace, clone_task(new), labels)
    latest = target.package.latest
    source = revision_name(target.view, path, latest.workspace if latest else target.view.branch)
    base = resolved.base
    if base is None or base.commit.oid == pin.commit.oid:
        return commit_message(EDIT, path, workspace, edit_task(source), labels)
    task = upgrade_task(_upstream_name(base), new, source)
    return commit_message(UPGRADE, path, workspace, task, labels)


def revision_tags(target: PlanTarget, context: PlanContext) -> tuple[MoveRef, ...]:
    """Return the tags of what main has, whatever else is done: other variants count on them already."""
    revisions = context.resolution.publications.get(target.key, ())
    return tuple(MoveRef(revision.ref, None, revision.commit.oid) for revision in revisions)


def close_drafts(drafts: Iterable[Draft]) -> tuple[Write, ...]:
    """Return the removal of branches that are obsolete, each only at the commit that was read.

    A group's branch holds other drafts too: it goes when all of them may.
    """
    return tuple(MoveRef(draft.ref, draft.tip.oid, None) for draft in drafts if not draft.is_grouped)


def close_pulls(target: PlanTarget, refs: Iterable[str], comment: str) -> tuple[ClosePull, ...]:
    """Return the closing of the open pull requests of these branches."""
    heads = {short_branch(ref) for ref in refs if not is_group(ref)}
    pulls = PullRequests.of(target.pulls)
    opened = [pull for head in heads for pull in pulls.at(head) if pull.state is PullState.OPEN]
    opened.sort(key=lambda pull: pull.number)
    return tuple(ClosePull(pull.number, pull.head, comment) for pull in opened)


def is_rejected(target: PlanTarget, draft: Draft) -> bool:
    """Whether a person closed the pull request of this very content of a draft (D14).

    The head alone proves nothing: on Gitea and Forgejo that of a closed pull request follows its branch.
    """
    pull = newest_pull(target.pulls, draft.ref)
    if pull is None or pull.state is not PullState.CLOSED or pull.head_oid not in ("", draft.tip.oid):
        return False
    return pull.proposes in ("", draft.tree, draft.written)


def wanted_pull(target: PlanTarget, ref: str, *, open_on: OpenOn, proposed: bool) -> PullRequest | None:
    """Return the pull request that a draft should have now, None where it should have none yet.

    Its content is planned by `plan.requests`.
    """
    pull = newest_pull(target.pulls, ref)
    is_open = pull is not None and pull.state is PullState.OPEN
    if open_on is OpenOn.PROPOSE and not (proposed or is_open):
        return None
    return PullRequest(
        head=short_branch(ref),
        base=target.view.branch,
        title="",
        body="",
        draft=not proposed if pull is None or not is_open else pull.draft,
        number=pull.number if pull is not None and is_open else 0,
    )


def is_proposed(draft: Draft | None) -> bool:
    """Tell whether the draft is proposed for review."""
    return draft is not None and draft.lifecycle is Lifecycle.PROPOSED


def _upstream_name(pin: Pin) -> str:
    workspace = pin.ref.removeprefix(f"{DRAFTS}{pin.package.path}/").removeprefix(f"{pin.package.path}/")
    directory, _, package = pin.name.rpartition("/")
    return object_name(pin.repository, directory, package, workspace)
