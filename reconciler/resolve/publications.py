"""Publications (D4): untagged states of our packages on main that become revisions in this run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from reconciler.expand.variants import Desired
from reconciler.inventory.inventory import Inventory, PackageRevision, PackageState, RepositoryView, TreeAt
from reconciler.names.ids import Lifecycle, Oid, PackageKey
from reconciler.names.refs import short_tag, tag_ref
from reconciler.resolve.ownership import find_owner, find_pause, find_view, may_stand_behind
from reconciler.resolve.resolution import Downstreams, Publications


def find_publications(downstreams: Downstreams, desired: Desired, inventory: Inventory) -> Publications:
    """Return the revisions `F/vN` that this plan tags: untagged states of main, in first-parent order.

    A person's hotfix is published as it is; states from before the package was ours are not. Pure, and
    computed before upstreams are resolved, so that a variant with such an upstream gets the
    new revision in the same run (law 1). It does not depend on whether the next content can be rendered.
    """
    if not inventory.policy.publish.tags:
        return {}
    desired_keys, stalled = {v.key for v in desired.variants}, inventory.stalled | desired.stalled
    publications = {}
    for key, variants in downstreams.items():
        view = find_view(variants[0], inventory)
        package = view.packages.get(key.path) if view is not None else None
        if view is None or package is None or not package.unpublished or len(variants) > 1:
            continue
        owner = find_owner(package.main_header, key, inventory)
        if owner is None or may_stand_behind(owner, desired_keys, stalled, inventory):
            continue
        if not find_pause(view, variants[0], inventory):
            publications[key] = tuple(_revisions(package, key, view, inventory))
    return {key: revisions for key, revisions in publications.items() if revisions}


def with_pending_tags(publications: Publications, inventory: Inventory) -> Inventory:
    """Return the inventory as it will be once these revisions are tagged. Pure.

    Untagged states stay listed: merged drafts are recognised by them.
    """
    if not publications:
        return inventory
    by_url: dict[str, dict[str, Sequence[PackageRevision]]] = defaultdict(dict)
    for key, revisions in publications.items():
        by_url[key.url][key.path] = revisions
    views = {
        key: _published(view, by_url[view.url]) if view.url in by_url else view
        for key, view in inventory.repositories.items()
    }
    trees = {
        TreeAt(key.url, revision.commit.oid, revision.path): revision.tree
        for key, revisions in publications.items()
        for revision in revisions
    }
    return replace(inventory, repositories=views, trees={**inventory.trees, **trees})


def _published(view: RepositoryView, added: Mapping[str, Sequence[PackageRevision]]) -> RepositoryView:
    packages = {
        path: replace(view.packages[path], published=(*view.packages[path].published, *revisions))
        for path, revisions in added.items()
        if path in view.packages
    }
    tags = {short_tag(r.ref): r.commit for revisions in added.values() for r in revisions}
    return replace(view, packages={**view.packages, **packages}, tags={**view.tags, **tags})


def _revisions(
    package: PackageState, key: PackageKey, view: RepositoryView, inventory: Inventory
) -> Iterator[PackageRevision]:
    latest = package.latest
    number, tree = (latest.revision, latest.tree) if latest else (0, Oid(""))
    for state in package.unpublished:
        if find_owner(state.header, key, inventory) is None or state.tree == tree:
            continue
        number += 1
        # A tag that main does not contain has its number for good: we move no tag.
        while short_tag(tag_ref(package.path, number)) in view.tags:
            number += 1
        tree = state.tree
        yield PackageRevision(
            path=package.path,
            workspace=state.workspaces.get(number, f"v{number}"),
            revision=number,
            lifecycle=Lifecycle.PUBLISHED,
            ref=tag_ref(package.path, number),
            commit=state.commit,
            tree=state.tree,
        )
