"""Who owns a package: the two annotations of a Kptfile, and which drafts of it are ours (D5)."""

from collections.abc import Iterable

from reconciler.api.kptfile import KptfileHeader
from reconciler.ids import ObjectName
from reconciler.inventory import Draft, Inventory, PackageState, PullRequest, PullState, RepositoryView

WORKSPACE_PREFIX = "packagevariant-"


def owner_text(instance: str, key: ObjectName) -> str:
    """Return the value of the owner annotation of a variant's package."""
    return f"{instance}/{key.namespace}/{key.name}"


def location_text(view: RepositoryView, path: str) -> str:
    """Return the value of the location annotation: the Repository's name and the package in it."""
    return f"{view.key.name}/{package_name(view, path)}"


def package_name(view: RepositoryView, path: str) -> str:
    """Return the package's name in its view: the path below the view's directory."""
    return path.removeprefix(view.directory).strip("/") if view.directory else path


def find_owner(
    header: KptfileHeader | None, path: str, views: Iterable[RepositoryView], instance: str
) -> ObjectName | None:
    """Return the variant of this instance that owns a package; None if nobody of ours does.

    A location that is not where the package stands marks a copy, which nobody owns.
    """
    if header is None or header.error:
        return None
    owning, _, rest = header.owner.partition("/")
    namespace, slash, name = rest.partition("/")
    if owning != instance or not slash or not namespace or not name:
        return None
    if header.location not in {location_text(view, path) for view in views}:
        return None
    return ObjectName(namespace, name)


def is_foreign(
    header: KptfileHeader | None, path: str, views: Iterable[RepositoryView], instance: str
) -> bool:
    """Whether the package is another instance's: its annotations name one, and this very place."""
    if header is None or not header.owner or header.owner.startswith(f"{instance}/"):
        return False
    return header.location in {location_text(view, path) for view in views}


def our_drafts(package: PackageState, view: RepositoryView, inventory: Inventory) -> tuple[Draft, ...]:
    """Return the drafts of a package that this instance wrote, the newest workspace first."""
    views = tuple(inventory.views_of(view.url))
    ours = [
        draft
        for draft in package.drafts
        if draft.written is not None
        and workspace_number(draft.workspace)
        and find_owner(draft.header, package.path, views, inventory.policy.instance)
    ]
    return tuple(sorted(ours, key=lambda d: (-workspace_number(d.workspace), d.ref)))


def workspace_number(workspace: str) -> int:
    """Return N of `packagevariant-N`; 0 for any other workspace.

    Source: porch packagevariant_controller.go, newWorkspaceName.
    """
    suffix = workspace.removeprefix(WORKSPACE_PREFIX)
    return int(suffix) if suffix != workspace and suffix.isascii() and suffix.isdigit() else 0


def is_merged(draft: Draft, package: PackageState, pulls: Iterable[PullRequest]) -> bool:
    """Whether main has the draft: the forge says so, or main's package has its tree since the draft left it.

    Total: true for merge, squash and rebase alike, because content is compared, not commits.
    """
    if draft.tree == package.main_tree or draft.base == draft.tip.oid:
        return True
    head = short_branch(draft.ref)
    if any(p.state is PullState.MERGED and p.head == head and p.head_oid == draft.tip.oid for p in pulls):
        return True
    since = [revision.tree for revision in package.untagged]
    if draft.base_tree in since:
        last = len(since) - 1 - since[::-1].index(draft.base_tree)
        since = since[last + 1 :]
    return draft.base_tree != draft.tree and draft.tree in since


def current_draft(package: PackageState, view: RepositoryView, inventory: Inventory) -> Draft | None:
    """Return the one open draft of ours that a variant works on, None if there is none."""
    pulls = inventory.pulls.get(view.url, ())
    return next(
        (d for d in our_drafts(package, view, inventory) if not is_merged(d, package, pulls)),
        None,
    )


def short_branch(ref: str) -> str:
    """Return a branch's short name."""
    return ref.removeprefix("refs/heads/")


def is_within(path: str, directory: str) -> bool:
    """Whether a full path lies in a directory, on whole segments ("" is the root)."""
    return not directory or path == directory or path.startswith(f"{directory}/")
