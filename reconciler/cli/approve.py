"""`approve`: merge drafts and deletions on the local forge, if nothing forbids it (D10, D18)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options, require_readable, show_unread
from reconciler.errors import Exit, ReconcilerError, RefusedError, UsageError, worst
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.pull_requests import Found
    from reconciler.plan.changes import Plan
    from reconciler.run.inputs import RunInputs, RunOptions
from reconciler.api.kptfile import KPTFILE
from reconciler.cli.pull_requests import Found
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
    """What became of one approval."""

    found: "Found"
    commit: str = ""
    revision: str = ""
    error: ReconcilerError | None = None
    notes: tuple[str, ...] = ()
    already: str = ""

    @property
    def result(self) -> str:
        """What became of it in one word, as JSON says it."""
        if self.error:
            return "refused"
        return f"already {self.already}" if self.already else "approved" if self.commit else "proposed"


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("names", nargs=-1, metavar="[REPO/PACKAGE]...")
@click.option("--all", "every", is_flag=True, help="Every open pull request of every repository.")
@click.option("--propose-only", is_flag=True, help="Only mark as ready for review; somebody else approves.")
def approve(
    settings: "RunOptions",
    output: str,
    names: Sequence[str],
    *,
    no_color: bool,
    every: bool,
    propose_only: bool,
) -> Exit:
    r"""Approve the draft or the deletion of packages on the local forge.

    A draft is published as Porch does it: a commit with two parents on the main branch, the tag
    PACKAGE/vN, and no draft any more, in one push. A proposed deletion removes the package from the
    main branch; its tags stay as history. A draft whose readiness gates are not met is refused where
    packages are deployed, and one with a conflict that nobody answered everywhere. A closed pull
    request is refused until somebody opens it again; of a merged one nothing is left to be done.

    \b
    Examples:
      reconciler approve edge-east/nginx
      reconciler approve edge-east#3               one pull request by number
      reconciler approve --all                     everything that is open
      reconciler approve --propose-only edge-east/nginx
    """
    from reconciler.cli.pull_requests import find_or_open, list_found
    from reconciler.inventory import PullState
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import plan_fleet

    if bool(names) == every:
        raise UsageError("Name packages, or pass --all", hint="`reconciler pr list` shows what is open.")
    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, names)
    found = list_found(world)
    chosen = [f for name in names for f in find_or_open(world, found, name)]
    if every:
        chosen = [f for f in found if f.pull.state is PullState.OPEN]
    once = {one.name: one for one in chosen}.values()
    plan = cache(lambda: plan_fleet(world).plan)
    results = [_propose(one) if propose_only else _approve(one, world, plan) for one in once]
    unread = find_unread(world.inventory) if every else {}
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        printer.value(listing("Approval", (_value(result) for result in results)))
    else:
        printer.lines(_lines(results, propose_only=propose_only, is_whole=not unread))
    return worst(
        show_unread(printer, unread) | {result.error.exit_code for result in results if result.error}
    )


def _approve(found: "Found", world: "RunInputs", plan: "Callable[[], Plan]") -> Approved:
    from reconciler.cli.approve import find_readiness
    from reconciler.cli.pull_requests import closed_error, is_merged, outdated_error
    from reconciler.forge.local_merge import OutdatedError

    if is_merged(found):
        return Approved(found, already="merged")
    if closed := closed_error(found):
        return Approved(found, error=closed)
    readiness = find_readiness(world, found, plan)
    if readiness.against:
        hint = f"{readiness.hint} `reconciler explain {found.package}` says where each comes from."
        error = RefusedError(f"Readiness conditions are not met: {'; '.join(readiness.against)}", hint=hint)
        return Approved(found, error=error)
    try:
        commit = found.forge.approve(found.pull.number, expect=found.pull.head_oid)
    except OutdatedError as error:
        return Approved(found, error=outdated_error(error, found, plan))
    except ReconcilerError as error:
        return Approved(found, error=error)
    refs = found.forge.mirror.refs()
    tags = (ref for ref, oid in refs.items() if oid == commit and ref.startswith("refs/tags/"))
    return Approved(found, commit, min(tags, default="").removeprefix("refs/tags/"), notes=readiness.shown)


def _propose(found: "Found") -> Approved:
    from reconciler.cli.pull_requests import closed_error, is_merged

    if is_merged(found):
        return Approved(found, already="merged")
    if closed := closed_error(found):
        return Approved(found, error=closed)
    if not found.pull.draft:
        return Approved(found, already="proposed")
    try:
        found.forge.mark_ready(found.pull.number)
    except ReconcilerError as error:
        return Approved(found, error=error)
    return Approved(found)


def _lines(results: Sequence[Approved], *, propose_only: bool, is_whole: bool) -> Iterator[str]:
    if not results:
        yield "Nothing is open." if is_whole else "Nothing is open in the repositories that were read."
    for result in results:
        name = terminal(result.found.package)
        if result.error:
            word = "refused" if result.error.exit_code is Exit.REFUSED else "not approved"
            yield f"{word}: {name}: {terminal(str(result.error))}"
            if result.error.hint:
                yield f"  hint: {terminal(result.error.hint)}"
        elif result.already:
            yield f"already {result.already}: {name} in {terminal(result.found.name)}"
        elif propose_only:
            yield f"proposed {name}"
        else:
            yield f"approved {name}: {terminal(result.revision) or _became(result)}"
            yield from (f"  not ready: {terminal(note)}" for note in result.notes)


def _became(result: Approved) -> str:
    """Return what approving did where it published no revision at once."""
    from reconciler.forge.local_merge import DeletionHead, parse_head
    from reconciler.ids import Oid

    about = parse_head(result.found.pull.head)
    if not isinstance(about, DeletionHead):
        return "merged"
    if result.found.forge.mirror.subtree(Oid(result.commit), about.path) is None:
        return "removed"
    return "merged; the files that its branch keeps are still there"


def _value(result: Approved) -> dict[str, str | list[str]]:
    return {
        "package": result.found.package,
        "pullRequest": result.found.name,
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
        """What a person can do about what forbids approval."""
        conflicts = [text for text in self.against if text.startswith(_CONFLICT)]
        answer = "Answer the conflicts in the draft, as its pull request says." if conflicts else ""
        meet = "Meet each condition: it is read from status.conditions of the draft's Kptfile."
        if functions_failed(self.against):
            meet = "Correct the pipeline or its inputs, and run `reconciler apply`."
        if len(conflicts) == len(self.against):
            meet = ""
        return " ".join(filter(None, (answer, meet)))


def find_readiness(world: RunInputs, found: Found, plan: Callable[[], Plan]) -> Readiness:
    """Return what is known against a pull request's head as it is now; a deletion is always ready.

    Gates hold where packages are deployed and are shown elsewhere. A conflict that nobody answered
    holds everywhere: approving it would choose without saying so. What a record does not tell of exactly
    this draft, a plan tells: `plan` makes it, once.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """
    drafts = {
        draft.path: draft
        for view in world.inventory.views_of(found.view.url)
        for package in view.packages.values()
        for draft in package.drafts
        if short_branch(draft.ref) == found.pull.head
    }
    each = [_readiness(drafts[path], found, world.inventory, plan) for path in sorted(drafts)]
    return Readiness(
        tuple(text for one in each for text in one.against), tuple(text for one in each for text in one.shown)
    )


def _readiness(draft: Draft, found: Found, inventory: Inventory, plan: Callable[[], Plan]) -> Readiness:
    conflicts, unready = _known(draft, found, inventory, plan)
    gates = tuple(dict.fromkeys(_gates(draft, found) + unready))
    if found.view.deployment:
        return Readiness(conflicts + gates)
    return Readiness(conflicts, gates)


def _known(
    draft: Draft, found: Found, inventory: Inventory, plan: Callable[[], Plan]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the open conflicts of a draft, and what else it is not ready for."""
    package = PackageKey(found.view.url, draft.path)
    several = (r for r in inventory.records.values() if (r.url, r.path) == package)
    record = next(several, None)
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
    asked = () if change.reason is Reason.HELD_BACK else change.conflicts
    return tuple(map(_conflict, asked)), change.unready


def _conflict(note: ConflictNote) -> str:
    return f"{_CONFLICT}{note.path}{f' at {note.field}' if note.field else ''}"


def _gates(draft: Draft, found: Found) -> tuple[str, ...]:
    mirror = found.forge.mirror
    blob = mirror.blob_at(draft.tip.oid, f"{draft.path}/{KPTFILE}")
    if blob is None:
        return ()
    mirror.ensure([blob])
    return unmet_gates(mirror.blob(blob, MAX_KPTFILE_BYTES))
