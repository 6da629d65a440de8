"""Which package trees rendering will read: one batch per repository, nothing for what is settled."""

from collections.abc import Iterable, Iterator

from reconciler.ids import Oid
from reconciler.resolve.resolution import Needs, Pin, Release, ResolvedVariant


def collect_needs(variants: Iterable[ResolvedVariant], releases: Iterable[Release]) -> Needs:
    """Return the trees that rendering these variants and releases reads, by repository URL."""
    trees: dict[str, set[Oid]] = {}
    for resolved in variants:
        for url, tree in variant_trees(resolved):
            trees.setdefault(url, set()).add(tree)
    for release in releases:
        trees.setdefault(release.package.url, set()).add(release.tree)
    return Needs({url: frozenset(found) for url, found in trees.items()})


def variant_trees(resolved: ResolvedVariant) -> Iterator[tuple[str, Oid]]:
    """Yield the trees that rendering one variant reads.

    Source: D15; a base with the tree of the new upstream needs neither.
    """
    if resolved.settled is not None:
        return
    here = resolved.downstream.url
    pin = resolved.pin
    if resolved.local is None:
        yield pin.package.url, pin.tree
    else:
        yield here, resolved.local
        yield from update_trees(resolved.base, pin)
        if resolved.base is None and not resolved.lost_base:
            yield pin.package.url, pin.tree
            yield from ((base.package.url, base.tree) for base in resolved.candidates)
    draft = resolved.draft
    if draft is not None and draft.append_only:
        yield here, draft.tree
        yield from update_trees(resolved.draft_base, pin)
        if draft.answers.asked:
            yield pin.package.url, pin.tree
            if draft.written is not None:
                yield here, draft.written
        if resolved.asked_from is not None:
            yield pin.package.url, resolved.asked_from
            yield pin.package.url, pin.tree
        if has_main_moved(resolved) and draft.base_tree and resolved.local:
            yield here, draft.base_tree


def update_trees(base: Pin | None, pin: Pin) -> Iterator[tuple[str, Oid]]:
    """Yield the two sides of an update, if there is one."""
    if base is not None and base.tree != pin.tree:
        yield base.package.url, base.tree
        yield pin.package.url, pin.tree


def has_main_moved(resolved: ResolvedVariant) -> bool:
    """Whether the package on main changed since our draft left it."""
    return resolved.draft is not None and resolved.draft.base_tree != resolved.local
