"""The HTML report: hostile text stays text, secrets stay secret, and 10,000 packages stay small."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import get_type_hints

import pytest

from reconciler.base.errors import Location
from reconciler.base.redact import MASK, Redactor
from reconciler.dependencies.lock.changes import MoveOp, VersionChange
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Effect, Outcome, Refusal
from reconciler.plan.compare import Comparison, Fate, VariantDifference
from reconciler.records.state import RolloutRecord
from reconciler.report.comparison import comparison_report
from reconciler.report.html import (
    COLUMNS,
    FileDiff,
    PackageDiff,
    Page,
    PageRow,
    ReportKind,
    ReportSource,
    html_page,
)
from reconciler.report.markdown import load_template
from reconciler.report.report import Action, ChangeCause, Diff, Names, Need, NeedPlace, Report
from reconciler.resolve.rollout_model import Rollout, RolloutPhase, WavePhase, WaveStatus
from tests.support.html_reports import large_report, read_data
from tests.support.plan_values import a_change, a_conflict

SECRET = "correct-horse-battery"
HOSTILE = [
    "</script><script>alert(1)</script>",
    "</script x",
    "</script/",
    "<!-- <script ",
    "]]><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "{{ report.packages }}",
    "\u202egnp.exe\u2066",
    "\x1b[2J\x00\x01\x02\x03\x04",
    "&lt;b&gt; &amp; &#60;",
    "\u2028\u2029\ud800",
]


def report_of(text: str, url: str = "") -> Page:
    """Return a report that has a text in every place."""
    problem = Problem(Location(text, 3, 4), text, text, text, text)
    change = a_change(package=PackageKey(text, text), conflicts=(a_conflict(text, text, text, text),))
    report = Report(
        names=Names(text),
        sentence=text,
        checksum=text,
        ops={text: 1},
        risks={text: 1},
        fold=lambda: (
            ChangeCause(text, (change,), text, (Diff((change,), None, text),), text, text, (), True, text),
        ),
        problems=(problem,),
        refusals=(Refusal(text, text, text),),
        needs=(Need(Action.REVIEW, text, (NeedPlace(text, url or text, text), NeedPlace(text)), (text,)),),
        rollouts=(_rollout(text),),
        moves=(VersionChange(MoveOp.ADD, text, "", text, text, (text,)),),
        notes=(text,),
        outcome=Outcome((Effect(text, text), Effect(text, text, error=text, hint=" ".join(text.split())))),
    )
    texts = dict.fromkeys((name for name, hint in get_type_hints(PageRow).items() if hint is str), text)
    row = PageRow(
        **texts | {"pull_url": url or text, "web_url": url or text},
        risks=(text,),
        categories=(text,),
        warnings=(text,),
        conflicts=((text,) * 5,),
        conditions=((text,) * 4,),
        diff=0,
        cause=0,
    )
    diff = PackageDiff(text, 1, (FileDiff(text, text, 1, 1, text, text),), text)
    source = ReportSource(text, text, text, text, text, text)
    return Page(ReportKind.PLAN, report, (row,), (diff,), {change.package: 0}, source, {text: text})


def _rollout(text: str) -> Rollout:
    wave = WaveStatus(text, WavePhase.FAILED, detail=text, hint=text)
    record = RolloutRecord(namespace=text, name=text, revision=text, waves=(text,))
    return Rollout(record.rollout, RolloutPhase.FAILED, record, (wave,))


class Elements(HTMLParser):
    """Collects every element with its attributes, as a browser that knows no script sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def elements(page: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Elements()
    parser.feed(page)
    return parser.found


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_makes_no_element_and_no_attribute(hostile: str) -> None:
    harmless = html_page(report_of("harmless"), Redactor())

    assert elements(html_page(report_of(hostile), Redactor())) == elements(harmless)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_package_with_a_hostile_name_is_read_as_it_is_shown(hostile: str) -> None:
    page = html_page(report_of(hostile), Redactor())

    (row,) = read_data(page)["packages"].values()

    assert row["repository"] == row["name"] == row["detail"] == row["variant"]
    assert row["conditions"][0] == [row["name"]] * 4
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page.replace("\t", "")
    )


@pytest.mark.parametrize(
    ("url", "is_linked"),
    [
        *(
            (url, False)
            for url in ("javascript:alert(1)", "data:text/html,x", "//evil.example", " https://x")
        ),
        *((url, True) for url in ("https://git.example/acme/edge/pull/3", "http://git.example/pull/3")),
    ],
)
def test_address_of_the_web_is_a_link_and_no_other(url: str, is_linked: bool) -> None:
    page = html_page(report_of("x", url), Redactor())
    (row,) = read_data(page)["packages"].values()

    assert row["pull_url"] == (url if is_linked else "")
    assert (f'href="{url}' in page) is is_linked


def test_secret_is_in_no_part_of_the_page() -> None:
    redactor = Redactor([SECRET])

    page = html_page(report_of(f"a {SECRET} b"), redactor)

    assert SECRET not in page
    assert page.count(MASK) > 20


@pytest.mark.parametrize("deep", [True, False])
def test_check_without_packages_names_the_variants_in_their_place(*, deep: bool) -> None:
    variant = VariantDifference(ObjectName("default", "web"), Fate.CREATE, "it is declared")
    report = comparison_report(Comparison((variant,), deep=deep), Names("demo"))

    page = html_page(Page(ReportKind.CHECK, report), Redactor())

    assert ("create default/web it is declared" in page) is not deep


def test_nothing_but_its_own_script_and_style_may_run() -> None:
    page = html_page(large_report(10, 2), Redactor())

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    script, style = (re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("script", "style"))
    assert script
    assert style
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    for rule, element in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(element[1].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"


def test_page_loads_nothing() -> None:
    page = html_page(large_report(10, 2), Redactor())

    assert not re.search(r"\b(?:src|srcset|action|background)=|@import|url\(|<link|<iframe|<object", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", page)


def test_ten_thousand_packages_take_at_most_two_megabytes() -> None:
    page = html_page(large_report(), Redactor())

    assert len(page.encode()) <= 2_000_000
    assert len(read_data(page)["packages"]) == 10_000


def test_difference_that_many_packages_share_is_stored_once() -> None:
    file = FileDiff("app.yaml", "", 1, 1, "@@ -1 +1 @@\n-a: a-value-of-its-own\n+b")
    diffs = tuple(PackageDiff(f"edge-{number}/web", 1, (file,)) for number in range(9))
    rows = tuple(PageRow(repository="edge", name=f"web-{number}", diff=number % 9) for number in range(99))

    page = html_page(Page(ReportKind.PLAN, Report(sentence=""), rows, diffs), Redactor())

    assert page.count("a-value-of-its-own") == 1
    assert read_data(page)["diffs"][8]["files"]["app.yaml"][-1] == file.hunks


def test_script_names_columns_that_pages_have() -> None:
    script = load_template("report.js")

    named = {
        *re.findall(r'\b(?:get|list|records)\(row, "(\w+)"', script),
        *re.findall(r"\bAT\.(\w+)", script),
    }

    assert named <= {*COLUMNS}
    assert {"set", "waiting_for", "diff", "cause"} <= named
