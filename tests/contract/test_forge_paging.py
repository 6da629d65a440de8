"""Everything that a forge lists page by page is read to its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.inventory.inventory import PullRequest
from tests.support.forges.bench import DIALECTS, HEADS, WITH_ISSUES, SimulatorBench, shorten_pages, simulated
from tests.support.forges.gitea import GiteaSimulator

WEB = HEADS["web"]
MANY = range(3)


@pytest.fixture(params=list(DIALECTS))
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatorBench]:
    with simulated(request.param, tmp_path) as made:
        shorten_pages(made.simulator, 1, monkeypatch)
        yield made


def desired(head: str = WEB, *labels: str) -> PullRequest:
    return PullRequest(head=head, base="main", title="Create", body="Why.", draft=True, labels=labels)


def test_pull_requests(bench: SimulatorBench) -> None:
    opened = [bench.forge.ensure(desired(head)) for head in HEADS.values()]

    assert list(bench.again().list_pulls()) == opened


def test_comments(bench: SimulatorBench) -> None:
    number = bench.forge.ensure(desired()).number
    comments = bench.hosted.pulls[number].comments
    comments |= dict.fromkeys(MANY, ("kim", "A person's."))
    bench.forge.comment(number, key="conflicts", body="One.")
    comments |= {100 * number + key: ("kim", "More.") for key in MANY}

    bench.again().comment(number, key="conflicts", body="Two.")

    own = [text for author, text in comments.values() if author == bench.simulator.bot]
    assert len(own) == 1
    assert "Two." in own[0]


def test_checks(bench: SimulatorBench) -> None:
    oid = bench.hosted.repo.oid(WEB)
    names = {f"ci/{number}" for number in MANY}
    for name in names:
        bench.simulator.check("acme/edge", oid, name)

    assert bench.again().checks(oid).keys() == names


@pytest.mark.parametrize("bench", WITH_ISSUES, indirect=True)
def test_issues(bench: SimulatorBench) -> None:
    for _ in MANY:
        bench.forge.dialect.create_issue("A person's", "Text")
    bench.forge.write_issue("dashboard", "Dashboard", "One.")
    for _ in MANY:
        bench.forge.dialect.create_issue("A person's", "Text")

    issue = bench.again().write_issue("dashboard", "Dashboard", "Two.")

    assert issue is not None
    assert issue.number == len(MANY) + 1
    assert len(bench.hosted.pulls) == 2 * len(MANY) + 1


@pytest.mark.parametrize("owner", ["repository", "organization"])
def test_labels(tmp_path: Path, owner: str) -> None:
    with simulated("gitea", tmp_path) as gitea:
        simulator = gitea.simulator
        assert isinstance(simulator, GiteaSimulator)
        simulator.most_in_a_page = 1
        labels = {f"label-{number}": 900 + number for number in MANY}
        before = {"label-0": 1, "label-1": 2, "label-2": 3}
        if owner == "organization":
            simulator.organization_labels = labels
        else:
            gitea.hosted.label_ids = dict(before)

        pull = gitea.forge.ensure(desired(WEB, *labels))

        assert pull.labels == tuple(sorted(labels))
        assert gitea.hosted.label_ids == ({} if owner == "organization" else before)
