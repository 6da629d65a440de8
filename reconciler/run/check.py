"""The run of `check`: read both sides of a change at one moment, plan and compare them. Writes nothing."""

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.progress import open_task
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, expand
from reconciler.expand.expansion import empty_selections
from reconciler.expand.owners import assume_upstreams
from reconciler.functions.declared import check_functions
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Unit
from reconciler.names.problems import Problem
from reconciler.plan.build import find_unread
from reconciler.plan.changes import Plan, Refusal
from reconciler.plan.compare import Comparison, NamedCommit, Side, compare, lock_files
from reconciler.plan.path_conflicts import find_nested_downstreams
from reconciler.plan.set_diff import SetDiff, diff_variants
from reconciler.policy import OnUnavailable, Policy
from reconciler.read.control import OpenControl, ProposedChange, is_merged, open_proposed_change
from reconciler.read.forges import lacks_credential
from reconciler.read.governance import (
    ReadOptions,
    policy_governor,
    read_merged_policy,
    read_policy,
    repository_check,
)
from reconciler.read.inventory import read_inventory
from reconciler.report.comparison import comparison_report
from reconciler.report.report import CheckReport, Names
from reconciler.resolve.upstreams import find_wrong_repositories
from reconciler.run.options import RunOptions, open_mirrors
from reconciler.run.plan import PlannedRun, RunInputs, plan_fleet, with_former_variants

SECOND_CHECK = (
    "Nothing to do for this check, which has no credential. A second one, with a credential, compares "
    "packages: docs/guides/pre-merge-check.md shows its workflow."
)


class Level(StrEnum):
    """How deep to check: manifests alone need no credential, the fleet needs one that reads."""

    AUTO = "auto"
    MANIFESTS = "manifests"
    FLEET = "fleet"


class CheckResult(Struct, frozen=True):
    """Result of a check, with the policy of the default branch (None if it cannot be read).

    `proposed` is the plan after merging if packages were compared. `unavailable` tells that a required
    repository could not be read: a later check may find more.
    """

    comparison: Comparison
    names: Names
    unavailable: bool = False
    notes: tuple[str, ...] = ()
    control: Mirror | None = None
    trusted: Policy | None = None
    proposed: PlannedRun | None = None

    @property
    def report(self) -> CheckReport:
        """The report of the comparison."""
        return comparison_report(self.comparison, self.names, self.notes)


def check_proposal(
    options: RunOptions, *, base: str = "", head: str = "", level: Level = Level.AUTO
) -> CheckResult:
    """Compare the plan of the fleet after merging a change with the plan without it.

    Without `base` it is the default branch, without `head` HEAD. AUTO compares packages as soon as one
    repository can be read.

    Raises:
        ConfigurationError: The proposed configuration is wrong.
        UnavailableError: The control repository cannot be reached.
        UsageError: There is nothing to compare.
    """
    mirrors = open_mirrors(options)
    mirrors.hold()
    with open_task("reading"):
        proposal = open_proposed_change(options.control, mirrors, base=base, head=head)
    trusted = _merged_policy(proposal)
    control = proposal.base.mirror
    is_base_merged = is_merged(control, proposal.base.commit.oid)
    compares = _base_policy(proposal) is not None

    def read(reading: ReadOptions) -> RunInputs:
        depth = reading if level is not Level.MANIFESTS else replace(reading, deep=False)
        with open_task("reading"):
            inventory = read_inventory(options.control, mirrors, os.environ, depth)
            inventory = with_former_variants(options.control, inventory, depth.control, mirrors, depth)
            return RunInputs(inventory, mirrors)

    def read_both() -> tuple[RunInputs | None, RunInputs]:
        at_base = ReadOptions(proposal.base, policy_governor(trusted))
        if not is_base_merged:
            at_base = replace(at_base, check=repository_check(trusted, control))
        before = read(at_base) if compares else None
        # What the merged base registers is read wherever it is, so only what head adds is refused.
        views = before.inventory.repositories.values() if before and is_base_merged else ()
        check = repository_check(trusted, control, {view.url for view in views})
        at_head = ReadOptions(proposal.head, policy_governor(trusted), check, reads=at_base.reads)
        return before, read(at_head)

    merged, proposed = read_both()
    unread = {} if level is Level.MANIFESTS else _unread(merged, proposed)
    registered = (merged or proposed).inventory.repositories.values()
    if level is Level.AUTO and registered and not any(view.is_available for view in registered):
        level = Level.MANIFESTS
        unread = _without_credential(unread, merged, proposed)
        merged, proposed = read_both()
    deep = level is not Level.MANIFESTS
    renamed = tuple(_renamed(trusted, proposal))

    def compared(left_out: Mapping[Unit, DefectError]) -> CheckResult:
        before, after = merged.without(left_out) if merged else None, proposed.without(left_out)
        old = (
            _side(before, plan_fleet(before) if deep else None)
            if before
            else Side(Desired(), SetDiff(), plan=Plan() if deep else None, has_manifests=False)
        )
        planned = plan_fleet(after) if deep else None
        new = replace(_side(after, planned), unread=tuple(unread), commit=_named(proposal.head))
        new = replace(new, problems=tuple(sorted({*new.problems, *renamed})))
        return CheckResult(
            comparison=compare(replace(old, commit=_named(proposal.base)), new),
            names=after.names,
            unavailable=deep and OnUnavailable.FAIL in unread.values(),
            notes=tuple(
                dict.fromkeys(
                    (
                        *after.inventory.notes,
                        *empty_selections(new.desired, after.inventory),
                        *_new_notes(old.plan, new.plan),
                    )
                )
            ),
            control=control,
            trusted=trusted,
            proposed=planned,
        )

    return isolate(
        lambda: (*(merged.inventory.units() if merged else ()), *proposed.inventory.units()), compared
    )[0]


def _merged_policy(proposal: ProposedChange) -> Policy | None:
    """Return the policy of the default branch, also for changes of other branches.

    The branch and the base of a change are the proposer's choice, so they must not govern. A working copy
    without a remote has no default branch: there the base governs.
    """
    control = proposal.base.mirror
    if control.is_local and not control.open().is_bare:
        return _base_policy(proposal)
    return read_merged_policy(control, os.environ)


def _base_policy(proposal: ProposedChange) -> Policy | None:
    """Return the policy of the base; None if it cannot be read, then there is nothing to compare."""
    try:
        return read_policy(proposal.base, os.environ)
    except ConfigurationError:
        return None


def _renamed(trusted: Policy | None, proposal: ProposedChange) -> Iterator[Problem]:
    if trusted is None:
        return
    name = read_policy(proposal.head, os.environ).instance
    if name != trusted.instance:
        message = f"The instance {trusted.instance} would be renamed to {name}"
        hint = f"Name it {trusted.instance} again: packages stay owned under that name."
        yield Problem(Location(trusted.config_path), Reason.VALIDATION_ERROR, message, hint)


def _new_notes(before: Plan | None, after: Plan | None) -> Iterator[str]:
    """Yield the notes of the plan after merging that the plan before does not have."""
    old = frozenset(before.notes if before else ())
    yield from (str(note) for note in (after.notes if after else ()) if note not in old)


def _named(side: OpenControl) -> NamedCommit:
    return NamedCommit(side.branch, side.commit.oid)


def _unread(*sides: RunInputs | None) -> dict[Problem, OnUnavailable]:
    """Return the problem of every unread repository of both sides, and whether it is a failure."""
    return {p: fails for side in sides if side for p, fails in find_unread(side.inventory).items()}


def _without_credential(
    unread: Mapping[Problem, OnUnavailable], *sides: RunInputs | None
) -> dict[Problem, OnUnavailable]:
    """Return what is unread, where a credential that is missing leads to the check that may have one.

    A check of pull requests must have no secret, because the author of a change could take it.
    """
    inventories = [side.inventory for side in sides if side]
    missing = {
        view.problem
        for inventory in inventories
        for view in inventory.repositories.values()
        if view.problem and lacks_credential(inventory.policy, os.environ, view.remote)
    }
    return {
        replace(problem, hint=SECOND_CHECK) if problem in missing else problem: fails
        for problem, fails in unread.items()
    }


def _side(inputs: RunInputs, planned: PlannedRun | None) -> Side:
    inventory = inputs.inventory
    functions = check_functions(inventory.variants, inventory.sets, inventory.policy.functions)
    if planned is None:
        inventory = assume_upstreams(inventory)
        desired = expand(inventory)
        diff = diff_variants(desired, inventory)
        refusals = tuple(Refusal(r.reason, r.message, r.hint, r.consent) for r in diff.refused)
        urls = {view.url for view in inventory.repositories.values()}
        nested = find_nested_downstreams(desired, inventory, urls)
        wrong = find_wrong_repositories(desired.variants, inventory)
        problems = tuple(sorted({*inventory.problems, *desired.problems, *nested, *functions, *wrong}))
        locks = lock_files(inventory, None)
        return Side(
            desired,
            diff,
            problems,
            refusals,
            locks=locks,
            functions=functions,
            has_manifests=inputs.has_manifests,
        )
    context = planned.plan.context
    # How many need a repository is no part of its problem: a change may add to them.
    views = {view.owner: view.problem for view in inventory.repositories.values() if view.problem}
    present = {views.get(p.owner, p) if p.owner else p for p in planned.plan.problems}
    unread = {view.url for view in inventory.repositories.values() if view.is_unreachable}
    nested = find_nested_downstreams(planned.desired, inventory, unread)
    all_problems = {*present, *nested, *functions}
    invalid = tuple(sorted(p for p in all_problems if p.reason != Reason.REPOSITORY_UNAVAILABLE))
    locks = lock_files(inventory, planned.plan)
    return Side(
        planned.desired,
        context.diff if context is not None else SetDiff(),
        invalid,
        planned.plan.refusals,
        planned.plan,
        locks,
        functions=functions,
        has_manifests=inputs.has_manifests,
    )
