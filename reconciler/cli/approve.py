"""`approve`: merge drafts and deletions, on every forge, if nothing forbids it (D10, D18)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

import click

from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UsageError, worst
from reconciler.base.progress import open_task, track
from reconciler.base.text import Text, terminal
from reconciler.cli.output import (
    Printer,
    dry_run_option,
    filter_options,
    output_options,
    require_readable,
    show_unread,
    writing_control_options,
)
from reconciler.cli.pull_requests import (
    ListedPull,
    PullFilter,
    approvable,
    below,
    closed_error,
    find_objection,
    find_or_open_pulls,
    find_pulls,
    is_merged,
    is_pattern,
    list_pulls,
    objection_error,
    outdated_error,
    shared_error,
    unheld_error,
    without_early,
)
from reconciler.forge.local.forge import LocalForge, LocalMerge
from reconciler.forge.local.merge import DeletionHead, DraftHead, OutdatedError, parse_head
from reconciler.inventory.inventory import Inventory, PullState
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.refs import TAGS, short_tag
from reconciler.plan.approvals import early_deletions
from reconciler.plan.build import find_unread
from reconciler.plan.changes import Approvable, Plan
from reconciler.report.machine import listing
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_fleet, plan_run, read_inputs


class Approved(NamedTuple):
    """Result of one approval."""

    listed: ListedPull
    commit: str = ""
    revision: str = ""
    error: ReconcilerError | None = None
    notes: tuple[str, ...] = ()
    although: str = ""
    already: str = ""
    planned: str = ""
    is_queued: bool = False

    @property
    def result(self) -> str:
        """The result in a word or two, as in JSON."""
        if self.error:
            return "refused"
        if self.already:
            return f"already {self.already}"
        return self.planned or ("queued" if self.is_queued else "approved" if self.commit else "proposed")


@click.command()
@writing_control_options
@output_options()
@click.argument("names", nargs=-1, metavar="[REPO/PACKAGE]...")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every open pull request, except those of other instances, those of no known Repository, and "
    "deletions of packages that moved and are not merged at the new place yet.",
)
@filter_options
@click.option("--propose-only", is_flag=True, help="Only mark as ready for review; another person approves.")
@dry_run_option
def approve(
    settings: RunOptions,
    printer: Printer,
    names: Sequence[str],
    *,
    every: bool,
    sets: tuple[str, ...],
    labels: tuple[str, ...],
    propose_only: bool,
    dry_run: bool,
) -> Exit:
    r"""Approve the draft or the deletion of packages, on every forge.

    On the local forge a draft is published as Porch does it: a commit with two parents on the main
    branch, the tag PACKAGE/vN, and no draft any more, in one push. Other forges merge the pull request,
    and the next `apply` makes the tag. A proposed deletion removes the package from the main branch; its
    tags stay as history. Drafts with unmet readiness gates are refused where packages are deployed,
    drafts with unresolved conflicts everywhere. A closed pull request is refused until it is opened
    again; a merged one needs nothing. Of Repositories with one name write NAMESPACE/REPO/PACKAGE.

    \b
    Examples:
      reconciler approve edge-east/nginx
      reconciler approve edge-east#3               one pull request by number
      reconciler approve 'edge-*/nginx'            every open one that matches
      reconciler approve --set nginx --dry-run     what approving the packages of a set would do
      reconciler approve --all                     everything that is open
      reconciler approve --propose-only edge-east/nginx
    """
    chosen_by = PullFilter(sets, labels)
    if bool(names) == (every or (bool(chosen_by) and not names)):
        raise UsageError(
            "Name packages, or pass --all, --set or --label",
            hint="`reconciler status` shows what is in review.",
        )
    world = read_inputs(settings, writes=True, lists_ended=bool(names))
    require_readable(world.inventory, names)
    chosen_by.check_sets(world.inventory)
    before = cache(lambda: _judged(plan_fleet(world), world.inventory))
    listed = without_early(list_pulls(world), lambda: before().plan)
    chosen = [f for f in listed if f.pull.state is PullState.OPEN]
    by_name: dict[str, list[ListedPull]] = {}
    selected = [] if names else [f for f in chosen_by.select(chosen) if f.instance or f.why_left]
    chosen = [f for f in chosen if f not in selected]
    if names:
        find = find_pulls if dry_run else partial(find_or_open_pulls, world, names)
        by_name = {name: find(listed, name) for name in names}
        chosen = [f for some in by_name.values() for f in some]
    once = {pull.key: pull for pull in chosen_by.select(chosen)}
    refused = {
        key: Approved(pull, error=error)
        for key, pull in once.items()
        if (texts := [text for text, some in by_name.items() if pull in some])
        and (error := shared_error(pull, texts))
    }
    if propose_only:
        results = [
            refused.get(key) or _propose(pull, dry_run=dry_run)
            for key, pull in track(list(once.items()), "proposing")
        ]
    else:
        plans = _Plans(before, cache(lambda: plan_run(settings)))
        pulls = list(once.values())
        named = {pull.key for text, some in by_name.items() if not is_pattern(text) for pull in some}
        at_once = world.inventory.policy.limits.repositories_at_once
        results = _approve_all(pulls, refused, plans, named=named, at_once=0 if dry_run else at_once)
    unread = {} if names else find_unread(world.inventory)
    printer.notes(
        f"{terminal(f.name)}, {terminal(f.package)}, belongs to instance {terminal(f.instance)} and is left; "
        "name it to approve it"
        if f.instance
        else f"{terminal(f.name)}, {terminal(f.package)}, is left: {terminal(f.why_left)}"
        for f in selected
    )
    which = " that matches" if chosen_by else ""
    where = " in the repositories that were read" if unread else ""
    where = where if world.inventory.repositories else ": no repository is registered"
    more = "" if not selected else " else" if any(f.why_left for f in selected) else " of this instance"
    lines = _lines(results, f"Nothing{which}{more} is open{where}.", propose_only=propose_only)
    printer.show(listing("Approval", map(_value, results)), lines)
    return worst(
        show_unread(printer, unread) | {result.error.exit_code for result in results if result.error}
    )


class _Judged(NamedTuple):
    """A plan without the packages that cannot be judged, for a defect of ours."""

    plan: Plan
    defects: Mapping[str, DefectError]

    def of(self, listed: ListedPull) -> DefectError | None:
        """Return why a pull request cannot be judged, None if it can."""
        names = {listed.package, *listed.members}
        return next((error for name, error in self.defects.items() if name in names), None)


class _Plans(NamedTuple):
    """The plan before the first approval, and one that is made after them; each is computed when needed."""

    before: Callable[[], _Judged]
    after: Callable[[], PlannedRun]


def _judged(planned: PlannedRun, inventory: Inventory) -> _Judged:
    """Return a plan of which all that speaks against approvals is known, package by package (D34)."""

    def judge(left_out: Mapping[PackageKey, DefectError]) -> Plan:
        part = planned.plan.without([*left_out]) if left_out else planned.plan
        for made in (part.approvable, part.objections, early_deletions(part)):
            len(made)
        return part

    part, broken = isolate(lambda: [change.package for change in planned.plan.changes], judge)
    views = {key: inventory.view_of(key) for key in broken}
    named = {
        f"{inventory.label(view.key)}/{below(view, key.path)}": broken[key]
        for key, view in views.items()
        if view
    }
    return _Judged(part, named)


def _approve_all(
    pulls: Sequence[ListedPull],
    refused: Mapping[tuple[str, int], Approved],
    plans: _Plans,
    *,
    named: AbstractSet[tuple[str, int]],
    at_once: int,
) -> list[Approved]:
    """Approve what nothing forbids, those of one repository together; the results are in the given order.

    So many repositories are pushed to side by side, 0 of a rehearsal. Only a person who names it publishes
    what a manifest does not want any more, or what takes objects of a cluster with it: a pattern does not.
    `refused` are those that nothing is asked about any more.
    """
    results: dict[tuple[str, int], Approved] = dict(refused)
    ready: dict[tuple[str, int], Approvable] = {}
    although: dict[tuple[str, int], str] = {}
    by_forge: dict[int, list[ListedPull]] = {}
    for pull in track([pull for pull in pulls if pull.key not in refused], "checking pull requests"):
        judged = _judge(pull, plans.before)
        objection = find_objection(pull, plans.before().plan)
        if objection is not None and pull.key not in named:
            judged = Approved(pull, error=objection_error(pull, objection))
        although[pull.key] = f"it {objection.what}" if objection is not None else pull.why_left
        if isinstance(judged, Approved):
            results[pull.key] = judged
        elif not at_once:
            results[pull.key] = Approved(
                pull, notes=judged.lenient, although=although[pull.key], planned="would be approved"
            )
        else:
            ready[pull.key] = judged
            by_forge.setdefault(id(pull.forge), []).append(pull)
    with open_task("approving"), ThreadPoolExecutor(max_workers=at_once or 1) as pool:
        merged = [*zip(by_forge.values(), pool.map(_merge, by_forge.values()), strict=True)]
    for chosen, merges in merged:
        for approved in _approved(chosen, merges, plans.after):
            key = approved.listed.key
            results[key] = approved._replace(notes=ready[key].lenient, although=although[key])
    return [results[pull.key] for pull in pulls]


def _judge(listed: ListedPull, before: Callable[[], _Judged]) -> Approved | Approvable:
    """Return the readiness of a pull request that may be approved, the result of any other."""
    if is_merged(listed):
        return Approved(listed, already="merged")
    if error := closed_error(listed) or unheld_error(listed):
        return Approved(listed, error=error)
    if defect := before().of(listed):
        return Approved(listed, error=defect)
    readiness = approvable(listed, before().plan)
    if not readiness.against:
        return readiness
    command = "plan" if listed.members else f"explain {listed.package}"
    origins = f"`reconciler {command}` says where each comes from."
    if readiness.edited:
        origins = f"`git log -p origin/{listed.pull.base}..origin/{listed.pull.head}` in a clone shows it."
    hint = f"{readiness.hint} {origins}"
    error = RefusedError(f"Readiness conditions are not met: {'; '.join(readiness.against)}", hint=hint)
    return Approved(listed, error=error)


def _merge(chosen: Sequence[ListedPull]) -> Mapping[int, str | ReconcilerError]:
    """Merge pull requests of one repository; return the commit or the error of each, by number."""
    forge = chosen[0].forge
    if isinstance(forge, LocalForge):
        return forge.approve_all([LocalMerge(f.pull.number, f.pull.head_oid) for f in chosen])
    merges: dict[int, str | ReconcilerError] = {}
    for target in track(chosen, "approving"):
        try:
            merges[target.pull.number] = target.forge.approve(target.pull.number, expect=target.pull.head_oid)
        except ReconcilerError as error:
            merges[target.pull.number] = error
    return merges


def _approved(
    chosen: Sequence[ListedPull],
    merges: Mapping[int, str | ReconcilerError],
    plan: Callable[[], PlannedRun],
) -> Iterator[Approved]:
    """Yield what became of pull requests of one repository."""
    tags: dict[str, str] = {}
    for ref, oid in sorted(chosen[0].mirror.refs().items()):
        if ref.startswith(TAGS):
            tags.setdefault(oid, short_tag(ref))
    for listed in chosen:
        merge = merges[listed.pull.number]
        if isinstance(merge, OutdatedError):
            yield Approved(listed, error=outdated_error(merge, listed, plan))
        elif isinstance(merge, ReconcilerError):
            yield Approved(listed, error=merge)
        else:
            yield Approved(listed, merge, tags.get(merge, ""), is_queued=not merge)


def _propose(listed: ListedPull, *, dry_run: bool) -> Approved:
    if is_merged(listed):
        return Approved(listed, already="merged")
    if closed := closed_error(listed):
        return Approved(listed, error=closed)
    if not listed.pull.draft:
        return Approved(listed, already="proposed")
    if dry_run:
        return Approved(listed, planned="would be proposed")
    try:
        listed.forge.mark_ready(listed.pull.number)
    except ReconcilerError as error:
        return Approved(listed, error=error)
    return Approved(listed)


def _lines(results: Sequence[Approved], none: str, *, propose_only: bool) -> Iterator[str]:
    if not results:
        yield none
    for result in results:
        name = terminal(result.listed.shown)
        if result.error:
            word = "refused" if result.error.exit_code is Exit.REFUSED else "not approved"
            yield f"{word}: {name}: {terminal(str(result.error))}"
            if result.error.hint:
                yield f"  hint: {terminal(result.error.hint)}"
        elif result.already:
            yield f"already {result.already}: {name} in {terminal(result.listed.name)}"
        elif result.planned:
            yield f"{result.planned}: {name} in {terminal(result.listed.name)}"
            yield from _remarks(result)
        elif propose_only:
            yield f"proposed {name}"
        else:
            yield f"approved {name}: {terminal(result.revision) or _became(result)}"
            yield from _remarks(result)


def _remarks(result: Approved) -> Iterator[str]:
    yield from (f"  not ready: {terminal(note)}" for note in result.notes)
    if result.although:
        yield f"  although {terminal(result.although)}"


def _became(result: Approved) -> str:
    """Return what approving did where it published no revision at once."""
    if result.is_queued:
        return "in the merge queue of its branch, which merges it"
    if not result.listed.is_local:
        return "merged; the next `reconciler apply` records it"
    about = parse_head(result.listed.pull.head)
    if not isinstance(about, DeletionHead | DraftHead):
        return "merged"
    if result.listed.mirror.subtree(Oid(result.commit), about.path) is None:
        return "removed"
    return "merged; the files that its branch keeps are still there"


def _value(result: Approved) -> dict[str, Text | list[str]]:
    return {
        "package": result.listed.package,
        "pullRequest": result.listed.name,
        "result": result.result,
        "commit": result.commit,
        "revision": result.revision,
        "error": str(result.error or ""),
        "hint": result.error.hint if result.error else "",
        "unready": [*result.notes, *filter(None, [result.although])],
    }
