"""Drafts: how a rendered package gets onto a branch, with a commit in the form of Porch."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from reconciler.base.text import json_text, plural
from reconciler.inventory.inventory import (
    Draft,
    Inventory,
    PullRequest,
    PullRequests,
    PullState,
    RepositoryView,
    repository_commits,
)
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.objects import File, Signature, commit_bytes, object_id, tree_id
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
from reconciler.plan.changes import ClosePull, MoveRef, StartBranch, Write, WriteDraft
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.policy import OpenOn
from reconciler.render.answers import conflict_choices
from reconciler.render.rendered import Package
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Pin, ResolvedVariant

CLONE = "Creating new revision by cloning"
EDIT = "Creating new revision by copying previous revision"
UPGRADE = "Upgrading revision"


def commit_message(
    title: str, path: str, workspace: str, task: Mapping[str, object], labels: Mapping[str, str] | None = None
) -> str:
    """Return a draft commit's message: the title, two blank lines, the `kpt:` line.

    Source: porch pkg/externalrepo/git/commit.go, AnnotateCommitMessage.
    Differs: the line has the labels of the revision, which Porch keeps in a cluster.
    """
    return f"{title}\n\n\n{_kpt_line(path, workspace, labels, task=dict(task))}\n"


def _kpt_line(path: str, workspace: str, labels: Mapping[str, str] | None, **more: object) -> str:
    annotation = {"package": path, "workspaceName": workspace, "revision": "0", **more}
    if labels:
        annotation["labels"] = dict(sorted(labels.items()))
    return f"kpt:{json_text(orjson.dumps(annotation).decode())}"


def with_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message with lines between its title and the `kpt:` lines at its end."""
    title, kpt = message.split("\n\n\n", 1)
    return "\n\n".join([title, "\n".join(lines), kpt]) if lines else message


def group_message(
    packages: Mapping[str, str],
    conflicts: Sequence[str] = (),
    labels: Mapping[str, Mapping[str, str] | None] | None = None,
) -> str:
    """Return the message of a commit on a group's branch: one `kpt:` line for each package, sorted.

    `packages` are the workspaces by full paths, `conflicts` the lines that name conflicts.
    """
    count = len(packages)
    lines = [_kpt_line(path, packages[path], (labels or {}).get(path)) for path in sorted(packages)]
    message = "\n".join([f"Draft of {plural(count, 'package')}", "", "", *lines, ""])
    return with_lines(message, sorted(conflicts))


def relabelled(message: str, workspace: str) -> str:
    """Return a draft's message for another workspace of the same package."""
    return re.sub(r'"workspaceName":"[^"]*"', f'"workspaceName":"{workspace}"', message, count=1)


def clone_task(upstream: str) -> dict[str, object]:
    """Return the task of a first creation from the named upstream package revision."""
    return {"type": "clone", "clone": {"upstreamRef": {"upstreamRef": {"name": upstream}}}}


def edit_task(source: str) -> dict[str, object]:
    """Return the task of a draft made from the named published revision of the same package."""
    return {"type": "edit", "edit": {"sourceRef": {"name": source}}}


def revision_name(view: RepositoryView, path: str, workspace: str) -> str:
    """Return the name of a package revision's object: `<repository>.<path with dots>.<workspace>`."""
    directory, _, package = package_name(view, path).rpartition("/")
    return object_name(view.key.name, directory, package, workspace)


_README = {"README.md": File.of(b"Created by reconciler\n")}


def start_branch(view: RepositoryView, inventory: Inventory) -> Iterator[StartBranch]:
    """Yield the commit that begins an empty repository that is registered with `createBranch`.

    A repository that has branches, and not this one, is more likely misspelt than empty. As old as
    the oldest registration that asks for it, so that every package asks for the same commit.

    Source: porch pkg/externalrepo/git/git.go, initializeBranch.
    """
    git = view.manifest.spec.git
    if git is None or not git.create_branch or view.branches:
        return
    views = [v for v in inventory.views_of(view.url) if v.branch == view.branch and v.former is None]
    time = min(v.source.time for v in views)
    commits = repository_commits(inventory.views_of(view.url), inventory.policy.commits)
    author = Signature(*commits.author(""), time)
    committer = Signature(commits.name, commits.email, time)
    message = f"Initial commit: Creating {view.branch} branch\n"
    oid = object_id("commit", commit_bytes(tree_id(_README), (), author, committer, message))
    yield StartBranch(f"refs/heads/{view.branch}", _README, oid, message, time)


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
    return target.view.head is not None and draft.behind and not draft.is_grouped and not draft.outside


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
    names = {"oldUpstreamRef": _upstream_name(base), "newUpstreamRef": new, "localPackageRevisionRef": source}
    refs = {field: {"name": name} for field, name in names.items()}
    task = {"type": "upgrade", "upgrade": {**refs, "strategy": "resource-merge"}}
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
