"""Compare the plans of both sides of a proposed change, and the pins of their locks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.admission.judgement import AdmissionJudgement
from reconciler.base.errors import Location
from reconciler.base.reasons import LEFT_BY_RUN, Reason
from reconciler.base.text import Text, join_texts, some
from reconciler.base.values import PartlyCompared, read_record
from reconciler.dependencies.lock.changes import VersionChange, by_danger, cluster_changes
from reconciler.dependencies.lock.format import ClusterUpdate, read_locks
from reconciler.expand import Desired, DesiredVariant
from reconciler.expand.variants import set_key, spec_data, written_spec
from reconciler.inventory.inventory import FieldPath, Inventory
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Op, PinChange, Plan, Refusal, UpstreamPinChange
from reconciler.plan.impact import Loss
from reconciler.plan.set_diff import SetDiff, VariantChange, changed_fields
from reconciler.plan.status import POINT_EMPTY
from reconciler.policy import OnRefused
from reconciler.records.state import LOCKS_DIRECTORY, UPSTREAMS_DIRECTORY, UpstreamLock
from reconciler.render.rendered import FunctionFault, Package
from reconciler.resolve.ownership import package_label

if TYPE_CHECKING:
    from reconciler.api.porch import Function

LockFiles = Mapping[str, bytes]

_SHORT = 12
_UNREAD = frozenset(
    {
        *(Reason.DUPLICATE_KEY, Reason.INVALID_YAML, Reason.MANIFEST_UNREADABLE, Reason.MISSING_FIELD),
        *(Reason.UNKNOWN_GROUP, Reason.UNKNOWN_KIND, Reason.UNSUPPORTED_VERSION),
    }
)
"""Problems of a file without an object: what it declares is not known."""
_NAMED = 3
"""Packages that a problem names; more of them are counted."""


def lock_files(inventory: Inventory, plan: Plan | None) -> LockFiles:
    """Return the files of the locks that count on one side of a change, by path on the state branch.

    A reviewed lock is what main holds, whatever would be proposed; any other is what the plan would
    record, so without a plan nothing is known of it.
    """
    if inventory.reviewed is not None:
        return {f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in inventory.reviewed.files.items()}
    locks = plan.locks if plan else {}
    return {path: data for path, data in locks.items() if path.startswith(f"{LOCKS_DIRECTORY}/")}


def compare_locks(before: LockFiles, after: LockFiles) -> tuple[list[PinChange], list[PinChange]]:
    """Return the dangerous changes of clusters, and everything else that differs. Total and pure."""
    old, new = read_locks(before).by_cluster, read_locks(after).by_cluster
    clusters = (ClusterUpdate(name, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys()))
    moves = by_danger(
        move._replace(clusters=(update.cluster,)) for update in clusters for move in cluster_changes(update)
    )
    dangers = [pin_change(move) for move in moves if move.op.is_dangerous]
    return dangers, [*compare_upstreams(before, after), *map(pin_change, moves[len(dangers) :])]


def pin_change(move: VersionChange) -> PinChange:
    """Return a change of one cluster's lock as that of a pin; for any other thing its name has the verb."""
    subject = move.op.subject
    name = move.instance if subject == "pin" else f"{subject}: {move.op} {move.instance}"
    where = f"cluster {move.clusters[0]}"
    return PinChange(f"{where}: {name}" if move.instance else where, move.before, move.after, move.why)


def compare_upstreams(before: LockFiles, after: LockFiles) -> Iterator[PinChange]:
    """Yield the pins of upstreams that differ, by variant."""
    differing = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    old, new = (_pins({p: files[p] for p in differing if p in files}) for files in (before, after))
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            yield UpstreamPinChange(f"PackageVariant {name}", _label(was), _label(now), _why(was, now))


def _pins(files: LockFiles) -> dict[str, UpstreamLock]:
    """Return the pins of upstreams by variant; one that cannot be read is a problem of its own elsewhere."""
    pins = {}
    for path, data in files.items():
        if path.startswith(f"{UPSTREAMS_DIRECTORY}/"):
            try:
                lock = read_record(data, UpstreamLock)
            except ValueError:
                continue
            pins[str(lock.key)] = lock
    return pins


def _why(old: UpstreamLock | None, new: UpstreamLock | None) -> str:
    if new is None:
        return "no variant floats there any more"
    if new.held:
        return "held by a person"
    if old is None:
        return "takes its first pin"
    return "asks for another upstream" if old.request != new.request else "follows its upstream"


def _label(lock: UpstreamLock | None) -> str:
    return f"{lock.ref or lock.package}@{lock.commit[:_SHORT]}" if lock else ""


ALTER = "alter"
WITHDRAW = "withdraw"


class Fate(StrEnum):
    """Effect of merging on one PackageVariant."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    TRANSFER = "transfer"
    KEEP = "keep"
    DROP = "drop"


class NamedCommit(NamedTuple):
    """A commit of the control repository, and the branch that names it, "" if none does."""

    branch: str = ""
    commit: str = ""

    def __str__(self) -> str:
        return f"{self.branch}@{self.commit[:_SHORT]}" if self.branch else self.commit[:_SHORT]


class Side(Struct, frozen=True):
    """One side of a change: what its manifests ask for, how that differs from what was applied, its plan.

    `plan` is None where no repository was read; then packages are not compared. `locks` are the
    files of the locks that count there, `unread` the problems of what could not be read. `functions` are the
    problems of functions that manifests name, with the places of these. Without `has_manifests` there is
    nothing that a plan could be about.
    """

    desired: Desired
    variants: SetDiff
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    plan: Plan | None = None
    locks: LockFiles = field(default_factory=dict)
    unread: tuple[Problem, ...] = ()
    functions: Mapping[Problem, Location] = field(default_factory=dict)
    has_manifests: bool = True
    commit: NamedCommit = NamedCommit()


class VariantDifference(Struct, frozen=True):
    """A PackageVariant that merging affects: `keep` and `drop` are no longer desired without a deletion."""

    key: ObjectName
    fate: Fate
    message: Text = ""
    set_key: ObjectName | None = None
    """The set that generates it, where it is created or changed."""


class PackageDifference(Struct, frozen=True):
    """A package that merging affects. `before` and `after` are its changes without and with it.

    `what` is the operation that merging adds; `alter` where the same operation is pending already
    and has another result, `withdraw` where it would no longer happen.
    """

    what: str
    before: Change | None
    after: Change | None

    @property
    def change(self) -> Change:
        """The change to show: the later one that there is."""
        present = self.after or self.before
        assert present is not None  # noqa: S101 - a difference has at least one side
        return present


class Targets(NamedTuple):
    """How many variants a set has on each side, None where it does not exist or stalls."""

    key: ObjectName
    before: int | None
    after: int | None


class Comparison(Struct, frozen=True):
    """Everything that merging `head` would change in `base`, sorted by identity, and what is wrong.

    `new` are the problems that the change brings, `old` those that were there before it, `fixed`
    those that it ends, and does not only hide behind new ones; so for `refusals`. The first `dangers` of
    `pins` change what runs in clusters, or who owns its kinds. `losses` are the objects of clusters that go
    with it, `judged` the packages with what their clusters would answer to it alone, `unjudged` what nothing
    is known about. `deep` tells whether packages were compared. Nothing is known about the packages of
    repositories in `unread`, nor about the `postponed` ones: their functions had no time. Without
    `has_manifests` neither side has one.
    """

    variants: tuple[VariantDifference, ...] = ()
    packages: tuple[PackageDifference, ...] = ()
    targets: tuple[Targets, ...] = ()
    new: tuple[Problem, ...] = ()
    old: tuple[Problem, ...] = ()
    fixed: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    pins: tuple[PinChange, ...] = ()
    dangers: int = 0
    losses: tuple[Loss, ...] = ()
    judged: tuple[Change, ...] = ()
    unjudged: tuple[AdmissionJudgement, ...] = ()
    deep: bool = False
    unread: tuple[Problem, ...] = ()
    postponed: int = 0
    has_manifests: bool = True
    base: NamedCommit = NamedCommit()
    head: NamedCommit = NamedCommit()

    @property
    def is_empty(self) -> bool:
        """Whether merging changes nothing: no variant, no package, no pin of a lock."""
        return not self.variants and not self.packages and not self.pins

    @property
    def is_complete(self) -> bool:
        """Whether the packages of every repository were compared: only then empty means no change."""
        return self.deep and not self.unread and not self.postponed


def compare(base: Side, head: Side) -> Comparison:
    """Compare two sides of a change.

    Pure and order-free; a side compared with itself is empty. What is pending on both sides alike
    is no effect of merging. A problem that only moved within its file is the same problem.
    """
    deep = base.plan is not None and head.plan is not None
    dangers, pins = compare_locks(base.locks, head.locks)
    seen, still = set(map(_identity, base.problems)), set(map(_identity, head.problems))
    new = [p for p in head.problems if _identity(p) not in seen]
    before, after = (dict.fromkeys(_obstacles(side)) for side in (base, head))
    # A manifest with a function that cannot run is covered once, and not for each of its packages.
    covered = {head.functions[problem] for problem in new if problem in head.functions}
    new += _as_problems(o for o in after if o not in before and o.location not in covered)
    covered |= {*head.functions.values()}
    old = [p for p in head.problems if _identity(p) in seen]
    old += _as_problems(o for o in after if o in before and o.location not in covered)
    context = head.plan.context if head.plan else None
    stalled = (*head.desired.problems, *(context.resolution.problems if context else ()))
    # An unread repository has one problem, whatever needs it.
    hiding = [*(p for p in stalled if p.repository), *(p for p in head.problems if _identity(p) not in seen)]
    unchecked = _Unchecked.of(hiding, base.desired)
    fixed = [p for p in base.problems if _identity(p) not in still and not unchecked.hides(p)]
    covered = {base.functions[problem] for problem in fixed if problem in base.functions}
    gone = (o for o in before if o not in after and not unchecked.hides(o))
    fixed += _as_problems(o for o in gone if o.location not in covered)
    was, will = base.desired.targets, head.desired.targets
    return Comparison(
        variants=tuple(_variants(base, head)),
        packages=tuple(_packages(base.plan, head.plan)) if base.plan and head.plan else (),
        targets=tuple(
            Targets(key, was.get(key), will.get(key))
            for key in sorted(was.keys() | will.keys())
            if was.get(key) != will.get(key)
        ),
        new=tuple(sorted(new)),
        old=tuple(sorted(old)),
        fixed=tuple(sorted(fixed)),
        refusals=tuple(r for r in head.refusals if r not in base.refusals),
        pins=(*dangers, *pins, *_requested(base.plan, head.plan)),
        dangers=len(dangers),
        losses=_losses(base.plan, head.plan),
        judged=tuple(_judged(base.plan, head.plan)),
        unjudged=head.plan.unjudged if head.plan else (),
        deep=deep,
        unread=tuple(sorted({_identity(p): p for p in (*base.unread, *head.unread)}.values())),
        postponed=sum(change.reason in LEFT_BY_RUN for change in (head.plan.changes if head.plan else ())),
        has_manifests=base.has_manifests or head.has_manifests,
        base=base.commit,
        head=head.commit,
    )


def _losses(base: Plan | None, head: Plan | None) -> tuple[Loss, ...]:
    before = {(loss.cluster, loss.cause, loss.kind) for loss in (base.losses if base else ())}
    after = head.losses if head else ()
    return tuple(loss for loss in after if (loss.cluster, loss.cause, loss.kind) not in before)


def _judged(base: Plan | None, head: Plan | None) -> Iterator[Change]:
    """Yield the packages with the judgements that they have only after merging."""
    before = {change.package: change for change in (base.changes if base else ())}
    for change in head.changes if head else ():
        old = before.get(change.package)
        added = (j for j in change.judgements if not j.is_old)
        judgements = tuple(j for j in added if old is None or j not in old.judgements)
        losses = tuple(loss for loss in change.losses if old is None or loss not in old.losses)
        if judgements or losses:
            yield replace(change, judgements=judgements, losses=losses)


def _requested(base: Plan | None, head: Plan | None) -> Iterator[PinChange]:
    """Yield the pins that a reviewed lock is asked for only after merging."""
    before = base.lock.pins if base and base.lock else ()
    for pin in head.lock.pins if head and head.lock else ():
        if pin not in before:
            yield pin._replace(what=f"lock request: {pin.what}")


def _identity(problem: Problem) -> tuple[str, str, Text, str]:
    return problem.location.path, problem.reason, problem.message, problem.subject


class _Unchecked(NamedTuple):
    """Objects that the new problems of a change stall, and unread files: nothing else of them is checked."""

    subjects: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(cls, new: Iterable[Problem], desired: Desired) -> Self:
        """Return it for the variants of the base; those of a set stall with it."""
        stalled = {problem.subject for problem in new if problem.subject}
        variants = {
            v.owner.subject for v in desired.variants if v.set_key and set_key(v.set_key).subject in stalled
        }
        unread = frozenset(p.location.path for p in new if not p.subject and p.reason in _UNREAD)
        return cls(frozenset(stalled | variants), unread)

    def hides(self, former: "Problem | _Obstacle") -> bool:
        """Tell whether a problem of the base may be there still."""
        has_object = former.subject or former.reason not in _UNREAD
        return former.subject in self.subjects or bool(has_object and former.location.path in self.paths)


# Packages that would not be ready


class _Obstacle(PartlyCompared, frozen=True):
    """Why a package cannot be approved, apart from questions that a person answers in its pull request.

    It is the same on both sides of a change wherever it is written there.
    """

    UNCOMPARED = frozenset({"location", "hint", "subject"})

    package: str
    reason: str
    message: Text
    location: Location
    hint: Text = ""
    subject: str = ""


def _obstacles(side: Side) -> Iterator[_Obstacle]:
    """Yield what keeps the packages of a side from being made or approved."""
    variants = {variant.key: variant for variant in side.desired.variants}
    changes = side.plan.changes if side.plan else ()
    blamed = {problem.owner for problem in side.problems}
    context = side.plan.context if side.plan else None
    # What a repository that was not read stalls is counted in the problem of the repository.
    blamed |= context.resolution.stalled if context is not None else set()
    is_problem = context is not None and context.inventory.policy.admission.refused is OnRefused.PROBLEM
    # The conditions of all variants are made at once, and most fleets have no injection point to fill.
    rendered = context.rendered.variants.values() if context is not None else ()
    has_empty = any(isinstance(of.fresh, Package) and of.fresh.injection for of in rendered)
    for change in changes:
        variant = variants.get(change.variant) if change.variant else None
        if side.plan is None or variant is None:
            continue
        package = f"{change.repository.name}/{change.package.path}"
        if context is not None:
            package = package_label(change.repository, change.package.path, context.inventory)
        template = (*variant.target_path, "template") if variant.target_path else ("spec",)
        # Finding the place of a field composes its manifest anew: only an obstacle needs one.
        upstream, subject = partial(variant.source.at, "spec", "upstream"), variant.owner.subject
        for fault in change.faults:
            where = _function_location(variant, fault, template)
            text = fault.message if where else f"{fault.message} (in the package of {change.upstream_to})"
            hint = fault.hint or "Correct the configuration of the function, or what it works on."
            yield _Obstacle(package, Reason.PIPELINE_FAILED, text, where or upstream(), hint, subject)
        for judgement in change.judgements if is_problem else ():
            if judgement.is_refusal:
                hint = "Correct the package, or make its cluster take it: docs/guides/admission.md."
                yield _Obstacle(package, Reason.WOULD_BE_REFUSED, judgement.text, upstream(), hint, subject)
        for condition in side.plan.conditions.get(variant.owner, ()) if has_empty else ():
            if condition.reason == POINT_EMPTY:
                hint = "Add the object to the snapshot, or correct spec.injectors."
                where = variant.source.at(*template, "injectors") if variant.spec.injectors else upstream()
                yield _Obstacle(package, Reason.NOT_READY, condition.message or "", where, hint, subject)
        # Several sides of a conflict are a question; where a manifest is to blame it has a problem already.
        is_told = blamed & {variant.owner, set_key(variant.set_key) if variant.set_key else variant.owner}
        if change.op is Op.BLOCK and change.reason is not Reason.MERGE_CONFLICT and not is_told:
            hint = "Correct the package at its upstream, or what the manifest asks for."
            yield _Obstacle(package, change.reason, change.message, upstream(), hint, subject)


def _function_location(variant: DesiredVariant, fault: FunctionFault, template: FieldPath) -> Location | None:
    """Return where a manifest names a function, None if the package brings it."""
    pipeline = variant.spec.pipeline
    for stage in ("mutators", "validators"):
        functions: Sequence[Function] = (pipeline and getattr(pipeline, stage)) or ()
        names = [f.exec or (f"{f.image} ({f.tag})" if f.tag else f.image) for f in functions]
        places = [place for place, name in enumerate(names) if name == fault.function]
        if places:
            place = fault.step_index if fault.step_index in places else places[0]
            field = (place, "exec" if functions[place].exec else "image")
            return variant.source.at(*template, "pipeline", stage, *field)
    return None


def _as_problems(obstacles: Iterable[_Obstacle]) -> Iterator[Problem]:
    """Yield one problem for all packages that one cause keeps from being ready."""
    by_cause: dict[tuple[Location, str, Text, Text], list[str]] = {}
    for o in obstacles:
        by_cause.setdefault((o.location, o.reason, o.message, o.hint), []).append(o.package)
    for (location, reason, message, hint), packages in by_cause.items():
        text = f"{some(sorted(packages), _NAMED)} would not be ready: {message}"
        yield Problem(location, reason, text, hint)


# PackageVariants


class _State(NamedTuple):
    """Effect of one side on one PackageVariant."""

    fate: Fate
    spec: object
    change: VariantChange


def _states(diff: SetDiff) -> dict[ObjectName, _State]:
    groups = {
        Fate.CREATE: diff.create,
        Fate.CHANGE: diff.update,
        Fate.DELETE: diff.delete,
        Fate.TRANSFER: diff.transfer,
        Fate.KEEP: diff.keep,
    }
    return {
        change.key: _State(fate, change.variant and (change.variant.spec, change.variant.paused), change)
        for fate, changes in groups.items()
        for change in changes
    }


def _variants(base: Side, head: Side) -> Iterable[VariantDifference]:
    before, after = _states(base.variants), _states(head.variants)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None:
            yield VariantDifference(key, Fate.DROP, "It is not applied")
        elif old is None or not old.spec:
            if old is None or new.spec or new.fate is not old.fate:
                fate, variant = Fate.CREATE if new.spec else new.fate, new.change.variant
                yield VariantDifference(key, fate, new.change.message, variant.set_key if variant else None)
        elif not new.spec:
            yield VariantDifference(key, new.fate, new.change.message)
        elif new.spec != old.spec and (variant := new.change.variant) and old.change.variant:
            why = new.change.message or _changed(old.change.variant, variant)
            yield VariantDifference(key, Fate.CHANGE, why, variant.set_key)


def _changed(old: DesiredVariant, new: DesiredVariant) -> str:
    """Return the fields that a change of a manifest changes, with both values where they name an upstream."""
    before, after = (written_spec(variant, spec_data(variant)) for variant in (old, new))
    paths = [*changed_fields("spec", before, after)]
    fields = [_both(path, before, after) if path.startswith("spec.upstream.") else path for path in paths]
    paused = ["paused" if new.paused else "not paused any more"] if new.paused != old.paused else []
    return some([*fields, *paused], _NAMED)


def _both(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    field = path.removeprefix("spec.upstream.")
    old, new = before["upstream"].get(field), after["upstream"].get(field)
    return f"{path}: {old} -> {new}" if old and new else path


# Packages


def _packages(base: Plan, head: Plan) -> Iterable[PackageDifference]:
    before = {change.package: change for change in base.changes}
    after = {change.package: change for change in head.changes}
    for key in sorted(before.keys() | after.keys()):
        if difference := _difference(key, before, after):
            yield _with_lost_edits(difference)


def _with_lost_edits(difference: PackageDifference) -> PackageDifference:
    """Return a difference that names the edits of people that functions write over only after merging."""
    old, new = difference.before, difference.after
    lost = [text for text in (new.overwritten if new else ()) if old is None or text not in old.overwritten]
    if new is None or not lost:
        return difference
    return replace(difference, after=replace(new, message=join_texts("; ", (new.message, *lost))))


def _difference(
    key: PackageKey, before: Mapping[PackageKey, Change], after: Mapping[PackageKey, Change]
) -> PackageDifference | None:
    old, new = before.get(key), after.get(key)
    if new is None:
        gone = old is not None and _acts(old)
        return PackageDifference(WITHDRAW, old, None) if gone else None
    if old is None or not _acts(old):
        return PackageDifference(new.op, old, new) if _acts(new) else None
    if not _acts(new):
        return PackageDifference(WITHDRAW, old, new)
    if _result(old) == _result(new):
        return None
    return PackageDifference(ALTER if old.op is new.op else new.op, old, new)


def _acts(change: Change) -> bool:
    return change.pending or change.op is Op.BLOCK


def _result(change: Change) -> tuple[object, ...]:
    """Return what a change comes to, without its commits: their times are those of the manifests."""
    return change.op, change.tree, change.variant, change.upstream_to, change.ready, change.waits
