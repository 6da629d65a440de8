"""Whole runs from the command line on the server that the environment names, else on a simulated one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.support.forges.gitea_api import GiteaServer, HostedRepository
from tests.support.git import Repo, make_repository
from tests.support.small_world import CONFIGURATION, blueprint, manifest, repository, variant

pytestmark = pytest.mark.slow

VARIABLE = "RECONCILER_TEST_TOKEN"
PACKAGES = ("db", "web")
HEADS = [f"drafts/{package}/packagevariant-1" for package in PACKAGES]
SERVED = """\
  forges:
  - {{prefix: {prefix}, type: gitea, api: {url}/api/v1}}
  credentials:
  - {{prefix: {prefix}, username: x-access-token, tokenEnv: {variable}}}
  pullRequests: {{labels: [fleet], dashboard: true, writesPerMinute: 6000, writesPerHour: 60000}}
{more}"""
APPROVAL = "  approval: {auto: [{checks: [ci/build]}]}\n"
Command = Callable[..., str]


class Fleet:
    """Control on this machine and on the server, two repositories with two packages each on the server."""

    def __init__(self, server: GiteaServer, root: Path) -> None:
        self.server, self.root = server, root
        self.prefix = f"{server.url}/{server.organization}"
        number = len(server.repositories)
        self.edges = [self._host(f"edge-{number + place}", {"README.md": "edge\n"}) for place in (0, 1)]
        blueprints = make_repository(root / "blueprints.git", blueprint("web", 1) | blueprint("db", 1))
        for package in PACKAGES:
            blueprints.tag(f"{package}/v1")
        blueprints.commit(blueprint("web", 2), message="Release 2\n")
        blueprints.tag("web/v2")
        files = {"manifests/repositories/blueprints.yaml": self._registration("blueprints", blueprints.path)}
        for edge in self.edges:
            files[f"manifests/repositories/{edge.name}.yaml"] = self._registration(edge.name, edge.url)
            files |= {manifest(edge.name, package): variant(edge.name, package) for package in PACKAGES}
        self.control = self._host(f"control-{number}", files | {"reconciler.yaml": self._configuration("")})

    def _host(self, name: str, files: dict[str, str]) -> HostedRepository:
        return self.server.host(make_repository(self.root / f"{name}.git", dict(files)), name)

    def _registration(self, name: str, address: object) -> str:
        return repository(name).replace(f"../{name}.git", str(address))

    def _configuration(self, more: str) -> str:
        return CONFIGURATION + SERVED.format(
            prefix=self.prefix, url=self.server.url, variable=VARIABLE, more=more
        )

    def change(self, files: dict[str, str]) -> None:
        """Commit to the control repository as a person does."""
        Repo(self.control.repo.path, time=1_767_300_000 + len(files)).commit(files, message="Change\n")
        self.control.push("main")

    def approve_checked(self) -> None:
        """Let drafts be approved whose check passed."""
        self.change({"reconciler.yaml": self._configuration(APPROVAL)})

    def written(self) -> list[tuple[str, str, str]]:
        """Return what a write would change of each pull request."""
        pulls = (pull for edge in self.edges for pull in edge.pulls())
        return [(pull["title"], pull["body"], pull["updated_at"]) for pull in pulls]

    def heads(self) -> list[list[str]]:
        """Return the heads of the open pull requests of each repository."""
        return [sorted(edge.open_heads()) for edge in self.edges]


@pytest.fixture
def fleet(gitea: GiteaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv(VARIABLE, gitea.bot.token)
    monkeypatch.setenv("RECONCILER_CONTROL_TOKEN", gitea.bot.token)
    return Fleet(gitea, tmp_path)


@pytest.fixture
def command(fleet: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, code: Exit = Exit.DONE, cache: str = "cache") -> str:
        where = ["--control", fleet.control.url, "--cache-dir", str(tmp_path / cache)]
        exit_code = invoke([*arguments, *where])
        printed = capfd.readouterr()
        assert exit_code == code, printed.out + printed.err
        return printed.out + printed.err

    return run


def test_life_of_a_fleet(fleet: Fleet, command: Command) -> None:
    command("apply")
    assert fleet.heads() == [HEADS, HEADS]
    for edge in fleet.edges:
        # Servers before 1.22 do not tell drafts but by their titles.
        shown = {(pull["title"].startswith("WIP:"), pull["labels"][0]["name"]) for pull in edge.pulls()}
        assert shown == {(True, "fleet")}
    before = fleet.written()
    assert "Nothing to do" in command("apply", cache="another")
    assert fleet.written() == before

    first, second = fleet.edges
    fleet.change({manifest(edge.name, "web"): variant(edge.name, "web", revision=2) for edge in fleet.edges})
    command("apply")
    assert all(pull["title"].endswith(("web/v2", "db/v1")) for edge in fleet.edges for pull in edge.pulls())

    rejected = next(pull["number"] for pull in second.pulls() if "/db/" in pull["head"]["label"])
    second.call("PATCH", f"/pulls/{rejected}", {"state": "closed"})
    command("apply", code=Exit.WAITING)
    assert any("Dashboard" in issue["title"] for issue in fleet.control.call("GET", "/issues?type=issues"))

    fleet.approve_checked()
    for pull in (*first.pulls(), *second.pulls()):
        status = {"context": "ci/build", "state": "success"}
        (second if pull in second.pulls() else first).call("POST", f"/statuses/{pull['head']['sha']}", status)
    command("apply")  # a person was asked
    assert fleet.heads() == [[], []]
    command("apply")
    tags = [{ref for ref in edge.refs() if ref.startswith("refs/tags/")} for edge in fleet.edges]
    assert tags == [{"refs/tags/db/v1", "refs/tags/web/v1"}, {"refs/tags/web/v1"}]

    second.call("PATCH", f"/pulls/{rejected}", {"state": "open"})
    command("approve", f"{second.name}/db")
    command("apply")
    assert "refs/tags/db/v1" in second.refs()
    assert "Nothing to do" in command("apply", cache="fresh")
