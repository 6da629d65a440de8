"""HTML reports: how a browser reads the data of a page, and a large one with texts as a run writes them."""

import json
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.redact import Redactor
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op
from reconciler.plan.impact import Impact
from reconciler.records.state import RolloutRecord
from reconciler.report.html import FileDiff, PackageDiff, Page, PageRow, ReportKind, html_page
from reconciler.report.report import ChangeCause, Diff, Names, Report
from reconciler.resolve.rollout_model import (
    MemberPhase,
    MemberStatus,
    Rollout,
    RolloutPhase,
    WavePhase,
    WaveStatus,
)
from tests.support.plan_values import a_change


def read_data(page: str) -> dict[str, Any]:
    """Return packages by full name, as columns, and differences, as the script of the page reads them."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data = json.loads(found[1])
    packages = [_package(row, data) for row in data["packages"]]
    diffs = [_diff_of(diff, data) for diff in data["diffs"]]
    return {**data, "packages": {row["full"]: row for row in packages}, "diffs": diffs}


def _package(row: list[Any], data: dict[str, Any]) -> dict[str, Any]:
    texts, lists = data["texts"], data["lists"]
    names = [texts[number] for number in row[:3]]

    def text(number: int) -> str:
        return re.sub(r"[\x01-\x04]", lambda mark: names[ord(mark[0]) - 1], texts[number])

    names.append(text(row[3]))
    values = dict(zip(data["columns"], row, strict=True))
    for name, hint in get_type_hints(PageRow).items():
        if hint is str:
            values[name] = text(values[name])
        elif get_origin(get_args(hint)[:1] and get_args(hint)[0]) is tuple:
            values[name] = [[text(number) for number in lists[record]] for record in lists[values[name]]]
        elif get_args(hint):
            values[name] = [text(number) for number in lists[values[name]]]
    return {**values, "full": "/".join(part for part in names[:2] if part)}


def _diff_of(diff: list[Any], data: dict[str, Any]) -> dict[str, Any]:
    texts, name, packages, files, note = data["texts"], *diff
    rows = [data["lists"][number] for number in files]
    read = {texts[row[0]]: (texts[row[1]], texts[row[2]], row[3], row[4], texts[row[5]]) for row in rows}
    return {"name": name, "packages": packages, "note": note, "files": read}


WARES = (
    "web",
    "db",
    "monitoring",
    "ingress",
    "cert-manager",
    "dns",
    "logging",
    "policy",
    "backup",
    "registry",
)
PHASES = ("published", "published", "published", "in review", "pending", "conflict", "held back", "not ready")
_HUNK = """@@ -1,4 +1,5 @@
 apiVersion: apps/v1
 kind: Deployment
-  replicas: {old}
+  replicas: {new}
+  paused: false
 status: {{}}"""


def large_report(packages: int = 10_000, diffs: int = 300) -> Page:
    """Return the report of a plan of many packages: a third changes, in 300 different ways."""
    rows = tuple(_row(number, diffs) for number in range(packages))
    causes = tuple(map(_cause, range(40)))
    counts = {op: sum(row.op == op for row in rows) for op in ("create", "update", "delete", "keep")}
    report = Report(
        names=Names("acme"),
        sentence=", ".join(f"{count} to {op}" for op, count in counts.items()),
        checksum="c" * 64,
        ops=counts,
        risks={"deletion": counts["delete"], "rbac": 40, "storage": 3},
        fold=lambda: causes,
        problems=tuple(_problem(number) for number in range(3)),
        rollouts=(_ROLLOUT,),
    )
    places = {cause.first.package: number % diffs for number, cause in enumerate(causes) if number > 2}
    return Page(ReportKind.PLAN, report, rows, tuple(map(_diff, range(diffs))), places)


def _wave(name: str, phase: WavePhase, published: int, packages: int, detail: str = "") -> WaveStatus:
    phases = [MemberPhase.PUBLISHED] * published + [MemberPhase.WAITING] * (packages - published)
    members = (MemberStatus(ObjectName("default", name), name, phase) for phase in phases)
    return WaveStatus(name, phase, tuple(members), detail)


_RECORD = RolloutRecord(namespace="default", name="web", revision="web/v2", waves=("canary", "early", "rest"))
_ROLLOUT = Rollout(
    _RECORD.rollout,
    RolloutPhase.FAILED,
    _RECORD,
    (
        _wave("canary", WavePhase.COMPLETE, 2, 2),
        _wave("early", WavePhase.FAILED, 2, 4, "edge-0003/web: Application web is Degraded"),
        _wave("rest", WavePhase.WAITING, 0, 6),
    ),
)


def _row(number: int, diffs: int) -> PageRow:
    cluster, ware = f"cluster-{number // len(WARES):04}", WARES[number % len(WARES)]
    changed = number % 3 == 0
    op = "delete" if number % 999 == 0 else "update" if changed else "keep"
    variant = f"default/{ware}-{cluster}-{ware}"
    return PageRow(
        repository=cluster,
        name=ware,
        cluster=cluster,
        set=f"default/{ware}",
        variant=variant,
        main=f"{ware}/v{1 + number % 4}",
        review=f"{ware}/v5" if changed else "",
        phase=PHASES[number % len(PHASES)],
        since=f"2026-0{1 + number % 9}-{1 + number % 28:02}",
        op=op,
        reason="UpstreamChanged" if changed else "UpToDate",
        detail=f"The package on main of {cluster} also changed" if number % 5 == 0 else "",
        waiting_for="review by team-platform" if number % 8 == 3 else "",
        manifest=f"manifests/{ware}.yaml:2",
        pull=f"#{number % 400}" if changed else "",
        pull_url=f"https://git.example/acme/{cluster}/pull/{number % 400}" if changed else "",
        web_url=f"https://git.example/acme/{cluster}/tree/{number // len(WARES):040x}/{ware}",
        risks=(f"deletion: deletes package {ware}",) if op == "delete" else (),
        categories=("deletion",) if op == "delete" else (),
        conditions=tuple(
            (kind, "True", "NoErrors", "successfully ensured downstream package variant")
            for kind in ("Ready", "Stalled", "Valid", "DraftExists", "DownstreamEnsured", "ConfigInjected")
        ),
        diff=number % diffs if changed else -1,
        cause=number % 40 if changed else -1,
    )


def _diff(number: int) -> PackageDiff:
    names = ("deployment.yaml", "service.yaml", "Kptfile")
    hunks = (_HUNK.format(old=number, new=number + place) for place in range(len(names)))
    files = tuple(
        FileDiff(name, "", 2, 1, "\n".join([text] * 8)) for name, text in zip(names, hunks, strict=True)
    )
    return PackageDiff(f"cluster-{number:04}/web", 11, files)


def _cause(number: int) -> ChangeCause:
    ware = WARES[number % len(WARES)]
    cluster = f"cluster-{number:04}"
    package = PackageKey(f"https://git.example/acme/{cluster}", ware)
    change = a_change(package=package, op=Op.DELETE if number < 3 else Op.UPDATE)
    if number < 3:
        text = f"PackageVariantSet default/{ware} does not select Cluster default/{number} any more"
        one = (Diff((change,), None, ""),)
        name = f"{cluster}/{ware}"
        return ChangeCause(Reason.NOT_DESIRED, (change,), text, one, "delete", name, (), is_dangerous=True)
    name = f"cluster-0001/{ware}, cluster-0002/{ware} and 9 more"
    impacts = (Impact(str(place), 3, 2 + place, 1) for place in range(3))
    diffs = tuple(Diff((change,) * 11, impact, name) for impact in impacts)
    text, changes = f"{ware}/v4 -> {ware}/v5", (change,) * 83
    return ChangeCause(
        Reason.UPSTREAM_CHANGED, changes, text, diffs, "update", name, (), is_dangerous=number < 6
    )


def _problem(number: int) -> Problem:
    hint = "Give `target.name` as a text."
    message = f"Undeclared reference to 'nam{number}'"
    return Problem(
        Location("manifests/db.yaml", 12, 5),
        "InvalidExpression",
        message,
        hint,
        "PackageVariantSet default/db",
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(html_page(large_report(), Redactor()), encoding="utf-8")
