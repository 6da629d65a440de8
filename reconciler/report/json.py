"""Plan and outcome for machines: JSON with a schema (`docs/schemas/plan.schema.json`), and SARIF 2.1.0."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.base.errors import Exit, worst
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    Approval,
    Change,
    ClosePull,
    Effect,
    LockProposal,
    MoveRef,
    Op,
    Refusal,
    StartBranch,
    Write,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.compare import Comparison
from reconciler.plan.impact import Impact, Loss, Risk, loss_value
from reconciler.plan.status import PackageStatus, status_value
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.report.build import judgement_rows
from reconciler.report.conflicts import conflict_value
from reconciler.report.machine import (
    API_VERSION,
    problem_results,
    problem_value,
    sarif_log,
    sarif_result,
    sentence,
)
from reconciler.report.report import (
    ApprovableRow,
    HistoryEntry,
    JudgementRow,
    Names,
    PackageOverview,
    PackageRow,
    Report,
)
from reconciler.resolve.rollout_model import GateResult, MemberStatus, Rollout, WaveStatus


def plan_sarif(report: Report) -> dict[str, Any]:
    """Return a SARIF log of what is wrong: problems and refusals as errors, blocked packages as warnings."""
    changes = [(row.name, row.change) for row in report.packages]
    results = [
        *_wrong(report.problems, report.refusals),
        *(
            sarif_result("warning", c.reason, sentence(f"{name}: {c.detail or c.op}", ""), c.location)
            for name, c in changes
            if c.op is Op.BLOCK or c.waits
        ),
        *_judged(change for _, change in changes),
        *_silent(report.judgements),
    ]
    return sarif_log(results)


def comparison_sarif(comparison: Comparison) -> dict[str, Any]:
    """Return a SARIF log of a proposed change: what it brings as errors, what was there as notes.

    What could not be read is a warning. Refusals that are problems by settings are listed as those alone.
    """
    is_listed = any(problem.reason == Reason.WOULD_BE_REFUSED for problem in comparison.new)
    others = (*problem_results("warning", comparison.unread), *problem_results("note", comparison.old))
    wrong = (*_wrong(comparison.new, comparison.refusals), *_judged(comparison.judged, is_listed=is_listed))
    silent = _silent(judgement_rows((), Names(), comparison.unjudged))
    log = sarif_log([*wrong, *silent, *others])
    log["runs"][0]["properties"] = {"base": str(comparison.base), "head": str(comparison.head)}
    return log


def _wrong(problems: Iterable[Problem], refusals: Iterable[Refusal]) -> Iterator[dict[str, Any]]:
    yield from problem_results("error", problems)
    yield from (sarif_result("error", r.reason, sentence(r.message, r.hint), None) for r in refusals)


def _judged(changes: Iterable[Change], *, is_listed: bool = False) -> Iterator[dict[str, Any]]:
    """Yield what clusters would answer, without refusals if they are listed; other rules are what decides."""
    for change in changes:
        for judgement in change.verdicts:
            if is_listed and judgement.is_refusal:
                continue
            is_refused = judgement.verdict is AdmissionVerdict.REFUSED
            rule = Reason.WOULD_BE_REFUSED if is_refused else judgement.rule
            level = (
                "warning"
                if judgement.is_refusal or judgement.verdict is AdmissionVerdict.DESTROYS
                else "note"
            )
            yield sarif_result(level, rule, sentence(judgement.text, ""), change.location)


def _silent(rows: Iterable[JudgementRow]) -> Iterator[dict[str, Any]]:
    """Yield what is not known of whole clusters."""
    texts = ((row.rule, sentence(row.text, "")) for row in rows if row.noun == "cluster")
    yield from (sarif_result("note", f"not judged: {rule}", text, None) for rule, text in texts)


def report_value(report: Report) -> dict[str, Any]:
    """Return a report as a JSON value; every exit class is listed. Equal plans have equal values."""
    outcome = report.outcome
    return {
        "apiVersion": API_VERSION,
        "kind": "Outcome" if outcome else "Plan",
        **wire(report),
        **({"effects": wire(outcome.effects)} if outcome else {}),
        **exits_value(report.exits, report.exit_code),
    }


def exits_value(exits: Collection[Exit], code: Exit | None = None) -> dict[str, Any]:
    """Return the classes of exit that apply, and the code that the process ends with."""
    return {
        "exitCode": int(worst(exits) if code is None else code),
        "exits": [code.name.lower() for code in sorted(exits)],
    }


# The wire form of each type


def wire(value: object) -> Any:
    """Return a value of a report as JSON has it; a type without a row below has all of its fields."""
    if value is None or type(value) in _PLAIN:
        return value
    parts = _fields(value)
    if isinstance(parts, tuple) and hasattr(parts, "_asdict"):
        parts = parts._asdict()
    if isinstance(parts, Mapping):
        return {str(name): wire(part) for name, part in parts.items()}
    return str(parts) if isinstance(parts, str) else list(map(wire, parts))


_PLAIN: Final = frozenset({str, int, bool, float})


def _row(**fields: object) -> dict[str, object]:
    return fields


def _fields(value: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a table with a row for each type
    """Return the fields of a value by their names in JSON; a value of a type without a row as it is."""
    match value:
        case Report() as r:
            shards = [r.names.shard] if r.names.shard else []
            return (
                _row(instance=r.names.instance, shards=shards, checksum=r.checksum, empty=r.empty)
                | _row(summary=r.ops, losses=r.losses, needs=r.needs, changes=r.packages)
                | _row(judgements=r.judgements)
                | _row(approvable=r.approvable, problems=r.problems, refusals=r.refusals, notes=r.notes)
                | _row(lock=r.lock, rollouts=r.rollouts, moves=r.moves)
            )
        case PackageRow(change=c) as p:
            upstream = {"from": c.upstream_from, "to": c.upstream_to}
            return (
                _result_fields(c)
                | _row(name=p.name, reason=p.reason, status=p.status, risks=p.risks, upstream=upstream)
                | _row(repository=c.repository, package=c.package, variant=c.variant, location=c.location)
                | _row(group=c.group, ready=c.ready, unready=c.unready, warnings=c.warnings)
                | _row(writes=c.writes, pullRequest=c.pull, close=c.close, approve=c.approve)
                | _row(subpackages=c.subpackages, losses=c.losses, pins=c.pins, diff=c.impact)
                | _row(judgements=c.verdicts)
                | _row(conflicts=c.conflicts, answers=c.answers)
            )
        case LockProposal() as p:
            return _result_fields(p.change) | _row(pins=p.pins, edited=p.edited)
        case ApprovableRow() as a:
            place = _row(url=a.url, number=a.number, head=a.head)
            return place | _row(conflicts=a.conflicts, unmet=a.unmet, shown=a.lenient, objection=a.objection)
        case Problem():
            return problem_value(value)
        case Refusal() as r:
            return _row(reason=r.reason, message=r.message, hint=r.hint)
        case Risk() as r:
            return _row(action=r.action, subject=r.subject) | {"class": r.category}
        case Impact() as i:
            return _row(digest=i.digest, files=i.files, added=i.added, removed=i.removed)
        case Approval() as a:
            return _row(number=a.number, head=a.head, expect=a.expect)
        case ClosePull() as c:
            return _row(number=c.number, head=c.head)
        case PullRequest() as p:
            branch = _row(head=p.head, headOid=p.head_oid, base=p.base)
            return branch | _row(
                number=p.number, url=p.url, title=p.title, state=p.state, draft=p.draft, labels=p.labels
            )
        case Answer(conflict=c) as a:
            place = _row(path=c.path, resource=c.resource, field=c.field)
            sides = _row(chosen=a.chosen, dropped=a.dropped)
            return place | sides | _row(by=a.by, policy=a.policy, source=a.source)
        case HistoryEntry(impact=impact) as h:
            commit = _row(commit=h.commit, date=h.date or None, author=h.author, subject=h.subject)
            risks = impact.risks if impact else ()
            revision = _row(revision=h.revision, upstream=h.upstream, labels=h.labels)
            return revision | commit | _row(diff=impact, risks=risks)
        case Rollout() as r:
            held = [{**key._asdict(), "message": why} for key, why in sorted(r.staying.items())]
            state = _row(
                set=r.key.owner, upstream=r.key.upstream, revision=r.revision, phase=r.phase, text=r.title
            )
            return state | _row(waves=r.waves, held=held)
        case WaveStatus() as w:
            text = _row(message=w.message, text=w.lines[0])
            return text | _row(name=w.name, phase=w.phase, packages=w.members)
        case MemberStatus() as m:
            state = _row(phase=m.phase, message=m.failure or m.why, gates=m.gates)
            return state | _row(namespace=m.key.namespace, name=m.key.name, package=m.name)
        case GateResult() as g:
            return _row(result=g.result, message=g.message)
        case AdmissionJudgement() as j:
            what = _row(verdict=j.verdict, rule=j.rule, message=str(j.message), old=j.is_old)
            return what | _row(cluster=j.cluster, object=j.object)
        case JudgementRow() as j:
            what = _row(verdict=j.verdict, rule=j.rule, message=str(j.message), old=j.is_old)
            return what | _row(names=j.names, of=j.noun)
        case Loss():
            return loss_value(value)
        case PackageStatus():
            return status_value(value)
        case PackageOverview() as o:
            versions = _row(main=o.main, review=o.review, waitingFor=o.waiting_for)
            return _row(set=o.set_name, cluster=o.cluster) | versions
        case Conflict():
            return conflict_value(value)
        case Effect():
            return msgspec.to_builtins(value)
        case WriteDraft() | WriteGroup() | WriteRemoval() | MoveRef() | StartBranch():
            return _row(kind=type(value).__name__, ref=value.ref, expect=value.expect) | _write(value)
    return value


def _result_fields(c: Change) -> dict[str, object]:
    """Return the fields that a package and the lock share."""
    trees = _row(before=c.before, after=c.tree, pending=c.pending, waits=c.waits)
    return trees | _row(op=c.op, reason=c.reason, message=c.detail)


def _write(write: Write) -> dict[str, object]:
    """Return the further fields of a write: files are counted, and packages that share a group's commit."""
    match write:
        case WriteDraft() as w:
            tree = _row(tree=w.tree, merges=w.merges, files=len(w.files))
            return tree | _row(onto=w.onto, path=w.path, time=w.time)
        case WriteGroup() as w:
            return _row(onto=w.onto, time=w.time, packages=len(w.parts))
        case WriteRemoval() as w:
            return _row(onto=w.onto, path=w.path, time=w.time)
        case MoveRef() as w:
            return _row(to=w.to)
    return _row(to=write.oid)
