"""Plan and outcome as JSON: an API with a schema (`docs/schemas/plan.schema.json`), canonical bytes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

import msgspec
import orjson

from reconciler.base.errors import Exit, worst
from reconciler.base.redact import Redactor
from reconciler.base.text import json_text
from reconciler.inventory.inventory import PullRequest
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    ClosePull,
    Effect,
    LockProposal,
    MoveRef,
    Refusal,
    StartBranch,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.impact import Impact, Risk
from reconciler.plan.losses import Loss, loss_value
from reconciler.plan.status import PackageStatus, status_value
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.report.build import rollout_title, wave_row
from reconciler.report.conflicts import conflict_value
from reconciler.report.report import ApprovableRow, HistoryEntry, Need, PackageRow, Report
from reconciler.resolve.rollout_model import GateResult, MemberStatus, Rollout, WaveStatus

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


def wire(value: Any) -> Any:
    """Return a value of a report as JSON has it; a named tuple without a row below has all of its fields."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _VALUES:
        return _VALUES[kind](value)
    if kind in _FIELDS:
        return {name: wire(get(value)) for name, get in _FIELDS[kind].items()}
    parts = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(parts, Mapping):
        return {str(name): wire(part) for name, part in parts.items()}
    return str(parts) if isinstance(parts, str) else list(map(wire, parts))


_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
Getter = Callable[[Any], Any]


def _fields(names: str, of: str = "", **others: str | Getter) -> dict[str, Getter]:
    """Return fields with the names of attributes, of a part of the value if one is named, and others."""
    places = {name: f"{of}{name}" for name in names.split()} | others
    return {name: attrgetter(place) if isinstance(place, str) else place for name, place in places.items()}


def _kind(value: object) -> str:
    return type(value).__name__


_FIELDS: Final[dict[type, dict[str, Getter]]] = {
    Report: _fields(
        "checksum empty losses needs approvable problems refusals notes lock rollouts moves",
        instance="names.instance",
        shards=lambda report: [report.names.shard] if report.names.shard else [],
        summary="ops",
        changes="packages",
    ),
    PackageRow: _fields("name reason status risks")
    | _fields(
        "op before group pending waits ready repository package variant location approve writes "
        "unready warnings subpackages losses pins close conflicts answers",
        "change.",
        after="change.tree",
        message="change.detail",
        pullRequest="change.pull",
        diff="change.impact",
        upstream=lambda row: {"from": row.change.upstream_from, "to": row.change.upstream_to},
    ),
    ApprovableRow: _fields("url number head conflicts unmet objection", shown="lenient"),
    Problem: _fields("location reason message hint subject"),
    Refusal: _fields("reason message hint"),
    Need: _fields("action text holds places"),
    Risk: _fields("action subject", **{"class": "category"}),
    Impact: _fields("digest files added removed"),
    ClosePull: _fields("number head"),
    PullRequest: _fields("number draft head base title url state labels", headOid="head_oid"),
    Answer: _fields("path resource field", "conflict.") | _fields("chosen dropped by policy source"),
    LockProposal: _fields(
        "pending waits before op reason", "change.", after="change.tree", message="change.detail"
    )
    | _fields("pins edited"),
    HistoryEntry: _fields(
        "revision commit upstream author subject labels",
        date=lambda entry: entry.date or None,
        diff="impact",
        risks=lambda entry: entry.impact.risks if entry.impact else (),
    ),
    Rollout: _fields(
        "revision phase waves",
        set="key",
        text=rollout_title,
        held=lambda rollout: [
            {**key._asdict(), "message": why} for key, why in sorted(rollout.staying.items())
        ],
    ),
    WaveStatus: _fields("name phase message", packages="members", text=lambda wave: wave_row(wave).lines[0]),
    MemberStatus: _fields(
        "phase gates",
        namespace="key.namespace",
        name="key.name",
        package="name",
        message=lambda member: member.failure or member.why,
    ),
    GateResult: _fields("result message"),
    # Files are counted, and packages that share a group's commit.
    WriteDraft: _fields(
        "ref expect onto path time tree merges", kind=_kind, files=lambda write: len(write.files)
    ),
    WriteGroup: _fields("ref expect onto time", kind=_kind, packages=lambda write: len(write.parts)),
    WriteRemoval: _fields("ref expect onto path time", kind=_kind),
    MoveRef: _fields("ref expect to", kind=_kind),
    StartBranch: _fields("ref", kind=_kind, expect=lambda _: None, to="oid"),
}
_VALUES: Final[dict[type, Getter]] = {
    Loss: loss_value,
    PackageStatus: status_value,
    Conflict: conflict_value,
    Effect: msgspec.to_builtins,
}
