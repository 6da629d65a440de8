"""The JSON reports of several shards as one report of the fleet, and as lines. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.escape import message_line, terminal
from reconciler.base.wording import plural
from reconciler.plan.changes import Op
from reconciler.report.console import table_lines
from reconciler.report.json import exits_value

Report = Mapping[str, Any]
_KINDS = ("Plan", "Outcome")
_LISTS = ("problems", "refusals", "notes", "rollouts", "moves", "effects")
_ORDER = {str(op): place for place, op in enumerate(Op)}


def merge_reports(reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return one report of the reports of shards, in the form of each of them. Deterministic, order-free.

    What several shards report, such as a problem of the control repository, is in it once. `apply` takes no
    merged plan, so its checksum is none of a plan: each shard applies its own. Without the report of a shard
    it is not one of the fleet: it ends as a run that could not read something.

    Args:
        reports: The values of `plan -o json` or `apply -o json` by the name of their file.

    Raises:
        UsageError: A value is no such report, they are of several instances, commands or numbers of shards,
            or a shard or a package is in two of them.
    """
    if not reports:
        raise UsageError("No file has a report: every run ended before it wrote one")
    _check(reports)
    values = [reports[name] for name in sorted(reports)]
    first = values[0]
    changes = sorted((change for value in values for change in value["changes"]), key=_order)
    counts = Counter(change["op"] for change in changes)
    merged = {
        **first,
        "shards": sorted(shard for value in values for shard in value["shards"]),
        "checksum": sha256(" ".join(sorted(value["checksum"] for value in values)).encode()).hexdigest(),
        "empty": all(value["empty"] for value in values),
        "summary": {op: counts[op] for op in _ORDER if counts[op]},
        "changes": changes,
        "lock": next((value["lock"] for value in values if value["lock"]), None),
    }
    merged |= _exits(values, is_whole=not missing_shards(merged))
    return merged | {name: list(_distinct(values, name)) for name in _LISTS if name in first}


def missing_shards(report: Report) -> list[str]:
    """Return the shards of a fleet, as `--shard` takes them, that a report is not about."""
    given = {shard.partition("/")[0] for shard in report["shards"]}
    parts = _parts(report)
    return [f"{part}/{parts}" for part in range(parts) if parts > 1 and str(part) not in given]


def _exits(values: list[Report], *, is_whole: bool) -> dict[str, Any]:
    """Return every exit class, and the worst code; waiting is none where no shard ended with it."""
    exits = {Exit[name.upper()] for value in values for name in value["exits"]}
    if not is_whole:
        exits |= {Exit.UNAVAILABLE}
    is_waiting = any(value["exitCode"] == Exit.WAITING for value in values)
    return exits_value(exits, worst(exits if is_waiting else exits - {Exit.WAITING}))


def _check(reports: Mapping[str, Report]) -> None:
    owners: dict[object, str] = {}
    first = next(iter(reports.values()))
    for name, value in reports.items():
        if value.get("kind") not in _KINDS:
            raise UsageError(f"{name} is no report of `plan -o json` or `apply -o json`")
        for field in ("kind", "instance"):
            if value[field] != first[field]:
                raise UsageError(f"{name} is of {field} {value[field]}, another one of {first[field]}")
        if (parts := _parts(value)) != _parts(first):
            raise UsageError(
                f"{name} is of {_parts_text(parts)}, another one of {_parts_text(_parts(first))}"
            )
        names = {shard: f"Shard {shard}" for shard in value["shards"]}
        names |= {(c["package"]["url"], c["package"]["path"]): c["name"] for c in value["changes"]}
        for key, what in names.items():
            if key in owners:
                hint = "Give each shard's report once; shards of one fleet share no package."
                raise UsageError(f"{what} is in {owners[key]} and in {name}", hint=hint)
            owners[key] = name


def _parts(report: Report) -> int:
    """Return into how many shards the fleet of a report is divided."""
    return int(report["shards"][0].partition("/")[2]) if report["shards"] else 1


def _parts_text(parts: int) -> str:
    return plural(parts, "shard") if parts > 1 else "the whole fleet"


def _order(change: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the place of a change: dangerous ones are first."""
    repository = change["repository"]
    place = repository["namespace"], repository["name"], change["package"]["path"]
    return not change["risks"], _ORDER[change["op"]], place


def _distinct(values: Iterable[Report], name: str) -> Iterator[Any]:
    seen = set()
    for item in (item for value in values for item in value[name]):
        key = orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
        if key not in seen:
            seen.add(key)
            yield item


def report_lines(report: Report, *, width: int | None = None) -> Iterator[str]:
    """Yield the counts, what is missing, what changes, what is wrong, and what failed.

    Args:
        report: A merged report.
        width: Characters of a line of the terminal; None for no limit.
    """
    counts = ", ".join(f"{count} {op}" for op, count in report["summary"].items()) or "no packages"
    ends = ", ".join(name.replace("_", " ") for name in report["exits"]) or "done"
    missing, of = missing_shards(report), f"{report['kind']} of {report['instance']}"
    given = f"{len(report['shards'])} of " if missing else ""
    yield f"{of}, {given}{_parts_text(_parts(report))}: {counts} ({ends})"
    for shard in missing:
        yield f"missing: shard {shard} gave no report; what it plans or did is not counted here"
    rows = [_row(change) for change in report["changes"] if change["op"] != Op.KEEP]
    if rows:
        yield from table_lines(("CHANGE", "PACKAGE", "REASON", "DETAIL"), rows, width)
    for problem in report["problems"]:
        place = problem["location"]
        where = ":".join(str(part) for part in (place["path"], place.get("line")) if part)
        yield f"problem: {terminal(where)}: {problem['reason']}: {message_line(problem['message'])}"
    for refusal in report["refusals"]:
        yield f"refused: {refusal['reason']}: {message_line(refusal['message'])}"
    effects: Sequence[Mapping[str, Any]] = report.get("effects", ())
    failed = [effect for effect in effects if effect["error"]]
    for effect in failed:
        head = "left for the next run" if effect["left"] else "failed"
        place = f"{effect['what']} {effect['repository']} {effect['ref']}"
        yield f"{head}: {terminal(place)}: {message_line(effect['error'])}"
    if effects:
        done = plural(len(effects) - len(failed), "effect")
        yield f"{done} done, {sum(not effect['left'] for effect in failed)} failed."


def _row(change: Mapping[str, Any]) -> tuple[str, ...]:
    return change["op"], terminal(change["name"]), change["reason"], terminal(change["message"])
