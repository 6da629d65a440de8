"""Resolution: every desired variant meets its upstream, its downstream and its base."""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.api.porch import Downstream, Upstream
from reconciler.base.defects import DefectError, guard
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import Text
from reconciler.expand.variants import Desired, DesiredVariant, variant_key
from reconciler.inventory.inventory import (
    Draft,
    Inventory,
    PackageRevision,
    PackageState,
    PullState,
    RepositoryRole,
    RepositoryView,
    TreeAt,
)
from reconciler.names.ids import Lifecycle, ObjectName, Oid, PackageKey, normalise_url
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import is_within, short_branch, short_tag, tag_ref
from reconciler.names.trailers import Ticks
from reconciler.records.state import PackageVariantRecord, recorded_ticks
from reconciler.resolve.ownership import (
    ADOPT_EXISTING,
    ORPHAN,
    current_draft,
    deletion_policy,
    downstream_packages,
    find_owner,
    find_pause,
    find_view,
    may_stand_behind,
    package_name,
)
from reconciler.resolve.pins import PinChoice, choose_pin, find_moved_tag, steady, with_upstream
from reconciler.resolve.resolution import (
    Downstreams,
    Pin,
    Publications,
    Release,
    Resolution,
    ResolvedVariant,
    SubpackagePin,
    WaitingVariant,
)
from reconciler.resolve.rollout_records import Outcome
from reconciler.resolve.rollouts import Rollouts, find_rollouts, with_kept_pin
from reconciler.resolve.up_to_date import (
    ObjectIndex,
    find_settled,
    has_charts,
    has_no_edits,
    index_objects,
    input_facts,
    inputs_digest,
    named_objects,
    subpackage_facts,
    told_facts,
    with_values,
)
from reconciler.resolve.upstreams import (
    Sources,
    find_base,
    find_candidates,
    find_circles,
    find_equal,
    find_repository,
    find_upstream,
    index_sources,
    source_names,
)

_MOST_FORMER = 3


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
    tags: dict[str, dict[str, Commit]] = defaultdict(dict)
    for key, revisions in publications.items():
        by_url[key.url][key.path] = revisions
        tags[key.url] |= {short_tag(revision.ref): revision.commit for revision in revisions}
    views = {
        key: _published(view, by_url[view.url], tags[view.url]) if view.url in by_url else view
        for key, view in inventory.repositories.items()
    }
    trees = {
        TreeAt(key.url, revision.commit.oid, revision.path): revision.tree
        for key, revisions in publications.items()
        for revision in revisions
    }
    return replace(inventory, repositories=views, trees={**inventory.trees, **trees})


def _published(
    view: RepositoryView, added: Mapping[str, Sequence[PackageRevision]], tags: Mapping[str, Commit]
) -> RepositoryView:
    packages = {
        path: replace(view.packages[path], published=(*view.packages[path].published, *added[path]))
        for path in added.keys() & view.packages.keys()
    }
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


SUBPACKAGE_REVISIONS: Final = "reconciler.dev/subpackage-revisions"
"""Annotation of a variant: `DIR: REVISION` for each sub-package that has a revision of its own."""
_ENTRY: Final = regex(r"([^:;\s]+)\s*:\s*([^:;\s]+)")


class SubpackageRevision(Struct, frozen=True):
    """One entry of the annotation: a directory, a revision, and where they start in its text."""

    directory: str
    revision: str
    offset: int


def parse_entries(annotations: Mapping[str, str]) -> tuple[SubpackageRevision, ...]:
    """Return the entries of the annotation; those of directories above others are first."""
    text = annotations.get(SUBPACKAGE_REVISIONS, "")
    entries = (SubpackageRevision(m[1].strip("/"), m[2], m.start()) for m in _ENTRY.finditer(text))
    return tuple(sorted(entries, key=lambda entry: (entry.directory, entry.offset)))


def pin_subpackages(
    variant: DesiredVariant, trees: Iterable[Oid | None], inventory: Inventory, sources: Sources
) -> tuple[SubpackagePin, ...] | Problem:
    """Return the pins of the sub-packages that the variant sets, or the first problem.

    `trees` are the package on main and in its draft, and its upstreams; a sub-package has the upstream that
    it has in the first of them.
    """
    headers = [inventory.subpackages.get(tree, {}) for tree in trees if tree is not None]
    pins: list[SubpackagePin] = []
    for entry in parse_entries(variant.annotations):
        if any(pin.directory == entry.directory for pin in pins):
            message = f"{entry.directory} has more than one revision"
            return _problem(variant, entry, Reason.INVALID_ANNOTATION, message, "Leave one of them.")
        present = [header[entry.directory] for header in headers if entry.directory in header]
        upstream = present[0].upstream if present else None
        if upstream is None:
            return _unknown(variant, entry, headers, is_there=bool(present))
        pin = _find_pin(variant, entry, upstream, inventory, sources)
        if isinstance(pin, Problem):
            return pin
        bases = {base for nested in present if (base := find_base(nested, pin, None, inventory, sources)[0])}
        pins.append(SubpackagePin(entry.directory, pin, tuple(sorted(bases, key=lambda b: b.commit.oid))))
    return tuple(pins)


def _unknown(
    variant: DesiredVariant,
    entry: SubpackageRevision,
    headers: Iterable[Mapping[str, KptfileHeader]],
    *,
    is_there: bool,
) -> Problem:
    names = sorted({name for header in headers for name, nested in header.items() if nested.upstream})
    what = f"has no upstream of its own in {entry.directory}" if is_there else f"has no {entry.directory}"
    listed = f"Sub-packages with an upstream: {', '.join(names)}."
    listed = listed if names else "It has none with an upstream."
    hint = suggest(entry.directory, names, otherwise=listed, most=1)
    return _problem(variant, entry, Reason.INVALID_ANNOTATION, f"The package {what}", hint)


def _problem(
    variant: DesiredVariant, entry: SubpackageRevision, reason: Reason, message: Text, hint: Text
) -> Problem:
    where = variant.source.inside(entry.offset, "metadata", "annotations", SUBPACKAGE_REVISIONS)
    return Problem(where, reason, f"{SUBPACKAGE_REVISIONS}: {message}", hint).owned_by(variant.owner)


def _find_pin(
    variant: DesiredVariant,
    entry: SubpackageRevision,
    upstream: GitUpstream,
    inventory: Inventory,
    sources: Sources,
) -> Pin | Problem:
    """Return the pin of a sub-package, as a variant of that upstream would have it."""
    views = list(find_sources(upstream, sources, variant.key.namespace))
    if not views:
        return _unregistered(variant, entry, upstream, inventory)
    view, path = next((source for source in views if source[0].upstream_at(source[1])), views[0])
    number = re.fullmatch(r"v?([1-9][0-9]*)", entry.revision)
    selector = {"revision": int(number[1])} if number else {"tag": entry.revision}
    selected = Upstream(repo=view.key.name, package=package_name(view, path) or ".", **selector)
    pin = find_upstream(with_upstream(variant, selected), inventory)
    if isinstance(pin, Problem):
        return _problem(variant, entry, Reason(pin.reason), f"{entry.directory}: {pin.message}", pin.hint)
    return pin


def _unregistered(
    variant: DesiredVariant, entry: SubpackageRevision, upstream: GitUpstream, inventory: Inventory
) -> Problem:
    url, namespace = normalise_url(upstream.repo), variant.key.namespace
    same = (v for v in inventory.repositories.values() if url in source_names(v))
    view = next((candidate for candidate in same if candidate.key.namespace == namespace), None)
    if view is not None and view.problem is not None:
        message, reason = f"{entry.directory}: {view.unread_message}", Reason(view.problem.reason)
        problem = _problem(variant, entry, reason, message, view.problem.hint)
        return replace(problem, repository=view.key)
    message = f"{entry.directory} is from {upstream.repo}, which is no registered repository"
    hint = f"Register it as a Repository object in namespace {namespace}."
    return _problem(variant, entry, Reason.REPOSITORY_NOT_FOUND, message, hint)


def find_sources(
    upstream: GitUpstream, sources: Sources, namespace: str = ""
) -> Iterator[tuple[RepositoryView, str]]:
    """Yield the views that may have an upstream, with its path there; those of its directory are first."""
    directory = upstream.directory.strip("/")
    views = sources.get(normalise_url(upstream.repo), ())
    places = [
        (view, path)
        for view in views
        if view.key.namespace == (namespace or view.key.namespace)
        for path in dict.fromkeys((directory, view.full_path(directory)))
    ]
    yield from sorted(places, key=lambda place: not is_within(place[1], place[0].directory))


def extend_resolution(
    resolution: Resolution,
    inventory: Inventory,
    desired: Desired,
    defects: Mapping[ObjectName, Problem] = MappingProxyType({}),
) -> Resolution:
    """Resolve the desired variants that the resolution does not have yet. Pure and order-free.

    Total: every desired variant is resolved, stalled with its problems, or waits, except those that other
    shards plan. Revisions that this plan will publish count as published: a chain of variants is at rest
    after one run (law 1).

    Variants that are generated for dependencies are known only after all others are pinned, so a second
    step is inherent. It resolves the generated variants, and those that read a repository where the
    generated ones publish revisions; all others keep their outcome. Variants with `defects` are stalled.
    """
    outcomes: dict[ObjectName, Outcome] = {r.variant.key: r for r in resolution.variants}
    outcomes |= {waiting.variant.key: waiting for waiting in resolution.waiting}
    for variant in desired.variants if resolution.stalled else ():
        if variant.owner in resolution.stalled:
            outcomes[variant.key] = tuple(p for p in resolution.problems if p.owner == variant.owner)
    new = [variant for variant in desired.variants if variant.key not in outcomes]
    downstreams = downstream_packages(new, inventory, resolution.downstreams)
    sound = {key: some for key, some in downstreams.items() if not any(v.key in defects for v in some)}
    publications = find_publications(sound, desired, inventory)
    tagged = {key.url for key, tags in publications.items() if resolution.publications.get(key) != tags}
    pending = [
        variant
        for variant in desired.variants
        if variant.key not in outcomes or tagged & _urls(variant, outcomes[variant.key], inventory)
    ]
    if any(view.role is not RepositoryRole.PLANNED for view in inventory.repositories.values()):
        views = ((variant, find_view(variant, inventory)) for variant in pending)
        pending = [v for v, view in views if view is None or view.role is RepositoryRole.PLANNED]
    # What this plan tags counts as published, or a chain of variants would need one run per link (law 1).
    inventory = with_pending_tags(publications, inventory)
    lookups = Lookups(_index_objects(pending, inventory), index_sources(inventory))
    outcomes |= {variant.key: _outcome(variant, inventory, lookups) for variant in pending}
    outcomes |= {key: (problem,) for key, problem in find_circles(downstreams, inventory).items()}
    outcomes |= {variant.key: (defects[variant.key],) for variant in pending if variant.key in defects}
    rollouts = find_rollouts(outcomes, desired, inventory, lookups.sources)
    outcomes |= _at_kept_pins(outcomes, rollouts, desired, inventory)
    ordered = [(key, outcomes[key]) for key in sorted(outcomes)]
    failed = {key: outcome for key, outcome in ordered if isinstance(outcome, tuple)}
    return Resolution(
        variants=tuple(outcome for _, outcome in ordered if isinstance(outcome, ResolvedVariant)),
        waiting=tuple(outcome for _, outcome in ordered if isinstance(outcome, WaitingVariant)),
        stalled=frozenset(variant_key(key) for key in failed),
        problems=tuple(sorted({*rollouts.problems, *(p for problems in failed.values() for p in problems)})),
        downstreams=downstreams,
        publications=publications,
        rollouts=rollouts.rollouts,
        notes=rollouts.notes,
    )


def _at_kept_pins(
    outcomes: Mapping[ObjectName, Outcome], rollouts: Rollouts, desired: Desired, inventory: Inventory
) -> dict[ObjectName, Outcome]:
    """Return the variants that a rollout holds, each at the pin that it keeps."""
    held_variants = [
        variant if pin.values is None else with_values(variant, pin.values)
        for variant in (desired.variants if rollouts.kept_pins else ())
        if (pin := rollouts.kept_pins.get(variant.key)) is not None
    ]
    if not held_variants:
        return {}
    lookups = Lookups(_index_objects(held_variants, inventory), index_sources(inventory))
    results: dict[ObjectName, Outcome] = {}
    for variant in held_variants:
        pin, outcome = rollouts.kept_pins[variant.key], outcomes[variant.key]
        choice = PinChoice(pin.pin, None if isinstance(outcome, tuple) else outcome.offers)
        resolved = _outcome(variant, inventory, lookups, choice) if pin.pin else outcome
        results[variant.key] = with_kept_pin(outcome, pin, resolved)
    return results


def with_releases(resolution: Resolution, inventory: Inventory, desired: Desired) -> Resolution:
    """Return the resolution with the packages that are orphaned."""
    return replace(resolution, releases=tuple(find_releases(resolution.downstreams, desired, inventory)))


def _urls(variant: DesiredVariant, outcome: Outcome, inventory: Inventory) -> set[str]:
    upstream = variant.spec.upstream or Upstream()
    view = inventory.repositories.get(ObjectName(variant.key.namespace, upstream.repo or ""))
    bases = (outcome.base, outcome.draft_base) if isinstance(outcome, ResolvedVariant) else ()
    return {base.package.url for base in bases if base} | ({view.url} if view else set())


class Lookups(NamedTuple):
    """Indexes that every variant uses: objects by cluster, repositories by URL."""

    objects: Mapping[str, ObjectIndex]
    sources: Sources


def _index_objects(variants: Iterable[DesiredVariant], inventory: Inventory) -> dict[str, ObjectIndex]:
    """Return the objects of the clusters of variants with injectors.

    Clusters without an own snapshot share one index.
    """
    shared: ObjectIndex | None = None
    indexes: dict[str, ObjectIndex] = {}
    views = (find_view(variant, inventory) for variant in variants if variant.spec.injectors)
    for cluster in {view.cluster for view in views if view}:
        if cluster in inventory.snapshot.clusters:
            indexes[cluster] = index_objects(inventory.snapshot.clusters[cluster])
        else:
            shared = index_objects(inventory.snapshot.of(cluster)) if shared is None else shared
            indexes[cluster] = shared
    return indexes


def _outcome(
    variant: DesiredVariant, inventory: Inventory, lookups: Lookups, kept_choice: PinChoice | None = None
) -> Outcome:
    """Resolve one variant; a defect stalls it alone."""
    try:
        with guard(f"PackageVariant {variant.key}"):
            return resolve_variant(variant, inventory, lookups, kept_choice)
    except DefectError as error:
        return (defect_problem(error, variant.source.location, variant.owner),)


def resolve_variant(
    variant: DesiredVariant, inventory: Inventory, lookups: Lookups, kept_choice: PinChoice | None = None
) -> Outcome:
    """Resolve one variant, or return every problem of its upstream and downstream.

    `kept_choice` is the pin that a rollout keeps it at, in place of the one that it asks for.
    """
    downstream = variant.spec.downstream or Downstream()
    view = find_repository(variant, downstream.repo or "", inventory, field="downstream")
    choice = kept_choice or choose_pin(variant, inventory)
    if isinstance(view, Problem) or isinstance(choice, Problem):
        return tuple(problem for problem in (view, choice) if isinstance(problem, Problem))
    pin = choice.pin
    if pin is None:
        return WaitingVariant(variant, choice.offers, choice.waits)
    path = view.full_path(downstream.package or "")
    # A Kptfile that cannot be read may have another owner: nothing is written over it.
    if path in view.broken:
        return (replace(view.broken[path], location=variant.source.location).owned_by(variant.owner),)
    record = inventory.records.get(variant.key)
    package = view.packages.get(path, PackageState(path))
    base, lost = find_base(package.main_header, pin, record, inventory, lookups.sources)
    base = find_equal(package.main_header, pin, record, inventory) or base
    draft = current_draft(package, view, inventory)
    draft_header = draft.header if draft else None
    draft_base = find_base(draft_header, pin, record, inventory, lookups.sources)[0] if draft else None
    pin = steady(pin, variant, draft_base if draft else base)
    where = PackageKey(view.url, package.path)
    local = package.main_tree
    if local is None and variant.spec.adoption_policy == ADOPT_EXISTING:
        local = view.directories.get(path)
    # Of these revisions the content tells, when it is rendered, which one a package was copied from.
    candidates = find_candidates(pin, inventory) if local and base is None and not lost else ()
    objects = lookups.objects.get(view.cluster, {})
    facts = input_facts(variant, view, where, pin, inventory, objects=objects)
    asked_from = _asked_from(draft, record)
    upstreams = (pin.tree, *(base_pin.tree for base_pin in (base, draft_base) if base_pin), asked_from)
    trees = (local, draft.tree if draft else None, *upstreams)
    subpackages = pin_subpackages(variant, trees, inventory, lookups.sources)
    if isinstance(subpackages, Problem):
        return (subpackages,)
    if subpackages:
        facts["subpackages"] = subpackage_facts(subpackages)
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
        objects=named_objects(variant, objects) or {},
        asked_from=asked_from,
        ticks=_ticks(draft, view, record, inventory),
        moved=find_moved_tag((draft_header, package.main_header), pin, variant, inventory.tag_objects),
        offers=choice.offers,
        candidates=candidates,
        has_charts=has_charts(pin, variant, inventory),
        subpackages=subpackages,
    )
    settled, is_unedited = find_settled(resolved, record), has_no_edits(resolved, facts, record)
    former = () if settled or is_unedited else _former(resolved, package, record)
    return replace(resolved, settled=settled, is_unedited=is_unedited, former=former)


def _former(
    resolved: ResolvedVariant, package: PackageState, record: PackageVariantRecord | None
) -> tuple[Oid, ...]:
    """Return the last published trees of a package that people changed since its functions ran."""
    local = resolved.local
    is_made = record is not None and record.output_tree == local and not (record.failed or record.conflicts)
    if local is None or resolved.base is None or is_made or (record and local in (record.unedited or ())):
        return ()
    published = sorted((r for r in package.published if r.revision > 0), key=lambda r: -r.revision)
    recorded = [record.output_tree, record.local_tree] if record is not None else []
    trees = [*(revision.tree for revision in published[:_MOST_FORMER]), *map(Oid, filter(None, recorded))]
    return tuple(dict.fromkeys(tree for tree in trees if tree != local))


def _ticks(
    draft: Draft | None, view: RepositoryView, record: PackageVariantRecord | None, inventory: Inventory
) -> Ticks:
    """Return the boxes that answer conflicts of a package; two of one conflict answer nothing.

    Where the text of its pull request does not tell them, they are those that a run recorded.
    """
    pulls = inventory.pulls_of(view.url).at(short_branch(draft.ref)) if draft and not draft.is_grouped else ()
    ticks = next((pull.ticks for pull in pulls if pull.state is PullState.OPEN), None)
    if ticks is None:
        return recorded_ticks(record)
    names = Counter(name for _, name in ticks)
    return frozenset(tick for tick in ticks if names[tick[1]] == 1)


def _asked_from(draft: Draft | None, record: PackageVariantRecord | None) -> Oid | None:
    """Return where the conflicts come from that wait in a draft which we only append to."""
    if draft is None or record is None or not (draft.append_only and record.conflicts):
        return None
    return Oid(record.asked_from) if record.asked_from else None


def find_releases(
    downstreams: Container[PackageKey], desired: Desired, inventory: Inventory
) -> Iterator[Release]:
    """Yield the owned packages that no desired variant targets and that have the deletion policy `orphan`.

    Order-free. The plan decides whether there is evidence enough to release them; this lists what it
    would have to read.
    """
    released: set[PackageKey] = set()
    policies = {v.key: v.spec.deletion_policy for v in desired.variants}
    gone = {k: r for k, r in inventory.records.items() if k not in policies}
    policies |= {key: deletion_policy(record, inventory) for key, record in gone.items()}
    if ORPHAN not in policies.values():
        return
    for view in sorted(inventory.views.values(), key=lambda v: v.key):
        for path in sorted(view.packages):
            key, package = PackageKey(view.url, path), view.packages[path]
            if key in downstreams or key in released:
                continue
            draft = current_draft(package, view, inventory)
            header = package.main_header if package.main_tree else draft.header if draft else None
            owner, tree = find_owner(header, key, inventory), package.main_tree or (draft and draft.tree)
            if owner is not None and tree and policies.get(owner) == ORPHAN:
                released.add(key)
                yield Release(key, tree)
