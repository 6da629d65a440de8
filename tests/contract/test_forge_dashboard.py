"""The dashboard: one issue of the control repository on every forge, and a file where there is none."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.forge.api.dialect import Issue
from reconciler.forge.api.forge import ApiForge
from reconciler.inventory.shard import Shard
from reconciler.plan.status import current_statuses, status_value
from tests.support.forges.bench import DIALECTS, WITH_ISSUES
from tests.support.forges.server import Pull
from tests.support.forges.world import ForgeWorld, Serve, forge_world

pytestmark = pytest.mark.one_forge

ON = "  pullRequests:\n    dashboard: true\n"
CONTROL = "acme/control"


@pytest.fixture(params=WITH_ISSUES)
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    return serve(request.param, more=ON, hosted_control=True, edges=["edge-1"])


@pytest.fixture(params=WITH_ISSUES)
def divided(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    """A world with a repository for each of two shards."""
    return serve(request.param, more=ON, hosted_control=True)


def issues(world: ForgeWorld) -> list[Pull]:
    return [p for p in world.simulator.repositories[CONTROL].pulls.values() if not p.head]


def reject(world: ForgeWorld, package: str = "web") -> Pull:
    pull = next(p for p in world.pulls("edge-1") if package in p.head and p.state == "open")
    world.simulator.close("acme/edge-1", pull.number)
    return pull


def tick(issue: Pull) -> None:
    issue.body = issue.body.replace("- [ ]", "- [x]", 1)


def test_empty_dashboard_opens_no_issue(world: ForgeWorld) -> None:
    world.run()

    assert world.run().code is Exit.DONE
    assert issues(world) == []


def test_dashboard_is_written_only_when_it_changes(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    assert world.run().code is Exit.WAITING
    assert world.run().code is Exit.DONE  # a person was asked
    (issue,) = issues(world)
    writes = len(world.simulator.writes())

    world.cache = "another"
    world.run()

    assert "### Rejected" in issue.body
    assert issue.body.count("- [ ]") == 1
    assert "`edge-1/web`" in issue.body
    assert len(world.simulator.writes()) == writes


def test_ticked_box_proposes_its_package_again_once(world: ForgeWorld) -> None:
    world.run()
    first, second = reject(world, "web"), reject(world, "db")
    world.run()
    (issue,) = issues(world)
    assert issue.body.count("- [ ]") == 2
    world.simulator.clock.sleep(60)
    line = next(line for line in issue.body.splitlines() if "edge-1/web" in line)
    issue.body = issue.body.replace(line, line.replace("[ ]", "[x]"))

    world.run()

    assert [p.head for p in world.pulls("edge-1") if p.state == "open"] == [first.head]
    assert second.state == "closed"
    assert "[x]" not in issue.body
    assert issue.body.count("- [ ]") == 1
    (again,) = [p for p in world.pulls("edge-1") if p.state == "open"]
    row = rf"- \[`edge-1/web`\]\(\S+\D{again.number}\) since 2026-01-01\n"
    assert re.search(row, issue.body.partition("### In review")[2])
    assert world.run().plan.is_empty


def test_dashboard_and_status_agree(world: ForgeWorld) -> None:
    world.run()
    pull = reject(world)
    world.run()
    (issue,) = issues(world)
    closed = datetime.fromtimestamp(pull.closed or 0, UTC)

    statuses = current_statuses(world.plan().plan)
    recorded = {s.name: status_value(s) for s in statuses if s.repository and s.repository.name == "edge-1"}

    assert recorded["web"]["phase"] == "rejected"
    assert recorded["web"]["since"] == closed.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "`fleet`: 1 in review, 1 rejected." in issue.body
    for name, title in (("web", "### Rejected"), ("db", "### In review")):
        section = issue.body.partition(title)[2].partition("###")[0]
        number = recorded[name]["pullRequest"]["number"]
        row = rf"\[`edge-1/{name}`\]\(\S+\D{number}\) since {recorded[name]['since'][:10]}\b"
        assert re.search(row, section)


def test_dashboard_reports_that_nothing_is_left(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    world.upgrade("web")
    world.run()

    assert "`fleet`: 2 in review." in issue.body
    assert "### Rejected" not in issue.body


def test_a_closed_dashboard_stays_closed(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    issue.state = "closed"
    text = issue.body
    reject(world, "db")

    world.run()

    assert [i.body for i in issues(world)] == [text]


def test_issue_of_stranger_with_marker_is_ignored(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    tick(issue)
    issue.author = "mallory"
    before = [p.state for p in world.pulls("edge-1")]

    world.run()

    assert [p.state for p in world.pulls("edge-1")] == before
    assert len(issues(world)) == 2


def test_a_lost_reply_opens_no_second_issue(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.simulator.plan("reset_after", "POST", r"control.*/issues")

    world.run()

    assert len(issues(world)) == 1


def test_dashboard_of_two_runs_at_once_is_one_in_the_end(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    hosted = world.simulator.repositories[CONTROL]
    double = world.simulator.new_pull(hosted, title=issue.title, body=issue.body)
    tick(double)

    world.run()

    assert [i.state for i in issues(world)] == ["open", "closed"]
    assert f"#{issue.number}" in double.body
    # The box that was ticked in the other one counts.
    assert [p.state for p in world.pulls("edge-1") if "web" in p.head] == ["closed", "open"]


def test_text_of_people_around_a_dashboard_is_kept(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    issue.body = f"On call: kim\n\n{issue.body}\n\nSee the wiki."
    reject(world, "db")

    world.run()

    (issue,) = issues(world)
    assert issue.body.startswith("On call: kim\n\n")
    assert issue.body.endswith("See the wiki.")
    assert "2 rejected." in issue.body


def test_dashboard_whose_text_was_wiped_is_written_again(world: ForgeWorld) -> None:
    world.run()
    reject(world)
    world.run()
    (issue,) = issues(world)
    issue.body = "Wiped."

    world.run()

    (issue,) = issues(world)
    assert "1 rejected." in issue.body


def test_limited_writes_are_listed_with_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = f"{ON}    writesPerMinute: 2\n    writesPerHour: 3\n    maxWait: 60\n"
    with forge_world("github", tmp_path / "w", monkeypatch, more=more, hosted_control=True) as world:
        assert world.run().code is Exit.PARTIAL
        (issue,) = issues(world)

        assert len(world.open_heads()) == 2
        assert "### Pending" in issue.body
        assert "left work to later runs: about" in issue.body


def test_dashboard_file_is_written_beside_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forge_world("github", tmp_path / "w", monkeypatch, more=ON, edges=["edge-1"]) as world:
        world.run()
        reject(world)
        world.run()

        text = world.repo("control").read("reconciler/fleet/status", "dashboard.md").decode()
        assert "### Rejected" in text
        assert world.run().plan.is_empty


@pytest.mark.parametrize("kind", sorted(set(DIALECTS) - set(WITH_ISSUES)))
def test_dashboard_is_a_file_where_repositories_have_no_issues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with forge_world(
        kind, tmp_path / "w", monkeypatch, more=ON, edges=["edge-1"], hosted_control=True
    ) as world:
        world.run()
        reject(world)
        world.run()

        text = world.repo("control").read("reconciler/fleet/status", "dashboard.md").decode()
        assert "### Rejected" in text
        assert issues(world) == []
        assert world.run().plan.is_empty


def test_dashboard_is_off_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forge_world("github", tmp_path / "w", monkeypatch, edges=["edge-1"], hosted_control=True) as world:
        world.run()
        reject(world)
        world.run()

        assert issues(world) == []


def test_shards_keep_their_parts_in_one_issue(divided: ForgeWorld) -> None:
    shards = [Shard(part, 2) for part in range(2)]
    for shard in shards:
        divided.run(shard=shard)
    for edge in divided.edges:
        pull = next(p for p in divided.pulls(edge) if "web" in p.head and p.state == "open")
        divided.simulator.close(f"acme/{edge}", pull.number)

    for shard in shards:
        divided.run(shard=shard)

    (issue,) = issues(divided)
    assert issue.body.count("- [ ]") == len(divided.edges)
    assert issue.body.count("<!-- reconciler:shard end -->") == 2
    writes = len(divided.simulator.writes())
    divided.simulator.clock.sleep(60)
    issue.body = issue.body.replace("- [ ]", "- [x]")
    assert len(divided.simulator.writes()) == writes
    for shard in shards:
        divided.run(shard=shard)
    assert len([head for _, head in divided.open_heads() if "web" in head]) == len(divided.edges)
    assert "[x]" not in issue.body


@pytest.mark.parametrize("moment", ["before", "after"])
def test_shards_side_by_side_lose_no_part(
    divided: ForgeWorld, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    shards = [Shard(part, 2) for part in range(2)]
    for shard in shards:
        divided.run(shard=shard)
    for edge in divided.edges:
        pull = next(p for p in divided.pulls(edge) if "web" in p.head and p.state == "open")
        divided.simulator.close(f"acme/{edge}", pull.number)
    slow, fast = (divided.plan(shard=shard) for shard in shards)
    write_issue, left = ApiForge.write_issue, [fast]

    def interrupted(forge: ApiForge, key: str, title: str, body: str) -> Issue | None:
        """Write what was computed before the other shard did all of its work, or let it do that then."""
        issue = write_issue(forge, key, title, body) if moment == "after" else None
        if left:
            divided.apply(left.pop())
        return issue or write_issue(forge, key, title, body)

    monkeypatch.setattr(ApiForge, "write_issue", interrupted)
    assert divided.apply(slow).code is Exit.WAITING

    (issue,) = issues(divided)
    assert issue.body.count("- [ ]") == len(divided.edges)
    assert issue.body.count("<!-- reconciler:shard end -->") == 2
