"""`approve`: merge drafts and deletions, on every forge, if nothing forbids it (D10, D18)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.output import (
    Output,
    control_options,
    dry_run_option,
    filter_options,
    make_printer,
    output_options,
    require_readable,
    show_unread,
)
from reconciler.errors import Exit, ReconcilerError, RefusedError, UsageError, worst
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.pull_requests import ListedPull
    from reconciler.plan.changes import Plan
    from reconciler.run.inputs import RunInputs
    from reconciler.run.options import RunOptions
from reconciler.api.kptfile import KPTFILE
from reconciler.cli.pull_requests import ListedPull
from reconciler.ids import PackageKey
from reconciler.inventory import Draft, Inventory
from reconciler.plan.changes import ConflictNote, Plan
from reconciler.read.repositories.kptfiles import MAX_KPTFILE_BYTES
from reconciler.reasons import Reason
from reconciler.refs import short_branch
from reconciler.render.kptfile import unmet_gates
from reconciler.run.inputs import RunInputs
from reconciler.state import functions_failed


class Approved(NamedTuple):
    """Result of one approval."""

    listed: "ListedPull"
    commit: str = ""
    revision: str = ""
    error: ReconcilerError | None = None
    notes: tuple[str, ...] = ()
    already: str = ""
    planned: str = ""

    @property
    def result(self) -> str:
        """The result in a word or two, as in JSON."""
        if self.error:
            return "refused"
        if self.already:
            return f"already {self.already}"
        return self.planned or ("approved" if self.commit else "proposed")


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("names", nargs=-1, metavar="[REPO/PACKAGE]...")
@click.option("--all", "every", is_flag=True, help="Every open pull request of every repository.")
@filter_options
@click.option("--propose-only", is_flag=True, help="Only mark as ready for review; another person approves.")
@dry_run_option
def approve(
    settings: "RunOptions",
    output: str,
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
    again; a merged one needs nothing.

    \b
    Examples:
      reconciler approve edge-east/nginx
      reconciler approve edge-east#3               one pull request by number
      reconciler approve 'edge-*/nginx'            every open one that matches
      reconciler approve --set nginx --dry-run     what approving the packages of a set would do
      reconciler approve --all                     everything that is open
      reconciler approve --propose-only edge-east/nginx
    """
    from reconciler.cli.pull_requests import PullFilter, find_or_open_pulls, find_pulls, list_pulls
    from reconciler.inventory import PullState
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import plan_fleet

    chosen_by = PullFilter(sets, labels)
    if bool(names) == (every or (bool(chosen_by) and not names)):
        raise UsageError(
            "Name packages, or pass --all, --set or --label", hint="`reconciler pr list` shows what is open."
        )
    world = read_inputs(settings, writes=True, lists_ended=bool(names))
    require_readable(world.inventory, names)
    chosen_by.check_sets(world.inventory)
    listed = list_pulls(world)
    chosen = [f for f in listed if f.pull.state is PullState.OPEN]
    if names:
        find = find_pulls if dry_run else partial(find_or_open_pulls, world)
        chosen = [f for name in names for f in find(listed, name)]
    once = {pull.name: pull for pull in chosen_by.select(chosen)}.values()
    plan = cache(lambda: plan_fleet(world).plan)
    if propose_only:
        results = [_propose(pull, dry_run=dry_run) for pull in once]
    else:
        results = [_approve(pull, world, plan, dry_run=dry_run) for pull in once]
    unread = {} if names else find_unread(world.inventory)
    printer = make_printer()
    if output == Output.JSON:
        printer.value(listing("Approval", (_value(result) for result in results)))
    else:
        which = " that matches" if chosen_by else ""
        where = " in the repositories that were read" if unread else ""
        none = f"Nothing{which} is open{where}."
        printer.lines(_lines(results, none, propose_only=propose_only))
    return worst(
        show_unread(printer, unread) | {result.error.exit_code for result in results if result.error}
    )


def _approve(
    listed: "ListedPull", world: "RunInputs", plan: "Callable[[], Plan]", *, dry_run: bool
) -> Approved:
    from reconciler.cli.pull_requests import closed_error, is_merged

    if is_merged(listed):
        return Approved(listed, already="merged")
    if closed := closed_error(listed):
        return Approved(listed, error=closed)
    readiness = find_readiness(world, listed, plan)
    if readiness.against:
        hint = f"{readiness.hint} `reconciler explain {listed.package}` says where each comes from."
        error = RefusedError(f"Readiness conditions are not met: {'; '.join(readiness.against)}", hint=hint)
        return Approved(listed, error=error)
    if dry_run:
        return Approved(listed, notes=readiness.shown, planned="would be approved")
    return _approve_ready(listed, plan)._replace(notes=readiness.shown)


def _approve_ready(listed: "ListedPull", plan: "Callable[[], Plan]") -> Approved:
    from reconciler.cli.pull_requests import outdated_error
    from reconciler.forge.local_merge import OutdatedError

    try:
        commit = listed.forge.approve(listed.pull.number, expect=listed.pull.head_oid)
    except OutdatedError as error:
        return Approved(listed, error=outdated_error(error, listed, plan))
    except ReconcilerError as error:
        return Approved(listed, error=error)
    refs = listed.mirror.refs()
    tags = (ref for ref, oid in refs.items() if oid == commit and ref.startswith("refs/tags/"))
    return Approved(listed, commit, min(tags, default="").removeprefix("refs/tags/"))


def _propose(listed: "ListedPull", *, dry_run: bool) -> Approved:
    from reconciler.cli.pull_requests import closed_error, is_merged

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
        name = terminal(result.listed.package)
        if result.error:
            word = "refused" if result.error.exit_code is Exit.REFUSED else "not approved"
            yield f"{word}: {name}: {terminal(str(result.error))}"
            if result.error.hint:
                yield f"  hint: {terminal(result.error.hint)}"
        elif result.already:
            yield f"already {result.already}: {name} in {terminal(result.listed.name)}"
        elif result.planned:
            yield f"{result.planned}: {name} in {terminal(result.listed.name)}"
            yield from (f"  not ready: {terminal(note)}" for note in result.notes)
        elif propose_only:
            yield f"proposed {name}"
        else:
            yield f"approved {name}: {terminal(result.revision) or _became(result)}"
            yield from (f"  not ready: {terminal(note)}" for note in result.notes)


def _became(result: Approved) -> str:
    """Return what approving did where it published no revision at once."""
    from reconciler.forge.local_merge import DeletionHead, parse_head
    from reconciler.ids import Oid

    if not result.listed.is_local:
        return "merged; the next `reconciler apply` records it"
    about = parse_head(result.listed.pull.head)
    if not isinstance(about, DeletionHead):
        return "merged"
    if result.listed.mirror.subtree(Oid(result.commit), about.path) is None:
        return "removed"
    return "merged; the files that its branch keeps are still there"


def _value(result: Approved) -> dict[str, str | list[str]]:
    return {
        "package": result.listed.package,
        "pullRequest": result.listed.name,
        "result": result.result,
        "commit": result.commit,
        "revision": result.revision,
        "error": str(result.error or ""),
        "hint": result.error.hint if result.error else "",
        "unready": list(result.notes),
    }


_CONFLICT = "conflict in "


class Readiness(NamedTuple):
    """`against` forbids approval, `shown` a person should know."""

    against: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """The next steps of a person that make approval possible."""
        conflicts = [text for text in self.against if text.startswith(_CONFLICT)]
        answer = "Answer the conflicts in the draft, as its pull request says." if conflicts else ""
        meet = "Meet each condition: it is read from status.conditions of the draft's Kptfile."
        if functions_failed(self.against):
            meet = "Correct the pipeline or its inputs, and run `reconciler apply`."
        if len(conflicts) == len(self.against):
            meet = ""
        return " ".join(filter(None, (answer, meet)))


def find_readiness(world: RunInputs, listed: ListedPull, plan: Callable[[], Plan]) -> Readiness:
    """Return the unmet conditions of a pull request's head; a deletion is always ready.

    Unmet gates forbid approval where packages are deployed, and are shown elsewhere. Open conflicts forbid
    it everywhere: approving one would choose a side silently. If the record is not about exactly this
    draft, `plan` is called, once.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """
    drafts = {
        draft.path: draft
        for view in world.inventory.views_of(listed.view.url)
        for package in view.packages.values()
        for draft in package.drafts
        if short_branch(draft.ref) == listed.pull.head
    }
    each = [_readiness(drafts[path], listed, world.inventory, plan) for path in sorted(drafts)]
    return Readiness(
        tuple(text for draft_readiness in each for text in draft_readiness.against),
        tuple(text for draft_readiness in each for text in draft_readiness.shown),
    )


def _readiness(draft: Draft, listed: ListedPull, inventory: Inventory, plan: Callable[[], Plan]) -> Readiness:
    conflicts, unready = _known(draft, listed, inventory, plan)
    gates = tuple(dict.fromkeys(_gates(draft, listed) + unready))
    if listed.view.deployment:
        return Readiness(conflicts + gates)
    return Readiness(conflicts, gates)


def _known(
    draft: Draft, listed: ListedPull, inventory: Inventory, plan: Callable[[], Plan]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the open conflicts of a draft, and what else it is not ready for."""
    package = PackageKey(listed.view.url, draft.path)
    records = (r for r in inventory.records.values() if (r.url, r.path) == package)
    record = next(records, None)
    if (
        record is not None
        and record.output_tree == draft.tree
        and not (record.conflicts or draft.append_only)
    ):
        return (), record.unready
    change = next((each for each in plan().changes if each.package == package), None)
    if change is None:
        return (), ()
    # What is held back conflicts with an update that is not in the draft: the draft asks nothing.
    conflicts = () if change.reason is Reason.HELD_BACK else change.conflicts
    return tuple(map(_conflict, conflicts)), change.unready


def _conflict(note: ConflictNote) -> str:
    return f"{_CONFLICT}{note.path}{f' at {note.field}' if note.field else ''}"


def _gates(draft: Draft, listed: ListedPull) -> tuple[str, ...]:
    mirror = listed.mirror
    blob = mirror.blob_at(draft.tip.oid, f"{draft.path}/{KPTFILE}")
    if blob is None:
        return ()
    mirror.ensure([blob])
    return unmet_gates(mirror.blob(blob, MAX_KPTFILE_BYTES))
