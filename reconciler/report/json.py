"""Plan and outcome as JSON: an API with a schema (`docs/schemas/plan.schema.json`), canonical bytes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from reconciler.base.errors import Exit, worst
from reconciler.base.redact import Redactor
from reconciler.base.wording import json_text
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    Approvable,
    Change,
    LockProposal,
    Outcome,
    Plan,
    Refusal,
    StartBranch,
    Write,
    exit_of,
    exits_of,
)
from reconciler.plan.impact import Impact, Risk
from reconciler.plan.losses import loss_value
from reconciler.plan.status import PackageStatus, current_states, status_value
from reconciler.report.build import (
    change_risks,
    count_ops,
    needs_after,
    rollout_title,
    row_reason,
    sorted_changes,
    wave_row,
)
from reconciler.report.conflicts import answer_value, conflict_value
from reconciler.report.report import HistoryEntry, Names, Need
from reconciler.resolve.rollout_model import MemberStatus, Rollout

if TYPE_CHECKING:
    from reconciler.dependencies.update.changes import VersionChange

API_VERSION = "reconciler.dev/v1alpha1"


def dump(value: Any, redactor: Redactor) -> str:
    """Return canonical JSON text: redacted, visible, sorted keys, two-space indent, final newline."""
    option = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    with suppress(TypeError):  # orjson knows fewer types than the redactor
        text = orjson.dumps(value, option=option).decode()
        # Large outputs seldom have anything to mask, and each string then need not be looked at.
        if redactor.is_clean(text):
            return json_text(text)
    return json_text(orjson.dumps(redactor.value(value), option=option).decode())


def listing(kind: str, items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a list of things of one kind as a JSON value."""
    return {"apiVersion": API_VERSION, "kind": f"{kind}List", "items": list(items)}


def plan_value(
    plan: Plan,
    names: Names,
    outcome: Outcome | None = None,
    *,
    detailed: bool = False,
) -> dict[str, Any]:
    """Return the plan, or with its outcome what became of it, as a JSON value; every exit class is listed.

    Equal plans have equal values.
    """
    statuses = current_states(plan)
    needs = needs_after(plan, outcome)
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "instance": names.instance,
        "shards": [names.shard] if names.shard else [],
        "checksum": plan.checksum,
        "empty": plan.is_empty,
        "losses": [loss_value(loss) for loss in plan.losses],
        "summary": {str(op): count for op, count in count_ops(plan).items()},
        "needs": [need_value(need) for need in needs],
        "changes": [change_value(c, names, statuses.get(c.package)) for c in sorted_changes(plan)],
        "approvable": list(_approvable_values(plan)),
        "problems": [problem_value(problem) for problem in plan.problems],
        "refusals": refusal_values(plan.refusals),
        "notes": list(plan.notes),
        "lock": proposal_value(plan.lock) if plan.lock else None,
        "rollouts": [rollout_value(rollout) for rollout in plan.rollouts],
        "moves": [move_value(move) for move in plan.version_changes],
        **exits_value(exits_of(plan, detailed=detailed), exit_of(plan, detailed=detailed)),
    }


def outcome_value(plan: Plan, outcome: Outcome, names: Names) -> dict[str, Any]:
    """Return a plan and what became of it as one JSON value."""
    return {
        **plan_value(plan, names, outcome),
        "kind": "Outcome",
        "effects": [msgspec.to_builtins(effect) for effect in outcome.effects],
        **exits_value(exits_of(plan, outcome=outcome), exit_of(plan, outcome=outcome)),
    }


def _approvable_values(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield for each open pull request what keeps it from being approved, or from being without its name."""
    pulls = plan.context.inventory.pulls if plan.context is not None else {}
    for url, pulls_there in sorted(pulls.items()):
        for pull in pulls_there:
            if pull.state is PullState.OPEN:
                approvable = plan.approvable.get((url, pull.head), Approvable())
                places = ((url, name) for name in (pull.head, pull.number))
                objections = [plan.objections[place] for place in places if place in plan.objections]
                yield {
                    "url": url,
                    "number": pull.number,
                    "head": pull.head,
                    "conflicts": list(approvable.conflicts),
                    "unmet": [*approvable.unmet, *approvable.unfinished],
                    "shown": list(approvable.lenient),
                    "objection": min(objections).what if objections else "",
                }


def change_value(change: Change, names: Names, status: PackageStatus | None = None) -> dict[str, Any]:
    """Return one package's change as a JSON value."""
    return {
        **{name: getattr(change, name) for name in ("before", "group", "pending", "waits", "ready")},
        "after": change.tree,
        "op": str(change.op),
        "reason": str(row_reason(change, status)),
        "message": change.detail,
        "name": names.of(change),
        "repository": {"namespace": change.repository.namespace, "name": change.repository.name},
        "package": {"url": change.package.url, "path": change.package.path},
        "variant": change.variant._asdict() if change.variant else None,
        "location": change.location._asdict() if change.location else None,
        "upstream": {"from": change.upstream_from, "to": change.upstream_to},
        "approve": change.approve._asdict() if change.approve else None,
        "status": status_value(status) if status else None,
        "writes": [_write_value(write) for write in change.writes],
        "pullRequest": pull_value(change.pull) if change.pull else None,
        "unready": list(change.unready),
        "warnings": list(change.warnings),
        "subpackages": [note._asdict() for note in change.subpackages],
        "losses": [loss_value(loss) for loss in change.losses],
        "risks": [risk_value(risk) for risk in change_risks(change)],
        "diff": impact_value(change.impact) if change.impact else None,
        "pins": [move_value(move) for move in change.pins],
        "close": [{"number": c.number, "head": c.head} for c in change.close],
        "conflicts": list(map(conflict_value, change.conflicts)),
        "answers": list(map(answer_value, change.answers)),
    }


def risk_value(risk: Risk) -> dict[str, str]:
    """Return one risk of a change as a JSON value."""
    return {"class": risk.category, "action": risk.action, "subject": risk.subject}


def impact_value(impact: Impact) -> dict[str, Any]:
    """Return the size of a difference as a JSON value; equal differences have the same digest."""
    return {name: getattr(impact, name) for name in ("digest", "files", "added", "removed")}


def move_value(move: "VersionChange") -> dict[str, Any]:
    """Return one pin that moves as a JSON value."""
    return {**move._asdict(), "op": str(move.op), "clusters": list(move.clusters)}


def problem_value(problem: Problem) -> dict[str, Any]:
    """Return one problem as a JSON value."""
    return {
        "location": problem.location._asdict(),
        "reason": str(problem.reason),
        "message": problem.message,
        "hint": problem.hint,
        "subject": problem.subject,
    }


def refusal_values(refusals: Iterable[Refusal]) -> list[dict[str, str]]:
    """Return refusals as JSON values."""
    return [{"reason": str(r.reason), "message": r.message, "hint": r.hint} for r in refusals]


def pull_value(pull: PullRequest) -> dict[str, Any]:
    """Return one pull request as a JSON value, without its body."""
    names = ("number", "draft", "head", "base", "title", "url")
    value = {name: getattr(pull, name) for name in names}
    return {**value, "state": str(pull.state), "headOid": pull.head_oid, "labels": list(pull.labels)}


_OF_WRITES = ("ref", "expect", "to", "onto", "path", "time", "tree", "merges")


def _write_value(write: Write) -> dict[str, Any]:
    """Return one write as a JSON value. Files are counted, and packages that share a group's commit."""
    value = {"kind": type(write).__name__}
    if isinstance(write, StartBranch):
        return {**value, "ref": write.ref, "expect": None, "to": write.oid}
    value |= {name: getattr(write, name) for name in _OF_WRITES if hasattr(write, name)}
    counted = {"packages": "parts", "files": "files"}
    return value | {name: len(getattr(write, of)) for name, of in counted.items() if hasattr(write, of)}


def exits_value(exits: Collection[Exit], code: Exit | None = None) -> dict[str, Any]:
    """Return the classes of exit that apply, and the code that the process ends with."""
    return {
        "exitCode": int(worst(exits) if code is None else code),
        "exits": [code.name.lower() for code in sorted(exits)],
    }


def need_value(need: Need) -> Mapping[str, Any]:
    """Return a need as a JSON value."""
    return {
        "action": str(need.action),
        "text": need.text,
        "holds": list(need.holds),
        "places": [place._asdict() for place in need.places],
    }


def rollout_value(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as a JSON value, finished ones too."""
    return {
        "set": rollout.key._asdict(),
        "revision": rollout.revision,
        "phase": str(rollout.phase),
        "text": rollout_title(rollout),
        "waves": [
            {
                "name": wave.name,
                "phase": str(wave.phase),
                "message": wave.message,
                "text": wave_row(wave).lines[0],
                "packages": [_member_value(member) for member in wave.members],
            }
            for wave in rollout.waves
        ],
        "held": [{**key._asdict(), "message": why} for key, why in sorted(rollout.staying.items())],
    }


def _member_value(member: MemberStatus) -> dict[str, Any]:
    return {
        **member.key._asdict(),
        "package": member.name,
        "phase": str(member.phase),
        "message": member.failure or member.why,
        "gates": [{"result": str(gate.result), "message": gate.message} for gate in member.gates],
    }


def proposal_value(proposal: LockProposal) -> dict[str, Any]:
    """Return the proposal as a JSON value."""
    change = proposal.change
    return {
        **{name: getattr(change, name) for name in ("pending", "waits", "before", "after")},
        "op": str(change.op),
        "reason": str(change.reason),
        "message": change.detail,
        "pins": [pin._asdict() for pin in proposal.pins],
        "edited": list(proposal.edited),
    }


def history_items(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the revisions of a package as JSON values."""
    names = ("revision", "commit", "upstream", "author", "subject")
    return [
        {
            **{name: getattr(entry, name) for name in names},
            "date": entry.date or None,
            "labels": dict(entry.labels),
            "diff": impact_value(entry.impact) if entry.impact else None,
            "risks": [risk_value(risk) for risk in entry.impact.risks] if entry.impact else [],
        }
        for entry in entries
    ]
