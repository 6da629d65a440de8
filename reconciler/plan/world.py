"""What the plan decides about: every package in scope, whose it is, and which variants want it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.api.porch import GROUP
from reconciler.expand import Desired, DesiredVariant, SetDiff, diff_variants
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.inventory import Draft, Inventory, PackageState, PullRequest, RepositoryView
from reconciler.render.rendered import Rendered
from reconciler.resolve.ownership import find_owner, is_merged, is_within, our_drafts
from reconciler.resolve.resolution import Resolution, ResolvedVariant

PAUSED = "reconciler.dev/paused"


@dataclass(frozen=True, slots=True)
class Target:
    """One package in scope.

    `owner` is the variant of ours that the annotations name, on main or, where the package is not
    on main, in our draft. `draft` is the open draft we work on, `merged` are drafts of ours that
    main has already, `others` further drafts of ours.
    """

    key: PackageKey
    view: RepositoryView
    package: PackageState
    owner: ObjectName | None = None
    main_owner: ObjectName | None = None
    draft: Draft | None = None
    merged: tuple[Draft, ...] = ()
    others: tuple[Draft, ...] = ()
    pulls: tuple[PullRequest, ...] = ()

    @property
    def drafts(self) -> tuple[Draft, ...]:
        """Every draft of ours, the open one first."""
        return (*((self.draft,) if self.draft else ()), *self.merged, *self.others)


@dataclass(frozen=True, slots=True)
class World:
    """Everything a decision may look at; built once, never changed."""

    inventory: Inventory
    desired: Desired
    resolution: Resolution
    rendered: Rendered
    diff: SetDiff
    targets: tuple[Target, ...]
    wanted: Mapping[PackageKey, tuple[DesiredVariant, ...]]
    resolved: Mapping[ObjectName, ResolvedVariant]
    variants: Mapping[ObjectName, DesiredVariant]
    stalled: frozenset[ObjectKey]

    def is_stalled(self, variant: ObjectName) -> bool:
        """Whether the variant is one that we could not understand."""
        return ObjectKey(GROUP, "PackageVariant", *variant) in self.stalled

    def find_desired(self, variant: ObjectName) -> DesiredVariant | None:
        """Return the desired variant of that name."""
        return self.variants.get(variant)


def build_world(inventory: Inventory, desired: Desired, resolution: Resolution, rendered: Rendered) -> World:
    """Bring the stages' values together, package by package. Order-free."""
    wanted = dict(_wanted(desired, inventory))
    return World(
        inventory=inventory,
        desired=desired,
        resolution=resolution,
        rendered=rendered,
        diff=diff_variants(desired, inventory),
        targets=tuple(_targets(wanted, desired, inventory)),
        wanted=wanted,
        resolved={r.variant.key: r for r in resolution.variants},
        variants={v.key: v for v in desired.variants},
        stalled=inventory.stalled | desired.stalled,
    )


def find_view(variant: DesiredVariant, inventory: Inventory) -> RepositoryView | None:
    """Return the registered repository that a variant's downstream names."""
    downstream = variant.spec.downstream
    name = downstream.repo if downstream else None
    return inventory.repositories.get(ObjectName(variant.key.namespace, name or ""))


def _wanted(
    desired: Desired, inventory: Inventory
) -> Iterator[tuple[PackageKey, tuple[DesiredVariant, ...]]]:
    found: dict[PackageKey, list[DesiredVariant]] = {}
    for variant in sorted(desired.variants, key=lambda v: v.key):
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            key = PackageKey(view.url, view.full_path(downstream.package or ""))
            found.setdefault(key, []).append(variant)
    yield from ((key, tuple(variants)) for key, variants in found.items())


def _targets(
    wanted: Mapping[PackageKey, tuple[DesiredVariant, ...]], desired: Desired, inventory: Inventory
) -> Iterator[Target]:
    """Yield the packages in scope once each, sorted: law 3."""
    views = {v.key for v in (find_view(d, inventory) for d in desired.variants) if v is not None}
    scope: dict[PackageKey, Target] = {}
    for view in sorted(inventory.repositories.values(), key=lambda v: (v.key not in views, v.key)):
        for path, package in view.packages.items() if view.is_available else ():
            key = PackageKey(view.url, path)
            if key in scope or not package.exists:
                continue
            target = make_target(view, package, inventory)
            if view.key in views or target.owner or key in wanted or _is_annotated(target, inventory):
                scope[key] = target
    for key, view in _deleted(inventory):
        if key not in scope:
            scope[key] = make_target(view, view.packages.get(key.path, PackageState(key.path)), inventory)
    for key, variants in wanted.items():
        own = find_view(variants[0], inventory)
        if key not in scope and own is not None and own.is_available:
            package = own.packages.get(key.path, PackageState(key.path))
            scope[key] = make_target(own, package, inventory)
    yield from (scope[key] for key in sorted(scope))


def _deleted(inventory: Inventory) -> Iterator[tuple[PackageKey, RepositoryView]]:
    """Yield the packages whose deletion we once proposed, in the view that each belongs to."""
    prefix = f"reconciler/{inventory.policy.instance}/delete/"
    seen: set[str] = set()
    for view in sorted(inventory.repositories.values(), key=lambda v: v.key):
        if view.url in seen or not view.is_available:
            continue
        seen.add(view.url)
        views = tuple(inventory.views_of(view.url))
        for name in view.branches:
            path = name.removeprefix(prefix)
            home = next((v for v in views if is_within(path, v.directory)), None)
            if path != name and home is not None:
                yield PackageKey(view.url, path), home


def make_target(view: RepositoryView, package: PackageState, inventory: Inventory) -> Target:
    """Return what is known of one package: whose it is, and which drafts of it are ours."""
    key = PackageKey(view.url, package.path)
    pulls = inventory.pulls.get(view.url, ())
    drafts = our_drafts(package, view, inventory)
    merged = tuple(d for d in drafts if is_merged(d, package, pulls))
    opened = [d for d in drafts if d not in merged]
    main_owner = find_owner(package.main_header, key, inventory)
    draft = opened[0] if opened else None
    owner = main_owner
    if package.main_tree is None and draft is not None:
        owner = find_owner(draft.header, key, inventory)
    return Target(
        key=key,
        view=view,
        package=package,
        owner=owner,
        main_owner=main_owner,
        draft=draft,
        merged=merged,
        others=tuple(opened[1:]),
        pulls=tuple(pulls),
    )


def _is_annotated(target: Target, inventory: Inventory) -> bool:
    """Whether our annotation stands on the package at all, a copy's included."""
    prefix = f"{inventory.policy.instance}/"
    headers = [target.package.main_header, *(d.header for d in target.package.drafts)]
    return any(header is not None and header.owner.startswith(prefix) for header in headers)
