"""Where the dashboard is kept, what of a shard is in it, and how its issue is written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply.dashboard import DashboardWriter, reserve_dashboard_write
from reconciler.apply.outcome import Result, Target
from reconciler.apply.state import MOST_TRIES
from reconciler.base.errors import Location, UnavailableError
from reconciler.base.reasons import Phase, Reason
from reconciler.forge.api.dialect import Issue
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.body_marker import issue_text
from reconciler.forge.http import Budget, Transport
from reconciler.http.client import Clock, LimitedError
from reconciler.inventory.shard import WHOLE, Shard, dashboard_file
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Plan, Refusal
from reconciler.plan.status import PackageStatus
from reconciler.policy import WriteLimits
from reconciler.report.markdown import Dashboard
from reconciler.report.report import Names
from tests.support.forges.server import VirtualClock
from tests.support.plan_values import web_context
from tests.support.sets import repository
from tests.unit.apply.world import Edge

TITLE = "Dashboard of demo"
CALLS, QUIET, GONE = (
    Dashboard("Two packages", calls=True),
    Dashboard("One", calls=False),
    Dashboard("", False),
)


@dataclass
class Issues:
    """The issues of one repository; `down` makes every call fail."""

    issues_: list[Issue] = field(default_factory=list)
    name: str = "acme/control"
    most_text: int = 10_000
    has_issues: bool = True
    down: bool = False

    def issues(self) -> Iterator[Issue]:
        if self.down:
            raise UnavailableError("down", hint="Wait.")
        return iter(list(self.issues_))

    def create_issue(self, title: str, body: str) -> Issue:
        assert title == TITLE
        self.issues_.append(Issue(len(self.issues_) + 1, body))
        return self.issues_[-1]

    def edit_issue(self, number: int, body: str) -> None:
        self.issues_[number - 1] = self.issues_[number - 1]._replace(body=body)

    @property
    def texts(self) -> list[str]:
        return [
            issue.body.partition("\n")[2].removesuffix("\n<!-- reconciler:end -->") for issue in self.issues_
        ]


def dashboard_issue(text: str, *, is_open: bool = True) -> Issue:
    return Issue(1, issue_text("dashboard/demo", text, "", 10_000), is_open=is_open)


def transport(**limits: int) -> Transport:
    """Return a transport that nothing is sent over, with a budget on a clock of its own."""
    clock = VirtualClock()
    ticking = Clock(clock.now, clock.sleep)
    budget = Budget(WriteLimits(**limits), ticking)
    return cast("Any", SimpleNamespace(budget=budget, skew_s=0.0, clock=ticking, write_once=_create))


def _create(create: Any, _: Any, __: Any, *, attempts: int) -> Any:
    assert attempts == 1
    return create()


def forge_of(issues: Issues, over: Transport | None = None) -> ApiForge:
    return ApiForge(cast("Any", issues), over or transport(), "demo")


def writer(issues: Issues, shard: Shard = WHOLE) -> DashboardWriter:
    return DashboardWriter(forge_of(issues), Names("demo"), shard)


@pytest.mark.parametrize(
    ("has_api", "shard", "text", "is_file"),
    [
        (False, WHOLE, "text", True),
        (False, WHOLE, "", False),
        (False, Shard(1, 2), "text", True),
        (True, WHOLE, "text", False),
        (True, Shard(1, 2), "text", True),
        (True, Shard(1, 2), "", False),
    ],
)
def test_dashboard_is_a_file_where_no_issue_of_one_run_holds_it(
    tmp_path: Path, has_api: bool, shard: Shard, text: str, is_file: bool
) -> None:
    forge = forge_of(Issues()) if has_api else Edge(tmp_path).target().forge
    own = DashboardWriter(forge, Names("demo"), shard)

    files = own.files(Dashboard(text, calls=True))

    assert files == ({dashboard_file(shard): text.encode()} if is_file else {})
    assert own.is_shared is (shard.parts > 1)


def test_dashboard_of_a_local_forge_is_no_issue(tmp_path: Path) -> None:
    assert DashboardWriter(Edge(tmp_path).target().forge, Names("demo")).write(CALLS) == Result()


def test_one_write_of_each_forge_is_kept_for_the_dashboard_and_used_by_it(tmp_path: Path) -> None:
    over = transport(per_hour=2, per_minute=60, max_wait_s=1)
    forge = forge_of(Issues(), over)

    reserve_dashboard_write([Edge(tmp_path).target().forge, forge])
    with over.budget.write():
        pass
    over.clock.sleep(60)
    with pytest.raises(LimitedError), over.budget.write():
        pass

    DashboardWriter(forge, Names("demo")).write(QUIET)
    with over.budget.write():
        pass


def section(part: int, text: str, parts: int = 2) -> str:
    return f"<!-- reconciler:shard {part}/{parts} -->\n{text}\n<!-- reconciler:shard end -->"


def test_shard_without_anything_new_reports_nothing() -> None:
    issues = Issues([dashboard_issue(section(1, "Two packages"))])

    assert writer(issues, Shard(1, 2)).write(CALLS, dict) == Result()


def test_shard_writes_again_while_other_parts_change_and_reports_once() -> None:
    issues = Issues([dashboard_issue("")])
    states = iter([{0: "a"}, {0: "b"}, {0: "b"}, {0: "never read"}])

    result = writer(issues, Shard(1, 2)).write(CALLS, lambda: next(states))

    assert issues.texts == [f"{section(0, 'b')}\n\n{section(1, 'Two packages')}"]
    assert next(states) == {0: "never read"}
    assert [effect.ref for effect in result.effects] == ["#1 Dashboard of demo"]


def test_shard_gives_up_where_parts_change_without_end() -> None:
    counts = iter(range(1000))

    writer(Issues([dashboard_issue("")]), Shard(1, 2)).write(CALLS, lambda: {0: str(next(counts))})

    assert next(counts) == MOST_TRIES + 1


def package_of(part: int) -> PackageKey:
    """Return a package of one of two shards."""
    urls = (f"https://forge.example/{number}" for number in range(99))
    return PackageKey(next(url for url in urls if Shard(part, 2).holds(url)), "web")


def plan_with(context: object) -> Plan:
    problems = (
        Problem(Location("p.yaml", 1), "Bad", "first shard", subject="PackageVariant d/nobodys"),
        Problem(Location("q.yaml", 1), "Bad", "second shard", subject="PackageVariant d/west"),
    )
    refusal = Refusal(Reason.DELETION_GUARD, "too many", "Ask.")
    return Plan(problems=problems, refusals=(refusal,), context=cast("Any", context))


def status_of(package: PackageKey, name: str) -> PackageStatus:
    return PackageStatus(Phase.STALLED, None, package, ObjectName("d", name), package.path)


@pytest.mark.parametrize("part", [0, 1])
def test_part_of_a_shard_tells_of_its_own_packages_and_the_first_of_refusals(part: int) -> None:
    variants = {package_of(1): [SimpleNamespace(key=ObjectName("d", "west"))]}
    inventory = SimpleNamespace(repositories={}, claims={}, variants=())
    context = SimpleNamespace(targets={}, downstreams=variants, stalled=frozenset(), inventory=inventory)
    statuses = [status_of(package_of(0), "one"), status_of(package_of(1), "two")]

    made = DashboardWriter(cast("Any", None), Names("demo"), Shard(part, 2)).make(
        plan_with(context), statuses, {}, {}
    )

    present = {
        text: text in made.text for text in ("one/", "two/", "first shard", "second shard", "too many")
    }
    assert present == {
        "one/": part == 0,
        "two/": part == 1,
        "first shard": part == 0,
        "second shard": part == 1,
        "too many": part == 0,
    }


@pytest.mark.parametrize("part", [0, 1])
def test_part_of_a_shard_has_the_problems_of_its_repositories_and_of_what_they_claim(part: int) -> None:
    def problem(subject: str) -> Problem:
        return Problem(Location("a.yaml", 1), Reason.INVALID_MANIFEST, f"<{subject}>", "", subject)

    views = (repository("edge"), repository("other"))
    claimed = ObjectName("default", "claimed")
    context = web_context(
        stalled=frozenset({ObjectKey("config.porch.kpt.dev", "PackageVariant", *claimed)}),
        inventory={"views": views, "claims": {claimed: ("edge", "api")}},
    )
    subjects = [*(f"Repository {view.key}" for view in views), f"PackageVariant {claimed}", "Nothing"]
    plan = Plan(problems=tuple(map(problem, subjects)), context=context)

    made = DashboardWriter(cast("Any", None), Names("demo"), Shard(part, 2)).make(plan, [], {}, {})

    url = next(view.url for view in context.inventory.repositories.values() if view.key.name == "edge")
    other = next(view.url for view in context.inventory.repositories.values() if view.key.name == "other")
    holders = [*(0 if Shard(0, 2).holds(each) else 1 for each in (url, other, url)), 0]
    told = [subject for subject in subjects if f"&lt;{subject}\\>" in made.text]
    assert told == [subject for subject, holder in zip(subjects, holders, strict=True) if holder == part]


def test_run_without_a_context_tells_of_everything() -> None:
    made = DashboardWriter(cast("Any", None), Names("demo"), Shard(1, 2)).make(
        plan_with(None), [status_of(package_of(0), "one")], {}, {}
    )

    assert all(text in made.text for text in ("one/web", "first shard", "second shard", "too many"))
    assert "A limit left work" not in made.text


def target_of(forge: object) -> Target:
    return cast("Any", SimpleNamespace(forge=forge))


def test_time_of_what_is_left_is_that_of_the_slowest_forge(tmp_path: Path) -> None:
    minute, hour = transport(per_minute=1), transport(per_minute=60, per_hour=1)
    forges = {
        "a": forge_of(Issues(), minute),
        "b": forge_of(Issues(), minute),
        "c": forge_of(Issues(), hour),
        "local": Edge(tmp_path).target().forge,
    }
    targets = {url: target_of(forge) for url, forge in forges.items()}

    def eta(**left: int) -> str:
        results = {url: Result(remaining=count) for url, count in left.items()}
        made = DashboardWriter(cast("Any", None), Names("demo")).make(
            Plan(), [status_of(package_of(0), "one")], results, targets
        )
        return "".join(re.findall(r"about (\d[^.,]*\w)", made.text))

    assert eta() == eta(a=0) == eta(local=5) == ""
    assert eta(a=3) == eta(a=1, b=2) == "2 min"
    assert eta(a=3, c=2) == eta(c=2, a=3) == "1 h 00 min"
