"""Resolution: every desired variant meets its upstream, its downstream and its base."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from reconciler.api.porch import GROUP, Downstream
from reconciler.errors import Problem
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.ids import ObjectKey, Oid, PackageKey
from reconciler.inventory import Draft, Inventory, PackageState, RepositoryView
from reconciler.resolve.bases import Sources, find_base, find_candidates, index_sources
from reconciler.resolve.downstreams import ADOPT_EXISTING, wanted_packages
from reconciler.resolve.locked import choose_pin
from reconciler.resolve.moved import find_moved_tag
from reconciler.resolve.needs import collect_needs
from reconciler.resolve.ownership import current_draft
from reconciler.resolve.publications import find_publications, foresee
from reconciler.resolve.releases import find_releases
from reconciler.resolve.resolution import Pin, Resolution, ResolvedVariant, WaitingVariant
from reconciler.resolve.settled import (
    ObjectIndex,
    find_settled,
    index_objects,
    input_facts,
    inputs_digest,
    named_objects,
    told_facts,
)
from reconciler.resolve.upstreams import find_repository
from reconciler.state import PackageVariantRecord


def resolve(inventory: Inventory, desired: Desired) -> Resolution:
    """Pin every desired variant to one upstream commit, and name the trees that rendering reads.

    Pure and order-free. Total: every desired variant is resolved, stalled with its problems, or waits. What
    this plan will publish counts as published: a chain of variants rests after one run (law 1).
    """
    variants: list[ResolvedVariant] = []
    stalled: set[ObjectKey] = set()
    problems: list[Problem] = []
    wanted = wanted_packages(desired, inventory)
    publications = find_publications(wanted, desired, inventory)
    releases = tuple(find_releases(wanted, desired, inventory))
    inventory = foresee(publications, inventory)
    lookups = Lookups(_index_clusters(inventory), index_sources(inventory))
    waiting: list[WaitingVariant] = []
    for variant in sorted(desired.variants, key=lambda v: v.key):
        outcome = resolve_variant(variant, inventory, lookups)
        if isinstance(outcome, ResolvedVariant):
            variants.append(outcome)
        elif isinstance(outcome, WaitingVariant):
            waiting.append(outcome)
        else:
            stalled.add(variant_key(variant))
            problems += outcome
    return Resolution(
        variants=tuple(variants),
        releases=releases,
        stalled=frozenset(stalled),
        waiting=tuple(waiting),
        problems=tuple(sorted(problems)),
        needs=collect_needs(variants, releases),
        publications=publications,
    )


def variant_key(variant: DesiredVariant) -> ObjectKey:
    """Return the identity of a variant among objects of any kind."""
    return ObjectKey(GROUP, "PackageVariant", *variant.key)


class Lookups(NamedTuple):
    """What every variant asks, indexed once; objects by the cluster of a downstream repository."""

    objects: Mapping[str, ObjectIndex]
    sources: Sources


def _index_clusters(inventory: Inventory) -> dict[str, ObjectIndex]:
    """Return the objects of each cluster; clusters without a snapshot of their own share one index."""
    shared: ObjectIndex | None = None
    found: dict[str, ObjectIndex] = {}
    for cluster in {view.cluster for view in inventory.repositories.values()}:
        if cluster in inventory.snapshot.clusters:
            found[cluster] = index_objects(inventory.snapshot.clusters[cluster])
        else:
            shared = index_objects(inventory.snapshot.of(cluster)) if shared is None else shared
            found[cluster] = shared
    return found


def resolve_variant(
    variant: DesiredVariant, inventory: Inventory, lookups: Lookups
) -> ResolvedVariant | WaitingVariant | list[Problem]:
    """Resolve one variant, or say everything that is wrong with its two ends."""
    downstream = variant.spec.downstream or Downstream()
    view = find_repository(variant, downstream.repo or "", inventory, field="downstream")
    choice = choose_pin(variant, inventory)
    if isinstance(view, Problem) or isinstance(choice, Problem):
        return [found for found in (view, choice) if isinstance(found, Problem)]
    pin = choice.pin
    if pin is None:
        return WaitingVariant(variant, choice.offers, choice.waits)
    path = view.full_path(downstream.package or "")
    record = inventory.records.get(variant.key)
    package = view.packages.get(path, PackageState(path))
    base, lost = find_base(package.main_header, pin, record, inventory, lookups.sources)
    draft = current_draft(package, view, inventory)
    draft_header = draft.header if draft else None
    draft_base, _ = find_base(draft_header, pin, record, inventory, lookups.sources)
    pin = _steady(pin, variant, draft_base if draft else base)
    where = PackageKey(view.url, path)
    local = package.main_tree or adopted_directory(variant, view, path)
    candidates = find_candidates(pin, inventory) if local and base is None and not lost else ()
    facts = input_facts(variant, view, where, pin, inventory, objects=lookups.objects[view.cluster])
    if candidates:
        facts["candidates"] = [candidate.tree for candidate in candidates]
    inputs = inputs_digest(facts)
    resolved = ResolvedVariant(
        variant=variant,
        view=view.key,
        downstream=where,
        pin=pin,
        base=base,
        lost_base=lost,
        local=local,
        draft=draft,
        draft_base=draft_base,
        inputs=inputs,
        facts=told_facts(facts, inputs, record),
        objects=named_objects(variant, lookups.objects[view.cluster]),
        asked_from=_asked_from(draft, record),
        moved=find_moved_tag((draft_header, package.main_header), pin, variant),
        offers=choice.offers,
        candidates=candidates,
    )
    return replace(resolved, settled=find_settled(resolved, record))


def adopted_directory(variant: DesiredVariant, view: RepositoryView, path: str) -> Oid | None:
    """Return the directory without a Kptfile that a variant asks to make its package of, if there is one."""
    return view.directories.get(path) if variant.spec.adoption_policy == ADOPT_EXISTING else None


def _steady(pin: Pin, variant: DesiredVariant, base: Pin | None) -> Pin:
    """Return the pin of a followed branch, at the old commit while its package did not change.

    A branch moves with every commit to its repository; that alone is no reason for a draft.
    """
    upstream = variant.spec.upstream
    if upstream is None or upstream.branch is None or base is None:
        return pin
    same = (base.package, base.tree, base.ref) == (pin.package, pin.tree, pin.ref)
    return replace(pin, commit=base.commit) if same else pin


def _asked_from(draft: Draft | None, record: PackageVariantRecord | None) -> Oid | None:
    """Return where the conflicts come from that wait in a draft which we only append to."""
    if draft is None or record is None or not (draft.append_only and record.conflicts):
        return None
    return Oid(record.asked_from) if record.asked_from else None
