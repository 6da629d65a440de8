"""Input of planning: every package in scope, its owner, and the variants that want it."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.text import Text
from reconciler.expand import Desired, DesiredVariant
from reconciler.inventory.inventory import (
    Draft,
    Inventory,
    PackageRevision,
    PackageState,
    PullRequest,
    PullRequests,
    PullState,
    RecordedStatus,
    RepositoryRole,
    RepositoryView,
)
from reconciler.names.ids import Lifecycle, ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import DELETION_PROPOSED, HEADS, PathIndex, RefIndex, deletion_ref, short_branch
from reconciler.plan.set_diff import (
    SetDiff,
    VariantChange,
    deletion_consent,
    diff_variants,
    without_generated,
)
from reconciler.records.state import RecordedDownstream
from reconciler.render.rendered import Rendered
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.ownership import find_owner, find_view, is_merged, named_views, our_drafts
from reconciler.resolve.resolution import Downstreams, Resolution, ResolvedVariant
from reconciler.resolve.rollout_model import Rollout
from reconciler.resolve.upstreams import Sources, index_sources

ProposedDeletions = Mapping[PackageKey, tuple[tuple[str, Oid], ...]]
"""The branches that propose to delete a package, ours and Porch's, each with its oid; sorted."""


class Before(Struct, frozen=True, dict=True):
    """State of a package before any decision, beside the content of its repository."""

    variant: ObjectName | None = None
    """The variant that its change is about: the one that wants it, else its owner."""
    is_wanted: bool = False
    is_stalled: bool = True
    """Whether its manifest, upstream or downstream is wrong, or no manifest declares it."""
    stopped: Text = ""
    """Why its rollout keeps it from being merged."""
    deletion: str = ""
    """The branch that proposes its deletion, short, whether or not it is there."""
    publications: tuple[PackageRevision, ...] = ()
    """Revisions that this run publishes."""
    manifest: int = 0
    """Time of its manifest, else of the control commit."""
    control: int = 0
    statuses: Mapping[ObjectName, RecordedStatus] = field(default_factory=dict)
    """The recorded statuses of all variants: few are looked up, and each is read then."""

    @cached_property
    def recorded(self) -> RecordedStatus | None:
        """The recorded status of its variant."""
        return self.statuses.get(self.variant) if self.variant else None


class PlanTarget(Struct, frozen=True):
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
    pulls: PullRequests = PullRequests()
    before: Before = Before()

    @property
    def drafts(self) -> tuple[Draft, ...]:
        """Every draft of ours, the open one first."""
        return (*((self.draft,) if self.draft else ()), *self.merged, *self.others)

    @property
    def is_aside(self) -> bool:
        """Whether this is what is on another branch, where path and drafts are those of another target."""
        return self.key.path != self.package.path

    @property
    def standing_deletion(self) -> str:
        """The branch that proposes to delete the package, "" if there is none."""
        deletion = self.before.deletion
        return deletion if deletion in self.view.branches and not self.is_aside else ""


class Neighbours(Struct, frozen=True):
    """Index of the packages, refs and other paths of one Git repository.

    `existing` are packages on main or in drafts, except those that leave with this plan; `planned`
    are those that variants want and that do not exist yet; `others` are files and directories on main
    outside of packages.
    """

    existing: PathIndex
    planned: PathIndex
    refs: RefIndex
    others: PathIndex = PathIndex(())


class PlanContext(Struct, frozen=True, dict=True):  # it keeps the moves
    """Everything a decision may look at; built once, never changed.

    `gone` are the recorded variants that are not desired any more, with why they leave or stay; `waiting`
    those for which nothing is done before their pin is merged, with why. `staying` are those that a rollout
    keeps at their present revision, with why; `stopped` those with a draft that it keeps from being merged
    by policy. `rollouts` are those that a variant is part of.
    """

    inventory: Inventory
    desired: Desired
    resolution: Resolution
    rendered: Rendered
    diff: SetDiff
    targets: Mapping[PackageKey, PlanTarget]
    downstreams: Downstreams
    resolved: Mapping[ObjectName, ResolvedVariant]
    variants: Mapping[ObjectName, DesiredVariant]
    stalled: frozenset[ObjectKey]
    gone: Mapping[ObjectName, VariantChange]
    waiting: Mapping[ObjectName, Text]
    proposed_deletions: ProposedDeletions
    staying: Mapping[ObjectName, Text] = field(default_factory=dict)
    stopped: Mapping[ObjectName, Text] = field(default_factory=dict)
    rollouts: Mapping[ObjectName, Rollout] = field(default_factory=dict)
    neighbours: Mapping[str, Neighbours] = field(default_factory=dict)
    sources: Sources = field(default_factory=dict)
    defects: Mapping[ObjectName, Problem] = field(default_factory=dict)

    @cached_property
    def moves(self) -> Mapping[ObjectName, ObjectName]:
        """The variants that were renamed and moved at once, with those that they became.

        One is the only new variant of an upstream package, of the same set if of any, and the other the only
        one gone: of all, or of one repository. One that takes over the package of another, as with a renamed
        Repository, is no new one.
        """
        records = self.inventory.records
        successors = {change.successor for change in self.gone.values()}
        gone, new = defaultdict[object, list[ObjectName]](list), defaultdict[object, list[ObjectName]](list)
        for key, change in self.gone.items():
            if change.successor is None and key in records:
                origin = _origin(key, records[key].set_name, records[key].spec.get("upstream"))
                gone[origin].append(key)
                gone[*origin, records[key].repository].append(key)
        for variant in self.desired.variants if gone else ():
            if variant.key not in records and variant.key not in successors:
                spec = variant.spec.model_dump(include={"upstream", "downstream"})
                set_name = variant.set_key.name if variant.set_key else ""
                origin = _origin(variant.key, set_name, spec["upstream"])
                new[origin].append(variant.key)
                new[*origin, (spec["downstream"] or {}).get("repo")].append(variant.key)
        alone = {gone[of][0]: new[of][0] for of in gone if len(gone[of]) == len(new.get(of, ())) == 1}
        before = {record.moved_from: key for key, record in records.items() if key in self.variants}
        return alone | {key: before[str(key)] for key in self.gone if str(key) in before}

    def names_at(self, packages: Collection[PackageKey]) -> frozenset[ObjectName]:
        """Return the variants that want packages, or that were applied there."""
        wanting = {v.key for key, variants in self.downstreams.items() if key in packages for v in variants}
        records = self.inventory.records.items()
        return frozenset(wanting | {key for key, old in records if not old.packages.isdisjoint(packages)})

    def without(self, packages: Collection[PackageKey]) -> "PlanContext":
        """Return the context without some packages and what is known of their variants."""
        names, inventory, desired = self.names_at(packages), self.inventory, self.desired
        records = {key: record for key, record in inventory.records.items() if key not in names}
        return replace(
            self,
            inventory=replace(inventory, records=records),
            desired=replace(desired, variants=tuple(v for v in desired.variants if v.key not in names)),
            targets={key: value for key, value in self.targets.items() if key not in packages},
            downstreams={key: value for key, value in self.downstreams.items() if key not in packages},
            resolved={key: value for key, value in self.resolved.items() if key not in names},
            variants={key: value for key, value in self.variants.items() if key not in names},
            gone={key: value for key, value in self.gone.items() if key not in names},
        )


def _origin(key: ObjectName, set_name: str, upstream: object) -> tuple[object, ...]:
    parts = upstream if isinstance(upstream, Mapping) else {}
    return key.namespace, set_name, parts.get("repo"), parts.get("package")


def build_context(inventory: Inventory, fleet: ResolvedFleet, rendered: Rendered) -> PlanContext:
    """Bring the values of the stages together, package by package. Order-free."""
    desired, resolution, hidden = fleet.desired, fleet.resolution, inventory.hidden
    downstreams = {key: variants for key, variants in resolution.downstreams.items() if key not in hidden}
    # What is generated for the clusters of other shards is not among the desired variants.
    diff = diff_variants(desired, without_generated(inventory) if inventory.is_partial else inventory)
    deletions = _proposed_deletions(inventory)
    rollouts = resolution.rollouts
    kept_and_gone = (*diff.delete, *diff.keep, *diff.transfer)
    context = PlanContext(
        inventory=inventory,
        desired=desired,
        resolution=resolution,
        rendered=rendered,
        diff=diff,
        targets={target.key: target for target in _targets(downstreams, deletions, desired, inventory)},
        downstreams=downstreams,
        resolved={r.variant.key: r for r in resolution.variants},
        variants={v.key: v for v in desired.variants},
        stalled=inventory.stalled | desired.stalled,
        waiting={waiting.variant.key: waiting.why for waiting in resolution.waiting},
        staying={key: why for rollout in rollouts for key, why in rollout.staying.items()},
        stopped={key: why for rollout in rollouts for key, why in rollout.stopped.items()},
        rollouts={key: rollout for rollout in rollouts for key in rollout.waves_of},
        gone={change.key: change for change in kept_and_gone if change.variant is None},
        proposed_deletions=deletions,
        sources=index_sources(inventory),
        defects=fleet.defects,
    )
    return with_before(context)


def with_before(context: PlanContext) -> PlanContext:
    """Return the context with what is known of each package before any decision."""
    blamed = {problem.owner for problem in context.resolution.problems}
    targets = {key: replace(t, before=_before(t, context, blamed)) for key, t in context.targets.items()}
    return replace(context, targets=targets)


def _before(target: PlanTarget, context: PlanContext, blamed: Container[ObjectKey | None]) -> Before:
    wanting = context.downstreams.get(target.key, ())
    key = wanting[0].key if wanting else _find_holder(target, context.inventory)
    variant = context.variants.get(key) if key else None
    control = context.inventory.control.commit.time
    deletion = deletion_ref(context.inventory.policy.instance, target.package.path)
    return Before(
        variant=key,
        is_wanted=bool(wanting),
        is_stalled=variant is None or variant.owner in blamed,
        stopped=context.stopped.get(key, "") if key else "",
        deletion=short_branch(deletion),
        publications=context.resolution.publications.get(target.key, ()),
        manifest=variant.source.time if variant else control,
        control=control,
        statuses=context.inventory.statuses,
    )


def _find_holder(target: PlanTarget, inventory: Inventory) -> ObjectName | None:
    """Return the owner of a package that no variant wants; at a former place it may not be readable."""
    if target.owner is not None:
        return target.owner
    former, drafts = target.view.former, target.drafts
    owner = find_owner(drafts[0].header, target.key, inventory) if drafts else None
    return owner or (former.packages.get(target.package.path) if former is not None else None)


def _targets(
    downstreams: Downstreams, deletions: ProposedDeletions, desired: Desired, inventory: Inventory
) -> Iterator[PlanTarget]:
    """Yield the packages in scope once each, sorted: law 3."""
    views = named_views(desired.variants, inventory)
    owners = {variant.key: variant.key for variant in desired.variants}
    places = {key: key for key in downstreams}
    scope = {target.key: target for target in _former_targets(downstreams, inventory)}
    for view in sorted(inventory.repositories.values(), key=lambda v: (v.key not in views, v.key)):
        for path, package in view.packages.items() if view.is_planned else ():
            key = PackageKey(view.url, path)
            if key in scope or key in inventory.hidden or not package.exists:
                continue
            target = _sharing(make_target(view, package, inventory), places, owners)
            if view.key in views or target.owner or key in downstreams or _is_annotated(target, inventory):
                scope[target.key] = target
    for key, view in _deleted(deletions, inventory):
        if key not in scope and key not in inventory.hidden:
            scope[key] = make_target(view, view.packages.get(key.path, PackageState(key.path)), inventory)
    for key in downstreams.keys() - scope.keys():
        main_view = find_view(downstreams[key][0], inventory)
        if main_view is not None and main_view.is_planned:
            package = main_view.packages.get(key.path, PackageState(key.path))
            scope[key] = make_target(main_view, package, inventory)
    yield from (scope[key] for key in sorted(scope))


def _former_targets(downstreams: Downstreams, inventory: Inventory) -> Iterator[PlanTarget]:
    """Yield what is left of ours at former places: an unreadable one may have everything.

    Of several on branches of one repository the first is that of the drafts and proposals at their path.
    """
    by_package: dict[PackageKey, list[PlanTarget]] = defaultdict(list)
    for target in _left_targets(inventory):
        by_package[target.key].append(target)
    for key, targets in by_package.items():
        places: dict[str, PlanTarget] = {}
        for target in sorted(targets, key=_by_what_is_there):
            places.setdefault(target.view.branch, target)
        here = [target for target in places.values() if not _is_aside(target)]
        if here and key not in downstreams:
            yield here[0]
        for target in (*here[1:], *filter(_is_aside, places.values())):
            if target.main_owner is not None or target.view.problem:
                aside = branch_key(key, target.view.branch)
                yield replace(target, key=aside, draft=None, merged=(), others=(), pulls=PullRequests())


def _left_targets(inventory: Inventory) -> Iterator[PlanTarget]:
    """Yield what each former place has, or may have, unless people gave it up."""
    for view in inventory.former.values():
        if view.former is None or view.role is not RepositoryRole.PLANNED:
            continue
        for path in view.former.packages:
            if PackageKey(view.url, path) in inventory.hidden or is_given_up(view, inventory):
                continue
            target = make_target(view, view.packages.get(path, PackageState(path)), inventory)
            if view.problem or target.owner or target.drafts:
                yield target


def _is_aside(target: PlanTarget) -> bool:
    former = target.view.former
    return former is not None and target.package.path in former.aside


def _by_what_is_there(target: PlanTarget) -> tuple[bool, bool, ObjectName]:
    """Return a key that sorts what is published first, and what was recorded for its owner."""
    recorded = target.view.former.packages.get(target.package.path) if target.view.former else None
    return target.main_owner is None, target.owner != recorded, target.view.key


def branch_key(package: PackageKey, branch: str) -> PackageKey:
    """Return the key of what a package has on another branch than the one it is made on now."""
    return package._replace(path=f"{package.path}@{branch}")


def find_place(place: RecordedDownstream, context: PlanContext) -> PlanTarget | None:
    """Return the target of a recorded place, None if nothing is left there."""
    key = PackageKey(place.url, place.path)
    targets = (context.targets.get(key_there) for key_there in (branch_key(key, place.branch), key))
    return next((t for t in targets if t is not None and place.branch in ("", t.view.branch)), None)


def is_given_up(view: RepositoryView, inventory: Inventory) -> bool:
    """Tell whether people consented to forget a former place: one that is not read, or a copy."""
    is_former = view.former is not None and view.former.is_understood and view.problem is not None
    return is_former and place_consent(view) in inventory.policy.consents


def place_consent(view: RepositoryView) -> str:
    """Return the checksum in `spec.consents` that gives up what one branch has at a former place."""
    paths = view.former.packages if view.former is not None else ()
    return deletion_consent((view.url, path, view.branch) for path in paths)


def _sharing(
    target: PlanTarget, places: Mapping[PackageKey, PackageKey], owners: Mapping[ObjectName, ObjectName]
) -> PlanTarget:
    """Return the target with the names that other values have, which it need not hold a second time."""
    owner = owners.get(target.owner, target.owner) if target.owner else None
    main_owner = owner if target.main_owner == owner else target.main_owner
    return replace(target, key=places.get(target.key, target.key), owner=owner, main_owner=main_owner)


def _proposed_deletions(inventory: Inventory) -> ProposedDeletions:
    """Return the branches that propose deletions, by package; every branch is looked at once."""
    ours = short_branch(deletion_ref(inventory.policy.instance, ""))
    deletions: dict[PackageKey, list[tuple[str, Oid]]] = {}
    for url, view in {v.url: v for v in inventory.views.values() if v.is_planned}.items():
        for name in sorted(view.branches):
            path = ""
            if name.startswith(ours):
                path = name.removeprefix(ours)
            elif name.startswith(DELETION_PROPOSED):
                path = name.removeprefix(DELETION_PROPOSED).rpartition("/")[0]
            if path:
                deletions.setdefault(PackageKey(url, path), []).append(
                    (f"{HEADS}{name}", view.branches[name].oid)
                )
    return {key: tuple(refs) for key, refs in deletions.items()}


def _deleted(
    deletions: ProposedDeletions, inventory: Inventory
) -> Iterator[tuple[PackageKey, RepositoryView]]:
    """Yield the packages with our proposals of deletion, each with its view."""
    for key, refs in deletions.items():
        if deletion_ref(inventory.policy.instance, key.path) not in dict(refs):
            continue
        home = inventory.view_of(key)
        if home is not None:
            yield key, home


def make_target(view: RepositoryView, package: PackageState, inventory: Inventory) -> PlanTarget:
    """Return the target of one package: its owner, and our drafts of it."""
    key = PackageKey(view.url, package.path)
    pulls = inventory.pulls_of(view.url)
    drafts = our_drafts(package, view, inventory)
    merged = tuple(d for d in drafts if is_merged(d, package, pulls))
    opened = [d for d in drafts if d not in merged]
    main_owner = find_owner(package.main_header, key, inventory)
    draft = _as_proposed(opened[0], pulls) if opened else None
    owner = main_owner
    if package.main_tree is None and draft is not None:
        owner = find_owner(draft.header, key, inventory)
    return PlanTarget(
        key=key,
        view=view,
        package=package,
        owner=owner,
        main_owner=main_owner,
        draft=draft,
        merged=merged,
        others=tuple(opened[1:]),
        pulls=pulls,
    )


def newest_pull(pulls: Iterable[PullRequest], ref: str) -> PullRequest | None:
    """Return the pull request of a branch that counts: the first open one, else the last that ended."""
    return max(PullRequests.of(pulls).at(short_branch(ref)), key=by_weight, default=None)


def by_weight(pull: PullRequest) -> tuple[bool, int]:
    """Return a key that sorts the pull request of a branch that counts last.

    A forge may have let several in for one branch: then the lowest number stays.
    """
    is_open = pull.state is PullState.OPEN
    return is_open, -pull.number if is_open else pull.number


def _as_proposed(draft: Draft, pulls: Iterable[PullRequest]) -> Draft:
    """Return a draft with the lifecycle of its pull request: one that is marked as ready is proposed (D4)."""
    newest = newest_pull(pulls, draft.ref)
    is_ready = newest is not None and newest.state is PullState.OPEN and not newest.draft
    return replace(draft, lifecycle=Lifecycle.PROPOSED) if is_ready else draft


def _is_annotated(target: PlanTarget, inventory: Inventory) -> bool:
    """Tell whether the package has our annotation, also as a copy."""
    prefix = f"{inventory.policy.instance}/"
    headers = [target.package.main_header, *(d.header for d in target.package.drafts)]
    return any(header is not None and header.owner.startswith(prefix) for header in headers)
