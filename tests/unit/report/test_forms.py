"""One plan with all that reports tell apart, in every form, as reviewed files of tests/goldens/reports."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.reasons import Phase
from reconciler.base.redact import Redactor
from reconciler.cli import metrics
from reconciler.cli.doctor import finding_lines, findings_value
from reconciler.inventory.inventory import Commit
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Op, PinChange, PullRequestContent
from reconciler.plan.compare import (
    Comparison,
    Fate,
    NamedCommit,
    PackageDifference,
    Targets,
    VariantDifference,
)
from reconciler.plan.proposals import IndexProposal, ProposalPlace
from reconciler.plan.status import PackageStatus
from reconciler.report import build, comparison, json, machine, markdown, text
from reconciler.report import json as values
from reconciler.report.build import build_report
from reconciler.report.console import ansi, plain
from reconciler.report.diff import MOST_TEXT, FileChange
from reconciler.report.markdown import make_dashboard
from reconciler.report.report import CheckReport, HistoryEntry, UpstreamChange
from reconciler.run.doctor import Diagnosis, Severity
from tests.support.plan_values import EDGE, oid
from tests.support.sets import world
from tests.support.values import replace
from tests.unit.report.plans import CREATED, UPDATED
from tests.unit.report.rich import (
    CHANGES,
    FULL,
    LOCK,
    LOSSES,
    NAMES,
    OUTCOME,
    PLAN,
    PROBLEMS,
    REFUSED,
    ROLLOUTS,
    SET,
    STATUSES,
)

GOLDENS = Path(__file__).resolve().parents[2] / "goldens/reports"
FILES = [
    FileChange("app.yaml", 4, 1, "-a: 1\n+a: 2"),
    FileChange("Kptfile", 1, 0, "+x"),
    FileChange("s.yaml", 1, 1, "", "new"),
]
COMMITS = [
    UpstreamChange("c" * 40, "Raise | it", "Ada <a@b>"),
    UpstreamChange("d" * 40, "Lower it", "Ada", "1"),
]
GROUP = tuple(
    replace(each, request=PullRequestContent(Op.UPDATE, "web/v1", "web/v2"))
    for each in (FULL, *CHANGES[3:6], UPDATED)
)
COMPARISON = Comparison(
    (
        VariantDifference(ObjectName("default", "new"), Fate.CREATE, "the set selects east", SET),
        VariantDifference(ObjectName("default", "old"), Fate.DELETE, "its file is gone"),
    ),
    (
        PackageDifference("update", None, FULL),
        PackageDifference("alter", UPDATED, UPDATED),
        *(PackageDifference("update", None, each) for each in CHANGES[3:9]),
        PackageDifference("withdraw", CHANGES[12], None),
        PackageDifference("delete", None, CHANGES[12]),
    ),
    targets=(Targets(ObjectName("default", "web"), 2, 3), Targets(ObjectName("default", "new"), None, 1)),
    losses=LOSSES,
    judged=PLAN.changes[3:6],
    unjudged=PLAN.unjudged,
    postponed=2,
    new=PROBLEMS[:1],
    old=PROBLEMS[1:3],
    fixed=PROBLEMS[3:4],
    refusals=REFUSED.refusals,
    pins=LOCK.pins,
    dangers=1,
    deep=True,
)
SIDES = {"base": NamedCommit("main", oid("b")), "head": NamedCommit("more", oid("d"))}
UNREAD = replace(COMPARISON, unread=PROBLEMS[4:6], **SIDES)
SHALLOW = replace(COMPARISON, packages=(), deep=False, base=NamedCommit("", oid("b")), head=SIDES["head"])
INDEX = IndexProposal(
    "carvel:db.io",
    "refs/heads/x",
    {},
    (PinChange("db.io", "1.0.0", "2.0.0", ""),),
    ProposalPlace(SET, "host/blueprints", "index", Commit(oid("c1"), 5), "main"),
    (PinChange("carvel:db.io in dev", "1.0.0", "2.0.0", "a manifest asks for it"),),
    ("1.5.0 was withdrawn",),
)
HISTORY = [
    HistoryEntry(
        "draft", "d" * 40, "web/v3", 0, "", "", PLAN.changes[2].impact, {"tier": "gold", "bare": ""}
    ),
    HistoryEntry("v2", "c" * 40, "web/v2", 86_400, "Ada", "Approve it", PLAN.changes[4].impact),
    HistoryEntry("v1", "b" * 40),
]
FINDINGS = [
    Diagnosis("git", "git 2.40"),
    Diagnosis("repository", "default/east", Severity.ERROR, "cannot be read", "Set a token."),
    Diagnosis("tags", "default/west", Severity.WARNING, "3 tags block"),
]
DONE = [
    replace(OUTCOME, effects=OUTCOME.effects[:2] + OUTCOME.effects[-1:]),
    replace(OUTCOME, effects=OUTCOME.effects[-1:]),
    replace(OUTCOME, effects=OUTCOME.effects[-1:], locked=True),
    replace(OUTCOME, effects=OUTCOME.effects[-2:]),
    replace(OUTCOME, effects=()),
]
STATUS = PackageStatus(Phase.IN_REVIEW, since=86_400, url="https://forge/7", pull=7)


def lines(of: Callable[..., Iterable[str]], *given: Any, **options: Any) -> str:
    return "".join(f"{line}\n" for line in of(*given, **options))


def check_of(change: Comparison) -> CheckReport:
    return comparison.comparison_report(change, NAMES)


def dumped(value: Any) -> str:
    return machine.dump(value, Redactor())


def sorted_samples() -> str:
    views = (EDGE, replace(EDGE, key=ObjectName("default", "away"), problem=PROBLEMS[1]))
    return metrics.metrics_text(
        metrics.plan_samples(REFUSED, world(views=views), OUTCOME), {"a": "b", "none": ""}
    )


FORMS: dict[str, Callable[[], str]] = {
    "plan.txt": lambda: lines(text.plan_lines, build_report(PLAN, NAMES), shows_needs=False),
    "plan-all.txt": lambda: lines(
        text.plan_lines,
        replace(
            build_report(REFUSED, NAMES, unfolded=True), needs=tuple(build.find_needs(REFUSED, STATUSES))
        ),
        quiet=True,
    ),
    "plan-color.txt": lambda: lines(
        text.plan_lines, build_report(REFUSED, NAMES), paint=ansi, shows_needs=False, width=100
    ),
    "plan.md": lambda: markdown.plan_markdown(build_report(REFUSED, NAMES)),
    "applied.md": lambda: markdown.plan_markdown(
        build_report(PLAN, replace(NAMES, report_url="https://acme.example/"), OUTCOME)
    ),
    "plan.json": lambda: dumped(values.report_value(build_report(REFUSED, NAMES, detailed=True))),
    "outcome.json": lambda: dumped(
        {**values.report_value(build_report(PLAN, NAMES, OUTCOME)), "changes": []}
    ),
    "plan.sarif": lambda: dumped(json.report_sarif(build_report(REFUSED, NAMES))),
    "changes.txt": lambda: "\n".join(
        lines(text.change_lines, each, NAMES, address="https://a/b", status=STATUS, paint=paint)
        for each, paint in ((CREATED, plain), (FULL, ansi), (CHANGES[12], plain))
    ),
    "outcome.txt": lambda: (
        lines(text.outcome_lines, OUTCOME) + lines(text.outcome_lines, OUTCOME, paint=ansi, quiet=True)
    ),
    "done.txt": lambda: "\n".join(lines(text.outcome_lines, outcome) for outcome in DONE),
    "failures.txt": lambda: lines(lambda: (f"{what} | {hint}" for what, hint in text.failures(OUTCOME))),
    "problems.txt": lambda: (
        lines(text.problem_lines, PROBLEMS, paint=ansi)
        + lines(text.problem_lines, PROBLEMS[:3], head="old:", brief=True)
    ),
    "dashboard.md": lambda: make_dashboard(REFUSED, STATUSES, NAMES, "2 hours").text,
    "needs.txt": lambda: lines(text.need_lines, build.find_needs(REFUSED, STATUSES), paint=ansi, width=90),
    "needs.json": lambda: dumped(values.wire(build.find_needs(REFUSED, STATUSES))),
    "rollouts.txt": lambda: lines(text.rollout_lines, ROLLOUTS),
    "rollouts.json": lambda: dumped(values.wire(ROLLOUTS)),
    "pull-request.md": lambda: markdown.pull_body(
        FULL,
        NAMES,
        FILES,
        links={"upstream": "https://u/"},
        difference="https://d/",
        upstream=COMMITS,
        origins={FULL.conflicts[0].name: COMMITS[1]},
        boxes=True,
    ),
    "group.md": lambda: markdown.group_body(
        GROUP,
        NAMES,
        {GROUP[0].package: FILES, GROUP[1].package: FILES[:1]},
        {GROUP[1].package: {"upstream": "https://u/"}},
        "https://d/",
        upstream={GROUP[1].package: COMMITS, GROUP[2].package: COMMITS[:1]},
    ),
    "bare.md": lambda: "".join(
        markdown.pull_body(replace(each, message="Because"), NAMES) for each in CHANGES[5:10]
    ),
    "lock.md": lambda: markdown.lock_body(replace(LOCK, losses=LOSSES)),
    "index.md": lambda: markdown.index_body(INDEX),
    "chart.md": lambda: markdown.chart_body(INDEX),
    "check.txt": lambda: (
        lines(comparison.comparison_lines, check_of(UNREAD))
        + lines(comparison.comparison_lines, check_of(SHALLOW), paint=ansi)
    ),
    "check.md": lambda: (
        markdown.comparison_markdown(check_of(UNREAD))
        + markdown.comparison_markdown(check_of(SHALLOW), title="Other")
    ),
    "check.json": lambda: dumped(values.report_value(check_of(UNREAD))),
    "check.sarif": lambda: dumped(json.report_sarif(check_of(UNREAD))),
    "history.txt": lambda: (
        lines(text.history_lines, HISTORY, paint=ansi, width=90) + lines(text.history_lines, [])
    ),
    "history.json": lambda: dumped(values.wire(HISTORY)),
    "doctor.txt": lambda: lines(finding_lines, FINDINGS, paint=ansi) + lines(finding_lines, FINDINGS[:1]),
    "doctor.json": lambda: dumped(findings_value(FINDINGS)),
    "metrics.txt": sorted_samples,
}


@pytest.mark.parametrize("name", FORMS)
def test_form_of_the_plan_is_as_reviewed(name: str, *, update_golden: bool) -> None:
    shown, file = FORMS[name]().encode(), GOLDENS / name

    if update_golden:
        file.write_bytes(shown)
    assert shown.decode() == file.read_bytes().decode()


def test_every_reviewed_file_is_of_a_form() -> None:
    assert {file.name for file in GOLDENS.iterdir()} == FORMS.keys()


def test_differences_of_a_group_are_shown_as_far_as_they_fit() -> None:
    files = {
        each.package: [FileChange("a", 1, 0, name * MOST_TEXT)]
        for each, name in zip(GROUP, "xyz", strict=False)
    }

    body = markdown.group_body(GROUP, NAMES, files | {GROUP[0].package: [FileChange("a", 1, 0, "+small")]})

    assert ("+small" in body, "y" * MOST_TEXT in body, "z" * MOST_TEXT in body) == (True, False, False)


def test_rollouts_with_equal_waves_have_one_list_of_them() -> None:
    title, *waves = text.rollout_lines(ROLLOUTS[:1])

    assert [*text.rollout_lines([*ROLLOUTS[:1], ROLLOUTS[0]])] == [title, title, *waves]
