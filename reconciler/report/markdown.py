"""Plan, pull request and dashboard as Markdown, from templates; dynamic texts sit in code spans."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined, TemplateNotFound
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base import text
from reconciler.base.lazy import regex
from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import Text, join_texts, plural
from reconciler.names.ids import PackageKey, ask_key
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, LockProposal, Op, Plan, PullRequestContent
from reconciler.plan.compose import asked_text
from reconciler.plan.impact import all_losses
from reconciler.plan.proposals import IndexProposal
from reconciler.plan.rejection import ask_box, asked_keys, tick_boxes
from reconciler.plan.status import PackageStatus
from reconciler.records.state import LOCKS_DIRECTORY
from reconciler.report.build import (
    MOST_DIFFS,
    arrow,
    cause_name,
    change_order,
    clusters_text,
    equal_differences,
    find_needs,
    group_problems,
    impact_text,
    judgement_rows,
    judgement_texts,
    loss_texts,
    move_text,
    moving_rollouts,
    names_text,
    risk_summary,
    risk_texts,
    since_text,
    upstream_text,
)
from reconciler.report.comparison import compared_text, problem_sentence, rows
from reconciler.report.conflicts import (
    MOST_CONFLICTS,
    answer_commands,
    answer_rows,
    change_keeps,
    conflict_blocks,
)
from reconciler.report.diff import MOST_FILES, MOST_TEXT, FileChange
from reconciler.report.report import CheckReport, Names, Report, UpstreamChange
from reconciler.report.text import outcome_lines, proposal_lines

ROWS = 1000
"""A job summary holds at most a mebibyte; more rows than this are counted, not shown."""
MOST_UPSTREAM = 20
"""Commits of upstream in a pull request's text."""
MOST_WARNINGS = 50
"""Warnings of functions in a pull request's text."""
LONGEST = 500
"""Characters of a row's detail."""


_FOLDED = frozenset({"variant", "instance"})
"""Facts that a reviewer seldom needs."""


def plan_markdown(report: Report) -> str:
    """Return a plan, or what became of it, as a job summary: what changes, what is wrong, the checksum."""
    causes = [
        cause
        for cause in report.causes
        if any(change.op is not Op.KEEP or change.waits or change.unready for change in cause.changes)
    ]
    moves = report.moves[len(report.dangers) :]
    rows = [
        {
            "op": cause.word,
            "name": cause_name(cause),
            "reason": str(cause.reason),
            "detail": "; ".join(filter(None, (cause.text, *risk_texts(cause.risks)))),
        }
        for cause in causes[:ROWS]
    ]
    outcome = report.outcome
    return fill(
        "summary.md",
        title="Applied" if outcome else "Plan",
        report=report,
        losses=loss_texts(report.losses),
        judgements=judgement_texts(report.judgements),
        rows=rows,
        hidden=sum(len(cause.changes) for cause in causes[ROWS:]),
        risks=risk_summary(report.risks),
        rollouts=moving_rollouts(report.rollouts),
        problems=group_problems(report.problems),
        dangers=list(map(move_text, report.dangers)),
        moves=list(map(move_text, moves)),
        more_moves=max(0, len(report.dangers) - ROWS) + max(0, len(moves) - ROWS),
        lock=list(proposal_lines(report.lock)),
        effects=list(outcome_lines(outcome, quiet=True))[:ROWS] if outcome else [],
    )


def fatal_markdown(title: str, texts: Sequence[tuple[str, Text]]) -> str:
    """Return what ended a run as a job summary: each message with its hint, which may be empty."""
    return fill("fatal.md", title=title, texts=texts)


def comparison_markdown(report: CheckReport, *, title: str = "Check", difference: str = "") -> str:
    """Return what merging a change would do as a job summary; the difference first, old problems last.

    The `difference` of files, as a patch, is folded.
    """
    comparison = report.comparison
    return fill(
        "check.md",
        title=title,
        report=report,
        losses=loss_texts(report.losses),
        judgements=judgement_texts(report.judgements),
        compared=compared_text(comparison),
        problems=problem_sentence(comparison),
        deep=comparison.deep,
        new=group_problems(report.problems),
        old=group_problems(comparison.old),
        unread=group_problems(comparison.unread),
        rows=rows(report),
        difference=difference,
    )


def pull_body(
    change: Change,
    names: Names,
    files: Sequence[FileChange] = (),
    *,
    links: Mapping[str, str] | None = None,
    difference: str = "",
    upstream: Sequence[UpstreamChange] = (),
    origins: Mapping[str, UpstreamChange] | None = None,
    boxes: bool = False,
) -> str:
    """Return the body of the pull request that proposes `change`: what, why, what is kept, what to do.

    `links` are addresses behind the facts, by their name, and `difference` that of everything that it
    changes. `upstream` are the commits of upstream that it brings, the newest first, `origins` those that set
    the local values of its conflicts, by the conflicts' names. With `boxes` one that is ticked in it is read.
    """
    since = {name: _commit_text(commit) for name, commit in (origins or {}).items()}
    conflicts = conflict_blocks(change, since, boxes=boxes)
    facts = [(name, value, (links or {}).get(name, "")) for name, value in _facts(change, names) if value]
    request = change.request or PullRequestContent(change.op)
    return fill(
        "pull-request.md",
        kind="deleted" if change.reason is Reason.DELETED_BY_PERSON else request.kind,
        is_back=request.is_back,
        is_moved=request.is_moved,
        edited=request.edited,
        losses=_losses([change]),
        judgements=[judgement.text for judgement in change.judgements[:ROWS]],
        unready=change.unready,
        facts=[fact for fact in facts if fact[0] not in _FOLDED],
        folded=[fact for fact in facts if fact[0] in _FOLDED],
        upstream=list(map(_commit_text, upstream)),
        difference=difference,
        risks=_risks(change),
        conflicts=conflicts,
        all_conflicts=change.conflicts,
        boxed=any(block.boxes for block in conflicts),
        commands=answer_commands(change, names.of(change)) if conflicts else "",
        deleted=any(not (note.local or note.field) for note in change.conflicts),
        keeps=change_keeps(change),
        answers=answer_rows(change),
        requirements=change.requirements,
        pins=change.pins,
        files=files,
        warnings=tuple(_warnings([change], names)),
    )


def _losses(changes: Iterable[Change]) -> list[str]:
    """Return what merging a pull request takes, and what to know of what is replaced."""
    losses = all_losses(loss for change in changes for loss in change.losses)
    notes = dict.fromkeys(loss.replacement for loss in losses if loss.heir)
    return [*loss_texts(losses), *notes]


def _commit_text(commit: UpstreamChange) -> str:
    """Return a commit as Markdown."""
    subject, author, oid = (text.cell(_short(t)) for t in (commit.subject, commit.author, commit.commit[:8]))
    return f"{subject} ({author}, {oid})"


def group_body(
    changes: Sequence[Change],
    names: Names,
    files: Mapping[PackageKey, Sequence[FileChange]],
    links: Mapping[PackageKey, Mapping[str, str]] | None = None,
    difference: str = "",
    *,
    upstream: Mapping[PackageKey, Sequence[UpstreamChange]] = MappingProxyType({}),
) -> str:
    """Return the body of the pull request that proposes several packages; each is a row.

    Those with conflicts are first, then dangerous ones. Packages that are held back, because a person edited
    them, are listed with their reason. Equal differences are shown once, as many as fit.
    """
    ordered = sorted(changes, key=lambda change: (not change.conflicts, change_order(change)))
    rows = [
        {
            "name": names.of(change),
            "kind": change.request.kind if change.request else "",
            "upstream": _upstream(change),
            "link": (links or {}).get(change.package, {}).get("upstream", ""),
            "size": impact_text(change.impact) if change.impact else "",
            "note": join_texts("; ", (*change.unready, *_risks(change), _note(change))),
        }
        for change in ordered
    ]
    commits: dict[str, list[Change]] = {}
    for change in ordered:
        for commit in upstream.get(change.package, ()):
            commits.setdefault(_commit_text(commit), []).append(change)
    return fill(
        "group.md",
        count=len(rows),
        losses=_losses(ordered),
        judgements=judgement_texts(judgement_rows(ordered, names)),
        instance=names.instance,
        difference=difference,
        differences=list(_differences(ordered, names, files)),
        upstream=[(names_text(changed, names), text) for text, changed in commits.items()],
        rows=rows,
        warnings=list(_warnings(changes, names)),
        held=[
            (names.of(change), conflict_blocks(change, {}), answer_commands(change, names.of(change)))
            for change in changes
            if change.conflicts
        ],
        answered_in=[(names.of(change), answer_rows(change)) for change in changes if change.answers],
    )


def _differences(
    changes: Sequence[Change], names: Names, files: Mapping[PackageKey, Sequence[FileChange]]
) -> Iterator[tuple[str, list[FileChange]]]:
    """Yield packages with equal differences, and their files without the Kptfile, as far as they fit."""
    room = MOST_TEXT
    for alike in equal_differences(changes)[:MOST_DIFFS]:
        texts = [f for f in files.get(alike[0].package, ()) if f.text and f.path != KPTFILE]
        room -= sum(len(file.text) for file in texts)
        if texts and room > 0:
            yield names_text(alike, names), texts


def _warnings(changes: Iterable[Change], names: Names) -> Iterator[tuple[str, Text]]:
    """Yield what the functions of each package warned of, as far as it fits."""
    warnings = ((names.of(change), text) for change in changes for text in change.warnings)
    yield from islice(warnings, MOST_WARNINGS)


def lock_body(proposal: LockProposal) -> str:
    """Return the body of the pull request that proposes another lock; each pin is a row with its reason."""
    edited = [f"{LOCKS_DIRECTORY}/{path}" for path in proposal.edited]
    return fill("lock.md", losses=loss_texts(proposal.losses), pins=proposal.pins, edited=edited)


def index_body(proposal: IndexProposal) -> str:
    """Return the body of the pull request of the index: its versions, and what clusters would choose."""
    return fill("index.md", proposal=proposal)


class NextRevision(NamedTuple):
    """The tag that a package gets next, and the files with manifests that name the one before, raised.

    `is_here` tells that they are in the repository of the package.
    """

    tag: str
    manifests: Files
    is_here: bool = False


class FleetDifference(NamedTuple):
    """The changes that a proposed package makes in the packages derived from it, `made` in all.

    `files` are those of one of equal changes. `failures` are why some packages cannot be made.
    """

    changes: Sequence[Change]
    files: Mapping[PackageKey, Sequence[FileChange]]
    made: int
    failures: tuple[str, ...]
    names: Names


def chart_body(
    proposal: IndexProposal, revision: NextRevision | None = None, fleet: FleetDifference | None = None
) -> str:
    """Return the body of the pull request of a chart: its version, what it renders, and what comes next."""
    (version,) = proposal.versions
    groups = equal_differences(fleet.changes) if fleet else []
    rows = [
        {
            "name": names_text(alike, fleet.names),
            "size": impact_text(alike[0].impact) if alike[0].impact else "",
            "note": join_texts("; ", (asked_text(alike[0].conflicts), *alike[0].unready, *_risks(alike[0]))),
        }
        for alike in groups
        if fleet
    ]
    return fill(
        "chart.md",
        version=version,
        proposal=proposal,
        revision=revision,
        fleet=fleet,
        rows=rows,
        differences=list(_differences(fleet.changes, fleet.names, fleet.files)) if fleet else [],
    )


def revision_body(proposal: IndexProposal) -> str:
    """Return the body of the pull request that lets manifests name the next revision of a package."""
    (version,) = proposal.versions
    return fill("revision.md", version=version, title=proposal.title)


def _short(text: Text) -> str:
    """Return a text that fits a table, however long a name is."""
    plain = str(text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def _upstream(change: Change) -> str:
    request = change.request
    return arrow(request.upstream_from, request.upstream_to) if request else upstream_text(change)


def _risks(change: Change) -> list[str]:
    return risk_texts(change.impact.risks) if change.impact else []


def _note(change: Change) -> str:
    """Return what only the last run knows of a draft: why it was written again, or that people deleted it."""
    is_deleted = change.reason is Reason.DELETED_BY_PERSON
    note = change.message if change.writes or change.request is None or is_deleted else ""
    # The text has the conflicts.
    return str(note).removesuffix(asked_text(change.conflicts)).removesuffix("; ")


def _facts(change: Change, names: Names) -> Iterator[tuple[str, str]]:
    request = change.request
    yield "package", names.of(change)
    is_moved = request is not None and request.kind is Op.TRANSFER
    yield "new owner" if is_moved else "variant", f"PackageVariant {change.variant}" if change.variant else ""
    # Without the line, which moves whenever somebody edits the file above it.
    yield "manifest", change.location.path if change.location else ""
    yield "upstream", _upstream(change)
    # Without the latest revision, which moves whenever somebody publishes one.
    yield from ((f"sub-package {note.path}", note.move) for note in change.subpackages if note.before)
    yield "rollout", request.rollout if request else ""
    yield "required by", ", ".join(request.requested_by) if request else ""
    yield "note", _note(change)
    yield "instance", names.instance
    yield "not ready", join_texts("; ", change.unready)


def fill(template: str, **values: object) -> str:
    """Return a template with its values; every filter that a template may use makes text inert."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    # Markdown is not HTML: the filters below text, autoescape would garble code spans.
    environment = Environment(  # noqa: S701
        loader=FunctionLoader(load_template), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["code"] = text.code
    environment.filters["cell"] = text.cell
    environment.filters["prose"] = text.prose
    environment.filters["block"] = text.block
    environment.filters["plural"] = plural
    environment.filters["short"] = _short
    environment.filters["clusters"] = clusters_text
    environment.globals.update(ROWS=ROWS, LONGEST=LONGEST, MOST_UPSTREAM=MOST_UPSTREAM)
    environment.globals.update(MOST_FILES=MOST_FILES, MOST_CONFLICTS=MOST_CONFLICTS)
    return environment


def load_template(name: str) -> str:
    """Return a template's text, from the installed package or from the checkout around it."""
    package = resources.files("reconciler")
    for folder in (package / "_templates", package / ".." / "templates"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise TemplateNotFound(name)


SECTION_ROWS = 200
"""Packages of one section; more than these are counted."""
_SECTIONS = {
    Phase.REJECTED: "Rejected: tick a box to have it proposed again",
    Phase.CONFLICT: "Conflict: values changed on both sides, answer in the draft",
    Phase.NOT_READY: "Not ready: the draft may not be approved yet",
    Phase.HELD_BACK: "Held back: kept as it is, for the reason given",
    Phase.STALLED: "Stalled: its manifest, upstream or downstream is wrong or cannot be read",
    Phase.PENDING: "Pending: something is still to be written",
    Phase.PAUSED: "Paused: by annotation or configuration",
    Phase.IN_REVIEW: "In review: waits for a person to merge it",
}
_QUIET = frozenset({Phase.PUBLISHED, Phase.PAUSED, Phase.IN_REVIEW})
"""States that need no attention: they open no dashboard."""


class Dashboard(Struct, frozen=True):
    """The text, empty without packages and problems; `calls` is true if something needs attention."""

    text: str
    calls: bool


def make_dashboard(plan: Plan, statuses: Sequence[PackageStatus], names: Names, eta: str) -> Dashboard:
    """Return the dashboard of one instance. Deterministic; its only times are those of states.

    `statuses` are those after the run, `eta` is how long what a limit left takes, empty if nothing was left.
    """
    counts = Counter(status.phase for status in statuses)
    calls = bool(plan.problems or plan.refusals or counts.keys() - _QUIET)
    if not calls and not counts:
        return Dashboard("", calls=False)
    problems = group_problems(plan.problems)
    # A rejection is asked about once: the next run would write the text anew. Its section has a box instead.
    others = [status for status in statuses if status.phase is not Phase.REJECTED]
    text = fill(
        "dashboard.md",
        instance=names.instance,
        report_url=names.report_url,
        counts=", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase]),
        needs=find_needs(plan, others),
        rollouts=moving_rollouts(plan.rollouts),
        sections=tuple(_sections(plan, statuses)),
        eta=eta,
        problems=problems[:SECTION_ROWS],
        more_problems=sum(len(group.problems) for group in problems[SECTION_ROWS:]),
        refusals=plan.refusals,
    )
    return Dashboard(text, calls)


def _sections(plan: Plan, statuses: Sequence[PackageStatus]) -> Iterator[dict[str, Any]]:
    """Yield the packages in each state that is shown; those that a wave holds back are counted with it."""
    changes = {change.package: change for change in plan.changes}
    waves = {key for rollout in plan.rollouts for key in rollout.waves_of}
    selected = [s for s in statuses if s.reason != Reason.AWAITING_WAVE or s.variant not in waves or s.pull]
    for phase, title in _SECTIONS.items():
        listed = sorted(
            (s for s in selected if s.phase is phase), key=lambda s: (_name(s), *(s.variant or ()))
        )
        if listed:
            rows = [_row(status, changes) for status in listed[:SECTION_ROWS]]
            yield {"title": title, "rows": rows, "more": max(0, len(listed) - SECTION_ROWS)}


def _row(status: PackageStatus, changes: dict[PackageKey, Change]) -> dict[str, str]:
    """Return one package of a section; `box` asks for what was rejected, "" where nothing can be asked."""
    change = changes.get(status.package) if status.package else None
    can_ask = change is not None and change.reason is Reason.REJECTED and change.upstream_to
    box = ask_box(ask_key(change.package, change.tree)) if change is not None and can_ask else ""
    detail = join_texts(": ", (status.reason, status.message))[:LONGEST]
    # A forge takes `#3` for an issue of the repository that has the dashboard: the name is the link.
    since = since_text(replace(status, pull=0) if status.url else status)
    return {"name": _name(status), "url": status.url, "since": since, "detail": detail, "box": box}


def _name(status: PackageStatus) -> str:
    view = status.repository
    return f"{view.name}/{status.name}" if view is not None else f"PackageVariant {status.variant}"


_MARK = "<!-- reconciler:shard"
_PART = regex(rf"{_MARK} (\d{{1,4}})/(\d{{1,4}}) -->\n(.*?)\n{_MARK} end -->", re.DOTALL)


def merge_parts(body: str, texts: Mapping[int, str], shard: int, parts: int) -> str:
    """Return the dashboard of several shards, of which one writes. Pure.

    Boxes that people ticked in the parts of other shards stay ticked: those shards have yet to read them.
    Parts without a text stay as they are; those of another number of shards go.
    """
    lines = body.replace("\r\n", "\n")
    merged = {int(m[1]): m[3] for m in _PART.finditer(lines) if int(m[2]) == parts and int(m[1]) < parts}
    merged |= {part: text.replace(_MARK, "<!--").strip("\n") for part, text in texts.items()}
    ticked = asked_keys(lines)
    merged = {part: text if part == shard else tick_boxes(text, ticked) for part, text in merged.items()}
    whole = ((index, merged[index]) for index in sorted(merged) if merged[index])
    return "\n\n".join(f"{_MARK} {i}/{parts} -->\n{text}\n{_MARK} end -->" for i, text in whole)
