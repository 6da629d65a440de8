"""Downstream packages: the variants that want them, their owner, and our drafts of them (D5)."""

from collections.abc import Container, Iterable
from operator import attrgetter

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import GROUP, PackageVariant
from reconciler.expand.variants import PAUSED, DesiredVariant, owner_key, set_key
from reconciler.inventory.inventory import (
    Draft,
    Inventory,
    PackageState,
    PullRequest,
    PullRequests,
    PullState,
    RepositoryView,
)
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.names.refs import relative_package, short_branch, workspace_number
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.resolution import Downstreams


def owner_text(instance: str, key: ObjectName) -> str:
    """Return the value of the owner annotation of a variant's package."""
    return f"{instance}/{key.namespace}/{key.name}"


def location_text(view: RepositoryView, path: str) -> str:
    """Return the value of the location annotation: the Repository's name and the package in it."""
    return f"{view.key.name}/{package_name(view, path)}"


def package_name(view: RepositoryView, path: str) -> str:
    """Return the package's name in its view: the path below the view's directory."""
    return relative_package(path, view.directory)


def package_label(repository: ObjectName, path: str, inventory: Inventory) -> str:
    """Return a package as reports call it and commands take it: its Repository, and its path in that."""
    view = inventory.views.get(repository)
    return f"{inventory.label(repository)}/{package_name(view, path) if view is not None else path}"


def find_owner(header: KptfileHeader | None, package: PackageKey, inventory: Inventory) -> ObjectName | None:
    """Return the variant of this instance that owns a package; None if it has another owner or none.

    A location other than the package's own path marks a copy, which has no owner. The location's
    Repository is one of the owner's namespace. Repositories may be renamed, and their directories may
    move: a package at a recorded path of its owner is no copy, whatever its location is called
    now, because a repository's identity is its URL (D19, D36).
    """
    if header is None or header.error:
        return None
    owning, _, rest = header.owner.partition("/")
    namespace, slash, name = rest.partition("/")
    # Several instances may share a repository: each owns what its annotation names.
    if owning != inventory.policy.instance or not slash or not namespace or not name:
        return None
    owner = ObjectName(namespace, name)
    repository, _, inside = header.location.partition("/")
    view = inventory.repositories.get(ObjectName(namespace, repository))
    if view is not None and (view.url, view.full_path(inside)) == package:
        return owner
    record = inventory.records.get(owner)
    return owner if record is not None and record.is_at(package) else None


DELETE = "delete"
ORPHAN = "orphan"
"""The deletion policy that stops the management of a package and keeps its content."""


def deletion_policy(record: PackageVariantRecord, inventory: Inventory) -> str:
    """Return the deletion policy that Git has last for a variant without a manifest.

    It may have changed since the last run, so the manifest counts as it was before the commit that removed
    it. Of a set `orphan` counts where all of its targets have it, or the record: the target that went with
    the variant may have had another policy than those that are left.
    """
    owner = owner_key(record)
    removal = inventory.control.removed.get(owner)
    last = removal.last if removal is not None else None
    for pvs in inventory.sets:
        last = pvs.manifest if set_key(pvs.key) == owner else last
    if isinstance(last, PackageVariant):
        return last.spec.deletion_policy or DELETE
    targets = (last.spec.targets or ()) if last is not None else ()
    policies = {target.template.deletion_policy if target.template else None for target in targets}
    return ORPHAN if policies == {ORPHAN} else record.deletion_policy


def may_stand_behind(
    owner: ObjectName, desired: Container[ObjectName], stalled: Container[ObjectKey], inventory: Inventory
) -> bool:
    """Tell whether an owner that is not understood or not readable may still want its package (law 4)."""
    if ObjectKey(GROUP, "PackageVariant", *owner) in stalled:
        return True
    record = inventory.records.get(owner)
    if record is None or owner in desired:
        return False
    control = inventory.control
    return not control.readable or record.manifest in control.broken


def is_foreign(header: KptfileHeader | None, path: str, instance: str) -> bool:
    """Tell whether another instance owns the package: its annotations name one, and this path.

    The name that the other instance has for the repository is not known here.
    """
    if header is None or not header.owner or header.owner.startswith(f"{instance}/"):
        return False
    inside = header.location.partition("/")[2]
    return path == inside or (bool(inside) and path.endswith(f"/{inside}"))


def our_drafts(package: PackageState, view: RepositoryView, inventory: Inventory) -> tuple[Draft, ...]:
    """Return the drafts of a package that this instance wrote, the newest workspace first.

    A person who squashes, rebases or amends our commits becomes their committer: then the pull request on
    the branch, open or ended at this commit, tells that the draft is ours. After a merge main has our
    commits, and the branch may have none but theirs.
    """
    if not package.drafts:
        return ()
    where = PackageKey(view.url, package.path)
    pulls = inventory.pulls_of(view.url)
    ours = [
        draft
        for draft in package.drafts
        if (
            draft.written is not None
            or any(
                pull.state is PullState.OPEN or pull.head_oid == draft.tip.oid
                for pull in pulls.at(short_branch(draft.ref))
            )
        )
        and workspace_number(draft.workspace)
        and find_owner(draft.header, where, inventory)
    ]
    return tuple(sorted(ours, key=lambda d: (-workspace_number(d.workspace), d.ref)))


def is_merged(draft: Draft, package: PackageState, pulls: Iterable[PullRequest]) -> bool:
    """Tell whether main has the draft: the forge merged it, or main had its tree since the draft began.

    Total: true for merge, squash and rebase alike, because content is compared, not commits.
    """
    # A branch at a commit of main has nothing of its own: fast-forward merges leave it so.
    if draft.tree == package.main_tree or draft.base == draft.tip.oid:
        return True
    pulls_of_draft = PullRequests.of(pulls).at(short_branch(draft.ref))
    if any(pull.state is PullState.MERGED and pull.head_oid == draft.tip.oid for pull in pulls_of_draft):
        return True
    since = [revision.tree for revision in package.unpublished]
    # Main may have had the tree before the draft began: only what came after that is a merge.
    if draft.base_tree in since:
        last = len(since) - 1 - since[::-1].index(draft.base_tree)
        since = since[last + 1 :]
    return draft.base_tree != draft.tree and draft.tree in since


def current_draft(package: PackageState, view: RepositoryView, inventory: Inventory) -> Draft | None:
    """Return the one open draft of ours that a variant works on, None if there is none."""
    pulls = inventory.pulls_of(view.url)
    return next((d for d in our_drafts(package, view, inventory) if not is_merged(d, package, pulls)), None)


ADOPT_EXISTING = "adoptExisting"


def find_view(variant: DesiredVariant, inventory: Inventory) -> RepositoryView | None:
    """Return the registered repository that a variant's downstream names."""
    downstream = variant.spec.downstream
    name = downstream.repo if downstream else None
    return inventory.repositories.get(ObjectName(variant.key.namespace, name or ""))


def named_views(variants: Iterable[DesiredVariant], inventory: Inventory) -> set[ObjectName]:
    """Return the registered repositories that downstreams name: few, and looked up once for all variants."""
    downstreams = ((variant.key.namespace, variant.spec.downstream) for variant in variants)
    named = {(namespace, downstream.repo or "") for namespace, downstream in downstreams if downstream}
    return {ObjectName(*name) for name in named} & inventory.repositories.keys()


def downstream_packages(
    variants: Iterable[DesiredVariant], inventory: Inventory, others: Downstreams | None = None
) -> Downstreams:
    """Return the packages that variants want in registered repositories, added to those of `others`."""
    downstreams = {package: list(variants) for package, variants in (others or {}).items()}
    for variant in variants:
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            path = view.full_path(downstream.package or "")
            package = view.packages.get(path)
            key = PackageKey(view.url, package.path if package else path)
            downstreams.setdefault(key, []).append(variant)
    order = attrgetter("key")
    return {p: (vs[0],) if len(vs) == 1 else tuple(sorted(vs, key=order)) for p, vs in downstreams.items()}


SUSPENDED = "The configuration suspends every change"


def find_pause(view: RepositoryView, variant: DesiredVariant | None, inventory: Inventory) -> str:
    """Return what pauses a package: the configuration or an annotation; "" for nothing (D17)."""
    if inventory.policy.suspend:
        return SUSPENDED
    annotations = view.manifest.metadata.annotations or {}
    is_annotated = annotations.get(PAUSED) == "true" or (variant is not None and variant.paused)
    return "Paused by annotation" if is_annotated else ""
