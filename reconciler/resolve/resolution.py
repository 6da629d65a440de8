"""Values of resolution: pins, resolved variants, and the trees that rendering them reads."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self

from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.base.text import Text
from reconciler.base.values import grouped
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Draft, PackageRevision
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey, normalise_url, shareable_address
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem
from reconciler.names.trailers import Ticks
from reconciler.resolve.rollout_model import Rollout

Downstreams = Mapping[PackageKey, tuple[DesiredVariant, ...]]
"""The variants that want each package, sorted; several of them contest it."""

Publications = Mapping[PackageKey, tuple[PackageRevision, ...]]
"""The revisions that a plan tags, by package, in the order of their numbers."""


class Pin(Struct, frozen=True):
    """One upstream package at one commit.

    `ref` is the short name a Kptfile shows (`F/v3`, `drafts/F/w`, a branch), `revision` the
    number or -1, `tree` the package's tree, `remote` the repository as git is called with it,
    `repo` as its registration writes it: what a Kptfile shows. `repository` is the registration's
    name and `name` the package's in it. A plain package has no Kptfile: it gets one.
    """

    package: PackageKey
    remote: str
    ref: str
    revision: int
    commit: Commit
    tree: Oid
    repo: str = ""
    repository: str = ""
    name: str = ""
    is_plain: bool = False

    @property
    def urls(self) -> frozenset[str]:
        """The normalised URLs of the repository: as registered, and as git is called with it."""
        return frozenset(map(normalise_url, (self.package.url, self.remote, self.repo)))

    @property
    def label(self) -> str:
        """The revision as people call it: `web/v2`, or a ref at a short commit."""
        return self.ref if self.revision > 0 else f"{self.ref}@{self.commit.oid[:8]}"

    @property
    def address(self) -> str:
        """The repository as a Kptfile names it."""
        return shareable_address(self.repo, self.remote)


class SubpackagePin(Struct, frozen=True):
    """The revision that a variant sets for a sub-package; `bases` are those that it was made from."""

    directory: str
    pin: Pin
    bases: tuple[Pin, ...] = ()


class HeldBack(NamedTuple):
    """The pin that a rollout holds back, None before the first one; why, and where that was ordered.

    `is_guess` tells that the values that main was made with are unknown: what is rendered is compared with
    main, and never proposed.
    """

    target: Pin | None
    why: Text
    location: Location | None = None
    is_guess: bool = False


class ResolvedVariant(Struct, frozen=True):
    """A desired variant with its upstream and downstream.

    `base` is the pin that the downstream was last made from (its upstreamLock), None if it
    was never made or its lock names a commit that cannot be found (then `lost_base` has the reason).
    `local` is the package on main, `draft` our open draft of it and `draft_base` what that one
    was made from. `inputs` is the digest of everything that rendering reads; `settled` is the
    result where a record already tells it, and then no tree is needed. `facts` are the inputs that a
    record keeps to report later which of them changed, `objects` are digests of the
    cluster objects that its injectors may name. `asked_from` is the upstream tree that the conflicts
    come from which wait in a draft with a person's commits: what a policy answers later is merged from
    there. `ticks` are the boxes that answer its conflicts. `moved` describes how its numbered
    upstream tag moved without a person's consent, empty if it did not. `offers` is what a floating
    upstream means by itself, which a lock may keep from being the pin; None for an exact one.
    `candidates` are the revisions that a package without upstreamLock may have been made from. `has_charts`
    is set if the upstream may have charts of Helm, which are rendered anew for other values. `held_back` is
    what a rollout keeps from being the pin, None if none does. `draft_local` is the draft without what its
    variant wrote there and does not ask for any more, None if it has nothing of that. `is_unedited`
    tells that main has what is made of the base, byte by byte. `former` are trees that main had before,
    newest first, where what functions read may have changed since; nothing needs them to be there.
    """

    variant: DesiredVariant
    view: ObjectName
    downstream: PackageKey
    pin: Pin
    base: Pin | None = None
    lost_base: str = ""
    local: Oid | None = None
    draft: Draft | None = None
    draft_base: Pin | None = None
    inputs: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    settled: Oid | None = None
    objects: Mapping[str, str] = field(default_factory=dict)
    moved: str = ""
    asked_from: Oid | None = None
    ticks: Ticks = frozenset()
    offers: Pin | None = None
    candidates: tuple[Pin, ...] = ()
    has_charts: bool = False
    held_back: HeldBack | None = None
    subpackages: tuple[SubpackagePin, ...] = ()
    draft_local: Oid | None = None
    is_unedited: bool = False
    former: tuple[Oid, ...] = ()

    @property
    def requested(self) -> Pin:
        """The pin that the variant asks for; a rollout may keep the package from it."""
        return (self.held_back and self.held_back.target) or self.pin


class WaitingVariant(Struct, frozen=True):
    """A desired variant for which nothing is done before its pin is merged; `offers` would be that pin.

    `target` is the pin that a rollout keeps from being the pin, None if its lock is what it waits for.
    """

    variant: DesiredVariant
    offers: Pin | None = None
    why: Text = ""
    target: Pin | None = None


class Release(Struct, frozen=True):
    """A package that leaves our care with its content kept: its annotations are to be dropped.

    `tree` is the package on main, or in its draft where it never got there.
    """

    package: PackageKey
    tree: Oid


class BeyondRun(str):
    """The reason why a package was not read: a limit of the whole run, and no fault of the package."""

    __slots__ = ()


class Needs(Struct, frozen=True):
    """The package trees to fetch, by repository URL: one batch per repository. `plain` ones get a Kptfile.

    Upstreams come first, which many packages need: a run that is cut completes those before the cut.
    """

    trees: Mapping[str, frozenset[Oid]] = field(default_factory=dict)
    plain: frozenset[Oid] = frozenset()

    @classmethod
    def of(cls, trees: Iterable[tuple[str, Oid | None]]) -> Self:
        """Return the need of each tree by the URL of its repository; one that is not there is none."""
        by_url = grouped((url, tree) for url, tree in trees if tree)
        return cls({url: frozenset(there) for url, there in by_url.items()})


class Resolution(Struct, frozen=True):
    """The outcome of resolution: every desired variant is resolved, waiting or stalled with its problems.

    `downstreams` are the packages that variants want. `publications` are the revisions that this plan
    tags: variants are resolved as if they were tagged already. `rollouts` are those that are on their way,
    or that were finished last. `notes` are about orders for them without effect.
    """

    variants: tuple[ResolvedVariant, ...] = ()
    releases: tuple[Release, ...] = ()
    waiting: tuple[WaitingVariant, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    problems: tuple[Problem, ...] = ()
    downstreams: Downstreams = field(default_factory=dict)
    publications: Publications = field(default_factory=dict)
    rollouts: tuple[Rollout, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def needs(self) -> Needs:
        """The trees that rendering the variants and releases reads."""
        return collect_needs(self.variants, self.releases)


def collect_needs(variants: Iterable[ResolvedVariant], releases: Iterable[Release]) -> Needs:
    """Return the trees that rendering these variants and releases reads, by repository URL."""
    variants, trees = tuple(variants), dict[str, set[Oid]]()
    for resolved in variants:
        for url, tree in variant_trees(resolved):
            trees.setdefault(url, set()).add(tree)
        draft = resolved.draft
        written = [draft.written] if draft is not None and draft.append_only and draft.written else []
        if former := {*resolved.former, *written} if resolved.settled is None else set():
            trees.setdefault(resolved.downstream.url, set()).update(former)
    for release in releases:
        trees.setdefault(release.package.url, set()).add(release.tree)
    # Trees of upstreams that may be packages without a Kptfile. A base may have been found through another
    # Repository at the same address, which says nothing.
    plain = [resolved for resolved in variants if resolved.pin.is_plain]
    pins = (p for r in plain for p in (r.pin, r.base, r.draft_base, *r.candidates) if p is not None)
    plain_trees = {*(pin.tree for pin in pins), *(r.asked_from for r in plain if r.asked_from)}
    upstreams = {resolved.pin.package.url for resolved in variants}
    urls = sorted(trees, key=lambda url: (url not in upstreams, url))
    return Needs({url: frozenset(trees[url]) for url in urls}, frozenset(plain_trees))


def variant_trees(resolved: ResolvedVariant) -> Iterator[tuple[str, Oid]]:
    """Yield the trees that rendering one variant reads.

    The upstream of a package that is made anew is among them, though it did not change: what functions made
    of it is made from it again, not from their own output.
    """
    if resolved.settled is not None:
        return
    here = resolved.downstream.url
    pin = resolved.pin
    yield from _subpackage_trees(resolved)
    if resolved.local is None:
        yield pin.package.url, pin.tree
    else:
        yield here, resolved.local
        yield from update_trees(resolved.base, pin)
        if resolved.has_charts or resolved.base is not None or not resolved.lost_base:
            yield pin.package.url, pin.tree
        if resolved.base is None and not resolved.lost_base:
            yield from ((base.package.url, base.tree) for base in resolved.candidates)
    draft = resolved.draft
    if draft is not None and draft.append_only:
        yield here, draft.tree
        yield from update_trees(resolved.draft_base, pin)
        if draft.answers.named:
            yield pin.package.url, pin.tree
            if draft.written is not None:
                yield here, draft.written
        if resolved.asked_from is not None:
            yield pin.package.url, resolved.asked_from
            yield pin.package.url, pin.tree
        if has_main_moved(resolved) and draft.base_tree and resolved.local:
            yield here, draft.base_tree


def _subpackage_trees(resolved: ResolvedVariant) -> Iterator[tuple[str, Oid]]:
    """Yield the revisions of sub-packages that a variant sets, and the upstreams that they are put into."""
    for subpackage in resolved.subpackages:
        pins = (subpackage.pin, *subpackage.bases, resolved.base, resolved.pin, resolved.draft_base)
        yield from ((pin.package.url, pin.tree) for pin in pins if pin is not None)


def update_trees(base: Pin | None, pin: Pin) -> Iterator[tuple[str, Oid]]:
    """Yield the two sides of an update, if there is one."""
    if base is not None and base.tree != pin.tree:
        yield base.package.url, base.tree
        yield pin.package.url, pin.tree


def has_main_moved(resolved: ResolvedVariant) -> bool:
    """Whether the package on main changed since our draft left it."""
    return resolved.draft is not None and resolved.draft.base_tree != resolved.local
