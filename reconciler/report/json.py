"""Plan and outcome for machines: JSON with a schema (`docs/schemas/plan.schema.json`), and SARIF 2.1.0."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final

from pydantic.alias_generators import to_camel

from reconciler.admission.judgement import AdmissionVerdict
from reconciler.base.errors import Exit, worst
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    Approval,
    Change,
    ClosePull,
    LockProposal,
    MoveRef,
    Op,
    Refusal,
    StartBranch,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.compare import Targets, VariantDifference
from reconciler.plan.impact import Impact, Loss, Risk, loss_value
from reconciler.plan.status import PackageStatus, downstream_targets, owner_value, status_value
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.report.build import package_row
from reconciler.report.comparison import ordered_differences
from reconciler.report.conflicts import conflict_value
from reconciler.report.machine import (
    document,
    problem_results,
    problem_value,
    sarif_log,
    sarif_result,
    sentence,
)
from reconciler.report.report import (
    ApprovableRow,
    CheckReport,
    DraftOverview,
    HistoryEntry,
    JudgementRow,
    PackageOverview,
    PackageRow,
    Report,
    StatusRow,
)
from reconciler.resolve.rollout_model import GateResult, MemberStatus, Rollout, WaveStatus


def report_sarif(report: Report) -> dict[str, Any]:
    """Return a SARIF log: problems and refusals are errors, packages that wait or are blocked warnings.

    Of a proposed change, what could not be read is a warning, and a problem that was there before a note.
    """
    results = [
        *problem_results("error", report.problems),
        *(sarif_result("error", r.reason, sentence(r.message, r.hint), None) for r in report.refusals),
        *(
            sarif_result("warning", c.reason, sentence(f"{name}: {c.detail or c.op}", ""), c.location)
            for name, c in ((row.name, row.change) for row in report.packages)
            if c.op is Op.BLOCK or c.waits
        ),
    ]
    if not isinstance(report, CheckReport):
        return sarif_log([*results, *_judged(r.change for r in report.packages), *_silent(report.judgements)])
    comparison = report.comparison
    is_listed = any(problem.reason == Reason.WOULD_BE_REFUSED for problem in report.problems)
    results += [*_judged(comparison.judged, is_listed=is_listed), *_silent(report.judgements)]
    results += (*problem_results("warning", comparison.unread), *problem_results("note", comparison.old))
    log = sarif_log(results)
    log["runs"][0]["properties"] = {"base": str(comparison.base), "head": str(comparison.head)}
    return log


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
    if isinstance(report, CheckReport):
        return document("Comparison", wire(report))
    value = wire(report) | exits_value(report.exits, report.exit_code)
    if report.outcome is None:
        return document("Plan", value)
    return document("Outcome", {**value, "effects": wire(report.outcome.effects)})


def exits_value(exits: Collection[Exit], code: Exit | None = None) -> dict[str, Any]:
    """Return the classes of exit that apply, and the code that the process ends with."""
    return {
        "exitCode": int(worst(exits) if code is None else code),
        "exits": [code.name.lower() for code in sorted(exits)],
    }


# The wire form of each type


def wire(value: Any) -> Any:
    """Return a value of a report as JSON has it: of a type all of its fields, or those of its row below."""
    of_type: Any = type(value)
    if value is None or of_type in _PLAIN:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): wire(part) for name, part in value.items()}
    columns = columns_of(of_type)
    if not columns and of_type not in COMPUTED:
        return list(map(wire, value))
    read: dict[str, object] = {name: attrgetter(field)(value) for name, field in columns.items()}
    compute = COMPUTED.get(of_type)
    return {name: wire(part) for name, part in ({**read, **compute(value)} if compute else read).items()}


@cache
def columns_of(of_type: type) -> Mapping[str, str]:
    """Return the fields of a type by their names in JSON, without those that are computed."""
    row = _ROWS.get(of_type)
    fields = getattr(of_type, "__struct_fields__", getattr(of_type, "_fields", ()))
    names = (name.rpartition("=") for name in (fields if row is None else row.split()))
    return {name or to_camel(field.removeprefix("is_")): field for name, _, field in names}


def _compared(report: CheckReport) -> dict[str, object]:
    """Return how deep sides were compared, and the packages that differ, each with its row on both."""
    packages = [
        {
            "what": difference.what,
            "name": report.names.of(difference.change),
            "before": difference.before and package_row(difference.before, report.names),
            "after": difference.after and package_row(difference.after, report.names),
        }
        for difference in ordered_differences(report.comparison)
    ]
    return {"level": "fleet" if report.comparison.deep else "manifests", "packages": packages}


def _status_row(row: StatusRow) -> dict[str, object]:
    """Return the columns of a row of the status; those of a package are absent without it."""
    owner, package = owner_value(row.owner), row.package
    if package is None:
        return owner
    value = {**status_value(package), "repository": row.repository}
    if row.owner.cluster:
        owner |= {"cluster": row.owner.cluster, "status": row.owner.details}
        return {**dict(sorted(owner.items())), "package": value, "summary": row.summary}
    owner |= {"package": value, "downstreamTargets": downstream_targets(package)}
    notes = {name: getattr(row.change, name, ()) for name in ("subpackages", "warnings")}
    # YAML has this order.
    return {**dict(sorted(owner.items())), "summary": row.summary, **notes}


_PLAIN: Final = frozenset({str, int, bool, float})
_OF_CHANGE = (
    "before=change.before after=change.tree op=change.op message=change.detail pending=change.pending"
)
_OF_WRITE = "ref expect onto time"
_ROWS: Final[Mapping[type, str]] = {
    Report: "instance=names.instance shards checksum empty summary=ops changes=packages needs losses "
    "judgements approvable problems refusals notes lock rollouts moves",
    CheckReport: "sentence empty losses judgements counts=ops problems refusals base=comparison.base "
    "head=comparison.head complete=comparison.is_complete variants=comparison.variants "
    "targets=comparison.targets pins=comparison.pins existingProblems=comparison.old "
    "fixedProblems=comparison.fixed notRead=comparison.unread",
    PackageRow: f"{_OF_CHANGE} waits=change.waits name reason status risks repository=change.repository "
    "package=change.package variant=change.variant location=change.location group=change.group "
    "ready=change.ready unready=change.unready warnings=change.warnings writes=change.writes "
    "pullRequest=change.pull close=change.close approve=change.approve subpackages=change.subpackages "
    "losses=change.losses pins=change.pins diff=change.impact judgements=change.verdicts "
    "conflicts=change.conflicts answers=change.answers",
    LockProposal: f"{_OF_CHANGE} waits=change.waits reason=change.reason pins edited",
    DraftOverview: " ".join(PackageOverview.__struct_fields__),
    ApprovableRow: "url number head conflicts unmet shown=lenient objection",
    Refusal: "reason message hint",
    Risk: "action subject class=category",
    Impact: "digest files added removed",
    Approval: "number head expect",
    ClosePull: "number head",
    PullRequest: "head head_oid base number url title state draft labels",
    Answer: "chosen dropped by policy source "
    "path=conflict.path resource=conflict.resource field=conflict.field",
    HistoryEntry: "revision upstream labels commit date author subject diff=impact risks",
    Rollout: "set=key.owner upstream=key.upstream revision phase text=title waves",
    WaveStatus: "message name phase packages=members",
    MemberStatus: "phase gates namespace=key.namespace name=key.name package=name",
    GateResult: "result message",
    JudgementRow: "verdict rule message names old=is_old of=noun",
    VariantDifference: "key fate message",
    Targets: "set=key before after",
    WriteDraft: f"{_OF_WRITE} path tree merges",
    WriteGroup: _OF_WRITE,
    WriteRemoval: f"{_OF_WRITE} path",
    MoveRef: "ref expect to",
    StartBranch: "ref expect to=oid",
    **dict.fromkeys((Problem, Loss, PackageStatus, StatusRow, Conflict), ""),
}
"""The columns of types that are not written whole, as `NAME=FIELD`, or the field where both are one."""
COMPUTED: Final[Mapping[type, Callable[[Any], Mapping[str, object]]]] = {
    CheckReport: _compared,
    PackageRow: lambda row: {"upstream": {"from": row.change.upstream_from, "to": row.change.upstream_to}},
    Rollout: lambda r: {
        "held": [{**key._asdict(), "message": why} for key, why in sorted(r.staying.items())]
    },
    WaveStatus: lambda wave: {"text": wave.lines[0]},
    MemberStatus: lambda member: {"message": member.failure or member.why},
    WriteDraft: lambda write: {"kind": "WriteDraft", "files": len(write.files)},
    WriteGroup: lambda write: {"kind": "WriteGroup", "packages": len(write.parts)},
    **{of: lambda write: {"kind": type(write).__name__} for of in (WriteRemoval, MoveRef, StartBranch)},
    Problem: problem_value,
    Loss: loss_value,
    PackageStatus: status_value,
    StatusRow: _status_row,
    Conflict: conflict_value,
}
"""Further fields of a type in JSON, computed from its value."""
