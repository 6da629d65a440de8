"""What merging a change would do: the plan of what it starts from against the plan of what it proposes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.errors import Problem
from reconciler.expand import Desired
from reconciler.ids import ObjectName, PackageKey
from reconciler.plan.changes import Change, Op, PinChange, Plan, Refusal
from reconciler.plan.deletion_diff import SetDiff, VariantChange
from reconciler.plan.lock_effect import LockFiles, compare_locks

ALTER = "alter"
WITHDRAW = "withdraw"


class Fate(StrEnum):
    """What merging does to one PackageVariant."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    TRANSFER = "transfer"
    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a change: what its manifests ask for, how that differs from what was applied, its plan.

    `plan` is None where no repository was read; then nothing is said about packages. `locks` are the
    files of the locks that count there, `unread` the problems of what could not be read.
    """

    desired: Desired
    variants: SetDiff
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    plan: Plan | None = None
    locks: LockFiles = field(default_factory=dict)
    unread: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class VariantDifference:
    """A PackageVariant that merging affects: `keep` and `drop` are no longer desired without a deletion."""

    key: ObjectName
    fate: Fate
    message: str = ""


@dataclass(frozen=True, slots=True)
class PackageDifference:
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
        shown = self.after or self.before
        assert shown is not None  # noqa: S101 - a difference has at least one side
        return shown


class Targets(NamedTuple):
    """How many variants a set has on each side, None where it does not exist or stalls."""

    key: ObjectName
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that merging would change, sorted by identity, and what is wrong.

    `new` are the problems that the change brings, `old` those that were there before it, `fixed`
    those that it ends; so for `refusals`. `deep` tells whether packages were compared. Nothing is
    known about the packages of repositories in `unread`.
    """

    variants: tuple[VariantDifference, ...] = ()
    packages: tuple[PackageDifference, ...] = ()
    targets: tuple[Targets, ...] = ()
    new: tuple[Problem, ...] = ()
    old: tuple[Problem, ...] = ()
    fixed: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    pins: tuple[PinChange, ...] = ()
    deep: bool = False
    unread: tuple[Problem, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether merging changes nothing: no variant, no package, no pin of a lock."""
        return not self.variants and not self.packages and not self.pins

    @property
    def is_complete(self) -> bool:
        """Whether the packages of every repository were compared: only then empty means no change."""
        return self.deep and not self.unread


def compare(base: Side, head: Side) -> Comparison:
    """Compare two sides of a change.

    Pure and order-free; a side compared with itself is empty. What is pending on both sides alike
    is no effect of merging. A problem that only moved within its file is the same problem.
    """
    deep = base.plan is not None and head.plan is not None
    seen = Counter(map(_identity, base.problems))
    still = Counter(map(_identity, head.problems))
    return Comparison(
        variants=tuple(_variants(base, head)),
        packages=tuple(_packages(base.plan, head.plan)) if base.plan and head.plan else (),
        targets=tuple(_targets(base.desired.targets, head.desired.targets)),
        new=tuple(p for p in head.problems if _identity(p) not in seen),
        old=tuple(p for p in head.problems if _identity(p) in seen),
        fixed=tuple(p for p in base.problems if _identity(p) not in still),
        refusals=tuple(r for r in head.refusals if r not in base.refusals),
        pins=compare_locks(base.locks, head.locks),
        deep=deep,
        unread=tuple(sorted({_identity(p): p for p in (*base.unread, *head.unread)}.values())),
    )


def _identity(problem: Problem) -> tuple[str, str, str, str]:
    return problem.location.path, problem.reason, problem.message, problem.subject


def _targets(before: Mapping[ObjectName, int], after: Mapping[ObjectName, int]) -> Iterable[Targets]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield Targets(key, before.get(key), after.get(key))


# PackageVariants


class _State(NamedTuple):
    """What one side would do to one PackageVariant."""

    fate: Fate
    spec: Any
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
            yield VariantDifference(key, Fate.DROP, "It was never applied")
        elif old is None or not old.spec:
            if old is None or new.spec or new.fate is not old.fate:
                yield VariantDifference(key, Fate.CREATE if new.spec else new.fate, new.change.message)
        elif not new.spec:
            yield VariantDifference(key, new.fate, new.change.message)
        elif new.spec != old.spec:
            yield VariantDifference(key, Fate.CHANGE, new.change.message)


# Packages


def _packages(base: Plan, head: Plan) -> Iterable[PackageDifference]:
    before = {change.package: change for change in base.changes}
    after = {change.package: change for change in head.changes}
    for key in sorted(before.keys() | after.keys()):
        if found := _difference(key, before, after):
            yield found


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


def _result(change: Change) -> tuple[Any, ...]:
    """Return what a change comes to, without its commits: their times are those of the manifests."""
    return change.op, change.after, change.variant, change.upstream_to, change.ready, change.waits
